"""The state machines at work: illegal transitions, failures that change nothing, and lost races.

What the legal ones do can be read in the scenarios; here is what must not happen.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

import pytest
from tests.controller.bench import sent_by, term_on

from odradek.controller import partition_states, replica_states
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.context import Partition
from odradek.controller.elections import Strategy
from odradek.controller.journal import EntryKind
from odradek.controller.partition_state_machine import PartitionStateMachine
from odradek.controller.replica_state_machine import ReplicaStateMachine
from odradek.controller.term import RequestsNotSent, Term
from odradek.store.api import ConnectionLost, Operation, Result, StoreError
from odradek.store.cluster import ClusterStore
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.store.nodes import ControllerMoved, Refused
from odradek.store.payloads import BrokerRegistration, Endpoint, LeaderAndIsr, TopicNode
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.topics import TopicPartition


class Bench:
    """A term's machines on a store, with no broker listening."""

    def __init__(self, term: Term) -> None:
        self.term = term
        self.store = term.store
        self.context = term.context
        self.journal = term.journal
        self.sent = sent_by(term)
        self.partitions = PartitionStateMachine(term)
        self.replicas = ReplicaStateMachine(term)
        for id in (1, 2, 3):
            self.context.brokers[id] = BrokerRegistration(id, id, (Endpoint("h", id),))

    async def topic(self, name: str, *lists: tuple[int, ...]) -> list[Partition]:
        await self.store.create_topic(name, TopicNode(dict(enumerate(lists))))
        return [
            self.context.set_assignment(TopicPartition(name, number), ReplicaAssignment(replicas))
            for number, replicas in enumerate(lists)
        ]

    async def born(self, name: str, *lists: tuple[int, ...]) -> list[Partition]:
        partitions = await self.topic(name, *lists)
        await self.partitions.move(partitions, partition_states.NEW)
        await self.partitions.move(partitions, partition_states.ONLINE)
        for partition in partitions:
            for replica in partition.assignment.replicas:
                self.context.replicas.set_state(partition.tp, replica, replica_states.ONLINE)
        self.sent.clear()
        return partitions

    @property
    def failures(self) -> list[tuple[str, str, str]]:
        return [
            (f"{e.partition}@{e.broker}", f"{e.before} -> {e.after}", e.why)
            for e in self.journal.entries()
            if e.kind is EntryKind.FAILURE
        ]


@pytest.fixture
async def bench() -> Bench:
    memory = MemoryStore(MemoryServer())
    await memory.start()
    store = ClusterStore(memory)
    await store.prepare()
    return Bench(term_on(store, await store.controller.elect(1)))


async def test_an_illegal_replica_transition_is_recorded_and_the_others_go_on(bench: Bench) -> None:
    first, second = await bench.born("t", (1, 2), (2, 1))
    bench.context.replicas.set_state(first.tp, 2, replica_states.DELETION_STARTED)
    bench.journal.cause = "a test"
    await bench.replicas.move([(first.tp, 2), (second.tp, 2)], replica_states.OFFLINE)
    assert bench.failures == [
        ("t-0@2", "DELETION_STARTED -> OFFLINE", "a test: not a legal transition")
    ]
    assert bench.context.replicas.state(first.tp, 2) is replica_states.DELETION_STARTED
    assert bench.context.replicas.state(second.tp, 2) is replica_states.OFFLINE


async def test_an_illegal_partition_transition_is_recorded_and_the_others_go_on(
    bench: Bench,
) -> None:
    first, second = await bench.born("t", (1,), (2,))
    bench.context.set_partition_state(first, partition_states.OFFLINE)
    await bench.partitions.move([first, second], partition_states.NON_EXISTENT)
    assert first.state is partition_states.NON_EXISTENT
    assert second.state is partition_states.ONLINE
    assert bench.failures == [("t-1@None", "ONLINE -> NON_EXISTENT", ": not a legal transition")]


async def test_a_leader_cannot_start_as_a_new_replica(bench: Bench) -> None:
    (partition,) = await bench.born("t", (1, 2))
    bench.context.replicas.set_state(partition.tp, 1, replica_states.NON_EXISTENT)
    await bench.replicas.move([(partition.tp, 1)], replica_states.NEW)
    assert bench.context.replicas.state(partition.tp, 1) is replica_states.NON_EXISTENT
    assert bench.failures == [("t-0@1", "NON_EXISTENT -> NEW", ": it is the leader")]
    assert bench.sent == []


