"""What placing replicas costs: a million partitions at once, and plans that move few replicas.

Run: python benchmarks/placement.py. Seconds are CPU time of this process; memory is its peak.
"""

import resource
import time
from random import Random

from odradek.placement import Broker, assign_replicas, generate, plan_minimal
from odradek.wire.topics import TopicPartition

FACTOR = 3


def brokers(count: int, racks: int) -> list[Broker]:
    return [Broker(broker, f"rack{broker % racks}" if racks else None) for broker in range(count)]


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def place_a_million() -> None:
    shapes = {
        "1,000 brokers in 10 equal racks": brokers(1000, 10),
        "1,000 brokers in 10 racks, half of them in one": [
            Broker(broker, f"rack{min(9, broker // 55)}") for broker in range(1000)
        ],
        "1,000 brokers without racks": brokers(1000, 0),
    }
    for name, chosen in shapes.items():
        begin = time.process_time()
        assert len(assign_replicas(chosen, 1_000_000, FACTOR, fixed_start=0)) == 1_000_000
        seconds = time.process_time() - begin
        print(f"place 1,000,000 partitions, {name:<46} {seconds:6.2f} s {peak_mb():6.0f} MB")


def plan(count: int, change: int, partitions: int, topics: int) -> None:
    rng = Random(1)
    current = {
        TopicPartition(f"topic{topic}", index): replicas
        for topic in range(topics)
        for index, replicas in assign_replicas(
            brokers(count, 10), partitions // topics, FACTOR, rng=rng
        ).items()
    }
    targets = brokers(count + change, 10)
    begin = time.process_time()
    minimal = plan_minimal(current, targets)
    seconds = time.process_time() - begin
    anew = generate(current, targets, rng=rng)
    everything = sum(len(set(anew[partition]) - set(current[partition])) for partition in current)
    print(
        f"plan {partitions:>7,} partitions, {count} brokers {change:+d}: {seconds:6.2f} s, "
        f"{minimal.replicas_moved:,} replicas move (generate: {everything:,})"
    )


def main() -> None:
    place_a_million()
    plan(100, 10, 10_000, 100)
    plan(100, -10, 10_000, 100)
    plan(100, 10, 50_000, 100)


if __name__ == "__main__":
    main()
