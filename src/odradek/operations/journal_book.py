"""The controllers' journals as one: entries of all brokers, in the order of their decisions.

Every broker of ours serves what it decided while it was controller. Entries are ordered by
controller epoch, then sequence: clocks of different brokers never decide it. Both the entries kept
and what one entry may hold are bounded.

What was at a moment (docs/spec/console.md section 4, "Time bar"): a partition is as the `before` of
its first leadership entry after that moment; if there is none, as it is now; an empty `before`
means that it did not exist yet. Before the oldest entry kept, nothing is known.
"""

import asyncio
import json
import re
import sys
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from odradek.controller.journal import (
    Entry,
    EntryKind,
    LeaderEpochIsr,
    parse_state,
    read_lines,
)
from odradek.operations.broker_http import HttpAddress, get_text
from odradek.wire.topics import TopicPartition

__all__ = ["JournalBook", "Kept", "Place", "journal_pages", "parse_entries", "read_book"]

ENTRIES_MAX = 20_000
PARTITIONS_KEPT = 200
LINE_MAX = 64 * 1024
MARKS_MAX = 300
# Entries that a broker is asked for at a time.
PAGE = 2_000

_BROKERS = re.compile(r"(brokers|new|dead|bounced)=\[([\d, ]*)\]")


class Place(NamedTuple):
    """The order of decisions. `source` is the broker that recorded it."""

    epoch: int
    sequence: int
    source: int


class Kept(NamedTuple):
    """An entry, and where it stands."""

    place: Place
    entry: Entry


