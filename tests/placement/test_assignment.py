"""Automatic assignment: literal examples, the arithmetic restated, each promise as a property."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.placement import (
    Broker,
    RackAwareMode,
    assign_replicas,
    brokers_to_use,
    rack_alternated,
)
from odradek.wire.errors import ErrorCode, KafkaError


def plain(count: int) -> list[Broker]:
    return [Broker(broker) for broker in range(count)]


def restated(
    brokers: list[Broker], partitions: int, factor: int, start: int, shift: int, first: int
) -> dict[int, list[int]]:
    """docs/spec/controller-and-replication.md section 1.1, sentence by sentence, without a
    thought for speed."""
    rack_of = {broker.id: broker.rack for broker in brokers}
    aware = any(rack_of.values())
    ids = rack_alternated(brokers) if aware else [broker.id for broker in brokers]
    count = len(ids)
    racks = len(set(rack_of.values()))
    result = {}
    for partition in range(max(0, first), max(0, first) + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        leader = (partition + start) % count
        replicas = [ids[leader]]
        step = 0
        while len(replicas) < factor:
            scaled = shift * racks if aware else shift
            candidate = ids[(leader + 1 + (scaled + step) % (count - 1)) % count]
            step += 1
            used = {rack_of[replica] for replica in replicas}
            new_rack = rack_of[candidate] not in used or len(used) == racks
            if not aware or (new_rack and candidate not in replicas):
                replicas.append(candidate)
        result[partition] = replicas
    return result


def test_the_worked_example_of_the_first_seed() -> None:
    assert assign_replicas(plain(5), 10, 3, fixed_start=0) == {
        0: [0, 1, 2],
        1: [1, 2, 3],
        2: [2, 3, 4],
        3: [3, 4, 0],
        4: [4, 0, 1],
        5: [0, 2, 3],
        6: [1, 3, 4],
        7: [2, 4, 0],
        8: [3, 0, 1],
        9: [4, 1, 2],
    }


def test_its_table_by_broker() -> None:
    rows = [
        ["p0", "p1", "p2", "p3", "p4"],
        ["p5", "p6", "p7", "p8", "p9"],
        ["p4", "p0", "p1", "p2", "p3"],
        ["p8", "p9", "p5", "p6", "p7"],
        ["p3", "p4", "p0", "p1", "p2"],
        ["p7", "p8", "p9", "p5", "p6"],
    ]
    assignment = assign_replicas(plain(5), 10, 3, fixed_start=0)
    for index, row in enumerate(rows):
        place, block = divmod(index, 2)
        for broker, name in enumerate(row):
            partition = int(name.removeprefix("p"))
            assert partition // 5 == block
            assert assignment[partition][place] == broker


RACKED = [
    Broker(0, "rack1"),
    Broker(1, "rack3"),
    Broker(2, "rack3"),
    Broker(3, "rack2"),
    Broker(4, "rack2"),
    Broker(5, "rack1"),
]


def test_racks_take_turns() -> None:
    assert rack_alternated(RACKED) == [0, 3, 1, 5, 4, 2]
    nine = [Broker(broker, f"rack{broker // 3 + 1}") for broker in range(9)]
    assert rack_alternated(reversed(nine)) == [0, 3, 6, 1, 4, 7, 2, 5, 8]
    uneven = [Broker(7, "a"), Broker(1, "b"), Broker(3, "b"), Broker(2, "b")]
    assert rack_alternated(uneven) == [7, 1, 2, 3]
    assert rack_alternated([]) == []


def test_racks_are_ordered_as_java_orders_strings() -> None:
    # By code point the second would come last; by UTF-16 unit, its surrogate comes first.
    assert rack_alternated([Broker(1, "\uff5a"), Broker(2, "\U0001f680")]) == [2, 1]


def test_a_rack_aware_example() -> None:
    assert assign_replicas(RACKED, 7, 3, fixed_start=0) == {
        0: [0, 3, 1],
        1: [3, 1, 5],
        2: [1, 5, 4],
        3: [5, 4, 2],
        4: [4, 2, 0],
        5: [2, 0, 3],
        6: [0, 4, 2],
    }


def kafka_answers() -> Iterator[tuple[str, ...]]:
    for line in (Path(__file__).parent / "kafka_assignments.txt").read_text().splitlines():
        if not line.startswith("#"):
            yield tuple(part.strip() for part in line.split("|"))


@pytest.mark.parametrize("answer", list(kafka_answers()), ids="|".join)
def test_kafka_itself_answers_the_same(answer: tuple[str, ...]) -> None:
    listed, partitions, factor, start, first, expected = answer
    brokers = [
        Broker(int(broker), rack or None)
        for broker, _, rack in (entry.partition(":") for entry in listed.split(","))
    ]
    assignment = assign_replicas(
        brokers, int(partitions), int(factor), fixed_start=int(start), start_partition=int(first)
    )
    written = (f"{part}={','.join(map(str, replicas))}" for part, replicas in assignment.items())
    assert "; ".join(written) == expected


def test_an_expansion_at_a_multiple_of_the_broker_count_shifts_at_once() -> None:
    whole = assign_replicas(plain(3), 6, 2, fixed_start=0)
    assert assign_replicas(plain(3), 3, 2, fixed_start=0, start_partition=3) == {
        partition: whole[partition] for partition in (3, 4, 5)
    }


def test_one_broker() -> None:
    assert assign_replicas([Broker(4)], 3, 1) == {0: [4], 1: [4], 2: [4]}
    assert assign_replicas([Broker(4, "r")], 2, 1) == {0: [4], 1: [4]}


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "error"),
    [
        ([], 0, 0, ErrorCode.INVALID_PARTITIONS),
        (plain(3), 0, 9, ErrorCode.INVALID_PARTITIONS),
        (plain(3), -1, 1, ErrorCode.INVALID_PARTITIONS),
        (plain(3), 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (plain(3), 1, -1, ErrorCode.INVALID_REPLICATION_FACTOR),
        (plain(3), 1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([Broker(0, "a"), Broker(1)], 1, 3, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([Broker(0, "a"), Broker(1)], 1, 1, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_refusals_in_their_order(
    brokers: list[Broker], partitions: int, factor: int, error: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as caught:
        assign_replicas(brokers, partitions, factor)
    assert caught.value.error is error
    assert caught.value.message


@st.composite
def clusters(draw: st.DrawFn) -> list[Broker]:
    ids = draw(st.lists(st.integers(0, 999), min_size=1, max_size=14, unique=True))
    racks = draw(st.integers(0, 5))
    known: list[str | None] = [f"rack{number}" for number in range(racks)]
    names = st.sampled_from(known or [None])
    return sorted(Broker(broker, draw(names)) for broker in ids)


@given(st.data())
@settings(max_examples=200)
def test_the_arithmetic_is_exact(data: st.DataObject) -> None:
    brokers = data.draw(clusters())
    factor = data.draw(st.integers(1, len(brokers)))
    partitions = data.draw(st.integers(1, 60))
    start = data.draw(st.integers(0, 40))
    first = data.draw(st.integers(0, 40))
    assert assign_replicas(
        brokers, partitions, factor, fixed_start=start, start_partition=first
    ) == restated(brokers, partitions, factor, start, start, first)


@given(clusters(), st.integers(), st.integers(1, 40))
@settings(max_examples=60)
def test_start_and_shift_are_drawn_apart(brokers: list[Broker], seed: int, partitions: int) -> None:
    rng = Random(seed)
    start, shift = rng.randrange(len(brokers)), rng.randrange(len(brokers))
    drawn = assign_replicas(brokers, partitions, len(brokers), rng=Random(seed))
    assert drawn == restated(brokers, partitions, len(brokers), start, shift, 0)


@given(st.data())
@settings(max_examples=150)
def test_leaders_are_even_and_replicas_are_distinct(data: st.DataObject) -> None:
    brokers = data.draw(clusters())
    factor = data.draw(st.integers(1, len(brokers)))
    partitions = data.draw(st.integers(1, 100))
    assignment = assign_replicas(brokers, partitions, factor, rng=Random(partitions))
    assert list(assignment) == list(range(partitions))
    assert all(len(set(replicas)) == factor for replicas in assignment.values())
    leaders = Counter({broker.id: 0 for broker in brokers})
    leaders.update(replicas[0] for replicas in assignment.values())
    assert max(leaders.values()) - min(leaders.values()) <= 1


@given(st.integers(1, 12), st.integers(1, 8), st.data())
@settings(max_examples=80)
def test_without_racks_whole_rounds_are_perfectly_even(
    count: int, rounds: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, count))
    assignment = assign_replicas(plain(count), count * rounds, factor, rng=Random(rounds))
    replicas = Counter(broker for brokers in assignment.values() for broker in brokers)
    assert set(replicas.values()) == {rounds * factor}


@given(st.integers(3, 12), st.integers(1, 60), st.data())
@settings(max_examples=80)
def test_without_racks_a_part_of_a_round_is_even_within_the_factor(
    count: int, partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, count))
    assignment = assign_replicas(plain(count), partitions, factor, rng=Random(partitions))
    replicas = Counter(dict.fromkeys(range(count), 0))
    replicas.update(broker for brokers in assignment.values() for broker in brokers)
    assert max(replicas.values()) - min(replicas.values()) <= factor


@given(st.integers(3, 12), st.integers(2, 20))
def test_followers_of_one_leader_are_spread(count: int, rounds: int) -> None:
    """A leader's first followers go once round all the others before one comes again."""
    assignment = assign_replicas(plain(count), count * rounds, 2, fixed_start=0)
    for leader in range(count):
        seconds = Counter(second for first, second in assignment.values() if first == leader)
        assert max(seconds.values()) == -(-rounds // (count - 1))


@given(st.data())
@settings(max_examples=150)
def test_racks_are_kept_apart(data: st.DataObject) -> None:
    brokers = [broker for broker in data.draw(clusters()) if broker.rack is not None]
    if not brokers:
        return
    factor = data.draw(st.integers(1, len(brokers)))
    rack_of = dict(brokers)
    racks = len(set(rack_of.values()))
    assignment = assign_replicas(brokers, 50, factor, rng=Random(factor))
    for replicas in assignment.values():
        assert len({rack_of[replica] for replica in replicas}) == min(factor, racks)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 6))
