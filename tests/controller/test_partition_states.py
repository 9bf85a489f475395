"""Every row of the first table of docs/spec/controller-and-replication.md section 3: all 16
pairs and their effects."""

import pytest

from odradek.controller.partition_states import (
    VALID_PREVIOUS,
    PartitionEffect,
    PartitionState,
    effect,
    initial,
    is_valid,
)

NEW, ONLINE = PartitionState.NEW, PartitionState.ONLINE
OFFLINE, NON_EXISTENT = PartitionState.OFFLINE, PartitionState.NON_EXISTENT

ROWS: list[tuple[PartitionState, PartitionState, PartitionEffect | None]] = [
    (NEW, NEW, None),
    (NEW, ONLINE, PartitionEffect.INITIALISE),
    (NEW, OFFLINE, PartitionEffect.RECORD),
    (NEW, NON_EXISTENT, None),
    (ONLINE, NEW, None),
    (ONLINE, ONLINE, PartitionEffect.ELECT),
    (ONLINE, OFFLINE, PartitionEffect.RECORD),
    (ONLINE, NON_EXISTENT, None),
    (OFFLINE, NEW, None),
    (OFFLINE, ONLINE, PartitionEffect.ELECT),
    (OFFLINE, OFFLINE, PartitionEffect.RECORD),
    (OFFLINE, NON_EXISTENT, PartitionEffect.RECORD),
    (NON_EXISTENT, NEW, PartitionEffect.RECORD),
    (NON_EXISTENT, ONLINE, None),
    (NON_EXISTENT, OFFLINE, None),
    (NON_EXISTENT, NON_EXISTENT, None),
]


def test_kafkas_names_and_codes() -> None:
    assert [(state.name, state.value) for state in PartitionState] == [
        ("NEW", 0),
        ("ONLINE", 1),
        ("OFFLINE", 2),
        ("NON_EXISTENT", 3),
    ]


@pytest.mark.parametrize(("previous", "target", "expected"), ROWS)
def test_pair(
    previous: PartitionState, target: PartitionState, expected: PartitionEffect | None
) -> None:
    assert is_valid(previous, target) is (expected is not None)
    assert (previous in VALID_PREVIOUS[target]) is (expected is not None)
    if expected is None:
        with pytest.raises(AssertionError):
            effect(previous, target)
    else:
        assert effect(previous, target) is expected


def test_the_table_is_whole() -> None:
    assert len({(previous, target) for previous, target, _ in ROWS}) == 16


def test_what_a_new_controller_records() -> None:
    assert initial(has_leadership=False, is_leader_online=False) is NEW
    assert initial(has_leadership=True, is_leader_online=True) is ONLINE
    assert initial(has_leadership=True, is_leader_online=False) is OFFLINE
