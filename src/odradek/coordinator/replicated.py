"""State topics as this broker's replicas hold them: what the coordinators' memory stands on."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

from odradek.coordinator.state_topic import Appended
from odradek.log.producers import Origin
from odradek.replica.manager import Produced, ReplicaManager
from odradek.replica.partition import Partition
from odradek.wire.batch import scan
from odradek.wire.errors import ErrorCode
from odradek.wire.reply import Later, Now
from odradek.wire.topics import TopicPartition

ALL_REPLICAS = -1
# What is read is applied at once, in about ten milliseconds: a broker that was just elected for
# partitions of a state topic has other work to do too. Kafka's load.buffer.size is 5 MiB.
READ_BYTES = 128 * 1024


class ReplicatedState:
    """`state_topic.StateLog` on a replica manager."""

    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        partition_count: Callable[[], int],
        check_partition_count: Callable[[], Awaitable[None]],
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self.partition_count = partition_count
        self._check_partition_count = check_partition_count

    async def check_partition_count(self) -> None:
        await self._check_partition_count()

    def append(
        self, partition: int, batch: bytearray, timeout_ms: int
    ) -> "asyncio.Future[Appended]":
        tp = TopicPartition(self._topic, partition)
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        reply = self._replicas.append(
            ALL_REPLICAS, timeout_ms, {tp: batch}, origin=Origin.COORDINATOR
        ).map(lambda found: Appended(found[tp].error, found[tp].base_offset))
        if isinstance(reply, Now):
            answer.set_result(reply.value)
            return answer
        assert isinstance(reply, Later)

        def done(future: "asyncio.Future[Produced]") -> None:
            if answer.done():
                return
            if future.cancelled():
                answer.set_result(Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            else:
                answer.set_result(reply.finish(future.result()))

        reply.future.add_done_callback(done)
        return answer

    def read(self, partition: int) -> Iterator[bytes]:
        log = self._replicas.partitions[TopicPartition(self._topic, partition)].local_log
        offset = log.start_offset
        end = log.end_offset
        while offset < end:
            records = log.read(offset, READ_BYTES, end_offset=end).records
            following = max((header.next_offset for header in scan(records)), default=offset)
            if following <= offset:
                return
            yield records
            offset = following


class Coordinator(Protocol):
    """What coordinates the names in a state topic."""

    def on_elected(self, partition: int, epoch: int) -> None:
        """This broker leads a partition of the topic."""

    def on_resigned(self, partition: int, epoch: int | None = None) -> None:
        """It leads it no longer."""


def follow_leadership(coordinator: Coordinator, topic: str, replicas: ReplicaManager) -> None:
    """Coordinate what is in each partition of a state topic while this broker leads it."""

    def changed(led: list[Partition], resigned: list[Partition]) -> None:
        for partition in resigned:
            if partition.tp.topic == topic:
                coordinator.on_resigned(partition.tp.partition)
        for partition in led:
            if partition.tp.topic == topic:
                coordinator.on_elected(partition.tp.partition, partition.leader_epoch)

    replicas.roles.listeners.append(changed)
