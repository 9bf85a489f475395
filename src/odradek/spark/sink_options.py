"""The options of a write: docs/spec/spark-kafka-format.md section 4."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from odradek.spark.client_settings import (
    INT_MAX,
    LONG_MAX,
    bootstrap_of,
    client_settings,
    refuse_kafka,
    refuse_unknown,
    whole_number,
)
from odradek.spark.errors import OptionError
from odradek.spark.options import boolean_option
from odradek.wire.compression import Codec

T = TypeVar("T")

PREFIX = "kafka.transactional.id.prefix"
NAMES = (
    "kafka.bootstrap.servers",
    "topic",
    "includeHeaders",
    "checkpointLocation",
    "exactlyOnce",
    "txnAppId",
    "txnVersion",
    "failOnMissingMark",
    PREFIX,
)
FORBIDDEN_KAFKA = {
    "kafka.key.serializer": "keys are strings or binary; encode them with DataFrame operations",
    "kafka.value.serializer": "values are strings or binary; encode them with DataFrame operations",
    "kafka.partitioner.class": "a column partition says where a row goes",
    "kafka.interceptor.classes": "there is no Java here to run them",
    "kafka.transactional.id": "with exactlyOnce each task has its own, which begins with "
    "kafka.transactional.id.prefix",
}

ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
CODECS = {codec.name.lower(): codec for codec in Codec}

BATCH_BYTES = 512 * 1024
BUFFER_BYTES = 8 * 1024 * 1024
DELIVERY_TIMEOUT_MS = 120_000
REQUEST_TIMEOUT_MS = 30_000
# The most that brokers allow by default: what a task may take for its rows.
TRANSACTION_TIMEOUT_MS = 900_000
DEFAULT_PREFIX = "odradek"
# Without dots, which separate the parts of a transactional id.
APPLICATION = re.compile(r"[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """How rows are written exactly once. Without an application it is the stream's query."""

    prefix: str
    timeout_ms: int
    application: str
    version: int
    fail_on_missing_mark: bool


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Everything a write needs to know, checked."""

    bootstrap_servers: str
    topic: str | None
    client_id: str
    acks: int
    idempotent: bool
    codec: Codec
    batch_bytes: int
    buffer_bytes: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    # None is at least once.
    transactions: TransactionOptions | None = None
    # Secrets may be among them.
    client: Mapping[str, str] = field(default_factory=dict, repr=False)


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Read and check the options of a sink; raises OptionError with what to write instead."""
    given = {name.lower(): value for name, value in options.items()}
    given.pop("path", None)
    refuse_unknown(given, NAMES)
    refuse_kafka(given, FORBIDDEN_KAFKA)
    settings = client_settings(given)
    acks = _one_of(settings, "acks", ACKS, "all")
    idempotence = _one_of(settings, "enable.idempotence", {"true": True, "false": False}, "true")
    if idempotence and acks != ACKS["all"]:
        if settings.get("enable.idempotence"):
            raise OptionError("kafka.enable.idempotence needs kafka.acks to be all")
        idempotence = False
    transactions = _transactions(given)
    if transactions is not None and not idempotence:
        raise OptionError(
            "exactlyOnce needs kafka.acks to be all and kafka.enable.idempotence to be true"
        )
    return SinkOptions(
        bootstrap_servers=bootstrap_of(given),
        topic=given.get("topic", "").strip() or None,
        client_id=settings.get("client.id", "odradek-spark"),
        acks=acks,
        idempotent=idempotence,
        codec=_one_of(settings, "compression.type", CODECS, "none"),
        batch_bytes=int(settings.get("batch.size", BATCH_BYTES)),
        buffer_bytes=int(settings.get("buffer.memory", BUFFER_BYTES)),
        delivery_timeout_ms=int(settings.get("delivery.timeout.ms", DELIVERY_TIMEOUT_MS)),
        request_timeout_ms=int(settings.get("request.timeout.ms", REQUEST_TIMEOUT_MS)),
        transactions=transactions,
        client=settings,
    )


def _transactions(given: Mapping[str, str]) -> TransactionOptions | None:
    prefix = given.get(PREFIX, "").strip()
    if not boolean_option(given, "exactlyOnce", bool(prefix)):
        for name in (PREFIX, "txnAppId", "txnVersion", "failOnMissingMark"):
            if name.lower() in given:
                raise OptionError(f"{name} is for exactlyOnce=true")
        return None
    application = given.get("txnappid", "")
    if ("txnappid" in given) != ("txnversion" in given):
        raise OptionError("txnAppId and txnVersion go together: which write of which job this is")
    if application and not APPLICATION.fullmatch(application):
        raise OptionError(
            f"txnAppId must be up to 100 letters, digits, _ and -, got {application!r}"
        )
    version = whole_number(given, "txnVersion", 0)
    if not 0 <= version < LONG_MAX:
        raise OptionError(f"txnVersion must not be negative, nor {LONG_MAX}, got {version}")
    timeout_ms = whole_number(given, "kafka.transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
    if not 0 < timeout_ms <= INT_MAX:
        raise OptionError(f"kafka.transaction.timeout.ms must be positive, got {timeout_ms}")
    return TransactionOptions(
        prefix or DEFAULT_PREFIX,
        timeout_ms,
        application,
        version,
        boolean_option(given, "failOnMissingMark", True),
    )


def _one_of(settings: Mapping[str, str], name: str, words: Mapping[str, T], default: str) -> T:
    value = settings.get(name, default).strip().lower()
    if value not in words:
        raise OptionError(f"kafka.{name} must be one of {', '.join(words)}, got {value!r}")
    return words[value]
