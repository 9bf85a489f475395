"""What groups commit, in virtual time: who may, when it is seen, how it is forgotten."""

import asyncio
from typing import Any

import pytest
from tests.coordinator.world import NOW, T0, World, commit, offsets_in

from odradek.coordinator.group import CommittedOffset, Group, GroupState
from odradek.coordinator.offsets import expired
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.wire.messages.leave_group import MemberIdentity
from odradek.wire.records import Record, encode_batch
from odradek.wire.topics import TopicPartition


def test_who_may_commit() -> None:
    async def story(world: World) -> None:
        assert await commit(world, 5, "m", {T0: 1}) == {T0: ErrorCode.ILLEGAL_GENERATION}
        assert await commit(world, -1, "", {T0: 1}) == {T0: ErrorCode.NONE}
        joined = await world.join()
        assert await commit(world, 1, joined.member_id, {T0: 2}) == {
            T0: ErrorCode.REBALANCE_IN_PROGRESS
        }
        await world.sync(joined)
        assert await commit(world, -1, "", {T0: 2}) == {T0: ErrorCode.UNKNOWN_MEMBER_ID}
        assert await commit(world, 1, "other", {T0: 2}) == {T0: ErrorCode.UNKNOWN_MEMBER_ID}
        assert await commit(world, 0, joined.member_id, {T0: 2}) == {
            T0: ErrorCode.ILLEGAL_GENERATION
        }
        assert await commit(world, 1, joined.member_id, {T0: 2}) == {T0: ErrorCode.NONE}
        too_much = await commit(world, 1, joined.member_id, {T0: 3}, "x" * 4097)
        assert too_much == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
        assert offsets_in(world) == {T0: 2}

    World().run(story)


@pytest.mark.parametrize(("character", "count_max"), [("x", 4096), ("é", 4096), ("🪶", 2048)])
def test_metadata_is_measured_as_java_measures_a_string(character: str, count_max: int) -> None:
    async def story(world: World) -> None:
        most = await commit(world, -1, "", {T0: 1}, character * count_max)
        assert most == {T0: ErrorCode.NONE}
        too_much = await commit(world, -1, "", {T0: 2}, character * (count_max + 1))
        assert too_much == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE}

    World().run(story)


def test_a_commit_is_not_seen_before_it_is_stored() -> None:
    async def story(world: World) -> None:
        world.log.held = []
        committing = asyncio.ensure_future(commit(world, -1, "", {T0: 7}))
        await asyncio.sleep(0.01)
        assert world.groups.offsets.fetch("g", [T0])[1] == {T0: None}
        world.log.release()
        assert await committing == {T0: ErrorCode.NONE}
        assert offsets_in(world) == {T0: 7}

    World().run(story)


def test_a_commit_that_fails_is_not_seen() -> None:
    async def story(world: World) -> None:
        world.log.next_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await commit(world, -1, "", {T0: 7}) == {T0: ErrorCode.NOT_COORDINATOR}
        assert world.groups.offsets.fetch("g", [T0])[1] == {T0: None}

    World().run(story)


def test_deleting_groups_and_offsets() -> None:
    async def story(world: World) -> None:
        assert await world.groups.offsets.delete_group("g") == ErrorCode.GROUP_ID_NOT_FOUND
        metadata = (0).to_bytes(2, "big") + ConsumerProtocolSubscription(topics=["t"]).encode(0)
        (joined,) = await world.stable(protocols={"range": metadata})
        other = TopicPartition("u", 0)
        await commit(world, 1, joined.member_id, {T0: 1, other: 2})
        assert await world.groups.offsets.delete_group("g") == ErrorCode.NON_EMPTY_GROUP
        assert await world.groups.offsets.delete_offsets("g", [T0, other]) == (
            ErrorCode.NONE,
            {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, other: ErrorCode.NONE},
        )
        world.groups.leave("g", [MemberIdentity(member_id=joined.member_id)])
        assert await world.groups.offsets.delete_group("g") == ErrorCode.NONE
        world.groups.on_resigned(0)
        world.groups = world.coordinator()
        await world.elect(epoch=1)
        assert world.groups.storage.entries() == []

    World().run(story)


def test_a_group_whose_last_offset_goes_goes_too() -> None:
    async def story(world: World) -> None:
        other = TopicPartition("u", 0)
        await commit(world, -1, "", {T0: 1, other: 2})
        assert await world.groups.offsets.delete_offsets("g", [T0]) == (
            ErrorCode.NONE,
            {T0: ErrorCode.NONE},
        )
        assert world.group.offsets.keys() == {other}
        world.groups.offsets.forget_topic_partitions([other])
        assert world.groups.storage.get("g") is None

    World().run(story)


def test_offsets_of_an_empty_group_expire_and_then_the_group() -> None:
    async def story(world: World) -> None:
        world.groups.offsets.start()
        (joined,) = await world.stable()
        await commit(world, 1, joined.member_id, {T0: 1})
        world.groups.leave("g", [MemberIdentity(member_id=joined.member_id)])
        await asyncio.sleep(7 * 24 * 3600 - 700)
        assert T0 in world.group.offsets
        await asyncio.sleep(1400)
        assert world.groups.storage.get("g") is None
        world.groups.offsets.close()

    World().run(story)


