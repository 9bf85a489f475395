"""Offsets by time and by epoch, and deleting records.

docs/spec/controller-and-replication.md sections 5.2, 5.5 and 5.6.
"""

from typing import Any

import pytest
from tests.replica.conftest import Node, Simulation, World

from odradek.log.config import LogConfig
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
LATEST, EARLIEST, GREATEST, EARLIEST_LOCAL = -1, -2, -3, -4
UNCOMMITTED, COMMITTED, REPLICA = 0, 1, None


def listed(node: Node, timestamp: int, isolation: int | None = UNCOMMITTED, epoch: int = -1) -> Any:
    return node.partition().offset_for_timestamp(timestamp, isolation, epoch, leader_only=True)


def refused(call: Any, *arguments: Any, **options: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **options)
    return caught.value.error


class TestListOffsets:
    def test_ends_of_the_log(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (leader,) = await world.start(1)
            await world.elect(1, [1, 2], [1, 2])
            leader.append(b"a")
            leader.append(b"b")
            assert listed(leader, LATEST) == (-1, 0, 0)
            assert listed(leader, LATEST, COMMITTED) == (-1, 0, 0)
            assert listed(leader, LATEST, REPLICA) == (-1, 2, 0)
            for start in (EARLIEST, EARLIEST_LOCAL):
                assert listed(leader, start) == (-1, 0, 0)

        simulate(story)

    def test_by_time_and_the_greatest_time_among_what_may_be_read(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            (leader,) = await world.start(1)
            await world.elect(1, [1], [1])
            for timestamp in (1000, 3000, 2000):
                batch = world.batch(b"x", timestamp=timestamp)
                leader.serve_append(1, 0, {T0: batch})
            assert listed(leader, 1500) == (3000, 1, 0)
            assert listed(leader, 3001) is None
            assert listed(leader, GREATEST) == (3000, 1, 0)
            leader.log().set_high_watermark(1)
            assert listed(leader, 1500) is None
            assert listed(leader, 1000) == (1000, 0, 0)

        simulate(story)

    def test_a_new_leader_cannot_say_yet_where_the_committed_log_ends(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            (leader,) = await world.start(1)
            await world.elect(1, [1, 2], [1, 2])
            leader.append(b"a")
            await world.elect(1, [1, 2])
            assert refused(listed, leader, LATEST) == ErrorCode.OFFSET_NOT_AVAILABLE
            assert refused(listed, leader, 10**15) == ErrorCode.OFFSET_NOT_AVAILABLE
            assert listed(leader, LATEST, REPLICA) == (-1, 1, 1)
            assert listed(leader, EARLIEST) == (-1, 0, 0)
            await world.elect(1, [1])
            assert listed(leader, LATEST) == (-1, 1, 2)

        simulate(story)

    def test_who_is_asked_must_lead_unless_it_is_a_tool(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader, follower = await world.start(1, 2)
            await world.elect(1, [1, 2], [1, 2])
            await leader.produce(b"a")
            assert refused(listed, follower, LATEST) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            found = follower.partition().offset_for_timestamp(LATEST, None, -1, leader_only=False)
            assert found == (-1, 1, 0)
            assert refused(listed, leader, LATEST, epoch=1) == ErrorCode.UNKNOWN_LEADER_EPOCH
            await world.elect(1, [1, 2])
            assert refused(listed, leader, LATEST, epoch=0) == ErrorCode.FENCED_LEADER_EPOCH

        simulate(story)


class TestOffsetForLeaderEpoch:
    def test_where_an_epoch_ended(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (leader,) = await world.start(1)
            await world.elect(1, [1], [1, 2])
            leader.append(b"a", b"b")
            await world.elect(1, [1])
            leader.append(b"c")
            ask = leader.partition().end_offset_for_epoch
            assert ask(1, 0) == (0, 2)
            assert ask(1, 1) == (1, 3)
            assert ask(1, 2) == (-1, -1)
            assert ask(-1, 0) == (0, 2)
            assert refused(ask, 0, 0) == ErrorCode.FENCED_LEADER_EPOCH
            assert refused(ask, 2, 0) == ErrorCode.UNKNOWN_LEADER_EPOCH

        simulate(story)


class TestDeleteRecords:
    @pytest.mark.parametrize(("before", "start"), [(2, 2), (-1, 3), (0, 0), (3, 3)])
    def test_up_to_the_high_watermark(self, simulate: Simulation, before: int, start: int) -> None:
        async def story(world: World) -> None:
            (leader,) = await world.start(1)
            await world.elect(1, [1], [1])
            leader.append(b"a", b"b", b"c")
            assert leader.role().delete_records(before) == start
            assert leader.log().start_offset == leader.role().low_watermark == start

        simulate(story)

    @pytest.mark.parametrize("before", [4, -2])
    def test_not_beyond_it(self, simulate: Simulation, before: int) -> None:
        async def story(world: World) -> None:
            (leader,) = await world.start(1)
            await world.elect(1, [1], [1])
            leader.append(b"a", b"b", b"c")
            delete = leader.role().delete_records
            assert refused(delete, before) == ErrorCode.OFFSET_OUT_OF_RANGE

        simulate(story)

    def test_not_from_a_compacted_log_and_not_at_a_follower(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader, follower = await world.start(1, 2)
            await world.elect(1, [1, 2], [1, 2])
            found = refused(lambda: follower.partition().leader)
            assert found == ErrorCode.NOT_LEADER_OR_FOLLOWER
            leader.log().config = LogConfig(cleanup_policy=frozenset({"compact"}))
            assert refused(leader.role().delete_records, 0) == ErrorCode.POLICY_VIOLATION

        simulate(story)

    def test_a_dead_replica_does_not_hold_the_low_watermark(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader, _ = await world.start(1, 2)
            await world.elect(1, [1, 2], [1, 2, 3])
            for _ in range(3):
                await leader.produce(b"x")
            leader.role().delete_records(2)
            await world.until(lambda: leader.role().low_watermark == 2, 1.0)

        simulate(story)

    @pytest.mark.parametrize("stopped", [True, False])
    def test_losing_the_leadership_ends_the_wait(self, simulate: Simulation, stopped: bool) -> None:
        async def story(world: World) -> None:
            leader, _ = await world.start(1, 2)
            await world.elect(1, [1, 2], [1, 2])
            partition = leader.partition()
            led: list[bool] = []
            partition.role.watch_low_watermark(lambda: led.append(partition.is_leader))
            if stopped:
                world.stop(leader)
            else:
                await world.elect(2, [1, 2])
            assert led == [False]

        simulate(story)
