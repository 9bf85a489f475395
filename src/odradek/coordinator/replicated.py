"""The offsets topic as this broker's replicas hold it: what the coordinator's memory stands on."""

import asyncio
from collections.abc import Callable, Iterator

from odradek.coordinator.coordinator import GroupCoordinator
from odradek.coordinator.storage import OFFSETS_TOPIC
from odradek.log.producers import Origin
from odradek.replica.leader.delayed_produce import ProduceResult
from odradek.replica.manager import ReplicaManager
from odradek.replica.partition import Partition
from odradek.wire.batch import scan
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

ALL_REPLICAS = -1
# What is read is taken in at once, in about ten milliseconds: a broker that has just won partitions
# of the offsets topic has other work to do too. Kafka's offsets.load.buffer.size is 5 MiB.
READ_BYTES = 128 * 1024


class ReplicatedOffsets:
    """`storage.OffsetsLog` on a replica manager."""

    def __init__(self, replicas: ReplicaManager, partition_count: Callable[[], int]) -> None:
        self._replicas = replicas
        self.partition_count = partition_count

    def append(
        self, partition: int, batch: bytearray, timeout_ms: int
    ) -> "asyncio.Future[ErrorCode]":
        of = TopicPartition(OFFSETS_TOPIC, partition)
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        produced = self._replicas.append(
            ALL_REPLICAS, timeout_ms, {of: batch}, origin=Origin.COORDINATOR
        )
        if isinstance(produced, dict):
            answer.set_result(produced[of].error)
            return answer

        def done(future: "asyncio.Future[dict[TopicPartition, ProduceResult]]") -> None:
            if not answer.done():
                answer.set_result(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER
                    if future.cancelled()
                    else future.result()[of].error
                )

        produced.add_done_callback(done)
        return answer

    def read(self, partition: int) -> Iterator[bytes]:
        log = self._replicas.partitions[TopicPartition(OFFSETS_TOPIC, partition)].local_log
        offset = log.start_offset
        end = log.end_offset
        while offset < end:
            records = log.read(offset, READ_BYTES, end_offset=end).records
            following = max((header.next_offset for header in scan(records)), default=offset)
            if following <= offset:
                return
            yield records
            offset = following


def follow_leadership(coordinator: GroupCoordinator, replicas: ReplicaManager) -> None:
    """Coordinate the groups of each partition of the offsets topic while this broker leads it, and
    forget the offsets of topics that are deleted."""

    def changed(led: list[Partition], resigned: list[Partition]) -> None:
        for partition in resigned:
            if partition.tp.topic == OFFSETS_TOPIC:
                coordinator.on_resigned(partition.tp.partition)
        for partition in led:
            if partition.tp.topic == OFFSETS_TOPIC:
                number = partition.tp.partition
                coordinator.on_elected(number, partition.leader_epoch)

    replicas.roles.listeners.append(changed)
    replicas.control_requests.deletion_listeners.append(coordinator.offsets.forget_topic_partitions)
