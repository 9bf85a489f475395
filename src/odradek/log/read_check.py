"""Checksums of what is read from disk.

A batch that this process appended was checked then; one that it found on disk when it loaded the
log was not, and may have rotted since.
"""

from odradek.log.segment_files import LOG_SUFFIX, file_name
from odradek.log.segments import LogRead
from odradek.wire.batch import CorruptBatch, crc_ok, scan
from odradek.wire.errors import KafkaError

__all__ = ["sound_batches"]


def sound_batches(result: LogRead, directory: str) -> LogRead:
    """The batches up to the first with a wrong checksum; raises CorruptBatch if that is the
    first."""
    sound = 0
    try:
        for header in scan(result.records):
            if not crc_ok(result.records, header):
                raise CorruptBatch(f"wrong checksum at offset {header.base_offset}")
            sound = header.end_position
    except KafkaError as error:
        if sound == 0:
            path = f"{directory}/{file_name(result.segment_base, LOG_SUFFIX)}"
            raise CorruptBatch(
                f"{path}, position {result.position}: {error.message}. Another replica can lead"
                " meanwhile; to copy this one from the leader again, stop the broker, move"
                f" {directory} away and start it"
            ) from None
        return LogRead(result.records[:sound], result.segment_base, result.position)
    return result
