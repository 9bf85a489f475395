"""Moves that wait: kept in bounded nodes, in order, fenced, and forgotten when struck."""

import pytest

from odradek.controller.waiting import ROOT, WaitingMoves
from odradek.store.cluster import ClusterStore, ControllerMoved
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.wire.topics import TopicPartition

MOVES = {TopicPartition("t", number): (2, 3) for number in range(5)}
A, B, C, D, E = MOVES


@pytest.fixture
async def store() -> ClusterStore:
    memory = MemoryStore(MemoryServer())
    await memory.start()
    cluster = ClusterStore(memory)
    await cluster.prepare()
    return cluster


@pytest.fixture
async def fence(store: ClusterStore) -> int:
    return (await store.elect_controller(1)).fence


async def reloaded(store: ClusterStore) -> list[TopicPartition]:
    moves = WaitingMoves(store, 2)
    await moves.load()
    assert all(moves.target(key) == (2, 3) for key in moves)
    return list(moves)


async def test_nodes_are_bounded_and_order_is_kept(store: ClusterStore, fence: int) -> None:
    moves = WaitingMoves(store, 2)
    await moves.add(MOVES, fence)
    assert len(moves) == 5
    assert len(await store.names(ROOT)) == 3
    assert await reloaded(store) == [A, B, C, D, E]


async def test_a_node_goes_when_the_last_of_it_has_started(store: ClusterStore, fence: int) -> None:
    moves = WaitingMoves(store, 2)
    await moves.add(MOVES, fence)
    await moves.started([A], fence)
    assert list(moves) == [B, C, D, E]
    assert len(await store.names(ROOT)) == 3
    await moves.started([B, C], fence)
    assert len(await store.names(ROOT)) == 2
    assert await reloaded(store) == [C, D, E]  # the reader sees that C has started


async def test_what_is_struck_is_in_no_node(store: ClusterStore, fence: int) -> None:
    moves = WaitingMoves(store, 2)
    await moves.add(MOVES, fence)
    await moves.started([A], fence)
    await moves.strike([A, D, E], fence)
    assert list(moves) == [B, C]
    assert await reloaded(store) == [B, C]
    assert len(await store.names(ROOT)) == 2


async def test_an_old_controller_cannot_write(store: ClusterStore, fence: int) -> None:
    moves = WaitingMoves(store, 2)
    await moves.add({A: (2, 3)}, fence)
    await store.resign_controller(fence)
    await store.elect_controller(2)
    for write in (moves.add({B: (2,)}, fence), moves.started([A], fence), moves.strike([A], fence)):
        with pytest.raises(ControllerMoved):
            await write
    assert await reloaded(store) == [A]
