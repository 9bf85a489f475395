"""What one fetcher, consumer or follower, asks a broker for, and how its question waits.

A `FetchSet` holds the partitions of one fetch, or of one incremental fetch session: then it lives
from request to request. It knows which of its partitions may have something new (*dirty*), because
each partition it asks about notifies it; so a fetch costs what it returns, and an idle session of
thousands of partitions costs nothing. docs/spec/controller-and-replication.md section 5.5.

Rules
1. A partition is dirty until an answer about it has gone out and a read has found nothing more. One
   that a follower names is dirty until its position is recorded, too: while its fetch waits, this
   broker may have become the leader.
2. A fetch is answered at once if it may not wait, if anything in it fails or diverges, or if it
   finds enough bytes. Otherwise it is parked, and looked at again when enough has arrived.
3. A fetch by topic id (v13 and later) may name ids that are not known here yet. These, and
   partitions that do not exist, wait with the others and are tried again at each request.
4. An incremental answer names only partitions with records, an error, or a new high watermark or
   log start; a full one names all, in the order asked.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from odradek.replica.delayed import Delayed
from odradek.replica.leader.isr import NEVER
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.fetch import CONSUMER, PartitionData
from odradek.wire.topic_ids import NO_TOPIC_ID
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.replica.partition import Partition

__all__ = [
    "DelayedFetch",
    "FetchItem",
    "FetchKey",
    "FetchParams",
    "FetchSet",
    "FollowerLink",
    "NamedById",
    "PartitionAnswer",
    "ReadResult",
    "Wakeups",
    "Watchers",
    "key_of",
    "key_of_answer",
]


class NamedById(NamedTuple):
    """A partition of a fetch by topic id; the topic's name is empty while it is not known."""

    topic: str
    partition: int
    topic_id: UUID


# Partitions are identified by name, or by id and number, in the whole of one fetch or session.
FetchKey = TopicPartition | tuple[UUID, int]
PartitionAnswer = tuple[TopicPartition | NamedById, PartitionData]


def _no_limit() -> int:
    return 2**31 - 1


@dataclass(frozen=True, slots=True)
class FetchParams:
    """The request-wide part of a Fetch."""

    replica_id: int = CONSUMER
    # The incarnation of a follower, where it says so.
    replica_epoch: int = -1
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 0x7FFFFFFF
    read_committed: bool = False
    rack_id: str = ""
    may_read_follower: bool = False  # a consumer of v11 or later
    hard_limit: bool = False  # before v3 even the first batch had to fit
    # What the broker has room for when the fetch is answered, which may be long after it came.
    room: Callable[[], int] = _no_limit

    @property
    def is_follower(self) -> bool:
        return self.replica_id >= 0

    @property
    def leader_only(self) -> bool:
        return self.is_follower or (self.replica_id == CONSUMER and not self.may_read_follower)


