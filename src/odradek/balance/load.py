"""The load of every replica: one row each, made from windows of telemetry.

Which windows count. The mean hides the evening, and a percentile per partition adds up peaks that
never meet. So for each resource the tenth of the windows in which the *cluster's* total was highest
counts, at least three, and a partition's load is its mean over those same windows: it adds up, and
what is levelled is the peak. Disk is the latest size, and what it grows by in `growth_h` hours.

Who bears what. A leader takes in what producers write, and sends to consumers and followers; a
follower takes in the same, and sends what consumers read from it. Rows have the load that a replica
would have *as* leader and *as* follower, so that leaderships can be moved on paper.

There is always an answer, and `source` says where it comes from:

| source | the load is |
|---|---|
| measured | what its broker and its leader's broker published |
| estimated | worked out by `odradek load poll` |
| replica | that of its partition: its leader is measured, its own broker is silent |
| topic | the median of its topic's partitions for its size: its leader is silent |
| size | nothing but its size |

Everything is a function of tables, and of nothing else: the same windows give the same rows,
whatever order they come in.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odradek.balance.cpu import CpuCost, Features, class_of, fit_cpu, served_by_brokers
from odradek.balance.frames import Decoded
from odradek.balance.keys import Keys, number_keys
from odradek.balance.windows import WINDOW_MS, broker_windows, partition_windows

__all__ = [
    "BROKER_LOAD",
    "REPLICA_LOAD",
    "LoadModel",
    "Peaks",
    "load_table",
    "peaks",
    "replica_load",
]

Array = np.ndarray[Any, np.dtype[Any]]
Rule = Literal["peak", "mean"]

DAY_MS = 24 * 3_600_000
HOUR_MS = 3_600_000
GROWTH_H = 6.0
PEAK_SHARE = 0.1
WINDOWS_MIN = 3
MICRO = 1_000_000

REPLICA_LOAD = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("broker", pa.int32()),
        ("rack", pa.string()),
        ("role", pa.uint8()),
        ("directory", pa.string()),
        ("size", pa.int64()),
        ("in", pa.int64()),
        ("out_leader", pa.int64()),
        ("out_follower", pa.int64()),
        ("cpu_leader", pa.int64()),
        ("cpu_follower", pa.int64()),
        ("messages", pa.int64()),
        ("windows", pa.int32()),
        ("coverage", pa.float64()),
        ("source", pa.string()),
    ]
)
BROKER_LOAD = pa.schema(
    [
        ("broker", pa.int32()),
        ("rack", pa.string()),
        ("cores", pa.float64()),
        ("net_capacity", pa.int64()),
        ("disk_capacity", pa.int64()),
        ("disk_used", pa.int64()),
        ("failed_directories", pa.list_(pa.string())),
        ("state", pa.string()),
        ("source", pa.string()),
    ]
)
# Where replicas are, as the cluster's metadata says; `size` -1 is not known.
PLACEMENT = pa.schema([REPLICA_LOAD.field(name) for name in REPLICA_LOAD.names[:7]])


@dataclass(frozen=True)
class LoadModel:
    """`coverage` is the share of replicas whose load is measured or estimated."""

    replicas: pa.Table
    brokers: pa.Table
    as_of_ms: int
    coverage: float


@dataclass(frozen=True)
class Peaks:
    """What all partitions are measured by: the windows that count, what brokers covered in them,
    and what processor time costs there. Small, whatever the size of the cluster."""

    windows: dict[str, Array]
    # Seconds that a broker covers in a window.
    seconds: dict[tuple[int, int], float]
    costs: dict[int, CpuCost]
    classes: dict[int, int]
    # Share of the time between the first and the last window that a broker covers.
    coverage: dict[int, float]
    as_of_ms: int


def load_table(
    decoded: Decoded,
    placement: pa.Table | None = None,
    brokers: pa.Table | None = None,
    *,
    rule: Rule = "peak",
    growth_h: float = GROWTH_H,
) -> LoadModel:
    """From frames to the model, in one process. `placement` and `brokers` are what the cluster's
    metadata says; without them a replica is where it was last measured."""
    partitions = partition_windows(decoded)
    measured = broker_windows(decoded)
    found = peaks(served_by_brokers(partitions), measured, rule)
    replicas = replica_load(partitions, found, placement, growth_h=growth_h)
    return make_model(replicas, broker_load(measured, brokers), found)


def make_model(replicas: pa.Table, brokers: pa.Table, found: Peaks) -> LoadModel:
    known = pc.sum(pc.is_in(replicas["source"], pa.array(["measured", "estimated"]))).as_py()
    coverage = (known or 0) / replicas.num_rows if replicas.num_rows else 1.0
    return LoadModel(replicas, brokers, found.as_of_ms, coverage)


# Which windows count


def peaks(served: pa.Table, brokers: pa.Table, rule: Rule = "peak") -> Peaks:
    """From what brokers served and measured in the windows of the last day."""
    as_of_ms = pc.max(brokers["last_ms"]).as_py() or 0
    recent = brokers.filter(pc.greater_equal(brokers["window_ms"], as_of_ms - DAY_MS))
    seconds: dict[tuple[int, int], float] = {}
    for broker, window, covered in _rows(recent, "broker", "window_ms", "seconds"):
        seconds[broker, window] = seconds.get((broker, window), 0.0) + covered
    every = np.unique(recent["window_ms"].to_numpy())
    totals = {
        "in": _cluster_rate(served, ("bytes_in",), seconds),
        "out": _cluster_rate(served, ("bytes_out", "follower_out"), seconds),
        "cpu": _cluster_rate(recent, ("cpu_s",), seconds),
    }
    return Peaks(
        {name: every if rule == "mean" else _highest(every, of) for name, of in totals.items()},
        seconds,
        fit_cpu(served, recent),
        _classes(recent),
        _coverage(every, seconds),
        as_of_ms,
    )


def _cluster_rate(
    table: pa.Table, names: tuple[str, ...], seconds: dict[tuple[int, int], float]
) -> dict[int, float]:
    """The cluster's total of each window, a second."""
    sums = table.group_by(["window_ms", "broker"]).aggregate([(name, "sum") for name in names])
    totals: dict[int, float] = {}
    columns = [f"{name}_sum" for name in names]
    for window, broker, *amounts in sorted(_rows(sums, "window_ms", "broker", *columns)):
        covered = seconds.get((broker, window), 0.0)
        if covered > 0:
            totals[window] = totals.get(window, 0.0) + sum(amounts) / covered
    return totals


