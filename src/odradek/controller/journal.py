"""The state-change journal: every transition, election and control request, with its reason.

Each entry says when, in which controller epoch, to which partition or broker, from what to what,
and why, so that "what happened to this partition, and why" can be answered from the journal
alone; where a client asked for a change, the reason names the client. Entries are numbered, from 1
for each start of a broker. The latest stay in memory, bounded; all of them go to a sink, a rotating
file of JSON lines.

Recording must be cheap: a broker failure records thousands. An entry is a tuple; text is made only
when it is read or flushed, after each controller event.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice, pairwise
from json.encoder import encode_basestring as quoted
from typing import Any, NamedTuple, Protocol

from odradek.log.disk import Disk, File
from odradek.store.payloads import LeaderAndIsr
from odradek.wire.topics import TopicPartition

ENTRIES_MAX = 20_000
FILE_BYTES_MAX = 16 * 1024 * 1024
FILES_MAX = 4
# How many partitions the reason of an entry names: it is repeated in every entry that follows.
NAMES_MAX = 20


class EntryKind(StrEnum):
    CONTROLLER = "controller"  # elected, resigned, an event with what it found
    PARTITION = "partition"  # a partition changed state
    REPLICA = "replica"  # a replica changed state
    LEADERSHIP = "leadership"  # leader, ISR or leader epoch changed; see `parse_state`
    REASSIGNMENT = "reassignment"  # a step of moving a partition
    DELETION = "deletion"  # a step of deleting a topic
    REQUEST = "request"  # a control request was handed to a channel
    RESPONSE = "response"  # a broker answered with an error
    FAILURE = "failure"  # something was requested and not done


class Entry(NamedTuple):
    time_ms: int
    controller_epoch: int
    kind: EntryKind
    why: str  # the event in hand, or the reason of a failure
    before: str = ""
    after: str = ""
    partition: TopicPartition | None = None
    broker: int | None = None
    topic: str | None = None
    partitions: Sequence[TopicPartition] = ()  # what a request was about
    sequence: int = 0

    def concerns(self, partition: TopicPartition) -> bool:
        return (
            self.partition == partition
            or self.topic == partition.topic
            or partition in self.partitions
        )


class Sink(Protocol):
    """Where the journal is kept. Takes whole lines."""

    def write(self, lines: bytes) -> None: ...

    def close(self) -> None: ...


class Journal:
    """Records what the controller does. `cause` is the reason given to all that follows."""

    def __init__(
        self,
        clock: Callable[[], int],
        *,
        entries_max: int = ENTRIES_MAX,
        sink: Sink | None = None,
    ) -> None:
        self._clock = clock
        self._entries: deque[Entry] = deque(maxlen=entries_max)
        self._unflushed: list[Entry] = []
        self._sink = sink
        self._listeners: list[Callable[[Entry], None]] = []
        self.recorded = 0
        self.sink_failures = 0
        self.controller_epoch = 0
        self.cause = ""
        self.requester = ""  # the client that asked for what is being done, if one did

    def record(
        self,
        kind: EntryKind,
        *,
        before: str = "",
        after: str = "",
        partition: TopicPartition | None = None,
        broker: int | None = None,
        topic: str | None = None,
        partitions: Sequence[TopicPartition] = (),
        why: str | None = None,
    ) -> None:
        self.recorded += 1
        entry = Entry(
            self._clock(),
            self.controller_epoch,
            kind,
            self.cause if why is None else why,
            before,
            after,
            partition,
            broker,
            topic,
            partitions,
            self.recorded,
        )
        self._entries.append(entry)
        if self._sink is not None:
            self._unflushed.append(entry)
        for listener in self._listeners:
            listener(entry)

    def listen(self, listener: Callable[[Entry], None]) -> None:
        """Call this with every entry from now on: how a view follows the journal."""
        self._listeners.append(listener)

    def flush(self) -> None:
        """Hand what was recorded since the last time to the sink, in one write."""
        if self._sink is None or not self._unflushed:
            return
        lines = "".join(map(line_of, self._unflushed)).encode()
        self._unflushed.clear()
        try:
            self._sink.write(lines)
        except OSError:
            # A full disk must not stop the controller; the gap is counted and shown.
            self.sink_failures += 1

    def close(self) -> None:
        self.flush()
        if self._sink is not None:
            self._sink.close()

    def entries(self) -> Iterator[Entry]:
        """What is still in memory, oldest first."""
        return iter(tuple(self._entries))

    def history(self, partition: TopicPartition) -> list[Entry]:
        """What happened to this partition, oldest first."""
        return [entry for entry in self._entries if entry.concerns(partition)]

    def statistics(self) -> Mapping[str, int]:
        return {
            "recorded": self.recorded,
            "in_memory": len(self._entries),
            "sink_failures": self.sink_failures,
        }


def line_of(entry: Entry) -> str:
    """One line of JSON; what is empty is left out."""
    parts = [
        f'"sequence":{entry.sequence},"time":{entry.time_ms},"epoch":{entry.controller_epoch},'
        f'"kind":"{entry.kind.value}"'
    ]
    if entry.partition is not None:
        parts.append(f'"partition":{quoted(str(entry.partition))}')
    if entry.broker is not None:
        parts.append(f'"broker":{entry.broker}')
    if entry.topic is not None:
        parts.append(f'"topic":{quoted(entry.topic)}')
    if entry.before:
        parts.append(f'"from":{quoted(entry.before)}')
    if entry.after:
        parts.append(f'"to":{quoted(entry.after)}')
    if entry.partitions:
        # Topic names need no escaping.
        names = ",".join([f'"{topic}-{number}"' for topic, number in entry.partitions])
        parts.append(f'"partitions":[{names}]')
    parts.append(f'"why":{quoted(entry.why)}')
    return f"{{{','.join(parts)}}}\n"


def read_lines(lines: Iterable[str]) -> Iterator[Entry]:
    """The entries of a journal file, without lines that a crash tore or that are none."""
    for line in lines:
        try:
            yield _entry_of(json.loads(line))
        except (ValueError, LookupError, TypeError, AttributeError):
            continue


def _entry_of(value: Any) -> Entry:
    partition = value.get("partition")
    return Entry(
        value["time"],
        value["epoch"],
        EntryKind(value["kind"]),
        value["why"],
        value.get("from", ""),
        value.get("to", ""),
        None if partition is None else _partition_of(partition),
        value.get("broker"),
        value.get("topic"),
        tuple(map(_partition_of, value.get("partitions", ()))),
        value.get("sequence", 0),
    )


def describe(entry: Entry) -> str:
    """An entry as a person reads it, without its time."""
    if entry.kind is EntryKind.REPLICA:
        subject = f"replica {entry.partition} on {entry.broker}"
    elif entry.partition is not None:
        subject = f"{entry.kind.value} {entry.partition}"
    elif entry.topic is not None:
        subject = f"{entry.kind.value} {entry.topic}"
    elif entry.broker is not None:
        subject = f"{entry.kind.value} to broker {entry.broker}"
    else:
        subject = entry.kind.value
    change = " -> ".join(part for part in (entry.before, entry.after) if part)
    about = f" ({len(entry.partitions)} partitions)" if entry.partitions else ""
    why = f" [{entry.why}]" if entry.why else ""
    return f"{subject}: {change}{about}{why}"


def format_state(state: LeaderAndIsr) -> str:
    """A partition's state as entries of kind LEADERSHIP have it."""
    isr = ",".join(map(str, state.isr))
    return f"leader={state.leader} epoch={state.leader_epoch} isr=[{isr}]"


