"""One transactional id: what is known of it, and what a request would make of it.

docs/spec/transactions.md, sections 2.2, 2.3, 2.6 to 2.8. Every decision is a method that changes
nothing but the pending transition, and raises KafkaError for a refusal; the coordinator writes the
transition to the log and then calls `complete`, or `give_up` if it could not be written.

Epochs. No client ever holds 32767: it is kept for the last fence. A fence raises the epoch in
memory before it is written, so that the old producer is stopped here even if the write fails; if
it does fail, the next fence does not raise it again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek.coordinator.transaction_states import VALID_PREVIOUS, TransactionState
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

__all__ = ["EPOCH_EXHAUSTED", "NO_EPOCH", "NO_PRODUCER_ID", "Transaction", "TransactionChange"]

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
# The largest epoch that a fence may still raise; from here on a new producer id is given.
EPOCH_EXHAUSTED = 32766
EPOCH_MAX = 32767

_S = TransactionState


@dataclass(frozen=True, slots=True)
class TransactionChange:
    """What is written to the log, and taken over once it is there."""

    state: TransactionState
    producer_id: int
    epoch: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    updated_ms: int
    started_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    previous_epoch: int = NO_EPOCH


@dataclass(slots=True)
class Transaction:
    """The state of one id, as the log has it, and its pending transition."""

    transactional_id: str
    producer_id: int
    epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: TransactionState = _S.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = NO_TIME
    started_ms: int = NO_TIME
    # Not in the log: after a failover they are unknown.
    previous_producer_id: int = NO_PRODUCER_ID
    previous_epoch: int = NO_EPOCH
    has_failed_fence: bool = False
    pending: TransactionState | None = None
    # Whether every in-sync replica has this state. What a new coordinator finds at the end of its
    # log may be lost with it.
    is_replicated: bool = True
    # Partitions whose marker is not acknowledged yet.
    unmarked: set[TopicPartition] = field(default_factory=set)

    # What every request is checked for

    def check_producer(self, producer_id: int, epoch: int) -> None:
        if producer_id != self.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if epoch != self.epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)

    def check_not_pending(self) -> None:
        if self.pending is not None:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    # InitProducerId

    def must_abort_first(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction is open that an InitProducerId has to end; raises its refusals.

        A given epoch is compared before the open transaction is touched: a zombie of the same
        producer id must not abort the transaction of its successor.
        """
        self.check_not_pending()
        if producer_id != NO_PRODUCER_ID and self.epoch != NO_EPOCH:
            is_current = producer_id == self.producer_id
            is_rotated = producer_id == self.previous_producer_id and epoch >= EPOCH_EXHAUSTED
            expected = (self.epoch, self.previous_epoch) if is_current else (self.previous_epoch,)
            if not (is_current or is_rotated) or epoch not in expected:
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if self.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return self.state is _S.ONGOING

    def needs_new_producer_id(self, epoch: int) -> bool:
        """Whether the epochs of this producer id are used up."""
        return self.epoch >= EPOCH_EXHAUSTED and epoch in (NO_EPOCH, self.epoch)

    def initialize(
        self,
        timeout_ms: int,
        now_ms: int,
        epoch: int = NO_EPOCH,
        new_producer_id: int | None = None,
    ) -> TransactionChange:
        """Give the producer an epoch of its own; all earlier ones are fenced from then on."""
        producer_id, previous = self.producer_id, NO_EPOCH
        if new_producer_id is not None:
            producer_id, given = new_producer_id, 0
            previous = self.epoch if epoch != NO_EPOCH else NO_EPOCH
        elif self.epoch == NO_EPOCH:
            given = 0
        elif epoch == NO_EPOCH:
            given = self.epoch + 1
        elif epoch == self.epoch:
            given, previous = self.epoch + 1, self.epoch
        else:  # the retry of one whose answer was lost
            given, previous = self.epoch, self.previous_epoch
        return self._prepare(
            TransactionChange(
                _S.EMPTY,
                producer_id,
                given,
                timeout_ms,
                frozenset(),
                now_ms,
                NO_TIME,
                self.producer_id,
                previous,
            )
        )

    # AddPartitionsToTxn, AddOffsetsToTxn

    def add(self, partitions: Iterable[TopicPartition], now_ms: int) -> TransactionChange | None:
        """Put partitions into the transaction; None if all are known to be in it already."""
        self.check_not_pending()
        if self.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        added = self.partitions | frozenset(partitions)
        if self.state is _S.ONGOING and added == self.partitions and self.is_replicated:
            return None
        started = self.started_ms if self.state is _S.ONGOING else now_ms
        return self._prepare(
            TransactionChange(
                _S.ONGOING, self.producer_id, self.epoch, self.timeout_ms, added, now_ms, started
            )
        )

    def verify(self, tp: TopicPartition) -> ErrorCode:
        """Whether a partition is in the open transaction; pending transitions do not count."""
        if self.state.is_prepared:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if tp in self.partitions:
            return ErrorCode.NONE
        return ErrorCode.TRANSACTION_ABORTABLE

    # EndTxn, time-outs

    def end(self, is_commit: bool, now_ms: int) -> TransactionChange | None:
        """Decide the outcome; None if it is the one that has been reached already."""
        self.check_not_pending()
        decided = _S.PREPARE_COMMIT if is_commit else _S.PREPARE_ABORT
        reached = _S.COMPLETE_COMMIT if is_commit else _S.COMPLETE_ABORT
        if self.state is _S.ONGOING:
            return self._prepare(self._unchanged(decided, now_ms))
        if self.state is reached:
            return None
        if self.state is decided:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)

    def fence_and_abort(self, now_ms: int) -> TransactionChange:
        """Stop the producer and abort its transaction, for its successor or after a time-out."""
        assert self.state is _S.ONGOING, "only an open transaction is fenced"
        assert self.pending is None, "one transition at a time"
        if not self.has_failed_fence:
            # An open transaction of the last epoch is found only in the log of a coordinator that
            # took an epoch from a client that it never gave it.
            self.epoch = min(self.epoch + 1, EPOCH_MAX)
            self.previous_epoch = NO_EPOCH
        self.has_failed_fence = True  # until the write has succeeded
        self.pending = _S.PREPARE_EPOCH_FENCE
        return self._prepare(self._unchanged(_S.PREPARE_ABORT, now_ms))

    def is_timed_out(self, now_ms: int) -> bool:
        return (
            self.state is _S.ONGOING
            and self.pending is None
            and self.started_ms + self.timeout_ms < now_ms
        )

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return (
            self.state.may_expire
            and self.pending is None
            and self.updated_ms <= now_ms - expiration_ms
        )

    # Markers

    def finish(self, now_ms: int) -> TransactionChange:
        """The outcome, to be written when every partition has its marker."""
        assert self.state.is_prepared
        reached = _S.COMPLETE_COMMIT if self.state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT
        self.unmarked = set(self.partitions)
        return self._prepare(
            TransactionChange(
                reached,
                self.producer_id,
                self.epoch,
                self.timeout_ms,
                frozenset(),
                now_ms,
                self.started_ms,
            )
        )

    def decision(self) -> TransactionChange:
        """The outcome as it was decided, to be written again before the first marker."""
        assert self.state.is_prepared
        return self._unchanged(self.state, self.updated_ms)

    # Expiry

    def expire(self) -> None:
        """The id is about to be forgotten; `give_up` if that could not be written."""
        self.check_not_pending()
        assert self.state.may_expire
        self.pending = _S.DEAD

    # Carrying a transition out

    def _unchanged(self, state: TransactionState, now_ms: int) -> TransactionChange:
        return TransactionChange(
            state,
            self.producer_id,
            self.epoch,
            self.timeout_ms,
            self.partitions,
            now_ms,
            self.started_ms,
        )

    def _prepare(self, transition: TransactionChange) -> TransactionChange:
        previous = self.pending or self.state
        assert previous in VALID_PREVIOUS[transition.state], (previous, transition.state)
        assert self.pending in (None, _S.PREPARE_EPOCH_FENCE), "one transition at a time"
        self.pending = transition.state
        return transition

    def complete(self, transition: TransactionChange) -> None:
        """The transition is on every in-sync replica."""
        assert self.pending is transition.state, (self.pending, transition.state)
        self._check(transition)
        self.pending = None
        self.is_replicated = True
        self.state = transition.state
        self.updated_ms = transition.updated_ms
        self.timeout_ms = transition.timeout_ms
        self.partitions = transition.partitions
        if transition.state is _S.EMPTY:
            self.previous_producer_id = transition.previous_producer_id
            self.previous_epoch = transition.previous_epoch
            self.producer_id, self.epoch = transition.producer_id, transition.epoch
        else:
            self.started_ms = transition.started_ms
        if transition.state is _S.PREPARE_ABORT:
            self.has_failed_fence = False
        if transition.state.is_complete:
            self.unmarked = set()

    def _check(self, transition: TransactionChange) -> None:
        """What must hold between the states whatever a request asked for."""
        if transition.state is _S.EMPTY:
            is_same = transition.producer_id == self.producer_id
            assert not transition.partitions
            assert is_same or transition.epoch == 0
            assert not is_same or transition.epoch in (self.epoch, self.epoch + 1)
            return
        assert (transition.producer_id, transition.epoch) == (self.producer_id, self.epoch)
        assert transition.timeout_ms == self.timeout_ms
        if transition.state is _S.ONGOING:
            assert self.partitions <= transition.partitions
        elif transition.state.is_prepared:
            assert transition.partitions == self.partitions

    def give_up(self) -> None:
        """The transition could not be written: the state stays. A fence stays in memory."""
        self.pending = None
