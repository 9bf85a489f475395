"""LeaderAndIsr (4), v0–v7: the controller tells a broker what it leads and what it follows."""

from __future__ import annotations

from uuid import UUID

from ..schema import Message, Request, Struct, int8, int16, int32, int64, since

# Far from the tags that Kafka numbers from 0 on.
UNCLEAN_TAG = 20_292


class LeaderAndIsrPartitionState(Struct):
    topic_name: str = since(0, until=1, ignorable=True)
    partition_index: int32 = since(0)
    controller_epoch: int32 = since(0)
    leader: int32 = since(0)
    leader_epoch: int32 = since(0)
    isr: list[int32] = since(0)
    partition_epoch: int32 = since(0)
    replicas: list[int32] = since(0)
    adding_replicas: list[int32] = since(3, ignorable=True)
    removing_replicas: list[int32] = since(3, ignorable=True)
    is_new: bool = since(1, ignorable=True)
    leader_recovery_state: int8 = since(6)
    # Ours alone, and only where it is true: the leader was elected although records may be lost. A
    # Kafka broker ignores a tag that it does not know.
    is_unclean: bool = since(4, tag=UNCLEAN_TAG)


class LeaderAndIsrTopicState(Struct):
    topic_name: str = since(2)
    topic_id: UUID = since(5, ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = since(2)


class LeaderAndIsrLiveLeader(Struct):
    broker_id: int32 = since(0)
    host_name: str = since(0)
    port: int32 = since(0)


class LeaderAndIsrRequest(Request["LeaderAndIsrResponse"], api_key=4, versions=(0, 7), flexible=4):
    controller_id: int32 = since(0)
    is_kraft_controller: bool = since(7)
    controller_epoch: int32 = since(0)
    broker_epoch: int64 = since(2, default=-1, ignorable=True)
    type: int8 = since(5)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = since(0, until=1)
    topic_states: list[LeaderAndIsrTopicState] = since(2)
    live_leaders: list[LeaderAndIsrLiveLeader] = since(0)


class LeaderAndIsrPartitionError(Struct):
    topic_name: str = since(0, until=4)
    partition_index: int32 = since(0)
    error_code: int16 = since(0)


class LeaderAndIsrTopicError(Struct):
    topic_id: UUID = since(5)
    partition_errors: list[LeaderAndIsrPartitionError] = since(5)


class LeaderAndIsrResponse(Message, api_key=4, versions=(0, 7), flexible=4):
    error_code: int16 = since(0)
    partition_errors: list[LeaderAndIsrPartitionError] = since(0, until=4)
    topics: list[LeaderAndIsrTopicError] = since(5)
