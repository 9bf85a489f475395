"""A cluster as the planner sees it: names, and flat arrays of integers in one fixed order.

Brokers stand by id, partitions by topic and number, replicas by their place in the assignment. So
the order in which rows were read means nothing. The preferred leader counts as the leader: it is
where leadership returns to, and a plan does not change while brokers restart.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odradek.balance.kernels import Problem
from odradek.balance.rules import (
    CPU,
    DIMENSIONS,
    DISK,
    IN,
    OUT,
    TOPIC_WEIGHT,
    UNLIMITED,
    WALL_WEIGHT,
    WEIGHTS,
    Array,
    Limits,
    Thresholds,
    limits,
    topic_limits,
)

RATE_COLUMNS = ("in", "out_leader", "out_follower", "cpu_leader", "cpu_follower")
MICROCORES = 1_000_000
LEADS = 1
LIVE = "live"
# Above this the number of replicas by topic and broker is not kept, and topics are not spread.
CROWD_CELLS_MAX = 200_000_000
# More replicas of a topic than this do not fit a count; such a topic is not spread.
CROWD_MAX = 2**15 - 1


class InvalidModel(ValueError):
    """Tables that cannot be planned from; the message says why."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a plan may touch.

    `remove` brokers shall end up empty; `only` brokers, if any are given, are the ones to use.
    `excluded` topics stay where they are unless their broker is gone. `sets` limits topics to
    brokers. Each broker leads at least so many partitions of the topics in `leaders_min`.
    """

    remove: frozenset[int] = frozenset()
    only: frozenset[int] = frozenset()
    excluded: Collection[str] = ()
    sets: Mapping[str, frozenset[int]] = field(default_factory=dict)
    leaders_min: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers of a cluster, in order of their ids."""

    ids: Array
    racks: Sequence[str | None]
    states: Sequence[str]
    capacity: Array
    failed_directories: Sequence[Collection[str]]

    @classmethod
    def of(cls, table: pa.Table) -> "Brokers":
        """From a table of brokers, in any order."""
        ids = table["broker"].to_numpy()
        if len(np.unique(ids)) < len(ids):
            raise InvalidModel("a broker has two rows")
        table = table.take(pa.array(np.argsort(ids, kind="stable")))
        capacity = np.zeros((len(ids), len(DIMENSIONS)), np.int64)
        cores = table["cores"].to_numpy()
        capacity[:, CPU] = np.rint(cores * MICROCORES)
        capacity[:, IN] = capacity[:, OUT] = table["net_capacity"].to_numpy()
        capacity[:, DISK] = table["disk_capacity"].to_numpy()
        return cls(
            ids=table["broker"].to_numpy(),
            racks=table["rack"].to_pylist(),
            states=table["state"].to_pylist(),
            capacity=capacity,
            failed_directories=[each or () for each in table["failed_directories"].to_pylist()],
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """The problem in arrays, and the names and limits that go with it."""

    problem: Problem
    topics: Sequence[str]
    number: Array  # of each partition, within its topic
    brokers: Brokers
    bounds: Limits
    rack_names: Sequence[str | None]
    thresholds: Thresholds
    excluded: Array  # of each topic whether it stays where it is
    leaders_min: Mapping[int, int]  # of some topics, by index
    stored: Array  # of each slot the bytes that a copy of it has; `size` has its growth, too

    def broker_id(self, index: int) -> int:
        return int(self.brokers.ids[index])

    def name(self, partition: int) -> str:
        return f"{self.topics[self.problem.topic[partition]]}-{self.number[partition]}"


@dataclass(frozen=True, slots=True)
class Replicas:
    """The rows of a load table as arrays, in the order of topic, partition and place."""

    topics: Sequence[str]
    topic: Array  # of each partition
    number: Array
    start: Array
    broker: Array  # of each row: an index of brokers
    size: Array
    rates: Array  # of each partition
    in_failed_directory: Array
    stored: Array | None = None  # where it is another than `size`


def build(
    replicas: pa.Table,
    brokers: pa.Table,
    thresholds: Thresholds | None = None,
    scope: Scope | None = None,
) -> Cluster:
    """The cluster of a load table, whose rows may come in any order."""
    known = Brokers.of(brokers)
    return assemble(read_replicas(replicas, known), known, thresholds, scope)


def read_replicas(table: pa.Table, brokers: Brokers) -> Replicas:
    """Put the rows of a load table in order.

    The place of a replica in its partition's assignment is in the column `place`; without it the
    leader comes first, then the others by broker. Its bytes without growth are in the column
    `stored`; without it there is no growth.
    """
    column = table["topic"].combine_chunks().dictionary_encode()
    names = column.dictionary.to_pylist()
    order_of_names = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), np.int32)
    rank[order_of_names] = np.arange(len(names), dtype=np.int32)
    topic = rank[column.indices.to_numpy()] if len(names) else np.zeros(0, np.int32)
    number = table["partition"].to_numpy().astype(np.int32)
    ids = table["broker"].to_numpy()
    if "place" in table.column_names:
        place = table["place"].to_numpy()
    else:
        place = np.where(table["role"].to_numpy() & LEADS, -1, ids)
    order = np.lexsort((ids, place, number, topic))
    topic, number, ids = topic[order], number[order], ids[order]
    same = (topic[1:] == topic[:-1]) & (number[1:] == number[:-1])
    first = np.flatnonzero(np.concatenate(([True], ~same))) if len(topic) else np.zeros(0, np.int64)
    _refuse_twins(topic, number, ids, names, order_of_names)
    index = np.searchsorted(brokers.ids, ids)
    if len(ids) and (
        index.max() >= len(brokers.ids)
        or (brokers.ids[np.minimum(index, len(brokers.ids) - 1)] != ids).any()
    ):
        missing = sorted(set(ids.tolist()) - set(brokers.ids.tolist()))
        raise InvalidModel(f"broker {missing[0]} has replicas and no row among the brokers")
    rates = np.zeros((len(first), len(RATE_COLUMNS)), np.int64)
    for at, name in enumerate(RATE_COLUMNS):
        values = np.maximum(table[name].to_numpy()[order], 0)
        if len(first):
            rates[:, at] = np.maximum.reduceat(values, first)
    return Replicas(
        topics=[names[each] for each in order_of_names],
        topic=topic[first],
        number=number[first],
        start=np.append(first, len(topic)).astype(np.int32),
        broker=index.astype(np.int32),
        size=np.maximum(table["size"].to_numpy()[order], 0).astype(np.int64),
        rates=rates,
        in_failed_directory=_in_failed_directory(table, brokers, index, order),
        stored=table["stored"].to_numpy()[order] if "stored" in table.column_names else None,
    )


