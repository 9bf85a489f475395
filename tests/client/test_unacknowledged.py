"""Producing with acks=0 to a broker that reads when it likes: a batch is done when it has left."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from odradek.client import Client, Producer
from odradek.client.connections import BrokerConnection
from odradek.wire.api import ApiKey
from odradek.wire.connection import Connection
from odradek.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.records import Record, encode_batch
from odradek.wire.topics import TopicPartition

PARTITION = TopicPartition("t", 0)
BATCH = encode_batch([Record(-1, 0, None, b"x" * 250_000)])
BATCHES = 100
BUFFER_BYTES = 1_000_000


class Listener:
    """A broker's port that is not read from before `reads` is set."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.ended = asyncio.Event()
        self.received_bytes = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.reads.wait()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                self.received_bytes += len(data)
        writer.close()
        self.ended.set()


class ToOne(Client):
    """A client that knows one broker, and what it serves."""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        super().__init__("h:1", timeout_s=timeout_s)
        self.opened = connection
        partition = MetadataResponsePartition(partition_index=0, leader_id=1)
        self.metadata.update(
            MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)],
                topics=[MetadataResponseTopic(name="t", partitions=[partition])],
            ),
            whole=True,
        )

    async def connection(self, node: int) -> BrokerConnection:
        return BrokerConnection(self.opened, {ApiKey.PRODUCE: (3, 9)})


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
async def connection(listener: Listener) -> AsyncIterator[Connection]:
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0, limit=65_536)
    connection = await Connection.open(*server.sockets[0].getsockname())
    yield connection
    connection.close()
    listener.reads.set()
    await listener.ended.wait()
    server.close()


async def test_what_has_not_left_fills_the_buffer_and_what_is_flushed_arrives(
    listener: Listener, connection: Connection
) -> None:
    producer = Producer(ToOne(connection, 30.0), acks=0, buffer_bytes=BUFFER_BYTES, linger_s=0)
    held_bytes = 0

    async def send_all() -> None:
        nonlocal held_bytes
        for _ in range(BATCHES):
            await producer.send_batch(PARTITION, bytearray(BATCH))
            held_bytes = max(held_bytes, connection.outgoing_bytes)
        await producer.flush()

    sending = asyncio.ensure_future(send_all())
    while producer.statistics()["buffered_bytes"] + len(BATCH) <= BUFFER_BYTES:
        assert not sending.done()
        await asyncio.sleep(0)
    listener.reads.set()
    await sending
    assert held_bytes <= BUFFER_BYTES
    # As when a process ends after a flush: nothing is left to be done by us.
    assert connection.transport is not None
    connection.transport.abort()
    await producer.close()
    await listener.ended.wait()
    assert listener.received_bytes > BATCHES * len(BATCH)


async def test_a_broker_that_never_reads_is_given_up(connection: Connection) -> None:
    producer = Producer(ToOne(connection, 0.05), acks=0, delivery_timeout_s=0.0, linger_s=0)
    for _ in range(BATCHES):
        await producer.send_batch(PARTITION, bytearray(BATCH))
    with pytest.raises(TimeoutError, match="does not read what it is sent"):
        await producer.flush()
    assert connection.closed
    assert connection.outgoing_bytes == 0, "nothing of it stays in memory"
    await producer.close()
