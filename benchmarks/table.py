"""Landing in Delta tables, keeping them in order, reading them, and decoding Avro.

Each figure beside what it is to reach. Where it is a ratio, both sides are taken in this run, in
turns. ODRADEK_BENCH_SCALE divides the numbers of rows, for a quick look; the targets are for 1.
"""

import json
import multiprocessing
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from odradek.spark.tables.append import Staging, append, open_for
from odradek.spark.tables.compaction import compact
from odradek.spark.tables.location import Location, sync
from odradek.spark.tables.merge import merge
from odradek.spark.tables.retention import properties
from odradek.spark.tables.statistics import statistics_of
from odradek.spark.tables.table import Batch, DataFile, Table

SCALE = int(os.environ.get("ODRADEK_BENCH_SCALE", "1"))
ROWS = 5_000_000 // SCALE
ROUNDS = 3
MB = 1024 * 1024
SQL = """
SELECT id, concat('user-', id * 7919 % 100003) AS user, concat('/page/', id % 997) AS url,
  id * 0.37D AS amount, timestamp_micros(1767225600000000 + id * 1000) AS at
FROM range(0, {rows}, 1, 4)
"""


def report(name: str, value: float, unit: str, target: str, is_met: bool) -> None:
    verdict = "" if is_met else "  NOT MET"
    print(f"  {name:<52} {value:>9.2f} {unit:<8} target {target}{verdict}", flush=True)


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def landed(table: Table, number: int, schema: str, write: Callable[[], list[DataFile]]) -> float:
    """How long a batch takes from its first file to its acknowledgement."""
    return seconds(partial(append, table, Batch("q/s", number), schema, write))


def schema_of(rows: pa.Table) -> str:
    kinds = {pa.int64(): "long", pa.string(): "string", pa.float64(): "double"}
    fields = [
        {
            "name": one.name,
            "type": kinds.get(one.type, "timestamp"),
            "nullable": True,
            "metadata": {},
        }
        for one in rows.schema
    ]
    return json.dumps({"type": "struct", "fields": fields})


def written(root: Path, rows: pa.Table) -> DataFile:
    path = f"part-{uuid.uuid4()}.parquet"
    pq.write_table(rows, root / path, compression="zstd")
    footer = pq.read_metadata(root / path)
    size = (root / path).stat().st_size
    return DataFile(path, size, {}, footer.num_rows, statistics_of(footer))


def small(count: int, first: int = 0) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": ids,
            "name": [f"user-{number % 50_000}" for number in ids],
            "v": [number / 3 for number in ids],
            "at": pa.array(ids, pa.timestamp("us", tz="UTC")),
        }
    )


