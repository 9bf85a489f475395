"""The pipeline that lands windows of telemetry in a lake, as a file for `odradek pipeline run`.

Its SQL makes the tables of windows.py. A frame that was written twice counts once: the rows of a
window are gathered as a set, and of one tick the frame that ends last is kept, before they are
summed. A window is landed two minutes after its end, once; later frames are left out of it.
"""

from odradek.balance.frames import COUNTS
from odradek.balance.windows import BROKER_LAST, BROKER_SUMS, PARTITION_LAST

__all__ = ["pipeline_text"]

_KEPT = (
    "filter(seen, f -> NOT exists(seen, g -> g.incarnation = f.incarnation"
    " AND g.tick = f.tick AND g.to_ms > f.to_ms))"
)
_TICK = "incarnation, tick, to_ms, from_ms"
_HEAD = """\
# Windows of telemetry, landed by `odradek pipeline run` on this file.
checkpoint = "{path}/checkpoint"
bootstrap = "{bootstrap}"
trigger = "1 minute"

[[source]]
name = "frames"
topics = ["{topic}"]
watermark = {{ column = "at", delay = "2 minutes" }}
[source.decode]
format = "telemetry"
"""
_STEP = """
[[step]]
name = "{name}"
sql = '''
{sql}
'''
"""
_SINK = """
[[sink]]
name = "{name}"
from = "{name}"
kind = "table"
path = "{path}/{name}"
mode = "append"
"""


def pipeline_text(bootstrap: str, topic: str, path: str) -> str:
    steps = {
        "partition_frames": _gathered(
            "row.topic, row.partition, broker, (row.role & 1) = 1 AS leads, is_estimated",
            [f"row.{name}" for name in (*COUNTS, *PARTITION_LAST)],
            "frames LATERAL VIEW explode(rows) AS row",
        ),
        "partition_windows": _windows(
            "partition_frames",
            "topic, partition, broker, leads, is_estimated",
            {name: _sum(name) for name in COUNTS},
            PARTITION_LAST,
        ),
        "broker_frames": _gathered(
            "broker, is_estimated",
            [*BROKER_SUMS, *BROKER_LAST, "isr_shrinks", "produce_p99_us", "failed_directories"],
            "frames",
        ),
        "broker_windows": _windows(
            "broker_frames",
            "broker, is_estimated",
            {
                "seconds": "aggregate(kept, 0L, (a, f) -> a + f.to_ms - f.from_ms) / 1000.0D",
                **{
                    name: _sum(name, "0.0D" if name.endswith("_s") else "0L")
                    for name in BROKER_SUMS
                },
                "isr_shrinks": _sum("isr_shrinks"),
                "produce_p99_us": "array_max(transform(kept, f -> f.produce_p99_us))",
            },
            (*BROKER_LAST, "failed_directories"),
        ),
    }
    return "".join(
        [
            _HEAD.format(bootstrap=bootstrap, topic=topic, path=path),
            *(_STEP.format(name=name, sql=sql) for name, sql in steps.items()),
            *(_SINK.format(name=name, path=path) for name in steps if name.endswith("windows")),
        ]
    )


def _gathered(keys: str, columns: list[str], source: str) -> str:
    """The frames of each window, those that are the same as one."""
    grouped = keys.replace(" AS leads", "")
    return (
        f"SELECT window(at, '5 minutes') AS span, {keys},\n"
        f"  collect_set(struct({_TICK}, {', '.join(columns)})) AS seen\n"
        f"FROM {source}\n"
        f"GROUP BY window(at, '5 minutes'), {grouped}"
    )


def _windows(frames: str, keys: str, values: dict[str, str], last: tuple[str, ...]) -> str:
    columns = ", ".join(
        [
            "unix_millis(span.start) AS window_ms",
            keys,
            *(f"{value} AS {name}" for name, value in values.items()),
            *(f"last.{name}" for name in last),
            "last.to_ms AS last_ms",
        ]
    )
    newest = ", ".join(f"f.{name}" for name in last)
    return (
        f"SELECT {columns}\n"
        f"FROM (SELECT *, array_max(transform(kept, f -> struct(f.to_ms, {newest}))) AS last\n"
        f"  FROM (SELECT *, {_KEPT} AS kept FROM {frames}))"
    )


def _sum(name: str, zero: str = "0L") -> str:
    return f"aggregate(kept, {zero}, (a, f) -> a + f.{name})"
