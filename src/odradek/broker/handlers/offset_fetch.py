"""OffsetFetch (9), v0–v9. How far groups have read; from v8 several groups in one request.

Without topics, everything a group has committed. There are no open transactions to wait for, so
`require_stable` changes nothing.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.coordinator.group import CommittedOffset
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.wire.topics import TopicPartition

GROUPS_SINCE = 8
NO_OFFSET = CommittedOffset(-1, "", -1)

Asked = list[OffsetFetchRequestTopic] | list[OffsetFetchRequestTopics] | None
Found = dict[str, list[tuple[int, CommittedOffset, ErrorCode]]]


def handle(
    broker: Broker, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    if context.version >= GROUPS_SINCE:
        return OffsetFetchResponse(
            groups=[_group(broker, name, topics) for name, topics in _asked(request).items()]
        )
    error, found = _found(broker, request.group_id, request.topics)
    return _single(error, found)


def _asked(request: OffsetFetchRequest) -> dict[str, list[OffsetFetchRequestTopics] | None]:
    """What is asked of each group; all topics, or some. One named twice is answered once."""
    asked: dict[str, list[OffsetFetchRequestTopics] | None] = {}
    for one in request.groups:
        topics = asked.setdefault(one.group_id, [])
        if one.topics is None:
            asked[one.group_id] = None
        elif topics is not None:
            topics += one.topics
    return asked


def _found(broker: Broker, group_id: str, topics: Asked) -> tuple[ErrorCode, Found]:
    wanted = None
    if topics is not None:
        wanted = [
            TopicPartition(topic.name, index)
            for topic in topics
            for index in topic.partition_indexes
        ]
    error, offsets = broker.groups.offsets.fetch(group_id, wanted)
    if error:
        return error, _no_offsets(topics, error)
    found: Found = {}
    for tp, committed in offsets.items():
        entry = (tp.partition, committed or NO_OFFSET, ErrorCode.NONE)
        found.setdefault(tp.topic, []).append(entry)
    return ErrorCode.NONE, found


def _no_offsets(topics: Asked, error: ErrorCode) -> Found:
    # Versions without an error of their own tell it with each partition.
    return {
        topic.name: [(index, NO_OFFSET, error) for index in topic.partition_indexes]
        for topic in topics or ()
    }


def _single(error: ErrorCode, found: Found) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=error,
        topics=[
            OffsetFetchResponseTopic(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        metadata=committed.metadata,
                        error_code=of_partition,
                    )
                    for index, committed, of_partition in partitions
                ],
            )
            for topic, partitions in found.items()
        ],
    )


def _group(broker: Broker, group_id: str, topics: Asked) -> OffsetFetchResponseGroup:
    error, found = _found(broker, group_id, topics)
    if error:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=error)
    return OffsetFetchResponseGroup(
        group_id=group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        metadata=committed.metadata,
                    )
                    for index, committed, _ in partitions
                ],
            )
            for topic, partitions in found.items()
        ],
    )