class TestACommitUnderWay:
    """It is in the log already, so what is appended now comes behind it."""

    @staticmethod
    async def begin(world: World, *tps: TopicPartition) -> "asyncio.Task[dict[Any, ErrorCode]]":
        world.log.held = []
        task = asyncio.ensure_future(commit(world, -1, "", dict.fromkeys(tps, 77)))
        await asyncio.sleep(0.01)
        return task

    @staticmethod
    def finish(world: World) -> None:
        world.log.release()

    @staticmethod
    async def fetched(world: World) -> list[dict[TopicPartition, int]]:
        """The group's offsets here, and as the next coordinator finds them."""
        here = offsets_in(world)
        world.groups.on_resigned(0)
        world.groups = world.coordinator()
        await world.elect(epoch=1)
        return [here, offsets_in(world)]

    def test_an_old_offset_does_not_expire_on_top_of_it(self) -> None:
        async def story(world: World) -> None:
            other = TopicPartition("u", 0)
            await commit(world, -1, "", {T0: 1, other: 2})
            await asyncio.sleep(2)
            committing = await self.begin(world, T0)
            world.groups.offsets.expire()
            self.finish(world)
            assert await committing == {T0: ErrorCode.NONE}
            assert await self.fetched(world) == [{T0: 77}] * 2, "the other one has expired"

        World(offsets_retention_ms=1000).run(story)

    def test_a_group_is_not_empty_with_it(self) -> None:
        async def story(world: World) -> None:
            committing = await self.begin(world, T0)
            world.groups.offsets.expire()
            self.finish(world)
            assert await committing == {T0: ErrorCode.NONE}
            assert await self.fetched(world) == [{T0: 77}] * 2

        World().run(story)

    def test_a_commit_that_failed_keeps_no_group(self) -> None:
        async def story(world: World) -> None:
            world.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
            await commit(world, -1, "", {T0: 7})
            world.groups.offsets.expire()
            assert world.groups.storage.get("g") is None

        World().run(story)

    def test_offsets_are_deleted_with_it(self) -> None:
        async def story(world: World) -> None:
            other = TopicPartition("u", 0)
            committing = await self.begin(world, T0, other)
            deleting = asyncio.ensure_future(world.groups.offsets.delete_offsets("g", [T0]))
            await asyncio.sleep(0.01)
            self.finish(world)
            assert await committing == {T0: ErrorCode.NONE, other: ErrorCode.NONE}
            assert await deleting == (ErrorCode.NONE, {T0: ErrorCode.NONE})
            assert await self.fetched(world) == [{other: 77}] * 2

        World().run(story)

    def test_a_group_is_deleted_with_it_and_it_is_not_acknowledged(self) -> None:
        async def story(world: World) -> None:
            committing = await self.begin(world, T0)
            deleting = asyncio.ensure_future(world.groups.offsets.delete_group("g"))
            await asyncio.sleep(0.01)
            self.finish(world)
            assert await committing == {T0: ErrorCode.NOT_COORDINATOR}
            assert await deleting == ErrorCode.NONE
            assert await self.fetched(world) == [{}, {}]

        World().run(story)

    @pytest.mark.parametrize("known", [False, True], ids=["the first", "another"])
    def test_a_topic_is_deleted_with_it(self, known: bool) -> None:
        async def story(world: World) -> None:
            other = TopicPartition("u", 0)
            if known:
                await commit(world, -1, "", {T0: 1})
            committing = await self.begin(world, T0, other)
            world.groups.offsets.forget_topic_partitions([T0])
            self.finish(world)
            await committing
            assert await self.fetched(world) == [{other: 77}] * 2

        World().run(story)


def test_what_expires_and_what_does_not() -> None:
    group = Group("g", NOW)
    group.offsets[T0] = CommittedOffset(1, "", NOW)
    day = 24 * 3_600_000
    assert expired(group, NOW + day - 1, day) == []
    assert expired(group, NOW + day, day) == [T0], "a consumer that assigns itself"
    group.protocol_type = "consumer"
    group.state = GroupState.PREPARING_REBALANCE
    assert expired(group, NOW + 9 * day, day) == []
    group.offsets[T0] = CommittedOffset(1, "", NOW, expire_timestamp=NOW + 5)
    group.state = GroupState.EMPTY
    assert expired(group, NOW + 5, day) == [T0]
    group.offsets[T0] = CommittedOffset(1, "", NOW + day - 5)
    assert expired(group, NOW + day - 1, day) == []
    assert expired(group, NOW + day, day) == [T0], "counted from when the group became empty"


def test_a_record_that_cannot_be_decoded_is_skipped_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise one record of a careless administrator keeps all groups of its partition away."""
    bad = [(b"\x00", b"x"), (b"\x00\x01\x7f\xff", b""), (b"\x00\x02", b"\xff\xff")]

    async def story(world: World) -> None:
        assert (await commit(world, -1, "", {T0: 5}))[T0] is ErrorCode.NONE
        records = [Record(7 + index, NOW, key, value) for index, (key, value) in enumerate(bad)]
        world.log.batches.append(bytes(encode_batch(records, base_offset=7)))
        unreadable = encode_batch([Record(10, NOW, b"k", b"v")], base_offset=10)
        unreadable[-8:] = b"\x7f" * 8
        world.log.batches.append(bytes(unreadable))
        assert await commit(world, -1, "", {TopicPartition("t", 1): 6})
        world.groups = world.coordinator()
        await world.elect(epoch=1)
        assert offsets_in(world) == {T0: 5, TopicPartition("t", 1): 6}
        assert "__consumer_offsets-0: skipped" in caplog.text
        for offset in (7, 8, 9, 10):
            assert f"at offset {offset} " in caplog.text

    World().run(story)
