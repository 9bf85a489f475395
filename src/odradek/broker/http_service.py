"""What a broker shows over HTTP: metrics, health, statistics, topics and the journal.

docs/spec/console.md section 5. Only a broker whose `odradek.http.listener` is set imports this.

| path | private | what |
|---|---|---|
| /metrics | no | Prometheus text |
| /metrics/partitions | no | the series of partitions, also of more than 2,000; ?skip=N |
| /livez | no | 200 while the loop turns |
| /readyz | no | 200 when clients are served, else 503 with the reasons |
| /statistics | yes | the statistics of every part, as JSON |
| /topics | yes | the names of all topics, a line each |
| /clients | yes | what clients that have a quota use of it, as JSON |
| /controller/states | yes | how many partitions and replicas are in which state, as JSON |
| /journal | yes | the state-change journal, as lines of JSON; ?after=SEQUENCE&limit=N |
| /journal/events | yes | the same live, as server-sent events; goes on after Last-Event-ID |
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from odradek.broker.disk_history import DiskHistory
from odradek.broker.exposition import CONTENT_TYPE, render
from odradek.broker.http import HttpListener, HttpRequest, HttpResponse, HttpRoute
from odradek.broker.journal_feed import JournalFeed
from odradek.broker.loop_lag import LoopLag
from odradek.broker.metrics import (
    METRICS,
    PARTITION_METRICS,
    PARTITIONS_MAX,
    Reading,
    Samples,
    has_late_transaction,
)
from odradek.broker.process import ProcessUsage
from odradek.controller.journal import Entry, line_of
from odradek.log.reports import describe_directories

if TYPE_CHECKING:
    from odradek.broker.server import Broker

__all__ = ["HttpService"]

SAMPLE_INTERVAL_S = 5.0
# Partitions, and entries of the journal, that are looked at in one turn of the loop.
SLICE = 500
WALKED_PARTITIONS_MAX = 10_000
# Walks at a time: each takes a slice of every turn.
WALKS_MAX = 2
CLIENTS_SHOWN_MAX = 1_000
JOURNAL_LINES_MAX = 10_000
# How long after the longest time-out an open transaction counts as late, as in Kafka.
LATE_TRANSACTION_MS = 5 * 60_000
JSON = "application/json"
JSON_LINES = "application/x-ndjson"
EVENTS = "text/event-stream"


class HttpService:
    """Started with the broker and stopped with it."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._samples = Samples()
        self._disks = DiskHistory(broker.clock)
        self._walks = 0
        self._process = ProcessUsage(broker.clock)
        self._lag = LoopLag(asyncio.get_running_loop(), self._process.cpu_s)
        self._feed: JournalFeed | None = None
        self._sampler: asyncio.Task[None] | None = None
        self._listener = HttpListener(
            {
                "/metrics": HttpRoute(self._metrics),
                "/metrics/partitions": HttpRoute(self._partitions),
                "/livez": HttpRoute(self._livez),
                "/readyz": HttpRoute(self._readyz),
                "/statistics": HttpRoute(self._statistics, is_private=True),
                "/topics": HttpRoute(self._topics, is_private=True),
                "/controller/states": HttpRoute(self._states, is_private=True),
                "/clients": HttpRoute(self._clients, is_private=True),
                "/journal": HttpRoute(self._journal, is_private=True),
                "/journal/events": HttpRoute(self._events, is_private=True),
            },
            broker.config.text("odradek.http.token"),
        )

    async def listen(self, host: str, port: int) -> int:
        """The port it got. Raises OSError."""
        await self._listener.start(host, port)
        self._lag.start()
        return self._listener.port

    def follow_parts(self) -> None:
        """To be called once the broker's parts are made: until then there is only its health."""
        self._feed = JournalFeed(self._broker.controller.journal, self._broker.clock())
        self._sampler = asyncio.get_running_loop().create_task(self._sample_forever())

    async def close(self) -> None:
        self._listener.close()
        self._lag.stop()
        if self._sampler is not None:
            self._sampler.cancel()
            await asyncio.gather(self._sampler, return_exceptions=True)

    # What needs a walk

    async def _sample_forever(self) -> None:
        while True:
            await self._sample()
            await asyncio.sleep(SAMPLE_INTERVAL_S)

    async def _sample(self) -> None:
        broker, size_bytes, producer_ids, late = self._broker, 0, 0, 0
        logs = iter(broker.logs.registry.all())
        while some := list(islice(logs, SLICE)):
            size_bytes += sum(log.size_bytes for log in some)
            producer_ids += sum(len(log.producers) for log in some)
            await asyncio.sleep(0)
        max_ms = broker.transactions.config.transaction_max_timeout_ms + LATE_TRANSACTION_MS
        partitions = iter(list(broker.replicas.partitions.values()))
        while led := list(islice(partitions, SLICE)):
            heard_before = broker.clock() - max_ms
            late += sum(has_late_transaction(partition, heard_before) for partition in led)
            await asyncio.sleep(0)
        for report in describe_directories(broker.logs, ()):
            self._disks.add(report.path, report.total_bytes, report.usable_bytes)
        groups = broker.groups.statistics()
        self._samples = Samples(
            log_size_bytes=size_bytes,
            max_lag=broker.replicas.fetchers.max_lag(),
            groups=groups["groups"],
            offsets=groups["offsets"],
            members=groups["members"],
            producer_ids=producer_ids,
            late_transactions=late,
            transactions=broker.transactions.statistics(),
        )

    # Metrics

    def _metrics(self, request: HttpRequest) -> HttpResponse:
        broker, feed = self._broker, self._feed
        if feed is None:
            return HttpResponse("starting\n", 503)
        reading = Reading(broker, self._samples, self._lag, feed, self._process)
        text = render(METRICS, reading)
        partitions = broker.replicas.partitions
        if len(partitions) <= PARTITIONS_MAX:
            text += render(PARTITION_METRICS, partitions.values())
        return HttpResponse(text, content_type=CONTENT_TYPE)

    def _partitions(self, request: HttpRequest) -> HttpResponse:
        if self._feed is None:
            return HttpResponse("starting\n", 503)
        if self._walks >= WALKS_MAX:
            return HttpResponse("partitions are walked for others; try again\n", 503)
        skip = _number(request, "skip", 0)
        return HttpResponse(content_type=CONTENT_TYPE, stream=self._walk_partitions(skip))

    async def _walk_partitions(self, skip: int) -> AsyncGenerator[str, None]:
        """In slices: tens of thousands of lines would hold the loop up."""
        self._walks += 1
        try:
            async for text in self._partition_lines(skip):
                yield text
        finally:
            self._walks -= 1

    async def _partition_lines(self, skip: int) -> AsyncGenerator[str, None]:
        everything = list(self._broker.replicas.partitions.values())
        chosen = everything[skip : skip + WALKED_PARTITIONS_MAX]
        for metric in PARTITION_METRICS:
            for start in range(0, max(1, len(chosen)), SLICE):
                text = render([metric], chosen[start : start + SLICE])
                # A metric has one head, however many slices.
                yield text if start == 0 else text.split("\n", 2)[2]
                await asyncio.sleep(0)
        name = "odradek_metrics_left_out"
        left_out = len(everything) - len(chosen)
        yield f"# HELP {name} Partitions that are not shown.\n# TYPE {name} gauge\n"
        yield f"{name} {left_out}\n"

    # Health

    def _livez(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(f"ok, loop lag {self._lag.last_s * 1000:.1f} ms\n")

    def _readyz(self, request: HttpRequest) -> HttpResponse:
        reasons = list(self._unready())
        if reasons:
            return HttpResponse("".join(f"{reason}\n" for reason in reasons), 503)
        return HttpResponse("ok\n")

    def _unready(self) -> Iterator[str]:
        broker = self._broker
        if broker.failed.done():
            yield f"failed: {broker.failed.result()}"
        if broker.epoch < 0:
            yield "not registered in the metadata store"
        if not broker.store.session.statistics()["connected"]:
            yield "not connected to the metadata store"
        if not broker.connections.is_serving:
            yield "not serving clients yet"

    # Everything else

    def _statistics(self, request: HttpRequest) -> HttpResponse:
        if self._feed is None:
            return HttpResponse("starting\n", 503)
        statistics = {
            **self._broker.statistics(),
            "http": {**self._listener.statistics(), **self._feed.statistics()},
            "disks": self._disks.statistics(),
        }
        return HttpResponse(json.dumps(statistics) + "\n", content_type=JSON)

    def _topics(self, request: HttpRequest) -> HttpResponse:
        if not self._broker.cache.is_known:
            return HttpResponse("not informed by the controller yet\n", 503)
        names = sorted(self._broker.cache.topics())
        return HttpResponse("".join(f"{name}\n" for name in names))

    def _clients(self, request: HttpRequest) -> HttpResponse:
        use = [each._asdict() for each in islice(self._broker.quotas.use(), CLIENTS_SHOWN_MAX)]
        return HttpResponse(json.dumps(use) + "\n", content_type=JSON)

    def _states(self, request: HttpRequest) -> HttpResponse:
        if self._feed is None:
            return HttpResponse("starting\n", 503)
        return HttpResponse(content_type=JSON, stream=self._walk_states())

    async def _walk_states(self) -> AsyncGenerator[str, None]:
        """Nothing is counted where this broker is not the controller."""
        partitions: Counter[str] = Counter()
        replicas: Counter[str] = Counter()
        states = self._broker.controller.states()
        while some := list(islice(states, SLICE)):
            for partition, of_replicas in some:
                partitions[partition.name] += 1
                replicas.update(state.name for state in of_replicas)
            await asyncio.sleep(0)
        yield json.dumps({"partitions": partitions, "replicas": replicas}) + "\n"

    def _journal(self, request: HttpRequest) -> HttpResponse:
        if self._feed is None:
            return HttpResponse("starting\n", 503)
        after = _number(request, "after", 0)
        limit = min(_number(request, "limit", JOURNAL_LINES_MAX), JOURNAL_LINES_MAX)
        entries = islice(self._feed.after(after), limit)
        return HttpResponse(content_type=JSON_LINES, stream=_journal_lines(entries))

    def _events(self, request: HttpRequest) -> HttpResponse:
        if self._feed is None:
            return HttpResponse("starting\n", 503)
        last_id = request.headers.get("last-event-id", "")
        return HttpResponse(content_type=EVENTS, stream=self._feed.events(last_id))


async def _journal_lines(entries: Iterator[Entry]) -> AsyncGenerator[str, None]:
    """In slices: ten thousand lines would hold the loop up for 50 ms."""
    while some := list(islice(entries, SLICE)):
        yield "".join(map(line_of, some))
        await asyncio.sleep(0)


def _number(request: HttpRequest, name: str, default: int) -> int:
    text = request.query.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else default
