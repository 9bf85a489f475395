"""Every row of the election table of docs/spec/controller-and-replication.md section 3; the ISR
removal rule of section 2."""

import pytest

from odradek.controller import elections
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.elections import Strategy
from odradek.controller.leader_and_isr_rules import (
    Election,
    elect,
    has_preferred_leader,
    initial,
    raised,
    without_replica,
)
from odradek.store.payloads import LeaderAndIsr


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "unclean", "leader"),
    [
        ([2, 4], [2, 4], {4}, False, 4),  # the first live member of the ISR
        ([2, 4], [4, 2], {2, 4}, False, 2),  # in order of assignment, not of the ISR
        ([2, 4], [2], {4}, False, None),  # the last member is down
        ([2, 4], [2], {4}, True, 4),  # and loss is accepted
        ([2, 4], [2], set(), True, None),  # nobody at all
        ([2, 4, 6], [4], {4, 2}, True, 4),  # a clean leader goes before an unclean one
        ([], [2], {2}, False, None),
    ],
)
def test_offline(
    assignment: list[int], isr: list[int], live: set[int], unclean: bool, leader: int | None
) -> None:
    assert elections.offline(assignment, isr, live, unclean) == leader


@pytest.mark.parametrize(
    ("target", "isr", "live", "leader"),
    [
        ([2, 4], [2, 4], {4}, 4),
        ([2, 4], [2], {4}, None),
        ([2, 4], [4], {2, 4}, 4),
        ([4, 2], [2, 4], {2, 4}, 4),
        ([2, 4], [], {2, 4}, None),
    ],
)
def test_reassigned(target: list[int], isr: list[int], live: set[int], leader: int | None) -> None:
    assert elections.reassigned(target, isr, live) == leader


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "leader"),
    [
        ([2, 4], [2, 4], {2, 4}, 2),
        ([2, 4], [4], {2, 4}, None),  # not in sync
        ([2, 4], [2], {4}, None),  # not live
        ([2, 4], [4], {4}, None),  # never the second
        ([], [], set(), None),
    ],
)
def test_preferred(
    assignment: list[int], isr: list[int], live: set[int], leader: int | None
) -> None:
    assert elections.preferred(assignment, isr, live) == leader


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "shutting_down", "leader"),
    [
        ([2, 4], [2, 4], {2, 4}, {2}, 4),
        ([2, 4], [2], {2, 4}, {2}, None),  # the only member is leaving
        ([2, 4], [2, 4], {2, 4}, {2, 4}, None),  # everybody is leaving
        ([2, 4, 6], [2, 6], {2, 4, 6}, {2}, 6),
        ([2, 4], [2, 4], {2}, {2}, None),
    ],
)
def test_controlled_shutdown(
    assignment: list[int],
    isr: list[int],
    live: set[int],
    shutting_down: set[int],
    leader: int | None,
) -> None:
    assert elections.controlled_shutdown(assignment, isr, live, shutting_down) == leader


def held(leader: int, *isr: int) -> LeaderAndIsr:
    return LeaderAndIsr(leader, 7, isr, controller_epoch=3, partition_epoch=11)


def decided(leader: int, *isr: int) -> LeaderAndIsr:
    return LeaderAndIsr(leader, 8, isr, controller_epoch=4, partition_epoch=11)


MOVING = ReplicaAssignment([3, 4, 1, 2], adding=[3, 4], removing=[1, 2])


