"""What the administrator's calls take and give."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeVar

from odradek.client.metadata import Node
from odradek.wire.errors import ErrorCode, KafkaError, error_code
from odradek.wire.topics import TopicPartition

K = TypeVar("K", bound=Hashable)
# How it went with one thing of several: None is well.
Outcome = KafkaError | None


class ResourceType(IntEnum):
    """What a setting belongs to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class ConfigSource(IntEnum):
    """Where a setting's value comes from."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    BROKER_DEFAULT = 3
    STATIC = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigOperation(IntEnum):
    """How a setting is altered; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ElectionType(IntEnum):
    """Who may become leader: the preferred replica, or any that lives."""

    PREFERRED = 0
    UNCLEAN = 1


class Resource(NamedTuple):
    """A topic or a broker as the owner of settings; a broker named "" is the default of all."""

    type: ResourceType
    name: str


class ConfigChange(NamedTuple):
    """One setting to alter."""

    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


class ConfigEntry(NamedTuple):
    """One setting and its value; that of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create: by counts (-1 is the broker's default), or with replicas of its own."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions a topic shall have, and where the new ones go, if that matters."""

    count: int
    assignment: Sequence[Sequence[int]] | None = None


class ReplicaOnDisk(NamedTuple):
    """One copy of a partition in a log directory."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    """One log directory of a broker; the totals are -1 where the broker does not report them."""

    broker: int
    path: str
    error: Outcome
    total_bytes: int
    usable_bytes: int
    replicas: list[ReplicaOnDisk]


class ClusterDescription(NamedTuple):
    """The cluster and its living brokers."""

    cluster_id: str | None
    controller_id: int
    nodes: list[Node]


def check(outcomes: Mapping[K, Outcome]) -> None:
    """Raise the first error among these outcomes."""
    for error in outcomes.values():
        if error is not None:
            raise error


def outcome(number: int, message: str | None, about: object) -> Outcome:
    """An error code and message of a response as an outcome that says what it is about."""
    error = error_code(number)
    if error is ErrorCode.NONE:
        return None
    if message and str(about).rpartition(" ")[2] in message:
        return KafkaError(error, message)  # it says itself what it is about
    return KafkaError(error, f"{about}: {message}" if message else str(about))
