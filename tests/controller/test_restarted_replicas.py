"""Replicas that came back unseen: what a new controller does about them. KIP-903, KIP-966."""

import pytest

from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.restarted_replicas import IsrRepair, repair_after_restart
from odradek.store.payloads import LeaderAndIsr

WRITTEN = 100
STAYED, BACK = 50, 150  # registered before, or after, the state was last written


@pytest.mark.parametrize(
    ("leader", "isr", "epochs", "expected"),
    [
        # Nobody restarted.
        (1, (1, 2, 3), {1: STAYED, 2: STAYED, 3: STAYED}, IsrRepair()),
        # A follower in the ISR came back: it leaves, the leader stayed.
        (1, (1, 2), {1: STAYED, 2: BACK, 3: STAYED}, IsrRepair(leaving=(2,))),
        # The leader came back and a follower stayed: the leader leaves.
        (1, (1, 2), {1: BACK, 2: STAYED, 3: STAYED}, IsrRepair(leaving=(1,))),
        # A follower that stayed is enough, wherever the leader is.
        (1, (1, 2, 3), {2: BACK, 3: STAYED}, IsrRepair(leaving=(2,))),
        # The last in-sync replica came back: it leads on, in a new epoch.
        (1, (1,), {1: BACK, 2: STAYED}, IsrRepair(raise_epoch=True)),
        # The whole cluster restarted: nobody is better than anybody.
        (1, (1, 2, 3), {1: BACK, 2: BACK, 3: BACK}, IsrRepair(raise_epoch=True)),
        # The leader is down: an election follows anyway.
        (1, (1, 2), {2: BACK, 3: BACK}, IsrRepair()),
        # A replica outside the ISR came back: no ISR change of its past may land.
        (1, (1, 2), {1: STAYED, 2: STAYED, 3: BACK}, IsrRepair(raise_epoch=True)),
        # Nobody leads, so nobody can change the ISR.
        (-1, (2,), {1: BACK, 3: BACK}, IsrRepair()),
    ],
)
def test_judgement(
    leader: int, isr: tuple[int, ...], epochs: dict[int, int], expected: IsrRepair
) -> None:
    leader_and_isr = LeaderAndIsr(leader, 5, isr, controller_epoch=2)
    assert (
        repair_after_restart(ReplicaAssignment([1, 2, 3]), leader_and_isr, WRITTEN, epochs)
        == expected
    )
