"""Records of __consumer_offsets: groups, and how far each has read.

docs/spec/interchange-with-apache-kafka.md, section E.
"""

from __future__ import annotations

from ..schema import Message, Struct, int32, int64, since


class OffsetCommitKey(Message, versions=(0, 1)):
    group: str = since(0)
    topic: str = since(0)
    partition: int32 = since(0)


class OffsetCommitValue(Message, versions=(0, 4), flexible=4):
    offset: int64 = since(0)
    leader_epoch: int32 = since(3, default=-1)
    metadata: str = since(0)
    commit_timestamp: int64 = since(0)
    expire_timestamp: int64 = since(1, until=1, default=-1)


class GroupMetadataKey(Message, versions=(2, 2)):
    group: str = since(2)


class MemberMetadata(Struct):
    member_id: str = since(0)
    group_instance_id: str | None = since(3, default=None)
    client_id: str = since(0)
    client_host: str = since(0)
    rebalance_timeout: int32 = since(1, default=-1)
    session_timeout: int32 = since(0)
    subscription: bytes = since(0)
    assignment: bytes = since(0)


class GroupMetadataValue(Message, versions=(0, 4), flexible=4):
    protocol_type: str = since(0)
    generation: int32 = since(0)
    protocol: str | None = since(0)
    leader: str | None = since(0)
    current_state_timestamp: int64 = since(2, default=-1)
    members: list[MemberMetadata] = since(0)