def _highest(windows: Array, totals: dict[int, float]) -> Array:
    """The tenth with the highest totals, in order of time. Of equal ones the latest count."""
    count = max(WINDOWS_MIN, round(PEAK_SHARE * len(windows)))
    ranked = sorted(windows, key=lambda window: (totals.get(int(window), 0.0), window))
    return np.array(sorted(ranked[-count:]), np.int64)


def _classes(brokers: pa.Table) -> dict[int, int]:
    ordered = brokers.sort_by([("last_ms", "ascending")])
    return {broker: class_of(cores) for broker, cores in _rows(ordered, "broker", "cores")}


def _coverage(windows: Array, seconds: dict[tuple[int, int], float]) -> dict[int, float]:
    if not len(windows):
        return {}
    span_s = (int(windows[-1]) - int(windows[0]) + WINDOW_MS) / 1000
    covered: dict[int, float] = {}
    for (broker, _), each in seconds.items():
        covered[broker] = covered.get(broker, 0.0) + each
    return {broker: min(1.0, each / span_s) for broker, each in covered.items()}


# One row per replica


def replica_load(
    partitions: pa.Table,
    found: Peaks,
    placement: pa.Table | None = None,
    *,
    growth_h: float = GROWTH_H,
) -> pa.Table:
    """The rows of the partitions whose windows, or places, are given. A topic is given whole: what
    is not measured is taken from the rest of it."""
    since = found.as_of_ms - DAY_MS
    is_recent = pc.greater_equal(partitions["window_ms"], since)
    # A copy of everything, unless that is what is given.
    if not pc.all(is_recent, min_count=0).as_py():
        partitions = partitions.filter(is_recent)
    tps = number_keys(partitions, "topic", "partition")
    own = _own(partitions, tps, found)
    replicas = _placed(own, found) if placement is None else placement
    keys = ["topic", "partition"]
    rates = _rates(partitions, tps, found)
    own = own.drop_columns(["role", "last_window_ms"]).rename_columns(
        {"directory": "own_directory", "size": "own_size"}
    )
    table = replicas.join(own, [*keys, "broker"]).join(rates, keys)
    table = table.sort_by([(name, "ascending") for name in (*keys, "broker")])
    return _finished(table, found, growth_h)


