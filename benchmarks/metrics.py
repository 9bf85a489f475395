"""What the HTTP listener of a broker costs: start, memory, producing while it is scraped, a scrape.

Three brokers in turn: without the listener, with it, and with it and scraped each second. Processor
time is compared, which other programs disturb less than the clock; it is read from the broker's own
clock of the processor, to the nanosecond, because the ticks of /proc are 10 ms.

Two runs of a producer differ by more than a scrape each second costs. So that cost is measured
alone: the processor time of many scrapes, one after the other, less what the broker uses meanwhile
without them. A scrape is answered in one turn of the loop, so this is also the longest that it
keeps others waiting; and of a broker whose loop is never idle, one scrape a second takes this part
of the throughput.
"""

import http.client
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.broker import Server, produce
from odradek.client import Blocking
from odradek.operations.broker_http import http_addresses

ROUNDS = 5
RECORDS, RECORD_BYTES = 200_000, 1024
SCRAPES, IDLE_S = 200, 3.0
LOOP_MS_MAX, THROUGHPUT_SHARE_MAX = 5.0, 0.01
# Most of what /metrics shows is by topic, and of at most a thousand topics.
TOPICS, PER_TOPIC, AT_ONCE = 1_000, 33, 10
LISTENER = ("odradek.http.listener=127.0.0.1:0",)
NAMES = ("without the listener", "with the listener", "scraped each second")


class Used(NamedTuple):
    """By one broker."""

    start_cpu_s: float
    memory_mb: float
    cpu_ms_per_mb: float


def address(server: Server) -> tuple[str, int]:
    with Blocking(server.bootstrap["bootstrap.servers"]) as client:
        found = client.run(http_addresses(client.admin))[1]
    assert found is not None
    return found


def scrape(connection: http.client.HTTPConnection, path: str = "/metrics") -> bytes:
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
    return connection.getresponse().read()


def cpu_s(server: Server) -> float:
    """Of the whole process so far: what clock_getcpuclockid names."""
    return time.clock_gettime(~server.process.pid << 3 | 2)


def scrape_cost_ms(server: Server) -> float:
    """Processor time of one /metrics, asked as Prometheus does."""
    connection = http.client.HTTPConnection(*address(server), timeout=60)
    scrape(connection)
    begun, before = time.monotonic(), cpu_s(server)
    time.sleep(IDLE_S)
    idle = (cpu_s(server) - before) / (time.monotonic() - begun)
    begun, before = time.monotonic(), cpu_s(server)
    for _ in range(SCRAPES):
        scrape(connection)
    spent_s = cpu_s(server) - before - idle * (time.monotonic() - begun)
    connection.close()
    return spent_s * 1000 / SCRAPES


def print_cost(what: str, cost_ms: float) -> None:
    share = cost_ms / 1000
    over = cost_ms > LOOP_MS_MAX or share > THROUGHPUT_SHARE_MAX
    print(
        f"{what}: {cost_ms:.2f} ms of processor time a scrape (at most {LOOP_MS_MAX:.0f}); one "
        f"each second: {share:.2%} of a loop (at most {THROUGHPUT_SHARE_MAX:.0%})"
        + ("  NOT MET" if over else "")
    )


@contextmanager
def scraped(connection: http.client.HTTPConnection) -> Iterator[None]:
    stopped = threading.Event()

    def run() -> None:
        while not stopped.wait(1.0):
            scrape(connection)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    stopped.set()
    thread.join()


def use(name: str) -> Used:
    server = Server(() if name == NAMES[0] else LISTENER)
    try:
        server.create_topic("t")
        start_s, memory_mb = cpu_s(server), server.memory_mb()
        with ExitStack() as scraping:
            if name == NAMES[2]:
                # Found and asked once before the clock runs: neither is what a scrape costs.
                connection = http.client.HTTPConnection(*address(server), timeout=30)
                scrape(connection)
                scraping.enter_context(scraped(connection))
            before_s = cpu_s(server)
            produce(server.bootstrap, "t", RECORDS, RECORD_BYTES, 5)
            used_s = cpu_s(server) - before_s
        return Used(start_s, memory_mb, used_s * 1000 / (RECORDS * RECORD_BYTES / 1e6))
    finally:
        server.stop()


def compare() -> None:
    found: dict[str, list[Used]] = {name: [] for name in NAMES}
    for _ in range(ROUNDS):
        for name in NAMES:
            found[name].append(use(name))
    print(
        f"{'median of ' + str(ROUNDS):<34} {'start CPU':>10} {'resident':>10} {'produce CPU':>14}"
    )
    for name, used in found.items():
        start, memory, cost = (statistics.median(column) for column in zip(*used, strict=True))
        print(f"{name:<34} {start:>8.2f} s {memory:>7.1f} MB {cost:>8.3f} ms/MB")


def small() -> None:
    """The broker that the comparison is made with."""
    server = Server(LISTENER)
    try:
        server.create_topic("t")
        produce(server.bootstrap, "t", 1000, RECORD_BYTES, 5)
        print_cost("one topic", scrape_cost_ms(server))
    finally:
        server.stop()


def large() -> None:
    """A broker whose /metrics is as long as it gets."""
    server = Server((*LISTENER, "num.partitions=1"))
    try:
        admin = AdminClient({**server.bootstrap})
        names = [f"topic-{number:04}" for number in range(TOPICS)]
        for at in range(0, TOPICS, AT_ONCE):
            topics = [NewTopic(name, PER_TOPIC, 1) for name in names[at : at + AT_ONCE]]
            made = admin.create_topics(topics, request_timeout=300, operation_timeout=300)
            for future in made.values():
                future.result(300)
        for name in names:
            produce(server.bootstrap, name, 1, 10, 0)
        connection = http.client.HTTPConnection(*address(server), timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read()
        lines = len(text.splitlines())
        shown = f"{lines:,} lines, {len(text) / 1000:,.0f} KB"
        print_cost(
            f"{TOPICS:,} topics, {TOPICS * PER_TOPIC:,} partitions, {shown}", scrape_cost_ms(server)
        )
    finally:
        server.stop()


def main() -> None:
    compare()
    small()
    large()


if __name__ == "__main__":
    main()
