"""Topic ids in LeaderAndIsr: learned, forgotten, refused, and when a log of another id goes.

docs/spec/protocol-ladder.md sections 2.2, 2.4 and 2.5.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.replica.conftest import CONFIG, Node, Simulation, World
from tests.replica.test_stale_logs import delete_topic, strays, values

from odradek.replica.follower.fetch_session import FollowerSession, Position
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.fetch import FetchRequest, FetchResponse
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.topic_ids import NO_TOPIC_ID, format_topic_id
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
FIRST, SECOND = UUID(int=0x1234567890), UUID(int=0x2234567890)
AT_3_9 = replace(CONFIG, protocol=ProtocolVersion.V3_9_IV0)
AT_2_6 = replace(CONFIG, protocol=ProtocolVersion.V2_6_IV0)


def file_of(node: Node) -> Path:
    return Path(node.log().directory) / "partition.metadata"


async def again(world: World, node: Node) -> ErrorCode:
    """The present state once more: what a new controller sends to every replica."""
    request = world.request(T0, broker_epoch=node.epoch)
    response = await node.replicas.control_requests.leader_and_isr(request)
    return ErrorCode(response.partition_errors[0].error_code)


def test_an_upgraded_controller_brings_ids_at_the_unchanged_epoch(simulate: Simulation) -> None:
    """Acceptance 7: NONE, and the file is written; without an id a follower goes by name again."""

    async def story(world: World) -> None:
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


def test_another_id_is_refused_at_any_epoch_and_nothing_changes(simulate: Simulation) -> None:
    """Acceptance 8."""

    async def story(world: World) -> None:
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
    simulate: Simulation, in_isr: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Acceptance 11 and 12: out of the ISR the old log is set aside; in it, it may be the id that
    was lost, so it stays and the state is refused."""

    async def story(world: World) -> None:
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
        await world.until(lambda: away.log().end_offset == 1)
        (stray,) = strays(away)
        assert b"old 0" in (stray / f"{0:020}.log").read_bytes()
        assert format_topic_id(FIRST) in (stray / "partition.metadata").read_text()
        assert values(world, away) == [b"new 0"]
        assert away.log().metadata.topic_id == SECOND

    simulate(story, config=AT_3_9)


def test_an_id_that_was_lost_and_made_again_sets_no_log_aside(simulate: Simulation) -> None:
    """Acceptance 12, on all replicas at once, after they restarted."""

    async def story(world: World) -> None:
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
    simulate: Simulation,
) -> None:
    async def story(world: World) -> None:
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


