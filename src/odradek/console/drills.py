"""Drills: a broker of a development cluster is hurt, and a timeline says what that did.

A drill starts a probe, has the holder of the cluster kill, stop or pause a broker, waits, and has
it undone. What the signal, the journal and the probe say is put on one clock: all of it happened
on one machine. One drill runs at a time; if the console ends meanwhile, the broker stays as it is
and `start` or `resume` bring it back.
"""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.console.collector import Collector
from odradek.console.holder import Holder
from odradek.console.link import FAILURES, Link
from odradek.console.probe import TOPIC, Probe, Verdict, wall_ms
from odradek.console.web import Problem
from odradek.controller.journal import Entry, EntryKind, parse_state
from odradek.operations.journal_book import JournalBook

logger = logging.getLogger(__name__)

CLIENT_ID = "odradek-console-drill"
SIGNALS = {
    "kill": "SIGKILL",
    "stop": "SIGTERM, a controlled shutdown",
    "pause": "SIGSTOP",
    "resume": "SIGCONT",
    "start": "the process is started",
}
# What undoes it.
UNDONE_BY = {"kill": "start", "stop": "start", "pause": "resume"}
KEPT = 50
SETTLE_S = 0.5
TOUCH_S = 0.5
IN_SYNC_S = 60.0
STEPS_MAX = 50


class Step(NamedTuple):
    """Something that happened, ms after the signal."""

    at_ms: float
    what: str
    source: str


@dataclass(slots=True)
class Drill:
    id: str
    action: str
    broker: int
    seconds: float
    state: str = "running"
    error: str | None = None
    # The signal; 0 until it was sent.
    started_ms: float = 0.0
    ended_ms: float = 0.0
    undone_ms: float | None = None
    probe: Probe | None = None
    verdict: Verdict | None = None
    timeline: list[Step] = field(default_factory=list)

    def answer(self) -> dict[str, Any]:
        probe, verdict = self.probe, self.verdict
        writes: dict[str, Any] = {"acknowledged": 0, "lost": None, "repeated": None}
        reads: dict[str, Any] = {"longest_gap_ms": None}
        if probe is not None and self.started_ms:
            writes["acknowledged"] = len(probe.acknowledged)
            writes["longest_gap_ms"] = round(probe.longest_ms(probe.writes, self.started_ms), 1)
            writes["gaps"] = probe.gaps(self.started_ms)
            reads["longest_gap_ms"] = round(probe.longest_ms(probe.reads, self.started_ms), 1)
        if verdict is not None:
            writes |= {"lost": verdict.lost, "repeated": verdict.repeated}
        return {
            "id": self.id,
            "action": self.action,
            "broker": self.broker,
            "seconds": self.seconds,
            "state": self.state,
            "error": self.error,
            "started_ms": round(self.started_ms),
            "timeline": [step._asdict() for step in self.timeline],
            "writes": writes,
            "reads": reads,
        }


