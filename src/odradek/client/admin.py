"""Administration: topics, partitions, settings, reassignments, elections, log directories.

A call about many things answers for each: a `KafkaError`, or None where it went well. `check` turns
the first of them into an exception. A call about the cluster as a whole raises.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from odradek.client.client import Client
from odradek.client.metadata import Topic
from odradek.client.values import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigSource,
    ElectionType,
    LogDir,
    NewPartitions,
    NewTopic,
    Outcome,
    ReplicaOnDisk,
    Resource,
    ResourceType,
    outcome,
)
from odradek.placement import Ongoing, TopicPartitionReplica
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import alter_partition_reassignments as reassign_messages
from odradek.wire.messages import create_topics as create_messages
from odradek.wire.messages import describe_configs as describe_messages
from odradek.wire.messages import elect_leaders as elect_messages
from odradek.wire.messages import incremental_alter_configs as alter_messages
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from odradek.wire.schema import Message, Request
from odradek.wire.topics import TopicPartition, group_by_topic, numbers_by_topic

R = TypeVar("R", bound=Message)


class HasErrorCode(Protocol):
    """An element of a response."""

    error_code: int


class Admin:
    """The administrator's calls on a client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @property
    def timeout_ms(self) -> int:
        """How long a broker may wait for a change to take effect before it says so."""
        return int(self.client.timeout_s * 1000 * 2 / 3)

    # The cluster

    async def describe_cluster(self) -> ClusterDescription:
        metadata = await self.client.refresh()
        return ClusterDescription(
            metadata.cluster_id,
            metadata.controller_id,
            [metadata.nodes[node] for node in sorted(metadata.nodes)],
        )

    # Topics

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        metadata = await self.client.refresh(None)
        return sorted(
            name for name, topic in metadata.topics.items() if internal or not topic.is_internal
        )

    async def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, Topic]:
        """Topics with their partitions; None is all. Raises if one does not exist."""
        if names is None:
            metadata = await self.client.refresh(None)
            return dict(sorted(metadata.topics.items()))
        names = sorted(set(names))
        metadata = await self.client.require_topics(names)
        return {name: metadata.topics[name] for name in names}

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, Outcome]:
        request = create_messages.CreateTopicsRequest(
            topics=[
                create_messages.CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    assignments=[
                        create_messages.CreatableReplicaAssignment(
                            partition_index=partition, broker_ids=list(replicas)
                        )
                        for partition, replicas in sorted(topic.assignment.items())
                    ],
                    configs=[
                        create_messages.CreatableTopicConfig(name=name, value=value)
                        for name, value in topic.configs.items()
                    ],
                )
                for topic in topics
            ],
            timeout_ms=self.timeout_ms,
            validate_only=validate_only,
        )
        response = await self._ask_controller(request, lambda answer: answer.topics)
        return {
            topic.name: outcome(topic.error_code, topic.error_message, f"topic {topic.name!r}")
            for topic in response.topics
        }

    async def delete_topics(self, names: Iterable[str]) -> dict[str, Outcome]:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=self.timeout_ms)
        response = await self._ask_controller(request, lambda answer: answer.responses)
        return {
            topic.name or "": outcome(
                topic.error_code, topic.error_message, f"topic {topic.name!r}"
            )
            for topic in response.responses
        }

    async def create_partitions(
        self, topics: Mapping[str, NewPartitions], *, validate_only: bool = False
    ) -> dict[str, Outcome]:
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(
                    name=name,
                    count=new.count,
                    assignments=None
                    if new.assignment is None
                    else [
                        CreatePartitionsAssignment(broker_ids=list(replicas))
                        for replicas in new.assignment
                    ],
                )
                for name, new in topics.items()
            ],
            timeout_ms=self.timeout_ms,
            validate_only=validate_only,
        )
        response = await self._ask_controller(request, lambda answer: answer.results)
        return {
            topic.name: outcome(topic.error_code, topic.error_message, f"topic {topic.name!r}")
            for topic in response.results
        }

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Forget all before these offsets (-1: all there is); returns where each log begins now."""

        def build(some: dict[TopicPartition, int]) -> DeleteRecordsRequest:
            topics = group_by_topic(
                (tp, DeleteRecordsPartition(partition_index=tp.partition, offset=offset))
                for tp, offset in some.items()
            )
            return DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(name=name, partitions=of) for name, of in topics.items()
                ],
                timeout_ms=self.timeout_ms,
            )

        def read(
            response: DeleteRecordsResponse,
        ) -> Iterator[tuple[TopicPartition, int, int]]:
            for topic in response.topics:
                for part in topic.partitions:
                    partition = TopicPartition(topic.name, part.partition_index)
                    yield partition, part.error_code, part.low_watermark

        return await self.client.ask_leaders(offsets, build, read)

    # Settings

    async def describe_configs(
        self, resources: Iterable[Resource], *, documentation: bool = False
    ) -> dict[Resource, list[ConfigEntry] | KafkaError]:
        """Every setting of topics and brokers, each with where its value comes from."""
        results: dict[Resource, list[ConfigEntry] | KafkaError] = {}
        for node, some in self._by_owner(resources).items():
            request = describe_messages.DescribeConfigsRequest(
                resources=[
                    describe_messages.DescribeConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configuration_keys=None,
                    )
                    for resource in some
                ],
                include_documentation=documentation,
            )
            response = await self._ask_owner(node, request)
            for result in response.results:
                resource = Resource(ResourceType(result.resource_type), result.resource_name)
                failed = outcome(result.error_code, result.error_message, _named(resource))
                results[resource] = failed or [_entry(config) for config in result.configs]
        return results

    async def alter_configs(
        self,
        changes: Mapping[Resource, Sequence[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> dict[Resource, Outcome]:
        """Alter single settings; those not named stay as they are."""
        results: dict[Resource, Outcome] = {}
        for node, some in self._by_owner(changes).items():
            request = alter_messages.IncrementalAlterConfigsRequest(
                resources=[
                    alter_messages.AlterConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configs=[
                            alter_messages.AlterableConfig(
                                name=change.name,
                                config_operation=change.operation,
                                value=change.value,
                            )
                            for change in changes[resource]
                        ],
                    )
                    for resource in some
                ],
                validate_only=validate_only,
            )
            response = await self._ask_owner(node, request)
            for result in response.responses:
                resource = Resource(ResourceType(result.resource_type), result.resource_name)
                results[resource] = outcome(
                    result.error_code, result.error_message, _named(resource)
                )
        return results

    # Replicas and leaders

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, Outcome]:
        """Move partitions to these replicas; None cancels what is under way."""
        return await self._reassign(targets, None, {})

    async def move_for_plan(
        self,
        plan_id: str,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        replica_bytes: Mapping[TopicPartition, int],
        throttle: int = 0,
    ) -> dict[TopicPartition, Outcome]:
        """Have the controller move partitions for a plan, in this order, paced, and throttled to so
        many bytes a second on each broker unless that is 0; None takes one out of the plan. A Kafka
        controller knows no plans (`knows_plans`) and refuses each with INVALID_REPLICA_ASSIGNMENT.
        """
        return await self._reassign(targets, plan_id, replica_bytes, throttle)

    async def report_strain(self, plan_id: str, brokers: Sequence[int]) -> None:
        """Tell the controller which brokers should take part in fewer moves of plans."""
        request = reassign_messages.AlterPartitionReassignmentsRequest(
            timeout_ms=self.timeout_ms, plan_id=plan_id, strained_brokers=list(brokers)
        )
        response = await self.client.ask_controller(request, lambda answer: answer.error_code)
        _raise(response.error_code, response.error_message, "strained brokers")

    async def knows_plans(self) -> bool:
        """Whether the active controller is one that paces the moves of plans."""
        controller = Resource(
            ResourceType.BROKER, str((await self.describe_cluster()).controller_id)
        )
        entries = (await self.describe_configs([controller]))[controller]
        if isinstance(entries, KafkaError):
            raise entries
        return any(entry.name == "odradek.moves.per.broker" for entry in entries)

    async def _reassign(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        plan_id: str | None,
        replica_bytes: Mapping[TopicPartition, int],
        throttle: int = 0,
    ) -> dict[TopicPartition, Outcome]:
        topics: dict[str, list[reassign_messages.ReassignablePartition]] = {}
        planned = plan_id is not None
        for position, (tp, replicas) in enumerate(targets.items()):
            wanted = None if replicas is None else list(replicas)
            topics.setdefault(tp.topic, []).append(
                reassign_messages.ReassignablePartition(
                    partition_index=tp.partition,
                    replicas=list(reassign_messages.ONLY_FOR_PLANS) if planned else wanted,
                    planned_replicas=wanted if planned else None,
                    plan_position=position if planned else 0,
                    replica_bytes=replica_bytes.get(tp, 0),
                )
            )
        request = reassign_messages.AlterPartitionReassignmentsRequest(
            topics=[
                reassign_messages.ReassignableTopic(name=name, partitions=parts)
                for name, parts in topics.items()
            ],
            timeout_ms=self.timeout_ms,
            plan_id=plan_id,
            plan_throttle=throttle,
        )
        response = await self.client.ask_controller(request, lambda answer: answer.error_code)
        _raise(response.error_code, response.error_message, "reassignment")
        return {
            TopicPartition(topic.name, part.partition_index): outcome(
                part.error_code, part.error_message, f"{topic.name}-{part.partition_index}"
            )
            for topic in response.responses
            for part in topic.partitions
        }

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Ongoing]:
        """The reassignments under way, of these partitions or of all."""
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                for name, indexes in numbers_by_topic(partitions).items()
            ]
        response = await self._list_reassignments(topics)
        return {
            TopicPartition(topic.name, part.partition_index): Ongoing(
                part.replicas, part.adding_replicas, part.removing_replicas
            )
            for topic in response.topics
            for part in topic.partitions
        }

    async def moves_of_plans(self) -> int:
        """How many moves of plans the controller has not done; a Kafka controller has none."""
        return (await self._list_reassignments([])).plan_moves

    async def _list_reassignments(
        self, topics: list[ListPartitionReassignmentsTopics] | None
    ) -> ListPartitionReassignmentsResponse:
        request = ListPartitionReassignmentsRequest(topics=topics, timeout_ms=self.timeout_ms)
        response = await self.client.ask_controller(request, lambda answer: answer.error_code)
        _raise(response.error_code, response.error_message, "reassignments")
        return response

    async def elect_leaders(
        self, election: ElectionType, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Outcome]:
        """Hold elections for these partitions or all that need one; ELECTION_NOT_NEEDED is said."""
        topics = None
        if partitions is not None:
            topics = [
                elect_messages.TopicPartitions(topic=name, partitions=indexes)
                for name, indexes in numbers_by_topic(partitions).items()
            ]
        request = elect_messages.ElectLeadersRequest(
            election_type=election, topic_partitions=topics, timeout_ms=self.timeout_ms
        )
        response = await self.client.ask_controller(request, _election_error)
        _raise(response.error_code, None, "election")
        return {
            TopicPartition(result.topic, part.partition_id): outcome(
                part.error_code, part.error_message, f"{result.topic}-{part.partition_id}"
            )
            for result in response.replica_election_results
            for part in result.partition_result
        }

    # Log directories

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[int, list[LogDir]]:
        """What lies in each log directory of these brokers, or of all."""
        metadata = await self.client.refresh()
        topics = None
        if partitions is not None:
            topics = [
                DescribableLogDirTopic(topic=name, partitions=indexes)
                for name, indexes in numbers_by_topic(partitions).items()
            ]
        results = {}
        for broker in sorted(metadata.nodes) if brokers is None else brokers:
            response = await self.client.ask(broker, DescribeLogDirsRequest(topics=topics))
            _raise(response.error_code, None, f"log directories of broker {broker}")
            results[broker] = [_log_dir(broker, result) for result in response.results]
        return results

    async def alter_log_dirs(
        self, moves: Mapping[TopicPartitionReplica, str]
    ) -> dict[TopicPartitionReplica, Outcome]:
        """Move replicas into these log directories of their brokers."""
        results: dict[TopicPartitionReplica, Outcome] = {}
        await self.client.refresh()
        for broker in sorted({replica.broker for replica in moves}):
            directories: dict[str, list[TopicPartition]] = {}
            for (topic, index, owner), path in moves.items():
                if owner == broker:
                    directories.setdefault(path, []).append(TopicPartition(topic, index))
            request = AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=path,
                        topics=[
                            AlterReplicaLogDirTopic(name=name, partitions=indexes)
                            for name, indexes in numbers_by_topic(parts).items()
                        ],
                    )
                    for path, parts in directories.items()
                ]
            )
            response = await self.client.ask(broker, request)
            for result in response.results:
                for part in result.partitions:
                    replica = TopicPartitionReplica(result.topic_name, part.partition_index, broker)
                    about = f"{result.topic_name}-{part.partition_index} on broker {broker}"
                    results[replica] = outcome(part.error_code, None, about)
        return results

    # Who to ask

    async def _ask_controller(
        self, request: Request[R], items: Callable[[R], Iterable[HasErrorCode]]
    ) -> R:
        """The controller's answer to a request whose items each have an error code."""

        def error_of(answer: R) -> int:
            codes = [item.error_code for item in items(answer)]
            moved = ErrorCode.NOT_CONTROLLER
            return moved if moved in codes else ErrorCode.NONE

        return await self.client.ask_controller(request, error_of)

    def _by_owner(self, resources: Iterable[Resource]) -> dict[int | None, list[Resource]]:
        """Resources by the broker that must be asked: a broker knows its own settings."""
        owners: dict[int | None, list[Resource]] = {}
        for resource in resources:
            own = resource.type is not ResourceType.TOPIC and resource.name != ""
            owners.setdefault(int(resource.name) if own else None, []).append(resource)
        return owners

    async def _ask_owner(self, node: int | None, request: Request[R]) -> R:
        if node is None:
            return await self.client.ask_any(request)
        if node not in self.client.metadata.nodes:
            await self.client.refresh()
        return await self.client.ask(node, request)


