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
    """A cluster where nobody answers until a time."""

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
        async with asyncio.timeout(10):
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
