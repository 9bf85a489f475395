"""Followers follow: data, high watermark, leader changes, divergence, restarts."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.replica.conftest import CONFIG, Node, Port, Simulation, World, batch

from odradek.log.log import UnexpectedOffset
from odradek.replica.follower.append import append_copied
from odradek.replica.follower.role import FollowerRole
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.wire.messages.offset_for_leader_epoch import EpochEndOffset as EndOffset
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from odradek.wire.messages.update_metadata import UpdateMetadataBroker, UpdateMetadataEndpoint
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
CONFIG_WAIT_S = CONFIG.replica_fetch_wait_max_ms / 1000


@pytest.fixture(params=[ProtocolVersion.V2_6_IV0, ProtocolVersion.V2_7_IV1], ids=str)
def simulate(simulate: Simulation, request: pytest.FixtureRequest) -> Simulation:
    """Every story with both ways to truncate: asking first, and by fetching."""
    simulate.protocol = request.param
    return simulate


def has_high_watermark(node: Node, offset: int) -> bool:
    return bool(node.log().high_watermark == offset)


def are_equal(nodes: Sequence[Node], of: TopicPartition) -> bool:
    return len({node.contents(of) for node in nodes}) == 1


def test_three_replicas_hold_the_same_bytes_and_acks_all_waits_for_them(
    simulate: Simulation,
) -> None:
    async def story(world: World) -> None:
        leader, second, third = await world.start(1, 2, 3)
        assert await world.elect(1, [1, 2, 3], [1, 2, 3]) == dict.fromkeys(
            (1, 2, 3), ErrorCode.NONE
        )
        for number in range(20):
            result = await leader.produce(b"record %d" % number)
            assert (result.error, result.base_offset) == (ErrorCode.NONE, number)
            assert leader.log().high_watermark == number + 1
        for follower in (second, third):
            await world.until(partial(has_high_watermark, follower, 20))
            assert follower.contents() == leader.contents() != b""

    simulate(story)


async def test_the_same_over_real_sockets(reality: Any) -> None:
    async with reality() as world:
        leader, second, third = await world.start(1, 2, 3)
        await world.elect(1, [1, 2, 3], [1, 2, 3])
        for number in range(20):
            result = await leader.produce(b"record %d" % number)
            assert (result.error, result.base_offset) == (ErrorCode.NONE, number)
        for follower in (second, third):
            await world.until(partial(has_high_watermark, follower, 20))
            assert follower.contents() == leader.contents() != b""


def test_a_new_leader_continues_where_the_old_one_ended(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        first, second, third = await world.start(1, 2, 3)
        await world.elect(1, [1, 2, 3], [1, 2, 3])
        await first.produce(b"a")
        await world.elect(2, [1, 2, 3])
        assert first.append(b"x")[T0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        result = await second.produce(b"b")
        assert (result.error, result.base_offset) == (ErrorCode.NONE, 1)
        await world.until(lambda: first.log().high_watermark == third.log().high_watermark == 2)
        assert first.contents() == second.contents() == third.contents()
        assert second.log().epochs.entries == [(0, 0), (1, 1)]
        assert third.log().epochs.entries == [(0, 0), (1, 1)]

    simulate(story)


def test_records_that_only_a_deposed_leader_has_are_truncated(simulate: Simulation) -> None:
    """The divergence of KIP-101: both logs have an offset 1, of different epochs."""

    async def story(world: World) -> None:
        first, second = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await first.produce(b"both")
        await world.until(lambda: second.log().high_watermark == 1)
        second.replicas.fetchers.remove([T0])
        first.append(b"only here", b"and here")
        await world.elect(2, [2], without=[1])
        second.append(b"the truth")
        await world.elect(2, [2])
        await world.until(lambda: first.contents() == second.contents())
        assert first.log().end_offset == 2
        assert first.log().epochs.entries == [(0, 0), (1, 1)]
        asked = any(isinstance(each, OffsetForLeaderEpochRequest) for each in second.requests)
        assert asked is not world.config.protocol.truncates_on_fetch

    simulate(story)


def test_logs_that_diverged_more_than_once_are_truncated_in_several_steps(
    simulate: Simulation,
) -> None:
    """KIP-279: the leader's answer names an epoch that the follower does not have."""

    async def story(world: World) -> None:
        first, second = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await first.produce(b"both")
        await world.until(lambda: second.log().high_watermark == 1)
        # Epochs 1 and 3 exist only at broker 2, epochs 2 and 4 only at broker 1.
        await world.elect(2, [2], without=[1])
        second.append(b"epoch 1")
        await world.elect(1, [1], without=[2])
        first.append(b"epoch 2")
        await world.elect(2, [2], without=[1])
        second.append(b"epoch 3")
        await world.elect(1, [1], without=[2])
        first.append(b"epoch 4")
        await world.elect(1, [1])
        await world.until(lambda: first.contents() == second.contents())
        assert second.log().epochs.entries == [(0, 0), (2, 1), (4, 2)]

    simulate(story)


