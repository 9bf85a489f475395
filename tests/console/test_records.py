"""Reading, searching and taking away what clients have written."""

import csv
import io
import time
from pathlib import Path
from typing import Any

import pytest
from tests.broker.clusters import Cluster, until
from tests.console.consoles import Browser

from odradek.client import Producer
from odradek.console.console import Console

pytestmark = pytest.mark.process

TOPIC = "orders"
FORMULAS = ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1")
NEVER = {"field": "value", "op": "contains", "text": "this is nowhere"}


def children() -> set[str]:
    """The processes that this one has started."""
    return {
        pid
        for tasks in Path("/proc/self/task").iterdir()
        for pid in (tasks / "children").read_text().split()
    }


async def test_what_is_taken_away_is_neither_formula_nor_page_and_searches_end(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    """CONSOLE acceptance 24 (cancel), 25 and 31."""
    console, browser = seen
    await brokers.create_topic(TOPIC, partitions=1)
    await until(lambda: console.collector.table.leader(TOPIC, 0) >= 0)
    async with Producer(console.link.client) as producer:
        for cell in FORMULAS:
            await producer.send(TOPIC, cell.encode(), key=cell.encode(), partition=0)
        for _ in range(40):
            await producer.send(TOPIC, b"x" * 50_000, partition=0)
    await _downloads(browser)
    await _endless(console, browser)
    before = children()
    slow = {"topic": TOPIC, "from": "oldest", "filter": NEVER, "limit_bytes_per_s": 1_000}
    search = await browser.post("/searches", slow)
    await until(lambda: children() - before)
    answer = await browser.ask("DELETE", f"/api/v1/searches/{search['id']}", {})
    assert answer.status in (200, 204)
    await until(lambda: children() <= before)


async def _downloads(browser: Browser) -> None:
    for form in ("csv", "jsonl", "raw"):
        query: dict[str, Any] = {"topic": TOPIC, "from": "oldest", "as": form}
        answer = await browser.ask("GET", "/api/v1/records/download", limit=len(FORMULAS), **query)
        assert answer.status == 200, answer.body
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["x-content-type-options"] == "nosniff"
        if form == "csv":
            rows = list(csv.DictReader(io.StringIO(answer.body.decode(), newline="")))
            found = [row["value"] for row in rows]
            assert all(cell.startswith("'") for cell in found)
            assert [cell[1:] for cell in found[:4]] == list(FORMULAS[:4])


async def _endless(console: Console, browser: Browser) -> None:
    """A search on a topic that is being written ends at the end it saw when it began."""
    search = await browser.post(
        "/searches", {"topic": TOPIC, "from": "oldest", "filter": NEVER, "limit_bytes_per_s": None}
    )
    written = 0
    async with Producer(console.link.client) as producer:
        deadline = time.monotonic() + 60
        while (now := await browser.get(f"/searches/{search['id']}"))["state"] == "running":
            assert time.monotonic() < deadline
            await (await producer.send(TOPIC, b"later", partition=0))
            written += 1
    assert now["state"] == "done" and now["complete"] and now["found"] == 0
    assert written > 0 and now["ends"]["0"] <= len(FORMULAS) + 40 + written
    assert now["scanned_records"] <= now["ends"]["0"]
