"""Our own transactional producer, and looking at transactions, against our brokers."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.client import (
    Admin,
    Client,
    Groups,
    Isolation,
    NewTopic,
    PartitionReader,
    Producer,
    TransactionalProducer,
    Transactions,
    check,
)
from odradek.testing.cluster import Cluster
from odradek.wire.batch import TRANSACTIONAL_BIT
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    config = {
        "transaction.state.log.num.partitions": 2,
        "offsets.topic.num.partitions": 2,
        # So that a test can leave a transaction open that no coordinator knows of.
        "transaction.partition.verification.enable": False,
    }
    with Cluster(brokers=2, config=config) as running:
        yield running


async def create(client: Client, topic: str) -> TopicPartition:
    check(await Admin(client).create_topics([NewTopic(topic, 1, 2)]))
    return TopicPartition(topic, 0)


async def committed(client: Client, tp: TopicPartition, end: int) -> list[bytes | None]:
    """What a read_committed reader sees up to an offset."""
    values: list[bytes | None] = []
    reader = PartitionReader(client, isolation=Isolation.READ_COMMITTED)
    async for batches in reader.batches(tp, 0, end):
        values += [record.value for record in batches.open(committed=True)]
    return values


async def test_commit_abort_and_offsets(cluster: Cluster) -> None:
    async with Client(cluster.bootstrap_servers) as client:
        tp = await create(client, "both")
        async with TransactionalProducer(client, "both") as producer:
            with pytest.raises(KafkaError, match="init_transactions"):
                producer.begin()
            await producer.init_transactions()
            for number in range(4):
                producer.begin()
                await producer.send("both", b"%d" % number, partition=0)
                await producer.send_offsets({tp: number + 1}, "copies", metadata=f"n{number}")
                if number % 2:
                    await producer.abort()
                else:
                    await producer.commit()
            producer.begin()
            await producer.commit()  # nothing was written, and nothing need be decided
            found = await Groups(client).offsets("copies", [tp], require_stable=True)
            assert (found[tp].offset, found[tp].metadata) == (3, "n2")
            producer.begin()
            await producer.send_offsets({tp: 9}, "copies")
            await producer.commit()
            # The marker may still be under way: what is not stable yet is waited for.
            found = await Groups(client).offsets("copies", [tp], require_stable=True)
            assert found[tp].offset == 9
        assert await committed(client, tp, 8) == [b"0", b"2"]


@pytest.mark.parametrize("arrives", [True, False], ids=["answer", "request"])
async def test_a_transaction_is_ended_although_an_answer_was_lost(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    """Else it would be open until it times out, which would fence its producer."""
    id = f"lost-{arrives}"
    async with Client(cluster.bootstrap_servers) as client:
        tp = await create(client, id)
        async with TransactionalProducer(client, id) as producer:
            await producer.init_transactions()
            producer.begin()
            with monkeypatch.context() as patch:
                ask = producer._ask

                async def lose(*question: Any) -> Any:
                    if arrives:
                        await ask(*question)
                    raise TimeoutError

                patch.setattr(producer, "_ask", lose)
                with pytest.raises(TimeoutError):
                    await producer.send_offsets({tp: 1}, id)
            await producer.abort()
            state = (await Transactions(client).describe(id)).state
            assert state in (("PrepareAbort", "CompleteAbort") if arrives else ("Empty",))
            producer.begin()
            await producer.send_offsets({tp: 2}, id)
            await producer.commit()
            found = await Groups(client).offsets(id, [tp], require_stable=True)
            assert found[tp].offset == 2


async def test_a_successor_fences(cluster: Cluster) -> None:
    async with Client(cluster.bootstrap_servers) as client:
        await create(client, "successor")
        first = TransactionalProducer(client, "successor")
        await first.init_transactions()
        first.begin()
        await first.send("successor", b"old", partition=0)
        await first.flush()
        async with TransactionalProducer(client, "successor") as second:
            await second.init_transactions()
            with pytest.raises(KafkaError) as fenced:
                await first.commit()
            assert fenced.value.error is ErrorCode.PRODUCER_FENCED
            # One that gives up leaves its successor alone, also when it does not know its epoch.
            second.begin()
            await second.send("successor", b"new", partition=0)
            await second.flush()
            await first.send("successor", b"late", partition=0)
            with pytest.raises(KafkaError):
                await first.flush()
            with pytest.raises(KafkaError) as fenced:
                await first.abandon()
            assert fenced.value.error is ErrorCode.PRODUCER_FENCED
            await second.abandon()
            await second.abandon()  # nothing is open any more
        await first.close()


async def test_looking_at_transactions(cluster: Cluster) -> None:
    async with Client(cluster.bootstrap_servers) as client:
        tp = await create(client, "looked-at")
        transactions = Transactions(client)
        async with TransactionalProducer(client, "looked-at") as producer:
            await producer.init_transactions()
            producer.begin()
            await producer.send("looked-at", b"v", partition=0)
            await producer.flush()
            found = await transactions.list_transactions()
            assert ("looked-at", "Ongoing") in {(one.transactional_id, one.state) for one in found}
            described = await transactions.describe("looked-at")
            assert (described.state, described.partitions) == ("Ongoing", (tp,))
            (opened,) = await transactions.open_in([tp])
            assert (opened.start_offset, opened.producer_id) == (0, described.producer_id)
            assert await transactions.find_hanging([tp], opened.last_timestamp_ms + 1) == []
            await producer.abort()
        with pytest.raises(KafkaError) as unknown:
            await transactions.describe("unknown")
        assert unknown.value.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class Unverified(Producer):
    """Opens a transaction that no coordinator knows of, as a batch does that comes too late."""

    def _request(self, partition: TopicPartition, encoded: bytearray) -> object:  # type: ignore[override]
        request = super()._request(partition, encoded)
        request.transactional_id = "never-initialised"
        return request


async def test_a_hanging_transaction_is_found_and_aborted(cluster: Cluster) -> None:
    async with Client(cluster.bootstrap_servers) as client:
        tp = await create(client, "hanging")
        async with Unverified(client) as producer:
            producer.batch_attributes = TRANSACTIONAL_BIT
            await producer.send("hanging", b"v", partition=0, timestamp_ms=1)
        transactions = Transactions(client)
        (hanging,) = await transactions.find_hanging([tp], 1_000)
        assert (hanging.partition, hanging.start_offset) == (tp, 0)

    def odradek(*arguments: str) -> str:
        environment = {"ODRADEK_BOOTSTRAP": cluster.bootstrap_servers, "COLUMNS": "200"}
        result = CliRunner().invoke(main, ["transactions", *arguments], env=environment)
        assert result.exit_code == 0, result.output
        return result.output

    def on_the_shell() -> tuple[str, str, str, str]:
        return (
            odradek("find-hanging", "--topic", "hanging"),
            odradek("abort", "--topic", "hanging", "--partition", "0", "--start-offset", "0"),
            odradek("find-hanging", "--topic", "hanging"),
            odradek("list", "--json"),
        )

    before, aborted, after, listed = await asyncio.to_thread(on_the_shell)
    assert "hanging" in before and str(hanging.producer_id) in before
    assert f"hanging-0: aborted the transaction of producer {hanging.producer_id}" in aborted
    assert "no transaction hangs" in after
    assert "looked-at" in listed
    async with Client(cluster.bootstrap_servers) as client:
        assert await committed(client, tp, 2) == []
