"""What this broker measures, published as one frame per interval to a topic.

The frame (wire/telemetry.py) has a row for each partition with traffic or a new size since the last
one, and every twentieth has them all. Load tables and plans are made from these frames.

Rules
1. No client waits for it: partitions are walked in slices, file systems are asked off the loop, and
   one frame is under way at a time.
2. Nothing is counted twice and nothing is left out while the broker lives. A partition's counters
   only grow, and a frame has what was added since the last *acknowledged* frame. A frame that fails
   is not kept: the next has its counts too, and its tick number, because it is not known whether
   the failed one was written. Of two frames with one number readers take the later.
3. What cannot be published is logged once, until it works again.

A crash loses what was counted since the last frame. The next incarnation, recognized by its broker
epoch, starts from nothing at tick 0, with a whole frame. Frames have acks=1: those that a leader
had not passed on are lost with it, which readers see as time that is not covered.
"""

import asyncio
import logging
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.histogram import Histogram
from odradek.broker.machine import Machine
from odradek.broker.peers import Peers
from odradek.broker.topics import NewTopic
from odradek.log.disk import Disk
from odradek.log.offload import Offload
from odradek.replica.leader.role import LeaderRole
from odradek.replica.manager import Produced
from odradek.replica.partition import Partition
from odradek.replica.traffic import PartitionCounters
from odradek.store.api import StoreError
from odradek.store.payloads import NO_LEADER
from odradek.wire.api import ApiKey
from odradek.wire.compression import Codec
from odradek.wire.errors import DecodeError, ErrorCode, KafkaError
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.wire.records import Record, encode_batch
from odradek.wire.reply import Now
from odradek.wire.telemetry import (
    BEING_ADDED,
    IN_SYNC,
    LEADS,
    NO_DIRECTORY,
    TOPIC_CONFIG,
    TOPIC_PARTITIONS,
    TOPIC_REPLICAS_MAX,
    BrokerLoad,
    Columns,
    Directory,
    Frame,
    encode_frame,
    new_columns,
)
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.server import Broker

__all__ = ["Telemetry"]

logger = logging.getLogger(__name__)

WHOLE_EVERY = 20
# Partitions that are looked at in one turn of the loop.
SLICE = 250
COMPRESSED_FROM_BYTES = 4 * 1024
FAILURES_LOGGED_MAX = 2
LEADER_WAIT_MS = 10_000
# Known to every broker of inter-broker protocol 2.4 and later.
PRODUCE_VERSION = 8
US_PER_S = 1_000_000
UINT32_MAX = 2**32 - 1

# What has to be set in a partition's counters once the frame is acknowledged.
Readings = list[tuple[PartitionCounters, tuple[int, ...]]]


class Totals(NamedTuple):
    """What a broker has counted since it started."""

    cpu_s: float
    produce_s: float
    consumer_s: float
    follower_s: float
    net_in: int
    net_out: int
    isr_shrinks: int
    produce_times: Histogram


