"""Rows that replace those with the same keys: what a batch of a query in update mode means.

The library's merge reads every file that the keys may be in and rewrites those it changes, in one
call: cheap for tables of up to a few million rows, or where a partition's column is among the keys.
The call also commits, by the same compare-and-swap, and syncs nothing: the files are synced right
after it, before Spark hears of it, and `table.mend` puts a version aside whose files a power
failure tore in between.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odradek.spark.errors import TableError
from odradek.spark.tables.append import Landed
from odradek.spark.tables.table import (
    Batch,
    Change,
    Table,
    actions_of,
    entry_name,
    sync_added,
)

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX = 1_000_000


def merge(table: Table, batch: Batch, rows: "pa.Table", keys: Sequence[str]) -> Landed:
    """Upsert the rows. TableError if a key comes twice or there are too many rows."""
    table.refresh()
    if table.has(batch) or not rows.num_rows:
        return Landed(None, 0)
    if rows.num_rows > ROWS_MAX:
        raise TableError(
            f"{table.location.uri}: {rows.num_rows:,} changed rows in one batch are more than an "
            f"update takes ({ROWS_MAX:,}); use mode append with a watermark"
        )
    _refuse_repeated(table.location.uri, rows, keys)
    matched = " AND ".join(_equal(name, rows[name].null_count > 0) for name in keys)

    def decide() -> Change:
        source = _as_table_has(table, rows)

        def change(**properties: Any) -> None:
            merger = table.delta.merge(
                source,
                matched,
                source_alias="s",
                target_alias="t",
                # With it the library would not skip files by the range of the keys.
                streamed_exec=False,
                **properties,
            )
            merger.when_matched_update_all().when_not_matched_insert_all().execute()
            if (log := table.location.log) is not None:
                sync_added(table.location, actions_of(log / entry_name(table.delta.version())))

        return change

    version = table.swap(decide, batch, {"odradek.rows": str(rows.num_rows)}, is_fresh=True)
    return Landed(version, rows.num_rows if version is not None else 0)


def _equal(name: str, has_nulls: bool) -> str:
    # Only where it must: the library finds the files that matter by plain equality.
    column = f'"{name}"'
    return f"t.{column} {'IS NOT DISTINCT FROM' if has_nulls else '='} s.{column}"


def _refuse_repeated(uri: str, rows: "pa.Table", keys: Sequence[str]) -> None:
    counted = rows.group_by(list(keys)).aggregate([([], "count_all")])
    if counted.num_rows == rows.num_rows:
        return
    for row in counted.to_pylist():
        if row.pop("count_all") > 1:
            named = ", ".join(f"{name} = {value!r}" for name, value in row.items())
            raise TableError(f"{uri}: a batch has more than one row with {named}; see merge_on")


def _as_table_has(table: Table, rows: "pa.Table") -> "pa.Table":
    """The rows with the table's columns and types; a column that they lack is null."""
    import pyarrow as pa

    schema = pa.schema(table.delta.schema().to_arrow())
    names = set(rows.column_names)
    # Another may have changed the columns since the sink was started.
    if dropped := sorted(names - set(schema.names)):
        raise TableError(f"{table.location.uri}: column {', '.join(dropped)} was dropped meanwhile")
    columns = [
        rows[one.name].cast(one.type) if one.name in names else pa.nulls(rows.num_rows, one.type)
        for one in schema
    ]
    return pa.table(columns, names=schema.names)
