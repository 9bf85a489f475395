"""Reading Parquet files whose timestamps are INT96, as Spark writes them unless it is told not to.

INT96 is a moment in UTC, with nothing in the file that says so. Arrow takes it for a local time in
nanoseconds: what it would write of that Spark does not read, and a time before 1677 or after 2262
does not fit. Here it is what Spark means by it, a moment in microseconds. All other types, times
without a zone (TIMESTAMP_NTZ) among them, stay what they are.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MOMENT = pa.timestamp("us", tz="UTC")


def read_schema(file: Path) -> pa.Schema:
    """The schema of a file's rows as `read_batches` gives them."""
    return _meant(_open(file).schema_arrow, pq.read_schema(file))


def read_batches(file: Path, rows_at_a_time: int) -> Iterator[pa.RecordBatch]:
    """The rows of a file."""
    schema = read_schema(file)
    for batch in _open(file).iter_batches(rows_at_a_time):
        columns = [
            column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _open(file: Path) -> pq.ParquetFile:
    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us")


def _meant(coerced: pa.Schema, plain: pa.Schema) -> pa.Schema:
    """The unit that was asked for is only that of INT96: what differs was that."""
    fields = [_field(*pair) for pair in zip(coerced, plain, strict=True)]
    return pa.schema(fields, coerced.metadata)


def _field(coerced: pa.Field, plain: pa.Field) -> pa.Field:
    return coerced.with_type(_type(coerced.type, plain.type))


def _type(coerced: pa.DataType, plain: pa.DataType) -> pa.DataType:
    if coerced == plain:
        return coerced
    if pa.types.is_timestamp(coerced):
        return MOMENT
    inner = [_field(coerced.field(i), plain.field(i)) for i in range(coerced.num_fields)]
    if pa.types.is_struct(coerced):
        return pa.struct(inner)
    if pa.types.is_map(coerced):
        entries = inner[0].type
        return pa.map_(entries.field(0), entries.field(1), coerced.keys_sorted)
    if pa.types.is_large_list(coerced):
        return pa.large_list(inner[0])
    if pa.types.is_fixed_size_list(coerced):
        return pa.list_(inner[0], coerced.list_size)
    return pa.list_(inner[0])