def _own(partitions: pa.Table, tps: Keys, found: Peaks) -> pa.Table:
    """What each replica's own broker says: its sizes, and what consumers read from it."""
    names = ["topic", "partition", "broker"]
    keys = tps.and_by(partitions["broker"])
    order = np.argsort(partitions["last_ms"].to_numpy(), kind="stable")
    seen = partitions.select([*names, "window_ms", "size", "directory", "role", "last_ms"])
    first, last = seen.take(keys.last(order[::-1])), seen.take(keys.last(order))
    counts = _is_in(partitions, found.windows["out"]) & ~partitions["leads"].to_numpy()
    return pa.table(
        {
            **{name: last[name] for name in names},
            "role": last["role"].cast(pa.uint8()),
            "directory": last["directory"],
            "size": last["size"],
            "growth": pc.subtract(last["size"], first["size"]),
            "growth_ms": pc.subtract(last["last_ms"], first["last_ms"]),
            "windows": _distinct_windows(partitions, keys),
            "last_window_ms": last["window_ms"],
            "served": keys.sum(partitions["bytes_out"].to_numpy(), counts),
        }
    )


def _distinct_windows(partitions: pa.Table, keys: Keys) -> Array:
    """In how many windows each key has rows: more than one in some, if its role changed."""
    windows = number_keys(partitions, "window_ms")
    # A byte for each cell. The windows are those of one day, so this is less than the rows.
    has_row = np.zeros((keys.count, windows.count), bool)
    has_row[keys.of_row, windows.of_row] = True
    count: Array = has_row.sum(axis=1)
    return count


def _placed(own: pa.Table, found: Peaks) -> pa.Table:
    """Where replicas were last seen: in the newest window, or the one before."""
    newest = found.as_of_ms - found.as_of_ms % WINDOW_MS
    recent = own.filter(pc.greater_equal(own["last_window_ms"], newest - WINDOW_MS))
    columns = {name: recent[name] for name in PLACEMENT.names if name != "rack"}
    columns["rack"] = pa.nulls(recent.num_rows, pa.string())
    return pa.table([columns[name] for name in PLACEMENT.names], PLACEMENT)


def _is_in(table: pa.Table, windows: Array) -> Array:
    found: Array = pc.is_in(table["window_ms"], pa.array(windows, pa.int64())).to_numpy()
    return found


RATES = {
    "in": {"rate_in": "bytes_in", "rate_messages": "messages"},
    "out": {"rate_out": "bytes_out", "rate_follower_out": "follower_out"},
    "cpu": {
        "cpu_in": "bytes_in",
        "cpu_messages": "messages",
        "cpu_requests": "requests",
        "cpu_out": "bytes_out",
        "cpu_follower_out": "follower_out",
    },
}


