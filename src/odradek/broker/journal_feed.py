"""The journal as others follow it: counted, read from a sequence number on, and live.

Entries are numbered from 1 in the order they are recorded, for as long as the broker runs. An id
names the run as well, `<start>-<number>`, so that a follower that comes back after a restart is
recognised and sent a `reset` instead of the wrong entries.
A follower that is slower than the journal misses entries: it is sent a `gap` with their count, and
costs the broker no more than its queue.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterator
from itertools import islice

from odradek.controller.journal import Entry, EntryKind, Journal, line_of

__all__ = ["JournalFeed"]

QUEUE_MAX = 1_000
# A comment that keeps connections open that nothing is sent on.
HEARTBEAT_S = 15.0
# Entries that are written in one turn of the loop: all that is in memory would hold it up for a
# tenth of a second.
TOGETHER = 200
DIGITS_MAX = 18


class JournalFeed:
    """Listens to a journal from its making on."""

    def __init__(self, journal: Journal, start_ms: int) -> None:
        self._journal = journal
        self._start_ms = start_ms
        self._followers: set[_Follower] = set()
        self.by_kind: Counter[EntryKind] = Counter()
        self.elections = 0
        self.unclean_elections = 0
        for entry in journal.entries():
            self._count(entry)
        journal.listen(self._recorded)

    def _recorded(self, entry: Entry) -> None:
        self._count(entry)
        for follower in self._followers:
            follower.put(entry)

    def _count(self, entry: Entry) -> None:
        self.by_kind[entry.kind] += 1
        if entry.kind is EntryKind.LEADERSHIP and "election (" in entry.why:
            self.elections += 1
            self.unclean_elections += "unclean: " in entry.why

    @property
    def first(self) -> int:
        """The number of the oldest entry that is still in memory."""
        oldest = next(self._journal.entries(), None)
        return self._journal.recorded + 1 if oldest is None else oldest.sequence

    def after(self, number: int) -> Iterator[Entry]:
        """The entries after this one that are still in memory, oldest first."""
        return islice(self._journal.entries(), max(0, number + 1 - self.first), None)

    async def events(self, last_id: str) -> AsyncGenerator[str, None]:
        """Server-sent events: what comes after `last_id`, and then all that happens."""
        number = self._resume_at(last_id)
        follower = _Follower()
        self._followers.add(follower)
        try:
            if number is None:
                yield f"event: reset\ndata: {self.first}\n\n"
                number = self.first - 1
            elif number + 1 < self.first:
                yield f"event: gap\ndata: {self.first - 1 - number}\n\n"
            kept = self.after(number)
            while some := list(islice(kept, TOGETHER)):
                yield "".join(map(self._event, some))
                number = some[-1].sequence
                await asyncio.sleep(0)
            while True:
                queued = await follower.get()
                if not queued:
                    yield ": \n\n"
                    continue
                # Those that were recorded while the earlier ones were sent are not sent twice.
                new = [entry for entry in queued if entry.sequence > number]
                if not new:
                    continue
                if new[0].sequence > number + 1:
                    yield f"event: gap\ndata: {new[0].sequence - 1 - number}\n\n"
                yield "".join(map(self._event, new))
                number = new[-1].sequence
                await asyncio.sleep(0)
        finally:
            self._followers.discard(follower)

    def _resume_at(self, last_id: str) -> int | None:
        """The number after which a follower resumes; None if its id is not of this run."""
        if not last_id:
            return self._journal.recorded
        start, _, number = last_id.partition("-")
        if start != str(self._start_ms) or not number.isdecimal() or len(number) > DIGITS_MAX:
            return None
        return int(number) if int(number) <= self._journal.recorded else None

    def _event(self, entry: Entry) -> str:
        return f"id: {self._start_ms}-{entry.sequence}\nevent: entry\ndata: {line_of(entry)}\n"

    def statistics(self) -> dict[str, int]:
        return {"followers": len(self._followers), "recorded": self._journal.recorded}


class _Follower:
    """A bounded queue: when it is full, the oldest entries are dropped."""

    def __init__(self) -> None:
        self._queue: deque[Entry] = deque(maxlen=QUEUE_MAX)
        self._wake = asyncio.Event()

    def put(self, entry: Entry) -> None:
        self._queue.append(entry)
        self._wake.set()

    async def get(self) -> list[Entry]:
        """The next entries; none if there were none for a while."""
        if not self._queue:
            self._wake.clear()
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._wake.wait()
            except TimeoutError:
                return []
        return [self._queue.popleft() for _ in range(min(TOGETHER, len(self._queue)))]
