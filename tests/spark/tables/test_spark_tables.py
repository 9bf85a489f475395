"""Tables and Spark: read natively, as a stream, in joins, and written to a bucket."""

import ast
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.spark.conftest import _listens, wait_until
from tests.spark.pipeline.files import SPARK, rows
from tests.spark.tables.rows import land, numbers

from odradek.spark import tables
from odradek.spark.errors import TableError
from odradek.spark.pipeline.runner import Run
from odradek.spark.pipeline.spec import SpecError, parse
from odradek.spark.tables.append import Staging, append, open_for
from odradek.spark.tables.compaction import compact
from odradek.spark.tables.inspection import history
from odradek.spark.tables.location import Location
from odradek.spark.tables.table import Batch, Table

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

EVERYTHING = """
SELECT id, concat('p/', id % 2, ' ü') AS page, named_struct('x', id, 's', 'é') AS inner,
  array(id) AS list, map('k', id) AS m, cast(id AS decimal(20, 3)) AS d, date'2026-01-01' AS day,
  timestamp'0001-01-01 00:00:00' AS at, cast(id AS double) / 0.0D AS f, id % 3 = 0 AS flag
FROM range(10)
"""


def landed(spark: Any, root: Path, frame: Any, by: list[str], batch: int = 0) -> Table:
    table = open_for(Location.of(root), frame.schema.json(), by)
    staging = Staging(root, "q/s", by)
    identity = Batch("q/s", batch)
    append(table, identity, frame.schema.json(), lambda: staging.write(frame, batch))
    return table


