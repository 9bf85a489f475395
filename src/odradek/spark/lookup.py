"""What the driver asks the cluster: which partitions there are, and where their logs begin and end.

docs/spec/spark-kafka-format.md section 1: every question is tried `fetchOffset.numRetries` times in
all, with a new client after each failure, since the driver of a stream outlives many a broker.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from odradek.client.blocking_client import Blocking
from odradek.client.client import TIMEOUT_S, Client
from odradek.client.groups import Groups
from odradek.client.metadata import Metadata
from odradek.client.reader import EARLIEST, LATEST, Isolation, OffsetAt, offsets_at
from odradek.client.values import check
from odradek.spark.client_settings import security_settings
from odradek.spark.errors import NoBroker, OptionError
from odradek.spark.options import Choice, Kind, Limit, SourceOptions, Topics
from odradek.wire.errors import KafkaError
from odradek.wire.topic_ids import NO_TOPIC_ID
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, int]
T = TypeVar("T")

# The first record with a time at all: the first of the log.
BEGINNING_OF_TIME_MS = 0
COMMIT_TIMEOUT_S = 5.0
# How long a wrong address may go unnoticed. Once a broker has answered, outages are waited for.
FIRST_CONTACT_S = 10.0


def connect(options: SourceOptions) -> Blocking:
    """A client as the `kafka.*` options want it."""
    settings = options.client
    timeout_ms = settings.get("request.timeout.ms")
    return Blocking(
        options.bootstrap_servers,
        client_id=settings.get("client.id", "odradek-spark"),
        timeout_s=int(timeout_ms) / 1000 if timeout_ms else TIMEOUT_S,
        rack=settings.get("client.rack", ""),
        security=security_settings(settings),
    )


def isolation_of(options: SourceOptions) -> Isolation:
    return Isolation.READ_COMMITTED if options.read_committed else Isolation.READ_UNCOMMITTED


@dataclass(frozen=True, slots=True)
class Chosen:
    """The partitions that are read now, and the ids of their topics where the cluster has ids."""

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, str]
    # Whether the cluster named no topic at all, chosen or not.
    of_none: bool = False


class Firsts(NamedTuple):
    """The first record of each log, without the empty ones, and the epoch of each leader asked."""

    records: Mapping[TopicPartition, OffsetAt]
    epochs: Mapping[TopicPartition, int]


class Lookup:
    """Asks and asks again. Opens its connections on first use; close it."""

    def __init__(
        self,
        options: SourceOptions,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._blocking: Blocking | None = None
        self._chosen: Chosen | None = None
        self._chosen_at = 0.0
        self._questions = self._failures = 0
        self._has_answered = False

    def close(self) -> None:
        if self._blocking is not None:
            self._blocking.close()
            self._blocking = None

    def statistics(self) -> dict[str, int]:
        return {"questions": self._questions, "failures": self._failures}

    def pause(self) -> None:
        """The time between two looks at something that ought to change."""
        self._sleep(self._options.retry_interval_ms / 1000)

    def chosen(self, refresh: bool = False) -> Chosen:
        """The partitions that the options choose, as of now or within the time they may be kept."""
        age_ms = (self._clock() - self._chosen_at) * 1000
        if self._chosen is None or refresh or age_ms >= max(self._options.metadata_ttl_ms, 0):
            chosen = self._ask(lambda client: _choose(client, self._options.topics))
            if chosen.of_none:
                # A broker that has just started may know the brokers before it knows the topics.
                self.pause()
                chosen = self._ask(lambda client: _choose(client, self._options.topics))
            self._chosen = chosen
            self._chosen_at = self._clock()
        return self._chosen

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(dict.fromkeys(partitions, LATEST))

    def firsts(self, partitions: Iterable[TopicPartition]) -> Firsts:
        """The first record of each log, and the epoch of the leader that reported it."""
        wanted = dict.fromkeys(partitions, BEGINNING_OF_TIME_MS)
        if not wanted:
            return Firsts({}, {})
        isolation = isolation_of(self._options)

        async def ask(client: Client) -> Firsts:
            found = await offsets_at(client, wanted, isolation=isolation)
            records = {partition: at for partition, at in found.items() if at.offset >= 0}
            # Only now: while a partition has no leader, the question waits for the next one.
            return Firsts(records, _epochs(client.metadata, wanted))

        return self._ask(ask)

    def at_times(self, times_ms: Offsets) -> dict[TopicPartition, int | None]:
        """The first offset at or after each time; None where there is none."""
        found = self._at(times_ms)
        return {part: at.offset if at.offset >= 0 else None for part, at in found.items()}

    def resolve(
        self, limit: Limit, partitions: Iterable[TopicPartition], is_start: bool
    ) -> Offsets:
        """One end of the range as offsets; EARLIEST and LATEST stay where the options say so."""
        partitions = list(partitions)
        if limit.kind is Kind.EARLIEST:
            return dict.fromkeys(partitions, EARLIEST)
        if limit.kind is Kind.LATEST:
            return dict.fromkeys(partitions, LATEST)
        if limit.kind is Kind.TIMESTAMP:
            times: Offsets = dict.fromkeys(partitions, limit.timestamp_ms)
        else:
            _check_same(limit, partitions, is_start)
            if limit.kind is Kind.OFFSETS:
                return dict(limit.by_partition)
            times = limit.by_partition
        resolved = {}
        for partition, offset in self.at_times(times).items():
            if offset is None and is_start and not self._options.start_strategy_latest:
                raise OptionError(
                    f"{partition} has no record at or after the starting timestamp "
                    f"{times[partition]}; set startingOffsetsByTimestampStrategy to latest to "
                    "begin at its end"
                )
            resolved[partition] = LATEST if offset is None else offset
        return resolved

    def concrete(self, offsets: Offsets) -> dict[TopicPartition, int]:
        """The same with EARLIEST and LATEST looked up."""
        symbolic = {part: offset for part, offset in offsets.items() if offset < 0}
        return {**offsets, **self._offsets(symbolic)}

    def commit(self, group: str, offsets: Offsets) -> None:
        """Set a group's offsets, so that every tool shows its lag.

        Tried once and not for long: a batch waits for it, and the next one says it again."""

        async def ask(client: Client) -> None:
            try:
                async with asyncio.timeout(COMMIT_TIMEOUT_S):
                    check(await Groups(client).alter_offsets(group, offsets))
            except TimeoutError:
                raise TimeoutError(f"not within {COMMIT_TIMEOUT_S:.0f} s") from None

        self._ask(ask, attempts=1)

    def _offsets(self, wanted: Offsets) -> dict[TopicPartition, int]:
        return {partition: at.offset for partition, at in self._at(wanted).items()}

    def _at(self, wanted: Offsets) -> dict[TopicPartition, OffsetAt]:
        if not wanted:
            return {}
        isolation = isolation_of(self._options)
        return self._ask(lambda client: offsets_at(client, wanted, isolation=isolation))

    def _ask(
        self, question: Callable[[Client], Coroutine[Any, Any, T]], attempts: int | None = None
    ) -> T:
        attempts = max(1, self._options.attempts) if attempts is None else attempts
        for attempt in range(1, attempts + 1):
            self._questions += 1
            try:
                if self._blocking is None:
                    self._blocking = connect(self._options)
                answer = self._blocking.run(self._bounded(question, self._blocking.client))
                self._has_answered = True
                return answer
            except (OSError, TimeoutError, KafkaError) as error:
                self._failures += 1
                self._refuse_unreachable(error)
                self.close()
                if attempt == attempts:
                    raise
                logger.warning("attempt %d of %d failed: %s", attempt, attempts, error)
                self.pause()
        raise AssertionError("the last attempt returns or raises")

    async def _bounded(
        self, question: Callable[[Client], Coroutine[Any, Any, T]], client: Client
    ) -> T:
        """The answer; the first of all within a time in which a wrong address is noticed."""
        async with asyncio.timeout(None if self._has_answered else FIRST_CONTACT_S):
            return await question(client)

    def _refuse_unreachable(self, error: Exception) -> None:
        """NoBroker if none has ever answered: the address is wrong, or nothing runs there."""
        if self._has_answered or isinstance(error, KafkaError):
            return
        self._has_answered = self._blocking is not None and bool(
            self._blocking.client.metadata.nodes
        )
        if not self._has_answered:
            self.close()
            servers = self._options.bootstrap_servers
            why = str(error) or f"not within {FIRST_CONTACT_S:.0f} s"
            raise NoBroker(f"no broker answers at {servers}: {why}") from None


async def _choose(client: Client, topics: Topics) -> Chosen:
    if topics.choice is Choice.PATTERN:
        metadata = await client.refresh(None)
        pattern = re.compile(topics.pattern)
        names = sorted(
            name
            for name, topic in metadata.topics.items()
            if pattern.search(name) and not topic.is_internal
        )
        partitions = metadata.partitions_of(names)
    elif topics.choice is Choice.SUBSCRIBE:
        names = sorted(set(topics.names))
        partitions = (await client.require_topics(names)).partitions_of(names)
    else:
        names = sorted({partition.topic for partition in topics.partitions})
        existing = set((await client.require_topics(names)).partitions_of(names))
        partitions = [part for part in topics.partitions if part in existing]
    ids = {name: client.metadata.topics[name].id for name in names}
    return Chosen(
        tuple(partitions),
        {name: str(id) for name, id in ids.items() if id != NO_TOPIC_ID},
        of_none=topics.choice is Choice.PATTERN and not client.metadata.topics,
    )


def _epochs(metadata: Metadata, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The leader epochs, as far as the cluster reports them."""
    epochs = {}
    for partition in sorted(partitions):
        topic = metadata.topics.get(partition.topic)
        known = None if topic is None else topic.partitions.get(partition.partition)
        if known is not None and known.leader_epoch >= 0:
            epochs[partition] = known.leader_epoch
    return epochs


def _check_same(limit: Limit, partitions: list[TopicPartition], is_start: bool) -> None:
    if set(limit.by_partition) == set(partitions):
        return
    condition = (
        "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"
        if limit.kind is Kind.TIMESTAMPS
        else f"KAFKA_{'START' if is_start else 'END'}_OFFSET_DOES_NOT_MATCH_ASSIGNED"
    )
    given, assigned = sorted(limit.by_partition), sorted(partitions)
    # A time has no such words.
    advice = "" if limit.kind is Kind.TIMESTAMPS else ", -2 is earliest and -1 is latest"
    raise OptionError(
        f"{condition}: the offsets name {', '.join(map(str, given)) or 'nothing'}, the partitions "
        f"are {', '.join(map(str, assigned)) or 'none'}; name each of them{advice}"
    )
