"""What a LeaderAndIsr request means for a broker, over values."""

from itertools import product
from uuid import UUID

import pytest

from odradek.replica.control_decisions import (
    AwaitLeader,
    Decision,
    Follow,
    ForgetId,
    Lead,
    LearnId,
    LocalFacts,
    LogHere,
    Refuse,
    SetAside,
    decide,
    is_stale_log,
    must_not_lead,
)
from odradek.store.payloads import NO_LEADER
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.leader_and_isr import LeaderAndIsrPartitionState
from odradek.wire.topic_ids import NO_TOPIC_ID
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
US, LEADER, DEAD = 1, 2, 3
KEEP, ASIDE = False, True
NONE, LOADED, RELEASED, IN_USE = LogHere


def state(
    *,
    leader: int = LEADER,
    epoch: int = 5,
    in_isr: bool = True,
    is_new: bool = False,
    replicas: tuple[int, ...] = (US, LEADER, DEAD),
) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=0,
        leader=leader,
        leader_epoch=epoch,
        isr=[LEADER, US] if in_isr else [LEADER],
        replicas=list(replicas),
        is_new=is_new,
    )


def decided(
    wanted: LeaderAndIsrPartitionState,
    facts: LocalFacts = LocalFacts(),
    *,
    names_incarnation: bool = True,
    topic_id: UUID = NO_TOPIC_ID,
) -> list[Decision]:
    return decide(
        US,
        {T0: wanted},
        lambda tp: facts,
        is_alive=lambda id: id in (US, LEADER),
        names_incarnation=names_incarnation,
        topic_ids={"t": topic_id},
    )


# The last leader epoch in the log is 4.
TABLE = [
    # log here  isNew  in ISR  leader epoch
    (NONE, True, False, 5, KEEP),
    (IN_USE, True, False, 0, KEEP),
    (IN_USE, False, False, 3, KEEP),
    # The replica is new: nothing that is committed is only here, unless it is in the ISR ...
    (LOADED, True, False, 0, ASIDE),
    (LOADED, True, False, 5, ASIDE),
    (RELEASED, True, False, 5, ASIDE),
    # ... and then the partition is new only at leader epoch 0.
    (LOADED, True, True, 0, ASIDE),
    (RELEASED, True, True, 0, ASIDE),
    (LOADED, True, True, 1, KEEP),
    (LOADED, True, True, 5, KEEP),
    # A replica that is not new has its own log, unless that is ahead of the partition.
    (LOADED, False, False, 3, ASIDE),
    (LOADED, False, False, 4, KEEP),
    (LOADED, False, False, 5, KEEP),
    (LOADED, False, True, 3, KEEP),
    (LOADED, False, True, 0, KEEP),
    (RELEASED, False, False, 3, KEEP),
    (RELEASED, False, True, 0, KEEP),
]


@pytest.mark.parametrize(("log", "is_new", "in_isr", "epoch", "expected"), TABLE)
def test_when_a_log_is_stale(
    log: LogHere, is_new: bool, in_isr: bool, epoch: int, expected: bool
) -> None:
    wanted = state(epoch=epoch, in_isr=in_isr, is_new=is_new)
    facts = LocalFacts(log, None if log is NONE else 4)
    assert is_stale_log(US, wanted, facts) is expected
    assert (SetAside(T0) in decided(wanted, facts)) is expected
    # A request that does not name this incarnation sets nothing aside.
    assert SetAside(T0) not in decided(wanted, facts, names_incarnation=False)


@pytest.mark.parametrize(
    ("log", "is_new", "in_isr", "epoch"),
    list(product(LogHere, (False, True), (False, True), (0, 3, 5))),
)
def test_no_log_is_stale_without_a_leader_or_for_another_broker_or_offline(
    log: LogHere, is_new: bool, in_isr: bool, epoch: int
) -> None:
    facts = LocalFacts(log, 4)
    leaderless = state(leader=NO_LEADER, epoch=epoch, in_isr=in_isr, is_new=is_new)
    elsewhere = state(epoch=epoch, in_isr=in_isr, is_new=is_new, replicas=(LEADER, DEAD))
    offline = LocalFacts(log, 4, is_offline=True)
    assert not is_stale_log(US, leaderless, facts)
    assert not is_stale_log(US, elsewhere, facts)
    assert not is_stale_log(US, state(epoch=epoch, in_isr=in_isr, is_new=is_new), offline)


OURS, OTHER = UUID(int=7), UUID(int=8)
INCONSISTENT = ErrorCode.INCONSISTENT_TOPIC_ID


@pytest.mark.parametrize(
    ("log", "is_new", "in_isr", "epoch"),
    list(product((LOADED, RELEASED, IN_USE), (False, True), (False, True), (0, 3, 5))),
)
def test_topic_ids_decide_where_both_are_known(
    log: LogHere, is_new: bool, in_isr: bool, epoch: int
) -> None:
    """docs/spec/protocol-ladder.md section 2.5."""
    wanted = state(epoch=epoch, in_isr=in_isr, is_new=is_new)
    facts = LocalFacts(log, 4, topic_id=OURS)
    same = decided(wanted, facts, topic_id=OURS)
    assert SetAside(T0) not in same and Refuse(T0, INCONSISTENT) not in same
    is_safe = log is not IN_USE and (not in_isr or (is_new and epoch == 0))
    other = decided(wanted, facts, topic_id=OTHER)
    if is_safe:
        assert other == [SetAside(T0), Follow(T0, wanted)]
    else:
        assert other == [Refuse(T0, INCONSISTENT)]
    # What may be needed stays: no leader has it all, or the request is for another incarnation.
    leaderless = state(leader=NO_LEADER, epoch=epoch, in_isr=in_isr, is_new=is_new)
    assert decided(leaderless, facts, topic_id=OTHER) == [Refuse(T0, INCONSISTENT)]
    unnamed = decided(wanted, facts, topic_id=OTHER, names_incarnation=False)
    assert unnamed == [Refuse(T0, INCONSISTENT)]