class Drills:
    """The drills of this console, the last ones kept."""

    def __init__(
        self,
        holder: Holder,
        link: Link,
        collector: Collector,
        book: JournalBook,
        touch: Callable[[str], None],
    ) -> None:
        self.holder = holder
        self._link = link
        self._collector = collector
        self._book = book
        self._touch = touch
        self.drills: deque[Drill] = deque(maxlen=KEPT)
        self._ids = itertools.count(1)
        self._task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.holder.close()

    def find(self, id: str) -> Drill | None:
        return next((drill for drill in self.drills if drill.id == id), None)

    @property
    def running(self) -> Drill | None:
        return next((drill for drill in self.drills if drill.state == "running"), None)

    def begin(self, action: str, broker: int, seconds: float) -> Drill:
        if self.running is not None:
            raise Problem(409, f"drill {self.running.id} is running")
        drill = Drill(f"d{next(self._ids)}", action, broker, seconds)
        self.drills.appendleft(drill)
        self._task = asyncio.ensure_future(self._run(drill))
        return drill

    async def _run(self, drill: Drill) -> None:
        ticking = asyncio.ensure_future(self._tick(drill))
        try:
            await self._carry_out(drill)
        except Problem as problem:
            drill.error = problem.detail
        except FAILURES as error:
            drill.error = str(error) or type(error).__name__
        except Exception:
            logger.exception("console: drill %s failed", drill.id)
            drill.error = "the console failed; its log says why"
        finally:
            ticking.cancel()
            drill.state = "done" if drill.error is None else "failed"
            self._touch(drill.id)

    async def _tick(self, drill: Drill) -> None:
        while True:
            await asyncio.sleep(TOUCH_S)
            drill.timeline = self._timeline(drill)
            self._touch(drill.id)

    async def _carry_out(self, drill: Drill) -> None:
        client = self._link.open(CLIENT_ID)
        probe = drill.probe = Probe(client, len(self._collector.brokers.nodes))
        try:
            await probe.start()
            await asyncio.sleep(SETTLE_S)
            drill.started_ms = await self.holder.do(drill.action, drill.broker)
            await asyncio.sleep(drill.seconds)
            if drill.action in UNDONE_BY:
                drill.undone_ms = await self.holder.do(UNDONE_BY[drill.action], drill.broker)
            await self._until_in_sync()
            await asyncio.sleep(SETTLE_S)
            drill.ended_ms = wall_ms()
            drill.verdict = await probe.stop()
            drill.timeline = self._timeline(drill)
        finally:
            await probe.cancel()
            await client.close()

    async def _until_in_sync(self) -> None:
        """Until every replica of the probe's topic is in sync, or for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IN_SYNC_S):
                while not self._is_in_sync():
                    self._collector.hurry()
                    await asyncio.sleep(TOUCH_S)

    def _is_in_sync(self) -> bool:
        topic = self._collector.table.find(TOPIC)
        return topic is not None and all(
            len(each.isr) == len(each.replicas) for each in self._collector.table.partitions(topic)
        )

    def _timeline(self, drill: Drill) -> list[Step]:
        if not drill.started_ms or drill.probe is None:
            return []
        started = drill.started_ms
        steps = [Step(0.0, f"{SIGNALS[drill.action]} to broker {drill.broker}", "signal")]
        if drill.undone_ms is not None:
            what = f"broker {drill.broker}: {SIGNALS[UNDONE_BY[drill.action]]}"
            steps.append(Step(drill.undone_ms - started, what, "signal"))
        until = drill.ended_ms or wall_ms()
        entries = [
            entry
            for _, entry in self._book
            # The journal's times are whole milliseconds.
            if int(started) <= entry.time_ms <= until
        ]
        steps += steps_of(entries, drill.broker, started)
        written = drill.probe.written_again_after(started)
        if written is not None:
            what = "every partition can be written again"
            steps.append(Step(written - started, what, "probe"))
        return sorted(
            (step._replace(at_ms=round(max(0.0, step.at_ms), 1)) for step in steps),
            key=lambda step: step.at_ms,
        )[:STEPS_MAX]


def steps_of(entries: list[Entry], broker: int, started_ms: float) -> list[Step]:
    """What the controllers' journals say of a broker's end and return."""
    steps: list[Step] = []
    elected, returned = [], []
    for entry in entries:
        if entry.kind is EntryKind.CONTROLLER and (
            "BrokerChange" in entry.after or entry.after.endswith("elected controller")
        ):
            steps.append(Step(entry.time_ms - started_ms, f"controller: {entry.after}", "journal"))
        if entry.kind is not EntryKind.LEADERSHIP:
            continue
        before, after = parse_state(entry.before), parse_state(entry.after)
        if before is None or after is None:
            continue
        if before.leader == broker != after.leader:
            elected.append(entry.time_ms)
        if broker in after.isr and broker not in before.isr:
            returned.append(entry.time_ms)
    if elected:
        what = f"{len(elected)} of its partitions have other leaders"
        steps.append(Step(max(elected) - started_ms, what, "journal"))
    if returned:
        what = f"it is in sync again on {len(returned)} partitions"
        steps.append(Step(max(returned) - started_ms, what, "journal"))
    return steps
