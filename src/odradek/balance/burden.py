"""Replicas that no broker can bear inside its band, and what they bring along.

A partition may alone be more than a broker's band allows: the broker that has it is outside,
whichever that is. Others are less than that and yet leave no room for what the broker must have
besides: one that leads a partition with nearly all of its share of CPU still has to receive its
share of bytes, which takes CPU. Of a resource that a broker has to fill up, the **company** of a
replica is the least that filling up takes of another: the cheapest replicas of the whole cluster,
cut as one likes. No plan gets by with less, so what a replica and its company are together more
than every broker's band allows is a proof.

The search takes such a **burden** as given. Where it is, it stays, and the band of its broker
ends where the burden does: else the square of a distance that nothing can lower would outweigh all
other resources of that broker, and leave them outside, too.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from odradek.balance import kernels
from odradek.balance.kernels import State
from odradek.balance.model import Cluster
from odradek.balance.rules import (
    CPU,
    DISK,
    HAIR,
    IN,
    LEADER_IN,
    LEADERS,
    OUT,
    POTENTIAL_OUT,
    REPLICAS,
    Array,
)

# Resources of which one replica may be too much, and those that a broker must have enough of.
BORNE = (CPU, IN, OUT, DISK, LEADER_IN)
FILLED = (CPU, IN, OUT, DISK, REPLICAS, LEADERS)
ALONE = -1
# How much of its share a broker with a burden may bear beside it.
BESIDE = 0.09


class Burdens(NamedTuple):
    """By broker and dimension: the slot that is a burden, or -1; how much it and its company are;
    and the dimension that has to be filled up, or ALONE if the slot is too much without."""

    slot: Array
    least: Array
    filled: Array


class Company:
    """The least that filling up one dimension takes of another, over all replicas of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._problem = cluster.problem
        self._curves: dict[tuple[int, int], tuple[Array, Array]] = {}
        slack = cluster.bounds.share * HAIR
        f = cluster.problem
        self.low = f.low - slack
        self.high = cluster.bounds.high + slack

    def least(self, borne: int, filled: int, need: Array) -> Array:
        """The least of `borne` that so much of `filled` takes."""
        if (borne, filled) not in self._curves:
            self._curves[borne, filled] = self._curve(borne, filled)
        needed, taken = self._curves[borne, filled]
        result: Array = np.interp(need, needed, taken)
        return result

    def _curve(self, borne: int, filled: int) -> tuple[Array, Array]:
        """Replicas in the order of what they take of one for what they bring of the other, added
        up; what they take is rounded down, by 1/4096 at most."""
        f = self._problem
        # In units of the shares, so that usual ratios are near 1.
        shares = f.inverse_share[f.receivers].max(axis=0)
        unit = float(shares[borne] / shares[filled])
        brought = np.zeros(kernels.RATIO_CLASSES)
        enough = float(self.low[f.receivers, filled].max(initial=0.0))
        for leads in (0, 1):
            taken = self.load(borne, leads, np.minimum)
            gained = self.load(filled, leads, np.maximum)
            # A partition with one replica has no followers.
            gained = np.where((np.diff(f.start) > 1) | bool(leads), gained, 0)
            kernels.add_by_ratio(taken, gained, unit, enough, brought)
        at = np.flatnonzero(brought)
        lowest = np.float64(kernels.RATIO_MIN).view(np.int64) >> kernels.RATIO_SHIFT
        ratio = ((at + lowest) << kernels.RATIO_SHIFT).view(np.float64)
        ratio = np.where(at == 0, 0.0, ratio) / unit
        brought = brought[at]
        return (
            np.append(0.0, np.cumsum(brought)),
            np.append(0.0, np.cumsum(brought * ratio)),
        )

    def load(self, dimension: int, leads: int, of_replicas: np.ufunc) -> Array:
        """What each partition adds to a broker that leads it, or follows. Of replicas that differ
        in size the one that makes the company least."""
        f = self._problem
        if dimension == DISK:
            sizes: Array = of_replicas.reduceat(f.size, f.start[:-1])
            return sizes
        if dimension in (REPLICAS, LEADERS):
            return np.full(len(f.rates), int(dimension == REPLICAS or leads))
        columns = {
            CPU: kernels.RATE_CPU_FOLLOWER - leads,
            OUT: kernels.RATE_OUT_FOLLOWER - leads,
        }
        load = f.rates[:, columns.get(dimension, kernels.RATE_IN)]
        return np.ascontiguousarray(load if dimension != LEADER_IN else load * leads)

    def with_company(self, load: Array, dimension: int, low: Array) -> tuple[Array, Array]:
        """How much a broker bears at least in a dimension that has a replica with this load (one
        for each row), and what it fills up for that."""
        alone = load[:, dimension].astype(np.float64)
        most, filled = alone.copy(), np.full(len(load), ALONE)
        for other in FILLED:
            if other == dimension:
                continue
            together = alone + self.least(dimension, other, low[:, other] - load[:, other])
            filled = np.where(together > most, other, filled)
            most = np.maximum(most, together)
        return most, filled