def _refuse_twins(
    topic: Array, number: Array, ids: Array, names: Sequence[str], order: Sequence[int]
) -> None:
    """Rows are in order of partition, not of broker: compare within a partition by sorting."""
    by_broker = np.lexsort((ids, number, topic))
    t, n, b = topic[by_broker], number[by_broker], ids[by_broker]
    twin = (t[1:] == t[:-1]) & (n[1:] == n[:-1]) & (b[1:] == b[:-1])
    if twin.any():
        at = int(np.argmax(twin))
        raise InvalidModel(f"{names[order[t[at]]]}-{n[at]} is on broker {b[at]} twice")


def _in_failed_directory(table: pa.Table, brokers: Brokers, index: Array, order: Array) -> Array:
    """Which replicas are in a directory that failed: one that its broker does not find is, too."""
    result = np.zeros(len(index), np.uint8)
    directory: Any = None
    for broker, failed in enumerate(brokers.failed_directories):
        if failed:
            if directory is None:
                directory = table["directory"].combine_chunks()
            inside = pc.or_(
                pc.is_in(directory, pa.array(list(failed), directory.type)), pc.is_null(directory)
            )
            result |= (inside.to_numpy(zero_copy_only=False)[order] & (index == broker)).astype(
                np.uint8
            )
    return result


def assemble(
    replicas: Replicas,
    brokers: Brokers,
    thresholds: Thresholds | None = None,
    scope: Scope | None = None,
) -> Cluster:
    """Join replicas and brokers with the limits that follow from both."""
    thresholds, scope = thresholds or Thresholds(), scope or Scope()
    receives = _receivers(brokers, scope)
    if not receives.any():
        raise InvalidModel("no broker is left that could receive a replica")
    (racks, rack_names), start = _racks(brokers), replicas.start
    partition = np.repeat(np.arange(len(start) - 1, dtype=np.int32), np.diff(start))
    group, allowed = _groups(replicas.topics, brokers, receives, scope)
    frozen = np.array([name in scope.excluded for name in replicas.topics], np.uint8)
    least = scope.leaders_min
    leaders_min = {at: least[name] for at, name in enumerate(replicas.topics) if least.get(name)}
    bounds = limits(_totals(replicas), brokers.capacity, receives, thresholds)
    share = np.maximum(bounds.share, 1).astype(np.float64)
    live = receives[:, None]
    disk = brokers.capacity[:, DISK]
    disk_before = np.zeros(len(brokers.ids), np.int64)
    np.add.at(disk_before, replicas.broker, replicas.size)
    topic_low, topic_high, topic_scale = _topic_limits(replicas, partition, receives, thresholds)
    problem = Problem(
        start=start,
        partition=partition,
        topic=replicas.topic,
        size=replicas.size,
        rates=replicas.rates,
        home=replicas.broker,
        first=start[:-1].copy(),
        must_leave=_must_leave(replicas, partition, brokers, allowed[group], frozen, scope),
        frozen=frozen | np.isin(np.arange(len(frozen)), list(leaders_min)),
        pinned=np.zeros(len(partition), np.uint8),
        group=group,
        allowed=allowed,
        rack=racks,
        receivers=np.flatnonzero(receives).astype(np.int32),
        low=bounds.low,
        high=bounds.high,
        wall=bounds.wall,
        scale=np.where(live, np.array(WEIGHTS) / share**2, 0.0),
        wall_scale=np.where(live, WALL_WEIGHT / share**2, 0.0),
        inverse_share=np.where(live, 1 / share, 0.0),
        disk_before=disk_before,
        disk_peak=np.where(disk > 0, disk * thresholds.disk_while_moving, UNLIMITED).astype(
            np.int64
        ),
        topic_low=topic_low,
        topic_high=topic_high,
        topic_scale=topic_scale,
        crowd_stride=len(brokers.ids) if topic_scale.any() else 0,
        mean_size=float(max(replicas.size.mean(), 1.0)) if len(partition) else 1.0,
        copy_price=float(thresholds.copy_price),
    )
    return Cluster(
        problem,
        replicas.topics,
        replicas.number,
        brokers,
        bounds,
        rack_names,
        thresholds,
        frozen,
        leaders_min,
        replicas.size if replicas.stored is None else replicas.stored,
    )


