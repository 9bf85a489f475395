"""The records inside a batch, for what must open one: tools, compaction, coordinators, markers.

    record: length varint · attributes i8 · timestamp delta varlong · offset delta varint ·
            key (length varint, -1 is null) · value (the same) · header count varint ·
            headers, each a key (length varint, UTF-8) and a value (length varint, -1 is null)

Varints are zigzag-coded, seven bits a byte. With a codec, the records as a whole are compressed.
A control batch holds one record whose key is (version i16, type i16); the end of a transaction has
the value (version i16, coordinator epoch i32).
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from odradek.wire.batch import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_OFFSET,
    MAGIC,
    OVERHEAD_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    TimestampType,
    header_at,
    set_crc,
)
from odradek.wire.compression import SIZE_MAX, Codec, compress, decompress
from odradek.wire.errors import DecodeError
from odradek.wire.even_records import skip_even_records

NO_TIMESTAMP = -1
VARINT_BYTES_MAX = 10
# No record is shorter: length, attributes, two deltas, two lengths, header count.
RECORD_BYTES_MIN = 7

_CONTROL_KEY = Struct(">hh")
_END_MARKER = Struct(">hi")
_LENGTH = Struct(">i")
_ATTRIBUTES = Struct(">h")

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record. An offset of -1, for a batch yet to be made, means the next in line."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ControlType(IntEnum):
    """What a control record ends a transaction with; other types are left alone."""

    ABORT = 0
    COMMIT = 1


class TransactionEnd(NamedTuple):
    """The one record of a control batch that ends a transaction."""

    type: ControlType
    coordinator_epoch: int
    timestamp: int


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    append_time_ms: int = NO_TIMESTAMP,
    last_offset_delta: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """A batch of these records, checksum and all.

    `last_offset_delta` is for a cleaned batch, which keeps the range of offsets it had;
    `append_time_ms` is every record's timestamp when the type is LOG_APPEND_TIME."""
    records = list(records)
    offsets = [
        record.offset if record.offset >= 0 else base_offset + index
        for index, record in enumerate(records)
    ]
    timestamps = [record.timestamp for record in records]
    base_timestamp = timestamps[0] if timestamps else NO_TIMESTAMP
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    max_timestamp = max(timestamps, default=NO_TIMESTAMP)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        max_timestamp = append_time_ms
    if last_offset_delta is None:
        last_offset_delta = offsets[-1] - base_offset if offsets else 0
    attributes = (
        codec
        | (TIMESTAMP_TYPE_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
    )
    body = bytearray()
    for offset, record in zip(offsets, records, strict=True):
        _encode_record(body, record, offset - base_offset, record.timestamp - base_timestamp)
    batch = bytearray(HEADER_BYTES)
    batch += body if codec is Codec.NONE else compress(codec, body, level)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - OVERHEAD_BYTES,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    set_crc(batch, header_at(batch))
    return batch


def decode_records(buffer: Buffer, header: BatchHeader, size_max: int = SIZE_MAX) -> list[Record]:
    """The records of the batch that `header` describes; DecodeError if they are damaged."""
    return list(iterate_records(buffer, header, size_max))


def iterate_records(
    buffer: Buffer, header: BatchHeader, size_max: int = SIZE_MAX
) -> Iterator[Record]:
    """The records one by one, for a caller that need not hold them all. Damage may show late."""
    data = _body(buffer, header, size_max)
    count = header.record_count
    if not 0 <= count <= len(data) // RECORD_BYTES_MIN:
        raise DecodeError(f"{len(data)} bytes cannot hold {count} records")
    append_time = None
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        append_time = header.max_timestamp
    position = 0
    try:
        for _ in range(count):
            record, position = _decode_record(data, position, header, append_time)
            yield record
    except IndexError:
        raise DecodeError("record runs past the end of its batch") from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"header key is not UTF-8: {error}") from None
    if position != len(data):
        raise DecodeError(f"{len(data) - position} bytes left after the last record")


def check_records(records: Buffer, count: int, *, whole: bool) -> None:
    """Raise DecodeError unless these bytes are `count` records at the offsets 0, 1, 2, ...

    Nothing is made of them, and numbers of one and two bytes, the common ones, are read in place.
    The sizes and offsets take 0.4 µs a record, less where sizes repeat; with `whole`, all fields
    are looked at, in three times that. Decoding takes ten times as long.
    """
    position = index = 0
    limit = len(records)
    if not whole:
        position, index = skip_even_records(records, count)
        if index == count and position == limit:
            return
    data = bytes(records)
    try:
        while index < count:
            size = data[position]
            position += 1
            if size > 127:
                more = data[position]
                if more > 127:
                    size, position = _raw_varint(data, position - 1)
                else:
                    size += (more << 7) - 128
                    position += 1
            end = position + (size >> 1)
            position += 1  # attributes
            while data[position] > 127:  # the timestamp, any of which will do
                position += 1
            delta = data[position + 1]
            position += 2
            if delta > 127:
                more = data[position]
                if more > 127:
                    delta, position = _raw_varint(data, position - 1)
                else:
                    delta += (more << 7) - 128
                    position += 1
            if size & 1 or end > limit or delta != index << 1:
                raise DecodeError(f"record {index} has a wrong size or offset")
            if whole:
                _check_fields(data, position, end, index)
            position = end
            index += 1
    except IndexError:
        raise DecodeError(f"record {index} runs past the end of its batch") from None
    if position != limit:
        raise DecodeError(f"{limit - position} bytes left after the last record")


