"""A controller as clients see it: over the wire, on the one broker they ask, nothing repeated."""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.elections import ElectionType
from odradek.controller.partition_outcome import PartitionOutcome
from odradek.sim.world import PORT, Host
from odradek.wire.api import APIS
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from odradek.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from odradek.wire.schema import Request
from odradek.wire.topics import TopicPartition, numbers_by_topic

TIMEOUT_MS = 30_000

R = TypeVar(
    "R",
    AlterPartitionReassignmentsResponse,
    ControlledShutdownResponse,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
)


class WiredController:
    """The controller of a host, in the same words as `odradek.controller.Controller`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.broker_id = host.id

    async def _ask(self, request: Request[R]) -> R:
        """One request by a client of its own."""

        async def exchange() -> R:
            connection = await Connection.open(self._host.name, PORT, client_id="scenario")
            try:
                return await connection.request(request, APIS[request.API_KEY].max_version)
            finally:
                connection.close()

        response = await self._host.world.process("client").run(exchange())
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(response.error_code))
        return response

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> set[TopicPartition]:
        response = await self._ask(
            ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        )
        return {
            TopicPartition(left.topic_name, left.partition_index)
            for left in response.remaining_partitions
        }

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionOutcome]:
        request = ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=None
            if partitions is None
            else [
                TopicPartitions(topic=topic, partitions=numbers)
                for topic, numbers in numbers_by_topic(partitions).items()
            ],
            timeout_ms=TIMEOUT_MS,
        )
        response = await self._ask(request)
        return {
            TopicPartition(topic.topic, one.partition_id): PartitionOutcome(
                ErrorCode(one.error_code)
            )
            for topic in response.replica_election_results
            for one in topic.partition_result
        }

    async def alter_reassignments(
        self, moves: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, PartitionOutcome]:
        request = AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(
                            partition_index=number,
                            replicas=None if to is None else list(to),
                        )
                        for number in numbers
                        for to in [moves[TopicPartition(topic, number)]]
                    ],
                )
                for topic, numbers in numbers_by_topic(moves).items()
            ],
            timeout_ms=TIMEOUT_MS,
        )
        response = await self._ask(request)
        return {
            TopicPartition(topic.name, one.partition_index): PartitionOutcome(
                ErrorCode(one.error_code)
            )
            for topic in response.responses
            for one in topic.partitions
        }

    async def list_reassignments(
        self, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        assert partitions is None, "a scenario lists all"
        request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=TIMEOUT_MS)
        response = await self._ask(request)
        return {
            TopicPartition(topic.name, one.partition_index): ReplicaAssignment(
                one.replicas, one.adding_replicas, one.removing_replicas
            )
            for topic in response.topics
            for one in topic.partitions
        }
