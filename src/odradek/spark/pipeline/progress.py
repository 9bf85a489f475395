"""What a running pipeline has done lately, for a terminal and for a log.

The lag is what Spark reports itself: the end of each log as the source saw it last, less how far
the last batch went. docs/spec/spark-kafka-format.md section 7 (f).
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.spark.pipeline.runner import DEAD_LETTERS, RowsOut, Run, java_is_there
from odradek.spark.position import Position

# How long a log stays without a line while a query is at its first batch.
QUIET_S = 10.0


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The last batch of one query, and its totals in this run."""

    name: str
    batch: int = -1
    rows_in: int = 0
    rows_in_per_s: float = 0.0
    rows_out_per_s: float = 0.0
    duration_ms: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)
    state_rows: int = 0
    state_bytes: int = 0
    rows_out: int = 0
    is_active: bool = True
    # What Spark says it is at, before there is a batch to report.
    doing: str = ""

    @property
    def is_dead_letters(self) -> bool:
        return self.name.startswith(DEAD_LETTERS)

    def line(self) -> str:
        """One line for a log."""
        lag = ", ".join(f"{topic} {count:,}" for topic, count in self.lag.items()) or "unknown"
        state = f", {self.state_rows:,} rows of state" if self.state_rows else ""
        out = "dead letters" if self.is_dead_letters else "rows out"
        return (
            f"{self.name}: batch {self.batch}, {self.rows_in:,} rows in "
            f"{self.duration_ms / 1000:.1f} s ({self.rows_in_per_s:,.0f}/s in, "
            f"{self.rows_out_per_s:,.0f}/s out), "
            f"{self.rows_out:,} {out} in this run, lag {lag}{state}"
        )


def progress_of(run: Run) -> list[QueryProgress]:
    """Every query of a run as it is now; JavaEnded if there is no Spark to say it."""
    with java_is_there():
        return [
            _first(run, name, query)
            if (last := query.lastProgress) is None
            else _query(name, last, run.rows_out(name), query.isActive)
            for name, query in list(run.queries.items())
        ]


def batches_of(run: Run, name: str, after: int) -> list[QueryProgress]:
    """The batches of a query after one, as far as Spark remembers them; JavaEnded likewise."""
    query = run.queries[name]
    with java_is_there():
        return [
            _query(name, batch, run.rows_out(name), query.isActive)
            for batch in query.recentProgress
            if batch["batchId"] > after
        ]


def _first(run: Run, name: str, query: Any) -> QueryProgress:
    """A query that has not come to the end of a batch yet."""
    rows = run.rows_out(name).total
    is_active, doing = query.isActive, query.status["message"]
    return QueryProgress(name, rows_out=rows, is_active=is_active, doing=doing)


def _query(name: str, last: Any, out: RowsOut, is_active: bool) -> QueryProgress:
    duration_ms = last["durationMs"].get("triggerExecution", 0)
    lag: dict[str, int] = {}
    for source in last["sources"]:
        for topic, behind in lag_of(source["endOffset"], source["latestOffset"]).items():
            lag[topic] = lag.get(topic, 0) + behind
    return QueryProgress(
        name=name,
        batch=last["batchId"],
        rows_in=last["numInputRows"],
        rows_in_per_s=last["inputRowsPerSecond"] or 0.0,
        rows_out_per_s=out.of_batch(last["batchId"]) * 1000 / max(1, duration_ms),
        duration_ms=duration_ms,
        lag=lag,
        state_rows=sum(operator["numRowsTotal"] for operator in last["stateOperators"]),
        state_bytes=sum(operator["memoryUsedBytes"] for operator in last["stateOperators"]),
        rows_out=out.total,
        is_active=is_active,
    )


def lag_of(end: Any, latest: Any) -> dict[str, int]:
    """How many offsets each topic has beyond the last batch."""
    reached = Position.from_json(_parsed(end)).offsets
    lag: dict[str, int] = {}
    for partition, offset in Position.from_json(_parsed(latest)).offsets.items():
        behind = max(0, offset - reached.get(partition, 0))
        lag[partition.topic] = lag.get(partition.topic, 0) + behind
    return lag


def _parsed(offset: Any) -> Any:
    """An offset in a report; before the source was asked for one it is null."""
    return (json.loads(offset) if isinstance(offset, str) else offset) or {}


class LogLines:
    """One line for each batch with rows in it that was not reported yet; and now and then one for
    each query that is still at its first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._reported: dict[str, int] = {}
        self._clock = clock
        self._began_s = self._spoke_s = clock()

    def new(self, run: Run) -> list[str]:
        queries = progress_of(run)
        return self._waiting(queries) + self._batches(run, queries)

    def _waiting(self, queries: Iterable[QueryProgress]) -> list[str]:
        now_s = self._clock()
        if now_s - self._spoke_s < QUIET_S:
            return []
        self._spoke_s = now_s
        return [
            f"{query.name}: no batch yet after {now_s - self._began_s:.0f} s ({query.doing})"
            for query in queries
            if query.batch < 0 and query.is_active
        ]

    def _batches(self, run: Run, queries: Iterable[QueryProgress]) -> list[str]:
        lines = []
        for query in queries:
            reported = self._reported.get(query.name, -1)
            if query.batch <= reported:
                continue
            # Batches can be shorter than the time between two looks.
            batches = (
                batches_of(run, query.name, reported) if query.batch > reported + 1 else [query]
            )
            lines += [batch.line() for batch in batches if batch.rows_in or batch.batch == 0]
            self._reported[query.name] = query.batch
        return lines
