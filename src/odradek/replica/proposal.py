"""A change of the ISR between the decision and the store. See replica/membership.py."""

from typing import TYPE_CHECKING

from odradek.replica.fetching import FollowerLink

if TYPE_CHECKING:
    from odradek.replica.partition import Partition

__all__ = ["IsrProposal"]


class IsrProposal:
    """A change of the ISR on its way to the store. Who joins does so in one incarnation only."""

    __slots__ = ("broker_epoch", "is_sent", "isr", "link", "partition")

    def __init__(
        self, partition: "Partition", isr: tuple[int, ...], link: FollowerLink | None = None
    ) -> None:
        self.partition = partition
        self.isr = isr
        self.link = link
        self.broker_epoch = None if link is None else link.epoch
        self.is_sent = False  # the store may have it, whatever came back

    @property
    def joining(self) -> int | None:
        return None if self.link is None else self.link.broker_id
