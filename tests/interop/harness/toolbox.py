"""Kafka's command-line tools, many in one JVM: starting it takes longer than running one."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

from tests.interop.harness.kafka import (
    KAFKA_3_9,
    LIB,
    TOOLS_HEAP,
    classpath,
    java,
    main_class,
    tool,
)
from tests.interop.harness.processes import bound_to_us

SOURCE = Path(__file__).parent / "java" / "Toolbox.java"

# It does the last of its work in a hook of the JVM's end.
ALONE = {"kafka-verifiable-producer"}


class Printed(NamedTuple):
    """How a tool ended."""

    status: int
    out: str
    err: str


class ToolFailed(AssertionError):
    """A tool that was expected to succeed did not."""


class Toolbox:
    """One JVM with the tools of one version of Kafka."""

    def __init__(self, version: Path = KAFKA_3_9) -> None:
        self._version = version
        classes = compiled(SOURCE, version)
        # What the clients log beside the output (slf4j's simple logger) goes to our standard error.
        self._process = subprocess.Popen(
            bound_to_us(java("Toolbox", heap=TOOLS_HEAP, version=version, also=[classes])),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    @property
    def process_id(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def try_run(self, name: str, *arguments: str, stdin: str = "") -> Printed:
        """Run a tool, whatever comes of it."""
        if name in ALONE:
            done = tool(name, *arguments, version=self._version)
            return Printed(done.returncode, done.stdout, done.stderr)
        commands, answers = self._process.stdin, self._process.stdout
        assert commands is not None
        assert answers is not None
        words = [main_class(name, self._version), *arguments]
        commands.write(len(words).to_bytes(4, "big"))
        commands.write(b"".join(sized(word.encode()) for word in [*words, stdin]))
        commands.flush()
        status = int.from_bytes(answers.read(4), "big", signed=True)
        return Printed(status, receive(answers), receive(answers))

    def run(self, name: str, *arguments: str, stdin: str = "") -> str:
        """What a tool printed; ToolFailed with all of it when it failed."""
        printed = self.try_run(name, *arguments, stdin=stdin)
        if printed.status:
            command = " ".join([name, *arguments])
            raise ToolFailed(f"{command}: {printed.status}\n{printed.out}\n{printed.err}")
        return printed.out


def compiled(source: Path, version: Path) -> Path:
    """The directory with a Java source's classes, compiled against a version if it is newer."""
    classes = LIB / "classes" / version.name
    target = classes / f"{source.stem}.class"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        classes.mkdir(parents=True, exist_ok=True)
        command: Sequence[str] = [
            *("javac", "-nowarn", "--release", "17", "-d", str(classes)),
            *("-cp", classpath(version), str(source)),
        ]
        subprocess.run(command, check=True)
    return classes


def sized(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def receive(answers: IO[bytes]) -> str:
    return answers.read(int.from_bytes(answers.read(4), "big")).decode(errors="replace")
