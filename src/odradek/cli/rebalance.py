"""`odradek rebalance`: plans by load, and what they do.

Exit codes: 0 a plan, or nothing to do; 1 a hard rule cannot be met, or with --check something
should move; 2 a usage error; 130 interrupted, with the plan found so far if that was in the search.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from odradek.balance.plan import (
    MET,
    UNATTAINABLE,
    BrokerResult,
    InvalidPlan,
    Plan,
    Span,
)
from odradek.balance.settings import InvalidSettings, Settings, parse_span, read_settings
from odradek.cli.output import (
    Listing,
    console,
    duration,
    examples,
    json_option,
    plural,
    print_json,
    print_table,
    size,
)
from odradek.cli.session import with_cluster
from odradek.placement import parse_broker_list

if TYPE_CHECKING:
    from odradek.balance.model import Cluster
    from odradek.balance.search import Budget, Outcome
    from odradek.client import Blocking

SETTINGS_FILE = Path("rebalance.toml")
# The columns of the table of brokers.
SHOWN = ("cpu", "in", "out", "disk", "replicas", "leaders")
COUNTED = ("replicas", "leaders")
BARS = 9
settings_option = click.option(
    "--settings",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"Settings of plans, their pace and healing; default: {SETTINGS_FILE} if it exists.",
)


@click.group(
    epilog=examples(
        "odradek rebalance plan -o plan.json",
        "odradek rebalance show plan.json --why",
    )
)
def rebalance() -> None:
    """Balance brokers by load: make, show, apply and roll back plans."""


def span_s(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """The callback of an option that takes a time: 60s, 5min, 2h."""
    try:
        return None if value is None else parse_span(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _ids(context: click.Context, parameter: click.Parameter, value: str | None) -> frozenset[int]:
    """The callback of an option that takes brokers: 1,2,3."""
    return frozenset() if value is None else frozenset(parse_broker_list(value))


@rebalance.command(
    "plan",
    epilog=examples(
        "odradek rebalance plan -o plan.json",
        "odradek rebalance plan --remove 4 --exclude-topic 'audit-.*'",
        "odradek rebalance plan --check || echo unbalanced",
    ),
)
@click.option(
    "--brokers", "-B", "only", callback=_ids, metavar="IDS", help="Use only these, 1,2,3."
)
@click.option("--remove", callback=_ids, metavar="IDS", help="Brokers that shall end up empty.")
@click.option("--exclude-topic", multiple=True, metavar="PATTERN", help="Leave these topics alone.")
@settings_option
@click.option("--budget", callback=span_s, metavar="TIME", help="Search so long, such as 60s.")
@click.option("--evaluations", type=click.IntRange(1), help="Search so far: gives a plan again.")
@click.option("--fewer-moves", is_flag=True, help="Fewer and larger copies, if more bytes.")
@click.option("--spark", "on_spark", is_flag=True, help="Search in cells of brokers, on Spark.")
@click.option("--check", is_flag=True, help="Exit with 1 if something should move.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write the plan to a file.")
@json_option
@with_cluster
def make_plan(
    cluster: "Blocking",
    only: frozenset[int],
    remove: frozenset[int],
    exclude_topic: tuple[str, ...],
    settings: Path | None,
    budget: float | None,
    evaluations: int | None,
    fewer_moves: bool,
    on_spark: bool,
    check: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Find the moves that level the brokers, and keep them as a plan. Moves nothing.

    Without telemetry a plan levels disk and the numbers of replicas and leaders. The file that
    --output writes is a reassignment for Kafka's tools, too. Ctrl-C ends the search with the plan
    that it has found so far, and exit code 130.
    """
    chosen = usable_settings(settings, exclude_topic)
    if fewer_moves:
        chosen = chosen.with_fewer_moves()
    if on_spark and (budget is not None or evaluations is not None):
        raise click.UsageError("--spark searches to the end: without --budget and --evaluations")
    found = plan_for(
        cluster,
        chosen,
        remove=remove,
        only=only,
        seconds=budget,
        evaluations=evaluations,
        on_spark=on_spark,
    )
    if output is not None:
        output.write_text(found.plan.to_file())
    finish(cluster, found, as_json=as_json, is_kept=not check)
    if check and found.plan.moves:
        raise click.exceptions.Exit(1)


class Found(NamedTuple):
    """What a search gave, and whether Ctrl-C ended it."""

    plan: Plan
    is_interrupted: bool


