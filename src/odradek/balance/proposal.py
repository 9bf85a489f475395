"""From what a cluster says of itself to a plan: the load table, the settings, the search."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from odradek.balance.explain import Facts, explain
from odradek.balance.load import LoadModel
from odradek.balance.model import Cluster, InvalidModel, Scope, build
from odradek.balance.plan import Plan
from odradek.balance.rules import DIMENSIONS, UNLIMITED, Thresholds, outside
from odradek.balance.search import Budget, Outcome, find, new_state, relocated
from odradek.balance.settings import Settings
from odradek.wire.topics import TopicPartition

CAPACITY_COLUMNS = {"cpu": "cores", "network": "net_capacity", "disk": "disk_capacity"}


def propose(
    load: LoadModel,
    settings: Settings,
    budget: Budget,
    facts: Facts,
    *,
    remove: frozenset[int] = frozenset(),
    only: frozenset[int] = frozenset(),
    search: Callable[[Cluster, Budget], Outcome] | None = None,
) -> Plan:
    """The plan for a load table; `facts` says what to call it, and the plan adds what it took.
    `search` finds the placement, if not this process alone."""
    cluster = model_of(load, settings, remove, only)
    found = (search or find)(cluster, budget)
    return explain(cluster, found, facts, budget.spent)


def replaced(
    load: LoadModel, settings: Settings, broker: int
) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of each partition when those that a broker has lost are elsewhere: each on the
    broker that is burdened least by it, in a rack with the fewest others, where a disk has room.
    All others stay."""
    cluster = model_of(load, settings, frozenset(), frozenset())
    f = cluster.problem
    index = int(np.searchsorted(cluster.brokers.ids, broker))
    if index == len(cluster.brokers.ids) or cluster.broker_id(index) != broker:
        raise InvalidModel(f"the load says nothing of broker {broker}")
    placed = relocated(cluster, np.flatnonzero(f.must_leave.astype(bool) & (f.home == index)))
    return {
        TopicPartition(cluster.topics[f.topic[p]], int(cluster.number[p])): tuple(
            cluster.broker_id(b) for b in placed[f.start[p] : f.start[p + 1]]
        )
        for p in np.unique(f.partition[placed != f.home]).tolist()
    }


def unevenness(load: LoadModel, settings: Settings, factor: float) -> list[str]:
    """The brokers far outside a band, this many times as far from their share as it is wide, and
    where: what is worth a plan without being asked for one."""
    cluster = model_of(load, settings, frozenset(), frozenset())
    bounds, sums = cluster.bounds, new_state(cluster).sums
    wide = bounds._replace(
        low=bounds.share - (bounds.share - bounds.low) * factor,
        high=np.where(
            bounds.high < UNLIMITED,
            bounds.share + (bounds.high - bounds.share) * factor,
            UNLIMITED,
        ),
    )
    found = []
    for broker, dimension in np.argwhere(outside(sums, wide)).tolist():
        ratio = sums[broker, dimension] / max(1, bounds.share[broker, dimension])
        name = DIMENSIONS[dimension]
        found.append(f"broker {cluster.broker_id(broker)}: {name} {ratio:.2f} of its share")
    return found


def model_of(
    load: LoadModel, settings: Settings, remove: frozenset[int], only: frozenset[int]
) -> Cluster:
    """The cluster with the capacities, topics and thresholds of the settings."""
    topics = load.replicas["topic"].unique().to_pylist()
    scope = Scope(
        remove=remove,
        only=only,
        excluded={
            topic
            for topic in topics
            if any(re.fullmatch(pattern, topic) for pattern in settings.excluded)
        },
        sets={
            topic: brokers
            for topic in topics
            for pattern, brokers in settings.sets.items()
            if re.fullmatch(pattern, topic)
        },
        leaders_min={
            topic: least
            for topic in topics
            for pattern, least in settings.leaders_min.items()
            if re.fullmatch(pattern, topic)
        },
    )
    thresholds = Thresholds(**settings.thresholds)
    brokers = with_capacities(load.brokers, settings.capacity)
    cluster = build(load.replicas, brokers, thresholds, scope)
    if thresholds.strict_racks:
        _require_racks(cluster)
    return cluster


def with_capacities(
    brokers: pa.Table, capacity: Mapping[int | None, Mapping[str, float]]
) -> pa.Table:
    """The brokers with the capacities that were given; the others as they were measured."""
    for resource, column in CAPACITY_COLUMNS.items():
        values: list[Any] = []
        for id, measured in zip(
            brokers["broker"].to_pylist(), brokers[column].to_pylist(), strict=True
        ):
            usual = capacity.get(None, {}).get(resource, measured)
            values.append(capacity.get(id, {}).get(resource, usual))
        kind = brokers.schema.field(column).type
        array = pa.array(values, pa.float64()).cast(kind, safe=False)
        brokers = brokers.set_column(brokers.column_names.index(column), column, array)
    return brokers


def _require_racks(cluster: Cluster) -> None:
    f = cluster.problem
    racks = len(np.unique(f.rack[f.receivers]))
    factor = np.diff(f.start)
    if len(factor) and int(factor.max()) > racks:
        p = int(np.argmax(factor))
        raise InvalidModel(
            f"{cluster.name(p)} has {factor[p]} replicas, and there are {racks} racks: with "
            'racks = "strict" each needs one of its own'
        )
