"""`odradek rebalance`: plans by load, and what they do."""

from pathlib import Path

import click

from odradek.balance.plan import InvalidPlan, Plan
from odradek.cli.output import Listing, duration, examples, json_option, plural, print_json, size


@click.group(epilog=examples("odradek rebalance show plan.json --why"))
def rebalance() -> None:
    """Level what brokers bear: plan by load, and look at plans."""


def read_plan(file: Path) -> Plan:
    """The plan in a file, or one line that says what is wrong with it."""
    try:
        return Plan.from_json(file.read_bytes())
    except InvalidPlan as error:
        raise click.ClickException(f"{file}: {error}") from None


@rebalance.command(epilog=examples("odradek rebalance show plan.json --why"))
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--why", is_flag=True, help="Each move with the rule it serves and what it gains.")
@json_option
def show(plan: Path, why: bool, as_json: bool) -> None:
    """What a plan moves, and with --why the reason of each move."""
    found = read_plan(plan)
    if as_json:
        print_json(found.to_dict())
        return
    print_moves(found, why=why)
    click.echo(in_short(found))


def print_moves(plan: Plan, *, why: bool) -> None:
    """The moves as a table, in the order in which they are carried out."""
    columns = {"#": "#", "partition": "partition", "from": "from", "to": "to", "bytes": "bytes"}
    if why:
        columns |= {"rule": "rule", "gain": "gain", "after": "after"}
    Listing(
        [
            {
                "#": place,
                "partition": str(move.tp),
                "from": list(move.before),
                "to": list(move.after),
                "bytes": size(move.bytes) if move.bytes else "",
                "rule": move.rule,
                "gain": move.gain,
                "after": move.because_of,
            }
            for place, move in enumerate(plan.moves)
        ],
        columns,
    ).show(as_json=False, empty="nothing has to move")


def in_short(plan: Plan) -> str:
    """What a plan costs, in one line."""
    cost = plan.cost
    text = (
        f"{plural(cost.leaderships, 'leadership')}, then {cost.copies} "
        f"{'copy' if cost.copies == 1 else 'copies'}: {size(cost.bytes)} (bound "
        f"{size(plan.bound)}), ~{duration(cost.seconds)} at {size(cost.rate)}/s"
    )
    if cost.busiest is not None:
        text += f", broker {cost.busiest} sends {size(cost.busiest_bytes)}"
    return text
