"""Compiles the loops of `kernels` in a process of its own, the first time a machine needs them.

A compiler at work takes some 40 MB, which the worker it works in would keep for good. So a worker
that finds no compiled loops has a child make them, and only loads them, as all later ones do.
"""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from odradek.spark import kernels
from odradek.spark.decode import SCHEMA_WITH_HEADERS, Decoder
from odradek.spark.encode import Columns, encode_rows, partitions_of, rows_by_partition
from odradek.wire.compression import Codec

ENTRIES = (
    kernels.read_records,
    kernels.read_headers,
    kernels.write_records,
    kernels.partition_keys,
)
BATCH_BYTES = 1024


def compile_all() -> None:
    """Take a row through every loop, which compiles and keeps those that are not kept yet."""
    row = {"key": b"k", "value": b"v", "headers": [{"key": "h", "value": b"x"}]}
    schema = pa.schema([SCHEMA_WITH_HEADERS.field(name) for name in row])
    batch = pa.RecordBatch.from_pylist([row], schema)
    columns = Columns.of(batch)
    for _, rows in rows_by_partition(partitions_of(batch, columns.key, 1, keyless=0)):
        for encoded in encode_rows(columns, rows, 0, Codec.NONE, BATCH_BYTES):
            list(Decoder("topic", 0, 0, 1, include_headers=True).decode(encoded.data))


def are_kept() -> bool:
    """Whether all loops have been compiled since they were last changed.

    A loop that is kept but not usable, by another version of the compiler say, is compiled by who
    needs it: that costs memory, not correctness.
    """
    written = Path(kernels.__file__).stat().st_mtime
    return all(
        any(
            index.stat().st_mtime >= written
            for index in Path(entry.stats.cache_path).glob(f"kernels.{entry.__name__}-*.nbi")
        )
        for entry in ENTRIES
    )


@functools.cache
def compile_apart() -> None:
    """Have a child compile what this process would otherwise compile itself, if it can be kept."""
    if any(entry.stats.cache_path is None for entry in ENTRIES) or are_kept():
        return
    # A worker finds our code where its driver told it, which only its own path knows.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(
        [sys.executable, "-m", "odradek.spark.compilation"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=False,
    )


if __name__ == "__main__":
    compile_all()
