"""Logs that a partition left behind when it was moved away unheard, and what may become of them.

replica/control_requests.py, rule 6; docs/spec/controller-and-replication.md section 5.1.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.replica.conftest import Node, Simulation, World

from odradek.log.config import LogConfig
from odradek.log.disk import RealDisk
from odradek.replica.leader.fetch_state import FetchParams, FetchSet
from odradek.store import paths
from odradek.wire.errors import ErrorCode
from odradek.wire.records import decode_records
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)


def values(world: World, node: Node) -> list[bytes | None]:
    contents = node.contents()
    return [record.value for h in world.scan(contents) for record in decode_records(contents, h)]


def strays(node: Node) -> list[Path]:
    return [path for at in node.dirs for path in at.iterdir() if path.name.endswith("-stray")]


async def leave_behind(world: World, *, alive: bool = False) -> tuple[Any, Any]:
    """Broker 2 has records 0 to 2 of a partition that was then moved to broker 1 alone."""
    leader, away = await world.start(1, 2)
    await world.elect(1, [1, 2], [1, 2])
    for index in range(3):
        await leader.produce(b"old %d" % index)
    await world.until(lambda: away.log().high_watermark == 3)
    if not alive:
        await away.stop()
    await world.elect(1, [1], [1], without=[2])
    if alive:
        world.update_metadata()
        assert away.partition().leader_id is None
    return leader, away


async def delete_topic(world: World, leader: Any) -> None:
    """Broker 2 need not be asked: nobody knows that it has anything."""
    assert world.stop(leader, epoch=-2, delete=True) == ErrorCode.NONE
    await leader.store.session.delete(paths.partition_state(T0))
    world.states.clear()


@pytest.mark.parametrize("alive", [False, True])
def test_a_replica_added_to_a_new_topic_of_the_same_name_copies_all_of_it(
    simulate: Simulation, alive: bool
) -> None:
    async def story(world: World) -> None:
        leader, away = await leave_behind(world, alive=alive)
        await delete_topic(world, leader)
        await world.elect(1, [1], [1], without=[2])
        for index in range(3):
            await leader.produce(b"new %d" % index)
        if alive:
            await world.elect(1, [1])  # an epoch later than the one that broker 2 knows
        else:
            await world.restart(2)
        await world.elect(1, [1], [1, 2], is_new=True)
        await world.until_stored({1, 2})
        await leader.produce(b"new 3")
        await world.elect(2, [2], without=[1])
        assert values(world, away) == [b"new 0", b"new 1", b"new 2", b"new 3"]

    simulate(story)


@pytest.mark.parametrize("alive", [False, True])
def test_the_leader_of_a_new_topic_of_the_same_name_begins_with_nothing(
    simulate: Simulation, alive: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        leader, away = await leave_behind(world, alive=alive)
        await delete_topic(world, leader)
        if not alive:
            await world.restart(2)
        world.topic_configs["t"] = LogConfig(segment_bytes=12345)
        with caplog.at_level(logging.WARNING):
            errors = await world.elect(2, [2, 1], [2, 1])
        assert errors == {2: ErrorCode.NONE, 1: ErrorCode.NONE}
        assert away.partition().is_leader
        assert (away.log().end_offset, away.log().high_watermark) == (0, 0)
        assert away.log().config.segment_bytes == 12345
        assert not away.partition().lost_tail
        # The old records are not deleted, and the broker's log says where they are.
        (stray,) = strays(away)
        assert b"old 2" in (stray / "00000000000000000000.log").read_bytes()
        assert [str(stray) in message for message in caplog.messages].count(True) == 1
        await away.produce(b"new 0")
        assert values(world, away) == values(world, leader) == [b"new 0"]
        await away.stop()
        await world.restart(2)
        assert strays(away) == [stray]

    simulate(story)


def test_a_session_that_asked_for_what_was_left_behind_gets_what_is_new(
    simulate: Simulation,
) -> None:
    async def story(world: World) -> None:
        leader, away = await leave_behind(world, alive=True)
        params, fetch_set = FetchParams(may_read_follower=True), FetchSet(is_session=True)
        fetch_set.put(T0, 0, 1 << 20)
        ((_, data),) = away.serve_fetch(params, fetch_set)
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await delete_topic(world, leader)
        await world.elect(2, [2, 1], [2, 1])
        await away.produce(b"new")
        ((_, data),) = away.serve_fetch(params, fetch_set)
        assert data.error_code == ErrorCode.NONE
        assert bytes(data.records) == away.contents()

    simulate(story)


def test_a_log_of_later_epochs_is_stale_though_the_partition_is_not_new(
    simulate: Simulation,
) -> None:
    """Broker 2 was assigned while it was down: it is new, and hears only whom to follow."""

    async def story(world: World) -> None:
        leader, away = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await world.elect(1, [1, 2])
        await world.elect(1, [1, 2])
        await leader.produce(b"old")
        await world.until(lambda: away.log().high_watermark == 1)
        await away.stop()
        await world.elect(1, [1], [1], without=[2])
        await delete_topic(world, leader)
        await world.elect(1, [1], [1, 2], without=[2])
        await leader.produce(b"new")
        await world.restart(2)
        await world.elect(1, [1])
        await world.until_stored({1, 2})
        assert values(world, away) == [b"new"]
        assert len(strays(away)) == 1

    simulate(story)


@pytest.mark.parametrize(
    ("is_new", "leader", "isr", "leader_epoch"),
    [
        pytest.param(False, 2, [2], 1, id="it led and restarted"),
        pytest.param(False, 2, [2], 0, id="and nobody was elected meanwhile"),
        pytest.param(False, 1, [1], 1, id="it lags and restarted"),
        pytest.param(True, 1, [1, 2], 1, id="it has caught up when a move is taken over"),
        pytest.param(True, 2, [2], 1, id="it leads when a move is taken over"),
        pytest.param(True, -1, [1], 1, id="nobody leads, and it may be all there is"),
    ],
)
def test_records_that_may_be_needed_stay(
    simulate: Simulation, is_new: bool, leader: int, isr: list[int], leader_epoch: int
) -> None:
    async def story(world: World) -> None:
        node, _ = await world.start(2, 1)
        await world.elect(2, [2], [2, 1])
        node.append(b"kept")
        await node.stop()
        await world.restart(2)
        world.states[T0] = replace(
            world.states[T0], leader=leader, isr=tuple(isr), leader_epoch=leader_epoch
        )
        request = world.request(T0, is_new=is_new, broker_epoch=node.epoch)
        await node.replicas.control_requests.leader_and_isr(request)
        assert values(world, node) == [b"kept"]
        assert not strays(node)

    simulate(story)


@pytest.mark.parametrize("is_known", [True, False])
def test_the_first_word_of_all_said_again_to_a_later_life_takes_nothing(
    simulate: Simulation, is_known: bool
) -> None:
    """The controller did not hear the answer, and repeats it to whoever listens there now."""

    async def story(world: World) -> None:
        (node,) = await world.start(1)
        await world.elect(1, [1], [1])
        node.append(b"kept")
        request = world.request(T0, is_new=True, broker_epoch=node.epoch if is_known else -1)
        await node.replicas.control_requests.leader_and_isr(request)
        assert values(world, node) == [b"kept"]
        await node.stop()
        await world.restart(1)
        await node.replicas.control_requests.leader_and_isr(request)
        await world.elect(1, [1])
        assert values(world, node) == [b"kept"]
        assert not strays(node)

    simulate(story)


def test_a_partition_that_is_only_stopped_keeps_its_log(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        (node,) = await world.start(1)
        await world.elect(1, [1], [1])
        node.append(b"kept")
        request = world.request(T0, is_new=True, broker_epoch=node.epoch)
        assert world.stop(node) == ErrorCode.NONE
        response = await node.replicas.control_requests.leader_and_isr(request)
        (error,) = response.partition_errors
        assert error.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert values(world, node) == [b"kept"]

    simulate(story)


def test_a_leftover_that_the_disk_will_not_let_go_is_not_served(
    simulate: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        leader, away = await leave_behind(world)
        await delete_topic(world, leader)
        await world.restart(2)

        rename = RealDisk.rename

        def refuse(disk: RealDisk, source: str, target: str) -> None:
            if target.endswith("-stray"):
                raise OSError("the disk is gone")
            rename(disk, source, target)

        monkeypatch.setattr(RealDisk, "rename", refuse)
        errors = await world.elect(2, [2, 1], [2, 1])
        assert errors == {2: ErrorCode.KAFKA_STORAGE_ERROR, 1: ErrorCode.NONE}
        assert T0 in away.replicas.partitions.offline

    simulate(story)
