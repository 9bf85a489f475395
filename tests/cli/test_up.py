"""`odradek up` as a user runs it: a process, Ctrl-C, and everything still there the next time."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.cli.conftest import CommandLine
from tests.conftest import assert_no_traceback

from odradek.cli import up as up_module
from odradek.cli.up import BROKER_HEADINGS, _racks, broker_rows, fitting
from odradek.operations import BrokerSummary, Overview
from odradek.testing import cluster as cluster_module
from odradek.testing.cluster import _free_ports

pytestmark = pytest.mark.process


@contextmanager
def up(data: Path, port: int, brokers: int, *more: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "odradek", "up", "--brokers", str(brokers)]
    command += ["--data", str(data), "--port", str(port), *more]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()
    for log in data.glob("broker-*.log"):
        assert_no_traceback(log)


def read_until(process: "subprocess.Popen[str]", wanted: str) -> list[str]:
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.rstrip())
        if wanted in line:
            return lines
    raise AssertionError(f"no {wanted!r} in {lines}")


def free_ports_in_a_row(count: int) -> int:
    ports = _free_ports(100)
    return next(first for first in ports if {*range(first, first + count)} <= set(ports))


def test_hosts_are_racks_dealt_out_in_turn() -> None:
    assert _racks(5, None, 2) == ["host-1", "host-2", "host-1", "host-2", "host-1"]
    assert _racks(2, "a,b", None) == ["a", "b"]
    assert _racks(2, None, None) is None
    for racks, hosts in (("a,b", 2), (None, 3)):
        with pytest.raises(click.UsageError):
            _racks(2, racks, hosts)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_in_order_and_nothing_is_lost(tmp_path: Path, number: signal.Signals) -> None:
    port = free_ports_in_a_row(2)
    odradek = CommandLine(f"127.0.0.1:{port},127.0.0.1:{port + 1}")
    with up(tmp_path, port, 2, "--hosts", "2") as cluster:
        lines = read_until(cluster, "brokers 1,2")
        assert f"127.0.0.1:{port},127.0.0.1:{port + 1}" in lines[0]
        odradek("topics", "create", "t", "-r", "2")
        odradek("produce", "t", input="kept\n")
        cluster.send_signal(number)
        lines = read_until(cluster, "stopping broker 2")
        assert "stopping broker 1" in lines
        assert cluster.wait(60) == 0
    for broker in (1, 2):
        log = (tmp_path / f"broker-{broker}.log").read_text()
        assert "has stopped" in log
    with up(tmp_path, port, 2) as cluster:
        read_until(cluster, "brokers 1,2")
        assert odradek("consume", "t") == "kept\n"
        cluster.send_signal(number)
        assert cluster.wait(60) == 0


def test_brokers_may_take_their_time_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when they recover many logs after a kill: giving up, `up` would never get them up."""
    monkeypatch.setattr(cluster_module, "START_TIMEOUT_S", 0.001)
    monkeypatch.setattr(up_module, "REMINDER_S", 0.001)
    monkeypatch.setattr(up_module, "_serve", lambda *_: None)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ports = ["--brokers", "1", "--port", str(free_ports_in_a_row(1))]
        result = CliRunner().invoke(up_module.up, ["--data", str(tmp_path), *ports])
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert result.exit_code == 0, result.output
    assert f"brokers are starting; what each of them does is in {tmp_path}" in result.output
    assert "1 broker up" in result.output