def _check_fields(data: bytes, position: int, end: int, index: int) -> None:
    """Raise DecodeError unless key, value and headers fill the record to its end."""
    for _ in range(2):
        size = data[position]
        position += 1
        if size > 127:
            size, position = _raw_varint(data, position - 1)
        if not size & 1:
            position += size >> 1
        elif size != 1:  # odd is below zero, and only -1 may be
            raise DecodeError(f"record {index} has a field of negative size")
    count, position = _varint(data, position)
    if count:
        try:
            _, position = _headers(data, position, end, count)
        except UnicodeDecodeError as error:
            raise DecodeError(f"header key is not UTF-8: {error}") from None
    if position != end:
        raise DecodeError(f"record {index} does not end where it says")


def _raw_varint(data: bytes, position: int) -> tuple[int, int]:
    """A number as it is written: twice the value, or for one below zero an odd number."""
    value = 0
    for index in range(VARINT_BYTES_MAX):
        byte = data[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise DecodeError(f"varint of more than {VARINT_BYTES_MAX} bytes")


def recompress(
    buffer: Buffer, header: BatchHeader, codec: Codec, level: int | None = None
) -> bytearray:
    """The same batch in another codec; its records are not looked at."""
    batch = bytearray(buffer[header.position : header.position + HEADER_BYTES])
    batch += compress(codec, _body(buffer, header, SIZE_MAX), level)
    _LENGTH.pack_into(batch, LENGTH_OFFSET, len(batch) - OVERHEAD_BYTES)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_OFFSET, header.attributes & ~CODEC_MASK | codec)
    set_crc(batch, header_at(batch))
    return batch


def _body(buffer: Buffer, header: BatchHeader, size_max: int) -> bytes:
    with memoryview(buffer) as view:
        start = header.position + HEADER_BYTES
        return decompress(header.codec, view[start : header.end_position], size_max)


def encode_transaction_end(end: TransactionEnd, producer_id: int, producer_epoch: int) -> bytearray:
    """The control batch that commits or aborts a producer's transaction."""
    key = _CONTROL_KEY.pack(0, end.type)
    value = _END_MARKER.pack(0, end.coordinator_epoch)
    return encode_batch(
        [Record(-1, end.timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def decode_transaction_end(buffer: Buffer, header: BatchHeader) -> TransactionEnd | None:
    """What a control batch says about its transaction: nothing, if it is of another type or was
    emptied by the cleaner."""
    assert header.is_control
    if header.record_count == 0:
        return None
    record = decode_records(buffer, header)[0]
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise DecodeError("control record without a type")
    version, kind = _CONTROL_KEY.unpack_from(record.key)
    if version < 0:
        raise DecodeError(f"control record of version {version}")
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_MARKER.size:
        raise DecodeError("end of a transaction without a coordinator epoch")
    _, coordinator_epoch = _END_MARKER.unpack_from(record.value)
    return TransactionEnd(ControlType(kind), coordinator_epoch, record.timestamp)


def _encode_record(body: bytearray, record: Record, offset_delta: int, time_delta: int) -> None:
    fields = bytearray(1)  # attributes, none of which is in use
    _put_varint(fields, time_delta)
    _put_varint(fields, offset_delta)
    _put_bytes(fields, record.key)
    _put_bytes(fields, record.value)
    _put_varint(fields, len(record.headers))
    for key, value in record.headers:
        _put_bytes(fields, key.encode())
        _put_bytes(fields, value)
    _put_varint(body, len(fields))
    body += fields


def _put_varint(output: bytearray, value: int) -> None:
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        output.append(rest & 0x7F | 0x80)
        rest >>= 7
    output.append(rest)


def _put_bytes(output: bytearray, value: bytes | None) -> None:
    if value is None:
        output.append(1)  # -1
    else:
        _put_varint(output, len(value))
        output += value


def _decode_record(
    data: bytes, position: int, header: BatchHeader, append_time: int | None
) -> tuple[Record, int]:
    length, position = _varint(data, position)
    end = position + length
    if length < RECORD_BYTES_MIN - 1 or end > len(data):
        raise DecodeError(f"record of {length} bytes in {len(data) - position}")
    position += 1  # attributes
    time_delta, position = _varint(data, position)
    offset_delta, position = _varint(data, position)
    key, position = _bytes(data, position, end)
    value, position = _bytes(data, position, end)
    header_count, position = _varint(data, position)
    headers: Headers = ()
    if header_count:
        headers, position = _headers(data, position, end, header_count)
    if position != end:
        raise DecodeError(f"record of {length} bytes ends {end - position} bytes early")
    timestamp = header.base_timestamp + time_delta if append_time is None else append_time
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 0x7F
    for index in range(1, VARINT_BYTES_MAX):
        byte = data[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + index + 1
    raise DecodeError(f"varint of more than {VARINT_BYTES_MAX} bytes")


def _bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _varint(data, position)
    if length < 0:
        if length != -1:
            raise DecodeError(f"field of {length} bytes")
        return None, position
    if length > end - position:
        raise DecodeError(f"field of {length} bytes in {end - position}")
    return data[position : position + length], position + length


def _headers(data: bytes, position: int, end: int, count: int) -> tuple[Headers, int]:
    if not 0 <= count <= (end - position) // 2:
        raise DecodeError(f"{count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        key, position = _bytes(data, position, end)
        value, position = _bytes(data, position, end)
        if key is None:
            raise DecodeError("header without a key")
        headers.append((key.decode(), value))
    return tuple(headers), position
