"""Which replica a consumer should read from (KIP-392).

docs/spec/controller-and-replication.md section 5.5.
"""

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Candidate", "rack_aware"]


class Candidate(NamedTuple):
    """A replica that has the offset asked for."""

    id: int
    rack: str | None
    log_end: int
    caught_up_at: float


def rack_aware(consumer_rack: str, leader: Candidate, followers: Iterable[Candidate]) -> int | None:
    """The follower to send the consumer to, or None if the leader serves it.

    In the consumer's rack the leader itself is best; else the most caught-up replica there: the one
    with the longest log, then the one that was at its end last, to the millisecond, then the
    greatest id. All brokers, ours and Apache's, choose the same.
    """
    if not consumer_rack or leader.rack == consumer_rack:
        return None
    near = [candidate for candidate in followers if candidate.rack == consumer_rack]
    if not near:
        return None
    return max(near, key=lambda each: (each.log_end, int(each.caught_up_at * 1000), each.id)).id
