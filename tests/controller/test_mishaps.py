"""What must not go wrong when two things happen at once: terms, lost answers, late writes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from tests.controller.test_controller import T0, Cluster

from odradek.controller.journal import EntryKind
from odradek.store import paths
from odradek.store.admin_requests import QUEUE
from odradek.store.api import Operation, StoreUnavailable
from odradek.store.memory import MemoryStore
from odradek.store.payloads import TopicNode, encode_topic
from odradek.wire.topics import TopicPartition

BUSY = TopicPartition("busy", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """One broker that can be the controller, and one move at a time."""
    made = Cluster(moves_cluster=1)
    await made.open([1, 2, 3], [1])
    yield made
    await made.close()


async def until_led(cluster: Cluster, topic: str) -> None:
    while await cluster.admin.partition_state(TopicPartition(topic, 0)) is None:
        await cluster._look()
    await cluster.settle()


async def test_what_waits_from_an_earlier_term_hides_nothing_from_the_next(
    cluster: Cluster,
) -> None:
    await cluster.make("t", (2, 3))
    made = []

    async def create(topic: str) -> None:
        node = encode_topic(TopicNode({0: (2,)}))
        made.append(await cluster.admin.session.create(f"/brokers/topics/{topic}", node))

    async def during_failover() -> None:
        await create("b")

    cluster.members[1].held.race("/brokers/topics/t", during_failover)
    # The end of the term, and a topic for which that term's watch asks it to look again.
    await asyncio.gather(cluster.admin.session.delete("/controller"), create("a"))
    for topic in ("a", "b"):
        await until_led(cluster, topic)
    assert len(made) == 2
    assert cluster.controller(1).epoch == 2
    await cluster.make("c", (3,))
    await until_led(cluster, "c")


@pytest.mark.parametrize("failures", [1, 2, 5])
async def test_a_controller_is_elected_again_however_long_the_store_could_not_work(
    cluster: Cluster, failures: int
) -> None:
    await cluster.make("t", (2, 3))
    held = cluster.members[1].held
    whole = held.multi_many
    left = [None] * failures

    async def failing(multis: object) -> object:
        if left:
            left.pop()
            raise StoreUnavailable("", "disk full")
        return await whole(multis)  # type: ignore[arg-type]

    held.multi_many = failing  # type: ignore[method-assign, assignment]
    await cluster.kill(3)
    while left or not cluster.active:
        await cluster._look()
    await cluster.settle()
    state = await cluster.admin.partition_state(T0)
    assert state is not None
    assert (state.leader, state.isr) == (2, (2,))
    assert cluster.members[2].puppet.replicas[T0].isr == (2,)


async def test_a_question_that_meets_a_store_that_cannot_work_is_answered(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.make("t", (2,))
    active = cluster.controller(1)._active
    assert active is not None

    async def fails(*_: object) -> object:
        raise StoreUnavailable("", "disk full")

    monkeypatch.setattr(active.reassigner, "request", fails)
    with pytest.raises(Exception, match="disk full"):
        await cluster.controller(1).alter_reassignments({T0: [3]})
    while cluster.controller(1).epoch < 2:
        await cluster._look()


async def test_a_registration_that_could_not_be_written_is_tried_again(cluster: Cluster) -> None:
    controller = cluster.controller(1)
    original = controller._register
    assert original is not None
    registered: list[int] = []

    async def register() -> object:
        registered.append(len(registered))
        if len(registered) < 3:
            raise StoreUnavailable("", "disk full")
        return await original()

    controller._register = register
    store = cluster.members[1].held.store
    assert isinstance(store, MemoryStore)
    cluster.server.expire(store)
    while controller.epoch < 2:
        await cluster._look()
    assert registered == [0, 1, 2]


async def test_a_broker_that_shut_down_cleanly_gets_no_further_requests() -> None:
    """An election tells every replica that still runs, but one that has left: a late ISR change
    could let it in, and nothing fences that when it goes."""
    cluster = Cluster()
    await cluster.open([1, 2, 3, 4], [1])
    await cluster.make("t", (2, 3, 4))
    for leaving in (3, 2):
        assert await cluster.controller(1).controlled_shutdown(leaving, -1) == set()
        await cluster.settle()
    state = await cluster.admin.partition_state(T0)
    assert state is not None and (state.leader, state.isr) == (4, (4,))
    replicas = {id: cluster.members[id].puppet.replicas.get(T0) for id in (2, 3, 4)}
    assert [id for id, replica in replicas.items() if replica and replica.leader == 4] == [2, 4]
    await cluster.close()


@pytest.mark.parametrize("in_order", [True, False], ids=["controlled shutdown", "killed"])
async def test_a_late_isr_change_does_not_let_an_earlier_incarnation_in(
    cluster: Cluster, in_order: bool
) -> None:
    """KIP-903: the leader decides to let a follower in, and its write is late."""
    await cluster.make("t", (2, 3))
    state = await cluster.admin.partition_state(T0)
    assert state is not None
    behind = await cluster.admin.update_isr(T0, replace(state, isr=(2,)))
    assert behind is not None
    decided = replace(behind, isr=(2, 3))
    if in_order:
        assert await cluster.controller(1).controlled_shutdown(3, -1) == set()
        await cluster.settle()
    await cluster.kill(3)
    await cluster.settle()
    await cluster.start(3)
    await cluster.settle()
    assert await cluster.admin.update_isr(T0, decided) is None


def lose_an_answer(cluster: Cluster, path: str) -> list[Sequence[Operation]]:
    """The first write below this path is done, and the controller never hears so; answers with all
    such writes as they come."""
    store = cluster.members[1].held.store
    assert isinstance(store, MemoryStore)
    write = cluster.server.write
    asked: list[Sequence[Operation]] = []

    def losing(operations: Sequence[Operation], session: object) -> object:
        meant = any(operation.path.startswith(path) for operation in operations)
        if meant:
            asked.append(operations)
        result = write(operations, session)  # type: ignore[arg-type]
        if meant and len(asked) == 1:
            store.cut()
            asyncio.get_running_loop().call_later(0.02, store.mend)
        return result

    cluster.server.write = losing  # type: ignore[method-assign, assignment]
    return asked


async def test_a_state_node_whose_creation_was_never_answered_is_ours(cluster: Cluster) -> None:
    asked = lose_an_answer(cluster, paths.partition_state(T0))
    await cluster.admin.create_topic("t", TopicNode({0: (2, 3)}))
    while T0 not in cluster.members[2].puppet.replicas:
        await cluster._look()
    assert len(asked) == 2, "it was not asked for again"
    assert cluster.members[2].puppet.replicas[T0].isr == (2, 3)
    assert cluster.happened(EntryKind.FAILURE) == []


async def test_a_move_that_waits_does_not_outlive_its_topic(cluster: Cluster) -> None:
    await cluster.make("busy", (2,))
    await cluster.make("t", (2,))
    controller = cluster.controller(1)
    for tp in (BUSY, T0):  # the first never ends: puppets do not catch up
        assert (await controller.alter_reassignments({tp: [3]}))[tp].error == 0
    assert T0 in await controller.list_reassignments(None)
    await cluster.admin.requests.request_deletion("t")
    await cluster.settle()
    assert await cluster.admin.topics() == ["busy"]
    assert await cluster.admin.requests.queued_reassignments() == {}
    await cluster.make("t", (1, 2))
    assert list(await controller.list_reassignments(None)) == [BUSY]
    await controller.alter_reassignments({BUSY: None})
    await cluster.settle()
    topic = await cluster.admin.topic("t")
    assert topic is not None and (topic.partitions, topic.adding) == ({0: (1, 2)}, {})


async def test_a_partition_added_while_another_begins_to_move_stays(cluster: Cluster) -> None:
    await cluster.make("t", (2,))
    has_grown = False

    async def grow() -> None:
        nonlocal has_grown
        await cluster.admin.set_topic("t", TopicNode({0: (2,), 1: (2,)}))
        has_grown = True

    cluster.members[1].held.race("/brokers/topics/t", grow)
    assert (await cluster.controller(1).alter_reassignments({T0: [3]}))[T0].error == 0
    await cluster.settle()
    assert has_grown
    topic = await cluster.admin.topic("t")
    assert topic is not None
    assert (topic.partitions, topic.adding) == ({0: (3, 2), 1: (2,)}, {0: (3,)})


async def test_a_waiting_move_whose_creation_was_never_answered_is_cancelled_whole(
    cluster: Cluster,
) -> None:
    await cluster.make("busy", (2,))
    await cluster.make("t", (2,))
    controller = cluster.controller(1)
    await controller.alter_reassignments({BUSY: [3]})
    asked = lose_an_answer(cluster, QUEUE + "/")
    assert (await controller.alter_reassignments({T0: [3]}))[T0].error == 0
    assert len(asked) == 2, "it was not asked for again"
    assert (await controller.alter_reassignments({T0: None}))[T0].error == 0
    assert await cluster.admin.requests.queued_reassignments() == {}


async def test_waiting_moves_are_named_on_from_those_of_an_earlier_term(cluster: Cluster) -> None:
    for topic in ("busy", "t", "u"):
        await cluster.make(topic, (2,))
    for tp in (BUSY, T0):
        await cluster.controller(1).alter_reassignments({tp: [3]})
    await cluster.admin.session.create(f"{QUEUE}/of_another_program", b"")
    await cluster.admin.session.delete("/controller")
    while cluster.controller(1).epoch < 2:
        await cluster._look()
    await cluster.settle()
    later = TopicPartition("u", 0)
    assert (await cluster.controller(1).alter_reassignments({later: [3]}))[later].error == 0
    assert await cluster.admin.session.children(QUEUE) == [
        "of_another_program",
        "waiting_0000000000",
        "waiting_0000000001",
    ]
    assert set(await cluster.controller(1).list_reassignments(None)) == {BUSY, T0, later}


@pytest.mark.parametrize("data", [b"not JSON", b'{"version":1,"partitions":[]}'])
async def test_an_election_that_asks_for_nothing_bars_no_other(
    cluster: Cluster, data: bytes
) -> None:
    await cluster.admin.session.create(paths.PREFERRED_ELECTION, data)
    while await cluster.admin.requests.preferred_election() is not None:
        await cluster._look()