class LeaderEpochIsr(NamedTuple):
    """What an entry of kind LEADERSHIP says of a partition, before or after."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


_STATE = re.compile(r"leader=(-?\d+) epoch=(\d+) isr=\[([\d,]*)\]")


def parse_state(text: str) -> LeaderEpochIsr | None:
    """What `format_state` wrote, read back; None for text that is none."""
    found = _STATE.fullmatch(text)
    if found is None:
        return None
    isr = tuple(int(member) for member in found[3].split(",") if member)
    return LeaderEpochIsr(int(found[1]), int(found[2]), isr)


def format_partitions(tps: Iterable[TopicPartition]) -> str:
    """Partitions for a reason: a long list is abbreviated."""
    return abbreviated(map(str, tps), ",")


def abbreviated(names: Iterable[str], separator: str) -> str:
    rest = iter(names)
    text = separator.join(islice(rest, NAMES_MAX))
    more = sum(1 for _ in rest)
    return f"{text} and {more} more" if more else text


def _partition_of(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


class RotatingFile:
    """A sink of bounded size: `path` is the newest, `path.1` the one before, and so on."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        *,
        bytes_max: int = FILE_BYTES_MAX,
        files_max: int = FILES_MAX,
    ) -> None:
        assert bytes_max > 0
        assert files_max > 0
        self._disk = disk
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._file: File | None = None

    def write(self, lines: bytes) -> None:
        if self._file is None:
            self._file = self._disk.open(self._path, create=True)
            if self._file.size and self._file.read(self._file.size - 1, 1) != b"\n":
                lines = b"\n" + lines  # a crash tore the last one
        if self._file.size and self._file.size + len(lines) > self._bytes_max:
            self._rotate()
        assert self._file is not None
        self._file.append(lines)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rotate(self) -> None:
        self.close()
        names = [self._path, *(f"{self._path}.{n}" for n in range(1, self._files_max))]
        for newer, older in reversed(list(pairwise(names))):
            if self._disk.exists(newer):
                self._disk.rename(newer, older)
        if len(names) == 1:
            self._disk.remove(self._path)
        self._file = self._disk.open(self._path, create=True)
