"""Moving many partitions of a real cluster: no writer notices, and half a move can be undone."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

import pytest

from odradek import Cluster
from odradek.client import (
    LATEST,
    Admin,
    Client,
    ConfigChange,
    NewTopic,
    Producer,
    Resource,
    ResourceType,
    check,
    offsets_at,
)
from odradek.wire.topics import TopicPartition

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(180)]

BROKERS = [1, 2, 3, 4]
MOVED = [TopicPartition("moved", number) for number in range(200)]
HALF = [TopicPartition("half", number) for number in range(20)]
FULL, EMPTY = HALF[:10], HALF[10:]
WRITERS = 20
POLL_S = 0.05
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Small fetches, so that a throttle bites before a partition has gone over in one of them.
    with Cluster(brokers=len(BROKERS), config={"replica.fetch.max.bytes": 65_536}) as running:
        yield running


def replicas_of(partition: TopicPartition, factor: int) -> list[int]:
    return [BROKERS[(partition.partition + place) % len(BROKERS)] for place in range(factor)]


def next_to(replicas: list[int]) -> list[int]:
    """Every replica moves to the next broker, so the first is always taken away."""
    return [BROKERS[replica % len(BROKERS)] for replica in replicas]


async def make_topic(admin: Admin, partitions: list[TopicPartition], factor: int) -> None:
    assignment = {of.partition: replicas_of(of, factor) for of in partitions}
    check(await admin.create_topics([NewTopic(partitions[0].topic, assignment=assignment)]))


async def replicas_now(admin: Admin, topic: str) -> dict[int, tuple[list[int], set[int]]]:
    """Replicas and ISR of every partition."""
    described = (await admin.describe_topics([topic]))[topic]
    return {
        number: (list(partition.replicas), set(partition.isr))
        for number, partition in described.partitions.items()
    }


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again, for as long as a busy machine may need."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await holds():
                return
            await asyncio.sleep(POLL_S)


async def until_moving(admin: Admin, partitions: list[TopicPartition]) -> None:
    async def holds() -> bool:
        return set(await admin.list_reassignments()) == set(partitions)

    await until(holds)


async def until_placed(admin: Admin, wanted: dict[TopicPartition, list[int]]) -> None:
    """Until every broker's metadata could say so: these replicas, all in sync."""

    async def holds() -> bool:
        now = await replicas_now(admin, next(iter(wanted)).topic)
        return all(
            set(now[of.partition][0]) == now[of.partition][1] == set(replicas)
            for of, replicas in wanted.items()
        )

    await until(holds)


class Load:
    """Writers that share the partitions, each with one record on its way at a time."""

    def __init__(self, producer: Producer, partitions: list[TopicPartition]) -> None:
        self._producer = producer
        self._is_over = False
        self.acknowledged: Counter[TopicPartition] = Counter()
        shares = [partitions[first::WRITERS] for first in range(WRITERS)]
        self._writers = asyncio.gather(*map(self._write, shares))

    async def _write(self, partitions: list[TopicPartition]) -> None:
        for of in itertools.cycle(partitions):
            if self._is_over:
                return
            await (await self._producer.send(of.topic, b"x" * 100, partition=of.partition))
            self.acknowledged[of] += 1

    async def stop(self) -> None:
        """Raises the error that a writer got, if a record was refused."""
        self._is_over = True
        await self._writers


def test_200_partitions_move_under_load_and_no_produce_fails(cluster: Cluster) -> None:
    async def story() -> None:
        async with Client(cluster.bootstrap_servers) as client, Producer(client) as producer:
            admin = Admin(client)
            await make_topic(admin, MOVED, 2)
            load = Load(producer, MOVED)

            async def is_under_load() -> bool:
                return len(load.acknowledged) == len(MOVED)

            await until(is_under_load)
            before = load.acknowledged.total()
            targets = {of: next_to(replicas_of(of, 2)) for of in MOVED}
            check(await admin.alter_reassignments(targets))
            await until_moving(admin, [])
            await load.stop()
            assert load.acknowledged.total() > before
            await until_placed(admin, targets)
            ends = await offsets_at(client, dict.fromkeys(MOVED, LATEST))
            assert {of: end.offset for of, end in ends.items()} == load.acknowledged

    asyncio.run(story())


def test_a_move_cancelled_half_way_restores_the_replicas(cluster: Cluster) -> None:
    """Ten partitions are empty and arrive at once; ten are full, and a throttle holds them up."""

    async def story() -> None:
        async with Client(cluster.bootstrap_servers) as client:
            admin = Admin(client)
            await make_topic(admin, HALF, 3)
            async with Producer(client) as producer:
                for of in FULL:
                    for _ in range(20):
                        await producer.send(of.topic, b"x" * 20_000, partition=of.partition)
            await throttle(admin)
            targets = {of: next_to(replicas_of(of, 3)) for of in HALF}
            check(await admin.alter_reassignments(targets))
            await until_moving(admin, FULL)
            check(await admin.alter_reassignments(dict.fromkeys(FULL)))
            assert await admin.list_reassignments() == {}
            original = {of: replicas_of(of, 3) for of in FULL}
            await until_placed(admin, original | {of: targets[of] for of in EMPTY})

    asyncio.run(story())


async def throttle(admin: Admin) -> None:
    """A byte a second for every replica that catches up."""
    brokers = {
        Resource(ResourceType.BROKER, str(broker)): [
            ConfigChange("leader.replication.throttled.rate", "1"),
            ConfigChange("follower.replication.throttled.rate", "1"),
        ]
        for broker in BROKERS
    }
    topic = [
        ConfigChange("leader.replication.throttled.replicas", "*"),
        ConfigChange("follower.replication.throttled.replicas", "*"),
    ]
    check(await admin.alter_configs({**brokers, Resource(ResourceType.TOPIC, "half"): topic}))
