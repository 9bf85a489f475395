"""`odradek elect`: elect leaders for partitions, as kafka-leader-election does."""

from typing import TYPE_CHECKING

import click

from odradek.cli.output import examples, json_option, print_json
from odradek.cli.session import INT32_MAX, complete_topics, explain, finish, with_cluster
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.client import Blocking


@click.command(
    epilog=examples(
        "odradek elect --preferred", "odradek elect --unclean --topic orders --partition 3"
    )
)
@click.option("--preferred", "kind", flag_value="PREFERRED", help="The first of the replicas.")
@click.option(
    "--unclean",
    "kind",
    flag_value="UNCLEAN",
    help="Any that lives, for partitions without a leader. Records may be lost.",
)
@click.option("--topic", "-t", help="One topic; otherwise all.", shell_complete=complete_topics)
@click.option(
    "--partition",
    "-p",
    "indexes",
    type=click.IntRange(0, INT32_MAX),
    multiple=True,
    help="May be repeated.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask before an unclean election.")
@json_option
@with_cluster
def elect(
    cluster: "Blocking",
    kind: str | None,
    topic: str | None,
    indexes: tuple[int, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Elect leaders: the preferred ones, or any that live where there is none."""
    from odradek.client import ElectionType
    from odradek.wire.errors import ErrorCode

    if kind is None:
        raise click.UsageError("say which election: --preferred or --unclean")
    if indexes and topic is None:
        raise click.UsageError("--partition needs --topic")
    if kind == "UNCLEAN" and not yes:
        click.confirm("Records that only lost replicas have will be gone. Go on?", abort=True)
    partitions = None
    if topic is not None:
        metadata = cluster.run(cluster.client.require_topics([topic]))
        partitions = [TopicPartition(topic, index) for index in indexes]
        partitions = partitions or metadata.partitions_of([topic])
    outcomes = cluster.run(cluster.admin.elect_leaders(ElectionType[kind], partitions))
    failures = {
        part: error
        for part, error in outcomes.items()
        if error is not None and error.error is not ErrorCode.ELECTION_NOT_NEEDED
    }
    elected = [part for part, error in outcomes.items() if error is None]
    if as_json:
        print_json(
            {
                "elected": [str(part) for part in sorted(elected)],
                "failed": {str(part): explain(error) for part, error in sorted(failures.items())},
            }
        )
    else:
        for part in sorted(elected):
            click.echo(f"{part} has a new leader")
        if not elected and not failures:
            click.echo("no partition needs one")
    finish(failures)
