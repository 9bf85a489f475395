"""Following partitions from given offsets, whoever leads them. No group: the caller assigns.

One fetch is outstanding per broker, so that one with nothing new does not hold up the others. Nor
does a partition that nobody leads, or whose fetch failed: it waits until we have looked again at
the cluster, which happens aside and with growing pauses, while the others are read.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from math import inf
from typing import Any, NamedTuple, Self

from odradek.client.client import Client
from odradek.client.reader import (
    EARLIEST,
    FETCH_BYTES,
    FETCH_WAIT_MS,
    Batches,
    Isolation,
    PartitionReader,
    UndecodableBatch,
    offsets_at,
)
from odradek.client.retries import RetryBudget, is_retriable
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Headers, Record
from odradek.wire.topics import TopicPartition

FetchTask = asyncio.Task[dict[TopicPartition, Batches | KafkaError]]


class ConsumerRecord(NamedTuple):
    """A record, and where it came from."""

    partition: TopicPartition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Trouble(NamedTuple):
    """Until when it is waited for a partition to be readable, and whether nobody knows it."""

    until: float
    is_missing: bool


FINE = Trouble(inf, False)


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
        self._reader = PartitionReader(
            client, isolation=isolation, fetch_bytes=fetch_bytes, wait_ms=wait_ms
        )
        self._fetches: dict[int, FetchTask] = {}
        self._busy: dict[TopicPartition, int] = {}
        self._troubles: dict[TopicPartition, Trouble] = {}
        self._looking: asyncio.Task[None] | None = None
        self._budget: RetryBudget | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give up what is outstanding; the client stays open."""
        tasks = self._outstanding()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fetches.clear()
        self._busy.clear()
        self._troubles.clear()
        self._looking = self._budget = None

    async def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from now on, from an offset, EARLIEST or LATEST on."""
        await self.close()
        self.positions = {part: offset for part, offset in offsets.items() if offset >= 0}
        ends = {part: offset for part, offset in offsets.items() if offset < 0}
        found = await offsets_at(self.client, ends, isolation=self.isolation)
        self.positions.update({part: found[part].offset for part in ends})

    async def poll(self, timeout_s: float) -> list[Batches]:
        """What has come in, as soon as there is something; nothing after `timeout_s`.

        Raises what does not pass by itself, and what does when for as long as the client's time-out
        nothing at all could be read, however often this was called meanwhile.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self.positions:
            self._start_fetches()
            done, _ = await asyncio.wait(
                self._outstanding(),
                timeout=max(0.0, deadline - loop.time()),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                return []
            if (looking := self._looking) in done:
                self._looking = None
                await looking  # it raises if no broker could be asked
            if received := await self._collect(done):
                return received
        return []

    async def records(self) -> AsyncIterator[ConsumerRecord]:
        """Every record, one by one, for ever."""
        while True:
            for batches in await self.poll(self.client.timeout_s):
                for record in self.open(batches):
                    yield record

    def open(
        self, batches: Batches, *, skip: Callable[[UndecodableBatch], None] | None = None
    ) -> list[ConsumerRecord]:
        """The records of what was polled, without those of aborted transactions if not wanted.

        A batch that cannot be decoded is handed to `skip` and left out; without `skip` it raises.
        """
        committed = self.isolation is Isolation.READ_COMMITTED
        return [
            _consumer_record(batches.partition, record)
            for record in batches.open(committed=committed, skip=skip)
        ]

    def skip(self, batch: UndecodableBatch) -> None:
        """Go on after a batch that `poll` raised for."""
        self.positions[batch.partition] = max(
            batch.next_offset, self.positions.get(batch.partition, 0)
        )

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets are left before the end of each partition, as last heard."""
        return {
            part: max(0, end - self.positions[part])
            for part, end in self.high_watermarks.items()
            if part in self.positions
        }

    def _outstanding(self) -> "list[asyncio.Task[Any]]":
        looking = [] if self._looking is None else [self._looking]
        return [*self._fetches.values(), *looking]

    def _start_fetches(self) -> None:
        """One fetch for each broker that has none, of all its partitions not being read."""
        waiting = set() if self._looking is None else set(self._troubles)
        by_node: dict[int, dict[TopicPartition, int]] = {}
        for part, position in self.positions.items():
            if part in self._busy or part in waiting:
                continue
            try:
                by_node.setdefault(self._reader.known_node(part), {})[part] = position
            except KafkaError as error:
                self._trouble(part, error, in_metadata=True)
        for node, offsets in by_node.items():
            if node not in self._fetches:
                self._fetches[node] = asyncio.ensure_future(self._reader.fetch(node, offsets))
                self._busy.update(dict.fromkeys(offsets, node))
        assert self._fetches or self._looking, "each partition is read or looked for"

    def _trouble(self, part: TopicPartition, error: Exception, *, in_metadata: bool) -> None:
        """Note that a partition cannot be read, by the metadata or by a fetch. Refreshes the
        metadata, or raises if every partition has been waited for long enough."""
        if not is_retriable(error):
            raise error
        now = asyncio.get_running_loop().time()
        code = error.error if isinstance(error, KafkaError) else None
        is_missing = in_metadata and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        known = self._troubles.get(part)
        if known is None or known.is_missing != is_missing:
            within_s = self.client.missing_topic_s if is_missing else self.client.timeout_s
            self._troubles[part] = Trouble(now + within_s, is_missing)
        if all(self._troubles.get(each, FINE).until <= now for each in self.positions):
            raise error
        if self._looking is None:
            # What the metadata lacks may never have been asked for: the first look is at once.
            failure = None if in_metadata and self._budget is None else error
            self._budget = self._budget or RetryBudget(inf, self.client.rng)
            self._looking = asyncio.ensure_future(self._look(self._budget, failure))

    async def _look(self, budget: RetryBudget, failure: Exception | None) -> None:
        if failure is not None:
            await budget.back_off(failure)
        await self.client.refresh({part.topic for part in self._troubles})

    async def _collect(self, done: "set[asyncio.Task[Any]]") -> list[Batches]:
        """The results of finished fetches; positions move on. Raises a failure if nothing came."""
        received: list[Batches] = []
        failures: dict[TopicPartition, Exception] = {}
        for node, task in list(self._fetches.items()):
            if task not in done:
                continue
            del self._fetches[node]
            parts = [part for part, busy in self._busy.items() if busy == node]
            self._busy = {part: busy for part, busy in self._busy.items() if busy != node}
            if (error := task.exception()) is not None:
                if not isinstance(error, Exception):
                    raise error
                failures.update(dict.fromkeys(parts, error))
                continue
            for part, result in task.result().items():
                if part not in self.positions:
                    continue
                if isinstance(result, KafkaError):
                    if (failure := await self._recover(part, result)) is not None:
                        failures[part] = failure
                    continue
                self._troubles.pop(part, None)
                self.high_watermarks[part] = result.high_watermark
                if result.next_offset > self.positions[part]:
                    self.positions[part] = result.next_offset
                    received.append(result)
        for part, problem in failures.items():
            # What does not pass is met again by the next fetch, if others brought something.
            if part in self.positions and (is_retriable(problem) or not received):
                self._trouble(part, problem, in_metadata=False)
        if not self._troubles:
            self._budget = None
        return received

    async def _recover(self, part: TopicPartition, error: KafkaError) -> Exception | None:
        """Go on elsewhere when a position is outside the log; any other error is for the caller."""
        if error.error is not ErrorCode.OFFSET_OUT_OF_RANGE or self.out_of_range is None:
            return error
        try:
            found = await offsets_at(
                self.client, {part: self.out_of_range}, isolation=self.isolation
            )
        except (OSError, TimeoutError, KafkaError) as failure:
            return failure  # not raised here: other partitions may have brought something
        self.positions[part] = found[part].offset
        return None

    def statistics(self) -> dict[str, int]:
        return {
            **self._reader.statistics(),
            "partitions": len(self.positions),
            "fetches_outstanding": len(self._fetches),
            "lag": sum(self.lag().values()),
        }


def _consumer_record(partition: TopicPartition, record: Record) -> ConsumerRecord:
    return ConsumerRecord(
        partition, record.offset, record.timestamp, record.key, record.value, record.headers
    )
