"""An upsert reads only the files whose statistics say that they may have its keys. It must come to
the same rows as one that reads them all."""

import datetime as dt
import decimal
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.spark.tables.rows import numbers, schema_of, written

from odradek.spark.tables.append import append
from odradek.spark.tables.merge import merge
from odradek.spark.tables.table import Batch, Table

UTC = pa.timestamp("us", tz="UTC")
LONG = "x" * 40
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1, None]),
    "string": (
        pa.string(),
        ["", "a", "it's", 'a "b"', "é", "😀", LONG, LONG + "y", "\U0010ffff" * 33, "%", None],
    ),
    "double": (
        pa.float64(),
        [float("-inf"), -0.5, 0.0, 1e-300, 1e300, float("inf"), float("nan"), None],
    ),
    "boolean": (pa.bool_(), [True, False, None]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(2026, 1, 1), dt.date(9999, 12, 31), None]),
    "timestamp": (
        UTC,
        [
            dt.datetime(1, 1, 1, tzinfo=dt.UTC),
            dt.datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC),
            dt.datetime(2026, 1, 1, 0, 0, 0, 2, tzinfo=dt.UTC),
            dt.datetime(9999, 12, 31, tzinfo=dt.UTC),
            None,
        ],
    ),
    "decimal(38,2)": (
        pa.decimal128(38, 2),
        [*map(decimal.Decimal, ("-1.25", "0.10", f"{10**35}.01", f"{10**35}.02")), None],
    ),
    "binary": (pa.binary(), [b"", b"\0", b"\xff", b"a", None]),
}


def upserted(root: Path, kind: str) -> list[str]:
    """What half a dozen upserts, each of some of the keys, leave."""
    rng = random.Random(7)
    type_of_keys, keys = KEYS[kind]
    schema = schema_of(k=kind, part="long", n="long")

    def rows(chosen: list[Any], n: int) -> pa.Table:
        parts = [index % 2 for index in range(len(chosen))]
        values = [n] * len(chosen)
        return pa.table({"k": pa.array(chosen, type_of_keys), "part": parts, "n": values})

    table: Table = numbers(root, schema)
    files = [written(root, rows([key], 0)) for key in keys[::2]]
    append(table, Batch("q/s", 0), schema, lambda: files)
    for batch in range(1, 7):
        chosen = rng.sample(keys, rng.randint(1, len(keys)))
        merge(table, Batch("q/s", batch), rows(chosen, batch), ["k"])
    return sorted(
        str((row["k"], row["n"])) for row in DeltaTable(root).to_pyarrow_table().to_pylist()
    )


@pytest.mark.parametrize("kind", KEYS)
def test_no_key_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    pruned = upserted(tmp_path / "pruned", kind)
    plain = DeltaTable.merge

    def reading_all(self: DeltaTable, *arguments: Any, **named: Any) -> Any:
        return plain(self, *arguments, **{**named, "streamed_exec": True})

    monkeypatch.setattr(DeltaTable, "merge", reading_all)
    assert pruned == upserted(tmp_path / "all", kind)
    assert len(pruned) <= len(KEYS[kind][1])


def test_files_beyond_the_keys_are_not_read(tmp_path: Path) -> None:
    table = numbers(tmp_path / "t")
    files = [written(tmp_path / "t", pa.table({"x": range(n, n + 10)})) for n in range(0, 100, 10)]
    append(table, Batch("q/s", 0), schema_of(x="long"), lambda: files)
    for file in files[:-1]:
        (tmp_path / "t" / file.path).write_bytes(b"")
    merge(table, Batch("q/s", 1), pa.table({"x": [95, 100]}), ["x"])
    table.refresh()
    assert sum(file.rows for file in table.data_files()) == 101
