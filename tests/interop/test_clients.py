"""The current Java client, idempotent through a leader's death, and franz-go on ours."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.harness.kafka import KAFKA_4
from tests.interop.harness.toolbox import Toolbox

from odradek import Cluster

RECORDS = 20_000
GO = Path(__file__).parent / "harness" / "go"


@pytest.fixture
def tools_4() -> Iterator[Toolbox]:
    with Toolbox(KAFKA_4) as toolbox:
        yield toolbox


def test_each_record_once_through_a_leaders_death(tools_4: Toolbox) -> None:
    with Cluster(brokers=3, config={"min.insync.replicas": 2}) as cluster:
        servers = cluster.bootstrap_servers
        create = ("--create", "--topic", "t", "--partitions", "1", "--replication-factor", "3")
        tools_4.run("kafka-topics", "--bootstrap-server", servers, *create)
        cluster.wait_until(lambda: cluster.leader("t") is not None, "a leader")
        leader = cluster.leader("t")
        assert leader is not None
        dying = threading.Timer(2, cluster.kill, [leader])
        dying.start()
        printed = tools_4.run(
            "kafka-producer-perf-test",
            *("--topic", "t", "--num-records", str(RECORDS), "--record-size", "100"),
            *("--throughput", str(RECORDS // 5)),
            *("--producer-props", f"bootstrap.servers={servers}", "acks=all"),
            "enable.idempotence=true",
        )
        dying.join()
        assert leader not in cluster.running()
        assert f"{RECORDS} records sent" in printed.splitlines()[-1], printed
        offsets = tools_4.run("kafka-get-offsets", "--bootstrap-server", servers, "--topic", "t")
        assert offsets.split() == [f"t:0:{RECORDS}"]
        cluster.start(leader)  # the groups' topic wants three brokers
        read = tools_4.run(
            "kafka-console-consumer",
            *("--bootstrap-server", servers, "--topic", "t", "--group", "g", "--from-beginning"),
            *("--max-messages", str(RECORDS), "--timeout-ms", "30000"),
        )
        assert len(read.splitlines()) == RECORDS


@pytest.fixture(scope="session")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go here")
    program = tmp_path_factory.mktemp("go") / "smoke"
    built = subprocess.run(
        [go, "build", "-o", program, "."], cwd=GO, capture_output=True, text=True
    )
    if built.returncode and "dial tcp" in built.stderr:
        pytest.skip(f"the Go proxy cannot be reached: {built.stderr.splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    return program


def test_franz_go(franz_go: Path) -> None:
    with Cluster(brokers=3) as cluster:
        ran = subprocess.run(
            [franz_go, cluster.bootstrap_servers], capture_output=True, text=True, timeout=120
        )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "brokers 3",
        "produced 10000",
        "consumed 10000",
        "committed 10000",
        "deleted",
    ]
