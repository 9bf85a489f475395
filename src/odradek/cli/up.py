"""`odradek up`: a cluster of broker processes on this machine, with a live view of it."""

import math
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from odradek.cli.output import console, plural, size, table
from odradek.cli.session import CONFIG_VARIABLE, assignments

if TYPE_CHECKING:
    from rich.console import RenderableType

    from odradek.client import Blocking
    from odradek.operations import Overview
    from odradek.testing.cluster import Cluster

LOOK_S = 1.0
ASK_TIMEOUT_S = 3.0
REMINDER_S = 30.0
PORT_MAX = 65535
ZOOKEEPER_SCHEME = "zookeeper://"
COLUMN_GAP = 2
ZOOKEEPER_TIMEOUT_S = 5.0
ZOOKEEPER_PORT = 2181
# The first columns matter most: a narrow terminal shows as many as fit.
BROKER_HEADINGS = ("broker", "address", "role", "leads", "holds", "size", "growth")
TOPIC_HEADINGS = ("topic", "partitions", "isr", "unhealthy", "records", "rate")


@click.command(epilog="Example: odradek up --brokers 3 --data ./data --console")
@click.option("--brokers", "-n", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="The data directory; default: a temporary one, removed at the end.",
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
    help="Port of the first broker; the others take the next ones.",
)
@click.option("--racks", help="A rack for each broker: a,b,c.")
@click.option(
    "--hosts",
    type=click.IntRange(1),
    help="Pretend that the brokers run on N hosts: each broker's rack is its host.",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A broker setting.")
@click.option("--secure", is_flag=True, help="TLS, logins and permissions for clients.")
@click.option(
    "--console", "has_console", is_flag=True, help="Also serve a web console, and print its link."
)
@click.option(
    "--console-port",
    type=click.IntRange(0, PORT_MAX),
    default=8092,
    show_default=True,
    help="Port of the console; 0 takes a free one.",
)
@click.option("--plain", is_flag=True, help="Lines instead of a live view.")
def up(
    brokers: int,
    data: Path | None,
    store: str,
    port: int,
    racks: str | None,
    hosts: int | None,
    settings: tuple[str, ...],
    secure: bool,
    has_console: bool,
    console_port: int,
    plain: bool,
) -> None:
    """Run a cluster until Ctrl-C, then shut it down in order.

    A broker that dies is not restarted: it is shown as down.
    """
    from odradek.security.development import CryptographyMissing
    from odradek.testing.cluster import Cluster, ClusterError

    if port + brokers - 1 > PORT_MAX:
        raise click.UsageError(
            f"{brokers} brokers from port {port} on need more ports than there are: {PORT_MAX}"
        )
    if store.startswith(ZOOKEEPER_SCHEME):
        _require_zookeeper(store)
    signal.signal(signal.SIGTERM, _interrupt)
    config: dict[str, object] = {
        "group.initial.rebalance.delay.ms": 3000,
        "odradek.telemetry.interval.ms": 15_000,
    }
    try:
        cluster = Cluster(
            brokers,
            _racks(brokers, racks, hosts),
            {**config, **assignments(settings, "--set")},
            data,
            store,
            ports=range(port, port + brokers),
            secure=secure,
        )
    except CryptographyMissing as error:
        raise click.ClickException(str(error)) from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None
    started = time.monotonic()
    try:
        with ExitStack() as stack:
            with _reminded(cluster):
                stack.enter_context(cluster)
            click.echo(
                f"{plural(brokers, 'broker')} up after {time.monotonic() - started:.1f} s: "
                f"{cluster.bootstrap_servers}\n"
                f"data and logs are in {cluster.data_dir}"
                + ("" if data else ", which is removed at the end")
            )
            _serve(cluster, console_port if has_console else None, plain)
    except ClusterError as error:
        raise click.ClickException(str(error)) from None
    except PermissionError as error:  # of a log in a directory that is not ours
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None


@contextmanager
def _reminded(cluster: "Cluster") -> Iterator[None]:
    """While brokers start, which takes as long as it takes: after a kill they read what they did
    not flush, of any number of logs. One that cannot start says so and ends."""
    cluster.start_timeout_s = math.inf
    is_over = threading.Event()

    def remind() -> None:
        while not is_over.wait(REMINDER_S):
            where = cluster.data_dir / "broker-N.log"
            click.echo(f"brokers are starting; what each of them does is in {where}", err=True)

    reminder = threading.Thread(target=remind, daemon=True)
    reminder.start()
    try:
        yield
    finally:
        is_over.set()
        reminder.join()


def _racks(brokers: int, racks: str | None, hosts: int | None) -> list[str] | None:
    """The rack of each broker."""
    if hosts is None:
        return racks.split(",") if racks else None
    if racks:
        raise click.UsageError("--hosts gives each broker a rack already; leave --racks out")
    if hosts > brokers:
        raise click.UsageError(f"{brokers} brokers cannot be on {hosts} hosts")
    return [f"host-{index % hosts + 1}" for index in range(brokers)]


def _serve(cluster: "Cluster", console_port: int | None, plain: bool) -> None:
    """Until Ctrl-C, with a console if it has a port."""
    from odradek.testing.console import HeldConsole

    if cluster.security_files is not None:
        click.echo(f"clients log in: export {CONFIG_VARIABLE}={cluster.security_files.client_file}")
    with ExitStack() as stack:
        if console_port is not None:
            held = stack.enter_context(HeldConsole(cluster, console_port))
            click.echo(f"console: {held.link}")
        try:
            _show(cluster, plain or not sys.stdout.isatty())
        except KeyboardInterrupt:
            _stop(cluster)


def _require_zookeeper(store: str) -> None:
    """Brokers wait long for a ZooKeeper that does not answer, and what they wait for is only in
    their logs: find out first."""
    hosts, _, _ = store.removeprefix(ZOOKEEPER_SCHEME).partition("/")
    reasons = []
    for address in hosts.split(","):
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "")
        number = int(port) if port.isdigit() else ZOOKEEPER_PORT
        try:
            socket.create_connection((host.strip("[]"), number), ZOOKEEPER_TIMEOUT_S).close()
            return
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
    raise click.ClickException(
        f"ZooKeeper cannot be reached ({'; '.join(reasons)}); start one with `odradek zookeeper`"
    )


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _stop(cluster: "Cluster") -> None:
    """One after the other, so that each can hand its leaderships to another broker."""
    from odradek.testing.cluster import ClusterError

    for broker in cluster.running():
        click.echo(f"stopping broker {broker}")
        try:
            cluster.stop(broker)
        except ClusterError as error:
            click.echo(str(error), err=True)


