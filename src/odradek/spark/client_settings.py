"""The settings behind `kafka.`: those of the Java client, of which this client heeds a few.

A name that the Java client does not have either is refused with the nearest that exists. One that
it has and we do not need is accepted without effect, so that options can be carried over as they
are; but not one whose loss would change what is read or written: that is refused with the reason.
"""

import difflib
from collections.abc import Iterable, Mapping

from odradek.client.connections import parse_addresses
from odradek.client.security import InvalidSecurity, connection_security, settings_file
from odradek.spark.errors import OptionError

PREFIX = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"
# Settings in a file, read by the driver and by the workers: a secret in it is no option, and so in
# no plan, log or history.
CONFIG_FILE = "kafka.odradek.config.file"
INT_MAX = 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

# Settings of Kafka 3.9's consumer, producer and admin client. Those of SSL and SASL are checked by
# the client.
_JAVA_CLIENT = """
acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset
batch.size bootstrap.servers buffer.memory check.crcs client.dns.lookup client.id client.rack
compression.gzip.level compression.lz4.level compression.type compression.zstd.level
connections.max.idle.ms default.api.timeout.ms delivery.timeout.ms enable.auto.commit
enable.idempotence enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms
fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor
heartbeat.interval.ms interceptor.classes isolation.level key.deserializer key.serializer linger.ms
max.block.ms max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
max.poll.records max.request.size metadata.max.age.ms metadata.max.idle.ms
metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
metrics.sample.window.ms partition.assignment.strategy partitioner.adaptive.partitioning.enable
partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys receive.buffer.bytes
reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms
retry.backoff.ms security.protocol security.providers send.buffer.bytes session.timeout.ms
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms transaction.timeout.ms
transactional.id value.deserializer value.serializer
"""
JAVA_CLIENT = tuple(f"{PREFIX}{name}" for name in _JAVA_CLIENT.split())
SECURITY = (f"{PREFIX}ssl.", f"{PREFIX}sasl.")

# Those of them that we heed and that are numbers, and the largest that each can be.
NUMBERS = {
    "kafka.fetch.max.bytes": INT_MAX,
    "kafka.max.partition.fetch.bytes": INT_MAX,
    "kafka.fetch.min.bytes": INT_MAX,
    "kafka.fetch.max.wait.ms": INT_MAX,
    "kafka.request.timeout.ms": INT_MAX,
    "kafka.delivery.timeout.ms": INT_MAX,
    "kafka.batch.size": INT_MAX,
    "kafka.buffer.memory": LONG_MAX,
}


def client_settings(given: Mapping[str, str]) -> dict[str, str]:
    """The `kafka.*` options without their prefix."""
    return {
        name.removeprefix(PREFIX): value for name, value in given.items() if name.startswith(PREFIX)
    }


def security_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """How to connect: the settings of the file, if one is named, and over them the others."""
    path = settings.get(CONFIG_FILE.removeprefix(PREFIX))
    if path is None:
        return dict(settings)
    try:
        return {**settings_file(path), **settings}
    except OSError as error:
        raise OptionError(f"{CONFIG_FILE}: cannot read {path}: {error.strerror}") from None


def is_connection_option(name: str) -> bool:
    """Whether an option says where a cluster is, or how to connect to it."""
    return name.lower() in (BOOTSTRAP, CONFIG_FILE) or name.lower().startswith(
        (f"{PREFIX}security.", *SECURITY)
    )


def refuse_unknown(given: Mapping[str, str], names: Iterable[str]) -> None:
    """OptionError for a name that is neither among these nor a setting of Kafka's client."""
    refuse_names(given, (*names, *JAVA_CLIENT, CONFIG_FILE), SECURITY)


def refuse_names(
    given: Mapping[str, str], names: Iterable[str], prefixes: tuple[str, ...] = ()
) -> None:
    """OptionError for a name that is not among these, with the nearest of them."""
    known = {name.lower(): name for name in names}
    for name in given:
        if name in known or name.startswith(prefixes):
            continue
        near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
        hint = f"; did you mean {known[near[0]]}?" if near else ""
        raise OptionError(f"unknown option {name}{hint}")


def refuse_kafka(given: Mapping[str, str], forbidden: Mapping[str, str]) -> None:
    """OptionError for a client setting that is not the user's to choose, or beyond this client."""
    for name, advice in forbidden.items():
        if name in given:
            raise OptionError(f"{name} is not supported: {advice}")
    try:
        connection_security(security_settings(client_settings(given)))
    except InvalidSecurity as error:
        raise OptionError(f"kafka.{error}") from None
    for name, largest in NUMBERS.items():
        number = whole_number(given, name, 0)
        if number < 0:
            raise OptionError(f"{name} must not be negative, got {given[name]}")
        if number > largest:
            raise OptionError(f"{name} must be at most {largest}, got {given[name]}")


def bootstrap_of(given: Mapping[str, str]) -> str:
    bootstrap = given.get("kafka.bootstrap.servers", "").strip()
    if not bootstrap:
        raise OptionError('kafka.bootstrap.servers must be given, such as "localhost:9092"')
    try:
        parse_addresses(bootstrap)
    except ValueError as error:
        raise OptionError(f"kafka.bootstrap.servers: {error}") from None
    return bootstrap


def whole_number(given: Mapping[str, str], name: str, default: int) -> int:
    value = given.get(name.lower())
    if value is None:
        return default
    try:
        number = int(value)
    except ValueError:
        raise OptionError(f"{name} must be a whole number, got {value!r}") from None
    if not LONG_MIN <= number <= LONG_MAX:
        raise OptionError(f"{name} must be from {LONG_MIN} to {LONG_MAX}, got {value!r}")
    return number
