"""What this broker knows of the cluster: live brokers, and who leads what.

docs/spec/controller-and-replication.md 5.6.

The controller's UpdateMetadata is the only source. It replaces the live brokers entirely and merges
partitions; leader -2 removes a partition; no partitions keeps those that are known.

The answer to a Metadata request is kept per topic until something in it changes, so a request for
all topics builds only what changed since the last, and a request for one costs what one costs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from odradek.store.payloads import LEADER_DURING_DELETE, NO_LEADER
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from odradek.wire.topic_ids import NO_TOPIC_ID
from odradek.wire.topics import INTERNAL_TOPICS, TopicPartition

__all__ = ["LEADER_DURING_DELETE", "LiveBroker", "MetadataCache", "PartitionInfo"]


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A registered broker and its (host, port) by listener name."""

    id: int
    endpoints: dict[str, tuple[str, int]]
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The state of one partition as the controller last sent it."""

    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


# What a topic's answer depends on besides the topic: the asker's listener and two version rules.
_View = tuple[str, bool, bool]


class MetadataCache:
    """Live brokers and partitions. `update` changes it; everything else reads."""

    def __init__(self) -> None:
        self.controller_id: int | None = None
        self._brokers: dict[int, LiveBroker] = {}
        self._topics: dict[str, dict[int, PartitionInfo]] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._topic_names: dict[UUID, str] = {}
        self._answers: dict[str, dict[_View, MetadataResponseTopic]] = {}
        self._updates = 0

    def update(self, request: UpdateMetadataRequest) -> list[TopicPartition]:
        """Take over what the controller says; answers the partitions that are gone."""
        self._updates += 1
        self.controller_id = request.controller_id if request.controller_id >= 0 else None
        brokers = {
            broker.id: LiveBroker(
                broker.id,
                {
                    endpoint.listener: (endpoint.host, endpoint.port)
                    for endpoint in broker.endpoints
                },
                broker.rack,
            )
            for broker in request.live_brokers
        }
        if brokers != self._brokers:
            self._brokers = brokers
            self._answers.clear()
        deleted: list[TopicPartition] = []
        for topic in request.topic_states:
            self._remember_id(topic.topic_name, topic.topic_id)
            self._merge(topic.topic_name, topic.partition_states, deleted)
        for state in request.ungrouped_partition_states:
            self._merge(state.topic_name, (state,), deleted)
        return deleted

    def _merge(
        self,
        topic: str,
        states: Iterable[UpdateMetadataPartitionState],
        deleted: list[TopicPartition],
    ) -> None:
        self._answers.pop(topic, None)
        partitions = self._topics.setdefault(topic, {})
        for state in states:
            if state.leader == LEADER_DURING_DELETE:
                if partitions.pop(state.partition_index, None) is not None:
                    deleted.append(TopicPartition(topic, state.partition_index))
                continue
            partitions[state.partition_index] = PartitionInfo(
                state.controller_epoch,
                state.leader,
                state.leader_epoch,
                tuple(state.isr),
                state.zk_version,
                tuple(state.replicas),
                tuple(state.offline_replicas),
            )
        if not partitions:
            del self._topics[topic]
            self._forget_id(topic)

    def _remember_id(self, topic: str, topic_id: UUID) -> None:
        """A zero id is that of a controller that speaks no ids: it takes back the one known, as in
        Kafka (docs/spec/protocol-ladder.md section 2.3)."""
        self._forget_id(topic)
        if topic_id != NO_TOPIC_ID:
            self._topic_ids[topic] = topic_id
            self._topic_names[topic_id] = topic

    def _forget_id(self, topic: str) -> None:
        self._topic_names.pop(self._topic_ids.pop(topic, NO_TOPIC_ID), None)

    # Brokers

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self._brokers

    def broker(self, broker_id: int) -> LiveBroker | None:
        return self._brokers.get(broker_id)

    def rack(self, broker_id: int) -> str | None:
        broker = self._brokers.get(broker_id)
        return None if broker is None else broker.rack

    def brokers(self) -> list[LiveBroker]:
        """All live brokers, by id."""
        return [self._brokers[broker_id] for broker_id in sorted(self._brokers)]

    def endpoint(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        broker = self._brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)

    # Partitions

    def __contains__(self, tp: TopicPartition) -> bool:
        partitions = self._topics.get(tp.topic)
        return partitions is not None and tp.partition in partitions

    @property
    def is_known(self) -> bool:
        """Whether a controller has said anything yet."""
        return self._updates > 0

    def has_topic(self, topic: str) -> bool:
        return topic in self._topics

    def topics(self) -> list[str]:
        return list(self._topics)

    def partition_count(self, topic: str) -> int | None:
        partitions = self._topics.get(topic)
        return None if partitions is None else len(partitions)

    def partitions(self, topic: str) -> dict[int, PartitionInfo]:
        return self._topics.get(topic, {})

    def partition(self, topic: str, partition: int) -> PartitionInfo | None:
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def topic_id(self, topic: str) -> UUID:
        return self._topic_ids.get(topic, NO_TOPIC_ID)

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._topic_names.get(topic_id)

    # Answers to Metadata requests

    def broker_answers(self, listener: str) -> list[MetadataResponseBroker]:
        """Every live broker that the asker can reach on its listener."""
        return [
            MetadataResponseBroker(
                node_id=broker.id, host=endpoint[0], port=endpoint[1], rack=broker.rack
            )
            for broker in self.brokers()
            if (endpoint := broker.endpoints.get(listener)) is not None
        ]

    def topic_answers(
        self,
        topics: Iterable[str] | None,
        listener: str,
        *,
        report_missing_listeners: bool = True,
        report_missing_replicas: bool = False,
    ) -> list[MetadataResponseTopic]:
        """One answer for each known topic asked for (None asks for all); others are left out.

        Metadata v6+ gets LISTENER_NOT_FOUND (`report_missing_listeners`) where older ones get
        LEADER_NOT_AVAILABLE; v0 reports replicas without endpoint (`report_missing_replicas`).
        """
        view = (listener, report_missing_listeners, report_missing_replicas)
        answers = []
        for topic in self._topics if topics is None else topics:
            if topic not in self._topics:
                continue
            views = self._answers.setdefault(topic, {})
            answer = views.get(view)
            if answer is None:
                answer = views[view] = self._answer(topic, view)
            answers.append(answer)
        return answers

    def _answer(self, topic: str, view: _View) -> MetadataResponseTopic:
        partitions = self._topics[topic]
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic,
            topic_id=self.topic_id(topic),
            is_internal=topic in INTERNAL_TOPICS,
            partitions=[
                self._partition_answer(partition, partitions[partition], view)
                for partition in sorted(partitions)
            ],
        )

    def _partition_answer(
        self, partition: int, info: PartitionInfo, view: _View
    ) -> MetadataResponsePartition:
        listener, report_missing_listeners, report_missing_replicas = view
        brokers = self._brokers

        def reachable(broker_id: int) -> bool:
            broker = brokers.get(broker_id)
            return broker is not None and listener in broker.endpoints

        replicas, isr, leader, error = info.replicas, info.isr, info.leader, ErrorCode.NONE
        if report_missing_replicas:
            replicas = tuple(filter(reachable, replicas))
            isr = tuple(filter(reachable, isr))
        if not reachable(leader):
            error = ErrorCode.LEADER_NOT_AVAILABLE
            if leader in brokers and report_missing_listeners:
                error = ErrorCode.LISTENER_NOT_FOUND
            leader = NO_LEADER
        elif len(replicas) < len(info.replicas) or len(isr) < len(info.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=partition,
            leader_id=leader,
            leader_epoch=info.leader_epoch,
            replica_nodes=list(replicas),
            isr_nodes=list(isr),
            offline_replicas=list(info.offline_replicas),
        )

    def statistics(self) -> dict[str, int]:
        return {
            "brokers": len(self._brokers),
            "topics": len(self._topics),
            "partitions": sum(map(len, self._topics.values())),
            "updates": self._updates,
        }
