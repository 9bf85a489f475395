"""One client cannot stop a broker: memory, large requests, floods, and what is left to others."""

import asyncio
import struct
from pathlib import Path

import pytest
from tests.broker.clusters import Cluster, cluster, fetch_request, produce, records_of, until
from tests.broker.test_connection import Raw

from odradek.broker import connections, memory
from odradek.broker.connection import STARTS_PER_TURN
from odradek.broker.handlers.metadata import CREATED_MAX
from odradek.broker.memory import Budget, Turns, offenders
from odradek.broker.routes import ELEMENTS_MAX
from odradek.wire.errors import ErrorCode
from odradek.wire.header import encode_request
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

CLAIM = struct.pack(">ii", 100_000_000, 0)


def used(made: Cluster, what: str) -> int:
    value = made.brokers[1].connections.statistics()[what]
    assert isinstance(value, int)
    return value


async def test_a_claimed_size_costs_next_to_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        hostile = [await Raw.open(made) for _ in range(100)]
        for raw in hostile:
            raw.writer.write(CLAIM)
        broker = made.brokers[1]
        await until(lambda: used(made, "request_bytes") > 0)
        await until(lambda: broker.connections.statistics()["connections"] >= 100)
        assert used(made, "request_bytes") <= 100 * 4096
        for raw in hostile:
            raw.close()
        await until(lambda: used(made, "request_bytes") == 0)


async def test_requests_that_never_end_make_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory, "GRACE_S", 0.05)
    async with cluster(tmp_path, queued_max_request_bytes="1000000") as made:
        await made.create_topic("t")
        well = await made.connect(1)
        hostile = [await Raw.open(made) for _ in range(10)]
        for raw in hostile:
            raw.writer.write(CLAIM + bytes(200_000))
        await until(lambda: used(made, "evicted"))
        await until(lambda: used(made, "request_bytes") <= 1_000_000)
        assert (await produce(well, "t", b"x" * 600_000)).error_code == ErrorCode.NONE
        assert not well.closed
        assert "that do not arrive whole" in caplog.text
        for raw in hostile:
            raw.close()
        caplog.clear()


async def test_large_requests_take_turns_and_all_arrive(tmp_path: Path) -> None:
    async with cluster(tmp_path, queued_max_request_bytes="1000000") as made:
        await made.create_topic("t")
        senders = [await made.connect(1) for _ in range(20)]
        answers = await asyncio.gather(
            *(produce(sender, "t", b"x" * 900_000) for sender in senders)
        )
        assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 20
        assert used(made, "evicted") == 0
        assert used(made, "request_bytes") == 0


async def test_responses_that_are_not_read_make_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory, "GRACE_S", 0.05)
    limit = 1_000_000
    async with cluster(
        tmp_path, odradek_queued_max_response_bytes=str(limit), message_max_bytes="600000"
    ) as made:
        await made.create_topic("t", max_message_bytes="600000")
        well = await made.connect(1)
        for _ in range(20):
            assert (await produce(well, "t", b"x" * 500_000)).error_code == ErrorCode.NONE
        request = b"".join(encode_request(fetch_request("t", max_bytes=2**31 - 1), 11, 1, None))
        hostile = [await Raw.open(made) for _ in range(20)]
        for raw in hostile:
            raw.writer.write(request * 20)
        await until(lambda: used(made, "evicted"))
        # The first batch comes whole, so that each connection may go beyond the limit by one.
        assert used(made, "response_bytes") <= limit + 20 * 600_000
        await until(lambda: used(made, "response_bytes") <= limit)
        response = await well.request(fetch_request("t", max_bytes=2**31 - 1), 11)
        assert response.responses[0].partitions[0].records
        assert not well.closed
        assert "that are not read" in caplog.text
        for raw in hostile:
            raw.close()
        caplog.clear()


async def test_a_fetch_returns_less_when_much_waits_to_be_read(tmp_path: Path) -> None:
    async with cluster(tmp_path, odradek_queued_max_response_bytes="4000000") as made:
        await made.create_topic("t")
        well = await made.connect(1)
        for _ in range(40):
            await produce(well, "t", b"x" * 50_000)
        budget = made.brokers[1].connections.response_budget
        all_of_it = await well.request(fetch_request("t", max_bytes=2**31 - 1), 11)
        budget.change(3_900_000)
        less = await well.request(fetch_request("t", max_bytes=2**31 - 1), 11)
        budget.change(-3_900_000)
        sizes = [len(records_of(each.responses[0].partitions[0])) for each in (all_of_it, less)]
        assert sizes[0] > 400_000
        assert 0 < sizes[1] <= memory.FETCH_BYTES_MIN


