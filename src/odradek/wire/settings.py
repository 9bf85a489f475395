"""Every setting that the code honours, declared once: Kafka's name, type, default, what is valid,
and where it may be changed while brokers run.

The same rows validate what an operator writes, answer DescribeConfigs, and give every package its
configuration: a field of a config dataclass is declared with `configured(name)` or
`topic_configured(name)`, which takes the default from here, and `BrokerConfig.make` fills it. A
topic setting names its synonyms, the broker settings that give its default, most specific first,
with the factor that turns their unit into its own (`log.retention.hours` into `retention.ms`).
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

from .errors import ErrorCode, KafkaError
from .protocol_version import ProtocolVersion
from .topics import TELEMETRY_TOPIC

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "Kind",
    "Scope",
    "Setting",
    "Value",
    "configured",
    "parse",
    "topic_configured",
]

# The key of a field's `SettingSource` in its metadata.
SOURCE = "setting"

Value: TypeAlias = bool | int | float | str | list[str] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308
NAME_LENGTH_MAX = 200
HOUR_MS = 3_600_000
MINUTE_MS = 60_000


class Kind(IntEnum):
    """Types of settings, numbered as DescribeConfigs v3 numbers them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(IntEnum):
    """Where a broker setting may be changed while brokers run (KIP-226)."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. `valid` says whether a parsed value is acceptable, `rule` says why."""

    name: str
    kind: Kind
    default: str | None
    doc: str
    scope: Scope = Scope.READ_ONLY
    valid: Callable[[Value], bool] | None = None
    rule: str = ""
    # For topic settings: broker settings that give the default, and the factor to our unit.
    synonyms: tuple[tuple[str, int], ...] = ()


_BITS = {Kind.INT: 31, Kind.SHORT: 15, Kind.LONG: 63}
JAVA_BLANKS = "".join(map(chr, range(33)))


def parse(setting: Setting, text: str | None) -> Value:
    """The typed value of a text. Raises KafkaError(INVALID_CONFIG) with the reason."""
    if text is None:
        return None
    text = text.strip(JAVA_BLANKS)
    value = _parsed(setting, text)
    if setting.valid is not None and not setting.valid(value):
        raise _invalid(setting, text, f"it must be {setting.rule}")
    return value


def _parsed(setting: Setting, text: str) -> Value:
    kind = setting.kind
    if kind is Kind.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise _invalid(setting, text, "Expected value to be either true or false")
        return text.lower() == "true"
    if kind is Kind.LIST:
        return [item.strip() for item in text.split(",")] if text else []
    if kind in _BITS or kind is Kind.DOUBLE:
        try:
            # What Python reads and Java does not, no Apache broker of the cluster could start with.
            if "_" in text or not text.isascii():
                raise ValueError(text)
            number = float(text) if kind is Kind.DOUBLE else int(text)
        except ValueError:
            raise _invalid(setting, text, f"Not a number of type {kind.name}") from None
        if kind in _BITS and not -(2 ** _BITS[kind]) <= number < 2 ** _BITS[kind]:
            raise _invalid(setting, text, f"Not a number of type {kind.name}")
        return number
    return text


class InvalidValue(KafkaError):
    """A value that a setting cannot have."""


def _invalid(setting: Setting, text: str, reason: str) -> InvalidValue:
    shown = "[hidden]" if setting.kind is Kind.PASSWORD else text
    return InvalidValue(
        ErrorCode.INVALID_CONFIG,
        f"Invalid value {shown} for configuration {setting.name}: {reason}",
    )


def unknown_name(name: str, known: Iterable[str], what: str) -> KafkaError:
    """The error for a name that is in no table; it suggests the nearest one that is."""
    import difflib  # only a misspelt name needs it

    # To compare a name of 32 kB with all there are would take a while, and finds nothing.
    near = difflib.get_close_matches(name[:NAME_LENGTH_MAX], known, n=1, cutoff=0.6)
    name = name if len(name) <= NAME_LENGTH_MAX else f"{name[:NAME_LENGTH_MAX]}..."
    hint = f"; did you mean {near[0]}?" if near else ""
    return KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown {what} config name: {name}{hint}")


def _range(low: float, high: float) -> Callable[[Value], bool]:
    return lambda value: isinstance(value, int | float) and low <= value <= high


def _number(
    kind: Kind,
    name: str,
    default: float | None,
    doc: str,
    low: float = -LONG_MAX - 1,
    high: float = LONG_MAX,
    scope: Scope = Scope.READ_ONLY,
) -> Setting:
    rule = f"at least {low}" if high == LONG_MAX else f"between {low} and {high}"
    text = None if default is None else str(default)
    return Setting(name, kind, text, doc, scope, _range(low, high), rule)


def _choice(
    name: str,
    default: str,
    choices: tuple[str, ...],
    doc: str,
    scope: Scope = Scope.READ_ONLY,
    kind: Kind = Kind.STRING,
) -> Setting:
    def valid(value: Value) -> bool:
        items = value if isinstance(value, list) else [value]
        return bool(items) and all(item in choices for item in items)

    rule = "of " + ", ".join(choices)
    return Setting(name, kind, default, doc, scope, valid, rule)


