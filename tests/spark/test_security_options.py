"""Security options of the Spark format: as options, or in a file, and nowhere to be seen."""

import asyncio
from pathlib import Path

import pytest
from tests.broker.clusters import cluster

from odradek.security.jaas import Module, jaas_text
from odradek.spark.client_settings import security_settings
from odradek.spark.lookup import connect
from odradek.spark.options import source_options
from odradek.spark.sink_options import sink_options

OPTIONS = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": jaas_text(Module.PLAIN, username="alice", password="hunter2"),
}


@pytest.mark.parametrize("in_file", [False, True])
async def test_a_source_logs_in(tmp_path: Path, in_file: bool) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl_enabled_mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas_text(
            Module.PLAIN, user_alice="hunter2"
        ),
    }
    options = OPTIONS
    if in_file:
        file = tmp_path / "client.properties"
        lines = (f"{name.removeprefix('kafka.')}={value}\n" for name, value in OPTIONS.items())
        file.write_text("".join(lines))
        options = {"kafka.odradek.config.file": str(file)}
    async with cluster(tmp_path, 1, **settings) as made:
        port = made.brokers[1].endpoints[1].port

        def ask() -> int:
            given = {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "subscribe": "t", **options}
            with connect(source_options(given, streaming=False)) as client:
                return len(client.run(client.admin.describe_cluster()).nodes)

        assert await asyncio.to_thread(ask) == 1


def test_secrets_are_not_in_the_text_of_options() -> None:
    given = {"kafka.bootstrap.servers": "h:1", **OPTIONS}
    source = source_options({**given, "subscribe": "t"}, streaming=True)
    sink = sink_options({**given, "topic": "t"})
    assert "hunter2" not in repr(source) + repr(sink)
    assert "hunter2" in security_settings(source.client)["sasl.jaas.config"]
    assert security_settings(sink.client) == security_settings(source.client)


def test_options_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.truststore.type=PEM\n")
    found = security_settings({"odradek.config.file": str(file), "security.protocol": "PLAINTEXT"})
    assert found["security.protocol"] == "PLAINTEXT"
    assert found["ssl.truststore.type"] == "PEM"
