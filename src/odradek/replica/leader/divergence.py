"""Where a follower's log diverges from its leader's, found by its fetch (KIP-595).

docs/spec/controller-and-replication.md section 5.2.
"""

from odradek.log.log import Log
from odradek.replica.leader.fetch_state import FetchItem
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.offset_for_leader_epoch import UNDEFINED

__all__ = ["divergence", "diverges"]


def divergence(offset: int, last_fetched_epoch: int, log: Log) -> tuple[int, int] | None:
    """(epoch, end offset) to truncate by, if the log that ends at `offset` with a batch of
    `last_fetched_epoch` is not a prefix of this one."""
    epoch, end = log.epochs.end_offset_for(last_fetched_epoch, log.end_offset)
    if epoch == UNDEFINED or end == UNDEFINED:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"leader epoch {last_fetched_epoch} is not known here"
        )
    if offset < log.start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is before {log.start_offset}")
    if epoch < last_fetched_epoch or end < offset:
        return epoch, end
    return None


def diverges(item: FetchItem, log: Log) -> bool:
    """Whether such a fetch is refused or answered with a divergence."""
    try:
        return divergence(item.offset, item.last_fetched_epoch, log) is not None
    except KafkaError:
        return True
