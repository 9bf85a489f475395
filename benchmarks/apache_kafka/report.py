"""The figures as a page: medians, ratios beside their targets, and a chart of the ratios."""

import math
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks.apache_kafka.systems import APACHE, KRAFT, ON_ZOOKEEPER, OURS
from odradek.java import find_java

# By system, then by measure: one figure per repetition.
Results = Mapping[str, Mapping[str, Sequence[float]]]
# By part of the benchmark: when and on what its figures were taken.
Conditions = Mapping[str, str]

HALF_WIDTH = 30


class Row(NamedTuple):
    """A line of the table; `target` bounds ours / theirs from below if `more` is better."""

    title: str
    measure: str
    target: float
    more: bool
    system: str = OURS


ROWS = (
    Row("produce 1 KiB, acks=all, MB/s", "produce none MB/s", 5.0, True),
    Row("– brokers' processor time, ms/MB", "produce none ms/MB", 1.0, False),
    Row("produce lz4, MB/s", "produce lz4 MB/s", 1.0, True),
    Row("– brokers' processor time, ms/MB", "produce lz4 ms/MB", 1.0, False),
    Row("produce in batches of 16 KB, MB/s", "produce 16 KB MB/s", 1.0, True),
    Row("– brokers' processor time, ms/MB", "produce 16 KB ms/MB", 1.0, False),
    Row("produce to 1,000 partitions, MB/s", "produce 1000 MB/s", 1.0, True),
    Row("– brokers' processor time, ms/MB", "produce 1000 ms/MB", 1.0, False),
    Row("produce over TLS, MB/s", "produce TLS MB/s", 1.0, True),
    Row("– brokers' processor time, ms/MB", "produce TLS ms/MB", 1.0, False),
    Row("consume, Python client, MB/s", "consume MB/s", 1.0, True),
    Row("– brokers' processor time, ms/MB", "consume ms/MB", 1.0, False),
    Row("consume, C client, MB/s", "C consume MB/s", 1.5, True),
    Row("– brokers' processor time, ms/MB", "C consume ms/MB", 0.7, False),
    Row("the same beside 15 busy threads, MB/s", "C consume, busy, MB/s", 0.8, True),
    Row("– brokers' processor time, ms/MB", "C consume, busy, ms/MB", 1.0, False),
    Row("consume over TLS, MB/s", "consume TLS MB/s", 1.0, True),
    Row("– brokers' processor time, ms/MB", "consume TLS ms/MB", 1.0, False),
    Row("100 producers, 100 consumers, MB/s", "crowd MB/s", 1.0, True),
    Row("– brokers' processor time, ms/MB", "crowd ms/MB", 1.0, False),
    Row("100 B, linger 0, records/s", "small records/s", 8.0, True),
    Row("synchronous produce p50, ms", "synchronous p50 ms", 0.5, False),
    Row("synchronous produce p99, ms", "synchronous p99 ms", 1.0, False),
    Row("transactions of 100, records/s", "transactions of 100 records/s", 1.5, True),
    Row("– commit p50, ms", "transactions of 100 commit ms", 0.7, False),
    Row("– brokers' processor time, ms/MB", "transactions of 100 ms/MB", 1.0, False),
    Row("transactions of 10,000, records/s", "transactions of 10000 records/s", 1.5, True),
    Row("– commit p50, ms", "transactions of 10000 commit ms", 0.7, False),
    Row("– brokers' processor time, ms/MB", "transactions of 10000 ms/MB", 1.0, False),
    Row("start to first acknowledged record, s", "start s", 0.25, False),
    Row("memory, idle, MB", "memory idle MB", 0.2, False),
    Row("memory, under load, MB", "memory loaded MB", 0.2, False),
    Row("leader killed to next record, s", "leader death s", 0.2, False),
    Row("the same, both on ZooKeeper, s", "leader death s", 1.0, False, ON_ZOOKEEPER),
    Row("create 1,000 partitions, s", "create 1000 s", 1.0, False),
    Row("controller killed, 5,000 partitions, s", "controller death s", 0.05, False),
    Row("the same, both on ZooKeeper, s", "controller death s", 0.2, False, ON_ZOOKEEPER),
    Row("started again to full ISRs, 5,000, s", "restart s", 1.0, False),
    Row("the same, both on ZooKeeper, s", "restart s", 1.0, False, ON_ZOOKEEPER),
    Row("clean stop, 5,000 partitions, s", "stop s", 1.0, False),
    Row("follower catch-up, MB/s", "catch-up MB/s", 1.0, True),
)


class Line(NamedTuple):
    row: Row
    ours: float
    theirs: float
    runs: int  # the fewer of the two
    kraft: float | None  # beside them, without a target

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def met(self) -> bool:
        return self.ratio >= self.row.target if self.row.more else self.ratio <= self.row.target


def lines(results: Results) -> list[Line]:
    """The rows that both systems have figures for."""
    return [
        Line(
            row,
            statistics.median(results[row.system][row.measure]),
            statistics.median(results[APACHE][row.measure]),
            min(len(results[row.system][row.measure]), len(results[APACHE][row.measure])),
            median_or_none(results, row),
        )
        for row in ROWS
        if row.measure in results.get(row.system, {}) and row.measure in results.get(APACHE, {})
    ]