def commits(home: Path) -> None:
    """A thousand commits on one handle, with compaction, as a pipeline at full speed makes them."""
    rows = small(100)
    table = open_for(Location.of(home), schema_of(rows), properties=properties(3000))
    took: list[float] = []
    for batch in range(1000 // SCALE):
        files = [written(home, rows) for _ in range(2)]
        took.append(landed(table, batch, schema_of(rows), files.copy))
        if batch % 100 == 99:
            list(compact(table))
    first, last = statistics.median(took[5:50]) * 1000, statistics.median(took[-50:]) * 1000
    report("commit with sync", last, "ms", "<= 25", last <= 25)
    report("the last commits / the first", last / first, "", "<= 1.5", last <= 1.5 * first)


def thousands(home: Path) -> None:
    """Three thousand commits, with what keeps a table in order: it stays as it is at the start.

    The history is short: each older version that is kept adds 12 us to a commit."""
    rows = small(100)
    table = open_for(Location.of(home), schema_of(rows), properties=properties(10))
    took: list[float] = []
    batches = 3000 // SCALE
    for batch in range(batches):
        files = [written(home, rows) for _ in range(2)]
        took.append(landed(table, batch, schema_of(rows), files.copy))
        if batch % 100 == 99:
            list(compact(table))
        if batch == 200:
            before = resident_mb()
    grown = resident_mb() - before
    first, last = statistics.median(took[5:50]), statistics.median(took[-50:])
    ratio = last / first
    report(f"of {batches:,} commits the last / the first", ratio, "", "<= 1.5", ratio <= 1.5)
    report("  and how the process grew", grown, "MB", "<= 50", grown <= 50)
    count = len(table.data_files())
    report("  and the files left", count, "", "<= 220", count <= 220)


def resident_mb() -> float:
    """The memory that this process has now."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def compaction(home: Path) -> None:
    count = 14_000
    rows = small(count)
    table = open_for(Location.of(home), schema_of(rows))
    files = [written(home, small(count, count * number)) for number in range(300 // SCALE)]
    append(table, Batch("q/s", 0), schema_of(rows), lambda: files)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took = seconds(lambda: list(compact(table)))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    total = sum(file.size_bytes for file in files) / MB
    report(f"compaction, {len(files)} files of {total:.0f} MB", took, "s", "<= 1", took <= 1)
    report("  and its memory", grown, "MB", "<= 100", grown <= 100)


def upsert(home: Path) -> None:
    count = 1_000_000 // SCALE
    rows = small(count).select(["id", "v", "at"])
    table = open_for(Location.of(home), schema_of(rows))
    part = count // 10
    files = [written(home, rows.slice(number * part, part)) for number in range(10)]
    append(table, Batch("q/s", 0), schema_of(rows), lambda: files)
    took = []
    for batch in range(1, 8):
        newest = small(1000, count - 1000).select(["id", "v", "at"])
        took.append(seconds(partial(merge, table, Batch("q/s", batch), newest, ["id"])))
    middle = statistics.median(took) * 1000
    report("upsert of 1,000 newest into 1 M", middle, "ms", "<= 150", middle <= 150)


def spark_tables(home: Path) -> None:
    from odradek.spark import tables
    from odradek.spark.session import open_session

    spark = open_session("bench", "local[2]", {"spark.driver.memory": "2g"})
    try:
        frame = spark.sql(SQL.format(rows=ROWS))
        schema = frame.schema.json()
        table = open_for(Location.of(home / "table"), schema)
        staging = Staging(home / "table", "q/s", [])
        plain: list[float] = []
        ours: list[float] = []
        for number in range(ROUNDS + 1):
            plain.append(seconds(partial(frame.write.parquet, str(home / f"plain-{number}"))))
            ours.append(landed(table, number, schema, partial(staging.write, frame, number)))
        ratio = min(plain[1:]) / min(ours[1:])
        report(f"land {ROWS:,} rows / plain Parquet", ratio, "", ">= 0.95", ratio >= 0.95)
        _small_batches(spark, home)
        counted = _counts(spark, tables, home)
        report("count of the table / plain Parquet", counted, "", ">= 0.95", counted >= 0.95)
        opened = _opened(spark, tables, home / "many")
        report("tables.read opens 2,000 files", opened, "s", "<= 1", opened <= 1)
    finally:
        spark.stop()


def _small_batches(spark: Any, home: Path) -> None:
    """Three ways to land 1,000 rows, in turns: whichever came first would warm Java up for the
    others."""
    frame = spark.sql(SQL.format(rows=1000)).coalesce(2)
    schema = frame.schema.json()
    table = open_for(Location.of(home / "small"), schema)
    staging = Staging(home / "small", "q/s", [])
    took: dict[str, list[float]] = {"plain": [], "before": [], "table": []}
    for number in range(10 + 30):
        now = {
            "plain": seconds(partial(frame.write.mode("append").parquet, str(home / "tiny"))),
            "before": seconds(partial(_land_as_before, frame, home / "before", number)),
            "table": landed(table, number, schema, partial(staging.write, frame, number)),
        }
        if number >= 10:
            for name, value in now.items():
                took[name].append(value)
    middle = {name: statistics.median(values) for name, values in took.items()}
    ratio = middle["table"] / middle["before"]
    name = f"a batch of 1,000 rows, {middle['table'] * 1000:.0f} ms / files before tables"
    report(name, ratio, "", "<= 1.10", ratio <= 1.10)
    ratio = middle["table"] / middle["plain"]
    report("  and / plain Parquet", ratio, "", "<= 1.30", ratio <= 1.30)


def _land_as_before(frame: Any, root: Path, number: int) -> None:
    """As pipelines landed files before there were tables: staged with their rows counted, synced,
    decided by a list that is put if absent, renamed."""
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    attempt, lists = root / "staging" / f"{number}-{uuid.uuid4().hex}", root / "batches"
    attempt.mkdir(parents=True)
    lists.mkdir(exist_ok=True)
    counted = Observation()
    frame.observe(counted, count(lit(1)).alias("rows")).write.mode("append").parquet(str(attempt))
    files = sorted(attempt.glob("*.parquet"))
    for file in files:
        sync(file)
    names = [file.name for file in files]
    new = lists / f".{number}.json.{uuid.uuid4().hex}"
    new.write_text(json.dumps({"files": names, "rows": counted.get["rows"]}))
    sync(new)
    os.link(new, lists / f"{number}.json")
    new.unlink()
    sync(lists)
    for file in files:
        file.rename(root / file.name)
    sync(root)
    shutil.rmtree(attempt)


def _counts(spark: Any, tables: Any, home: Path) -> float:
    plain, ours = [], []
    paths = [str(home / f"plain-{number}") for number in range(ROUNDS + 1)]
    for _ in range(ROUNDS):
        plain.append(seconds(lambda: spark.read.parquet(*paths).count()))
        ours.append(seconds(lambda: tables.read(spark, home / "table").count()))
    return min(plain) / min(ours)


def _opened(spark: Any, tables: Any, root: Path) -> float:
    rows = small(10)
    table = open_for(Location.of(root), schema_of(rows))
    append(
        table, Batch("q/s", 0), schema_of(rows), lambda: [written(root, rows) for _ in range(2000)]
    )
    tables.read(spark, root)
    return min(seconds(lambda: tables.read(spark, root)) for _ in range(ROUNDS))


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def text(value: str) -> bytes:
    return varint(len(value)) + value.encode()


def avro(home: Path) -> None:
    from odradek.spark.pipeline.avro_program import AvroDecoder

    def schema(*fields: tuple[str, Any]) -> str:
        named = [{"name": name, "type": kind} for name, kind in fields]
        return json.dumps({"type": "record", "name": "R", "fields": named})

    count = 1_000_000 // SCALE
    moment = ["null", {"type": "long", "logicalType": "timestamp-micros"}]
    flat = AvroDecoder(
        schema(
            ("id", "long"),
            ("user", "string"),
            ("page", "string"),
            ("amount", "double"),
            ("ok", "boolean"),
            ("at", moment),
        )
    )
    values = [
        b"\0\0\0\0\1"
        + varint(n)
        + text(f"user-{n % 100_003}")
        + text(f"/page/{n % 997}")
        + struct.pack("<d", n * 0.37)
        + bytes([n % 3 == 0])
        + varint(1)
        + varint(1_767_225_600_000_000 + n)
        for n in range(count)
    ]
    _speed("Avro, six fields", flat, pa.array(values, pa.binary()), True, 5.0)
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": ["null", "string"]}]}
    nested = AvroDecoder(
        schema(
            ("id", "long"),
            ("tags", {"type": "array", "items": "string"}),
            ("counts", {"type": "map", "values": "long"}),
            ("inner", inner),
        )
    )
    rest = varint(2) + text("a") + text("bb") + b"\0" + varint(1) + text("k") + varint(7) + b"\0"
    values = [varint(n) + rest + varint(1) + text("yy") for n in range(count)]
    _speed("Avro, nested", nested, pa.array(values, pa.binary()), False, 2.0)


def _speed(name: str, decoder: Any, values: pa.Array, confluent: bool, least: float) -> None:
    decoder.decode(values.slice(0, 10), confluent=confluent)
    # Processor time: what others do on the machine is not the decoder's.
    took = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        decoder.decode(values, confluent=confluent)
        took.append(time.process_time() - begun)
    speed = len(values) / min(took) / 1e6
    report(f"{name}, a core", speed, "M rows/s", f">= {least:.0f}", speed >= least)


def imported(home: Path) -> None:
    """What `deltalake` costs a driver at its start."""
    program = (
        "import resource, time, pyarrow; r = lambda: resource.getrusage(0).ru_maxrss / 1024; "
        "a, b = time.perf_counter(), r(); import deltalake; "
        "print(time.perf_counter() - a, r() - b)"
    )
    runs = []
    for _ in range(ROUNDS + 1):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        took, grown = map(float, done.stdout.split())
        runs.append((took, grown))
    took, grown = min(runs)
    report("importing deltalake", took, "s", "<= 0.1", took <= 0.1)
    report("  and its memory", grown, "MB", "<= 30", grown <= 30)


def main() -> None:
    print("tables: landing, keeping in order, reading; Avro", flush=True)
    parts: list[Callable[[Path], None]] = [
        imported,
        avro,
        commits,
        thousands,
        compaction,
        upsert,
        spark_tables,
    ]
    for part in parts:
        # Each in a process of its own: memory is measured by its peak.
        with tempfile.TemporaryDirectory(prefix="odradek-bench-") as home:
            process = multiprocessing.get_context("spawn").Process(target=part, args=(Path(home),))
            process.start()
            process.join()
        if process.exitcode:
            sys.exit(f"{part.__name__} ended with {process.exitcode}")