async def test_a_request_of_too_many_elements_ends_its_connection_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, auto_create_topics_enable="false") as made:
        well = await made.connect(1)
        names = [MetadataRequestTopic(name=f"t{number}") for number in range(ELEMENTS_MAX + 1)]
        raw = await Raw.open(made)
        raw.writer.write(b"".join(encode_request(MetadataRequest(topics=names), 8, 1, None)))
        assert await raw.is_closed()
        assert "more elements than one request may have" in caplog.text
        response = await well.request(MetadataRequest(topics=names[:-1]), 8)
        assert len(response.topics) == ELEMENTS_MAX
        raw.close()
        caplog.clear()


async def test_memory_is_given_back_after_a_request_of_many_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back = []
    monkeypatch.setattr(connections, "return_free_memory", lambda: given_back.append(True))
    monkeypatch.setattr(connections, "LAST_TRIM_S", 0.0)
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        well = await made.connect(1)
        await produce(well, "t", bytes(500_000))
        await well.request(MetadataRequest(topics=[]), 9)
        assert not given_back, "what stays in its buffer leaves nothing behind"
        names = [MetadataRequestTopic(name=f"t{number:09}") for number in range(10_000)]
        await well.request(MetadataRequest(topics=names, allow_auto_topic_creation=False), 8)
        await until(lambda: given_back)
        given_back.clear()
        raw = await Raw.open(made)
        raw.writer.write(b"".join(encode_request(MetadataRequest(topics=names * 3), 8, 1, None)))
        assert await raw.is_closed(), "more elements than allowed"
        await until(lambda: given_back)
        raw.close()


async def test_a_flood_leaves_every_other_client_its_turn(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        well, raw = await made.connect(1), await Raw.open(made)
        await well.request(MetadataRequest(topics=[]), 9)
        count = 3000
        frame = b"".join(encode_request(MetadataRequest(topics=[]), 9, 1, None))
        before = made.brokers[1].routes.statistics()["Metadata"]
        raw.writer.write(frame * count)
        pending = well.start(MetadataRequest(topics=[]), 9)
        await pending
        # What is counted is turns, not time: a few for each request and response on the way.
        served = made.brokers[1].routes.statistics()["Metadata"] - before
        assert served <= 20 * STARTS_PER_TURN
        for _ in range(count):
            await raw.frame()
        raw.close()


async def test_a_long_name_is_refused_with_an_error_code(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        connection = await made.connect(1)
        resource = AlterConfigsResource(
            resource_type=4,
            resource_name="1",
            configs=[AlterableConfig(name="n" * 32_000, config_operation=0, value="1")],
        )
        response = await connection.request(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        (refused,) = response.responses
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert refused.error_message is not None and len(refused.error_message) < 1000


async def test_one_request_creates_a_bounded_number_of_topics(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        connection = await made.connect(1)
        names = [MetadataRequestTopic(name=f"t{number}") for number in range(CREATED_MAX + 20)]
        response = await connection.request(MetadataRequest(topics=names), 9)
        codes = [topic.error_code for topic in response.topics]
        assert codes.count(ErrorCode.LEADER_NOT_AVAILABLE) >= 20
        assert len(await made.brokers[1].store.topics()) == CREATED_MAX


async def test_the_metadata_of_a_member_is_bounded(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        connection = await made.connect(1)
        await connection.request(FindCoordinatorRequest(key="g"), 1)
        await until(lambda: made.brokers[1].groups.check("g") is ErrorCode.NONE)
        response = await connection.request(
            JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(2_000_000))],
            ),
            3,
        )
        assert response.error_code == ErrorCode.INVALID_REQUEST


# The rules alone


def test_the_largest_of_those_who_are_late_go_first_and_only_as_many_as_needed() -> None:
    holders = [("a", 10, 0.0), ("b", 50, 0.0), ("c", 90, 9.9), ("d", 30, 0.0)]
    assert offenders(holders, 60, 10.0) == [("b", 50), ("d", 30)]
    assert offenders(holders, 0, 10.0) == [("b", 50)]
    assert offenders(holders, 500, 0.5) == []


def test_a_share_is_an_eighth_of_what_is_left() -> None:
    budget = Budget(4_000_000, lambda: None)
    assert budget.share() == 500_000
    budget.change(2_000_000)
    assert budget.share() == 250_000
    budget.change(5_000_000)
    assert budget.share() == memory.FETCH_BYTES_MIN
    assert Budget(-1, lambda: None).share() > 1 << 30


class Grower:
    def __init__(self) -> None:
        self.goes_on = False

    def grow_on(self) -> None:
        self.goes_on = True


def test_one_at_a_time_grows_beyond_the_budget() -> None:
    budget = Budget(100, lambda: None)
    turns: Turns[Grower] = Turns(budget)
    first, second, third = Grower(), Grower(), Grower()
    assert turns.may_grow(first)
    budget.change(101)
    assert turns.may_grow(first)
    assert turns.may_grow(first), "it has the turn"
    assert not turns.may_grow(second)
    assert not turns.may_grow(third)
    turns.done(first)
    assert second.goes_on
    assert not third.goes_on
    budget.change(-101)
    turns.go_on()
    assert third.goes_on
