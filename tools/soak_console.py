"""Leave a console with 20 tabs, a live tail and searches for a while, and watch its memory.

    python -m tools.soak_console [--minutes 60]

Prints the resident memory once a minute, and fails if it is ever above the budget of
docs/spec/console.md section 7, 100 MB.
"""

import argparse
import contextlib
import http.client
import json
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from tools.seeded_console import ORDERS, SeededConsole

TABS = 20
BUDGET_MB = 100.0
WATCHES = ("overview", "brokers", "topics", f"topic:{ORDERS}", "groups", "group:billing", "journal")
READ_BYTES = 4096
SEARCH_PAUSE_S = 5.0


class Tab:
    """One browser tab: a session, and a stream that is read as it comes."""

    def __init__(self, link: str) -> None:
        self._base, _, token = link.partition("/#token=")
        self._cookie = ""
        answer = self._send("POST", "/login", {"token": token})
        self._cookie = (answer.getheader("set-cookie") or "").split(";")[0]

    def _send(self, method: str, path: str, body: object = None) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(urlsplit(self._base).netloc, timeout=120)
        headers = {"Origin": self._base, "Content-Type": "application/json"}
        headers |= {"Cookie": self._cookie} if self._cookie else {}
        data = None if body is None else json.dumps(body)
        connection.request(method, f"/api/v1{path}", data, headers)
        return connection.getresponse()

    def follow(self, path: str, counts: list[int]) -> None:
        """Read a stream for ever, on a thread of its own."""

        def run() -> None:
            # Until the console ends.
            with contextlib.suppress(OSError, http.client.HTTPException):
                answer = self._send("GET", path)
                while piece := answer.read1(READ_BYTES):
                    counts[0] += len(piece)

        threading.Thread(target=run, daemon=True).start()

    def search(self) -> int:
        """Search the whole topic; how much was scanned."""
        asked = {
            "topic": ORDERS,
            "from": "oldest",
            "filter": {"field": "json", "path": "$.order.id", "op": "=", "value": 4711},
        }
        id = json.load(self._send("POST", "/searches", asked))["id"]
        while (now := json.load(self._send("GET", f"/searches/{id}")))["state"] == "running":
            time.sleep(0.2)
        return int(now["scanned_bytes"])


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    minutes = parser.parse_args().minutes
    with SeededConsole(lively=True) as seeded:
        tabs = [Tab(seeded.link) for _ in range(TABS)]
        received = [0]
        for number, tab in enumerate(tabs):
            some = [WATCHES[number % len(WATCHES)], "overview"]
            tab.follow("/events?" + "&".join(f"watch={each}" for each in some), received)
        tabs[0].follow(f"/records/tail?topic={ORDERS}", received)
        begun, highest, searches, scanned = time.monotonic(), 0.0, 0, 0
        told_s = 0.0
        print(f"{'minute':>6} {'resident MB':>12} {'streamed MB':>12} {'searches':>9} {'MB':>8}")
        while (passed_s := time.monotonic() - begun) < minutes * 60:
            scanned += tabs[1].search()
            searches += 1
            now = resident_mb(seeded.console_pid)
            highest = max(highest, now)
            if passed_s >= told_s:
                told_s += 60
                print(
                    f"{passed_s / 60:>6.0f} {now:>12.1f} {received[0] / 1e6:>12.1f} "
                    f"{searches:>9} {scanned / 1e6:>8.0f}",
                    flush=True,
                )
            time.sleep(SEARCH_PAUSE_S)
    print(f"highest: {highest:.1f} MB of {BUDGET_MB:.0f}")
    if highest > BUDGET_MB:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
