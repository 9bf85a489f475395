"""`odradek demo`: the main job. A cluster, a click stream, a pipeline, and an audit.

Four brokers; a generator that counts what the cluster acknowledged; a Spark pipeline that decodes
the clicks, counts them per minute and page, lands both, and derives a topic; a view of all of it.
At the end the books are balanced: what was acknowledged is in the table and in the derived topic,
or among the dead letters, once, and the counts agree. With chaos, brokers are killed meanwhile and
the books must still balance. The stream is skewed at first, and is levelled by a plan while it
flows.
"""

import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from odradek.demo.job import Job

VIEW_S = 0.25


@click.command(epilog="Example: odradek demo --seconds 60 --chaos")
@click.option(
    "--seconds",
    type=click.IntRange(min=1),
    help="End by itself, so long after the pipeline has started; else Ctrl-C ends it.",
)
@click.option("--chaos", is_flag=True, help="Kill brokers, one after the other.")
@click.option("--rate", default=500, show_default=True, help="Clicks per second.")
@click.option("--data", type=click.Path(path_type=Path), help="Keep the tables in this directory.")
def demo(seconds: int | None, chaos: bool, rate: int, data: Path | None) -> None:
    """A cluster, a live stream and a Spark pipeline that lands it; then an audit.

    Ctrl-C ends the stream; what is left is landed and audited. A second one ends everything.
    """
    if sys.stderr.isatty():
        click.echo("starting four brokers and Spark", err=True)
    from odradek.demo.job import Job
    from odradek.java import NoJava
    from odradek.spark.session import prepare_environment

    try:
        prepare_environment()
    except NoJava as error:
        raise click.ClickException(str(error)) from None
    home = (data or Path(tempfile.mkdtemp(prefix="odradek-demo-"))).absolute()
    if (home / "checkpoint").exists():
        raise click.ClickException(f"{home} has an earlier run in it: choose another directory")
    home.mkdir(parents=True, exist_ok=True)
    job = Job(home, rate, seconds, chaos)
    _heed_signals(job)
    try:
        job.start()
        if sys.stderr.isatty():
            _show(job)
        else:
            _tell(job)
        _report(job)
    finally:
        if data is None:
            shutil.rmtree(home, ignore_errors=True)


def _heed_signals(job: "Job") -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        if job.stop_requested.is_set():
            raise KeyboardInterrupt
        job.stop_requested.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def _show(job: "Job") -> None:
    """One screen, and its last state for those who scroll back."""
    from rich.live import Live

    from odradek.cli.output import console
    from odradek.demo.view import draw

    screen = console(stderr=True)
    with Live(console=screen, screen=True, auto_refresh=False) as live:
        while job.is_alive():
            live.update(draw(job.scene(), screen.width, screen.height), refresh=True)
            job.join(VIEW_S)
    screen.print(draw(job.scene(), screen.width, screen.height))


def _tell(job: "Job") -> None:
    """One line for each batch and for whatever happens."""
    from odradek.spark.pipeline.progress import LogLines

    lines, printed = LogLines(), 0
    while True:
        is_over = not job.is_alive()
        events = job.scene().events
        for _, text, _ in events[printed:]:
            click.echo(text, err=True)
        printed = len(events)
        if job.pipeline is not None and not is_over:
            for line in lines.new(job.pipeline):
                click.echo(line, err=True)
        if is_over:
            return
        job.join(VIEW_S)


def _report(job: "Job") -> None:
    from odradek.java import NoJava
    from odradek.spark.pipeline.runner import PipelineFailed

    if isinstance(job.failure, PipelineFailed | NoJava):
        raise click.ClickException(str(job.failure))
    if job.failure is not None:
        raise job.failure
    assert job.report is not None
    for line in job.report.lines():
        click.echo(line)
    if not job.report.audit.balances:
        raise click.ClickException("the books do not balance")
