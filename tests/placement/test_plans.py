"""Generate, the move map and the throttle strings."""

from random import Random

import pytest

from odradek.placement import (
    Broker,
    Move,
    Ongoing,
    Throttles,
    assign_replicas,
    generate,
    move_map,
    throttles,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition


def at(name: str, partition: int) -> TopicPartition:
    return TopicPartition(name, partition)


def test_generate_places_each_topic_from_scratch() -> None:
    brokers = [Broker(3), Broker(1), Broker(2)]
    current = {at("b", 0): [1], at("a", 0): [1, 2], at("a", 1): [1, 2], at("a", 2): [1, 2]}
    proposed = generate(current, brokers, rng=Random(7))
    rng = Random(7)
    a = assign_replicas(sorted(brokers), 3, 2, rng=rng)
    b = assign_replicas(sorted(brokers), 1, 1, rng=rng)
    assert proposed == {
        **{at("a", index): replicas for index, replicas in a.items()},
        **{at("b", index): replicas for index, replicas in b.items()},
    }


def test_generate_with_racks_or_without() -> None:
    brokers = [Broker(1, "a"), Broker(2, "a"), Broker(3, "b")]
    current = {at("t", partition): [1, 2] for partition in range(20)}
    assert all(3 in replicas for replicas in generate(current, brokers).values())
    plain = generate(current, brokers, rack_aware=False, rng=Random(1))
    assert not all(3 in replicas for replicas in plain.values())
    mixed = [*brokers, Broker(4)]
    assert generate(current, mixed, rack_aware=False)
    with pytest.raises(KafkaError):
        generate(current, mixed)


def test_the_move_map() -> None:
    moves = move_map(
        current={at("t", 0): [1, 2], at("t", 1): [2, 3, 4]},
        proposed={at("t", 0): [2, 5], at("t", 1): [2, 6]},
        ongoing={
            at("t", 1): Ongoing(replicas=[2, 3, 4], adding=[4]),
            at("u", 0): Ongoing(replicas=[8, 9], adding=[9]),
        },
    )
    assert moves == {
        at("t", 0): Move(frozenset({1, 2}), frozenset({5})),
        at("t", 1): Move(frozenset({2, 3}), frozenset({6})),
        at("u", 0): Move(frozenset({8}), frozenset({9})),
    }


def test_a_move_from_nowhere_is_refused() -> None:
    layouts: list[dict[TopicPartition, list[int]]] = [{}, {at("t", 0): []}]
    for current in layouts:
        with pytest.raises(KafkaError) as caught:
            move_map(current, {at("t", 0): [1]})
        assert caught.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_throttle_strings_are_sorted_as_strings() -> None:
    moves = move_map(
        current={at("t", 2): [1, 10], at("t", 10): [2], at("u", 0): [3]},
        proposed={at("t", 2): [1, 11, 7], at("t", 10): [3], at("u", 0): [3]},
    )
    assert throttles(moves) == Throttles(
        leaders={"t": "10:2,2:1,2:10", "u": "0:3"},
        followers={"t": "10:3,2:11,2:7", "u": ""},
        brokers=frozenset({1, 2, 3, 7, 10, 11}),
    )
