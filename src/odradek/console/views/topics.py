"""Topics and their partitions."""

from typing import Any, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from odradek.console.console import Console
from odradek.console.lists import page
from odradek.console.past import PastView
from odradek.console.picture import PartitionState
from odradek.console.routes import AT, LIST_PARAMETERS, Parameter, Route
from odradek.console.views.controller import moment_of
from odradek.console.web import Problem, answer, required_parameter
from odradek.wire.topics import TopicPartition

GROUPS_SHOWN = 100
STATES = ("offline", "under-min-isr", "under-replicated", "ok")


class TopicRow(TypedDict):
    name: str
    internal: bool
    state: str
    partitions: int
    replication: int
    min_isr: int | None
    offline: int
    under_replicated: int
    moving: int
    records_per_s: float | None
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    size_bytes: int | None
    retention_ms: int | None
    settings: int | None
    groups: int | None


class TopicsAnswer(TypedDict):
    items: list[TopicRow]
    total: int
    matched: int
    next: str | None
    age_s: float | None
    at_ms: int | None


class PartitionRow(TypedDict):
    topic: str
    p: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]
    adding: list[int]
    removing: list[int]
    preferred: int | None
    state: str
    size_bytes: int | None
    known: bool


class TopicAnswer(TopicRow):
    partitions_list: list[PartitionRow]
    group_ids: list[str]
    age_s: float | None
    at_ms: int | None


def row(console: Console, topic: int) -> TopicRow:
    collector = console.collector
    name = collector.table.names[topic]
    counts = collector.counts.topics
    offline, under = counts.offline[topic], counts.under_replicated[topic]
    settings = collector.settings.get(name)
    activity = collector.activity.topics.get(name)
    return {
        "name": name,
        "internal": bool(collector.table.internal[topic]),
        "state": _state(offline, under, _is_under_min_isr(console, topic) if under else False),
        "partitions": collector.table.partition_count(topic),
        "replication": counts.replication[topic],
        "min_isr": None if settings is None else settings.min_isr,
        "offline": offline,
        "under_replicated": under,
        "moving": sum(tp.topic == name for tp in collector.moves),
        "records_per_s": None if activity is None else activity.records_in,
        "bytes_in_per_s": None if activity is None else activity.bytes_in,
        "bytes_out_per_s": None if activity is None else activity.bytes_out,
        "size_bytes": collector.topic_sizes.get(name),
        "retention_ms": None if settings is None else settings.retention_ms,
        "settings": None if settings is None else settings.differ,
        "groups": len(console.group_lags.of_topic(name)),
    }


def _state(offline: int, under_replicated: int, under_min_isr: bool) -> str:
    if offline:
        return "offline"
    if under_min_isr:
        return "under-min-isr"
    return "under-replicated" if under_replicated else "ok"


def _is_under_min_isr(console: Console, topic: int) -> bool:
    table = console.collector.table
    settings = console.collector.settings.get(table.names[topic])
    wanted = 1 if settings is None or settings.min_isr is None else settings.min_isr
    return any(len(each.isr) < wanted for each in table.partitions(topic))


def partition_row(console: Console, each: PartitionState) -> PartitionRow:
    collector = console.collector
    ongoing = next(
        (state for tp, state in collector.moves.items() if tp == (each.topic, each.p)), None
    )
    settings = collector.settings.get(each.topic)
    wanted = 1 if settings is None or settings.min_isr is None else settings.min_isr
    return {
        "topic": each.topic,
        "p": each.p,
        "leader": each.leader,
        "leader_epoch": each.leader_epoch,
        "replicas": list(each.replicas),
        "isr": list(each.isr),
        "offline_replicas": [id for id in each.replicas if id not in collector.brokers.nodes],
        "adding": [] if ongoing is None else list(ongoing.adding),
        "removing": [] if ongoing is None else list(ongoing.removing),
        "preferred": each.replicas[0] if each.replicas else None,
        "state": _state(
            each.leader not in collector.brokers.nodes,
            len(each.isr) < len(each.replicas),
            len(each.isr) < wanted,
        ),
        "size_bytes": collector.sizes.get(TopicPartition(each.topic, each.p)),
        "known": True,
    }


