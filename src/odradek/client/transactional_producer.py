"""A producer whose records, and the offsets of what they were made from, count all or nothing.

    async with TransactionalProducer(client, "billing-1") as producer:
        await producer.init_transactions()
        producer.begin()
        await producer.send("invoices", b"...")
        await producer.send_offsets({TopicPartition("orders", 0): 42}, "billing")
        await producer.commit()

`init_transactions` fences every earlier producer of the id and aborts what it left open. A failed
`commit` is repeated or followed by `abort`; after PRODUCER_FENCED or INVALID_PRODUCER_EPOCH there
is another producer of the same id, and this one is at its end. docs/spec/transactions.md.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from odradek.client.client import Client, CoordinatorType
from odradek.client.producer import Identity, Producer, _Batch, _Lane
from odradek.client.retries import RetryBudget
from odradek.wire.batch import TRANSACTIONAL_BIT
from odradek.wire.errors import ErrorCode, KafkaError, error_code
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from odradek.wire.schema import Message, Request
from odradek.wire.topics import TopicPartition, group_by_topic

R = TypeVar("R", bound=Message)

__all__ = ["Membership", "TransactionalProducer"]

TRANSACTION_TIMEOUT_MS = 60_000


class Membership(NamedTuple):
    """Who commits offsets for a group; without one, a producer outside of it (KIP-447)."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class TransactionalProducer(Producer):
    """A producer with a transactional id. One transaction at a time."""

    def __init__(
        self,
        client: Client,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        **options: Any,
    ) -> None:
        """`options` are those of Producer."""
        super().__init__(client, idempotent=True, **options)
        self.batch_attributes = TRANSACTIONAL_BIT
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self._is_open = False
        # The last epoch that the coordinator gave, also after a failed delivery.
        self._granted: Identity | None = None
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()
        # The coordinator has been asked to add something, whether or not it has answered.
        self._may_have_begun = False

    # Transactions

    async def init_transactions(self) -> None:
        """Fence earlier producers of the id, and wait until what they left open is aborted."""
        response = await self._ask(
            InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.transaction_timeout_ms,
            ),
            lambda answer: int(answer.error_code),
        )
        self._identity = Identity(response.producer_id, response.producer_epoch)
        self._granted = self._identity
        self._forget()

    def begin(self) -> None:
        if self._identity is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "call init_transactions first")
        if self._is_open:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "a transaction is open already")
        self._is_open = True

    async def commit(self) -> None:
        """Returns when the outcome is decided for good. Raises if a record was not delivered, or
        the transaction has been aborted meanwhile; then `abort`."""
        await self.flush()
        await self._end(is_commit=True)

    async def abort(self) -> None:
        """Drop everything since `begin`."""
        with contextlib.suppress(OSError, TimeoutError, KafkaError):
            await self.flush()
        if self._identity is None:
            # It is unknown what has arrived: a new epoch begins the numbers again, and aborts.
            await self.init_transactions()
        else:
            await self._end(is_commit=False)

    async def abandon(self) -> None:
        """Drop everything since `begin` and be done with this producer.

        Unlike `abort` after a failed delivery, it takes no new epoch: if another producer of the
        id has begun meanwhile, that one is left alone and this call is fenced."""
        self._identity = self._granted
        if self._is_open:
            await self._end(is_commit=False)

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int],
        group: str,
        member: Membership = Membership(),
        *,
        metadata: str = "",
    ) -> None:
        """Commit a group's offsets as part of the transaction; `metadata` is a note beside them."""
        identity = self._require_open()
        if group not in self._groups:
            self._may_have_begun = True
            await self._ask(
                AddOffsetsToTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.epoch,
                    group_id=group,
                ),
                lambda answer: int(answer.error_code),
            )
            self._groups.add(group)
        topics = group_by_topic(
            (
                tp,
                TxnOffsetCommitRequestPartition(
                    partition_index=tp.partition,
                    committed_offset=offset,
                    committed_metadata=metadata,
                ),
            )
            for tp, offset in offsets.items()
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        response = await self.client.ask_coordinator(group, request, _worst_partition)
        _check(_worst_partition(response), f"offsets of group {group!r}")

    async def _end(self, is_commit: bool) -> None:
        identity = self._require_open()
        if self._may_have_begun:
            try:
                await self._ask(
                    EndTxnRequest(
                        transactional_id=self.transactional_id,
                        producer_id=identity.producer_id,
                        producer_epoch=identity.epoch,
                        committed=is_commit,
                    ),
                    lambda answer: int(answer.error_code),
                )
            except KafkaError as error:
                had_begun = self._added or self._groups
                if had_begun or error.error is not ErrorCode.INVALID_TXN_STATE:
                    raise
        self._forget()

    def _require_open(self) -> Identity:
        if not self._is_open or self._identity is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "there is no open transaction")
        return self._identity

    def _forget(self) -> None:
        self._is_open = self._may_have_begun = False
        self._added.clear()
        self._groups.clear()

    async def _ask(self, message: Request[R], error_of: Callable[[R], int]) -> R:
        response = await self.client.ask_coordinator(
            self.transactional_id, message, error_of, CoordinatorType.TRANSACTION
        )
        _check(error_of(response), f"transactional id {self.transactional_id!r}")
        return response

    # What a producer does otherwise in a transaction

    async def _deliver(self, lane: _Lane, train: list[_Batch]) -> None:
        identity = self._require_open()
        tp = lane.partition
        if tp not in self._added:
            self._may_have_begun = True
            response = await self._ask(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.transactional_id,
                    v3_and_below_producer_id=identity.producer_id,
                    v3_and_below_producer_epoch=identity.epoch,
                    v3_and_below_topics=[
                        AddPartitionsToTxnTopic(name=tp.topic, partitions=[tp.partition])
                    ],
                ),
                _error_of_addition,
            )
            _check(_error_of_addition(response), f"partition {tp}")
            self._added.add(tp)
        await super()._deliver(lane, train)

    async def _identify(self, budget: RetryBudget) -> Identity:
        return self._require_open()

    def _request(self, partition: TopicPartition, encoded: bytearray) -> ProduceRequest:
        request = super()._request(partition, encoded)
        request.transactional_id = self.transactional_id
        return request


def _error_of_addition(response: AddPartitionsToTxnResponse) -> int:
    topics = response.results_by_topic_v3_and_below
    return int(topics[0].results_by_partition[0].partition_error_code)


def _worst_partition(response: TxnOffsetCommitResponse) -> int:
    errors = [part.error_code for topic in response.topics for part in topic.partitions]
    return next((int(error) for error in errors if error), 0)


def _check(error: int, about: str) -> None:
    if error:
        raise KafkaError(error_code(error), about)
