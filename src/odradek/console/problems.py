"""What is wrong, from the picture: the rules of `operations.health`, summed up by kind."""

from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import UUID

from odradek.client.metadata import Partition, Topic
from odradek.console.collector import Collector
from odradek.operations.health import Problem, assess
from odradek.operations.snapshot import ClusterSnapshot
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.console.console import Console

_NO_ID = UUID(int=0)
# Partitions that the rules look at: more tell no one anything more.
UNHEALTHY_MAX = 2_000
LAG_MIN = 1_000
GROUPS_SHOWN = 5


class ProblemRow(TypedDict):
    severity: str
    kind: str
    subject: str
    count: int
    text: str
    reason: str
    since_ms: int | None
    trend: str | None
    left_s: float | None
    journal_reason: str | None
    link: dict[str, Any]
    actions: list[str]


_ACTIONS = {
    "offline-partition": ["elect", "history"],
    "under-min-isr": ["partitions", "history"],
    "under-replicated": ["partitions", "history"],
    "broker-down": ["broker"],
    "lag-growing": ["group"],
    "move-stalled": ["moves"],
    "disk-nearly-full": ["plan"],
    "log-directory-failed": ["broker"],
    "controller-changed": ["controller"],
    "no-controller": ["controller"],
}
_PARTITION_KINDS = ("offline-partition", "under-min-isr", "under-replicated", "move-stalled")
_MANY = {
    "offline-partition": "{} partitions offline",
    "under-min-isr": "{} partitions have fewer replicas in sync than they need",
    "under-replicated": "{} partitions under-replicated",
}


def problems_of(console: "Console") -> list[ProblemRow]:
    """The worst first, one row for each kind and reason."""
    collector = console.collector
    rows = [_unanswered(collector)] if collector.failure is not None else []
    grouped: dict[tuple[str, str], list[Problem]] = {}
    for problem in assess(snapshot_of(collector)):
        grouped.setdefault((problem.kind, problem.reason), []).append(problem)
    rows += [_dated(_row(found, collector), found, console) for found in grouped.values()]
    return [*rows, *_behind(console)]


def _dated(row: ProblemRow, found: list[Problem], console: "Console") -> ProblemRow:
    """With the moment and the reason that the journal has for it."""
    if row["kind"] in _PARTITION_KINDS:
        topic, _, p = found[0].subject.rpartition("-")
        last = console.journal.book.last_change(TopicPartition(topic, int(p)))
    elif row["kind"] == "broker-down":
        last = console.journal.book.last_death(int(found[0].subject.removeprefix("broker ")))
    else:
        last = None
    if last is not None:
        row["since_ms"], row["journal_reason"] = last.time_ms, last.why or last.after
    return row


def _behind(console: "Console") -> list[ProblemRow]:
    """Groups whose lag grows, the largest first."""
    found: list[ProblemRow] = []
    growing = [
        group
        for group in console.group_lags.groups.values()
        if (group.lag or 0) > LAG_MIN and (group.slope() or 0) > 0
    ]
    growing.sort(key=lambda group: -(group.lag or 0))
    for group in growing[:GROUPS_SHOWN]:
        slowest, slope = group.slowest(), group.slope() or 0.0
        where = "" if slowest is None else f"slowest {slowest[0]}, "
        found.append(
            {
                "severity": "warning",
                "kind": "lag-growing",
                "subject": f"group {group.id}",
                "count": 1,
                "text": f"{group.id} is {group.lag:,} records behind",
                "reason": f"{where}grows {slope:,.0f}/s",
                "since_ms": None,
                "trend": "worse",
                "left_s": group.left_s(),
                "journal_reason": None,
                "link": {"screen": "group", "id": group.id},
                "actions": ["group"],
            }
        )
    return found


def snapshot_of(collector: Collector) -> ClusterSnapshot:
    """The unhealthy partitions alone: the healthy ones break no rule."""
    table = collector.table
    topics: dict[str, Topic] = {}
    for number, p in islice(collector.counts.unhealthy, UNHEALTHY_MAX):
        name = table.names[number]
        state = table.partition(name, p)
        if state is None:
            continue
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = Topic(name, _NO_ID, bool(table.internal[number]), {})
        topic.partitions[p] = Partition(
            p,
            state.leader,
            state.leader_epoch,
            list(state.replicas),
            list(state.isr),
            list(state.offline),
        )
    min_insync = {
        name: settings.min_isr
        for name in topics
        if (settings := collector.settings.get(name)) is not None and settings.min_isr is not None
    }
    return ClusterSnapshot(
        0.0,
        collector.brokers.controller,
        dict(collector.brokers.nodes),
        topics,
        min_insync,
        {},
        {tp: state for tp, state in collector.moves.items() if tp.topic in topics},
    )


def _unanswered(collector: Collector) -> ProblemRow:
    return {
        "severity": "critical",
        "kind": "unanswered",
        "subject": "cluster",
        "count": 1,
        "text": "no broker answers",
        "reason": collector.failure or "",
        "since_ms": None,
        "trend": None,
        "left_s": None,
        "journal_reason": None,
        "link": {"screen": "brokers"},
        "actions": [],
    }


def _row(found: list[Problem], collector: Collector) -> ProblemRow:
    first = found[0]
    count = len(found)
    totals = {
        "offline-partition": collector.counts.offline,
        "under-replicated": collector.counts.under_replicated,
    }
    if count == UNHEALTHY_MAX:
        count = max(count, totals.get(first.kind, 0))
    many = _MANY.get(first.kind)
    return {
        "severity": first.severity.name.lower(),
        "kind": first.kind,
        "subject": first.subject,
        "count": count,
        "text": many.format(count) if many is not None and count > 1 else first.text,
        "reason": first.reason,
        "since_ms": None,
        "trend": None,
        "left_s": None,
        "journal_reason": None,
        "link": _link(first),
        "actions": _ACTIONS.get(first.kind, []),
    }


def _link(problem: Problem) -> dict[str, Any]:
    if problem.kind in _PARTITION_KINDS:
        topic, _, p = problem.subject.rpartition("-")
        return {"screen": "partition", "topic": topic, "p": int(p)}
    if problem.kind == "lag-growing":
        return {"screen": "group", "id": problem.subject.removeprefix("group ")}
    return {"screen": "controller" if "controller" in problem.kind else "brokers"}
