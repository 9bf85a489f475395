"""A console for a cluster that this program holds, as a process of its own.

    with Cluster(3) as cluster, HeldConsole(cluster) as console:
        print(console.link)

A socket joins the two: over it the console asks for what a drill does to a broker. It also ends the
console when this program ends, however that happens.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from odradek.testing.cluster import Cluster, ClusterError

PORT = 8092
STOP_TIMEOUT_S = 10.0
LINE_BYTES_MAX = 4096


class HeldConsole:
    """Started when entered; ended when left."""

    def __init__(self, cluster: Cluster, port: int = PORT) -> None:
        """With port 0 it takes a free one."""
        self._cluster = cluster
        self._port = port
        self._state = Path(cluster.data_dir) / "console"
        self._process: subprocess.Popen[str] | None = None
        self._ours: socket.socket | None = None
        self.link = ""

    def __enter__(self) -> "HeldConsole":
        self._state.mkdir(mode=0o700, exist_ok=True)
        self._ours, theirs = socket.socketpair()
        with theirs, self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(theirs.fileno()),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "http" not in line:
            self.close()
            tail = self.log.read_text(errors="replace").strip().splitlines()[-1:]
            raise ClusterError(f"the console did not start: {' '.join(tail)}")
        self.link = line[line.index("http") :].strip()
        threading.Thread(target=self._serve, args=(self._ours,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def process_id(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def log(self) -> Path:
        """The file that the console logs to."""
        return self._state / "console.log"

    def close(self) -> None:
        process, ours = self._process, self._ours
        if process is None or ours is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        ours.close()

    def _command(self, descriptor: int) -> list[str]:
        command = [sys.executable, "-m", "odradek", "console", "--port", str(self._port)]
        command += ["--bootstrap-server", self._cluster.bootstrap_servers]
        command += ["--state", str(self._state), "--held-by", str(descriptor)]
        if self._cluster.security_files is not None:
            command += ["--command-config", str(self._cluster.security_files.client_file)]
        return command

    def _serve(self, ours: socket.socket) -> None:
        """Do as the console asks, until it ends."""
        with ours.makefile("rwb") as stream:
            try:
                while line := stream.readline(LINE_BYTES_MAX):
                    stream.write(json.dumps(self._do(json.loads(line))).encode() + b"\n")
                    stream.flush()
            except (OSError, ValueError):
                return  # it is gone

    def _do(self, asked: dict[str, object]) -> dict[str, object]:
        verbs: dict[str, Callable[[int], None]] = {
            "kill": self._cluster.kill,
            "stop": self._cluster.stop,
            "pause": self._cluster.pause,
            "resume": self._cluster.resume,
            "start": self._cluster.start,
        }
        at_ms = time.time_ns() / 1e6
        try:
            verbs[str(asked["action"])](int(str(asked["broker"])))
        except ClusterError as error:
            return {"at_ms": at_ms, "error": str(error)}
        return {"at_ms": at_ms, "error": None}
