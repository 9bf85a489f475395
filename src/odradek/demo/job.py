"""What the demo does, from the first broker to the audit, and what a view of it may ask.

The work is done on a thread of its own; a view asks for a `Scene` and never waits for the
cluster or for Spark.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from odradek.cli.output import plural
from odradek.demo.leveller import Levelled, Leveller
from odradek.demo.poller import ClusterPoller
from odradek.demo.view import Scene, minutes
from odradek.testing.cluster import Cluster, ClusterError
from odradek.testing.console import HeldConsole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.demo.audit import Audit
    from odradek.spark.pipeline.progress import QueryProgress
    from odradek.spark.pipeline.runner import Run

LOOK_S = 0.5
# A free one: the usual port may be another console's.
CONSOLE_PORT = 0
CHAOS_PAUSE_S = 5.0
RATES_KEPT = 200
BROKERS = 4
REPLICAS = 3
# Often enough that a demo of half a minute has something to plan by.
TELEMETRY_MS = 1_000
RUNNING = "running"
CLICKS, VALID, LETTERS, EVENTS = "clicks", "clicks.valid", "clicks.dead", "events"
# What transactions need besides the topics that they write.
STATE_TOPICS = ("__consumer_offsets", "__transaction_state")

PIPELINE = """\
name = "clicks"
checkpoint = "checkpoint"
bootstrap = "{bootstrap}"
master = "local[2]"
trigger = "1 seconds"

[[source]]
name = "clicks"
topics = ["clicks"]
options = {{ commitGroup = "clicks-pipeline" }}
watermark = {{ column = "at", delay = "10 seconds" }}
[source.decode]
format = "json"
schema = "id long, user string, page string, at timestamp"

[[step]]
name = "events"
sql = "SELECT id, user, page, at, date_format(at, 'yyyy-MM-dd') AS day FROM clicks"

[[step]]
name = "counts"
sql = '''
SELECT window(at, '1 minute').start AS minute, page, count(*) AS clicks
FROM clicks GROUP BY window(at, '1 minute'), page
'''

[[sink]]
from = "events"
kind = "table"
path = "lake/events"
partition_by = ["day"]
compact = {{ every = 10 }}

[[sink]]
from = "counts"
kind = "table"
path = "lake/counts"
mode = "update"
merge_on = ["minute", "page"]

[[sink]]
name = "valid"
from = "events"
kind = "topic"
topic = "clicks.valid"
key = "user"

