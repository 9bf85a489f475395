"""A secure cluster of processes, and today's clients on it."""

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import TopicAuthorizationFailedError
from tests.cli.conftest import CommandLine

from odradek import Cluster
from odradek.cli.main import main
from odradek.testing.cluster import ClusterError

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, secure=True) as running:
        running.add_user("alice", "p w,=ä")
        yield running


@pytest.fixture(scope="module")
def odradek(cluster: Cluster) -> CommandLine:
    command = CommandLine(cluster.bootstrap_servers)
    assert cluster.security_files is not None
    command.environment["ODRADEK_COMMAND_CONFIG"] = str(cluster.security_files.client_file)
    return command


def python_settings(config: dict[str, str]) -> dict[str, Any]:
    """As kafka-python and aiokafka name them."""
    return {
        "bootstrap_servers": config["bootstrap.servers"],
        "security_protocol": config["security.protocol"],
        "sasl_mechanism": config["sasl.mechanism"],
        "sasl_plain_username": config["sasl.username"],
        "sasl_plain_password": config["sasl.password"],
    }


def produce(config: dict[str, str], topic: str) -> KafkaError | None:
    """The error of one delivery with librdkafka."""
    outcomes: list[KafkaError | None] = []
    producer = Producer({**config, "message.timeout.ms": int(TIMEOUT_S * 1000)})
    producer.produce(topic, b"hello", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(TIMEOUT_S)
    return outcomes[0]


def test_librdkafka_logs_in_and_only_with_permission(
    cluster: Cluster, odradek: CommandLine
) -> None:
    odradek("topics", "create", "rd", "--partitions", "1")
    assert produce(cluster.client_config(), "rd") is None
    alice = cluster.client_config("alice")
    refused = produce(alice, "rd")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    grant = ("acls", "add", "--allow-principal", "User:alice", "--topic", "rd")
    odradek(*grant, "--producer", "--consumer", "--group", "g")
    assert produce(alice, "rd") is None
    consumer = Consumer({**alice, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["rd"])
        values = [message.value() for message in consumer.consume(2, TIMEOUT_S)]
        assert values == [b"hello", b"hello"]
    finally:
        consumer.close()
    listed = odradek.json("acls", "list", "--principal", "User:alice")
    assert {(row["type"], row["operation"]) for row in listed} == {
        ("Topic", "Write"),
        ("Topic", "Create"),
        ("Topic", "Describe"),
        ("Topic", "Read"),
        ("Group", "Read"),
    }
    odradek("acls", "delete", "--topic", "rd", "--yes")
    cluster.wait_until(lambda: produce(alice, "rd") is not None, "the permission to be gone")


def test_a_wrong_password_is_refused(cluster: Cluster) -> None:
    errors: list[KafkaError] = []
    config = {**cluster.client_config(), "sasl.password": "wrong", "error_cb": errors.append}
    producer = Producer(config)
    cluster.wait_until(lambda: producer.poll(0.1) or errors, "the login to be refused")
    assert errors[0].code() == KafkaError._AUTHENTICATION


def test_a_command_without_settings_says_to_give_them(cluster: Cluster) -> None:
    plain = CommandLine(cluster.bootstrap_servers)
    result = plain.run("topics", "list", "--timeout", "2")
    assert result.exit_code == 1
    assert "is closed); if the cluster is secured, give --command-config" in result.stderr


def test_kafka_python_logs_in(cluster: Cluster, odradek: CommandLine) -> None:
    odradek("topics", "create", "python", "--partitions", "1")
    assert cluster.security_files is not None
    settings = python_settings(cluster.client_config())
    settings["ssl_cafile"] = str(cluster.security_files.authority_file)
    producer = KafkaProducer(**settings)
    producer.send("python", b"hello").get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer("python", auto_offset_reset="earliest", **settings)
    assert next(consumer).value == b"hello"
    consumer.close()
    settings |= python_settings(cluster.client_config("alice"))
    producer = KafkaProducer(max_block_ms=int(TIMEOUT_S * 1000), **settings)
    with pytest.raises(TopicAuthorizationFailedError):
        producer.send("python", b"hello").get(TIMEOUT_S)
    producer.close()


async def test_aiokafka_logs_in(cluster: Cluster, odradek: CommandLine) -> None:
    import ssl

    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import TopicAuthorizationFailedError

    await asyncio.to_thread(odradek, "topics", "create", "aio", "--partitions", "1")
    assert cluster.security_files is not None
    authority = str(cluster.security_files.authority_file)
    context = ssl.create_default_context(cafile=authority)
    settings = {**python_settings(cluster.client_config()), "ssl_context": context}
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait("aio", b"hello")
    consumer = AIOKafkaConsumer("aio", auto_offset_reset="earliest", **settings)
    async with consumer:
        async with asyncio.timeout(TIMEOUT_S):
            assert (await consumer.getone()).value == b"hello"
    settings |= python_settings(cluster.client_config("alice"))
    async with AIOKafkaProducer(**settings) as producer:
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send_and_wait("aio", b"hello")


def test_the_command_line_manages_users(cluster: Cluster, odradek: CommandLine) -> None:
    odradek("users", "add", "bob", input="secret\n")
    names = {row["name"] for row in odradek.json("users", "list")}
    assert {"admin", "broker", "alice", "bob"} <= names
    odradek("users", "delete", "bob")
    assert "bob" not in odradek("users", "list")
    assert "ghost" in odradek.refused("users", "delete", "ghost")


def test_brokers_are_killed_and_come_back(cluster: Cluster, odradek: CommandLine) -> None:
    odradek("topics", "create", "survives", "--partitions", "3", "--replication-factor", "3")
    cluster.kill(2)
    assert produce(cluster.client_config(), "survives") is None
    cluster.start(2)
    cluster.wait_until(
        lambda: odradek.run("status").exit_code == 0, "every replica to be in sync again"
    )


def test_its_metrics_are_found(cluster: Cluster) -> None:
    with urlopen(f"http://{cluster.http_address(1)}/livez", timeout=TIMEOUT_S) as response:
        assert response.status == 200


def test_only_the_owner_reads_the_files(cluster: Cluster) -> None:
    assert cluster.security_files is not None
    directory = cluster.security_files.directory
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for path in directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    passwords = [
        cluster.client_config()["sasl.password"],
        cluster.client_config("alice")["sasl.password"],
    ]
    for broker in cluster.ids:
        log = cluster.log_of(broker).read_text()
        arguments = Path(f"/proc/{cluster.process_id(broker)}/cmdline").read_text()
        assert not any(password in log + arguments for password in passwords)


def test_users_need_a_secure_cluster(tmp_path: Path) -> None:
    open_cluster = Cluster(brokers=1, data_dir=tmp_path)
    assert open_cluster.client_config() == {"bootstrap.servers": open_cluster.bootstrap_servers}
    with pytest.raises(ClusterError, match="secure=True"):
        open_cluster.add_user("a", "b")
    with pytest.raises(ClusterError, match="secure=True"):
        open_cluster.client_config("a")


def test_init_makes_everything_once_and_prints_no_secret(tmp_path: Path) -> None:
    arguments = ["security", "init", "--data", str(tmp_path / "data")]
    first = CliRunner().invoke(main, arguments)
    assert first.exit_code == 0, first.output
    files = tmp_path / "data" / "security"
    kept = {path.name: path.read_text() for path in files.iterdir()}
    again = CliRunner().invoke(main, arguments)
    assert again.output == first.output
    assert {path.name: path.read_text() for path in files.iterdir()} == kept
    line = next(
        line for line in kept["admin.librdkafka.properties"].splitlines() if "password" in line
    )
    assert line.partition("=")[2] not in first.output
    arguments[-1] = f"{os.devnull}/data"
    refused = CliRunner().invoke(main, arguments)
    assert refused.output == f"Error: {os.devnull}/data: Not a directory\n"
