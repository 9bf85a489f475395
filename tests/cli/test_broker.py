"""`odradek broker`: help, slips of an operator, settings files, and a broker alone."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.broker.processes import BrokerProcess

from odradek.cli.broker import Home, find_home
from odradek.cli.main import VERBS, main
from odradek.client import Blocking, Client, NewTopic, Producer
from odradek.testing.cluster import Cluster


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["broker", *arguments])
    assert result.exit_code != 0
    return result.output


def test_help_lists_every_verb_without_importing_any() -> None:
    code = "import sys, odradek.cli.main; print([m for m in sys.modules if 'odradek' in m])"
    listed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "odradek.cli.broker" not in listed
    text = CliRunner().invoke(main, ["--help"]).output
    assert all(name in text for name in VERBS)
    assert "Example:" in CliRunner().invoke(main, ["broker", "--help"]).output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--id", "1"], "--data"),
        (["--id", "-4", "--data", "x"], "-4"),
        (["--id", "1", "--data", "x", "--set", "log.retention.mss=1"], "did you mean"),
        (["--id", "1", "--data", "x", "--set", "nonsense"], "name=value"),
        (["--id", "1", "--data", "x", "--set", "log.segment.bytes=1"], "at least 14"),
        (["--id", "1", "--set", "log.dirs=/tmp/x"], "--store"),
        (["--id", "1", "--data", "x", "--store", "mongodb://x"], "mongodb"),
        (["--id", "1", "--data", "/dev/null/home"], "/dev/null/home: Not a directory"),
    ],
)
def test_slips(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output = refused(*arguments)
    assert said in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "65535", "-n", "2"], "2 brokers from port 65535 on need more ports"),
        (["--data", "/dev/null/home"], "/dev/null/home: Not a directory"),
    ],
)
def test_slips_with_a_cluster(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["up", *arguments])
    assert isinstance(result.exception, SystemExit)
    assert said in result.output


@pytest.mark.parametrize(("limit", "complains"), [("-Sn", False), ("-n", True)])
def test_a_broker_takes_as_many_files_as_it_may_have(limit: str, complains: bool) -> None:
    code = (
        "import resource; from odradek.cli.broker import _allow_many_files; _allow_many_files(); "
        "soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE); assert soft == hard"
    )
    command = f'ulimit -n 12000; ulimit {limit} 100; exec "$0" -c "$1"'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, code], capture_output=True, text=True, check=True
    )
    assert ("may open 100 files" in done.stderr) is complains


@pytest.mark.process
def test_a_loop_that_is_not_installed_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = ["--set", "odradek.event.loop=uvloop"]
    assert "odradek[uvloop]" in refused("--id", "1", "--data", str(tmp_path), *loop)
    assert "trio" in refused(
        "--id", "1", "--data", str(tmp_path), "--set", "odradek.event.loop=trio"
    )


def test_brokers_on_uvloop_replicate_die_and_stop() -> None:
    settings = {"odradek.event.loop": "uvloop", "min.insync.replicas": 2}
    with Cluster(brokers=2, config=settings) as cluster:
        maps = Path(f"/proc/{cluster.process_id(1)}/maps")
        assert not maps.exists() or "uvloop" in maps.read_text()

        async def send(value: bytes) -> int:
            async with Client(cluster.bootstrap_servers) as client, Producer(client) as producer:
                return (await (await producer.send("t", value))).offset

        def is_in_sync() -> bool:
            described = cluster.topic("t")
            return described is not None and len(described.partitions[0].isr_nodes) == 2

        with Blocking(cluster.bootstrap_servers) as client:
            client.run(client.admin.create_topics([NewTopic("t", 1, 2)]))
        assert asyncio.run(send(bytes(900_000))) == 0
        leader = cluster.leader("t")
        assert leader is not None
        cluster.kill(leader)
        cluster.start(leader)
        cluster.wait_until(is_in_sync, "both replicas in sync")
        assert asyncio.run(send(b"small")) == 1
        cluster.stop(1)


def test_a_taken_port_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        options = ["--id", "1", "--data", str(tmp_path), "--port", str(port)]
        output = subprocess.run(
            [sys.executable, "-m", "odradek", "broker", *options],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert output.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in output.stderr
    assert "Traceback" not in output.stderr


@pytest.mark.process
def test_a_properties_file_and_what_wins(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# a file of Kafka's\nbroker.id=7\nnum.network.threads=3\n"
        f"log.dirs={tmp_path}/elsewhere\nnum.partitions = 4\n"
    )
    broker = BrokerProcess(tmp_path / "home", "num.partitions=5", broker_id=8)
    broker.options = ("--config", str(file))
    broker.start()
    try:
        assert (tmp_path / "elsewhere" / "meta.properties").exists()
        assert "broker.id=8" in (tmp_path / "elsewhere" / "meta.properties").read_text()
        assert any("num.network.threads=3 has no effect" in line for line in broker.log)
    finally:
        assert broker.stop() == 0


def test_a_broker_keeps_its_logs_where_up_does(tmp_path: Path) -> None:
    cluster = str(tmp_path)
    assert find_home(cluster, "1") == Home(f"{cluster}/broker-1", cluster)
    assert find_home(f"{cluster}/broker-1", "1").cluster == f"{cluster}/broker-1", "not one of up"
    (tmp_path / "metadata.db").touch()
    assert find_home(f"{cluster}/broker-1", "1") == Home(f"{cluster}/broker-1", cluster)
    assert find_home(f"{cluster}/broker-1", "2").cluster == f"{cluster}/broker-1", "not its own"
    assert find_home(cluster, "1").is_alone
    (tmp_path / "broker-2").mkdir()
    assert not find_home(cluster, "1").is_alone


@pytest.mark.process
def test_a_broker_alone_starts_again_on_its_directory(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    for _ in range(2):
        broker.start()
        assert (tmp_path / "broker-1" / "meta.properties").exists()
        assert (tmp_path / "metadata.db").exists()
        assert broker.stop() == 0
