"""Producer ids in blocks, from the controller and from the store (acceptance behaviour 27).

docs/spec/protocol-ladder.md section 4.
"""

import asyncio
from pathlib import Path

import pytest
from tests.broker.clusters import Cluster, cluster, until

from odradek.broker import producer_ids
from odradek.broker.producer_ids import ProducerIds
from odradek.replica.controller_channel import ControllerUnavailable
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.init_producer_id import InitProducerIdRequest


class Blocks:
    """Where blocks come from, in the hand of the test."""

    def __init__(self, *blocks: range | Exception) -> None:
        self.blocks = list(blocks)
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def next(self) -> range:
        self.asked += 1
        await self.gate.wait()
        found = self.blocks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


async def refused(ids: ProducerIds) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await ids.take()
    return caught.value.error


async def test_the_next_block_is_asked_for_before_the_present_one_is_used_up() -> None:
    blocks = Blocks(range(1000), range(5000, 6000))
    ids = ProducerIds(blocks.next)
    assert blocks.asked == 0, "nothing before the first producer comes"
    taken = [await ids.take() for _ in range(900)]
    await asyncio.sleep(0)
    assert blocks.asked == 1
    taken.append(await ids.take())
    await until(lambda: blocks.asked == 2)  # with the 901st
    taken += [await ids.take() for _ in range(200)]
    assert taken == [*range(1000), *range(5000, 5101)]
    await ids.close()


async def test_many_producers_wait_for_one_block() -> None:
    blocks = Blocks(range(10, 13), range(20, 1020))
    blocks.gate.clear()
    ids = ProducerIds(blocks.next)
    waiting = [asyncio.ensure_future(ids.take()) for _ in range(6)]
    await until(lambda: blocks.asked == 1)
    waiting.pop().cancel()  # a client that goes away takes nothing from the others
    blocks.gate.set()
    assert sorted(await asyncio.gather(*waiting)) == [10, 11, 12, 20, 21]
    await ids.close()


async def test_what_cannot_be_had_is_asked_for_again_by_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_ids, "RETRY_S", 0.0)
    blocks = Blocks(
        ControllerUnavailable("no controller is known"),
        range(-5, 5),
        range(7, 7),
        range(2**63 - 500, 2**63 + 500),
        range(1000),
        range(999, 1999),  # begins with an id of the present block
        range(1000, 2000),
    )
    ids = ProducerIds(blocks.next)
    for _ in range(4):
        assert await refused(ids) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [await ids.take() for _ in range(1000)] == list(range(1000))
    assert await refused(ids) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await ids.take() == 1000
    await ids.close()


async def take(made: Cluster, broker_id: int, count: int = 1) -> list[int]:
    connection = await made.connect(broker_id)
    found: list[int] = []
    while len(found) < count:
        response = await connection.request(InitProducerIdRequest(transactional_id=None), 4)
        if response.error_code == ErrorCode.NONE:
            found.append(response.producer_id)
        else:  # the controller has just moved; clients retry this one
            assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return found


async def test_no_id_twice_while_the_controller_moves_and_brokers_differ(tmp_path: Path) -> None:
    """Brokers 1 and 2 ask the controller, broker 3 is below that protocol."""
    async with cluster(tmp_path, brokers=2, inter_broker_protocol_version="3.0") as made:
        await made.start(3, inter_broker_protocol_version="2.8")
        ids: list[int] = []
        for _ in range(10):
            for broker_id in made.brokers:
                made.brokers[broker_id].producer_ids._ids = range(0)  # as if the block were used up
                made.brokers[broker_id].producer_ids._following = range(0)
                ids += await take(made, broker_id, 3)
            moved = made.controller.id
            await made.stop(moved)
            await until(lambda: any(each.controller.is_active for each in made.brokers.values()))
            version = "2.8" if moved == 3 else "3.0"
            await made.start(moved, inter_broker_protocol_version=version)
        assert len(set(ids)) == len(ids)
        assert len({each // 1000 for each in ids}) >= 30, "a block for each"
