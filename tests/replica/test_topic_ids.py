"""Topic ids in LeaderAndIsr: learned, forgotten, refused, and when a log of another id goes.

docs/spec/protocol-ladder.md sections 2.2, 2.4 and 2.5.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.replica.conftest import CONFIG
from tests.replica.test_stale_logs import delete_topic, strays, values

from odradek.wire.errors import ErrorCode
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.topic_ids import NO_TOPIC_ID, format_topic_id
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
FIRST, SECOND = UUID(int=0x1234567890), UUID(int=0x2234567890)
AT_3_9 = replace(CONFIG, protocol=ProtocolVersion.V3_9_IV0)
AT_2_6 = replace(CONFIG, protocol=ProtocolVersion.V2_6_IV0)


def file_of(node: Any) -> Path:
    return Path(node.log().directory) / "partition.metadata"


async def again(world: Any, node: Any) -> ErrorCode:
    """The present state once more: what a new controller sends to every replica."""
    request = world.request(T0, broker_epoch=node.epoch)
    response = await node.replicas.control_requests.leader_and_isr(request)
    return ErrorCode(response.partition_errors[0].error_code)


def test_an_upgraded_controller_brings_ids_at_the_unchanged_epoch(simulate: Any) -> None:
    """Acceptance 7: NONE, and the file is written; without an id a follower goes by name again."""

    async def story(world: Any) -> None:
        leader, follower = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await leader.produce(b"before")
        assert [node.log().metadata.topic_id for node in (leader, follower)] == [NO_TOPIC_ID] * 2
        world.topic_ids["t"] = FIRST
        for node in (leader, follower):
            assert await again(world, node) is ErrorCode.NONE
            assert node.log().metadata.topic_id == FIRST
            assert await again(world, node) is ErrorCode.STALE_CONTROLLER_EPOCH
        assert follower.role().topic_id == FIRST
        await leader.produce(b"after")
        for node in (leader, follower):
            text = f"version: 0\ntopic_id: {format_topic_id(FIRST)}"
            assert file_of(node).read_bytes() == text.encode()
        # A controller of an older protocol: ids stay in the files.
        del world.topic_ids["t"]
        assert await again(world, follower) is ErrorCode.NONE
        assert await again(world, leader) is ErrorCode.STALE_CONTROLLER_EPOCH
        assert follower.role().topic_id == NO_TOPIC_ID
        assert follower.log().metadata.topic_id == FIRST and file_of(follower).exists()
        await leader.produce(b"by name")
        assert values(world, follower) == [b"before", b"after", b"by name"]

    simulate(story, config=AT_3_9)


def test_another_id_is_refused_at_any_epoch_and_nothing_changes(simulate: Any) -> None:
    """Acceptance 8."""

    async def story(world: Any) -> None:
        leader, follower = await world.start(1, 2)
        world.topic_ids["t"] = FIRST
        await world.elect(1, [1, 2], [1, 2])
        await leader.produce(b"kept")
        world.topic_ids["t"] = SECOND
        errors = await world.elect(1, [1, 2])
        assert errors == dict.fromkeys((1, 2), ErrorCode.INCONSISTENT_TOPIC_ID)
        assert [node.partition().leader_epoch for node in (leader, follower)] == [0, 0]
        assert values(world, leader) == values(world, follower) == [b"kept"]

    simulate(story, config=AT_3_9)


@pytest.mark.parametrize("in_isr", [False, True])
def test_a_topic_made_again_while_a_broker_was_down(
    simulate: Any, in_isr: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Acceptance 11 and 12: out of the ISR the old log is set aside; in it, it may be the id that
    was lost, so it stays and the state is refused."""

    async def story(world: Any) -> None:
        leader, away = await world.start(1, 2)
        world.topic_ids["t"] = FIRST
        await world.elect(1, [1, 2], [1, 2])
        await leader.produce(b"old 0")
        await world.until(lambda: away.log().end_offset == 1)
        await away.stop()
        await delete_topic(world, leader)
        world.topic_ids["t"] = SECOND
        isr = [1, 2] if in_isr else [1]
        await world.elect(1, [1], [1, 2], without=[2])
        if not in_isr:
            await leader.produce(b"new 0")
        await world.restart(2)
        # Not called new, and at an epoch that is no lower: nothing but the id tells them apart.
        errors = await world.elect(1, isr)
        if in_isr:
            assert errors[2] is ErrorCode.INCONSISTENT_TOPIC_ID
            assert not strays(away) and "move the directory away" in caplog.text
            assert b"old 0" in (away.dirs[0] / "t-0" / f"{0:020}.log").read_bytes()
            return
        assert errors[2] is ErrorCode.NONE
        await world.until_stored({1, 2})
        (stray,) = strays(away)
        assert b"old 0" in (stray / f"{0:020}.log").read_bytes()
        assert format_topic_id(FIRST) in (stray / "partition.metadata").read_text()
        assert values(world, away) == [b"new 0"]
        assert away.log().metadata.topic_id == SECOND

    simulate(story, config=AT_3_9)


def test_an_id_that_was_lost_and_made_again_sets_no_log_aside(simulate: Any) -> None:
    """Acceptance 12, on all replicas at once, after they restarted."""

    async def story(world: Any) -> None:
        nodes = await world.start(1, 2)
        world.topic_ids["t"] = FIRST
        await world.elect(1, [1, 2], [1, 2])
        await nodes[0].produce(b"kept")
        for node in nodes:
            await node.stop()
        for id in (1, 2):
            await world.restart(id)
        world.topic_ids["t"] = SECOND
        errors = await world.elect(1, [1, 2])
        assert errors == dict.fromkeys((1, 2), ErrorCode.INCONSISTENT_TOPIC_ID)
        assert [strays(node) for node in nodes] == [[], []]
        world.topic_ids["t"] = FIRST
        assert await world.elect(1, [1, 2]) == dict.fromkeys((1, 2), ErrorCode.NONE)
        assert values(world, nodes[0]) == [b"kept"]

    simulate(story, config=AT_3_9)


def test_the_log_with_the_same_id_is_this_partitions_however_new_it_is_called(
    simulate: Any,
) -> None:
    async def story(world: Any) -> None:
        leader, away = await world.start(1, 2)
        world.topic_ids["t"] = FIRST
        await world.elect(1, [1, 2], [1, 2])
        await leader.produce(b"kept")
        await world.until(lambda: away.log().end_offset == 1)
        await away.stop()
        await world.elect(1, [1], [1], without=[2])
        await world.restart(2)
        assert (await world.elect(1, [1], [1, 2], is_new=True))[2] is ErrorCode.NONE
        assert not strays(away) and away.log().end_offset == 1

    simulate(story, config=AT_3_9)


def test_below_2_8_ids_are_passed_over(simulate: Any) -> None:
    async def story(world: Any) -> None:
        leader, follower = await world.start(1, 2)
        world.topic_ids["t"] = FIRST
        await world.elect(1, [1, 2], [1, 2])
        world.topic_ids["t"] = SECOND
        assert await world.elect(1, [1, 2]) == dict.fromkeys((1, 2), ErrorCode.NONE)
        assert await again(world, follower) is ErrorCode.STALE_CONTROLLER_EPOCH
        assert follower.role().topic_id == NO_TOPIC_ID
        assert leader.log().metadata.topic_id == NO_TOPIC_ID

    simulate(story, config=AT_2_6)
