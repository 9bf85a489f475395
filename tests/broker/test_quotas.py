"""Client quotas: set through the API, told back, and felt by who goes over."""

from pathlib import Path

from tests.broker.clusters import batch_of, cluster, fetch_request, produce_request, until

from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from odradek.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.produce import ProduceRequest

EXACT, DEFAULT, ANY = range(3)


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
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


async def test_quotas_are_set_and_told(tmp_path: Path) -> None:
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
        for entity, quota, value in (
            ({"planet": "x"}, "producer_byte_rate", 1.0),
            ({"user": ""}, "producer_byte_rate", 1.0),
            ({}, "producer_byte_rate", 1.0),
            ({"user": "u"}, "nonsense", 1.0),
            ({"user": "u"}, "producer_byte_rate", 1.5),
        ):
            assert await alter(connection, entity, **{quota: value}) is ErrorCode.INVALID_REQUEST
        request = DescribeClientQuotasRequest(
            components=[ComponentData(entity_type="user", match_type=ANY, match=None)] * 2
        )
        assert (await connection.request(request, 1)).error_code == ErrorCode.INVALID_REQUEST


async def test_who_goes_over_is_told_and_not_listened_to(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        calm, eager = await made.connect(1, "calm"), await made.connect(1, "eager")
        assert (
            await alter(
                calm, {"client-id": "eager"}, producer_byte_rate=50_000.0, consumer_byte_rate=1e6
            )
            == 0
        )
        await until(lambda: made.brokers[1].quotas.are_set)
        request = produce_request("t", batch_of(b"x" * 600_000))
        response = await eager.request(request, 9)
        told = response.throttle_time_ms
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert 1000 < told < 3000, "60 kB/s over ten seconds against 50 kB/s"
        loop_time = made.brokers[1].connections._loop.time
        before = loop_time()
        assert (await calm.request(request_small(), 9)).throttle_time_ms == 0
        assert loop_time() - before < told / 2000, "others are not held up"
        await eager.request(MetadataRequest(topics=[]), 9)
        assert loop_time() - before > told / 2000
        fetched = await calm.request(fetch_request("t"), 11)
        assert fetched.throttle_time_ms == 0
        assert await alter(calm, {"client-id": "eager"}, producer_byte_rate=None) == 0


def request_small() -> ProduceRequest:
    return produce_request("t", batch_of(b"small"))
