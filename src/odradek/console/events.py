"""Live data: one stream of server-sent events for each visible tab.

docs/spec/console-api.md section 3. A stream does not queue states: it knows which of its watches
have changed, and sends the present state of those, at most four times a second. A tab that does
not keep up gets fewer and newer states, and costs no other tab anything. Journal entries are not
states: they come from a ring, and what a slow tab has missed is counted.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from odradek.console.journal import EntryRow, entry_row
from odradek.console.web import Problem, dumps
from odradek.operations.journal_book import Kept

RING = 1_000
INTERVAL_S = 0.25
HEARTBEAT_S = 15.0
PICTURE_S = 5.0
STREAMS_MAX = 200
WATCHES_MAX = 32
ENTRIES_MAX = 200

# The state of a watch by its argument; None where there is none (any more).
States = Mapping[str, Callable[[str], Any]]


class EventHub:
    """All streams, and what has changed for them."""

    def __init__(self, states: States, picture: Callable[[], dict[str, Any]]) -> None:
        self._states = states
        self._picture = picture
        self._streams: set[EventStream] = set()
        self._ring: deque[tuple[int, EntryRow]] = deque(maxlen=RING)
        self._number = 0
        self.closing = asyncio.Event()

    def close(self) -> None:
        self.closing.set()
        for stream in self._streams:
            stream.wake()

    def watched(self, kind: str) -> set[str]:
        """The arguments that some tab watches: the groups that are on a screen."""
        return {
            watch.partition(":")[2]
            for stream in self._streams
            for watch in stream.watches
            if watch.partition(":")[0] == kind
        }

    def touch(self, *kinds: str, argument: str | None = None) -> None:
        """These have changed: all of a kind, or the one with this argument."""
        for stream in self._streams:
            stream.touch(kinds, argument)

    def journal(self, kept: Kept) -> None:
        self._number += 1
        self._ring.append((self._number, entry_row(kept)))
        self.touch("journal")

    def state(self, watch: str) -> tuple[str, bytes] | None:
        """The event and its data; None if what is watched does not exist."""
        kind, _, argument = watch.partition(":")
        try:
            value = self._states[kind](argument)
        except Problem:
            return None
        return None if value is None else (kind, dumps(value))

    def entries_after(self, number: int) -> tuple[list[EntryRow], int, int]:
        """The newest entries after this one, how many more there were, and the last number."""
        found = [(at, row) for at, row in self._ring if at > number]
        total = self._number - number
        shown = [row for _, row in found[-ENTRIES_MAX:]]
        return shown, total - len(shown), self._number

    @property
    def number(self) -> int:
        return self._number

    @property
    def first(self) -> int:
        return self._ring[0][0] if self._ring else self._number + 1

    def check(self, watches: list[str]) -> None:
        """Raises Problem if these are too many, or all streams."""
        if len(self._streams) >= STREAMS_MAX:
            raise Problem(429, f"{STREAMS_MAX} tabs are open already")
        if len(watches) > WATCHES_MAX:
            raise Problem(422, f"a stream watches at most {WATCHES_MAX} things", field="watch")

    def _split(self, watches: list[str]) -> tuple[list[str], list[str]]:
        """Those that exist, and those that do not."""
        known = [each for each in watches if each.partition(":")[0] in (*self._states, "journal")]
        return known, [each for each in watches if each not in known]

    async def stream(self, watches: list[str], last_id: str) -> AsyncIterator[bytes]:
        known, unknown = self._split(watches)
        stream = EventStream(self, known)
        self._streams.add(stream)
        try:
            yield stream.event("hello", dumps({"watching": known, "unknown": unknown}))
            if (reset := stream.resume(last_id)) is not None:
                yield reset
            async for data in stream.run(self._picture):
                yield data
        finally:
            self._streams.discard(stream)


class EventStream:
    """What one tab is sent."""

    def __init__(self, hub: EventHub, watches: list[str]) -> None:
        self._hub = hub
        self.watches = watches
        self._changed = set(watches)
        self._sent: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._wake.set()
        self._journal = hub.number

    def wake(self) -> None:
        self._wake.set()

    def touch(self, kinds: tuple[str, ...], argument: str | None) -> None:
        for watch in self.watches:
            kind, _, own = watch.partition(":")
            if kind in kinds and argument in (None, own):
                self._changed.add(watch)
                self._wake.set()

    def event(self, name: str, data: bytes) -> bytes:
        return b"id: %d\nevent: %s\ndata: %s\n\n" % (self._journal, name.encode(), data)

    def resume(self, last_id: str) -> bytes | None:
        """Go on after the last entry that the tab has seen; `reset` if that is too old."""
        if not last_id.isdecimal() or len(last_id) > 18:
            return None
        if int(last_id) > self._hub.number or int(last_id) + 1 < self._hub.first:
            return self.event("reset", b"{}")
        self._journal = int(last_id)
        return None

    async def run(self, picture: Callable[[], dict[str, Any]]) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        picture_s = beat_s = loop.time()
        yield self.event("picture", dumps(picture()))
        while not self._hub.closing.is_set():
            try:
                async with asyncio.timeout(PICTURE_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            for data in self._due():
                beat_s = loop.time()
                yield data
            now = loop.time()
            if now - picture_s >= PICTURE_S:
                picture_s = now
                yield self.event("picture", dumps(picture()))
            elif now - beat_s >= HEARTBEAT_S:
                beat_s = now
                yield b": \n\n"
            await asyncio.sleep(INTERVAL_S)

    def _due(self) -> list[bytes]:
        changed, self._changed = self._changed, set()
        found = []
        for watch in sorted(changed):
            if watch == "journal":
                found += self._entries()
                continue
            state = self._hub.state(watch)
            if state is not None and self._sent.get(watch) != hash(state[1]):
                self._sent[watch] = hash(state[1])
                found.append(self.event(*state))
        return found

    def _entries(self) -> list[bytes]:
        entries, missed, self._journal = self._hub.entries_after(self._journal)
        found = []
        if missed > 0:
            found.append(self.event("gap", json.dumps({"missed": missed}).encode()))
        if entries:
            found.append(self.event("journal", dumps({"entries": entries, "missed": missed})))
        return found