@settings(max_examples=60)
def test_equal_racks_and_a_replica_in_each_are_perfectly_even(
    racks: int, size: int, rounds: int
) -> None:
    brokers = [Broker(broker, f"r{broker % racks}") for broker in range(racks * size)]
    assignment = assign_replicas(brokers, len(brokers) * rounds, racks, rng=Random(rounds))
    replicas = Counter(broker for chosen in assignment.values() for broker in chosen)
    assert set(replicas.values()) == {rounds * racks}


def test_a_long_run_of_one_rack_is_passed_over_exactly() -> None:
    uneven = [Broker(broker, f"r{min(4, broker)}") for broker in range(40)]
    for start in range(0, 40, 7):
        assert assign_replicas(uneven, 200, 4, fixed_start=start) == restated(
            uneven, 200, 4, start, start, 0
        )


MIXED = [Broker(3, "b"), Broker(1, "a"), Broker(2)]


def test_modes_sort_brokers_and_keep_or_drop_racks() -> None:
    racked = [Broker(2, "b"), Broker(1, "a")]
    assert brokers_to_use(racked) == [Broker(1, "a"), Broker(2, "b")]
    assert brokers_to_use(racked, RackAwareMode.SAFE) == [Broker(1, "a"), Broker(2, "b")]
    assert brokers_to_use(racked, RackAwareMode.DISABLED) == [Broker(1), Broker(2)]
    assert brokers_to_use(MIXED, RackAwareMode.SAFE) == [Broker(1), Broker(2), Broker(3)]
    assert brokers_to_use(MIXED, RackAwareMode.DISABLED) == [Broker(1), Broker(2), Broker(3)]
    assert brokers_to_use(plain(2)) == plain(2)
    with pytest.raises(KafkaError) as caught:
        brokers_to_use(MIXED)
    assert caught.value.error is ErrorCode.UNKNOWN_SERVER_ERROR
