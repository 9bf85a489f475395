"""ElectLeaders (43), v0–v2: elect the preferred leader, or any that is alive."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int8, int16, int32, since


class TopicPartitions(Struct):
    topic: str = since(0)
    partitions: list[int32] = since(0)


class ElectLeadersRequest(Request["ElectLeadersResponse"], api_key=43, versions=(0, 2), flexible=2):
    election_type: int8 = since(1)  # 0 preferred, 1 unclean
    topic_partitions: list[TopicPartitions] | None = since(0)  # null is every partition
    timeout_ms: int32 = since(0, default=60000)


class PartitionResult(Struct):
    partition_id: int32 = since(0)
    error_code: int16 = since(0)
    error_message: str | None = since(0)


class ReplicaElectionResult(Struct):
    topic: str = since(0)
    partition_result: list[PartitionResult] = since(0)


class ElectLeadersResponse(Message, api_key=43, versions=(0, 2), flexible=2):
    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(1)
    replica_election_results: list[ReplicaElectionResult] = since(0)
