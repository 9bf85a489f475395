"""Where a follower truncates its log so that it agrees with its leader's.

docs/spec/controller-and-replication.md section 5.2.

A follower that meets a leader epoch for the first time asks where its own last epoch ended at the
leader, and truncates there. The high watermark alone is not enough: it may be behind, and two logs
may differ below it (KIP-101, KIP-279).
"""

from typing import NamedTuple, Protocol

from odradek.wire.messages.offset_for_leader_epoch import UNDEFINED

__all__ = ["EpochHistory", "LostCommittedRecords", "Truncation", "check_kept", "truncation_for"]


class EpochHistory(Protocol):
    """The leader epochs of the follower's own log."""

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]: ...


class Truncation(NamedTuple):
    """Truncate to `offset`; if not `complete`, ask again with the epoch that is then the last."""

    offset: int
    complete: bool


class LostCommittedRecords(Exception):
    """The leader, elected from the ISR, does not have what was committed here."""


def truncation_for(
    leader_epoch: int,
    leader_end: int,
    *,
    epochs: EpochHistory,
    log_end: int,
    high_watermark: int,
) -> Truncation:
    """What to do with the leader's answer: that epoch `leader_epoch` ended at `leader_end`."""
    if leader_end == UNDEFINED:
        return Truncation(high_watermark, True)
    if leader_epoch == UNDEFINED:
        return Truncation(min(leader_end, log_end), True)
    own_epoch, own_end = epochs.end_offset_for(leader_epoch, log_end)
    if own_end == UNDEFINED:
        return Truncation(min(leader_end, log_end), True)
    if own_epoch != leader_epoch:
        return Truncation(min(own_end, log_end), False)
    return Truncation(min(own_end, leader_end, log_end), True)


def check_kept(
    offset: int, high_watermark: int, *, elected_from_isr: bool, unclean_allowed: bool
) -> None:
    """Refuse to truncate committed records for a leader that should have them (KIP-966).

    A leader elected from the ISR has every record below the high watermark, unless it lost the end
    of its log, to a power failure for example. Then truncating ours would lose those records for
    good, without an unclean election having been permitted. Where one was permitted, by the topic's
    settings or by electing a replica outside the ISR we know of, truncating is what was asked for.
    A follower that has just started knows of no earlier ISR; it follows as Kafka's would.
    """
    if offset < high_watermark and elected_from_isr and not unclean_allowed:
        raise LostCommittedRecords(
            f"the leader ends at {offset}, but records up to {high_watermark} were committed;"
            " a restart of this broker gives them up and follows"
        )
