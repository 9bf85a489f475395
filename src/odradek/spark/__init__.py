"""The data pipeline on Spark, without a jar.

    spark.readStream.format("odradek").options(**{"kafka.bootstrap.servers": "h:9092", ...}).load()

The format is found wherever this package is installed; `register(spark)` says so explicitly.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Make the format `odradek` known to a session, for those who prefer to be explicit."""
    from odradek.spark.source import OdradekSource

    spark.dataSource.register(OdradekSource)
