"""Record batches to Arrow: the columns of Spark's `kafka` format, with no object per record.

docs/spec/spark-kafka-format.md section 2. What is refused names topic, partition and offset; what
is not data (control batches, aborted transactions, offsets outside the range) is passed over.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from odradek.wire.batch import (
    HEADER_BYTES,
    BatchHeader,
    TimestampType,
    scan,
)
from odradek.wire.compression import Codec, decompress
from odradek.wire.errors import DecodeError, KafkaError

from . import kernels
from .arrays import Array, frozen, repeated, to_bits, to_column
from .errors import MalformedRecord

Buffer = bytes | bytearray | memoryview

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

ABORT_MARKER = 0
CONTROL_KEY_BYTES = 4
RECORD_BYTES_MIN = 7  # length, attributes, two deltas, two sizes, a count of headers
MAX_OFFSET = 2**63 - 1

# How much is opened at a time, unless one batch is larger: a worker's memory is bounded by it.
PIECE_BYTES = 2 * 1024 * 1024
# Arrow's binary columns have 32-bit offsets.
PIECE_BYTES_MAX = 2**31 - 1


class AbortedTransactions:
    """Which batches of a read_committed fetch belong to transactions that were aborted."""

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        # (first offset, producer id), the next to begin last.
        self._coming = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._open: set[int] = set()

    def reach(self, header: BatchHeader) -> None:
        """Open what begins up to this batch: a marker too may be the first that is read of it."""
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._open.add(self._coming.pop()[1])

    def hides(self, header: BatchHeader) -> bool:
        return header.is_transactional and header.producer_id in self._open

    def marker(self, producer_id: int, kind: int) -> None:
        if kind == ABORT_MARKER:
            self._open.discard(producer_id)


@dataclass(slots=True)
class _Part:
    """The records of one batch: their bytes, opened, and the rows they became."""

    header: BatchHeader
    data: Array
    rows: slice = field(default_factory=lambda: slice(0, 0))


class _BytesColumn:
    """A column of byte strings being filled: where each ends, which are there, and the bytes."""

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self.ends = np.zeros(rows_max + 1, np.int32)
        self.valid = np.zeros((rows_max + 7) // 8, np.uint8)
        # Memory that is never written to is never taken from the machine.
        self.out = np.empty(bytes_max, np.uint8)

    def finish(self, count: int, kind: pa.DataType) -> pa.Array:
        buffers = [self.valid, self.ends[: count + 1], self.out[: self.ends[count]]]
        return pa.Array.from_buffers(kind, count, [pa.py_buffer(buffer) for buffer in buffers])


class _Columns:
    """The columns of some batches being filled."""

    def __init__(self, parts: list[_Part], include_headers: bool) -> None:
        rows_max = sum(part.header.record_count for part in parts)
        bytes_max = sum(len(part.data) for part in parts)
        self.offsets = np.empty(rows_max, np.int64)
        self.timestamps = np.empty(rows_max, np.int64)
        self.timestamp_types = np.empty(rows_max, np.int32)
        self.keys = _BytesColumn(rows_max, bytes_max)
        self.values = _BytesColumn(rows_max, bytes_max)
        self.headers_at = np.empty(rows_max if include_headers else 0, np.int64)
        self.header_counts = np.empty(rows_max if include_headers else 0, np.int64)
        self.count = 0

    def add(self, part: _Part, start: int, end: int) -> tuple[int, int]:
        """Read a batch's records with offsets in [start, end); the kernel's answer."""
        header = part.header
        by_broker = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        keys, values = self.keys, self.values
        answer: tuple[int, int] = kernels.read_records(
            part.data,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if by_broker else -1,
            start,
            end,
            self.offsets,
            self.timestamps,
            keys.ends,
            keys.valid,
            keys.out,
            values.ends,
            values.valid,
            values.out,
            self.headers_at,
            self.header_counts,
            self.count,
        )
        following, wrong = answer
        if not wrong:
            part.rows = slice(self.count, following)
            self.timestamp_types[part.rows] = header.timestamp_type
            self.count = following
        return answer


class Decoder:
    """Turns fetched bytes of one partition into Arrow, within [start, end) of its offsets.

    `start` moves on with what was read. Checksums were compared when the bytes were fetched.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        include_headers: bool = False,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end
        self.include_headers = include_headers
        self.piece_bytes = piece_bytes
        self.schema = SCHEMA_WITH_HEADERS if include_headers else SCHEMA
        # Columns that are the same in every row, made once for the longest batch so far.
        self._constant = self._constants(0)

    def _constants(self, count: int) -> dict[str, pa.Array]:
        partitions = np.full(count, self.partition, np.int32)
        return {
            "topic": repeated(self.topic, count),
            "partition": to_column(partitions, pa.int32()),
        }

    def _same(self, column: str, count: int) -> pa.Array:
        if count > len(self._constant[column]):
            self._constant = self._constants(count)
        return self._constant[column][:count]

    def decode(
        self, records: Buffer, aborted: Sequence[tuple[int, int]] = ()
    ) -> Iterator[pa.RecordBatch]:
        """The rows of all complete batches in `records`, a piece at a time."""
        transactions = AbortedTransactions(aborted)
        parts: list[_Part] = []
        opened_bytes = 0
        next_offset = self.start
        for header in scan(records):
            if header.next_offset <= self.start:
                continue
            if header.base_offset >= self.end:
                break
            transactions.reach(header)
            if header.is_control:
                # A log's cleaner empties the last marker of a producer: it says nothing any more.
                if header.record_count:
                    transactions.marker(header.producer_id, self._marker_kind(records, header))
            elif not transactions.hides(header):
                part = self._open(records, header)
                if parts and opened_bytes + len(part.data) > self.piece_bytes:
                    yield from self._rows(parts)
                    self.start = next_offset
                    parts, opened_bytes = [], 0
                parts.append(part)
                opened_bytes += len(part.data)
            next_offset = header.next_offset
        if parts:
            yield from self._rows(parts)
        self.start = next_offset

    def _marker_kind(self, records: Buffer, header: BatchHeader) -> int:
        columns = _Columns([part := self._open(records, header)], include_headers=False)
        count, wrong = columns.add(part, -(2**63), MAX_OFFSET)
        if wrong or count < 1 or columns.keys.ends[1] < CONTROL_KEY_BYTES:
            raise self._malformed(header, "its control record is not one")
        return int.from_bytes(columns.keys.out[2:4].tobytes(), "big")

    def _open(self, records: Buffer, header: BatchHeader) -> _Part:
        body = memoryview(records)[header.position + HEADER_BYTES : header.end_position]
        try:
            codec = header.codec
            opened = body if codec is Codec.NONE else decompress(codec, body)
        except (DecodeError, KafkaError) as error:
            raise self._malformed(header, str(error)) from None
        if not 0 <= header.record_count <= len(opened) // RECORD_BYTES_MIN:
            raise self._malformed(header, f"it cannot hold {header.record_count} records")
        if len(opened) > PIECE_BYTES_MAX:
            raise self._malformed(header, f"it opens to {len(opened)} bytes")
        return _Part(header, frozen(np.frombuffer(opened, np.uint8)))

    def _rows(self, parts: list[_Part]) -> Iterator[pa.RecordBatch]:
        """One batch of rows, or none."""
        columns = _Columns(parts, self.include_headers)
        for part in parts:
            where, wrong = columns.add(part, self.start, self.end)
            if wrong == kernels.BAD_TIMESTAMP:
                raise MalformedRecord(
                    f"KAFKA_MALFORMED_RECORD_TIMESTAMP: {self.topic}-{self.partition} offset "
                    f"{where}: its timestamp does not fit microseconds. SQLSTATE: 22008"
                )
            if wrong:
                raise self._malformed(part.header, f"no record at byte {where} of its records")
        if columns.count:
            yield self._batch(columns, parts)

    def _batch(self, columns: _Columns, parts: list[_Part]) -> pa.RecordBatch:
        count = columns.count
        arrays = [
            columns.keys.finish(count, pa.binary()),
            columns.values.finish(count, pa.binary()),
            self._same("topic", count),
            self._same("partition", count),
            to_column(columns.offsets[:count], pa.int64()),
            to_column(columns.timestamps[:count], TIMESTAMP),
            to_column(columns.timestamp_types[:count], pa.int32()),
        ]
        if self.include_headers:
            arrays.append(self._headers(columns, parts))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _headers(self, columns: _Columns, parts: list[_Part]) -> pa.Array:
        """The headers of each record as a list; none is NULL, as in Spark's own format."""
        counts = columns.header_counts[: columns.count]
        total = int(counts.sum())
        bytes_max = sum(len(part.data) for part in parts) if total else 0
        keys, values = _BytesColumn(total, bytes_max), _BytesColumn(total, bytes_max)
        row = 0
        for part in parts:
            row = kernels.read_headers(
                part.data,
                columns.headers_at[part.rows],
                columns.header_counts[part.rows],
                keys.ends,
                keys.valid,
                keys.out,
                values.ends,
                values.valid,
                values.out,
                row,
            )
        names = keys.finish(total, pa.string())
        try:
            names.validate(full=True)
        except pa.ArrowInvalid:
            # As in Java, where what is not UTF-8 becomes U+FFFD: one record must not end a stream.
            raw = keys.finish(total, pa.binary()).to_pylist()
            names = pa.array([key.decode(errors="replace") for key in raw], pa.string())
        ends = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=ends[1:])
        structs = pa.StructArray.from_arrays(
            [names, values.finish(total, pa.binary())], fields=list(HEADERS.value_type)
        )
        buffers = [pa.py_buffer(to_bits(counts > 0)), pa.py_buffer(ends)]
        return pa.Array.from_buffers(HEADERS, len(counts), buffers, children=[structs])

    def _malformed(self, header: BatchHeader, why: str) -> MalformedRecord:
        return MalformedRecord(
            f"{self.topic}-{self.partition}: the batch at offset {header.base_offset} cannot be "
            f"read: {why}"
        )