def _must_leave(
    replicas: Replicas,
    partition: Array,
    brokers: Brokers,
    allowed: Array,
    frozen: Array,
    scope: Scope,
) -> Array:
    """Which replicas may not stay where they are. An excluded topic leaves only brokers that are
    gone, or that are being emptied."""
    topic = replicas.topic[partition]
    outside = allowed[topic, replicas.broker] == 0
    gone = np.array([state != LIVE for state in brokers.states], bool)
    emptied = gone | np.isin(brokers.ids, list(scope.remove))
    excused = frozen[topic].astype(bool) & ~emptied[replicas.broker]
    result: Array = ((outside | (replicas.in_failed_directory > 0)) & ~excused).astype(np.uint8)
    return result


def _topic_limits(
    replicas: Replicas, partition: Array, receives: Array, thresholds: Thresholds
) -> tuple[Array, Array, Array]:
    """Of each topic the fewest and the most replicas on a broker, and what missing them weighs."""
    receivers = int(receives.sum())
    per_topic = np.bincount(replicas.topic[partition], minlength=len(replicas.topics))
    low, high = topic_limits(per_topic, receivers, thresholds)
    unit = np.maximum(per_topic / receivers, 1.0)
    scale = np.where(per_topic <= CROWD_MAX, TOPIC_WEIGHT / unit**2, 0.0)
    if len(replicas.topics) * len(receives) > CROWD_CELLS_MAX:
        scale[:] = 0.0
    return low, high, scale


def _receivers(brokers: Brokers, scope: Scope) -> Array:
    """Which brokers may receive replicas: alive, not to be removed, and among those named."""
    known = set(brokers.ids.tolist())
    for named in sorted(scope.remove | scope.only):
        if named not in known:
            raise InvalidModel(f"there is no broker {named}")
    live = np.array([state == LIVE for state in brokers.states], bool)
    live &= ~np.isin(brokers.ids, list(scope.remove))
    return live & np.isin(brokers.ids, list(scope.only)) if scope.only else live


def _racks(brokers: Brokers) -> tuple[Array, Sequence[str | None]]:
    """The rack of each broker as a number. A broker without one is a rack of its own."""
    names = sorted({rack for rack in brokers.racks if rack is not None})
    number = {name: at for at, name in enumerate(names)}
    alone = [rack is None for rack in brokers.racks]
    racks = [
        len(names) + at if rack is None else number[rack] for at, rack in enumerate(brokers.racks)
    ]
    return np.array(racks, np.int32), [*names, *([None] * len(alone))]


def _groups(
    topics: Sequence[str], brokers: Brokers, receives: Array, scope: Scope
) -> tuple[Array, Array]:
    """For each topic a row of the brokers that its replicas may come to."""
    rows = [receives.astype(np.uint8)]
    group = np.zeros(len(topics), np.int32)
    seen: dict[frozenset[int], int] = {}
    for at, topic in enumerate(topics):
        chosen = scope.sets.get(topic)
        if chosen is not None:
            if chosen not in seen:
                seen[chosen] = len(rows)
                rows.append((receives & np.isin(brokers.ids, list(chosen))).astype(np.uint8))
            group[at] = seen[chosen]
    return group, np.array(rows)


def _totals(replicas: Replicas) -> Array:
    """What all brokers bear together, in each dimension."""
    factor = np.diff(replicas.start).astype(np.int64)
    rate_in, out_leader, out_follower, cpu_leader, cpu_follower = replicas.rates.T
    followers = factor - 1
    return np.array(
        [
            (cpu_leader + cpu_follower * followers).sum(),
            (rate_in * factor).sum(),
            (out_leader + out_follower * followers).sum(),
            replicas.size.sum(),
            factor.sum(),
            len(factor),
            rate_in.sum(),
            (out_leader * factor).sum(),
        ],
        np.int64,
    )
