"""The books of the demo: what went in, what came out, and whether they agree.

Everything is read with nothing but `deltalake` and a Kafka client: what the pipeline says of itself
is not taken into account.
"""

import re
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.client.blocking_client import Blocking
from odradek.client.reader import EARLIEST, LATEST, Isolation, offsets_at
from odradek.wire.records import Record

# As the clicks have it, and as Spark writes it.
ID = re.compile(rb'"id": ?(\d+)')

# A minute and a page, and how many clicks.
Counts = Mapping[tuple[Any, str], int]


@dataclass(frozen=True, slots=True)
class Audit:
    """Missing clicks, clicks that were never sent, duplicates, and wrong counts.

    A click is missing or there twice if it is in the table, or in the derived topic."""

    acknowledged: int
    landed: int
    derived: int
    dead: int
    missing: frozenset[int]
    unexplained: frozenset[int]
    repeated: frozenset[int]
    windows: int
    wrong_counts: tuple[str, ...] = field(default=())

    @property
    def balances(self) -> bool:
        return not (self.missing or self.unexplained or self.repeated or self.wrong_counts)

    def lines(self) -> list[str]:
        verdict = "balance" if self.balances else "DO NOT BALANCE"
        lines = [
            f"the books {verdict}:",
            f"  {self.acknowledged:>9,} clicks acknowledged by the cluster",
            f"  {self.landed:>9,} in the table",
            f"  {self.derived:>9,} in the derived topic, for a read_committed reader",
            f"  {self.dead:>9,} among the dead letters",
            f"  {len(self.missing):>9,} missing",
            f"  {len(self.repeated):>9,} somewhere more than once",
            f"  {len(self.unexplained):>9,} that were never sent",
            f"  {self.windows:>9,} counts per minute and page, {len(self.wrong_counts)} wrong",
        ]
        return [*lines, *(f"  {wrong}" for wrong in self.wrong_counts[:10])]


def balance(
    acknowledged: Set[int],
    uncertain: Set[int],
    landed: Counter[int],
    derived: Counter[int],
    dead: Counter[int],
    counts: list[tuple[Any, str, int]],
    recounted: Counts,
) -> Audit:
    """Compare. How often each click is in the table, in the derived topic, and a dead letter."""
    missing: set[int] = set()
    twice = {number for number, times in dead.items() if times > 1}
    for good in (landed, derived):
        missing |= acknowledged - set(good) - set(dead)
        twice |= {number for number, times in good.items() if times > 1} | (set(good) & set(dead))
    wrong = []
    seen: Counter[tuple[Any, str]] = Counter()
    for minute, page, clicks in counts:
        seen[minute, page] += 1
        expected = recounted.get((minute, page), 0)
        if clicks != expected:
            wrong.append(f"{minute} {page}: counted {clicks}, there are {expected}")
    wrong += [f"{minute} {page}: counted twice" for (minute, page), n in seen.items() if n > 1]
    wrong += [
        f"{minute} {page}: {clicks} clicks were not counted"
        for (minute, page), clicks in recounted.items()
        if (minute, page) not in seen
    ]
    return Audit(
        acknowledged=len(acknowledged),
        landed=sum(landed.values()),
        derived=sum(derived.values()),
        dead=sum(dead.values()),
        missing=frozenset(missing),
        unexplained=frozenset((set(landed) | set(derived) | set(dead)) - acknowledged - uncertain),
        repeated=frozenset(twice),
        windows=len(counts),
        wrong_counts=tuple(sorted(wrong)),
    )


def audit(
    acknowledged: Set[int],
    uncertain: Set[int],
    events: Path,
    counts: Path,
    cluster: Blocking,
    derived_topic: str,
    letters_topic: str,
) -> Audit:
    """Read the tables and the topics, and compare them with what was sent."""
    import pyarrow.compute as pc

    rows = _rows(events, ["id", "page", "at"])
    minutes = pc.floor_temporal(rows["at"], unit="minute").to_pylist()
    recounted = Counter(zip(minutes, rows["page"].to_pylist(), strict=True))
    counted = _rows(counts, ["minute", "page", "clicks"]).to_pylist()
    return balance(
        acknowledged,
        uncertain,
        Counter(rows["id"].to_pylist()),
        Counter(map(_id, read_committed(cluster, derived_topic))),
        Counter(map(_id, read_committed(cluster, letters_topic))),
        [(row["minute"], row["page"], row["clicks"]) for row in counted],
        recounted,
    )


def _rows(path: Path, columns: list[str]) -> Any:
    import pyarrow as pa
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(path):
        return pa.table({name: [] for name in columns})
    return DeltaTable(path).to_pyarrow_table(columns=columns)


def read_committed(cluster: Blocking, topic: str) -> list[Record]:
    """Every record of a topic that was committed."""

    async def read() -> list[Record]:
        client = cluster.client
        partitions = (await client.require_topics([topic])).partitions_of([topic])
        starts = await offsets_at(client, dict.fromkeys(partitions, EARLIEST))
        ends = await offsets_at(client, dict.fromkeys(partitions, LATEST))
        reader = cluster.reader(isolation=Isolation.READ_COMMITTED)
        return [
            record
            for partition in partitions
            async for batches in reader.batches(
                partition, starts[partition].offset, ends[partition].offset
            )
            for record in batches.open(committed=True)
        ]

    return cluster.run(read())


def _id(record: Record) -> int:
    found = ID.search(record.value or b"")
    return int(found[1]) if found else -1
