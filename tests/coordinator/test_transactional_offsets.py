"""Offsets that are committed in transactions: pending, taken, dropped, and found again."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.coordinator.world import NOW, T0, World, commit

from odradek.coordinator.group import CommittedOffset, GroupState
from odradek.coordinator.storage import Producer
from odradek.wire.errors import ErrorCode
from odradek.wire.records import ControlType, TransactionEnd, encode_transaction_end
from odradek.wire.topics import TopicPartition

E = ErrorCode
T1 = TopicPartition("t", 1)
PRODUCER = Producer(1000, 0)
OUTSIDE = (-1, "", None)


def pend(
    world: World,
    offsets: dict[TopicPartition, int],
    producer: Producer = PRODUCER,
    member: tuple[int, str, str | None] = OUTSIDE,
) -> Coroutine[Any, Any, dict[TopicPartition, ErrorCode]]:
    return world.groups.offsets.commit_in_transaction(
        "g", producer, member, {tp: CommittedOffset(o, "", NOW) for tp, o in offsets.items()}
    )


async def mark(world: World, is_commit: bool, producer: Producer = PRODUCER) -> None:
    """The marker is in the log, and its leader completes what it ends."""
    outcome = ControlType.COMMIT if is_commit else ControlType.ABORT
    end = TransactionEnd(outcome, 3, NOW)
    world.log.append(0, encode_transaction_end(end, producer.id, producer.epoch), 1)
    await world.groups.offsets.end_transaction(0, producer.id, is_commit)


def fetched(world: World, require_stable: bool = False) -> dict[TopicPartition, Any]:
    error, found = world.groups.offsets.fetch("g", [T0, T1], require_stable)
    assert not error
    return {
        tp: each.offset if isinstance(each, CommittedOffset) else each for tp, each in found.items()
    }


async def reload(world: World, epoch: int) -> None:
    world.groups.close()
    world.groups = world.coordinator()
    await world.elect(epoch)


def test_pending_offsets_are_not_seen_until_the_marker() -> None:
    async def story(world: World) -> None:
        assert await commit(world, -1, "", {T0: 5}) == {T0: E.NONE}
        assert await pend(world, {T0: 7, T1: 8}) == {T0: E.NONE, T1: E.NONE}
        assert fetched(world) == {T0: 5, T1: None}
        unstable = E.UNSTABLE_OFFSET_COMMIT
        assert fetched(world, require_stable=True) == {T0: unstable, T1: unstable}
        await mark(world, is_commit=True)
        assert fetched(world, require_stable=True) == {T0: 7, T1: 8}
        await pend(world, {T0: 9})
        await mark(world, is_commit=False)
        assert fetched(world, require_stable=True) == {T0: 7, T1: 8}
        await reload(world, 1)
        assert fetched(world, require_stable=True) == {T0: 7, T1: 8}

    World().run(story)


def test_a_plain_commit_that_is_under_way_is_unstable_too() -> None:
    async def story(world: World) -> None:
        world.log.held = []
        committing = asyncio.ensure_future(commit(world, -1, "", {T0: 5}))
        await asyncio.sleep(0.01)
        assert fetched(world, require_stable=True)[T0] is E.UNSTABLE_OFFSET_COMMIT
        world.log.release()
        await committing
        assert fetched(world, require_stable=True)[T0] == 5

    World().run(story)


def test_a_later_plain_commit_wins_live_and_after_a_reload() -> None:
    async def story(world: World) -> None:
        await pend(world, {T0: 7, T1: 7})
        await commit(world, -1, "", {T0: 5})
        await mark(world, is_commit=True)
        assert fetched(world) == {T0: 5, T1: 7}
        await reload(world, 1)
        assert fetched(world) == {T0: 5, T1: 7}

    World().run(story)


def test_pending_offsets_survive_a_failover() -> None:
    async def story(world: World) -> None:
        await pend(world, {T0: 7})
        await reload(world, 1)
        assert fetched(world, require_stable=True)[T0] is E.UNSTABLE_OFFSET_COMMIT
        world.groups.offsets.expire()
        await mark(world, is_commit=True)
        assert fetched(world)[T0] == 7

    World().run(story)


def test_a_marker_during_the_load_counts() -> None:
    async def story(world: World) -> None:
        await pend(world, {T0: 7})
        world.groups.close()
        world.groups = world.coordinator()
        world.groups.on_elected(0, 1)
        await mark(world, is_commit=True)
        assert fetched(world, require_stable=True)[T0] == 7

    World().run(story)


def test_a_marker_ends_the_offsets_of_its_own_producer() -> None:
    async def story(world: World) -> None:
        await pend(world, {T0: 7})
        await pend(world, {T1: 8}, Producer(2000, 0))
        await mark(world, True, Producer(2000, 0))
        assert fetched(world) == {T0: None, T1: 8}

    World().run(story)


def test_a_commit_that_was_not_stored_is_not_pending() -> None:
    async def story(world: World) -> None:
        world.log.next_error = E.NOT_ENOUGH_REPLICAS
        assert await pend(world, {T0: 7}) == {T0: E.COORDINATOR_NOT_AVAILABLE}
        assert fetched(world, require_stable=True)[T0] is None
        await mark(world, is_commit=True)
        assert fetched(world)[T0] is None

    World().run(story)


def test_a_commit_that_was_not_stored_leaves_the_one_before_it() -> None:
    async def story(world: World) -> None:
        assert await pend(world, {T0: 7, T1: 7}) == {T0: E.NONE, T1: E.NONE}
        world.log.next_error = E.NOT_ENOUGH_REPLICAS
        assert await pend(world, {T0: 9}) == {T0: E.COORDINATOR_NOT_AVAILABLE}
        await mark(world, is_commit=True)
        assert fetched(world) == {T0: 7, T1: 7}
        await reload(world, 1)
        assert fetched(world) == {T0: 7, T1: 7}

    World().run(story)


def test_who_may_commit() -> None:
    async def story(world: World) -> None:
        joined = (await world.stable())[0]
        generation, member = joined.generation_id, joined.member_id
        assert await pend(world, {T0: 1}, member=(generation, member, None)) == {T0: E.NONE}
        assert await pend(world, {T0: 1}) == {T0: E.NONE}, "nothing given"
        for wrong, error in (
            ((generation + 1, member, None), E.ILLEGAL_GENERATION),
            ((generation, "stranger", None), E.UNKNOWN_MEMBER_ID),
            ((generation, member, "nobody"), E.UNKNOWN_MEMBER_ID),
        ):
            assert await pend(world, {T0: 1}, member=wrong) == {T0: error}

    World().run(story)


def test_a_static_member_whose_place_was_taken_may_not_commit() -> None:
    async def story(world: World) -> None:
        (first,) = await world.stable(group_instance_id="i")
        second = await world.join(group_instance_id="i", version=5)
        for joined, error in ((first, E.FENCED_INSTANCE_ID), (second, E.NONE)):
            member = (joined.generation_id, joined.member_id, "i")
            assert await pend(world, {T0: 1}, member=member) == {T0: error}

    World().run(story)


def test_a_group_that_divides_its_work_commits_in_transactions_only() -> None:
    async def story(world: World) -> None:
        joined = await world.join()
        assert world.group.state is GroupState.COMPLETING_REBALANCE
        generation, member = joined.generation_id, joined.member_id
        assert await commit(world, generation, member, {T0: 1}) == {T0: E.REBALANCE_IN_PROGRESS}
        assert await pend(world, {T0: 2}, member=(generation, member, None)) == {T0: E.NONE}
        await mark(world, is_commit=True)
        assert fetched(world)[T0] == 2

    World().run(story)
