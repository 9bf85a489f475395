"""What a running pipeline has done lately, for a terminal and for a log.

The lag is what Spark reports itself: the end of each log as the source saw it last, less how far
the last batch went. SPARK_FORMAT.md section 7 (f).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.spark.pipeline.runner import DEAD_LETTERS, Run
from odradek.spark.position import Position


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The last batch of one query, and its totals in this run."""

    name: str
    batch: int = -1
    rows_in: int = 0
    rows_in_per_s: float = 0.0
    rows_done_per_s: float = 0.0
    duration_ms: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)
    state_rows: int = 0
    rows_out: int = 0
    is_active: bool = True

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
            f"{self.duration_ms / 1000:.1f} s ({self.rows_done_per_s:,.0f}/s), "
            f"{self.rows_out:,} {out} in all, lag {lag}{state}"
        )


def progress_of(run: Run) -> list[QueryProgress]:
    """Every query of a run as it is now."""
    rows_out = run.rows_out()
    return [
        _query(name, query.lastProgress, rows_out.get(name, 0), query.isActive)
        for name, query in run.queries.items()
    ]


def _query(name: str, last: Any, rows_out: int, is_active: bool) -> QueryProgress:
    if last is None:
        return QueryProgress(name, rows_out=rows_out, is_active=is_active)
    lag: dict[str, int] = {}
    for source in last["sources"]:
        for topic, behind in lag_of(source["endOffset"], source["latestOffset"]).items():
            lag[topic] = lag.get(topic, 0) + behind
    return QueryProgress(
        name=name,
        batch=last["batchId"],
        rows_in=last["numInputRows"],
        rows_in_per_s=last["inputRowsPerSecond"] or 0.0,
        rows_done_per_s=last["processedRowsPerSecond"] or 0.0,
        duration_ms=last["durationMs"].get("triggerExecution", 0),
        lag=lag,
        state_rows=sum(operator["numRowsTotal"] for operator in last["stateOperators"]),
        rows_out=rows_out,
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
    """One line for each batch that was not told yet."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}

    def new(self, queries: list[QueryProgress]) -> list[str]:
        lines = []
        for query in queries:
            if query.batch > self._told.get(query.name, -1):
                self._told[query.name] = query.batch
                if query.rows_in or query.batch == 0:
                    lines.append(query.line())
        return lines
