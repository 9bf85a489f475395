"""Transactions from outside: list, describe, find those that hang, and abort them."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from odradek.client.client import Client, CoordinatorType
from odradek.wire.errors import ErrorCode, KafkaError, error_code
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.list_transactions import (
    ListTransactionsRequest,
)
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.wire.topics import TopicPartition, numbers_by_topic

__all__ = ["ListedTransaction", "OpenTransaction", "TransactionDescription", "Transactions"]


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class TransactionDescription(NamedTuple):
    """A transactional id as its coordinator knows it."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition's log."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


class Transactions:
    """Calls about transactions on a client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def list_transactions(
        self, producer_ids: Collection[int] = ()
    ) -> list[ListedTransaction]:
        """Every transactional id, asked from every broker. Raises if one cannot answer."""
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=list(producer_ids))
        found = await self.client.ask_every_broker(
            request, lambda answer: answer.error_code, "transactions"
        )
        return sorted(
            ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state, node)
            for node, response in found.items()
            for each in response.transaction_states
        )

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """One id; TRANSACTIONAL_ID_NOT_FOUND if it is unknown."""
        response = await self.client.ask_coordinator(
            transactional_id,
            DescribeTransactionsRequest(transactional_ids=[transactional_id]),
            lambda answer: answer.transaction_states[0].error_code,
            CoordinatorType.TRANSACTION,
        )
        found = response.transaction_states[0]
        if found.error_code:
            raise KafkaError(error_code(found.error_code), f"transactional id {transactional_id!r}")
        return TransactionDescription(
            found.transactional_id,
            found.transaction_state,
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms,
            tuple(
                TopicPartition(topic.topic, index)
                for topic in found.topics
                for index in topic.partitions
            ),
        )

    async def open_in(self, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
        """The transactions that are open in the logs of these partitions."""

        def build(some: dict[TopicPartition, None]) -> DescribeProducersRequest:
            topics = numbers_by_topic(some)
            return DescribeProducersRequest(
                topics=[TopicRequest(name=n, partition_indexes=i) for n, i in topics.items()]
            )

        def read(
            response: DescribeProducersResponse,
        ) -> Iterator[tuple[TopicPartition, int, list[OpenTransaction]]]:
            for topic in response.topics:
                for part in topic.partitions:
                    tp = TopicPartition(topic.name, part.partition_index)
                    opened = [
                        OpenTransaction(
                            tp,
                            each.producer_id,
                            each.producer_epoch,
                            each.coordinator_epoch,
                            each.current_txn_start_offset,
                            each.last_timestamp,
                        )
                        for each in part.active_producers
                        if each.current_txn_start_offset >= 0
                    ]
                    yield tp, part.error_code, opened

        found = await self.client.ask_leaders(dict.fromkeys(partitions), build, read)
        return sorted(each for opened in found.values() for each in opened)

    async def find_hanging(
        self, partitions: Collection[TopicPartition], before_ms: int
    ) -> list[OpenTransaction]:
        """Those open in a log and not heard of since `before_ms`, of which no coordinator knows:
        nothing will ever end them, and read_committed readers wait for them."""
        late = [
            each for each in await self.open_in(partitions) if each.last_timestamp_ms < before_ms
        ]
        if not late:
            return []
        listed = await self.list_transactions({each.producer_id for each in late})
        known: set[tuple[int, TopicPartition]] = set()
        for each in listed:
            try:
                described = await self.describe(each.transactional_id)
            except KafkaError as error:
                if error.error is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
            else:
                known.update((described.producer_id, tp) for tp in described.partitions)
        return [each for each in late if (each.producer_id, each.partition) not in known]

    async def abort(self, transaction: OpenTransaction) -> None:
        """Write an abort marker for a transaction that hangs; its producer is not fenced."""
        tp = transaction.partition
        topic = WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.producer_epoch,
                    transaction_result=False,
                    topics=[topic],
                    coordinator_epoch=max(0, transaction.coordinator_epoch),
                )
            ]
        )
        response = await self.client.ask(await self.client.leader(tp), request)
        error = response.markers[0].topics[0].partitions[0].error_code
        if error:
            raise KafkaError(error_code(error), f"partition {tp}")
