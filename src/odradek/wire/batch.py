"""The header of a record batch (magic 2), read and patched in place; records stay closed.

A batch is 61 bytes of header and then its records, compressed or not. The CRC covers everything
from the attributes on, so base offset, length and leader epoch can be stamped by a leader without
touching it; the append time cannot.

    0 base offset i64    8 length i32 (of what follows)   12 leader epoch i32   16 magic i8
    17 crc u32          21 attributes i16                 23 last offset delta i32
    27 base timestamp i64   35 max timestamp i64          43 producer id i64
    51 producer epoch i16   53 base sequence i32          57 record count i32   61 records

Attributes: bits 0–2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon.
Magic 0 and 1 have their magic byte at the same place; they are recognised and refused.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from odradek.wire.compression import Codec
from odradek.wire.crc32c import crc32c
from odradek.wire.errors import ErrorCode, KafkaError

Buffer = bytes | bytearray | memoryview

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LENGTH_OFFSET = 8
# Bytes of base offset and length, which the length does not count.
OVERHEAD_BYTES = 12
MAGIC_OFFSET = 16
CRC_OFFSET = 17
ATTRIBUTES_OFFSET = 21
MAX_TIMESTAMP_OFFSET = 35
# The smallest message of magic 0: anything shorter is nonsense whatever its magic.
LENGTH_MIN = 14
MAGIC = 2

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

SEQUENCE_MODULUS = 1 << 31

_LENGTH = Struct(">i")
_CRC = Struct(">I")
_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_CODECS = tuple(Codec)
_unpack_header = HEADER.unpack_from
_unpack_length = _LENGTH.unpack_from

assert HEADER_BYTES == 61


def attribute_bits(records: Buffer) -> int:
    """The bits above of the first batch, without a look at anything else; 0 if it is too short."""
    return records[ATTRIBUTES_OFFSET + 1] if len(records) >= HEADER_BYTES else 0


class CorruptBatch(KafkaError):
    """Bytes that are no record batch, or one whose checksum is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class UnsupportedMagic(KafkaError):
    """A message of the formats before 0.11, which Odradek neither stores nor converts."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, message)


class TimestampType(IntEnum):
    """Who set the timestamps of a batch: the producer, or the broker when it appended it."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


_TIMESTAMP_TYPES = tuple(TimestampType)


class BatchHeader(NamedTuple):
    """The header fields of the batch at `position` of some buffer."""

    position: int
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.length + OVERHEAD_BYTES

    @property
    def end_position(self) -> int:
        return self.position + self.length + OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap from 2³¹-1 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS

    @property
    def codec(self) -> Codec:
        number = self.attributes & CODEC_MASK
        if number > Codec.ZSTD:
            raise CorruptBatch(f"unknown compression codec {number}")
        return _CODECS[number]

    @property
    def timestamp_type(self) -> TimestampType:
        return _TIMESTAMP_TYPES[(self.attributes & TIMESTAMP_TYPE_BIT) >> 3]

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones in a cleaned batch may go; the cleaner keeps it as base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


def header_at(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, which must hold at least 61 bytes; its length is checked."""
    header = BatchHeader(position, *_unpack_header(buffer, position))
    if header.magic != MAGIC or header.length < HEADER_BYTES - OVERHEAD_BYTES:
        _refuse(header.magic, header.length, position)
    return header


def scan(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[BatchHeader]:
    """Headers of the complete batches in a buffer; a partial batch at the end stops the scan.

    Raises CorruptBatch where no batch can begin, UnsupportedMagic at a message of magic 0 or 1.
    """
    if end is None:
        end = len(buffer)
    position = start
    while end - position > MAGIC_OFFSET:
        (length,) = _unpack_length(buffer, position + LENGTH_OFFSET)
        magic = buffer[position + MAGIC_OFFSET]
        if magic != MAGIC or length < HEADER_BYTES - OVERHEAD_BYTES:
            _refuse(magic, length, position)
        following = position + length + OVERHEAD_BYTES
        if following > end:
            return
        yield BatchHeader(position, *_unpack_header(buffer, position))
        position = following


def _refuse(magic: int, length: int, position: int) -> None:
    if length >= LENGTH_MIN and magic in (0, 1):
        raise UnsupportedMagic(f"message at {position} has magic {magic}; only 2 is supported")
    if length < LENGTH_MIN or magic == MAGIC:
        raise CorruptBatch(f"batch at {position} has length {length}, less than a header")
    raise CorruptBatch(f"batch at {position} has magic {magic}")


def crc_of(buffer: Buffer, header: BatchHeader) -> int:
    """The checksum the batch ought to have."""
    with memoryview(buffer) as view:
        return crc32c(view[header.position + ATTRIBUTES_OFFSET : header.end_position])


def crc_ok(buffer: Buffer, header: BatchHeader) -> bool:
    return crc_of(buffer, header) == header.crc


def set_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """What a leader stamps on a batch; outside the checksum."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + OVERHEAD_BYTES, leader_epoch)


def set_append_time(buffer: bytearray | memoryview, header: BatchHeader, time_ms: int) -> None:
    """Make `time_ms` the timestamp of every record of the batch, and sum it again."""
    position = header.position
    attributes = header.attributes | TIMESTAMP_TYPE_BIT
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_OFFSET, attributes)
    _MAX_TIMESTAMP.pack_into(buffer, position + MAX_TIMESTAMP_OFFSET, time_ms)
    set_crc(buffer, header)


def set_crc(buffer: bytearray | memoryview, header: BatchHeader) -> None:
    _CRC.pack_into(buffer, header.position + CRC_OFFSET, crc_of(buffer, header))
