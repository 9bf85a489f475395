"""Plans by load for clusters of several shapes: seconds, memory, moves and bytes over the bound.

    make bench ONLY=planner

The clusters are drawn by a fixed seed: topics whose rates fall as Zipf's law has it, partitions
that differ among themselves, hours and weeks of retention, replicas placed as Kafka places those of
new topics. Each shape runs in a process of its own, so that its memory can be told.
"""

import resource
import subprocess
import sys
import time

import numpy as np

from odradek.balance.bound import least_bytes
from odradek.balance.cells import find_in_cells
from odradek.balance.explain import NOT_PROVEN, reasons_outside
from odradek.balance.model import Brokers, Cluster, Replicas, assemble
from odradek.balance.rules import DIMENSIONS, RESOURCES, Thresholds, outside
from odradek.balance.search import Budget, Outcome, copied, find, new_state

FACTOR = 3
# Brokers, replicas, topics.
SHAPES = {
    "100x100k": (100, 100_000, 1_000),
    "270x1.3M": (270, 1_300_000, 10_500),
    "215x2.8M": (215, 2_800_000, 3_500),
    "2600x2.8M": (2_600, 2_800_000, 10_000),
    "5000x10M": (5_000, 10_000_000, 30_000),
}
# With a number of cells behind the shape, the plan is searched in cells.
DEFAULT = ("100x100k", "100x100k:2", "270x1.3M", "270x1.3M:2")
HEADINGS = (
    "| brokers x replicas (topics) | outside before: cpu, in, out, disk | after, all rules "
    "| of them proven | copies | bytes | x bound | leaderships | evaluations | build s "
    "| plan s | of it CPU s | MB |\n"
    "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def skewed(brokers: int, replicas: int, topics: int, seed: int = 1) -> tuple[Replicas, Brokers]:
    """A cluster that grew: no broker is where it should be."""
    dice = np.random.default_rng(seed)
    weight = 1 / np.arange(1, topics + 1) ** 0.6
    per_topic = np.maximum(1, weight / weight.sum() * replicas / FACTOR).astype(np.int64)
    partitions = int(per_topic.sum())
    topic = np.repeat(np.arange(topics, dtype=np.int32), per_topic)
    number = np.concatenate([np.arange(count, dtype=np.int32) for count in per_topic])
    popularity = dice.permutation(1 / np.arange(1, topics + 1) ** 1.2) * topics
    rate = np.minimum(popularity, 60)[topic] * dice.lognormal(0, 1.0, partitions)
    rate_in = (rate * 50_000).astype(np.int64)
    fan_out = (1 + dice.integers(0, 4, topics))[topic]
    retention = dice.choice([3_600, 86_400, 604_800], topics, p=[0.2, 0.6, 0.2])[topic]
    table = Replicas(
        topics=[f"topic-{each:06}" for each in range(topics)],
        topic=topic,
        number=number,
        start=np.arange(0, partitions * FACTOR + 1, FACTOR, dtype=np.int32),
        broker=_placed_as_new(dice, topic, number, brokers, topics),
        size=np.repeat(np.maximum(rate_in * retention // 8, 1), FACTOR),
        rates=np.stack(
            [
                rate_in,
                rate_in * (fan_out + FACTOR - 1),
                np.zeros(partitions, np.int64),
                rate_in * (4 + fan_out) // 100,
                rate_in // 100,
            ],
            axis=1,
        ),
        in_failed_directory=np.zeros(partitions * FACTOR, np.uint8),
    )
    known = Brokers(
        ids=np.arange(brokers, dtype=np.int64),
        racks=[f"rack-{broker % FACTOR}" for broker in range(brokers)],
        states=["live"] * brokers,
        capacity=np.zeros((brokers, len(DIMENSIONS)), np.int64),
        failed_directories=[()] * brokers,
    )
    return table, known


def _placed_as_new(
    dice: np.random.Generator,
    topic: np.ndarray,
    number: np.ndarray,
    brokers: int,
    topics: int,
) -> np.ndarray:
    """One after another from a random broker on, one replica in each rack."""
    first = dice.integers(0, brokers, topics)[topic] + number
    shift = dice.integers(0, brokers, topics)[topic] + number // brokers
    homes = np.empty((len(topic), FACTOR), np.int32)
    for at in range(FACTOR):
        step = at + FACTOR * (shift * at)
        homes[:, at] = _in_rack(first + step, (first + at) % FACTOR, brokers)
    return homes.ravel()


def _in_rack(place: np.ndarray, rack: np.ndarray, brokers: int) -> np.ndarray:
    """The broker nearest to a place that is in a rack: brokers are dealt to racks in turn."""
    size = (brokers - rack + FACTOR - 1) // FACTOR
    result: np.ndarray = (place // FACTOR % size) * FACTOR + rack
    return result


def measure(name: str) -> str:
    """One row of the table."""
    shape, _, cells = name.partition(":")
    started = time.perf_counter()
    # 13,000 replicas on each of 215 brokers are above the usual limit.
    cluster = assemble(*skewed(*SHAPES[shape]), Thresholds(replicas_max=20_000))
    built, busy = time.perf_counter(), time.process_time()
    budget = Budget()
    found = find_in_cells(cluster, int(cells), budget) if cells else find(cluster, budget)
    planned, busy = time.perf_counter(), time.process_time() - busy
    return row(cluster, found, budget, (built - started, planned - built, busy))


def row(cluster: Cluster, found: Outcome, budget: Budget, took: tuple[float, float, float]) -> str:
    f = cluster.problem
    before = outside(new_state(cluster).sums, cluster.bounds).sum(axis=0)
    after = int(outside(found.sums, cluster.bounds).sum())
    reasons = reasons_outside(cluster, found, new_state(cluster)).values()
    proven = sum(text != NOT_PROVEN for each in reasons for text in each.values())
    slots = copied(cluster, found.broker)
    copies, total = f.size[slots].sum(), f.size.sum()
    leaderships = int((found.leader != f.first).sum())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return (
        f"| {len(f.rack):,} x {len(f.home):,} ({len(f.frozen):,}) "
        f"| {', '.join(str(before[d]) for d in RESOURCES)} | {after} | {proven} "
        f"| {len(slots):,} = {len(slots) / len(f.home):.2%} | {copies / total:.2%} "
        f"| {copies / max(least_bytes(cluster), 1):.2f} | {leaderships:,} | {budget.spent:,} "
        f"| {' | '.join(f'{seconds:.1f}' for seconds in took)} | {peak:,} |"
    )


def main() -> None:
    """Without names, the shapes that take seconds."""
    print(HEADINGS)
    # The first plan on a machine compiles the loops, which is no part of planning.
    find(assemble(*skewed(6, 60, 2)))
    for shape in DEFAULT:
        subprocess.run([sys.executable, "-m", __spec__.name, shape], check=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        find(assemble(*skewed(6, 60, 2)))
        print(measure(name), flush=True)