def test_a_follower_that_was_away_catches_up(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await leader.produce(b"before")
        await follower.stop()
        await world.elect(1, [1], without=[2])
        for number in range(50):
            leader.append(b"%d" % number * 1000)
        await world.restart(2)
        await world.elect(1, [1])
        await world.until(lambda: follower.log().end_offset == 51)
        assert follower.contents() == leader.contents()

    simulate(story)


def test_a_follower_behind_the_leaders_start_begins_there(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await leader.produce(b"gone soon")
        await world.until(lambda: follower.log().high_watermark == 1)
        await follower.stop()
        await world.elect(1, [1], without=[2])
        for number in range(10):
            leader.append(b"%d" % number)
        leader.log().roll()
        leader.log().advance_start_offset(11)
        leader.append(b"kept")
        await world.restart(2)
        await world.elect(1, [1])
        await world.until(lambda: follower.log().end_offset == 12)
        assert follower.log().start_offset == 11
        assert follower.contents() == leader.contents()

    simulate(story)


@pytest.mark.parametrize("clean", [True, False])
def test_a_new_follower_begins_with_the_batch_in_which_the_leaders_log_starts(
    simulate: Simulation, clean: bool
) -> None:
    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        await world.elect(1, [1], [1])
        leader.append(b"gone", b"a", b"b")
        leader.append(b"c")
        leader.role().delete_records(1)
        await world.elect(1, [1], [1, 2], is_new=True)
        await world.until_stored({1, 2})
        log = follower.log()
        assert (log.start_offset, log.end_offset) == (1, 4)
        assert [segment.base_offset for segment in log.segments] == [0]
        assert follower.contents() == leader.contents()
        follower.logs.checkpoints.write_start_offsets()
        await follower.stop(clean=clean)
        await world.restart(2)
        await world.elect(2, [1, 2])
        await follower.produce(b"d")
        log = follower.log()
        assert (log.start_offset, log.high_watermark, log.end_offset) == (1, 5, 5)
        assert follower.contents() == leader.contents()

    simulate(story)


def test_a_follower_that_has_records_is_not_begun_again(simulate: Simulation) -> None:
    """Only an empty log may wait at a start that is within a batch."""

    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await leader.produce(b"a")
        await world.until(lambda: follower.log().high_watermark == 1)
        log = follower.log()
        for records in (world.batch(b"x", b"y"), world.batch(b"x")):
            with pytest.raises(UnexpectedOffset):
                append_copied(log, records)
        log.truncate_fully_and_start_at(1)
        with pytest.raises(UnexpectedOffset):
            append_copied(log, world.batch(b"x"))  # which ends before the start
        assert (log.start_offset, log.end_offset) == (1, 1)

    simulate(story)


def test_the_leaders_log_start_reaches_the_followers(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        for number in range(5):
            await leader.produce(b"%d" % number)
        partition = leader.partition()
        seen = []
        role = partition.role
        role.watch_low_watermark(lambda: seen.append(role.low_watermark))
        assert partition.role.delete_records(3) == 3
        assert partition.role.low_watermark == 0
        await world.until(lambda: partition.role.low_watermark == 3, 1.0)
        assert seen[-1] == 3
        assert follower.log().start_offset == 3

    simulate(story)


def test_what_the_controller_says_while_the_leader_is_asked_about_another_partition_counts(
    simulate: Simulation,
) -> None:
    idle, other = TopicPartition("t", 1), TopicPartition("t", 2)

    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2], of=idle)
        await world.until(lambda: follower.replicas.fetchers.statistics()["not_fetching"] == 0)
        await world.elect(1, [1], [1])
        leader.append(b"gone")
        leader.role().delete_records(1)
        await world.elect(1, [1], [1], of=other)
        leader.append(b"x", of=other)
        offsets, asked = leader.offsets, []

        def slow_offsets(request: Any) -> Any:
            answer = offsets(request)
            held = asyncio.get_running_loop().create_future()
            asked.append((held, answer))
            if len(asked) == 1:  # which lets the partition rest, while the idle one is fetched
                answer.topics[0].partitions[0].error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
            if len(asked) != 2:
                held.set_result(answer)
            return held

        leader.offsets = slow_offsets  # type: ignore[method-assign]
        await world.elect(1, [1], [1, 2], is_new=True)
        await world.until(lambda: len(asked) == 1)
        await asyncio.sleep(0.1)
        await world.elect(1, [1], [1, 2], of=other, is_new=True)
        await world.until(lambda: len(asked) == 2)
        await world.elect(1, [1], of=other)
        held, answer = asked[1]
        held.set_result(answer)
        await world.until(lambda: follower.log(other).end_offset == 1)
        await world.until_stored({1, 2})

    simulate(story)


def test_a_follower_waits_until_it_learns_where_its_leader_is(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2], without=[2])
        leader.append(b"a")
        response = await follower.replicas.control_requests.leader_and_isr(
            world.request(T0, is_new=True)
        )
        assert [error.error_code for error in response.partition_errors] == [ErrorCode.NONE]
        assert follower.log().end_offset == 0
        assert T0 not in follower.replicas.fetchers
        world.update_metadata(to=2)
        assert T0 in follower.replicas.fetchers
        await world.until(lambda: follower.contents() == leader.contents())

    simulate(story)


