"""Searches: each a child that reads, and here what it has found and how far it has come.

There is no limit of time or records but the log's end when the search began; a search can be
paused, resumed and cancelled, and goes on if the page that began it is closed. Finished ones are
kept for a while. A crash of the console ends its children and forgets the searches.
"""

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from odradek.console.web import Problem
from odradek.console.workers import Worker, WorkerEnded, Workers

KEPT_MAX = 40
FOUND_MAX = 1_000
SAMPLES = 12


@dataclass(slots=True)
class Search:
    """One search; `progress` is what its child said last."""

    id: str
    user: str
    topic: str
    limit_bytes_per_s: int | None
    job: dict[str, Any]
    total_bytes: int | None = None
    state: str = "running"
    error: str | None = None
    progress: dict[str, Any] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    complete: bool = False
    samples: list[tuple[float, int]] = field(default_factory=list)
    worker: Worker | None = None
    task: asyncio.Task[None] | None = None

    def take(self, progress: dict[str, Any]) -> None:
        self.records += progress.pop("found", [])
        del self.records[FOUND_MAX:]
        self.progress = progress
        self.samples.append((time.monotonic(), progress["scanned_bytes"]))
        del self.samples[:-SAMPLES]

    @property
    def percent(self) -> float:
        """By offsets: what is done of the way from where it began to where it ends."""
        starts, ends = self.progress.get("starts", {}), self.progress.get("ends", {})
        positions = self.progress.get("positions", {})
        total = sum(max(0, ends[p] - starts[p]) for p in ends)
        done = sum(max(0, min(positions[p], ends[p]) - starts[p]) for p in ends)
        if self.state == "done" and self.complete:
            return 100.0
        return (
            round(100.0 * done / total, 2) if total else (0.0 if self.state == "running" else 100.0)
        )

    @property
    def bytes_per_s(self) -> float | None:
        if len(self.samples) < 2 or self.state != "running":
            return None
        (then_s, then), (now_s, now) = self.samples[0], self.samples[-1]
        return (now - then) / (now_s - then_s) if now_s > then_s else None

    def answer(self, after: int = 0) -> dict[str, Any]:
        scanned, percent = self.progress.get("scanned_bytes", 0), self.percent
        rate = self.bytes_per_s
        total = int(scanned * 100 / percent) if percent else None
        left = (total - scanned) / rate if total is not None and rate else None
        return {
            "id": self.id,
            "topic": self.topic,
            "state": self.state,
            "engine": self.progress.get("engine", "bytes first"),
            "error": self.error,
            "scanned_bytes": scanned,
            "total_bytes": total,
            "scanned_records": self.progress.get("scanned_records", 0),
            "undecodable": self.progress.get("undecodable", 0),
            "percent": percent,
            "reached_ms": self.progress.get("reached_ms"),
            "bytes_per_s": rate,
            "limit_bytes_per_s": self.limit_bytes_per_s,
            "left_s": 0.0 if self.state == "done" else left,
            "found": len(self.records),
            "records": self.records[after:],
            "complete": self.complete,
            "ends": self.progress.get("ends", {}),
            "positions": self.progress.get("positions", {}),
        }


class Searches:
    """All searches of all users."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._searches: dict[str, Search] = {}
        self._ids = itertools.count(1)
        self._listeners: list[Callable[[str], None]] = []

    def listen(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def start(self, user: str, topic: str, job: dict[str, Any], limit: int | None) -> Search:
        search = Search(f"s{next(self._ids)}", user, topic, limit, job)
        self._searches[search.id] = search
        search.task = asyncio.ensure_future(self._run(search))
        finished = [each for each in self._searches.values() if each.state not in _LIVE]
        for old in finished[: max(0, len(self._searches) - KEPT_MAX)]:
            del self._searches[old.id]
        return search

    def of(self, user: str) -> list[Search]:
        return [each for each in self._searches.values() if each.user == user]

    def get(self, id: str, user: str) -> Search:
        search = self._searches.get(id)
        if search is None or search.user != user:
            raise Problem(404, f"there is no search {id!r}")
        return search

    def find(self, id: str) -> Search | None:
        return self._searches.get(id)

    async def pause(self, search: Search) -> None:
        await self._control(search, "pause", "running", "paused")

    async def resume(self, search: Search) -> None:
        await self._control(search, "resume", "paused", "running")

    async def _control(self, search: Search, verb: str, before: str, after: str) -> None:
        if search.state != before or search.worker is None:
            raise Problem(409, f"the search is {search.state}")
        await search.worker.send({"control": verb})
        search.state = after
        search.samples.clear()
        self._notify(search)

    async def cancel(self, search: Search) -> None:
        if search.state in _LIVE and search.task is not None:
            search.task.cancel()
            await asyncio.gather(search.task, return_exceptions=True)

    async def close(self) -> None:
        for search in list(self._searches.values()):
            await self.cancel(search)

    def _notify(self, search: Search) -> None:
        for listener in self._listeners:
            listener(search.id)

    async def _run(self, search: Search) -> None:
        try:
            async with self._workers.own("search") as worker:
                search.worker = worker
                await worker.send({**search.job, "id": search.id})
                while True:
                    message = await worker.read()
                    if "progress" in message:
                        search.take(message["progress"])
                    elif "failed" in message:
                        search.state, search.error = "failed", message["failed"]
                        return
                    else:
                        search.state = "done"
                        search.complete = message["result"]["complete"]
                        return
                    self._notify(search)
        except WorkerEnded:
            search.state, search.error = "failed", "it took more memory than is allowed"
        except Problem as problem:
            search.state, search.error = "failed", problem.detail
        except asyncio.CancelledError:
            search.state = "cancelled"
            raise
        finally:
            search.worker = None
            self._notify(search)


_LIVE = ("running", "paused")
