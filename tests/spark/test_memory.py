"""What a worker's memory comes to, whatever the size of the range it reads."""

import os
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from odradek.spark.sink import BatchWriter

WORKER_MB_MAX = 300

# What a Spark worker has loaded before it reads, and then a whole partition.
WORKER = """
import sys
import pandas, pyspark.worker
from odradek.spark.options import source_options
from odradek.spark.reading import RangeBounds, read_range

options = source_options({"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}, False)
print(sum(rows.num_rows for rows in read_range(options, RangeBounds(sys.argv[2], 0, -2, -1))))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) // 1024)
"""


@pytest.mark.process
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="asks Linux for the memory")
@pytest.mark.parametrize(("codec", "size"), [("none", 100), ("zstd", 10_000)])
def test_a_worker_stays_small(cluster: Any, codec: str, size: int) -> None:
    topic = cluster.create()
    rows = 200_000_000 // size
    values = pa.array([b"%d" % i * (size // 4) for i in range(1000, 2000)], pa.binary())
    batch = pa.RecordBatch.from_pydict({"value": values})
    options = cluster.options(topic=topic, kafka__compression__type=codec)
    writer = BatchWriter(options, StructType([StructField("value", BinaryType())]))
    writer.write(iter([batch] * (rows // 1000)))
    command = [sys.executable, "-c", WORKER, cluster.bootstrap, topic]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, memory_mb = map(int, done.stdout.split())
    assert count == rows
    assert memory_mb < WORKER_MB_MAX
