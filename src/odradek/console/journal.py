"""The controllers' journals, followed live: what brokers decided while they were controller goes
into one `JournalBook`."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

from odradek.console.link import Link
from odradek.controller.journal import Entry, describe
from odradek.operations.broker_http import HttpAddress, events
from odradek.operations.journal_book import (
    JournalBook,
    Kept,
    Place,
    journal_pages,
    parse_entries,
)

RETRY_S = 1.0


class EntryRow(TypedDict):
    id: str
    time_ms: int
    controller_epoch: int
    sequence: int
    controller: int | None
    kind: str
    why: str
    before: str
    after: str
    topic: str | None
    p: int | None
    broker: int | None
    partitions: int
    text: str
    user: str | None


def entry_row(kept: Kept) -> EntryRow:
    place, entry = kept
    return {
        "id": f"{place.epoch}-{place.sequence}-{place.source}",
        "time_ms": entry.time_ms,
        "controller_epoch": entry.controller_epoch,
        "sequence": entry.sequence,
        "controller": place.source,
        "kind": entry.kind.value,
        "why": entry.why,
        "before": entry.before,
        "after": entry.after,
        "topic": entry.partition.topic if entry.partition is not None else entry.topic,
        "p": None if entry.partition is None else entry.partition.partition,
        "broker": entry.broker,
        "partitions": len(entry.partitions),
        "text": describe(entry),
        "user": _user_of(entry.why),
    }


def _user_of(why: str) -> str | None:
    """The console's user in a cause that names its client id."""
    found = re.search(r"odradek-console/([^\s'\")]+)", why)
    return None if found is None else found[1]


def parse_place(text: str) -> Place | None:
    parts = text.split("-")
    if len(parts) != 3 or not all(part.isdecimal() and len(part) < 19 for part in parts):
        return None
    return Place(*map(int, parts))


@dataclass(slots=True)
class _Follower:
    address: HttpAddress
    task: asyncio.Task[None]


class JournalReader:
    """Follows the journal of every broker that has one."""

    def __init__(self, link: Link, book: JournalBook) -> None:
        self._link = link
        self.book = book
        self._followers: dict[int, _Follower] = {}
        self._listeners: list[Callable[[Kept], None]] = []
        self.missed = 0
        self.caught_up: set[int] = set()

    def listen(self, listener: Callable[[Kept], None]) -> None:
        self._listeners.append(listener)

    def follow(self) -> None:
        """To be called when the brokers' addresses may have changed."""
        addresses = self._link.http()
        for id, follower in list(self._followers.items()):
            if addresses.get(id) != follower.address or follower.task.done():
                follower.task.cancel()
                del self._followers[id]
                self.caught_up.discard(id)
        for id, address in addresses.items():
            if id not in self._followers:
                task = asyncio.ensure_future(self._run(id, address))
                self._followers[id] = _Follower(address, task)

    async def close(self) -> None:
        tasks = [follower.task for follower in self._followers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, id: int, address: HttpAddress) -> None:
        last_id = ""
        while True:
            try:
                stream = events(address, "/journal/events", self._link.token, last_id)
                reading = asyncio.ensure_future(self._read_back(id, address))
                try:
                    async for event in stream:
                        last_id = event.id or last_id
                        self._take(id, event.event, event.data)
                finally:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
            except (OSError, TimeoutError):
                pass  # a broker that is gone is followed again when it is back
            await asyncio.sleep(RETRY_S)

    async def _read_back(self, id: int, address: HttpAddress) -> None:
        """What the broker remembers, in pages; and a moment later what was recorded before the
        stream of new entries had begun."""
        after = 0
        while True:
            async for entries in journal_pages(address, self._link.token, after):
                for entry in entries:
                    self._add(id, entry)
                after = entries[-1].sequence
                await asyncio.sleep(0)
            if id in self.caught_up:
                return
            self.caught_up.add(id)
            await asyncio.sleep(RETRY_S)

    def _take(self, id: int, event: str, data: str) -> None:
        if event == "gap":
            self.missed += int(data) if data.isdecimal() else 0
        if event != "entry":
            return
        for entry in parse_entries([data]):
            self._add(id, entry)

    def _add(self, id: int, entry: Entry) -> None:
        kept = self.book.add(id, entry)
        if kept is not None:
            for listener in self._listeners:
                listener(kept)