def _flag(
    name: str,
    default: bool,
    doc: str,
    scope: Scope = Scope.READ_ONLY,
) -> Setting:
    return Setting(name, Kind.BOOLEAN, str(default).lower(), doc, scope)


def _text(name: str, default: str | None, doc: str, scope: Scope = Scope.READ_ONLY) -> Setting:
    return Setting(name, Kind.STRING, default, doc, scope)


def connection_limits(text: str) -> dict[str, int]:
    """`address:count` pairs, separated by commas. Raises ValueError for anything else, also for a
    name: it could mean another address tomorrow."""
    limits = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        from ipaddress import ip_address  # costly, and seldom needed

        address, _, count = pair.rpartition(":")
        limits[str(ip_address(address.strip().strip("[]")))] = int(count)
    return limits


def _connection_limits(value: Value) -> bool:
    try:
        connection_limits(str(value))
    except ValueError:
        return False
    return True


def _is_protocol_version(value: Value) -> bool:
    try:
        ProtocolVersion.parse(str(value))
    except ValueError:
        return False
    return True


def _throttled_replicas(value: Value) -> bool:
    """Either everything (`*`), or partition:broker pairs."""
    if value in ([], ["*"], ["none"]):
        return True
    pairs = [item.split(":") for item in value] if isinstance(value, list) else [[]]
    return all(
        len(pair) == 2 and all(part.isascii() and part.isdigit() for part in pair) for pair in pairs
    )


INT, LONG, DOUBLE = Kind.INT, Kind.LONG, Kind.DOUBLE
WIDE, ONE = Scope.CLUSTER_WIDE, Scope.PER_BROKER
CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