def test_below_2_8_ids_are_passed_over(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        world.topic_ids["t"] = FIRST
        await world.elect(1, [1, 2], [1, 2])
        world.topic_ids["t"] = SECOND
        assert await world.elect(1, [1, 2]) == dict.fromkeys((1, 2), ErrorCode.NONE)
        assert await again(world, follower) is ErrorCode.STALE_CONTROLLER_EPOCH
        assert follower.role().topic_id == NO_TOPIC_ID
        assert leader.log().metadata.topic_id == NO_TOPIC_ID

    simulate(story, config=AT_2_6)


def fetches(node: Node) -> list[int]:
    """The versions of the fetches that a leader got since this was last asked."""
    found = [version for key, version in node.versions if key == ApiKey.FETCH]
    node.versions.clear()
    return found


def test_a_follower_fetches_by_id_where_every_partition_has_one(simulate: Simulation) -> None:
    """Acceptance 7 and 13: after each change of the kind it goes on without a refusal."""

    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        world.topic_ids["t"] = FIRST
        await world.elect(1, [1, 2], [1, 2])
        await leader.produce(b"by id")
        assert set(fetches(leader)) == {17}
        request = leader.requests[-1]
        assert request.replica_id == -1
        assert request.replica_state.replica_id == 2
        assert request.replica_state.replica_epoch == follower.epoch
        # One partition without an id: all of the fetcher's go by name.
        other = TopicPartition("u", 0)
        await world.elect(1, [1, 2], [1, 2], of=other)
        await leader.produce(b"by name", of=other)
        await leader.produce(b"by name")
        assert fetches(leader)[-1] == 12
        world.topic_ids["u"] = SECOND
        for node in (leader, follower):
            request = world.request(other, broker_epoch=node.epoch)
            await node.replicas.control_requests.leader_and_isr(request)
        world.update_metadata()
        await leader.produce(b"by id again", of=other)
        await leader.produce(b"by id again")
        assert fetches(leader)[-1] == 17
        del world.topic_ids["t"]
        assert await again(world, follower) is ErrorCode.NONE
        await leader.produce(b"by name again")
        assert fetches(leader)[-1] == 12
        assert values(world, follower) == values(world, leader)
        assert len(values(world, follower)) == 4
        assert follower.replicas.fetchers.statistics()["errors"] == 0

    simulate(story, config=AT_3_9)


def test_each_protocol_fetches_at_its_version(simulate: Simulation, tmp_path: Path) -> None:
    """Acceptance 2 for Fetch, with and without ids, and 16: no OffsetForLeaderEpoch from 2.7 on."""
    for protocol in ProtocolVersion:

        async def story(world: World, protocol: ProtocolVersion = protocol) -> None:
            leader, _ = await world.start(1, 2)
            for topic, topic_id in (("t", NO_TOPIC_ID), ("u", FIRST)):
                if topic_id != NO_TOPIC_ID:
                    world.topic_ids["t"] = SECOND
                    world.topic_ids[topic] = topic_id
                    await world.elect(1, [1, 2])
                await world.elect(1, [1, 2], [1, 2], of=TopicPartition(topic, 0))
                await leader.produce(b"value", of=TopicPartition(topic, 0))
                await world.elect(1, [1, 2], of=TopicPartition(topic, 0))
                await leader.produce(b"value", of=TopicPartition(topic, 0))
                keys = {key for key, _ in leader.versions}
                expected = protocol.fetch_version_by_name
                if topic_id != NO_TOPIC_ID:
                    expected = protocol.fetch_version
                assert fetches(leader)[-1] == expected, (protocol, topic)
                asks = ApiKey.OFFSET_FOR_LEADER_EPOCH in keys
                assert asks is not protocol.truncates_on_fetch, protocol

        config = replace(CONFIG, protocol=protocol)
        simulate.at(tmp_path / str(protocol))(story, config=config)


def test_each_protocol_asks_for_offsets_at_its_versions(
    simulate: Simulation, tmp_path: Path
) -> None:
    """A follower that is behind its leader's start: ListOffsets, and below 2.7-IV1 the end of its
    latest epoch before that."""
    for protocol in ProtocolVersion:

        async def story(world: World, protocol: ProtocolVersion = protocol) -> None:
            leader, follower = await world.start(1, 2)
            await world.elect(1, [1, 2], [1, 2])
            await leader.produce(b"gone soon")
            await follower.stop()
            await world.elect(1, [1], without=[2])
            leader.append(b"gone, too")
            leader.log().roll()
            leader.log().advance_start_offset(2)
            leader.append(b"kept")
            await world.restart(2)
            leader.versions.clear()
            await world.elect(1, [1])
            await world.until(lambda: follower.log().end_offset == 3)
            asked = {(key, version) for key, version in leader.versions if key != ApiKey.FETCH}
            expected = {(ApiKey.LIST_OFFSETS, protocol.list_offsets_version)}
            if not protocol.truncates_on_fetch:
                version = protocol.offset_for_leader_epoch_version
                expected.add((ApiKey.OFFSET_FOR_LEADER_EPOCH, version))
            assert asked == expected, protocol

        config = replace(CONFIG, protocol=protocol)
        simulate.at(tmp_path / str(protocol))(story, config=config)


@pytest.mark.parametrize("by_id", [True, False])
def test_a_follower_whose_session_is_of_the_other_kind_opens_another_at_once(
    simulate: Simulation, by_id: bool
) -> None:
    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        if by_id:
            world.topic_ids["t"] = FIRST
        await world.elect(1, [1, 2], [1, 2])
        await leader.produce(b"before")
        (session,) = leader.sessions._sessions.values()
        assert session.by_id is by_id
        session.by_id = not by_id  # as if it had been opened by requests of the other kind
        refusals = []

        def fetch(request: FetchRequest, version: int = 11) -> Any:
            answer = Node.fetch(leader, request, version)
            if isinstance(answer, FetchResponse) and answer.error_code:
                refusals.append(answer.error_code)
            return answer

        leader.fetch = fetch  # type: ignore[method-assign]
        start = asyncio.get_running_loop().time()
        for value in (b"first", b"second", b"third"):
            assert (await leader.produce(value)).error is ErrorCode.NONE
        elapsed_ms = (asyncio.get_running_loop().time() - start) * 1000
        assert refusals == [ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR]
        assert elapsed_ms < world.config.replica_fetch_backoff_ms
        assert values(world, follower) == [b"before", b"first", b"second", b"third"]
        assert session.id not in leader.sessions._sessions, "the full request closed it"

    simulate(story, config=AT_3_9)


def test_a_session_renames_a_topic_whose_id_changed() -> None:
    session = FollowerSession(may_be_by_id=True)
    session.want(T0, Position(5, 0, 1, 100, topic_id=FIRST))
    opened = session.request()
    assert opened.by_id and [topic.topic_id for topic in opened.topics] == [FIRST]
    session.opened(7)
    session.want(T0, Position(0, 0, 1, 100, topic_id=SECOND))
    request = session.request()
    assert (request.session_id, request.epoch, request.by_id) == (7, 1, True)
    assert [topic.topic_id for topic in request.topics] == [SECOND]
    assert [(topic.topic_id, topic.partitions) for topic in request.forgotten] == [(FIRST, [0])]
    assert session.name_of("", SECOND) == "t"
    assert session.name_of("", UUID(int=5)) is None
    # Without an id the next request is by name: a full one, which closes the session by id.
    session.want(T0, Position(0, 0, 1, 100))
    by_name = session.request()
    assert (by_name.session_id, by_name.epoch, by_name.by_id) == (7, 0, False)
    assert [topic.topic for topic in by_name.topics] == ["t"] and not by_name.forgotten
