"""Groups and offsets as records of `__consumer_offsets`: written, read back, and who owns which.

The broker that leads partition p of the topic coordinates the groups that hash to p. What it
answers for is in the log first, on every in-sync replica, and only then in memory; so after a crash
the next leader reads the same groups and offsets back, and nothing acknowledged is forgotten. A
commit whose write timed out is not visible here, but may be after a failover: it was never denied.

docs/spec/controller-and-replication.md section 7; record layouts in
docs/spec/interchange-with-apache-kafka.md section E.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from odradek.coordinator.group import CommittedOffset, Group, GroupState, Member
from odradek.wire.batch import BatchHeader, scan
from odradek.wire.errors import DecodeError, ErrorCode
from odradek.wire.java_hash import java_hash
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

log = logging.getLogger(__name__)


class OffsetsLog(Protocol):
    """The local replicas of the offsets topic, as the coordinator uses them."""

    def partition_count(self) -> int:
        """How many partitions the topic has, or will have."""

    def append(
        self, partition: int, batch: bytearray, timeout_ms: int
    ) -> "asyncio.Future[ErrorCode]":
        """Append with acks=all; done when every in-sync replica has it."""

    def read(self, partition: int) -> Iterator[bytes]:
        """All batches from the log's start to its end, in pieces that are soon taken in."""


@dataclass(slots=True)
class OwnedPartition:
    """A partition of the offsets topic that this broker leads, with its groups."""

    epoch: int
    loading: bool = True
    groups: dict[str, Group] = field(default_factory=dict)


def partition_for(group_id: str, count: int) -> int:
    hashed = java_hash(group_id)
    return 0 if hashed == -(1 << 31) else abs(hashed) % count


