"""The life of groups, in virtual time: joins, rebalances, sessions, static members, failover."""

import asyncio
import uuid
from unittest import mock

import pytest
from tests.coordinator.world import T0, World, commit, offsets_in

from odradek.coordinator.group import (
    VALID_PREVIOUS,
    Group,
    GroupState,
    Member,
    new_member_id,
    subscribed_topics,
)
from odradek.coordinator.state_topic import partition_for
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.wire.messages.leave_group import MemberIdentity


def test_the_table_of_states() -> None:
    assert {s.value: {p.value for p in VALID_PREVIOUS[s]} for s in GroupState} == {
        "Empty": {"PreparingRebalance"},
        "PreparingRebalance": {"Empty", "Stable", "CompletingRebalance"},
        "CompletingRebalance": {"PreparingRebalance"},
        "Stable": {"CompletingRebalance"},
        "Dead": {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"},
    }


def test_an_illegal_transition_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        Group("g", 0).transition(GroupState.STABLE, 0)


def test_a_group_whose_hash_has_no_absolute_value_is_on_partition_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("abc", 50) == 96354 % 50


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("", ""),
        ("é" * 16_365, "é" * 16_365),  # 32,730 bytes, and the rest of the id: exactly one string
        ("x" * 32_767, "x" * 32_730),
        ("x" + "é" * 16_383, "x" + "é" * 16_364),  # cut between two characters
    ],
)
def test_a_member_id_fits_a_string_whatever_the_member_calls_itself(name: str, kept: str) -> None:
    unique = str(uuid.UUID(int=7))
    assert new_member_id(name, unique) == f"{kept}-{unique}"


def test_a_member_with_a_long_name_does_not_spoil_the_answers_of_others() -> None:
    async def story(world: World) -> None:
        first = world.join()
        long = world.join(group_instance_id="x" * 32_767)
        joined = await first
        assert len(joined.members) == 2
        joined.encode(5)
        parts = {member.member_id: b"work" for member in joined.members}
        assert (await world.sync(joined, **parts)).error_code == ErrorCode.NONE
        assert (await world.sync(await long)).error_code == ErrorCode.NONE

    World().run(story)


def test_the_first_join_waits_for_stragglers_and_extends_while_they_come() -> None:
    async def story(world: World) -> None:
        first = world.join()
        await asyncio.sleep(2)
        second = world.join()
        await asyncio.sleep(2)
        assert not first.done(), "the second came within the first three seconds"
        one, two = await first, await second
        assert world.loop.time() == pytest.approx(6, abs=0.01)
        assert one.generation_id == two.generation_id == 1
        assert one.leader == two.leader == one.member_id
        assert [m.member_id for m in one.members] == [one.member_id, two.member_id]
        assert two.members == []
        assert one.protocol_name == "range"

    World().run(story)


def test_a_stable_group_gives_each_its_part() -> None:
    async def story(world: World) -> None:
        joined = await world.stable(3)
        assert [world.beat(j) for j in joined] == [ErrorCode.NONE] * 3
        again = await world.sync(joined[1])
        assert again.assignment == b"work-1"

    World().run(story)


def test_a_member_without_an_id_is_given_one_and_removed_if_it_does_not_return() -> None:
    async def story(world: World) -> None:
        refused = await world.join(version=4)
        assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert refused.member_id.startswith("client-")
        assert world.group.pending_members == {refused.member_id}
        await asyncio.sleep(11)
        assert world.group.pending_members == set()
        unknown = await world.join(refused.member_id, version=4)
        assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        second = await world.join(version=4)
        accepted = await world.join(second.member_id, version=4)
        assert accepted.error_code == ErrorCode.NONE

    World().run(story)


def test_a_pending_member_holds_up_the_join_of_the_others() -> None:
    async def story(world: World) -> None:
        (joined,) = await world.stable()
        await world.join(version=4)
        leader = world.join(joined.member_id)
        await asyncio.sleep(5)
        assert not leader.done()
        assert (await leader).generation_id == 2
        assert world.loop.time() < 20, "the pending member's ten seconds, not the rebalance's 30"

    World().run(story)


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
def test_session_time_outs_have_limits(timeout_ms: int) -> None:
    async def story(world: World) -> None:
        answer = await world.join(session_ms=timeout_ms)
        assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT

    World().run(story)