class JournalBook:
    """Entries of all brokers in order. Pure: what it is given is all it knows."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._kept: list[Kept] = []
        self._places: set[Place] = set()
        self.dropped = 0
        self.added = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Kept]:
        return iter(self._kept)

    def __reversed__(self) -> Iterator[Kept]:
        return reversed(self._kept)

    def add(self, source: int, entry: Entry) -> Kept | None:
        """None if it is known already, or older than all that is kept in a full book."""
        kept = Kept(Place(entry.controller_epoch, entry.sequence, source), _bounded(entry))
        if kept.place in self._places:
            return None
        if len(self._kept) >= self._entries_max:
            if kept.place < self._kept[0].place:
                self.dropped += 1
                return None
            many = max(1, self._entries_max // 20)  # some at once: the front of a list is dear
            for old in self._kept[:many]:
                self._places.discard(old.place)
            del self._kept[:many]
            self.dropped += many
        if not self._kept or self._kept[-1].place < kept.place:
            self._kept.append(kept)
        else:
            insort(self._kept, kept, key=lambda each: each.place)
        self._places.add(kept.place)
        self.added += 1
        return kept

    @property
    def first_ms(self) -> int | None:
        return min((kept.entry.time_ms for kept in self._kept[:50]), default=None)

    def at_or_after(self, place: Place) -> int:
        return bisect_left(self._kept, place, key=lambda each: each.place)

    def slice(self, start: int, end: int) -> list[Kept]:
        return self._kept[start:end]

    def about(self, tp: TopicPartition) -> list[Kept]:
        return [kept for kept in self._kept if kept.entry.concerns(tp)]

    def last_death(self, broker: int) -> Entry | None:
        """The last entry that says that a broker is gone."""
        for kept in reversed(self._kept):
            text = kept.entry.after
            if kept.entry.kind is EntryKind.CONTROLLER and "dead=[" in text:
                dead = text.partition("dead=[")[2].partition("]")[0].replace(" ", "").split(",")
                if str(broker) in dead:
                    return kept.entry
        return None

    # What was

    def covers(self, at_ms: int) -> bool:
        first = self.first_ms
        return first is not None and at_ms >= first

    def leaderships_at(self, at_ms: int) -> "dict[TopicPartition, LeaderEpochIsr | None]":
        """The partitions that have changed since: as they were; None if they did not exist."""
        found: dict[TopicPartition, LeaderEpochIsr | None] = {}
        for _, entry in reversed(self._kept):
            if (
                entry.kind is EntryKind.LEADERSHIP
                and entry.partition is not None
                and entry.time_ms > at_ms
            ):
                found[entry.partition] = parse_state(entry.before)
        return found

    def controller_at(self, at_ms: int) -> tuple[int, int] | None:
        """Broker and epoch of the controller; None if it is not known."""
        last = None
        for place, entry in self._kept:
            if entry.time_ms <= at_ms and _elected(entry):
                last = (place.source, place.epoch)
        return last

    def brokers_at(self, at_ms: int) -> list[int] | None:
        """The brokers that the controller knew to be alive; None if it is not known."""
        alive: set[int] | None = None
        for _, entry in self._kept:
            if entry.time_ms > at_ms:
                continue
            if entry.kind is EntryKind.CONTROLLER:
                alive = _alive_after(entry.after, alive)
        return None if alive is None else sorted(alive)

    def terms(self) -> list[dict[str, Any]]:
        """Who was controller, newest first."""
        found: list[dict[str, Any]] = []
        for place, entry in self._kept:
            if entry.kind is not EntryKind.CONTROLLER:
                continue
            if _elected(entry):
                if found and found[-1]["until_ms"] is None:
                    found[-1]["until_ms"] = entry.time_ms
                    found[-1]["end"] = "another controller was elected"
                found.append(
                    {
                        "epoch": place.epoch,
                        "broker": place.source,
                        "since_ms": entry.time_ms,
                        "until_ms": None,
                        "end": None,
                    }
                )
            elif "resigned" in entry.after and found and found[-1]["broker"] == place.source:
                found[-1]["until_ms"], found[-1]["end"] = entry.time_ms, entry.after
        return found[::-1]

    def marks(self, from_ms: int, to_ms: int) -> list[dict[str, Any]]:
        """For the time bar: how many entries of each kind in each part of the time."""
        width = max(1, (to_ms - from_ms) // (MARKS_MAX // 3))
        counts: dict[tuple[int, str], int] = {}
        for _, entry in self._kept:
            if from_ms <= entry.time_ms <= to_ms and entry.kind in _MARKED:
                key = ((entry.time_ms - from_ms) // width, entry.kind.value)
                counts[key] = counts.get(key, 0) + 1
        ordered = sorted(counts.items())
        return [
            {"time_ms": from_ms + slot * width, "kind": kind, "count": count}
            for (slot, kind), count in ordered[:MARKS_MAX]
        ]


_MARKED = (EntryKind.CONTROLLER, EntryKind.LEADERSHIP, EntryKind.FAILURE)


def _elected(entry: Entry) -> bool:
    return entry.kind is EntryKind.CONTROLLER and entry.after.endswith("elected controller")


def _alive_after(text: str, alive: set[int] | None) -> set[int] | None:
    for name, ids in _BROKERS.findall(text):
        listed = {int(id) for id in ids.replace(" ", "").split(",") if id}
        if name == "brokers" and text.startswith("loaded"):
            alive = listed
        elif alive is not None and text.startswith("BrokerChange"):
            alive = alive | listed if name == "new" else alive - listed if name == "dead" else alive
    return alive


def _bounded(entry: Entry) -> Entry:
    """With at most so many partitions named, and texts that repeat kept once."""
    return entry._replace(
        why=sys.intern(entry.why[:LINE_MAX]),
        before=sys.intern(entry.before),
        after=sys.intern(entry.after[:LINE_MAX]),
        partitions=tuple(entry.partitions[:PARTITIONS_KEPT]),
    )


def parse_entries(lines: Iterable[str]) -> Iterator[Entry]:
    """Those of a broker's answer, as far as they can be read."""
    try:
        yield from read_lines(lines)
    except (ValueError, KeyError, TypeError, json.JSONDecodeError):
        return


async def journal_pages(
    address: HttpAddress, token: str | None = None, after: int = 0
) -> AsyncIterator[list[Entry]]:
    """What a broker remembers after an entry, oldest first, to the newest there is when it ends.
    Raises as `get_text` does."""
    while True:
        path = f"/journal?after={after}&limit={PAGE}"
        lines = (await get_text(address, path, token)).splitlines()
        entries = list(parse_entries(lines))
        if entries:
            yield entries
            after = entries[-1].sequence
        if len(lines) < PAGE or not entries:
            return


async def read_book(addresses: Mapping[int, HttpAddress], token: str | None = None) -> JournalBook:
    """What all these brokers remember. One that does not answer is left out."""
    book = JournalBook()

    async def read(id: int, address: HttpAddress) -> None:
        try:
            async for entries in journal_pages(address, token):
                for entry in entries:
                    book.add(id, entry)
        except (OSError, TimeoutError):
            return

    await asyncio.gather(*(read(id, address) for id, address in addresses.items()))
    return book
