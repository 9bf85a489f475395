"""`odradek top`: what brokers, topics and consumer groups are doing right now."""

import asyncio
import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from odradek.cli.output import console, examples, json_option, print_json, print_table, size, table
from odradek.cli.session import with_cluster
from odradek.operations import Activity, compare, read_brokers, take_snapshot

if TYPE_CHECKING:
    from odradek.client import Blocking

INTERVAL_S = 2.0
TOPICS_SHOWN = 20
BROKERS = ("broker", "records/s", "in", "out", "requests/s", "errors/s")
BROKER_TIMES = ("produce p99", "fetch p99", "loop lag p99", "leads", "under-replicated")
TOPICS = ("topic", "records/s", "in", "out")
GROUPS = ("group", "lag")
Rows = list[list[str]]


@click.command(epilog=examples("odradek top", "odradek top --json --interval 10"))
@click.option(
    "--interval",
    type=click.FloatRange(0, min_open=True),
    default=INTERVAL_S,
    show_default=True,
    metavar="SECONDS",
    help="Time between two readings.",
)
@click.option("--once", is_flag=True, help="Print one sample and exit.")
@json_option
@with_cluster
def top(cluster: "Blocking", interval: float, once: bool, as_json: bool) -> None:
    """Show rates and request times of every broker, the busiest topics, and the lag of groups.

    The figures are from the brokers' own metrics (odradek.http.listener), between two readings. The
    times are those of the bucket that 99 of 100 requests are within.
    """
    before = cluster.run(read_brokers(cluster.admin))
    if as_json or once or not sys.stdout.isatty():
        cluster.run(asyncio.sleep(interval))
        activity = compare(before, cluster.run(read_brokers(cluster.admin)))
        lags = _group_lags(cluster)
        if as_json:
            print_json({**dataclasses.asdict(activity), "groups": lags})
        else:
            for headings, rows in _tables(activity, lags):
                print_table(headings, rows)
                click.echo()
        return
    from rich.console import Group
    from rich.live import Live

    with Live(console=console(), auto_refresh=False) as live:
        try:
            while True:
                cluster.run(asyncio.sleep(interval))
                now = cluster.run(read_brokers(cluster.admin))
                shown = _tables(compare(before, now), _group_lags(cluster))
                live.update(Group(*(table(*each) for each in shown)), refresh=True)
                before = now
        except KeyboardInterrupt:
            return


def _group_lags(cluster: "Blocking") -> dict[str, int]:
    """Records that each group is behind, in all its partitions."""
    snapshot = cluster.run(take_snapshot(cluster.admin, cluster.groups))
    return {
        group: sum(lag.records or 0 for lag in lags.values())
        for group, lags in sorted(snapshot.group_lags.items())
    }


def _tables(activity: Activity, lags: dict[str, int]) -> list[tuple[Sequence[str], Rows]]:
    brokers: Rows = []
    for id, each in sorted(activity.brokers.items()):
        if each is None:
            brokers.append([str(id), *["?"] * (len(BROKERS) + len(BROKER_TIMES) - 1)])
            continue
        brokers.append(
            [
                str(id),
                f"{each.records_in:.0f}",
                f"{size(int(each.bytes_in))}/s",
                f"{size(int(each.bytes_out))}/s",
                f"{each.requests:.0f}",
                f"{each.errors:.1f}",
                _ms(each.produce_ms_p99),
                _ms(each.fetch_ms_p99),
                _ms(each.loop_lag_ms_p99),
                str(each.leaders),
                str(each.under_replicated),
            ]
        )
    busiest = sorted(activity.topics.items(), key=lambda item: -item[1].bytes_in)
    topics = [
        [
            name,
            f"{each.records_in:.0f}",
            f"{size(int(each.bytes_in))}/s",
            f"{size(int(each.bytes_out))}/s",
        ]
        for name, each in busiest[:TOPICS_SHOWN]
    ]
    groups = [[name, str(lag)] for name, lag in lags.items()]
    return [((*BROKERS, *BROKER_TIMES), brokers), (TOPICS, topics), (GROUPS, groups)]


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:g} ms"
