"""ControlledShutdown (7), v0–v3: a broker that is about to stop hands over what it leads."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since


class ControlledShutdownRequest(
    Request["ControlledShutdownResponse"], api_key=7, versions=(0, 3), flexible=3
):
    broker_id: int32 = since(0)
    broker_epoch: int64 = since(2, default=-1, ignorable=True)


class RemainingPartition(Struct):
    topic_name: str = since(0)
    partition_index: int32 = since(0)


class ControlledShutdownResponse(Message, api_key=7, versions=(0, 3), flexible=3):
    error_code: int16 = since(0)
    remaining_partitions: list[RemainingPartition] = since(0)