class GroupStorage:
    """The groups of the partitions this broker leads."""

    def __init__(self, offsets_log: OffsetsLog, clock: Callable[[], int]) -> None:
        self._log = offsets_log
        self._clock = clock
        self.owned: dict[int, OwnedPartition] = {}
        # A broker that wins many partitions at once loads them one after the other: so the loop
        # turns after each piece, not after a piece of each.
        self._one_load = asyncio.Lock()

    def partition_for(self, group_id: str) -> int:
        return partition_for(group_id, self._log.partition_count())

    def status(self, group_id: str) -> ErrorCode:
        """Whether this broker can answer for the group now."""
        owned = self.owned.get(self.partition_for(group_id))
        if owned is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if owned.loading else ErrorCode.NONE

    @property
    def is_loading(self) -> bool:
        return any(owned.loading for owned in self.owned.values())

    def groups(self) -> list[Group]:
        return [group for owned in self.owned.values() for group in owned.groups.values()]

    def get(self, group_id: str) -> Group | None:
        owned = self.owned.get(self.partition_for(group_id))
        return owned.groups.get(group_id) if owned else None

    def add(self, group_id: str) -> Group:
        owned = self.owned[self.partition_for(group_id)]
        group = owned.groups.get(group_id)
        if group is None:
            group = owned.groups[group_id] = Group(group_id, self._clock())
        return group

    def own(self, partition: int, epoch: int) -> OwnedPartition | None:
        """We have begun to lead the partition, which is yet to be loaded. None if that is known."""
        current = self.owned.get(partition)
        if current is not None and current.epoch >= epoch:
            return None
        owned = self.owned[partition] = OwnedPartition(epoch)
        return owned

    async def load(self, partition: int, owned: OwnedPartition) -> list[Group]:
        """Read a partition that we own. Nothing if leadership moves on before that is done."""
        async with self._one_load:
            if self.owned.get(partition) is not owned:
                return []
            replay = Replay(partition)
            for piece in self._log.read(partition):
                replay.take(piece)
                # A long partition must not keep the broker from its other work.
                await asyncio.sleep(0)
                if self.owned.get(partition) is not owned:
                    return []
        owned.groups = replay.groups(self._clock())
        owned.loading = False
        log.info("coordinating %d groups of %s-%d", len(owned.groups), OFFSETS_TOPIC, partition)
        return list(owned.groups.values())

    def unload(self, partition: int, epoch: int | None = None) -> list[Group]:
        """Another broker leads the partition now; its groups are no longer ours."""
        owned = self.owned.get(partition)
        if owned is None or (epoch is not None and owned.epoch > epoch):
            return []
        del self.owned[partition]
        return list(owned.groups.values())

    def store_group(
        self, group: Group, assignments: Mapping[str, bytes]
    ) -> "asyncio.Future[ErrorCode]":
        value = _group_value(group, assignments)
        key = _versioned(GroupMetadataKey(group=group.id), GROUP_KEY_VERSION)
        return self._append(group.id, [(key, _versioned(value, VALUE_VERSION))])

    def store_offsets(
        self, group: Group, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> "asyncio.Future[ErrorCode]":
        return self._append(
            group.id,
            [(_offset_key(group.id, tp), _offset_value(offsets[tp])) for tp in sorted(offsets)],
        )

    def store_tombstones(
        self, group: Group, partitions: Iterable[TopicPartition], whole_group: bool
    ) -> "asyncio.Future[ErrorCode]":
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
        if owned is not None and owned.groups.get(group.id) is group:
            del owned.groups[group.id]

    def _append(
        self, group_id: str, pairs: list[tuple[bytes, bytes | None]]
    ) -> "asyncio.Future[ErrorCode]":
        now = self._clock()
        batch = encode_batch([Record(-1, now, key, value) for key, value in pairs], base_sequence=0)
        return self._log.append(self.partition_for(group_id), batch, APPEND_TIMEOUT_MS)


class Replay:
    """Makes groups out of the records of a partition: the last word on each key counts.

    A record that cannot be decoded is skipped with a warning. Clients may write to this topic as
    administrators do, and one bad record must not cost every group of the partition its offsets.
    """

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._groups: dict[str, GroupMetadataValue] = {}
        self._offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        # Offsets committed in a transaction count once its marker says so.
        self._pending: dict[int, list[Record]] = {}

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
                self._pending.setdefault(header.producer_id, []).append(record)
            else:
                self._apply(record)

    def _end_transaction(self, piece: bytes, header: BatchHeader) -> None:
        end = decode_transaction_end(piece, header)
        pending = self._pending.pop(header.producer_id, [])
        if end is not None and end.type is ControlType.COMMIT:
            for record in pending:
                self._apply(record)

    def _apply(self, record: Record) -> None:
        if record.key is None:
            return
        try:
            self._set(record.key, record.value)
        except DecodeError as error:
            self._skip("a record", record.offset, error)

    def _skip(self, what: str, offset: int, error: DecodeError) -> None:
        log.warning(
            "%s-%d: skipped %s at offset %d that cannot be decoded: %s",
            OFFSETS_TOPIC,
            self._partition,
            what,
            offset,
            error,
        )

    def _set(self, key: bytes, value: bytes | None) -> None:
        version = int.from_bytes(key[:2], "big")
        if version <= OFFSET_KEY_VERSION:
            of = OffsetCommitKey.decode(key[2:], version)
            offsets = self._offsets.setdefault(of.group, {})
            if value is None:
                offsets.pop(TopicPartition(of.topic, of.partition), None)
            else:
                offsets[TopicPartition(of.topic, of.partition)] = _read_offset(value)
        elif version == GROUP_KEY_VERSION:
            group_id = GroupMetadataKey.decode(key[2:], version).group
            if value is None:
                self._groups.pop(group_id, None)
            else:
                number = int.from_bytes(value[:2], "big")
                self._groups[group_id] = GroupMetadataValue.decode(value[2:], number)
        else:
            log.warning("skipped a record of %s with key version %d", OFFSETS_TOPIC, version)

    def groups(self, now_ms: int) -> dict[str, Group]:
        found: dict[str, Group] = {}
        for group_id, value in self._groups.items():
            found[group_id] = _read_group(group_id, value, now_ms)
        for group_id, offsets in self._offsets.items():
            if offsets:
                group = found.setdefault(group_id, Group(group_id, now_ms))
                group.offsets.update(offsets)
        return found


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


def _read_offset(value: bytes) -> CommittedOffset:
    read = OffsetCommitValue.decode(value[2:], int.from_bytes(value[:2], "big"))
    return CommittedOffset(
        read.offset,
        read.metadata,
        read.commit_timestamp,
        read.leader_epoch,
        read.expire_timestamp,
    )


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
