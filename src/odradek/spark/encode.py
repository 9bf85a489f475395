"""Arrow to record batches: what the sink sends, with no object per row.

The columns are those of docs/spec/spark-kafka-format.md section 4. Rows keep their order within a
topic and partition. A row's partition is, first, the partition column; then Kafka's hash of the
key; then one partition for all keyless rows of a call, drawn by the caller, as Kafka's sticky
partitioner does.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from odradek.wire.batch import HEADER, HEADER_BYTES, MAGIC, OVERHEAD_BYTES, header_at, set_crc
from odradek.wire.compression import Codec, compress

from . import kernels
from .arrays import Array, frozen, numbers_of, valid_of
from .errors import BadRow

NO_PRODUCER = -1


@dataclass(frozen=True, slots=True)
class BytesColumn:
    """A column of byte strings as the kernels see it."""

    offsets: Array
    data: Array
    valid: Array

    @classmethod
    def of(cls, column: pa.Array) -> "BytesColumn":
        """From a binary or string array, sliced or not, with 32- or 64-bit offsets."""
        width = (
            np.int64
            if pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
            else np.int32
        )
        data = column.buffers()[2]
        return cls(
            frozen(numbers_of(column, width, more=1).astype(np.int64)),
            frozen(np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)),
            frozen(valid_of(column)),
        )

    @classmethod
    def nulls(cls, count: int) -> "BytesColumn":
        return cls(
            frozen(np.zeros(count + 1, np.int64)),
            frozen(np.empty(0, np.uint8)),
            frozen(np.zeros(count, np.bool_)),
        )


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one Arrow batch that go into records."""

    key: BytesColumn
    value: BytesColumn
    header_lists: Array
    header_key: BytesColumn
    header_value: BytesColumn

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> "Columns":
        count = batch.num_rows
        names = set(batch.schema.names)
        key = BytesColumn.of(batch["key"]) if "key" in names else BytesColumn.nulls(count)
        lists, header_key, header_value = (
            _headers(batch["headers"])
            if "headers" in names
            else (frozen(np.zeros(count + 1, np.int64)), BytesColumn.nulls(0), BytesColumn.nulls(0))
        )
        return cls(key, BytesColumn.of(batch["value"]), lists, header_key, header_value)

    @property
    def for_kernels(self) -> tuple[Array, ...]:
        """The arrays, in the order in which kernels that read rows take them."""
        return (
            *(self.key.offsets, self.key.data, self.key.valid),
            *(self.value.offsets, self.value.data, self.value.valid),
            self.header_lists,
            *(self.header_key.offsets, self.header_key.data),
            *(self.header_value.offsets, self.header_value.data, self.header_value.valid),
        )


def _headers(column: pa.ListArray) -> tuple[Array, BytesColumn, BytesColumn]:
    sizes = np.diff(numbers_of(column, np.int32, more=1)) * valid_of(column)
    flat = column.flatten()
    keys = flat.field("key")
    if flat.null_count or keys.null_count:
        raise BadRow("a header must have a key")
    lists = np.zeros(len(column) + 1, np.int64)
    np.cumsum(sizes, out=lists[1:])
    return frozen(lists), BytesColumn.of(keys), BytesColumn.of(flat.field("value"))


def partitions_of(batch: pa.RecordBatch, keys: BytesColumn, count: int, keyless: int) -> Array:
    """The partition of each row of one topic with `count` partitions."""
    chosen = np.full(batch.num_rows, -1, np.int32)
    if "partition" in batch.schema.names:
        column = batch["partition"]
        np.copyto(chosen, numbers_of(column, np.int32), where=valid_of(column))
    kernels.partition_keys(keys.offsets, keys.data, keys.valid, count, chosen)
    chosen[chosen < 0] = keyless
    return chosen


def checksum(batch: pa.RecordBatch) -> int:
    """A number for these rows in any order, of what is written of them: 64 bits, to be added to
    those of others. Partitions that the sink chooses itself, and times, are not in it."""
    columns = Columns.of(batch)
    names = batch.schema.names
    given = np.full(batch.num_rows, -1, np.int32)
    if "partition" in names:
        np.copyto(
            given, numbers_of(batch["partition"], np.int32), where=valid_of(batch["partition"])
        )
    topic = BytesColumn.of(batch["topic"]) if "topic" in names else BytesColumn.nulls(len(given))
    return int(
        kernels.sum_rows(
            frozen(given), topic.offsets, topic.data, topic.valid, *columns.for_kernels
        )
    )


def rows_by_partition(chosen: Array) -> Iterator[tuple[int, Array]]:
    """Each partition with its rows, in their order."""
    order = np.argsort(chosen, kind="stable")
    sorted_partitions = chosen[order]
    bounds = np.flatnonzero(np.diff(sorted_partitions)) + 1
    for rows in np.split(order, bounds):
        yield int(chosen[rows[0]]), frozen(rows)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A record batch ready to send, but for producer and sequence."""

    data: bytearray
    record_count: int


def encode_rows(
    columns: Columns, rows: Array, timestamp_ms: int, codec: Codec, size_max: int
) -> Iterator[EncodedBatch]:
    """The given rows, in order, as batches whose records open to at most `size_max` bytes each.

    A single row larger than that gets a batch of its own: the broker says whether it is too large.
    """
    usual = np.empty(size_max, np.uint8)
    out = usual
    start = 0
    while start < len(rows):
        following, size = kernels.write_records(out, rows, start, *columns.for_kernels)
        if following == start:
            out = np.empty(size, np.uint8)
            continue
        yield _frame(out[:size], following - start, timestamp_ms, codec)
        # The rows after a large one are no larger for it.
        out = usual
        start = following


def _frame(records: Array, count: int, timestamp_ms: int, codec: Codec) -> EncodedBatch:
    body: memoryview | bytes = records.data
    if codec is not Codec.NONE:
        body = compress(codec, body)
    data = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        data,
        0,
        0,
        HEADER_BYTES - OVERHEAD_BYTES + len(body),
        -1,
        MAGIC,
        0,
        int(codec),
        count - 1,
        timestamp_ms,
        timestamp_ms,
        NO_PRODUCER,
        NO_PRODUCER,
        NO_PRODUCER,
        count,
    )
    data += body
    set_crc(data, header_at(data))
    return EncodedBatch(data, count)
