"""Every row of docs/spec/controller-and-replication.md section 2: all 49 pairs, and what each
transition entails."""

import pytest

from odradek.controller.replica_states import (
    VALID_PREVIOUS,
    ReplicaEffect,
    ReplicaState,
    effects,
    initial,
    is_valid,
)

NEW, ONLINE, OFFLINE = ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE
STARTED = ReplicaState.DELETION_STARTED
SUCCESSFUL = ReplicaState.DELETION_SUCCESSFUL
INELIGIBLE = ReplicaState.DELETION_INELIGIBLE
NON_EXISTENT = ReplicaState.NON_EXISTENT

# From (row) to (column): NEW, ONLINE, OFFLINE, STARTED, SUCCESSFUL, INELIGIBLE, NON_EXISTENT.
PAIRS = """
NEW                 . x x . . . .
ONLINE              . x x . . . .
OFFLINE             . x x x . x .
DELETION_STARTED    . . . . x x .
DELETION_SUCCESSFUL . . . . . . x
DELETION_INELIGIBLE . x x . . . .
NON_EXISTENT        x . . . . . .
"""
MATRIX = [
    (ReplicaState[name], target, mark == "x")
    for name, *marks in (line.split() for line in PAIRS.split("\n") if line)
    for target, mark in zip(ReplicaState, marks, strict=True)
]


def test_kafkas_names_and_codes() -> None:
    assert [(state.name, state.value) for state in ReplicaState] == [
        ("NEW", 1),
        ("ONLINE", 2),
        ("OFFLINE", 3),
        ("DELETION_STARTED", 4),
        ("DELETION_SUCCESSFUL", 5),
        ("DELETION_INELIGIBLE", 6),
        ("NON_EXISTENT", 7),
    ]


def test_the_matrix_is_whole() -> None:
    assert len(MATRIX) == 49
    assert set(VALID_PREVIOUS) == set(ReplicaState)


@pytest.mark.parametrize(("previous", "target", "valid"), MATRIX)
def test_pair(previous: ReplicaState, target: ReplicaState, valid: bool) -> None:
    assert is_valid(previous, target) is valid
    assert (previous in VALID_PREVIOUS[target]) is valid


ROWS = [
    # previous, target, has leadership, is leader -> effects
    (NON_EXISTENT, NEW, False, False, ()),
    (NON_EXISTENT, NEW, True, False, (ReplicaEffect.START,)),
    (NON_EXISTENT, NEW, True, True, (ReplicaEffect.REFUSE,)),
    (NEW, ONLINE, False, False, (ReplicaEffect.JOIN_ASSIGNMENT,)),
    (NEW, ONLINE, True, True, (ReplicaEffect.JOIN_ASSIGNMENT,)),
    (ONLINE, ONLINE, True, True, (ReplicaEffect.RESUME,)),
    (OFFLINE, ONLINE, True, False, (ReplicaEffect.RESUME,)),
    (INELIGIBLE, ONLINE, True, False, (ReplicaEffect.RESUME,)),
    (ONLINE, ONLINE, False, False, ()),
    (NEW, OFFLINE, True, False, (ReplicaEffect.STOP, ReplicaEffect.LEAVE_ISR)),
    (ONLINE, OFFLINE, True, True, (ReplicaEffect.STOP, ReplicaEffect.LEAVE_ISR)),
    (OFFLINE, OFFLINE, True, False, (ReplicaEffect.STOP, ReplicaEffect.LEAVE_ISR)),
    (INELIGIBLE, OFFLINE, True, False, (ReplicaEffect.STOP, ReplicaEffect.LEAVE_ISR)),
    (NEW, OFFLINE, False, False, (ReplicaEffect.STOP, ReplicaEffect.ANNOUNCE)),
    (OFFLINE, STARTED, True, False, (ReplicaEffect.DELETE,)),
    (OFFLINE, STARTED, False, False, (ReplicaEffect.DELETE,)),
    (STARTED, SUCCESSFUL, True, False, ()),
    (OFFLINE, INELIGIBLE, True, False, ()),
    (STARTED, INELIGIBLE, True, False, ()),
    (SUCCESSFUL, NON_EXISTENT, True, False, (ReplicaEffect.FORGET,)),
]


@pytest.mark.parametrize(("previous", "target", "has_leadership", "is_leader", "expected"), ROWS)
def test_effects(
    previous: ReplicaState,
    target: ReplicaState,
    has_leadership: bool,
    is_leader: bool,
    expected: tuple[ReplicaEffect, ...],
) -> None:
    found = effects(previous, target, has_leadership=has_leadership, is_leader=is_leader)
    assert found == expected


def test_every_legal_transition_has_its_row() -> None:
    legal = {(previous, target) for previous, target, valid in MATRIX if valid}
    assert {(previous, target) for previous, target, *_ in ROWS} == legal


def test_what_a_new_controller_records() -> None:
    assert initial(is_online=True) is ONLINE
    assert initial(is_online=False) is INELIGIBLE


def test_an_illegal_transition_has_no_effects_to_ask_for() -> None:
    with pytest.raises(AssertionError, match="ONLINE -> NEW"):
        effects(ONLINE, NEW, has_leadership=True, is_leader=False)
