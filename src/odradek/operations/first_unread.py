"""When the first record that a group has not read was written: its lag in time."""

from odradek.client.client import Client
from odradek.client.reader import Batches, PartitionReader
from odradek.wire.errors import DecodeError, KafkaError
from odradek.wire.records import iterate_records
from odradek.wire.topics import TopicPartition

__all__ = ["first_unread_ms"]

FETCH_BYTES = 64 * 1024
OPENED_BYTES_MAX = 1024 * 1024


async def first_unread_ms(
    client: Client, leader: int, tp: TopicPartition, offset: int
) -> int | None:
    """The timestamp of the record at an offset, or of the next one there is."""
    reader = PartitionReader(
        client, fetch_bytes=FETCH_BYTES, wait_ms=0, partition_bytes=FETCH_BYTES
    )
    try:
        batches = (await reader.fetch(leader, {tp: offset})).get(tp)
    except (KafkaError, OSError, TimeoutError):
        return None
    return _first_time(batches) if isinstance(batches, Batches) else None


def _first_time(batches: Batches) -> int | None:
    """Of a batch that opens to more than a little, the time of its first record will do."""
    for header in batches.headers():
        if header.next_offset <= batches.start or header.is_control:
            continue
        try:
            for record in iterate_records(batches.records, header, OPENED_BYTES_MAX):
                if record.offset >= batches.start:
                    return record.timestamp
        except DecodeError:
            pass
        return header.base_timestamp
    return None
