"""Cells of a plan as tasks of Spark: each cell travels to a task as bytes, and its moves come back.

The search is that of `odradek.balance.cells`; a task compiles its loops once on its machine.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SCHEMA = "cell int, bytes binary"


class Cells:
    """Searches cells on a Spark cluster."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def solve(self, cells: Sequence[bytes]) -> list[bytes]:
        """What each cell answers, in their order."""
        rows = [(number, bytearray(cell)) for number, cell in enumerate(cells)]
        asked = self._spark.createDataFrame(rows, SCHEMA)
        answers = asked.mapInArrow(_solve_each, SCHEMA).collect()
        return [bytes(row["bytes"]) for row in sorted(answers, key=lambda row: row["cell"])]


def _solve_each(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    from odradek.balance.cells import solve
    from odradek.balance.compilation import compile_apart, is_compiled

    if not is_compiled():
        compile_apart().wait()
    for batch in batches:
        numbers, cells = batch.to_pydict().values()
        yield pa.RecordBatch.from_pydict(
            {
                "cell": pa.array(numbers, pa.int32()),
                "bytes": pa.array([solve(cell) for cell in cells], pa.binary()),
            }
        )
