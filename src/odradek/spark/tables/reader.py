"""Reading a table with Spark: its own Parquet reader over the files that the log names.

So filters are pushed down, rows come in vectors and partition values from the paths, and no jar is
needed. S3, which Spark does not reach without Hadoop's jars, is read by Arrow in tasks (`source`).
"""

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek.spark.tables.inspection import at_version
from odradek.spark.tables.location import Location
from odradek.spark.tables.source_options import STORAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Above so many paths Spark lists them with a job of its own, which took 7 to 15 s for 2,000 files.
THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
NEVER = str(2**31 - 1)


def read_table(
    spark: "SparkSession",
    path: str,
    version: int | None,
    at: dt.datetime | str | None,
    storage: Mapping[str, str],
) -> "DataFrame":
    """The table as it is, was in a version, or was at a time."""
    from pyspark.sql.types import StructType

    location = Location.of(path, storage)
    table = at_version(location, version, at)
    if location.root is None:
        from odradek.spark.tables.source import TableSource

        spark.dataSource.register(TableSource)
        options = {f"{STORAGE}{name}": value for name, value in location.storage.items()}
        reader = spark.read.format(TableSource.name()).options(**options)
        return reader.option("version", table.delta.version()).load(location.uri)
    schema = StructType.fromJson(json.loads(table.schema_text()))
    files = [f"{location.uri}/{file.path}" for file in table.data_files()]
    if not files:
        return spark.createDataFrame([], schema)
    with _listed_here(spark):
        return (
            spark.read.schema(schema)
            .option("basePath", location.uri)
            .parquet(*map(_escaped, files))
        )


def _escaped(path: str) -> str:
    """A path as Spark takes it: it would read these characters as a pattern of names."""
    return "".join(f"\\{one}" if one in "{}[]*?\\" else one for one in path)


@contextmanager
def _listed_here(spark: "SparkSession") -> Iterator[None]:
    before = spark.conf.get(THRESHOLD)
    spark.conf.set(THRESHOLD, NEVER)
    try:
        yield
    finally:
        assert before is not None
        spark.conf.set(THRESHOLD, before)
