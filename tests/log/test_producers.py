"""Producer states: sequences, epochs, repeats, transactions, snapshots.

docs/spec/controller-and-replication.md section 6.
"""

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.log.disk import RealDisk
from odradek.log.indexes import AbortedTransaction
from odradek.log.producers import (
    NO_GUARD,
    CorruptSnapshot,
    Guard,
    Origin,
    ProducerState,
    ProducerStates,
    SequencedBatch,
    decode_snapshot,
    encode_snapshot,
)
from odradek.wire.batch import BatchHeader, header_at
from odradek.wire.crc32c import crc32c
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import ControlType, Record, TransactionEnd, encode_batch

DISK = RealDisk()
SEQUENCE_MAX = 2**31 - 1
NOW = 1_700_000_000_000


def batch(
    sequence: int = 0,
    count: int = 1,
    *,
    pid: int = 7,
    epoch: int = 0,
    transactional: bool = False,
    control: bool = False,
    timestamp: int = NOW,
) -> BatchHeader:
    data = encode_batch(
        [Record(-1, timestamp, None, b"v")] * count,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        control=control,
    )
    return header_at(data)


@pytest.fixture
def states(tmp_path: Path) -> ProducerStates:
    return ProducerStates(DISK, str(tmp_path))


def append(
    states: ProducerStates,
    header: BatchHeader,
    *,
    origin: Origin = Origin.CLIENT,
    end: TransactionEnd | None = None,
) -> list[AbortedTransaction]:
    update = states.begin(origin)
    update.add(header, states.end_offset, end)
    aborted = states.apply(update)
    states.end_offset += header.last_offset_delta + 1
    return aborted


def refused(states: ProducerStates, header: BatchHeader, **options: object) -> ErrorCode:
    before = dict(states.items())
    with pytest.raises(KafkaError) as caught:
        append(states, header, **options)  # type: ignore[arg-type]
    assert dict(states.items()) == before
    return caught.value.error


def marker(kind: ControlType, coordinator_epoch: int = 0) -> TransactionEnd:
    return TransactionEnd(kind, coordinator_epoch, NOW)


def end_transaction(
    states: ProducerStates, kind: ControlType, *, pid: int = 7, epoch: int = 0
) -> list[AbortedTransaction]:
    control = batch(-1, pid=pid, epoch=epoch, transactional=True, control=True)
    return append(states, control, origin=Origin.COORDINATOR, end=marker(kind))


def test_an_unknown_producer_may_start_anywhere(states: ProducerStates) -> None:
    append(states, batch(41, 3))
    state = states.get(7)
    assert state is not None and state.last_sequence == 43 and state.last_offset == 2


def test_the_next_sequence_must_follow(states: ProducerStates) -> None:
    append(states, batch(0, 3))
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(states, batch(4)) is out_of_order
    assert refused(states, batch(2)) is out_of_order
    append(states, batch(3, 2))
    assert states.get(7).last_sequence == 4  # type: ignore[union-attr]


def test_sequences_wrap(states: ProducerStates) -> None:
    append(states, batch(SEQUENCE_MAX - 1, 2))
    append(states, batch(0))
    append(states, batch(1, pid=8))
    append(states, batch(SEQUENCE_MAX, 3, pid=9))
    state = states.get(9)
    assert state is not None and state.last_sequence == 1
    assert state.batches[0].first_sequence == SEQUENCE_MAX
    assert states.duplicate_of(batch(SEQUENCE_MAX, 3, pid=9)) is not None
    append(states, batch(2, pid=9))


