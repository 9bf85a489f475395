"""DescribeProducers (61), v0. The producers that any replica of a partition remembers (KIP-664)."""

from odradek.broker.handler import Broker, RequestContext
from odradek.log.log import Log
from odradek.wire.errors import KafkaError
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from odradek.wire.topics import TopicPartition, validate_topic_name

ANY_EPOCH = -1


def handle(
    broker: Broker, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=name,
                partitions=[
                    _described(broker, TopicPartition(name, partition)) for partition in partitions
                ],
            )
            for name, partitions in asked.items()
        ]
    )


def _described(broker: Broker, of: TopicPartition) -> PartitionResponse:
    try:
        validate_topic_name(of.topic)
        log = broker.replicas.partitions[of].log_for(ANY_EPOCH, leader_only=False)
    except KafkaError as error:
        return _failed(of.partition, error)
    return PartitionResponse(partition_index=of.partition, active_producers=_producers(log))


def _producers(log: Log) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.last_timestamp,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_start_offset=state.transaction_start,
        )
        for producer_id, state in log.producers.items()
    ]


def _failed(partition: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=partition, error_code=error.error, error_message=error.message or None
    )
