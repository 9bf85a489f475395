"""AlterReplicaLogDirs (34), v0–v2. Moves replicas between this broker's log directories (KIP-113).

A replica that is not here yet gets REPLICA_NOT_AVAILABLE, and will be made in the directory
named.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from odradek.wire.topics import TopicPartition, group_by_topic


def handle(
    broker: Broker, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    return _response(broker.replicas.log_dir_moves.alter(_targets(request)))


def refuse(
    request: AlterReplicaLogDirsRequest, error: KafkaError, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    return _response(dict.fromkeys(_targets(request), error.error))


def _targets(request: AlterReplicaLogDirsRequest) -> dict[TopicPartition, str]:
    return {
        TopicPartition(topic.name, partition): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for partition in topic.partitions
    }


def _response(errors: dict[TopicPartition, ErrorCode]) -> AlterReplicaLogDirsResponse:
    topics = group_by_topic(
        (tp, AlterReplicaLogDirPartitionResult(partition_index=tp.partition, error_code=error))
        for tp, error in errors.items()
    )
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ]
    )
