"""What is wrong with a cluster right now: rules, as pure functions over snapshots.

Rules
1. A rule looks at one snapshot, or at two for what is only visible over time, and reports each
   thing that is wrong as a `Problem`. It asks the cluster nothing.
2. A problem says what is wrong, where, and why as far as the snapshot shows it.
3. The worst comes first: data that cannot be read or written, then data at risk, then the rest.

When a problem began is not in any snapshot. If it was absent from an earlier one, it began in
between; a `History` (the controller's journal, where a broker serves it) knows more, and what
caused it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, Protocol

from odradek.client.groups import Lag
from odradek.client.metadata import Partition
from odradek.operations.snapshot import ClusterSnapshot
from odradek.wire.topics import TopicPartition


class Severity(IntEnum):
    """How bad a problem is; smaller is worse."""

    CRITICAL = 0  # something cannot be read or written
    WARNING = 1  # one more failure, or more time, and it is critical
    NOTICE = 2  # worth knowing


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `kind` and `subject` together identify it over time."""

    severity: Severity
    kind: str
    subject: str
    text: str
    reason: str = ""
    # None if it is older than every snapshot and no history knows.
    since_ms: int | None = None
    # What the controller's journal gives as the cause.
    cause: str = ""


class Onset(NamedTuple):
    """When a problem began, and what caused it as far as is known."""

    time_ms: int
    cause: str = ""


class History(Protocol):
    """Knows when a problem began and why, better than two snapshots do."""

    def onset(self, problem: Problem, now: ClusterSnapshot) -> Onset | None: ...

    def recent(self, now: ClusterSnapshot) -> Iterable[Problem]:
        """What no snapshot shows, because it is over."""


Rule = Callable[[ClusterSnapshot, ClusterSnapshot | None], Iterator[Problem]]


def assess(
    now: ClusterSnapshot,
    before: ClusterSnapshot | None = None,
    history: History | None = None,
) -> list[Problem]:
    """Every problem there is, the worst first."""
    found = _apply(now, before)
    if before is not None:
        earlier = {(problem.kind, problem.subject) for problem in _apply(before, None)}
        found = [
            problem
            if (problem.kind, problem.subject) in earlier
            else replace(problem, since_ms=before.at_ms)
            for problem in found
        ]
    if history is not None:
        known = {(problem.kind, problem.subject) for problem in found}
        found = [dated(problem, history, now) for problem in found]
        found += (each for each in history.recent(now) if (each.kind, each.subject) not in known)
    return sorted(found, key=lambda problem: (problem.severity, problem.kind, problem.subject))


def _apply(now: ClusterSnapshot, before: ClusterSnapshot | None) -> list[Problem]:
    return [problem for rule in RULES for problem in rule(now, before)]


def dated(problem: Problem, history: History, now: ClusterSnapshot) -> Problem:
    onset = history.onset(problem, now)
    if onset is None:
        return problem
    return replace(problem, since_ms=onset.time_ms, cause=onset.cause or problem.cause)


def no_controller(now: ClusterSnapshot, before: ClusterSnapshot | None) -> Iterator[Problem]:
    if now.controller_id not in now.brokers:
        yield Problem(
            Severity.CRITICAL,
            "no-controller",
            "cluster",
            "there is no active controller",
            "leaders are not elected and topics not created until there is one",
        )


def controller_changed(now: ClusterSnapshot, before: ClusterSnapshot | None) -> Iterator[Problem]:
    if before is None or now.controller_id == before.controller_id or now.controller_id < 0:
        return
    reason = ""
    if before.controller_id >= 0 and before.controller_id not in now.brokers:
        reason = f"broker {before.controller_id} is down"
    yield Problem(
        Severity.NOTICE,
        "controller-changed",
        f"broker {now.controller_id}",
        f"broker {now.controller_id} became controller, after broker {before.controller_id}",
        reason,
    )


def offline_partition(now: ClusterSnapshot, before: ClusterSnapshot | None) -> Iterator[Problem]:
    for tp, partition in _partitions(now):
        if not _has_leader(now, partition):
            yield Problem(
                Severity.CRITICAL,
                "offline-partition",
                str(tp),
                f"{tp} has no leader: it can be neither read nor written",
                _why_offline(now, partition),
            )


