"""Keeps the picture up to date: what is asked, and how often.

docs/spec/console.md section 3. Every answer of the console comes from what is here, so a slow
refresh, or a cluster that does not answer, delays none; each answer says how old its picture is.

| what | when |
|---|---|
| brokers, controller | each second |
| leaders and ISRs | when a broker's metadata has changed, else after a minute |
| rates | each 5 s |
| sizes, settings of topics | in turn, all within a minute or so |
"""

import asyncio
import logging
import time
from array import array
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from odradek.client.metadata import Node
from odradek.console.link import FAILURES, Link
from odradek.console.partition_offsets import PartitionOffsets
from odradek.console.picture import Counts, PartitionTable
from odradek.operations.activity import Activity, Reading, compare, parse_samples
from odradek.operations.broker_http import get_json, get_text
from odradek.placement import Ongoing
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_acls import DescribeAclsRequest
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

LOOK_S = 1.0
TABLE_S = 60.0
RATES_S = 5.0
SIZES_S = 60.0
MOVING_S = 2.0
SETTINGS_S = 1.0
SETTINGS_AGE_S = 120.0
SAME_SETTINGS_MAX = 1000
# Fifty topics of ten partitions take 2 ms to decode, and as long to count. Between two such slices
# the loop has time for answers: without it one would wait for two or three of them.
TOPICS_AT_ONCE = 50
SIZES_AT_ONCE = 100
PAUSE_S = 0.004
SETTINGS_AT_ONCE = 100
TOPIC_RESOURCE = 2
ANY_ACL = 1
TOPIC_SOURCE = 1
NO_ACTIVITY = Activity(0.0)


class DirectorySummary(NamedTuple):
    """A log directory without the list of its replicas."""

    path: str
    error: str | None
    total_bytes: int
    usable_bytes: int
    size_bytes: int
    replica_count: int


class TopicSettings(NamedTuple):
    """What the list of topics shows of a topic's settings."""

    min_isr: int | None
    retention_ms: int | None
    differ: int


class Brokers(NamedTuple):
    """The brokers at one moment."""

    cluster_id: str | None = None
    controller: int = -1
    nodes: Mapping[int, Node] = {}


