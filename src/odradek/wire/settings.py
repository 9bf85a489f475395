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
    synonyms: tuple[tuple[str, int], ...] = (),
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
    _flag("broker.id.generation.enable", True, "Whether a broker without an id is given one."),
    _number(INT, "reserved.broker.max.id", 1000, "Ids above this may be given out.", 0),
    _text("broker.rack", None, "The rack this broker stands in, for placement and closest reads."),
    _text("listeners", "PLAINTEXT://127.0.0.1:9092", "Where to listen; port 0 takes a free one."),
    _text("advertised.listeners", None, "The addresses that clients get in metadata."),
    _text("inter.broker.listener.name", None, "The listener that brokers talk over."),
    _text("log.dir", None, "The one log directory, if log.dirs is not set."),
    _text("log.dirs", None, "The log directories, separated by commas."),
    _text("zookeeper.connect", None, "ZooKeeper's hosts and chroot, unless --store says another."),
    _number(INT, "zookeeper.session.timeout.ms", 18000, "How long a silent session lives.", 1),
    Setting(
        "inter.broker.protocol.version",
        Kind.STRING,
        str(ProtocolVersion.latest()),
        "What this broker sends to others and stores; raise it when all run this release.",
        valid=_is_protocol_version,
        rule=f"a version from {ProtocolVersion.oldest()} to {ProtocolVersion.latest()}",
    ),
    # Connections
    _number(
        INT, "socket.request.max.bytes", 104857600, "The largest request accepted.", 1, INT_MAX
    ),
    _number(INT, "socket.send.buffer.bytes", -1, "SO_SNDBUF of connections; -1 leaves it.", -1),
    _number(INT, "socket.receive.buffer.bytes", -1, "SO_RCVBUF of connections; -1 leaves it.", -1),
    _number(INT, "socket.listen.backlog.size", 1024, "Connections waiting to be accepted.", 1),
    _number(
        INT,
        "max.connections",
        INT_MAX,
        "Connections in all. A listener that is only the brokers' own takes more.",
        0,
        INT_MAX,
        WIDE,
    ),
    _number(
        INT,
        "max.connection.creation.rate",
        INT_MAX,
        "Connections a second; beyond that newcomers wait, a second at most.",
        0,
        INT_MAX,
        WIDE,
    ),
    _number(
        INT, "max.connections.per.ip", INT_MAX, "Connections from one address.", 0, INT_MAX, ONE
    ),
    Setting(
        "max.connections.per.ip.overrides",
        Kind.STRING,
        "",
        "address:count pairs that differ.",
        ONE,
        _connection_limits,
        "a list of address:count",
    ),
    _number(LONG, "connections.max.idle.ms", 600000, "Idle connections are closed after this."),
    _number(
        INT, "queued.max.requests", 500, "Requests of one connection that may be under way.", 1
    ),
    _number(
        LONG,
        "queued.max.request.bytes",
        50331648,
        "Requests that all connections may hold before they start; -1 is no limit.",
        -1,
    ),
    _number(
        LONG,
        "odradek.queued.max.response.bytes",
        50331648,
        "Responses that all clients may leave unread; -1 is no limit.",
        -1,
    ),
    Setting(
        "odradek.http.listener",
        Kind.STRING,
        None,
        "host:port of metrics, health and the journal over HTTP; port 0 takes a free one.",
    ),
    Setting(
        "odradek.http.token",
        Kind.PASSWORD,
        None,
        "What clients from other machines send as bearer token to see more than metrics.",
    ),
    _number(
        INT,
        "odradek.metrics.topics.max",
        1000,
        "Topics with metrics of their own; the others are added up.",
        0,
    ),
    _number(
        LONG,
        "odradek.telemetry.interval.ms",
        15000,
        "How often this broker publishes what its partitions do; 0 is never.",
        0,
    ),
    _text("odradek.telemetry.topic", TELEMETRY_TOPIC, "The topic that it is published to."),
    _number(
        LONG,
        "odradek.network.capacity",
        0,
        "Bytes a second that this broker's network can carry; 0 asks the system.",
        0,
    ),
    _flag("odradek.faults.enable", False, "For tests: let them inject faults into answers."),
    _number(INT, "fetch.max.bytes", 57671680, "The most a fetch may return.", 1024),
    _number(
        INT, "max.incremental.fetch.session.cache.slots", 1000, "Fetch sessions kept (KIP-227).", 0
    ),
    # Topics
    _flag("auto.create.topics.enable", True, "Whether asking for a missing topic creates it."),
    _flag("delete.topic.enable", True, "Whether topics can be deleted."),
    _number(INT, "num.partitions", 1, "Partitions of a topic created without a count.", 1),
    _number(
        INT, "default.replication.factor", 1, "Replicas of a topic created without a count.", 1
    ),
    _number(INT, "min.insync.replicas", 1, "In-sync replicas that acks=all needs.", 1, scope=WIDE),
    _flag("unclean.leader.election.enable", False, "May a stale replica lead?", WIDE),
    _choice("compression.type", "producer", CODECS, "The codec batches are stored with.", WIDE),
    Setting(
        *("compression.gzip.level", INT, "-1", "gzip's level; -1 is its default."),
        valid=lambda value: value in (-1, *range(1, 10)),
        rule="-1, or between 1 and 9",
    ),
    _number(INT, "compression.lz4.level", 9, "Accepted, without effect.", 1, 17),
    _number(INT, "compression.zstd.level", 3, "zstd's level.", -131072, 22),
    _number(INT, "message.max.bytes", 1048588, "The largest record batch accepted.", 0, scope=WIDE),
    # The log
    _number(INT, "log.segment.bytes", 1073741824, "Size at which a segment ends.", 14, scope=WIDE),
    _number(LONG, "log.roll.ms", None, "Age at which a segment ends.", 1, scope=WIDE),
    _number(INT, "log.roll.hours", 168, "The same in hours.", 1),
    _number(LONG, "log.roll.jitter.ms", None, "Up to this much earlier, at random.", 0, scope=WIDE),
    _number(INT, "log.roll.jitter.hours", 0, "The same in hours.", 0),
    _number(LONG, "log.retention.ms", None, "Age at which a segment is deleted.", -1, scope=WIDE),
    _number(INT, "log.retention.minutes", None, "The same in minutes.", -1),
    _number(INT, "log.retention.hours", 168, "The same in hours.", -1),
    _number(LONG, "log.retention.bytes", -1, "Size above which old segments go.", scope=WIDE),
    _number(LONG, "log.initial.task.delay.ms", 30000, "Quiet after start before upkeep.", 0),
    _number(LONG, "log.retention.check.interval.ms", 300000, "How often retention looks.", 1),
    _choice(
        "log.cleanup.policy",
        "delete",
        ("compact", "delete"),
        "What happens to old segments.",
        WIDE,
        kind=Kind.LIST,
    ),
    _number(INT, "log.index.size.max.bytes", 10485760, "An index's largest size.", 4, scope=WIDE),
    _number(INT, "log.index.interval.bytes", 4096, "Bytes between index entries.", 0, scope=WIDE),
    _number(
        LONG,
        "log.flush.interval.messages",
        LONG_MAX,
        "Records before a forced sync.",
        1,
        scope=WIDE,
    ),
    _number(LONG, "log.flush.interval.ms", None, "Age of the oldest unsynced record.", scope=WIDE),
    _number(LONG, "log.flush.scheduler.interval.ms", LONG_MAX, "How often flushing looks.", 1),
    _number(
        INT,
        "log.flush.offset.checkpoint.interval.ms",
        60000,
        "How often recovery points go out.",
        0,
    ),
    _number(
        INT, "log.flush.start.offset.checkpoint.interval.ms", 60000, "The same for log starts.", 0
    ),
    _number(LONG, "log.segment.delete.delay.ms", 60000, "Grace before a file goes.", 0, scope=WIDE),
    _flag("log.preallocate", False, "Whether segments get their size at once.", WIDE),
    _choice(
        "log.message.timestamp.type", "CreateTime", TIMESTAMP_TYPES, "Whose time counts.", WIDE
    ),
    _number(
        LONG,
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "How far a record's time may lie in the past.",
        0,
        scope=WIDE,
    ),
    _number(
        LONG,
        "log.message.timestamp.after.max.ms",
        LONG_MAX,
        "How far a record's time may lie in the future.",
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
    _number(INT, "num.recovery.threads.per.data.dir", 1, "Logs recovered at a time.", 1),
    _number(INT, "producer.id.expiration.check.interval.ms", 600000, "How often, for that.", 1),
    _number(INT, "producer.id.expiration.ms", 86400000, "Silent producers are forgotten.", 1),
    # The cleaner
    _flag("log.cleaner.enable", True, "Whether logs are compacted."),
    _number(LONG, "log.cleaner.backoff.ms", 15000, "Pause when nothing is dirty.", 0),
    _number(LONG, "log.cleaner.dedupe.buffer.size", 134217728, "Memory for keys.", scope=WIDE),
    _number(
        DOUBLE,
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        "How fast it may read and write.",
        1,
        DOUBLE_MAX,
        WIDE,
    ),
    _number(
        DOUBLE,
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "Dirty share that starts it.",
        0,
        1,
        scope=WIDE,
    ),
    _number(
        LONG,
        "log.cleaner.delete.retention.ms",
        86400000,
        "How long tombstones stay.",
        0,
        scope=WIDE,
    ),
    _number(
        LONG, "log.cleaner.min.compaction.lag.ms", 0, "Age before compaction may.", 0, scope=WIDE
    ),
    _number(
        LONG, "log.cleaner.max.compaction.lag.ms", LONG_MAX, "Age when it must.", 1, scope=WIDE
    ),
    # Replication
    _number(LONG, "replica.lag.time.max.ms", 30000, "A follower silent for longer leaves the ISR."),
    _number(INT, "replica.fetch.max.bytes", 1048576, "Per partition in a follower's fetch.", 0),
    _number(INT, "replica.fetch.response.max.bytes", 10485760, "Per follower's fetch.", 0),
    _number(INT, "replica.fetch.min.bytes", 1, "Bytes a follower's fetch waits for."),
    _number(INT, "replica.fetch.wait.max.ms", 500, "How long a follower's fetch waits."),
    _number(INT, "replica.fetch.backoff.ms", 1000, "Pause after a follower's error.", 0),
    _number(INT, "replica.socket.timeout.ms", 30000, "How long a follower waits for an answer."),
    _number(INT, "num.replica.fetchers", 1, "Connections per leader.", 1),
    _number(LONG, "replica.high.watermark.checkpoint.interval.ms", 5000, "How often it is saved."),
    Setting(
        "replica.selector.class",
        Kind.STRING,
        None,
        "Who may serve a consumer: unset the leader, RackAwareReplicaSelector the closest.",
    ),
    _number(
        LONG, "leader.replication.throttled.rate", LONG_MAX, "Bytes/s to throttled.", 0, scope=ONE
    ),
    _number(
        LONG, "follower.replication.throttled.rate", LONG_MAX, "Bytes/s from them.", 0, scope=ONE
    ),
    _number(
        LONG,
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        "Bytes/s between log directories.",
        0,
        scope=ONE,
    ),
    # The controller
    _flag("auto.leader.rebalance.enable", True, "Whether leadership returns by itself."),
    _number(
        LONG,
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the balance is looked at.",
        1,
    ),
    _number(INT, "leader.imbalance.per.broker.percentage", 10, "Imbalance that is tolerated."),
    _flag("controlled.shutdown.enable", True, "Whether a stop moves leadership first."),
    _number(INT, "controlled.shutdown.max.retries", 3, "How often a stop asks the controller."),
    _number(LONG, "controlled.shutdown.retry.backoff.ms", 5000, "Pause between those."),
    _number(INT, "controller.socket.timeout.ms", 30000, "How long the controller waits."),
    # Moves of partitions
    _number(
        INT,
        "odradek.moves.cluster",
        1000,
        "Partitions that move at a time; the others wait.",
        1,
        scope=WIDE,
    ),
    _number(
        INT,
        "odradek.moves.per.broker",
        5,
        "Moves of plans at a time per broker, as source or target, to begin with.",
        1,
        scope=WIDE,
    ),
    _number(
        INT,
        "odradek.moves.per.broker.max",
        20,
        "How far that may grow on a broker that bears it well.",
        1,
        scope=WIDE,
    ),
    _number(
        LONG,
        "odradek.moves.bytes.per.broker",
        32 << 30,
        "Bytes of the replicas that plans move at a time per broker.",
        1,
        scope=WIDE,
    ),
    _number(
        INT,
        "odradek.moves.leaderships",
        100,
        "Leaderships that plans move per second.",
        1,
        scope=WIDE,
    ),
    # Groups
    _number(INT, "group.min.session.timeout.ms", 6000, "Shortest session of a member."),
    _number(INT, "group.max.session.timeout.ms", 1800000, "Longest session of a member."),
    _number(INT, "group.initial.rebalance.delay.ms", 3000, "Wait for more members at first."),
    _number(INT, "group.max.size", INT_MAX, "Members of one group.", 1),
    _number(
        INT, "offset.metadata.max.bytes", 4096, "Metadata with a committed offset, in UTF-16 units."
    ),
    _number(INT, "offsets.retention.minutes", 10080, "Offsets of an empty group expire.", 1),
    _number(LONG, "offsets.retention.check.interval.ms", 600000, "How often that is looked at.", 1),
    _number(INT, "offsets.topic.num.partitions", 50, "Partitions of __consumer_offsets.", 1),
    _number(INT, "offsets.topic.replication.factor", 3, "Its replicas.", 1),
    _number(INT, "offsets.topic.segment.bytes", 104857600, "Its segments.", 1),
    _number(INT, "request.timeout.ms", 30000, "How long a request between brokers may take.", 0),
    _number(INT, "transaction.max.timeout.ms", 900000, "The longest a transaction may ask for.", 1),
    _flag(
        "transaction.partition.verification.enable",
        True,
        "Does a leader ask the coordinator before a transaction's first batch?",
        WIDE,
    ),
    _number(
        INT, "transaction.state.log.num.partitions", 50, "Partitions of __transaction_state.", 1
    ),
    _number(Kind.SHORT, "transaction.state.log.replication.factor", 3, "Its replicas.", 1),
    _number(INT, "transaction.state.log.min.isr", 2, "Its min.insync.replicas.", 1),
    _number(INT, "transaction.state.log.segment.bytes", 104857600, "Its segments.", 1),
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
    _text("ssl.keystore.location", None, "The file with our key and certificates.", ONE),
    Setting("ssl.keystore.password", PASSWORD, None, "Of that file.", ONE),
    Setting("ssl.key.password", PASSWORD, None, "Of the private key.", ONE),
    Setting("ssl.keystore.key", PASSWORD, None, "The private key itself, as PEM.", ONE),
    Setting("ssl.keystore.certificate.chain", PASSWORD, None, "Its certificates, as PEM.", ONE),
    _text("ssl.truststore.type", "JKS", "PEM, PKCS12 or JKS.", ONE),
    _text("ssl.truststore.location", None, "The file with the certificates to trust.", ONE),
    Setting("ssl.truststore.password", PASSWORD, None, "Of that file.", ONE),
    Setting("ssl.truststore.certificates", PASSWORD, None, "What to trust, as PEM.", ONE),
    _choice(
        "ssl.client.auth",
        "none",
        ("none", "requested", "required"),
        "Whether clients must show a certificate.",
    ),
    _text("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", "Versions of TLS to speak."),
    _text("ssl.cipher.suites", None, "Cipher suites by their IANA names; else the usual."),
    _text(
        "ssl.endpoint.identification.algorithm",
        "https",
        "How a broker's host name is verified; empty: not at all.",
    ),
    _text("ssl.principal.mapping.rules", "DEFAULT", "From a certificate's subject to a user."),
    _flag("ssl.allow.dn.changes", False, "Whether a new certificate may have another subject."),
    _flag("ssl.allow.san.changes", False, "Whether it may lack alternative names of the old one."),
)
_OAUTH = (
    _text("sasl.oauthbearer.jwks.endpoint.url", None, "Keys of token signers: https, http, file."),
    _number(
        *(LONG, "sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000),
        "How often those keys are fetched.",
        1,
    ),
    _number(
        *(LONG, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100),
        "Until the second attempt to fetch them; then twice as long each time.",
        1,
    ),
    _number(
        *(LONG, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10_000),
        "The longest time between two attempts.",
        1,
    ),
    _number(
        INT, "sasl.oauthbearer.clock.skew.seconds", 30, "By how much clocks may differ.", 0, INT_MAX
    ),
    _text("sasl.oauthbearer.expected.audience", None, "Whom tokens are meant for, any of these."),
    _text("sasl.oauthbearer.expected.issuer", None, "Who issues tokens; else any signer."),
    _text("sasl.oauthbearer.sub.claim.name", "sub", "The claim that names the user."),
    _text("sasl.oauthbearer.scope.claim.name", "scope", "Without effect: no scope is required."),
)
_SASL = (
    Setting("sasl.enabled.mechanisms", LIST, "GSSAPI", "Mechanisms that clients may use."),
    _text("sasl.mechanism.inter.broker.protocol", "GSSAPI", "What brokers log in with."),
    Setting("sasl.jaas.config", PASSWORD, None, "Whom to let in, or what to log in with."),
    _number(INT, "sasl.server.max.receive.size", 524288, "The largest frame before a login.", 1),
    _number(LONG, "connections.max.reauth.ms", 0, "After this a client logs in again; 0: never."),
    _text(
        "sasl.server.callback.handler.class",
        None,
        "OAuthBearerValidatorCallbackHandler: tokens must be signed with a key of the key set.",
    ),
    *_OAUTH,
)
_ZOOKEEPER = (
    _flag("zookeeper.set.acl", False, "Whether nodes are made so that only brokers change them."),
    Setting(
        "odradek.zookeeper.sasl.jaas.config",
        PASSWORD,
        None,
        "The login with ZooKeeper: DigestLoginModule with username and password.",
    ),
    _flag("zookeeper.ssl.client.enable", False, "Whether to speak TLS with ZooKeeper."),
    _text("zookeeper.ssl.keystore.location", None, "The file with our key for ZooKeeper."),
    _text("zookeeper.ssl.keystore.type", None, "PEM, PKCS12 or JKS; else by the file's name."),
    Setting("zookeeper.ssl.keystore.password", PASSWORD, None, "Of that file, or of a PEM key."),
    _text("zookeeper.ssl.truststore.location", None, "What to trust in ZooKeeper's certificate."),
    _text("zookeeper.ssl.truststore.type", None, "PEM, PKCS12 or JKS; else by the file's name."),
    Setting("zookeeper.ssl.truststore.password", PASSWORD, None, "Of that file."),
    _text("zookeeper.ssl.protocol", "TLSv1.2", "The version, without the next setting."),
    _text("zookeeper.ssl.enabled.protocols", None, "Versions of TLS to speak with ZooKeeper."),
    _text("zookeeper.ssl.cipher.suites", None, "Cipher suites by their IANA names."),
    _text(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        "How ZooKeeper's host name is verified; empty: not at all.",
    ),
    _flag("zookeeper.ssl.crl.enable", False, "Must be false: revocation lists are not read."),
    _flag("zookeeper.ssl.ocsp.enable", False, "Must be false: OCSP is not spoken."),
)
_SECURITY = (
    *_TLS,
    *_SASL,
    _text(
        "listener.security.protocol.map",
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The security protocol of each listener's name.",
    ),
    _choice(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "The listener named like this is the brokers', without inter.broker.listener.name.",
    ),
    _text("control.plane.listener.name", None, "The listener that the controller uses."),
    Setting(
        *("password.encoder.secret", PASSWORD, None),
        "Encrypts passwords that are set while brokers run; the same on every broker.",
    ),
    Setting("password.encoder.old.secret", PASSWORD, None, "What it was before it changed."),
    _number(INT, "password.encoder.key.length", 128, "Bits of the key made from it.", 128, 256),
    _number(INT, "password.encoder.iterations", 4096, "Rounds to make that key.", 1024),
    _number(
        INT,
        "connection.failed.authentication.delay.ms",
        100,
        "How late a failed login is answered and closed.",
        0,
    ),
    _text("authorizer.class.name", "", "kafka.security.authorizer.AclAuthorizer, or no checks."),
    Setting(
        "delegation.token.secret.key",
        PASSWORD,
        None,
        "From which tokens are derived, the same on every broker; unset: no tokens.",
    ),
    Setting(
        "delegation.token.master.key", PASSWORD, None, "delegation.token.secret.key, formerly."
    ),
    _number(LONG, "delegation.token.max.lifetime.ms", 604800000, "No token lasts longer.", 1),
    _number(LONG, "delegation.token.expiry.time.ms", 86400000, "Until it must be renewed.", 1),
    _number(
        LONG,
        "delegation.token.expiry.check.interval.ms",
        3600000,
        "How often expired tokens are deleted.",
        1,
    ),
    _text("super.users", "", "Users who may do everything: User:a;User:b."),
    _flag("allow.everyone.if.no.acl.found", False, "What holds where no ACL does."),
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
