"""Spark imports every installed module named `pyspark_*` and takes its `DefaultSource`.

So `spark.read.format("odradek")` works where this is installed, with nothing to register. Spark
does this in every Python worker, and one such module that fails disables the discovery of all:
nothing but the source is imported here, and what is heavy is imported when it reads.
"""

from odradek.spark.source import OdradekSource as DefaultSource

__all__ = ["DefaultSource"]