STALE = Refuse(T0, ErrorCode.STALE_CONTROLLER_EPOCH)


@pytest.mark.parametrize(
    ("known", "sent", "is_follower", "epoch", "expected"),
    [
        # known id, id sent, follower, epoch of the state where 5 is known
        (NO_TOPIC_ID, OURS, True, 5, LearnId(T0)),
        (NO_TOPIC_ID, OURS, False, 5, LearnId(T0)),
        (OURS, NO_TOPIC_ID, True, 5, ForgetId(T0)),
        (OURS, NO_TOPIC_ID, False, 5, STALE),
        (OURS, OURS, True, 5, STALE),
        (NO_TOPIC_ID, NO_TOPIC_ID, True, 5, STALE),
        (NO_TOPIC_ID, OURS, True, 4, STALE),
        (OURS, NO_TOPIC_ID, True, 4, STALE),
        (OURS, OTHER, True, 4, Refuse(T0, INCONSISTENT)),
        (OURS, OTHER, True, 5, Refuse(T0, INCONSISTENT)),
        (OURS, OTHER, True, 6, Refuse(T0, INCONSISTENT)),
    ],
)
def test_ids_at_the_epoch_that_is_known(
    known: UUID, sent: UUID, is_follower: bool, epoch: int, expected: Decision
) -> None:
    """docs/spec/protocol-ladder.md section 2.2, rows 3 to 8."""
    facts = LocalFacts(IN_USE, 4, 5, topic_id=known, is_follower=is_follower)
    assert decided(state(epoch=epoch), facts, topic_id=sent) == [expected]


def test_a_log_without_any_epoch_is_ahead_of_none() -> None:
    assert not is_stale_log(US, state(epoch=0, in_isr=False), LocalFacts(LOADED, None))


@pytest.mark.parametrize(
    ("wanted", "facts", "expected"),
    [
        (state(leader=US), LocalFacts(), Lead),
        (state(leader=LEADER), LocalFacts(), Follow),
        (state(leader=DEAD), LocalFacts(), AwaitLeader),
        (state(leader=NO_LEADER), LocalFacts(), AwaitLeader),
        (state(leader=US), LocalFacts(IN_USE, 4, leader_epoch=4), Lead),
    ],
)
def test_the_role_that_a_state_asks_for(
    wanted: LeaderAndIsrPartitionState, facts: LocalFacts, expected: type[Lead]
) -> None:
    assert decided(wanted, facts) == [expected(T0, wanted)]


@pytest.mark.parametrize(
    ("wanted", "facts", "error"),
    [
        (state(), LocalFacts(is_offline=True), ErrorCode.KAFKA_STORAGE_ERROR),
        (state(epoch=5), LocalFacts(IN_USE, 5, 5), ErrorCode.STALE_CONTROLLER_EPOCH),
        (state(epoch=5), LocalFacts(IN_USE, 5, 6), ErrorCode.STALE_CONTROLLER_EPOCH),
        (state(replicas=(LEADER, DEAD)), LocalFacts(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_refused(
    wanted: LeaderAndIsrPartitionState, facts: LocalFacts, error: ErrorCode
) -> None:
    assert decided(wanted, facts) == [Refuse(T0, error)]


def test_with_its_stale_log_a_partition_loses_its_epoch() -> None:
    """The topic was created again: its epochs begin at 0 again."""
    wanted = state(epoch=0, is_new=True)
    facts = LocalFacts(RELEASED, 7, leader_epoch=7)
    assert decided(wanted, facts) == [SetAside(T0), Follow(T0, wanted)]


def test_each_partition_is_decided_by_itself() -> None:
    t1 = TopicPartition("t", 1)
    first, second = state(leader=US), state(leader=LEADER)
    facts = {T0: LocalFacts(is_offline=True), t1: LocalFacts()}
    found = decide(
        US,
        {T0: first, t1: second},
        facts.__getitem__,
        is_alive=lambda id: True,
        names_incarnation=True,
    )
    assert found == [Refuse(T0, ErrorCode.KAFKA_STORAGE_ERROR), Follow(t1, second)]


@pytest.mark.parametrize(
    ("lost_tail", "replica_count", "unclean_allowed", "expected"),
    [
        (True, 3, False, True),
        (True, 3, True, False),
        (True, 1, False, False),  # there is no other replica that could have the records
        (False, 3, False, False),
    ],
)
def test_a_replica_that_lost_records_must_not_lead(
    lost_tail: bool, replica_count: int, unclean_allowed: bool, expected: bool
) -> None:
    found = must_not_lead(
        lost_tail=lost_tail, replica_count=replica_count, unclean_allowed=unclean_allowed
    )
    assert found is expected