def test_nothing_in_common_is_inconsistent() -> None:
    async def story(world: World) -> None:
        await world.stable()
        for joining in (
            world.join(protocol_type="connect"),
            world.join(protocols={"other": b""}),
            world.join(protocols={}),
        ):
            answer = await joining
            assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    World().run(story)


def test_the_protocol_is_the_majoritys_first_choice_among_the_common() -> None:
    group = Group("g", 0)
    for index, names in enumerate((["a", "b", "c"], ["b", "a"], ["x", "b", "a"])):
        group.add(Member(str(index), None, "", "", 0, 0, dict.fromkeys(names, b"")))
    assert group.choose_protocol() == "b"


def test_a_full_group_takes_no_more() -> None:
    async def story(world: World) -> None:
        await world.stable(2)
        answer = await world.join()
        assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED

    World(group_max_size=2).run(story)


def test_the_others_do_not_wait_for_who_found_no_room_nor_rebalance_for_it_later() -> None:
    async def story(world: World) -> None:
        joined = await world.stable(3)
        object.__setattr__(world.config, "group_max_size", 2)
        began = world.loop.time()
        rejoining = [world.join(j.member_id, protocols={"range": b"new"}) for j in joined]
        assert (await rejoining[2]).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        again = [await one for one in rejoining[:2]]
        assert world.loop.time() == began
        assert [(j.error_code, j.generation_id) for j in again] == [(ErrorCode.NONE, 2)] * 2
        syncing = [world.sync(j) for j in again]
        assert [(await s).error_code for s in syncing] == [ErrorCode.NONE] * 2
        for _ in range(20):
            await asyncio.sleep(1)
            assert [world.beat(j) for j in again] == [ErrorCode.NONE] * 2

    World().run(story)


def test_an_id_that_was_given_out_and_finds_no_room_is_not_waited_for() -> None:
    async def story(world: World) -> None:
        joined = await world.stable(2)
        pending = await world.join(version=4)
        object.__setattr__(world.config, "group_max_size", 2)
        rejoining = [world.join(j.member_id, protocols={"range": b"new"}) for j in joined]
        refused = await world.join(pending.member_id, version=4)
        assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        began = world.loop.time()
        assert [(await one).generation_id for one in rejoining] == [2, 2]
        assert world.loop.time() == began

    World().run(story)


def test_a_new_member_makes_the_others_rejoin() -> None:
    async def story(world: World) -> None:
        joined = await world.stable(2)
        third = world.join()
        assert world.group.state is GroupState.PREPARING_REBALANCE
        assert world.beat(joined[0]) == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await world.sync(joined[0])).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        rejoining = [world.join(j.member_id) for j in joined]
        assert {(await r).generation_id for r in [*rejoining, third]} == {2}
        assert world.beat(joined[0]) == ErrorCode.ILLEGAL_GENERATION

    World().run(story)


def test_who_does_not_rejoin_in_time_is_out() -> None:
    async def story(world: World) -> None:
        leader, follower = await world.stable(2, session_ms=60_000)
        began = world.loop.time()
        again = await world.join(follower.member_id, session_ms=60_000, protocols={"range": b"new"})
        assert world.loop.time() - began == pytest.approx(30, abs=0.01)
        assert again.leader == again.member_id == follower.member_id
        assert list(world.group.members) == [follower.member_id]
        assert world.beat(leader) == ErrorCode.UNKNOWN_MEMBER_ID

    World().run(story)


def test_a_silent_member_is_out_at_its_session_time_out() -> None:
    async def story(world: World) -> None:
        leader, follower = await world.stable(2)
        for _ in range(10):
            await asyncio.sleep(3)
            world.beat(leader)
            if world.group.state is not GroupState.STABLE:
                break
        assert list(world.group.members) == [leader.member_id]
        assert world.group.state is GroupState.PREPARING_REBALANCE
        assert follower.member_id not in world.group.members

    World().run(story)


