"""AlterReplicaLogDirs (34), v0–v2: move replicas between the log directories of a broker."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, since


class AlterReplicaLogDirTopic(Struct):
    name: str = since(0)
    partitions: list[int32] = since(0)


class AlterReplicaLogDir(Struct):
    path: str = since(0)
    topics: list[AlterReplicaLogDirTopic] = since(0)


class AlterReplicaLogDirsRequest(
    Request["AlterReplicaLogDirsResponse"], api_key=34, versions=(0, 2), flexible=2
):
    dirs: list[AlterReplicaLogDir] = since(0)


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int32 = since(0)
    error_code: int16 = since(0)


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = since(0)
    partitions: list[AlterReplicaLogDirPartitionResult] = since(0)


class AlterReplicaLogDirsResponse(Message, api_key=34, versions=(0, 2), flexible=2):
    throttle_time_ms: int32 = since(0)
    results: list[AlterReplicaLogDirTopicResult] = since(0)
