"""`odradek up`: a cluster of broker processes on this machine, with a live view of it."""

import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from odradek.cli.output import console, table
from odradek.cli.session import assignments

if TYPE_CHECKING:
    from rich.console import RenderableType

    from odradek.cli.overview import Snapshot
    from odradek.client import Blocking
    from odradek.cluster import Cluster

LOOK_S = 1.0
ASK_TIMEOUT_S = 3.0
PORT_MAX = 65535
BROKER_HEADINGS = ("broker", "address", "role", "leads", "holds", "size", "growth")
TOPIC_HEADINGS = ("topic", "partitions", "isr", "not well", "records", "rate")


@click.command(epilog="Example: odradek up --brokers 3 --data ./data --port 9092")
@click.option("--brokers", "-n", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where everything is kept. Without it, in a temporary directory that goes at the end.",
)
@click.option(
    "--store",
    default="sqlite",
    show_default=True,
    help="The metadata: sqlite (in the data directory) or zookeeper://HOST:PORT[/CHROOT].",
)
@click.option(
    "--port",
    type=click.IntRange(1, PORT_MAX),
    default=9092,
    show_default=True,
    help="The first broker's; the others take those that follow.",
)
@click.option("--racks", help="A rack for each broker: a,b,c.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A broker setting.")
@click.option("--plain", is_flag=True, help="Lines instead of a live view.")
def up(
    brokers: int,
    data: Path | None,
    store: str,
    port: int,
    racks: str | None,
    settings: tuple[str, ...],
    plain: bool,
) -> None:
    """Run a cluster until Ctrl-C, then shut it down in order.

    Nothing is restarted behind your back: a broker that dies stays down and is shown as down.
    """
    from odradek.cluster import Cluster, ClusterError

    if port + brokers - 1 > PORT_MAX:
        raise click.UsageError(
            f"{brokers} brokers from port {port} on need more ports than there are: {PORT_MAX}"
        )
    signal.signal(signal.SIGTERM, _interrupt)
    config: dict[str, object] = {"group.initial.rebalance.delay.ms": 3000}
    try:
        cluster = Cluster(
            brokers,
            racks.split(",") if racks else None,
            {**config, **assignments(settings, "--set")},
            data,
            store,
            ports=range(port, port + brokers),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None
    started = time.monotonic()
    try:
        with cluster:
            click.echo(
                f"{brokers} brokers are up after {time.monotonic() - started:.1f} s: "
                f"{cluster.bootstrap_servers}\n"
                f"data and logs are in {cluster.data_dir}"
                + ("" if data else ", which goes with the cluster")
            )
            try:
                _show(cluster, plain or not sys.stdout.isatty())
            except KeyboardInterrupt:
                _stop(cluster)
    except ClusterError as error:
        raise click.ClickException(str(error)) from None
    except PermissionError as error:  # of a log in a directory that is not ours
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _stop(cluster: "Cluster") -> None:
    """One after the other, so that each has somebody to hand its leaderships to."""
    from odradek.cluster import ClusterError

    for broker in cluster.running():
        click.echo(f"stopping broker {broker}")
        try:
            cluster.stop(broker)
        except ClusterError as error:
            click.echo(str(error), err=True)


def _show(cluster: "Cluster", plain: bool) -> None:
    """Until Ctrl-C, or until no broker is left."""
    from odradek.client import Blocking

    with Blocking(cluster.bootstrap_servers, timeout_s=ASK_TIMEOUT_S) as client:
        if plain:
            _show_lines(cluster, client)
        else:
            _show_live(cluster, client)
    raise click.ClickException(f"no broker is left; see the logs in {cluster.data_dir}")


def _look(client: "Blocking", *, measure: bool) -> "Snapshot | None":
    """The cluster as it is; None while nobody answers."""
    from odradek.cli.overview import look
    from odradek.wire.errors import KafkaError

    try:
        return client.run(look(client.admin, measure=measure))
    except (KafkaError, OSError, TimeoutError):
        return None


def _show_lines(cluster: "Cluster", client: "Blocking") -> None:
    """A line whenever something is different."""
    last = ""
    while cluster.running():
        now = _look(client, measure=False)
        line = "nobody answers" if now is None else now.summary()
        if line != last:
            click.echo(line)
            last = line
        time.sleep(LOOK_S)


def _show_live(cluster: "Cluster", client: "Blocking") -> None:
    from rich.live import Live

    before: Snapshot | None = None
    with Live(console=console(), auto_refresh=False, screen=False) as live:
        while cluster.running():
            now = _look(client, measure=True)
            if now is not None:
                live.update(_drawn(cluster, now, before, live.console.height), refresh=True)
                before = now
            time.sleep(LOOK_S)


def _drawn(
    cluster: "Cluster", now: "Snapshot", before: "Snapshot | None", height: int
) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from odradek.cli.overview import broker_rows, topic_rows

    room = max(1, height - len(cluster.ids) - 8)
    topics = topic_rows(now, before, room)
    more = len(now.topics) - len(topics)
    return Group(
        Text(f"{cluster.bootstrap_servers}   {now.summary()}   Ctrl-C stops", style="bold"),
        table(BROKER_HEADINGS, broker_rows(now, before, cluster.ids)),
        table(TOPIC_HEADINGS, topics),
        Text(f"and {more} more topics" if more else ""),
    )