def median_or_none(results: Results, row: Row) -> float | None:
    """The current Kafka's figure; it knows no ZooKeeper."""
    figures = results.get(KRAFT, {}).get(row.measure)
    return statistics.median(figures) if figures and row.system == OURS else None


def page(results: Results, conditions: Conditions, notes: str, failures: Sequence[str] = ()) -> str:
    found = lines(results)
    return "\n".join(
        [
            "# Side by side with Apache Kafka",
            "",
            "`make peers-bench` writes this page: all systems in turns on one machine and disk,",
            "three brokers, 12 partitions, RF 3, `min.insync.replicas=2`, no forced flush, one",
            "librdkafka client on the same machine; Apache Kafka and ZooKeeper with the JVM",
            "settings of Kafka's start scripts unless said: 3.9 on ZooKeeper, 4.x (KRaft) as three",
            "nodes that are broker and controller at once; ours with its embedded store unless",
            "said. Medians of so many runs as the table says, each on a new cluster. 3.9's time to",
            "start and its memory include ZooKeeper, without which it does not run; memory is the",
            "proportional set size of all processes. Sessions, with ZooKeeper or with KRaft's",
            "controller, last 6 s. The leader that is killed is not the controller: what that",
            "costs is a measure of its own. The client then looks for the new leader every 10 to",
            "50 ms, whatever the system; librdkafka's own pauses would add a second and more.",
            "Processor time is that of the three brokers, per megabyte of the load. The C client",
            "is librdkafka's `rdkafka_performance`; it and the Python client keep their queues",
            "full (`fetch.queue.backoff.ms=5`). The targets are for the ratio to 3.9.",
            "",
            *condition_lines(conditions),
            "",
            *([f"Not measured: {'; '.join(failures)}.", ""] if failures else []),
            f"| measure | ours | {APACHE} | {KRAFT} | ours / 3.9 | target | | runs |",
            "|---|---:|---:|---:|---:|---:|---|---:|",
            *(table_line(line) for line in found),
            "",
            "How many times better than 3.9 ours is (right) or worse (left),"
            f" each column a factor of {10 ** (2 / HALF_WIDTH):.2f}:",
            "",
            "```",
            *(chart_line(line) for line in found),
            "```",
            "",
            "From the lowest to the highest of the runs:",
            "",
            f"| measure | ours | {APACHE} | {KRAFT} |",
            "|---|---:|---:|---:|",
            *(spread_line(results, line.row) for line in found),
            "",
            notes.strip(),
            "",
        ]
    )


def table_line(line: Line) -> str:
    sign = "≥" if line.row.more else "≤"
    verdict = "met" if line.met else "**missed**"
    figures = f"{figure(line.ours)} | {figure(line.theirs)} | {figure(line.kraft)}"
    digits = 2 if line.ratio >= 0.01 else 3
    return (
        f"| {line.row.title} | {figures} | {line.ratio:.{digits}f} | {sign} {line.row.target:g}"
        f" | {verdict} | {line.runs} |"
    )


def spread_line(results: Results, row: Row) -> str:
    """How far the runs are apart: what a median hides."""
    kraft = results.get(KRAFT, {}).get(row.measure, ()) if row.system == OURS else ()
    runs = (results[row.system][row.measure], results[APACHE][row.measure], kraft)
    spreads = (f"{figure(min(run))} to {figure(max(run))}" if run else figure(None) for run in runs)
    return f"| {row.title} | {' | '.join(spreads)} |"


def figure(value: float | None) -> str:
    if value is None:
        return "–"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def chart_line(line: Line) -> str:
    """A bar from the middle on a logarithmic scale, a factor of 100 to either side."""
    better = line.ratio if line.row.more else 1 / line.ratio
    length = round(min(1.0, abs(math.log10(better)) / 2) * HALF_WIDTH)
    left = "#" * length if better < 1 else ""
    right = "#" * length if better >= 1 else ""
    return f"{line.row.title:40}{left:>{HALF_WIDTH}}|{right:<{HALF_WIDTH}} {better:.2f}x"


def condition_lines(conditions: Conditions) -> list[str]:
    """Said once of all parts that were measured together."""
    parts: dict[str, list[str]] = {}
    for part, text in conditions.items():
        parts.setdefault(text, []).append(part)
    if len(parts) == 1:
        return list(parts)
    return [f"- {', '.join(names)}: {text}" for text, names in parts.items()]


def machine() -> str:
    """Today, and what a run of today is on and with."""
    model = next(
        (
            text.split(":")[1].strip()
            for text in Path("/proc/cpuinfo").read_text().splitlines()
            if text.startswith("model name")
        ),
        platform.processor(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    version = subprocess.run(
        [str(find_java("Apache Kafka")), "-version"], capture_output=True, text=True
    )
    return (
        f"{datetime.now(UTC):%Y-%m-%d}; {os.cpu_count()} cores {model}, {memory:.0f} GiB,"
        f" Linux {platform.release()}; Python {platform.python_version()};"
        f" {version.stderr.splitlines()[0]}."
    )
