"""Following partitions from given offsets, whoever leads them. No group: the caller assigns.

One fetch is outstanding per broker, so that one with nothing new does not hold up the others.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, Self

from odradek.client.client import Client
from odradek.client.reading import (
    EARLIEST,
    FETCH_BYTES,
    FETCH_WAIT_MS,
    Batches,
    Isolation,
    Reader,
    offsets_at,
)
from odradek.client.retries import is_passing
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Headers, Record
from odradek.wire.topics import TopicPartition

FetchTask = asyncio.Task[dict[TopicPartition, Batches | KafkaError]]


class Received(NamedTuple):
    """A record, and where it came from."""

    partition: TopicPartition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Consumer:
    """Reads the partitions it is given. Use it as an async context manager, or close it."""

    def __init__(
        self,
        client: Client,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        out_of_range: int | None = EARLIEST,
        fetch_bytes: int = FETCH_BYTES,
        wait_ms: int = FETCH_WAIT_MS,
    ) -> None:
        """`out_of_range` is where to go on when a position is outside the log: EARLIEST, LATEST,
        or None to raise OFFSET_OUT_OF_RANGE."""
        self.client = client
        self.isolation = isolation
        self.out_of_range = out_of_range
        self.positions: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self._reader = Reader(client, isolation=isolation, fetch_bytes=fetch_bytes, wait_ms=wait_ms)
        self._fetches: dict[int, FetchTask] = {}
        self._busy: dict[TopicPartition, int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give up what is outstanding; the client stays open."""
        tasks = list(self._fetches.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fetches.clear()
        self._busy.clear()

    async def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from now on, from an offset, EARLIEST or LATEST on."""
        await self.close()
        self.positions = {part: offset for part, offset in offsets.items() if offset >= 0}
        ends = {part: offset for part, offset in offsets.items() if offset < 0}
        found = await offsets_at(self.client, ends, isolation=self.isolation)
        self.positions.update({part: found[part].offset for part in ends})

    async def poll(self, timeout_s: float) -> list[Batches]:
        """What has come in, as soon as there is something; nothing after `timeout_s`."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        patience = self.client.patience()
        while self.positions:
            try:
                await self._start_fetches()
                remaining = deadline - asyncio.get_running_loop().time()
                done, _ = await asyncio.wait(
                    self._fetches.values(),
                    timeout=max(0.0, remaining),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    return []
                if received := await self._collect(done):
                    return received
            except (OSError, TimeoutError, KafkaError) as error:
                await patience.pause(error)
                await self._reader.refresh_after(error, list(self.positions))
        return []

    async def records(self) -> AsyncIterator[Received]:
        """Every record, one by one, for ever."""
        while True:
            for batches in await self.poll(self.client.timeout_s):
                for record in self.open(batches):
                    yield record

    def open(self, batches: Batches) -> list[Received]:
        """The records of what was polled, without those of aborted transactions if not wanted."""
        committed = self.isolation is Isolation.READ_COMMITTED
        return [
            _received(batches.partition, record) for record in batches.open(committed=committed)
        ]

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets are left before the end of each partition, as last heard."""
        return {
            part: max(0, end - self.positions[part])
            for part, end in self.high_watermarks.items()
            if part in self.positions
        }

    async def _start_fetches(self) -> None:
        """One fetch for each broker that has none, of all its partitions not being read."""
        idle = [part for part in self.positions if part not in self._busy]
        await self.client.leaders(idle)
        by_node: dict[int, dict[TopicPartition, int]] = {}
        for part in idle:
            node = await self._reader.node_for(part)
            by_node.setdefault(node, {})[part] = self.positions[part]
        for node, offsets in by_node.items():
            if node not in self._fetches:
                self._fetches[node] = asyncio.ensure_future(self._reader.fetch(node, offsets))
                self._busy.update(dict.fromkeys(offsets, node))

    async def _collect(self, done: set[FetchTask]) -> list[Batches]:
        """The results of finished fetches; positions move on. Raises a failure if nothing came."""
        received: list[Batches] = []
        failure: Exception | None = None
        for node, task in list(self._fetches.items()):
            if task not in done:
                continue
            del self._fetches[node]
            self._busy = {part: busy for part, busy in self._busy.items() if busy != node}
            if (error := task.exception()) is not None:
                if not isinstance(error, Exception) or not is_passing(error):
                    raise error
                failure = error
                continue
            for part, result in task.result().items():
                if isinstance(result, KafkaError):
                    failure = await self._recover(part, result) or failure
                elif part in self.positions:
                    self.high_watermarks[part] = result.high_watermark
                    if result.next_offset > self.positions[part]:
                        self.positions[part] = result.next_offset
                        received.append(result)
        if failure is not None and not received:
            raise failure
        if failure is not None:
            await self._reader.refresh_after(failure, list(self.positions))
        return received

    async def _recover(self, part: TopicPartition, error: KafkaError) -> KafkaError | None:
        """Go on elsewhere when a position is outside the log; any other error is for the caller."""
        if error.error is not ErrorCode.OFFSET_OUT_OF_RANGE or self.out_of_range is None:
            return error
        found = await offsets_at(self.client, {part: self.out_of_range}, isolation=self.isolation)
        self.positions[part] = found[part].offset
        return None

    def statistics(self) -> dict[str, int]:
        return {
            **self._reader.statistics(),
            "partitions": len(self.positions),
            "fetches_outstanding": len(self._fetches),
            "lag": sum(self.lag().values()),
        }


def _received(partition: TopicPartition, record: Record) -> Received:
    return Received(
        partition, record.offset, record.timestamp, record.key, record.value, record.headers
    )
