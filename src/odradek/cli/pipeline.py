"""`odradek pipeline`: run a pipeline from its file, and compact its tables."""

import logging
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from odradek.cli.table import amount, compacted, compaction_options

if TYPE_CHECKING:
    from odradek.spark.pipeline.runner import Run
    from odradek.spark.pipeline.spec import Pipeline

REFRESH_S = 0.5
# How long a start may be silent.
QUIET_S = 10.0
FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.group(epilog="Example: odradek pipeline run clicks.toml")
def pipeline() -> None:
    """Topics decoded, transformed and landed by Spark, as a TOML file describes it."""


def _load(file: Path) -> "Pipeline":
    from odradek.spark.pipeline.spec import SpecError, load

    try:
        return load(file)
    except SpecError as error:
        raise click.ClickException(str(error)) from None


@pipeline.command(epilog="Example: odradek pipeline check clicks.toml")
@FILE
def check(file: Path) -> None:
    """Check a pipeline's file without running it."""
    spec = _load(file)
    click.echo(
        f"{spec.name}: {len(spec.sources)} sources, {len(spec.steps)} steps, "
        f"{len(spec.sinks)} sinks"
    )


@pipeline.command(epilog="Example: odradek pipeline run clicks.toml")
@FILE
@click.option("--master", help="Where Spark runs, in place of what the file says.")
@click.option("--once", is_flag=True, help="Process the records that exist now, then exit.")
def run(file: Path, master: str | None, once: bool) -> None:
    """Run a pipeline until Ctrl-C, or with --once to the end of the topics.

    However it was stopped, the next run resumes where it left off.
    """
    from dataclasses import replace

    from odradek.java import NoJava
    from odradek.spark.pipeline.packages import ship_packages
    from odradek.spark.pipeline.reports import Reporter
    from odradek.spark.pipeline.runner import JavaEnded, PipelineFailed, Run
    from odradek.spark.pipeline.spec import AVAILABLE_NOW, SpecError
    from odradek.spark.session import is_local, open_session

    spec = _load(file)
    if once:
        spec = replace(spec, trigger=AVAILABLE_NOW)
    where = master or spec.master
    started_s = time.monotonic()
    log = Path(tempfile.mkdtemp(prefix="odradek-pipeline-")) / "spark.log"
    click.echo(f"{spec.name}: starting Spark on {where}, which writes to {log}", err=True)
    keep_off_terminal(log)
    try:
        with progress(f"{spec.name}: still starting Spark"):
            spark = open_session(spec.name, where, spec.spark, log)
    except NoJava as error:
        raise click.ClickException(str(error)) from None
    if not is_local(where):
        ship_packages(spark)
    spent_s = time.monotonic() - started_s
    click.echo(f"{spec.name}: Spark is up after {spent_s:.0f} s", err=True)
    stop_requested = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stop_requested.set()

    # After the session, which has a handler of its own that would cancel the batch.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    running = Run(spec, spark, lambda text: click.echo(text, err=True))
    reporter = Reporter(running)
    try:
        with progress(f"{spec.name}: still starting queries"):
            running.start()
        reporter.start()
        _follow(running, stop_requested)
        _summarise(running)
    except JavaEnded as error:
        raise click.ClickException(f"{error}; see {log}") from None
    except (SpecError, PipelineFailed) as error:
        raise click.ClickException(str(error)) from None
    finally:
        reporter.close()
        running.stop()
        with suppress(Exception):  # Java may be gone, and with it all there is to stop
            spark.stop()


@contextmanager
def progress(text: str, quiet_s: float = QUIET_S) -> Iterator[None]:
    """Print the text and the time spent, again and again, until the block has ended."""
    started_s = time.monotonic()
    has_ended = threading.Event()

    def repeat() -> None:
        while not has_ended.wait(quiet_s):
            click.echo(f"{text}, {time.monotonic() - started_s:.0f} s so far", err=True)

    thread = threading.Thread(target=repeat, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def keep_off_terminal(log: Path) -> None:
    """What py4j says of a Java that is gone goes where Java's own words go."""
    file = logging.FileHandler(log)
    logger = logging.getLogger("py4j")
    logger.addHandler(file)
    logger.propagate = False

    def divert(record: logging.LogRecord) -> bool:
        file.handle(record)
        return False

    # Part of it py4j says with the root logger itself, whose filters see only that.
    logging.getLogger().addFilter(divert)


def _follow(running: "Run", stop_requested: threading.Event) -> None:
    """Show what happens until the queries end or are stopped."""
    from odradek.spark.pipeline.progress import LogLines, progress_of

    if sys.stderr.isatty():
        from rich.live import Live

        from odradek.cli.output import console
        from odradek.cli.pipeline_view import progress_table

        with Live(console=console(stderr=True), auto_refresh=False) as live:
            while running.goes_on() and not stop_requested.wait(REFRESH_S):
                live.update(progress_table(progress_of(running)), refresh=True)
    else:
        lines = LogLines()
        while running.goes_on() and not stop_requested.wait(REFRESH_S):
            _print(lines.new(running))
        _print(lines.new(running))
    if stop_requested.is_set():
        click.echo("stopping after the batches that have begun", err=True)
        running.stop()


def _print(lines: list[str]) -> None:
    for line in lines:
        click.echo(line, err=True)


def _summarise(running: "Run") -> None:
    from odradek.spark.pipeline.progress import progress_of

    for query in progress_of(running):
        click.echo(query.line())


@pipeline.command(epilog="Example: odradek pipeline compact clicks.toml")
@FILE
@click.option("--sink", "sinks", multiple=True, help="Only this table; may be repeated.")
@compaction_options
def compact(file: Path, sinks: tuple[str, ...], target_mb: int, min_files: int) -> None:
    """Rewrite the small files of a pipeline's tables as few, while it may be running."""
    from deltalake.exceptions import DeltaError

    from odradek.spark.errors import TableError
    from odradek.spark.tables.location import Location
    from odradek.spark.tables.table import Table, mend

    spec = _load(file)
    tables = {sink.name: sink for sink in spec.sinks if sink.kind == "table"}
    if unknown := sorted(set(sinks) - set(tables)):
        raise click.ClickException(f"no table {', '.join(unknown)}; there are {', '.join(tables)}")
    for name in sinks or tables:
        location = Location.of(tables[name].path, tables[name].storage)
        if location.log is not None and not location.log.is_dir():
            click.echo(f"{name}: nothing has landed in {location.uri} yet")
            continue
        try:
            if (said := mend(location)) is not None:
                click.echo(said, err=True)
            table = Table(location)
            before = table.data_files()
            compacted(table, target_mb, min_files)
            table.refresh()
            click.echo(f"{name}: {amount(before)} became {amount(table.data_files())}")
        except (TableError, DeltaError, OSError) as error:
            raise click.ClickException(str(error)) from None
