"""Java's clients and franz-go on ours: a leader's death, and what is committed of transactions."""

import subprocess
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from tests.interop.harness.copying import go_program
from tests.interop.harness.kafka import KAFKA_4
from tests.interop.harness.toolbox import Toolbox

from odradek import Cluster

RECORDS = 20_000
WAIT_S = 60.0


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


def test_java_reads_what_is_committed_and_nothing_undecided(
    tools: Toolbox, tools_4: Toolbox
) -> None:
    with Cluster(brokers=3, config={"log.segment.bytes": 1000}) as cluster:
        servers = cluster.bootstrap_servers
        create = ("--create", "--topic", "t", "--partitions", "1", "--replication-factor", "3")
        tools.run("kafka-topics", "--bootstrap-server", servers, *create)
        producer = Producer({"bootstrap.servers": servers, "transactional.id": "t"})
        producer.init_transactions(WAIT_S)
        for number in range(21):
            producer.begin_transaction()
            for _ in range(10):
                producer.produce("t", str(number), partition=0)
            assert producer.flush(WAIT_S) == 0
            if number % 2:
                producer.abort_transaction(WAIT_S)
            elif number < 20:
                producer.commit_transaction(WAIT_S)
        wanted = [str(number) for number in range(0, 20, 2) for _ in range(10)]
        for toolbox in (tools, tools_4):
            # It is asked for a record more than there is to read, and says that it has waited.
            printed = toolbox.try_run(
                "kafka-console-consumer",
                *("--bootstrap-server", servers, "--topic", "t", "--partition", "0"),
                *("--offset", "earliest", "--isolation-level", "read_committed"),
                *("--max-messages", str(len(wanted) + 1), "--timeout-ms", "5000"),
            )
            assert printed.out.split() == wanted, printed
            assert "TimeoutException" in printed.err, printed


def test_franz_go() -> None:
    program = go_program("smoke")
    with Cluster(brokers=3) as cluster:
        ran = subprocess.run(
            [program, cluster.bootstrap_servers], capture_output=True, text=True, timeout=120
        )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "brokers 3",
        "produced 10000",
        "consumed 10000",
        "committed 10000",
        "deleted",
    ]