class Telemetry:
    """Publishes frames from `start` to `stop`."""

    def __init__(
        self, broker: "Broker", disk: Disk, offload: Offload, machine: Machine | None = None
    ) -> None:
        config = broker.config
        self._broker = broker
        self._disk = disk
        self._offload = offload
        self._machine = machine or Machine()
        self._interval_s = config.integer("odradek.telemetry.interval.ms") / 1000
        self._publisher = Publisher(broker, config.text("odradek.telemetry.topic") or "")
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        # A session that is lost and opened again changes the epoch, but not what has been counted.
        self._incarnation = broker.epoch
        # As of the last acknowledged frame.
        self._tick = 0
        self._from_ms = broker.clock()
        self._from_s = self._loop.time()
        self._before = totals(broker, self._machine.cpu_s())
        self._failed = 0

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._publisher.close()

    def statistics(self) -> dict[str, int]:
        return {"acknowledged": self._tick, "failed": self._failed}

    async def _run(self) -> None:
        due = self._loop.time() + self._interval_s
        while True:
            await asyncio.sleep(due - self._loop.time())
            late_s = self._loop.time() - due
            try:
                await self.publish(late_s)
            except Exception:
                logger.exception("telemetry of broker %d failed", self._broker.id)
            # One that took longer than the interval is followed by the next after a whole one.
            due = max(due + self._interval_s, self._loop.time() + self._interval_s / 2)

    async def publish(self, late_s: float = 0.0) -> bool:
        """One frame of everything since the last acknowledged one. Returns whether this was."""
        directories = await self._offload(self._directories)
        to_ms, to_s = self._broker.clock(), self._loop.time()
        if to_ms <= self._from_ms:
            # The clock was set back.
            self._from_ms = max(0, to_ms - max(1, int((to_s - self._from_s) * 1000)))
        now = totals(self._broker, self._machine.cpu_s())
        is_whole = self._tick % WHOLE_EVERY == 0
        topics, columns, readings = await self._rows(directories, is_whole)
        frame = Frame(
            self._broker.id,
            self._incarnation,
            self._tick,
            self._from_ms,
            to_ms,
            self._load(now, late_s),
            directories,
            topics,
            columns,
            is_whole=is_whole,
        )
        if not await self._publisher.send(frame):
            self._failed += 1
            return False
        for counters, reading in readings:
            counters.reported = reading
        self._tick += 1
        self._from_ms, self._from_s, self._before = to_ms, to_s, now
        return True

    def _directories(self) -> tuple[Directory, ...]:
        """Runs off the loop."""
        logs = self._broker.logs
        found = []
        for path in logs.dirs.configured:
            try:
                capacity, free = self._disk.space(path)
            except OSError:
                capacity = free = 0
            found.append(Directory(path, capacity, free, path in logs.dirs.offline))
        return tuple(found)

    async def _rows(
        self, directories: tuple[Directory, ...], is_whole: bool
    ) -> tuple[tuple[str, ...], Columns, Readings]:
        rows = Rows({each.path: number for number, each in enumerate(directories)})
        partitions = iter(list(self._broker.replicas.partitions.values()))
        while some := list(islice(partitions, SLICE)):
            for partition in some:
                load, log = partition.replica.load, partition.log
                reading = load.reading(0 if log is None else log.size_bytes)
                if is_whole or reading != load.reported:
                    rows.add(partition, self._role(partition), reading)
            await asyncio.sleep(0)
        return tuple(rows.topics), rows.columns, rows.readings

    def _role(self, partition: Partition) -> int:
        role = BEING_ADDED * partition.is_being_added
        if isinstance(partition.role, LeaderRole):
            return role | LEADS | IN_SYNC
        known = self._broker.cache.partition(*partition.tp)
        return role | IN_SYNC * (known is not None and self._broker.id in known.isr)

    def _load(self, now: Totals, late_s: float) -> BrokerLoad:
        before = self._before
        cpu_s = max(0.0, now.cpu_s - before.cpu_s)
        spent = [
            now.produce_s - before.produce_s,
            now.consumer_s - before.consumer_s,
            now.follower_s - before.follower_s,
        ]
        # Handlers are timed by a clock that keeps running while the process has no processor.
        share = min(1.0, cpu_s / (sum(spent) or 1.0))
        produce_s, consumer_s, follower_s = (seconds * share for seconds in spent)
        times = now.produce_times.since(before.produce_times)
        configured = self._broker.config.integer("odradek.network.capacity")
        counts = self._broker.replicas.counts
        return BrokerLoad(
            self._machine.cores(),
            cpu_s,
            produce_s,
            consumer_s,
            follower_s,
            max(0.0, cpu_s - produce_s - consumer_s - follower_s),
            now.net_in - before.net_in,
            now.net_out - before.net_out,
            configured or self._machine.network_bytes_per_second(),
            _us(times.quantile_s(0.5)),
            _us(times.quantile_s(0.99)),
            _us(late_s),
            now.isr_shrinks - before.isr_shrinks,
            counts.under_min_isr,
            counts.at_min_isr,
        )


class Rows:
    """The columns of a frame as they are filled."""

    def __init__(self, directories: dict[str, int]) -> None:
        self._directories = directories
        self.topics: dict[str, int] = {}
        self.columns = new_columns()
        self.readings: Readings = []

    def add(self, partition: Partition, role: int, reading: tuple[int, ...]) -> None:
        counters, log = partition.replica.load, partition.log
        *counts, size = reading
        if counters.reported is not None:
            counts = [now - then for now, then in zip(counts, counters.reported, strict=False)]
        directory = "" if log is None else log.directory.rpartition("/")[0]
        row = (
            self.topics.setdefault(partition.tp.topic, len(self.topics)),
            partition.tp.partition,
            role,
            self._directories.get(directory, NO_DIRECTORY),
            *counts,
            size,
            0 if log is None else log.end_offset,
        )
        for column, value in zip(self.columns.values(), row, strict=True):
            column.append(value)
        self.readings.append((counters, reading))


