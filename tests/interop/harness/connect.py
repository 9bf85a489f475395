"""Kafka Connect's workers and MirrorMaker 2 as processes."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.interop.harness.kafka import TOOLS_HEAP, java, write_properties
from tests.interop.harness.members import wait_until
from tests.interop.harness.processes import bound_to_us

STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
REST_TIMEOUT_S = 30.0
# Of every worker. Its clients find out soon about a broker that has gone.
WORKER = {
    "key.converter": STRINGS,
    "value.converter": STRINGS,
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": 500,
    "metadata.max.age.ms": 2000,
}


class JavaProgram:
    """A main class with files of properties, from start to the end of the block."""

    def __init__(self, main: str, directory: Path, *properties: Mapping[str, object]) -> None:
        name = main.rpartition(".")[2]
        files = [directory / f"{name}-{number}.properties" for number in range(len(properties))]
        for file, each in zip(files, properties, strict=True):
            write_properties(file, each)
        self.log = directory / f"{name}.log"
        self._command = bound_to_us(java(main, *map(str, files), heap=TOOLS_HEAP))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with open(self.log, "ab") as output:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
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

    def check_runs(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"ended: {self.log.read_text()[-2000:]}"


def file_connector(name: str, kind: str, file: Path, topic: str) -> dict[str, object]:
    """Kafka's example connectors: a file's lines to a topic ("Source"), or back ("Sink")."""
    return {
        "name": name,
        "connector.class": f"org.apache.kafka.connect.file.FileStream{kind}Connector",
        "tasks.max": 1,
        "file": file,
        "topic" if kind == "Source" else "topics": topic,
    }


def add_connector(port: int, settings: Mapping[str, object]) -> None:
    """Through a worker's REST interface, once it answers."""
    texts = {name: str(value) for name, value in settings.items()}
    name = texts.pop("name")
    wait_until(lambda: _put(port, f"/connectors/{name}/config", texts), f"the connector {name}")
    wait_until(lambda: is_running(port, name), f"the task of {name}")


def is_running(port: int, name: str) -> bool:
    try:
        status = _ask(port, f"/connectors/{name}/status")
    except (OSError, urllib.error.HTTPError):
        return False
    assert all(task["state"] != "FAILED" for task in status["tasks"]), status
    return any(task["state"] == "RUNNING" for task in status["tasks"])


def _put(port: int, path: str, body: object) -> bool:
    """False while the worker is not up, or its group is busy with a rebalance."""
    try:
        _ask(port, path, body)
    except (OSError, urllib.error.HTTPError):
        return False
    return True


def _ask(port: int, path: str, body: object = None) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if body is not None:
        request = urllib.request.Request(
            request.full_url,
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
    with urllib.request.urlopen(request, timeout=REST_TIMEOUT_S) as answer:
        return json.loads(answer.read())
