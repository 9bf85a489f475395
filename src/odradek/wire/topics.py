"""Topic names and partitions, as every package names them."""

import re
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from .errors import ErrorCode, KafkaError

TOPIC_NAME_LENGTH_MAX = 249
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
# Ours, and no internal topic of Kafka's: tools may write to it.
TELEMETRY_TOPIC = "__odradek_telemetry"

T = TypeVar("T")

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicPartition(NamedTuple):
    """One partition of one topic; prints the way Kafka logs it and names its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def group_by_topic(items: Iterable[tuple[TopicPartition, T]]) -> dict[str, list[T]]:
    """What belongs to partitions, as most messages list it: under each topic."""
    topics: dict[str, list[T]] = {}
    for (topic, _), item in items:
        topics.setdefault(topic, []).append(item)
    return topics


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of partitions under each topic."""
    return group_by_topic((tp, tp.partition) for tp in partitions)


def is_legal_topic_name(name: str) -> bool:
    try:
        validate_topic_name(name)
    except KafkaError:
        return False
    return True


def validate_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION unless the name can also be a directory on every disk."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        reason = (
            f"the length of '{name[:300]}' is longer than the max allowed length "
            f"{TOPIC_NAME_LENGTH_MAX}"
        )
    elif not _LEGAL_NAME.fullmatch(name):
        reason = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'"
        )
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def metric_name(topic: str) -> str:
    """What Kafka's metrics call a topic: two topics may not share one."""
    return topic.replace(".", "_")