def _raise(number: int, message: str | None, about: str) -> None:
    if (error := outcome(number, message, about)) is not None:
        raise error


def _named(resource: Resource) -> str:
    return f"{resource.type.name.lower()} {resource.name!r}"


def _entry(config: describe_messages.DescribeConfigsResourceResult) -> ConfigEntry:
    try:
        source = ConfigSource(config.config_source)
    except ValueError:
        source = ConfigSource.UNKNOWN
    return ConfigEntry(
        config.name,
        config.value,
        source,
        config.read_only,
        config.is_sensitive,
        config.documentation,
    )


def _election_error(answer: elect_messages.ElectLeadersResponse) -> int:
    codes = {
        part.error_code
        for result in answer.replica_election_results
        for part in result.partition_result
    }
    moved = ErrorCode.NOT_CONTROLLER
    return moved if moved in codes else answer.error_code


def _log_dir(broker: int, result: DescribeLogDirsResult) -> LogDir:
    return LogDir(
        broker,
        result.log_dir,
        outcome(result.error_code, None, f"{result.log_dir} on broker {broker}"),
        result.total_bytes,
        result.usable_bytes,
        [
            ReplicaOnDisk(
                TopicPartition(topic.name, part.partition_index),
                part.partition_size,
                part.offset_lag,
                part.is_future_key,
            )
            for topic in result.topics
            for part in topic.partitions
        ],
    )
