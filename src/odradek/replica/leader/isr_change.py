"""A change of the ISR that a leader has submitted, and what can become of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, Protocol
from uuid import UUID

from odradek.replica.leader.fetch_state import FollowerLink
from odradek.store.payloads import LeaderAndIsr
from odradek.wire.topics import TopicPartition

__all__ = [
    "Accepted",
    "IsrChange",
    "IsrPath",
    "IsrRefusal",
    "IsrResult",
    "NotApplied",
    "ProposedIsr",
    "Rejected",
]


@dataclass(frozen=True, slots=True)
class Accepted:
    """Written: the ISR is the one that was submitted."""

    partition_epoch: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """The controller knows better. The change stays pending until its next LeaderAndIsr."""


@dataclass(frozen=True, slots=True)
class NotApplied:
    """The ISR is what it was; with a new partition epoch if the change was written and reverted."""

    partition_epoch: int | None = None
    # The broker that was to join is not the one whose fetches had been seen.
    is_other_incarnation: bool = False


IsrResult = Accepted | Rejected | NotApplied


class IsrChange:
    """A change of the ISR on its way. A follower joins in one incarnation only."""

    __slots__ = (
        "_on_result",
        "broker_epoch",
        "committed",
        "is_sent",
        "is_withdrawn",
        "link",
        "state",
        "topic_id",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: UUID,
        committed: tuple[int, ...],
        state: LeaderAndIsr,
        link: FollowerLink | None,
        on_result: "Callable[[IsrChange, IsrResult], None]",
    ) -> None:
        """From ISR `committed` to `state`, whose partition epoch is the version to write under.
        `link` is that of the follower that joins, None for a shrink."""
        assert state.leader in state.isr, state
        self.tp = tp
        self.topic_id = topic_id
        self.committed = committed
        self.state = state
        self.link = link
        self.broker_epoch = None if link is None else link.epoch
        self.is_sent = False  # it may have been written, whatever came back
        self.is_withdrawn = (
            False  # no longer to be written: the leader epoch is over, or it is done
        )
        self._on_result = on_result

    @property
    def joining(self) -> int | None:
        return None if self.link is None else self.link.broker_id

    @property
    def proposal(self) -> "ProposedIsr":
        return ProposedIsr(self, self.state)

    def without_joining(self, state: LeaderAndIsr) -> "ProposedIsr":
        """The ISR as it was, in the place of `state`."""
        isr = tuple(replica for replica in state.isr if replica != self.joining)
        return ProposedIsr(self, replace(state, isr=isr))

    def finish(self, result: IsrResult) -> None:
        """Hand the result to the role that submitted the change. It is not written again."""
        self._on_result(self, result)
        self.is_withdrawn = True


class ProposedIsr(NamedTuple):
    """A state to be written for a change: the one that was submitted, or the one before it."""

    change: IsrChange
    state: LeaderAndIsr

    @property
    def broker_epochs(self) -> Mapping[int, int]:
        """The incarnations of members that are known."""
        change = self.change
        if change.joining is None or change.broker_epoch is None:
            return {}
        return {change.joining: change.broker_epoch}


class IsrRefusal(Enum):
    """Why a proposal was not written, by what the leader does next."""

    REJECTED = "stay pending until the next LeaderAndIsr"
    NOT_APPLIED = "go back to the committed ISR"
    UNDECIDED = "propose the same again"


class IsrPath(Protocol):
    """How a leader's proposals reach the store: by itself, or through the controller."""

    # Whether writing the ISR that stands moves the partition epoch, and so keeps out a change that
    # is still under way.
    writes_unchanged_isr: bool
    # How long to wait before what failed is tried again.
    retry_s: float

    async def write(self, proposals: Sequence[ProposedIsr]) -> list[LeaderAndIsr | IsrRefusal]:
        """The states as they now stand, or why not. Raises StoreError or ControllerUnavailable if
        it is not known what became of them. What is withdrawn meanwhile is not written."""
        ...
