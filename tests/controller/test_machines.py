"""The state machines at work: illegal transitions, failures that change nothing, and lost races.

What the legal ones do can be read in the scenarios; here is what must not happen.
"""

from collections.abc import Awaitable, Callable

import pytest

from odradek.controller import partition_states, replica_states
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.config import ControllerConfig
from odradek.controller.context import ControllerContext, Partition
from odradek.controller.elections import Strategy
from odradek.controller.journal import EntryKind, Journal
from odradek.controller.leadership import Leadership
from odradek.controller.machines import StateMachines
from odradek.controller.requests import ControlRequest, RequestBatch
from odradek.store.cluster import ClusterStore, ControllerMoved
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.store.payloads import BrokerRegistration, Endpoint, TopicNode
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.topics import TopicPartition


class Bench:
    """A controller's insides on a store, with nobody listening."""

    def __init__(self, store: ClusterStore) -> None:
        self.store = store
        self.context = ControllerContext()
        self.journal = Journal(lambda: 0)
        self.sent: list[tuple[int, ControlRequest]] = []
        self.batch = RequestBatch(
            1,
            self.context,
            listener="PLAINTEXT",
            send=lambda id, request: self.sent.append((id, request)),
            journal=self.journal,
        )
        config = ControllerConfig()
        self.machines = StateMachines(self.context, store, self.batch, self.journal, config)

    async def open(self) -> None:
        term = await self.store.elect_controller(1)
        self.context.epoch, self.context.epoch_version = term
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
        await self.machines.partitions_to(partitions, partition_states.NEW)
        await self.machines.partitions_to(partitions, partition_states.ONLINE)
        for partition in partitions:
            for replica in partition.assignment.replicas:
                self.context.set_replica_state(partition.key, replica, replica_states.ONLINE)
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
    bench = Bench(store)
    await bench.open()
    return bench


async def test_an_illegal_replica_transition_is_recorded_and_the_others_go_on(bench: Bench) -> None:
    first, second = await bench.born("t", (1, 2), (2, 1))
    bench.context.set_replica_state(first.key, 2, replica_states.DELETION_STARTED)
    bench.journal.cause = "a test"
    await bench.machines.replicas_to([(first.key, 2), (second.key, 2)], replica_states.OFFLINE)
    assert bench.failures == [
        ("t-0@2", "DELETION_STARTED -> OFFLINE", "a test: not a legal transition")
    ]
    assert bench.context.replica_state(first.key, 2) is replica_states.DELETION_STARTED
    assert bench.context.replica_state(second.key, 2) is replica_states.OFFLINE


async def test_an_illegal_partition_transition_is_recorded_and_the_others_go_on(
    bench: Bench,
) -> None:
    first, second = await bench.born("t", (1,), (2,))
    bench.context.set_partition_state(first, partition_states.OFFLINE)
    await bench.machines.partitions_to([first, second], partition_states.NON_EXISTENT)
    assert first.state is partition_states.NON_EXISTENT
    assert second.state is partition_states.ONLINE
    assert bench.failures == [("t-1@None", "ONLINE -> NON_EXISTENT", ": not a legal transition")]


async def test_a_leader_cannot_start_as_a_new_replica(bench: Bench) -> None:
    (partition,) = await bench.born("t", (1, 2))
    bench.context.set_replica_state(partition.key, 1, replica_states.NON_EXISTENT)
    await bench.machines.replicas_to([(partition.key, 1)], replica_states.NEW)
    assert bench.context.replica_state(partition.key, 1) is replica_states.NON_EXISTENT
    assert bench.failures == [("t-0@1", "NON_EXISTENT -> NEW", ": it is the leader")]
    assert bench.sent == []


async def test_a_new_replica_outside_the_assignment_joins_it(bench: Bench) -> None:
    (partition,) = await bench.born("t", (1, 2))
    bench.context.set_replica_state(partition.key, 3, replica_states.NEW)
    await bench.machines.replicas_to([(partition.key, 3)], replica_states.ONLINE)
    assert partition.assignment == ReplicaAssignment([1, 2, 3])
    assert bench.failures == [("t-0@3", "NEW -> ONLINE", ": not assigned: added")]


async def test_no_live_replica_leaves_a_partition_new(bench: Bench) -> None:
    (partition,) = await bench.topic("t", (7, 8))
    await bench.machines.partitions_to([partition], partition_states.NEW)
    outcomes = await bench.machines.partitions_to([partition], partition_states.ONLINE)
    assert outcomes == {partition.key: "no replica is live"}
    assert partition.state is partition_states.NEW
    assert partition.leadership is None


async def test_a_state_node_that_exists_leaves_a_partition_new(bench: Bench) -> None:
    (partition,) = await bench.topic("t", (1,))
    fence = bench.context.epoch_version
    await bench.store.create_partition_states({partition.key: Leadership(9, 9, (9,), 1)}, fence)
    await bench.machines.partitions_to([partition], partition_states.NEW)
    outcomes = await bench.machines.partitions_to([partition], partition_states.ONLINE)
    assert str(outcomes[partition.key]).startswith("the state node was not created: NodeExists")
    assert partition.state is partition_states.NEW