def totals(broker: "Broker", cpu_s: float) -> Totals:
    produces = [route for route in broker.routes.used() if route.key == ApiKey.PRODUCE]
    fetches = [route for route in broker.routes.used() if route.key == ApiKey.FETCH]
    traffic = broker.replicas.traffic
    return Totals(
        cpu_s,
        sum(route.busy_s for route in produces),
        sum(route.busy_s for route in fetches),
        sum(route.follower_busy_s for route in fetches),
        traffic.total("bytes_in") + traffic.replication_bytes_in,
        traffic.total("bytes_out") + traffic.replication_bytes_out,
        broker.replicas.isr_changes.statistics()["shrunk"],
        Histogram.merged(route.times for route in produces),
    )


def _us(seconds: float) -> int:
    return min(UINT32_MAX, max(0, int(seconds * US_PER_S)))


class Publisher:
    """Gets frames into the topic, and the topic into the cluster."""

    def __init__(self, broker: "Broker", topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._failures = 0  # in a row
        listener = broker.config.inter_broker_listener()
        self._timeout_ms = broker.config.integer("request.timeout.ms")
        self._peers = Peers(
            f"broker-{broker.id}-telemetry",
            lambda id: broker.cache.endpoint(id, listener),
            self._timeout_ms / 1000,
            broker.security.inter_broker,
        )
        broker.topics.internal[topic] = self._new_topic

    def close(self) -> None:
        self._peers.close()

    def _new_topic(self) -> NewTopic:
        copies = min(TOPIC_REPLICAS_MAX, len(self._broker.cache.brokers()))
        return NewTopic(self._topic, TOPIC_PARTITIONS, copies, config=TOPIC_CONFIG)

    async def send(self, frame: Frame) -> bool:
        try:
            await self._send(frame)
        except (KafkaError, StoreError, ConnectionError, TimeoutError, DecodeError) as error:
            self._failures += 1
            if self._failures <= FAILURES_LOGGED_MAX:
                # A topic that was just created, or a leader that moves, costs one frame.
                logger.log(
                    logging.INFO if self._failures == 1 else logging.WARNING,
                    "telemetry of broker %d is not written to %s: %s",
                    self._broker.id,
                    self._topic,
                    error or type(error).__name__,
                )
            return False
        if self._failures:
            logger.info("telemetry of broker %d is published again", self._broker.id)
        self._failures = 0
        return True

    async def _send(self, frame: Frame) -> None:
        """Raises if it is not acknowledged."""
        cache = self._broker.cache
        if not cache.has_topic(self._topic):
            error = await self._broker.topics.create_automatically(self._topic, LEADER_WAIT_MS)
            if error:
                raise KafkaError(error, "the topic cannot be created")
        count = cache.partition_count(self._topic)
        if not count:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic has gone again")
        tp = TopicPartition(self._topic, frame.broker % count)
        known = cache.partition(*tp)
        if known is None or known.leader == NO_LEADER:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader")
        batch = _batch(frame)
        if known.leader == self._broker.id:
            error = self._append(tp, batch)
        else:
            error = await self._produce(known.leader, tp, batch)
        if error:
            raise KafkaError(error, f"from broker {known.leader}, leader of {tp}")

    def _append(self, tp: TopicPartition, batch: bytearray) -> ErrorCode:
        appended = self._broker.replicas.append(1, self._timeout_ms, {tp: memoryview(batch)})
        assert isinstance(appended, Now)  # acks=1 does not wait
        results: Produced = appended.value
        return results[tp].error

    async def _produce(self, leader: int, tp: TopicPartition, batch: bytearray) -> ErrorCode:
        connection = await self._peers.connection(leader)
        data = PartitionProduceData(index=tp.partition, records=batch)
        request = ProduceRequest(
            acks=1,
            timeout_ms=self._timeout_ms,
            topic_data=[TopicProduceData(name=tp.topic, partition_data=[data])],
        )
        response = await connection.request(request, PRODUCE_VERSION)
        found = [each for topic in response.responses for each in topic.partition_responses]
        return ErrorCode(found[0].error_code) if found else ErrorCode.UNKNOWN_SERVER_ERROR


def _batch(frame: Frame) -> bytearray:
    value = encode_frame(frame)
    codec = Codec.ZSTD if len(value) >= COMPRESSED_FROM_BYTES else Codec.NONE
    key = frame.broker.to_bytes(4, "big")
    return encode_batch([Record(-1, frame.to_ms, key, value)], codec=codec)
