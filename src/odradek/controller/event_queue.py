"""The event queue: everything that happens to the controller happens one at a time, in order.

An event that equals one that already waits is not queued again. Those that are dropped before their
turn (*preempted*), because the session ended or the controller stops, are handed to `preempt`,
which owes clients a reply. docs/spec, section 4.3 of the controller's behaviour.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from odradek.controller.events import Event, name_of

CLOSING_S_MAX = 5.0


class Queued(NamedTuple):
    """An event and the controller epoch it belongs to; 0 for events of no term."""

    event: Event
    epoch: int = 0


@dataclass(slots=True)
class KindTimes:
    """How long the events of one kind waited and took."""

    count: int = 0
    queue_s: float = 0.0
    queue_s_max: float = 0.0
    processing_s: float = 0.0
    processing_s_max: float = 0.0

    def add(self, queue_s: float, processing_s: float) -> None:
        self.count += 1
        self.queue_s += queue_s
        self.queue_s_max = max(self.queue_s_max, queue_s)
        self.processing_s += processing_s
        self.processing_s_max = max(self.processing_s_max, processing_s)


class EventQueue:
    """Runs events one at a time through `process`."""

    def __init__(
        self,
        process: Callable[[Queued], Awaitable[None]],
        preempt: Callable[[Event], None],
    ) -> None:
        self._process = process
        self._preempt = preempt
        # A dict is a queue that knows what is in it.
        self._queued: dict[Queued, float] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._times: dict[str, KindTimes] = {}
        self.current: Event | None = None
        self.preempted = 0
        self.closed = False

    def start(self) -> None:
        assert self._task is None, "a queue starts once"
        self._task = asyncio.get_running_loop().create_task(self._run(), name="controller-events")

    def put(self, event: Event, epoch: int = 0) -> None:
        """Queue an event, unless the same already waits. After `close` it is preempted at once."""
        if self.closed:
            self._drop(event)
        elif (queued := Queued(event, epoch)) not in self._queued:
            self._queued[queued] = asyncio.get_running_loop().time()
            self._wake.set()

    def clear_and_put(self, event: Event) -> None:
        """Preempt everything that waits, then queue this."""
        self._drop_all()
        self.put(event)

    async def close(self) -> None:
        """Finish the event in hand, preempt the rest.

        An event that waits for an unreachable store is cancelled after a while.
        """
        self.closed = True
        self._drop_all()
        self._wake.set()
        if self._task is not None:
            _, unfinished = await asyncio.wait([self._task], timeout=CLOSING_S_MAX)
            if unfinished:
                self._task.cancel()
                await asyncio.wait([self._task])

    def statistics(self) -> dict[str, object]:
        return {
            "queue_length": len(self._queued),
            "processing": name_of(self.current) if self.current else None,
            "preempted": self.preempted,
            "events": {
                kind: {
                    "count": times.count,
                    "queue_ms_mean": 1000 * times.queue_s / times.count,
                    "queue_ms_max": 1000 * times.queue_s_max,
                    "processing_ms_mean": 1000 * times.processing_s / times.count,
                    "processing_ms_max": 1000 * times.processing_s_max,
                }
                for kind, times in self._times.items()
            },
        }

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.closed:
            if not self._queued:
                self._wake.clear()
                await self._wake.wait()
                continue
            queued = next(iter(self._queued))
            queued_at = self._queued.pop(queued)
            self.current = queued.event
            started = loop.time()
            try:
                await self._process(queued)
            finally:
                self.current = None
                times = self._times.setdefault(name_of(queued.event), KindTimes())
                times.add(started - queued_at, loop.time() - started)

    def _drop_all(self) -> None:
        dropped, self._queued = self._queued, {}
        for queued in dropped:
            self._drop(queued.event)

    def _drop(self, event: Event) -> None:
        self.preempted += 1
        self._preempt(event)
