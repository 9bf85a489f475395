"""What the HTTP listener of a broker costs: start, memory, producing while it is scraped, a scrape.

Three brokers in turn: without the listener, with it, and with it and scraped each second. Processor
time is compared, which other programs disturb less than the clock.
"""

import http.client
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.broker import Server, produce
from odradek.client import Blocking
from odradek.operations.broker_http import http_addresses

ROUNDS = 5
RECORDS, RECORD_BYTES = 200_000, 1024
SCRAPES = 100
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


@contextmanager
def scraped(server: Server) -> Iterator[None]:
    stopped = threading.Event()
    connection = http.client.HTTPConnection(*address(server), timeout=30)

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
        start_s, memory_mb = server.cpu_s(), server.memory_mb()
        if name == NAMES[2]:
            with scraped(server):
                produce(server.bootstrap, "t", RECORDS, RECORD_BYTES, 5)
        else:
            produce(server.bootstrap, "t", RECORDS, RECORD_BYTES, 5)
        used_s = server.cpu_s() - start_s
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
        time.sleep(1)
        before = server.cpu_s()
        for _ in range(SCRAPES):
            scrape(connection)
        cost_ms = (server.cpu_s() - before) * 1000 / SCRAPES
        print(
            f"/metrics of {TOPICS:,} topics, {TOPICS * PER_TOPIC:,} partitions: {lines:,} lines, "
            f"{len(text) / 1000:,.0f} KB, {cost_ms:.1f} ms of processor time, gzipped"
        )
    finally:
        server.stop()


def main() -> None:
    compare()
    large()


if __name__ == "__main__":
    main()
