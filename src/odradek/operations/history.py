"""When problems began and why: from the controllers' journals, from what brokers remember of their
disks, and from the timestamps of records.

Apache Kafka's brokers keep no journal. Of a cluster of theirs nothing is known but what two
snapshots show, and when the first record was written that a group has not read.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from odradek.client.admin import Admin
from odradek.client.metadata import Partition
from odradek.controller.journal import Entry, EntryKind, LeaderEpochIsr, parse_state
from odradek.operations.broker_http import HttpAddress, get_json, http_addresses
from odradek.operations.first_unread import first_unread_ms
from odradek.operations.health import Onset, Problem, Severity, lag_growing
from odradek.operations.journal_book import JournalBook, read_book
from odradek.operations.snapshot import ClusterSnapshot
from odradek.wire.topics import TopicPartition

__all__ = ["JournalHistory", "read_history"]

# A change of controller is worth showing for this long.
RECENT_MS = 10 * 60 * 1000
# Partitions of a group whose first unread record is looked at: those with the largest lag.
TIMED_PARTITIONS = 8

# By log directory: (time, percent in use), an entry whenever the percent has changed.
Disks = Mapping[str, Sequence[tuple[int, int]]]


class JournalHistory:
    """Pure: what it is given is all it knows."""

    def __init__(
        self,
        book: JournalBook,
        disks: Mapping[int, Disks] | None = None,
        unread_ms: Mapping[str, int] | None = None,
    ) -> None:
        self._book = book
        self._disks = disks or {}
        self._unread_ms = unread_ms or {}

    def onset(self, problem: Problem, now: ClusterSnapshot) -> Onset | None:
        match problem.kind:
            case "offline-partition" | "under-min-isr" | "under-replicated":
                return self._partition(problem, now)
            case "broker-down":
                return self._death(int(problem.subject.removeprefix("broker ")))
            case "move-stalled":
                return self._stall(problem, now)
            case "log-directory-failed":
                return self._directory(problem)
            case "disk-nearly-full":
                return self._disk(problem, now)
            case "lag-growing":
                since_ms = self._unread_ms.get(problem.subject.removeprefix("group "))
                return None if since_ms is None else Onset(since_ms)
            case "controller-changed":
                entry = self._election(now.controller_id)
                return None if entry is None else Onset(entry.time_ms, entry.after)
            case _:
                return None

    @cached_property
    def _changes(self) -> dict[TopicPartition, list[Entry]]:
        """Of leader or ISR, by partition."""
        found: dict[TopicPartition, list[Entry]] = {}
        for _, entry in self._book:
            if entry.kind is EntryKind.LEADERSHIP and entry.partition is not None:
                found.setdefault(entry.partition, []).append(entry)
        return found

    def recent(self, now: ClusterSnapshot) -> Iterator[Problem]:
        """A change of controller lately: it explains what else is seen."""
        terms = self._book.terms()
        if not terms or terms[0]["epoch"] == 1 or now.at_ms - terms[0]["since_ms"] > RECENT_MS:
            return
        broker = terms[0]["broker"]
        down = sorted(_expected(now) - now.brokers.keys())
        if len(terms) > 1 and terms[1]["broker"] != broker:
            former = terms[1]["broker"]
            text = f"broker {broker} became controller, after broker {former}"
            reason = f"broker {former} is down" if former in down else terms[1]["end"] or ""
        else:
            text = f"broker {broker} became controller"
            gone = ", ".join(map(str, down))
            reason = f"no living broker was it before; down: {gone}" if down else ""
        yield Problem(
            Severity.NOTICE,
            "controller-changed",
            f"broker {broker}",
            text,
            reason,
            terms[0]["since_ms"],
            f"broker {broker} elected controller, epoch {terms[0]['epoch']}",
        )

    def _partition(self, problem: Problem, now: ClusterSnapshot) -> Onset | None:
        """The entry from which on the partition has been as it is."""
        tp = _partition_of(problem.subject)
        partition = _find(now, tp)
        if partition is None:
            return None

        def is_wrong(state: LeaderEpochIsr) -> bool:
            if problem.kind == "offline-partition":
                return state.leader < 0
            if problem.kind == "under-min-isr":
                return len(state.isr) < now.min_insync.get(tp.topic, 1)
            return len(state.isr) < len(partition.replicas)

        first: Entry | None = None
        for entry in reversed(self._changes.get(tp, ())):
            state = parse_state(entry.after)
            if state is None or not is_wrong(state):
                break
            first = entry
        if first is None and problem.kind == "offline-partition":
            down = [id for id in partition.isr or partition.replicas if id not in now.brokers]
            return self._death(down[0]) if down else None
        return None if first is None else Onset(first.time_ms, first.why or first.after)

    def _death(self, broker: int) -> Onset | None:
        """What the controller saw; or, if it was the controller that died, when the next one began
        and did not find it."""
        entry = self._book.last_death(broker)
        if entry is None:
            terms = self._book.terms()
            entry = self._election(terms[0]["broker"]) if terms else None
        return None if entry is None else Onset(entry.time_ms, entry.after)

    def _election(self, broker: int) -> Entry | None:
        for place, entry in reversed(self._book):
            if place.source == broker and entry.after.endswith("elected controller"):
                return entry
        return None

    def _stall(self, problem: Problem, now: ClusterSnapshot) -> Onset | None:
        tp = _partition_of(problem.subject)
        ongoing = now.reassignments.get(tp)
        steps = [
            entry
            for _, entry in self._book
            if entry.kind is EntryKind.REASSIGNMENT and entry.partition == tp
        ]
        # Who asked for it says more than what has happened to it since.
        asked = [entry for entry in steps if "Reassignment" in entry.why or "Plan" in entry.why]
        cause = (asked or steps)[-1].why if steps else ""
        for broker in ongoing.adding if ongoing is not None else ():
            if broker not in now.brokers and (death := self._death(broker)) is not None:
                return Onset(death.time_ms, cause or death.cause)
            if steps and not now.replica_bytes(tp, broker):
                return Onset(steps[-1].time_ms, cause)
        return Onset(problem.since_ms, cause) if problem.since_ms is not None else None

    def _directory(self, problem: Problem) -> Onset | None:
        """The broker informs the controller when a directory fails."""
        broker = problem.subject.rpartition(" on broker ")[2]
        for _, entry in reversed(self._book):
            text = entry.after
            if text.startswith("LogDirEventNotification") and broker in _ids(text):
                return Onset(entry.time_ms, text)
        return None

    def _disk(self, problem: Problem, now: ClusterSnapshot) -> Onset | None:
        """When it was last below the limit, as far as the broker remembers."""
        path, _, broker = problem.subject.rpartition(" on broker ")
        seen = self._disks.get(int(broker), {}).get(path, ())
        since_ms = None
        for time_ms, percent in reversed(seen):
            if percent <= now.disk_used_max * 100:
                break
            since_ms = time_ms
        return None if since_ms is None else Onset(since_ms)


async def read_history(
    admin: Admin,
    now: ClusterSnapshot,
    before: ClusterSnapshot | None = None,
    token: str | None = None,
) -> JournalHistory:
    """Ask the brokers. What is not answered is not known."""
    addresses = {
        id: address for id, address in (await http_addresses(admin)).items() if address is not None
    }
    book, disks, unread = await asyncio.gather(
        read_book(addresses, token),
        asyncio.gather(*(_read_disks(address, token) for address in addresses.values())),
        _read_unread(admin, now, before),
    )
    return JournalHistory(book, dict(zip(addresses, disks, strict=True)), unread)


async def _read_disks(address: HttpAddress, token: str | None) -> Disks:
    try:
        statistics = await get_json(address, "/statistics", token)
    except (OSError, TimeoutError):
        return {}
    return disks_of(statistics)


def disks_of(statistics: Any) -> Disks:
    """What a broker's `/statistics` says of its log directories."""
    found = statistics.get("disks") if isinstance(statistics, dict) else None
    return found if isinstance(found, dict) else {}