def _columns(console: Console) -> dict[str, Any]:
    collector = console.collector
    names, counts = collector.table.names, collector.counts.topics
    activity, sizes, settings = collector.activity.topics, collector.topic_sizes, collector.settings

    def rate(name: str) -> Any:
        return lambda topic: getattr(activity.get(names[topic]), name, None)

    return {
        "name": lambda topic: names[topic],
        "partitions": collector.table.partition_count,
        "replication": lambda topic: counts.replication[topic],
        "min_isr": lambda topic: getattr(settings.get(names[topic]), "min_isr", None),
        "records_per_s": rate("records_in"),
        "bytes_in_per_s": rate("bytes_in"),
        "bytes_out_per_s": rate("bytes_out"),
        "size_bytes": lambda topic: sizes.get(names[topic]),
        "retention_ms": lambda topic: getattr(settings.get(names[topic]), "retention_ms", None),
        "state": lambda topic: (counts.offline[topic], counts.under_replicated[topic]),
    }


async def list_topics(console: Console, request: Request) -> Response:
    collector = console.collector
    table, counts = collector.table, collector.counts.topics
    chosen = range(len(table.names))
    if request.query_params.get("internal") != "1":
        chosen = [topic for topic in chosen if not table.internal[topic]]  # type: ignore[assignment]
    wanted = set(filter(None, request.query_params.get("state", "").split(",")))
    if unknown := wanted - set(STATES):
        raise Problem(422, f"there is no state {min(unknown)!r}", field="state")
    if wanted:
        chosen = [  # type: ignore[assignment]
            topic
            for topic in chosen
            if ("ok" in wanted and not counts.offline[topic] and not counts.under_replicated[topic])
            or (
                (counts.offline[topic] or counts.under_replicated[topic])
                and row(console, topic)["state"] in wanted
            )
        ]
    shown, rest = page(
        request,
        chosen,
        text=lambda topic: table.names[topic],
        columns=_columns(console),
        default="name",
    )
    items = [row(console, topic) for topic in shown]
    return answer(request, {"items": items, **rest, "age_s": collector.age_s, "at_ms": None})


def find_topic(console: Console, name: str) -> int:
    topic = console.collector.table.find(name)
    if topic is None:
        raise Problem(404, f"topic {name!r} does not exist", error="UNKNOWN_TOPIC_OR_PARTITION")
    return topic


def topic_state(console: Console, name: str) -> dict[str, Any]:
    topic = find_topic(console, name)
    return {
        **row(console, topic),
        "partitions_list": [
            partition_row(console, each) for each in console.collector.table.partitions(topic)
        ],
        "group_ids": sorted(console.group_lags.of_topic(name))[:GROUPS_SHOWN],
        "age_s": console.collector.age_s,
        "at_ms": None,
    }


async def show_topic(console: Console, request: Request) -> Response:
    name, at_ms = required_parameter(request, "name"), moment_of(request)
    found = topic_state(console, name)
    if at_ms is not None:
        _as_of(console, found, at_ms)
    return answer(request, found)


def _as_of(console: Console, found: dict[str, Any], at_ms: int) -> None:
    past = PastView(console.journal.book, console.collector.table, at_ms)
    for row in found["partitions_list"]:
        now = console.collector.table.partition(row["topic"], row["p"])
        if now is None:
            continue
        before = past.partition(now)
        row["known"], row["state"] = past.is_known, past.word(now)
        row["leader"] = -1 if before is None else before.leader
        row["leader_epoch"] = -1 if before is None else before.leader_epoch
        row["isr"] = [] if before is None else list(before.isr)
    states = [row["state"] for row in found["partitions_list"]]
    found["offline"] = states.count("offline")
    found["under_replicated"] = states.count("under-replicated")
    found["at_ms"] = at_ms


NAME = Parameter("name", "the topic", True)
ROUTES = (
    Route(
        "GET",
        "/topics",
        list_topics,
        "Topics",
        answer=TopicsAnswer,
        parameters=(
            *LIST_PARAMETERS,
            AT,
            Parameter("state", "only these, comma between them"),
            Parameter("internal", "1: internal topics, too"),
        ),
    ),
    Route("GET", "/topic", show_topic, "One topic", parameters=(NAME, AT), answer=TopicAnswer),
)