def _show(cluster: "Cluster", plain: bool) -> None:
    """Until Ctrl-C, or until no broker is left."""
    from odradek.client import Blocking

    security = cluster.client_config()
    with Blocking(cluster.bootstrap_servers, timeout_s=ASK_TIMEOUT_S, security=security) as client:
        if plain:
            _show_lines(cluster, client)
        else:
            _show_live(cluster, client)
    raise click.ClickException(f"no broker is left; see the logs in {cluster.data_dir}")


def _look(client: "Blocking", *, measure: bool) -> "Overview | None":
    """The cluster as it is; None while no broker answers."""
    from odradek.operations import read_overview
    from odradek.wire.errors import KafkaError

    try:
        return client.run(read_overview(client.admin, measure=measure))
    except (KafkaError, OSError, TimeoutError):
        return None


def _show_lines(cluster: "Cluster", client: "Blocking") -> None:
    """A line whenever something is different."""
    last = ""
    while cluster.running():
        now = _look(client, measure=False)
        line = "no broker answers" if now is None else now.summary()
        if line != last:
            click.echo(line)
            last = line
        time.sleep(LOOK_S)


def _show_live(cluster: "Cluster", client: "Blocking") -> None:
    from rich.live import Live

    before: Overview | None = None
    with Live(console=console(), auto_refresh=False, screen=False) as live:
        while cluster.running():
            now = _look(client, measure=True)
            if now is not None:
                live.update(_drawn(cluster, now, before, *live.console.size), refresh=True)
                before = now
            time.sleep(LOOK_S)


def _drawn(
    cluster: "Cluster", now: "Overview", before: "Overview | None", width: int, height: int
) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    # Brokers that were started elsewhere, with `odradek broker`, belong to the cluster, too.
    brokers = sorted({*cluster.ids, *now.brokers})
    room = max(1, height - len(brokers) - 8)
    topics = topic_rows(now, before, room)
    more = len(now.topics) - len(topics)
    return Group(
        Text(f"{now.summary()}   Ctrl-C stops", style="bold"),
        Text(cluster.bootstrap_servers, style="dim"),
        table(*fitting(BROKER_HEADINGS, broker_rows(now, before, brokers), width)),
        table(*fitting(TOPIC_HEADINGS, topics, width)),
        Text(f"and {plural(more, 'more topic')}" if more else ""),
    )


def fitting(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> tuple[Sequence[str], list[Sequence[str]]]:
    """The first columns that fit a terminal, none of them broken, and at least two."""
    used = count = 0
    for column, heading in enumerate(headings):
        used += max(len(heading), *(len(row[column]) for row in rows), 0) + COLUMN_GAP
        if used - COLUMN_GAP > width and count >= 2:
            break
        count += 1
    return headings[:count], [row[:count] for row in rows]


def broker_rows(now: "Overview", before: "Overview | None", ids: Sequence[int]) -> list[list[str]]:
    """id, address, role, leads, holds, size, growth; a row for each broker there should be."""
    from odradek.operations import rate

    rows = []
    for broker in ids:
        state = now.brokers.get(broker)
        if state is None:
            rows.append([str(broker), "down", "", "", "", "", ""])
            continue
        earlier = before.brokers.get(broker) if before is not None else None
        growth = rate(now, before, state.size_bytes, earlier.size_bytes if earlier else None)
        rows.append(
            [
                str(broker),
                state.address,
                "controller" if broker == now.controller else "",
                str(state.leads),
                str(state.holds),
                "" if state.size_bytes is None else size(state.size_bytes),
                "" if growth is None else f"{size(growth)}/s",
            ]
        )
    return rows


def topic_rows(now: "Overview", before: "Overview | None", lines_max: int) -> list[list[str]]:
    """topic, partitions, smallest ISR, unhealthy, records, records/s; the unhealthy ones first."""
    from odradek.operations import rate

    ordered = sorted(
        now.topics.items(),
        key=lambda item: (-item[1].offline, -item[1].under_replicated, item[0]),
    )
    rows = []
    for name, topic in ordered[:lines_max]:
        earlier = before.topics.get(name) if before is not None else None
        growth = rate(now, before, topic.records, earlier.records if earlier else None)
        unhealthy = [f"{topic.offline} offline"] if topic.offline else []
        if topic.under_replicated:
            unhealthy.append(f"{topic.under_replicated} under-replicated")
        rows.append(
            [
                name,
                str(topic.partitions),
                topic.isr,
                ", ".join(unhealthy),
                "" if topic.records is None else str(topic.records),
                "" if growth is None else f"{growth:.0f}/s",
            ]
        )
    return rows
