"""The rows of a data file, as the table has them now. Needs no `deltalake`: tasks read by it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from odradek.spark.errors import TableError

if TYPE_CHECKING:
    from odradek.spark.tables.table import DataFile

ROWS_AT_A_TIME = 131_072


def read_rows(store: Any, file: "DataFile", schema: Any) -> Iterator[Any]:
    """The rows with their partition's values, in batches of this schema."""
    import pyarrow as pa

    stored = pa.schema([one for one in schema if one.name not in file.values])
    for batch in read_batches(store, file.path, stored):
        columns = [
            constant(file.values[one.name], one.type, batch.num_rows)
            if one.name in file.values
            else batch[one.name]
            for one in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, names=schema.names)


def constant(text: str | None, kind: Any, count: int) -> Any:
    """A column of one partition's value."""
    import pyarrow as pa

    if text is None:
        return pa.nulls(count, kind)
    if pa.types.is_timestamp(kind):
        value = pa.scalar(text.removesuffix("Z")).cast(pa.timestamp("us"))
        return pa.repeat(value, count).cast(kind)
    return pa.repeat(pa.scalar(text).cast(kind), count)


def read_batches(store: Any, path: str, schema: Any) -> Iterator[Any]:
    """The rows of a data file as the table has them now: a column that came later is null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with store.open_input_file(path) as data:
            for batch in pq.ParquetFile(data).iter_batches(ROWS_AT_A_TIME):
                names = set(batch.schema.names)
                columns = [
                    batch[one.name].cast(one.type)
                    if one.name in names
                    else pa.nulls(batch.num_rows, one.type)
                    for one in schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
    except pa.ArrowException as error:
        raise TableError(f"{path}: {error}") from error
    except OSError as error:
        # Arrow's own have no number; those of the system, such as a full disk, say what they are.
        if error.errno is not None:
            raise
        raise TableError(f"{path}: {error}") from error