async def test_a_missing_state_node_fails_an_election_and_an_exit(bench: Bench) -> None:
    (partition,) = await bench.born("t", (1, 2))
    await bench.store.store.delete("/brokers/topics/t/partitions/0/state")
    outcomes = await bench.machines.partitions_to(
        [partition], partition_states.ONLINE, Strategy.PREFERRED
    )
    assert outcomes == {partition.key: "there is no state node"}
    await bench.machines.replicas_to([(partition.key, 2)], replica_states.OFFLINE)
    assert bench.context.replica_state(partition.key, 2) is replica_states.ONLINE
    # Of a topic that is to be deleted nobody expects one.
    bench.context.queue_deletion("t")
    await bench.machines.replicas_to([(partition.key, 2)], replica_states.OFFLINE)
    assert bench.context.replica_state(partition.key, 2) is replica_states.OFFLINE


async def test_what_a_later_controller_wrote_is_left_alone(bench: Bench) -> None:
    (partition,) = await bench.born("t", (1, 2))
    later = Leadership(2, 5, (2,), controller_epoch=9, partition_epoch=0)
    assert await bench.store.update_isr(partition.key, later) is not None
    outcomes = await bench.machines.partitions_to(
        [partition], partition_states.ONLINE, Strategy.PREFERRED
    )
    assert outcomes == {partition.key: "written by controller epoch 9"}
    await bench.machines.replicas_to([(partition.key, 2)], replica_states.OFFLINE)
    assert bench.context.replica_state(partition.key, 2) is replica_states.ONLINE


@pytest.mark.parametrize(
    "write",
    [
        lambda bench, p: bench.machines.partitions_to([p], partition_states.ONLINE),
        lambda bench, p: bench.machines.replicas_to([(p.key, 2)], replica_states.OFFLINE),
        lambda bench, p: bench.machines.raise_epochs([p]),
    ],
    ids=["elect", "leave", "raise"],
)
async def test_a_lost_office_stops_everything(
    bench: Bench, write: Callable[[Bench, Partition], Awaitable[object]]
) -> None:
    (partition,) = await bench.born("t", (1, 2))
    before = partition.leadership
    await bench.store.resign_controller(bench.context.epoch_version)
    await bench.store.elect_controller(2)
    with pytest.raises(ControllerMoved):
        await write(bench, partition)
    assert partition.leadership == before
    assert bench.sent == []


async def test_who_leaves_is_told_to_stop_and_the_others_who_leads(bench: Bench) -> None:
    (partition,) = await bench.born("t", (1, 2, 3))
    await bench.machines.replicas_to([(partition.key, 1)], replica_states.OFFLINE)
    assert partition.leadership == Leadership(-1, 1, (2, 3), 1, 1)
    told = [id for id, request in bench.sent if isinstance(request, LeaderAndIsrRequest)]
    assert told == [2, 3]


async def test_races_with_the_leader_are_decided_again(bench: Bench) -> None:
    """The leader shrinks the ISR between our read and our write, twice."""
    (partition,) = await bench.born("t", (1, 2, 3))
    read, shrinks = bench.store.partition_states, [(1, 3), (1,)]

    async def raced(*arguments: object) -> object:
        states = await read(*arguments)  # type: ignore[arg-type]
        if shrinks:
            seen = states[partition.key]
            smaller = Leadership(
                seen.leader, seen.leader_epoch, shrinks.pop(0), 1, seen.partition_epoch
            )
            assert await bench.store.update_isr(partition.key, smaller) is not None
        return states

    bench.store.partition_states = raced  # type: ignore[method-assign, assignment]
    await bench.machines.replicas_to([(partition.key, 1)], replica_states.OFFLINE)
    assert partition.leadership == Leadership(-1, 1, (1,), 1, 3)
    assert bench.context.replica_state(partition.key, 1) is replica_states.OFFLINE


@pytest.mark.parametrize(
    "decide",
    [
        lambda bench, p: bench.machines.raise_epochs([p]),
        lambda bench, p: bench.machines.partitions_to([p], partition_states.ONLINE),
    ],
    ids=["raise", "elect"],
)
async def test_a_replica_let_into_the_isr_after_we_let_it_go_does_not_stay(
    bench: Bench, decide: Callable[[Bench, Partition], Awaitable[object]]
) -> None:
    """A move is cancelled, and the leader, which has not heard yet, takes the new replica in."""
    (partition,) = await bench.born("t", (1, 2))
    seen = partition.leadership
    assert seen is not None
    wider = Leadership(seen.leader, seen.leader_epoch, (1, 2, 3), 1, seen.partition_epoch)
    assert await bench.store.update_isr(partition.key, wider) is not None
    bench.batch.open()
    await decide(bench, partition)
    states = await bench.store.partition_states([partition.key])
    assert states[partition.key].isr == (1, 2)
