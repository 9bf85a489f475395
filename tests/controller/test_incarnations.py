"""Replicas that came back unseen: what a new controller does about them. KIP-903, KIP-966."""

import pytest

from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.incarnations import Judgement, judge
from odradek.controller.leadership import Leadership

WRITTEN = 100
STAYED, BACK = 50, 150  # registered before, or after, the state was last written


@pytest.mark.parametrize(
    ("leader", "isr", "epochs", "expected"),
    [
        # Nobody restarted.
        (1, (1, 2, 3), {1: STAYED, 2: STAYED, 3: STAYED}, Judgement()),
        # A follower in the ISR came back: it leaves, the leader stayed.
        (1, (1, 2), {1: STAYED, 2: BACK, 3: STAYED}, Judgement(leaving=(2,))),
        # The leader came back and a follower stayed: the leader leaves.
        (1, (1, 2), {1: BACK, 2: STAYED, 3: STAYED}, Judgement(leaving=(1,))),
        # A follower that stayed is enough, wherever the leader is.
        (1, (1, 2, 3), {2: BACK, 3: STAYED}, Judgement(leaving=(2,))),
        # The last in-sync replica came back: it leads on, in a new epoch.
        (1, (1,), {1: BACK, 2: STAYED}, Judgement(raise_epoch=True)),
        # The whole cluster restarted: nobody is better than anybody.
        (1, (1, 2, 3), {1: BACK, 2: BACK, 3: BACK}, Judgement(raise_epoch=True)),
        # The leader is down: an election follows anyway.
        (1, (1, 2), {2: BACK, 3: BACK}, Judgement()),
        # A replica outside the ISR came back: no ISR change of its past may land.
        (1, (1, 2), {1: STAYED, 2: STAYED, 3: BACK}, Judgement(raise_epoch=True)),
        # Nobody leads, so nobody can change the ISR.
        (-1, (2,), {1: BACK, 3: BACK}, Judgement()),
    ],
)
def test_judgement(
    leader: int, isr: tuple[int, ...], epochs: dict[int, int], expected: Judgement
) -> None:
    leadership = Leadership(leader, 5, isr, controller_epoch=2)
    assert judge(ReplicaAssignment([1, 2, 3]), leadership, WRITTEN, epochs) == expected
