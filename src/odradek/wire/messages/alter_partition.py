"""AlterPartition (56), v0–v3: a leader asks the controller to change an ISR."""

from __future__ import annotations

from uuid import UUID

from ..schema import Message, Request, Struct, int8, int16, int32, int64, since

# Topics by id, not by name; members of the ISR with the epochs of their registrations.
TOPIC_IDS_SINCE = 2
BROKER_EPOCHS_SINCE = 3
# Of a member whose registration the leader does not know.
UNKNOWN_EPOCH = -1


class BrokerState(Struct):
    broker_id: int32 = since(3)
    broker_epoch: int64 = since(3, default=-1)


class AlterPartitionRequestPartitionData(Struct):
    partition_index: int32 = since(0)
    leader_epoch: int32 = since(0)
    new_isr: list[int32] = since(0, until=2)
    new_isr_with_epochs: list[BrokerState] = since(3)
    leader_recovery_state: int8 = since(1)
    partition_epoch: int32 = since(0)


class AlterPartitionRequestTopicData(Struct):
    topic_name: str = since(0, until=1, ignorable=True)
    topic_id: UUID = since(2, ignorable=True)
    partitions: list[AlterPartitionRequestPartitionData] = since(0)


class AlterPartitionRequest(
    Request["AlterPartitionResponse"], api_key=56, versions=(0, 3), flexible=0
):
    broker_id: int32 = since(0)
    broker_epoch: int64 = since(0, default=-1)
    topics: list[AlterPartitionRequestTopicData] = since(0)


class AlterPartitionResponsePartitionData(Struct):
    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    leader_id: int32 = since(0)
    leader_epoch: int32 = since(0)
    isr: list[int32] = since(0)
    leader_recovery_state: int8 = since(1)
    partition_epoch: int32 = since(0)


class AlterPartitionResponseTopicData(Struct):
    topic_name: str = since(0, until=1)
    topic_id: UUID = since(2)
    partitions: list[AlterPartitionResponsePartitionData] = since(0)


class AlterPartitionResponse(Message, api_key=56, versions=(0, 3), flexible=0):
    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    topics: list[AlterPartitionResponseTopicData] = since(0)
