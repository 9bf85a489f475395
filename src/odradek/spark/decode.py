"""Record batches to Arrow: the columns of Spark's `kafka` format, with no object per record.

SPARK_FORMAT.md section 2. What is refused names topic, partition and offset; what is not data
(control batches, aborted transactions, offsets outside the range) is passed over.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from odradek.wire.batch import (
    HEADER_BYTES,
    BatchHeader,
    TimestampType,
    crc_ok,
    scan,
)
from odradek.wire.compression import Codec, decompress
from odradek.wire.errors import DecodeError, KafkaError

from . import kernels

Buffer = bytes | bytearray | memoryview
Array = np.ndarray[Any, Any]

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS = SCHEMA.append(pa.field("headers", HEADERS))

OFFSET, TIMESTAMP_US, KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE, HEADERS_AT, HEADER_COUNT = range(8)

ABORT_MARKER = 0
CONTROL_KEY_BYTES = 4
RECORD_BYTES_MIN = 7  # length, attributes, two deltas, two sizes, a count of headers
MAX_OFFSET = 2**63 - 1


class MalformedRecord(Exception):
    """A batch that cannot be read; says where."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of some batches, and the offset to go on from."""

    rows: pa.RecordBatch | None
    next_offset: int


class AbortedTransactions:
    """Which batches of a read_committed fetch belong to transactions that were aborted."""

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        # (first offset, producer id), the next to begin last.
        self._coming = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader) -> bool:
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._open.add(self._coming.pop()[1])
        return header.is_transactional and header.producer_id in self._open

    def marker(self, producer_id: int, kind: int) -> None:
        if kind == ABORT_MARKER:
            self._open.discard(producer_id)


@dataclass(slots=True)
class _Part:
    """The records of one batch: their bytes, opened, and the rows they became."""

    header: BatchHeader
    data: Array
    first_row: int = 0
    last_row: int = 0


