"""The follower's side of an incremental fetch session (KIP-227).

docs/spec/interchange-with-apache-kafka.md section A.3.

The first request names every partition; the leader gives the session an id; each later request has
the next epoch and names only what changed and what is no longer wanted. A leader that answers with
id 0 keeps no session: then every request names everything. After any doubt, start over.

From inter-broker protocol 3.1 on partitions are named by topic id, if all of them have one: a
request, and so a session, is by id or by name as a whole. When that changes, the session is started
over with the old id before the leader would have to refuse it. A topic that got another id is added
under the new and forgotten under the old. docs/spec/protocol-ladder.md section 2.7.
"""

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from odradek.wire.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic
from odradek.wire.topic_ids import NO_TOPIC_ID
from odradek.wire.topics import TopicPartition

__all__ = ["FetchSessionRequest", "FollowerSession", "Position"]

EPOCH_MAX = 2**31 - 1


class Position(NamedTuple):
    """From where a partition is fetched, and what goes with it."""

    offset: int
    log_start_offset: int
    leader_epoch: int
    max_bytes: int
    last_fetched_epoch: int = -1
    topic_id: UUID = NO_TOPIC_ID


class FetchSessionRequest(NamedTuple):
    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    by_id: bool = False


class FollowerSession:
    """Which partitions are wanted from where, and what of that the leader knows already.

    The caller says what changes; nothing is compared. A request costs what it names.
    """

    def __init__(self, *, may_be_by_id: bool = False) -> None:
        self.id = 0
        self._epoch = 0
        self._may_be_by_id = may_be_by_id
        self._by_id = False
        # Of the partitions that are wanted, those without a topic id.
        self._without_id: set[TopicPartition] = set()
        # What the ids in answers stand for.
        self._names: dict[UUID, str] = {}
        self.wanted: dict[TopicPartition, Position] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._unwanted: set[TopicPartition] = set()
        # What the leader knows, and the topic ids that it knows them by.
        self._named: dict[TopicPartition, UUID] = {}
        self._is_refused = False
        self.restarts = 0

    def want(self, tp: TopicPartition, position: Position) -> None:
        """Fetch this partition from here on, from this position."""
        self.wanted[tp] = position
        self._changed[tp] = None
        self._unwanted.discard(tp)
        if position.topic_id == NO_TOPIC_ID:
            self._without_id.add(tp)
        else:
            self._without_id.discard(tp)

    def withdraw(self, tp: TopicPartition) -> None:
        """Do not fetch this partition for now."""
        if self.wanted.pop(tp, None) is not None:
            self._without_id.discard(tp)
            self._changed.pop(tp, None)
            self._unwanted.add(tp)

    @property
    def has_request(self) -> bool:
        """Whether there is anything to fetch, or a partition to drop from the session."""
        return bool(self.wanted) or (bool(self._unwanted) and self.is_incremental)

    @property
    def is_incremental(self) -> bool:
        return self._epoch != 0

    @property
    def is_opening(self) -> bool:
        """The next request opens a session, as far as is known: it should not wait for data, so
        that the id comes at once and others can follow."""
        return not self.is_incremental and not self._is_refused

    def request(self) -> FetchSessionRequest:
        """The next request, with everything that has changed since the last.

        The epoch moves on with the request, so that another may follow before the answer."""
        by_id = self._may_be_by_id and not self._without_id
        if by_id is not self._by_id:
            if self.is_incremental:
                self.restart(keep_id=True)
            self._by_id = by_id
        if not self.is_incremental:
            named = list(self.wanted)
            forgotten: list[tuple[TopicPartition, UUID]] = []
            self._named.clear()
        else:
            named = list(self._changed)
            forgotten = self._forgotten(named)
            for tp, _ in forgotten:
                del self._named[tp]
        for tp in named:
            topic_id = self._named[tp] = self.wanted[tp].topic_id if by_id else NO_TOPIC_ID
            if by_id:
                self._names[topic_id] = tp.topic
        self._changed.clear()
        self._unwanted.clear()
        return self._next(self._topics(named), _forgotten(forgotten))

    def _forgotten(self, named: Iterable[TopicPartition]) -> list[tuple[TopicPartition, UUID]]:
        """What the leader need not keep ready any more, as it knows it."""
        gone = [(tp, self._named[tp]) for tp in self._unwanted if tp in self._named]
        if self._by_id:
            gone += [
                (tp, self._named[tp])
                for tp in named
                if tp in self._named and self._named[tp] != self.wanted[tp].topic_id
            ]
        return gone

    def name_of(self, topic: str, topic_id: UUID) -> str | None:
        """Which topic an answer is about; None if it was not asked for."""
        return topic if topic_id == NO_TOPIC_ID else self._names.get(topic_id)

    def empty_request(self) -> FetchSessionRequest:
        """The next request, if it is to name nothing: only the leader's answer is wanted."""
        assert self.is_incremental, "only a session knows what is fetched without naming it"
        return self._next([], [])

    def _next(
        self, topics: list[FetchTopic], forgotten: list[ForgottenTopic]
    ) -> FetchSessionRequest:
        request = FetchSessionRequest(self.id, self._epoch, topics, forgotten, self._by_id)
        if self.is_incremental:
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        return request

    def _topics(self, named: Iterable[TopicPartition]) -> list[FetchTopic]:
        topics: dict[str, FetchTopic] = {}
        for tp in named:
            topic = topics.get(tp.topic)
            if topic is None:
                topic_id = self._named[tp]
                name = "" if self._by_id else tp.topic
                topic = FetchTopic(topic=name, topic_id=topic_id, partitions=[])
                topics[tp.topic] = topic
            position = self.wanted[tp]
            topic.partitions.append(
                FetchPartition(
                    partition=tp.partition,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=position.max_bytes,
                )
            )
        return list(topics.values())

    def opened(self, session_id: int) -> None:
        """The answer to a full request: the id of the session, 0 if the leader keeps none."""
        if not self.is_incremental:
            self.id = session_id
            self._epoch = 1 if session_id != 0 else 0
            self._is_refused = session_id == 0

    def restart(self, *, keep_id: bool) -> None:
        """Begin again with a full request; with the old id, which closes the old session."""
        self.restarts += 1
        self._epoch = 0
        self._named.clear()
        self._names.clear()
        if not keep_id:
            self.id = 0


def _forgotten(partitions: Iterable[tuple[TopicPartition, UUID]]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, UUID], list[int]] = {}
    for tp, topic_id in partitions:
        name = tp.topic if topic_id == NO_TOPIC_ID else ""
        topics.setdefault((name, topic_id), []).append(tp.partition)
    return [
        ForgottenTopic(topic=name, topic_id=topic_id, partitions=indexes)
        for (name, topic_id), indexes in topics.items()
    ]
