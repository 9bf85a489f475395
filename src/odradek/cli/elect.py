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
@click.option("--preferred", is_flag=True, help="The first of the replicas.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Any replica that is alive, for partitions without a leader. Records may be lost.",
)
@click.option("--topic", "-t", help="One topic; default: all.", shell_complete=complete_topics)
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
    preferred: bool,
    unclean: bool,
    topic: str | None,
    indexes: tuple[int, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Elect leaders: the preferred replicas, or any that are alive where there is no leader."""
    from odradek import operations
    from odradek.client import ElectionType
    from odradek.wire.errors import ErrorCode

    if preferred == unclean:
        raise click.UsageError("choose one election: --preferred or --unclean")
    if indexes and topic is None:
        raise click.UsageError("--partition needs --topic")
    if unclean and not yes:
        click.confirm(
            "An unclean election loses the records that only unavailable replicas have. Continue?",
            abort=True,
        )
    partitions = None
    if topic is not None:
        metadata = cluster.run(cluster.client.require_topics([topic]))
        partitions = [TopicPartition(topic, index) for index in indexes]
        partitions = partitions or metadata.partitions_of([topic])
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    outcomes = cluster.run(operations.elect(cluster.admin, kind, partitions))
    failures = {
        tp: error
        for tp, error in outcomes.items()
        if error is not None and error.error is not ErrorCode.ELECTION_NOT_NEEDED
    }
    elected = [tp for tp, error in outcomes.items() if error is None]
    if as_json:
        print_json(
            {
                "elected": [str(tp) for tp in sorted(elected)],
                "failed": {str(tp): explain(error) for tp, error in sorted(failures.items())},
            }
        )
    else:
        for tp in sorted(elected):
            click.echo(f"{tp} has a new leader")
        if not elected and not failures:
            click.echo("no partition needs an election")
    finish(failures)
