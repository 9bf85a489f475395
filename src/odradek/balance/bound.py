"""The fewest bytes that any plan must copy: what a plan is measured by.

All that lies on brokers it may not stay on has to be copied. A broker above its band must shed
what is above, which in bytes costs no less than the cheapest fraction of its replicas that adds up
to it; disk and incoming bytes are looked at, and the dearer counts. What brokers below their band
lack has to arrive, and counts if it is more: the cheapest fraction of all replicas. A band is about
what a disk will hold, and a copy has what the replica holds now. No plan that meets all bands
reaches less; one that reaches this number would be perfect, which whole replicas and eight rules at
once rarely allow.
"""

import numpy as np

from odradek.balance.model import Cluster
from odradek.balance.rules import DISK, IN, Array


def least_bytes(cluster: Cluster) -> int:
    """The lower bound of the bytes of a plan."""
    f = cluster.problem
    leaving = f.must_leave.astype(bool)
    staying = ~leaving
    rate_in = f.rates[:, 0][f.partition]
    brokers = len(f.rack)
    sums_disk = _sum_by(f.home[staying], f.size[staying], brokers)
    sums_in = _sum_by(f.home[staying], rate_in[staying], brokers)
    shed = max(
        _cheapest(cluster, staying, f.size, np.maximum(sums_disk - f.high[:, DISK], 0)),
        _cheapest(cluster, staying, rate_in, np.maximum(sums_in - f.high[:, IN], 0)),
    )
    lacking = np.maximum(f.low[:, DISK] - sums_disk, 0).sum()
    order = np.argsort(cluster.stored / np.maximum(f.size, 1), kind="stable")
    arriving = _fraction(f.size[order], cluster.stored[order], int(lacking))
    return max(int(cluster.stored[leaving].sum()) + round(shed), round(arriving))


def _sum_by(index: Array, values: Array, count: int) -> Array:
    """Sums of integers by index, exact."""
    result = np.zeros(count, np.int64)
    np.add.at(result, index, values)
    return result


def _cheapest(cluster: Cluster, staying: Array, load: Array, excess: Array) -> float:
    """The fewest bytes of replicas, cut as one likes, that carry each broker's excess away."""
    f, stored = cluster.problem, cluster.stored
    total = 0.0
    over = np.flatnonzero(excess)
    if not len(over):
        return 0.0
    slots = np.flatnonzero(staying & (load > 0) & np.isin(f.home, over))
    by_worth = np.lexsort((-(load[slots] / np.maximum(stored[slots], 1)), f.home[slots]))
    slots = slots[by_worth]
    starts = np.searchsorted(f.home[slots], over)
    ends = np.searchsorted(f.home[slots], over, side="right")
    for broker, start, end in zip(over, starts, ends, strict=True):
        here = slots[start:end]
        total += _fraction(load[here], stored[here], int(excess[broker]))
    return total


def _fraction(load: Array, cost: Array, wanted: int) -> float:
    """What the first of these cost that add up to a load, the last of them cut."""
    carried = np.cumsum(load)
    whole = int(np.searchsorted(carried, wanted))
    total = float(cost[:whole].sum())
    if whole < len(load) and load[whole]:
        before = carried[whole - 1] if whole else 0
        total += float(cost[whole]) * float(wanted - before) / float(load[whole])
    return total
