"""Manual assignments and new partitions: what is refused, and with which code."""

from collections.abc import Mapping, Sequence

import pytest

from odradek.placement import (
    Broker,
    assign_replicas,
    new_partitions,
    validate_manual_assignment,
)
from odradek.wire.errors import ErrorCode, KafkaError

BROKERS = [Broker(4), Broker(1), Broker(2), Broker(3)]


@pytest.mark.parametrize(
    "assignment",
    [
        {0: [1]},
        {0: [1, 2], 1: [2, 1]},
        {1: [7, 8], 0: [9, 7], 2: [100, 200]},  # nobody knows these brokers, and that is allowed
    ],
)
def test_good_manual_assignments(assignment: Mapping[int, Sequence[int]]) -> None:
    validate_manual_assignment(assignment)


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ({}, "same number"),
        ({0: [1, 2], 1: [1]}, "same number"),
        ({0: []}, "no replica"),
        ({0: [1, 1]}, "twice"),
        ({0: [1], 1: [2], 3: [3]}, "0 to 2"),
        ({1: [1]}, "0 to 0"),
        ({0: [1], 3: [1], -4: [1]}, "0 to 2"),
    ],
)
def test_bad_manual_assignments(assignment: Mapping[int, Sequence[int]], says: str) -> None:
    with pytest.raises(KafkaError, match=says) as caught:
        validate_manual_assignment(assignment)
    assert caught.value.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_expansion_starts_from_partition_zero() -> None:
    current = {0: [2, 3], 1: [3, 1], 2: [1, 2]}
    # Broker 2 is second of 1, 2, 3, 4: start and shift are 1, partitions go on from 3.
    assert new_partitions("t", current, BROKERS, 6) == assign_replicas(
        sorted(BROKERS), 3, 2, fixed_start=1, start_partition=3
    )
    assert new_partitions("t", current, BROKERS, 5) == {3: [1, 3], 4: [2, 1]}


def test_expansion_starts_from_the_next_broker_when_the_first_is_gone() -> None:
    brokers = [Broker(1), Broker(5), Broker(9)]
    assert new_partitions("t", {0: [4]}, brokers, 2) == {1: [9]}  # 5 is at index 1
    assert new_partitions("t", {0: [10]}, brokers, 2) == {1: [5]}  # none: index 0


def test_expansion_respects_racks() -> None:
    brokers = [Broker(1, "a"), Broker(2, "a"), Broker(3, "b")]
    for replicas in new_partitions("t", {0: [1, 3]}, brokers, 30).values():
        assert 3 in replicas
    with pytest.raises(KafkaError) as caught:
        new_partitions("t", {0: [1]}, [Broker(1, "a"), Broker(2)], 2)
    assert caught.value.error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_manual_expansion() -> None:
    added = new_partitions("t", {0: [1, 2]}, BROKERS, 3, [[3, 4], (2, 1)])
    assert added == {1: [3, 4], 2: [2, 1]}


@pytest.mark.parametrize(
    ("current", "count", "manual", "error"),
    [
        ({1: [1]}, 3, None, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({}, 3, None, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({0: [1]}, 1, None, ErrorCode.INVALID_PARTITIONS),
        ({0: [1], 1: [2]}, 1, None, ErrorCode.INVALID_PARTITIONS),
        ({0: [1]}, -1, [[9]], ErrorCode.INVALID_PARTITIONS),
        ({0: [1, 2]}, 2, [[3, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 2]}, 3, [[3, 4]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 2]}, 2, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 2]}, 2, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 2]}, 2, [[3, 3]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 2]}, 2, [[3]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 2, 3, 4, 5]}, 2, None, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_bad_expansions(
    current: dict[int, list[int]], count: int, manual: list[list[int]] | None, error: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as caught:
        new_partitions("t", current, BROKERS, count, manual)
    assert caught.value.error is error
