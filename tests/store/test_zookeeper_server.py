"""The server starter: where the jars come from, and what is said without them or without Java."""

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.store import zookeeper_server
from odradek.store.zookeeper_server import CannotStart, ZooKeeperServer, find_jars


def test_no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CannotStart, match="pip install pyspark"):
        find_jars()


@pytest.mark.process
def test_the_options_of_the_jvm_can_be_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = tmp_path / "home" / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text('#!/bin/sh\necho "$@"\n')
    launcher.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(zookeeper_server, "find_jars", lambda: tmp_path)
    default = ZooKeeperServer(tmp_path / "default", port=0)
    chosen = ZooKeeperServer(tmp_path / "chosen", port=0, jvm=["-Xmx1G"])
    for server, given in (default, "-Xmx512m -XX:+UseSerialGC"), (chosen, "-Xmx1G -Dlog4j2"):
        with pytest.raises(CannotStart, match="ended at once"):
            server.start()
        assert server.log.read_text().startswith(given)


@pytest.mark.process
def test_a_taken_port_is_named(zookeeper_address: str, tmp_path: Path) -> None:
    port = int(zookeeper_address.split(":")[1])
    with pytest.raises(CannotStart, match=f"port {port} is taken"):
        ZooKeeperServer(tmp_path, port=port).start()


@pytest.mark.process
def test_the_command_serves_until_it_is_stopped(tmp_path: Path, zookeeper_address: str) -> None:
    command = "from odradek.cli.zookeeper import zookeeper; zookeeper()"
    process = subprocess.Popen(
        [sys.executable, "-c", command, "--data", str(tmp_path / "zk"), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert re.match(r"ZooKeeper is ready: zookeeper://127\.0\.0\.1:\d+ ", line)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "stopping\n"
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.process
def test_the_server_does_not_outlive_the_process_that_started_it(
    tmp_path: Path, zookeeper_address: str
) -> None:
    command = (
        "import sys; from pathlib import Path;"
        "from odradek.store.zookeeper_server import ZooKeeperServer;"
        "server = ZooKeeperServer(Path(sys.argv[1]), port=0); server.start();"
        "print(server.address, flush=True); server.wait()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", command, str(tmp_path / "zk")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        host, _, port = process.stdout.readline().strip().partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            process.kill()
            assert connection.recv(1) == b"", "the server closed it, for it ends"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.process
def test_the_command_says_in_one_line_what_is_missing(tmp_path: Path) -> None:
    command = "from odradek.cli.zookeeper import zookeeper; zookeeper()"
    done = subprocess.run(
        [sys.executable, "-c", command, "--data", str(tmp_path / "zk")],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: JAVA_HOME is") and done.stderr.count("\n") == 1