def test_a_partition_that_is_added_does_not_wait_for_the_long_poll(simulate: Simulation) -> None:
    """A follower whose fetch waits at the leader hears of another partition: it asks at once."""

    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await leader.produce(b"a")
        await world.until(lambda: follower.log().high_watermark == 1)
        other = TopicPartition("t", 1)
        before = leader.replicas.now()
        await world.elect(1, [1, 2], [1, 2], of=other)
        result = await leader.produce(b"b", of=other)
        assert result.error == ErrorCode.NONE
        assert leader.replicas.now() - before < 0.1 < CONFIG_WAIT_S

    simulate(story)


def test_an_append_is_at_the_follower_without_waiting(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, _ = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await leader.produce(b"warm")
        before = leader.replicas.now()
        for _ in range(100):
            await leader.produce(b"x")
        assert leader.replicas.now() - before < 100 * 0.005

    simulate(story)


def test_idle_followers_ask_twice_a_second_and_name_nothing(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, _ = await world.start(1, 2)
        for index in range(20):
            await world.elect(1, [1, 2], [1, 2], of=TopicPartition("t", index))
        await asyncio.sleep(5)
        leader.requests.clear()
        await asyncio.sleep(10)
        assert 15 <= len(leader.requests) <= 25
        assert not any(request.topics for request in leader.requests)

    simulate(story)


def test_a_connection_that_breaks_is_made_again(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        for number in range(10):
            await leader.produce(b"%d" % number)
            for port in list(leader.ports):
                port.close()
        await world.until(lambda: follower.contents() == leader.contents())

    simulate(story)


def test_a_session_the_leader_forgot_is_opened_again(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await leader.produce(b"a")
        leader.sessions._sessions.clear()
        result = await leader.produce(b"b")
        assert result.error == ErrorCode.NONE
        await world.until(lambda: follower.contents() == leader.contents())

    simulate(story)


def test_many_partitions_over_several_fetchers(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        nodes = await world.start(1, 2, 3)
        partitions = [TopicPartition("many", index) for index in range(30)]
        for of in partitions:
            order = [1 + (of.partition + shift) % 3 for shift in range(3)]
            await world.elect(order[0], order, order, of=of)
        for of in partitions:
            leader = nodes[of.partition % 3]
            assert (await leader.produce(b"x" * 100, of=of)).error == ErrorCode.NONE
        for of in partitions:
            await world.until(partial(are_equal, nodes, of))
        assert nodes[0].replicas.fetchers.statistics()["fetchers"] == 2 * 2

    simulate(story, config=replace(CONFIG, num_replica_fetchers=2))


def test_partitions_that_come_one_after_the_other_do_not_wait_for_each_other(
    simulate: Simulation,
) -> None:
    """The fetch that opens the session must not be parked: nothing could follow it."""

    async def story(world: World) -> None:
        leader, _ = await world.start(1, 2)
        begun = leader.replicas.now()
        for index in range(3):
            of = TopicPartition("t", index)
            await world.elect(1, [1, 2], [1, 2], of=of)
            await asyncio.sleep(0.003)
        for index in range(3):
            assert (await leader.produce(b"x", of=TopicPartition("t", index))).error == 0
        assert leader.replicas.now() - begun < 0.1

    simulate(story)


def test_a_fetcher_survives_what_it_did_not_expect(
    simulate: Simulation, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await leader.produce(b"a")

        def stumble(role: FollowerRole, mark: int) -> None:
            monkeypatch.undo()
            raise ZeroDivisionError

        monkeypatch.setattr(FollowerRole, "advance_high_watermark", stumble)
        began = asyncio.get_running_loop().time()
        assert (await leader.produce(b"b")).error == ErrorCode.NONE
        await world.until(lambda: follower.contents() == leader.contents())
        # It is acknowledged because the follower has it, not because it has left the ISR.
        assert asyncio.get_running_loop().time() - began < 2

    simulate(story)
    assert "ZeroDivisionError" in caplog.text


class LeaderSocket:
    """A leader in the hand of the test: every fetch gets the next answer."""

    def __init__(self, world: World, *answers: PartitionData) -> None:
        self.world = world
        self.answers = list(answers)
        self.ports: set[Port] = set()
        self.requests: list[Any] = []
        self.versions: list[tuple[int, int]] = []

    async def lead(self, leader_epoch: int = 5) -> None:
        """Broker 1, which is this one, leads; broker 2 is to follow."""
        loop, world = asyncio.get_running_loop(), self.world
        server = await loop.create_server(lambda: Port(self), "127.0.0.1", 0)
        port, live = server.sockets[0].getsockname()[1], world.live
        endpoint = UpdateMetadataEndpoint(
            host="127.0.0.1", port=port, listener="PLAINTEXT", security_protocol=0
        )
        itself = UpdateMetadataBroker(id=1, endpoints=[endpoint])
        world.live = lambda *without: [*live(*without), itself]  # type: ignore[method-assign]
        for _ in range(leader_epoch - world.states[T0].leader_epoch):
            await world.elect(1, [1])

    def serve(self, request: Any, version: int) -> Any:
        if isinstance(request, FetchRequest) and request.topics and self.answers:
            data = self.answers.pop(0)
            topic = FetchableTopicResponse(topic="t", partitions=[data])
            return FetchResponse(responses=[topic])
        if isinstance(request, OffsetForLeaderEpochRequest):
            found = OffsetForLeaderTopicResult(topic="t", partitions=[EndOffset()])
            return OffsetForLeaderEpochResponse(topics=[found])
        return asyncio.get_running_loop().create_future()

    def positions(self) -> list[tuple[int, int]]:
        return [
            (each.fetch_offset, each.last_fetched_epoch)
            for request in self.requests
            if isinstance(request, FetchRequest)
            for topic in request.topics
            for each in topic.partitions
        ]


def test_a_divergent_answer_says_nothing_else(simulate: Simulation) -> None:
    """Neither records nor marks of it are taken; what is left is fetched on."""

    async def story(world: World) -> None:
        (follower,) = await world.start(2)
        await world.elect(2, [2, 3], [1, 2, 3])
        for value in (b"a", b"b", b"c"):
            follower.append(value)

        def diverging(end: int) -> PartitionData:
            return PartitionData(
                diverging_epoch=EpochEndOffset(epoch=0, end_offset=end),
                high_watermark=1,
                log_start_offset=1,
                records=bytes(numbered(3, 5)),
            )

        leader = LeaderSocket(world, diverging(2), diverging(1))
        await leader.lead()
        await world.until(lambda: len(leader.positions()) == 3)
        assert leader.positions() == [(3, 0), (2, 0), (1, 0)]
        log = follower.log()
        assert (log.start_offset, log.high_watermark, log.end_offset) == (0, 0, 1)

    if simulate.protocol is ProtocolVersion.V2_7_IV1:
        simulate(story)


def test_batches_above_the_fetchs_leader_epoch_are_not_appended(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        (follower,) = await world.start(2)
        await world.elect(2, [2], [1, 2])
        records = b"".join(
            bytes(numbered(offset, epoch)) for offset, epoch in ((0, 4), (1, 6), (2, 6))
        )
        leader = LeaderSocket(
            world,
            PartitionData(high_watermark=3, log_start_offset=0, records=records),
            *[PartitionData(high_watermark=3, records=bytes(numbered(1, 6)))] * 9,
        )
        await leader.lead()
        await world.until(lambda: len(leader.positions()) >= 3)
        assert follower.log().end_offset == 1
        assert follower.log().epochs.entries == [(4, 0)]
        assert follower.replicas.statistics()["fetcher_errors"] > 0, "it backs off"

    simulate(story)


def numbered(offset: int, epoch: int) -> bytearray:
    made = batch(b"x")
    made[:8] = offset.to_bytes(8, "big")
    made[12:16] = epoch.to_bytes(4, "big")
    return made


def test_a_follower_whose_epoch_the_leader_does_not_know_backs_off_and_says_so(
    simulate: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    """The epoch of a batch is outside its checksum. It asked again at once, without end."""
    caplog.set_level("INFO")
    if simulate.protocol is ProtocolVersion.V2_6_IV0:
        return  # it fetches without an epoch

    async def story(world: World) -> None:
        first, second = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await first.produce(b"record")
        await world.until(lambda: second.log().high_watermark == 1)
        second.log().epochs.assign(35, 1)
        await world.elect(1, [1, 2])
        said = "the leader has offsets 0 to 1, and refuses 1 after leader epoch 35"
        await world.until(lambda: caplog.text.count(said) >= 3)
        assert "backing off for 0.04 s: " + said in caplog.text
        # It follows as soon as that is no longer so.
        second.log().epochs.truncate_from_end(1)
        await first.produce(b"another")
        await world.until(lambda: first.contents() == second.contents())

    simulate(story)
