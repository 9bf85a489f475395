"""Writing data files with Arrow in Spark's tasks, for stores that Spark does not reach.

Spark without Hadoop's jars cannot write to S3; Arrow can. There is nothing to stage and nothing to
rename: files get names of their own where they stay, and no version names them until the commit. A
task that Spark repeats writes again, and what the first wrote is left for vacuum.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from odradek.spark.tables.append import NULL_PARTITION
from odradek.spark.tables.compaction import COMPRESSION, TARGET_BYTES
from odradek.spark.tables.location import Location
from odradek.spark.tables.statistics import columns_with_nan, statistics_of
from odradek.spark.tables.table import DataFile, Table, partition_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

WRITERS_MAX = 64
RESULT = "path string, size_bytes long, partition_values string, rows long, statistics string"
# What Hive escapes in the names of directories, and the control characters.
ESCAPED = {chr(number) for number in (*range(1, 32), 127)} | set("\"#%'*/:=?\\{[]^")

Key = tuple[str | None, ...]


def write_arrow(frame: "DataFrame", table: Table) -> list[DataFile]:
    """Write a frame's rows beside the table's files; what was written, for the commit."""
    by, location = table.partition_by, table.location
    schema = table.arrow_schema()

    def write(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        writers = _Writers(location, schema, by)
        for batch in batches:
            writers.write(batch)
        yield pa.RecordBatch.from_pylist(writers.close(), schema=_result_schema())

    return [
        DataFile(
            row.path, row.size_bytes, json.loads(row.partition_values), row.rows, row.statistics
        )
        for row in frame.mapInArrow(write, RESULT).collect()
    ]


def _result_schema() -> "pa.Schema":
    import pyarrow as pa

    kinds = {"string": pa.string(), "long": pa.int64()}
    pairs = (column.split() for column in RESULT.split(", "))
    return pa.schema([(name, kinds[kind]) for name, kind in pairs])


def directory_of(by: Sequence[str], key: Key) -> str:
    """The directory of a partition, as Spark names it."""

    def escaped(text: str) -> str:
        return "".join(f"%{ord(one):02X}" if one in ESCAPED else one for one in text)

    parts = (
        f"{escaped(name)}={NULL_PARTITION if value in (None, '') else escaped(value or '')}"
        for name, value in zip(by, key, strict=True)
    )
    return "".join(f"{part}/" for part in parts)


class _Writers:
    """The open files of one task, one for each partition that its rows belong to."""

    def __init__(self, location: Location, schema: "pa.Schema", by: Sequence[str]) -> None:
        self._store = location.files()
        self._is_local = location.root is not None
        self._schema = schema
        self._by = list(by)
        self._open: dict[Key, tuple[str, Any, Any, set[str]]] = {}
        self._done: list[dict[str, Any]] = []

    def write(self, batch: "pa.RecordBatch") -> None:
        import pyarrow as pa

        for key, rows in self._split(batch):
            if key not in self._open:
                if len(self._open) == WRITERS_MAX:
                    self._finish(next(iter(self._open)))
                self._begin(key)
            _, stream, writer, with_nan = self._open[key]
            columns = [
                rows[one.name].cast(one.type)
                if one.name in rows.schema.names
                else pa.nulls(rows.num_rows, one.type)
                for one in self._schema
            ]
            whole = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            with_nan |= columns_with_nan(whole)
            writer.write_batch(whole)
            if stream.tell() >= TARGET_BYTES:
                self._finish(key)

    def _split(self, batch: "pa.RecordBatch") -> "Iterator[tuple[Key, pa.RecordBatch]]":
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._by:
            yield (), batch
            return
        for values in pa.table(batch.select(self._by)).group_by(self._by).aggregate([]).to_pylist():
            mask = None
            for name, value in values.items():
                one = pc.is_null(batch[name]) if value is None else pc.equal(batch[name], value)
                mask = one if mask is None else pc.and_(mask, one)
            yield (
                tuple(partition_text(values[name]) or None for name in self._by),
                batch.filter(mask),
            )

    def _begin(self, key: Key) -> None:
        import pyarrow.parquet as pq

        path = f"{directory_of(self._by, key)}part-{uuid.uuid4()}.{COMPRESSION}.parquet"
        if self._is_local and self._by:  # a bucket has no directories
            self._store.create_dir(path.rpartition("/")[0], recursive=True)
        stream = self._store.open_output_stream(path)
        writer = pq.ParquetWriter(stream, self._schema, compression=COMPRESSION)
        self._open[key] = path, stream, writer, set()

    def _finish(self, key: Key) -> None:
        import pyarrow.parquet as pq

        path, stream, writer, with_nan = self._open.pop(key)
        writer.close()
        size = stream.tell()
        stream.close()
        with self._store.open_input_file(path) as written:
            footer = pq.read_metadata(written)
        self._done.append(
            {
                "path": path,
                "size_bytes": size,
                "partition_values": json.dumps(dict(zip(self._by, key, strict=True))),
                "rows": footer.num_rows,
                "statistics": statistics_of(footer, with_nan),
            }
        )

    def close(self) -> list[dict[str, Any]]:
        """Finish every file; what was written."""
        for key in list(self._open):
            self._finish(key)
        return self._done
