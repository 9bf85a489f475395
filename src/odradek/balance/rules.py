"""The rules of a plan as numbers: for each broker and resource its share, its band and its wall.

A **wall** is never passed: so much of a broker's capacity, or so many replicas. A **band** lies
around a broker's share, which is its part of the whole by capacity. Inside its band nothing pulls
a broker; outside, the square of the distance in units of the share does. So a level cluster is
left alone, and what is planned twice is planned once.

The thresholds are those of Cruise Control, and its names for them are understood in rebalance.toml.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

# The sums of a broker, in the order of every array. The first five have walls.
DIMENSIONS = ("cpu", "in", "out", "disk", "replicas", "leaders", "leader in", "potential out")
CPU, IN, OUT, DISK, REPLICAS, LEADERS, LEADER_IN, POTENTIAL_OUT = range(8)
RESOURCES = (CPU, IN, OUT, DISK)
TOPIC_SPREAD = "topic spread"

WEIGHTS = (1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.3, 0.3)
TOPIC_WEIGHT = 0.3
# A wall pulls a thousand times as hard as a band.
WALL_WEIGHT = 1000.0
HAIR = 0.0008
# What a copy costs beside its bytes, in mean sizes; the second makes plans of fewer, larger copies.
COPY_PRICE = 10.0
FEWER_MOVES_PRICE = 100.0
# No limit: so far from the largest number that nothing which is added to it runs over.
UNLIMITED = 2**61


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How level is level, and how full is full.

    `balance` has the factor around the share for each dimension, `walls` the part of a capacity,
    and for replicas their number. `slack` is the distance from the share that is always allowed:
    an idle cluster is not levelled to the byte.
    """

    balance: tuple[float, ...] = (1.10,) * 8
    margin: float = 0.9
    walls: tuple[float, float, float, float] = (0.7, 0.8, 0.8, 0.8)
    replicas_max: int = 10_000
    potential_out: float = 0.8
    low_utilization: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    slack: tuple[int, int, int, int] = (1_000, 10_000, 10_000, 100_000_000)
    topic_balance: float = 3.0
    topic_gap_min: int = 2
    topic_gap_max: int = 40
    disk_while_moving: float = 0.95
    strict_racks: bool = False
    copy_price: float = COPY_PRICE
    off: frozenset[str] = field(default_factory=frozenset)


class Limits(NamedTuple):
    """For each broker and dimension: its share of the whole, its band, its wall."""

    share: Array
    low: Array
    high: Array
    wall: Array


def limits(total: Array, capacity: Array, may_receive: Array, thresholds: Thresholds) -> Limits:
    """What each broker should bear of `total`; a capacity of 0 is not known.

    A broker that may receive nothing has no band: all of it leaves.
    """
    shape = (len(may_receive), len(DIMENSIONS))
    share = np.zeros(shape, np.int64)
    low = np.zeros(shape, np.int64)
    high = np.full(shape, UNLIMITED, np.int64)
    wall = np.full(shape, UNLIMITED, np.int64)
    receivers = int(may_receive.sum())
    if not receivers:
        return Limits(share, low, high, wall)
    for dimension in range(len(DIMENSIONS)):
        size = _relative_size(capacity, dimension, may_receive)
        part = total[dimension] * size / size.sum()
        share[:, dimension] = np.rint(part)
        band = (thresholds.balance[dimension] - 1) * thresholds.margin
        bottom, top = part * (1 - band), part * (1 + band)
        if dimension in RESOURCES:
            slack = thresholds.slack[dimension]
            bottom, top = np.minimum(bottom, part - slack), np.maximum(top, part + slack)
            bottom, top = _with_low_utilization(
                dimension, bottom, top, total, capacity, may_receive, thresholds
            )
            bottom, top = np.ceil(bottom), np.floor(top)
        elif dimension in (REPLICAS, LEADERS):
            bottom, top = np.floor(bottom), np.ceil(top)
        elif dimension == LEADER_IN:
            bottom, top = np.zeros_like(part), np.maximum(top, part + thresholds.slack[IN])
        else:
            known = capacity[:, OUT] > 0
            bottom = np.zeros_like(part)
            top = np.where(known, thresholds.potential_out * capacity[:, OUT], UNLIMITED)
        if DIMENSIONS[dimension] not in thresholds.off:
            low[:, dimension] = np.where(may_receive, np.maximum(bottom, 0), 0)
            high[:, dimension] = np.where(may_receive, top, UNLIMITED)
    for dimension, factor in zip(RESOURCES, thresholds.walls, strict=True):
        known = capacity[:, dimension] > 0
        wall[known, dimension] = (capacity[known, dimension] * factor).astype(np.int64)
    wall[:, REPLICAS] = thresholds.replicas_max
    return Limits(share, low, high, wall)


def _relative_size(capacity: Array, dimension: int, may_receive: Array) -> Array:
    """How large the brokers are beside each other. Of one whose capacity is not known we assume
    that it is like the others; counts are the same for all."""
    resource = {LEADER_IN: IN, POTENTIAL_OUT: OUT}.get(dimension, dimension)
    size = np.ones(len(may_receive))
    if resource in RESOURCES:
        given = capacity[:, resource].astype(np.float64)
        known = may_receive & (given > 0)
        if known.any():
            size = np.where(given > 0, given, given[known].mean())
    return np.where(may_receive, size, 0.0)


def _with_low_utilization(
    dimension: int,
    bottom: Array,
    top: Array,
    total: Array,
    capacity: Array,
    may_receive: Array,
    thresholds: Thresholds,
) -> tuple[Array, Array]:
    """Where the cluster as a whole has little to do, brokers need not be level."""
    threshold = thresholds.low_utilization[dimension]
    room = capacity[may_receive, dimension].sum()
    if room <= 0 or total[dimension] / room > threshold:
        return bottom, top
    allowed = thresholds.margin * threshold * capacity[:, dimension]
    return np.zeros_like(bottom), np.maximum(top, allowed)


def topic_limits(replicas: Array, receivers: int, thresholds: Thresholds) -> tuple[Array, Array]:
    """How many replicas of each topic a broker should have at least and at most."""
    mean = replicas / max(receivers, 1)
    band = (thresholds.topic_balance - 1) * thresholds.margin
    near, far = thresholds.topic_gap_min, thresholds.topic_gap_max
    above, below = np.ceil(mean), np.floor(mean)
    high = np.clip(np.ceil(mean * (1 + band)), above + near, above + far)
    low = np.clip(np.floor(mean * (1 - band)), below - far, below - near)
    if TOPIC_SPREAD in thresholds.off:
        return np.zeros(len(mean), np.int32), np.full(len(mean), 2**30, np.int32)
    return np.maximum(low, 0).astype(np.int32), high.astype(np.int32)


def outside(sums: Array, bounds: Limits) -> Array:
    """Which brokers are outside their band, by broker and dimension. A hair's breadth is not worth
    a copy: so little of the share does not count."""
    slack = bounds.share * HAIR
    result: Array = (sums < bounds.low - slack) | (sums > bounds.high + slack)
    return result


def beyond_wall(sums: Array, bounds: Limits) -> Array:
    """Which brokers are beyond a wall, by broker and dimension."""
    result: Array = sums > bounds.wall
    return result
