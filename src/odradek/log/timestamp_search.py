"""Records by time, as ListOffsets asks for them: which is the first at or after a timestamp.

The time indexes say which segment and from where; the batches themselves decide.
"""

import logging
from collections.abc import Iterable

from odradek.log.segment import Segment
from odradek.wire.errors import DecodeError
from odradek.wire.records import NO_TIMESTAMP, RECORD_BYTES_MIN, iterate_records

logger = logging.getLogger(__name__)

# Records are looked at one by one if so many fit this, or their batch as it is: nothing else goes
# on meanwhile, and a few hundred bytes can be made to hold millions of records.
LOOKED_AT_BYTES = 16 * 1024 * 1024

# Timestamp, offset and leader epoch of a record.
Found = tuple[int, int, int]


def first_at_or_after(
    segments: Iterable[Segment], timestamp: int, start_offset: int
) -> Found | None:
    """The first record that is not before the timestamp nor before the offset."""
    for segment in segments:
        if segment.largest_timestamp >= timestamp:
            found = _first_in(segment, timestamp, start_offset)
            if found is not None:
                return found
    return None


def first_of_greatest(segments: Iterable[Segment]) -> Found | None:
    """The first record with the greatest timestamp of all."""
    newest = max(segments, key=lambda segment: segment.greatest_timestamp[0])
    greatest, offset = newest.greatest_timestamp
    return None if greatest < 0 else _first_record(newest, offset, greatest, newest.base_offset)


def last_written_by(
    segments: Iterable[Segment], timestamp: int, start_offset: int, end: tuple[int, int] | None
) -> list[int]:
    """Where segments begin that were last written to by `timestamp`, the greatest offset first;
    `end` is the offset and time of the log's end, if records are there."""
    times = [(max(each.base_offset, start_offset), each.files.modified_ms) for each in segments]
    if end is not None:
        times.append(end)
    while times and times[-1][1] > timestamp:
        times.pop()
    return [offset for offset, _ in reversed(times)]


def _first_in(segment: Segment, timestamp: int, start_offset: int) -> Found | None:
    indexed, offset = segment.time_index.lookup(timestamp)
    is_entry = (indexed, offset) != (NO_TIMESTAMP, segment.base_offset)
    if is_entry and not segment.has_timestamp(indexed, offset):
        logger.warning("%s is damaged; reading %s instead", segment.time_index.path, segment)
        offset = segment.base_offset
    return _first_record(segment, max(offset, start_offset), timestamp, start_offset)


def _first_record(
    segment: Segment, search_from: int, timestamp: int, start_offset: int
) -> Found | None:
    """Opens one batch, or two if the log begins within the first. They were never opened before: if
    one contradicts its header, or cannot be read, its header must do."""
    found = segment.find(search_from)
    if found is None:
        return None
    for chunk, header in segment.batches(found.position):
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        if header.record_count == 0:
            continue  # The cleaner left only what its producer is known by.
        offset = max(header.base_offset, start_offset)
        by_header = header.max_timestamp, offset, header.leader_epoch
        size_max = max(LOOKED_AT_BYTES, header.size_bytes)
        if header.record_count > size_max // RECORD_BYTES_MIN:
            return by_header
        try:
            for record in iterate_records(chunk, header):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return record.timestamp, record.offset, header.leader_epoch
        except DecodeError:
            return by_header
        if header.base_offset >= start_offset:
            return by_header
        # It begins before the log does: the records that were late enough may be gone.
    return None
