"""Markers on their way: how the outcome of a transaction reaches the leaders of its partitions.

docs/spec/transactions.md section 2.10. Every partition of a transaction has a delivery of its own,
which looks its leader up, hands the marker to the channel of that broker and repeats both until the
leader has acknowledged it. A channel has one WriteTxnMarkers in flight and puts all that has
gathered meanwhile into the next. Nothing here survives a crash: the next coordinator finds the
decided transaction in the log and sends all its markers again, which a leader may append twice.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from odradek.wire.connection import Connection
from odradek.wire.errors import DecodeError, ErrorCode, KafkaError, error_code
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.wire.topics import TopicPartition

__all__ = ["Cluster", "Fenced", "Marker", "MarkerSender"]

logger = logging.getLogger(__name__)

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 1.0

_DONE = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class Marker(NamedTuple):
    """The outcome of one producer's transaction, as its coordinator decided it."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


class Fenced(Exception):
    """A leader knows a newer epoch of the producer or of the coordinator."""


class Cluster(Protocol):
    """What the sender has to know of the cluster."""

    def leader(self, tp: TopicPartition) -> int | None:
        """The broker that leads a partition, if that is known and it is alive."""

    async def exists(self, tp: TopicPartition) -> bool:
        """Whether the partition still exists. In doubt it does."""


class MarkerSender:
    """Sends markers until they are acknowledged."""

    def __init__(
        self,
        cluster: Cluster,
        connect: Callable[[int], Awaitable[Connection]],
        disconnect: Callable[[], None],
        version: int,
    ) -> None:
        """`version` of WriteTxnMarkers is the inter-broker protocol's: it is not negotiated."""
        self._cluster = cluster
        self._version = version
        self._connect = connect
        self._disconnect = disconnect
        self._channels: dict[int, _Channel] = {}
        self._leaderless = 0

    async def send(self, marker: Marker, unmarked: set[TopicPartition]) -> None:
        """Returns when every partition has the marker; each leaves `unmarked` when it has.
        Raises Fenced."""
        fenced: Sequence[BaseException] = ()
        try:
            async with asyncio.TaskGroup() as deliveries:
                for tp in sorted(unmarked):
                    deliveries.create_task(self._deliver(marker, tp, unmarked))
        except* Fenced as errors:
            fenced = errors.exceptions
        if fenced:  # raised in there, it would be in a group again before Python 3.11.4
            raise fenced[0]

    async def _deliver(
        self, marker: Marker, tp: TopicPartition, unmarked: set[TopicPartition]
    ) -> None:
        backoff_s = BACKOFF_FIRST_S
        while True:
            leader = self._cluster.leader(tp)
            if leader is not None:
                error = await self._channel(leader).write(marker, tp)
                if error in _DONE:
                    break
                if error in _FENCED:
                    raise Fenced(f"{tp} answers {error.name}")
            elif not await self._cluster.exists(tp):
                logger.info("%s was deleted with a transaction open in it", tp)
                break
            is_leaderless = leader is None
            self._leaderless += is_leaderless
            try:
                await asyncio.sleep(backoff_s)
            finally:
                self._leaderless -= is_leaderless
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
        unmarked.discard(tp)

    def _channel(self, broker_id: int) -> "_Channel":
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = _Channel(broker_id, self._connect, self._version)
        return channel

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._disconnect()

    def statistics(self) -> dict[str, int]:
        return {
            "queued": sum(len(channel) for channel in self._channels.values()),
            "leaderless": self._leaderless,
        }


class _Channel:
    """The markers for one broker."""

    def __init__(
        self, broker_id: int, connect: Callable[[int], Awaitable[Connection]], version: int
    ) -> None:
        self._broker_id = broker_id
        self._version = version
        self._connect = connect
        self._queue: list[tuple[Marker, TopicPartition, asyncio.Future[ErrorCode]]] = []
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._queue)

    async def write(self, marker: Marker, tp: TopicPartition) -> ErrorCode:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[ErrorCode] = loop.create_future()
        self._queue.append((marker, tp, answer))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
        return await answer

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while batch := self._next_batch():
            try:
                connection = await self._connect(self._broker_id)
                response = await connection.request(_request(batch), self._version)
                found = _errors(response)
            except (OSError, TimeoutError, DecodeError, KafkaError) as error:
                logger.info(
                    "transaction markers for broker %d failed, retrying: %s", self._broker_id, error
                )
                found = {}
            for (producer_id, tp), (_, answer) in batch.items():
                if not answer.done():
                    # What is not in the answer is asked again, like what never arrived.
                    answer.set_result(found.get((producer_id, tp), ErrorCode.NETWORK_EXCEPTION))

    def _next_batch(
        self,
    ) -> dict[tuple[int, TopicPartition], tuple[Marker, "asyncio.Future[ErrorCode]"]]:
        """All that is still wanted; of two that a response could not distinguish, only one."""
        batch: dict[tuple[int, TopicPartition], tuple[Marker, asyncio.Future[ErrorCode]]] = {}
        left = []
        for marker, tp, answer in self._queue:
            if answer.done():
                continue
            if (marker.producer_id, tp) in batch:
                left.append((marker, tp, answer))
            else:
                batch[marker.producer_id, tp] = marker, answer
        self._queue = left
        return batch


def _request(
    batch: dict[tuple[int, TopicPartition], tuple[Marker, "asyncio.Future[ErrorCode]"]],
) -> WriteTxnMarkersRequest:
    by_marker: dict[Marker, dict[str, list[int]]] = {}
    for (_, tp), (marker, _) in batch.items():
        by_marker.setdefault(marker, {}).setdefault(tp.topic, []).append(tp.partition)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=partitions)
                    for topic, partitions in topics.items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
            )
            for marker, topics in by_marker.items()
        ]
    )


def _errors(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], ErrorCode]:
    found = {}
    for result in response.markers:
        for topic in result.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                found[result.producer_id, tp] = error_code(partition.error_code)
    return found