@pytest.mark.parametrize(
    ("strategy", "assignment", "before", "live", "shutting_down", "unclean", "expected"),
    [
        # The ISR keeps its order and loses the dead; all live assigned replicas are notified.
        (
            Strategy.OFFLINE,
            ReplicaAssignment([1, 2, 3]),
            held(1, 3, 1, 2),
            (2, 3),
            (),
            False,
            Election(decided(2, 3, 2), (2, 3)),
        ),
        (Strategy.OFFLINE, ReplicaAssignment([1, 2]), held(1, 1), (2,), (), False, None),
        # An unclean leader is alone in the ISR.
        (
            Strategy.OFFLINE,
            ReplicaAssignment([1, 2, 3]),
            held(1, 1),
            (2, 3),
            (),
            True,
            Election(decided(2, 2), (2, 3), is_unclean=True),
        ),
        (
            Strategy.OFFLINE_UNCLEAN,
            ReplicaAssignment([1, 2, 3]),
            held(-1, 1),
            (3,),
            (),
            True,
            Election(decided(3, 3), (3,), is_unclean=True),
        ),
        # The ISR stays; the target is notified.
        (
            Strategy.REASSIGN,
            MOVING,
            held(1, 1, 2, 3, 4),
            (1, 2, 3, 4),
            (),
            False,
            Election(decided(3, 1, 2, 3, 4), (3, 4)),
        ),
        (Strategy.REASSIGN, MOVING, held(1, 1, 2), (1, 2, 3, 4), (), False, None),
        # The ISR stays; the whole assignment is notified.
        (
            Strategy.PREFERRED,
            ReplicaAssignment([1, 2, 3]),
            held(2, 2, 1),
            (1, 2),
            (),
            False,
            Election(decided(1, 2, 1), (1, 2, 3)),
        ),
        (Strategy.PREFERRED, ReplicaAssignment([1, 2]), held(2, 2), (1, 2), (), False, None),
        # All that shut down leave the ISR; live and shutting-down assigned replicas are notified.
        (
            Strategy.CONTROLLED_SHUTDOWN,
            ReplicaAssignment([1, 2, 3, 4]),
            held(1, 1, 2, 3),
            (1, 2, 3),
            (1, 2),
            False,
            Election(decided(3, 3), (1, 2, 3)),
        ),
        (
            Strategy.CONTROLLED_SHUTDOWN,
            ReplicaAssignment([1, 2]),
            held(1, 1),
            (1, 2),
            (1,),
            False,
            None,
        ),
    ],
)
def test_election(
    strategy: Strategy,
    assignment: ReplicaAssignment,
    before: LeaderAndIsr,
    live: tuple[int, ...],
    shutting_down: tuple[int, ...],
    unclean: bool,
    expected: Election | None,
) -> None:
    found = elect(
        strategy,
        assignment,
        before,
        live=live,
        shutting_down=shutting_down,
        controller_epoch=4,
        unclean=unclean,
    )
    assert found == expected
    assert found is None or found.is_unclean is (found.leader_and_isr.leader not in before.isr)


def test_the_leader_epoch_rises_also_when_the_leader_stays() -> None:
    election = elect(
        Strategy.PREFERRED,
        ReplicaAssignment([1, 2]),
        held(1, 1, 2),
        live=(1, 2),
        shutting_down=(),
        controller_epoch=4,
    )
    assert election is not None
    assert election.leader_and_isr == decided(1, 1, 2)


def test_first_leadership() -> None:
    assert initial((2, 3), 5) == LeaderAndIsr(2, 0, (2, 3), controller_epoch=5, partition_epoch=0)
    assert initial((), 5) is None


@pytest.mark.parametrize(
    ("before", "replica", "after"),
    [
        (held(1, 1, 2, 3), 2, decided(1, 1, 3)),  # a follower: the leader stays
        (held(1, 1, 2, 3), 1, decided(-1, 2, 3)),  # the leader: nobody leads
        (held(1, 1), 1, decided(-1, 1)),  # the last member stays in the ISR
        (held(-1, 2), 2, decided(-1, 2)),
        (held(1, 1, 2), 3, decided(1, 1, 2)),  # not in it: only the epoch, to fence
    ],
)
def test_a_replica_goes_offline(before: LeaderAndIsr, replica: int, after: LeaderAndIsr) -> None:
    assert without_replica(before, replica, controller_epoch=4) == after


def test_raising_the_epoch_changes_nothing_else() -> None:
    assert raised(held(1, 1, 2), controller_epoch=4) == decided(1, 1, 2)


@pytest.mark.parametrize(
    ("assignment", "leader_and_isr", "at_home"),
    [
        (ReplicaAssignment([1, 2]), held(1, 1, 2), True),
        (ReplicaAssignment([1, 2]), held(2, 1, 2), False),
        # A first replica that is being added: balanced until it is in the ISR.
        (ReplicaAssignment([3, 1], adding=[3], removing=[1]), held(1, 1), True),
        (ReplicaAssignment([3, 1], adding=[3], removing=[1]), held(1, 1, 3), False),
    ],
)
def test_imbalance(
    assignment: ReplicaAssignment, leader_and_isr: LeaderAndIsr, at_home: bool
) -> None:
    assert has_preferred_leader(assignment, leader_and_isr) is at_home
