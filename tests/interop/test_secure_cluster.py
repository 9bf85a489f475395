"""Apache Kafka's brokers and ours as one secure cluster: SCRAM over TLS between them, one set of
users, ACLs and tokens for both, and Kafka's tools that print the same against either."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.interop.conftest import _numbers
from tests.interop.harness.members import wait_until
from tests.interop.harness.mixed import APACHE, OURS
from tests.interop.harness.secure import SecureMixedCluster
from tests.interop.harness.toolbox import Toolbox
from tests.interop.harness.traffic import Traffic, check_nothing_lost, read_all
from tests.interop.test_one_cluster import some_more

DESCRIBE = ("--describe", "--owner-principal", "User:alice")
MEMBERS = {1: OURS, 2: OURS, 3: APACHE}


@pytest.fixture(scope="module")
def cluster(
    zookeeper: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureMixedCluster]:
    home = tmp_path_factory.mktemp("secure")
    chroot = f"{zookeeper}/cluster-{next(_numbers)}"
    with SecureMixedCluster(chroot, home, MEMBERS) as made:
        made.start()
        yield made


def logs_in(cluster: SecureMixedCluster, broker: int, user: str, password: str = "") -> bool:
    try:
        AdminClient({**cluster.librdkafka(broker, user, password)}).list_topics(timeout=5)
    except KafkaException:
        return False
    return True


def test_either_leads_controls_and_is_killed(cluster: SecureMixedCluster) -> None:
    cluster.create_topic("t", {0: [1, 3, 2], 1: [3, 1, 2]}, min_insync_replicas="2")
    for broker in cluster.ids:
        data, _ = cluster._nodes.get(f"/brokers/ids/{broker}")
        protocols = json.loads(data)["listener_security_protocol_map"]
        assert protocols == {"PLAINTEXT": "PLAINTEXT", "SECURE": "SASL_SSL"}
    with Traffic(cluster.bootstrap_servers, "t") as traffic:
        for controller in (3, 1):
            cluster.make_controller(controller)
            some_more(traffic)
            cluster.kill(controller)
            some_more(traffic)
            cluster.start(controller)
            cluster.wait_for_isr("t")
    check_nothing_lost(traffic, read_all(cluster.bootstrap_servers, "t", 2))
    assert cluster.check_logs_are_equal("t") > 0


def acls(cluster: SecureMixedCluster, tools: Toolbox, broker: int, *words: str) -> str:
    return tools.run(
        "kafka-acls",
        *("--bootstrap-server", cluster.secure_address(broker)),
        *("--command-config", cluster.client_file("admin")),
        *words,
    )


def produces(cluster: SecureMixedCluster, broker: int, user: str, topic: str) -> bool:
    failed = []
    producer = Producer({**cluster.librdkafka(broker, user), "message.timeout.ms": 30_000})
    producer.produce(topic, b"x", on_delivery=lambda error, _: failed.append(error))
    producer.flush(60)
    return failed == [None]


@pytest.mark.parametrize(("writer", "other"), [(1, 3), (3, 1)])
def test_each_sees_the_acls_that_the_other_wrote(
    cluster: SecureMixedCluster, tools: Toolbox, writer: int, other: int
) -> None:
    topic = f"acl-{writer}"
    cluster.create_topic(topic, {0: [1, 2, 3]})
    words = ("--topic", topic, "--allow-principal", "User:alice", "--producer")
    acls(cluster, tools, writer, "--add", *words)

    def listed(broker: int) -> bool:
        return "User:alice" in acls(cluster, tools, broker, "--list", "--topic", topic)

    wait_until(lambda: listed(other), "the other to list it")
    assert produces(cluster, other, "alice", topic)
    acls(cluster, tools, other, "--remove", "--force", *words)
    wait_until(lambda: not listed(writer), "the writer to see that it is gone")


@pytest.mark.parametrize(("controller", "other"), [(1, 3), (3, 1)])
def test_users_are_made_by_either_controller_and_keep_their_quotas(
    cluster: SecureMixedCluster, tools: Toolbox, controller: int, other: int
) -> None:
    cluster.make_controller(controller)
    user, password = f"made-by-{controller}", "ª\u00a0x"

    def configs(*words: str) -> str:
        return tools.run(
            "kafka-configs",
            *("--bootstrap-server", cluster.secure_address(other)),
            *("--command-config", cluster.client_file("admin")),
            *("--entity-type", "users", "--entity-name", user, *words),
        )

    configs("--alter", "--add-config", "consumer_byte_rate=1000000")
    configs("--alter", "--add-config", f"SCRAM-SHA-256=[iterations=8192,password={password}]")
    wait_until(lambda: logs_in(cluster, other, user, password), "the user to log in there")
    wait_until(lambda: logs_in(cluster, controller, user, password), "and here")
    assert not logs_in(cluster, other, user, "wrong")
    described = configs("--describe")
    assert "consumer_byte_rate=1000000" in described
    assert "SCRAM-SHA-256=iterations=8192" in described


def tokens(cluster: SecureMixedCluster, tools: Toolbox, broker: int, *words: str) -> str:
    return tools.run(
        "kafka-delegation-tokens",
        *("--bootstrap-server", cluster.secure_address(broker)),
        *("--command-config", cluster.client_file("alice")),
        *words,
    )


@pytest.mark.parametrize(("maker", "other"), [(1, 3), (3, 1)])
def test_a_token_made_by_one_logs_in_on_the_other(
    cluster: SecureMixedCluster, tools: Toolbox, maker: int, other: int
) -> None:
    made = tokens(cluster, tools, maker, "--create", "--max-life-time-period", "-1")
    token_id, hmac = re.findall(r"^(\S{22})\s+(\S+)\s", made, re.MULTILINE)[0]
    assert len(base64.b64decode(hmac)) == 64
    renew = ("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    wait_until(lambda: token_id in tokens(cluster, tools, other, *DESCRIBE), "the other to know it")
    tokens(cluster, tools, other, *renew)
    file = cluster.client_file(token_id, hmac, tokenauth="true")
    listed = tools.run(
        "kafka-topics",
        *("--bootstrap-server", cluster.secure_address(other), "--command-config", file, "--list"),
    )
    assert listed is not None
    refused = tools.try_run(
        "kafka-delegation-tokens",
        *("--bootstrap-server", cluster.secure_address(other), "--command-config", file),
        *("--create", "--max-life-time-period", "-1"),
    )
    assert "DelegationTokenDisabledException" not in refused.out + refused.err
    assert "not allowed" in refused.out + refused.err, "a token makes no token"
    tokens(cluster, tools, other, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    wait_until(
        lambda: token_id not in tokens(cluster, tools, maker, *DESCRIBE), "the maker to hear"
    )


SCRIPT = [
    "kafka-acls --list",
    "kafka-acls --add --allow-principal User:alice --operation Read --operation Describe"
    " --topic a --group g",
    "kafka-acls --add --allow-principal User:a=b,c --producer --topic p --resource-pattern-type"
    " prefixed",
    "kafka-acls --add --deny-principal User:bob --deny-host 10.0.0.1 --operation All --topic *",
    "kafka-acls --add --allow-principal User:alice --consumer --topic a --group g",
    "kafka-acls --add --allow-principal User:alice --producer --idempotent --topic a"
    " --transactional-id x",
    "kafka-acls --add --allow-principal User:ops --operation ClusterAction --cluster",
    "kafka-acls --add --allow-principal User:ops --operation Describe --delegation-token t",
    "kafka-acls --add --allow-principal User:ops --operation CreateTokens --user-principal"
    " User:alice",
    "kafka-acls --list",
    "kafka-acls --list --topic a",
    "kafka-acls --list --topic pqr --resource-pattern-type match",
    "kafka-acls --list --topic p --resource-pattern-type prefixed",
    "kafka-acls --list --principal User:alice",
    "kafka-acls --list --cluster",
    "kafka-acls --remove --force --allow-principal User:alice --operation Read --topic a",
    "kafka-acls --remove --force --topic p --resource-pattern-type prefixed",
    "kafka-acls --remove --force --group g",
    "kafka-acls --list",
    "kafka-configs --alter --entity-type users --entity-name carol"
    " --add-config SCRAM-SHA-256=[iterations=8192,password=x],SCRAM-SHA-512=[password=y]",
    "kafka-configs --alter --entity-type users --entity-name carol"
    " --add-config SCRAM-SHA-256=[iterations=4095,password=x]",
    "kafka-configs --alter --entity-type users --entity-name carol"
    " --add-config producer_byte_rate=5",
    "kafka-configs --describe --entity-type users --entity-name carol",
    "kafka-configs --alter --entity-type users --entity-name carol --delete-config SCRAM-SHA-512",
    "kafka-configs --describe --entity-type users --entity-name carol",
    "kafka-configs --describe --entity-type users --entity-name nemo",
    "kafka-configs --alter --entity-type users --entity-name carol --delete-config"
    " SCRAM-SHA-256,producer_byte_rate",
    "kafka-configs --alter --entity-type ips --entity-name 127.0.0.9"
    " --add-config connection_creation_rate=7",
    "kafka-configs --describe --entity-type ips --entity-name 127.0.0.9",
    "kafka-configs --alter --entity-type ips --entity-default"
    " --add-config connection_creation_rate=700",
    "kafka-configs --describe --entity-type ips",
    "kafka-delegation-tokens --describe",
    "kafka-delegation-tokens --create --max-life-time-period -1 --renewer-principal User:bob",
    "kafka-delegation-tokens --describe --owner-principal User:admin",
    "kafka-delegation-tokens --describe --owner-principal User:nobody",
    "kafka-delegation-tokens --renew --renew-time-period -1 --hmac bm9uc2Vuc2U=",
]


def transcript(cluster: SecureMixedCluster, tools: Toolbox) -> list[str]:
    """What the tools print, with ids, secrets, times and the order of sets blotted out."""
    lines = []
    for command in SCRIPT:
        name, *words = command.split()
        printed = tools.try_run(
            name,
            *("--bootstrap-server", cluster.secure_address(cluster.ids[0])),
            *("--command-config", cluster.client_file("admin")),
            *words,
        )
        text = re.sub(r"[-\w]{22}\s+[+/=\w]{80,}", "TOKEN", printed.out + printed.err)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d", "TIME", text)
        text = re.sub(r"\d{4}[-/ ][-/: \dT.]+", "TIME", text)
        text = re.sub(r"[-\w]{22}\s", "ID ", text)
        kept = [line.strip() for line in text.splitlines() if line.strip()]
        kept = [line for line in kept if not line.startswith(("at ", "[", "Caused by"))]
        lines += [f"$ {command} -> {printed.status}", *sorted(kept)]
    return lines


def test_the_tools_print_the_same(zookeeper: str, tools: Toolbox, tmp_path: Path) -> None:
    printed = {}
    for kind in (APACHE, OURS):
        chroot = f"{zookeeper}/cluster-{next(_numbers)}"
        home = tmp_path / kind.value
        home.mkdir()
        settings = {"offsets.topic.replication.factor": 1}
        with SecureMixedCluster(chroot, home, {1: kind}, settings) as single:
            single.start()
            printed[kind] = transcript(single, tools)
    succeeded = [line for line in printed[APACHE] if line.endswith("-> 0")]
    assert len(succeeded) > len(SCRIPT) - 6, "the rest is refused on purpose"
    assert any("principal=User:a=b,c" in line for line in printed[APACHE])
    assert printed[OURS] == printed[APACHE]
