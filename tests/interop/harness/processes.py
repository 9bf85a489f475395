"""A broker as a process, whichever program it is; and processes that end with the one that started
them."""

import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

STOP_TIMEOUT_S = 60


def bound_to_us(command: Sequence[str]) -> list[str]:
    """A command whose process the kernel kills when the thread that started it ends, killed or not.

    Better than watching its own standard input: it also ends while a signal has it stand still."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", *command] if setpriv else list(command)


def descendants(process: int) -> list[int]:
    """The processes that a process started, and those that they did."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended meanwhile
        if parent == process:
            child = int(status.parent.name)
            found += [child, *descendants(child)]
    return found


def busy_cores(during_s: float = 2.0) -> float:
    """How many cores work on something, on average over this time in which we do nothing."""

    def worked_ticks() -> int:
        user, nice, system, _, _, *interrupts = (
            int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        )
        return user + nice + system + sum(interrupts)

    before = worked_ticks()
    time.sleep(during_s)
    return (worked_ticks() - before) / os.sysconf("SC_CLK_TCK") / during_s


class Member(ABC):
    """One broker that can be started again and again on the same port and directory."""

    def __init__(self, broker_id: int, port: int, directory: Path, log: Path) -> None:
        self.id = broker_id
        self.port = port
        self.directory = directory
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """What runs it."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ended_by_itself(self) -> bool:
        """It was started, and ended although nobody stopped or killed it."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        assert not self.is_running
        with open(self.log, "ab") as output:
            self._process = subprocess.Popen(
                bound_to_us(self.command()),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def pause(self) -> None:
        """SIGSTOP: it stands still, and its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            # Half a line says nothing, and must not run into the first of the next life.
            written = self.log.read_bytes()
            os.truncate(self.log, written.rfind(b"\n") + 1)

    def stop(self) -> None:
        """A clean stop: it hands its leaderships over first."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None
