"""200 consumers in 20 groups over 100 partitions, and a broker is killed: nobody is stuck, and
every group has every record."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

from odradek import Cluster
from odradek.client import Admin, Client, Consumer, Groups, NewTopic, Producer, check
from odradek.client.group_member import GroupMember, share_by_range
from odradek.wire.topics import TopicPartition

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "shared"
PARTITIONS = 100
GROUPS = [f"group-{number}" for number in range(20)]
MEMBERS = 10
RECORDS = 1_000
SESSION_MS = 30_000
SETTLE_S = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config={"offsets.topic.num.partitions": 10}) as running:
        yield running


class Crowd:
    """All the consumers, and what each group has seen."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._changed = asyncio.Event()
        self.seen: dict[str, set[tuple[int, int]]] = defaultdict(set)
        self.joins = 0

    async def consume(self, group: str, name: str) -> None:
        """One consumer's life: it joins, reads and commits, and joins again when it has to."""
        async with (
            Client(self._bootstrap, client_id=name) as client,
            GroupMember(client, group, [TOPIC], session_timeout_ms=SESSION_MS) as member,
        ):
            while True:
                parts = await member.join()
                self.joins += 1
                known = await Groups(client).offsets(group, parts)
                starts = {part: known[part].offset if part in known else 0 for part in parts}
                async with Consumer(client, wait_ms=2_000) as consumer:
                    await consumer.assign(starts)
                    while not member.must_rejoin:
                        await self._take(group, member, consumer)

    async def _take(self, group: str, member: GroupMember, consumer: Consumer) -> None:
        done = {}
        for batches in await consumer.poll(1.0):
            for record in consumer.open(batches):
                self.seen[group].add((record.partition.partition, record.offset))
            done[batches.partition] = batches.next_offset
        if done:
            self._changed.set()
            await member.commit(done)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SETTLE_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


async def produce(client: Client, records: int) -> set[tuple[int, int]]:
    """Records over all partitions; where they are."""
    async with Producer(client) as producer:
        sent = [
            await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
            for number in range(records)
        ]
        placed = [await delivery for delivery in sent]
    return {(place.partition.partition, place.offset) for place in placed}


async def assert_settled(client: Client) -> None:
    """Every group is stable, with all its members, who share all partitions."""
    groups = Groups(client)
    everything = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    async with asyncio.timeout(SETTLE_S):
        for group in GROUPS:
            while True:
                described = await groups.describe_group(group)
                shares = sorted(part for member in described.members for part in member.partitions)
                if described.state == "Stable" and shares == everything:
                    break
                await asyncio.sleep(0.2)
            assert len(described.members) == MEMBERS


async def test_two_hundred_consumers_outlive_a_broker(cluster: Cluster) -> None:
    crowd = Crowd(cluster.bootstrap_servers)
    async with Client(cluster.bootstrap_servers) as client:
        check(await Admin(client).create_topics([NewTopic(TOPIC, PARTITIONS, 3)]))
        consumers = [
            asyncio.create_task(crowd.consume(group, f"{group}-{number}"))
            for number in range(MEMBERS)
            for group in GROUPS
        ]
        try:
            records = await produce(client, RECORDS)
            await crowd.until(lambda: all(records <= crowd.seen[group] for group in GROUPS))
            await assert_settled(client)
            victim = await client.coordinator(GROUPS[0])
            cluster.kill(victim)
            records |= await produce(client, RECORDS)
            await crowd.until(lambda: all(records <= crowd.seen[group] for group in GROUPS))
            await assert_settled(client)
            failed = [task.exception() for task in consumers if task.done()]
            assert failed == [], failed
        finally:
            for task in consumers:
                task.cancel()
            await asyncio.gather(*consumers, return_exceptions=True)
    assert len(records) == 2 * RECORDS


def test_the_shares_are_even_and_disjoint() -> None:
    shares = share_by_range({"b": ["t"], "a": ["t", "u"], "c": ["u"]}, {"t": 5, "u": 2})
    texts = {member: [str(part) for part in share] for member, share in shares.items()}
    assert texts == {"a": ["t-0", "t-1", "t-2", "u-0"], "b": ["t-3", "t-4"], "c": ["u-1"]}