def test_a_member_that_never_syncs_is_out_after_the_rebalance_time_out() -> None:
    async def story(world: World) -> None:
        one, two = world.join(session_ms=120_000), world.join(session_ms=120_000)
        joined = [await one, await two]
        leader = next(j for j in joined if j.leader == j.member_id)
        await world.sync(leader)
        await asyncio.sleep(31)
        assert list(world.group.members) == [leader.member_id]

    World().run(story)


def test_a_follower_that_rejoins_unchanged_gets_the_generation_without_a_rebalance() -> None:
    async def story(world: World) -> None:
        leader, follower = await world.stable(2)
        again = await world.join(follower.member_id)
        assert (again.generation_id, again.leader) == (1, leader.member_id)
        assert world.group.state is GroupState.STABLE

    World().run(story)


def test_a_leader_that_rejoins_asks_for_a_rebalance() -> None:
    async def story(world: World) -> None:
        (leader,) = await world.stable()
        assert (await world.join(leader.member_id)).generation_id == 2

    World().run(story)


def test_leaving_empties_the_group_and_generations_go_on() -> None:
    async def story(world: World) -> None:
        (leader,) = await world.stable()
        error, answers = world.groups.leave("g", [MemberIdentity(member_id=leader.member_id)])
        assert (error, answers[0].error_code) == (ErrorCode.NONE, ErrorCode.NONE)
        assert world.group.state is GroupState.EMPTY
        assert world.group.generation == 2
        _, answers = world.groups.leave("g", [MemberIdentity(member_id="nobody")])
        assert answers[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID

    World().run(story)


def test_a_static_member_takes_over_its_place_without_a_rebalance() -> None:
    async def story(world: World) -> None:
        (first,) = await world.stable(group_instance_id="i")
        second = await world.join(group_instance_id="i", version=5)
        assert second.generation_id == 1
        assert second.member_id != first.member_id
        assert second.leader == first.member_id, "an old client must not divide the work again"
        assert (await world.sync(second)).assignment == b"work-0"
        assert world.beat(first, "i") == ErrorCode.FENCED_INSTANCE_ID
        assert world.beat(second, "i") == ErrorCode.NONE
        third = await world.join(group_instance_id="i", version=9)
        assert third.skip_assignment
        assert third.leader == third.member_id

    World().run(story)


def test_a_takeover_that_cannot_be_stored_is_reverted() -> None:
    async def story(world: World) -> None:
        (first,) = await world.stable(group_instance_id="i", session_ms=9000)
        world.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
        twin = await world.join(
            group_instance_id="i", version=9, session_ms=20_000, protocols={"range": b"other"}
        )
        assert twin.error_code and twin.member_id == ""
        assert world.beat(first, "i") == ErrorCode.NONE
        (member,) = world.group.members.values()
        assert world.group.is_leader(first.member_id) and member.id == first.member_id
        assert member.metadata("range") == b"" and member.session_timeout_ms == 9000
        assert world.group.state is GroupState.STABLE
        second = await world.join(group_instance_id="i", version=9)
        assert second.error_code == ErrorCode.NONE
        assert world.beat(first, "i") == ErrorCode.FENCED_INSTANCE_ID

    World().run(story)


def test_the_generation_goes_round_as_kafkas_does() -> None:
    async def story(world: World) -> None:
        (first,) = await world.stable()
        world.group.generation = 2**31 - 1
        joined = await world.join(member=first.member_id, protocols={"range": b"changed"})
        assert joined.generation_id == -(2**31)
        assert joined.encode(5)
        assert (await world.sync(joined)).error_code == ErrorCode.NONE
        assert world.beat(joined) == ErrorCode.NONE

    World().run(story)


def test_an_id_that_was_given_out_is_no_static_members() -> None:
    """And whoever says so holds nobody up for longer than who stays away."""

    async def story(world: World) -> None:
        (fixed,) = await world.stable(group_instance_id="i", session_ms=120_000)
        pending = await world.join(version=5)
        for instance in ("i", "j"):
            answer = await world.join(pending.member_id, version=5, group_instance_id=instance)
            assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert list(world.group.instances) == ["i"]
        assert world.group.pending_members == {pending.member_id}
        await asyncio.sleep(11)
        assert world.group.pending_members == set()
        began = world.loop.time()
        again = await world.join(fixed.member_id, group_instance_id="i", session_ms=120_000)
        assert (again.generation_id, world.loop.time()) == (2, began)

    World().run(story)


def test_a_static_member_is_kept_through_a_rebalance_and_removed_by_name() -> None:
    async def story(world: World) -> None:
        (fixed,) = await world.stable(group_instance_id="i", session_ms=120_000)
        newcomer = await world.join(session_ms=120_000)
        assert {m.instance_id for m in world.group.members.values()} == {"i", None}
        assert newcomer.leader == newcomer.member_id
        _, answers = world.groups.leave("g", [MemberIdentity(group_instance_id="i")])
        assert answers[0].error_code == ErrorCode.NONE
        assert fixed.member_id not in world.group.members

    World().run(story)


def test_a_static_member_that_gives_no_time_is_not_waited_for_without_pause() -> None:
    async def story(world: World) -> None:
        await world.stable(group_instance_id="i", session_ms=120_000)
        await world.join(group_instance_id="i", session_ms=120_000, rebalance_ms=0)
        world.join(rebalance_ms=50)
        (newcomer,) = (m.id for m in world.group.members.values() if m.instance_id is None)
        world.groups.leave("g", [MemberIdentity(member_id=newcomer)])
        rebalances = world.groups._rebalances
        with mock.patch.object(
            rebalances, "_complete_join", side_effect=rebalances._complete_join
        ) as attempts:
            await asyncio.sleep(10)
        assert world.group.state is GroupState.PREPARING_REBALANCE
        assert 5 < attempts.call_count < 15

    World().run(story)


def test_a_division_that_cannot_be_stored_starts_over() -> None:
    async def story(world: World) -> None:
        joined = await world.join()
        world.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
        answer = await world.sync(joined)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.group.state is GroupState.PREPARING_REBALANCE

    World().run(story)


def test_a_coordinator_that_resigns_sends_its_members_to_the_next() -> None:
    async def story(world: World) -> None:
        (leader,) = await world.stable()
        joining = world.join()
        world.groups.on_resigned(0)
        assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
        assert world.beat(leader) == ErrorCode.NOT_COORDINATOR
        assert (await world.join()).error_code == ErrorCode.NOT_COORDINATOR
        await asyncio.sleep(100)

    World().run(story)


def test_the_next_coordinator_reads_the_group_back_and_members_go_on() -> None:
    async def story(world: World) -> None:
        joined = await world.stable(2, group_instance_id=None)
        errors = await commit(world, joined[0].generation_id, joined[0].member_id, {T0: 42})
        assert errors == {T0: ErrorCode.NONE}
        world.groups.on_resigned(0)
        world.groups = world.coordinator()
        await world.elect(epoch=1)
        assert world.group.state is GroupState.STABLE
        assert [world.beat(j) for j in joined] == [ErrorCode.NONE] * 2
        assert (await world.sync(joined[1])).assignment == b"work-1"
        assert offsets_in(world) == {T0: 42}
        await asyncio.sleep(11)
        assert world.group.members == {}, "nobody beat: the loaded sessions end like any other"

    World().run(story)


def test_subscriptions_in_any_version_and_in_none() -> None:
    metadata = ConsumerProtocolSubscription(topics=["a", "b"], rack_id="r")
    for version in range(4):
        assert subscribed_topics(version.to_bytes(2, "big") + metadata.encode(version)) == {
            "a",
            "b",
        }
    assert subscribed_topics(b"") is None
    assert subscribed_topics(b"\0\0\xff\xff") is None
