"""Rows for the tests of tables: landed as a pipeline lands them, without Spark."""

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from odradek.spark.tables.append import Landed, append, open_for
from odradek.spark.tables.location import Location
from odradek.spark.tables.statistics import columns_with_nan, statistics_of
from odradek.spark.tables.table import Batch, DataFile, Table

NUMBERS = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}],
    }
)


def schema_of(**columns: str) -> str:
    """A schema as Spark writes it."""
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


def written(root: Path, rows: pa.Table, directory: str = "", **values: str | None) -> DataFile:
    """A data file in its place."""
    path = str(Path(directory) / f"part-{uuid.uuid4()}.parquet")
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, root / path)
    footer = pq.read_metadata(root / path)
    size = (root / path).stat().st_size
    reported = statistics_of(footer, columns_with_nan(rows))
    return DataFile(path, size, values, footer.num_rows, reported)


def numbers(root: Path, schema_text: str = NUMBERS, **more: Any) -> Table:
    """A table of numbers."""
    return open_for(Location.of(root), schema_text, **more)


def land(
    table: Table, batch: int, values: list[int], writer: str = "q/s", files: int = 1
) -> Landed:
    """A batch of numbers in so many files."""
    assert table.location.root is not None
    root = table.location.root

    def write() -> list[DataFile]:
        return [written(root, pa.table({"x": values[part::files]})) for part in range(files)]

    return append(table, Batch(writer, batch), NUMBERS, write)


def found(root: Path | str, column: str = "x") -> list[Any]:
    """The values of a column, as a reader that knows nothing of us finds them."""
    from deltalake import DeltaTable

    values: list[Any] = DeltaTable(root).to_pyarrow_table()[column].to_pylist()
    return sorted(values)


def readers(root: Path, columns: list[str]) -> Mapping[str, Callable[[], list[dict[str, Any]]]]:
    """The same rows through everything that reads Delta here without Spark."""
    import duckdb
    import polars as pl
    from deltalake import DeltaTable

    def by_duckdb() -> list[dict[str, Any]]:
        t = DeltaTable(root).to_pyarrow_dataset()
        assert t is not None
        listed = ", ".join(f'"{name}"' for name in columns)
        selected = duckdb.sql(f"SELECT {listed} FROM t")
        assert selected is not None
        rows: list[dict[str, Any]] = selected.to_arrow_table().to_pylist()
        return rows

    return {
        "pyarrow": lambda: DeltaTable(root).to_pyarrow_table(columns=columns).to_pylist(),
        "pandas": lambda: [
            {name: row[name] for name in columns}
            for row in DeltaTable(root).to_pandas().to_dict("records")
        ],
        "datafusion": lambda: pa.table(DeltaTable(root).scan(columns=columns)).to_pylist(),
        "polars": lambda: pl.scan_delta(str(root)).select(columns).collect().to_dicts(),
        "duckdb": by_duckdb,
    }
