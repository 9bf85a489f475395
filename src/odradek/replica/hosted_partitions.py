"""The partitions that one broker hosts.

A partition is hosted, offline (its directory failed), or unknown; each has Kafka's error.
"""

from collections.abc import Iterator
from typing import NoReturn

from odradek.replica.cluster_metadata import ClusterMetadata
from odradek.replica.leader.fetch_state import Wakeups
from odradek.replica.leader.role import LeaderContext, LeaderRole
from odradek.replica.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

__all__ = ["HostedPartitions"]


class HostedPartitions(dict[TopicPartition, Partition]):
    """`partitions[tp]` is the hosted partition, or raises the KafkaError to answer with."""

    def __init__(self, cluster: ClusterMetadata, context: LeaderContext, wakeups: Wakeups) -> None:
        super().__init__()
        self._cluster = cluster
        self._context = context
        self._wakeups = wakeups
        self.offline: set[TopicPartition] = set()

    def __missing__(self, tp: TopicPartition) -> NoReturn:
        if tp in self.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is on a failed directory")
        if tp in self._cluster:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._context.broker_id} has no replica of {tp}",
            )
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp} is not known here")

    def host(self, tp: TopicPartition) -> Partition:
        """The partition of this name, new if it is not hosted yet."""
        partition = self.get(tp)
        if partition is None:
            partition = self[tp] = Partition(tp, self._context, self._wakeups)
        return partition

    def led(self) -> Iterator[LeaderRole]:
        """The roles of the partitions that this broker leads."""
        for partition in self.values():
            if isinstance(partition.role, LeaderRole):
                yield partition.role
