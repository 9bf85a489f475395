"""The console at scale: 10,000 topics, 100,000 partitions and 2,000 groups on six brokers.

The brokers are played by a process that answers the console's questions from tables; the console is
the real process, asked over HTTP. Figures are beside the budgets of
docs/spec/console.md section 7 (points 2, 4 to 9, 23, 24 and 26), which are for an otherwise idle
machine with two cores. What the clock of a busy machine makes worthless stands beside the
processor time.
"""

import http.client
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks._played_cluster import (
    BROKERS,
    GROUPS,
    LARGE,
    LARGE_END,
    NAMES,
    PARTITIONS,
    TOPICS,
    WRITTEN,
    PlayedElsewhere,
)

ASKED = 100
READY_S = 120.0
REFRESHED_S = 8.0
# Groups are read in turn, all within a minute.
ROUND_S = 60.0
# A search of 10 GB must not end before it is cancelled.
TAILED_S, SEARCHED_S = 10.0, 4.0
# Browsers that have never seen the page, and how often the map is drawn.
FRESH = 5
LAST = max(NAMES)


class Page:
    """The console, asked as a browser would over one connection."""

    def __init__(self, link: str) -> None:
        base, _, token = link.partition("/#token=")
        self.link, self._origin = link, base
        self._connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=60)
        self._cookie = ""
        answer = self._send("POST", "/login", json.dumps({"token": token}))
        self._cookie = (answer.getheader("set-cookie") or "").split(";")[0]
        answer.read()

    def _send(self, method: str, path: str, body: str | None = None) -> http.client.HTTPResponse:
        headers = {"Origin": self._origin, "Content-Type": "application/json"}
        headers |= {"Cookie": self._cookie} if self._cookie else {}
        path = path if path == "/metrics" else f"/api/v1{path}"
        try:
            self._connection.request(method, path, body, headers)
            return self._connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            # The console closes connections that have been idle for some seconds.
            self._connection.close()
            self._connection.request(method, path, body, headers)
            return self._connection.getresponse()

    def text(self, path: str) -> str:
        answer = self._send("GET", path)
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {body[:300]!r}")
        return body.decode()

    def get(self, path: str) -> Any:
        return json.loads(self.text(path))

    def post(self, path: str, body: object) -> Any:
        return json.loads(self._send("POST", path, json.dumps(body)).read())

    def delete(self, path: str) -> None:
        self._send("DELETE", path, "{}").read()

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """Server-sent events on a connection of their own, until the caller has enough."""
        other = http.client.HTTPConnection(urlsplit(self._origin).netloc, timeout=60)
        other.request("GET", f"/api/v1{path}", headers={"Cookie": self._cookie})
        answer, name = other.getresponse(), ""
        try:
            while line := answer.readline():
                field, _, value = line.decode().rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    yield name, json.loads(value)
        finally:
            other.close()


