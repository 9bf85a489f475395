"""The follower's side of an incremental fetch session (KIP-227).

docs/spec/interchange-with-apache-kafka.md section A.3.

The first request names every partition; the leader gives the session an id; each later request has
the next epoch and names only what changed and what is no longer wanted. A leader that answers with
id 0 keeps no session: then every request names everything. After any doubt, start over.
"""

from collections.abc import Iterable
from typing import NamedTuple

from odradek.wire.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic
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


class FetchSessionRequest(NamedTuple):
    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FollowerSession:
    """Which partitions are wanted from where, and what of that the leader knows already.

    The caller says what changes; nothing is compared. A request costs what it names.
    """

    def __init__(self) -> None:
        self.id = 0
        self._epoch = 0
        self.wanted: dict[TopicPartition, Position] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._unwanted: set[TopicPartition] = set()
        self._named: set[TopicPartition] = set()
        self._is_refused = False
        self.restarts = 0

    def want(self, tp: TopicPartition, position: Position) -> None:
        """Fetch this partition from here on, from this position."""
        self.wanted[tp] = position
        self._changed[tp] = None
        self._unwanted.discard(tp)

    def withdraw(self, tp: TopicPartition) -> None:
        """Do not fetch this partition for now."""
        if self.wanted.pop(tp, None) is not None:
            self._changed.pop(tp, None)
            self._unwanted.add(tp)

    @property
    def has_request(self) -> bool:
        """Whether there is anything to ask, or to tell the leader not to keep ready for us."""
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
        if not self.is_incremental:
            named = list(self.wanted)
            forgotten: list[TopicPartition] = []
            self._named = set(named)
        else:
            named = list(self._changed)
            forgotten = [tp for tp in self._unwanted if tp in self._named]
            self._named.update(named)
            self._named.difference_update(forgotten)
        self._changed.clear()
        self._unwanted.clear()
        return self._next(self._topics(named), _forgotten(forgotten))

    def empty_request(self) -> FetchSessionRequest:
        """The next request, if it is to name nothing: only the leader's answer is wanted."""
        assert self.is_incremental, "only a session knows what is fetched without naming it"
        return self._next([], [])

    def _next(
        self, topics: list[FetchTopic], forgotten: list[ForgottenTopic]
    ) -> FetchSessionRequest:
        request = FetchSessionRequest(self.id, self._epoch, topics, forgotten)
        if self.is_incremental:
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        return request

    def _topics(self, named: Iterable[TopicPartition]) -> list[FetchTopic]:
        topics: dict[str, FetchTopic] = {}
        for tp in named:
            topic = topics.get(tp.topic)
            if topic is None:
                topic = topics[tp.topic] = FetchTopic(topic=tp.topic, partitions=[])
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
        if not keep_id:
            self.id = 0


def _forgotten(partitions: Iterable[TopicPartition]) -> list[ForgottenTopic]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return [ForgottenTopic(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
