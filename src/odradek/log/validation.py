"""What a leader demands of a batch before it appends it: Kafka's rules and Kafka's errors.

The header and the checksum say nearly everything. Of a client's batch without compression the
records are walked as well, without being decoded: a batch that cannot be read would be acknowledged
and then stop every consumer of the partition for good. Sizes and offsets are checked in every
batch, for 0.4 ms a megabyte of 1 KiB records, about what the rest of an append costs, and a tenth
of that where records have one size; keys, values and headers, which cost three times that, in
batches of up to `WHOLE_RECORDS_MAX`. A compressed
batch is opened only where a topic needs it: for the keys of a compacted topic, and for another
codec than the topic prescribes. A batch of garbage under gzip is accepted otherwise, unlike by
Kafka.

The header's timestamps are believed, and its record count as long as a batch of this size can hold
so many: each offset counts towards a segment's reach, and a few bytes that claim two thousand
million of them would make a segment of every batch.
"""

from collections.abc import Callable

from odradek.log.config import LogConfig
from odradek.log.producers import Origin
from odradek.log.timestamp_search import LOOKED_AT_BYTES
from odradek.wire.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    TimestampType,
    crc_ok,
    header_at,
    scan,
)
from odradek.wire.compression import SIZE_MAX, Codec
from odradek.wire.errors import DecodeError, ErrorCode, KafkaError
from odradek.wire.records import (
    NO_TIMESTAMP,
    RECORD_BYTES_MIN,
    Record,
    check_records,
    iterate_records,
    recompress,
)

WritableBuffer = bytearray | memoryview

COMPRESSION_TYPES = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

# What no codec exceeds: zstd, the best of them, writes four bytes for a block of 128 KiB.
EXPANSION_MAX = 32 * 1024

# So many bad records of a batch are named. Kafka names all; a few bytes each, they would make an
# answer many times as large as the batch.
RECORD_ERRORS_MAX = 1000

# Batches of more records have their sizes and offsets checked, not their keys, values and headers.
WHOLE_RECORDS_MAX = 100


class InvalidRecords(KafkaError):
    """Some records of a batch are bad: `records` are their indexes, and why (KIP-467)."""

    def __init__(self, error: ErrorCode, message: str, records: list[tuple[int, str]]) -> None:
        super().__init__(error, message)
        self.records = records


def one_batch(buffer: WritableBuffer) -> BatchHeader:
    """The header of the only batch in the buffer; a partial batch after it is not looked at."""
    if len(buffer) < HEADER_BYTES:
        for _ in scan(buffer):  # Says what is wrong with it, if more than its length is.
            raise AssertionError("a batch shorter than its header")
        raise _invalid("no complete record batch")
    header = header_at(buffer)
    end = header.end_position
    if end != len(buffer):
        if end > len(buffer):
            raise _invalid("no complete record batch")
        for _ in scan(buffer, end):
            raise _invalid("more than one record batch")
    return header


def check_batch(
    buffer: WritableBuffer, header: BatchHeader, config: LogConfig, origin: Origin, now_ms: int
) -> None:
    """Raise the KafkaError a producer gets for this batch, if it gets one."""
    if origin is Origin.CLIENT:
        _check_client(header)
    if header.size_bytes > config.max_message_bytes and origin is not Origin.REPLICATION:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {header.size_bytes} bytes, more than {config.max_message_bytes}",
        )
    if not crc_ok(buffer, header):
        raise CorruptBatch(f"wrong checksum in batch at offset {header.base_offset}")
    if origin is Origin.CLIENT:
        _check_records(buffer, header)
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        raise _invalid(f"unknown compression codec {header.attributes & CODEC_MASK}")
    if not config.log_append_time:
        _check_timestamps(buffer, header, config, now_ms)
    if config.compact and not header.is_control:
        _check_keys(buffer, header, config)