def test_every_type_through_sparks_writer_and_reader_and_compaction(
    spark: Any, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    frame = spark.sql(EVERYTHING)
    for batch in range(2):
        table = landed(spark, tmp_path / "t", frame, ["page"], batch)
    # The year 1 is before Python's in some time zones.
    texts = [name if name != "at" else "cast(at AS string) AS at" for name in frame.columns]
    want = sorted(map(str, frame.selectExpr(*texts).collect() * 2))

    def found_by_spark() -> list[str]:
        found = tables.read(spark, tmp_path / "t").selectExpr(*texts)
        return sorted(map(str, found.collect()))

    assert found_by_spark() == want
    assert list(compact(table, min_files=2))
    assert found_by_spark() == want
    assert tables.read(spark, tmp_path / "t", version=1).count() == 10
    assert tables.read(spark, tmp_path / "t").where("id = 3 AND page = 'p/1 ü'").count() == 2
    with pytest.raises(TableError, match="versions 0 to 4 can be read, not 9"):
        tables.read(spark, tmp_path / "t", version=9)
    # No staging is left, and what Spark reads is what others do.
    assert not list((tmp_path / "t").glob("_odradek_staging/*"))
    found = DeltaTable(tmp_path / "t").to_pyarrow_table(columns=["id"]).to_pydict()
    assert sorted(found["id"]) == sorted([*range(10), *range(10)])


CHAINED = """
checkpoint = "checkpoint"
trigger = "available-now"

[[source]]
name = "numbers"
kind = "table"
path = "numbers"
options = {{ maxVersionsPerTrigger = 2 }}

[[source]]
name = "names"
kind = "table"
path = "names"
static = true

[[source]]
name = "colours"
kind = "csv"
path = "colours.csv"
schema = "x long, colour string"

[[source]]
name = "sizes"
kind = "parquet"
path = "sizes.parquet"

[[step]]
name = "joined"
sql = '''
SELECT numbers.x, name, colour, size FROM numbers LEFT JOIN names ON numbers.x = names.x
LEFT JOIN colours ON numbers.x = colours.x LEFT JOIN sizes ON numbers.x = sizes.x
'''

[[step]]
name = "sums"
sql = "SELECT x % 2 AS odd, count(*) AS n, sum(x) AS total FROM numbers GROUP BY x % 2"

[[sink]]
from = "joined"
kind = "table"
path = "joined"
new_columns = "{new_columns}"
compact = {{ every = 2, min_files = 2 }}

[[sink]]
name = "updated"
from = "sums"
kind = "table"
path = "updated"
mode = "update"
merge_on = ["odd"]

[[sink]]
name = "whole"
from = "sums"
kind = "table"
path = "whole"
mode = "complete"
"""


def run(spark: Any, home: Path, text: str) -> None:
    running = Run(parse(text + SPARK, home / "chained.toml"), spark)
    running.start()
    running.wait()


SHOWN = re.compile(r"^```python\n(import duckdb, polars\n.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_same_table_opened_by_everything_as_the_documentation_shows(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code of docs/spark.md itself: an import, an assignment, or what a reader returns."""
    page = Path(__file__).parents[3] / "docs" / "spark.md"
    (code,) = SHOWN.findall(page.read_text())
    monkeypatch.chdir(tmp_path)
    clicks = spark.createDataFrame([("ann", "/"), ("bob", "/help")], "user string, page string")
    landed(spark, tmp_path / "lake" / "clicks", clicks, [])
    names: dict[str, Any] = {"spark": spark}
    opened = {}
    for statement in ast.parse(code).body:
        text = ast.unparse(statement)
        if isinstance(statement, ast.Expr):
            opened[text.split("(")[0]] = eval(text, names)
        else:
            exec(text, names)
    by_spark, by_polars, by_duckdb, by_pandas = opened.values()
    assert list(opened) == ["tables.read", "polars.scan_delta", "duckdb.sql", "DeltaTable"]
    assert sorted(map(tuple, by_spark.collect())) == [("ann", "/"), ("bob", "/help")]
    assert by_polars.to_dicts() == [{"user": "ann", "page": "/"}]
    assert sorted(by_duckdb.fetchall()) == [("/", 1), ("/help", 1)]
    assert sorted(by_pandas["user"]) == ["ann", "bob"]


def test_tables_are_chained_joined_updated_and_replaced(spark: Any, tmp_path: Path) -> None:
    table = numbers(tmp_path / "numbers")
    for batch in range(4):
        land(table, batch, [batch])
    names = pa.table({"x": [0, 1], "name": ["none", "one"]})
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "names", names)
    (tmp_path / "colours.csv").write_text("1,red\n4,blue\n")
    pq.write_table(pa.table({"x": [4, 5], "size": ["small", "large"]}), tmp_path / "sizes.parquet")
    text = CHAINED.format(new_columns="refuse")
    run(spark, tmp_path, text)
    assert len(rows(tmp_path / "joined")) == 4
    for batch in range(4, 9):
        land(table, batch, [batch])
    list(compact(table, min_files=2))
    run(spark, tmp_path, text)
    found = {
        row["x"]: (row["name"], row["colour"], row["size"]) for row in rows(tmp_path / "joined")
    }
    assert found == {
        **dict.fromkeys(range(9), (None, None, None)),
        0: ("none", None, None),
        1: ("one", "red", None),
        4: (None, "blue", "small"),
        5: (None, None, "large"),
    }
    assert len(rows(tmp_path / "joined")) == 9
    counted = {0: (5, 20), 1: (4, 16)}
    for name in ("updated", "whole"):
        sums = rows(tmp_path / name)
        assert {row["odd"]: (row["n"], row["total"]) for row in sums} == counted
        assert len(sums) == 2
    # The history says which versions of the source a version holds.
    newest = next(one for one in history(Table(Location.of(tmp_path / "joined"))) if one.rows)
    assert json.loads(newest.notes["offsets"])["version"] >= 9
    assert (newest.notes["pipeline"], newest.notes["sink"]) == ("chained", "joined")
    more = text.replace("SELECT numbers.x, name", "SELECT numbers.x, 1 AS one, name")
    with pytest.raises(
        SpecError, match=r'toml:\d+: sink joined: .*no column one; new_columns = "a'
    ):
        run(spark, tmp_path, more)
    other = text.replace("SELECT numbers.x, name", "SELECT cast(numbers.x AS string) AS x, name")
    with pytest.raises(SpecError, match="column x is long in the table and string in the view"):
        run(spark, tmp_path, other)
    land(table, 9, [9])
    run(spark, tmp_path, more.replace('"refuse"', '"add"'))
    assert [row["one"] for row in rows(tmp_path / "joined") if row["x"] >= 8] == [None, 1]


def test_two_drivers_on_one_checkpoint_land_nothing_twice(spark: Any, tmp_path: Path) -> None:
    table = numbers(tmp_path / "numbers")
    for batch in range(6):
        land(table, batch, [batch])
    frame = spark.createDataFrame([(1,)], "x long")
    staging = Staging(tmp_path / "t", "q/s", [])
    drivers = [open_for(Location.of(tmp_path / "t"), frame.schema.json()) for _ in range(2)]
    together = threading.Barrier(2)
    versions: list[int | None] = []

    def drive(driver: Table) -> None:
        for batch in range(5):
            together.wait()
            done = append(
                driver,
                Batch("q/s", batch),
                frame.schema.json(),
                partial(staging.write, frame, batch),
            )
            versions.append(done.version)

    threads = [threading.Thread(target=drive, args=(driver,)) for driver in drivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows(tmp_path / "t")) == 5
    assert sorted(version for version in versions if version is not None) == [1, 2, 3, 4, 5]


def test_spark_reads_whole_batches_while_they_land_and_are_compacted(
    spark: Any, tmp_path: Path
) -> None:
    """As the readers without Spark do in test_crash.py."""
    table = numbers(tmp_path / "t")
    land(table, 0, [0, 1, 2], files=3)
    has_stopped = threading.Event()

    def write() -> None:
        for batch in range(1, 60):
            land(table, batch, [3 * batch, 3 * batch + 1, 3 * batch + 2], files=3)
            if batch % 5 == 4:
                list(compact(table, min_files=2))
        has_stopped.set()

    writer = threading.Thread(target=write)
    writer.start()
    counts: list[int] = []
    while not has_stopped.is_set() or not counts:
        found = sorted(row.x for row in tables.read(spark, tmp_path / "t").collect())
        assert found == list(range(len(found)))
        assert len(found) % 3 == 0
        counts.append(len(found))
    writer.join()
    assert counts == sorted(counts)
    assert tables.read(spark, tmp_path / "t").count() == 180


@pytest.fixture(scope="module")
def storage() -> Iterator[dict[str, str]]:
    """A stand-in for S3 on loopback, with a bucket, in a process of its own: some calls of the
    library keep other threads of theirs from answering."""
    import boto3

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    wait_until(lambda: _listens(port), "the stand-in for S3")
    client = boto3.client(
        "s3",
        endpoint_url=settings["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    client.create_bucket(Bucket="lake")
    yield settings
    server.terminate()
    server.wait()


def test_a_table_in_a_bucket(spark: Any, tmp_path: Path, storage: dict[str, str]) -> None:
    table = numbers(tmp_path / "numbers")
    for batch in range(4):
        land(table, batch, [batch, batch + 10])
    settings = ", ".join(f'{name} = "{value}"' for name, value in storage.items())
    text = (
        CHAINED[: CHAINED.index('[[source]]\nname = "names"')].format()
        + f"""
[[step]]
name = "paged"
sql = "SELECT x, concat('p/', x % 2) AS page FROM numbers"

[[sink]]
from = "paged"
kind = "table"
path = "s3://lake/paged"
partition_by = ["page"]
storage = {{ {settings} }}
compact = {{ every = 2, min_files = 2 }}
"""
    )
    run(spark, tmp_path, text)
    land(table, 4, [99])
    run(spark, tmp_path, text)
    found = tables.read(spark, "s3://lake/paged", storage=storage).collect()
    assert sorted(row.x for row in found) == sorted([*range(4), *range(10, 14), 99])
    assert all(row.page == f"p/{row.x % 2}" for row in found)
    remote = DeltaTable("s3://lake/paged", storage_options=storage)
    assert remote.transaction_version(next(iter(history_writers(remote)))) is not None
    assert len(remote.file_uris()) < 5


def history_writers(table: DeltaTable) -> set[str]:
    return {
        f"{one['odradek.query']}/{one['odradek.sink']}"
        for one in table.history()
        if "odradek.query" in one
    }
