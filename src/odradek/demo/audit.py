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
from odradek.client.reader import EARLIEST, LATEST, offsets_at
from odradek.spark.pipeline.formats import HEADER_PREFIX
from odradek.wire.records import Record

ID = re.compile(rb'"id": (\d+)')

# A minute and a page, and how many clicks.
Counts = Mapping[tuple[Any, str], int]


@dataclass(frozen=True, slots=True)
class Audit:
    """Missing clicks, clicks that were never sent, duplicates, and wrong counts."""

    acknowledged: int
    landed: int
    dead: int
    dead_repeated: int
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
            f"  {self.dead:>9,} among the dead letters",
            f"  {len(self.missing):>9,} missing",
            f"  {len(self.repeated):>9,} in the table more than once",
            f"  {len(self.unexplained):>9,} that were never sent",
            f"  {self.windows:>9,} counts per minute and page, {len(self.wrong_counts)} wrong",
        ]
        if self.dead_repeated:
            lines.append(f"  ({self.dead_repeated} dead letters came twice, as a sink may)")
        return [*lines, *(f"  {wrong}" for wrong in self.wrong_counts[:10])]


def balance(
    acknowledged: Set[int],
    uncertain: Set[int],
    landed: Counter[int],
    letters: Mapping[str, int],
    letters_repeated: int,
    counts: list[tuple[Any, str, int]],
    recounted: Counts,
) -> Audit:
    """Compare. `letters` has the id of each dead letter by its position."""
    dead = set(letters.values())
    there = set(landed) | dead
    twice = {number for number, times in landed.items() if times > 1} | (set(landed) & dead)
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
        dead=len(dead),
        dead_repeated=letters_repeated,
        missing=frozenset(acknowledged - there),
        unexplained=frozenset(there - acknowledged - uncertain),
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
    letters_topic: str,
) -> Audit:
    """Read the tables and the dead letters, and compare them with what was sent."""
    import pyarrow.compute as pc

    rows = _rows(events, ["id", "page", "at"])
    minutes = pc.floor_temporal(rows["at"], unit="minute").to_pylist()
    recounted = Counter(zip(minutes, rows["page"].to_pylist(), strict=True))
    counted = _rows(counts, ["minute", "page", "clicks"]).to_pylist()
    letters = read_all(cluster, letters_topic)
    by_position = {_position(letter): _id(letter) for letter in letters}
    return balance(
        acknowledged,
        uncertain,
        Counter(rows["id"].to_pylist()),
        by_position,
        len(letters) - len(by_position),
        [(row["minute"], row["page"], row["clicks"]) for row in counted],
        recounted,
    )


def _rows(path: Path, columns: list[str]) -> Any:
    import pyarrow as pa
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(path):
        return pa.table({name: [] for name in columns})
    return DeltaTable(path).to_pyarrow_table(columns=columns)


def read_all(cluster: Blocking, topic: str) -> list[Record]:
    """Every record of a topic."""

    async def read() -> list[Record]:
        client = cluster.client
        partitions = (await client.require_topics([topic])).partitions_of([topic])
        starts = await offsets_at(client, dict.fromkeys(partitions, EARLIEST))
        ends = await offsets_at(client, dict.fromkeys(partitions, LATEST))
        reader = cluster.reader()
        return [
            record
            for partition in partitions
            async for batches in reader.batches(
                partition, starts[partition].offset, ends[partition].offset
            )
            for record in batches.open()
        ]

    return cluster.run(read())


def _position(letter: Record) -> str:
    headers = dict(letter.headers)
    names = ("topic", "partition", "offset")
    return "-".join((headers[HEADER_PREFIX + name] or b"").decode() for name in names)


def _id(letter: Record) -> int:
    found = ID.search(letter.value or b"")
    return int(found[1]) if found else -1