def _check_client(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise _invalid(f"batch begins at offset {header.base_offset}, not 0")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise _invalid(
            f"{header.record_count} records and a last offset of {header.last_offset_delta}"
        )
    stored = header.size_bytes - HEADER_BYTES
    if header.attributes & CODEC_MASK:
        stored = min(stored * EXPANSION_MAX, SIZE_MAX)
    if header.record_count > stored // RECORD_BYTES_MIN:
        raise _invalid(f"{header.size_bytes} bytes cannot hold {header.record_count} records")
    if header.is_control:
        raise _invalid("clients may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise _invalid(f"producer {header.producer_id} with sequence {header.base_sequence}")


def _check_records(buffer: WritableBuffer, header: BatchHeader) -> None:
    if header.max_timestamp < header.base_timestamp and header.base_timestamp != NO_TIMESTAMP:
        raise _invalid(
            f"the greatest timestamp {header.max_timestamp} is before the first,"
            f" {header.base_timestamp}"
        )
    if header.attributes & CODEC_MASK:
        return
    records = memoryview(buffer)[header.position + HEADER_BYTES : header.end_position]
    count = header.record_count
    try:
        check_records(records, count, whole=count <= WHOLE_RECORDS_MAX)
    except DecodeError as error:
        raise _invalid(str(error)) from None


def _check_timestamps(
    buffer: WritableBuffer, header: BatchHeader, config: LogConfig, now_ms: int
) -> None:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the append time")
    earliest = now_ms - config.timestamp_before_max_ms
    latest = now_ms + config.timestamp_after_max_ms
    base, greatest = header.base_timestamp, header.max_timestamp
    if (base == NO_TIMESTAMP or base >= earliest) and greatest <= latest:
        return

    def problem(record: Record) -> str | None:
        time_ms = record.timestamp
        if time_ms == NO_TIMESTAMP or earliest <= time_ms <= latest:
            return None
        return f"timestamp {time_ms} is not within {earliest} to {latest}"

    message = f"timestamps {base} to {greatest} are not within {earliest} to {latest}"
    bad = []
    if header.record_count <= WHOLE_RECORDS_MAX:  # the batch is refused: it is worth no more work
        bad = _bad_records(buffer, header, problem)
    raise InvalidRecords(ErrorCode.INVALID_TIMESTAMP, message, bad)


def _check_keys(buffer: WritableBuffer, header: BatchHeader, config: LogConfig) -> None:
    if header.record_count > max(LOOKED_AT_BYTES, config.max_message_bytes) // RECORD_BYTES_MIN:
        raise _invalid(f"{header.record_count} records are too many to look for their keys")

    def problem(record: Record) -> str | None:
        return "no key, which a compacted topic needs" if record.key is None else None

    bad = _bad_records(buffer, header, problem)
    if bad:
        index, reason = bad[0]
        raise InvalidRecords(
            ErrorCode.INVALID_RECORD,
            f"{len(bad)} of {header.record_count} records are invalid; record {index} has {reason}",
            bad[:RECORD_ERRORS_MAX],
        )


def _bad_records(
    buffer: WritableBuffer, header: BatchHeader, problem: Callable[[Record], str | None]
) -> list[tuple[int, str]]:
    """The indexes of the records that have a problem, and what it is."""
    try:
        return [
            (index, reason)
            for index, record in enumerate(iterate_records(buffer, header))
            if (reason := problem(record)) is not None
        ]
    except DecodeError as error:
        raise _invalid(str(error)) from None


def recompressed(
    buffer: WritableBuffer, header: BatchHeader, config: LogConfig
) -> WritableBuffer | None:
    """The batch in the codec that the topic prescribes, or None if it is in it already."""
    codec = COMPRESSION_TYPES[config.compression_type]
    if codec == header.codec or header.is_control:
        return None
    level = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(codec)
    try:
        batch = recompress(buffer, header, codec, level)
    except DecodeError as error:
        raise _invalid(str(error)) from None
    if len(batch) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {len(batch)} bytes in {codec.name}, more than {config.max_message_bytes}",
        )
    return batch


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
