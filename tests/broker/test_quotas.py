"""Client quotas: set and described through the API, and enforced on clients that exceed them."""

import asyncio
import itertools
import math
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from tests.broker.clusters import (
    Cluster,
    batch_of,
    cluster,
    fetch_request,
    produce,
    produce_request,
    records_of,
    until,
)

from odradek.broker.authorization import Permissions
from odradek.broker.connection import ClientConnection
from odradek.broker.quotas import ClientQuotas, Entity
from odradek.broker.routes import RequestContext
from odradek.security.principal import Principal
from odradek.sim.loop import SimLoop
from odradek.sim.network import Network
from odradek.store.paths import ConfigKind
from odradek.wire.batch import scan
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode
from odradek.wire.header import RequestHeader
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from odradek.wire.messages.fetch import FetchResponse, PartitionData
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek.wire.messages.produce import ProduceRequest, ProduceResponse
from odradek.wire.messages.sync_group import SyncGroupRequest
from odradek.wire.schema import Request

EXACT, DEFAULT, ANY = range(3)

Throttled = DescribeClientQuotasResponse | FetchResponse | MetadataResponse | ProduceResponse


async def alter(
    connection: Connection, entity: dict[str, str | None], **quotas: float | None
) -> ErrorCode:
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntryData(
                entity=[
                    AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity.items()
                ],
                ops=[
                    OpData(key=name, value=value or 0.0, remove=value is None)
                    for name, value in quotas.items()
                ],
            )
        ]
    )
    return ErrorCode((await connection.request(request, 1)).entries[0].error_code)


async def describe(
    connection: Connection, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )
    response = await connection.request(request, 1)
    assert response.error_code == ErrorCode.NONE, response
    assert response.entries is not None
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


