"""The two JSON files of kafka-reassign-partitions: a reassignment, and topics to move.

`{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","/d"]}]}`
and `{"version":1,"topics":[{"topic":"t"}]}`. Bad input raises KafkaError(INVALID_REQUEST), or
INVALID_REPLICA_ASSIGNMENT where the file is well formed but asks for something that cannot be.
docs/spec/controller-and-replication.md, section 1.4.
"""

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

VERSION = 1
ANY_LOG_DIR = "any"

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


class TopicPartitionReplica(NamedTuple):
    """One copy of a partition: the partition, and the broker that holds the copy."""

    topic: str
    partition: int
    broker: int


class Reassignment(NamedTuple):
    """Where replicas shall be, and the log directory of those that shall be in a given one."""

    replicas: dict[TopicPartition, list[int]]
    log_dirs: dict[TopicPartitionReplica, str]


def parse_reassignment(text: str) -> Reassignment:
    """Read a reassignment file, refusing what could not be carried out."""
    entries = [_entry(fields) for fields in _versioned(text, "partitions")]
    if not entries:
        raise _impossible("The reassignment names no partition.")
    if repeated := _repeated(partition for partition, _, _ in entries):
        raise _impossible(f"The reassignment names {_listed(repeated)} more than once.")
    reassignment = Reassignment({}, {})
    for partition, replicas, log_dirs in entries:
        if not replicas:
            raise _impossible(f"The reassignment leaves {partition} without a replica.")
        if repeated_brokers := _repeated(replicas):
            raise _impossible(
                f"The replicas of {partition} name {_listed(repeated_brokers)} more than once."
            )
        reassignment.replicas[partition] = replicas
        for broker, log_dir in zip(replicas, log_dirs, strict=True):
            if log_dir != ANY_LOG_DIR:
                reassignment.log_dirs[TopicPartitionReplica(*partition, broker)] = log_dir
    return reassignment


def format_reassignment(
    replicas: Mapping[TopicPartition, Sequence[int]],
    log_dirs: Mapping[TopicPartitionReplica, str] | None = None,
) -> str:
    """Write a reassignment file: one line, sorted by topic and partition."""
    log_dirs = log_dirs or {}
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(brokers),
            "log_dirs": [
                log_dirs.get(TopicPartitionReplica(*partition, broker), ANY_LOG_DIR)
                for broker in brokers
            ],
        }
        for partition, brokers in sorted(replicas.items())
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"))


def parse_topics_to_move(text: str) -> list[str]:
    """Read the names in a topics-to-move file, in its order; none may be there twice."""
    topics = [_field(fields, "topic", str) for fields in _versioned(text, "topics")]
    if repeated := _repeated(topics):
        raise _malformed(f"Topics to move are named more than once: {_listed(repeated)}.")
    return topics


def format_topics_to_move(topics: Iterable[str]) -> str:
    """Write a topics-to-move file."""
    listed = [{"topic": topic} for topic in topics]
    return json.dumps({"version": VERSION, "topics": listed}, separators=(",", ":"))


def parse_broker_list(text: str) -> list[int]:
    """Read broker ids as the command line gives them, `1,2,3`; none may be there twice."""
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError:
        raise _malformed(f"A broker list looks like 1,2,3, not {text!r}.") from None
    if repeated := _repeated(brokers):
        raise _malformed(f"The broker list names {_listed(repeated)} more than once.")
    return brokers


def _versioned(text: str, name: str) -> list[dict[str, object]]:
    """The objects in the list `name` of a file whose version we know."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise _malformed(f"The file is not valid JSON: {error}.") from error
    if not isinstance(content, dict):
        raise _malformed("The file must hold a JSON object.")
    version = content.get("version", VERSION)
    if version != VERSION:
        raise _malformed(f"Not supported version field value {version}")
    items = content.get(name, [])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise _malformed(f"'{name}' must be a list of objects.")
    return items


def _entry(fields: Mapping[str, object]) -> tuple[TopicPartition, list[int], list[str]]:
    partition = TopicPartition(_field(fields, "topic", str), _field(fields, "partition", int))
    replicas = _list_field(fields, "replicas", int)
    if "log_dirs" not in fields:
        return partition, replicas, [ANY_LOG_DIR] * len(replicas)
    log_dirs = _list_field(fields, "log_dirs", str)
    if len(log_dirs) != len(replicas):
        raise _malformed(
            f"{partition} has {len(replicas)} replicas but {len(log_dirs)} log directories."
        )
    return partition, replicas, log_dirs


def _field(fields: Mapping[str, object], name: str, kind: type[T]) -> T:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, kind):
        raise _malformed(f"'{name}' must be a {_kind_name(kind)} in {json.dumps(fields)}.")
    return value


def _list_field(fields: Mapping[str, object], name: str, kind: type[T]) -> list[T]:
    values = fields.get(name)
    if not isinstance(values, list) or not all(
        isinstance(value, kind) and not isinstance(value, bool) for value in values
    ):
        raise _malformed(
            f"'{name}' must be a list, each a {_kind_name(kind)}, in {json.dumps(fields)}."
        )
    return values


def _kind_name(kind: type[object]) -> str:
    return "whole number" if kind is int else "string"


def _repeated(items: Iterable[H]) -> list[H]:
    return [item for item, times in Counter(items).items() if times > 1]


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))


def _malformed(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _impossible(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
