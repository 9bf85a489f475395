"""A real ZooKeeper server from the jars that PySpark ships, for development and tests.

What is missing, Java or the jars, is said in one line (``CannotStart``).
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek.java import NoJava, find_java

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
# What development and tests want: up soon, and small.
QUICK_START = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


# The server ends when its standard input does: so it never outlives the process that started it,
# killed or not. Background commands of a shell have no standard input, hence the third file.
_GUARDED = [
    "/bin/sh",
    "-c",
    'exec 3<&0; "$@" & server=$!; { read -r _ <&3; kill $server; } 2>/dev/null & wait $server',
    "zookeeper",
]


class CannotStart(Exception):
    """There is no ZooKeeper to be had here, and why."""


def find_jars() -> Path:
    """The directory of PySpark's jars; found without importing PySpark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise CannotStart(
            "ZooKeeper's jars come with PySpark, which is not installed here: pip install pyspark"
        )
    jars = Path(spec.origin).parent / "jars"
    if not any(jars.glob("zookeeper-[0-9]*.jar")):
        raise CannotStart(f"there is no zookeeper jar in {jars}: PySpark is installed incompletely")
    return jars


def server_properties(
    data: Path, port: int, host: str, tick_ms: int, extra: Mapping[str, str] | None = None
) -> str:
    """zoo.cfg of a server alone."""
    more = "".join(f"{name}={value}\n" for name, value in (extra or {}).items())
    return (
        f"dataDir={data}\n"
        f"clientPort={port}\n"
        f"clientPortAddress={host}\n"
        f"tickTime={tick_ms}\n"
        "maxClientCnxns=0\n"
        "admin.enableServer=false\n"
        "4lw.commands.whitelist=ruok,srvr,mntr\n"
        "autopurge.purgeInterval=1\n"
    ) + more


class ZooKeeperServer:
    """One server process. ``address`` is where it listens once ``start`` returned."""

    def __init__(
        self,
        data: Path,
        *,
        port: int = 2181,
        host: str = "127.0.0.1",
        tick_ms: int = 2000,
        jvm: Sequence[str] = QUICK_START,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._data = data.absolute()
        self._host = host
        self._port = port or _free_port(host)
        self._tick_ms = tick_ms
        self._jvm = jvm
        self._properties = properties
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    @property
    def log(self) -> Path:
        return self._data / "zookeeper.log"

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process, and return when it serves."""
        try:
            java, jars = find_java("ZooKeeper"), find_jars()
        except NoJava as error:
            raise CannotStart(str(error)) from None
        if not _is_free(self._host, self._port):
            raise CannotStart(f"port {self._port} is taken: choose another with --port")
        self._data.mkdir(parents=True, exist_ok=True)
        properties = self._data / "zoo.cfg"
        properties.write_text(
            server_properties(self._data, self._port, self._host, self._tick_ms, self._properties)
        )
        logging = self._data / "log4j2.properties"
        logging.write_text(_LOG4J)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *_GUARDED,
                    str(java),
                    *self._jvm,
                    f"-Dlog4j2.configurationFile={logging}",
                    "-Dzookeeper.4lw.commands.whitelist=ruok,srvr,mntr",
                    "-Djute.maxbuffer=4194304",
                    "-cp",
                    f"{jars}/*",
                    MAIN_CLASS,
                    str(properties),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us: we stop it in good order
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise CannotStart(f"ZooKeeper ended at once; the reason is in {self.log}")
            if _is_ok(self._host, self._port):
                return
            time.sleep(0.05)
        raise CannotStart(f"ZooKeeper did not serve within {READY_TIMEOUT_S:g} s; see {self.log}")

    def wait(self) -> int:
        """Until it ends by itself."""
        assert self._process is not None
        return self._process.wait()

    def kill(self) -> None:
        """As if the machine lost it."""
        assert self._process is not None
        assert self._process.stdin is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()

    def stop(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port


def _is_ok(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.sendall(b"ruok")
            return connection.recv(4) == b"imok"
    except OSError:
        return False