_BROKER = (
    # The broker itself
    _number(INT, "broker.id", -1, "This broker's id, unique in the cluster.", -1, INT_MAX),
    _flag("broker.id.generation.enable", True, "Whether a broker without an id is assigned one."),
    _number(INT, "reserved.broker.max.id", 1000, "Generated broker ids are greater than this.", 0),
    _text(
        "broker.rack",
        None,
        "The rack of this broker, for replica placement and reads from the closest replica.",
    ),
    _text(
        "listeners",
        "PLAINTEXT://127.0.0.1:9092",
        "The addresses to listen on; port 0 picks a free port.",
    ),
    _text("advertised.listeners", None, "The addresses published to clients in metadata."),
    _text("inter.broker.listener.name", None, "The listener for connections between brokers."),
    _text("log.dir", None, "The one log directory, if log.dirs is not set."),
    _text("log.dirs", None, "The log directories, separated by commas."),
    _text("zookeeper.connect", None, "ZooKeeper hosts and chroot; --store takes precedence."),
    _number(
        INT,
        "zookeeper.session.timeout.ms",
        18000,
        "How long the metadata store keeps a session that is silent.",
        1,
    ),
    Setting(
        "inter.broker.protocol.version",
        Kind.STRING,
        str(ProtocolVersion.latest()),
        "The protocol between brokers and the format of metadata; raise it when all brokers run"
        " this release.",
        valid=_is_protocol_version,
        rule=f"a version from {ProtocolVersion.oldest()} to {ProtocolVersion.latest()}",
    ),
    # Connections
    _number(
        INT, "socket.request.max.bytes", 104857600, "The largest request accepted.", 1, INT_MAX
    ),
    _number(
        INT,
        "socket.send.buffer.bytes",
        -1,
        "SO_SNDBUF of connections; -1 keeps the system's default.",
        -1,
    ),
    _number(
        INT,
        "socket.receive.buffer.bytes",
        -1,
        "SO_RCVBUF of connections; -1 keeps the system's default.",
        -1,
    ),
    _number(
        INT,
        "socket.listen.backlog.size",
        1024,
        "The number of connections that may wait to be accepted.",
        1,
    ),
    _number(
        INT,
        "max.connections",
        INT_MAX,
        "The maximum number of connections; a listener used by brokers alone may exceed it.",
        0,
        INT_MAX,
        WIDE,
    ),
    _number(
        INT,
        "max.connection.creation.rate",
        INT_MAX,
        "The maximum rate of new connections per second; excess connections wait up to one second.",
        0,
        INT_MAX,
        WIDE,
    ),
    _number(
        INT,
        "max.connections.per.ip",
        INT_MAX,
        "The maximum number of connections from one address.",
        0,
        INT_MAX,
        ONE,
    ),
    Setting(
        "max.connections.per.ip.overrides",
        Kind.STRING,
        "",
        "Exceptions to max.connections.per.ip, as address:count pairs.",
        ONE,
        _connection_limits,
        "a list of address:count",
    ),
    _number(
        LONG, "connections.max.idle.ms", 600000, "The idle time after which a connection is closed."
    ),
    _number(
        INT,
        "queued.max.requests",
        500,
        "The maximum number of requests of one connection in progress.",
        1,
    ),
    _number(
        LONG,
        "queued.max.request.bytes",
        50331648,
        "The maximum size of all requests waiting to be processed; -1 means no limit.",
        -1,
    ),
    _number(
        LONG,
        "odradek.queued.max.response.bytes",
        50331648,
        "The maximum size of all responses that clients have not read yet; -1 means no limit.",
        -1,
    ),
    Setting(
        "odradek.http.listener",
        Kind.STRING,
        None,
        "host:port for metrics, health and the journal over HTTP; port 0 picks a free port.",
    ),
    Setting(
        "odradek.http.token",
        Kind.PASSWORD,
        None,
        "The bearer token that clients on other machines need for anything but metrics.",
    ),
    _number(
        INT,
        "odradek.metrics.topics.max",
        1000,
        "The maximum number of topics with metrics of their own; the others are aggregated.",
        0,
    ),
    _number(
        LONG,
        "odradek.telemetry.interval.ms",
        15000,
        "How often this broker publishes load measurements of its partitions; 0 disables it.",
        0,
    ),
    _text(
        "odradek.telemetry.topic",
        TELEMETRY_TOPIC,
        "The topic that load measurements are published to.",
    ),
    _number(
        LONG,
        "odradek.network.capacity",
        0,
        "The network bandwidth of this broker in bytes per second; 0 reads it from the system.",
        0,
    ),
    _choice(
        "odradek.event.loop",
        "asyncio",
        ("asyncio", "uvloop"),
        "The event loop of the broker's process. uvloop must be installed; it saves CPU time.",
    ),
    _flag("odradek.faults.enable", False, "Allows tests to inject faults into responses."),
    _number(INT, "fetch.max.bytes", 57671680, "The maximum size of a fetch response.", 1024),
    _number(
        INT,
        "max.incremental.fetch.session.cache.slots",
        1000,
        "The maximum number of incremental fetch sessions (KIP-227).",
        0,
    ),
    # Topics
    _flag(
        "auto.create.topics.enable",
        True,
        "Whether a metadata request for a missing topic creates it.",
    ),
    _flag("delete.topic.enable", True, "Whether topics can be deleted."),
    _number(
        INT,
        "num.partitions",
        1,
        "The number of partitions of a topic that is created without one.",
        1,
    ),
    _number(
        INT,
        "default.replication.factor",
        1,
        "The replication factor of a topic that is created without one.",
        1,
    ),
    _number(
        INT,
        "min.insync.replicas",
        1,
        "The minimum number of in-sync replicas for a produce with acks=all.",
        1,
        scope=WIDE,
    ),
    _flag(
        "unclean.leader.election.enable",
        False,
        "Whether a replica outside the ISR may become leader, at the risk of losing records.",
        WIDE,
    ),
    _choice(
        "compression.type", "producer", CODECS, "The compression type of stored batches.", WIDE
    ),
    Setting(
        *(
            "compression.gzip.level",
            INT,
            "-1",
            "The compression level of gzip; -1 is the default level.",
        ),
        valid=lambda value: value in (-1, *range(1, 10)),
        rule="-1, or between 1 and 9",
    ),
    _number(INT, "compression.lz4.level", 9, "Accepted, without effect.", 1, 17),
    _number(INT, "compression.zstd.level", 3, "The compression level of zstd.", -131072, 22),
    _number(INT, "message.max.bytes", 1048588, "The largest record batch accepted.", 0, scope=WIDE),
    # The log
    _number(
        INT,
        "log.segment.bytes",
        1073741824,
        "The size at which a segment is rolled.",
        14,
        scope=WIDE,
    ),
    _number(LONG, "log.roll.ms", None, "The age at which a segment is rolled.", 1, scope=WIDE),
    _number(INT, "log.roll.hours", 168, "The age at which a segment is rolled, in hours.", 1),
    _number(
        LONG,
        "log.roll.jitter.ms",
        None,
        "The maximum random time by which a segment is rolled earlier.",
        0,
        scope=WIDE,
    ),
    _number(
        INT,
        "log.roll.jitter.hours",
        0,
        "The maximum random time by which a segment is rolled earlier, in hours.",
        0,
    ),
    _number(
        LONG,
        "log.retention.ms",
        None,
        "The age at which a segment is deleted; -1 means no limit.",
        -1,
        scope=WIDE,
    ),
    _number(
        INT, "log.retention.minutes", None, "The age at which a segment is deleted, in minutes.", -1
    ),
    _number(
        INT, "log.retention.hours", 168, "The age at which a segment is deleted, in hours.", -1
    ),
    _number(
        LONG,
        "log.retention.bytes",
        -1,
        "The size of a log above which old segments are deleted; -1 means no limit.",
        scope=WIDE,
    ),
    _number(
        LONG,
        "log.initial.task.delay.ms",
        30000,
        "The delay after start before retention and flushing begin.",
        0,
    ),
    _number(
        LONG,
        "log.retention.check.interval.ms",
        300000,
        "How often logs are checked for segments to delete.",
        1,
    ),
    _choice(
        "log.cleanup.policy",
        "delete",
        ("compact", "delete"),
        "Whether old segments are deleted, compacted, or both.",
        WIDE,
        kind=Kind.LIST,
    ),
    _number(
        INT,
        "log.index.size.max.bytes",
        10485760,
        "The maximum size of an offset or time index.",
        4,
        scope=WIDE,
    ),
    _number(
        INT,
        "log.index.interval.bytes",
        4096,
        "The number of bytes between two index entries.",
        0,
        scope=WIDE,
    ),
    _number(
        LONG,
        "log.flush.interval.messages",
        LONG_MAX,
        "The number of records after which a log is flushed to disk.",
        1,
        scope=WIDE,
    ),
    _number(
        LONG,
        "log.flush.interval.ms",
        None,
        "The age of the oldest unflushed record at which a log is flushed to disk.",
        scope=WIDE,
    ),
    _number(
        LONG,
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        "How often logs are checked for a flush.",
        1,
    ),
    _number(
        INT,
        "log.flush.offset.checkpoint.interval.ms",
        60000,
        "How often recovery points are written.",
        0,
    ),
    _number(
        INT,
        "log.flush.start.offset.checkpoint.interval.ms",
        60000,
        "How often log start offsets are written.",
        0,
    ),
    _number(
        LONG,
        "log.segment.delete.delay.ms",
        60000,
        "The delay before a deleted segment's files are removed.",
        0,
        scope=WIDE,
    ),
    _flag("log.preallocate", False, "Whether segment files are preallocated.", WIDE),
    _choice(
        "log.message.timestamp.type",
        "CreateTime",
        TIMESTAMP_TYPES,
        "Whether the timestamp of a record is set by its producer or by the broker.",
        WIDE,
    ),
    _number(
        LONG,
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "The maximum time by which a record's timestamp may be earlier than the broker's clock.",
        0,
        scope=WIDE,
    ),
    _number(
        LONG,
        "log.message.timestamp.after.max.ms",
        LONG_MAX,
        "The maximum time by which a record's timestamp may be later than the broker's clock.",
        0,
        scope=WIDE,
    ),
    _number(
        LONG,
        "log.message.timestamp.difference.max.ms",
        LONG_MAX,
        "How far a record's time may lie in the past or future, where the two settings for"
        " before and after have no limit. Deprecated.",
        0,
        scope=WIDE,
    ),
    _number(
        INT,
        "num.recovery.threads.per.data.dir",
        1,
        "The number of logs of a directory that are recovered concurrently.",
        1,
    ),
    _number(
        INT,
        "producer.id.expiration.check.interval.ms",
        600000,
        "How often expired producer ids are removed.",
        1,
    ),
    _number(
        INT,
        "producer.id.expiration.ms",
        86400000,
        "The idle time after which the state of a producer id is removed.",
        1,
    ),
    # The cleaner
    _flag("log.cleaner.enable", True, "Whether compaction runs."),
    _number(
        LONG,
        "log.cleaner.backoff.ms",
        15000,
        "How long the cleaner sleeps when no log needs cleaning.",
        0,
    ),
    _number(
        LONG,
        "log.cleaner.dedupe.buffer.size",
        134217728,
        "The memory for keys during compaction.",
        scope=WIDE,
    ),
    _number(
        DOUBLE,
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        "The maximum I/O rate of the cleaner.",
        1,
        DOUBLE_MAX,
        WIDE,
    ),
    _number(
        DOUBLE,
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "The share of uncleaned bytes at which a log is compacted.",
        0,
        1,
        scope=WIDE,
    ),
    _number(
        LONG,
        "log.cleaner.delete.retention.ms",
        86400000,
        "How long compaction keeps tombstones.",
        0,
        scope=WIDE,
    ),
    _number(
        LONG,
        "log.cleaner.min.compaction.lag.ms",
        0,
        "The minimum age of a record before it may be compacted.",
        0,
        scope=WIDE,
    ),
    _number(
        LONG,
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "The maximum age of a record before it must be compacted.",
        1,
        scope=WIDE,
    ),
    # Replication
    _number(
        LONG,
        "replica.lag.time.max.ms",
        30000,
        "The time after which a follower that has not caught up leaves the ISR.",
    ),
    _number(
        INT,
        "replica.fetch.max.bytes",
        1048576,
        "The maximum size per partition in a follower's fetch.",
        0,
    ),
    _number(
        INT,
        "replica.fetch.response.max.bytes",
        10485760,
        "The maximum size of the response to a follower's fetch.",
        0,
    ),
    _number(
        INT, "replica.fetch.min.bytes", 1, "The number of bytes that a follower's fetch waits for."
    ),
    _number(
        INT, "replica.fetch.wait.max.ms", 500, "The maximum time that a follower's fetch waits."
    ),
    _number(
        INT, "replica.fetch.backoff.ms", 1000, "How long a follower backs off after an error.", 0
    ),
    _number(INT, "replica.socket.timeout.ms", 30000, "The timeout of a follower's requests."),
    _number(
        INT,
        "num.replica.fetchers",
        1,
        "The number of fetchers, each with its own connection, per leader.",
        1,
    ),
    _number(
        LONG,
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        "How often high watermarks are written.",
    ),
    Setting(
        "replica.selector.class",
        Kind.STRING,
        None,
        "RackAwareReplicaSelector lets consumers read from the closest replica; unset, the leader"
        " serves them.",
    ),
    _number(
        LONG,
        "leader.replication.throttled.rate",
        LONG_MAX,
        "The maximum rate at which a leader serves throttled replicas, in bytes per second.",
        0,
        scope=ONE,
    ),
    _number(
        LONG,
        "follower.replication.throttled.rate",
        LONG_MAX,
        "The maximum rate at which throttled replicas fetch, in bytes per second.",
        0,
        scope=ONE,
    ),
    _number(
        LONG,
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        "The maximum rate of moves between log directories, in bytes per second.",
        0,
        scope=ONE,
    ),
    # The controller
    _flag(
        "auto.leader.rebalance.enable",
        True,
        "Whether leadership returns to preferred replicas automatically.",
    ),
    _number(
        LONG,
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the leader imbalance is checked.",
        1,
    ),
    _number(
        INT,
        "leader.imbalance.per.broker.percentage",
        10,
        "The percentage of non-preferred leaders per broker that is tolerated.",
    ),
    _flag(
        "controlled.shutdown.enable",
        True,
        "Whether a broker that stops moves its leaderships first.",
    ),
    _number(
        INT, "controlled.shutdown.max.retries", 3, "How often a controlled shutdown is retried."
    ),
    _number(
        LONG,
        "controlled.shutdown.retry.backoff.ms",
        5000,
        "The pause between retries of a controlled shutdown.",
    ),
    _number(
        INT,
        "controller.socket.timeout.ms",
        30000,
        "The timeout of the controller's requests to brokers.",
    ),
    # Moves of partitions
    _number(
        INT,
        "odradek.moves.cluster",
        1000,
        "The maximum number of partitions that move concurrently; the others wait.",
        1,
        scope=WIDE,
    ),
    _number(
        INT,
        "odradek.moves.per.broker",
        5,
        "The initial number of concurrent moves of plans per broker, as source or target.",
        1,
        scope=WIDE,
    ),
    _number(
        INT,
        "odradek.moves.per.broker.max",
        20,
        "The maximum number of concurrent moves of plans on a broker without signs of strain.",
        1,
        scope=WIDE,
    ),
    _number(
        LONG,
        "odradek.moves.bytes.per.broker",
        32 << 30,
        "The maximum size of replicas that plans move concurrently per broker.",
        1,
        scope=WIDE,
    ),
    _number(
        INT,
        "odradek.moves.leaderships",
        100,
        "The maximum number of leaderships that plans move per second.",
        1,
        scope=WIDE,
    ),
    # Groups
    _number(
        INT, "group.min.session.timeout.ms", 6000, "The minimum session timeout of a group member."
    ),
    _number(
        INT,
        "group.max.session.timeout.ms",
        1800000,
        "The maximum session timeout of a group member.",
    ),
    _number(
        INT,
        "group.initial.rebalance.delay.ms",
        3000,
        "How long the first rebalance of a group waits for more members.",
    ),
    _number(INT, "group.max.size", INT_MAX, "The maximum number of members of a group.", 1),
    _number(
        INT,
        "offset.metadata.max.bytes",
        4096,
        "The maximum length of the metadata of a committed offset, in UTF-16 units.",
    ),
    _number(
        INT,
        "offsets.retention.minutes",
        10080,
        "How long the committed offsets of an empty group are kept.",
        1,
    ),
    _number(
        LONG,
        "offsets.retention.check.interval.ms",
        600000,
        "How often expired offsets are removed.",
        1,
    ),
    _number(
        INT,
        "offsets.topic.num.partitions",
        50,
        "The number of partitions of __consumer_offsets.",
        1,
    ),
    _number(
        INT,
        "offsets.topic.replication.factor",
        3,
        "The replication factor of __consumer_offsets.",
        1,
    ),
    _number(
        INT, "offsets.topic.segment.bytes", 104857600, "The segment size of __consumer_offsets.", 1
    ),
    _number(INT, "request.timeout.ms", 30000, "The timeout of requests between brokers.", 0),
    _number(INT, "transaction.max.timeout.ms", 900000, "The maximum timeout of a transaction.", 1),
    _flag(
        "transaction.partition.verification.enable",
        True,
        "Whether a leader asks the coordinator before it accepts a transaction's first batch.",
        WIDE,
    ),
    _number(
        INT,
        "transaction.state.log.num.partitions",
        50,
        "The number of partitions of __transaction_state.",
        1,
    ),
    _number(
        Kind.SHORT,
        "transaction.state.log.replication.factor",
        3,
        "The replication factor of __transaction_state.",
        1,
    ),
    _number(
        INT, "transaction.state.log.min.isr", 2, "min.insync.replicas of __transaction_state.", 1
    ),
    _number(
        INT,
        "transaction.state.log.segment.bytes",
        104857600,
        "The segment size of __transaction_state.",
        1,
    ),
    _number(
        INT,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10000,
        "How often transactions that have timed out are aborted.",
        1,
    ),
    _number(
        INT,
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3600000,
        "How often transactional ids that have expired are removed.",
        1,
    ),
    _number(INT, "transactional.id.expiration.ms", 604800000, "Idle transactional ids expire.", 1),
)

