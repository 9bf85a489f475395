"""What a client feels while a drill runs: writes and reads on a topic of its own, and an audit.

Each partition has a writer that sends a number, waits for its acknowledgement (acks=all) and sends
the next, and all are read meanwhile. The time in which nothing could be written is a gap between
two acknowledgements. In the end the topic is read again from where the probe began: a number that
was acknowledged and is not there is lost, one that is there more than once is repeated.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from odradek.client.client import Client
from odradek.client.consumer import Consumer
from odradek.client.producer import Producer
from odradek.client.reader import LATEST, offsets_at
from odradek.client.values import NewTopic
from odradek.console.link import FAILURES
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

TOPIC = "odradek.drill"
PARTITIONS = 6
COPIES = 3
PAUSE_S = 0.005
# Between two writes this long is nothing that a client notices.
GAP_MS = 25.0
GAPS_KEPT = 200
# Writes that stop so soon after a signal stop because of it.
AT_ONCE_MS = 100.0
POLL_S = 0.2
READY_S = 20.0


def wall_ms() -> float:
    return time.time_ns() / 1e6


@dataclass(slots=True)
class Pulse:
    """When something last came through on one partition, and the gaps."""

    last_ms: float
    gaps: list[tuple[float, float]] = field(default_factory=list)

    def beat(self, now_ms: float) -> None:
        if now_ms - self.last_ms >= GAP_MS and len(self.gaps) < GAPS_KEPT:
            self.gaps.append((self.last_ms, now_ms - self.last_ms))
        self.last_ms = now_ms

    def since(self, from_ms: float) -> list[tuple[float, float]]:
        """The gaps after a moment; of one that it is in, the part after it."""
        return [
            (max(at, from_ms), at + ms - max(at, from_ms))
            for at, ms in self.gaps
            if at + ms > from_ms
        ]


@dataclass(frozen=True, slots=True)
class Verdict:
    acknowledged: int
    lost: int
    repeated: int


def judge(acknowledged: set[tuple[int, int]], found: "Counter[tuple[int, int]]") -> Verdict:
    """Numbers by partition: what was promised against what is there."""
    return Verdict(
        len(acknowledged),
        len(acknowledged - found.keys()),
        sum(count - 1 for count in found.values()),
    )


class Probe:
    """Writers and a reader, until it is stopped."""

    def __init__(self, client: Client, brokers: int) -> None:
        self._client = client
        self._copies = min(COPIES, brokers)
        self._starts: dict[TopicPartition, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self.acknowledged: set[tuple[int, int]] = set()
        self.failed = 0
        self.writes: dict[int, Pulse] = {}
        self.reads: dict[int, Pulse] = {}

    async def start(self) -> None:
        """When it returns, every partition has taken a write."""
        from odradek.client.admin import Admin

        new = NewTopic(TOPIC, PARTITIONS, self._copies, configs={"retention.ms": "3600000"})
        error = (await Admin(self._client).create_topics([new]))[TOPIC]
        if error is not None and error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error
        metadata = await self._client.require_topics([TOPIC])
        tps = metadata.partitions_of([TOPIC])
        ends = await offsets_at(self._client, dict.fromkeys(tps, LATEST))
        self._starts = {tp: ends[tp].offset for tp in tps}
        now = wall_ms()
        self.writes = {tp.partition: Pulse(now) for tp in tps}
        self.reads = {tp.partition: Pulse(now) for tp in tps}
        self._producer = Producer(self._client, linger_s=0.0)
        begun = [asyncio.Event() for _ in tps]
        self._tasks = [
            asyncio.ensure_future(self._write(tp.partition, first.set))
            for tp, first in zip(tps, begun, strict=True)
        ]
        self._tasks.append(asyncio.ensure_future(self._read()))
        async with asyncio.timeout(READY_S):
            await asyncio.gather(*(first.wait() for first in begun))
        for pulse in (*self.writes.values(), *self.reads.values()):
            pulse.gaps.clear()

    async def _write(self, partition: int, begun: Callable[[], None]) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            try:
                delivery = await self._producer.send(TOPIC, b"%d" % number, partition=partition)
                await delivery
            except FAILURES:
                self.failed += 1
                continue
            self.acknowledged.add((partition, number))
            self.writes[partition].beat(wall_ms())
            begun()
            await asyncio.sleep(PAUSE_S)

    async def _read(self) -> None:
        async with Consumer(self._client, wait_ms=50) as consumer:
            await consumer.assign(self._starts)
            while not self._stopping.is_set():
                try:
                    batches = await consumer.poll(POLL_S)
                except FAILURES:
                    continue
                now = wall_ms()
                for each in batches:
                    self.reads[each.partition.partition].beat(now)

    async def stop(self) -> Verdict:
        """End it, and compare."""
        self._stopping.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._producer.close()
        return judge(self.acknowledged, await self._found())

    async def cancel(self) -> None:
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _found(self) -> "Counter[tuple[int, int]]":
        """Everything that is in the log now, from where the probe began."""
        ends = await offsets_at(self._client, dict.fromkeys(self._starts, LATEST))
        found: Counter[tuple[int, int]] = Counter()
        async with Consumer(self._client) as consumer:
            await consumer.assign(self._starts)
            while any(consumer.positions[tp] < ends[tp].offset for tp in self._starts):
                for batches in await consumer.poll(POLL_S):
                    for record in consumer.open(batches):
                        found[batches.partition.partition, int(record.value or b"0")] += 1
        return found

    def longest_ms(self, pulses: dict[int, Pulse], since_ms: float) -> float:
        return max(
            (ms for pulse in pulses.values() for _, ms in pulse.since(since_ms)), default=0.0
        )

    def written_again_after(self, at_ms: float) -> float | None:
        """When every partition took a write again whose writes had stopped at a moment."""
        ends = [
            at + ms
            for pulse in self.writes.values()
            for at, ms in pulse.gaps
            if at <= at_ms + AT_ONCE_MS and at + ms >= at_ms
        ]
        return max(ends, default=None)

    def gaps(self, from_ms: float) -> list[dict[str, Any]]:
        rows = [
            {"p": p, "from_ms": round(at - from_ms, 1), "ms": round(ms, 1)}
            for p, pulse in self.writes.items()
            for at, ms in pulse.since(from_ms)
        ]
        return sorted(rows, key=lambda row: row["from_ms"])[:GAPS_KEPT]
