"""The controller's picture of the cluster: brokers, topics, assignments, leadership, states.

Indexes are kept with the facts, so that a question costs what it answers: partitions without a
leader are kept aside, because every broker that comes or goes makes us try them again. Iteration
is in order of insertion everywhere: the same history gives the same requests in the same order.

Nothing here talks to the store or to a broker.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping

from odradek.controller import leader_and_isr_rules, partition_states, replica_states
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.partition_states import PartitionState
from odradek.controller.registered_brokers import RegisteredBrokers
from odradek.controller.replica_state_index import ReplicaStateIndex
from odradek.controller.replica_states import ReplicaState
from odradek.store.payloads import EPOCH_DURING_DELETE, NO_EPOCH, LeaderAndIsr
from odradek.wire.topic_ids import NO_TOPIC_ID
from odradek.wire.topics import TopicPartition

NO_ASSIGNMENT = ReplicaAssignment(())
# A broker id and a partition name a replica; tuples, because there are hundreds of thousands.
Replica = tuple[TopicPartition, int]


class Partition:
    """One partition: where its replicas are, who leads, and whether it serves.

    Read it freely; change it through the context, which keeps its indexes and counts with it.
    """

    __slots__ = ("assignment", "is_imbalanced", "leader_and_isr", "state", "tp")

    def __init__(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        self.tp = tp
        self.assignment = assignment
        self.leader_and_isr: LeaderAndIsr | None = None
        self.state = PartitionState.NON_EXISTENT
        self.is_imbalanced = False

    def __repr__(self) -> str:
        return f"<{self.tp} {self.state.name} {self.assignment} {self.leader_and_isr}>"


def known_states(partitions: Iterable[Partition]) -> dict[TopicPartition, LeaderAndIsr]:
    """What the store held of these when it was last read or written here."""
    return {
        partition.tp: partition.leader_and_isr
        for partition in partitions
        if partition.leader_and_isr is not None
    }


class InconsistentTopicId(Exception):
    """Two topics with one id, or two ids for one topic."""


class TopicIds:
    """The ids of the topics that have one, both ways."""

    def __init__(self) -> None:
        self.ids: dict[str, uuid.UUID] = {}
        self.names: dict[uuid.UUID, str] = {}

    def of(self, topic: str) -> uuid.UUID:
        """Zero if it has none."""
        return self.ids.get(topic, NO_TOPIC_ID)

    def add(self, topic: str, topic_id: uuid.UUID) -> None:
        """Raises InconsistentTopicId where Kafka's controller would resign too: of two topics with
        one id, a request by id could reach the wrong one."""
        if self.names.get(topic_id, topic) != topic:
            raise InconsistentTopicId(
                f"topics {topic} and {self.names[topic_id]} have the same id {topic_id}"
            )
        if self.ids.get(topic, topic_id) != topic_id:
            raise InconsistentTopicId(f"topic {topic} has ids {topic_id} and {self.ids[topic]}")
        self.ids[topic] = topic_id
        self.names[topic_id] = topic

    def remove(self, topic: str) -> None:
        self.names.pop(self.of(topic), None)
        self.ids.pop(topic, None)


class ControllerContext:
    """Everything the active controller knows, in memory."""

    def __init__(self) -> None:
        self.epoch = 0
        self.brokers = RegisteredBrokers()
        self.replicas = ReplicaStateIndex()
        self.topics: dict[str, dict[int, Partition]] = {}
        self.topic_ids = TopicIds()
        self.reassigning: dict[TopicPartition, None] = {}
        self.topics_to_delete: dict[str, None] = {}
        self.topics_deleting: set[str] = set()
        self.topics_ineligible: set[str] = set()
        # Partitions that have no leader to serve them: NEW or OFFLINE.
        self._without_leader: dict[TopicPartition, Partition] = {}
        self._imbalanced = 0

    # Replicas by broker

    def has_left(self, partition: TopicPartition, broker_id: int) -> bool:
        """Whether a controlled shutdown has stopped this replica. It must not be asked to fetch
        again: an ISR change that lets it in then is not fenced when its broker has gone."""
        return (
            broker_id in self.brokers.shutting_down
            and self.replicas.state(partition, broker_id) is replica_states.OFFLINE
        )

    def replicas_on(self, broker_ids: Iterable[int]) -> list[Replica]:
        """The replicas assigned to these brokers."""
        return [
            (tp, broker_id)
            for broker_id in broker_ids
            for tp in self.replicas.on(broker_id)
            if broker_id in self.assignment(tp).replicas
        ]

    # Topics and partitions

    def add_topic(self, topic: str, topic_id: uuid.UUID | None = None) -> None:
        """Raises InconsistentTopicId."""
        if topic_id is not None:
            self.topic_ids.add(topic, topic_id)
        self.topics.setdefault(topic, {})

    def remove_topic(self, topic: str) -> None:
        """Forget a topic and everything about it."""
        for partition in self.topics.pop(topic, {}).values():
            tp = partition.tp
            self._imbalanced -= partition.is_imbalanced
            self._without_leader.pop(tp, None)
            self.reassigning.pop(tp, None)
            self.replicas.remove_partition(tp)
            for offline in self.brokers.offline_dirs.values():
                offline.discard(tp)
        self.topic_ids.remove(topic)
        self.topics_to_delete.pop(topic, None)
        self.topics_deleting.discard(topic)
        self.topics_ineligible.discard(topic)

    def partition(self, tp: TopicPartition) -> Partition | None:
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.get(tp.partition)

    def partitions(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.values()

    def partitions_of(self, topic: str) -> list[Partition]:
        return list(self.topics.get(topic, {}).values())

    @property
    def partition_count(self) -> int:
        return sum(map(len, self.topics.values()))

    def assignment(self, tp: TopicPartition) -> ReplicaAssignment:
        partition = self.partition(tp)
        return NO_ASSIGNMENT if partition is None else partition.assignment

    def assignments_of(self, topic: str) -> dict[int, ReplicaAssignment]:
        return {number: p.assignment for number, p in self.topics.get(topic, {}).items()}

    def set_assignment(self, tp: TopicPartition, assignment: ReplicaAssignment) -> Partition:
        """Record where a partition's replicas are, and the partition and topic if they are new."""
        topic = self.topics.setdefault(tp.topic, {})
        partition = topic.get(tp.partition)
        if partition is None:
            partition = topic[tp.partition] = Partition(tp, assignment)
        else:
            partition.assignment = assignment
        for replica in assignment.replicas:
            self.replicas.on(replica).setdefault(partition.tp, replica_states.NON_EXISTENT)
        self._weigh(partition)
        return partition

    def set_leader_and_isr(self, partition: Partition, leader_and_isr: LeaderAndIsr) -> None:
        partition.leader_and_isr = leader_and_isr
        self._weigh(partition)

    def queue_deletion(self, topic: str) -> None:
        self.topics_to_delete[topic] = None
        for partition in self.topics.get(topic, {}).values():
            self._weigh(partition)

    def _weigh(self, partition: Partition) -> None:
        """Count a partition that is not led by its first replica."""
        leader_and_isr, assignment = partition.leader_and_isr, partition.assignment
        is_imbalanced = (
            leader_and_isr is not None
            and len(assignment.replicas) > 0
            and partition.tp.topic not in self.topics_to_delete
            and not leader_and_isr_rules.has_preferred_leader(assignment, leader_and_isr)
        )
        self._imbalanced += is_imbalanced - partition.is_imbalanced
        partition.is_imbalanced = is_imbalanced

    def leader_and_isr(self, tp: TopicPartition) -> LeaderAndIsr | None:
        partition = self.partition(tp)
        return None if partition is None else partition.leader_and_isr

    def leader_epoch_for_stop(self, tp: TopicPartition) -> int:
        """The epoch a StopReplica carries: -2 while the topic is being deleted, -1 unknown."""
        if tp.topic in self.topics_to_delete:
            return EPOCH_DURING_DELETE
        leader_and_isr = self.leader_and_isr(tp)
        return NO_EPOCH if leader_and_isr is None else leader_and_isr.leader_epoch

    # States

    def set_partition_state(self, partition: Partition, state: PartitionState) -> None:
        partition.state = state
        if state is partition_states.NEW or state is partition_states.OFFLINE:
            self._without_leader[partition.tp] = partition
        else:
            self._without_leader.pop(partition.tp, None)

    def partitions_without_leader(self, topic: str | None = None) -> list[Partition]:
        """NEW and OFFLINE partitions, except of topics queued for deletion."""
        return [
            partition
            for tp, partition in self._without_leader.items()
            if tp.topic not in self.topics_to_delete and (topic is None or tp.topic == topic)
        ]

    def forget_replica(self, tp: TopicPartition, broker_id: int) -> None:
        """Strike a replica that no longer exists from its assignment, and drop its state."""
        partition = self.partition(tp)
        if partition is not None:
            partition.assignment = partition.assignment.without(broker_id)
            self._weigh(partition)
        self.replicas.remove(tp, broker_id)

    def replicas_of_topic(self, topic: str) -> list[Replica]:
        return [
            (partition.tp, replica)
            for partition in self.topics.get(topic, {}).values()
            for replica in partition.assignment.replicas
        ]

    def replica_states_of_topic(self, topic: str) -> dict[Replica, ReplicaState]:
        return {
            (tp, replica): self.replicas.state(tp, replica)
            for tp, replica in self.replicas_of_topic(topic)
        }

    # Counting

    @property
    def offline_partition_count(self) -> int:
        return sum(
            partition.state is partition_states.OFFLINE
            for partition in self._without_leader.values()
            if partition.tp.topic not in self.topics_deleting
        )

    @property
    def imbalanced_partition_count(self) -> int:
        """Partitions that are not led by their first replica."""
        return self._imbalanced

    def is_queued_for_deletion(self, topic: str) -> bool:
        return topic in self.topics_to_delete

    def statistics(self) -> Mapping[str, int]:
        return {
            "brokers": len(self.brokers),
            "brokers_shutting_down": len(self.brokers.shutting_down),
            "topics": len(self.topics),
            "partitions": self.partition_count,
            "offline_partitions": self.offline_partition_count,
            "imbalanced_partitions": self.imbalanced_partition_count,
            "reassigning_partitions": len(self.reassigning),
            "topics_to_delete": len(self.topics_to_delete),
            "topics_ineligible_for_deletion": len(self.topics_ineligible),
            "offline_directory_replicas": sum(map(len, self.brokers.offline_dirs.values())),
        }


def grouped_by_broker(replicas: Collection[Replica]) -> dict[int, list[TopicPartition]]:
    """Replicas by broker, brokers ascending, partitions in the order given."""
    groups: dict[int, list[TopicPartition]] = {}
    for tp, broker_id in replicas:
        groups.setdefault(broker_id, []).append(tp)
    return dict(sorted(groups.items()))