def _rates(partitions: pa.Table, tps: Keys, found: Peaks) -> pa.Table:
    """What each partition's leaders did a second, in the windows that count for each resource.
    Partitions without a leader are left out."""
    leads = partitions["leads"].to_numpy()
    rows = np.flatnonzero(leads)
    order = rows[np.argsort(partitions["last_ms"].to_numpy()[rows], kind="stable")]
    newest = partitions.select(["topic", "partition", "broker"]).take(tps.last(order))
    first_windows = partitions["window_ms"].to_numpy()[tps.last(order[::-1])]
    columns = {
        **{name: newest[name] for name in ("topic", "partition")},
        "is_estimated": tps.any(partitions["is_estimated"].to_numpy() & leads),
    }
    for resource, rates in RATES.items():
        seconds = _covered(newest["broker"].to_numpy(), first_windows, found, resource)
        counts = np.flatnonzero(leads & _is_in(partitions, found.windows[resource]))
        for name, counted in rates.items():
            rate = tps.sum(partitions[counted].to_numpy(), counts) / np.maximum(seconds, 1e-9)
            columns[name] = np.where(seconds > 0, rate, 0.0)
    return pa.table(columns).filter(pa.array(tps.any(leads)))


def _covered(leaders: Array, first_windows: Array, found: Peaks, resource: str) -> Array:
    """Seconds of the windows that count in which each partition was there and its leader's broker
    spoke."""
    windows = found.windows[resource]
    # Of each broker: seconds from the window of a number to the last.
    after: dict[int, Array] = {}
    for broker in {broker for broker, _ in found.seconds}:
        each = [found.seconds.get((broker, int(window)), 0.0) for window in windows]
        after[broker] = np.append(np.cumsum(np.array(each)[::-1])[::-1], 0.0)
    begin = np.searchsorted(windows, first_windows)
    nothing = np.zeros(len(windows) + 1)
    return np.array(
        [after.get(leader, nothing)[number] for leader, number in zip(leaders, begin, strict=True)],
        np.float64,
    )


def _finished(table: pa.Table, found: Peaks, growth_h: float) -> pa.Table:
    brokers = table["broker"].to_numpy()
    windows = np.nan_to_num(_floats(table, "windows")).astype(np.int32)
    is_estimated = np.nan_to_num(_floats(table, "is_estimated")) > 0
    has_leader = ~np.isnan(_floats(table, "rate_in"))
    sizes = _sizes(table, windows, growth_h)
    source = np.select(
        [has_leader & is_estimated, has_leader & (windows > 0), has_leader],
        ["estimated", "measured", "replica"],
        "size",
    ).astype(object)
    rates = {name: np.nan_to_num(_floats(table, name)) for of in RATES.values() for name in of}
    _fill_by_topic(table["topic"], sizes, rates, source)
    features = Features(*(rates[name] for name in RATES["cpu"]))
    leading, following = _cpu(brokers, features, found)
    served = np.nan_to_num(_floats(table, "served")) / np.maximum(_seconds(brokers, found), 1e-9)
    directory = pc.coalesce(table["own_directory"], table["directory"])
    columns: dict[str, Any] = {
        **{name: table[name] for name in ("topic", "partition", "broker", "rack", "role")},
        "directory": directory,
        "size": sizes,
        "in": rates["rate_in"],
        "out_leader": rates["rate_out"] + rates["rate_follower_out"],
        "out_follower": served,
        "cpu_leader": leading * MICRO,
        "cpu_follower": following * MICRO,
        "messages": rates["rate_messages"],
        "windows": windows,
        "coverage": np.array([found.coverage.get(int(each), 0.0) for each in brokers], np.float64),
        "source": pa.array(source, pa.string()),
    }
    return pa.table(
        [_column(columns[field.name], field.type) for field in REPLICA_LOAD], REPLICA_LOAD
    )


