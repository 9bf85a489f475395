"""One transactional id: every request in every state."""

import pytest

from odradek.coordinator.transaction import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    Transaction,
    TransactionChange,
)
from odradek.coordinator.transaction_states import VALID_PREVIOUS, TransactionState
from odradek.coordinator.transaction_storage import encode_value
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

S = TransactionState
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = 1_000_000
TIMEOUT = 60_000


def known(state: TransactionState = S.EMPTY, epoch: int = 5) -> Transaction:
    partitions = frozenset({A}) if state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT) else ()
    return Transaction("id", 1000, epoch, TIMEOUT, state, frozenset(partitions), NOW - 10, NOW - 20)


def carry_out(transaction: Transaction, transition: TransactionChange | None) -> Transaction:
    assert transition is not None
    transaction.complete(transition)
    assert transaction.pending is None
    return transaction


def code(caught: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return caught.value.error


def test_the_life_of_a_transaction() -> None:
    transaction = Transaction("id", 1000)
    assert not transaction.must_abort_first(-1, -1)
    carry_out(transaction, transaction.initialize(TIMEOUT, NOW))
    assert (transaction.producer_id, transaction.epoch) == (1000, 0)
    carry_out(transaction, transaction.add([A], NOW + 1))
    carry_out(transaction, transaction.add([A, B], NOW + 2))
    assert (transaction.state, transaction.started_ms) == (S.ONGOING, NOW + 1)
    assert transaction.add([B], NOW + 3) is None, "already in it"
    carry_out(transaction, transaction.end(True, NOW + 4))
    transition = transaction.finish(NOW + 5)
    assert transaction.unmarked == {A, B}
    carry_out(transaction, transition)
    assert (transaction.state, transaction.partitions) == (S.COMPLETE_COMMIT, frozenset())
    carry_out(transaction, transaction.add([B], NOW + 6))
    assert transaction.started_ms == NOW + 6


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_a_new_producer_raises_the_epoch(state: TransactionState) -> None:
    transaction = known(state)
    assert not transaction.must_abort_first(-1, -1)
    carry_out(transaction, transaction.initialize(TIMEOUT, NOW))
    assert (transaction.state, transaction.epoch, transaction.previous_epoch) == (S.EMPTY, 6, -1)


def test_the_retry_of_a_lost_answer_gets_the_same_epoch() -> None:
    transaction = known()
    transaction.must_abort_first(1000, 5)
    carry_out(transaction, transaction.initialize(TIMEOUT, NOW, 5))
    assert (transaction.epoch, transaction.previous_epoch) == (6, 5)
    transaction.must_abort_first(1000, 5)
    carry_out(transaction, transaction.initialize(TIMEOUT, NOW, 5))
    assert (transaction.epoch, transaction.previous_epoch) == (6, 5)
    with pytest.raises(KafkaError) as caught:
        transaction.must_abort_first(1000, 4)
    assert code(caught) is ErrorCode.PRODUCER_FENCED


def test_epochs_that_are_used_up_make_a_new_producer_id() -> None:
    transaction = known(epoch=EPOCH_EXHAUSTED)
    assert transaction.needs_new_producer_id(-1)
    assert transaction.needs_new_producer_id(EPOCH_EXHAUSTED)
    assert not transaction.needs_new_producer_id(EPOCH_EXHAUSTED - 1)
    carry_out(transaction, transaction.initialize(TIMEOUT, NOW, EPOCH_EXHAUSTED, 2000))
    assert (transaction.producer_id, transaction.epoch) == (2000, 0)
    assert transaction.previous_producer_id == 1000
    assert not transaction.must_abort_first(1000, EPOCH_EXHAUSTED), "the retry of its owner"


@pytest.mark.parametrize(("producer_id", "epoch"), [(1001, 5), (1000, 4), (1000, 7)])
def test_a_zombie_does_not_touch_the_open_transaction(producer_id: int, epoch: int) -> None:
    transaction = known(S.ONGOING)
    with pytest.raises(KafkaError) as caught:
        transaction.must_abort_first(producer_id, epoch)
    assert code(caught) is ErrorCode.PRODUCER_FENCED
    assert (transaction.state, transaction.epoch) == (S.ONGOING, 5)


def test_a_successor_fences_and_aborts() -> None:
    transaction = known(S.ONGOING)
    assert transaction.must_abort_first(-1, -1)
    transition = transaction.fence_and_abort(NOW)
    assert (transition.state, transition.epoch) == (S.PREPARE_ABORT, 6)
    with pytest.raises(KafkaError) as caught:
        transaction.check_producer(1000, 5)
    assert code(caught) is ErrorCode.PRODUCER_FENCED
    carry_out(transaction, transition)
    assert transaction.state is S.PREPARE_ABORT


def test_a_fence_that_could_not_be_written_raises_the_epoch_once() -> None:
    transaction = known(S.ONGOING)
    for _ in range(3):
        transaction.fence_and_abort(NOW)
        transaction.give_up()
        assert (transaction.state, transaction.epoch) == (S.ONGOING, 6)
    carry_out(transaction, transaction.fence_and_abort(NOW))
    assert (transaction.epoch, transaction.has_failed_fence) == (6, False)


def test_no_epoch_is_above_the_last_one() -> None:
    transaction = known(S.ONGOING, epoch=EPOCH_MAX)
    carry_out(transaction, transaction.fence_and_abort(NOW))
    assert (transaction.epoch, encode_value(transaction.decision())[10:12]) == (
        EPOCH_MAX,
        b"\x7f\xff",
    )
    carry_out(transaction, transaction.finish(NOW))
    assert transaction.needs_new_producer_id(-1)


E = ErrorCode
ENDS = {
    (S.ONGOING, True): S.PREPARE_COMMIT,
    (S.ONGOING, False): S.PREPARE_ABORT,
    (S.PREPARE_COMMIT, True): E.CONCURRENT_TRANSACTIONS,
    (S.PREPARE_COMMIT, False): E.INVALID_TXN_STATE,
    (S.PREPARE_ABORT, True): E.INVALID_TXN_STATE,
    (S.PREPARE_ABORT, False): E.CONCURRENT_TRANSACTIONS,
    (S.COMPLETE_COMMIT, True): None,
    (S.COMPLETE_COMMIT, False): E.INVALID_TXN_STATE,
    (S.COMPLETE_ABORT, True): E.INVALID_TXN_STATE,
    (S.COMPLETE_ABORT, False): None,
    (S.EMPTY, True): E.INVALID_TXN_STATE,
    (S.EMPTY, False): E.INVALID_TXN_STATE,
}


@pytest.mark.parametrize(("state", "is_commit"), ENDS)
def test_ending_a_transaction_in_every_state(state: TransactionState, is_commit: bool) -> None:
    transaction, expected = known(state), ENDS[state, is_commit]
    if isinstance(expected, ErrorCode):
        with pytest.raises(KafkaError) as caught:
            transaction.end(is_commit, NOW)
        assert code(caught) is expected
        return
    transition = transaction.end(is_commit, NOW)
    assert (None if transition is None else transition.state) is expected


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_nothing_begins_while_an_outcome_is_under_way(state: TransactionState) -> None:
    transaction = known(state)
    for attempt in (
        lambda: transaction.add([B], NOW),
        lambda: transaction.must_abort_first(-1, -1),
    ):
        with pytest.raises(KafkaError) as caught:
            attempt()
        assert code(caught) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert transaction.verify(A) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_one_transition_at_a_time() -> None:
    transaction = known(S.ONGOING)
    transaction.end(True, NOW)
    for attempt in (
        lambda: transaction.add([B], NOW),
        lambda: transaction.end(True, NOW),
        lambda: transaction.must_abort_first(-1, -1),
    ):
        with pytest.raises(KafkaError) as caught:
            attempt()
        assert code(caught) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert transaction.verify(A) is ErrorCode.NONE, "verification does not look at it"


def test_verification() -> None:
    assert known(S.ONGOING).verify(A) is ErrorCode.NONE
    assert known(S.ONGOING).verify(B) is ErrorCode.TRANSACTION_ABORTABLE
    assert known(S.COMPLETE_COMMIT).verify(A) is ErrorCode.TRANSACTION_ABORTABLE


def test_time_outs_and_expiry() -> None:
    ongoing, empty = known(S.ONGOING), known()
    assert not ongoing.is_timed_out(NOW - 20 + TIMEOUT)
    assert ongoing.is_timed_out(NOW - 20 + TIMEOUT + 1)
    assert not ongoing.is_expired(NOW * 10, 1)
    assert empty.is_expired(NOW + 1, 11)
    assert not empty.is_expired(NOW, 11)
    ongoing.end(True, NOW)
    assert not ongoing.is_timed_out(NOW * 10), "an end is on its way"


def test_the_table_names_every_state() -> None:
    assert set(VALID_PREVIOUS) == set(TransactionState)
    assert TransactionState.PREPARE_EPOCH_FENCE.label == "PrepareEpochFence"
    assert [state.label for state in (S.EMPTY, S.COMPLETE_ABORT)] == ["Empty", "CompleteAbort"]
