"""What the nodes hold: values, and Kafka's JSON for them.

docs/spec/interchange-with-apache-kafka.md sections B.1 and B.4.

Writing is Kafka 3.9 at inter-broker protocol 2.6, byte for byte where Kafka itself fixes the bytes
(maps of more than four keys come in no fixed order there; ours is the order of section B.1).
Reading takes older and newer versions and is as strict as Kafka: a key that must be there, of
exactly its type. What cannot be read raises ``InvalidPayload``, which names the node.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar, cast

from odradek.store import paths
from odradek.store.api import StoreError
from odradek.wire.topic_ids import format_topic_id, parse_topic_id
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

Json = Mapping[str, object]
T = TypeVar("T")

# Kafka's marks on the wire: no leader, a topic being deleted, and the same for leader epochs.
NO_LEADER = -1
LEADER_DURING_DELETE = -2
NO_EPOCH = -1
EPOCH_DURING_DELETE = -2

LOG_DIR_FAILURE = 1
PRODUCER_ID_BLOCK_SIZE = 1000
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_ENDPOINT = re.compile(r"^(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)$")


class InvalidPayload(StoreError):
    """A node's data is not what it must be."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, f"invalid data in {path}: {reason}")


class NotJson(InvalidPayload):
    """A node's data is not even JSON. In two places Kafka takes that for nothing."""


class Endpoint(NamedTuple):
    host: str
    port: int
    listener: str = "PLAINTEXT"
    protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A live broker. The epoch is the transaction that created its node; -1 before that."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    jmx_port: int = -1
    # From inter-broker protocol 2.7 on; there are none that a broker on ZooKeeper could support.
    has_features: bool = False

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((e for e in self.endpoints if e.listener == listener), None)


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Who leads a partition. The partition epoch is the version of the node it was read from."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int = 0
    recovering: bool = False


@dataclass(frozen=True, slots=True)
class TopicNode:
    """A topic's assignment by partition; adding and removing hold only what is not empty."""

    partitions: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    topic_id: uuid.UUID | None = None


def dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def parse(data: bytes | None, path: str) -> Json:
    """The JSON object in a node."""
    try:
        value = json.loads(data or b"")
    except (ValueError, RecursionError) as error:
        raise NotJson(path, f"not JSON ({error})") from error
    if not isinstance(value, dict):
        raise InvalidPayload(path, "not a JSON object")
    return cast(Json, value)


def _parse_or_none(data: bytes | None, path: str) -> Json | None:
    try:
        return parse(data, path)
    except NotJson as error:
        logger.warning("%s; treated as empty", error)
        return None


def _is_int(value: object) -> bool:
    return type(value) is int and -(2**31) <= value < 2**31


def integer(of: Json, key: str, path: str) -> int:
    value = of.get(key)
    if not _is_int(value):
        raise InvalidPayload(path, f"{key} must be a 32-bit number, not {value!r}")
    return cast(int, value)


def typed(of: Json, key: str, kind: type[T], path: str) -> T:
    value = of.get(key)
    if not isinstance(value, kind):
        raise InvalidPayload(path, f"{key} must be a {kind.__name__}, not {value!r}")
    return value


