"""Appending what another log has: a follower its leader's records, a move those of what it moves.

docs/spec/controller-and-replication.md section 5.6.
"""

import logging

from odradek.log.log import AppendInfo, Log, UnexpectedOffset

__all__ = ["append_copied"]

logger = logging.getLogger(__name__)


def append_copied(
    log: Log, records: bytes | bytearray | memoryview, epoch_max: int | None = None
) -> AppendInfo:
    """Append batches as the other log has them, up to those of an epoch after `epoch_max`.

    DeleteRecords may put a log's start in the middle of a batch, and batches are copied whole. An
    empty log that waits at such a start begins with the batch instead, and its readers still at the
    start. The batches are checked before their offsets are: only a disk can fail between the two.
    """
    try:
        return log.append_as_follower(records, epoch_max)
    except UnexpectedOffset as error:
        start = log.start_offset
        if log.end_offset != start or not error.first_offset < start <= error.last_offset:
            raise
        logger.info("%s: truncated to start with the batch at offset %d", log, error.first_offset)
        log.truncate_fully_and_start_at(error.first_offset, start_offset=start)
        return log.append_as_follower(records, epoch_max)
