"""plan_minimal: level, rack safe, frugal, the same every time, and honest about why."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.placement import (
    Broker,
    MinimalPlan,
    Reason,
    ReplicaMove,
    assign_replicas,
    generate,
    plan_minimal,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

Layout = dict[TopicPartition, list[int]]


def placed(brokers: Sequence[Broker], partitions: int, factor: int, topic: str = "t") -> Layout:
    assignment = assign_replicas(brokers, partitions, factor, rng=Random(partitions))
    return {TopicPartition(topic, index): replicas for index, replicas in assignment.items()}


def of(count: int, racks: int = 0) -> list[Broker]:
    return [Broker(broker, f"r{broker % racks}" if racks else None) for broker in range(count)]


def loads(layout: Mapping[TopicPartition, Sequence[int]], brokers: Sequence[Broker]) -> list[int]:
    counts = Counter({broker.id: 0 for broker in brokers})
    counts.update(broker for replicas in layout.values() for broker in replicas)
    return list(counts.values())


def leader_loads(layout: Layout, brokers: Sequence[Broker]) -> list[int]:
    return loads({partition: replicas[:1] for partition, replicas in layout.items()}, brokers)


def spread(counts: Sequence[int]) -> int:
    return max(counts) - min(counts)


def rack_safe(layout: Layout, brokers: Sequence[Broker]) -> bool:
    rack_of = {broker.id: broker.id if broker.rack is None else broker.rack for broker in brokers}
    racks = len(set(rack_of.values()))
    return all(
        len({rack_of[broker] for broker in replicas}) == min(racks, len(replicas))
        for replicas in layout.values()
    )


def moved(current: Layout, proposed: Layout) -> int:
    return sum(len(set(proposed[partition]) - set(current[partition])) for partition in current)


def lower_bound(current: Layout, brokers: Sequence[Broker]) -> int:
    """What no plan can do without: replicas that must leave, or the excess, or the shortage."""
    targets = {broker.id for broker in brokers}
    total = sum(map(len, current.values()))
    floor, ceiling = total // len(brokers), -(-total // len(brokers))
    counts = Counter(broker for replicas in current.values() for broker in replicas)
    leaving = sum(count for broker, count in counts.items() if broker not in targets)
    excess = sum(max(0, counts[broker] - ceiling) for broker in targets)
    shortage = sum(max(0, floor - counts[broker]) for broker in targets)
    return max(leaving + excess, shortage)


def check(plan: MinimalPlan, current: Layout, brokers: Sequence[Broker]) -> None:
    """All that a plan promises whatever the input."""
    assert list(plan.proposed) == sorted(current)
    targets = {broker.id for broker in brokers}
    for replicas in plan.proposed.values():
        assert set(replicas) <= targets
        assert len(set(replicas)) == len(replicas)
    assert rack_safe(plan.proposed, brokers)
    assert plan.replicas_moved == moved(current, plan.proposed)
    assert plan.changes == {
        partition: replicas
        for partition, replicas in plan.proposed.items()
        if replicas != current[partition]
    }
    for partition, replicas in plan.proposed.items():
        moves = [move for move in plan.moves if move.partition == partition]
        sources = {move.source for move in moves} - {None}
        destinations = {move.destination for move in moves} - {None}
        assert set(current[partition]) - sources | destinations == set(replicas)
    again = plan_minimal(plan.proposed, brokers)
    assert again.moves == () and again.changes == {}, "a level layout is left alone"
    assert plan_minimal(dict(reversed(current.items())), brokers[::-1]).proposed == plan.proposed


def test_one_more_broker_takes_only_its_share() -> None:
    current = placed(of(6), 90, 3)
    brokers = of(7)
    plan = plan_minimal(current, brokers)
    check(plan, current, brokers)
    assert plan.replicas_moved == 90 * 3 // 7 == lower_bound(current, brokers)
    assert {move.destination for move in plan.moves} == {6}
    assert plan.reasons() == {Reason.BALANCE: plan.replicas_moved}
    assert spread(loads(plan.proposed, brokers)) <= 1
    assert spread(leader_loads(plan.proposed, brokers)) <= 1


def test_one_more_broker_takes_from_its_rack_alone_when_every_rack_needs_a_replica() -> None:
    current = placed(of(6, racks=3), 90, 3)
    brokers = of(7, racks=3)
    plan = plan_minimal(current, brokers)
    check(plan, current, brokers)
    assert plan.replicas_moved == 30
    assert {move.source for move in plan.moves} == {0, 3}
    assert loads(plan.proposed, brokers) == [30, 45, 45, 30, 45, 45, 30]
    assert spread(leader_loads(plan.proposed, brokers)) <= 1


def test_it_moves_far_less_than_generate() -> None:
    current = placed(of(10), 200, 3)
    brokers = of(11)
    anew = generate(current, brokers, rng=Random(1))
    assert plan_minimal(current, brokers).replicas_moved * 5 < moved(current, anew)


def test_only_a_leaving_broker_gives_up_replicas() -> None:
    current = placed(of(6), 120, 3)
    brokers = of(5)
    plan = plan_minimal(current, brokers)
    check(plan, current, brokers)
    assert plan.replicas_moved == 60
    assert {move.source for move in plan.moves} == {5}
    assert plan.reasons() == {Reason.BROKER_LEAVES: 60}
    assert spread(loads(plan.proposed, brokers)) <= 1
    assert spread(leader_loads(plan.proposed, brokers)) <= 1


def test_one_broker_replaced_by_another() -> None:
    current = placed(of(5), 50, 2)
    brokers = [*of(4), Broker(9)]
    plan = plan_minimal(current, brokers)
    check(plan, current, brokers)
    assert plan.replicas_moved == 20
    assert all(move.source == 4 and move.destination == 9 for move in plan.moves)


def test_a_level_layout_as_kafka_makes_it_stays() -> None:
    for racks in (0, 3):
        brokers = of(6, racks)
        plan = plan_minimal(placed(brokers, 60, 3), brokers)
        assert plan.moves == ()
        assert plan.leaders_changed == 0


def test_racks_are_made_safe_with_one_move_each() -> None:
    brokers = [Broker(1, "a"), Broker(2, "a"), Broker(3, "b"), Broker(4, "b")]
    current = {
        TopicPartition("t", 0): [1, 2],
        TopicPartition("t", 1): [3, 4],
        TopicPartition("t", 2): [1, 3],
        TopicPartition("t", 3): [4, 2],
    }
    plan = plan_minimal(current, brokers)
    check(plan, current, brokers)
    assert plan.reasons() == {Reason.RACK: 2}
    assert loads(plan.proposed, brokers) == [2, 2, 2, 2]


def test_a_rack_of_one_takes_what_it_must() -> None:
    """Two racks, one of a single broker: it has to have a replica of everything."""
    brokers = [Broker(1, "a"), Broker(2, "b"), Broker(3, "b"), Broker(4, "b")]
    current = {TopicPartition("t", index): [2, 3] for index in range(9)}
    plan = plan_minimal(current, brokers)
    check(plan, current, brokers)
    assert loads(plan.proposed, brokers) == [9, 3, 3, 3]
    assert sorted(leader_loads(plan.proposed, brokers)) == [2, 2, 2, 3]


def test_a_chain_reaches_what_no_direct_move_can() -> None:
    """Broker 1 has too much and 4 too little, but all that 1 has is in the rack of 4 already."""
    brokers = [Broker(1, "a"), Broker(2, "b"), Broker(4, "c"), Broker(5, "c")]
    current = {
        TopicPartition("t", 0): [1, 5],
        TopicPartition("t", 1): [1, 5],
        TopicPartition("t", 2): [1, 5],
        TopicPartition("t", 3): [2, 5],
        TopicPartition("t", 4): [2, 1],
    }
    assert loads(current, brokers) == [4, 2, 0, 4]
    plan = plan_minimal(current, brokers)
    check(plan, current, brokers)
    assert sorted(loads(plan.proposed, brokers)) == [2, 2, 3, 3]


def test_the_replication_factor_grows_and_shrinks() -> None:
    brokers = of(5)
    two, three = placed(brokers, 20, 2), placed(brokers, 20, 3)
    grown = plan_minimal(two, brokers, replication_factor=3)
    assert grown.reasons() == {Reason.REPLICATION_FACTOR: 20}
    assert grown.replicas_moved == 20
    assert all(move.source is None for move in grown.moves)
    assert spread(loads(grown.proposed, brokers)) == 0
    shrunk = plan_minimal(three, brokers, replication_factor=2)
    assert shrunk.reasons() == {Reason.REPLICATION_FACTOR: 20}
    assert shrunk.replicas_moved == 0
    assert spread(loads(shrunk.proposed, brokers)) == 0


def test_followers_who_would_take_over_are_spread() -> None:
    """All partitions have the same leader and the same successor: leaders and successors spread."""
    brokers = of(4)
    current = {TopicPartition("t", index): [0, 1, 2, 3] for index in range(48)}
    plan = plan_minimal(current, brokers)
    assert plan.moves == ()
    assert leader_loads(plan.proposed, brokers) == [12] * 4
    for leader in range(4):
        seconds = Counter(brokers[1] for brokers in plan.proposed.values() if brokers[0] == leader)
        assert sorted(seconds.values()) == [4, 4, 4]
    check(plan, current, brokers)


def test_topics_move_in_proportion() -> None:
    brokers = of(4)
    current = {**placed(brokers, 40, 1, "big"), **placed(brokers, 40, 1, "other")}
    plan = plan_minimal(current, [*brokers, Broker(4)])
    by_topic = Counter(move.partition.topic for move in plan.moves)
    assert by_topic == {"big": 8, "other": 8}


def test_moves_say_why() -> None:
    current = {TopicPartition("t", 0): [1, 9], TopicPartition("t", 1): [1, 2]}
    plan = plan_minimal(current, [Broker(1), Broker(2)])
    assert plan.moves == (ReplicaMove(TopicPartition("t", 0), 9, 2, Reason.BROKER_LEAVES),)
    assert Reason.BROKER_LEAVES.value == "its broker is not among the targets"


def test_refusals() -> None:
    two = {TopicPartition("t", 0): [1, 2]}
    for brokers in ([], [Broker(1)]):
        with pytest.raises(KafkaError) as caught:
            plan_minimal(two, brokers)
        assert caught.value.error is ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(KafkaError) as caught:
        plan_minimal(two, [Broker(1, "a"), Broker(2)])
    assert caught.value.error is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(KafkaError):
        plan_minimal({TopicPartition("t", 0): []}, [Broker(1)])
    assert plan_minimal({}, []).proposed == {}


@st.composite
def layouts(draw: st.DrawFn, count_max: int, partitions_max: int) -> tuple[Layout, list[Broker]]:
    """A random layout on some brokers, and random targets that share some of them."""
    racks = draw(st.integers(0, 4))
    known: list[str | None] = [f"r{number}" for number in range(racks)]
    names = st.sampled_from(known or [None])
    ids = draw(st.lists(st.integers(0, 9), min_size=1, max_size=count_max, unique=True))
    brokers = [Broker(broker, draw(names)) for broker in sorted(ids)]
    factor = draw(st.integers(1, min(3, len(brokers))))
    replicas = st.lists(st.integers(0, 9), min_size=factor, max_size=factor, unique=True)
    lists = draw(st.lists(replicas, min_size=1, max_size=partitions_max))
    return {TopicPartition("t", index): chosen for index, chosen in enumerate(lists)}, brokers


@given(layouts(10, 40))
@settings(max_examples=150)
def test_every_plan_keeps_the_promises(case: tuple[Layout, list[Broker]]) -> None:
    current, brokers = case
    plan = plan_minimal(current, brokers)
    check(plan, current, brokers)
    assert plan.replicas_moved >= lower_bound(current, brokers) or any(b.rack for b in brokers)
    if not any(broker.rack for broker in brokers):
        assert spread(loads(plan.proposed, brokers)) <= 1
        assert spread(leader_loads(plan.proposed, brokers)) <= 1
        assert plan.replicas_moved == lower_bound(current, brokers)


@given(st.integers(2, 4), st.integers(2, 3), st.integers(10, 80), st.data())
@settings(max_examples=60)
def test_with_equal_racks_replicas_and_leaders_are_level(
    racks: int, size: int, partitions: int, data: st.DataObject
) -> None:
    brokers = of(racks * size, racks)
    factor = data.draw(st.integers(1, min(racks, 3)))
    replicas = st.lists(st.integers(0, len(brokers)), min_size=factor, max_size=factor, unique=True)
    current = {TopicPartition("t", index): data.draw(replicas) for index in range(partitions)}
    plan = plan_minimal(current, brokers)
    assert rack_safe(plan.proposed, brokers)
    assert spread(loads(plan.proposed, brokers)) <= 1
    assert spread(leader_loads(plan.proposed, brokers)) <= 1


def best_possible(current: Layout, brokers: Sequence[Broker]) -> tuple[int, int]:
    """By trying everything: the least sum of squared loads, and the fewest moves that reach it."""
    ids = [broker.id for broker in brokers]
    choices = [
        [
            (chosen, len(set(chosen) - set(replicas)))
            for chosen in combinations(ids, len(replicas))
            if rack_safe({TopicPartition("t", 0): list(chosen)}, brokers)
        ]
        for replicas in current.values()
    ]
    best = (1 << 30, 1 << 30)
    for combination in product(*choices):
        counts = Counter(broker for chosen, _ in combination for broker in chosen)
        squares = sum(count * count for count in counts.values())
        best = min(best, (squares, sum(cost for _, cost in combination)))
    return best


@given(layouts(5, 4))
@settings(max_examples=150)
def test_no_layout_is_more_level_and_none_costs_less(case: tuple[Layout, list[Broker]]) -> None:
    current, brokers = case
    plan = plan_minimal(current, brokers)
    squares, cost = best_possible(current, brokers)
    assert sum(count * count for count in loads(plan.proposed, brokers)) == squares
    assert plan.replicas_moved == cost
