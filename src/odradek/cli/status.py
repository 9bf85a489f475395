"""`odradek status`: what is wrong with the cluster right now, the worst first."""

import asyncio
import time
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from odradek.cli.output import Listing, examples, json_option, moment, plural, print_json
from odradek.cli.session import with_cluster
from odradek.operations import ClusterSnapshot, Problem, assess, take_snapshot

if TYPE_CHECKING:
    from odradek.client import Blocking

INTERVAL_S = 5.0


@click.command(epilog=examples("odradek status", "odradek status --json --interval 30"))
@click.option(
    "--interval",
    type=click.FloatRange(0),
    default=INTERVAL_S,
    show_default=True,
    metavar="SECONDS",
    help="Time between two samples, to see whether lag grows and moves stall. Unless given, a "
    "second sample is only taken if a group lags or a partition moves; 0 takes one.",
)
@json_option
@with_cluster
def status(cluster: "Blocking", interval: float, as_json: bool) -> None:
    """Report offline and under-replicated partitions, brokers and log directories that are down,
    nearly full disks, growing lag and stalled moves. Exits with 1 if there is anything."""
    given = click.get_current_context().get_parameter_source("interval")
    always = given is not ParameterSource.DEFAULT
    before, now = cluster.run(_sample(cluster, interval, always))
    problems = assess(now, before)
    # A snapshot has the time of the event loop; a person wants that of the wall.
    offset_s = time.time() - time.monotonic()
    listing = Listing(
        [_row(problem, offset_s) for problem in problems],
        {"severity": "severity", "problem": "text", "reason": "reason", "since": "since"},
    )
    summary = {
        "brokers": sorted(now.brokers),
        "controller": now.controller_id,
        "topics": len(now.topics),
        "partitions": sum(len(topic.partitions) for topic in now.topics.values()),
        "groups": len(now.group_lags),
    }
    if as_json:
        print_json({"healthy": not problems, "cluster": summary, "problems": listing.rows})
    else:
        if problems:
            listing.show(as_json=False)
        head = plural(len(problems), "problem") if problems else "healthy"
        click.echo(
            f"{head}: {plural(len(now.brokers), 'broker')}, controller {now.controller_id}, "
            f"{plural(len(now.topics), 'topic')}, {plural(len(now.group_lags), 'group')}"
        )
    if problems:
        click.get_current_context().exit(1)


async def _sample(
    cluster: "Blocking", interval_s: float, always: bool
) -> tuple[ClusterSnapshot | None, ClusterSnapshot]:
    first = await take_snapshot(cluster.admin, cluster.groups)
    if interval_s == 0 or not (always or first.needs_second):
        return None, first
    await asyncio.sleep(interval_s)
    return first, await take_snapshot(cluster.admin, cluster.groups)


def _row(problem: Problem, offset_s: float) -> dict[str, object]:
    since_s = problem.since_s
    return {
        "severity": problem.severity.name.lower(),
        "kind": problem.kind,
        "subject": problem.subject,
        "text": problem.text,
        "reason": problem.reason,
        # Without a history there is only "after the first sample", or nothing.
        "since": None if since_s is None else moment(int((since_s + offset_s) * 1000)),
    }
