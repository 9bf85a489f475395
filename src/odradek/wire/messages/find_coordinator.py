"""FindCoordinator (10), v0–v6: which broker coordinates a group or a transactional id."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int8, int16, int32, since


class FindCoordinatorRequest(
    Request["FindCoordinatorResponse"], api_key=10, versions=(0, 6), flexible=3
):
    key: str = since(0, until=3)
    key_type: int8 = since(1)  # 0 group, 1 transactional id
    coordinator_keys: list[str] = since(4)


class Coordinator(Struct):
    key: str = since(4)
    node_id: int32 = since(4)
    host: str = since(4)
    port: int32 = since(4)
    error_code: int16 = since(4)
    error_message: str | None = since(4)


class FindCoordinatorResponse(Message, api_key=10, versions=(0, 6), flexible=3):
    throttle_time_ms: int32 = since(1)
    error_code: int16 = since(0, until=3)
    error_message: str | None = since(1, until=3)
    node_id: int32 = since(0, until=3)
    host: str = since(0, until=3)
    port: int32 = since(0, until=3)
    coordinators: list[Coordinator] = since(4)
