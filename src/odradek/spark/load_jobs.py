"""The load model as Spark jobs, for clusters whose windows do not fit one process.

The functions are those of `odradek.balance`; Spark calls them on the frames of one broker, and on
the windows of one topic, which need nothing of the others. What all topics share is small and made
on the driver: which windows count, what processor time costs, how much brokers cover.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.balance.load import GROWTH_H, LoadModel, Rule

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from odradek.balance.frames import Decoded

__all__ = ["load_job", "windows_jobs"]


def windows_jobs(frames: "DataFrame") -> "tuple[DataFrame, DataFrame]":
    """The windows of partitions and of brokers, from records of the telemetry topic."""
    from odradek.balance.frames import decode_frames
    from odradek.balance.windows import (
        BROKER_WINDOWS,
        PARTITION_WINDOWS,
        broker_windows,
        partition_windows,
    )

    def of_broker(make: "Callable[[Decoded], pa.Table]") -> "Callable[[pa.Table], pa.Table]":
        return lambda records: make(decode_frames(records["value"].to_pylist()))

    return (
        _grouped(frames, "key", of_broker(partition_windows), PARTITION_WINDOWS),
        _grouped(frames, "key", of_broker(broker_windows), BROKER_WINDOWS),
    )


def load_job(
    partitions: "DataFrame",
    brokers: "DataFrame",
    *,
    rule: Rule = "peak",
    growth_h: float = GROWTH_H,
) -> LoadModel:
    """From tables of windows to the model. `partitions` is read twice: it should be stored."""
    from pyspark.sql import functions

    from odradek.balance.cpu import KEYS, SERVED, served_by_brokers, summed
    from odradek.balance.load import REPLICA_LOAD, broker_load, make_model, peaks, replica_load

    measured = _collected(brokers)
    served = _grouped(partitions, "topic", served_by_brokers, SERVED)
    # Of each topic there is a row for every window and broker: too many for the driver.
    sums = [functions.sum(name).alias(name) for name in SERVED.names if name not in KEYS]
    of_all_topics = _collected(served.groupBy(*KEYS).agg(*sums))
    found = peaks(summed(of_all_topics.cast(SERVED)), measured, rule)

    def of_topic(windows: "pa.Table") -> "pa.Table":
        return replica_load(windows, found, growth_h=growth_h)

    order = [(name, "ascending") for name in ("topic", "partition", "broker")]
    replicas = _collected(_grouped(partitions, "topic", of_topic, REPLICA_LOAD))
    replicas = replicas.cast(REPLICA_LOAD).sort_by(order)
    return make_model(replicas, broker_load(measured), found)


def _grouped(frame: "DataFrame", key: str, function: Any, schema: "pa.Schema") -> "DataFrame":
    from pyspark.sql.pandas.types import from_arrow_schema

    signed = _signed(schema)
    return frame.groupBy(key).applyInArrow(
        lambda table: function(table).cast(signed), from_arrow_schema(signed)
    )


def _signed(schema: "pa.Schema") -> "pa.Schema":
    """Spark has no unsigned numbers."""
    import pyarrow as pa

    return pa.schema(
        [field.with_type(pa.int16()) if field.type == pa.uint8() else field for field in schema]
    )


def _collected(frame: "DataFrame") -> "pa.Table":
    table: pa.Table = frame.toArrow()
    return table
