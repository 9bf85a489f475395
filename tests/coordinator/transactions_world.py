"""One transaction coordinator on one partition of its topic, in virtual time, and the leaders that
its markers go to."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from tests.coordinator.world import NOW, MemoryLog

from odradek.coordinator.config import TransactionConfig
from odradek.coordinator.markers import MarkerSender
from odradek.coordinator.transaction import Transaction
from odradek.coordinator.transaction_coordinator import TransactionCoordinator
from odradek.sim.loop import SimLoop
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.wire.topics import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT = 60_000

MARKERS_VERSION = 1


class Leaders:
    """The leaders of all partitions, on one broker: what they were sent, and what they answer."""

    def __init__(self) -> None:
        self.known = {A: 1, B: 1}
        self.existing = {A, B}
        # For each request the errors by partition; None for a connection that breaks.
        self.answers: list[dict[TopicPartition, ErrorCode | None] | None] = []
        self.received: list[tuple[int, int, bool, int, list[TopicPartition]]] = []
        self.times: list[float] = []
        self.held: asyncio.Event | None = None

    def leader(self, tp: TopicPartition) -> int | None:
        return self.known.get(tp)

    async def exists(self, tp: TopicPartition) -> bool:
        return tp in self.existing

    async def connect(self, broker_id: int) -> Any:
        return self

    async def request(
        self, request: WriteTxnMarkersRequest, version: int
    ) -> WriteTxnMarkersResponse:
        assert version == MARKERS_VERSION, "what this inter-broker protocol sends"
        self.times.append(asyncio.get_running_loop().time())
        if self.held is not None:
            await self.held.wait()
        errors = self.answers.pop(0) if self.answers else {}
        if errors is None:
            raise ConnectionError("gone")
        results = []
        for marker in request.markers:
            tps = [
                TopicPartition(topic.name, index)
                for topic in marker.topics
                for index in topic.partition_indexes
            ]
            self.received.append(
                (
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.transaction_result,
                    marker.coordinator_epoch,
                    tps,
                )
            )
            results.append(
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=tp.topic,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=tp.partition, error_code=error
                                )
                            ],
                        )
                        for tp in tps
                        if (error := errors.get(tp, ErrorCode.NONE)) is not None
                    ],
                )
            )
        return WriteTxnMarkersResponse(markers=results)


class World:
    def __init__(self, **config: Any) -> None:
        self.loop = SimLoop()
        self.log = MemoryLog()
        self.leaders = Leaders()
        self.config = TransactionConfig(**config)
        self.producer_ids = count(1000)
        self.transactions = self.coordinator()

    def coordinator(self) -> TransactionCoordinator:
        async def take() -> int:
            await asyncio.sleep(0)
            return next(self.producer_ids)

        return TransactionCoordinator(
            self.log,
            self.config,
            MarkerSender(self.leaders, self.leaders.connect, lambda: None, MARKERS_VERSION),
            take_producer_id=take,
            clock=lambda: NOW + int(self.loop.time() * 1000),
        )

    def run(self, story: Callable[["World"], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            await self.elect(3)
            self.transactions.start()
            await story(self)
            self.transactions.close()
            await asyncio.sleep(0)

        self.loop.run_until_complete(whole())
        assert self.loop.failures == []
        self.loop.close()

    async def elect(self, epoch: int) -> None:
        self.transactions.on_elected(0, epoch)
        await asyncio.sleep(0.001)

    async def fail_over(self, epoch: int) -> None:
        """Another coordinator, which knows only the log."""
        self.transactions.close()
        self.transactions = self.coordinator()
        await self.elect(epoch)

    async def init(self, id: str = "id", **more: Any) -> tuple[int, int]:
        return await self.transactions.init_producer_id(id, TIMEOUT, **more)

    async def begin(self, *tps: TopicPartition) -> tuple[int, int]:
        producer = await self.init()
        await self.transactions.add_partitions("id", *producer, tps or (A, B))
        return producer

    @property
    def transaction(self) -> Transaction:
        return self.transactions.describe("id")


async def error_of(awaitable: Coroutine[Any, Any, Any]) -> ErrorCode:
    try:
        await awaitable
    except KafkaError as error:
        return error.error
    return ErrorCode.NONE