def test_a_broker_that_dies_is_not_restarted(tmp_path: Path) -> None:
    port = free_ports_in_a_row(2)
    with up(tmp_path, port, 2) as cluster:
        read_until(cluster, "brokers 1,2")
        children = Path(f"/proc/{cluster.pid}/task/{cluster.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        assert "brokers 2," in read_until(cluster, "brokers 2,")[-1]
        os.kill(int(children[1]), signal.SIGKILL)
        assert "see the logs in" in read_until(cluster, "no broker is left")[-1]
        assert cluster.wait(60) == 1


def test_a_secure_cluster_as_the_readme_sets_it_up(tmp_path: Path) -> None:
    port = free_ports_in_a_row(1)
    odradek = CommandLine(f"127.0.0.1:{port}")
    odradek("security", "init", "--data", str(tmp_path))
    with up(tmp_path, port, 1, "--secure") as cluster:
        read_until(cluster, "brokers 1")
        odradek.refused("topics", "list", "--timeout", "5")  # without a login
        odradek.environment["ODRADEK_COMMAND_CONFIG"] = f"{tmp_path}/security/admin.properties"
        odradek("topics", "create", "orders")
        odradek("users", "add", "alice", input="secret-of-alice\nsecret-of-alice\n")
        admin = (tmp_path / "security" / "admin.properties").read_text()
        login = re.sub(
            r'username="\S+" password="\S+"', 'username="alice" password="secret-of-alice"', admin
        )
        alice = tmp_path / "alice.properties"
        alice.touch(mode=0o600)
        alice.write_text(login)
        as_alice = ("--command-config", str(alice))
        assert "AUTHORIZATION_FAILED" in odradek.refused("produce", "orders", *as_alice)
        acl = ("--allow-principal", "User:alice", "--producer", "--topic", "orders")
        odradek("acls", "add", *acl)
        odradek("produce", "orders", *as_alice, input="a\n")
        assert odradek("consume", "orders") == "a\n"
        cluster.send_signal(signal.SIGINT)
        assert cluster.wait(60) == 0


def test_a_console_comes_with_the_cluster_and_goes_with_it(tmp_path: Path) -> None:
    """CONSOLE acceptance 1: one link, which shows the brokers; nothing is left at the end."""
    port = free_ports_in_a_row(2)
    with up(tmp_path, port, 2, "--console", "--console-port", "0") as cluster:
        line = read_until(cluster, "console: ")[-1]
        base, _, token = line.removeprefix("console: ").partition("/#token=")
        request = urllib.request.Request(
            f"{base}/api/v1/login",
            json.dumps({"token": token}).encode(),
            {"Content-Type": "application/json", "Origin": base},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["features"]["drills"]
        read_until(cluster, "brokers 1,2")
        cluster.send_signal(signal.SIGINT)
        assert cluster.wait(60) == 0
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(base, timeout=60)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    port = free_ports_in_a_row(1)
    with up(tmp_path / "a", port, 1) as first:
        read_until(first, "brokers 1")
        with up(tmp_path / "b", port, 1) as second:
            assert f"port {port} is in use" in read_until(second, "Error:")[-1]
            assert second.wait(60) == 1


def test_a_zookeeper_that_is_not_there_is_named_at_once(tmp_path: Path) -> None:
    port = free_ports_in_a_row(1)
    with up(tmp_path, port, 1, "--store", f"zookeeper://127.0.0.1:{port}/x") as cluster:
        said = read_until(cluster, "Error:")[-1]
        assert f"ZooKeeper cannot be reached (127.0.0.1:{port}" in said
        assert cluster.wait(60) == 1


def test_a_broker_of_up_can_be_started_by_itself_on_its_directory(tmp_path: Path) -> None:
    port = free_ports_in_a_row(2)
    odradek = CommandLine(f"127.0.0.1:{port},127.0.0.1:{port + 1}")
    command = [sys.executable, "-m", "odradek", "broker", "--id", "2", "--port", str(port + 1)]
    command += ["--data", str(tmp_path / "broker-2"), "--stop-on-eof"]
    with up(tmp_path, port, 2) as cluster:
        read_until(cluster, "brokers 1,2")
        odradek("topics", "create", "t", "--replicas", "2")
        odradek("produce", "t", input="kept\n")
        refused = subprocess.run(
            [*command[:6], "--port", "0", *command[8:-1]],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert refused.returncode == 1, "a second process on the same directory"
        assert "Traceback" not in refused.stderr
        assert "broker-2" in refused.stderr
        children = Path(f"/proc/{cluster.pid}/task/{cluster.pid}/children").read_text().split()
        os.kill(int(children[1]), signal.SIGKILL)
        read_until(cluster, "brokers 1,")
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as alone:
            try:
                read_until(cluster, "brokers 1,2")
                assert odradek("consume", "t") == "kept\n"
            finally:
                alone.kill()
        cluster.send_signal(signal.SIGINT)
        assert cluster.wait(60) == 0


def test_a_narrow_terminal_gets_fewer_columns_and_no_broken_ones() -> None:
    rows = [["1", "127.0.0.1:20001", "controller", "12", "36", "1.5 MB", "10 kB/s"]]
    headings, cells = fitting(BROKER_HEADINGS, rows, 45)
    assert headings == BROKER_HEADINGS[:4]
    assert cells == [rows[0][:4]]
    assert fitting(BROKER_HEADINGS, rows, 200) == (BROKER_HEADINGS, rows)
    assert len(fitting(BROKER_HEADINGS, rows, 5)[0]) == 2


def test_brokers_started_elsewhere_are_listed() -> None:
    overview = Overview(0.0, 9, {9: BrokerSummary("127.0.0.1:9", 1, 1, None)})
    rows = broker_rows(overview, None, sorted({1, *overview.brokers}))
    assert [row[:3] for row in rows] == [["1", "down", ""], ["9", "127.0.0.1:9", "controller"]]
