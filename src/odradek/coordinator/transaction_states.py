"""Transaction states: where a transactional id is in its life, as its coordinator sees it.

docs/spec/transactions.md, section 2.1.

Rules
1. Only this module says which transition is legal.
2. An id has at most one pending transition: it is prepared, written to the log on every in-sync
   replica, and only then taken over. While it is pending, every other request for the id gets
   CONCURRENT_TRANSACTIONS.
3. DEAD and PREPARE_EPOCH_FENCE are only ever pending: the log never has them.

An id is EMPTY until its producer adds the first partition; ONGOING until the producer, or the
coordinator after a time-out, ends it; PREPARE_* once the outcome is decided, which no crash can
change any more; COMPLETE_* when every partition has the marker that says so.
"""

from collections.abc import Mapping
from enum import IntEnum

__all__ = ["VALID_PREVIOUS", "TransactionState"]


class TransactionState(IntEnum):
    """Kafka's names and the numbers of the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As DescribeTransactions names it: `PrepareCommit`."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """The outcome is decided, and its markers are under way."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def may_expire(self) -> bool:
        return self is TransactionState.EMPTY or self.is_complete


_S = TransactionState
_IDLE = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

VALID_PREVIOUS: Mapping[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: _IDLE,
    _S.ONGOING: _IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.PREPARE_EPOCH_FENCE}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: _IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
