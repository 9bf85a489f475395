"""Produce: acks, the minimum ISR, waiting, time-outs, loss of leadership.

docs/spec/controller-and-replication.md 5.4.
"""

import asyncio
from dataclasses import replace

import pytest
from tests.replica.conftest import Simulation, World

from odradek.log.config import LogConfig
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
TWO = LogConfig(min_insync_replicas=2)


@pytest.mark.parametrize("acks", [0, 1])
def test_acks_0_and_1_answer_at_once_whatever_the_isr(simulate: Simulation, acks: int) -> None:
    async def story(world: World) -> None:
        (leader,) = await world.start(1)
        await world.elect(1, [1], [1, 2, 3])
        results = leader.append(b"x", acks=acks)
        assert isinstance(results, dict)
        assert (results[T0].error, results[T0].base_offset) == (ErrorCode.NONE, 0)

    simulate(story, log_config=TWO)


def test_acks_all_alone_answers_at_once(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        (leader,) = await world.start(1)
        await world.elect(1, [1], [1])
        results = leader.append(b"x", b"y", acks=-1)
        assert isinstance(results, dict)
        assert results[T0].error == ErrorCode.NONE
        assert leader.log().high_watermark == 2

    simulate(story, log_config=TWO)  # the minimum is never more than there are replicas


def test_other_acks_are_refused(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        (leader,) = await world.start(1)
        await world.elect(1, [1], [1])
        assert leader.append(b"x", acks=2)[T0].error == ErrorCode.INVALID_REQUIRED_ACKS
        assert leader.log().end_offset == 0

    simulate(story)


def test_below_the_minimum_nothing_is_written_and_the_mark_stands_still(
    simulate: Simulation,
) -> None:
    async def story(world: World) -> None:
        (leader,) = await world.start(1)
        await world.elect(1, [1], [1, 2, 3])
        results = leader.append(b"x", acks=-1)
        assert results[T0].error == ErrorCode.NOT_ENOUGH_REPLICAS
        assert leader.log().end_offset == 0
        leader.append(b"x", acks=1)
        assert leader.log().end_offset == 1
        assert leader.log().high_watermark == 0

    simulate(story, log_config=TWO)


def test_it_times_out_and_leaves_nothing_behind(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        (leader,) = await world.start(1)
        await world.elect(1, [1, 2], [1, 2])
        before = leader.replicas.now()
        result = await leader.produce(b"x", timeout_ms=1500)
        assert result.error == ErrorCode.REQUEST_TIMED_OUT
        assert 1.5 <= leader.replicas.now() - before < 1.6
        assert len(leader.role().produce_queue) == 0
        assert leader.replicas.statistics()["waiting"] == 0

    simulate(story)


def test_losing_the_leadership_ends_the_wait(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, _ = await world.start(1, 2)
        world.nodes[1].deaf = True
        await world.elect(1, [1, 2], [1, 2])
        waiting = leader.append(b"x", acks=-1)
        await world.elect(2, [1, 2])
        results = await waiting
        assert results[T0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER

    simulate(story)


def test_too_few_replicas_after_the_append(simulate: Simulation) -> None:
    """The record is committed by an ISR that shrank below the minimum while it waited."""

    async def story(world: World) -> None:
        leader, _, third = await world.start(1, 2, 3)
        await world.elect(1, [1, 2, 3], [1, 2, 3])
        await leader.produce(b"warm")
        for other in (2, 3):
            world.nodes[other].replicas.fetchers.remove([T0])
        waiting = leader.append(b"x", acks=-1)
        assert isinstance(waiting, asyncio.Future)
        # Only the setting makes it fail: with a minimum of one the same wait succeeds.
        await world.until(lambda: len(leader.role().isr.committed) == 1)
        leader.log().config = replace(leader.log().config, min_insync_replicas=1)
        leader.role()._raise_high_watermark(leader.replicas.now())
        assert (await waiting)[T0].error == ErrorCode.NONE
        assert third.log().end_offset == 1

    simulate(story, log_config=TWO)


def test_the_mark_passes_but_the_maximal_isr_is_too_small(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, _ = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await leader.produce(b"warm")
        world.nodes[2].replicas.fetchers.remove([T0])
        waiting = leader.append(b"x", acks=-1)
        await world.until(lambda: leader.role().isr.committed == (1,))
        assert leader.log().high_watermark == 2
        assert leader.role()._commit_error() == ErrorCode.NONE
        assert (await waiting)[T0].error == ErrorCode.NONE
        leader.log().config = TWO
        assert leader.role()._commit_error() == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    simulate(story)


def test_one_bad_partition_does_not_stop_the_other(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, _ = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        results = leader.serve_append(
            -1, 1000, {T0: bytearray(b"nonsense" * 20), T1: bytearray(b"x" * 80)}
        )
        assert isinstance(results, dict)  # nobody succeeded: nothing to wait for
        assert results[T0].error == ErrorCode.CORRUPT_MESSAGE
        assert results[T1].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await world.elect(1, [1, 2], [1, 2], of=T1)
        results = leader.serve_append(-1, 1000, {T0: world.batch(b"a"), T1: world.batch(b"b")})
        assert isinstance(results, asyncio.Future)
        assert {result.error for result in (await results).values()} == {ErrorCode.NONE}

    simulate(story)


def test_several_partitions_time_out_where_they_must(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, _ = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await world.elect(1, [1, 3], [1, 3], of=T1)  # there is no broker 3
        results = leader.serve_append(-1, 700, {T0: world.batch(b"a"), T1: world.batch(b"b")})
        assert isinstance(results, asyncio.Future)
        done = await results
        assert done[T0].error == ErrorCode.NONE
        assert done[T1].error == ErrorCode.REQUEST_TIMED_OUT
        assert leader.replicas.statistics()["waiting"] == 1  # the follower's fetch

    simulate(story)


def test_a_hosted_partition_that_we_do_not_lead(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        _, second, third = await world.start(1, 2, 3)
        await world.elect(1, [1, 2], [1, 2])
        assert second.append(b"x")[T0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert third.append(b"x")[T0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        unknown = TopicPartition("unknown", 0)
        error = third.append(b"x", of=unknown)[unknown].error
        assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    simulate(story)
