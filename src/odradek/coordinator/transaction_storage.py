"""Transactional ids as records of `__transaction_state`: written and read back.

docs/spec/transactions.md sections 1 and 2.4. A record that cannot be read ends the load, and the
partition stays loading: with a part of its ids forgotten, the coordinator would give out epochs
that fence no one.
"""

import asyncio
from collections.abc import Callable, Iterable

from odradek.coordinator.state_topic import Appended, StateLog, StatePartitions
from odradek.coordinator.transaction import Transaction, TransactionChange
from odradek.coordinator.transaction_states import TransactionState
from odradek.wire.batch import scan
from odradek.wire.errors import DecodeError
from odradek.wire.messages.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from odradek.wire.records import Record, encode_batch, iterate_records
from odradek.wire.topics import TopicPartition, numbers_by_topic

__all__ = ["TRANSACTIONS_TOPIC", "TransactionReplay", "TransactionStorage"]

TRANSACTIONS_TOPIC = "__transaction_state"
KEY_VERSION = 0
VALUE_VERSION = 0
VALUE_VERSION_MAX = 1
_S = TransactionState


class TransactionStorage(StatePartitions[Transaction]):
    """The transactional ids of the partitions this broker leads."""

    def __init__(self, state_log: StateLog, clock: Callable[[], int]) -> None:
        self._clock = clock
        super().__init__(
            TRANSACTIONS_TOPIC, state_log, lambda _: TransactionReplay(), gives_up_unreadable=False
        )

    def store(
        self, transactional_id: str, transition: TransactionChange
    ) -> "asyncio.Future[Appended]":
        """Waits no longer for its replicas than the transaction may last."""
        record = Record(-1, self._clock(), _key(transactional_id), encode_value(transition))
        return self._log.append(
            self.partition_for(transactional_id),
            encode_batch([record]),
            transition.timeout_ms,
        )

    def store_tombstones(
        self, partition: int, ids: Iterable[str], timeout_ms: int
    ) -> "asyncio.Future[Appended]":
        now = self._clock()
        batch = encode_batch([Record(-1, now, _key(id), None) for id in ids])
        return self._log.append(partition, batch, timeout_ms)


class TransactionReplay:
    """Makes transactions out of the records of a partition: the last one for each id counts."""

    def __init__(self) -> None:
        self._found: dict[str, Transaction] = {}

    def take(self, piece: bytes) -> None:
        for header in scan(piece):
            for record in iterate_records(piece, header) if not header.is_control else ():
                try:
                    self._take(record)
                except DecodeError as error:
                    raise DecodeError(f"record at offset {record.offset}: {error}") from None

    def _take(self, record: Record) -> None:
        if record.key is None:
            raise DecodeError("no key")
        if int.from_bytes(record.key[:2], "big") != KEY_VERSION:
            return  # written by a later version, about something that is no transactional id
        transactional_id = TransactionLogKey.decode(record.key[2:], KEY_VERSION).transactional_id
        if record.value is None:
            self._found.pop(transactional_id, None)
        else:
            self._found[transactional_id] = decode_value(transactional_id, record.value)

    def entries(self) -> dict[str, Transaction]:
        return self._found


def _key(transactional_id: str) -> bytes:
    encoded = TransactionLogKey(transactional_id=transactional_id).encode(KEY_VERSION)
    return KEY_VERSION.to_bytes(2, "big") + encoded


def encode_value(transition: TransactionChange) -> bytes:
    assert transition.state is not _S.EMPTY or not transition.partitions
    partitions: list[PartitionsSchema] | None = None
    if transition.state is not _S.EMPTY:
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=ids)
            for topic, ids in numbers_by_topic(sorted(transition.partitions)).items()
        ]
    value = TransactionLogValue(
        producer_id=transition.producer_id,
        producer_epoch=transition.epoch,
        transaction_timeout_ms=transition.timeout_ms,
        transaction_status=transition.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transition.updated_ms,
        transaction_start_timestamp_ms=transition.started_ms,
    )
    return VALUE_VERSION.to_bytes(2, "big") + bytes(value.encode(VALUE_VERSION))


def decode_value(transactional_id: str, data: bytes) -> Transaction:
    version = int.from_bytes(data[:2], "big")
    if version > VALUE_VERSION_MAX:
        raise DecodeError(f"value of unknown version {version}")
    value = TransactionLogValue.decode(data[2:], version)
    try:
        state = _S(value.transaction_status)
    except ValueError:
        raise DecodeError(f"unknown status {value.transaction_status}") from None
    if state in (_S.DEAD, _S.PREPARE_EPOCH_FENCE):
        raise DecodeError(f"status {state.label}, which is never written")
    if value.transaction_partitions is None and state is not _S.EMPTY:
        raise DecodeError(f"status {state.label} without partitions")
    return Transaction(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        state,
        frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        value.transaction_last_update_timestamp_ms,
        value.transaction_start_timestamp_ms,
        is_replicated=False,
    )