def integers(value: object, key: str, path: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(map(_is_int, value)):
        raise InvalidPayload(path, f"{key} must be an array of numbers, not {value!r}")
    return tuple(value)


# Brokers


def encode_broker(broker: BrokerRegistration, now_ms: int) -> bytes:
    plain = next((e for e in broker.endpoints if e.protocol == "PLAINTEXT"), None)
    rack = {} if broker.rack is None else {"rack": broker.rack}
    features: Json = {"features": {}} if broker.has_features else {}
    return dump(
        {
            "version": 5 if broker.has_features else 4,
            "host": plain.host if plain else None,
            "port": plain.port if plain else -1,
            "endpoints": [str(endpoint) for endpoint in broker.endpoints],
            "jmx_port": broker.jmx_port,
            "timestamp": str(now_ms),
            **rack,
            "listener_security_protocol_map": {e.listener: e.protocol for e in broker.endpoints},
            **features,
        }
    )


def decode_broker(broker_id: int, data: bytes | None, epoch: int) -> BrokerRegistration:
    path = paths.broker(broker_id)
    of = parse(data, path)
    version = integer(of, "version", path)
    jmx_port = integer(of, "jmx_port", path)
    if version < 1:
        raise InvalidPayload(path, f"unsupported version {version}")
    if version == 1:
        only = Endpoint(typed(of, "host", str, path), integer(of, "port", path))
        return BrokerRegistration(broker_id, epoch, (only,), None, jmx_port)
    protocols: Mapping[str, object] = {name: name for name in SECURITY_PROTOCOLS}
    if of.get("listener_security_protocol_map") is not None:
        protocols = typed(of, "listener_security_protocol_map", dict, path)
    endpoints = tuple(
        _decode_endpoint(text, protocols, path) for text in typed(of, "endpoints", list, path)
    )
    rack = None if of.get("rack") is None else typed(of, "rack", str, path)
    has_features = version >= 5
    return BrokerRegistration(broker_id, epoch, endpoints, rack, jmx_port, has_features)


def _decode_endpoint(text: object, protocols: Mapping[str, object], path: str) -> Endpoint:
    match = _ENDPOINT.match(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidPayload(path, f"not an endpoint: {text!r}")
    listener = match[1].upper()
    protocol = protocols.get(listener)
    if not isinstance(protocol, str) or protocol not in SECURITY_PROTOCOLS:
        raise InvalidPayload(path, f"no security protocol is known for listener {listener}")
    return Endpoint(match[2], int(match[3]), listener, protocol)


# Controller


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    return dump(
        {
            "version": 2,
            "brokerid": broker_id,
            "timestamp": str(now_ms),
            "kraftControllerEpoch": -1,
        }
    )


def decode_controller(data: bytes | None) -> tuple[int, int]:
    """Broker id, and the KRaft epoch if a KRaft controller migrates this cluster, else -1."""
    of = parse(data, paths.CONTROLLER)
    kraft_epoch = -1
    if "kraftControllerEpoch" in of:
        kraft_epoch = integer(of, "kraftControllerEpoch", paths.CONTROLLER)
    return integer(of, "brokerid", paths.CONTROLLER), kraft_epoch


def encode_controller_epoch(epoch: int) -> bytes:
    return b"%d" % epoch


def decode_controller_epoch(data: bytes | None) -> int:
    try:
        return int((data or b"").decode())
    except ValueError as error:
        raise InvalidPayload(paths.CONTROLLER_EPOCH, f"not a number: {data!r}") from error


# Topics and partitions


def encode_topic(topic: TopicNode) -> bytes:
    def by_name(lists: Mapping[int, Collection[int]]) -> dict[str, list[int]]:
        return {str(partition): list(lists[partition]) for partition in sorted(lists)}

    value: dict[str, object] = {
        "version": 3,
        "partitions": by_name(topic.partitions),
        "adding_replicas": by_name({p: r for p, r in topic.adding.items() if r}),
        "removing_replicas": by_name({p: r for p, r in topic.removing.items() if r}),
    }
    if topic.topic_id is not None:
        value["topic_id"] = format_topic_id(topic.topic_id)
    return dump(value)


def decode_topic(name: str, data: bytes | None) -> TopicNode:
    """A topic without JSON has no partitions, as in Kafka; wrong JSON is an error."""
    path = paths.topic(name)
    of = _parse_or_none(data, path) or {}

    def by_partition(key: str) -> dict[int, tuple[int, ...]]:
        lists = typed(of, key, dict, path) if key in of else {}
        try:
            return {int(number): integers(ids, key, path) for number, ids in lists.items()}
        except ValueError as error:
            raise InvalidPayload(path, f"a partition of {key} is not a number") from error

    topic_id = None
    if "topic_id" in of:
        try:
            topic_id = parse_topic_id(typed(of, "topic_id", str, path))
        except ValueError as error:
            raise InvalidPayload(path, str(error)) from None
    partitions = by_partition("partitions")
    adding = {p: ids for p, ids in by_partition("adding_replicas").items() if ids}
    removing = {p: ids for p, ids in by_partition("removing_replicas").items() if ids}
    return TopicNode(partitions, adding, removing, topic_id)


def encode_state(state: LeaderAndIsr) -> bytes:
    recovery = ',"leader_recovery_state":1' if state.recovering else ""
    return (
        f'{{"version":1,"leader":{state.leader},"leader_epoch":{state.leader_epoch},'
        f'"controller_epoch":{state.controller_epoch},'
        f'"isr":[{",".join(map(str, state.isr))}]{recovery}}}'
    ).encode()


def decode_state(of: TopicPartition, data: bytes | None, version: int) -> LeaderAndIsr | None:
    """None where there is no JSON: Kafka takes that for a partition without a state."""
    path = paths.partition_state(of)
    value = _parse_or_none(data, path)
    if value is None:
        return None
    recovery = (
        integer(value, "leader_recovery_state", path) if "leader_recovery_state" in value else 0
    )
    if recovery not in (0, 1):
        raise InvalidPayload(path, f"leader_recovery_state must be 0 or 1, not {recovery}")
    return LeaderAndIsr(
        leader=integer(value, "leader", path),
        leader_epoch=integer(value, "leader_epoch", path),
        isr=integers(value.get("isr"), "isr", path),
        controller_epoch=integer(value, "controller_epoch", path),
        partition_epoch=version,
        recovering=recovery == 1,
    )


# Requests and notifications


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """The body of an ISR change notification and of a preferred election."""
    named = [{"topic": p.topic, "partition": p.partition} for p in partitions]
    return dump({"version": 1, "partitions": named})


def decode_partitions(data: bytes | None, path: str) -> set[TopicPartition]:
    return {
        TopicPartition(typed(entry, "topic", str, path), integer(entry, "partition", path))
        for entry in objects(parse(data, path), "partitions", path)
    }


def objects(of: Json, key: str, path: str) -> list[Json]:
    entries = typed(of, key, list, path)
    if not all(isinstance(entry, dict) for entry in entries):
        raise InvalidPayload(path, f"{key} must be an array of objects")
    return cast(list[Json], entries)


def only(of: Json, keys: set[str], path: str) -> None:
    unknown = of.keys() - keys
    if unknown:
        raise InvalidPayload(path, f"unknown key {min(unknown)}")


def encode_reassignment(moves: Mapping[TopicPartition, Collection[int]]) -> bytes:
    entries = [
        {"topic": p.topic, "partition": p.partition, "replicas": list(replicas)}
        for p, replicas in moves.items()
    ]
    return dump({"version": 1, "partitions": entries})


def decode_reassignment(data: bytes | None) -> dict[TopicPartition, tuple[int, ...]]:
    """Only the keys Kafka binds are allowed; ``log_dirs`` is for the tool, not for us."""
    path = paths.REASSIGN_PARTITIONS
    of = parse(data, path)
    only(of, {"version", "partitions"}, path)
    moves: dict[TopicPartition, tuple[int, ...]] = {}
    for entry in objects(of, "partitions", path):
        only(entry, {"topic", "partition", "replicas"}, path)
        partition = TopicPartition(
            typed(entry, "topic", str, path), integer(entry, "partition", path)
        )
        moves[partition] = integers(entry.get("replicas"), "replicas", path)
    return moves


def encode_log_dir_event(broker_id: int) -> bytes:
    return dump({"version": 1, "broker": broker_id, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(data: bytes | None, path: str) -> int:
    return integer(parse(data, path), "broker", path)


# Configurations


def encode_config(config: Mapping[str, str]) -> bytes:
    return dump({"version": 1, "config": dict(config)})


def decode_config(data: bytes | None, path: str) -> dict[str, str]:
    if not data:
        return {}
    config = parse(data, path).get("config")
    if not isinstance(config, dict):
        return {}
    for name, value in config.items():
        if not isinstance(value, str):
            raise InvalidPayload(path, f"the value of {name} must be a string, not {value!r}")
    return config


def encode_config_change(entity_path: str) -> bytes:
    return dump({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes | None, path: str) -> str:
    """The entity's path. Version 1 named the kind (topics, clients) and the entity apart."""
    of = parse(data, path)
    version = integer(of, "version", path)
    if version == 1:
        kind, name = typed(of, "entity_type", str, path), typed(of, "entity_name", str, path)
        entity_path = f"{kind}/{name}"
    elif version == 2:
        entity_path = typed(of, "entity_path", str, path)
    else:
        raise InvalidPayload(path, f"unsupported version {version}")
    if entity_path.split("/")[0] not in list(paths.ConfigKind) or "/" not in entity_path:
        raise InvalidPayload(path, f"unknown kind of entity: {entity_path!r}")
    return entity_path


# The cluster


def encode_cluster_id(cluster_id: str) -> bytes:
    return dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    return typed(parse(data, paths.CLUSTER_ID), "id", str, paths.CLUSTER_ID)


def encode_producer_ids(broker_id: int, block: range) -> bytes:
    return dump(
        {
            "version": 1,
            "broker": broker_id,
            "block_start": str(block.start),
            "block_end": str(block.stop - 1),
        }
    )


def decode_producer_ids(data: bytes) -> range:
    path = paths.PRODUCER_IDS
    of = parse(data, path)
    integer(of, "broker", path)
    try:
        first, last = (int(typed(of, key, str, path)) for key in ("block_start", "block_end"))
    except ValueError as error:
        raise InvalidPayload(path, "the block's bounds must be numbers in strings") from error
    return range(first, last + 1)


class FeatureNode(NamedTuple):
    """`/feature`: whether the cluster has features, and which are finalized (KIP-584)."""

    version: int
    is_enabled: bool
    features: Mapping[str, object] = {}


def encode_features(node: FeatureNode) -> bytes:
    status = int(node.is_enabled)
    return dump({"version": node.version, "status": status, "features": dict(node.features)})


def decode_features(data: bytes | None) -> FeatureNode:
    """Raises InvalidPayload unless Kafka could decode it.

    docs/spec/interchange-with-apache-kafka.md section B.2.
    """
    path = paths.FEATURES
    of = parse(data, path)
    version = integer(of, "version", path)
    if version not in (1, 2):
        raise InvalidPayload(path, f"unsupported version {version}")
    status = integer(of, "status", path)
    if status not in (0, 1):
        raise InvalidPayload(path, f"status must be 0 or 1, not {of['status']!r}")
    features = typed(of, "features", dict, path)
    for name, levels in features.items():
        if not isinstance(levels, dict):
            raise InvalidPayload(path, f"feature {name} must be an object")
        highest = integer(levels, "max_version_level", path)
        lowest = integer(levels, "min_version_level", path) if version == 1 else 1
        if not 1 <= lowest <= highest:
            raise InvalidPayload(path, f"feature {name} has levels {lowest} to {highest}")
    return FeatureNode(version, status == 1, features)