def finish(cluster: "Blocking", found: Found, *, as_json: bool, is_kept: bool = True) -> None:
    """Keep a plan in the cluster, so that it is applied and looked at by its id, and print it.
    Exits with what a search that was interrupted, or cannot meet a hard rule, exits with."""
    from odradek.balance.plan_store import PlanStore

    plan = found.plan
    if plan.moves and is_kept:
        store = PlanStore(cluster.admin)
        cluster.run(store.put(plan, cluster.run(store.read())))
    if as_json:
        print_json(plan.to_dict())
    else:
        print_plan(plan, is_kept=is_kept)
    if found.is_interrupted:
        raise KeyboardInterrupt
    if not plan.is_attainable:
        raise click.exceptions.Exit(1)


def usable_settings(path: Path | None, exclude: Sequence[str] = ()) -> Settings:
    """The settings of a file, or of the one that is there, or none."""
    if path is None and SETTINGS_FILE.exists():
        path = SETTINGS_FILE
    try:
        found = Settings() if path is None else read_settings(path)
        return found.excluding(exclude)
    except InvalidSettings as error:
        raise click.ClickException(str(error)) from None


def plan_for(
    cluster: "Blocking",
    settings: Settings,
    *,
    remove: frozenset[int] = frozenset(),
    only: frozenset[int] = frozenset(),
    seconds: float | None = None,
    evaluations: int | None = None,
    on_spark: bool = False,
) -> Found:
    """Ask the cluster and search, with a line about what takes its time. Ctrl-C ends the search,
    which gives what it has found so far."""
    from odradek.balance.compilation import compile_apart, is_compiled
    from odradek.balance.current import current_load
    from odradek.balance.execution import settle
    from odradek.balance.explain import Facts
    from odradek.balance.model import InvalidModel
    from odradek.balance.plan_store import PlanStore
    from odradek.balance.proposal import propose
    from odradek.balance.search import Budget

    compiler = None if is_compiled() else compile_apart()
    now_ms = time.time_ns() // 1_000_000
    with console(stderr=True).status("reading the load"):
        load = cluster.run(current_load(cluster.admin, now_ms))
    if compiler is not None:
        with console(stderr=True).status("compiling the planner, once on this machine"):
            compiler.wait()
    store = PlanStore(cluster.admin)
    stored = cluster.run(store.read())
    if stored.running():
        stored = cluster.run(settle(cluster.admin, store, stored, now_ms))
    for id in stored.running():
        click.echo(f"note: plan {id} is being carried out; make this plan again after it", err=True)
    facts = Facts(stored.new_id(now_ms), now_ms, load.as_of_ms or now_ms, load.coverage)
    limit = Budget(evaluations, None if seconds is None else _until(seconds))
    try:
        with (
            console(stderr=True).status("searching; Ctrl-C gives what is found so far"),
            _stopping(limit) as is_interrupted,
        ):
            search = _searching_on_spark(settings) if on_spark else None
            plan = propose(load, settings, limit, facts, remove=remove, only=only, search=search)
    except InvalidModel as error:
        raise click.ClickException(str(error)) from None
    if is_interrupted.is_set():
        click.echo(
            f"interrupted: the plan found so far, after {plan.evaluations:,} evaluations; "
            f"--evaluations {plan.evaluations} gives it again",
            err=True,
        )
    return Found(plan, is_interrupted.is_set())


def _searching_on_spark(settings: Settings) -> "Callable[[Cluster, Budget], Outcome]":
    """A search by cells of brokers, each a task of Spark."""
    from odradek.balance.cells import find_in_cells
    from odradek.java import NoJava
    from odradek.spark.plan_cells import Cells
    from odradek.spark.session import open_session, prepare_environment, until_exit

    def search(cluster: "Cluster", budget: "Budget") -> "Outcome":
        log = until_exit("odradek-plan-") / "spark.log"
        spark = open_session("odradek-plan", settings.spark.master, log=log)
        try:
            return find_in_cells(cluster, settings.spark.cells, budget, Cells(spark).solve)
        finally:
            spark.stop()

    try:
        prepare_environment()
    except NoJava as error:
        raise click.ClickException(str(error)) from None
    return search


@contextlib.contextmanager
def _stopping(budget: "Budget") -> Iterator[threading.Event]:
    """Ctrl-C stops a search and sets the event. A second one interrupts as ever: compiled loops
    look up every few milliseconds, but what comes before and after them may take its time."""
    is_interrupted = threading.Event()

    def stop(number: int, frame: object) -> None:
        is_interrupted.set()
        budget.stop()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield is_interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _until(seconds: float) -> Callable[[int], bool]:
    end = time.monotonic() + seconds
    return lambda evaluations: time.monotonic() >= end