async def _read_unread(
    admin: Admin, now: ClusterSnapshot, before: ClusterSnapshot | None
) -> dict[str, int]:
    found: dict[str, int] = {}
    for problem in lag_growing(now, before):
        group = problem.subject.removeprefix("group ")
        lags = now.group_lags[group]
        largest = sorted(lags, key=lambda tp: -(lags[tp].records or 0))[:TIMED_PARTITIONS]
        times = await asyncio.gather(
            *(
                first_unread_ms(admin.client, partition.leader, tp, lags[tp].committed)
                for tp in largest
                if lags[tp].records and (partition := _find(now, tp)) is not None
            )
        )
        if known := [time_ms for time_ms in times if time_ms is not None]:
            found[group] = min(known)
    return found


def _expected(now: ClusterSnapshot) -> set[int]:
    return {
        broker
        for topic in now.topics.values()
        for partition in topic.partitions.values()
        for broker in partition.replicas
    }


def _find(now: ClusterSnapshot, tp: TopicPartition) -> Partition | None:
    topic = now.topics.get(tp.topic)
    return None if topic is None else topic.partitions.get(tp.partition)


def _partition_of(subject: str) -> TopicPartition:
    topic, _, p = subject.rpartition("-")
    return TopicPartition(topic, int(p))


def _ids(text: str) -> Iterable[str]:
    return text.partition("brokers=[")[2].partition("]")[0].replace(" ", "").split(",")
