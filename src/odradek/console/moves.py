"""Partitions on the move, whichever tool began it: how far, how fast, how long.

A move belongs to the controller: it goes on without this console. What a console has throttled is
written to a file before the throttle is set, and taken away when nothing is moving any more, by
this console or, if it is killed, by the next one that reads the file.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from odradek.client.values import Resource, ResourceType
from odradek.console.accounts import write_private
from odradek.console.collector import Collector
from odradek.console.link import FAILURES, Link
from odradek.operations import clear_throttles, replica_sizes
from odradek.placement import Ongoing
from odradek.wire.topics import TopicPartition

LOOK_S = 2.0
# Moves of more partitions are summed up, not measured one by one.
MEASURED_MAX = 2_000
RATE_S = 15.0
# Without a byte for this long a move counts as stalled.
STALLED_S = 10.0
FOLLOWER_RATE = "follower.replication.throttled.rate"


class Sample(NamedTuple):
    at_s: float
    done: dict[TopicPartition, int]


class Moves:
    """Measures what is moving, every other second while something is."""

    def __init__(self, link: Link, collector: Collector, file: Path | None) -> None:
        self._link = link
        self._collector = collector
        self._file = file
        self._topics = _read(file)
        self._samples: list[Sample] = []
        self._whole: dict[TopicPartition, int] = {}
        self.throttle: int | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._forever())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _forever(self) -> None:
        while True:
            try:
                await self.look()
            except FAILURES:
                pass  # the picture says already that the cluster does not answer
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        moves = self._collector.moves
        if moves:
            await self._measure(moves)
            self.throttle = await self.read_throttle()
            return
        self._samples.clear()
        self._whole.clear()
        self.throttle = None
        if not self._topics or self._collector.failure is not None:
            return
        # Asked again: the picture may be of before the move began.
        if not await self._link.api.admin.list_reassignments():
            await clear_throttles(self._link.api.admin, self._topics)
            self.forget()

    async def _measure(self, moves: dict[TopicPartition, Ongoing]) -> None:
        chosen = sorted(moves)[:MEASURED_MAX]
        sizes = await replica_sizes(self._link.api.admin, chosen)
        done = {}
        for tp in chosen:
            replicas = sizes.get(tp, {})
            leader = self._collector.table.leader(*tp)
            whole = replicas.get(leader, max(replicas.values(), default=0))
            adding = moves[tp].adding
            self._whole[tp] = whole * len(adding)
            done[tp] = sum(min(replicas.get(id, 0), whole) for id in adding)
        now = time.monotonic()
        self._samples.append(Sample(now, done))
        while len(self._samples) > 2 and now - self._samples[0].at_s > RATE_S:
            del self._samples[0]

    # Throttles

    def throttled(self, topics: Iterable[str]) -> None:
        """To be called before throttles of these topics are set."""
        self._topics |= set(topics)
        if self._file is not None:
            write_private(self._file, json.dumps(sorted(self._topics)))

    def forget(self) -> None:
        self._topics = set()
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    async def read_throttle(self) -> int | None:
        """The lowest rate that a broker has, if one has any."""
        brokers = [
            Resource(ResourceType.BROKER, str(id)) for id in sorted(self._collector.brokers.nodes)
        ]
        described = await self._link.api.admin.describe_configs(brokers)
        rates = [
            int(entry.value)
            for entries in described.values()
            if isinstance(entries, list)
            for entry in entries
            if entry.name == FOLLOWER_RATE and entry.value and entry.value.isdecimal()
        ]
        limited = [rate for rate in rates if rate < 2**63 - 1]
        return min(limited, default=None)

    def stalled(self) -> Iterator[tuple[TopicPartition, Sequence[int]]]:
        """Moves that are measured for a while and of which nothing was copied, with the brokers
        that should have received it."""
        if len(self._samples) < 2 or self._samples[-1].at_s - self._samples[0].at_s < STALLED_S:
            return
        first, last = self._samples[0], self._samples[-1]
        for tp, done in last.done.items():
            state = self._collector.moves.get(tp)
            is_same = first.done.get(tp) == done < self._whole.get(tp, 0)
            if state is not None and state.adding and is_same:
                yield tp, state.adding

    @property
    def measured_since_ms(self) -> int | None:
        if not self._samples:
            return None
        return self._collector.wall_ms() - int((time.monotonic() - self._samples[0].at_s) * 1000)

    # The answer

    def answer(self) -> dict[str, Any]:
        moves = self._collector.moves
        rows = [self._row(tp, state) for tp, state in sorted(moves.items())[:MEASURED_MAX]]
        done = sum(row["done_bytes"] for row in rows)
        total = sum(row["total_bytes"] for row in rows)
        rate = self._rate(None)
        brokers: dict[int, list[int]] = {}
        for tp, state in moves.items():
            for id in state.adding:
                sums = brokers.setdefault(id, [0, 0])
                sums[0] += self._whole.get(tp, 0) // max(1, len(state.adding))
                sums[1] += self._done(tp) // max(1, len(state.adding))
        return {
            "items": rows,
            "total": len(moves),
            "done_bytes": done,
            "total_bytes": total,
            "percent": round(100.0 * done / total, 1) if total else (100.0 if not moves else 0.0),
            "bytes_per_s": rate,
            "left_s": (total - done) / rate if rate else None,
            "throttle_bytes_per_s": self.throttle,
            "brokers": [
                {"broker": id, "receives_bytes": sums[0], "done_bytes": sums[1]}
                for id, sums in sorted(brokers.items())
            ],
        }

    def _row(self, tp: TopicPartition, state: Ongoing) -> dict[str, Any]:
        done, total, rate = self._done(tp), self._whole.get(tp, 0), self._rate(tp)
        return {
            "topic": tp.topic,
            "p": tp.partition,
            "replicas": list(state.replicas),
            "adding": list(state.adding),
            "removing": list(state.removing),
            "back_to": [id for id in state.replicas if id not in state.adding],
            "done_bytes": done,
            "total_bytes": total,
            "percent": round(100.0 * done / total, 1) if total else 0.0,
            "bytes_per_s": rate,
            "left_s": (total - done) / rate if rate else None,
        }

    def _done(self, tp: TopicPartition) -> int:
        return self._samples[-1].done.get(tp, 0) if self._samples else 0

    def _rate(self, tp: TopicPartition | None) -> float | None:
        """Of one partition, or of all that were moving at both ends of the samples."""
        if len(self._samples) < 2:
            return None
        first, last = self._samples[0], self._samples[-1]
        both = [tp] if tp is not None else [each for each in last.done if each in first.done]
        grown = sum(last.done.get(each, 0) - first.done.get(each, 0) for each in both)
        seconds = last.at_s - first.at_s
        return grown / seconds if seconds > 0 and grown > 0 else None


def _read(file: Path | None) -> set[str]:
    if file is None or not file.exists():
        return set()
    try:
        return {str(topic) for topic in json.loads(file.read_text())}
    except (ValueError, OSError):
        return set()