def print_plan(plan: Plan, *, is_kept: bool) -> None:
    """Who bears what before and after, which rules are met, and what it costs."""
    click.echo(
        f"load: measured of {plan.coverage:.1%} of all replicas"
        + ("" if plan.coverage else ", so sizes and counts alone")
    )
    changed = [each for each in plan.brokers if _is_outside(each)]
    if changed:
        click.echo("now→then, 1.00 = a broker's share")
        print_table(["broker", *SHOWN, ""], [_cells(each) for each in changed])
    others = len(plan.brokers) - len(changed)
    if others:
        click.echo(f"{plural(others, 'broker')} {'was' if others == 1 else 'were'} in the band")
    met = sum(result.state == MET for result in plan.rules)
    were = sum(not result.outside_before for result in plan.rules)
    short = [result for result in plan.rules if result.state == UNATTAINABLE]
    click.echo(
        f"rules: {met} met (were {were})" + (f", {len(short)} unattainable" if short else "")
    )
    for result in plan.rules:
        if result.state != MET:
            click.echo(f"  {result.rule}: {result.proof}")
    if not plan.moves:
        click.echo("nothing has to move")
        return
    click.echo(in_short(plan))
    if is_kept:
        click.echo(
            f"plan {plan.id}  ·  odradek rebalance apply {plan.id}  ·  why: "
            f"odradek rebalance show {plan.id} --why"
        )


def _is_outside(broker: BrokerResult) -> bool:
    return any(
        not span.low <= value <= span.high
        for name, span in broker.resources.items()
        if name in SHOWN
        for value in (span.before, span.after)
    )


def _cells(broker: BrokerResult) -> list[object]:
    cells: list[object] = [broker.broker]
    worst = max(
        (broker.resources[name] for name in SHOWN if broker.resources[name].share),
        key=lambda span: abs(span.before / span.share - 1),
        default=None,
    )
    for name in SHOWN:
        span = broker.resources[name]
        if not span.share:
            cells.append("")
        elif name in COUNTED:
            cells.append(f"{span.before:,}→{span.after:,}")
        else:
            cells.append(f"{span.before / span.share:.2f}→{span.after / span.share:.2f}")
    cells.append(
        "" if worst is None else f"{_bar(worst, worst.before)} → {_bar(worst, worst.after)}"
    )
    return cells


def _bar(span: Span, value: int) -> str:
    """As long as the value is of twice the share."""
    return "▇" * max(0, min(BARS, round(value / span.share * BARS / 2)))


def read_plan(file: Path) -> Plan:
    """The plan in a file, or one line that says what is wrong with it."""
    try:
        return Plan.from_json(file.read_bytes())
    except InvalidPlan as error:
        raise click.ClickException(f"{file}: {error}") from None


@rebalance.command(
    epilog=examples(
        "odradek rebalance show 20261116-1 --why",
        "odradek rebalance show plan.json --html plan.html",
    )
)
@click.argument("plan")
@click.option("--why", is_flag=True, help="Each move with the rule it serves and what it gains.")
@click.option(
    "--html", type=click.Path(path_type=Path), help="Write one page: brokers before and after."
)
@json_option
@with_cluster
def show(cluster: "Blocking", plan: str, why: bool, html: Path | None, as_json: bool) -> None:
    """Show what a plan moves, by its id or from a file; with --why, the reason for each move."""
    file = Path(plan)
    if file.is_file():
        found = read_plan(file)
    else:
        from odradek.balance.plan_store import PlanStore

        found = cluster.run(PlanStore(cluster.admin).read()).plan(plan)
    if html is not None:
        from odradek.balance.page import page_of

        html.write_text(page_of(found), encoding="utf-8")
    if as_json:
        print_json(found.to_dict())
        return
    print_moves(found, why=why)
    for broker in found.brokers if why else ():
        for name, text in broker.reasons.items():
            click.echo(f"broker {broker.broker} stays outside its band of {name}: {text}")
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
    # A plan that leaves brokers outside their bands may copy less than one that levels all.
    bound = "bound" if plan.bound <= cost.bytes else "to level all:"
    text = (
        f"{plural(cost.leaderships, 'leadership')}, then {cost.copies} "
        f"{'copy' if cost.copies == 1 else 'copies'}: {size(cost.bytes)} ({bound} "
        f"{size(plan.bound)}), ~{duration(cost.seconds)} at {size(cost.rate)}/s"
    )
    if cost.busiest is not None:
        text += f", broker {cost.busiest} sends {size(cost.busiest_bytes)}"
    return text
