"""The settings of topics and brokers: read, changed, refused, and still there after a restart."""

from pathlib import Path

import pytest
from tests.broker.clusters import cluster, until

from odradek.store import paths
from odradek.store.paths import ConfigKind
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig as ConfigChange,
)
from odradek.wire.messages.incremental_alter_configs import (
    AlterConfigsResource as ConfigChanges,
)
from odradek.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek.wire.topics import TopicPartition

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
PER_ADDRESS = "max.connections.per.ip.overrides"


async def describe(
    connection: Connection, kind: int, name: str, keys: list[str] | None = None, version: int = 4
) -> dict[str, DescribeConfigsResourceResult]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        ],
        include_synonyms=version >= 1,
        include_documentation=version >= 3,
    )
    result = (await connection.request(request, version)).results[0]
    assert result.error_code == ErrorCode.NONE, result
    return {each.name: each for each in result.configs}


async def change(
    connection: Connection, kind: int, name: str, *changes: tuple[str, int, str | None]
) -> tuple[ErrorCode, str | None]:
    request = IncrementalAlterConfigsRequest(
        resources=[
            ConfigChanges(
                resource_type=kind,
                resource_name=name,
                configs=[
                    ConfigChange(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
        ]
    )
    answer = (await connection.request(request, 1)).responses[0]
    return ErrorCode(answer.error_code), answer.error_message


async def test_a_topics_settings(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t", segment_bytes="2000")
        connection = await made.connect(1)
        for version in range(5):
            described = await describe(connection, TOPIC, "t", version=version)
            assert described["segment.bytes"].value == "2000"
        assert described["segment.bytes"].config_source == 1
        assert described["segment.bytes"].documentation
        assert set(await describe(connection, TOPIC, "t", ["segment.bytes"])) == {"segment.bytes"}
        log = next(iter(made.brokers[1].logs.logs.values()))
        done = await change(connection, TOPIC, "t", ("segment.bytes", SET, "3000"))
        assert done == (ErrorCode.NONE, None)
        await until(lambda: log.config.segment_bytes == 3000)
        await change(connection, TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
        await until(lambda: log.config.cleanup_policy == {"compact", "delete"})
        await change(connection, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
        await until(lambda: log.config.cleanup_policy == {"compact"})
        await change(
            connection, TOPIC, "t", ("segment.bytes", DELETE, None), ("cleanup.policy", DELETE, "")
        )
        await until(lambda: log.config.segment_bytes == 1 << 30)
        assert log.config.cleanup_policy == {"delete"}
        whole = AlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name="t",
                    configs=[AlterableConfig(name="retention.ms", value="77")],
                )
            ]
        )
        assert (await connection.request(whole, 1)).responses[0].error_code == ErrorCode.NONE
        await until(lambda: log.config.retention_ms == 77)


async def test_settings_that_cannot_be(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        for kind, name, changes, error in (
            (TOPIC, "t", [("segment.bytes", SET, "x")], ErrorCode.INVALID_CONFIG),
            (TOPIC, "t", [("nonsense", SET, "1")], ErrorCode.INVALID_CONFIG),
            (TOPIC, "t", [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
            (TOPIC, "t", [("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
            (TOPIC, "t", [("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
            (TOPIC, "t", [("retention.ms", SET, "1")] * 2, ErrorCode.INVALID_REQUEST),
            (TOPIC, "nowhere", [("retention.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "", [("retention.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
            (BROKER, "1", [("broker.id", SET, "2")], ErrorCode.INVALID_REQUEST),
            (BROKER, "2", [("max.connections", SET, "2")], ErrorCode.INVALID_REQUEST),
            (BROKER, "one", [("max.connections", SET, "2")], ErrorCode.INVALID_REQUEST),
            (BROKER, "", [("max.connections.per.ip", SET, "2")], ErrorCode.INVALID_REQUEST),
            (BROKER, "1", [(PER_ADDRESS, SET, "127.0.0.1:many")], ErrorCode.INVALID_REQUEST),
            (99, "t", [("retention.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
        ):
            assert (await change(connection, kind, name, *changes))[0] is error, changes
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=kind, resource_name=name)
                for kind, name in ((TOPIC, "nowhere"), (BROKER, "7"), (99, "x"), (TOPIC, "a b"))
            ]
        )
        results = (await connection.request(request, 1)).results
        assert [ErrorCode(result.error_code) for result in results] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]


async def test_what_is_asked_twice_is_described_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        asked: list[tuple[int, str, list[str] | None]] = [
            (BROKER, "1", None),
            (TOPIC, "t", ["retention.ms"]),
            (BROKER, "1", []),
            (TOPIC, "t", ["retention.ms"]),
            (TOPIC, "t", ["cleanup.policy"]),
        ]
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=keys
                )
                for kind, name, keys in asked
            ]
        )
        first, *others = (await connection.request(request, 1)).results
        assert first.resource_name == "1"
        assert len(first.configs) > 50
        assert [each.name for result in others for each in result.configs] == [
            "retention.ms",
            "cleanup.policy",
        ]


async def test_what_a_request_says_twice_or_leaves_out_is_refused_and_changes_nothing(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t", retention_ms="1000")
        connection = await made.connect(1)

        async def whole(*resources: list[tuple[str, str | None]]) -> list[ErrorCode]:
            request = AlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=TOPIC,
                        resource_name="t",
                        configs=[AlterableConfig(name=key, value=value) for key, value in each],
                    )
                    for each in resources
                ]
            )
            answers = (await connection.request(request, 1)).responses
            return [ErrorCode(answer.error_code) for answer in answers]

        invalid = ErrorCode.INVALID_REQUEST
        assert await whole([("retention.ms", None)]) == [invalid]
        assert await whole([("segment.ms", "5"), ("retention.ms", None)]) == [invalid]
        assert await whole([("retention.ms", "1"), ("retention.ms", "2")]) == [invalid]
        assert await whole([("retention.ms", "5")], [("segment.ms", "7")]) == [invalid] * 2
        changes = [
            ConfigChanges(
                resource_type=TOPIC,
                resource_name=name,
                configs=[ConfigChange(name=key, config_operation=SET, value="7")],
            )
            for name, key in (("t", "retention.ms"), ("t", "segment.ms"), ("u", "segment.ms"))
        ]
        request = IncrementalAlterConfigsRequest(resources=changes)
        answers = (await connection.request(request, 1)).responses
        codes = [ErrorCode(answer.error_code) for answer in answers]
        assert codes == [invalid, invalid, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        kept = await made.brokers[1].store.configs.get(ConfigKind.TOPICS, "t")
        assert kept == {"retention.ms": "1000"}


async def test_a_brokers_settings(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2) as made:
        await made.create_topic("t", replicas=2)
        connection = await made.connect(1)
        described = await describe(connection, BROKER, "1")
        assert described["broker.id"].value == "1"
        assert described["broker.id"].read_only
        assert await describe(connection, BROKER, "") == {}
        done = await change(connection, BROKER, "", ("log.retention.ms", SET, "123"))
        assert done[0] is ErrorCode.NONE
        done = await change(
            connection, BROKER, "1", ("leader.replication.throttled.rate", SET, "5000")
        )
        assert done[0] is ErrorCode.NONE
        logs = [next(iter(each.logs.logs.values())) for each in made.brokers.values()]
        await until(lambda: all(log.config.retention_ms == 123 for log in logs))
        await until(lambda: made.brokers[1].replicas.leader_quota.bytes_per_second == 5000)
        assert made.brokers[2].replicas.leader_quota.bytes_per_second > 5000
        await change(connection, BROKER, "01", ("leader.replication.throttled.rate", SET, "6000"))
        await until(lambda: made.brokers[1].replicas.leader_quota.bytes_per_second == 6000)
        described = await describe(connection, TOPIC, "t", ["retention.ms"])
        assert described["retention.ms"].value == "123"
        assert [(each.name, each.source) for each in described["retention.ms"].synonyms] == [
            ("log.retention.ms", 3),
            ("log.retention.hours", 5),
        ]
        assert set(await describe(connection, BROKER, "")) == {"log.retention.ms"}


async def test_settings_outlive_a_restart(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t", segment_bytes="2000")
        connection = await made.connect(1)
        await change(connection, BROKER, "1", ("log.retention.ms", SET, "99"))
        await made.stop(1)
        broker = await made.start(1)
        log = next(iter(broker.logs.logs.values()))
        assert (log.config.segment_bytes, log.config.retention_ms) == (2000, 99)


async def test_settings_that_only_other_brokers_know_are_kept_and_described(
    tmp_path: Path,
) -> None:
    foreign = "internal.segment.bytes"  # of Kafka 4
    throttle = "leader.replication.throttled.replicas"
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        store = made.brokers[1].store
        connection = await made.connect(1)
        await store.configs.set(ConfigKind.TOPICS, "t", {foreign: "1000"})
        done = await change(connection, TOPIC, "t", (throttle, SET, "*"))
        assert done == (ErrorCode.NONE, None)
        kept = await store.configs.get(ConfigKind.TOPICS, "t")
        assert kept == {foreign: "1000", throttle: "*"}
        described = (await describe(connection, TOPIC, "t"))[foreign]
        # A setting of a type that is not known here may be a password, as in Kafka.
        assert (described.value, described.config_source, described.config_type) == (None, 1, 0)
        assert [(each.name, each.value) for each in described.synonyms] == [(foreign, None)]
        done = await change(connection, TOPIC, "t", (foreign, SET, "2000"))
        assert done[0] is ErrorCode.INVALID_CONFIG
        done = await change(connection, TOPIC, "t", (foreign, DELETE, None))
        assert done[0] is ErrorCode.NONE
        assert await store.configs.get(ConfigKind.TOPICS, "t") == {throttle: "*"}
        there = {"num.io.threads": "9", "num.replica.fetchers": "2"}
        await store.configs.set(ConfigKind.BROKERS, "1", there)
        done = await change(connection, BROKER, "1", ("log.retention.ms", SET, "99"))
        assert done == (ErrorCode.NONE, None)
        kept = await store.configs.get(ConfigKind.BROKERS, "1")
        assert kept == {**there, "log.retention.ms": "99"}
        done = await change(connection, BROKER, "1", ("num.replica.fetchers", SET, "3"))
        assert done[0] is ErrorCode.INVALID_REQUEST


async def test_unreadable_settings_are_skipped_and_the_others_applied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        await made.create_topic("u")
        store = made.brokers[1].store
        await store.configs.set(
            ConfigKind.BROKERS, "1", {PER_ADDRESS: "127.0.0.1:many", "log.retention.ms": "99"}
        )
        await store.configs.set(ConfigKind.CLIENTS, "c", {"producer_byte_rate": "fast"})
        await store.session.set(paths.config(ConfigKind.TOPICS, "u"), b"by hand")
        await store.configs.set(ConfigKind.TOPICS, "t", {"segment.bytes": "3000"})
        for entity in ("brokers/1", "clients/c", "topics/u", "topics/", "topics/t"):
            await store.configs.changes.notify(entity)

        def settings(topic: str) -> tuple[int, int]:
            config = made.brokers[1].logs.logs[TopicPartition(topic, 0)].config
            return config.segment_bytes, config.retention_ms

        await until(lambda: settings("t") == (3000, 99))
        assert settings("u") == (1 << 30, 99)
        for said in ("127.0.0.1:many", "/config/topics/u", "topics/ "):
            assert said in caplog.text
        await made.stop(1)
        await made.start(1)
        assert settings("t") == (3000, 99)
        assert settings("u") == (1 << 30, 99)
        # Settings are read as well when a log is made.
        await made.create_topic("v")


@pytest.mark.parametrize("allowed", [True, False])
async def test_what_was_said_of_unclean_elections_holds_after_a_restart(
    tmp_path: Path, allowed: bool
) -> None:
    said, otherwise = str(allowed).lower(), str(not allowed).lower()
    async with cluster(tmp_path, unclean_leader_election_enable=otherwise) as made:
        connection = await made.connect(1)
        await change(connection, BROKER, "", ("unclean.leader.election.enable", SET, said))
        await made.stop(1)
        back = await made.start(1)
        assert back.controller.config.unclean_leader_election_enable is allowed


async def test_unclean_elections_can_be_allowed_while_brokers_run(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=3) as made:
        await made.create_topic("t", replicas=1)
        connection = await made.connect(1)
        assert not made.controller.controller.config.unclean_leader_election_enable
        await change(connection, BROKER, "", ("unclean.leader.election.enable", SET, "true"))
        configs = [each.controller.config for each in made.brokers.values()]
        await until(lambda: all(each.unclean_leader_election_enable for each in configs))
        await change(connection, BROKER, "", ("unclean.leader.election.enable", DELETE, None))
        await until(lambda: not any(each.unclean_leader_election_enable for each in configs))
