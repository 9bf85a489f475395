"""The options of a write: docs/spec/spark-kafka-format.md section 4."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from odradek.spark.client_settings import (
    bootstrap_of,
    client_settings,
    refuse_kafka,
    refuse_unknown,
)
from odradek.spark.errors import OptionError
from odradek.wire.compression import Codec

T = TypeVar("T")

NAMES = ("kafka.bootstrap.servers", "topic", "includeHeaders", "checkpointLocation")
FORBIDDEN_KAFKA = {
    "kafka.key.serializer": "keys are strings or binary; encode them with DataFrame operations",
    "kafka.value.serializer": "values are strings or binary; encode them with DataFrame operations",
    "kafka.partitioner.class": "a column partition says where a row goes",
    "kafka.interceptor.classes": "there is no Java here to run them",
    "kafka.transactional.id": "rows are written at least once, without transactions",
}

ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
CODECS = {codec.name.lower(): codec for codec in Codec}

BATCH_BYTES = 512 * 1024
BUFFER_BYTES = 8 * 1024 * 1024
DELIVERY_TIMEOUT_MS = 120_000
REQUEST_TIMEOUT_MS = 30_000


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
        client=settings,
    )


def _one_of(settings: Mapping[str, str], name: str, words: Mapping[str, T], default: str) -> T:
    value = settings.get(name, default).strip().lower()
    if value not in words:
        raise OptionError(f"kafka.{name} must be one of {', '.join(words)}, got {value!r}")
    return words[value]
