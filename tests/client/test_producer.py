"""How long a producer waits, in virtual time: for what was handed in, and for an id of its own."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from odradek.client import Client, Producer
from odradek.client.retries import RetryBudget
from odradek.sim.loop import SimLoop
from odradek.wire.messages.init_producer_id import InitProducerIdResponse
from odradek.wire.schema import Message
from odradek.wire.topics import TopicPartition

TIMEOUT_S = 30.0


class Played(Client):
    """A cluster where no broker answers until a time."""

    def __init__(self, answers_from_s: float = 0.0) -> None:
        super().__init__("h:1", timeout_s=TIMEOUT_S, rng=Random(1))
        self.answers_from_s = answers_from_s

    async def ask_any(self, message: Message) -> Any:
        try:
            async with asyncio.timeout(self.timeout_s):
                now = asyncio.get_running_loop().time()
                await asyncio.sleep(self.answers_from_s - now)
        except TimeoutError:
            raise ConnectionError("no broker answers") from None
        return InitProducerIdResponse(producer_id=7)


class Sending(Producer):
    """Whose batches arrive after a second."""

    async def _produce(
        self, partition: TopicPartition, train: Sequence[bytearray], budget: RetryBudget
    ) -> list[tuple[int, int] | Exception]:
        await asyncio.sleep(1.0)
        return [(0, 0)] * len(train)


def test_a_flush_does_not_wait_for_what_is_handed_in_after_it(loop: SimLoop) -> None:
    async def go_on(producer: Producer) -> None:
        while True:
            await producer.send("t", b"another's", partition=1)
            await asyncio.sleep(0.1)

    async def story() -> None:
        producer = Sending(Played())
        other = asyncio.ensure_future(go_on(producer))
        mine = [await producer.send("t", b"mine", partition=0) for _ in range(3)]
        async with asyncio.timeout(60):
            await producer.flush()
        assert all(delivery.done() for delivery in mine)
        other.cancel()
        await producer.close()

    loop.run_until_complete(story())


def test_an_id_is_waited_for_as_long_as_a_delivery(loop: SimLoop) -> None:
    async def story() -> None:
        async with Sending(Played(answers_from_s=3 * TIMEOUT_S)) as producer:
            placed = await (await producer.send("t", b"v", partition=0))
        assert placed.offset == 0
        now = loop.time()
        never = Sending(Played(answers_from_s=1e6), delivery_timeout_s=4 * TIMEOUT_S)
        delivery = await never.send("t", b"v", partition=0)
        with pytest.raises(ConnectionError, match="no broker answers"):
            await delivery
        assert 4 * TIMEOUT_S <= loop.time() - now <= 6 * TIMEOUT_S
        await never.close()

    loop.run_until_complete(story())


def test_many_partitions_wait_for_an_id_no_longer_than_one(loop: SimLoop) -> None:
    async def story() -> None:
        never = Sending(Played(answers_from_s=1e6), delivery_timeout_s=4 * TIMEOUT_S)
        deliveries = [await never.send("t", b"v", partition=index) for index in range(100)]
        with pytest.raises(ConnectionError, match="no broker answers"):
            await never.flush()
        assert loop.time() <= 6 * TIMEOUT_S
        for delivery in deliveries:
            with pytest.raises(ConnectionError, match="no broker answers"):
                await delivery
        await never.close()

    loop.run_until_complete(story())


class Silent(Producer):
    """Whose cluster takes its time and then does not answer."""

    answers = False

    async def _produce(
        self, partition: TopicPartition, train: Sequence[bytearray], budget: RetryBudget
    ) -> list[tuple[int, int] | Exception]:
        await asyncio.sleep(TIMEOUT_S)
        if self.answers:
            return [(0, 0)] * len(train)
        return [ConnectionError("no broker answers")] * len(train)


def test_when_the_cluster_is_gone_what_is_queued_fails_with_the_first(loop: SimLoop) -> None:
    async def story() -> None:
        producer = Silent(Played(), batch_bytes=200, delivery_timeout_s=TIMEOUT_S)
        deliveries = [await producer.send("t", b"v" * 100, partition=0) for _ in range(500)]
        with pytest.raises(ConnectionError, match="no broker answers"):
            await producer.flush()
        assert loop.time() <= 3 * TIMEOUT_S, "not a time-out for each of the queued batches"
        assert all(delivery.done() for delivery in deliveries)
        later = await producer.send("t", b"later", partition=0)
        producer.answers = True
        assert (await later).offset == 0, "what is handed in afterwards is tried"
        await producer.close()

    loop.run_until_complete(story())


def test_the_time_out_counts_from_when_a_record_was_handed_in(loop: SimLoop) -> None:
    async def story() -> None:
        producer = Sending(Played(), delivery_timeout_s=10.0)
        await producer.send("t", b"first", partition=0)
        queued = producer._lanes[TopicPartition("t", 0)].queue[0]
        await asyncio.sleep(0)
        assert producer._remaining_s(queued) == 10.0
        await asyncio.sleep(4.0)
        assert producer._remaining_s(queued) == 6.0
        await asyncio.sleep(40.0)
        assert producer._remaining_s(queued) == 0.0
        await producer.close()

    loop.run_until_complete(story())
