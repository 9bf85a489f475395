"""What groups have read: committed, asked for, forgotten in time.

A commit is answered when every in-sync replica of the offsets topic has it, and only then can it be
fetched. An offset expires when no consumer needs it: its group is empty for
`offsets.retention.minutes`, or its topic is no longer subscribed to for as long (KIP-211).
docs/spec/controller-and-replication.md section 7.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from odradek.coordinator.config import GroupConfig
from odradek.coordinator.group import UNKNOWN_MEMBER, CommittedOffset, Group, GroupState, Member
from odradek.coordinator.storage import COMMIT_ERRORS, GroupStorage, Producer
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

Errors = dict[TopicPartition, ErrorCode]


class GroupOffsets:
    """Offsets of the groups in `storage`."""

    def __init__(
        self,
        storage: GroupStorage,
        config: GroupConfig,
        clock: Callable[[], int],
        touch: Callable[[Group, Member], None],
    ) -> None:
        self._storage = storage
        self._config = config
        self._clock = clock
        self._touch = touch
        self._expiry: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look for what has expired, now and then."""
        loop = asyncio.get_running_loop()
        interval_s = self._config.offsets_retention_check_interval_ms / 1000

        def check() -> None:
            self._expiry = loop.call_later(interval_s, check)
            self.expire()

        self._expiry = loop.call_later(interval_s, check)

    def close(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()

    async def commit(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> Errors:
        error = self._storage.status(group_id)
        group = self._storage.get(group_id) if not error else None
        if not error and group is None:
            if generation >= 0:
                error = ErrorCode.ILLEGAL_GENERATION
            else:
                group = self._storage.add(group_id)
        if group is not None:
            error = self._check_commit(group, generation, member_id, instance_id)
        if error or group is None:
            return dict.fromkeys(offsets, error)
        if (member := group.members.get(member_id)) is not None:
            self._touch(group, member)
        accepted, errors = self._split_by_metadata(offsets)
        if not accepted:
            return errors
        return await self._store(group, accepted, errors)

    def _split_by_metadata(
        self, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> tuple[dict[TopicPartition, CommittedOffset], Errors]:
        """What can be stored, and the errors of what has too long a text with it."""
        limit = self._config.offset_metadata_max_bytes
        accepted = {
            tp: offset for tp, offset in offsets.items() if java_length(offset.metadata) <= limit
        }
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        return accepted, dict.fromkeys(offsets.keys() - accepted, too_large)

    def _check_commit(
        self, group: Group, generation: int, member_id: str, instance_id: str | None
    ) -> ErrorCode:
        if generation < 0 and group.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation < 0 and member_id == UNKNOWN_MEMBER and instance_id is None:
            # Only members may speak for a group that has some.
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check_member(member_id, instance_id)
        if error:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    async def _store(
        self, group: Group, offsets: Mapping[TopicPartition, CommittedOffset], errors: Errors
    ) -> Errors:
        stored = self._storage.store_offsets(group, offsets)
        group.committing[stored] = dict(offsets)
        try:
            error, offset = await stored
        finally:
            committed = group.committing.pop(stored)
        if not error:
            if group.state is GroupState.DEAD:
                # Stored, but this broker no longer coordinates the group; its successor knows.
                error = ErrorCode.NOT_COORDINATOR
            else:
                for tp, one in committed.items():
                    one.batch_offset = offset
                    group.take_offset(tp, one)
        error = COMMIT_ERRORS.get(error, error)
        return {**errors, **dict.fromkeys(offsets, error)}

    # In transactions: docs/spec/transactions.md section 2.12

    async def commit_in_transaction(
        self,
        group_id: str,
        producer: Producer,
        member: tuple[int, str, str | None],
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> Errors:
        """Offsets that count once the producer's transaction is committed. `member` is the
        generation, member id and instance id, if the client gave them.

        A crash before the append loses the commit and with it the answer; after it, the next
        coordinator finds the offsets pending in the log.
        """
        error = self._storage.status(group_id)
        if error:
            return dict.fromkeys(offsets, error)
        group = self._storage.add(group_id)
        error = _check_transactional_commit(group, *member)
        if error:
            return dict.fromkeys(offsets, error)
        accepted, errors = self._split_by_metadata(offsets)
        if not accepted:
            return errors
        pending = group.pending_offsets.setdefault(producer.id, {})
        earlier = {tp: pending[tp] for tp in accepted if tp in pending}
        pending.update(accepted)
        stored = self._storage.store_offsets(group, accepted, producer)
        group.appending_pending.add(stored)
        try:
            error, offset = await stored
        finally:
            group.appending_pending.discard(stored)
        for tp, one in accepted.items():
            one.batch_offset = offset
            if error and pending.get(tp) is one:
                del pending[tp]
                if tp in earlier and earlier[tp].batch_offset >= 0:
                    pending[tp] = earlier[tp]  # acknowledged, and still the transaction's
        if not pending and group.pending_offsets.get(producer.id) is pending:
            del group.pending_offsets[producer.id]
        if not error and group.state is GroupState.DEAD:
            error = ErrorCode.NOT_COORDINATOR
        error = COMMIT_ERRORS.get(error, error)
        return {**errors, **dict.fromkeys(accepted, error)}

    async def end_transaction(self, partition: int, producer_id: int, is_commit: bool) -> None:
        """The marker of a transaction is in this partition of the offsets topic, on every in-sync
        replica. Returns when the offsets that were pending count, or are dropped."""
        owned = await self._storage.loaded(partition)
        if owned is None:
            return  # the next coordinator reads the marker
        for group in list(owned.entries.values()):
            if producer_id not in group.pending_offsets:
                continue
            if group.appending_pending:
                # Their batches come before the marker, and are acknowledged no later.
                await asyncio.wait(set(group.appending_pending))
            for tp, committed in group.pending_offsets.pop(producer_id, {}).items():
                if is_commit:
                    group.take_offset(tp, committed)

    def fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        require_stable: bool = False,
    ) -> tuple[ErrorCode, dict[TopicPartition, CommittedOffset | ErrorCode | None]]:
        """The committed offsets asked for, None where there is none; all when nothing is named.

        With `require_stable`, UNSTABLE_OFFSET_COMMIT where a commit is under way.
        """
        error = self._storage.status(group_id)
        if error:
            return error, {}
        group = self._storage.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            return ErrorCode.NONE, dict.fromkeys(partitions or ())
        found: dict[TopicPartition, CommittedOffset | ErrorCode | None] = {}
        for tp in group.offsets if partitions is None else partitions:
            if require_stable and group.is_unstable(tp):
                found[tp] = ErrorCode.UNSTABLE_OFFSET_COMMIT
            else:
                found[tp] = group.offsets.get(tp)
        return ErrorCode.NONE, found

    async def delete_group(self, group_id: str) -> ErrorCode:
        error = self._storage.status(group_id)
        if error:
            return error
        group = self._storage.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        group.transition(GroupState.DEAD, self._clock())
        self._storage.drop(group)
        # A failed write leaves the group to come back with the next coordinator, as after a crash.
        going = group.offsets.keys() | group.committing_partitions()
        error, _ = await self._storage.store_tombstones(group, going, whole_group=True)
        return COMMIT_ERRORS.get(error, error)

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[ErrorCode, Errors]:
        error = self._storage.status(group_id)
        group = self._storage.get(group_id) if not error else None
        if error:
            return error, {}
        if group is None or group.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND, {}
        if group.state is not GroupState.EMPTY and group.protocol_type != "consumer":
            return ErrorCode.NON_EMPTY_GROUP, {}
        errors = {
            tp: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if group.subscribed(tp.topic)
            else ErrorCode.NONE
            for tp in partitions
        }
        newer = group.committing_partitions()
        going = [
            tp for tp, error in errors.items() if not error and (tp in group.offsets or tp in newer)
        ]
        if going:
            error, _ = await self._storage.store_tombstones(group, going, whole_group=False)
            if error:
                return COMMIT_ERRORS.get(error, error), {}
            for tp in going:
                group.offsets.pop(tp, None)
                group.drop_pending(tp)
            self._forget_if_nothing_is_left(group)
        return ErrorCode.NONE, errors

    def forget_topic_partitions(self, deleted: Iterable[TopicPartition]) -> None:
        """Topics were deleted: their offsets mean nothing any more."""
        gone = set(deleted)
        for group in self._storage.entries():
            going = (gone & group.offsets.keys()) | (gone & group.committing_partitions())
            if self._drop_offsets(group, going):
                self._forget_if_nothing_is_left(group)

    def expire(self) -> None:
        now = self._clock()
        for group in self._storage.entries():
            # An offset that is being committed is older here than in the log, and behind its commit
            # a tombstone would take what is about to be acknowledged.
            over = expired(group, now, self._config.offsets_retention_ms)
            newer = group.committing_partitions()
            self._drop_offsets(group, [tp for tp in over if tp not in newer])
            self._forget_if_nothing_is_left(group)

    def _forget_if_nothing_is_left(self, group: Group) -> None:
        """A group without members and offsets is none; one that was never stored needs no word."""
        if (
            group.state is GroupState.EMPTY
            and not group.offsets
            and not group.committing
            and not group.pending_offsets
        ):
            group.transition(GroupState.DEAD, self._clock())
            self._storage.drop(group)
            if group.generation > 0:
                self._storage.store_tombstones(group, (), whole_group=True)

    def _drop_offsets(self, group: Group, partitions: Iterable[TopicPartition]) -> bool:
        going = list(partitions)
        if going:
            for tp in going:
                group.forget_offset(tp)
            self._storage.store_tombstones(group, going, whole_group=False)
        return bool(going)


def _check_transactional_commit(
    group: Group, generation: int, member_id: str, instance_id: str | None
) -> ErrorCode:
    """Unlike a plain commit, one without a generation is accepted from outside the group too: the
    producer's epoch fences zombies already."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation < 0 and member_id == UNKNOWN_MEMBER and instance_id is None:
        return ErrorCode.NONE
    error = group.check_member(member_id, instance_id)
    if not error and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def java_length(text: str) -> int:
    """Length in UTF-16 units, which is what Kafka's byte limit actually counts."""
    return len(text.encode("utf-16-le")) // 2


def expired(group: Group, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """The offsets of a group that have expired."""

    def is_over(committed: CommittedOffset, since_ms: int) -> bool:
        if committed.expire_timestamp >= 0:
            return now_ms >= committed.expire_timestamp
        return now_ms - since_ms >= retention_ms

    if group.protocol_type is None:
        # No member ever joined: a consumer that assigns itself, and is alive while it commits.
        return [tp for tp, c in group.offsets.items() if is_over(c, c.commit_timestamp)]
    if group.state is GroupState.EMPTY:
        return [tp for tp, c in group.offsets.items() if is_over(c, group.state_timestamp)]
    if group.protocol_type == "consumer" and group.state is GroupState.STABLE:
        topics = group.subscriptions()
        if topics is not None:
            return [
                tp
                for tp, c in group.offsets.items()
                if tp.topic not in topics and is_over(c, c.commit_timestamp)
            ]
    return []