def under_min_isr(now: ClusterSnapshot, before: ClusterSnapshot | None) -> Iterator[Problem]:
    for tp, partition in _partitions(now):
        wanted = now.min_insync.get(tp.topic, 1)
        if _has_leader(now, partition) and len(partition.isr) < wanted:
            yield Problem(
                Severity.CRITICAL,
                "under-min-isr",
                str(tp),
                f"{tp} has {len(partition.isr)} of {wanted} required replicas in sync: writes with "
                "acks=all fail",
                _why_behind(now, partition),
            )


def under_replicated(now: ClusterSnapshot, before: ClusterSnapshot | None) -> Iterator[Problem]:
    for tp, partition in _partitions(now):
        # A replica that is being added is expected to be behind; a stalled move has its own rule.
        ongoing = now.reassignments.get(tp)
        adding = set(ongoing.adding) if ongoing is not None else set()
        behind = set(partition.replicas) - set(partition.isr) - adding
        if _has_leader(now, partition) and behind:
            yield Problem(
                Severity.WARNING,
                "under-replicated",
                str(tp),
                f"{tp} has {len(partition.isr)} of {len(partition.replicas)} replicas in sync",
                _why_behind(now, partition),
            )


def broker_down(now: ClusterSnapshot, before: ClusterSnapshot | None) -> Iterator[Problem]:
    """A broker that has replicas, or was alive in the earlier snapshot, and is not alive."""
    replicas: dict[int, int] = {}
    for _, partition in _partitions(now):
        for broker in partition.replicas:
            replicas[broker] = replicas.get(broker, 0) + 1
    expected = replicas.keys() | (before.brokers.keys() if before is not None else set())
    for broker in sorted(expected - now.brokers.keys()):
        yield Problem(
            Severity.WARNING,
            "broker-down",
            f"broker {broker}",
            f"broker {broker} is down; replicas on it: {replicas.get(broker, 0)}",
        )


def log_directory_failed(now: ClusterSnapshot, before: ClusterSnapshot | None) -> Iterator[Problem]:
    for broker, directories in sorted(now.log_dirs.items()):
        for directory in directories:
            if directory.error is not None:
                yield Problem(
                    Severity.WARNING,
                    "log-directory-failed",
                    f"{directory.path} on broker {broker}",
                    f"the log directory {directory.path} of broker {broker} is offline",
                    str(directory.error),
                )


def disk_nearly_full(now: ClusterSnapshot, before: ClusterSnapshot | None) -> Iterator[Problem]:
    """Only for brokers that report their disks (DescribeLogDirs v4 and later)."""
    for broker, directories in sorted(now.log_dirs.items()):
        for directory in directories:
            if directory.total_bytes <= 0 or directory.usable_bytes < 0:
                continue
            used = 1 - directory.usable_bytes / directory.total_bytes
            if used > now.disk_used_max:
                yield Problem(
                    Severity.WARNING,
                    "disk-nearly-full",
                    f"{directory.path} on broker {broker}",
                    f"the disk of {directory.path} on broker {broker} is {used:.0%} full",
                    f"{_short_size(directory.usable_bytes)} are left; a broker whose disk is full "
                    "stops",
                )


def lag_growing(now: ClusterSnapshot, before: ClusterSnapshot | None) -> Iterator[Problem]:
    if before is None:
        return
    for group, lags in sorted(now.group_lags.items()):
        earlier = before.group_lags.get(group, {})
        both = lags.keys() & earlier.keys()
        lag, lag_before = _records(lags, both), _records(earlier, both)
        if lag <= lag_before:
            continue
        committed = sum(lags[tp].committed - earlier[tp].committed for tp in both)
        yield Problem(
            Severity.WARNING,
            "lag-growing",
            f"group {group}",
            f"group {group} is {lag} records behind, {lag - lag_before} more than "
            f"{(now.at_ms - before.at_ms) / 1000:.0f} s ago",
            f"it committed {committed} records meanwhile"
            if committed > 0
            else "it commits nothing",
        )


