"""Five-minute sums of telemetry: what each partition and each broker did in each window.

A frame belongs to the window in which it ends; so does one that covers more than a window, because
its broker could not publish for a while. `seconds` is how much of the time the broker's frames in
the window cover, and rates are sums / seconds. A partition that a frame leaves out had no traffic:
its time is covered all the same.

The frames of one broker make windows without those of another, so that each broker can be done
apart, and in any order.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odradek.balance.frames import COUNTS, Decoded
from odradek.wire.telemetry import LEADS

__all__ = [
    "BROKER_WINDOWS",
    "PARTITION_WINDOWS",
    "WINDOW_MS",
    "broker_windows",
    "partition_windows",
]

WINDOW_MS = 300_000
# As the window's last frame has them.
PARTITION_LAST = ("role", "directory", "size", "log_end")

PARTITION_WINDOWS = pa.schema(
    [
        ("window_ms", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("broker", pa.int32()),
        ("leads", pa.bool_()),
        ("is_estimated", pa.bool_()),
        *((name, pa.int64()) for name in COUNTS),
        # As the window's last frame has them.
        ("role", pa.int16()),  # Spark has no unsigned numbers
        ("directory", pa.string()),
        ("size", pa.int64()),
        ("log_end", pa.int64()),
        ("last_ms", pa.int64()),
    ]
)
BROKER_SUMS = ("cpu_s", "produce_s", "consumer_s", "follower_s", "other_s", "net_in", "net_out")
BROKER_LAST = ("cores", "net_capacity", "under_min_isr", "at_min_isr", "disk_capacity", "disk_used")
BROKER_WINDOWS = pa.schema(
    [
        ("window_ms", pa.int64()),
        ("broker", pa.int32()),
        ("is_estimated", pa.bool_()),
        ("seconds", pa.float64()),
        *((name, pa.float64()) for name in BROKER_SUMS[:5]),
        *((name, pa.int64()) for name in (*BROKER_SUMS[5:], "isr_shrinks", "produce_p99_us")),
        ("cores", pa.float64()),
        *((name, pa.int64()) for name in BROKER_LAST[1:]),
        ("failed_directories", pa.list_(pa.string())),
        ("last_ms", pa.int64()),
    ]
)


def partition_windows(decoded: Decoded) -> pa.Table:
    """Sums by partition, broker and whether it leads. Sorted, so that equal input gives equal
    tables whatever order it came in."""
    rows = _with_window(decoded.rows)
    leads = pc.not_equal(pc.bit_wise_and(rows["role"], pa.scalar(LEADS, pa.uint8())), 0)
    rows = rows.append_column("leads", leads)
    keys = ["window_ms", "topic", "partition", "broker", "leads", "is_estimated"]
    return _grouped(rows, keys, COUNTS, list(PARTITION_LAST), PARTITION_WINDOWS)


def broker_windows(decoded: Decoded) -> pa.Table:
    rows = _with_window(decoded.brokers)
    ms = pc.subtract(rows["to_ms"], rows["from_ms"])
    rows = rows.append_column("seconds", pc.divide(pc.cast(ms, pa.float64()), 1000.0))
    keys = ["window_ms", "broker", "is_estimated"]
    sums = (*BROKER_SUMS, "seconds", "isr_shrinks")
    return _grouped(
        rows, keys, sums, [*BROKER_LAST, "failed_directories"], BROKER_WINDOWS, ["produce_p99_us"]
    )


def _with_window(rows: pa.Table) -> pa.Table:
    end = pc.max_element_wise(pc.subtract(rows["to_ms"], 1), 0)
    return rows.append_column("window_ms", pc.multiply(pc.divide(end, WINDOW_MS), WINDOW_MS))


def _grouped(
    rows: pa.Table,
    keys: list[str],
    sums: tuple[str, ...],
    last: list[str],
    schema: pa.Schema,
    greatest: list[str] = [],  # noqa: B006 (only read)
) -> pa.Table:
    # A list has no last() in Arrow: its row's number has, and the list is looked up by that.
    rows = rows.sort_by([("to_ms", "ascending")])
    rows = rows.append_column("row", pa.array(np.arange(rows.num_rows)))
    found = rows.group_by(keys, use_threads=False).aggregate(
        [
            *((name, "sum") for name in sums),
            *((name, "max") for name in greatest),
            ("to_ms", "max"),
            ("row", "max"),
        ]
    )
    newest = rows.select(last).take(found["row_max"])
    columns = {name: found[name] for name in keys}
    columns |= {name: found[f"{name}_sum"] for name in sums}
    columns |= {name: found[f"{name}_max"] for name in greatest}
    columns |= {name: newest[name] for name in last}
    columns["last_ms"] = found["to_ms_max"]
    table = pa.table([columns[name].cast(schema.field(name).type) for name in schema.names], schema)
    return table.sort_by([(name, "ascending") for name in keys])
