"""Topics whose records go away while clients use them: compaction, retention, DeleteRecords.

Two topics of one partition each, and one client for each. The keeper overwrites and deletes
keys of a compacted topic, one record after the other, so that it knows the last value of each key,
or a few that it may be. The trimmer appends to a topic that keeps few bytes, and has records before
some offset deleted. The topics are left out of the other invariants, which want every record there
was; these are judged in their place:

- LatestValueKept: the last record of each key is there, on every replica, whatever was compacted.
- OnlyOldIsDeleted: a log begins no later than was asked for, or than a broker's clock made old by
  jumping ahead, unless it still has the bytes that retention is to keep; and every acknowledged
  record from there on is in it.

Not judged: that records which were deleted by request stay away. Where a log begins is written to
disk once a minute, as in Kafka, and the last in-sync replica that is killed before forgets it.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.client.admin import Admin
from odradek.client.client import Client
from odradek.client.producer import Producer
from odradek.log.log import Log
from odradek.wire.topics import TopicPartition

from .checkers import Checker
from .history import History
from .members import EXPECTED
from .observation import Hosted, hosted, leaders, records_of
from .world import World

if TYPE_CHECKING:
    from .workload import Workload

COMPACTED = TopicPartition("compacted", 0)
TRIMMED = TopicPartition("trimmed", 0)
# Half of the records are for the first keys, and soon overwritten; what is lost of the others stays
# lost for long enough to be seen.
KEYS = (5, 500)
RETENTION_BYTES = 6_000
# Longer than any run: what is deleted for its age is deleted because a clock has jumped.
RETENTION_MS = 3_600_000
SEGMENT_BYTES = 1_000
SETTINGS = {
    COMPACTED: {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "0.1",
    },
    TRIMMED: {
        "segment.bytes": str(SEGMENT_BYTES),
        "retention.bytes": str(RETENTION_BYTES),
        "retention.ms": str(RETENTION_MS),
    },
}
# Of all brokers, so that there is something to see.
BROKER_SETTINGS = {
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "2000",
    "log.segment.delete.delay.ms": "1000",
}


async def keep(load: "Workload", name: str) -> None:
    """Overwrite and delete keys, until the end."""
    rng, latest = load.world.dice(f"{name}/load"), load.history.cleaning.latest
    async with load.client(name) as client:
        producer = Producer(client, idempotent=True, clock=load.clock, delivery_timeout_s=30.0)
        number = 0
        while not load.stopping:
            number += 1
            key = b"key-%d" % rng.randrange(rng.choice(KEYS))
            value = None if rng.random() < 0.2 else b"%d" % number
            latest.setdefault(key, [None]).append(value)
            try:
                await (await producer.send(COMPACTED.topic, value, key=key, partition=0))
                latest[key] = [value]
                load.history.count("keys written")
            except EXPECTED:
                load.history.count("keeper troubled")
            await asyncio.sleep(load.pause * rng.expovariate(10))
        await producer.close()


async def trim(load: "Workload", name: str) -> None:
    """Append, and delete from the start, until the end."""
    rng, cleaning = load.world.dice(f"{name}/load"), load.history.cleaning
    async with load.client(name) as client:
        producer = Producer(client, idempotent=True, clock=load.clock, delivery_timeout_s=30.0)
        number = 0
        while not load.stopping:
            number += 1
            value = b"%d" % number
            try:
                placed = await (await producer.send(TRIMMED.topic, value, partition=0))
                if placed.offset >= 0:
                    cleaning.placed[placed.offset] = value
                if rng.random() < 0.05:
                    await _delete_some(load, client, rng.randrange(placed.offset + 2))
            except EXPECTED:
                load.history.count("trimmer troubled")
            await asyncio.sleep(load.pause * rng.expovariate(10))
        await producer.close()


async def _delete_some(load: "Workload", client: Client, until: int) -> None:
    cleaning = load.history.cleaning
    cleaning.delete_until = max(cleaning.delete_until, until)
    await Admin(client).delete_records({TRIMMED: until})
    load.history.count("records deleted")


class LatestValueKept(Checker):
    """Compaction removes no record that is the last one of its key."""

    name = "LatestValueKept"

    def judge(self) -> None:
        latest = self.history.cleaning.latest
        replicas = {
            broker.id: {record.key: record.value for record in records_of(partition.local_log)}
            for broker, partition in (hosted(self.world) if latest else ())
            if partition.tp == COMPACTED
        }
        # Where an operator must choose the replica that is to lead, one of them must have it.
        may_miss = self.history.waits_for_an_operator(COMPACTED)
        for key, values in latest.items():
            found = {broker: records.get(key) for broker, records in replicas.items()}
            wrong = {broker: value for broker, value in found.items() if value not in values}
            if wrong and not (may_miss and len(wrong) < len(found)):
                self.violated(f"{key!r} is not one of {values}, but by broker: {wrong}")


class OnlyOldIsDeleted(Checker):
    """What retention and DeleteRecords remove is what they are to remove, for good."""

    name = "OnlyOldIsDeleted"

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world, history)
        self._was_ahead = False

    def look(self, hosted: Hosted) -> None:
        """A clock that is ahead makes everything old that is there until it is set right."""
        is_ahead = any(host.skew_ms >= RETENTION_MS for host in self.world.hosts.values())
        if is_ahead or self._was_ahead:
            cleaning = self.history.cleaning
            ends = [p.local_log.end_offset for _, p in hosted if p.tp == TRIMMED]
            cleaning.expired_until = max(cleaning.expired_until, *ends, 0)
        self._was_ahead = is_ahead

    def judge(self) -> None:
        cleaning = self.history.cleaning
        leader = leaders(self.world).get(TRIMMED)
        if leader is None or not cleaning.placed:
            return
        log: Log = leader.local_log
        # An uncommitted end that is truncated later counts when retention looks.
        deletable = max(cleaning.delete_until, cleaning.expired_until)
        if log.start_offset > deletable and log.size_bytes < RETENTION_BYTES // 2:
            self.violated(f"{TRIMMED} begins at {log.start_offset} with {log.size_bytes} bytes")
        found = {record.offset: record.value for record in records_of(log)}
        for offset, value in cleaning.placed.items():
            now = found.get(offset)
            if offset >= log.start_offset and now != value:
                self.violated(f"{TRIMMED} offset {offset}: acknowledged {value!r}, found {now!r}")


CLEANING_CHECKERS: Sequence[type[Checker]] = (LatestValueKept, OnlyOldIsDeleted)