def move_stalled(now: ClusterSnapshot, before: ClusterSnapshot | None) -> Iterator[Problem]:
    if before is None:
        return
    for tp, ongoing in sorted(now.reassignments.items()):
        topic = now.topics.get(tp.topic)
        if tp not in before.reassignments or topic is None or tp.partition not in topic.partitions:
            continue
        in_sync = topic.partitions[tp.partition].isr
        waited_for = [id for id in ongoing.adding if id not in in_sync]
        if not waited_for or any(
            now.replica_bytes(tp, id) > before.replica_bytes(tp, id) for id in waited_for
        ):
            continue
        down = [id for id in waited_for if id not in now.brokers]
        yield Problem(
            Severity.WARNING,
            "move-stalled",
            str(tp),
            f"the reassignment of {tp} to broker {waited_for[0]} makes no progress",
            f"broker {down[0]} is down" if down else "nothing was copied; is the throttle too low?",
        )


def unanswered(now: ClusterSnapshot, before: ClusterSnapshot | None) -> Iterator[Problem]:
    """What could not be asked is no sign of health."""
    for what in now.unanswered:
        subject, _, reason = what.partition(": ")
        yield Problem(
            Severity.WARNING, "unanswered", subject, f"the cluster did not report {subject}", reason
        )


RULES: tuple[Rule, ...] = (
    no_controller,
    controller_changed,
    offline_partition,
    under_min_isr,
    under_replicated,
    broker_down,
    log_directory_failed,
    disk_nearly_full,
    lag_growing,
    move_stalled,
    unanswered,
)


# What to do about each kind of problem.
ADVICE: Mapping[str, str] = {
    "no-controller": "See that brokers reach the metadata store: one of them becomes controller.",
    "controller-changed": "Nothing, if it is rare. The log of the previous controller shows why.",
    "offline-partition": "Restart a broker of its ISR. An unclean election brings it back "
    "immediately, but loses the records that only the others have.",
    "under-min-isr": "Bring the missing replicas back: until then producers with acks=all "
    "are rejected.",
    "under-replicated": "Restart the broker, or wait while it catches up. If it does not return, "
    "plan a move of its replicas.",
    "broker-down": "Restart it: its replicas catch up automatically. If it does not return, "
    "plan a move of its replicas.",
    "log-directory-failed": "Look at the disk and at the broker's log, repair the disk, and "
    "restart the broker.",
    "disk-nearly-full": "Shorten the retention of large topics, or move replicas to other brokers.",
    "lag-growing": "See that the group's members run; if they do, add members or partitions.",
    "move-stalled": "Start the broker that receives it, raise the throttle, or cancel the move.",
    "unanswered": "See that the brokers run and can be reached from here.",
}


def _partitions(now: ClusterSnapshot) -> Iterator[tuple[TopicPartition, Partition]]:
    for name, topic in sorted(now.topics.items()):
        for index, partition in sorted(topic.partitions.items()):
            yield TopicPartition(name, index), partition


def _has_leader(now: ClusterSnapshot, partition: Partition) -> bool:
    return partition.leader in now.brokers


def _records(lags: Mapping[TopicPartition, Lag], tps: Iterable[TopicPartition]) -> int:
    return sum(lags[tp].records for tp in tps)


def _why_offline(now: ClusterSnapshot, partition: Partition) -> str:
    down = sorted(set(partition.replicas) - now.brokers.keys())
    if down:
        return f"{_named(down)} down"
    if failed := sorted(set(partition.offline)):
        return f"a log directory of {_named(failed)} offline"
    return "no replica in sync can lead; an unclean election would lose records"


def _why_behind(now: ClusterSnapshot, partition: Partition) -> str:
    behind = sorted(set(partition.replicas) - set(partition.isr))
    down = [broker for broker in behind if broker not in now.brokers]
    failed = [broker for broker in behind if broker in partition.offline and broker not in down]
    slow = [broker for broker in behind if broker not in down and broker not in failed]
    parts = [f"{_named(down)} down"] if down else []
    parts += [f"a log directory of {_named(failed)} offline"] if failed else []
    parts += [f"{_named(slow)} behind"] if slow else []
    return ", ".join(parts)


def _short_size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def _named(brokers: list[int]) -> str:
    """`broker 2 is`, `brokers 2, 3 are`."""
    ids = ", ".join(map(str, brokers))
    return f"broker {ids} is" if len(brokers) == 1 else f"brokers {ids} are"
