"""A real broker process for tests: started, killed, started again, and its log read."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

_SERVES = re.compile(r"serves PLAINTEXT://127\.0\.0\.1:(\d+)")
START_TIMEOUT_S = 60


class BrokerProcess:
    """One `odradek broker` on a data directory of its own. Keeps its port over restarts."""

    def __init__(self, data: Path, *settings: str, broker_id: int = 1) -> None:
        self.data = data
        self.settings = settings
        self.broker_id = broker_id
        self.options: tuple[str, ...] = ()
        self.port = 0
        self.log: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> "BrokerProcess":
        command = [sys.executable, "-m", "odradek", "broker", "--id", str(self.broker_id)]
        command += ["--data", str(self.data), "--stop-on-eof"]
        if not any(setting.startswith("listeners=") for setting in self.settings):
            command += ["--port", str(self.port)]
        command += self.options
        for setting in ("odradek.telemetry.interval.ms=0", *self.settings):
            command += ["--set", setting]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self._process, ready), daemon=True)
        self._reader.start()
        if not ready.wait(START_TIMEOUT_S) or not self.port:
            self.kill()
            raise AssertionError("the broker did not start:\n" + "\n".join(self.log))
        return self

    def _read(self, process: "subprocess.Popen[str]", ready: threading.Event) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.log.append(line.rstrip())
            found = _SERVES.search(line)
            if found:
                self.port = int(found[1])
                ready.set()
        ready.set()

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._ended()

    def kill(self) -> int:
        assert self._process is not None
        self._process.kill()
        return self._ended()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> int:
        """Until it ends by itself; the exit code."""
        return self._ended()

    def _ended(self) -> int:
        assert self._process is not None
        assert self._reader is not None
        code = self._process.wait(60)
        self._reader.join(60)
        for pipe in (self._process.stdin, self._process.stderr):
            assert pipe is not None
            pipe.close()
        self._process = None
        assert not any("Traceback" in line for line in self.log), "\n".join(self.log[-100:])
        return code

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024

    @property
    def tracebacks(self) -> list[str]:
        return [line for line in self.log if "Traceback" in line or " ERROR " in line]
