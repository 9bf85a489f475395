"""Consumer groups: who is behind, since when, and when it will have caught up."""

import asyncio
from typing import Any, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from odradek.console.console import Console
from odradek.console.group_lags import GroupLag
from odradek.console.lists import page
from odradek.console.routes import LIST_PARAMETERS, Parameter, Route
from odradek.console.web import Problem, answer, required_parameter
from odradek.wire.topics import TopicPartition


class SlowestPartition(TypedDict):
    topic: str
    p: int
    share: float


class GroupRow(TypedDict):
    id: str
    kind: str
    state: str
    members: int | None
    lag: int | None
    lag_s: float | None
    slope_per_s: float | None
    left_s: float | None
    slowest: SlowestPartition | None
    coordinator: int
    topics: list[str]
    age_s: float | None
    query: str | None


class GroupsAnswer(TypedDict):
    items: list[GroupRow]
    total: int
    matched: int
    next: str | None
    age_s: float | None
    at_ms: int | None


class PartitionLag(TypedDict):
    topic: str
    p: int
    committed: int
    end: int | None
    lag: int | None
    lag_s: float | None
    owner: str | None
    client_id: str | None


class Assigned(TypedDict):
    topic: str
    p: int


class MemberRow(TypedDict):
    id: str
    client_id: str
    host: str
    partitions: list[Assigned]


class GroupAnswer(GroupRow):
    protocol: str
    members_list: list[MemberRow]
    partitions: list[PartitionLag]
    charts: list[str]


def row(console: Console, group: GroupLag, queries: dict[str, str]) -> GroupRow:
    slowest = group.slowest()
    now = asyncio.get_running_loop().time()
    query = queries.get(group.id)
    # Without a protocol it is what Kafka calls a simple group: offsets, and never a member.
    kind = group.protocol_type if group.protocol_type in ("consumer", "connect") else "other"
    if not group.protocol_type:
        kind = "simple"
    return {
        "id": group.id,
        "kind": "spark" if query is not None else kind,
        "state": group.state,
        "members": group.members,
        "lag": group.lag,
        "lag_s": _rounded(group.behind_s),
        "slope_per_s": _rounded(group.slope()),
        "left_s": _rounded(group.left_s()),
        "slowest": None
        if slowest is None
        else {"topic": slowest[0].topic, "p": slowest[0].partition, "share": slowest[1]},
        "coordinator": group.coordinator,
        "topics": sorted(group.commits.topics)[:20],
        "age_s": None if group.read_s is None else round(now - group.read_s, 1),
        "query": query,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


async def list_groups(console: Console, request: Request) -> Response:
    groups = sorted(console.group_lags.groups.values(), key=lambda group: group.id)
    topic = request.query_params.get("topic")
    if topic is not None:
        groups = [group for group in groups if topic in group.commits.topics]
    queries = console.pipelines.group_names()
    shown, rest = page(
        request,
        groups,
        text=lambda group: group.id,
        columns={
            "id": lambda group: group.id,
            "state": lambda group: group.state,
            "members": lambda group: group.members,
            "lag": lambda group: group.lag,
            "lag_s": lambda group: group.behind_s,
            "slope_per_s": lambda group: group.slope(),
            "left_s": lambda group: group.left_s(),
            "coordinator": lambda group: group.coordinator,
        },
        default="id",
    )
    console.group_lags.look_at(group.id for group in shown[:100])
    items = [row(console, group, queries) for group in shown]
    return answer(
        request, {"items": items, **rest, "age_s": console.collector.age_s, "at_ms": None}
    )


async def show_group(console: Console, request: Request) -> Response:
    id = required_parameter(request, "id")
    if id not in console.group_lags.groups:
        # It may be younger than the last listing.
        described = await console.link.api.groups.describe_group(id)
        known = console.group_lags.groups.setdefault(id, GroupLag(id))
        known.coordinator, known.protocol_type = described.coordinator, described.protocol_type
    console.group_lags.look_at([id])
    if console.group_lags.groups[id].read_s is None:
        await console.group_lags.read_for_page(id)
    described = await console.link.api.groups.describe_group(id)
    group = console.group_lags.groups.get(id)
    if group is None:
        raise Problem(404, f"group {id!r} does not exist", error="GROUP_ID_NOT_FOUND")
    group.state, group.members = described.state, len(described.members)
    owners = {
        tp: (member.id, member.client_id)
        for member in described.members
        for tp in member.partitions
    }
    return answer(
        request,
        {
            **row(console, group, console.pipelines.group_names()),
            "protocol": described.protocol,
            "members_list": [
                {
                    "id": member.id,
                    "client_id": member.client_id,
                    "host": member.host,
                    "partitions": [
                        {"topic": tp.topic, "p": tp.partition} for tp in member.partitions
                    ],
                }
                for member in described.members
            ],
            "partitions": _partitions(group, owners),
            "charts": [f"group.{id}.lag", f"group.{id}.lag_s"],
        },
    )


def watched_state(console: Console, id: str) -> dict[str, Any] | None:
    """The group as it was last read, without its members."""
    group = console.group_lags.groups.get(id)
    if group is None:
        return None
    return {
        **row(console, group, console.pipelines.group_names()),
        "partitions": _partitions(group, {}),
    }


def _partitions(
    group: GroupLag, owners: dict[TopicPartition, tuple[str, str]]
) -> list[PartitionLag]:
    lags = group.lags()
    rows: list[PartitionLag] = []
    for tp in sorted(group.commits.keys() | owners.keys()):
        owner = owners.get(tp)
        lag = lags.get(tp)
        rows.append(
            {
                "topic": tp.topic,
                "p": tp.partition,
                "committed": group.commits.get(tp, -1),
                "end": group.ends.get(tp),
                "lag": lag,
                "lag_s": 0.0 if lag == 0 else _rounded(group.lag_s(tp)),
                "owner": None if owner is None else owner[0],
                "client_id": None if owner is None else owner[1],
            }
        )
    return rows


ROUTES = (
    Route(
        "GET",
        "/groups",
        list_groups,
        "Consumer groups",
        answer=GroupsAnswer,
        parameters=(*LIST_PARAMETERS, Parameter("topic", "only groups that read it")),
    ),
    Route(
        "GET",
        "/group",
        show_group,
        "One group",
        answer=GroupAnswer,
        parameters=(Parameter("id", "the group", True),),
    ),
)
