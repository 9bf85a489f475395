"""A copier of some client (copiers.py) as a process, and how far it has got."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from tests.compatibility.drivers import Unsupported
from tests.compatibility.drivers.kafkajs import modules
from tests.interop.harness.copiers import COPIERS
from tests.interop.harness.kafka import KAFKA_3_9, KAFKA_4, LIB, TOOLS_HEAP, java
from tests.interop.harness.members import NotInTime, wait_until
from tests.interop.harness.processes import bound_to_us
from tests.interop.harness.toolbox import compiled
from tests.interop.harness.traffic import Traffic, read_all

HARNESS = Path(__file__).parent
JAVA = {"Java 3.9": KAFKA_3_9, "Java 4.x": KAFKA_4}
KAFKAJS, FRANZ_GO = "kafkajs", "franz-go"
STREAMS = "Kafka Streams"
CLIENTS = (*COPIERS, KAFKAJS, *JAVA, FRANZ_GO)
SOURCE, TARGET = "source", "target"
SHOWN_BYTES_MAX = 20_000


@cache
def go_program(name: str) -> Path:
    """A program of harness/go, built once; the test is skipped where it cannot be."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go here")
    program = LIB / "go" / name
    built = subprocess.run(
        [go, "build", "-o", program, f"./{name}"],
        cwd=HARNESS / "go",
        capture_output=True,
        text=True,
    )
    if built.returncode and "dial tcp" in built.stderr:
        pytest.skip(f"the Go proxy cannot be reached: {built.stderr.splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    return program


def command_of(client: str) -> list[str]:
    """What runs a client's copier, without its arguments."""
    if client in COPIERS:
        return [sys.executable, "-m", "tests.interop.harness.copiers", client]
    if client in JAVA:
        classes = compiled(HARNESS / "java" / "Copy.java", JAVA[client])
        return java("Copy", heap=TOOLS_HEAP, version=JAVA[client], also=[classes])
    if client == STREAMS:
        classes = compiled(HARNESS / "java" / "WordCount.java", KAFKA_3_9)
        return java("WordCount", heap=TOOLS_HEAP, also=[classes])
    if client == FRANZ_GO:
        return [str(go_program("copy"))]
    assert client == KAFKAJS
    try:
        os.environ["NODE_PATH"] = modules()
    except Unsupported as reason:
        pytest.skip(str(reason))
    return ["node", str(HARNESS / "js" / "copy.js")]


class Copying:
    """Copies SOURCE to TARGET until the block is left."""

    def __init__(self, client: str, bootstrap_servers: str, *more: str) -> None:
        """`more` are arguments that only this client's program takes."""
        arguments = [bootstrap_servers, SOURCE, TARGET, *more]
        self._command: Sequence[str] = [*command_of(client), *arguments]
        self._bootstrap_servers = bootstrap_servers
        self._process: subprocess.Popen[str] | None = None
        self._reading = threading.Thread(target=self._read, name=f"copying-{client}")
        # Its standard error, closed by __exit__; appended to, so that its place does not move when
        # we read.
        self._said = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        self.transactions = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            bound_to_us(self._command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        self._reading.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._reading.join()
        self._said.close()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for _ in lines:
                self.transactions += 1

    def wait_until(self, holds: Callable[[], object], what: str) -> None:
        """With the end of what the copier has said, if it is not in time."""
        try:
            wait_until(holds, what)
        except NotInTime as late:
            size = self._said.seek(0, os.SEEK_END)
            self._said.seek(max(0, size - SHOWN_BYTES_MAX))
            late.add_note(f"The copier said:\n{self._said.read().decode(errors='replace')}")
            raise

    def get_on(self) -> None:
        """Wait for two more commits: the transaction of the first may have begun before."""
        start = self.transactions
        self.wait_until(
            lambda: self.transactions >= start + 2, f"more than {start} committed transactions"
        )

    def check_each_once(self, traffic: Traffic, partitions: int) -> None:
        """All that was acknowledged to the source comes to the target, and nothing twice."""
        assert not traffic.failed, f"refused: {dict(list(traffic.failed.items())[:3])}"
        found: list[int] = []

        def complete() -> bool:
            found[:] = read_all(self._bootstrap_servers, TARGET, partitions).values()
            return len(found) >= traffic.count

        self.wait_until(complete, f"{traffic.count} copied records")
        assert sorted(found) == traffic.numbers
