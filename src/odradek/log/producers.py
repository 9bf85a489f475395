"""What a log remembers of each producer: enough to refuse a gap, recognise a repeat and know which
transactions are open. docs/spec/controller-and-replication.md section 6; KIP-98, KIP-360.

Rules
1. A producer's state is a value; a batch gives the next value. An append first gathers the new
   values in a `ProducersUpdate`, which may raise, and applies them only once the bytes are written.
2. Sequences are checked for what a client sends, epochs for whatever a leader appends, nothing for
   what was replicated: the leader has checked it.
3. The state is only ever a summary of the log up to `end_offset`. A snapshot file holds it at one
   offset, and the log replayed from there gives it again; a damaged snapshot is simply dropped.
"""

import logging
from collections.abc import Iterable, Iterator
from enum import Enum
from struct import Struct
from typing import NamedTuple

from odradek.log.disk import Disk
from odradek.log.indexes import AbortedTransaction
from odradek.wire.batch import SEQUENCE_MODULUS, BatchHeader
from odradek.wire.crc32c import crc32c
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import ControlType, TransactionEnd

logger = logging.getLogger(__name__)

BATCHES_REMEMBERED = 5
EXPIRATION_MS_DEFAULT = 86_400_000
NONE = -1

SNAPSHOT_VERSION = 1
SNAPSHOT_SUFFIX = ".snapshot"
_SNAPSHOT_HEADER = Struct(">hIi")
_SNAPSHOT_CRC_FROM = 6
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
# first offset of the open transaction
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
assert _SNAPSHOT_ENTRY.size == 46


class Origin(Enum):
    """Who appends, which says what must be checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class CorruptSnapshot(Exception):
    """A producer snapshot that cannot be read."""


class SequencedBatch(NamedTuple):
    """One batch a producer has appended."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) % SEQUENCE_MODULUS

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerState(NamedTuple):
    """One producer as the log knows it. -1 stands for none."""

    epoch: int = NONE
    coordinator_epoch: int = NONE
    last_timestamp: int = NONE
    transaction_start: int = NONE
    batches: tuple[SequencedBatch, ...] = ()

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NONE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NONE

    def duplicate_of(self, header: BatchHeader) -> SequencedBatch | None:
        """The remembered batch that this one repeats."""
        if header.producer_epoch == self.epoch:
            last_sequence = header.last_sequence
            for batch in self.batches:
                if (
                    batch.last_sequence == last_sequence
                    and batch.first_sequence == header.base_sequence
                ):
                    return batch
        return None


UNKNOWN_PRODUCER = ProducerState()


class Guard:
    """A leader's leave to open a transaction for one producer, while its coordinator is asked.

    It is valid until the producer's next marker: if that comes first, the batch was delayed past
    the end of its transaction. docs/spec/transactions.md section 2.7.
    """

    __slots__ = ("created_ms", "epoch", "sequence")

    def __init__(self, epoch: int, sequence: int, created_ms: int) -> None:
        self.epoch = epoch
        self.sequence = sequence  # the lowest that was seen
        self.created_ms = created_ms


# For a batch whose partition was not asked about, because its transaction was open then.
NO_GUARD = Guard(NONE, NONE, NONE)


class CompletedTransaction(NamedTuple):
    """A transaction that ended at the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


def after_batch(
    state: ProducerState, header: BatchHeader, first_offset: int, origin: Origin
) -> ProducerState:
    """The producer's state once this data batch stands at `first_offset`."""
    producer_id, epoch = header.producer_id, header.producer_epoch
    _check_epoch(state, producer_id, epoch, first_offset, origin)
    if origin is Origin.CLIENT:
        _check_sequence(state, producer_id, epoch, header.base_sequence, first_offset)
    transaction_start = state.transaction_start
    if header.is_transactional:
        if transaction_start == NONE:
            transaction_start = first_offset
    elif transaction_start != NONE and origin is not Origin.REPLICATION:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {producer_id} wrote outside its open transaction at offset {first_offset}",
        )
    delta = header.last_offset_delta
    batch = SequencedBatch(header.last_sequence, first_offset + delta, delta, header.max_timestamp)
    earlier = state.batches[1 - BATCHES_REMEMBERED :] if epoch == state.epoch else ()
    return ProducerState(
        epoch,
        state.coordinator_epoch,
        header.max_timestamp,
        transaction_start,
        (*earlier, batch),
    )


