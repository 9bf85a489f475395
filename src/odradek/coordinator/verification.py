"""Asking a transaction's coordinator, as a leader does before the first batch of a transaction.

docs/spec/transactions.md section 2.7 (KIP-890). Without it, a batch that was delayed past the end
of its transaction opens another one in the log that no coordinator knows of, and none ever ends:
every read_committed reader of the partition stops there.

A coordinator of Apache Kafka before 3.6 cannot be asked: with it, batches are appended unverified.
"""

import logging
from collections.abc import Awaitable, Callable, Collection

from odradek.wire.api import ApiKey
from odradek.wire.connection import Connection
from odradek.wire.errors import DecodeError, ErrorCode, KafkaError, error_code
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.negotiation import common_version, served_versions
from odradek.wire.topics import TopicPartition, numbers_by_topic

__all__ = ["Verification"]

logger = logging.getLogger(__name__)

# The first version that asks and adds nothing.
VERSION = 4


class Verification:
    """Questions to coordinators, and how many there were."""

    def __init__(
        self,
        is_enabled: Callable[[], bool],
        coordinator: Callable[[str], int | None],
        connect: Callable[[int], Awaitable[Connection]],
        close: Callable[[], None],
    ) -> None:
        """`coordinator` finds the broker that answers for a transactional id, if it is known."""
        self._is_enabled = is_enabled
        self._coordinator = coordinator
        self._connect = connect
        self.close = close
        self.failures = 0
        # The connection to each coordinator, and whether that can be asked.
        self._known: dict[int, tuple[Connection, bool]] = {}

    @property
    def is_enabled(self) -> bool:
        return self._is_enabled()

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """What the coordinator says of each partition, NONE if it is in the open transaction;
        NETWORK_EXCEPTION where it could not be asked."""
        found = await self._ask(transactional_id, producer_id, epoch, partitions)
        self.failures += sum(error is not ErrorCode.NONE for error in found.values())
        return found

    async def _ask(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        broker_id = self._coordinator(transactional_id)
        if broker_id is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    verify_only=True,
                    topics=[
                        AddPartitionsToTxnTopic(name=name, partitions=indexes)
                        for name, indexes in numbers_by_topic(partitions).items()
                    ],
                )
            ]
        )
        try:
            connection = await self._connect(broker_id)
            if not await self._can_verify(broker_id, connection):
                return dict.fromkeys(partitions, ErrorCode.NONE)
            response = await connection.request(request, VERSION)
        except (OSError, TimeoutError, DecodeError, KafkaError) as error:
            logger.info(
                "verification of transactional id %s at broker %d failed: %s",
                transactional_id,
                broker_id,
                error,
            )
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        if response.error_code:
            return dict.fromkeys(partitions, error_code(response.error_code))
        # A partition that is not in the answer counts as not verified.
        found = dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        for result in response.results_by_transaction:
            for topic in result.topic_results:
                for one in topic.results_by_partition:
                    tp = TopicPartition(topic.name, one.partition_index)
                    if result.transactional_id == transactional_id and tp in found:
                        found[tp] = error_code(one.partition_error_code)
        return found

    async def _can_verify(self, broker_id: int, connection: Connection) -> bool:
        known = self._known.get(broker_id)
        if known is not None and known[0] is connection:
            return known[1]
        served = await served_versions(connection)
        version = common_version(
            served, ApiKey.ADD_PARTITIONS_TO_TXN, ours_max=VERSION, peer=connection.peer
        )
        if version < VERSION:
            logger.warning(
                "broker %d is too old to verify transactions (AddPartitionsToTxn v%d): a batch that"
                " is delayed past the end of its transaction can leave another one open",
                *(broker_id, version),
            )
        self._known[broker_id] = connection, version == VERSION
        return version == VERSION
