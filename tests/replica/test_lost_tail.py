"""KIP-966: a replica that lost committed records neither leads nor cuts the others silently."""

import shutil
from typing import Any

import pytest
from tests.replica.conftest import Simulation, World

from odradek.log.config import LogConfig
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
UNCLEAN = LogConfig(unclean_leader_election_enable=True)


async def last_in_sync_loses_its_tail(world: World, *, checkpoint: bool) -> tuple[Any, Any]:
    """Ten records are committed on both; then only broker 1 is in sync, and loses the last five.

    Without a checkpoint it does not know how far it had been.
    """
    first, second = await world.start(1, 2)
    await world.elect(1, [1, 2], [1, 2])
    for number in range(10):
        await first.produce(b"record %d" % number)
    await world.until(lambda: second.log().high_watermark == 10)
    await world.elect(1, [1])
    await loses_half(world, first, checkpoint=checkpoint)
    return first, second


async def loses_half(world: World, first: Any, *, checkpoint: bool = True) -> None:
    await first.stop(clean=False)
    if not checkpoint:
        (first.dirs[0] / "replication-offset-checkpoint").unlink()
    (segment,) = (first.dirs[0] / "t-0").glob("*.log")
    size = segment.stat().st_size
    with segment.open("r+b") as file:
        file.truncate(size // 2)
    await world.elect(-1, [1], without=[1])
    await world.restart(1)


def test_it_refuses_to_lead_when_it_knows(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        first, second = await last_in_sync_loses_its_tail(world, checkpoint=True)
        errors = await world.elect(1, [1])
        assert errors[1] == ErrorCode.KAFKA_STORAGE_ERROR
        assert not first.partition().is_leader
        assert second.log().end_offset == 10

    simulate(story)


def test_the_other_refuses_to_truncate_when_it_does_not_know(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        first, second = await last_in_sync_loses_its_tail(world, checkpoint=False)
        errors = await world.elect(1, [1])
        assert errors[1] == ErrorCode.NONE
        await world.until(lambda: T0 not in second.replicas.fetchers)
        assert first.log().end_offset == 5
        assert second.log().end_offset == 10
        assert second.replicas.statistics()["fetcher_failed"] == 1
        # The one with the records may still be elected, and then the first follows it.
        await world.elect(2, [2])
        await world.until(lambda: first.log().end_offset == 10)
        assert first.contents() == second.contents()

    simulate(story)


@pytest.mark.parametrize("checkpoint", [True, False])
def test_where_unclean_elections_are_permitted_it_leads_and_the_other_cuts(
    simulate: Simulation, checkpoint: bool
) -> None:
    async def story(world: World) -> None:
        first, second = await last_in_sync_loses_its_tail(world, checkpoint=checkpoint)
        errors = await world.elect(1, [1])
        assert errors[1] == ErrorCode.NONE
        await world.until(lambda: second.log().end_offset == 5)
        assert first.contents() == second.contents()

    simulate(story, log_config=UNCLEAN)


def test_a_second_loss_is_noticed_though_the_first_was_accepted(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        first, second = await last_in_sync_loses_its_tail(world, checkpoint=True)
        await world.elect(1, [1])
        assert not first.partition().lost_tail
        await world.until_stored({1, 2})
        for number in range(40):
            await first.produce(b"record %d" % number)
        await world.until(lambda: second.log().high_watermark == 45)
        await world.elect(1, [1])
        await world.until(lambda: first.logs.checkpoints.read_high_watermarks() == {T0: 45})
        world.log_config = LogConfig()
        await loses_half(world, first)
        assert first.logs.logs[T0].end_offset > 10
        errors = await world.elect(1, [1])
        assert errors[1] == ErrorCode.KAFKA_STORAGE_ERROR
        assert second.log().end_offset == 45

    simulate(story, log_config=UNCLEAN)


def test_an_election_outside_the_isr_is_followed(simulate: Simulation) -> None:
    """An administrator elected broker 2, which had less: that was asked for."""

    async def story(world: World) -> None:
        first, second = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await first.produce(b"both")
        await world.until(lambda: second.log().high_watermark == 1)
        second.replicas.fetchers.remove([T0])
        await world.elect(1, [1], without=[2])
        for _ in range(4):
            await first.produce(b"only first")
        assert first.log().high_watermark == 5
        await world.elect(2, [2])
        await world.until(lambda: first.log().end_offset == 1)
        second.append(b"new")
        await world.until(lambda: first.contents() == second.contents())

    simulate(story)


def test_an_election_that_accepts_the_loss_counts(simulate: Simulation) -> None:
    """An operator confirmed it: the replica leads, and one that has more truncates to it."""

    async def story(world: World) -> None:
        first, second = await last_in_sync_loses_its_tail(world, checkpoint=True)
        assert (await world.elect(1, [1]))[1] == ErrorCode.KAFKA_STORAGE_ERROR
        errors = await world.elect(1, [1], is_unclean=True)
        assert errors == {1: ErrorCode.NONE, 2: ErrorCode.NONE}
        assert first.partition().is_leader
        assert not first.partition().lost_tail
        await world.until(lambda: first.contents() == second.contents())
        await first.produce(b"new")

    simulate(story)


def test_as_a_follower_it_heals(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        first, second = await last_in_sync_loses_its_tail(world, checkpoint=True)
        await world.elect(1, [1])
        assert first.partition().lost_tail
        await world.elect(2, [2])
        await world.until(lambda: first.log().high_watermark == 10)
        assert not first.partition().lost_tail
        await world.until_stored({1, 2})
        errors = await world.elect(1, [1, 2])
        assert errors[1] == ErrorCode.NONE
        assert first.contents() == second.contents()

    simulate(story)


def test_the_last_in_sync_replica_that_lost_its_log_refuses_until_it_has_followed(
    simulate: Simulation,
) -> None:
    async def story(world: World) -> None:
        first, second = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        for number in range(3):
            await first.produce(b"record %d" % number)
        await world.until(lambda: second.log().high_watermark == 3)
        await world.elect(1, [1])
        await first.stop(clean=False)
        shutil.rmtree(first.dirs[0] / "t-0")
        await world.elect(-1, [1], without=[1])
        await world.restart(1)
        first.replicas.replica_logs.lost = {T0}
        errors = await world.elect(1, [1])
        assert errors[1] == ErrorCode.KAFKA_STORAGE_ERROR
        await world.elect(-1, [1])
        errors = await world.elect(1, [1])
        assert errors[1] == ErrorCode.KAFKA_STORAGE_ERROR  # the empty log it has now is none
        await first.stop(clean=False)
        await world.elect(-1, [1], without=[1])
        await world.restart(1)
        errors = await world.elect(1, [1])
        assert errors[1] == ErrorCode.KAFKA_STORAGE_ERROR  # nor after a restart
        await world.elect(2, [2])
        await world.until(lambda: first.log().high_watermark == 3)
        errors = await world.elect(1, [1, 2])
        assert errors[1] == ErrorCode.NONE

    simulate(story)


def test_a_restart_does_not_make_it_forget(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        first, _ = await last_in_sync_loses_its_tail(world, checkpoint=True)
        await world.elect(1, [1])
        assert first.partition().lost_tail
        await first.stop(clean=True)
        await world.elect(-1, [1], without=[1])
        await world.restart(1)
        errors = await world.elect(1, [1])
        assert errors[1] == ErrorCode.KAFKA_STORAGE_ERROR

    simulate(story)


def test_with_no_other_replica_there_is_none_to_ask(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        (only,) = await world.start(1)
        await world.elect(1, [1], [1])
        for number in range(10):
            only.append(b"record %d" % number)
        await only.stop(clean=False)
        (segment,) = (only.dirs[0] / "t-0").glob("*.log")
        with segment.open("r+b") as file:
            file.truncate(100)
        await world.restart(1)
        errors = await world.elect(1, [1])
        assert errors[1] == ErrorCode.NONE
        assert only.log().end_offset == 1

    simulate(story)
