"""Settings: layers, types, synonyms, and the message for a mistake."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.config import (
    BrokerConfig,
    DescribedSetting,
    Source,
    parse_assignments,
    validate_dynamic,
    validate_topic,
)
from odradek.broker.listeners import Listener, SecurityProtocol
from odradek.controller.config import ControllerConfig
from odradek.coordinator.config import GroupConfig
from odradek.log.cleaner import CleanerConfig
from odradek.log.config import LogConfig
from odradek.log.upkeep import UpkeepConfig
from odradek.replica.config import ReplicaConfig
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.settings import BROKER_SETTINGS, TOPIC_SETTINGS, Setting, parse

SOURCE = Path(__file__).parent.parent.parent / "src" / "odradek"


def described(entries: Iterable[DescribedSetting], name: str) -> DescribedSetting:
    return next(entry for entry in entries if entry.setting.name == name)


def test_the_defaults_are_kafkas_and_the_logs_own() -> None:
    assert BrokerConfig().log_config() == LogConfig()


@pytest.mark.parametrize("setting", BROKER_SETTINGS.values(), ids=lambda setting: setting.name)
def test_every_default_passes_its_own_rule_and_every_setting_is_explained(
    setting: Setting,
) -> None:
    parse(setting, setting.default)
    assert setting.doc


@pytest.mark.parametrize(
    ("written", "retention_ms"),
    [
        ({}, 7 * 24 * 3600 * 1000),
        ({"log.retention.hours": "1"}, 3600 * 1000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 2 * 60 * 1000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_a_synonym_wins(written: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig(written).log_config().retention_ms == retention_ms


def test_layers_stand_over_each_other() -> None:
    config = BrokerConfig({"broker.id": "1", "log.segment.bytes": "1000"})
    assert config.log_config().segment_bytes == 1000
    config.set_dynamic({}, {"log.segment.bytes": "2000"})
    assert config.log_config().segment_bytes == 2000
    config.set_dynamic({"log.segment.bytes": "3000"}, {"log.segment.bytes": "2000"})
    assert config.log_config().segment_bytes == 3000
    assert config.log_config({"segment.bytes": "4000"}).segment_bytes == 4000
    entry = described(config.describe_topic({"segment.bytes": "4000"}), "segment.bytes")
    assert entry.value == "4000"
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("segment.bytes", "4000", Source.TOPIC),
        ("log.segment.bytes", "3000", Source.DYNAMIC_BROKER),
        ("log.segment.bytes", "2000", Source.DYNAMIC_DEFAULT_BROKER),
        ("log.segment.bytes", "1000", Source.STATIC_BROKER),
        ("log.segment.bytes", "1073741824", Source.DEFAULT),
    ]
    config.set_dynamic({}, {})
    assert config.log_config().segment_bytes == 1000


def test_listeners_hear_what_changed_and_nothing_else() -> None:
    config = BrokerConfig()
    heard: list[frozenset[str]] = []
    config.on_change(heard.append)
    config.set_dynamic({"max.connections": "5"}, {})
    config.set_dynamic({"max.connections": "5"}, {})
    config.set_dynamic({}, {})
    assert heard == [frozenset({"max.connections"})] * 2


def test_what_another_broker_wrote_and_we_do_not_know_is_left_aside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = BrokerConfig()
    config.set_dynamic({"metric.reporters": "x", "max.connections": "many"}, {})
    assert config.integer("max.connections") == 2**31 - 1
    config.set_dynamic({"max.connections.per.ip.overrides": "127.0.0.1:several"}, {})
    assert config.text("max.connections.per.ip.overrides") == ""
    assert "several" in caplog.text
    assert "metric.reporters" in caplog.text
    assert "many" in caplog.text


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("log.retention.mss", "1", "did you mean log.retention.ms"),
        ("log.segment.bytes", "big", "INT"),
        ("log.segment.bytes", "3", "at least 14"),
        ("broker.id", str(2**31), "INT"),
        ("log.cleanup.policy", "shred", "compact, delete"),
        ("delete.topic.enable", "yes", "true or false"),
        ("max.connections.per.ip.overrides", "127.0.0.1:many", "a list of address:count"),
        ("max.connections.per.ip.overrides", "127.0.0.1", "a list of address:count"),
        ("max.connections.per.ip.overrides", "localhost:5", "a list of address:count"),
        ("listeners", "9092", "NAME://host:port"),
        ("listeners", "", "nowhere to listen"),
        ("listeners", "PLAINTEXT://0.0.0.0:9092", "no client can connect to 0.0.0.0"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "no client can connect to 0.0.0.0"),
        ("advertised.listeners", "SSL://h:1", "not in listeners"),
        ("inter.broker.listener.name", "internal", "INTERNAL is not among .* PLAINTEXT"),
    ],
)
def test_a_slip_is_explained(name: str, value: str, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as caught:
        BrokerConfig({name: value})
    assert caught.value.error is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"retention.mss": "1"}, "did you mean retention.ms"),
        ({"retention.ms": None}, "Null value"),
        ({"cleanup.policy": "delete,burn"}, "compact, delete"),
        ({"leader.replication.throttled.replicas": "1:x"}, "partition:broker"),
        ({"leader.replication.throttled.replicas": "\u00b2:1"}, "partition:broker"),
        # What no Apache broker can read would keep each of them from starting.
        ({"retention.ms": "86_400_000"}, "LONG"),
        ({"retention.ms": "\u00a01000"}, "LONG"),
        ({"min.cleanable.dirty.ratio": "0_1"}, "DOUBLE"),
        ({"compression.gzip.level": "0"}, "-1, or between 1 and 9"),
        ({"flush.ms": "-1"}, "at least 0"),
        ({"remote.storage.enable": "true"}, "no tiered storage"),
        ({"local.retention.ms": "-3"}, "at least -2"),
        ({"message.format.version": "latest"}, "a version of Kafka"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "is above"),
    ],
)
def test_a_topics_slip_is_explained(settings: dict[str, str | None], reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as caught:
        validate_topic(BrokerConfig(), settings)
    assert caught.value.error is ErrorCode.INVALID_CONFIG


def test_settings_of_kafka_without_effect_here_are_taken_and_say_so() -> None:
    settings = {
        "message.format.version": "2.8-IV1",
        "message.downconversion.enable": "false",
        "remote.storage.enable": "false",
        "local.retention.ms": "-2",
        "local.retention.bytes": "1000",
        "remote.log.copy.disable": "true",
        "remote.log.delete.on.disable": "true",
    }
    validate_topic(BrokerConfig(), settings)
    entries = {entry.setting.name: entry for entry in BrokerConfig().describe_topic(settings)}
    for name, text in settings.items():
        assert entries[name].value == text
        assert "Without effect" in entries[name].setting.doc or name == "remote.storage.enable"


def test_the_older_limit_on_timestamps_holds_where_the_newer_ones_have_none() -> None:
    older, after = "message.timestamp.difference.max.ms", "message.timestamp.after.max.ms"
    log = BrokerConfig({f"log.{older}": "9"}).log_config({after: "5"})
    assert (log.timestamp_before_max_ms, log.timestamp_after_max_ms) == (9, 5)
    log = BrokerConfig().log_config({older: "7"})
    assert (log.timestamp_before_max_ms, log.timestamp_after_max_ms) == (7, 7)


def test_topic_settings_that_are_right_are_taken() -> None:
    settings = {
        "cleanup.policy": "compact, delete",
        "leader.replication.throttled.replicas": "0:1,1:2",
        "follower.replication.throttled.replicas": "*",
        "retention.ms": "-1",
    }
    validate_topic(BrokerConfig(), settings)
    log = BrokerConfig().log_config(settings)
    assert log.cleanup_policy == {"compact", "delete"}
    assert log.leader_replication_throttled_replicas == {"0:1", "1:2"}
    assert log.retention_ms == -1


def test_only_dynamic_settings_change_while_brokers_run() -> None:
    validate_dynamic({"log.retention.ms": "1"}, per_broker=False)
    validate_dynamic({"leader.replication.throttled.rate": "1"}, per_broker=True)
    with pytest.raises(KafkaError, match=r"INVALID_REQUEST.*dynamically: Set\(broker.id\)"):
        validate_dynamic({"broker.id": "1"}, per_broker=True)
    with pytest.raises(KafkaError, match="broker id must be specified"):
        validate_dynamic({"max.connections.per.ip": "1"}, per_broker=False)
    with pytest.raises(KafkaError, match="at least"):
        validate_dynamic({"log.segment.bytes": "1"}, per_broker=True)


def test_a_throttle_is_described_only_while_it_is_set() -> None:
    config = BrokerConfig({"broker.id": "7"})
    name = "leader.replication.throttled.rate"
    assert name not in {entry.setting.name for entry in config.describe_broker()}
    config.set_dynamic({name: "9"}, {})
    setting = described(config.describe_broker(), name)
    assert [(each.value, each.source) for each in setting.synonyms] == [
        ("9", Source.DYNAMIC_BROKER)
    ]


def test_describing_a_broker_says_what_is_fixed() -> None:
    config = BrokerConfig({"broker.id": "7"})
    fixed = described(config.describe_broker(), "broker.id")
    assert (fixed.value, fixed.source, fixed.read_only) == ("7", Source.STATIC_BROKER, True)
    free = described(config.describe_broker(), "log.retention.ms")
    assert (free.value, free.source, free.read_only) == (None, Source.DEFAULT, False)
    assert free.synonyms == ()  # log.retention.hours alone is none
    hours = described(config.describe_broker(), "log.retention.hours")
    assert [each.name for each in hours.synonyms] == ["log.retention.hours"]
    config.set_dynamic({}, {"log.retention.ms": "9"})
    assert [entry.setting.name for entry in config.describe_cluster_default()] == [
        "log.retention.ms"
    ]


def test_a_kafka_file_may_name_what_has_no_effect_here(caplog: pytest.LogCaptureFixture) -> None:
    BrokerConfig({"num.network.threads": "3"})
    assert "num.network.threads=3 has no effect" in caplog.text


def test_listeners() -> None:
    config = BrokerConfig({"listeners": "plaintext://[::1]:0, SASL_PLAINTEXT://h:2"})
    assert config.listeners() == [
        Listener("PLAINTEXT", "::1", 0),
        Listener("SASL_PLAINTEXT", "h", 2, SecurityProtocol.SASL_PLAINTEXT),
    ]


NAMES = "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,SECURE:SSL"


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ({"listeners": "SSL://:9093"}, "security.inter.broker.protocol"),
        ({"listeners": "OTHER://:1"}, "listener.security.protocol.map"),
        ({"listener.security.protocol.map": "PLAINTEXT:TELNET"}, "NAME:PROTOCOL"),
        ({"listeners": "PLAINTEXT://a:1,SSL://b:1"}, "different port"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "different name"),
        (
            {
                "inter.broker.listener.name": "PLAINTEXT",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "Only one of",
        ),
        ({"control.plane.listener.name": "X"}, "control.plane.listener.name X is not among"),
        ({"control.plane.listener.name": "PLAINTEXT"}, "must not be the inter-broker listener"),
        ({"listener.name.x.sasl.nonsense": "1"}, "Unknown broker config name"),
        *(
            ({name: "x"}, f"Unknown broker config name: {name}")
            for name in (
                *("ssl.engine.factory.class", "principal.builder.class", "security.providers"),
                *("controller.listener.names", "authorizer.zookeeper.url"),
            )
        ),
        ({"advertised.listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "advertised.*different name"),
        (
            {"connection.failed.authentication.delay.ms": "500", "connections.max.idle.ms": "500"},
            "connection.failed.authentication.delay.ms 500 must be below connections.max.idle.ms",
        ),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip can be 0 only with"),
        ({"listener.name.x.plain.ssl.client.auth": "none"}, "Unknown broker config name"),
    ],
)
def test_wrong_listeners_refuse_the_start(written: dict[str, str], complaint: str) -> None:
    with pytest.raises(KafkaError, match=complaint):
        BrokerConfig(written)


def test_what_looks_like_a_wrong_limit_and_is_none() -> None:
    BrokerConfig({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "::1:5"})
    BrokerConfig(
        {"connection.failed.authentication.delay.ms": "500", "connections.max.idle.ms": "-1"}
    )


def test_an_ipv4_and_an_ipv6_address_may_share_a_port() -> None:
    both = "PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092"
    assert len(BrokerConfig({"listeners": both}).listeners()) == 2


def test_a_listener_may_have_settings_of_its_own() -> None:
    config = BrokerConfig(
        {
            "listener.security.protocol.map": NAMES,
            "ssl.client.auth": "requested",
            "listener.name.secure.ssl.client.auth": "required",
            "listener.name.secure.plain.connections.max.reauth.ms": "5",
        }
    )
    assert config.listener_value("SECURE", "ssl.client.auth") == "required"
    assert config.listener_value("INTERNAL", "ssl.client.auth") == "requested"
    assert config.listener_value("SECURE", "connections.max.reauth.ms", "PLAIN") == "5"
    assert config.listener_value("SECURE", "connections.max.reauth.ms", "OAUTHBEARER") == "0"
    assert config.listener_value("SECURE", "ssl.keystore.type") == "JKS"
    described = {entry.setting.name: entry for entry in config.describe_broker()}
    assert described["listener.name.secure.ssl.client.auth"].value == "required"


def test_a_secret_is_sensitive_under_every_name() -> None:
    config = BrokerConfig(
        {
            "ssl.keystore.password": "hunter2",
            "listener.name.x.scram-sha-256.sasl.jaas.config": "hunter2",
        }
    )
    described = {entry.setting.name: entry for entry in config.describe_broker()}
    assert described["ssl.keystore.password"].is_sensitive
    assert described["listener.name.x.scram-sha-256.sasl.jaas.config"].is_sensitive


def test_brokers_meet_at_a_listener_that_is_advertised() -> None:
    written = {
        "listeners": "PLAINTEXT://0.0.0.0:1,INTERNAL://:2",
        "listener.security.protocol.map": NAMES,
    }
    settings = {**written, "advertised.listeners": "INTERNAL://h:2"}
    with pytest.raises(KafkaError, match="inter-broker listener PLAINTEXT"):
        BrokerConfig(settings)
    named = {**settings, "inter.broker.listener.name": "internal"}
    assert BrokerConfig(named).inter_broker_listener() == "INTERNAL"
    with pytest.raises(KafkaError, match="PLAINTEXT is not among"):
        BrokerConfig({**settings, "inter.broker.listener.name": "PLAINTEXT"})


def test_command_line_assignments() -> None:
    assert parse_assignments(["a=b=c", " x = "]) == {"a": "b=c", "x": ""}
    with pytest.raises(KafkaError, match="name=value"):
        parse_assignments(["a"])


def test_the_inter_broker_protocol_takes_what_kafka_takes_in_our_range() -> None:
    def replica_protocol(text: str) -> ProtocolVersion:
        return BrokerConfig({"inter.broker.protocol.version": text}).make(ReplicaConfig).protocol

    assert BrokerConfig({}).make(ReplicaConfig).protocol is ProtocolVersion.V3_9_IV0
    assert replica_protocol("3.5") is replica_protocol("3.5.1") is replica_protocol("3.5-IV2")
    for text in ("4.0", "3.5-iv2", "2.5"):
        with pytest.raises(KafkaError, match=r"2\.6-IV0 to 3\.9-IV0") as caught:
            replica_protocol(text)
        assert f"Invalid value {text} for configuration inter.broker" in caught.value.message


def test_every_setting_is_honoured_somewhere() -> None:
    """A row of the table that no code reads would be a promise that nobody keeps."""
    synonyms = {name for topic in TOPIC_SETTINGS.values() for name, _ in topic.synonyms}
    text = "\n".join(
        path.read_text() for path in SOURCE.rglob("*.py") if path.name != "settings.py"
    )
    unread = [name for name in BROKER_SETTINGS if name not in synonyms and f'"{name}"' not in text]
    assert not unread


@pytest.mark.parametrize(
    "kind", [CleanerConfig, ControllerConfig, GroupConfig, LogConfig, ReplicaConfig, UpkeepConfig]
)
def test_a_packages_defaults_are_those_of_the_table(kind: Any) -> None:
    """Also where an empty config stands for them, as in tests."""
    config = BrokerConfig()
    made = config.log_config() if kind is LogConfig else config.make(kind)
    assert made == kind()


def test_a_packages_config_has_what_the_operator_wrote() -> None:
    config = BrokerConfig(
        {
            "log.flush.scheduler.interval.ms": "7",
            "offsets.retention.minutes": "2",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        }
    )
    assert config.make(UpkeepConfig).flush_scheduler_interval_ms == 7
    assert config.make(GroupConfig).offsets_retention_ms == 120_000
    assert config.make(ReplicaConfig).rack_aware_replica_selector
    named = config.make(ControllerConfig, inter_broker_listener_name="INTERNAL")
    assert named.inter_broker_listener_name == "INTERNAL"


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
def test_no_setting_keeps_out_those_who_could_take_it_back(name: str) -> None:
    with pytest.raises(KafkaError, match="could not connect any more"):
        validate_dynamic({name: "1"}, per_broker=True)
    validate_dynamic({name: "100"}, per_broker=True)
    assert BrokerConfig({name: "1"}).integer(name) == 1
