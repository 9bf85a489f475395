"""Reassignment plans as values: cost, progress, and what became of each partition."""

import pytest

from odradek.client.metadata import Metadata, Node
from odradek.operations.plan import (
    Cost,
    MoveState,
    Plan,
    ReplicationChange,
    Verification,
    compare,
    cost_of,
    progress_of,
    propose,
    require_alive,
    require_valid,
)
from odradek.placement import Broker, Ongoing
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

A, B, C = (TopicPartition("t", index) for index in range(3))
NO_COST = Cost({}, {}, {}, {})


def cluster(*ids: int) -> Metadata:
    return Metadata(nodes={id: Node(id, "h", 9092, None) for id in ids})


def test_bytes_come_from_the_leader() -> None:
    cost = cost_of({A: [1, 2]}, {A: [2, 3]}, {A: {1: 70, 2: 100}}, {A: 2})
    assert cost.rows() == [
        {"broker": 1, "gains": 0, "loses": 1, "receives_bytes": 0, "sends_bytes": 0},
        {"broker": 2, "gains": 0, "loses": 0, "receives_bytes": 0, "sends_bytes": 100},
        {"broker": 3, "gains": 1, "loses": 0, "receives_bytes": 100, "sends_bytes": 0},
    ]
    assert (cost.total_bytes, cost.replicas) == (100, 1)


def test_a_leader_that_does_not_answer_counts_as_large_as_the_largest_replica() -> None:
    assert cost_of({A: [1, 2]}, {A: [1, 3]}, {A: {2: 50}}, {A: 1}).total_bytes == 50


def test_progress_counts_what_has_arrived_and_never_more_than_the_whole() -> None:
    ongoing = {A: Ongoing([1, 2, 3], adding=[2, 3])}
    progress = progress_of(ongoing, {A: {1: 100, 2: 40, 3: 120}}, {A: 1})
    assert (progress.done_bytes, progress.total_bytes, progress.percent) == (140, 200, 70.0)
    assert progress_of({}, {}, {}).percent == 100.0


def test_a_change_of_the_replication_factor_is_pointed_out_once_per_topic() -> None:
    plan = Plan({A: [1, 2, 3], B: [2, 3, 1], C: [3]}, {A: [1], B: [2], C: [1]}, NO_COST)
    (change,) = plan.replication_changes()
    assert change == ReplicationChange("t", 3, 1, 2)
    assert "from 3 to 1" in str(change)
    assert plan.rollback == {A: [1, 2, 3], B: [2, 3, 1], C: [3]}


def test_a_cancelled_move_is_not_completed() -> None:
    wanted = {A: [1], B: [2], C: [3]}
    results = compare(wanted, {A: [1], B: [1], C: [1, 3]}, ongoing=[C])
    assert [results[tp].state for tp in (A, B, C)] == [
        MoveState.COMPLETED,
        MoveState.NOT_MOVED,
        MoveState.IN_PROGRESS,
    ]
    assert str(results[B]) == "not moved: its replicas are 1"
    verification = Verification(results)
    assert not verification.is_complete
    assert list(verification.unfinished) == [B, C]


def test_deleted_partitions_and_directories_still_to_change() -> None:
    results = compare({A: [1], B: [2]}, {A: [1]}, ongoing=[], between_directories=[A])
    assert results[A].state is MoveState.BETWEEN_DIRECTORIES
    assert results[B].state is MoveState.MISSING


def test_the_fewest_moves_or_everything_from_scratch() -> None:
    current = {A: [1], B: [1], C: [2]}
    brokers = [Broker(1), Broker(2), Broker(3)]
    assert len(propose(current, brokers)) == 1
    both = propose(current, brokers, from_scratch=True, replication_factor=2)
    assert [len(both[tp]) for tp in (A, B, C)] == [2, 2, 2]


def test_brokers_that_are_not_alive_are_refused() -> None:
    with pytest.raises(KafkaError, match="brokers 77, 78 are not alive; 1, 2 are") as caught:
        require_alive(cluster(1, 2), [1, 77, 78])
    assert caught.value.error is ErrorCode.BROKER_NOT_AVAILABLE
    with pytest.raises(KafkaError, match="broker 9, which is not alive"):
        require_valid(cluster(1), {A: [1]}, {A: [9]})
    with pytest.raises(KafkaError, match="t-1 does not exist"):
        require_valid(cluster(1), {A: [1]}, {B: [1]})
