"""One broker of ours as a process, with the same methods as `kafka.KafkaBroker`."""

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.interop.harness.processes import Member

# No topic appears that the test has not made.
QUIET = {"odradek.telemetry.interval.ms": 0}


class OurBroker(Member):
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
        super().__init__(broker_id, port, directory, directory.with_suffix(".odradek.log"))
        self._settings = {"log.dirs": directory, **QUIET, **(settings or {})}
        self._store = store if is_url else f"zookeeper://{store}"

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "odradek", "broker", "--id", str(self.id)]
        command += ["--store", self._store]
        if "listeners" not in self._settings:
            command += ["--host", "127.0.0.1", "--port", str(self.port)]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        return command
