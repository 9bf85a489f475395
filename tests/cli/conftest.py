"""A cluster for the command line, and the command line in this process."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from odradek import Cluster
from odradek.cli.main import main


def isr_of(cluster: Cluster, topic: str) -> set[int]:
    found = cluster.topic(topic)
    return set() if found is None else set(found.partitions[0].isr_nodes)


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    brokers: int = getattr(request.module, "BROKERS", 1)
    with Cluster(brokers=brokers) as running:
        yield running


class CommandLine:
    """`odradek ...` against the cluster: what it printed, and whether it was content."""

    def __init__(self, bootstrap: str) -> None:
        self.environment = {"ODRADEK_BOOTSTRAP": bootstrap, "COLUMNS": "200"}

    def run(self, *arguments: str, input: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(main, list(arguments), input=input, env=self.environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def __call__(self, *arguments: str, input: str | bytes | None = None) -> str:
        result = self.run(*arguments, input=input)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def refused(self, *arguments: str, code: int = 1) -> str:
        """The one line that says what was wrong."""
        result = self.run(*arguments)
        assert result.exit_code == code, result.output
        lines = result.stderr.strip().splitlines()
        assert code == 2 or len(lines) == 1, result.stderr
        return lines[-1]


@contextmanager
def watching(
    odradek: CommandLine, *options: str
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A watcher, and all that it has said, when it has ended."""
    command = [sys.executable, "-m", "odradek", "rebalance", "watch", "--json", *options]
    watcher = subprocess.Popen(
        command, env={**os.environ, **odradek.environment}, stdout=subprocess.PIPE, text=True
    )
    said: list[str] = []
    try:
        yield watcher, said
    finally:
        watcher.terminate()
        printed, _ = watcher.communicate()
        said += [json.loads(line)["text"] for line in printed.splitlines()]


@pytest.fixture(scope="module")
def odradek(cluster: Cluster) -> CommandLine:
    return CommandLine(cluster.bootstrap_servers)


@pytest.fixture
def topic(request: pytest.FixtureRequest, odradek: CommandLine) -> str:
    """A topic of three partitions, named for the test."""
    name = re.sub(r"[^a-z_]+", "-", request.node.name.removeprefix("test_")).strip("-")[:60]
    odradek("topics", "create", name, "--partitions", "3")
    return name
