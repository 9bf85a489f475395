"""Whole brokers in the test's own loop, on a store in memory, real files and real sockets."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from odradek.broker.config import BrokerConfig
from odradek.broker.server import Broker
from odradek.log.disk import RealDisk
from odradek.log.offload import on_the_spot
from odradek.store.api import wall_clock_ms
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.wire.connection import Connection
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from odradek.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from odradek.wire.records import Record, encode_batch
from odradek.wire.schema import Buffer

TURNS_MAX = 100_000


class Cluster:
    """Some brokers that share a store."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.directory = directory
        self.settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.min.isr": "1",
            "controlled.shutdown.retry.backoff.ms": "10",
            "odradek.telemetry.interval.ms": "0",
            **settings,
        }
        # The clock of its brokers, or they take every notification for an old one.
        self.server = MemoryServer(clock=wall_clock_ms)
        self.brokers: dict[int, Broker] = {}
        self._connections: list[Connection] = []
        self._starts = 0

    async def start(self, broker_id: int, **settings: str) -> Broker:
        self._starts += 1
        written = {dotted(name): value for name, value in settings.items()}
        broker = Broker(
            BrokerConfig(
                {
                    "broker.id": str(broker_id),
                    "log.dirs": str(self.directory / str(broker_id)),
                    **self.settings,
                    **written,
                }
            ),
            MemoryStore(self.server, session_timeout_ms=6000),
            disk=RealDisk(),
            clock=wall_clock_ms,
            # Another after a restart: topic ids are drawn from it.
            rng=random.Random(f"{broker_id}, start {self._starts}"),
            offload=on_the_spot,
            boot_id="the tests' own",
        )
        await broker.start()
        self.brokers[broker_id] = broker
        return broker

    async def stop(self, broker_id: int) -> None:
        await self.brokers.pop(broker_id).stop()

    async def close(self) -> None:
        for connection in self._connections:
            connection.close()
        for broker_id in sorted(self.brokers, reverse=True):
            await self.stop(broker_id)

    async def connect(self, broker_id: int, client_id: str = "test") -> Connection:
        endpoint = self.brokers[broker_id].endpoints[0]
        connection = await Connection.open(
            endpoint.host, endpoint.port, client_id=client_id, timeout=60
        )
        self._connections.append(connection)
        return connection

    @property
    def controller(self) -> Broker:
        return next(each for each in self.brokers.values() if each.controller.is_active)

    async def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 1, **config: str
    ) -> None:
        connection = await self.connect(self.controller.id)
        response = await connection.request(
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=replicas,
                        configs=[
                            CreatableTopicConfig(name=key.replace("_", "."), value=value)
                            for key, value in config.items()
                        ],
                    )
                ],
                timeout_ms=10_000,
            ),
            5,
        )
        assert response.topics[0].error_code == 0, response.topics[0]
        await until(lambda: all(each.cache.has_topic(name) for each in self.brokers.values()))


def dotted(name: str) -> str:
    """A keyword as a setting's name; one that has dots already is taken as it is."""
    return name if "." in name else name.replace("_", ".")


@asynccontextmanager
async def cluster(directory: Path, brokers: int = 1, **settings: str) -> AsyncIterator[Cluster]:
    """`brokers` brokers with ids from 1; settings have underscores for dots."""
    made = Cluster(directory, {dotted(name): text for name, text in settings.items()})
    try:
        for broker_id in range(1, brokers + 1):
            await made.start(broker_id)
        started = made.brokers.values()
        await until(lambda: all(len(each.cache.brokers()) == brokers for each in started))
        yield made
    finally:
        await made.close()


async def until(condition: Callable[[], object]) -> None:
    """Lets the loop turn until something is so."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 60
    while not condition():
        assert loop.time() < deadline, "it never came about"
        await asyncio.sleep(0.001)


def batch_of(*values: bytes, timestamp_ms: int | None = None, **options: Any) -> bytearray:
    now = wall_clock_ms() if timestamp_ms is None else timestamp_ms
    return encode_batch(
        [Record(offset, now, None, value) for offset, value in enumerate(values)], **options
    )


def produce_request(
    topic: str, records: bytes | bytearray, *, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=partition, records=records)],
            )
        ],
    )


async def produce(
    connection: Connection, topic: str, *values: bytes, version: int = 9, **options: Any
) -> PartitionProduceResponse:
    request = produce_request(topic, batch_of(*values), **options)
    response = await connection.request(request, version)
    answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
    return answer


def records_of(data: PartitionData) -> Buffer:
    """What was fetched: a decoder gives one view."""
    assert data.records is not None and not isinstance(data.records, list)
    return data.records


def fetch_request(topic: str, offset: int = 0, **options: Any) -> FetchRequest:
    max_bytes = options.pop("partition_max_bytes", 1 << 20)
    return FetchRequest(
        **{
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 24,
            "topics": [
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=0, fetch_offset=offset, partition_max_bytes=max_bytes
                        )
                    ],
                )
            ],
            **options,
        }
    )
