"""StopReplica (5), v0–v4: the controller tells a broker to stop replicas, or to delete them."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since


class StopReplicaPartitionV0(Struct):
    topic_name: str = since(0, until=0)
    partition_index: int32 = since(0, until=0)


class StopReplicaTopicV1(Struct):
    name: str = since(1, until=2)
    partition_indexes: list[int32] = since(1, until=2)


class StopReplicaPartitionState(Struct):
    partition_index: int32 = since(3)
    # -1 is unknown, -2 says that the topic is being deleted
    leader_epoch: int32 = since(3, default=-1)
    delete_partition: bool = since(3)


class StopReplicaTopicState(Struct):
    topic_name: str = since(3)
    partition_states: list[StopReplicaPartitionState] = since(3)


class StopReplicaRequest(Request["StopReplicaResponse"], api_key=5, versions=(0, 4), flexible=2):
    controller_id: int32 = since(0)
    is_kraft_controller: bool = since(4)
    controller_epoch: int32 = since(0)
    broker_epoch: int64 = since(1, default=-1, ignorable=True)
    delete_partitions: bool = since(0, until=2)
    ungrouped_partitions: list[StopReplicaPartitionV0] = since(0, until=0)
    topics: list[StopReplicaTopicV1] = since(1, until=2)
    topic_states: list[StopReplicaTopicState] = since(3)


class StopReplicaPartitionError(Struct):
    topic_name: str = since(0)
    partition_index: int32 = since(0)
    error_code: int16 = since(0)


class StopReplicaResponse(Message, api_key=5, versions=(0, 4), flexible=2):
    error_code: int16 = since(0)
    partition_errors: list[StopReplicaPartitionError] = since(0)
