"""Reading record batches as they are: raw bytes with their range of offsets, nothing opened.

A fetch goes to the leader of a partition, or to the replica that the leader prefers for our rack.
`PartitionReader.batches(partition, start, until)` reads exactly the offsets [start, until), which
is what a Spark task wants: it requests the next piece before it hands out the last.

Where the cluster has topic ids, a partition is read of one topic for good: an offset means nothing
in another topic that was created under the name of a deleted one. Below, by name, nothing tells the
two apart but an offset that the new log does not have.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import inf
from typing import NamedTuple
from uuid import UUID

from odradek.client.client import Client
from odradek.client.retries import STALE_METADATA, is_retriable
from odradek.wire.batch import BatchHeader, crc_ok, scan
from odradek.wire.errors import DecodeError, ErrorCode, KafkaError, error_code
from odradek.wire.messages.fetch import (
    CONSUMER,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from odradek.wire.messages.list_offsets import EARLIEST as EARLIEST
from odradek.wire.messages.list_offsets import LATEST as LATEST
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.records import ControlType, Record, decode_records, decode_transaction_end
from odradek.wire.topic_ids import NO_TOPIC_ID
from odradek.wire.topics import TopicPartition, group_by_topic

FETCH_BYTES = 16 * 1024 * 1024
FETCH_WAIT_MS = 500
# How long a partition is read from its leader when the replica that the leader prefers is no help.
LEADER_ONLY_S = 10.0
# A wait must be over well before the connection counts as dead.
ANSWER_MARGIN_S = 10.0
# The last version of Fetch that names topics; later ones have their ids instead.
FETCH_BY_NAME_MAX = 12


class Isolation(IntEnum):
    """Whether records of transactions that are open or were aborted are wanted."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class UndecodableBatch(KafkaError):
    """A batch whose records cannot be read: its contents are damaged, or were never valid.

    Reading can continue at `next_offset`, without the records of this batch."""

    def __init__(self, tp: TopicPartition, header: BatchHeader, reason: str) -> None:
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE,
            f"partition {tp}: the batch at offset {header.base_offset} cannot be decoded: {reason}",
        )
        self.partition = tp
        self.base_offset = header.base_offset
        self.next_offset = header.next_offset


class TopicRecreated(KafkaError):
    """The topic that was being read was deleted, and another has its name now."""

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"topic {tp.topic!r} was deleted and created again: partition {tp} is another log now",
        )
        self.partition = tp


