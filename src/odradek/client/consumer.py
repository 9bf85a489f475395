"""Following partitions from given offsets, across changes of leader. No group: the caller assigns.

One fetch is outstanding per broker, so that a broker with nothing new does not hold up the others.
Nor does a partition without a leader, or whose fetch failed: it waits for the next refresh of the
metadata, which runs in the background, backing off, while the others are read.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
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
    TopicRecreated,
    UndecodableBatch,
    offsets_at,
)
from odradek.client.retries import RetryBudget, is_retriable
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Headers, Record
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

FetchTask = asyncio.Task[dict[TopicPartition, Batches | KafkaError]]


class ConsumerRecord(NamedTuple):
    """A record, and where it came from."""

    partition: TopicPartition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class PartitionHealth(NamedTuple):
    """How long to wait for a partition to become readable, and whether its topic is missing."""

    deadline_s: float = inf
    is_missing: bool = False

    def is_hopeless(self, now_s: float) -> bool:
        return self.deadline_s <= now_s


READABLE = PartitionHealth()


class Consumer:
    """Reads the partitions it is given. Use it as an async context manager, or close it."""

    def __init__(
        self,
        client: Client,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        out_of_range: int | None = EARLIEST,
        follows_name: bool = True,
        fetch_bytes: int = FETCH_BYTES,
        wait_ms: int = FETCH_WAIT_MS,
    ) -> None:
        """`out_of_range` is where to continue when a position is outside the log: EARLIEST, LATEST,
        or None to raise OFFSET_OUT_OF_RANGE. A topic that was deleted and created again is read
        from its start, or raises TopicRecreated without `follows_name`; on a cluster without topic
        ids it is read on at the same offset, if it has that."""
        self.client = client
        self.isolation = isolation
        self.out_of_range = out_of_range
        self.follows_name = follows_name
        self.positions: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self._reader = PartitionReader(
            client, isolation=isolation, fetch_bytes=fetch_bytes, wait_ms=wait_ms
        )
        self._fetches: dict[int, FetchTask] = {}
        self._busy: dict[TopicPartition, int] = {}
        # Only partitions that cannot be read at present.
        self._unreadable: dict[TopicPartition, PartitionHealth] = {}
        self._refreshing: asyncio.Task[None] | None = None
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
        self._unreadable.clear()
        self._refreshing = self._budget = None

    async def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from now on, from an offset, EARLIEST or LATEST on."""
        await self.close()
        for part in offsets:
            self._reader.release(part)
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
            if (refreshing := self._refreshing) in done:
                self._refreshing = None
                await refreshing  # it raises if no broker could be asked
            if received := await self._collect(done):
                return received
        return []

    async def records(self) -> AsyncGenerator[ConsumerRecord, None]:
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
        refreshing = [] if self._refreshing is None else [self._refreshing]
        return [*self._fetches.values(), *refreshing]

    def _start_fetches(self) -> None:
        """One fetch for each broker that has none, of all its partitions not being read."""
        waiting = set() if self._refreshing is None else set(self._unreadable)
        by_node: dict[int, dict[TopicPartition, int]] = {}
        for part, position in self.positions.items():
            if part in self._busy or part in waiting:
                continue
            try:
                by_node.setdefault(self._reader.known_node(part), {})[part] = position
            except KafkaError as error:
                self._note_unreadable(part, error, in_metadata=True)
        for node, offsets in by_node.items():
            if node not in self._fetches:
                self._fetches[node] = asyncio.create_task(self._reader.fetch(node, offsets))
                self._busy.update(dict.fromkeys(offsets, node))
        assert self._fetches or self._refreshing, "each partition is read or being refreshed"

    def _note_unreadable(
        self, part: TopicPartition, error: Exception, *, in_metadata: bool
    ) -> None:
        """Note that a partition cannot be read, by the metadata or by a fetch. Refreshes the
        metadata, or raises if every partition has been waited for long enough."""
        if not is_retriable(error):
            raise error
        now_s = asyncio.get_running_loop().time()
        code = error.error if isinstance(error, KafkaError) else None
        is_missing = in_metadata and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        known = self._unreadable.get(part)
        if known is None or known.is_missing != is_missing:
            within_s = self.client.missing_topic_s if is_missing else self.client.timeout_s
            self._unreadable[part] = PartitionHealth(now_s + within_s, is_missing)
        if all(self._unreadable.get(each, READABLE).is_hopeless(now_s) for each in self.positions):
            raise error
        if self._refreshing is None:
            # What the metadata lacks may never have been asked for: the first refresh is at once.
            failure = None if in_metadata and self._budget is None else error
            self._budget = self._budget or RetryBudget(inf, self.client.rng)
            self._refreshing = asyncio.create_task(self._refresh(self._budget, failure))

    async def _refresh(self, budget: RetryBudget, failure: Exception | None) -> None:
        if failure is not None:
            await budget.back_off(failure)
        await self.client.refresh({part.topic for part in self._unreadable})

    async def _collect(self, done: "set[asyncio.Task[Any]]") -> list[Batches]:
        """The results of finished fetches; positions move on. Raises a failure if nothing came."""
        received: list[Batches] = []
        failures: dict[TopicPartition, Exception] = {}
        for node in [node for node, task in self._fetches.items() if task in done]:
            for part, result in self._results(node).items():
                if part not in self.positions:
                    continue
                if isinstance(result, KafkaError):
                    if (failure := await self._recover(part, result)) is not None:
                        failures[part] = failure
                elif isinstance(result, Exception):
                    failures[part] = result
                elif self._advance(part, result):
                    received.append(result)
        for part, problem in failures.items():
            # What is not retriable is met again by the next fetch, if others brought something.
            if part in self.positions and (is_retriable(problem) or not received):
                self._note_unreadable(part, problem, in_metadata=False)
        if not self._unreadable:
            self._budget = None
        return received

    def _results(self, node: int) -> Mapping[TopicPartition, Batches | Exception]:
        """What a finished fetch brought of each partition it asked for."""
        task = self._fetches.pop(node)
        parts = [part for part, busy in self._busy.items() if busy == node]
        self._busy = {part: busy for part, busy in self._busy.items() if busy != node}
        if (error := task.exception()) is None:
            return task.result()
        if not isinstance(error, Exception):
            raise error
        return dict.fromkeys(parts, error)

    def _advance(self, part: TopicPartition, batches: Batches) -> bool:
        """Move on after what was read; whether that is anything."""
        self._unreadable.pop(part, None)
        self.high_watermarks[part] = batches.high_watermark
        if batches.next_offset <= self.positions[part]:
            return False
        self.positions[part] = batches.next_offset
        return True

    async def _recover(self, part: TopicPartition, error: KafkaError) -> Exception | None:
        """Go on elsewhere when a position is outside the log, or of another log; any other error is
        for the caller."""
        if isinstance(error, TopicRecreated):
            go_on_at = EARLIEST if self.follows_name else None
        else:
            is_outside = error.error is ErrorCode.OFFSET_OUT_OF_RANGE
            go_on_at = self.out_of_range if is_outside else None
        if go_on_at is None:
            return error
        try:
            found = await offsets_at(self.client, {part: go_on_at}, isolation=self.isolation)
        except (OSError, TimeoutError, KafkaError) as failure:
            return failure  # not raised here: other partitions may have brought something
        if isinstance(error, TopicRecreated):
            logger.warning("%s; reading it from offset %d", error.message, found[part].offset)
            self._reader.release(part)
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