def loads(cluster: Cluster, slots: Array, leads: Array) -> Array:
    """What slots add to their brokers, a row each."""
    f = cluster.problem
    rates = f.rates[f.partition[slots]]
    result = np.zeros((len(slots), kernels.DIMENSION_COUNT), np.int64)
    result[:, CPU] = np.where(
        leads, rates[:, kernels.RATE_CPU_LEADER], rates[:, kernels.RATE_CPU_FOLLOWER]
    )
    result[:, IN] = rates[:, kernels.RATE_IN]
    result[:, OUT] = np.where(
        leads, rates[:, kernels.RATE_OUT_LEADER], rates[:, kernels.RATE_OUT_FOLLOWER]
    )
    result[:, DISK] = f.size[slots]
    result[:, REPLICAS] = 1
    result[:, LEADERS] = leads
    result[:, LEADER_IN] = np.where(leads, rates[:, kernels.RATE_IN], 0)
    result[:, POTENTIAL_OUT] = rates[:, kernels.RATE_OUT_LEADER]
    return result


def find_burdens(cluster: Cluster, state: State, company: Company) -> Burdens:
    """The burdens of each broker: of its heaviest replica in each dimension, whether every broker
    that had it would be outside."""
    f = cluster.problem
    heaviest = np.full(f.low.shape, -1, np.int64)
    kernels.heaviest(f, state, heaviest, np.zeros(f.low.shape, np.int64))
    found = Burdens(
        np.full(f.low.shape, -1, np.int64),
        np.zeros(f.low.shape),
        np.full(f.low.shape, ALONE, np.int64),
    )
    classes = f.receivers[
        np.unique(
            np.hstack((company.low[f.receivers], company.high[f.receivers])),
            axis=0,
            return_index=True,
        )[1]
    ]
    for dimension in BORNE:
        brokers = f.receivers[heaviest[f.receivers, dimension] >= 0]
        slots = heaviest[brokers, dimension]
        load = loads(cluster, slots, state.leader[f.partition[slots]] == slots)
        least, filled = company.with_company(load, dimension, company.low[brokers])
        is_burden = least > company.high[brokers, dimension]
        filled[load[:, dimension] > company.high[brokers, dimension]] = ALONE
        for at in np.flatnonzero(is_burden).tolist():
            rows = np.repeat(load[at : at + 1], len(classes), axis=0)
            anywhere, _ = company.with_company(rows, dimension, company.low[classes])
            if (anywhere > company.high[classes, dimension]).all():
                b = brokers[at]
                found.slot[b, dimension] = slots[at]
                found.least[b, dimension] = least[at]
                found.filled[b, dimension] = filled[at]
    return found


def taken_as_given(cluster: Cluster, burdens: Burdens) -> Cluster:
    """The cluster with burdens where they are, and bands that end where they do."""
    f, bounds = cluster.problem, cluster.bounds
    is_burden = burdens.slot >= 0
    if not is_burden.any():
        return cluster
    top = np.rint(burdens.least + BESIDE * bounds.share).astype(np.int64)
    high = np.where(is_burden, np.maximum(f.high, top), f.high)
    pinned = f.pinned.copy()
    pinned[burdens.slot[is_burden]] = 1
    return replace(
        cluster,
        problem=f._replace(high=high, pinned=pinned),
        bounds=bounds._replace(high=high),
    )
