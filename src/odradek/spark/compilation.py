"""Compiles the loops of a worker in a process of its own, the first time a machine needs them.

A compiler at work takes some 40 MB, which the worker it works in would keep for good. So a worker
that finds no compiled loops has a child make them, and only loads them, as all later ones do.
"""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa


class Loops(NamedTuple):
    """Loops that are needed together, and something that takes a row through every one of them."""

    module: Any
    entries: tuple[Any, ...]
    exercise: Callable[[], None]


BATCH_BYTES = 1024


def records() -> Loops:
    """The loops between record batches and columns."""
    from odradek.spark import kernels

    entries = (
        kernels.read_records,
        kernels.read_headers,
        kernels.write_records,
        kernels.partition_keys,
        kernels.sum_rows,
    )
    return Loops(kernels, entries, _exercise_records)


def _exercise_records() -> None:
    from odradek.spark.decode import SCHEMA_WITH_HEADERS, Decoder
    from odradek.spark.encode import (
        Columns,
        checksum,
        encode_rows,
        partitions_of,
        rows_by_partition,
    )
    from odradek.wire.compression import Codec

    row = {"key": b"k", "value": b"v", "headers": [{"key": "h", "value": b"x"}]}
    schema = pa.schema([SCHEMA_WITH_HEADERS.field(name) for name in row])
    batch = pa.RecordBatch.from_pylist([row], schema)
    checksum(batch)
    columns = Columns.of(batch)
    for _, rows in rows_by_partition(partitions_of(batch, columns.key, 1, keyless=0)):
        for encoded in encode_rows(columns, rows, 0, Codec.NONE, BATCH_BYTES):
            list(Decoder("topic", 0, 0, 1, include_headers=True).decode(encoded.data))


def avro() -> Loops:
    """The loop between Avro and columns."""
    from odradek.spark.pipeline import avro_kernel

    return Loops(avro_kernel, (avro_kernel.decode_rows,), _exercise_avro)


def _exercise_avro() -> None:
    from odradek.spark.pipeline.avro_program import AvroDecoder

    schema = '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}'
    AvroDecoder(schema).decode(pa.array([b"\x02"], pa.binary()))


ALL = {"records": records, "avro": avro}


def are_kept(loops: Loops) -> bool:
    """Whether all of them have been compiled since they were last changed.

    A loop that is kept but not usable, by another version of the compiler say, is compiled by the
    worker that needs it: that costs memory, not correctness.
    """
    written = Path(loops.module.__file__).stat().st_mtime
    name = loops.module.__name__.rpartition(".")[2]
    return all(
        any(
            index.stat().st_mtime >= written
            for index in Path(entry.stats.cache_path).glob(f"{name}.{entry.__name__}-*.nbi")
        )
        for entry in loops.entries
    )


@functools.cache
def compile_apart(name: str = "records") -> None:
    """Have a child compile what this process would otherwise compile itself, if it can be kept."""
    loops = ALL[name]()
    if any(entry.stats.cache_path is None for entry in loops.entries) or are_kept(loops):
        return
    # A worker finds our code where its driver put it, which only its own path knows.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(
        [sys.executable, "-m", "odradek.spark.compilation", name],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=False,
    )


if __name__ == "__main__":
    ALL[sys.argv[1]]().exercise()