PASSWORD, LIST = Kind.PASSWORD, Kind.LIST
# Settings that a listener may have of its own, as listener.name.<name>.<setting>.
_TLS = (
    _text("ssl.keystore.type", "JKS", "PEM, PKCS12 or JKS (PKCS12 under its old name).", ONE),
    _text(
        "ssl.keystore.location",
        None,
        "The keystore: a file with the private key and its certificates.",
        ONE,
    ),
    Setting("ssl.keystore.password", PASSWORD, None, "The password of the keystore.", ONE),
    Setting("ssl.key.password", PASSWORD, None, "The password of the private key.", ONE),
    Setting("ssl.keystore.key", PASSWORD, None, "The private key, as PEM.", ONE),
    Setting(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        None,
        "The certificate chain of the private key, as PEM.",
        ONE,
    ),
    _text("ssl.truststore.type", "JKS", "PEM, PKCS12 or JKS.", ONE),
    _text(
        "ssl.truststore.location", None, "The truststore: a file with trusted certificates.", ONE
    ),
    Setting("ssl.truststore.password", PASSWORD, None, "The password of the truststore.", ONE),
    Setting("ssl.truststore.certificates", PASSWORD, None, "Trusted certificates, as PEM.", ONE),
    _choice(
        "ssl.client.auth",
        "none",
        ("none", "requested", "required"),
        "Whether clients must present a certificate.",
    ),
    _text("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", "The enabled TLS versions."),
    _text("ssl.cipher.suites", None, "Cipher suites by IANA name; unset, the default suites."),
    _text(
        "ssl.endpoint.identification.algorithm",
        "https",
        "How the host name in a broker's certificate is verified; empty disables it.",
    ),
    _text(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        "Rules that map the subject of a certificate to a user.",
    ),
    _flag("ssl.allow.dn.changes", False, "Whether a new certificate may have a different subject."),
    _flag(
        "ssl.allow.san.changes",
        False,
        "Whether a new certificate may lack alternative names of the old one.",
    ),
)
_OAUTH = (
    _text(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        "The key set that tokens are verified with: an https, http or file URL.",
    ),
    _number(
        *(LONG, "sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000),
        "How often the key set is fetched.",
        1,
    ),
    _number(
        *(LONG, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100),
        "The pause before the key set is fetched again after a failure; it doubles each time.",
        1,
    ),
    _number(
        *(LONG, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10_000),
        "The maximum pause between attempts to fetch the key set.",
        1,
    ),
    _number(
        INT,
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "The tolerated difference between clocks.",
        0,
        INT_MAX,
    ),
    _text("sasl.oauthbearer.expected.audience", None, "Accepted audiences of tokens."),
    _text("sasl.oauthbearer.expected.issuer", None, "The accepted issuer of tokens; unset, any."),
    _text("sasl.oauthbearer.sub.claim.name", "sub", "The claim that contains the user's name."),
    _text("sasl.oauthbearer.scope.claim.name", "scope", "Without effect: no scope is required."),
)
_SASL = (
    Setting("sasl.enabled.mechanisms", LIST, "GSSAPI", "Mechanisms that clients may use."),
    _text(
        "sasl.mechanism.inter.broker.protocol",
        "GSSAPI",
        "The mechanism that brokers use among themselves.",
    ),
    Setting(
        "sasl.jaas.config",
        PASSWORD,
        None,
        "Credentials: the users to accept, or the user to log in as.",
    ),
    _number(
        INT,
        "sasl.server.max.receive.size",
        524288,
        "The maximum size of a request before authentication.",
        1,
    ),
    _number(
        LONG,
        "connections.max.reauth.ms",
        0,
        "The session lifetime after which clients must re-authenticate; 0 means no limit.",
    ),
    _text(
        "sasl.server.callback.handler.class",
        None,
        "OAuthBearerValidatorCallbackHandler: tokens must be signed with a key of the key set.",
    ),
    *_OAUTH,
)
_ZOOKEEPER = (
    _flag(
        "zookeeper.set.acl",
        False,
        "Whether nodes are created so that only brokers can change them.",
    ),
    Setting(
        "odradek.zookeeper.sasl.jaas.config",
        PASSWORD,
        None,
        "The login with ZooKeeper: DigestLoginModule with username and password.",
    ),
    _flag("zookeeper.ssl.client.enable", False, "Whether connections to ZooKeeper use TLS."),
    _text("zookeeper.ssl.keystore.location", None, "The keystore for connections to ZooKeeper."),
    _text("zookeeper.ssl.keystore.type", None, "PEM, PKCS12 or JKS; unset, by the file's name."),
    Setting(
        "zookeeper.ssl.keystore.password",
        PASSWORD,
        None,
        "The password of the keystore, or of a PEM key.",
    ),
    _text(
        "zookeeper.ssl.truststore.location", None, "The truststore for connections to ZooKeeper."
    ),
    _text("zookeeper.ssl.truststore.type", None, "PEM, PKCS12 or JKS; unset, by the file's name."),
    Setting("zookeeper.ssl.truststore.password", PASSWORD, None, "The password of the truststore."),
    _text(
        "zookeeper.ssl.protocol",
        "TLSv1.2",
        "The TLS version, unless zookeeper.ssl.enabled.protocols is set.",
    ),
    _text(
        "zookeeper.ssl.enabled.protocols", None, "The TLS versions for connections to ZooKeeper."
    ),
    _text("zookeeper.ssl.cipher.suites", None, "Cipher suites by IANA name."),
    _text(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        "How the host name in ZooKeeper's certificate is verified; empty disables it.",
    ),
    _flag("zookeeper.ssl.crl.enable", False, "Must be false: revocation lists are not supported."),
    _flag("zookeeper.ssl.ocsp.enable", False, "Must be false: OCSP is not supported."),
)
_SECURITY = (
    *_TLS,
    *_SASL,
    _text(
        "listener.security.protocol.map",
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The security protocol of each listener.",
    ),
    _choice(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "The name of the listener between brokers, unless inter.broker.listener.name is set.",
    ),
    _text("control.plane.listener.name", None, "The listener for connections from the controller."),
    Setting(
        *("password.encoder.secret", PASSWORD, None),
        "The secret that encrypts passwords set at run time; the same on every broker.",
    ),
    Setting("password.encoder.old.secret", PASSWORD, None, "The previous password.encoder.secret."),
    _number(
        INT,
        "password.encoder.key.length",
        128,
        "The length of the key derived from password.encoder.secret, in bits.",
        128,
        256,
    ),
    _number(
        INT,
        "password.encoder.iterations",
        4096,
        "The number of iterations to derive that key.",
        1024,
    ),
    _number(
        INT,
        "connection.failed.authentication.delay.ms",
        100,
        "The delay before a failed authentication is answered and closed.",
        0,
    ),
    _text(
        "authorizer.class.name",
        "",
        "kafka.security.authorizer.AclAuthorizer; empty disables authorization.",
    ),
    Setting(
        "delegation.token.secret.key",
        PASSWORD,
        None,
        "The secret that tokens are derived from; the same on every broker. Unset disables tokens.",
    ),
    Setting(
        "delegation.token.master.key",
        PASSWORD,
        None,
        "The former name of delegation.token.secret.key.",
    ),
    _number(
        LONG, "delegation.token.max.lifetime.ms", 604800000, "The maximum lifetime of a token.", 1
    ),
    _number(
        LONG,
        "delegation.token.expiry.time.ms",
        86400000,
        "The time after which a token expires unless it is renewed.",
        1,
    ),
    _number(
        LONG,
        "delegation.token.expiry.check.interval.ms",
        3600000,
        "How often expired tokens are deleted.",
        1,
    ),
    _text("super.users", "", "Users that may do everything, as User:a;User:b."),
    _flag(
        "allow.everyone.if.no.acl.found",
        False,
        "Whether a resource without ACLs is open to everyone.",
    ),
    *_ZOOKEEPER,
)
# Which of them may have a listener, or a listener and a mechanism, in front of their name.
LISTENER_PREFIX = "listener.name."
_LIMITS = ("max.connections", "max.connection.creation.rate")
PREFIXABLE: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (*_TLS, *_SASL, *(each for each in _BROKER if each.name in _LIMITS))
}
MECHANISM_PREFIXABLE = frozenset(
    {
        "sasl.jaas.config",
        "connections.max.reauth.ms",
        "sasl.server.callback.handler.class",
        *(setting.name for setting in _OAUTH),
    }
)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def prefixed(name: str) -> Setting | None:
    """The setting that `listener.name.<listener>.[<mechanism>.]<setting>` is about."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    _, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    if (setting := PREFIXABLE.get(rest)) is None:
        mechanism, _, last = rest.partition(".")
        if mechanism.upper() not in MECHANISMS or last not in MECHANISM_PREFIXABLE:
            return None
        setting = PREFIXABLE[last]
    return dataclasses.replace(setting, name=name)


SECURITY_SETTINGS: tuple[Setting, ...] = _SECURITY
BROKER_SETTINGS: Mapping[str, Setting] = {
    setting.name: setting for setting in (*_BROKER, *SECURITY_SETTINGS)
}


def _topic(name: str, *synonyms: tuple[str, int]) -> Setting:
    """A topic setting that is its first synonym in all but its name."""
    first, (last, factor) = BROKER_SETTINGS[synonyms[0][0]], synonyms[-1]
    default = BROKER_SETTINGS[last].default
    if factor != 1 and default is not None:
        default = str(int(default) * factor)
    return dataclasses.replace(first, name=name, default=default, synonyms=synonyms)


def _throttled(name: str, doc: str) -> Setting:
    rule = "*, none, or a list of partition:broker"
    return Setting(name, Kind.LIST, "", doc, Scope.READ_ONLY, _throttled_replicas, rule)


def _format_version(value: Value) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d+(\.\d+){1,3}(-IV\d+)?", value) is not None


# What Kafka 3.9 knows and a log of ours has no use for. Accepted, so that tools which copy a
# topic's settings from one cluster to another work.
_TOPIC_WITHOUT_EFFECT = (
    _number(LONG, "local.retention.bytes", -2, "Without effect: no tiered storage.", -2),
    _number(LONG, "local.retention.ms", -2, "Without effect: no tiered storage.", -2),
    _flag("message.downconversion.enable", True, "Without effect: records are never converted."),
    Setting(
        *("message.format.version", Kind.STRING, "3.0-IV1"),
        "Without effect: records are stored with magic 2. Deprecated.",
        valid=_format_version,
        rule="a version of Kafka",
    ),
    _flag("remote.log.copy.disable", False, "Without effect: no tiered storage."),
    _flag("remote.log.delete.on.disable", False, "Without effect: no tiered storage."),
    Setting(
        *("remote.storage.enable", Kind.BOOLEAN, "false"),
        "Tiered storage, which is not supported: only false is accepted.",
        valid=lambda value: value is False,
        rule="false, because there is no tiered storage",
    ),
)

_TOPIC = (
    *_TOPIC_WITHOUT_EFFECT,
    _topic("cleanup.policy", ("log.cleanup.policy", 1)),
    _topic("compression.gzip.level", ("compression.gzip.level", 1)),
    _topic("compression.lz4.level", ("compression.lz4.level", 1)),
    _topic("compression.type", ("compression.type", 1)),
    _topic("compression.zstd.level", ("compression.zstd.level", 1)),
    _topic("delete.retention.ms", ("log.cleaner.delete.retention.ms", 1)),
    _topic("file.delete.delay.ms", ("log.segment.delete.delay.ms", 1)),
    _topic("flush.messages", ("log.flush.interval.messages", 1)),
    dataclasses.replace(
        _topic("flush.ms", ("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
        valid=_range(0, LONG_MAX),
        rule="at least 0",
    ),
    _throttled(
        "follower.replication.throttled.replicas", "Replicas whose fetching is throttled, or *."
    ),
    _topic("index.interval.bytes", ("log.index.interval.bytes", 1)),
    _throttled(
        "leader.replication.throttled.replicas", "Replicas whose serving is throttled, or *."
    ),
    _topic("max.compaction.lag.ms", ("log.cleaner.max.compaction.lag.ms", 1)),
    _topic("max.message.bytes", ("message.max.bytes", 1)),
    _topic("message.timestamp.after.max.ms", ("log.message.timestamp.after.max.ms", 1)),
    _topic("message.timestamp.before.max.ms", ("log.message.timestamp.before.max.ms", 1)),
    _topic("message.timestamp.difference.max.ms", ("log.message.timestamp.difference.max.ms", 1)),
    _topic("message.timestamp.type", ("log.message.timestamp.type", 1)),
    _topic("min.cleanable.dirty.ratio", ("log.cleaner.min.cleanable.ratio", 1)),
    _topic("min.compaction.lag.ms", ("log.cleaner.min.compaction.lag.ms", 1)),
    _topic("min.insync.replicas", ("min.insync.replicas", 1)),
    _topic("preallocate", ("log.preallocate", 1)),
    _topic("retention.bytes", ("log.retention.bytes", 1)),
    _topic(
        "retention.ms",
        ("log.retention.ms", 1),
        ("log.retention.minutes", MINUTE_MS),
        ("log.retention.hours", HOUR_MS),
    ),
    _topic("segment.bytes", ("log.segment.bytes", 1)),
    _topic("segment.index.bytes", ("log.index.size.max.bytes", 1)),
    _topic("segment.jitter.ms", ("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    _topic("segment.ms", ("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    _topic("unclean.leader.election.enable", ("unclean.leader.election.enable", 1)),
)

TOPIC_SETTINGS: Mapping[str, Setting] = {
    setting.name: setting for setting in sorted(_TOPIC, key=lambda setting: setting.name)
}


@dataclass(frozen=True, slots=True)
class SettingSource:
    """Which setting a field of a config dataclass has its value from, and how."""

    setting: Setting
    convert: Callable[[Any], object]

    def value(self, parsed: Value) -> object:
        return self.convert(parsed)


def configured(name: str, convert: Callable[[Any], object] | None = None) -> Any:
    """A field whose value is that of a broker setting, converted if the field has another unit."""
    return _field(BROKER_SETTINGS[name], convert or _as_it_is)


def topic_configured(name: str) -> Any:
    """A field whose value is that of a topic setting; a list becomes a set."""
    return _field(TOPIC_SETTINGS[name], _frozen)


def _field(setting: Setting, convert: Callable[[Any], object]) -> Any:
    default = convert(parse(setting, setting.default))
    return dataclasses.field(default=default, metadata={SOURCE: SettingSource(setting, convert)})


def _as_it_is(value: Value) -> Value:
    return value


def _frozen(value: Value) -> object:
    return frozenset(value) if isinstance(value, list) else value


# Names of Kafka's that a server.properties file may carry and that mean nothing to one event loop
# or to this broker's dialect. They are accepted with a warning, so that Kafka's own files can be
# read.
WITHOUT_EFFECT = frozenset(
    {
        "background.threads",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.threads",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "num.io.threads",
        "num.network.threads",
        "num.replica.alter.log.dirs.threads",
        "replica.socket.receive.buffer.bytes",
        "offsets.commit.timeout.ms",
        "offsets.load.buffer.size",
        "transaction.state.log.load.buffer.size",
        "zookeeper.clientCnxnSocket",
        "zookeeper.connection.timeout.ms",
        "zookeeper.max.in.flight.requests",
    }
)
