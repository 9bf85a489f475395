"""Groups and offsets as records of `__consumer_offsets`: written and read back.

The broker that leads partition p of the topic coordinates the groups that hash to p. What it
answers for is in the log first, on every in-sync replica, and only then in memory; so after a crash
the next leader reads the same groups and offsets back, and nothing acknowledged is forgotten. A
commit whose write timed out is not visible here, but may be after a failover: it was never denied.

docs/spec/controller-and-replication.md section 7; record layouts in
docs/spec/interchange-with-apache-kafka.md section E.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from odradek.coordinator.group import CommittedOffset, Group, GroupState, Member
from odradek.coordinator.state_topic import Appended, StateLog, StatePartitions
from odradek.wire.batch import BatchHeader, scan
from odradek.wire.errors import DecodeError, ErrorCode
from odradek.wire.messages.offsets_topic import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.wire.records import (
    ControlType,
    Record,
    decode_transaction_end,
    encode_batch,
    iterate_records,
)
from odradek.wire.topics import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
VALUE_VERSION = 3
VALUE_VERSION_WITH_EXPIRY = 1
APPEND_TIMEOUT_MS = 5_000

# What a failed write of the log means to whom it was written for.
_LOG_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_FETCH_SIZE,
)
COMMIT_ERRORS = {**_LOG_ERRORS, **dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)}
STORE_ERRORS = {
    **_LOG_ERRORS,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
}

logger = logging.getLogger(__name__)


class Producer(NamedTuple):
    """A transactional producer, which is what its offsets are written as."""

    id: int
    epoch: int


NO_PRODUCER = Producer(-1, -1)


class GroupStorage(StatePartitions[Group]):
    """The groups of the partitions this broker leads."""

    def __init__(self, offsets_log: StateLog, clock: Callable[[], int]) -> None:
        self._clock = clock
        super().__init__(
            OFFSETS_TOPIC,
            offsets_log,
            lambda partition: GroupReplay(partition, clock),
            gives_up_unreadable=True,
        )

    def add(self, group_id: str) -> Group:
        entries = self.owned[self.partition_for(group_id)].entries
        group = entries.get(group_id)
        if group is None:
            group = entries[group_id] = Group(group_id, self._clock())
        return group

    def write_group(
        self, group: Group, assignments: Mapping[str, bytes], then: Callable[[ErrorCode], None]
    ) -> None:
        """Store the group with these assignments, then call `then` with the error to answer."""

        def done(future: "asyncio.Future[Appended]") -> None:
            if not future.cancelled():
                error = future.result().error
                if error:
                    logger.warning("group %s could not be stored: %s", group.id, error.name)
                then(STORE_ERRORS.get(error, error))

        self._store_group(group, assignments).add_done_callback(done)

    def _store_group(
        self, group: Group, assignments: Mapping[str, bytes]
    ) -> "asyncio.Future[Appended]":
        value = _group_value(group, assignments)
        key = _versioned(GroupMetadataKey(group=group.id), GROUP_KEY_VERSION)
        return self._append(group.id, [(key, _versioned(value, VALUE_VERSION))])

    def store_offsets(
        self,
        group: Group,
        offsets: Mapping[TopicPartition, CommittedOffset],
        producer: Producer | None = None,
    ) -> "asyncio.Future[Appended]":
        """With a producer, as part of its transaction."""
        return self._append(
            group.id,
            [(_offset_key(group.id, tp), _offset_value(offsets[tp])) for tp in sorted(offsets)],
            producer,
        )

    def store_tombstones(
        self, group: Group, partitions: Iterable[TopicPartition], whole_group: bool
    ) -> "asyncio.Future[Appended]":
        """Forget offsets, and with `whole_group` the group itself."""
        records: list[tuple[bytes, bytes | None]] = [
            (_offset_key(group.id, tp), None) for tp in sorted(partitions)
        ]
        if whole_group:
            key = _versioned(GroupMetadataKey(group=group.id), GROUP_KEY_VERSION)
            records.append((key, None))
        return self._append(group.id, records)

    def drop(self, group: Group) -> None:
        owned = self.owned.get(self.partition_for(group.id))
        if owned is not None and owned.entries.get(group.id) is group:
            del owned.entries[group.id]

    def _append(
        self,
        group_id: str,
        pairs: list[tuple[bytes, bytes | None]],
        producer: Producer | None = None,
    ) -> "asyncio.Future[Appended]":
        now = self._clock()
        id, epoch = producer or NO_PRODUCER
        batch = encode_batch(
            [Record(-1, now, key, value) for key, value in pairs],
            producer_id=id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=producer is not None,
        )
        return self._log.append(self.partition_for(group_id), batch, APPEND_TIMEOUT_MS)


class GroupReplay:
    """Makes groups out of the records of a partition: the last word on each key counts.

    A record that cannot be decoded is skipped with a warning. Clients may write to this topic as
    administrators do, and one bad record must not cost every group of the partition its offsets.
    """

    def __init__(self, partition: int, clock: Callable[[], int]) -> None:
        self._partition = partition
        self._clock = clock
        self._groups: dict[str, GroupMetadataValue] = {}
        self._offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        # Records of transactions, by producer id, with where their batch is: they count once the
        # marker says so. Those without one at the end stay pending.
        self._pending: dict[int, list[tuple[Record, int]]] = {}

    def take(self, piece: bytes) -> None:
        for header in scan(piece):
            try:
                self._take_batch(piece, header)
            except DecodeError as error:
                self._skip("a batch", header.base_offset, error)

    def _take_batch(self, piece: bytes, header: BatchHeader) -> None:
        if header.is_control:
            self._end_transaction(piece, header)
            return
        for record in iterate_records(piece, header):
            if header.is_transactional:
                pending = self._pending.setdefault(header.producer_id, [])
                pending.append((record, header.base_offset))
            else:
                self._apply(record, header.base_offset)

    def _end_transaction(self, piece: bytes, header: BatchHeader) -> None:
        end = decode_transaction_end(piece, header)
        pending = self._pending.pop(header.producer_id, [])
        if end is not None and end.type is ControlType.COMMIT:
            for record, batch_offset in pending:
                self._apply(record, batch_offset)

    def _apply(self, record: Record, batch_offset: int) -> None:
        if record.key is None:
            return
        try:
            self._set(record.key, record.value, batch_offset)
        except DecodeError as error:
            self._skip("a record", record.offset, error)

    def _skip(self, what: str, offset: int, error: DecodeError) -> None:
        logger.warning(
            "%s-%d: skipped %s at offset %d that cannot be decoded: %s",
            OFFSETS_TOPIC,
            self._partition,
            what,
            offset,
            error,
        )

    def _set(self, key: bytes, value: bytes | None, batch_offset: int) -> None:
        version = int.from_bytes(key[:2], "big")
        if version <= OFFSET_KEY_VERSION:
            of = OffsetCommitKey.decode(key[2:], version)
            tp = TopicPartition(of.topic, of.partition)
            offsets = self._offsets.setdefault(of.group, {})
            if value is None:
                offsets.pop(tp, None)
            elif tp not in offsets or offsets[tp].batch_offset <= batch_offset:
                offsets[tp] = _read_offset(value, batch_offset)
        elif version == GROUP_KEY_VERSION:
            group_id = GroupMetadataKey.decode(key[2:], version).group
            if value is None:
                self._groups.pop(group_id, None)
            else:
                number = int.from_bytes(value[:2], "big")
                self._groups[group_id] = GroupMetadataValue.decode(value[2:], number)
        else:
            logger.warning("skipped a record of %s with key version %d", OFFSETS_TOPIC, version)

    def entries(self) -> dict[str, Group]:
        now_ms = self._clock()
        found: dict[str, Group] = {}
        for group_id, value in self._groups.items():
            found[group_id] = _read_group(group_id, value, now_ms)
        for group_id, offsets in self._offsets.items():
            if offsets:
                group = found.setdefault(group_id, Group(group_id, now_ms))
                group.offsets.update(offsets)
        self._add_pending(found, now_ms)
        return found

    def _add_pending(self, found: dict[str, Group], now_ms: int) -> None:
        for producer_id, records in self._pending.items():
            for record, batch_offset in records:
                if record.key is None or record.value is None:
                    continue
                version = int.from_bytes(record.key[:2], "big")
                if version > OFFSET_KEY_VERSION:
                    continue  # a group is never written in a transaction
                try:
                    of = OffsetCommitKey.decode(record.key[2:], version)
                    committed = _read_offset(record.value, batch_offset)
                except DecodeError as error:
                    self._skip("a record", record.offset, error)
                    continue
                group = found.setdefault(of.group, Group(of.group, now_ms))
                pending = group.pending_offsets.setdefault(producer_id, {})
                pending[TopicPartition(of.topic, of.partition)] = committed


def _versioned(message: object, version: int) -> bytes:
    encoded: bytes = message.encode(version)  # type: ignore[attr-defined]  # a wire Message
    return version.to_bytes(2, "big") + encoded


def _offset_key(group_id: str, tp: TopicPartition) -> bytes:
    key = OffsetCommitKey(group=group_id, topic=tp.topic, partition=tp.partition)
    return _versioned(key, OFFSET_KEY_VERSION)


def _offset_value(committed: CommittedOffset) -> bytes:
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp,
        expire_timestamp=committed.expire_timestamp,
    )
    if committed.expire_timestamp < 0:
        return _versioned(value, VALUE_VERSION)
    # An expiry of its own is only in the older layout, which has no leader epoch.
    value.leader_epoch = -1
    return _versioned(value, VALUE_VERSION_WITH_EXPIRY)


def _read_offset(value: bytes, batch_offset: int) -> CommittedOffset:
    read = OffsetCommitValue.decode(value[2:], int.from_bytes(value[:2], "big"))
    committed = CommittedOffset(
        read.offset,
        read.metadata,
        read.commit_timestamp,
        read.leader_epoch,
        read.expire_timestamp,
    )
    committed.batch_offset = batch_offset
    return committed


def _group_value(group: Group, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=group.state_timestamp,
        members=[
            MemberMetadata(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=assignments.get(member.id, b""),
            )
            for member in group.members.values()
        ],
    )


def _read_group(group_id: str, value: GroupMetadataValue, now_ms: int) -> Group:
    timestamp = value.current_state_timestamp
    group = Group(group_id, timestamp if timestamp >= 0 else now_ms)
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol = value.protocol
    for stored in value.members:
        member = Member(
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout if stored.rebalance_timeout >= 0 else stored.session_timeout,
            stored.session_timeout,
            {value.protocol or "": stored.subscription},
        )
        member.assignment = stored.assignment
        group.add(member)
    group.leader = value.leader if value.leader in group.members else group.leader
    if group.members:
        group.state = GroupState.STABLE
    return group