class Decoder:
    """Turns fetched bytes of one partition into Arrow, within [start, end) of its offsets."""

    def __init__(
        self, topic: str, partition: int, start: int, end: int, include_headers: bool = False
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end
        self.include_headers = include_headers
        self.schema = SCHEMA_WITH_HEADERS if include_headers else SCHEMA

    def decode(self, records: Buffer, aborted: Sequence[tuple[int, int]] = ()) -> Decoded:
        """All complete batches in `records`, in one Arrow batch; None when no row is visible."""
        transactions = AbortedTransactions(aborted)
        parts: list[_Part] = []
        next_offset = self.start
        for header in scan(records):
            if header.next_offset <= self.start:
                continue
            if header.base_offset >= self.end:
                break
            next_offset = header.next_offset
            if not crc_ok(records, header):
                raise self._malformed(header, "its checksum does not match")
            if header.is_control:
                transactions.marker(header.producer_id, self._marker_kind(records, header))
            elif not transactions.hides(header):
                parts.append(self._open(records, header))
        rows = self._rows(parts) if parts else None
        self.start = next_offset
        return Decoded(rows, next_offset)

    def _marker_kind(self, records: Buffer, header: BatchHeader) -> int:
        part = self._open(records, header)
        numbers = np.empty((header.record_count, 8), np.int64)
        count, wrong = kernels.index_records(
            part.data, header.record_count, header.base_offset, 0, -1, 0, MAX_OFFSET, numbers, 0
        )
        if wrong or count < 1 or numbers[0, KEY_SIZE] < CONTROL_KEY_BYTES:
            raise self._malformed(header, "its control record is not one")
        kind_at = int(numbers[0, KEY_AT]) + 2
        return int.from_bytes(part.data[kind_at : kind_at + 2].tobytes(), "big")

    def _open(self, records: Buffer, header: BatchHeader) -> _Part:
        body = memoryview(records)[header.position + HEADER_BYTES : header.end_position]
        try:
            codec = header.codec
            opened = body if codec is Codec.NONE else decompress(codec, body)
        except (DecodeError, KafkaError) as error:
            raise self._malformed(header, str(error)) from None
        if not 0 <= header.record_count <= len(opened) // RECORD_BYTES_MIN:
            raise self._malformed(header, f"it cannot hold {header.record_count} records")
        return _Part(header, np.frombuffer(opened, np.uint8))

    def _rows(self, parts: list[_Part]) -> pa.RecordBatch | None:
        numbers = np.empty((sum(part.header.record_count for part in parts), 8), np.int64)
        row = 0
        for part in parts:
            header = part.header
            by_broker = header.timestamp_type is TimestampType.LOG_APPEND_TIME
            following, wrong = kernels.index_records(
                part.data,
                header.record_count,
                header.base_offset,
                header.base_timestamp,
                header.max_timestamp if by_broker else -1,
                self.start,
                self.end,
                numbers,
                row,
            )
            if wrong == kernels.BAD_TIMESTAMP:
                raise MalformedRecord(
                    f"KAFKA_MALFORMED_RECORD_TIMESTAMP: {self.topic}-{self.partition} offset "
                    f"{following}: its timestamp does not fit microseconds"
                )
            if wrong:
                raise self._malformed(header, f"no record at byte {following} of its records")
            part.first_row, part.last_row = row, following
            row = following
        return self._batch(numbers[:row], parts) if row else None

    def _batch(self, numbers: Array, parts: list[_Part]) -> pa.RecordBatch:
        count = len(numbers)
        timestamp_types = np.empty(count, np.int32)
        for part in parts:
            timestamp_types[part.first_row : part.last_row] = part.header.timestamp_type
        columns = [
            _column(numbers, KEY_AT, parts, pa.binary()),
            _column(numbers, VALUE_AT, parts, pa.binary()),
            pa.repeat(pa.scalar(self.topic, pa.string()), count),
            pa.array(np.full(count, self.partition, np.int32)),
            pa.array(np.ascontiguousarray(numbers[:, OFFSET])),
            pa.array(np.ascontiguousarray(numbers[:, TIMESTAMP_US])).view(TIMESTAMP),
            pa.array(timestamp_types),
        ]
        if self.include_headers:
            columns.append(_headers(numbers, parts))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _malformed(self, header: BatchHeader, why: str) -> MalformedRecord:
        return MalformedRecord(
            f"{self.topic}-{self.partition}: the batch at offset {header.base_offset} cannot be "
            f"read: {why}"
        )


def _column(numbers: Array, at: int, parts: list[_Part], kind: pa.DataType) -> pa.Array:
    """A column of bytes; `at` is the number that says where its pieces are, the next their size."""
    count = len(numbers)
    sizes = numbers[:, at + 1]
    offsets = np.zeros(count + 1, np.int32)
    valid = np.zeros((count + 7) // 8, np.uint8)
    out = np.empty(int(np.maximum(sizes, 0).sum()), np.uint8)
    for part in parts:
        rows = slice(part.first_row, part.last_row)
        kernels.gather(part.data, numbers[rows, at], sizes[rows], out, offsets, valid, rows.start)
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(kind, count, buffers)


def _headers(numbers: Array, parts: list[_Part]) -> pa.Array:
    """The headers of each record as a list; none is NULL, as in Spark's own format."""
    counts = numbers[:, HEADER_COUNT]
    header_numbers = np.empty((int(counts.sum()), 4), np.int64)
    header_parts: list[_Part] = []
    row = 0
    for part in parts:
        rows = slice(part.first_row, part.last_row)
        following = kernels.index_headers(
            part.data, numbers[rows, HEADERS_AT], counts[rows], header_numbers, row
        )
        header_parts.append(_Part(part.header, part.data, row, following))
        row = following
    keys = _column(header_numbers, 0, header_parts, pa.string())
    values = _column(header_numbers, 2, header_parts, pa.binary())
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid as error:
        raise MalformedRecord(f"a header's key is not UTF-8: {error}") from None
    offsets = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(
        pa.array(offsets), structs, type=HEADERS, mask=pa.array(counts == 0)
    )
