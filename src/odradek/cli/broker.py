"""`odradek broker`: one broker in this process, until a signal stops it.

This module gives the broker its real disk, clock, random generator, signals and thread pool.
Everything is imported when the command runs, and only what a broker needs.
"""

import asyncio
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from odradek.cli.log_lines import ClientLines, LineFormatter

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.broker.config import BrokerConfig
    from odradek.store.api import Store

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092
STORE_FILE = "metadata.db"
META = "meta.properties"
FILES_ENOUGH = 10_000

logger = logging.getLogger(__name__)


@click.command(epilog="Example: odradek broker --id 1 --data /tmp/odradek --port 9092")
@click.option("--id", "broker_id", type=click.IntRange(min=0), help="The broker's id (broker.id).")
@click.option(
    "--data",
    type=click.Path(),
    help="The cluster's directory, as of `odradek up`: logs in broker-ID, and metadata.db.",
)
@click.option(
    "--store",
    help="The cluster's metadata: sqlite:FILE or zookeeper://HOST:PORT[/CHROOT]. "
    "Without it, a file in the data directory.",
)
@click.option(
    "--host",
    help="The address to listen on, advertised to clients and other brokers. Unless configured "
    f"it is {DEFAULT_HOST}, which other machines cannot reach.",
)
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 takes a free one.")
@click.option("--rack", help="Its rack (broker.rack).")
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False), help="A server.properties file."
)
@click.option(
    "--set", "assignments", multiple=True, metavar="NAME=VALUE", help="A setting; may be repeated."
)
@click.option(
    "--stop-on-eof",
    is_flag=True,
    help="Stop when standard input is closed, as when the parent process dies.",
)
@click.option("--verbose", "-v", is_flag=True, help="Log at debug level.")
def broker(
    broker_id: int | None,
    data: str | None,
    store: str | None,
    host: str | None,
    port: int | None,
    rack: str | None,
    config: str | None,
    assignments: tuple[str, ...],
    stop_on_eof: bool,
    verbose: bool,
) -> None:
    """Run one broker.

    Settings have Kafka's names. Options override --set, which overrides --config. On SIGTERM or
    SIGINT the broker does a controlled shutdown: its leaderships move to other brokers first.
    """
    from odradek.broker.config import BrokerConfig
    from odradek.wire.errors import KafkaError

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(ClientLines())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
    try:
        written = _written(config, assignments)
        for name, value in (("broker.id", broker_id), ("broker.rack", rack)):
            if value is not None:
                written[name] = str(value)
        home = None if data is None else find_home(data, written.get("broker.id", "0"))
        if home is not None and not {"log.dirs", "log.dir"} & written.keys():
            written["log.dirs"] = home.logs
        if host is not None or port is not None:
            address = f"{host or DEFAULT_HOST}:{DEFAULT_PORT if port is None else port}"
            protocol = written.get("security.inter.broker.protocol", "PLAINTEXT")
            written["listeners"] = f"{protocol}://{address}"
        if store is None and "zookeeper.connect" not in written and home and home.is_alone:
            # A cluster of one: no other broker can hold a replica.
            written.setdefault("offsets.topic.replication.factor", "1")
            written.setdefault("transaction.state.log.replication.factor", "1")
            written.setdefault("transaction.state.log.min.isr", "1")
        settings = BrokerConfig(written)
        if not settings.log_dirs():
            raise click.UsageError("missing log directory: give --data DIR")
        url = store or _store_of(settings, home)
    except KafkaError as error:
        raise click.ClickException(error.message) from None
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None
    files_max = _allow_many_files()
    with asyncio.Runner(loop_factory=_loop_factory(settings)) as runner:
        reason = runner.run(_run(settings, url, stop_on_eof, files_max))
    if reason is not None:
        raise click.ClickException(reason)


def _loop_factory(settings: "BrokerConfig") -> "Callable[[], asyncio.AbstractEventLoop] | None":
    """What makes the event loop that `odradek.event.loop` asks for; None is Python's own."""
    if settings.text("odradek.event.loop") != "uvloop":
        return None
    try:
        import uvloop
    except ImportError:
        raise click.ClickException(
            "odradek.event.loop is uvloop, which is not installed: pip install 'odradek[uvloop]'"
        ) from None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _allow_many_files() -> int | None:
    """How many descriptors the process may have, after asking for all that it can have: systems
    give few unless asked. None is no limit."""
    try:
        import resource
    except ImportError:  # no such limit on this system
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError) as error:
            logger.warning("open files stay limited to %d: %s", soft, error)
    if soft == resource.RLIM_INFINITY:
        return None
    if soft < FILES_ENOUGH:
        from odradek.broker.descriptors import divide_descriptors

        logger.warning(
            "this process may open %d files: %d files of logs are kept open, and %d connections"
            " taken; raise the limit (ulimit -n) for more",
            soft,
            *divide_descriptors(soft),
        )
    return soft


