"""Transactions on whole brokers, in the simulated world, while brokers are killed and paused.

docs/spec/transactions.md, acceptance 38: no aborted record is read as committed; a committed
transaction is read whole; with all brokers up, every decided transaction is finished in bounded
time. A bug is planted for each, to show that it would be found.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from odradek.client import (
    Admin,
    Client,
    Isolation,
    NewTopic,
    PartitionReader,
    TransactionalProducer,
)
from odradek.coordinator.markers import MarkerSender
from odradek.coordinator.transaction_coordinator import TransactionCoordinator
from odradek.sim.world import EPOCH_MS, World
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
CONFIG = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
}
TRANSACTIONS = 12
SETTLE_S = 60.0


class Story:
    """One seed: what the producer was answered, and what a reader sees at the end."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, 3, CONFIG)
        self.rng = self.world.dice("faults")
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.read: list[bytes | None] = []
        self.undecided: list[str] = []

    def run(self) -> "Story":
        async def story(world: World) -> None:
            await world.process("client").run(self._client())

        self.world.run(story)
        assert self.world.loop.failures == []
        return self

    async def _client(self) -> None:
        async with Client(self.world.bootstrap, rng=self.world.dice("client")) as client:
            await client.refresh()
            while len(client.metadata.nodes) < 3:
                await asyncio.sleep(0.1)
                await client.refresh()
            await Admin(client).create_topics([NewTopic("t", len(PARTITIONS), 3)])
            await self._produce(client)
            await asyncio.sleep(SETTLE_S)
            for broker in self.world.brokers():
                for each in broker.transactions.storage.entries():
                    if not each.state.may_expire:
                        self.undecided.append(f"{each.transactional_id} is {each.state.label}")
            if not self.undecided:
                reader = PartitionReader(client, isolation=Isolation.READ_COMMITTED)
                for tp in PARTITIONS:
                    end = max(
                        broker.replicas.partitions[tp].local_log.high_watermark
                        for broker in self.world.brokers()
                    )
                    async for batches in reader.batches(tp, 0, end):
                        self.read += [one.value for one in batches.open(committed=True)]

    async def _produce(self, client: Client) -> None:
        producer = TransactionalProducer(
            client, "id", clock=lambda: EPOCH_MS + int(self.world.loop.time() * 1000)
        )
        await producer.init_transactions()
        for number in range(TRANSACTIONS):
            values = {b"%d-%d" % (number, tp.partition): tp for tp in PARTITIONS}
            producer.begin()
            for value, tp in values.items():
                await producer.send("t", value, partition=tp.partition)
            await producer.flush()
            suffering = asyncio.ensure_future(self._suffer()) if number % 3 == 2 else None
            await asyncio.sleep(self.rng.uniform(0, 0.01))
            if self.rng.random() < 0.5:
                await producer.commit()
                self.committed |= values.keys()
            else:
                await producer.abort()
                self.aborted |= values.keys()
            if suffering is not None:
                await suffering
        await producer.close()

    async def _suffer(self) -> None:
        await asyncio.sleep(self.rng.uniform(0, 0.02))
        host = self.world.hosts[self.rng.choice(sorted(self.world.hosts))]
        if self.rng.random() < 0.7:
            host.kill()
            await asyncio.sleep(self.rng.uniform(1, 10))
            host.start()
        else:
            host.pause()
            await asyncio.sleep(self.rng.uniform(1, 10))
            host.resume()
        await asyncio.sleep(20)

    def violations(self) -> list[str]:
        found = [f"not finished: {each}" for each in self.undecided]
        if not self.undecided:
            seen = set(self.read)
            found += [f"aborted, and read: {value!r}" for value in seen & self.aborted]
            found += [f"committed, and not read: {value!r}" for value in self.committed - seen]
            if len(self.read) != len(seen):
                found.append("read twice")
        return found


@pytest.mark.parametrize("seed", range(1, 5))
def test_transactions_are_whole_whatever_dies(seed: int) -> None:
    assert Story(seed).run().violations() == []


def forget_decided() -> Any:
    """A coordinator decides, and never sends the markers."""
    return patch.object(TransactionCoordinator, "_finish", lambda self, owned, transaction: None)


def believe_markers() -> Any:
    """Every transaction is taken for committed by the leaders of its partitions."""
    send = MarkerSender.send
    return patch.object(
        MarkerSender,
        "send",
        lambda self, marker, unmarked: send(self, marker._replace(is_commit=True), unmarked),
    )


@pytest.mark.parametrize(
    ("bug", "finding"),
    [(forget_decided, "not finished"), (believe_markers, "aborted, and read")],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_planted_bug_is_found(bug: Callable[[], Any], finding: str) -> None:
    story = Story(1)
    failure = ErrorCode.NONE
    with bug():
        try:
            story.run()
        except KafkaError as error:
            failure = error.error
    if failure is ErrorCode.CONCURRENT_TRANSACTIONS:
        # The producer itself waits for a transaction that nothing finishes.
        assert finding == "not finished"
    else:
        assert any(each.startswith(finding) for each in story.violations())
