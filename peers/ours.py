"""One broker of ours as a process, with the verbs that `peers.kafka.KafkaBroker` has."""

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

STOP_TIMEOUT_S = 60


class OurBroker:
    """An Odradek broker, on a ZooKeeper if it and Apache Kafka's are to be one cluster."""

    def __init__(
        self,
        broker_id: int,
        port: int,
        store: str,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        *,
        is_url: bool = False,
    ) -> None:
        """`store` is ZooKeeper's host:port/chroot, or the URL of any store."""
        self.id = broker_id
        self.port = port
        self.directory = directory
        self.log = directory.with_suffix(".odradek.log")
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = {"log.dirs": directory, **(settings or {})}
        self._store = store if is_url else f"zookeeper://{store}"

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

    def start(self) -> None:
        assert not self.is_running
        command = [sys.executable, "-m", "odradek", "broker", "--id", str(self.id)]
        command += ["--store", self._store, "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--stop-on-eof"]  # it ends with us, however we do
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with open(self.log, "ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=output
            )

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(STOP_TIMEOUT_S)