class OffsetAt(NamedTuple):
    """An offset, and the timestamp and leader epoch of its record where there is one."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Batches:
    """Whole batches of one partition, in a row, that begin with the one containing `start`.

    The first may begin before `start`, the last may end after the requested range: the
    caller leaves out records beyond either end. `next_offset` is where to continue.
    """

    partition: TopicPartition
    start: int
    next_offset: int
    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    # (producer id, first offset) of aborted transactions; skip their records up to the next marker.
    aborted: tuple[tuple[int, int], ...] = ()

    def headers(self) -> Iterator[BatchHeader]:
        return scan(self.records)

    def open(
        self,
        *,
        committed: bool = False,
        skip: Callable[[UndecodableBatch], None] | None = None,
    ) -> list[Record]:
        """The records from `start` on, without control records; `committed` leaves out aborted.

        A batch that cannot be decoded is handed to `skip` and left out; without `skip` it raises.
        """
        records: list[Record] = []
        for header in self.committed_headers() if committed else self.headers():
            if header.is_control:
                continue
            try:
                decoded = list(decode_records(self.records, header))
            except DecodeError as error:
                undecodable = UndecodableBatch(self.partition, header, str(error))
                if skip is None:
                    raise undecodable from error
                skip(undecodable)
                continue
            records += (record for record in decoded if record.offset >= self.start)
        return records

    def committed_headers(self) -> Iterator[BatchHeader]:
        """The batches that do not belong to an aborted transaction."""
        waiting = sorted(self.aborted, key=lambda entry: entry[1], reverse=True)
        aborting: set[int] = set()
        for header in self.headers():
            while waiting and waiting[-1][1] <= header.last_offset:
                aborting.add(waiting.pop()[0])
            if header.is_control:
                end = decode_transaction_end(self.records, header)
                if end is not None and end.type is ControlType.ABORT:
                    aborting.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in aborting:
                continue
            yield header

    def until(self, end: int) -> "Batches":
        """The same without the batches that begin at `end` or later."""
        if self.next_offset <= end:
            return self
        position = 0
        next_offset = self.start
        for header in self.headers():
            if header.base_offset >= end:
                break
            position, next_offset = header.end_position, header.next_offset
        return Batches(
            self.partition,
            self.start,
            max(next_offset, end),
            self.records[:position],
            self.high_watermark,
            self.last_stable_offset,
            self.log_start_offset,
            self.aborted,
        )


class ReadFrom(NamedTuple):
    """Where a partition is read: from the replica that its leader prefers for our rack, if any.

    A preferred replica that is no help is given up, and the leader is read for a while without
    naming our rack, so that it does not send us back there at once. Both ends are remembered here,
    so that one value per partition is all the state there is.
    """

    preferred: int | None = None
    leader_only_until_s: float = -inf

    def is_leader_only(self, now_s: float) -> bool:
        return self.leader_only_until_s > now_s

    def sent_to(self, node: int) -> "ReadFrom":
        return ReadFrom(node, self.leader_only_until_s)

    def sent_back(self) -> "ReadFrom":
        """The preferred replica points elsewhere: ask the leader next time."""
        return ReadFrom(None, self.leader_only_until_s)

    def given_up(self, now_s: float) -> "ReadFrom":
        return ReadFrom(None, now_s + LEADER_ONLY_S)


FROM_LEADER = ReadFrom()


class PartitionReader:
    """Fetches each partition from its leader, or from the replica that the leader prefers."""

    def __init__(
        self,
        client: Client,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        fetch_bytes: int = FETCH_BYTES,
        partition_bytes: int | None = None,
        wait_ms: int = FETCH_WAIT_MS,
        min_bytes: int = 1,
    ) -> None:
        self.client = client
        self.isolation = isolation
        self.fetch_bytes = fetch_bytes
        self.partition_bytes = fetch_bytes if partition_bytes is None else partition_bytes
        self.wait_ms = wait_ms
        self.min_bytes = min_bytes
        self._read_from: dict[TopicPartition, ReadFrom] = {}
        # The topic that each partition is read of, where the cluster has ids.
        self._topic_ids: dict[TopicPartition, UUID] = {}
        self._fetches = 0
        self._fetched_bytes = 0

    async def node_for(self, partition: TopicPartition) -> int:
        """The broker to read a partition from: the leader, or the replica it prefers for us."""
        with contextlib.suppress(KafkaError):
            return self.known_node(partition)
        return await self.client.leader(partition)

    def known_node(self, partition: TopicPartition) -> int:
        """The same without waiting; KafkaError says why there is none at present."""
        preferred = self._state(partition).preferred
        if preferred is not None and preferred in self.client.metadata.nodes:
            return preferred
        return self.client.metadata.leader(partition)

    def bind(self, partition: TopicPartition, topic_id: UUID) -> None:
        """Read this partition of the topic with this id; else it is the one of the first fetch."""
        self._topic_ids[partition] = topic_id

    def release(self, partition: TopicPartition) -> None:
        """Let the next fetch read the topic that has the name then."""
        self._topic_ids.pop(partition, None)

    def _topic_id(self, partition: TopicPartition) -> UUID:
        """Which topic to read; NO_TOPIC_ID where the cluster knows topics by name alone."""
        topic = self.client.metadata.topics.get(partition.topic)
        if topic is None or topic.id == NO_TOPIC_ID:
            return NO_TOPIC_ID
        return self._topic_ids.setdefault(partition, topic.id)

    async def fetch(
        self, node: int, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Batches | KafkaError]:
        """One fetch from one broker: what it has of each partition, or why not; nothing at all
        while we are over a quota."""
        topics: dict[tuple[str, UUID], list[FetchPartition]] = {}
        for tp, offset in offsets.items():
            topics.setdefault((tp.topic, self._topic_id(tp)), []).append(
                FetchPartition(
                    partition=tp.partition,
                    fetch_offset=offset,
                    partition_max_bytes=self.partition_bytes,
                )
            )
        request = FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=self.wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.fetch_bytes,
            isolation_level=self.isolation,
            # A leader that knew our rack would send us back to the replica that was no help.
            rack_id="" if any(map(self._is_leader_only, offsets)) else self.client.rack,
            topics=[
                FetchTopic(topic=name, topic_id=topic_id, partitions=parts)
                for (name, topic_id), parts in topics.items()
            ],
        )
        names = {topic_id: name for name, topic_id in topics}
        timeout = max(self.client.timeout_s, self.wait_ms / 1000 + ANSWER_MARGIN_S)
        try:
            response = await self.client.ask(
                node,
                request,
                timeout=timeout,
                version_max=FETCH_BY_NAME_MAX if NO_TOPIC_ID in names else None,
            )
        except (OSError, TimeoutError, KafkaError):
            for part in offsets:
                self._give_up(node, part)
            raise
        self._fetches += 1
        if response.error_code:
            raise KafkaError(error_code(response.error_code), f"fetch from broker {node}")
        results: dict[TopicPartition, Batches | KafkaError] = {}
        sent_to: dict[TopicPartition, int] = {}
        for topic_response in response.responses:
            id = topic_response.topic_id
            name = topic_response.topic or names.get(id, str(id))
            for data in topic_response.partitions:
                part = TopicPartition(name, data.partition_index)
                if part not in offsets:
                    raise KafkaError(
                        ErrorCode.UNKNOWN_SERVER_ERROR,
                        f"broker {node} answered a fetch with partition {part}, which was not "
                        "asked for",
                    )
                results[part] = self._read(node, part, offsets[part], data)
                if data.preferred_read_replica >= 0:
                    sent_to[part] = data.preferred_read_replica
        await self._find_replicas(sent_to)
        return results

    def _state(self, partition: TopicPartition) -> ReadFrom:
        return self._read_from.get(partition, FROM_LEADER)

    def _is_leader_only(self, partition: TopicPartition) -> bool:
        return self._state(partition).is_leader_only(asyncio.get_running_loop().time())

    def _give_up(self, node: int, partition: TopicPartition) -> bool:
        """Go back to the leader for a while if this broker was the preferred replica."""
        state = self._state(partition)
        if state.preferred != node:
            return False
        self._read_from[partition] = state.given_up(asyncio.get_running_loop().time())
        return True

    async def _find_replicas(self, sent_to: Mapping[TopicPartition, int]) -> None:
        """Refresh the metadata if it lacks preferred replicas; give up those not found."""
        if all(node in self.client.metadata.nodes for node in sent_to.values()):
            return
        with contextlib.suppress(OSError, TimeoutError, KafkaError):
            await self.client.refresh({partition.topic for partition in sent_to})
        now_s = asyncio.get_running_loop().time()
        for partition, node in sent_to.items():
            if node not in self.client.metadata.nodes:
                self._read_from[partition] = self._state(partition).given_up(now_s)

    def _read(
        self, node: int, partition: TopicPartition, offset: int, data: PartitionData
    ) -> Batches | KafkaError:
        error = error_code(data.error_code)
        if error in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID):
            return self._without_topic(node, partition)
        if error is not ErrorCode.NONE:
            where = f"partition {partition} at offset {offset}"
            if self._give_up(node, partition) and error is ErrorCode.OFFSET_OUT_OF_RANGE:
                # Only the leader knows the whole range: a follower may be behind it.
                return KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{where}: not in broker {node}")
            return KafkaError(error, where)
        if data.preferred_read_replica >= 0:
            state = self._state(partition)
            if self._is_leader_only(partition) or state.preferred == node:
                # We were sent here from there. The two will agree, but perhaps not at once.
                self._read_from[partition] = state.sent_back()
                return KafkaError(
                    ErrorCode.REPLICA_NOT_AVAILABLE,
                    f"partition {partition}: broker {node} refers to broker "
                    f"{data.preferred_read_replica}",
                )
            self._read_from[partition] = state.sent_to(data.preferred_read_replica)
        return self._whole_batches(partition, offset, data)

    def _without_topic(self, node: int, partition: TopicPartition) -> KafkaError:
        """The broker has no topic with our id: it has not heard of it yet, or the topic is gone.

        Only the broker's word and the metadata together say that it is gone: the metadata may be
        of a broker that has not heard of the deletion, nor of the new topic."""
        self._give_up(node, partition)
        topic = self.client.metadata.topics.get(partition.topic)
        if topic is not None and topic.id not in (NO_TOPIC_ID, self._topic_ids.get(partition)):
            return TopicRecreated(partition)
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_ID,
            f"partition {partition}: broker {node} does not know the id of its topic",
        )

    def _whole_batches(
        self, partition: TopicPartition, offset: int, data: PartitionData
    ) -> Batches | KafkaError:
        """The whole batches of a response, checked: a broker may truncate the last one."""
        assert not isinstance(data.records, list), "a decoder gives one view"
        end, next_offset, first = 0, offset, 0
        records = memoryview(data.records or b"")
        try:
            for header in scan(records):
                if not crc_ok(records, header):
                    if next_offset > offset:
                        break  # first hand out what is good; the next fetch begins here
                    return UndecodableBatch(partition, header, "its checksum is wrong")
                end = header.end_position
                if header.next_offset <= offset:
                    first = end
                next_offset = max(next_offset, header.next_offset)
        except KafkaError as wrong:
            where = f"partition {partition}, at offset {next_offset}"
            return KafkaError(wrong.error, f"{where}: {wrong.message}")
        self._fetched_bytes += end - first
        return Batches(
            partition,
            offset,
            next_offset,
            records[first:end],
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            tuple(
                (item.producer_id, item.first_offset) for item in data.aborted_transactions or ()
            ),
        )

    async def batches(
        self, partition: TopicPartition, start: int, until: int, *, timeout_s: float | None = None
    ) -> AsyncIterator[Batches]:
        """The batches with the offsets from `start` to before `until`, in order.

        Raises OFFSET_OUT_OF_RANGE if the log does not have them (any more), and what was last wrong
        if nothing new came for `timeout_s`.
        """
        if start >= until:
            return
        pending = asyncio.create_task(self._some(partition, start, until, timeout_s))
        try:
            while start < until:
                batches = await pending
                start = batches.next_offset
                if start < until:
                    pending = asyncio.create_task(self._some(partition, start, until, timeout_s))
                    # One turn of the loop sends the request, also if the caller blocks the loop.
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                if len(batches.records):
                    yield batches.until(until)
        finally:
            pending.cancel()

    async def _some(
        self, partition: TopicPartition, start: int, until: int, timeout_s: float | None
    ) -> Batches:
        """At least something from `start` on, however long the cluster is without a leader."""
        budget = self.client.retry_budget(timeout_s)
        while True:
            failure: Exception
            try:
                node, read_from = await self.node_for(partition), self._state(partition)
                batches = (await self.fetch(node, {partition: start})).get(partition)
                if isinstance(batches, Batches):
                    if batches.next_offset > start:
                        return batches
                    if self._state(partition) != read_from:
                        continue  # the leader referred us to a replica, perhaps one we cannot find
                    failure = KafkaError(
                        ErrorCode.OFFSET_NOT_AVAILABLE,
                        f"partition {partition} has nothing from offset {start} to {until}: it "
                        f"ends at {batches.high_watermark}",
                    )
                elif batches is None:
                    # A broker's answer to a client over its quota, which is then not read from for
                    # the throttle time.
                    failure = KafkaError(
                        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                        f"partition {partition} at offset {start}: broker {node} withholds it from "
                        "a client over its quota",
                    )
                else:
                    failure = batches
            except (OSError, TimeoutError, KafkaError) as error:
                failure = error
            await budget.back_off(failure)
            await self.refresh_after(failure, [partition])

    async def refresh_after(self, failure: Exception, partitions: Sequence[TopicPartition]) -> None:
        """Look for the leaders again if the failure says that we do not know them."""
        stale = not isinstance(failure, KafkaError) or failure.error in STALE_METADATA
        if stale and is_retriable(failure):
            await self.client.refresh({partition.topic for partition in partitions})

    def statistics(self) -> dict[str, int]:
        return {"fetches": self._fetches, "fetched_bytes": self._fetched_bytes}


async def offsets_at(
    client: Client,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, OffsetAt]:
    """The first offset at or after each timestamp, or EARLIEST or LATEST; -1 if there is none."""

    def build(some: dict[TopicPartition, int]) -> ListOffsetsRequest:
        topics = group_by_topic(
            (tp, ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamp))
            for tp, timestamp in some.items()
        )
        return ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=isolation,
            topics=[
                ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()
            ],
        )

    def read(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, int, OffsetAt]]:
        for topic in response.topics:
            for part in topic.partitions:
                found = OffsetAt(part.offset, part.timestamp, part.leader_epoch)
                yield TopicPartition(topic.name, part.partition_index), part.error_code, found

    return await client.ask_leaders(timestamps, build, read)
