"""DescribeLogDirs (35), v0–v4. What each log directory holds, and how much room is left."""

from itertools import groupby

from odradek.broker.handler import Broker, RequestContext
from odradek.log.reports import DirectoryReport, LogSize, describe_directories
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.wire.topics import TopicPartition


def handle(
    broker: Broker, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    asked = None
    if request.topics is not None:
        asked = {
            TopicPartition(topic.topic, partition)
            for topic in request.topics
            for partition in topic.partitions
        }
    return DescribeLogDirsResponse(
        results=[_directory_result(report) for report in describe_directories(broker.logs, asked)]
    )


def refuse(
    request: DescribeLogDirsRequest, error: KafkaError, context: RequestContext
) -> DescribeLogDirsResponse | None:
    """The results are directories, which the request does not name; only v3 has another place.
    A client without permission is shown none before, as by Kafka; docs/spec/security.md, 4.5."""
    if context.version >= 3:
        return DescribeLogDirsResponse(error_code=error.error)
    is_forbidden = error.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return DescribeLogDirsResponse() if is_forbidden else None


def _directory_result(report: DirectoryReport) -> DescribeLogDirsResult:
    if not report.is_online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=report.path)
    logs = sorted(report.logs, key=_key)
    return DescribeLogDirsResult(
        log_dir=report.path,
        topics=[
            DescribeLogDirsTopic(
                name=topic,
                partitions=[
                    DescribeLogDirsPartition(
                        partition_index=log.topic_partition.partition,
                        partition_size=log.size_bytes,
                        offset_lag=log.offset_lag,
                        is_future_key=log.is_future,
                    )
                    for log in group
                ],
            )
            for topic, group in groupby(logs, lambda log: log.topic_partition.topic)
        ],
        total_bytes=report.total_bytes,
        usable_bytes=report.usable_bytes,
    )


def _key(log: LogSize) -> TopicPartition:
    return log.topic_partition