[dead_letters]
topic = "clicks.dead"
"""
# What a job that lives a minute wants of Java: to begin soon.
SPARK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
}


@dataclass(frozen=True, slots=True)
class Report:
    """What the demo found in the end."""

    audit: "Audit"
    flowing_s: float
    first_batch_s: float | None
    batches: int
    tables: list[str]
    killed: int
    levelled: Levelled | None

    def lines(self) -> list[str]:
        rate = self.audit.acknowledged / max(self.flowing_s, 0.001)
        killed = f", {plural(self.killed, 'broker')} killed meanwhile" if self.killed else ""
        first = "at the very end"
        if self.first_batch_s is not None:
            first = f"{self.first_batch_s:.0f} s after the start"
        return [
            *self.audit.lines(),
            f"{rate:,.0f} clicks/s for {self.flowing_s:.0f} s{killed}",
            f"{self.batches} batches, the first {first}; {'; '.join(self.tables)}",
            "not levelled yet" if self.levelled is None else self.levelled.line(),
        ]


class Job(threading.Thread):
    """The demo. `stop_requested` ends the stream; the rest is still landed and audited."""

    def __init__(self, home: Path, rate_per_s: int, seconds: int | None, chaos: bool) -> None:
        from odradek.demo.clickstream import ClickStream

        super().__init__(name="demo", daemon=True)
        self.stop_requested = threading.Event()
        self.report: Report | None = None
        self.failure: Exception | None = None
        self.pipeline: Run | None = None
        self.link: str | None = None  # of the console
        self._home = home
        self._rate_per_s = rate_per_s
        self._seconds = seconds
        self._chaos = chaos
        config = {"min.insync.replicas": 2, "odradek.telemetry.interval.ms": TELEMETRY_MS}
        self._cluster = Cluster(BROKERS, config=config)
        self._poller = ClusterPoller(self._cluster)
        bootstrap = self._cluster.bootstrap_servers
        self._clicks = ClickStream(bootstrap, CLICKS, rate_per_s, Random())
        self._leveller = Leveller(bootstrap, CLICKS, BROKERS, self._tell)
        self._quiet = threading.Event()
        self._killed = 0
        self._begun = time.monotonic()
        self._flowing_s = self._ready_s = 0.0
        self._first_batch_s: float | None = None
        self._stage = "starting"
        self._events: deque[tuple[str, str, str]] = deque(maxlen=100)
        self._last: Scene | None = None
        self._queries: list[QueryProgress] = []
        # How many rows each query had taken before this run of the pipeline.
        self._rows_before: dict[str, int] = {}
        self._looking = threading.Lock()
        self._followed = threading.Event()
        self._rates: deque[tuple[float, float]] = deque(maxlen=RATES_KEPT)

    # What a view asks

    def scene(self) -> Scene:
        """All that is known now, or was in the end."""
        return self._last or Scene(
            stage=self._stage,
            clock=self._clock(),
            sent=self._clicks.sent,
            acknowledged=len(self._clicks.acknowledged),
            landed=sum(query.rows_out for query in self._queries if query.name == EVENTS),
            dead=sum(query.rows_out for query in self._queries if query.is_dead_letters),
            sent_rates=[sent for sent, _ in list(self._rates)],
            landed_rates=[landed for _, landed in list(self._rates)],
            brokers=self._poller.brokers(),
            topics=self._poller.topics(),
            queries=self._queries,
            link=self.link,
            events=list(self._events),
        )

    def _clock(self) -> str:
        if self._stage != RUNNING:
            return minutes(self._elapsed_s())
        running = minutes(self._elapsed_s() - self._ready_s)
        return f"{running} of {minutes(self._seconds)}" if self._seconds else running

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._begun

    def _tell(self, text: str, style: str = "") -> None:
        self._events.append((minutes(self._elapsed_s()), text, style))

    # The work

    def run(self) -> None:
        try:
            with ExitStack() as stack:
                self._start(stack)
                self._watch()
                self.report = self._finish()
                self._stage = "done"
                self._last = self.scene()
        except Exception as error:
            self.failure = error

    def _start(self, stack: ExitStack) -> None:
        from odradek.client.blocking_client import Blocking
        from odradek.spark.pipeline.reports import Reporter
        from odradek.spark.pipeline.runner import Run
        from odradek.spark.pipeline.spec import load

        java = stack.enter_context(ThreadPoolExecutor(1)).submit(self._open_spark)
        stack.enter_context(self._cluster)
        bootstrap = self._cluster.bootstrap_servers
        self._tell("four brokers are up; Spark takes a little longer")
        self._open_console(stack)
        self._client = stack.enter_context(Blocking(bootstrap, client_id="odradek-demo"))
        self._create_topics()
        stack.enter_context(self._poller)
        self._clicks.start()
        self._flowing_s = self._elapsed_s()
        self._tell(f"{self._rate_per_s:,} clicks a second are flowing")
        file = self._home / "clicks.toml"
        file.write_text(PIPELINE.format(bootstrap=bootstrap))
        self._spec = load(file)
        self._spark = java.result()
        stack.callback(self._spark.stop)
        self._tell("Spark is there; starting the pipeline")
        self.pipeline = Run(self._spec, self._spark)
        stack.callback(self._stop_pipeline)
        stack.callback(self._quiet.set)
        follower = threading.Thread(target=self._follow_pipeline, daemon=True)
        follower.start()
        stack.callback(follower.join)
        stack.callback(self._followed.set)
        self.pipeline.start()
        reporter = Reporter(self.pipeline)
        reporter.start()
        stack.callback(reporter.close)

    def _open_console(self, stack: ExitStack) -> None:
        """Beside the view; the stream does not need it."""
        try:
            self.link = stack.enter_context(HeldConsole(self._cluster, CONSOLE_PORT)).link
        except ClusterError as error:
            self._tell(str(error), "yellow")
        else:
            self._tell(f"console: {self.link}")

    def _open_spark(self) -> "SparkSession":
        from odradek.spark.session import open_session

        return open_session("clicks", "local[2]", SPARK, self._home / "spark.log")

    def _create_topics(self) -> None:
        from odradek.client.values import NewTopic, check

        partitions = {CLICKS: 4, VALID: 4, LETTERS: 1}
        # All of it led by the first broker, and none on the last: there is something to level.
        skewed = self._cluster.ids[:REPLICAS]
        topics = [
            NewTopic(name, assignment=dict.fromkeys(range(count), skewed))
            for name, count in partitions.items()
        ]
        check(self._client.run(self._client.admin.create_topics(topics)))
        self._client.run(self._client.client.require_topics(partitions))

    def _stop_pipeline(self) -> None:
        assert self.pipeline is not None
        self.pipeline.stop()

    def _watch(self) -> None:
        """Until the time is over or a stop is requested."""
        self._ready_s = self._elapsed_s()
        self._stage = RUNNING
        works: list[Callable[[], None]] = [lambda: self._leveller.run(self._quiet)]
        if self._chaos:
            works.append(self._kill_and_start)
        meanwhile = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in meanwhile:
            thread.start()
        assert self.pipeline is not None
        while not self.stop_requested.wait(LOOK_S):
            self.pipeline.goes_on()
            if self._seconds is not None and self._elapsed_s() >= self._ready_s + self._seconds:
                break
        self._quiet.set()
        for thread in meanwhile:
            thread.join()

    def _follow_pipeline(self) -> None:
        """Look again and again, until the pipeline is over."""
        before, before_s = self.scene(), self._elapsed_s()
        while not self._followed.wait(LOOK_S):
            self._look_at_pipeline()
            now, now_s = self.scene(), self._elapsed_s()
            passed_s = max(now_s - before_s, 0.001)
            sent, landed = now.sent - before.sent, now.landed - before.landed
            if sent:
                self._rates.append((sent / passed_s, landed / passed_s))
            before, before_s = now, now_s

    def _look_at_pipeline(self) -> None:
        from odradek.spark.pipeline.progress import progress_of

        with self._looking:
            assert self.pipeline is not None
            now = {
                query.name: replace(
                    query, rows_out=query.rows_out + self._rows_before.get(query.name, 0)
                )
                for query in progress_of(self.pipeline)
            }
            # One that is to be started again is shown as it was.
            self._queries = list({**{query.name: query for query in self._queries}, **now}.values())
        if self._first_batch_s is None and any(query.rows_out for query in self._queries):
            self._first_batch_s = self._elapsed_s()
            self._tell("the first batch has landed")

    def _kill_and_start(self) -> None:
        """Kill a broker, start it again, and wait until every partition has all its replicas."""
        rng = Random()
        while not self._quiet.wait(CHAOS_PAUSE_S):
            victim = rng.choice(self._cluster.ids)
            self._cluster.kill(victim)
            self._killed += 1
            self._tell(f"broker {victim} was killed", "red")
            self._quiet.wait(CHAOS_PAUSE_S)
            self._cluster.start(victim)
            self._tell(f"broker {victim} is back")
            self._cluster.wait_until(self._is_whole, "all replicas in sync", timeout_s=120)
            self._tell("all replicas are in sync again", "green")

    def _is_whole(self) -> bool:
        topics = (CLICKS, VALID, LETTERS, *STATE_TOPICS)
        described = [self._cluster.topic(name) for name in topics]
        return all(
            len(partition.isr_nodes) == REPLICAS
            for topic in described
            for partition in (topic.partitions if topic else ())
        )

    def _finish(self) -> Report:
        """Stop the clicks, land the rest, and compare the books."""
        from odradek.demo.audit import audit
        from odradek.spark.tables.location import Location
        from odradek.spark.tables.table import Table

        flowing_s = self._elapsed_s() - self._flowing_s
        self._stage = "landing what is left"
        self._tell("no more clicks; landing what is left")
        self._clicks.stop()
        batches = self._land_the_rest()
        self._stage = "auditing"
        self._tell("all has landed; comparing the books")
        lake = self._home / "lake"
        found = audit(
            self._clicks.acknowledged,
            self._clicks.uncertain,
            lake / EVENTS,
            lake / "counts",
            self._client,
            VALID,
            LETTERS,
        )
        landed = {name: Table(Location.of(lake / name)) for name in (EVENTS, "counts")}
        tables = [
            f"{name} is at version {table.delta.version()}, {len(table.data_files())} files"
            for name, table in landed.items()
        ]
        return Report(
            found,
            flowing_s,
            self._first_batch_s,
            batches,
            tables,
            self._killed,
            self._leveller.result,
        )

    def _land_the_rest(self) -> int:
        """How many batches there were, when all has landed."""
        from odradek.spark.pipeline.runner import Run
        from odradek.spark.pipeline.spec import AVAILABLE_NOW

        assert self.pipeline is not None
        self.pipeline.stop()
        self._look_at_pipeline()
        with self._looking:
            self._rows_before = {query.name: query.rows_out for query in self._queries}
            self.pipeline = Run(replace(self._spec, trigger=AVAILABLE_NOW), self._spark)
        self.pipeline.start()
        self.pipeline.wait()
        self._look_at_pipeline()
        return sum(query.batch + 1 for query in self._queries)