async def test_a_new_replica_outside_the_assignment_joins_it(bench: Bench) -> None:
    (partition,) = await bench.born("t", (1, 2))
    bench.context.replicas.set_state(partition.tp, 3, replica_states.NEW)
    await bench.replicas.move([(partition.tp, 3)], replica_states.ONLINE)
    assert partition.assignment == ReplicaAssignment([1, 2, 3])
    assert bench.failures == [("t-0@3", "NEW -> ONLINE", ": not assigned: added")]


async def test_no_live_replica_leaves_a_partition_new(bench: Bench) -> None:
    (partition,) = await bench.topic("t", (7, 8))
    await bench.partitions.move([partition], partition_states.NEW)
    outcomes = await bench.partitions.move([partition], partition_states.ONLINE)
    assert outcomes == {partition.tp: Refused("no replica is live")}
    assert partition.state is partition_states.NEW
    assert partition.leader_and_isr is None


async def test_a_state_node_that_exists_leaves_a_partition_new(bench: Bench) -> None:
    (partition,) = await bench.topic("t", (1,))
    fence = bench.term.fence
    await bench.store.create_partition_states({partition.tp: LeaderAndIsr(9, 9, (9,), 1)}, fence)
    await bench.partitions.move([partition], partition_states.NEW)
    outcomes = await bench.partitions.move([partition], partition_states.ONLINE)
    refused = outcomes[partition.tp]
    assert isinstance(refused, Refused)
    assert refused.reason.startswith("the state node was not created: NodeExists")
    assert partition.state is partition_states.NEW


async def test_a_missing_state_node_fails_an_election_and_an_exit(bench: Bench) -> None:
    (partition,) = await bench.born("t", (1, 2))
    await bench.store.session.delete("/brokers/topics/t/partitions/0/state")
    outcomes = await bench.partitions.move([partition], partition_states.ONLINE, Strategy.PREFERRED)
    assert outcomes == {partition.tp: Refused("there is no state node")}
    await bench.replicas.move([(partition.tp, 2)], replica_states.OFFLINE)
    assert bench.context.replicas.state(partition.tp, 2) is replica_states.ONLINE
    # A topic that is to be deleted need not have one.
    bench.context.queue_deletion("t")
    await bench.replicas.move([(partition.tp, 2)], replica_states.OFFLINE)
    assert bench.context.replicas.state(partition.tp, 2) is replica_states.OFFLINE


async def test_what_a_later_controller_wrote_is_left_alone(bench: Bench) -> None:
    (partition,) = await bench.born("t", (1, 2))
    later = LeaderAndIsr(2, 5, (2,), controller_epoch=9, partition_epoch=0)
    assert await bench.store.update_isr(partition.tp, later) is not None
    outcomes = await bench.partitions.move([partition], partition_states.ONLINE, Strategy.PREFERRED)
    assert outcomes == {partition.tp: Refused("written by controller epoch 9")}
    await bench.replicas.move([(partition.tp, 2)], replica_states.OFFLINE)
    assert bench.context.replicas.state(partition.tp, 2) is replica_states.ONLINE


@pytest.mark.parametrize(
    "write",
    [
        lambda bench, p: bench.partitions.move([p], partition_states.ONLINE),
        lambda bench, p: bench.replicas.move([(p.tp, 2)], replica_states.OFFLINE),
        lambda bench, p: bench.partitions.raise_epochs([p]),
    ],
    ids=["elect", "leave", "raise"],
)
async def test_a_fenced_controller_stops_everything(
    bench: Bench, write: Callable[[Bench, Partition], Awaitable[object]]
) -> None:
    (partition,) = await bench.born("t", (1, 2))
    before = partition.leader_and_isr
    await bench.store.controller.resign(bench.term.fence)
    await bench.store.controller.elect(2)
    with pytest.raises(ControllerMoved):
        await write(bench, partition)
    assert partition.leader_and_isr == before
    assert bench.sent == []


