"""Preferred leaders: who is away from home, what an operator may ask.

docs/spec/controller-and-replication.md section 4.6.
"""

import pytest

from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.context import ControllerContext
from odradek.controller.elect_leaders import imbalanced, refusal
from odradek.controller.elections import ElectionType
from odradek.store.payloads import BrokerRegistration, Endpoint, LeaderAndIsr
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition


@pytest.fixture
def context() -> ControllerContext:
    context = ControllerContext()
    for id in (1, 2):
        context.brokers[id] = BrokerRegistration(id, id, (Endpoint("h", id),))
    return context


def fill(context: ControllerContext, topic: str, count: int, away: int, isr: int = 1) -> None:
    """Partitions whose first replica is 1; `away` of them are led by 2."""
    for number in range(count):
        tp = TopicPartition(topic, number)
        partition = context.set_assignment(tp, ReplicaAssignment([1, 2]))
        leader = 2 if number < away else 1
        context.set_leader_and_isr(partition, LeaderAndIsr(leader, 0, (2, isr), 1))


@pytest.mark.parametrize(
    ("count", "away", "chosen"),
    [
        (10, 0, 0),
        (10, 1, 0),  # exactly ten per cent is tolerated
        (10, 2, 2),
        (9, 1, 1),  # more than ten per cent
        (1, 1, 1),
        (20, 2, 0),
        (20, 3, 3),
    ],
)
def test_more_than_the_percentage(
    context: ControllerContext, count: int, away: int, chosen: int
) -> None:
    fill(context, "t", count, away)
    assert len(imbalanced(context, 10)) == chosen
    assert context.imbalanced_partition_count == away


def test_only_those_that_can_lead_come_home(context: ControllerContext) -> None:
    fill(context, "ready", 2, away=2)
    fill(context, "lagging", 2, away=2, isr=2)  # 1 is not in the ISR
    fill(context, "deleting", 2, away=2)
    context.queue_deletion("deleting")
    assert {partition.tp.topic for partition in imbalanced(context, 10)} == {"ready"}
    context.brokers.shutting_down.add(1)
    assert imbalanced(context, 10) == []


def test_partitions_without_leadership_count_as_at_home(context: ControllerContext) -> None:
    fill(context, "t", 9, away=1)
    context.set_assignment(TopicPartition("t", 9), ReplicaAssignment([1, 2]))
    assert imbalanced(context, 10) == []


def test_reassigning_partitions_are_not_excluded(context: ControllerContext) -> None:
    tp = TopicPartition("t", 0)
    partition = context.set_assignment(tp, ReplicaAssignment([1, 2, 3], [3], []))
    context.set_leader_and_isr(partition, LeaderAndIsr(2, 0, (1, 2), 1))
    assert imbalanced(context, 10) == [partition]


@pytest.mark.parametrize(
    ("topic", "election", "expected"),
    [
        ("nowhere", ElectionType.PREFERRED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("deleting", ElectionType.PREFERRED, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("home", ElectionType.PREFERRED, ErrorCode.ELECTION_NOT_NEEDED),
        ("away", ElectionType.PREFERRED, None),
        ("home", ElectionType.UNCLEAN, ErrorCode.ELECTION_NOT_NEEDED),  # the leader is alive
        ("away", ElectionType.UNCLEAN, ErrorCode.ELECTION_NOT_NEEDED),
        ("dead", ElectionType.UNCLEAN, None),
        ("nobody", ElectionType.UNCLEAN, None),
        ("new", ElectionType.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        ("new", ElectionType.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_what_an_operator_may_ask(
    context: ControllerContext, topic: str, election: ElectionType, expected: ErrorCode | None
) -> None:
    for name, leader in (("home", 1), ("away", 2), ("dead", 3), ("nobody", -1), ("deleting", 2)):
        partition = context.set_assignment(TopicPartition(name, 0), ReplicaAssignment([1, 2, 3]))
        context.set_leader_and_isr(partition, LeaderAndIsr(leader, 0, (3,), 1))
    context.set_assignment(TopicPartition("new", 0), ReplicaAssignment([1]))
    context.queue_deletion("deleting")
    error = refusal(context, TopicPartition(topic, 0), election)
    assert (None if error is None else error.error) == expected


def test_kafkas_codes() -> None:
    assert (ElectionType.PREFERRED, ElectionType.UNCLEAN) == (0, 1)
