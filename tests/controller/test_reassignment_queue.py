"""Reassignments that wait: kept in bounded nodes, in order, fenced, and gone when removed."""

import pytest
from tests.controller.bench import term_on

from odradek.controller.config import ControllerConfig
from odradek.controller.reassignment_queue import ReassignmentQueue
from odradek.controller.term import Term
from odradek.store.cluster import ClusterStore
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.store.nodes import ControllerMoved
from odradek.wire.topics import TopicPartition

MOVES = {TopicPartition("t", number): (2, 3) for number in range(5)}
A, B, C, D, E = MOVES
CONFIG = ControllerConfig(reassignment_partitions_per_node_max=2)


@pytest.fixture
async def store() -> ClusterStore:
    memory = MemoryStore(MemoryServer())
    await memory.start()
    cluster = ClusterStore(memory)
    await cluster.prepare()
    return cluster


@pytest.fixture
async def term(store: ClusterStore) -> Term:
    return term_on(store, await store.controller.elect(1), CONFIG)


async def nodes(store: ClusterStore) -> int:
    return len(await store.requests.queued_reassignments())


async def reloaded(term: Term) -> list[TopicPartition]:
    queue = ReassignmentQueue(term)
    await queue.load()
    assert all(queue.target(tp) == (2, 3) for tp in queue)
    return list(queue)


async def test_nodes_are_bounded_and_order_is_kept(store: ClusterStore, term: Term) -> None:
    queue = ReassignmentQueue(term)
    await queue.add(MOVES)
    assert len(queue) == 5
    assert await nodes(store) == 3
    assert await reloaded(term) == [A, B, C, D, E]


async def test_a_node_goes_when_the_last_of_it_has_started(store: ClusterStore, term: Term) -> None:
    queue = ReassignmentQueue(term)
    await queue.add(MOVES)
    await queue.started([A])
    assert list(queue) == [B, C, D, E]
    assert await nodes(store) == 3
    await queue.started([B, C])
    assert await nodes(store) == 2
    assert await reloaded(term) == [C, D, E]  # the reader sees that C has started


async def test_what_is_removed_is_in_no_node(store: ClusterStore, term: Term) -> None:
    queue = ReassignmentQueue(term)
    await queue.add(MOVES)
    await queue.started([A])
    await queue.remove([A, D, E])
    assert list(queue) == [B, C]
    assert await reloaded(term) == [B, C]
    assert await nodes(store) == 2


async def test_two_sources_are_one_queue(store: ClusterStore, term: Term) -> None:
    await store.requests.set_reassignment({D: (2, 3), E: (2, 3)}, term.fence)
    queue = ReassignmentQueue(term)
    queue.set_legacy({D: (2, 3), E: (2, 3)})
    await queue.add({A: (2, 3)})
    assert list(queue) == [A, D, E], "what came through the API goes first"
    assert queue.named() == {A, D, E}
    await queue.remove([A, D])
    assert list(queue) == [E]
    assert await store.requests.reassignment() == {E: (2, 3)}
    await queue.started([E])
    assert list(queue) == []
    assert await store.requests.reassignment() == {E: (2, 3)}, "until it has arrived"
    await queue.remove_arrived({E: (3, 2)})
    assert await store.requests.reassignment() == {E: (2, 3)}
    await queue.remove_arrived({E: (2, 3)})
    assert await store.requests.reassignment() == {}


async def test_an_old_controller_cannot_write(store: ClusterStore, term: Term) -> None:
    queue = ReassignmentQueue(term)
    await queue.add({A: (2, 3)})
    await store.controller.resign(term.fence)
    await store.controller.elect(2)
    for write in (queue.add({B: (2,)}), queue.started([A]), queue.remove([A])):
        with pytest.raises(ControllerMoved):
            await write
    assert await reloaded(term) == [A]
