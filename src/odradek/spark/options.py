"""The options of Spark's `kafka` format, read strictly.

docs/spec/spark-kafka-format.md section 1: names in any case, defaults, what is refused and in which
order. Beyond it, an option that does not exist is refused with the nearest that does: Spark's own
format ignores a misspelt name, and a stream that silently starts at `latest` has lost data before
it began.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from odradek.spark.client_settings import (
    LONG_MAX,
    LONG_MIN,
    bootstrap_of,
    client_settings,
    refuse_kafka,
    refuse_unknown,
    whole_number,
)
from odradek.spark.errors import OptionError
from odradek.wire.messages.list_offsets import EARLIEST, LATEST
from odradek.wire.topics import TopicPartition

FORBIDDEN_KAFKA = {
    "kafka.auto.offset.reset": "use startingOffsets instead",
    "kafka.key.deserializer": "keys are binary columns; decode them with DataFrame operations",
    "kafka.value.deserializer": "values are binary columns; decode them with DataFrame operations",
    "kafka.enable.auto.commit": "Spark keeps its own offsets; commitGroup makes them visible",
    "kafka.interceptor.classes": "interceptors may break the query",
}

# Names as people write them; looked up in lower case.
NAMES = (
    "kafka.bootstrap.servers",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
    "commitGroup",
)

# What only a stream heeds.
STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitGroup")


class Choice(Enum):
    """How the topics are chosen."""

    SUBSCRIBE = "subscribe"
    PATTERN = "subscribePattern"
    ASSIGN = "assign"


@dataclass(frozen=True, slots=True)
class Topics:
    """Which topics, or partitions, are read."""

    choice: Choice
    names: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


class Kind(Enum):
    """How one end of the range is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMESTAMP = "timestamp"
    TIMESTAMPS = "timestamps"


