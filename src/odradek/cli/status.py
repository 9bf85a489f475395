"""`odradek status`: what is wrong with the cluster right now, the worst first."""

import asyncio
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from odradek.cli.output import Listing, examples, json_option, moment, plural, print_json
from odradek.cli.session import with_cluster
from odradek.operations import (
    ClusterSnapshot,
    Problem,
    Severity,
    assess,
    read_history,
    take_snapshot,
)
from odradek.operations.health import ADVICE
from odradek.operations.snapshot import DISK_USED_MAX

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
@click.option(
    "--disk",
    type=click.IntRange(0, 100),
    default=round(DISK_USED_MAX * 100),
    show_default=True,
    metavar="PERCENT",
    help="A disk that is fuller than this is reported.",
)
@click.option(
    "--http-token",
    envvar="ODRADEK_HTTP_TOKEN",
    show_envvar=True,
    help="The brokers' odradek.http.token, to read their journals from another machine.",
)
@json_option
@with_cluster
def status(
    cluster: "Blocking", interval: float, disk: int, http_token: str | None, as_json: bool
) -> None:
    """Report offline and under-replicated partitions, brokers and log directories that are down,
    nearly full disks, growing lag, stalled moves and a new controller: since when, and the cause
    that the controller's journal gives. Exits with 1 if there is more than a notice.

    Apache Kafka's brokers keep no journal: for their problems, time and cause are not known."""
    given = click.get_current_context().get_parameter_source("interval")
    always = given is not ParameterSource.DEFAULT
    before, now = cluster.run(_sample(cluster, interval, always, disk / 100))
    history = cluster.run(read_history(cluster.admin, now, before, http_token))
    problems = assess(now, before, history)
    listing = Listing(
        [_row(problem) for problem in problems],
        {
            "severity": "severity",
            "problem": "text",
            "reason": "reason",
            "since": "since",
            "cause": "cause",
        },
    )
    wrong = [problem for problem in problems if problem.severity < Severity.NOTICE]
    summary = {
        "brokers": sorted(now.brokers),
        "controller": now.controller_id,
        "topics": len(now.topics),
        "partitions": sum(len(topic.partitions) for topic in now.topics.values()),
        "groups": len(now.group_lags),
    }
    if as_json:
        print_json({"healthy": not wrong, "cluster": summary, "problems": listing.rows})
    else:
        if problems:
            listing.show(as_json=False)
        head = plural(len(wrong), "problem") if wrong else "healthy"
        click.echo(
            f"{head}: {plural(len(now.brokers), 'broker')}, controller {now.controller_id}, "
            f"{plural(len(now.topics), 'topic')}, {plural(len(now.group_lags), 'group')}"
        )
    if wrong:
        click.get_current_context().exit(1)


async def _sample(
    cluster: "Blocking", interval_s: float, always: bool, disk_used_max: float
) -> tuple[ClusterSnapshot | None, ClusterSnapshot]:
    first = await take_snapshot(cluster.admin, cluster.groups, disk_used_max)
    if interval_s == 0 or not (always or first.needs_second):
        return None, first
    await asyncio.sleep(interval_s)
    return first, await take_snapshot(cluster.admin, cluster.groups, disk_used_max)


def _row(problem: Problem) -> dict[str, object]:
    return {
        "severity": problem.severity.name.lower(),
        "kind": problem.kind,
        "subject": problem.subject,
        "text": problem.text,
        "reason": problem.reason,
        "since": None if problem.since_ms is None else moment(problem.since_ms),
        "cause": problem.cause,
        "advice": ADVICE.get(problem.kind, ""),
    }