def _sizes(table: pa.Table, windows: Array, growth_h: float) -> Array:
    """The latest, of its own broker if it says, and what it grows by at the pace it had."""
    own, reported = _floats(table, "own_size"), _floats(table, "size")
    # A silent broker's replica is as large as its partition's largest.
    size = np.where(np.isnan(own), reported, own)
    keys = table.select(["topic", "partition"]).append_column("size", pa.array(size))
    largest = keys.group_by(["topic", "partition"]).aggregate([("size", "max")])
    known = keys.append_column("row", pa.array(np.arange(table.num_rows)))
    known = known.join(largest, ["topic", "partition"]).sort_by("row")
    size = np.where(size < 0, _floats(known, "size_max"), size)
    grown_ms = np.nan_to_num(_floats(table, "growth_ms"))
    pace = np.nan_to_num(_floats(table, "growth")) / np.maximum(grown_ms, 1.0)
    growth = np.maximum(0.0, pace) * (windows >= WINDOWS_MIN) * growth_h * HOUR_MS
    with_growth: Array = np.maximum(0.0, np.nan_to_num(size) + growth)
    return with_growth


def _fill_by_topic(
    topics: pa.ChunkedArray, sizes: Array, rates: dict[str, Array], source: Array
) -> None:
    """Partitions whose leader is silent get the median of their topic, in proportion to size."""
    codes = topics.combine_chunks().dictionary_encode().indices.to_numpy()
    known = np.isin(source, ["measured", "estimated"]) & (sizes > 0)
    unknown = (source == "size") & (sizes > 0)
    for code in np.unique(codes[unknown]):
        mates, missing = known & (codes == code), unknown & (codes == code)
        if mates.any():
            source[missing] = "topic"
            for values in rates.values():
                values[missing] = np.median(values[mates] / sizes[mates]) * sizes[missing]


def _cpu(brokers: Array, features: Features, found: Peaks) -> tuple[Array, Array]:
    leading, following = np.zeros(len(brokers)), np.zeros(len(brokers))
    classes = np.array([found.classes.get(int(broker), 0) for broker in brokers])
    for each in np.unique(classes):
        cost = found.costs.get(int(each), CpuCost())
        here = classes == each
        leading[here] = cost.of_leader(features)[here]
        following[here] = cost.of_follower(features)[here]
    return leading, following


def _seconds(brokers: Array, found: Peaks) -> Array:
    out = found.windows["out"]
    covered = {
        int(broker): sum(found.seconds.get((int(broker), int(window)), 0.0) for window in out)
        for broker in np.unique(brokers)
    }
    return np.array([covered[int(broker)] for broker in brokers], np.float64)


# Brokers


def broker_load(measured: pa.Table, known: pa.Table | None = None) -> pa.Table:
    """Capacities as last published; what is `known` from metadata fills what was not."""
    last: dict[int, dict[str, Any]] = {}
    for row in measured.sort_by([("last_ms", "ascending")]).to_pylist():
        last[row["broker"]] = row
    rows = {row["broker"]: row for row in ([] if known is None else known.to_pylist())}
    for broker, row in last.items():
        described = rows.get(broker, {"broker": broker, "rack": None, "state": "live"})
        taken = {name: row[name] for name in BROKER_LOAD.names[2:7]}
        if row["is_estimated"]:
            taken = {name: value or described.get(name, value) for name, value in taken.items()}
        source = "estimated" if row["is_estimated"] else "measured"
        if broker in rows or known is None:
            rows[broker] = {**described, **taken, "source": source}
    return pa.Table.from_pylist([rows[broker] for broker in sorted(rows)], BROKER_LOAD)


# Tables and arrays


def _rows(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)


def _floats(table: pa.Table, name: str) -> Array:
    """Nulls are NaN."""
    found: Array = table[name].cast(pa.float64()).to_numpy().copy()
    return found


def _column(values: Any, kind: pa.DataType) -> Any:
    if isinstance(values, np.ndarray) and pa.types.is_integer(kind):
        values = np.round(values)
    return values.cast(kind) if isinstance(values, pa.ChunkedArray) else pa.array(values).cast(kind)