class FollowerLink:
    """One follower's line to us: a fetch session, or all its sessionless fetches together.

    Besides the time of the last fetch it knows which incarnation of the broker is at the other end
    (KIP-903; see replica/leader/isr_change_queue.py for how an epoch becomes *proven*).
    """

    __slots__ = (
        "broker_id",
        "epoch",
        "fetches",
        "is_being_identified",
        "last_fetch_at",
        "parked",
        "proven_after",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.last_fetch_at = NEVER
        self.fetches = 0
        self.parked: DelayedFetch | None = None  # the last fetch, while it waits
        self.epoch: int | None = None
        self.proven_after = 0
        self.is_being_identified = False

    @property
    def is_proven(self) -> bool:
        return self.epoch is not None and self.fetches >= self.proven_after

    def fetch_arrived(self, now: float) -> None:
        self.last_fetch_at = now
        self.fetches += 1
        self.parked = None

    def identified(self, epoch: int) -> None:
        """The broker registered with this epoch was alive a moment ago. Is it who fetches here?

        A fetch is sent after the answer to the one before. So one that comes after an answer that
        we have yet to give was sent by a process alive after now: the incarnation just read. The
        next one is such if a fetch is parked; else the next may have been under way, and the one
        after it is.
        """
        self.epoch = epoch
        self.proven_after = self.fetches + (1 if self.parked is not None else 2)

    def named_itself(self, epoch: int) -> None:
        """The fetch that has just arrived says which incarnation sent it."""
        if self.epoch != epoch:
            self.epoch = epoch
            self.proven_after = self.fetches

    def forget_epoch(self) -> None:
        self.epoch = None


class FetchItem:
    """One partition of a fetch: from where, how much, and what was last sent to the fetcher."""

    __slots__ = (
        "bytes_seen",
        "is_in_request",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "offset",
        "owner",
        "partition",
        "told_high_watermark",
        "told_log_start",
        "topic_id",
        "tp",
    )

    def __init__(self, owner: "FetchSet", tp: TopicPartition, topic_id: UUID = NO_TOPIC_ID) -> None:
        self.owner = owner
        self.tp = tp
        self.topic_id = topic_id
        self.offset = 0
        self.max_bytes = 0
        self.leader_epoch = -1
        self.log_start_offset = -1
        self.last_fetched_epoch = -1
        self.is_in_request = False  # named by the request that is being served
        self.partition: Partition | None = None  # where this item is registered for news
        self.bytes_seen = 0
        self.told_high_watermark = -1
        self.told_log_start = -1

    @property
    def is_resolved(self) -> bool:
        """Whether the name of the topic is known, if the fetch is by topic id."""
        return bool(self.tp.topic)

    @property
    def name(self) -> TopicPartition | NamedById:
        if self.topic_id == NO_TOPIC_ID:
            return self.tp
        return NamedById(*self.tp, self.topic_id)

    def news(self, byte_count: int) -> "DelayedFetch | None":
        """Something about the partition changed; the fetch to look at again, if it has enough.

        `byte_count` is how many bytes that this fetcher may read may have been added.
        """
        owner = self.owner
        owner.dirty[self] = None
        parked = owner.parked
        if parked is None or byte_count == 0:
            return None
        parked.missing_bytes -= byte_count
        return parked if parked.missing_bytes <= 0 else None


# An item, what was read for it, and whether there was more that the limits held back.
ReadResult = tuple[FetchItem, PartitionData, bool]


class FetchSet:
    """The partitions of one fetch or of one session, in the order they are served."""

    __slots__ = (
        "dirty",
        "is_incremental",
        "is_session",
        "items",
        "link",
        "outside_isr",
        "parked",
        "replica_id",
        "unresolved",
    )

    def __init__(self, replica_id: int = CONSUMER, *, is_session: bool = False) -> None:
        self.replica_id = replica_id
        self.is_session = is_session
        self.is_incremental = False  # a session's first answer is full
        self.items: dict[FetchKey, FetchItem] = {}
        # Those of topic ids that are not known here.
        self.unresolved: dict[FetchItem, None] = {}
        self.dirty: dict[FetchItem, None] = {}
        # Partitions whose ISR this follower is not in: looked at on each fetch, named or not.
        self.outside_isr: dict[FetchItem, None] = {}
        self.parked: DelayedFetch | None = None
        self.link: FollowerLink | None = None

    def __len__(self) -> int:
        return len(self.items)

    def put(
        self,
        tp: TopicPartition,
        offset: int,
        max_bytes: int,
        *,
        leader_epoch: int = -1,
        log_start_offset: int = -1,
        last_fetched_epoch: int = -1,
        topic_id: UUID = NO_TOPIC_ID,
    ) -> None:
        """Ask for this partition, or change what is asked of it. By topic id the name is empty."""
        key = key_of(tp, topic_id)
        item = self.items.get(key)
        if item is None:
            item = self.items[key] = FetchItem(self, tp, topic_id)
            if not item.is_resolved:
                self.unresolved[item] = None
        item.offset = offset
        item.max_bytes = max_bytes
        item.leader_epoch = leader_epoch
        item.log_start_offset = log_start_offset
        item.last_fetched_epoch = last_fetched_epoch
        item.is_in_request = True
        self.dirty[item] = None

    def resolve(self, name_of: Callable[[UUID], str | None]) -> bool:
        """Look the names of unknown ids up; says whether there are any new. What is known stays:
        the name of an id never changes."""
        found = [
            (item, name) for item in self.unresolved if (name := name_of(item.topic_id)) is not None
        ]
        for item, name in found:
            item.tp = TopicPartition(name, item.tp.partition)
            del self.unresolved[item]
        return bool(found)

    def remove(self, key: FetchKey) -> None:
        item = self.items.pop(key, None)
        if item is not None:
            self._leave(item)
            self.unresolved.pop(item, None)
            self.dirty.pop(item, None)
            self.outside_isr.pop(item, None)

    def close(self) -> None:
        """The session is over: leave every partition. A parked fetch is answered empty-handed."""
        if self.parked is not None:
            self.parked.cancel()
        self.leave_all()

    def leave_all(self) -> None:
        for item in self.items.values():
            self._leave(item)

    def _leave(self, item: FetchItem) -> None:
        if item.partition is not None:
            item.partition.unwatch(item)
            item.partition = None

    def to_read(self) -> list[FetchItem]:
        return list(self.dirty if self.is_incremental else self.items.values())

    def answer(self, results: list[ReadResult]) -> list[PartitionAnswer]:
        """The part of what was read that is sent, remembered as known to the fetcher."""
        answers: list[PartitionAnswer] = []
        incremental = self.is_incremental
        self.is_incremental = self.is_session
        for item, data, held_back in results:
            is_changed = (
                item.told_high_watermark != data.high_watermark
                or item.told_log_start != data.log_start_offset
            )
            item.told_high_watermark = data.high_watermark
            item.told_log_start = data.log_start_offset
            has_records = bool(data.records)
            is_special = (
                data.error_code != ErrorCode.NONE
                or data.preferred_read_replica >= 0
                or data.diverging_epoch is not None
            )
            if not held_back:
                self.dirty.pop(item, None)
                is_unrecorded = item.is_in_request and self.replica_id >= 0
                if has_records or is_special or is_unrecorded:
                    # At the end of the queue, so that a busy partition does not starve the others.
                    self.dirty[item] = None
            if not incremental or has_records or is_special or is_changed:
                answers.append((item.name, data))
        return answers

    def untell(self, answers: list[PartitionAnswer]) -> None:
        """This was not sent to the fetcher after all."""
        for named, _ in answers:
            item = self.items[key_of_answer(named)]
            item.told_high_watermark = item.told_log_start = -1
            self.dirty[item] = None


def key_of(tp: TopicPartition, topic_id: UUID) -> FetchKey:
    return tp if topic_id == NO_TOPIC_ID else (topic_id, tp.partition)


def key_of_answer(named: TopicPartition | NamedById) -> FetchKey:
    return (named.topic_id, named.partition) if isinstance(named, NamedById) else named


class DelayedFetch(Delayed):
    """A fetch that found too little. `attempt` reads again: answers, or None to go on waiting."""

    __slots__ = ("_attempt", "fetch_set", "future", "missing_bytes")

    def __init__(
        self,
        fetch_set: FetchSet,
        missing_bytes: int,
        attempt: Callable[["DelayedFetch", bool], list[PartitionAnswer] | None],
        future: "asyncio.Future[list[PartitionAnswer]]",
    ) -> None:
        super().__init__()
        self.fetch_set = fetch_set
        self.missing_bytes = missing_bytes
        self.future = future
        self._attempt = attempt
        fetch_set.parked = self
        if fetch_set.link is not None:
            fetch_set.link.parked = self

    def try_complete(self, *, force: bool = False) -> None:
        if self.done:
            return
        if self.future.done():  # The client has gone away.
            self.finish()
            if not self.fetch_set.is_incremental:
                self.fetch_set.leave_all()
            return
        answers = self._attempt(self, force)
        if answers is not None and self.finish():
            self.future.set_result(answers)

    def expire(self) -> None:
        self.try_complete(force=True)

    def cancel(self) -> None:
        """Answer with nothing: the session was closed under it."""
        if self.finish() and not self.future.done():
            self.future.set_result([])

    def unregister(self) -> None:
        self.fetch_set.parked = None
        link = self.fetch_set.link
        if link is not None and link.parked is self:
            link.parked = None
        if not self.fetch_set.is_session:
            self.fetch_set.leave_all()


class Wakeups:
    """Parked fetches to look at again before the current call into the replica manager ends.

    They are collected while partitions are touched and run once at the end, so that a fetch that
    waits for many partitions is read once.
    """

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending: dict[DelayedFetch, bool] = {}

    def add(self, fetch: DelayedFetch, *, force: bool = False) -> None:
        """`force` answers the fetch whatever it finds."""
        self.pending[fetch] = force or self.pending.get(fetch, False)

    def run(self) -> None:
        while self.pending:
            to_wake, self.pending = self.pending, {}
            for fetch, force in to_wake.items():
                fetch.try_complete(force=force)


class Watchers:
    """The fetch items registered with one partition: each learns of everything new there."""

    __slots__ = ("_wakeups", "items")

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self.items: dict[FetchItem, None] = {}

    def __len__(self) -> int:
        return len(self.items)

    def appended(self, byte_count: int) -> None:
        """The log has grown: followers may read on."""
        for item in self.items:
            if item.owner.replica_id >= 0:
                fetch = item.news(byte_count)
                if fetch is not None:
                    self._wakeups.add(fetch)

    def high_watermark_moved(self, appended_bytes: int) -> None:
        """Consumers may read on; followers learn the high watermark with their next answer."""
        for item in self.items:
            if item.owner.replica_id >= 0:
                item.news(0)
                continue
            fetch = item.news(max(1, appended_bytes - item.bytes_seen))
            item.bytes_seen = appended_bytes
            if fetch is not None:
                self._wakeups.add(fetch)

    def wake_all(self) -> None:
        """The role, or the start of the log, has changed: every parked fetch is answered."""
        for item in self.items:
            item.news(0)
            if item.owner.parked is not None:
                self._wakeups.add(item.owner.parked, force=True)
