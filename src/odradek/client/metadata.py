"""What a client knows of the cluster: its brokers, topics and leaders, as Metadata reports it.

The last answer counts, even when another broker's was newer: a request to a former leader is
refused, and the metadata refreshed. Leader epochs would tell old from new, but not across the
deletion and new creation of a topic that has no id.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from odradek.client.connections import Address
from odradek.wire.errors import ErrorCode, KafkaError, error_code
from odradek.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from odradek.wire.topics import TopicPartition


class Node(NamedTuple):
    """A broker that is alive."""

    id: int
    host: str
    port: int
    rack: str | None

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


class Partition(NamedTuple):
    """Who holds one partition. The leader is -1 while there is none."""

    id: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic and its partitions by id."""

    name: str
    id: UUID
    is_internal: bool
    partitions: dict[int, Partition]


@dataclass(slots=True)
class Metadata:
    """The last that was heard of everything."""

    cluster_id: str | None = None
    controller_id: int = -1
    nodes: dict[int, Node] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    # Why a requested topic is not among them.
    problems: dict[str, ErrorCode] = field(default_factory=dict)

    def update(self, response: MetadataResponse, *, whole: bool) -> None:
        """Take in an answer; a `whole` one names every topic there is."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        if whole:
            self.topics = {}
        for topic in response.topics:
            name = topic.name or ""
            if topic.error_code:
                self.topics.pop(name, None)
                self.problems[name] = error_code(topic.error_code)
            else:
                self.problems.pop(name, None)
                self.topics[name] = _topic(topic)

    def leader(self, partition: TopicPartition) -> int:
        """The broker that leads a partition; KafkaError says why there is none."""
        topic = self.topics.get(partition.topic)
        if topic is None:
            raise self.problem_with(partition.topic)
        known = topic.partitions.get(partition.partition)
        if known is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {partition.topic!r} has no partition {partition.partition}; it has "
                f"{len(topic.partitions)}",
            )
        if known.leader not in self.nodes:
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader at present"
            )
        return known.leader

    def problem_with(self, topic: str) -> KafkaError:
        """Why a topic is not known."""
        error = self.problems.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return KafkaError(error, f"topic {topic!r} does not exist")
        return KafkaError(error, f"topic {topic!r} cannot be described")

    def partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Every partition of these topics, in order."""
        return [
            TopicPartition(name, partition)
            for name in topics
            for partition in sorted(self.topics[name].partitions)
        ]


def _topic(answer: MetadataResponseTopic) -> Topic:
    partitions = {
        found.partition_index: Partition(
            found.partition_index,
            found.leader_id,
            found.leader_epoch,
            found.replica_nodes,
            found.isr_nodes,
            found.offline_replicas,
        )
        for found in sorted(answer.partitions, key=lambda partition: partition.partition_index)
    }
    return Topic(answer.name or "", answer.topic_id, answer.is_internal, partitions)
