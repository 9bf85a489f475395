"""The in-sync replicas and the high watermark, as rules over values.

docs/spec/controller-and-replication.md section 5.3.

Rules
1. A follower is *caught up* while its log ends where the leader's does, or while it last did so no
   longer ago than `replica.lag.time.max.ms`. Speed counts, not distance.
2. The ISR has two readings. *Committed* is what the store is known to hold: it decides whether a
   produce with acks=all may begin. *Maximal* is what the store may hold once the change in flight
   lands: it decides how far the high watermark may go and whom a produce must have reached.
   An expansion adds to the maximal ISR before it is written, a shrink takes away only after: so
   any replica that might be elected has every record below the high watermark.
3. One change is in flight per partition (`PendingExpand`, `PendingShrink`); while it is, no other
   is decided. It ends in `Committed`, or with the leader epoch.
4. The high watermark is the smallest log end among the leader and all that are, or are about to
   be, in the ISR. It only grows, and it stands still while the committed ISR is below the minimum.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

__all__ = [
    "NEVER",
    "UNKNOWN_OFFSET",
    "Committed",
    "FetchSource",
    "Follower",
    "IsrState",
    "PendingExpand",
    "PendingShrink",
    "high_watermark",
    "may_join",
    "out_of_sync",
]

UNKNOWN_OFFSET = -1
NEVER = float("-inf")


class FetchSource(Protocol):
    """What a follower's fetches come through: it remembers when the last one arrived.

    In an incremental fetch session a caught-up follower does not name the partition again, so the
    time of its last fetch is kept once per session and read here.
    """

    last_fetch_at: float


@dataclass(slots=True)
class Follower:
    """What a leader knows of one follower from its fetches. Times are the loop's, in seconds."""

    id: int
    log_start: int = UNKNOWN_OFFSET
    log_end: int = UNKNOWN_OFFSET
    caught_up_at: float = NEVER
    fetched_at: float = NEVER
    leader_end_at_fetch: int = 0
    # Refused as a member: not proposed again before this time.
    ineligible_until: float = NEVER
    source: FetchSource | None = field(default=None, repr=False, compare=False)

    def record_fetch(self, offset: int, log_start: int, leader_end: int, now: float) -> None:
        """A fetch from `offset` says: I have everything before it.

        When it reaches the leader's end, the follower is caught up now; when it reaches what was
        the leader's end at its previous fetch, it was caught up then.
        """
        if offset >= leader_end:
            self.caught_up_at = max(self.caught_up_at, now)
        elif offset >= self.leader_end_at_fetch:
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)
        self.log_start = log_start
        self.log_end = offset
        self.leader_end_at_fetch = leader_end
        self.fetched_at = now

    def leader_moves_on(self) -> None:
        """The leader, whose end we had, appends: we were caught up at our session's last fetch."""
        if self.source is not None:
            self.fetched_at = max(self.fetched_at, self.source.last_fetch_at)
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)

    def is_caught_up(self, leader_end: int, now: float, lag_max_s: float) -> bool:
        return self.log_end == leader_end or now - self.caught_up_at <= lag_max_s

    def new_epoch(self, leader_end: int, now: float, *, in_sync: bool, new_leader: bool) -> None:
        """A new leader epoch: ISR members get a full lag time of trust, others none.

        A leader that has just become one knows nothing of the follower's log.
        """
        self.caught_up_at = now if in_sync else NEVER
        self.fetched_at = now if in_sync and not new_leader else NEVER
        self.leader_end_at_fetch = leader_end
        if new_leader:
            self.log_start = self.log_end = UNKNOWN_OFFSET
            self.source = None


@dataclass(frozen=True, slots=True)
class Committed:
    """No change is under way: the ISR is what the store holds, in the store's order."""

    in_flight: ClassVar[bool] = False
    committed: tuple[int, ...]

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.committed

    def expand(self, joining: int) -> "PendingExpand":
        assert joining not in self.committed, (self, joining)
        return PendingExpand(self.committed, joining)

    def shrink(self, leaving: Iterable[int]) -> "PendingShrink":
        gone = frozenset(leaving)
        assert gone < set(self.committed), (self, gone)
        assert gone, self
        return PendingShrink(self.committed, gone)


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """A follower is joining; it counts as a member until the change is known to have failed."""

    in_flight: ClassVar[bool] = True
    committed: tuple[int, ...]
    joining: int

    @property
    def maximal(self) -> tuple[int, ...]:
        return (*self.committed, self.joining)

    @property
    def proposed(self) -> tuple[int, ...]:
        return self.maximal


@dataclass(frozen=True, slots=True)
class PendingShrink:
    """Members are leaving; they count until the change is known to have been written."""

    in_flight: ClassVar[bool] = True
    committed: tuple[int, ...]
    leaving: frozenset[int]

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.committed

    @property
    def proposed(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.committed if replica not in self.leaving)


IsrState = Committed | PendingExpand | PendingShrink


def high_watermark(
    leader_end: int,
    followers: Iterable[Follower],
    isr: IsrState,
    *,
    now: float,
    lag_max_s: float,
    is_alive: Callable[[int], bool],
) -> int:
    """The smallest log end among the leader and all that are, or are about to be, in the ISR.

    A caught-up follower outside the ISR is waited for too, or a busy leader would never let it in.
    """
    maximal = isr.maximal
    mark = leader_end
    for follower in followers:
        if follower.log_end < mark and (
            follower.id in maximal
            or (follower.is_caught_up(leader_end, now, lag_max_s) and is_alive(follower.id))
        ):
            mark = follower.log_end
    return mark


def out_of_sync(
    leader_end: int, followers: Iterable[Follower], isr: IsrState, *, now: float, lag_max_s: float
) -> list[int]:
    """ISR members that are not caught up; none while a change is in flight."""
    if isr.in_flight:
        return []
    return [
        follower.id
        for follower in followers
        if follower.id in isr.committed and not follower.is_caught_up(leader_end, now, lag_max_s)
    ]


def may_join(follower: Follower, isr: IsrState, high_watermark: int, epoch_start: int) -> bool:
    """Whether this follower has all that a member must have.

    Reaching the high watermark is not enough: a new leader's mark may still be behind, and a
    follower that has not reached the start of the leader's epoch may not have truncated yet.
    """
    return (
        not isr.in_flight
        and follower.id not in isr.committed
        and follower.log_end >= high_watermark
        and follower.log_end >= epoch_start
    )
