"""Reading, searching and taking away what clients have written."""

import csv
import io
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.broker.clusters import Cluster, until
from tests.console.consoles import Browser

from odradek.broker.server import Broker
from odradek.client import Producer
from odradek.console.console import Console

pytestmark = pytest.mark.process

TOPIC = "orders"
FORMULAS = ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1")
NEVER = {"field": "value", "op": "contains", "text": "this is nowhere"}


def children() -> set[str]:
    """The processes that this one has started, from threads that have not ended meanwhile."""
    started: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):
            started.update((task / "children").read_text().split())
    return started


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


async def test_23_a_record_is_a_fetch_away_by_offset_and_by_time(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    """However long the log is: it is not read from its start. `make bench ONLY=console` has the
    milliseconds."""
    console, browser = seen
    await brokers.create_topic(TOPIC, partitions=1, segment_bytes="16384")
    await until(lambda: console.collector.table.leader(TOPIC, 0) >= 0)
    first_ms = time.time_ns() // 1_000_000 - 10_000
    async with Producer(console.link.client) as producer:
        for number in range(300):
            await (
                await producer.send(
                    TOPIC,
                    b"%04d" % number + b"x" * 1000,
                    partition=0,
                    timestamp_ms=first_ms + number,
                )
            )
    leader = brokers.brokers[console.collector.table.leader(TOPIC, 0)]
    log = next(iter(leader.logs.registry.all()))
    assert len(log.segments) > 10
    asked = {"topic": TOPIC, "p": 0}
    await browser.get("/record", **asked, offset=0)  # starts the worker
    before = fetches(leader)
    assert (await browser.get("/record", **asked, offset=211))["value"]["text"].startswith("0211")
    page = await browser.get("/records", **asked, **{"from": f"time:{first_ms + 211}", "limit": 1})
    assert page["items"][0]["offset"] == 211
    assert fetches(leader) - before <= 4, "one for each, and one ahead"


def fetches(broker: Broker) -> int:
    """Fetches of clients that were answered."""
    return broker.replicas.traffic.total("fetches")


async def test_26_a_tail_counts_what_it_does_not_show(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    """`make bench ONLY=console` has the cost of 100,000 records a second."""
    console, browser = seen
    await brokers.create_topic(TOPIC, partitions=2)
    await until(lambda: console.collector.table.leader(TOPIC, 1) >= 0)
    rows = 0
    async with browser.stream("/records/tail", topic=TOPIC) as stream:
        await stream.next("started")
        async with Producer(console.link.client) as producer:
            for number in range(4_000):
                await producer.send(TOPIC, b"%d" % number, partition=number % 2)
        while True:
            _, tail = await stream.next("records")
            rows += len(tail["records"])
            assert tail["shown"] + tail["counted"] == tail["written"]
            if tail["written"] == 4_000:
                break
    assert rows == tail["shown"] < 4_000