def test_a_new_epoch_starts_at_zero_and_an_old_one_is_fenced(states: ProducerStates) -> None:
    append(states, batch(5, epoch=3))
    assert refused(states, batch(6, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(states, batch(6, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    append(states, batch(0, epoch=4))
    state = states.get(7)
    assert state is not None and len(state.batches) == 1 and state.epoch == 4
    assert states.duplicate_of(batch(5, epoch=3)) is None


def test_replication_is_not_checked_and_coordinators_by_epoch_only(states: ProducerStates) -> None:
    append(states, batch(5, epoch=3))
    append(states, batch(-1, epoch=3), origin=Origin.COORDINATOR)
    assert (
        refused(states, batch(-1, epoch=2), origin=Origin.COORDINATOR)
        is ErrorCode.INVALID_PRODUCER_EPOCH
    )
    append(states, batch(99, epoch=2), origin=Origin.REPLICATION)
    assert states.get(7).epoch == 2  # type: ignore[union-attr]


def test_only_the_last_five_batches_are_known_as_repeats(states: ProducerStates) -> None:
    for sequence in range(0, 14, 2):
        append(states, batch(sequence, 2))
    assert states.duplicate_of(batch(0, 2)) is None
    assert states.duplicate_of(batch(2, 2)) is None
    found = states.duplicate_of(batch(4, 2))
    assert found == SequencedBatch(5, 5, 1, NOW) and found.first_offset == 4
    assert states.duplicate_of(batch(12, 2)) is not None
    assert states.duplicate_of(batch(4, 1)) is None
    assert states.duplicate_of(batch(5, 1)) is None
    assert states.duplicate_of(batch(4, 2, pid=8)) is None


def test_one_append_of_several_batches_is_checked_as_a_whole(states: ProducerStates) -> None:
    update = states.begin(Origin.CLIENT)
    update.add(batch(0, 2), 0)
    update.add(batch(2, 2), 2)
    with pytest.raises(KafkaError):
        update.add(batch(9, 2), 4)
    assert len(states) == 0
    states.apply(update)
    assert states.get(7).last_sequence == 3  # type: ignore[union-attr]


def test_a_commit_and_an_abort(states: ProducerStates) -> None:
    append(states, batch(0, 2, transactional=True))
    assert states.first_unstable_offset == 0 and states.has_open_transaction(7)
    assert refused(states, batch(2)) is ErrorCode.INVALID_TXN_STATE
    append(states, batch(2, transactional=True))
    assert end_transaction(states, ControlType.COMMIT) == []
    assert not states.has_open_transaction(7)
    assert states.first_undecided_offset is None
    unstable = []
    for high_watermark in (2, 3, 4):  # the marker at 3 is replicated with the last
        states.on_high_watermark(high_watermark)
        unstable.append(states.first_unstable_offset)
    assert unstable == [0, 0, None]
    append(states, batch(3, transactional=True))
    assert end_transaction(states, ControlType.ABORT) == [AbortedTransaction(7, 4, 5, 6)]
    append(states, batch(4))


def test_the_stable_offset_is_held_by_another_open_transaction(states: ProducerStates) -> None:
    append(states, batch(0, pid=1, transactional=True))
    append(states, batch(0, pid=2, transactional=True))
    assert end_transaction(states, ControlType.ABORT, pid=1) == [AbortedTransaction(1, 0, 2, 1)]
    states.on_high_watermark(100)
    assert states.first_unstable_offset == 1
    assert end_transaction(states, ControlType.ABORT, pid=2) == [AbortedTransaction(2, 1, 3, 4)]


def test_a_marker_without_a_transaction_only_moves_the_epoch(states: ProducerStates) -> None:
    append(states, batch(0))
    assert end_transaction(states, ControlType.ABORT, epoch=1) == []
    assert states.first_unstable_offset is None
    assert refused(states, batch(1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    append(states, batch(0, epoch=1))


def test_a_marker_keeps_the_sequence_of_its_epoch(states: ProducerStates) -> None:
    append(states, batch(0, 4, transactional=True))
    end_transaction(states, ControlType.COMMIT)
    append(states, batch(4, transactional=True))


def test_an_older_coordinator_is_fenced(states: ProducerStates) -> None:
    control = batch(-1, transactional=True, control=True)
    append(states, control, origin=Origin.COORDINATOR, end=marker(ControlType.COMMIT, 5))
    assert (
        refused(states, control, origin=Origin.COORDINATOR, end=marker(ControlType.COMMIT, 4))
        is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    )
    append(states, control, origin=Origin.REPLICATION, end=marker(ControlType.COMMIT, 4))


def test_an_emptied_control_batch_says_nothing(states: ProducerStates) -> None:
    append(states, batch(0, transactional=True))
    append(states, batch(-1, transactional=True, control=True), origin=Origin.REPLICATION)
    assert states.has_open_transaction(7)


def test_silent_producers_expire_but_not_in_a_transaction(states: ProducerStates) -> None:
    append(states, batch(0, pid=1))
    append(states, batch(0, pid=2, transactional=True))
    append(states, batch(0, pid=3, timestamp=NOW + 1))
    assert states.remove_expired(NOW + states.expiration_ms - 1) == 0
    assert states.remove_expired(NOW + states.expiration_ms) == 1
    assert [pid for pid, _ in states.items()] == [2, 3]


def test_a_snapshot_is_kafkas_bytes(states: ProducerStates, tmp_path: Path) -> None:
    append(states, batch(10, 3, epoch=2, transactional=True))
    assert states.take_snapshot() == 3
    entry = struct.pack(">qhiqiqiq", 7, 2, 12, 2, 2, NOW, -1, 0)
    assert len(entry) == 46
    body = struct.pack(">i", 1) + entry
    expected = struct.pack(">hI", 1, crc32c(body)) + body
    assert (tmp_path / "00000000000000000003.snapshot").read_bytes() == expected
    assert expected.hex() == (
        "0001 f124ebbf 00000001 0000000000000007 0002 0000000c 0000000000000002 00000002"
        " 0000018bcfe56800 ffffffff 0000000000000000"
    ).replace(" ", "")


def test_a_snapshot_is_taken_once_per_offset(states: ProducerStates) -> None:
    assert states.take_snapshot() is None
    append(states, batch(0))
    assert states.take_snapshot(sync=False) == 1
    assert states.take_snapshot() is None
    assert states.snapshots == [1]


def test_reload_takes_the_newest_readable_snapshot(tmp_path: Path) -> None:
    states = ProducerStates(DISK, str(tmp_path))
    for sequence in range(6):
        append(states, batch(sequence, transactional=sequence >= 2))
        states.take_snapshot()
    (tmp_path / f"{6:020d}.snapshot").write_bytes(b"\0" * 100)
    (tmp_path / f"{5:020d}.snapshot").write_bytes(b"")
    (tmp_path / f"{99:020d}.snapshot").write_bytes(b"")
    (tmp_path / "garbage.snapshot").write_bytes(b"")
    again = ProducerStates(DISK, str(tmp_path))
    assert again.snapshots == [1, 2, 3, 4, 5, 6, 99]
    assert again.reload(1, 6, NOW) == 4
    assert again.snapshots == [2, 3, 4]
    state = again.get(7)
    assert state == ProducerState(0, -1, NOW, 2, (SequencedBatch(3, 3, 0, NOW),))
    assert again.first_unstable_offset == 2
    assert again.reload(1, 3, NOW) == 3
    assert again.reload(3, 3, NOW) == 3
    assert again.reload(3, 9, NOW) == 3
    assert len(again) == 0 and again.snapshots == []


def test_reload_forgets_the_expired(tmp_path: Path) -> None:
    states = ProducerStates(DISK, str(tmp_path))
    append(states, batch(0))
    states.take_snapshot()
    again = ProducerStates(DISK, str(tmp_path))
    assert again.reload(0, 1, NOW + states.expiration_ms) == 1
    assert len(again) == 0


def test_stray_snapshots(tmp_path: Path) -> None:
    for offset in (5, 10, 12, 20, 25, 30):
        (tmp_path / f"{offset:020d}.snapshot").touch()
    states = ProducerStates(DISK, str(tmp_path))
    states.remove_stray_snapshots([0, 10, 20])
    assert states.snapshots == [10, 20, 30]
    states.remove_stray_snapshots([0, 10, 40])
    assert states.snapshots == [10]
    assert [path.name for path in tmp_path.iterdir()] == [f"{10:020d}.snapshot"]


def test_truncating_fully(states: ProducerStates, tmp_path: Path) -> None:
    append(states, batch(0, transactional=True))
    states.take_snapshot()
    states.truncate_fully_and_start_at(50)
    assert states.end_offset == 50 and len(states) == 0 and states.snapshots == []
    assert states.first_unstable_offset is None and list(tmp_path.iterdir()) == []
    append(states, batch(9))
    assert states.take_snapshot() == 51


def test_the_start_offset_moves_up(states: ProducerStates) -> None:
    append(states, batch(0, transactional=True))
    end_transaction(states, ControlType.COMMIT)
    states.on_start_offset(10)
    assert states.end_offset == 10 and states.first_unstable_offset is None
    assert len(states) == 1


@given(st.binary(max_size=120))
def test_any_bytes_are_a_snapshot_or_the_one_error(data: bytes) -> None:
    try:
        decode_snapshot(data)
    except CorruptSnapshot:
        pass


@given(st.integers(0, 200), st.integers(0, 255))
@settings(max_examples=200)
def test_a_snapshot_with_one_wrong_byte_is_refused(position: int, value: int) -> None:
    data = bytearray(encode_snapshot({pid: ProducerState(pid, 0, NOW, -1, ()) for pid in range(4)}))
    position %= len(data)
    if data[position] == value:
        return
    data[position] = value
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(data))


Step = tuple[int, int, str]
steps = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.sampled_from("dtcas")), max_size=40
)


@given(steps, st.integers(0, 40))
@settings(max_examples=60)
def test_a_snapshot_and_the_rest_replayed_give_the_same_state(
    tmp_path_factory: pytest.TempPathFactory, history: list[Step], cut: int
) -> None:
    """The model is the same state, never restarted."""
    directory = str(tmp_path_factory.mktemp("log"))
    states = ProducerStates(DISK, directory)
    log: list[tuple[int, BatchHeader, TransactionEnd | None]] = []
    next_sequence: dict[int, int] = {}
    for pid, count, kind in history:
        if kind == "s":
            states.take_snapshot()
            continue
        end = None
        if kind in "ca":
            end = marker(ControlType.COMMIT if kind == "c" else ControlType.ABORT)
            header = batch(-1, pid=pid, transactional=True, control=True)
        else:
            transactional = kind == "t" or states.has_open_transaction(pid)
            sequence = next_sequence.get(pid, 0)
            header = batch(sequence, count, pid=pid, transactional=transactional)
            next_sequence[pid] = sequence + count
        log.append((states.end_offset, header, end))
        append(states, header, origin=Origin.COORDINATOR if end else Origin.CLIENT, end=end)
    again = ProducerStates(DISK, directory)
    replay_from = again.reload(0, states.end_offset, NOW)
    for offset, header, end in log:
        if offset >= replay_from:
            assert offset == again.end_offset
            append(again, header, origin=Origin.REPLICATION, end=end)
    assert again.end_offset == states.end_offset
    assert again.first_undecided_offset == states.first_undecided_offset
    for pid, state in states.items():
        loaded = again.get(pid)
        assert loaded is not None and loaded[:4] == state[:4]
        assert loaded.batches == state.batches[len(state.batches) - len(loaded.batches) :]


def guard_for(states: ProducerStates, of: BatchHeader) -> Guard | None:
    return states.guard_for(of.producer_id, of.producer_epoch, of.base_sequence, NOW)


class TestGuards:
    """docs/spec/transactions.md section 2.7: a first batch is appended only under a valid guard."""

    def test_a_first_batch_needs_the_guard_it_was_verified_under(
        self, states: ProducerStates
    ) -> None:
        first = batch(transactional=True)
        with pytest.raises(KafkaError) as refused:
            states.check_guard(first, NO_GUARD)
        assert refused.value.error is ErrorCode.INVALID_TXN_STATE
        guard = guard_for(states, first)
        assert guard is not None and guard_for(states, first) is guard
        states.check_guard(first, guard)
        states.check_guard(batch(), NO_GUARD)  # not in a transaction

    def test_it_goes_with_the_batch_that_opens_the_transaction(
        self, states: ProducerStates
    ) -> None:
        first = batch(transactional=True)
        guard = guard_for(states, first)
        append(states, first)
        assert guard_for(states, batch(1, transactional=True)) is None, "it is open"
        states.check_guard(batch(1, transactional=True), NO_GUARD)
        assert guard is not None

    def test_a_marker_ends_it(self, states: ProducerStates) -> None:
        """The batch was delayed past the abort of its transaction."""
        first = batch(transactional=True)
        guard = guard_for(states, first)
        update = states.begin(Origin.COORDINATOR)
        update.add(
            batch(transactional=True, control=True), 0, TransactionEnd(ControlType.ABORT, 1, NOW)
        )
        assert guard is not None and states.is_guarded(first.producer_id, guard)
        states.apply(update)
        assert not states.is_guarded(first.producer_id, guard)
        with pytest.raises(KafkaError) as refused:
            states.check_guard(first, guard)
        assert refused.value.error is ErrorCode.INVALID_TXN_STATE

    def test_the_lowest_sequence_comes_first(self, states: ProducerStates) -> None:
        second, first = batch(1, transactional=True), batch(0, transactional=True)
        guard = guard_for(states, second)
        assert guard_for(states, first) is guard
        for verified in (guard, None):
            with pytest.raises(KafkaError) as refused:
                states.check_guard(second, verified)
            assert refused.value.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        states.check_guard(first, guard)
        newer = batch(0, epoch=1, transactional=True)
        assert guard_for(states, newer) is guard
        states.check_guard(newer, guard)

    def test_it_expires(self, states: ProducerStates) -> None:
        first = batch(transactional=True)
        guard = guard_for(states, first)
        states.remove_expired(NOW + states.expiration_ms)
        assert guard_for(states, first) is not guard