@contextmanager
def console(bootstrap: str) -> Iterator[tuple[Page, int]]:
    with tempfile.TemporaryDirectory() as state:
        command = [sys.executable, "-m", "odradek", "console", "--port", "0"]
        command += ["--bootstrap-server", bootstrap, "--state", state]
        with (Path(state) / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield Page(line[line.index("http") :].strip()), process.pid
        finally:
            process.terminate()
            process.wait()


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1000


def times_ms(ask: Callable[[int], object], count: int = ASKED) -> list[float]:
    found = []
    for number in range(count):
        begun = time.perf_counter()
        ask(number)
        found.append((time.perf_counter() - begun) * 1000)
    return sorted(found)


def share(times: list[float], part: float) -> float:
    return times[min(len(times) - 1, int(len(times) * part))]


def wait_for(holds: Callable[[], bool], seconds: float) -> float:
    """How long it took."""
    begun = time.perf_counter()
    while not holds():
        if time.perf_counter() - begun > seconds:
            raise TimeoutError("the console has no picture of the cluster")
        time.sleep(0.05)
    return time.perf_counter() - begun


def row(what: str, value: float, unit: str, budget: float | None = None) -> None:
    limit = "" if budget is None else f"{budget:,.0f} {unit}"
    print(f"{what:<52} {f'{value:,.1f} {unit}':>31} {limit:>10}")


class Asker:
    """Asks many times, and prints how long it took and what it cost the console."""

    def __init__(self, page: Page, pid: int) -> None:
        self._page = page
        self._pid = pid

    def ask(self, what: str, path: Callable[[int], str], p99_ms: float | None = None) -> None:
        before = cpu_ms(self._pid)
        times = times_ms(lambda number: self._page.get(path(number)))
        cost = (cpu_ms(self._pid) - before) / len(times)
        limit = "" if p99_ms is None else f"{p99_ms:,.0f} ms"
        figures = f"{share(times, 0.5):7.1f} {share(times, 0.99):10.1f} {cost:9.1f} ms"
        print(f"{what:<52} {figures:>31} {limit:>10}")


def cpu_ms(pid: int) -> float:
    """Of a process so far: what a busy machine disturbs less than the clock."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def measure(cluster: PlayedElsewhere, page: Page, pid: int) -> None:
    chance = random.Random(1)
    asker = Asker(page, pid)
    first = "/topics?limit=100"
    asker.ask("topic list: first page", lambda _: first, 100)
    asker.ask("topic search as typed", lambda _: f"/topics?q={chance.randrange(999):03}", 50)
    asker.ask("topic list: near the end", lambda n: f"{first}&offset={TOPICS - 100 - n}", 200)
    asker.ask("topic list: by size", lambda _: f"{first}&sort=-size_bytes")
    asker.ask("group list: by lag", lambda _: "/groups?limit=100&sort=-lag", 150)
    asker.ask("opening a group", lambda n: f"/group?id=group-{n % GROUPS}", 300)
    asker.ask("overview", lambda _: "/overview")
    grid = times_ms(lambda _: page.get("/grid"), 5)
    row(f"letters of the heat grid, {PARTITIONS:,} partitions", share(grid, 0.5), "ms")
    refresh(cluster, page, first)
    records(page, pid)
    in_a_browser(page)
    row("console process, resident", resident_mb(pid), "MB", 100)


def records(page: Page, pid: int) -> None:
    """A page, a live tail of 100,000 records a second, and a search, of brokers that cost nothing
    to read from."""
    page.get(f"/records?topic={LARGE}&p=0&limit=1")  # starts the worker
    chance = random.Random(2)
    times = times_ms(
        lambda _: page.get(f"/record?topic={LARGE}&p=0&offset={chance.randrange(LARGE_END)}"), 50
    )
    row(f"record by offset, of {LARGE_END:,}, p99", share(times, 0.99), "ms", 100)
    first = f"/records?topic={LARGE}&p=0&limit=1&from=time:"
    times = times_ms(lambda number: page.get(f"{first}2026-01-01T00:00:{number:02}Z"), 50)
    row("record by time, p99", share(times, 0.99), "ms", 300)
    before, begun, counted = tree_cpu_ms(pid), 0.0, {}
    for name, data in page.events(f"/records/tail?topic={WRITTEN}"):
        if name != "records":
            continue
        if not begun:
            before, begun, first = tree_cpu_ms(pid), time.perf_counter(), data["written"]
        counted = data
        if time.perf_counter() - begun > TAILED_S:
            break
    seconds = time.perf_counter() - begun
    assert counted["shown"] + counted["counted"] == counted["written"]
    row("live tail: records", (counted["written"] - first) / seconds, "/s")
    row("live tail: console and worker", (tree_cpu_ms(pid) - before) / seconds / 10, "% CPU", 60)
    search(page, pid)


def search(page: Page, pid: int) -> None:
    """Its rate, how often it reports, and how soon its worker is gone when it is cancelled."""
    asked = {"topic": LARGE, "from": "oldest", "partitions": [0], "limit_bytes_per_s": None}
    never = {"field": "value", "op": "contains", "text": "this is nowhere"}
    id = page.post("/searches", {**asked, "filter": never})["id"]
    wait_for(lambda: page.get(f"/searches/{id}")["scanned_bytes"] > 0, READY_S)
    begun, before = time.perf_counter(), page.get(f"/searches/{id}")["scanned_bytes"]
    reported = [begun]
    for name, _ in page.events(f"/events?watch=search:{id}"):
        if name == "search":
            reported.append(time.perf_counter())
        if time.perf_counter() - begun > SEARCHED_S:
            break
    scanned = page.get(f"/searches/{id}")["scanned_bytes"] - before
    row("search of one partition", scanned / (time.perf_counter() - begun) / 1e6, "MB/s", 200)
    longest = max(later - sooner for sooner, later in pairwise(reported))
    row("longest time between two reports of a search", longest * 1000, "ms", 500)
    assert page.get(f"/searches/{id}")["state"] == "running"
    before_it, begun = children_of(pid), time.perf_counter()
    page.delete(f"/searches/{id}")
    wait_for(lambda: bool(before_it - children_of(pid)), READY_S)
    row(
        "worker and connections gone after a cancel",
        (time.perf_counter() - begun) * 1000,
        "ms",
        1000,
    )


# Counts what is drawn from the first cell to the last of one turn of the page.
WATCH_CANVAS = """
window.drawn = {begun: 0, ended: 0, cells: 0};
const fill = CanvasRenderingContext2D.prototype.fillRect;
CanvasRenderingContext2D.prototype.fillRect = function (...box) {
  if (!drawn.cells) {
    drawn.begun = performance.now();
    queueMicrotask(() => { drawn.ended = performance.now(); });
  }
  drawn.cells += 1;
  return fill.apply(this, box);
};"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1"


def in_a_browser(page: Page) -> None:
    """First paint, scrolling, and the map of all partitions, in Chromium."""
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        print("no chromium: nothing was measured in a browser")
        return
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        painted, shown = [], []
        for _ in range(FRESH):
            context = browser.new_context()
            tab = context.new_page()
            begun = time.perf_counter()
            tab.goto(page.link)
            tab.get_by_role("list", name="Brokers").get_by_role("listitem").first.wait_for()
            shown.append((time.perf_counter() - begun) * 1000)
            painted.append(tab.evaluate(PAINT))
            state = context.storage_state()
            context.close()
        row("first contentful paint, median", share(sorted(painted), 0.5), "ms", 300)
        row("data on the first screen, median", share(sorted(shown), 0.5), "ms", 800)
        context = browser.new_context(storage_state=state)
        context.add_init_script(WATCH_CANVAS)
        tab = context.new_page()
        tab.goto(f"{page.link.partition('/#')[0]}/c/main/topics")
        tab.locator("tbody tr.row").first.wait_for()
        begun = time.perf_counter()
        tab.locator(".virtual").evaluate("(box) => { box.scrollTop = box.scrollHeight; }")
        tab.locator("tbody tr.row", has_text=LAST).wait_for()
        row("scrolling to the last topic", (time.perf_counter() - begun) * 1000, "ms", 200)
        row("rows in the page", tab.locator("tbody tr.row").count(), "rows", 100)
        tab.goto(f"{page.link.partition('/#')[0]}/c/main/topics?view=map&internal=1")
        tab.get_by_role("application").focus()
        drawn = []
        for _ in range(FRESH):
            tab.evaluate("drawn.cells = 0")
            tab.keyboard.press("ArrowRight")
            tab.evaluate("new Promise((done) => setTimeout(done, 300))")
            found = tab.evaluate("drawn")
            assert found["cells"] >= PARTITIONS, found
            drawn.append(found["ended"] - found["begun"])
        row(f"drawing {PARTITIONS:,} cells, median", share(sorted(drawn), 0.5), "ms", 100)
        browser.close()


def children_of(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def tree_cpu_ms(pid: int) -> float:
    """Of a process and its children."""
    return cpu_ms(pid) + sum(cpu_ms(child) for child in children_of(pid))


def refresh(cluster: PlayedElsewhere, page: Page, path: str) -> None:
    """What a refresh of everything does to those who ask meanwhile."""

    def asked() -> list[float]:
        """For as long with as without: groups are read every other second in both."""
        found: list[float] = []
        until = time.perf_counter() + REFRESHED_S
        while time.perf_counter() < until:
            found += times_ms(lambda _: page.get(path), 10)
        return sorted(found)

    calm = asked()
    before = cluster.metadata_answers
    with cluster.changing():
        busy = asked()
    read = cluster.metadata_answers - before
    row("first page while nothing is refreshed, p99", share(calm, 0.99), "ms")
    row(f"first page during refreshes ({read:,} answers), p99", share(busy, 0.99), "ms")
    row("longest wait of all during refreshes", busy[-1], "ms")


def main() -> None:
    print(f"{'console at scale':<52}     p50        p99   CPU of one     budget")
    with PlayedElsewhere() as cluster, console(cluster.bootstrap) as (page, pid):
        seconds = wait_for(lambda: page.get("/topics?limit=1")["total"] == TOPICS, READY_S)
        row(f"{TOPICS:,} topics are shown after", seconds, "s")
        wait_for(lambda: page.get("/groups?limit=1")["total"] == GROUPS, READY_S)
        measure(cluster, page, pid)
        begun = time.perf_counter()
        wait_for(lambda: oldest_s(page) is not None, READY_S)
        spent_s, calm_s = cluster.busy_s, time.perf_counter()
        time.sleep(max(0.0, ROUND_S - (time.perf_counter() - begun)))
        seconds = time.perf_counter() - calm_s
        share_of_one = (cluster.busy_s - spent_s) / seconds / BROKERS
        row("share of a broker's time, while no page is open", share_of_one * 100, "%", 1)
        row("lag of the group read longest ago", oldest_s(page) or -1.0, "s", 60)
        row("longest stall of its loop, last minute", stall_ms(page), "ms", 50)
        row("console process after that, resident", resident_mb(pid), "MB", 100)


def stall_ms(page: Page) -> float:
    """By processor time: what other programs of the machine take is not counted."""
    name = "odradek_console_loop_stall_seconds "
    (line,) = (line for line in page.text("/metrics").splitlines() if line.startswith(name))
    return float(line.removeprefix(name)) * 1000


def oldest_s(page: Page) -> float | None:
    """How long ago the group was read that waits longest; None if one was never read."""
    ages = [
        each["age_s"]
        for offset in range(0, GROUPS, 500)
        for each in page.get(f"/groups?limit=500&offset={offset}")["items"]
    ]
    return None if None in ages else max(ages)


if __name__ == "__main__":
    main()
