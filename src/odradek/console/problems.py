"""What is wrong, from the picture: the rules of `operations.health`, summed up by kind."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import UUID

from odradek.client.metadata import Partition, Topic
from odradek.client.values import LogDir
from odradek.console.collector import Collector
from odradek.operations.health import ADVICE, Problem, Severity, assess, dated
from odradek.operations.history import JournalHistory, disks_of
from odradek.operations.snapshot import ClusterSnapshot
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.console.console import Console

_NO_ID = UUID(int=0)
# Partitions that the rules look at: more would add nothing.
UNHEALTHY_MAX = 2_000
LAG_MIN = 1_000
GROUPS_SHOWN = 5
# A trend is over this long.
TREND_S = 30.0


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
    advice: str
    link: dict[str, Any]
    actions: list[str]


_ACTIONS = {
    "offline-partition": ["elect", "history"],
    "under-min-isr": ["unhealthy", "history"],
    "under-replicated": ["unhealthy", "history"],
    "broker-down": ["plan"],
    "move-stalled": ["moves"],
    "disk-nearly-full": ["plan"],
}
_PARTITION_KINDS = ("offline-partition", "under-min-isr", "under-replicated", "move-stalled")
_WITH_TREND = ("offline-partition", "under-min-isr", "under-replicated")
_MANY = {
    "offline-partition": "{} partitions offline",
    "under-min-isr": "{} partitions have fewer replicas in sync than they need",
    "under-replicated": "{} partitions under-replicated",
    "move-stalled": "{} reassignments make no progress",
}


RESTRICTED = Problem(
    Severity.WARNING,
    "restricted",
    "cluster",
    "this console sees only a part of the cluster",
    "the user that it connects as may not describe the cluster, and topics and groups that are "
    "hidden from that user are missing on every screen",
)


class Trends:
    """Whether there are more of a kind of problem than a while ago, or fewer."""

    def __init__(self) -> None:
        self._counts: dict[str, deque[tuple[float, int]]] = {}

    def add(self, at_s: float, rows: Iterable[ProblemRow]) -> None:
        """To be called every few seconds."""
        now: dict[str, int] = {}
        for row in rows:
            now[row["kind"]] = now.get(row["kind"], 0) + row["count"]
        for gone in self._counts.keys() - now.keys():
            del self._counts[gone]
        for kind, count in now.items():
            counts = self._counts.setdefault(kind, deque())
            counts.append((at_s, count))
            while at_s - counts[0][0] > TREND_S:
                counts.popleft()

    def of(self, kind: str) -> str | None:
        counts = self._counts.get(kind)
        if counts is None or len(counts) < 2:
            return None
        before, now = counts[0][1], counts[-1][1]
        return "better" if now < before else "worse" if now > before else "same"


def problems_of(console: "Console") -> list[ProblemRow]:
    """The worst first, one row for each kind and reason."""
    now, history = snapshot_of(console), history_of(console)
    found = assess(now, None, history)
    found += [dated(problem, history, now) for problem in _stalled(console)]
    grouped: dict[tuple[str, str], list[Problem]] = {}
    for problem in found:
        # Brokers and directories are few, each its own; of partitions there may be thousands.
        apart = "" if problem.kind in _PARTITION_KINDS else problem.subject
        grouped.setdefault((problem.kind, f"{problem.reason} {apart}"), []).append(problem)
    rows = [_row(found, console) for found in grouped.values()] + _behind(console)
    if console.collector.failure is not None:
        rows.append(_unanswered(console))
    elif console.collector.is_restricted:
        advice = "Allow that user to describe the cluster, its topics and its groups."
        rows.append({**_row([RESTRICTED], console), "advice": advice})
    return sorted(rows, key=lambda row: Severity[row["severity"].upper()])


def history_of(console: "Console") -> JournalHistory:
    disks = {id: disks_of(each) for id, each in console.collector.statistics.items()}
    return JournalHistory(console.journal.book, disks)


def _stalled(console: "Console") -> Iterator[Problem]:
    """Moves of which nothing was copied for a while."""
    alive = console.collector.brokers.nodes
    for tp, adding in console.moves.stalled():
        down = [id for id in adding if id not in alive]
        yield Problem(
            Severity.WARNING,
            "move-stalled",
            str(tp),
            f"the reassignment of {tp} to broker {adding[0]} makes no progress",
            f"broker {down[0]} is down" if down else "nothing was copied; is the throttle too low?",
            console.moves.measured_since_ms,
        )


def _behind(console: "Console") -> list[ProblemRow]:
    """Groups whose lag grows, the largest first, since their first unread record was written."""
    growing = [
        group
        for group in console.group_lags.groups.values()
        if (group.lag or 0) > LAG_MIN and (group.slope() or 0) > 0
    ]
    growing.sort(key=lambda group: -(group.lag or 0))
    found: list[ProblemRow] = []
    for group in growing[:GROUPS_SHOWN]:
        slowest, slope, behind_s = group.slowest(), group.slope() or 0.0, group.behind_s
        where = "" if slowest is None else f"slowest {slowest[0]}, "
        problem = Problem(
            Severity.WARNING,
            "lag-growing",
            f"group {group.id}",
            f"{group.id} is {group.lag:,} records behind",
            f"{where}grows {slope:,.0f}/s",
            None if behind_s is None else console.now_ms() - int(behind_s * 1000),
        )
        row = _row([problem], console)
        row["trend"], row["left_s"] = "worse", group.left_s()
        found.append(row)
    return found


def snapshot_of(console: "Console") -> ClusterSnapshot:
    """The unhealthy partitions alone: the healthy ones break no rule."""
    collector = console.collector
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
        console.now_ms(),
        collector.brokers.controller,
        dict(collector.brokers.nodes),
        topics,
        min_insync,
        _directories(collector),
        dict(collector.moves),
    )


def _directories(collector: Collector) -> dict[int, list[LogDir]]:
    """Without the replicas on them, which no rule looks at here."""
    return {
        broker: [
            LogDir(
                broker,
                each.path,
                None if each.error is None else KafkaError(ErrorCode.KAFKA_STORAGE_ERROR),
                each.total_bytes,
                each.usable_bytes,
                [],
            )
            for each in directories
        ]
        for broker, directories in collector.directories.items()
        if broker in collector.brokers.nodes
    }


def _unanswered(console: "Console") -> ProblemRow:
    age_s = console.collector.age_s
    problem = Problem(
        Severity.CRITICAL,
        "unanswered",
        "cluster",
        "no broker answers",
        console.collector.failure or "",
        None if age_s is None else console.now_ms() - int(age_s * 1000),
    )
    return _row([problem], console)


def _row(found: list[Problem], console: "Console") -> ProblemRow:
    first = min(found, key=lambda each: each.since_ms or console.now_ms())
    count = len(found)
    counts = console.collector.counts
    totals = {
        "offline-partition": counts.offline,
        "under-replicated": counts.under_replicated,
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
        "since_ms": first.since_ms,
        "trend": console.trends.of(first.kind) if first.kind in _WITH_TREND else None,
        "left_s": None,
        "journal_reason": first.cause or None,
        "advice": ADVICE.get(first.kind, ""),
        "link": _link(first),
        "actions": _ACTIONS.get(first.kind, []),
    }


def _link(problem: Problem) -> dict[str, Any]:
    if problem.kind in _PARTITION_KINDS:
        topic, _, p = problem.subject.rpartition("-")
        return {"screen": "partition", "topic": topic, "p": int(p)}
    if problem.kind == "lag-growing":
        return {"screen": "group", "id": problem.subject.removeprefix("group ")}
    broker = problem.subject.rpartition("broker ")[2]
    if broker.isdecimal() and problem.kind != "controller-changed":
        return {"screen": "broker", "id": int(broker)}
    return {"screen": "controller" if "controller" in problem.kind else "brokers"}
