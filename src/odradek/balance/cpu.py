"""What a byte, a record and a request cost in processor time, fitted to what brokers measured.

Brokers say how much processor time they spent on produces, consumers' fetches, followers' fetches
and the rest. Each kind is fitted by non-negative least squares to what it serves, over all windows
of all brokers of a class: machines with as many processors. What a follower costs its own broker is
in the rest, beside a constant that no replica is charged for.

Where the fit explains less than half of the variance, or there are fewer than three windows, fixed
weights share out the processor time instead: 0.7 for bytes in, 0.15 for bytes out, 0.15 for bytes
that are followed.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odradek.balance.keys import number_keys

__all__ = [
    "KEYS",
    "SERVED",
    "CpuCost",
    "class_of",
    "fit_cpu",
    "non_negative_least_squares",
    "served_by_brokers",
    "summed",
]

Array = np.ndarray[Any, np.dtype[Any]]

KEYS = ["window_ms", "broker"]
SERVED_BY_LEADERS = ("bytes_in", "messages", "requests", "follower_out")
# What a follower takes in is what its leader has of these.
FOLLOWED = {"followed_bytes": "bytes_in", "followed_messages": "messages"}
SERVED = pa.schema(
    [
        ("window_ms", pa.int64()),
        ("broker", pa.int32()),
        *((name, pa.int64()) for name in (*SERVED_BY_LEADERS, "bytes_out", *FOLLOWED)),
    ]
)

R2_MIN = 0.5
WINDOWS_MIN = 3
STATIC_IN, STATIC_OUT, STATIC_FOLLOWED = 0.7, 0.15, 0.15
TOLERANCE = 1e-12


@dataclass(frozen=True)
class CpuCost:
    """Seconds of processor time for one of each; `r2` is the worst of the kinds that were fitted,
    None where the weights are fixed."""

    byte_in: float = 0.0
    message: float = 0.0
    request: float = 0.0
    byte_out: float = 0.0
    byte_to_follower: float = 0.0
    followed_byte: float = 0.0
    followed_message: float = 0.0
    r2: float | None = None
    windows: int = 0

    def of_leader(self, features: "Features") -> Array:
        """Cores, from rates."""
        cost: Array = (
            self.byte_in * features.bytes_in
            + self.message * features.messages
            + self.request * features.requests
            + self.byte_out * features.bytes_out
            + self.byte_to_follower * features.follower_out
        )
        return cost

    def of_follower(self, features: "Features") -> Array:
        cost: Array = (
            self.followed_byte * features.bytes_in + self.followed_message * features.messages
        )
        return cost


@dataclass(frozen=True)
class Features:
    """Rates of partitions, or sums of brokers: arrays of one length."""

    bytes_in: Array
    messages: Array
    requests: Array
    bytes_out: Array
    follower_out: Array


def class_of(cores: float) -> int:
    """Hundredths of a processor; 0 is a broker that does not say."""
    return round(cores * 100)


def fit_cpu(served: pa.Table, brokers: pa.Table) -> dict[int, CpuCost]:
    """The cost by class, from what brokers served and measured. What is estimated has no processor
    time."""
    brokers = brokers.filter(pc.invert(brokers["is_estimated"])).drop_columns(
        ["failed_directories"]
    )
    table = brokers.join(served, KEYS).sort_by([(name, "ascending") for name in KEYS])
    samples = {
        name: np.nan_to_num(table[name].to_numpy(zero_copy_only=False).astype(np.float64))
        for name in table.column_names
    }
    classes = np.array([class_of(cores) for cores in samples["cores"]], np.int64)
    return {
        int(each): _fit({name: values[classes == each] for name, values in samples.items()})
        for each in np.unique(classes[classes > 0])
    }


def served_by_brokers(partitions: pa.Table) -> pa.Table:
    """What each broker served and followed in each window, of these partitions. Tables of some
    topics each can be put together and summed (`summed`): the result is that of all topics."""
    leads = partitions["leads"]
    parts = (
        partitions.select([*KEYS, *SERVED_BY_LEADERS]).filter(leads),
        partitions.select([*KEYS, "bytes_out"]),
        _followed(partitions),
    )
    return summed(pa.concat_tables(map(_sums, parts), promote_options="default"))


def summed(served: pa.Table) -> pa.Table:
    sums = _sums(served)
    table = pa.table([pc.fill_null(sums[name], 0) for name in SERVED.names], SERVED)
    return table.sort_by([(name, "ascending") for name in KEYS])


def _followed(partitions: pa.Table) -> pa.Table:
    """What leaders wrote in each window to the partitions that a broker followed in it."""
    tps, brokers = number_keys(partitions, "topic", "partition"), number_keys(partitions, "broker")
    ids = partitions["broker"].unique()
    windows, leads = partitions["window_ms"].to_numpy(), partitions["leads"].to_numpy()
    counts = {name: partitions[name].to_numpy() for name in FOLLOWED.values()}
    parts = [SERVED.empty_table().select([*KEYS, *FOLLOWED])]
    # One window after another: a table of all of them would have a cell for each partition that
    # was there in any, and what is as large as a window stays in the processor's caches.
    for rows in _rows_by_window(windows):
        leading, tp, broker = leads[rows], tps.of_row[rows], brokers.of_row[rows]
        present = np.flatnonzero(np.bincount(broker))
        part = {"window_ms": np.full(len(present), windows[rows][0]), "broker": ids.take(present)}
        for name, of_leaders in FOLLOWED.items():
            written, taken = np.zeros(tps.count, np.int64), np.zeros(brokers.count, np.int64)
            np.add.at(written, tp[leading], counts[of_leaders][rows][leading])
            np.add.at(taken, broker[~leading], written[tp[~leading]])
            part[name] = taken[present]
        parts.append(pa.table(part))
    return pa.concat_tables(parts)


def _rows_by_window(windows: Array) -> list[Array | slice]:
    """Which rows each window has. Those of windows that are in order, as they usually are, are
    slices, which cost nothing."""
    order = None
    if (windows[1:] < windows[:-1]).any():
        order = np.argsort(windows, kind="stable")
        windows = windows[order]
    edges = [*(np.flatnonzero(windows[1:] != windows[:-1]) + 1).tolist(), len(windows)]
    spans = [slice(begin, end) for begin, end in itertools.pairwise([0, *edges]) if begin < end]
    return [span if order is None else order[span] for span in spans]


def _sums(table: pa.Table) -> pa.Table:
    """The sums of all other columns by window and broker."""
    counts = [name for name in table.column_names if name not in KEYS]
    sums = table.group_by(KEYS).aggregate([(name, "sum") for name in counts])
    return sums.rename_columns([*KEYS, *counts])


def _fit(samples: dict[str, Array]) -> CpuCost:
    count = len(samples["cpu_s"])
    if count < WINDOWS_MIN:
        return _static(samples)
    produce, produce_r2 = _solve(samples, "produce_s", ["bytes_in", "messages", "requests"])
    consumer, consumer_r2 = _solve(samples, "consumer_s", ["bytes_out", "requests"])
    follower, follower_r2 = _solve(samples, "follower_s", ["follower_out"])
    rest, rest_r2 = _solve(samples, "other_s", ["followed_bytes", "followed_messages", "seconds"])
    r2 = min(produce_r2, consumer_r2, follower_r2, rest_r2)
    if r2 < R2_MIN:
        return _static(samples)
    return CpuCost(
        byte_in=produce[0],
        message=produce[1],
        request=produce[2] + consumer[1],
        byte_out=consumer[0],
        byte_to_follower=follower[0],
        followed_byte=rest[0],
        followed_message=rest[1],
        r2=r2,
        windows=count,
    )


def _static(samples: dict[str, Array]) -> CpuCost:
    out = samples["bytes_out"].sum() + samples["follower_out"].sum()
    shares = (
        STATIC_IN * samples["bytes_in"].sum()
        + STATIC_OUT * out
        + STATIC_FOLLOWED * samples["followed_bytes"].sum()
    )
    each = float(samples["cpu_s"].sum() / shares) if shares > 0 else 0.0
    return CpuCost(
        byte_in=STATIC_IN * each,
        byte_out=STATIC_OUT * each,
        byte_to_follower=STATIC_OUT * each,
        followed_byte=STATIC_FOLLOWED * each,
        windows=len(samples["cpu_s"]),
    )


def _solve(
    samples: dict[str, Array], target: str, features: list[str]
) -> tuple[list[float], float]:
    """The cost of each feature, and how much of the target's variance they explain."""
    wanted = samples[target]
    matrix = np.stack([samples[name] for name in features], axis=1)
    # Bytes and requests differ by orders of magnitude: each column in its own unit.
    scale = np.maximum(matrix.max(axis=0, initial=0.0), TOLERANCE)
    found = non_negative_least_squares(matrix / scale, wanted)
    missed = float(((wanted - matrix / scale @ found) ** 2).sum())
    spread = float(((wanted - wanted.mean()) ** 2).sum())
    # A target that does not vary is explained if it is met.
    negligible = TOLERANCE * max(1.0, float((wanted**2).sum()))
    r2 = 1.0 - missed / spread if spread > negligible else float(missed <= negligible)
    return [float(each) for each in found / scale], r2


def non_negative_least_squares(matrix: Array, wanted: Array) -> Array:
    """The x >= 0 that minimises |matrix x - wanted| (Lawson and Hanson's active set)."""
    columns = matrix.shape[1]
    found = np.zeros(columns)
    free = np.zeros(columns, bool)
    for _ in range(3 * columns):
        gradient = matrix.T @ (wanted - matrix @ found)
        gradient[free] = -np.inf
        entering = int(np.argmax(gradient))
        if free.all() or gradient[entering] <= TOLERANCE * max(
            1.0, float(np.abs(wanted).max(initial=0.0))
        ):
            break
        free[entering] = True
        while True:
            trial = np.zeros(columns)
            trial[free] = np.linalg.lstsq(matrix[:, free], wanted, rcond=None)[0]
            below = free & (trial <= 0)
            if not below.any():
                break
            # As far as the first of them lets us, which then leaves.
            steps = found[below] / np.maximum(found[below] - trial[below], TOLERANCE)
            found = found + float(steps.min()) * (trial - found)
            free &= found > TOLERANCE
            found[~free] = 0.0
        found = trial
    return found
