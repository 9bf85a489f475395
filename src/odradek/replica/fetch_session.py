"""The follower's side of an incremental fetch session (KIP-227).

docs/spec/interchange-with-apache-kafka.md section A.3.

The first request names every partition; the leader gives the session an id; each later request has
the next epoch and names only what changed and what is no longer wanted. A leader that answers with
id 0 keeps no session: then every request names everything. After any doubt, start over.
"""

from collections.abc import Iterable, Mapping
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


class FetchSessionRequest(NamedTuple):
    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FollowerSession:
    """What the leader knows of what we want. The caller says what changed; nothing is compared."""

    def __init__(self) -> None:
        self.id = 0
        self._epoch = 0
        self._named: set[TopicPartition] = set()
        self._is_refused = False
        self.restarts = 0

    @property
    def is_incremental(self) -> bool:
        return self._epoch != 0

    @property
    def is_opening(self) -> bool:
        """The next request opens a session, as far as we know: it should not wait for data, so
        that the id comes at once and others can follow."""
        return not self.is_incremental and not self._is_refused

    def request(
        self,
        wanted: Mapping[TopicPartition, Position],
        changed: Iterable[TopicPartition],
        unwanted: Iterable[TopicPartition],
    ) -> FetchSessionRequest:
        """`wanted` are all partitions; `changed` and `unwanted` what happened since the last one.

        The epoch moves on with the request, so that another may follow before the answer."""
        if not self.is_incremental:
            named = list(wanted)
            forgotten: list[TopicPartition] = []
            self._named = set(named)
        else:
            named = [of for of in changed if of in wanted]
            forgotten = [of for of in unwanted if of in self._named and of not in wanted]
            self._named.update(named)
            self._named.difference_update(forgotten)
        request = FetchSessionRequest(
            self.id, self._epoch, _topics(wanted, named), _forgotten(forgotten)
        )
        if self.is_incremental:
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        return request

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


def _topics(
    wanted: Mapping[TopicPartition, Position], named: Iterable[TopicPartition]
) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for of in named:
        topic = topics.get(of.topic)
        if topic is None:
            topic = topics[of.topic] = FetchTopic(topic=of.topic, partitions=[])
        offset, log_start_offset, leader_epoch, max_bytes = wanted[of]
        topic.partitions.append(
            FetchPartition(
                partition=of.partition,
                current_leader_epoch=leader_epoch,
                fetch_offset=offset,
                log_start_offset=log_start_offset,
                partition_max_bytes=max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(partitions: Iterable[TopicPartition]) -> list[ForgottenTopic]:
    topics: dict[str, list[int]] = {}
    for of in partitions:
        topics.setdefault(of.topic, []).append(of.partition)
    return [ForgottenTopic(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