async def test_quotas_are_set_and_described(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        connection = await made.connect(1)
        assert await alter(connection, {"client-id": "a b"}, producer_byte_rate=100.0) == 0
        assert await alter(connection, {"client-id": None}, consumer_byte_rate=5.0) == 0
        assert await alter(connection, {"user": "u"}, producer_byte_rate=7.0) == 0
        assert await alter(connection, {"user": "u", "client-id": "c"}, producer_byte_rate=9.0) == 0
        assert await describe(connection) == {
            (("client-id", "a b"),): {"producer_byte_rate": 100.0},
            (("client-id", None),): {"consumer_byte_rate": 5.0},
            (("user", "u"),): {"producer_byte_rate": 7.0},
            (("user", "u"), ("client-id", "c")): {"producer_byte_rate": 9.0},
        }
        assert list(await describe(connection, ("client-id", EXACT, "a b"))) == [
            (("client-id", "a b"),)
        ]
        assert list(await describe(connection, ("client-id", DEFAULT, None))) == [
            (("client-id", None),)
        ]
        assert len(await describe(connection, ("client-id", ANY, None))) == 3
        assert len(await describe(connection, ("client-id", ANY, None), strict=True)) == 2
        assert await alter(connection, {"user": "u"}, producer_byte_rate=None) == 0
        assert (("user", "u"),) not in await describe(connection)


async def test_quotas_that_cannot_be(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        connection = await made.connect(1)
        refused: list[tuple[dict[str, str | None], str, float]] = [
            ({"planet": "x"}, "producer_byte_rate", 1.0),
            ({"user": ""}, "producer_byte_rate", 1.0),
            ({}, "producer_byte_rate", 1.0),
            ({"user": "u"}, "nonsense", 1.0),
            ({"user": "u"}, "producer_byte_rate", 1.5),
            ({"user": "u"}, "producer_byte_rate", 1e20),
            ({"user": "u"}, "producer_byte_rate", -1e20),
        ]
        for quota in ("producer_byte_rate", "request_percentage"):
            refused += [({"user": "u"}, quota, value) for value in (math.nan, math.inf, -math.inf)]
        for entity, quota, value in refused:
            assert await alter(connection, entity, **{quota: value}) is ErrorCode.INVALID_REQUEST
        request = DescribeClientQuotasRequest(
            components=[ComponentData(entity_type="user", match_type=ANY, match=None)] * 2
        )
        assert (await connection.request(request, 1)).error_code == ErrorCode.INVALID_REQUEST


async def test_the_greatest_and_the_least_quotas(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        connection = await made.connect(1)
        for value in (-1.0, 0.0, float(2**63)):
            assert await alter(connection, {"user": "u"}, producer_byte_rate=value) == 0
            assert await describe(connection) == {(("user", "u"),): {"producer_byte_rate": value}}
        stored = await made.brokers[1].store.configs.get(ConfigKind.USERS, "u")
        assert stored == {"producer_byte_rate": str(2**63 - 1)}, "as a LONG, for other brokers"


def virtually(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Tells a story in virtual time: who is throttled for seconds costs the test nothing."""
    loop = SimLoop()
    Network(loop, random.Random(0))
    try:
        loop.run_until_complete(loop.process("127.0.0.1").run(story()))
        assert not loop.failures, loop.failures
    finally:
        loop.close()


async def limited(
    made: Cluster, entity: dict[str, str | None], broker_id: int = 1, **quotas: float | None
) -> None:
    connection = await made.connect(broker_id, "admin")
    assert await alter(connection, entity, **quotas) == 0
    await until(lambda: made.brokers[broker_id].quotas.are_set)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_producer_over_its_quota_is_throttled_and_muted(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(tmp_path) as made:
            await made.create_topic("t")
            calm, eager = await made.connect(1, "calm"), await made.connect(1, "eager")
            await limited(made, {"client-id": "eager"}, producer_byte_rate=50_000.0)
            response = await eager.request(produce_request("t", batch_of(b"x" * 600_000)), 9)
            told_s = response.throttle_time_ms / 1000
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert 1 < told_s < 3, "600 kB in eleven seconds against 50 kB/s"
            before = now()
            assert (await calm.request(request_small(), 9)).throttle_time_ms == 0
            assert now() - before < 0.1, "others are not held up"
            await eager.request(MetadataRequest(topics=[]), 9)
            assert told_s - 0.1 < now() - before < told_s + 0.1, "whatever it asks"
            await asyncio.sleep(11)  # virtually
            assert (await eager.request(request_small(), 9)).throttle_time_ms == 0, "forgotten"

    virtually(story)


@pytest.mark.parametrize("limit", [0.0, -1.0])
def test_who_may_have_nothing_is_answered_once_and_then_not_listened_to(
    tmp_path: Path, limit: float
) -> None:
    async def story() -> None:
        async with cluster(tmp_path) as made:
            await made.create_topic("t")
            producer, reader = await made.connect(1, "none"), await made.connect(1, "none")
            await produce(producer, "t", b"v")
            await limited(
                made, {"client-id": "none"}, producer_byte_rate=limit, consumer_byte_rate=limit
            )
            response = await producer.request(request_small(), 9)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert response.throttle_time_ms == 2**31 - 1
            fetched = await reader.request(fetch_request("t", 0), 11)
            assert (fetched.throttle_time_ms, fetched.responses) == (2**31 - 1, [])

    virtually(story)


def test_a_producer_that_wants_no_answers_is_not_listened_to_either(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(tmp_path) as made:
            await made.create_topic("t")
            eager = await made.connect(1, "eager")
            await limited(made, {"client-id": "eager"}, producer_byte_rate=50_000.0)
            eager.send_no_response(produce_request("t", batch_of(b"x" * 600_000), acks=0), 9)
            before = now()
            await eager.request(MetadataRequest(topics=[]), 9)
            assert now() - before > 1

    virtually(story)


@pytest.mark.parametrize("session_epoch", [-1, 0], ids=["without session", "with session"])
def test_who_fetches_too_much_gets_nothing_until_it_has_waited(
    tmp_path: Path, session_epoch: int
) -> None:
    async def story() -> None:
        async with cluster(tmp_path) as made:
            await made.create_topic("t")
            producer, eager = await made.connect(1, "p"), await made.connect(1, "eager")
            for _ in range(2):
                await produce(producer, "t", b"x" * 60_000)
            session = {"session_id": 0, "session_epoch": session_epoch}
            first = await eager.request(fetch_request("t", partition_max_bytes=1, **session), 11)
            assert first.throttle_time_ms == 0
            session_id = first.session_id
            await limited(made, {"client-id": "eager"}, consumer_byte_rate=10_000.0)

            async def fetch(offset: int) -> tuple[int, list[PartitionData]]:
                nonlocal session_epoch
                if session_epoch >= 0:
                    session_epoch += 1
                request = fetch_request(
                    "t", offset, session_id=session_id, session_epoch=session_epoch
                )
                response = await eager.request(request, 11)
                assert response.session_id == session_id
                return response.throttle_time_ms, [
                    part for topic in response.responses for part in topic.partitions
                ]

            throttle_ms, found = await fetch(1)
            assert throttle_ms == 0
            assert len(records_of(found[0])) > 60_000
            await produce(producer, "t", b"x" * 60_000)
            before = now()
            throttle_ms, found = await fetch(2)
            assert (throttle_ms > 1000, found) == (True, []), "what it would cost is not sent"
            while not found:
                throttle_ms, found = await fetch(2)
            assert 1 < now() - before < 14
            assert (throttle_ms, len(records_of(found[0])) > 60_000) == (0, True), "and is not lost"

    virtually(story)


def test_a_fetch_larger_than_the_quota_still_gets_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(tmp_path) as made:
            await made.create_topic("t")
            eager = await made.connect(1, "eager")
            for _ in range(5):
                await produce(eager, "t", b"x" * 900)
            await limited(made, {"client-id": "eager"}, consumer_byte_rate=200.0)
            offset = 0
            while offset < 5:
                response = await eager.request(fetch_request("t", offset), 11)
                data = [part for topic in response.responses for part in topic.partitions]
                offset += sum(1 for part in data for _ in scan(records_of(part)))
            assert now() < 60

    virtually(story)


def test_who_takes_too_much_of_the_brokers_time_waits(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(tmp_path) as made:
            await made.create_topic("t")
            broker, slow = made.brokers[1], await made.connect(1, "slow")
            await limited(made, {"client-id": "slow"}, request_percentage=1.0)
            # Virtual time stands still while code runs; let each look at the clock take 10 ms.
            ticks = itertools.count()
            broker.quotas._now = lambda: now() + next(ticks) * 0.01
            requests: tuple[tuple[Request[Throttled], int], ...] = (
                (MetadataRequest(topics=[]), 9),  # answered at once
                (produce_request("t", batch_of(b"v")), 9),  # at once, or when it is replicated
                (fetch_request("t", 100, max_wait_ms=10), 11),  # waits
                (DescribeClientQuotasRequest(), 1),  # a coroutine
            )
            for request, version in requests:
                answers = [await slow.request(request, version) for _ in range(12)]
                assert answers[-1].throttle_time_ms > 0, request
                assert all(answer.throttle_time_ms <= 1000 for answer in answers)
            calm = await made.connect(1, "calm")
            assert (await calm.request(MetadataRequest(topics=[]), 9)).throttle_time_ms == 0

    virtually(story)


def test_a_group_forms_while_time_is_measured_and_waiting_in_it_costs_nothing(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with cluster(tmp_path, group_initial_rebalance_delay_ms="3000") as made:
            member = await made.connect(1, "member")
            await member.request(FindCoordinatorRequest(key="g"), 2)  # makes the offsets topic
            await until(lambda: made.brokers[1].groups.check("g") == ErrorCode.NONE)
            await limited(made, {"client-id": "member"}, request_percentage=1.0)
            join = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            before = now()
            joined = await member.request(join, 3)
            assert joined.error_code == ErrorCode.NONE
            assert now() - before > 2, "it waited for others"
            sync = SyncGroupRequest(
                group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
            )
            synced = await member.request(sync, 3)
            assert synced.error_code == ErrorCode.NONE
            assert (joined.throttle_time_ms, synced.throttle_time_ms) == (0, 0)

    virtually(story)


def test_who_makes_too_many_partitions_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(tmp_path) as made:
            maker = await made.connect(1, "maker")
            await limited(made, {"client-id": "maker"}, controller_mutation_rate=2.0)

            async def create(name: str, version: int, partitions: int = 23) -> tuple[int, int]:
                topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
                request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
                response = await maker.request(request, version)
                return response.topics[0].error_code, response.throttle_time_ms

            # Two a second for eleven seconds are 22: the one who takes the last may take more.
            assert await create("a", 7) == (ErrorCode.NONE, 0)
            before = now()
            error, throttle_ms = await create("b", 7)
            assert error == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert 100 < throttle_ms <= 500, "one over, at two a second"
            assert (await create("b", 7, 1)) == (ErrorCode.NONE, 0)
            assert now() - before > 0.1
            error, throttle_ms = await create("c", 5)
            assert error == ErrorCode.NONE, "an older client would not understand"
            assert throttle_ms > 10_000
            gone = await maker.request(
                DeleteTopicsRequest(topic_names=["c"], timeout_ms=10_000), 5, timeout=60
            )
            assert gone.responses[0].error_code == ErrorCode.NONE
            more = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name="b", count=2, assignments=None)],
                timeout_ms=10_000,
            )
            answer = await maker.request(more, 3)
            assert answer.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert answer.throttle_time_ms > 0

    virtually(story)


class Sender(NamedTuple):
    """All that quotas see of a connection."""

    permissions: Permissions


class TestWhoseQuotaCounts:
    """Kafka's order, and who shares a quota."""

    ORDER: tuple[Entity, ...] = (
        ("ANONYMOUS", "c"),
        ("ANONYMOUS", "<default>"),
        ("ANONYMOUS", None),
        ("<default>", "c"),
        ("<default>", "<default>"),
        ("<default>", None),
        (None, "c"),
        (None, "<default>"),
    )

    @staticmethod
    def throttle_ms(
        quotas: ClientQuotas, client_id: str, size_bytes: int, user: str = "ANONYMOUS"
    ) -> int:
        sender = Sender(Permissions(None, Principal(user), "127.0.0.1"))
        context = RequestContext(
            RequestHeader(0, 9, 0, client_id), cast(ClientConnection, sender), size_bytes, 0.0
        )
        quotas.produced(context)
        return context.throttle_ms

    @pytest.mark.parametrize("strongest", range(len(ORDER)))
    def test_the_most_specific(self, strongest: int) -> None:
        quotas = ClientQuotas(lambda: 100.0)
        quotas.set(self.ORDER[strongest], {"producer_byte_rate": "100"})
        for weaker in self.ORDER[strongest + 1 :]:
            quotas.set(weaker, {"producer_byte_rate": "1000000000"})
        for stronger in self.ORDER[:strongest]:
            quotas.set(stronger, {"consumer_byte_rate": "1"})  # says nothing about producing
        assert self.throttle_ms(quotas, "c", 2000) == 10_000, "2000 bytes are twenty seconds' worth"

    def test_others_are_not_limited(self) -> None:
        quotas = ClientQuotas(lambda: 100.0)
        quotas.set((None, "c"), {"producer_byte_rate": "100"})
        quotas.set(("somebody", None), {"producer_byte_rate": "1"})
        assert self.throttle_ms(quotas, "d", 10**9) == 0

    def test_a_default_counts_for_each_client_and_a_users_for_all_of_them(self) -> None:
        quotas = ClientQuotas(lambda: 100.0)
        quotas.set((None, "<default>"), {"producer_byte_rate": "100"})
        assert [self.throttle_ms(quotas, client, 800) for client in "ab"] == [0, 0]
        quotas.set(("ANONYMOUS", None), {"producer_byte_rate": "100"})
        assert self.throttle_ms(quotas, "a", 800) == 0
        assert self.throttle_ms(quotas, "b", 800) == 6000

    def test_users_have_separate_quotas_and_a_default_applies_to_each(self) -> None:
        quotas = ClientQuotas(lambda: 100.0)
        quotas.set(("alice", None), {"producer_byte_rate": "100"})
        quotas.set(("<default>", None), {"producer_byte_rate": "200"})
        assert self.throttle_ms(quotas, "a", 800, "alice") == 0
        assert self.throttle_ms(quotas, "b", 800, "alice") == 6000, "all her clients share it"
        assert self.throttle_ms(quotas, "a", 1600, "bob") == 0
        assert self.throttle_ms(quotas, "a", 1600, "carol") == 0, "not what bob has used"
        assert self.throttle_ms(quotas, "b", 1600, "bob") == 6000

    def test_a_quota_that_is_raised_forgets_nothing(self) -> None:
        quotas = ClientQuotas(lambda: 100.0)
        quotas.set((None, "c"), {"producer_byte_rate": "100"})
        assert self.throttle_ms(quotas, "c", 2000) == 10_000
        quotas.set((None, "c"), {"producer_byte_rate": "150"})
        assert self.throttle_ms(quotas, "c", 1000) == 10_000
        quotas.set((None, "c"), {})
        assert self.throttle_ms(quotas, "c", 10**9) == 0


def request_small() -> ProduceRequest:
    return produce_request("t", batch_of(b"small"))
