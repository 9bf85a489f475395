"""DescribeLogDirs (35), v0–v4: the log directories of a broker, and how much each replica takes."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since


class DescribableLogDirTopic(Struct):
    topic: str = since(0)
    partitions: list[int32] = since(0)


class DescribeLogDirsRequest(
    Request["DescribeLogDirsResponse"], api_key=35, versions=(0, 4), flexible=2
):
    topics: list[DescribableLogDirTopic] | None = since(0)  # null asks for all


class DescribeLogDirsPartition(Struct):
    partition_index: int32 = since(0)
    partition_size: int64 = since(0)
    offset_lag: int64 = since(0)
    is_future_key: bool = since(0)


class DescribeLogDirsTopic(Struct):
    name: str = since(0)
    partitions: list[DescribeLogDirsPartition] = since(0)


class DescribeLogDirsResult(Struct):
    error_code: int16 = since(0)
    log_dir: str = since(0)
    topics: list[DescribeLogDirsTopic] = since(0)
    total_bytes: int64 = since(4, default=-1)
    usable_bytes: int64 = since(4, default=-1)


class DescribeLogDirsResponse(Message, api_key=35, versions=(0, 4), flexible=2):
    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(3)
    results: list[DescribeLogDirsResult] = since(0)