def after_marker(
    state: ProducerState, header: BatchHeader, marker: TransactionEnd, offset: int, origin: Origin
) -> ProducerState:
    """The producer's state once the marker at `offset` has ended its transaction."""
    producer_id, epoch = header.producer_id, header.producer_epoch
    _check_epoch(state, producer_id, epoch, offset, origin)
    if marker.coordinator_epoch < state.coordinator_epoch:
        message = (
            f"marker for producer {producer_id} at offset {offset} has coordinator epoch "
            f"{marker.coordinator_epoch}, which is older than {state.coordinator_epoch}"
        )
        if origin is not Origin.REPLICATION:
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)
        logger.info(message)
    return ProducerState(
        epoch,
        marker.coordinator_epoch,
        marker.timestamp,
        NONE,
        state.batches if epoch == state.epoch else (),
    )


def _check_epoch(
    state: ProducerState, producer_id: int, epoch: int, offset: int, origin: Origin
) -> None:
    if epoch >= state.epoch:
        return
    message = (
        f"producer {producer_id} has epoch {epoch} at offset {offset}, "
        f"which is older than {state.epoch}"
    )
    if origin is not Origin.REPLICATION:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
    logger.warning(message)


def _check_sequence(
    state: ProducerState, producer_id: int, epoch: int, sequence: int, offset: int
) -> None:
    if state.epoch == NONE:
        return  # An unknown producer: its records may have been deleted, so any sequence is right.
    expected = (state.last_sequence + 1) % SEQUENCE_MODULUS if epoch == state.epoch else 0
    if sequence != expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id} epoch {epoch} sent sequence {sequence} at offset {offset}; "
            f"expected {expected}",
        )


class ProducersUpdate:
    """What an append will change, gathered batch by batch before anything is written."""

    __slots__ = ("_known", "completed", "marked", "origin", "started", "states")

    def __init__(self, known: dict[int, ProducerState], origin: Origin) -> None:
        self._known = known
        self.origin = origin
        self.states: dict[int, ProducerState] = {}
        self.started: list[tuple[int, int]] = []
        self.completed: list[CompletedTransaction] = []
        # Every producer that has a marker here, whether or not it ends a transaction.
        self.marked: list[int] = []

    def add(
        self, header: BatchHeader, first_offset: int, marker: TransactionEnd | None = None
    ) -> None:
        """Take one batch into account; raises KafkaError and changes nothing if it is refused.

        A control batch comes with its marker; one without records (all cleaned) has none and says
        nothing."""
        if header.is_control and marker is None:
            return
        producer_id = header.producer_id
        state = self.states.get(producer_id) or self._known.get(producer_id, UNKNOWN_PRODUCER)
        if marker is None:
            after = after_batch(state, header, first_offset, self.origin)
            if state.transaction_start == NONE and after.transaction_start != NONE:
                self.started.append((first_offset, producer_id))
        else:
            after = after_marker(state, header, marker, first_offset, self.origin)
            self.marked.append(producer_id)
            if state.transaction_start != NONE:
                self.completed.append(
                    CompletedTransaction(
                        producer_id,
                        state.transaction_start,
                        first_offset,
                        marker.type is ControlType.ABORT,
                    )
                )
        self.states[producer_id] = after