class Collector:
    """The picture, and the tasks that renew it."""

    def __init__(self, link: Link, wall_ms: Callable[[], int] | None = None) -> None:
        self._link = link
        self.wall_ms = wall_ms or (lambda: time.time_ns() // 1_000_000)
        self.brokers = Brokers()
        self.table = PartitionTable()
        self.counts = Counts(self.table, ())
        self.version = 0
        # Brokers that were alive once: one of them that is missing is down.
        self.known: dict[int, Node] = {}
        self.activity = NO_ACTIVITY
        self.busy: dict[int, float | None] = {}
        # Whether a tab shows the state machines.
        self.wants_states = False
        self.states: Mapping[str, Mapping[str, int]] = {}
        # Whether the user that we connect as may not describe the cluster: then topics and groups
        # may be hidden from us, and silence means nothing.
        self.is_restricted = False
        # Whether the cluster has ACLs; what it answers to a question about them.
        self.has_security = False
        self.directories: dict[int, list[DirectorySummary]] = {}
        # Of the largest replica of each partition, and their sum for each topic.
        self.sizes = PartitionOffsets()
        self.topic_sizes: dict[str, int] = {}
        self.moves: dict[TopicPartition, Ongoing] = {}
        # Most topics have the same, which is kept once: what thousands of objects would cost the
        # garbage collector, answers would wait for.
        self.settings: dict[str, TopicSettings] = {}
        self._settings_s: dict[str, float] = {}
        self._same_settings: dict[TopicSettings, TopicSettings] = {}
        self.statistics: dict[int, dict[str, object]] = {}
        self.failure: str | None = "the cluster has not answered yet"
        self.changed = asyncio.Event()
        self._answered_s: float | None = None
        self._table_s = 0.0
        self._updates: dict[int, object] = {}
        self._reading: Reading | None = None
        self._wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners: list[Callable[[str], None]] = []

    # Life

    def start(self) -> None:
        loops = (
            (self._look, LOOK_S),
            (self.read_rates, RATES_S),
            (self._read_sizes, SIZES_S),
            (self._read_moves, MOVING_S),
            (self._read_settings, SETTINGS_S),
        )
        self._tasks = [
            asyncio.ensure_future(self._forever(once, pause_s)) for once, pause_s in loops
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def listen(self, listener: Callable[[str], None]) -> None:
        """Called with what has changed: `brokers`, `topics`, `rates`, `sizes`, `moves`."""
        self._listeners.append(listener)

    def _notify(self, what: str) -> None:
        for listener in self._listeners:
            listener(what)

    async def _forever(self, once: Callable[[], Awaitable[None]], pause_s: float) -> None:
        looks = once == self._look
        while True:
            try:
                await once()
            except FAILURES as error:
                if looks:
                    self.failure = str(error) or type(error).__name__
                    self._notify("brokers")
            except Exception:
                logger.exception("console: %s failed", getattr(once, "__name__", "a refresh"))
            if looks:
                try:
                    async with asyncio.timeout(pause_s):
                        await self._wanted.wait()
                except TimeoutError:
                    pass
                self._wanted.clear()
            else:
                await asyncio.sleep(pause_s)

    def hurry(self) -> None:
        """Look now: the journal has said that something changed."""
        self._table_s = 0.0
        self._wanted.set()

    # How old it all is

    @property
    def age_s(self) -> float | None:
        """None if no broker has ever answered."""
        if self._answered_s is None:
            return None
        return round(asyncio.get_running_loop().time() - self._answered_s, 1)

    @property
    def is_answering(self) -> bool:
        return self.failure is None

    # Brokers, leaders, ISRs

    async def _look(self) -> None:
        client = self._link.client
        metadata = await client.refresh()
        before = self.brokers
        self.brokers = Brokers(metadata.cluster_id, metadata.controller_id, dict(metadata.nodes))
        self.known.update(metadata.nodes)
        loop = asyncio.get_running_loop()
        self._answered_s = loop.time()
        recovered, self.failure = self.failure is not None, None
        await self._link.find_http()
        changed = await self._read_statistics()
        if self.wants_states:
            await self.read_states()
        same = before == self.brokers and not recovered
        if changed or not same or loop.time() - self._table_s > TABLE_S or self._is_foreign():
            await self.read_table()
        if not same:
            self._notify("brokers")

    def _is_foreign(self) -> bool:
        """Whether no broker says when its metadata changes. Then it is asked for each time, unless
        that is a lot."""
        seconds = asyncio.get_running_loop().time() - self._table_s
        return not self._link.http() and seconds > min(TABLE_S, 1 + len(self.table) / 1000)

    async def _read_statistics(self) -> bool:
        """Whether a broker has got new metadata since the last time."""
        addresses = self._link.http()
        found = await asyncio.gather(
            *(get_json(each, "/statistics", self._link.token) for each in addresses.values()),
            return_exceptions=True,
        )
        updates = {}
        for id, statistics in zip(addresses, found, strict=True):
            if isinstance(statistics, dict):
                self.statistics[id] = statistics
                updates[id] = statistics.get("metadata", {}).get("updates")
            elif isinstance(statistics, OSError):
                self._link.forget_http(id)
        for id in self.statistics.keys() - addresses.keys():
            del self.statistics[id]
        changed = any(self._updates.get(id) != count for id, count in updates.items())
        self._updates = updates
        return changed

    async def read_table(self) -> None:
        """Build a new table beside the one that is served, and let it take its place."""
        table = PartitionTable()
        counts = Counts(table, self.brokers.nodes)
        names = await self._topic_names()
        if names is None:
            response = await self._link.client.ask_any(
                MetadataRequest(topics=None, allow_auto_topic_creation=False)
            )
            response.topics.sort(key=lambda each: each.name or "")
            for at in range(0, len(response.topics), TOPICS_AT_ONCE):
                _append(table, counts, response.topics[at : at + TOPICS_AT_ONCE])
                await asyncio.sleep(PAUSE_S)
        else:
            for at in range(0, len(names), TOPICS_AT_ONCE):
                some = names[at : at + TOPICS_AT_ONCE]
                response = await self._link.client.ask_any(
                    MetadataRequest(
                        topics=[MetadataRequestTopic(name=name) for name in some],
                        allow_auto_topic_creation=False,
                    )
                )
                _append(table, counts, response.topics)
                await asyncio.sleep(PAUSE_S)
        self.table, self.counts = table, counts
        self.version += 1
        self._table_s = asyncio.get_running_loop().time()
        self._notify("topics")
        self.changed.set()

    async def _topic_names(self) -> list[str] | None:
        """None if no broker reports them over HTTP, and Metadata must be asked for everything."""
        for address in self._link.http().values():
            try:
                return sorted((await get_text(address, "/topics", self._link.token)).split())
            except (OSError, TimeoutError):
                continue
        return None

    # States of the controller's machines

    async def read_states(self) -> None:
        """Only when the controller is looked at: its broker walks all partitions for it."""
        address = self._link.http().get(self.brokers.controller)
        if address is None:
            self.states = {}
            return
        found = await get_json(address, "/controller/states", self._link.token)
        if isinstance(found, dict):
            self.states = found

    # Rates

    async def read_rates(self) -> None:
        addresses = self._link.http()
        texts = await asyncio.gather(
            *(get_text(each, "/metrics", self._link.token) for each in addresses.values()),
            return_exceptions=True,
        )
        samples = {}
        for id, text in zip(addresses, texts, strict=True):
            samples[id] = parse_samples(text) if isinstance(text, str) else None
            await asyncio.sleep(0)
        reading = Reading(asyncio.get_running_loop().time(), samples)
        if self._reading is not None:
            self.activity = compare(self._reading, reading)
        for id, found in samples.items():
            idle = (found or {}).get(
                "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", {}
            )
            self.busy[id] = max(0.0, 1 - idle[()]) if () in idle else None
        self._reading = reading
        self._notify("rates")

    # Sizes and moves

    async def _read_sizes(self) -> None:
        if not self._table_s:
            await self.changed.wait()
        await self._read_security()
        names = list(self.table.names)
        sizes: dict[str, array[int]] = {}
        for broker in sorted(self.brokers.nodes):
            directories: dict[str, DirectorySummary] = {}
            for at in range(0, max(1, len(names)), SIZES_AT_ONCE):
                some = names[at : at + SIZES_AT_ONCE]
                try:
                    await self._read_sizes_of(broker, some, directories, sizes)
                except FAILURES:
                    break
                await asyncio.sleep(PAUSE_S)
            self.directories[broker] = list(directories.values())
        for gone in self.directories.keys() - self.known.keys():
            del self.directories[gone]
        self.sizes = PartitionOffsets.of_columns(sizes)
        self.topic_sizes = {
            topic: sum(each for each in column if each > 0) for topic, column in sizes.items()
        }
        self._notify("sizes")

    async def _read_security(self) -> None:
        request = DescribeAclsRequest(
            resource_type_filter=ANY_ACL,
            resource_name_filter=None,
            pattern_type_filter=ANY_ACL,
            principal_filter="User:nothing to find",
            host_filter=None,
            operation=ANY_ACL,
            permission_type=ANY_ACL,
        )
        try:
            response = await self._link.client.ask_any(request)
        except FAILURES:
            return
        self.has_security = response.error_code != ErrorCode.SECURITY_DISABLED

    async def _read_sizes_of(
        self,
        broker: int,
        topics: list[str],
        directories: dict[str, DirectorySummary],
        sizes: "dict[str, array[int]]",
    ) -> None:
        wanted = [
            TopicPartition(name, p)
            for name in topics
            if (topic := self.table.find(name)) is not None
            for p in range(self.table.partition_count(topic))
        ]
        answer = await self._link.api.admin.describe_log_dirs([broker], wanted)
        for directory in answer.get(broker, ()):
            for replica in directory.replicas:
                if replica.is_future:
                    continue
                column = sizes.setdefault(replica.partition.topic, array("q"))
                p = replica.partition.partition
                if p >= len(column):
                    column.extend([-1] * (p + 1 - len(column)))
                column[p] = max(column[p], replica.size_bytes)
            total = sum(replica.size_bytes for replica in directory.replicas)
            before = directories.get(directory.path)
            count = len(directory.replicas)
            if before is not None:
                total += before.size_bytes
                count += before.replica_count
            directories[directory.path] = DirectorySummary(
                directory.path,
                None if directory.error is None else str(directory.error),
                directory.total_bytes,
                directory.usable_bytes,
                total,
                count,
            )

    async def _read_moves(self) -> None:
        if self.failure is not None:
            return
        before = self.is_restricted, self.moves
        try:
            self.moves = await self._link.api.admin.list_reassignments()
            self.is_restricted = False
        except KafkaError as error:
            if error.error is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise
            self.moves, self.is_restricted = {}, True
        if self.moves or before != (self.is_restricted, self.moves):
            self._notify("moves")

    # Settings of topics

    async def _read_settings(self) -> None:
        """Those never read first, then the oldest; a hundred topics at a time."""
        now = asyncio.get_running_loop().time()
        known = self.settings
        due = [name for name in self.table.names if name not in known]
        if not due:
            read_s = self._settings_s
            old = (name for name in self.table.names if now - read_s[name] > SETTINGS_AGE_S)
            due = [name for name, _ in zip(old, range(SETTINGS_AT_ONCE), strict=False)]
        if not due:
            return
        await self.read_settings_of(due[:SETTINGS_AT_ONCE])
        for gone in [name for name in self._settings_s if self.table.find(name) is None]:
            known.pop(gone, None)
            del self._settings_s[gone]
        if len(self._same_settings) > SAME_SETTINGS_MAX:
            self._same_settings.clear()

    async def read_settings_of(self, topics: list[str]) -> None:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
                )
                for name in topics
            ]
        )
        response = await self._link.client.ask_any(request)
        now = asyncio.get_running_loop().time()
        for result in response.results:
            values = {config.name: config.value for config in result.configs}
            differ = sum(config.config_source == TOPIC_SOURCE for config in result.configs)
            found = TopicSettings(
                _int(values.get("min.insync.replicas")), _int(values.get("retention.ms")), differ
            )
            self.settings[result.resource_name] = self._same_settings.setdefault(found, found)
            self._settings_s[result.resource_name] = now


def _append(table: PartitionTable, counts: Counts, topics: list[MetadataResponseTopic]) -> None:
    for topic in sorted(topics, key=lambda each: each.name or ""):
        # A topic that was deleted since its name was read has an error and no partitions.
        if not topic.error_code or topic.partitions:
            table.append(topic)
            counts.add(len(table.names) - 1)


def _int(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
