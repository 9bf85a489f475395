"""Incremental fetch sessions (KIP-227): a fetcher names its partitions once, then only changes.

A session is a `FetchSet` that lives from request to request, under an id that its fetcher repeats
with a rising epoch. There is room for so many; a new session may take the place of one that has not
been used for two minutes, or of one that is older than that and smaller. Followers go before
consumers. docs/spec/interchange-with-apache-kafka.md section A.3.
"""

from collections.abc import Callable
from random import Random

from odradek.replica.leader.fetch_state import FetchSet, key_of
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import FetchRequest, replica_id_of
from odradek.wire.topics import TopicPartition

__all__ = ["FetchSession", "FetchSessions"]

NO_SESSION = 0
FULL_WITHOUT_SESSION = -1
FULL_WITH_SESSION = 0
EPOCH_MAX = 2**31 - 1
EVICTION_S = 120.0


class FetchSession:
    """One fetcher's partitions, and the epoch its next request must have."""

    __slots__ = (
        "acl_version",
        "by_id",
        "created_at",
        "fetch_set",
        "id",
        "is_follower",
        "next_epoch",
        "used_at",
    )

    def __init__(
        self, fetch_set: FetchSet, is_follower: bool, now: float, *, by_id: bool = False
    ) -> None:
        self.id = NO_SESSION
        self.by_id = by_id
        self.fetch_set = fetch_set
        self.is_follower = is_follower
        self.next_epoch = 1
        self.acl_version = -1
        self.created_at = now
        self.used_at = now

    @property
    def is_new(self) -> bool:
        """Not yet kept: its fetcher has not had an answer."""
        return self.id == NO_SESSION

    @property
    def worth(self) -> tuple[bool, int, int]:
        """The order in which sessions are given up."""
        return self.is_follower, len(self.fetch_set), self.id


class FetchSessions:
    """The sessions of one broker, least recently used first."""

    def __init__(self, slots: int, now: Callable[[], float], rng: Random) -> None:
        self._slots = slots
        self._now = now
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}
        self._evicted = 0

    def open(
        self, request: FetchRequest, *, by_id: bool = False
    ) -> tuple[FetchSet, FetchSession | None]:
        """The partitions this request is about, as they stand with its changes applied. A session
        is by topic id or by name for life.

        A new session gets its id from `keep` once there is an answer. None says that the request
        asks for no session, or that there is no room. Raises KafkaError for the whole request.
        """
        if request.session_epoch in (FULL_WITHOUT_SESSION, FULL_WITH_SESSION):
            self.close(request.session_id)
            wants_session = request.session_epoch == FULL_WITH_SESSION and self._slots > 0
            replica_id = replica_id_of(request)
            fetch_set = FetchSet(replica_id, is_session=wants_session)
            _apply(fetch_set, request)
            if not wants_session:
                return fetch_set, None
            new = FetchSession(fetch_set, replica_id >= 0, self._now(), by_id=by_id)
            if new.is_follower and len(self._sessions) >= self._slots and not self._victim(new):
                # Found out now: each session has to prove again who fetches, and one that is never
                # kept never does. Without any, a follower is known by its broker.
                fetch_set.is_session = False
                return fetch_set, None
            return fetch_set, new
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.next_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if by_id is not session.by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.fetch_set.parked is not None:
            # The fetcher has sent another after the one that waits: it wants that answered now.
            session.fetch_set.parked.try_complete(force=True)
        _apply(session.fetch_set, request)
        session.next_epoch = 1 if session.next_epoch == EPOCH_MAX else session.next_epoch + 1
        session.used_at = self._now()
        self._sessions[session.id] = self._sessions.pop(session.id)
        if not len(session.fetch_set):
            self.close(session.id)
            return session.fetch_set, None
        return session.fetch_set, session

    def keep(self, session: FetchSession) -> int:
        """Gives a new session an id, or 0 if there is no room for it."""
        if len(self._sessions) >= self._slots:
            victim = self._victim(session)
            if victim is None:
                session.fetch_set.close()
                return NO_SESSION
            self._evict(victim)
        while True:
            session.id = self._rng.randrange(1, EPOCH_MAX)
            if session.id not in self._sessions:
                break
        self._sessions[session.id] = session
        return session.id

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.fetch_set.close()

    def _victim(self, newcomer: FetchSession) -> FetchSession | None:
        """Which session goes for the sake of another."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return None
        stale = self._now() - EVICTION_S
        if oldest.used_at < stale:
            return oldest
        candidates = [
            session
            for session in self._sessions.values()
            if session.created_at < stale or (newcomer.is_follower and not session.is_follower)
        ]
        least = min(candidates, key=lambda session: session.worth, default=None)
        return None if least is None or newcomer.worth < least.worth else least

    def _evict(self, session: FetchSession) -> None:
        self._evicted += 1
        self.close(session.id)

    def statistics(self) -> dict[str, int]:
        return {
            "sessions": len(self._sessions),
            "partitions": sum(len(session.fetch_set) for session in self._sessions.values()),
            "evicted": self._evicted,
        }


def _apply(fetch_set: FetchSet, request: FetchRequest) -> None:
    for topic in request.topics:
        for asked in topic.partitions:
            fetch_set.put(
                TopicPartition(topic.topic, asked.partition),
                asked.fetch_offset,
                asked.partition_max_bytes,
                leader_epoch=asked.current_leader_epoch,
                log_start_offset=asked.log_start_offset,
                last_fetched_epoch=asked.last_fetched_epoch,
                topic_id=topic.topic_id,
            )
    for forgotten in request.forgotten_topics_data:
        for partition in forgotten.partitions:
            fetch_set.remove(key_of(TopicPartition(forgotten.topic, partition), forgotten.topic_id))
