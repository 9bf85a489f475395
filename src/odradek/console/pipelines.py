"""Pipelines, from the compacted topic in which they report each batch.

`odradek pipeline run` writes a record for each batch of each query to `odradek.pipelines`: key
`<pipeline>/<query>`, value JSON. The console reads the topic from its start and follows it. What is
in it is hostile: it is bounded here, and shown as text.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from odradek.console.web import Problem
from odradek.console.workers import WorkerEnded, Workers

TOPIC = "odradek.pipelines"
QUERIES_MAX = 500
BATCHES_KEPT = 100
NAME_MAX = 200
# A query that has not reported for so long, or three triggers, is silent.
SILENT_MS = 60_000
RETRY_S = 5.0


@dataclass(slots=True)
class Query:
    """One query of a pipeline."""

    pipeline: str
    name: str
    last: dict[str, Any] = field(default_factory=dict)
    batches: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))

    def state(self, now_ms: int) -> str:
        if not self.last.get("is_active", True):
            return "stopped"
        trigger = _int(self.last.get("trigger_ms"))
        silent = now_ms - _int(self.last.get("time_ms")) > max(SILENT_MS, 3 * trigger)
        return "silent" if silent else "running"

    def row(self, now_ms: int) -> dict[str, Any]:
        last = self.last
        lag = last.get("lag")
        return {
            "pipeline": self.pipeline,
            "query": self.name,
            "state": self.state(now_ms),
            "batch": _int(last.get("batch"), -1),
            "rows_in_per_s": _float(last.get("rows_in_per_s")),
            "rows_out_per_s": _float(last.get("rows_out_per_s")),
            "batch_ms": _int(last.get("duration_ms")),
            "trigger_ms": _int(last.get("trigger_ms")),
            "lag": {
                str(topic)[:NAME_MAX]: _int(count)
                for topic, count in list(lag.items() if isinstance(lag, dict) else ())[:100]
            },
            "state_rows": _int(last.get("state_rows")),
            "state_bytes": _int(last.get("state_bytes")),
            "dead_letters": _int(last.get("dead_letters")),
            "dead_letter_topic": _text(last.get("dead_letter_topic")),
            "last_ms": _int(last.get("time_ms")),
            "group": _text(last.get("group")),
        }

    def answer(self, now_ms: int) -> dict[str, Any]:
        return {**self.row(now_ms), "batches": list(self.batches)}


class Pipelines:
    """Every query that has reported."""

    def __init__(self, workers: Workers, has_topic: Callable[[], bool]) -> None:
        self._workers = workers
        self._has_topic = has_topic
        self.queries: dict[tuple[str, str], Query] = {}
        self._task: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._forever())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def topic_exists(self) -> bool:
        return self._has_topic()

    def group_names(self) -> dict[str, str]:
        """The groups that queries commit to, with the names of the queries."""
        return {
            group: f"{query.pipeline}/{query.name}"
            for query in self.queries.values()
            if (group := _text(query.last.get("group"))) is not None
        }

    async def _forever(self) -> None:
        while True:
            if self._has_topic():
                try:
                    await self._follow()
                except (WorkerEnded, Problem):
                    pass  # tried again below
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        async with self._workers.own("pipelines") as worker:
            await worker.send({"id": 1, "job": "follow", "topic": TOPIC})
            while True:
                message = await worker.read()
                if "failed" in message:
                    return
                for key, value in message.get("pairs", ()):
                    self.take(key, value)
                for listener in self._listeners:
                    listener()

    def take(self, key: str, value: str | None) -> None:
        """One record of the topic."""
        pipeline, _, name = key.partition("/")
        place = (pipeline[:NAME_MAX], name[:NAME_MAX])
        if value is None:
            self.queries.pop(place, None)
            return
        try:
            report = json.loads(value)
        except (ValueError, RecursionError):
            return
        if not isinstance(report, dict):
            return
        query = self.queries.get(place)
        if query is None:
            if len(self.queries) >= QUERIES_MAX:
                return
            query = self.queries[place] = Query(*place)
        query.last = report
        # When a pipeline ends, its last batch is reported once more.
        if query.batches and query.batches[-1]["batch"] == _int(report.get("batch"), -1):
            query.batches.pop()
        query.batches.append(
            {
                "batch": _int(report.get("batch"), -1),
                "time_ms": _int(report.get("time_ms")),
                "duration_ms": _int(report.get("duration_ms")),
                "rows_in": _int(report.get("rows_in")),
                "rows_out": _int(report.get("rows_out")),
            }
        )


def _int(value: Any, default: int = 0) -> int:
    return value if isinstance(value, int) and abs(value) < 2**63 else default


def _float(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18:
        return float(value)
    return None


def _text(value: Any) -> str | None:
    return value[:NAME_MAX] if isinstance(value, str) else None