def _written(file: str | None, assignments: tuple[str, ...]) -> dict[str, str]:
    """What a file says, and over it what --set says."""
    from odradek.broker.config import parse_assignments
    from odradek.wire.properties import decode_properties

    written = {}
    if file is not None:
        with open(file, encoding="latin-1") as opened:
            written.update(decode_properties(opened.read()))
    return {**written, **parse_assignments(assignments)}


class Home(NamedTuple):
    """Where a broker keeps its logs, and the directory of its cluster with the metadata file."""

    logs: str
    cluster: str

    @property
    def is_alone(self) -> bool:
        """Whether no other broker keeps its logs in the cluster's directory."""
        try:
            names = os.listdir(self.cluster)
        except FileNotFoundError:
            return True
        own = os.path.basename(self.logs)
        return not any(name.startswith("broker-") and name != own for name in names)


def find_home(data: str, broker_id: str) -> Home:
    """The layout of `odradek up`: logs in DATA/broker-ID, metadata in DATA/metadata.db.

    DATA may also be the broker's own directory in such a layout, which is what one names when a
    single broker of `odradek up` has died."""
    directory = os.path.abspath(data)
    parent, name = os.path.split(directory)
    own = f"broker-{broker_id}"
    if name == own and any(map(os.path.exists, (f"{parent}/{STORE_FILE}", f"{directory}/{META}"))):
        return Home(directory, parent)
    return Home(os.path.join(directory, own), directory)


def _store_of(settings: "BrokerConfig", home: Home | None) -> str:
    zookeeper = settings.text("zookeeper.connect")
    if zookeeper:
        return f"zookeeper://{zookeeper}"
    if home is None:
        raise click.UsageError("missing metadata store: give --store, or --data DIR")
    os.makedirs(home.cluster, exist_ok=True)
    return f"sqlite:{home.cluster}/{STORE_FILE}"


def _open_store(url: str, settings: "BrokerConfig", read_file: "Callable[[str], bytes]") -> "Store":
    """Raises ValueError for the address, KafkaError for the settings."""
    from odradek.broker.store_security import store_security
    from odradek.store import open_store

    return open_store(
        url,
        session_timeout_ms=settings.integer("zookeeper.session.timeout.ms"),
        **store_security(settings, read_file)._asdict(),
    )


async def _run(
    settings: "BrokerConfig", store_url: str, stop_on_eof: bool, files_max: int | None
) -> str | None:
    """Run a broker until a signal, or until it fails: then the reason is returned."""
    from random import SystemRandom

    from odradek import __version__
    from odradek.broker.descriptors import SPARES, divide_descriptors
    from odradek.broker.memory import collect_seldom, keep_free_memory
    from odradek.broker.server import Broker, StartFailed
    from odradek.broker.unclean_start import machine_boot_id
    from odradek.log.disk import RealDisk
    from odradek.store.api import StoreError, wall_clock_ms
    from odradek.wire.errors import KafkaError

    collect_seldom()
    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_requested.set)
    if stop_on_eof:
        # The parent holds the other end and never writes: readable means that it is gone.
        loop.add_reader(sys.stdin, stop_requested.set)
    shares = divide_descriptors(files_max)
    disk = RealDisk(shares.files, SPARES)
    try:
        store = _open_store(store_url, settings, disk.read_bytes)
    except ValueError as error:
        return str(error)
    except KafkaError as error:
        return error.message
    kind = Broker
    if settings.flag("odradek.faults.enable"):
        from odradek.testing.faulty_broker import FaultyBroker

        kind = FaultyBroker
    try:
        broker = kind(
            settings,
            store,
            disk=disk,
            clock=wall_clock_ms,
            rng=SystemRandom(),  # nonces of logins come from it, too
            offload=lambda work: loop.run_in_executor(None, work),
            boot_id=machine_boot_id(),
        )
    except KafkaError as error:  # a listener's settings do not fit together
        return error.message
    broker.version = __version__
    broker.connections.limit(shares.connections)
    if broker.security.certificates is not None:
        loop.add_signal_handler(signal.SIGHUP, broker.security.certificates.reload)
    broker.failed.add_done_callback(lambda failed: stop_requested.set())
    starting, waiting = loop.create_task(broker.start()), loop.create_task(stop_requested.wait())
    await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if not starting.done():
            starting.cancel()
        await starting
    except asyncio.CancelledError:
        await broker.abandon()
        return None
    except (StartFailed, StoreError) as error:
        await broker.abandon()
        return str(error)
    keep_free_memory()
    await waiting
    await broker.stop()
    return broker.failed.result() if broker.failed.done() else None
