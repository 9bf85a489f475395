"""Times in a lake, of every kind that Spark writes, are after a compaction what they were."""

from pathlib import Path
from typing import Any

import pytest

from odradek.spark.pipeline.compacting import compact
from odradek.spark.pipeline.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

# Arrow's nanoseconds end in 2262.
TIMES = """
SELECT *, array(moment) AS many, map('k', moment) AS by_name,
  map(coalesce(moment, timestamp'2000-01-01 00:00:00'), 'v') AS by_moment,
  named_struct('in', array(named_struct('at', moment, 'local', local))) AS deep
FROM (SELECT *, CAST(moment AS timestamp_ntz) AS local FROM (SELECT id, CASE id
  WHEN 0 THEN timestamp'9999-12-31 23:59:59.123456'
  WHEN 1 THEN timestamp'1900-01-01 00:00:00'
  WHEN 2 THEN timestamp'2026-01-01 12:00:00.5'
END AS moment FROM range(4)))
"""
KIND = "spark.sql.parquet.outputTimestampType"


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_spark_reads_after_a_compaction_what_it_wrote(
    spark: Any, tmp_path: Path, kind: str
) -> None:
    lake = Lake(tmp_path / "lake", "w")
    ours = spark.conf.get(KIND)
    assert ours == "TIMESTAMP_MICROS"
    spark.conf.set(KIND, kind)
    try:
        spark.sql(TIMES).repartition(2, "id").write.parquet(str(lake.path))
    finally:
        spark.conf.set(KIND, ours)

    def read() -> tuple[Any, list[str]]:
        rows = spark.read.parquet(str(lake.path))
        return rows.schema, sorted(rows.selectExpr("to_json(struct(*))").toPandas().iloc[:, 0])

    before = read()
    (done,) = compact(lake)
    assert (done.files_before, done.files_after) == (2, 1)
    assert read() == before
