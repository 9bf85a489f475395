"""WriteTxnMarkers (27), v0–v1: the coordinator tells partition leaders how a transaction ended."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since


class WritableTxnMarkerTopic(Struct):
    name: str = since(0)
    partition_indexes: list[int32] = since(0)


class WritableTxnMarker(Struct):
    producer_id: int64 = since(0)
    producer_epoch: int16 = since(0)
    transaction_result: bool = since(0)
    topics: list[WritableTxnMarkerTopic] = since(0)
    coordinator_epoch: int32 = since(0)


class WriteTxnMarkersRequest(
    Request["WriteTxnMarkersResponse"], api_key=27, versions=(0, 1), flexible=1
):
    markers: list[WritableTxnMarker] = since(0)


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int32 = since(0)
    error_code: int16 = since(0)


class WritableTxnMarkerTopicResult(Struct):
    name: str = since(0)
    partitions: list[WritableTxnMarkerPartitionResult] = since(0)


class WritableTxnMarkerResult(Struct):
    producer_id: int64 = since(0)
    topics: list[WritableTxnMarkerTopicResult] = since(0)


class WriteTxnMarkersResponse(Message, api_key=27, versions=(0, 1), flexible=1):
    markers: list[WritableTxnMarkerResult] = since(0)
