"""DeleteTopics (20), v0–v6: topics to delete, by name or by id."""

from __future__ import annotations

from uuid import UUID

from ..schema import Message, Request, Struct, int16, int32, since


class DeleteTopicState(Struct):
    name: str | None = since(6, default=None)
    topic_id: UUID = since(6)


class DeleteTopicsRequest(Request["DeleteTopicsResponse"], api_key=20, versions=(0, 6), flexible=4):
    topics: list[DeleteTopicState] = since(6)
    topic_names: list[str] = since(0, until=5, ignorable=True)
    timeout_ms: int32 = since(0)


class DeletableTopicResult(Struct):
    name: str | None = since(0, nullable_since=6)
    topic_id: UUID = since(6)
    error_code: int16 = since(0)
    error_message: str | None = since(5, default=None)


class DeleteTopicsResponse(Message, api_key=20, versions=(0, 6), flexible=4):
    throttle_time_ms: int32 = since(1)
    responses: list[DeletableTopicResult] = since(0)
