"""What compaction keeps: decisions over batches and records, no files.

docs/spec/controller-and-replication.md section 6.

Compaction keeps, of every key, the newest record; that is the whole idea. The rest is what makes
it safe to keep less:

- a tombstone (null value) must be seen by every consumer before it goes. The first cleaning that
  meets it stamps its batch with a delete horizon, `delete.retention.ms` from then (KIP-534); it
  goes when that has passed;
- records of an aborted transaction go; the marker that aborted it stays until they have, and then
  until a delete horizon of its own;
- the last batch of a live producer stays even when empty, for its sequence and epoch are what
  recognise a repeat after the state was rebuilt from the log;
- a batch that loses records keeps its offsets, its producer fields and its leader epoch.
"""

import heapq
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import NamedTuple

from odradek.log.indexes import AbortedTransaction
from odradek.log.producers import NONE, ProducerState
from odradek.wire.batch import (
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    OVERHEAD_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    header_at,
    set_crc,
)
from odradek.wire.records import (
    NO_TIMESTAMP,
    ControlType,
    Record,
    decode_transaction_end,
    encode_batch,
    iterate_records,
)

KEY_BYTES_MAX = 16
# What one entry takes: a short key, an integer, and their share of the dictionary.
ENTRY_BYTES = 200


class NewestOffsets:
    """The newest offset of each key in the dirty part of a log, as far as memory allows.

    Keys beyond a few bytes are remembered by a hash of a length that no key itself has."""

    __slots__ = ("_offsets", "capacity", "covered_to")

    def __init__(self, memory_bytes: int) -> None:
        self.capacity = max(1, memory_bytes // ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}
        # Everything below this offset has been looked at.
        self.covered_to = 0

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, records: Iterable[Record], start_offset: int) -> bool:
        """Take a batch's records from `start_offset` on into account; False if there is no room."""
        offsets = self._offsets
        for record in records:
            if record.key is not None and record.offset >= start_offset:
                key = _short(record.key)
                if len(offsets) >= self.capacity and key not in offsets:
                    return False
                offsets[key] = record.offset
        return True

    def superseded(self, key: bytes, offset: int) -> bool:
        return offset < self._offsets.get(_short(key), -1)


def _short(key: bytes) -> bytes:
    if len(key) <= KEY_BYTES_MAX:
        return key
    return blake2b(key, digest_size=KEY_BYTES_MAX + 1).digest()


class TransactionTracker:
    """Which transaction each batch belongs to, while a log is read from front to back."""

    __slots__ = ("_aborted", "_committing", "_pending", "retained")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # Aborted transactions that have not begun yet, by their first offset.
        self._pending = [(transaction.first_offset, transaction) for transaction in aborted]
        heapq.heapify(self._pending)
        # Producers inside an aborted transaction, with whether any batch of it was met.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        # Producers that have written in a transaction that will be committed.
        self._committing: set[int] = set()
        # Aborted transactions of which something is left: the cleaned segment's index.
        self.retained: list[AbortedTransaction] = []

    def on_data(self, header: BatchHeader) -> bool:
        """Whether the batch is part of an aborted transaction."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        inside = self._aborted.get(header.producer_id)
        if inside is None:
            self._committing.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (inside[0], True)
        return True

    def on_control(self, buffer: Buffer, header: BatchHeader) -> bool:
        """Whether the marker may go: nothing of its transaction was met before it."""
        self._advance(header.last_offset)
        end = decode_transaction_end(buffer, header)
        if end is None:
            return header.record_count == 0
        if end.type is ControlType.COMMIT:
            met = header.producer_id in self._committing
            self._committing.discard(header.producer_id)
            return not met
        transaction, met = self._aborted.pop(header.producer_id, (None, False))
        if transaction is not None and met:
            self.retained.append(transaction)
            return False
        return True

    def _advance(self, offset: int) -> None:
        while self._pending and self._pending[0][0] <= offset:
            transaction = heapq.heappop(self._pending)[1]
            self._aborted.setdefault(transaction.producer_id, (transaction, False))


class Cleaned(NamedTuple):
    """One batch after cleaning: its bytes, or None if nothing of it stays."""

    data: Buffer | None
    records_read: int
    records_kept: int


class BatchCleaner:
    """Decides for one batch after another, in the order of the log."""

    def __init__(
        self,
        newest: NewestOffsets,
        transactions: TransactionTracker,
        is_last_of_producer: Callable[[BatchHeader], bool],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._newest = newest
        self._transactions = transactions
        self._is_last_of_producer = is_last_of_producer
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms

    def clean(self, buffer: Buffer, header: BatchHeader) -> Cleaned:
        horizon = header.delete_horizon_ms
        marker_is_idle = False
        if header.is_control:
            marker_is_idle = self._transactions.on_control(buffer, header)
            discard = marker_is_idle and horizon is not None and horizon <= self._now_ms
            discard = discard or header.record_count == 0
        else:
            discard = self._transactions.on_data(header)
        count = header.record_count
        if discard:
            return Cleaned(self._remains(header), count, 0)

        # One by one: what goes, which may be nearly all of it, is never held together.
        kept = [
            record
            for record in iterate_records(buffer, header)
            if header.is_control or self._keeps(record, horizon)
        ]
        if not kept:
            return Cleaned(self._remains(header), count, 0)
        stamps_horizon = horizon is None and (
            marker_is_idle or any(record.value is None for record in kept)
        )
        if len(kept) == count and not stamps_horizon:
            with memoryview(buffer) as view:
                return Cleaned(bytes(view[header.position : header.end_position]), count, count)
        if stamps_horizon:
            horizon = self._now_ms + self._delete_retention_ms
        return Cleaned(_rebuilt(header, kept, horizon), count, len(kept))

    def _keeps(self, record: Record, horizon: int | None) -> bool:
        if record.offset >= self._newest.covered_to:
            return True
        if record.key is None or self._newest.superseded(record.key, record.offset):
            return False
        return record.value is not None or horizon is None or self._now_ms < horizon

    def _remains(self, header: BatchHeader) -> bytes | None:
        """What is left of a batch without records: a bare header, if it is a producer's last."""
        if header.has_producer_id and self._is_last_of_producer(header):
            return _emptied(header)
        return None


def last_batch_of(producers: Iterable[tuple[int, ProducerState]]) -> Callable[[BatchHeader], bool]:
    """Finds the batches without which the state of live producers could not be rebuilt."""
    last = {pid: (state.last_offset, state.epoch) for pid, state in producers}

    def is_last(header: BatchHeader) -> bool:
        known = last.get(header.producer_id)
        if known is None:
            return False
        last_offset, epoch = known
        if last_offset != NONE:
            return header.last_offset == last_offset
        # Nothing but a marker is left of the producer: it holds the epoch that fences zombies.
        return header.is_control and header.producer_epoch == epoch

    return is_last


def _rebuilt(header: BatchHeader, records: list[Record], horizon: int | None) -> bytearray:
    return encode_batch(
        records,
        base_offset=header.base_offset,
        codec=header.codec,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        timestamp_type=header.timestamp_type,
        append_time_ms=header.max_timestamp,
        last_offset_delta=header.last_offset_delta,
        delete_horizon_ms=horizon,
    )


def _emptied(header: BatchHeader) -> bytes:
    batch = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        HEADER_BYTES - OVERHEAD_BYTES,
        header.leader_epoch,
        MAGIC,
        0,
        header.attributes & (TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT),
        header.last_offset_delta,
        NO_TIMESTAMP,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        0,
    )
    set_crc(batch, header_at(batch))
    return bytes(batch)
