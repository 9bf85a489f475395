"""Spark queries, from what they report."""

import json
from pathlib import Path

from tests.console.test_access import browser_of

from odradek.console.pipelines import TOPIC, Query
from odradek.spark.pipeline import reports
from odradek.spark.pipeline.progress import QueryProgress

NOW_MS = 1_700_000_000_000


async def test_what_a_pipeline_reports_is_what_is_shown(tmp_path: Path) -> None:
    """The two sides of the topic know nothing of each other: this holds them together."""
    assert TOPIC == reports.TOPIC
    console, _ = browser_of(tmp_path)
    progress = QueryProgress("events", 7, 500, 250.0, 240.0, 2_000, {"clicks": 12}, 3, 4)
    more = {"trigger_ms": 10_000, "dead_letters": 9, "dead_letter_topic": "d", "group": "g"}
    for is_active in (True, False):
        report = reports.report_of(progress, NOW_MS, {**more, "is_active": is_active})
        console.pipelines.take("clicks/events", json.dumps(report))
    query = console.pipelines.queries["clicks", "events"]
    assert isinstance(query, Query)
    row = query.answer(NOW_MS)
    shown = {name: row[name] for name in ("batch", "batch_ms", "lag", "state_rows", "state_bytes")}
    assert shown == {
        "batch": 7,
        "batch_ms": 2_000,
        "lag": {"clicks": 12},
        "state_rows": 3,
        "state_bytes": 4,
    }
    assert {name: row[name] for name in more} == more
    assert (row["rows_in_per_s"], row["rows_out_per_s"]) == (250.0, 240.0)
    assert row["state"] == "stopped" and row["last_ms"] == NOW_MS
    assert [(batch["batch"], batch["rows_in"], batch["rows_out"]) for batch in row["batches"]] == [
        (7, 500, 480)
    ]
    assert console.pipelines.group_names() == {"g": "clicks/events"}


def test_an_interval_is_in_milliseconds_or_none() -> None:
    found = {text: reports.milliseconds(text) for text in ("10 seconds", "1 minute", "", "soon")}
    assert found == {"10 seconds": 10_000, "1 minute": 60_000, "": None, "soon": None}
    assert reports.milliseconds("available-now") is None
