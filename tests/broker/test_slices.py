"""Large requests leave turns of the loop to others; small ones are answered at once."""

import asyncio
from pathlib import Path

import pytest
from tests.broker.clusters import cluster

from odradek.broker.slices import SLICE, map_in_slices
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.reply import Now, Reply
from odradek.wire.schema import Message, Request

COUNT = 50 * SLICE


class Turns:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.count += 1
        self._next = self._loop.call_soon(self._turn)

    def stop(self) -> int:
        self._next.cancel()
        return self.count


async def turns_of(reply: Reply[list[int]]) -> int:
    turns = Turns()
    assert await reply.result() == list(range(COUNT))
    return turns.stop()


async def test_few_items_are_answered_at_once_and_many_in_turns() -> None:
    few = map_in_slices(range(SLICE), int)
    assert isinstance(few, Now) and few.value == list(range(SLICE))
    assert await turns_of(map_in_slices(range(COUNT), int)) >= COUNT // SLICE


LARGE = [
    (DescribeGroupsRequest(groups=[f"g{number}" for number in range(COUNT)]), 3),
    (
        ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name="t",
                    partitions=[
                        ListOffsetsPartition(partition_index=number, timestamp=-1)
                        for number in range(COUNT)
                    ],
                )
            ]
        ),
        5,
    ),
    (
        MetadataRequest(
            topics=[MetadataRequestTopic(name=f"missing-{number}") for number in range(COUNT)],
            allow_auto_topic_creation=False,
        ),
        5,
    ),
]


@pytest.mark.parametrize(("request_", "version"), LARGE, ids=lambda value: type(value).__name__)
async def test_a_large_request_leaves_turns_to_others(
    tmp_path: Path, request_: Request[Message], version: int
) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        turns = Turns()
        response = await connection.request(request_, version)
        assert turns.stop() >= COUNT // SLICE
        assert encoded_size(response, version) > COUNT


def encoded_size(message: Message, version: int) -> int:
    return len(message.encode(version))
