"""Which records compaction keeps, batch by batch."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.log.compaction import (
    ENTRY_BYTES,
    BatchCleaner,
    NewestOffsets,
    TransactionTracker,
    last_batch_of,
)
from odradek.log.indexes import AbortedTransaction
from odradek.log.producers import ProducerState, SequencedBatch
from odradek.wire.batch import BatchHeader, TimestampType, crc_ok, header_at
from odradek.wire.compression import Codec
from odradek.wire.records import (
    ControlType,
    Record,
    TransactionEnd,
    decode_records,
    encode_batch,
    encode_transaction_end,
)

NOW = 1_000_000
RETENTION = 5_000


def batch(offset: int, *pairs: tuple[bytes | None, bytes | None], **fields: object) -> bytes:
    records = [Record(offset + i, 500 + i, key, value) for i, (key, value) in enumerate(pairs)]
    options = {"leader_epoch": 3, **fields}
    return bytes(encode_batch(records, base_offset=offset, **options))  # type: ignore[arg-type]


def marker(offset: int, kind: ControlType, pid: int = 7) -> bytes:
    data = encode_transaction_end(TransactionEnd(kind, 1, 400), pid, 0)
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


def newest_of(log: Sequence[bytes]) -> NewestOffsets:
    newest = NewestOffsets(1 << 20)
    for data in log:
        header = header_at(data)
        if not header.is_control:
            assert newest.add(decode_records(data, header), 0)
        newest.covered_to = header.next_offset
    return newest


def clean(
    log: Sequence[bytes],
    *,
    newest: NewestOffsets | None = None,
    aborted: Sequence[AbortedTransaction] = (),
    producers: Sequence[tuple[int, ProducerState]] = (),
    now_ms: int = NOW,
) -> tuple[list[bytes], list[AbortedTransaction]]:
    tracker = TransactionTracker(aborted)
    cleaner = BatchCleaner(
        newest or newest_of(log),
        tracker,
        last_batch_of(producers),
        now_ms=now_ms,
        delete_retention_ms=RETENTION,
    )
    kept = []
    for data in log:
        result = cleaner.clean(data, header_at(data)).data
        if result is not None:
            assert crc_ok(result, header_at(result))
            kept.append(bytes(result))
    return kept, tracker.retained


def offsets(log: Sequence[bytes]) -> list[int]:
    return [r.offset for data in log for r in decode_records(data, header_at(data))]


def test_the_newest_of_each_key_stays_at_its_offset() -> None:
    log = [
        batch(0, (b"a", b"1"), (b"b", b"1")),
        batch(2, (b"a", b"2")),
        batch(3, (b"c", b"1"), (b"b", b"2")),
    ]
    kept, _ = clean(log)
    assert offsets(kept) == [2, 3, 4]
    assert kept == log[1:]  # untouched batches are the same bytes


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_loses_records_keeps_everything_else(codec: Codec) -> None:
    original = batch(
        10,
        (b"a", b"1"),
        (b"b", b"1"),
        (b"c", b"1"),
        codec=codec,
        producer_id=5,
        producer_epoch=2,
        base_sequence=40,
        transactional=True,
    )
    kept, _ = clean([original, batch(13, (b"a", b"2"), (b"c", b"2"))])
    before, after = header_at(original), header_at(kept[0])
    assert offsets(kept) == [11, 13, 14]
    for field in (
        "base_offset",
        "last_offset_delta",
        "leader_epoch",
        "attributes",
        "producer_id",
        "producer_epoch",
        "base_sequence",
    ):
        assert getattr(after, field) == getattr(before, field), field
    assert after.record_count == 1
    assert after.last_sequence == before.last_sequence


def test_log_append_time_is_kept() -> None:
    original = batch(
        0,
        (b"a", b"1"),
        (b"b", b"1"),
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        append_time_ms=777,
    )
    kept, _ = clean([original, batch(2, (b"a", b"2"))])
    after = header_at(kept[0])
    assert after.timestamp_type is TimestampType.LOG_APPEND_TIME and after.max_timestamp == 777
    assert [record.timestamp for record in decode_records(kept[0], after)] == [777]


def test_a_tombstone_gets_a_horizon_and_goes_when_it_has_passed() -> None:
    log = [batch(0, (b"a", b"1")), batch(1, (b"a", None), (b"b", b"1"))]
    first, _ = clean(log)
    assert offsets(first) == [1, 2]
    header = header_at(first[0])
    assert header.delete_horizon_ms == NOW + RETENTION
    assert [r.timestamp for r in decode_records(first[0], header)] == [500, 501]
    again, _ = clean(first, now_ms=NOW + RETENTION - 1)
    assert again == first  # the horizon is not pushed out
    gone, _ = clean(first, now_ms=NOW + RETENTION)
    assert offsets(gone) == [2]
    assert header_at(gone[0]).delete_horizon_ms == NOW + RETENTION


def test_a_record_without_a_key_goes() -> None:
    kept, _ = clean([batch(0, (None, b"x"), (b"a", b"1"))])
    assert offsets(kept) == [1]


def test_what_was_not_looked_at_stays() -> None:
    log = [batch(0, (b"a", b"1")), batch(1, (b"a", b"2")), batch(2, (b"a", b"3"))]
    newest = newest_of(log[:2])
    assert offsets(clean(log, newest=newest)[0]) == [1, 2]


def test_memory_is_bounded_and_says_so() -> None:
    newest = NewestOffsets(3 * ENTRY_BYTES)
    records = [Record(i, 0, b"k%d" % (i % 3), b"") for i in range(9)]
    assert newest.add(records, 0) and len(newest) == 3
    assert not newest.add([Record(9, 0, b"other", b"")], 0)
    assert len(newest) == 3


def test_long_keys_are_distinguished() -> None:
    newest = NewestOffsets(1 << 20)
    keys = [b"x" * 16, b"x" * 17, b"x" * 1000, b"x" * 999 + b"y"]
    newest.add([Record(i, 0, key, b"") for i, key in enumerate(keys)], 0)
    assert len(newest) == 4
    assert [newest.superseded(key, i - 1) for i, key in enumerate(keys)] == [True] * 4
    assert not any(newest.superseded(key, i) for i, key in enumerate(keys))


TRANSACTIONAL = {
    "producer_id": 7,
    "producer_epoch": 0,
    "base_sequence": 0,
    "transactional": True,
}


def test_aborted_records_go_and_their_marker_follows_in_three_cleanings() -> None:
    log = [
        batch(0, (b"a", b"1"), **TRANSACTIONAL),
        marker(1, ControlType.ABORT),
        batch(2, (b"b", b"1")),
    ]
    transaction = AbortedTransaction(7, 0, 1, 2)
    newest = NewestOffsets(1 << 20)
    newest.covered_to = 3
    first, index = clean(log, newest=newest, aborted=[transaction])
    # The records are gone; the marker stays for readers that began before, and so does its entry.
    assert first == log[1:] and index == [transaction]
    second, index = clean(first, newest=newest, aborted=[transaction])
    assert header_at(second[0]).delete_horizon_ms == NOW + RETENTION and index == []
    assert len(second) == 2
    third, index = clean(second, newest=newest, now_ms=NOW + RETENTION)
    assert third == log[2:] and index == []


def test_a_commit_marker_stays_while_its_records_do() -> None:
    log = [batch(0, (b"a", b"1"), **TRANSACTIONAL), marker(1, ControlType.COMMIT)]
    kept, _ = clean(log)
    assert kept == log
    superseded = [*log, batch(2, (b"a", b"2"))]
    kept, _ = clean(superseded)
    assert [header_at(data).base_offset for data in kept] == [1, 2]
    idle, _ = clean(kept)
    assert header_at(idle[0]).delete_horizon_ms == NOW + RETENTION
    gone, _ = clean(idle, now_ms=NOW + RETENTION)
    assert [header_at(data).base_offset for data in gone] == [2]


def test_a_record_of_an_aborted_transaction_supersedes_nothing() -> None:
    """The dirty part is read with the same tracker, so the aborted value never becomes newest."""
    log = [batch(0, (b"a", b"1")), batch(1, (b"a", b"2"), **TRANSACTIONAL)]
    tracker = TransactionTracker([AbortedTransaction(7, 1, 2, 3)])
    assert [tracker.on_data(header_at(data)) for data in log] == [False, True]


def test_transactions_of_one_producer_follow_each_other() -> None:
    log = [
        batch(0, (b"a", b"1"), **TRANSACTIONAL),
        marker(1, ControlType.ABORT),
        batch(2, (b"b", b"1"), **TRANSACTIONAL),
        marker(3, ControlType.COMMIT),
        batch(4, (b"c", b"1"), **TRANSACTIONAL),
        marker(5, ControlType.ABORT),
    ]
    aborted = [AbortedTransaction(7, 0, 1, 2), AbortedTransaction(7, 4, 5, 6)]
    kept, index = clean(log, aborted=aborted)
    assert [header_at(data).base_offset for data in kept] == [1, 2, 3, 5]
    assert index == aborted


def live(pid: int, last_offset: int, epoch: int = 0) -> tuple[int, ProducerState]:
    batches = (SequencedBatch(0, last_offset, 0, 0),) if last_offset >= 0 else ()
    return pid, ProducerState(epoch, -1, 0, -1, batches)


def test_the_last_batch_of_a_live_producer_stays_as_a_bare_header() -> None:
    original = batch(5, (b"a", b"1"), (b"b", b"1"), **TRANSACTIONAL)
    log = [original, batch(7, (b"a", b"2"), (b"b", b"2"))]
    kept, _ = clean(log, producers=[live(7, 6)])
    header, before = header_at(kept[0]), header_at(original)
    assert len(kept) == 2 and header.record_count == 0 and header.size_bytes == 61
    assert header.last_offset == 6 and header.last_sequence == before.last_sequence
    assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (7, 0, 3)
    assert header.max_timestamp == before.max_timestamp and header.is_transactional
    # Cleaned again it is the same, and gone once the producer is.
    assert clean(kept, producers=[live(7, 6)])[0] == kept
    assert len(clean(kept)[0]) == 1


def test_the_marker_of_a_producer_with_nothing_else_stays() -> None:
    log = [marker(0, ControlType.COMMIT), batch(1, (b"a", b"1"))]
    stamped, _ = clean(log, producers=[live(7, -1)])
    later, _ = clean(stamped, producers=[live(7, -1)], now_ms=NOW + RETENTION)
    assert header_at(later[0]).record_count == 0 and header_at(later[0]).is_control
    assert len(clean(stamped, producers=[live(7, -1, epoch=1)], now_ms=NOW + RETENTION)[0]) == 1


Step = tuple[int, int | None]


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9)), min_size=1, max_size=4
        ),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([Codec.NONE, Codec.LZ4]),
)
@settings(max_examples=80)
def test_a_reader_ends_with_the_same_table(batches: list[list[Step]], codec: Codec) -> None:
    """The model is a dictionary: reading the whole log, or what is left of it, fills it equally."""
    log = []
    offset = 0
    for steps in batches:
        pairs = [(b"k%d" % k, None if v is None else b"v%d" % v) for k, v in steps]
        log.append(batch(offset, *pairs, codec=codec))
        offset += len(steps)

    def table(log: Sequence[bytes]) -> dict[bytes | None, bytes | None]:
        found: dict[bytes | None, bytes | None] = {}
        for data in log:
            for record in decode_records(data, header_at(data)):
                found[record.key] = record.value
        return {key: value for key, value in found.items() if value is not None}

    def ends(log: Sequence[bytes]) -> list[BatchHeader]:
        return [header_at(data) for data in log]

    kept, _ = clean(log)
    assert table(kept) == table(log)
    assert len(offsets(kept)) == len({k for steps in batches for k, _ in steps})
    assert all(a.last_offset < b.base_offset for a, b in itertools.pairwise(ends(kept)))
    assert table(clean(kept)[0]) == table(log)
    final, _ = clean(clean(kept)[0], now_ms=NOW + RETENTION)
    assert table(final) == table(log)
    assert len(offsets(final)) == len(table(log))