@dataclass(frozen=True, slots=True)
class Limit:
    """One end of what is read: a word, a time, or a number for each partition."""

    kind: Kind
    timestamp_ms: int = 0
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Everything a read needs to know, checked."""

    bootstrap_servers: str
    topics: Topics
    start: Limit
    end: Limit
    start_strategy_latest: bool
    fail_on_data_loss: bool
    poll_timeout_ms: int
    attempts: int
    retry_interval_ms: int
    metadata_ttl_ms: int
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    min_partitions: int | None
    max_records: int | None
    include_headers: bool
    commit_group: str | None
    read_committed: bool
    # Secrets may be among them.
    client: Mapping[str, str] = field(default_factory=dict, repr=False)


def source_options(options: Mapping[str, str], streaming: bool) -> SourceOptions:
    """Read and check the options of a source; raises OptionError with what to write instead."""
    given = {name.lower(): value for name, value in options.items()}
    given.pop("path", None)
    if streaming:
        for name in ("endingOffsets", "endingOffsetsByTimestamp"):
            if name.lower() in given:
                raise OptionError(f"{name} is for batch reads; a stream has no end")
    refuse_unknown(given, NAMES)
    start = _start(given, streaming)
    # A stream has no end, and an endingTimestamp there is not even read.
    end = Limit(Kind.LATEST) if streaming else _end(given)
    topics = _topics(given)
    if not streaming:
        _cross_check(start, end)
    min_partitions = _positive(given, "minPartitions")
    ttl = whole_number(given, "partition.metadata.cache.ttl.ms", -1)
    if ttl == 0 or ttl < -1:
        raise OptionError("partition.metadata.cache.ttl.ms must be -1 (off) or positive")
    max_records = _positive(given, "maxRecordsPerPartition")
    refuse_kafka(given, FORBIDDEN_KAFKA)
    bootstrap = bootstrap_of(given)
    min_offsets, max_offsets = (
        _positive(given, "minOffsetsPerTrigger"),
        _positive(given, "maxOffsetsPerTrigger"),
    )
    if min_offsets and max_offsets and min_offsets > max_offsets:
        raise OptionError(
            f"minOffsetsPerTrigger ({min_offsets}) is greater than "
            f"maxOffsetsPerTrigger ({max_offsets})"
        )
    return SourceOptions(
        bootstrap_servers=bootstrap,
        topics=topics,
        start=start,
        end=end,
        start_strategy_latest=_strategy(given) == "latest",
        fail_on_data_loss=boolean_option(given, "failOnDataLoss", True),
        poll_timeout_ms=whole_number(given, "kafkaConsumer.pollTimeoutMs", 120_000),
        attempts=whole_number(given, "fetchOffset.numRetries", 3),
        retry_interval_ms=whole_number(given, "fetchOffset.retryIntervalMs", 1000),
        metadata_ttl_ms=ttl,
        max_offsets=max_offsets,
        min_offsets=min_offsets,
        max_delay_ms=duration_ms(given.get("maxtriggerdelay", "15m"), "maxTriggerDelay"),
        min_partitions=min_partitions,
        max_records=max_records,
        include_headers=boolean_option(given, "includeHeaders", False),
        commit_group=given.get("commitgroup") or None,
        read_committed=_isolation(given) == "read_committed",
        client=client_settings(given),
    )


def without_effect(options: Mapping[str, str]) -> list[str]:
    """The options that a batch read was given and that only a stream heeds."""
    given = {name.lower() for name in options}
    return [name for name in STREAM_ONLY if name.lower() in given]


def _topics(given: Mapping[str, str]) -> Topics:
    chosen = [choice for choice in Choice if choice.value.lower() in given]
    if len(chosen) != 1:
        names = ", ".join(choice.value for choice in chosen) or "none"
        raise OptionError(
            f"exactly one of subscribe, subscribePattern and assign must be given, got {names}"
        )
    choice = chosen[0]
    value = given[choice.value.lower()].strip()
    if choice is Choice.SUBSCRIBE:
        topics = tuple(name.strip() for name in value.split(",") if name.strip())
        if not topics:
            raise OptionError("subscribe names no topic")
        return Topics(choice, names=topics)
    if choice is Choice.PATTERN:
        if not value:
            raise OptionError("subscribePattern is empty")
        try:
            re.compile(value)
        except re.error as error:
            raise OptionError(
                f"subscribePattern is no regular expression: {error}: {value}"
            ) from None
        return Topics(choice, pattern=value)
    return Topics(choice, partitions=_assigned(value))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    sample = '{"topicA":[0,1],"topicB":[0]}'
    try:
        topics = json.loads(text)
        if not isinstance(topics, dict):
            raise TypeError
        return tuple(
            TopicPartition(topic, _whole(partition))
            for topic, partitions in sorted(topics.items())
            for partition in sorted(set(partitions))
        )
    except (ValueError, TypeError):
        raise OptionError(f"assign must be JSON such as {sample}, got {text!r}") from None


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value


def _start(given: Mapping[str, str], streaming: bool) -> Limit:
    limit = _by_time(given, "startingTimestamp", "startingOffsetsByTimestamp")
    if limit is None:
        limit = _by_offset(given, "startingOffsets", "latest" if streaming else "earliest")
    if not streaming:
        _refuse_symbol(limit, Kind.LATEST, LATEST, "startingOffsets of a batch read", "follows")
    return limit


def _end(given: Mapping[str, str]) -> Limit:
    limit = _by_time(given, "endingTimestamp", "endingOffsetsByTimestamp")
    if limit is None:
        limit = _by_offset(given, "endingOffsets", "latest")
    _refuse_symbol(limit, Kind.EARLIEST, EARLIEST, "endingOffsets", "comes before")
    return limit


def _refuse_symbol(limit: Limit, kind: Kind, offset: int, name: str, nothing: str) -> None:
    """OptionError for a side on which earliest or latest leaves nothing to read, with its
    partitions."""
    wrong = [str(tp) for tp in sorted(limit.by_partition) if limit.by_partition[tp] == offset]
    if limit.kind is kind or (limit.kind is Kind.OFFSETS and wrong):
        where = f" for {', '.join(wrong)}" if wrong else ""
        raise OptionError(f"{name} cannot be {kind.value} ({offset}){where}: nothing {nothing}")


def _by_time(given: Mapping[str, str], single: str, each: str) -> Limit | None:
    if single.lower() in given:
        return Limit(Kind.TIMESTAMP, timestamp_ms=whole_number(given, single, 0))
    if each.lower() in given:
        return Limit(Kind.TIMESTAMPS, by_partition=_numbers(given[each.lower()], each))
    return None


def _by_offset(given: Mapping[str, str], name: str, default: str) -> Limit:
    value = given.get(name.lower(), default).strip()
    if value.lower() in ("earliest", "latest"):
        return Limit(Kind(value.lower()))
    return Limit(Kind.OFFSETS, by_partition=_numbers(value, name, at_least=EARLIEST))


def _numbers(text: str, name: str, at_least: int = LONG_MIN) -> dict[TopicPartition, int]:
    sample = '{"topicA":{"0":23,"1":-2}}'
    try:
        numbers = {
            TopicPartition(topic, int(partition)): _whole(number)
            for topic, partitions in json.loads(text).items()
            for partition, number in partitions.items()
        }
        if not all(at_least <= number <= LONG_MAX for number in numbers.values()):
            raise ValueError
        return numbers
    except (ValueError, TypeError, AttributeError):
        raise OptionError(
            f"{name} must be earliest, latest or JSON such as {sample}, got {text!r}"
        ) from None


def _cross_check(start: Limit, end: Limit) -> None:
    if start.kind is not end.kind or start.kind not in (Kind.OFFSETS, Kind.TIMESTAMPS):
        return
    first, last = start.by_partition, end.by_partition
    if first.keys() != last.keys():
        raise OptionError(
            "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET: the start names "
            f"{_names(first)}, the end {_names(last)}"
        )
    for tp, number in first.items():
        if number >= 0 and last[tp] >= 0 and number > last[tp]:
            raise OptionError(
                f"UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET: {tp} starts at {number} and "
                f"ends at {last[tp]}"
            )


def _names(partitions: Mapping[TopicPartition, int]) -> str:
    return ", ".join(str(tp) for tp in sorted(partitions)) or "nothing"


def _strategy(given: Mapping[str, str]) -> str:
    value = given.get("startingoffsetsbytimestampstrategy", "error").lower()
    if value not in ("error", "latest"):
        raise OptionError(
            f"startingOffsetsByTimestampStrategy must be error or latest, got {value!r}"
        )
    return value


def _isolation(given: Mapping[str, str]) -> str:
    value = given.get("kafka.isolation.level", "read_uncommitted")
    if value not in ("read_uncommitted", "read_committed"):
        raise OptionError(
            f"kafka.isolation.level must be read_uncommitted or read_committed, got {value!r}"
        )
    return value


def _positive(given: Mapping[str, str], name: str) -> int | None:
    if name.lower() not in given:
        return None
    value = whole_number(given, name, 0)
    if value <= 0:
        raise OptionError(f"{name} must be greater than 0, got {value}")
    return value


def boolean_option(given: Mapping[str, str], name: str, default: bool = False) -> bool:
    value = given.get(name.lower(), str(default)).lower()
    if value not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, got {value!r}")
    return value == "true"


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str, name: str) -> int:
    """A Spark time string: a number and a unit; a bare number is milliseconds."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if match is None or (match[2] and match[2] not in _UNITS_MS):
        units = ", ".join(_UNITS_MS)
        raise OptionError(f"{name} must be a time such as 15m (units: {units}), got {text!r}")
    return int(match[1]) * _UNITS_MS[match[2] or "ms"]