async def test_a_replica_that_leaves_is_stopped_and_the_others_learn_the_leader(
    bench: Bench,
) -> None:
    (partition,) = await bench.born("t", (1, 2, 3))
    await bench.replicas.move([(partition.tp, 1)], replica_states.OFFLINE)
    assert partition.leader_and_isr == LeaderAndIsr(-1, 1, (2, 3), 1, 1)
    notified = [id for id, request in bench.sent if isinstance(request, LeaderAndIsrRequest)]
    assert notified == [2, 3]


async def test_races_with_the_leader_are_decided_again(bench: Bench) -> None:
    """The leader shrinks the ISR before our write, and again before we write what we read then."""
    (partition,) = await bench.born("t", (1, 2, 3))
    session, shrinks = bench.store.session, [(1,), (1, 3)]
    write = session.multi_many

    async def raced(multis: Iterable[Sequence[Operation]]) -> list[list[Result] | StoreError]:
        if shrinks:
            seen = await bench.store.partition_state(partition.tp)
            assert seen is not None
            smaller = replace(seen, isr=shrinks.pop())
            assert await bench.store.update_isr(partition.tp, smaller) is not None
        return await write(multis)

    session.multi_many = raced  # type: ignore[method-assign]
    await bench.replicas.move([(partition.tp, 1)], replica_states.OFFLINE)
    assert partition.leader_and_isr == LeaderAndIsr(-1, 1, (1,), 1, 3)
    assert bench.context.replicas.state(partition.tp, 1) is replica_states.OFFLINE


@pytest.mark.parametrize(
    "decide",
    [
        lambda bench, p: bench.partitions.raise_epochs([p]),
        lambda bench, p: bench.partitions.move([p], partition_states.ONLINE),
    ],
    ids=["raise", "elect"],
)
async def test_a_replica_let_into_the_isr_after_we_let_it_go_does_not_stay(
    bench: Bench, decide: Callable[[Bench, Partition], Awaitable[object]]
) -> None:
    """A move is cancelled, and the leader, which has not heard yet, takes the new replica in."""
    (partition,) = await bench.born("t", (1, 2))
    seen = partition.leader_and_isr
    assert seen is not None
    wider = LeaderAndIsr(seen.leader, seen.leader_epoch, (1, 2, 3), 1, seen.partition_epoch)
    assert await bench.store.update_isr(partition.tp, wider) is not None
    await decide(bench, partition)
    states = await bench.store.partition_states([partition.tp])
    assert states[partition.tp].isr == (1, 2)


async def test_an_error_before_anything_was_decided_is_recorded_and_no_more(bench: Bench) -> None:
    (partition,) = await bench.born("t", (1, 2))
    await bench.store.session.set("/brokers/topics/t/partitions/0/state", b"[]")
    outcomes = await bench.partitions.move([partition], partition_states.ONLINE, Strategy.PREFERRED)
    reason = "invalid data in /brokers/topics/t/partitions/0/state: not a JSON object"
    assert outcomes == {partition.tp: Refused(reason)}
    await bench.replicas.move([(partition.tp, 2)], replica_states.DELETION_STARTED)
    assert bench.failures[0][2].endswith(reason)


async def test_an_error_after_something_was_decided_ends_the_term(bench: Bench) -> None:
    """The store has the first broker's replica out of the ISR, and no broker has been notified."""
    (partition,) = await bench.born("t", (1, 2, 3))
    session, writes = bench.store.session, 0
    write = session.multi_many

    async def failing(multis: object) -> object:
        nonlocal writes
        writes += 1
        if writes == 2:
            raise ConnectionLost("", "a test")
        return await write(multis)  # type: ignore[arg-type]

    session.multi_many = failing  # type: ignore[method-assign, assignment]
    with pytest.raises(RequestsNotSent, match="a test"):
        await bench.replicas.move([(partition.tp, 2), (partition.tp, 3)], replica_states.OFFLINE)
    assert bench.sent == []


async def test_a_leader_is_elected_among_the_candidates_of_a_plan_alone(bench: Bench) -> None:
    (partition,) = await bench.born("t", (1, 2, 3))
    plan = ReplicaAssignment([2, 3])
    outcomes = await bench.partitions.move(
        [partition], partition_states.ONLINE, candidates={partition.tp: plan}
    )
    state = outcomes[partition.tp]
    assert isinstance(state, LeaderAndIsr)
    assert state.leader == 2
    assert partition.assignment == ReplicaAssignment([1, 2, 3]), "the plan is not written yet"