class ProducerStates:
    """The producers of one log, and their snapshots in its directory."""

    __slots__ = (
        "_disk",
        "_guards",
        "_ongoing",
        "_producers",
        "_snapshot_offset",
        "_snapshots",
        "_unreplicated",
        "directory",
        "end_offset",
        "expiration_ms",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        expiration_ms: int = EXPIRATION_MS_DEFAULT,
        names: Iterable[str] | None = None,
    ) -> None:
        """`names` are those of the files in the directory, for one who has them."""
        self._disk = disk
        self.directory = directory
        self.expiration_ms = expiration_ms
        # The log up to here is summed up in the state.
        self.end_offset = 0
        self._producers: dict[int, ProducerState] = {}
        # Open transactions, first offset to producer, in rising order: they begin at the log's end.
        self._ongoing: dict[int, int] = {}
        # Ended ones whose marker is not below the high watermark yet, first offset to last.
        self._unreplicated: dict[int, int] = {}
        # Producers whose coordinator is being asked about a first batch; in memory only.
        self._guards: dict[int, Guard] = {}
        self._snapshot_offset = 0
        self._snapshots: list[int] = []
        self._find_snapshots(names)

    # Appending

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def is_empty(self) -> bool:
        """Whether no producer is known, nor any transaction that readers must still wait for."""
        return not self._producers and not self._unreplicated

    def get(self, producer_id: int) -> ProducerState | None:
        return self._producers.get(producer_id)

    def items(self) -> Iterator[tuple[int, ProducerState]]:
        return iter(self._producers.items())

    def duplicate_of(self, header: BatchHeader) -> SequencedBatch | None:
        """The batch among the producer's last five that `header` repeats exactly."""
        state = self._producers.get(header.producer_id)
        return None if state is None else state.duplicate_of(header)

    def begin(self, origin: Origin) -> ProducersUpdate:
        return ProducersUpdate(self._producers, origin)

    def apply(self, update: ProducersUpdate) -> list[AbortedTransaction]:
        """Make an update's values the producers' states; returns what the transaction index gets.
        The caller then sets `end_offset`."""
        self._producers.update(update.states)
        self._ongoing.update(update.started)
        if self._guards:
            for producer_id in (*update.marked, *(id for _, id in update.started)):
                self._guards.pop(producer_id, None)
        aborted = []
        for transaction in update.completed:
            if transaction.aborted:
                stable = self._stable_offset_after(transaction)
                aborted.append(AbortedTransaction(*transaction[:3], stable))
            del self._ongoing[transaction.first_offset]
            self._unreplicated[transaction.first_offset] = transaction.last_offset
        return aborted

    def has_open_transaction(self, producer_id: int) -> bool:
        state = self._producers.get(producer_id)
        return state is not None and state.transaction_start != NONE

    def guard_for(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Guard | None:
        """The guard under which a batch may open a transaction once its coordinator says so; None
        if its producer has one open."""
        if self.has_open_transaction(producer_id):
            return None
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = Guard(epoch, sequence, now_ms)
        elif epoch > guard.epoch:
            guard.epoch, guard.sequence = epoch, sequence
        elif epoch == guard.epoch:
            guard.sequence = min(guard.sequence, sequence)
        return guard

    def is_guarded(self, producer_id: int, guard: Guard) -> bool:
        """Whether a transaction may still begin under this guard, or has begun."""
        return self._guards.get(producer_id) is guard or self.has_open_transaction(producer_id)

    def check_guard(self, header: BatchHeader, guard: Guard | None) -> None:
        """Refuse a batch that would open a transaction its coordinator may not know. Without a
        guard, verification is off."""
        if not header.is_transactional or self.has_open_transaction(header.producer_id):
            return
        present = self._guards.get(header.producer_id)
        if guard is not None and present is not guard:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} epoch {header.producer_epoch} has no verified "
                "transaction here",
            )
        if (
            present is not None
            and header.producer_epoch == present.epoch
            and header.base_sequence > present.sequence
        ):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence "
                f"{header.base_sequence} before {present.sequence}",
            )

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is open, or ended but not yet replicated."""
        first = next(iter(self._ongoing), None)
        if self._unreplicated:
            unreplicated = min(self._unreplicated)
            return unreplicated if first is None else min(first, unreplicated)
        return first

    @property
    def oldest_open_timestamp_ms(self) -> int | None:
        """When the producer of the oldest open transaction wrote last; None if none is open."""
        producer_id = next(iter(self._ongoing.values()), None)
        return None if producer_id is None else self._producers[producer_id].last_timestamp

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the first transaction begins that has no marker."""
        return next(iter(self._ongoing), None)

    def _stable_offset_after(self, transaction: CompletedTransaction) -> int:
        """Where the log was stable to at the transaction's marker. A follower applies many batches
        at once, and transactions that begin after the marker are open by now, too."""
        end = transaction.last_offset + 1
        others = (first for first in self._ongoing if first != transaction.first_offset)
        return min(next(others, end), end)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Markers below the high watermark are on every replica: their transactions are stable."""
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= high_watermark
            }

    def on_start_offset(self, start_offset: int) -> None:
        """The log's start has moved up."""
        self.on_high_watermark(start_offset)
        self.end_offset = max(self.end_offset, start_offset)
        self._snapshot_offset = self._snapshots[-1] if self._snapshots else start_offset

    def remove_expired(self, now_ms: int) -> int:
        """Forget the producers that were silent for too long; an open transaction keeps its own."""
        expired = [pid for pid, state in self._producers.items() if self._expired(state, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        for producer_id, guard in list(self._guards.items()):
            if now_ms - guard.created_ms >= self.expiration_ms:
                del self._guards[producer_id]
        return len(expired)

    def _expired(self, state: ProducerState, now_ms: int) -> bool:
        return (
            state.transaction_start == NONE and now_ms - state.last_timestamp >= self.expiration_ms
        )

    # Snapshots

    @property
    def snapshots(self) -> list[int]:
        """The offsets there are snapshots for, rising."""
        return list(self._snapshots)

    def _find_snapshots(self, names: Iterable[str] | None) -> None:
        if names is None:
            names = self._disk.list_dir(self.directory) if self._disk.is_dir(self.directory) else ()
        self._snapshots = sorted(
            int(name.removesuffix(SNAPSHOT_SUFFIX))
            for name in names
            if name.endswith(SNAPSHOT_SUFFIX) and name.removesuffix(SNAPSHOT_SUFFIX).isdecimal()
        )

    def snapshot_path(self, offset: int) -> str:
        return f"{self.directory}/{offset:020d}{SNAPSHOT_SUFFIX}"

    def take_snapshot(self, *, sync: bool = True) -> int | None:
        """Write the state at `end_offset`, unless there is one already. Returns its offset.

        Without `sync` a crash may tear the file; the reader sees that and goes to an older one."""
        offset = self.end_offset
        if offset <= self._snapshot_offset:
            return None
        file = self._disk.open(self.snapshot_path(offset), create=True)
        try:
            file.truncate(0)
            file.append(encode_snapshot(self._producers))
            if sync:
                file.sync()
        finally:
            file.close()
        if offset not in self._snapshots:
            self._snapshots = sorted([*self._snapshots, offset])
        self._snapshot_offset = offset
        return offset

    def reload(self, start_offset: int, end_offset: int, now_ms: int) -> int:
        """Be the state at some offset of a log that reaches from `start_offset` to `end_offset`,
        and say which: the caller replays the log from there. Snapshots outside go."""
        for offset in self.snapshots:
            if offset > end_offset or offset <= start_offset:
                self.delete_snapshot(offset)
        if end_offset == self.end_offset:
            self.on_start_offset(start_offset)
            return self.end_offset
        self._clear()
        while self._snapshots:
            offset = self._snapshots[-1]
            try:
                loaded = decode_snapshot(self._disk.read_bytes(self.snapshot_path(offset)))
            except (CorruptSnapshot, FileNotFoundError) as error:
                logger.warning("dropping %s: %s", self.snapshot_path(offset), error)
                self.delete_snapshot(offset)
                continue
            self._producers = {
                pid: state for pid, state in loaded.items() if not self._expired(state, now_ms)
            }
            self._ongoing = dict(
                sorted(
                    (state.transaction_start, pid)
                    for pid, state in self._producers.items()
                    if state.transaction_start != NONE
                )
            )
            self.end_offset = self._snapshot_offset = offset
            return offset
        self.end_offset = self._snapshot_offset = start_offset
        return start_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._clear()
        for snapshot in self.snapshots:
            self.delete_snapshot(snapshot)
        self._snapshot_offset = 0
        self.end_offset = offset

    def remove_stray_snapshots(self, segment_offsets: Iterable[int]) -> None:
        """Keep the snapshots at the base of a segment, and the newest if it is above them all."""
        bases = set(segment_offsets)
        strays = [offset for offset in self._snapshots if offset not in bases]
        if strays and strays[-1] > max(bases, default=-1):
            strays.pop()
        for offset in strays:
            self.delete_snapshot(offset)

    def delete_snapshot(self, offset: int) -> None:
        if offset in self._snapshots:
            self._snapshots.remove(offset)
            if self._disk.exists(self.snapshot_path(offset)):
                self._disk.remove(self.snapshot_path(offset))

    def _clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._guards.clear()

    def statistics(self) -> dict[str, int]:
        return {
            "producers": len(self._producers),
            "open_transactions": len(self._ongoing),
            "unreplicated_transactions": len(self._unreplicated),
            "snapshots": len(self._snapshots),
            "end_offset": self.end_offset,
        }


def encode_snapshot(producers: dict[int, ProducerState]) -> bytes:
    entries = bytearray()
    for producer_id, state in producers.items():
        delta = state.batches[-1].offset_delta if state.batches else 0
        entries += _SNAPSHOT_ENTRY.pack(
            producer_id,
            state.epoch,
            state.last_sequence,
            state.last_offset,
            delta,
            state.last_timestamp,
            state.coordinator_epoch,
            state.transaction_start,
        )
    data = bytearray(_SNAPSHOT_HEADER.pack(SNAPSHOT_VERSION, 0, len(producers))) + entries
    crc = crc32c(bytes(data[_SNAPSHOT_CRC_FROM:]))
    _SNAPSHOT_HEADER.pack_into(data, 0, SNAPSHOT_VERSION, crc, len(producers))
    return bytes(data)


def decode_snapshot(data: bytes) -> dict[int, ProducerState]:
    if len(data) < _SNAPSHOT_HEADER.size:
        raise CorruptSnapshot(f"only {len(data)} bytes")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"unknown version {version}")
    if crc32c(data[_SNAPSHOT_CRC_FROM:]) != crc:
        raise CorruptSnapshot("checksum is wrong")
    if count * _SNAPSHOT_ENTRY.size != len(data) - _SNAPSHOT_HEADER.size:
        raise CorruptSnapshot(f"{count} entries do not take {len(data)} bytes")
    producers = {}
    for fields in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEADER.size :]):
        pid, epoch, sequence, offset, delta, timestamp, coordinator_epoch, start = fields
        batches = (SequencedBatch(sequence, offset, delta, timestamp),) if offset >= 0 else ()
        producers[pid] = ProducerState(
            epoch, coordinator_epoch, timestamp, max(start, NONE), batches
        )
    return producers
