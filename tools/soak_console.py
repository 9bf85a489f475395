"""Leave a console with 20 tabs, a live tail and searches for a while, and watch its memory.

    python -m tools.soak_console [--minutes 60]

The cluster has 10,000 topics, 100,000 partitions and 2,000 groups, and is played by this process
(`benchmarks/_played_cluster.py`). Prints the resident memory once a minute, and fails if it is ever
above the budget of docs/spec/console.md section 7, 100 MB.
"""

import argparse
import contextlib
import http.client
import json
import threading
import time

from benchmarks._played_cluster import NAMES, WRITTEN, PlayedCluster
from benchmarks.console import Page, console, resident_mb, stall_ms

TABS = 20
BUDGET_MB = 100.0
WRITTEN_PER_S = 10_000
SEARCHED = NAMES[7]
WATCHES = (
    "overview",
    "brokers",
    "topics",
    f"topic:{SEARCHED}",
    "groups",
    "group:group-7",
    "journal",
)
SEARCH_PAUSE_S = 5.0


def follow(page: Page, path: str, counts: list[int]) -> None:
    """Read a stream for ever, on a thread of its own, as a tab does."""

    def run() -> None:
        # Until the console ends.
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            for _, data in page.events(path):
                counts[0] += len(json.dumps(data))

    threading.Thread(target=run, daemon=True).start()


def search(page: Page) -> int:
    """Search a whole topic; how much was scanned."""
    never = {"field": "json", "path": "$.order.id", "op": "=", "value": 4711}
    asked = {"topic": SEARCHED, "from": "oldest", "filter": never}
    id = page.post("/searches", asked)["id"]
    while (now := page.get(f"/searches/{id}"))["state"] == "running":
        time.sleep(0.2)
    return int(now["scanned_bytes"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    minutes = parser.parse_args().minutes
    with PlayedCluster(WRITTEN_PER_S) as cluster, console(cluster.bootstrap) as (page, pid):
        received = [0]
        for number in range(TABS):
            follow(page, f"/events?watch={WATCHES[number % len(WATCHES)]}&watch=overview", received)
        follow(page, f"/records/tail?topic={WRITTEN}", received)
        begun, highest, stall, searches, scanned = time.monotonic(), 0.0, 0.0, 0, 0
        said_s = 0.0
        head = f"{'minute':>6} {'resident MB':>12} {'longest stall ms':>17}"
        print(f"{head} {'streamed MB':>12} {'searches':>9} {'MB':>8}", flush=True)
        while (passed_s := time.monotonic() - begun) < minutes * 60:
            scanned += search(page)
            searches += 1
            now, stalled = resident_mb(pid), stall_ms(page)
            highest, stall = max(highest, now), max(stall, stalled)
            if passed_s >= said_s:
                said_s += 60
                print(
                    f"{passed_s / 60:>6.0f} {now:>12.1f} {stalled:>17.1f} "
                    f"{received[0] / 1e6:>12.1f} {searches:>9} {scanned / 1e6:>8.0f}",
                    flush=True,
                )
            time.sleep(SEARCH_PAUSE_S)
    print(f"highest: {highest:.1f} MB of {BUDGET_MB:.0f}, longest stall {stall:.1f} ms")
    if highest > BUDGET_MB:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
