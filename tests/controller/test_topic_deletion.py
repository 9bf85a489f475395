"""What to do next about topics to be deleted.

docs/spec/controller-and-replication.md section 4.5, steps 1 to 3.
"""

import pytest

from odradek.controller.replica_states import ReplicaState
from odradek.controller.topic_deletion import plan

ONLINE, OFFLINE = ReplicaState.ONLINE, ReplicaState.OFFLINE
STARTED = ReplicaState.DELETION_STARTED
SUCCESSFUL = ReplicaState.DELETION_SUCCESSFUL
INELIGIBLE = ReplicaState.DELETION_INELIGIBLE


@pytest.mark.parametrize(
    ("states", "ineligible", "expected"),
    [
        ([ONLINE, ONLINE], False, "start"),
        ([ONLINE, ONLINE], True, ""),  # halted before it began
        ([STARTED, STARTED], False, ""),  # answers are out
        ([STARTED, INELIGIBLE], True, ""),  # one failed, the other is awaited
        ([SUCCESSFUL, STARTED], False, ""),
        ([SUCCESSFUL, SUCCESSFUL], False, "complete"),
        ([SUCCESSFUL, SUCCESSFUL], True, "complete"),
        ([], False, "complete"),  # a topic whose nodes are half gone
        ([SUCCESSFUL, INELIGIBLE], True, "retry"),  # its broker is still down
        ([SUCCESSFUL, INELIGIBLE], False, "retry start"),  # its broker came back
        ([SUCCESSFUL, OFFLINE], False, "start"),
        ([SUCCESSFUL, OFFLINE], True, ""),
    ],
)
def test_plan(states: list[ReplicaState], ineligible: bool, expected: str) -> None:
    decided = plan({"t": states}, {"t"} if ineligible else set())
    found = {"complete": decided.complete, "retry": decided.retry, "start": decided.start}
    assert {name for name, topics in found.items() if topics == ["t"]} == set(expected.split())


def test_topics_do_not_wait_for_each_other() -> None:
    decided = plan({"a": [STARTED], "b": [ONLINE], "c": [SUCCESSFUL], "d": [ONLINE]}, {"d"})
    assert (decided.complete, decided.retry, decided.start) == (["c"], [], ["b"])
