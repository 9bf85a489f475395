"""The controller's picture of the cluster: its indexes and counts stay true."""

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.controller import partition_states, replica_states
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.context import ControllerContext, Replica, grouped_by_broker
from odradek.controller.leader_and_isr_rules import has_preferred_leader
from odradek.controller.partition_states import PartitionState
from odradek.store.payloads import BrokerRegistration, Endpoint, LeaderAndIsr
from odradek.wire.topics import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def cluster(*ids: int) -> ControllerContext:
    context = ControllerContext()
    for id in ids:
        context.brokers[id] = BrokerRegistration(id, id, (Endpoint("h", id),))
    return context


def test_live_is_registered_and_not_shutting_down() -> None:
    context = cluster(1, 2, 3)
    context.brokers.shutting_down.add(2)
    assert context.brokers.live == {1, 3}
    assert [context.brokers.is_live(id) for id in (1, 2, 4)] == [True, False, False]


def test_a_replica_is_online_if_its_broker_is_and_its_directory() -> None:
    context = cluster(1, 2, 3)
    partition = context.set_assignment(T0, ReplicaAssignment([3, 2, 1, 4]))
    context.brokers.shutting_down.add(2)
    context.brokers.offline_dirs[3] = {T0}
    assert context.brokers.online_replicas(T0, partition.assignment) == (1,)
    online = context.brokers.online_replicas(T0, partition.assignment, count_shutting_down=True)
    assert online == (2, 1)
    assert context.brokers.is_replica_online(T1, 3)


def test_replicas_on_a_broker_follow_the_assignments() -> None:
    context = cluster(1, 2)
    context.set_assignment(T0, ReplicaAssignment([1, 2]))
    context.set_assignment(T1, ReplicaAssignment([2]))
    context.set_assignment(U0, ReplicaAssignment([1]))
    assert context.replicas_on([1]) == [(T0, 1), (U0, 1)]
    assert context.replicas_on([2, 1]) == [(T0, 2), (T1, 2), (T0, 1), (U0, 1)]
    context.set_assignment(T0, ReplicaAssignment([2]))
    assert context.replicas_on([1]) == [(U0, 1)]
    context.remove_topic("u")
    assert context.replicas_on([1]) == []
    assert context.replicas.brokers() == {1, 2}


def test_a_removed_replica_is_gone_from_assignment_and_index() -> None:
    context = cluster(1, 2)
    context.set_assignment(T0, ReplicaAssignment([2, 1], [2], [1]))
    context.replicas.set_state(T0, 1, replica_states.DELETION_SUCCESSFUL)
    context.forget_replica(T0, 1)
    assert context.assignment(T0) == ReplicaAssignment([2], [2], [])
    assert context.replicas.state(T0, 1) is replica_states.NON_EXISTENT
    assert context.replicas_on([1]) == []


def test_what_is_unknown_is_empty_and_non_existent() -> None:
    context = ControllerContext()
    assert context.partition(T0) is None
    assert context.assignment(T0).replicas == ()
    assert context.leader_and_isr(T0) is None
    assert context.replicas.state(T0, 1) is replica_states.NON_EXISTENT
    assert context.leader_epoch_for_stop(T0) == -1
    context.remove_topic("t")
    context.forget_replica(T0, 1)


def test_partitions_without_leader_are_kept_aside() -> None:
    context = cluster(1)
    first, second, other = (
        context.set_assignment(tp, ReplicaAssignment([1])) for tp in (T0, T1, U0)
    )
    for partition in (first, second, other):
        assert partition.state is partition_states.NON_EXISTENT
        context.set_partition_state(partition, partition_states.NEW)
    assert context.partitions_without_leader() == [first, second, other]
    context.set_partition_state(first, partition_states.ONLINE)
    context.set_partition_state(second, partition_states.OFFLINE)
    assert context.partitions_without_leader() == [second, other]
    assert context.partitions_without_leader("u") == [other]
    assert context.offline_partition_count == 1
    context.queue_deletion("t")
    assert context.partitions_without_leader() == [other]


def test_removing_a_topic_leaves_nothing_behind() -> None:
    context = cluster(1)
    partition = context.set_assignment(T0, ReplicaAssignment([1]))
    context.set_partition_state(partition, partition_states.OFFLINE)
    context.set_leader_and_isr(partition, LeaderAndIsr(2, 0, (1,), 1))
    context.reassigning[T0] = None
    context.brokers.offline_dirs[1] = {T0}
    context.queue_deletion("t")
    context.topics_deleting.add("t")
    context.topics_ineligible.add("t")
    context.remove_topic("t")
    assert context.statistics() == {
        "brokers": 1,
        "brokers_shutting_down": 0,
        "topics": 0,
        "partitions": 0,
        "offline_partitions": 0,
        "imbalanced_partitions": 0,
        "reassigning_partitions": 0,
        "topics_to_delete": 0,
        "topics_ineligible_for_deletion": 0,
        "offline_directory_replicas": 0,
    }
    assert context.topics_deleting == set()


def test_replicas_are_grouped_with_brokers_ascending() -> None:
    replicas: list[Replica] = [(T1, 3), (T0, 1), (T0, 3)]
    assert grouped_by_broker(replicas) == {1: [T0], 3: [T1, T0]}
    assert list(grouped_by_broker(replicas)) == [1, 3]


tps = st.sampled_from([T0, T1, U0])
ids = st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), tps, ids, ids),
        st.tuples(st.just("lead"), tps, st.integers(-1, 4), ids),
        st.tuples(st.just("state"), tps, st.sampled_from(PartitionState)),
        st.tuples(st.just("forget"), tps, st.integers(1, 4)),
        st.tuples(st.just("queue"), st.sampled_from("tu")),
        st.tuples(st.just("remove"), st.sampled_from("tu")),
    ),
    max_size=30,
)


@given(steps)
@settings(max_examples=150)
def test_indexes_and_counts_say_what_a_scan_would(history: list[tuple[object, ...]]) -> None:
    context = cluster(1, 2, 3)
    for what, subject, *rest in history:
        if what == "assign":
            current = ReplicaAssignment(rest[0])  # type: ignore[arg-type]
            context.set_assignment(subject, current.reassign_to(rest[1]))  # type: ignore[arg-type]
        elif what == "queue":
            context.queue_deletion(subject)  # type: ignore[arg-type]
        elif what == "remove":
            context.remove_topic(subject)  # type: ignore[arg-type]
        elif (partition := context.partition(subject)) is not None:  # type: ignore[arg-type]
            if what == "lead":
                leader_and_isr = LeaderAndIsr(rest[0], 1, tuple(rest[1]), 1)  # type: ignore[arg-type]
                context.set_leader_and_isr(partition, leader_and_isr)
            elif what == "state":
                context.set_partition_state(partition, rest[0])  # type: ignore[arg-type]
            else:
                context.forget_replica(subject, rest[0])  # type: ignore[arg-type]
    everything = list(context.partitions())
    for id in range(1, 5):
        assert set(context.replicas_on([id])) == {
            (p.tp, id) for p in everything if id in p.assignment.replicas
        }
    assert set(context.partitions_without_leader()) == {
        p
        for p in everything
        if p.state in (PartitionState.NEW, PartitionState.OFFLINE)
        and p.tp.topic not in context.topics_to_delete
    }
    assert context.imbalanced_partition_count == sum(
        not has_preferred_leader(p.assignment, p.leader_and_isr)
        for p in everything
        if p.leader_and_isr is not None
        and p.assignment.replicas
        and p.tp.topic not in context.topics_to_delete
    )
