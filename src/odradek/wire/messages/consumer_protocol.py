"""What consumers tell each other through JoinGroup and SyncGroup: subscriptions, assignments."""

from __future__ import annotations

from ..schema import Message, Struct, int32, since


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    topic: str = since(1)
    partitions: list[int32] = since(1)


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    topics: list[str] = since(0)
    user_data: bytes | None = since(0, default=None)
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = since(1)
    generation_id: int32 = since(2, default=-1)
    rack_id: str | None = since(3, default=None)


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: str = since(0)
    partitions: list[int32] = since(0)


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = since(0)
    user_data: bytes | None = since(0, default=None)
