"""`odradek demo`: the main job. A cluster, a click stream, a pipeline, and an audit.

Three brokers; a generator that counts what the cluster acknowledged; a Spark pipeline that decodes
the clicks, counts them per minute and page, and lands both; a view of all of it. At the end the
books are balanced: what was acknowledged is in the lake or among the dead letters, once, and the
counts agree. With chaos, brokers are killed meanwhile and the books must still balance.
"""

import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from types import FrameType
from typing import TYPE_CHECKING, Self

import click

from odradek.cluster import Cluster

if TYPE_CHECKING:
    from rich.console import RenderableType

    from odradek.client.view import View
    from odradek.spark.audit import Audit

VIEW_S = 0.5
LINE_S = 5.0
CHAOS_PAUSE_S = 5.0
REPLICAS = 3
CLICKS, LETTERS = "clicks", "clicks.dead"

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
kind = "parquet"
path = "lake/events"
partition_by = ["day"]

[[sink]]
from = "counts"
kind = "parquet"
path = "lake/counts"

[dead_letters]
topic = "clicks.dead"
"""


@click.command(epilog="Example: odradek demo --seconds 60 --chaos")
@click.option("--seconds", type=click.IntRange(min=1), help="End by itself; else Ctrl-C ends it.")
@click.option("--chaos", is_flag=True, help="Kill brokers, one after the other.")
@click.option("--rate", default=500, show_default=True, help="Clicks per second.")
@click.option("--data", type=click.Path(path_type=Path), help="Keep everything in this directory.")
def demo(seconds: int | None, chaos: bool, rate: int, data: Path | None) -> None:
    """A cluster, a live stream and a Spark pipeline that lands it; then an audit."""
    from odradek.spark.pipeline.runner import PipelineFailed
    from odradek.spark.session import NoJava, prepare_environment

    try:
        prepare_environment()
    except NoJava as error:
        raise click.ClickException(str(error)) from None
    home = (data or Path(tempfile.mkdtemp(prefix="odradek-demo-"))).absolute()
    if (home / "checkpoint").exists():
        raise click.ClickException(f"{home} has an earlier run in it: choose another directory")
    home.mkdir(parents=True, exist_ok=True)
    told = threading.Event()
    _heed_signals(told)
    try:
        with Demo(home, rate) as job:
            # Spark has put a handler of its own there, which would cancel the batch.
            _heed_signals(told)
            if chaos:
                job.begin_chaos()
            _watch(job, told, seconds)
            click.echo("no more clicks; landing what is left", err=True)
            found = job.finish()
        for line in found.lines():
            click.echo(line)
        if not found.balances:
            raise click.ClickException("the books do not balance")
    except PipelineFailed as error:
        raise click.ClickException(str(error)) from None
    finally:
        if data is None:
            shutil.rmtree(home, ignore_errors=True)


def _heed_signals(told: threading.Event) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        told.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


class Demo:
    """Everything that runs, from the first broker to the audit."""

    def __init__(self, home: Path, rate_per_s: int) -> None:
        self._home = home
        self._rate_per_s = rate_per_s
        self._stack = ExitStack()
        self._quiet = threading.Event()
        self.killed = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._quiet.set()
        self._stack.close()

    def _start(self, stack: ExitStack) -> None:
        from odradek.client.blocking import Blocking
        from odradek.client.values import NewTopic, check
        from odradek.spark.clickstream import ClickStream
        from odradek.spark.pipeline.runner import Run
        from odradek.spark.pipeline.spec import load
        from odradek.spark.session import open_session

        click.echo("starting three brokers", err=True)
        config = {"min.insync.replicas": 2}
        self.cluster = stack.enter_context(Cluster(REPLICAS, config=config))
        bootstrap = self.cluster.bootstrap_servers
        self.client = stack.enter_context(Blocking(bootstrap, client_id="odradek-demo"))
        topics = [NewTopic(CLICKS, 4, REPLICAS), NewTopic(LETTERS, 1, REPLICAS)]
        check(self.client.run(self.client.admin.create_topics(topics)))
        self.client.run(self.client.client.known_topics([CLICKS, LETTERS]))
        self.clicks = ClickStream(bootstrap, CLICKS, self._rate_per_s, Random())
        self.clicks.start()
        file = self._home / "clicks.toml"
        file.write_text(PIPELINE.format(bootstrap=bootstrap))
        self._spec = load(file)
        click.echo(f"clicks are flowing; starting Spark for {file}", err=True)
        self._spark = open_session(self._spec.name, self._spec.master, self._spec.spark)
        stack.callback(self._spark.stop)
        self.run = Run(self._spec, self._spark)
        stack.callback(self.run.stop)
        self.run.start()

    def look(self) -> "View":
        """The cluster as it is now."""
        return self.client.run(self.client.client.refresh(None))

    def begin_chaos(self) -> None:
        thread = threading.Thread(target=self._kill_and_start, daemon=True)
        thread.start()
        self._stack.callback(thread.join)

    def _kill_and_start(self) -> None:
        """Kill a broker, start it again, and wait until every partition has all its replicas."""
        rng = Random()
        while not self._quiet.wait(CHAOS_PAUSE_S):
            victim = rng.choice(self.cluster.ids)
            self.cluster.kill(victim)
            self.killed += 1
            self._quiet.wait(CHAOS_PAUSE_S)
            self.cluster.start(victim)
            self.cluster.wait_until(self._is_whole, "all replicas in sync", timeout_s=120)

    def _is_whole(self) -> bool:
        described = [self.cluster.topic(name) for name in (CLICKS, LETTERS)]
        return all(
            len(partition.isr_nodes) == REPLICAS
            for topic in described
            for partition in (topic.partitions if topic else ())
        )

    def finish(self) -> "Audit":
        """Stop the clicks, land the rest, and compare the books."""
        from odradek.spark.audit import audit
        from odradek.spark.pipeline.runner import Run
        from odradek.spark.pipeline.spec import AVAILABLE_NOW

        self.clicks.stop()
        self._quiet.set()
        self.run.stop()
        rest = Run(replace(self._spec, trigger=AVAILABLE_NOW), self._spark)
        rest.start()
        for query in rest.queries.values():
            query.awaitTermination()
        rest.check()
        lake = self._home / "lake"
        return audit(
            self.clicks.acknowledged,
            self.clicks.uncertain,
            lake / "events",
            lake / "counts",
            self.client,
            LETTERS,
        )


def _watch(job: Demo, told: threading.Event, seconds: int | None) -> None:
    """Show everything until the time is over or somebody presses Ctrl-C."""
    end = None if seconds is None else time.monotonic() + seconds

    def goes_on() -> bool:
        job.run.check()
        return not told.is_set() and (end is None or time.monotonic() < end)

    if sys.stderr.isatty():
        _show(job, goes_on, told)
    else:
        _tell(job, goes_on, told)


def _show(job: Demo, goes_on: Callable[[], bool], told: threading.Event) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), refresh_per_second=4) as live:
        while goes_on():
            live.update(_panel(job))
            told.wait(VIEW_S)


def _tell(job: Demo, goes_on: Callable[[], bool], told: threading.Event) -> None:
    from odradek.spark.pipeline.progress import LogLines, progress_of

    lines = LogLines()
    while goes_on():
        for line in lines.new(progress_of(job.run)):
            click.echo(line, err=True)
        click.echo(
            f"{job.clicks.sent:,} clicks sent, {len(job.clicks.acknowledged):,} acknowledged, "
            f"{len(job.cluster.running())} brokers up, {job.killed} killed so far",
            err=True,
        )
        told.wait(LINE_S)


def _panel(job: Demo) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table

    from odradek.cli.pipeline import progress_table
    from odradek.spark.pipeline.progress import progress_of

    view = job.look()
    partitions = [p for topic in view.topics.values() for p in topic.partitions.values()]
    brokers = Table("broker", "state", "leads", "in sync", "replicas")
    for broker in job.cluster.ids:
        holds = [p for p in partitions if broker in p.replicas]
        in_sync = sum(broker in p.isr for p in holds)
        is_up = broker in view.nodes
        state = "controller" if is_up and broker == view.controller_id else "up"
        brokers.add_row(
            str(broker),
            state if is_up else "[red]down[/red]",
            str(sum(p.leader == broker for p in partitions)),
            str(in_sync) if in_sync == len(holds) else f"[yellow]{in_sync}[/yellow]",
            str(len(holds)),
        )
    sent, safe = job.clicks.sent, len(job.clicks.acknowledged)
    text = f"{sent:,} clicks sent, {safe:,} acknowledged, {sent - safe:,} under way"
    if job.killed:
        text += f"; {job.killed} brokers killed"
    return Group(text, brokers, progress_table(progress_of(job.run)))
