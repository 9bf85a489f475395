"""Delta tables: where pipelines land, and what any Delta reader opens.

    odradek.spark.tables.read(spark, "lake/clicks", version=12).show()

`table` is the one way to change a table; `append`, `merge` and `compaction` say what changes.
Nothing but `reader`, `stream` and `append` needs Spark, and none of it is imported here.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read"]


def read(
    spark: "SparkSession",
    path: "str | Path",
    version: int | None = None,
    at: "datetime | str | None" = None,
    storage: "Mapping[str, str] | None" = None,
) -> "DataFrame":
    """A table as a DataFrame: as it is now, as its `version` was, or as it was `at` a time.

    Read by Spark's own Parquet reader over the files that the log names. TableError says what is
    wrong: there is no such table, or that version is not kept any more.
    """
    from odradek.spark.tables.reader import read_table

    return read_table(spark, str(path), version, at, storage or {})
