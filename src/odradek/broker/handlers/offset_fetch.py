"""OffsetFetch (9), v0–v9. How far groups have read; from v8 several groups in one request.

Without topics, everything a group has committed. With `require_stable`, UNSTABLE_OFFSET_COMMIT for
a partition with a commit under way, in a transaction or without one: a consumer that started from
the older offset would process records twice.
"""

from odradek.broker.authorization import Permissions
from odradek.broker.handler import Broker, RequestContext
from odradek.coordinator.group import CommittedOffset
from odradek.security.acls import AclOperation, ResourceType
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
            groups=[
                _group(broker, name, topics, context.may, request.require_stable)
                for name, topics in _asked(request).items()
            ]
        )
    error, found = _found(
        broker, request.group_id, request.topics, context.may, request.require_stable
    )
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


def _found(
    broker: Broker, group_id: str, topics: Asked, may: Permissions, require_stable: bool
) -> tuple[ErrorCode, Found]:
    """Of topics that the client may not describe: an error if it named them, else nothing."""
    refused = may.check(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
    if refused is not None:
        return refused.error, _no_offsets(topics, refused.error)
    found: Found = {}
    wanted = None
    if topics is not None:
        wanted = []
        for topic in topics:
            refused = may.check(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
            if refused is None:
                wanted += [TopicPartition(topic.name, index) for index in topic.partition_indexes]
            else:
                found[topic.name] = _of_none(topic, refused.error)
    error, offsets = broker.groups.offsets.fetch(group_id, wanted, require_stable)
    if error:
        return error, _no_offsets(topics, error)
    for tp, committed in offsets.items():
        if topics is None and not may.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, tp.topic):
            continue
        if isinstance(committed, ErrorCode):
            entry = (tp.partition, NO_OFFSET, committed)
        else:
            entry = (tp.partition, committed or NO_OFFSET, ErrorCode.NONE)
        found.setdefault(tp.topic, []).append(entry)
    return ErrorCode.NONE, found


def _no_offsets(topics: Asked, error: ErrorCode) -> Found:
    # Versions without an error for the group report it with each partition.
    return {topic.name: _of_none(topic, error) for topic in topics or ()}


def _of_none(
    topic: OffsetFetchRequestTopic | OffsetFetchRequestTopics, error: ErrorCode
) -> list[tuple[int, CommittedOffset, ErrorCode]]:
    return [(index, NO_OFFSET, error) for index in topic.partition_indexes]


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


def _group(
    broker: Broker, group_id: str, topics: Asked, may: Permissions, require_stable: bool
) -> OffsetFetchResponseGroup:
    error, found = _found(broker, group_id, topics, may, require_stable)
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
                        error_code=of_partition,
                    )
                    for index, committed, of_partition in partitions
                ],
            )
            for topic, partitions in found.items()
        ],
    )
