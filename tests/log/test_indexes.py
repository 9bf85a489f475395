"""The three indexes: their bytes, a model, and every kind of damaged file."""

import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.log.disk import RealDisk
from odradek.log.indexes import (
    BLOCK_ENTRIES,
    AbortedTransaction,
    CorruptIndex,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)

DISK = RealDisk()
BASE = 1000
MAX_BYTES = 10 * 1024 * 1024


def offset_index(path: Path, max_bytes: int = MAX_BYTES) -> OffsetIndex:
    return OffsetIndex(DISK, str(path / f"{BASE:020d}.index"), BASE, max_bytes)


def time_index(path: Path, max_bytes: int = MAX_BYTES) -> TimeIndex:
    return TimeIndex(DISK, str(path / f"{BASE:020d}.timeindex"), BASE, max_bytes)


def transaction_index(path: Path) -> TransactionIndex:
    return TransactionIndex(DISK, str(path / f"{BASE:020d}.txnindex"), BASE)


def test_offset_entries_are_kafkas_bytes(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    index.append(1005, 4200)
    index.append(1300, 70000)
    index.flush()
    assert Path(index.path).read_bytes() == bytes.fromhex("0000000500001068 0000012c00011170")


def test_time_entries_are_kafkas_bytes(tmp_path: Path) -> None:
    index = time_index(tmp_path)
    index.append(1_700_000_000_000, 1005)
    index.flush()
    assert Path(index.path).read_bytes() == bytes.fromhex("0000018bcfe56800 00000005")


def test_transaction_entries_are_kafkas_bytes(tmp_path: Path) -> None:
    index = transaction_index(tmp_path)
    assert not Path(index.path).exists()
    index.append(AbortedTransaction(7, 1001, 1004, 1005))
    assert Path(index.path).read_bytes() == bytes.fromhex(
        "0000 0000000000000007 00000000000003e9 00000000000003ec 00000000000003ed"
    )


def test_an_index_without_entries_is_an_empty_file_once_closed(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    assert index.lookup(5000) == (BASE, 0)
    assert index.last_offset == BASE
    assert not Path(index.path).exists()
    index.flush()
    assert Path(index.path).read_bytes() == b""


offsets_and_positions = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9000)), max_size=60)


@given(offsets_and_positions, st.integers(-5, 3200), st.integers(-5, 3200), st.booleans())
@settings(max_examples=80)
def test_offset_index_follows_a_list(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, int]],
    cut: int,
    wanted: int,
    flushed: bool,
) -> None:
    path = tmp_path_factory.mktemp("index")
    index = offset_index(path)
    model: list[tuple[int, int]] = []
    offset, position = BASE, 0
    for slot, (more_offset, more_position) in enumerate(steps):
        offset, position = offset + more_offset, position + more_position
        index.append(offset, position)
        model.append((offset, position))
        if flushed and slot % 7 == 3:
            index.flush()

    def expected(target: int) -> tuple[int, int]:
        return max((entry for entry in model if entry[0] <= target), default=(BASE, 0))

    assert index.lookup(BASE + wanted) == expected(BASE + wanted)
    index.truncate_to(BASE + cut)
    model = [entry for entry in model if entry[0] < BASE + cut]
    assert index.entry_count == len(model)
    assert index.lookup(BASE + wanted) == expected(BASE + wanted)
    index.append(BASE + 5000, 10**6)
    model.append((BASE + 5000, 10**6))
    index.flush()
    again = offset_index(path)
    assert [(BASE + first, second) for first, second in again.entries()] == model


@given(
    st.lists(st.tuples(st.integers(-3, 50), st.integers(0, 9)), max_size=60), st.integers(-1, 400)
)
@settings(max_examples=80)
def test_time_index_follows_a_list(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("index")
    index = time_index(path)
    model: list[tuple[int, int]] = []
    timestamp, offset = 0, BASE
    for more_time, more_offset in steps:
        timestamp, offset = timestamp + more_time, offset + more_offset
        index.append(timestamp, offset)
        if timestamp > (model[-1][0] if model else -1):
            model.append((timestamp, offset))
    for wanted in (-1, 0, 100, 10**9):
        expected = max((entry for entry in model if entry[0] <= wanted), default=(-1, BASE))
        assert index.lookup(wanted) == expected
    index.truncate_to(BASE + cut)
    model = [entry for entry in model if entry[1] < BASE + cut]
    assert index.last_entry == (model[-1] if model else (-1, BASE))
    index.flush()
    assert Path(index.path).stat().st_size == 12 * len(model)


def test_look_ups_across_many_blocks_and_a_tail(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    count = BLOCK_ENTRIES * 3 + 100
    for slot in range(count):
        index.append(BASE + 10 * slot + 5, 5000 * (slot + 1))
    for opened in (index, offset_index(tmp_path)):
        for slot in (0, 1, 511, 512, 513, 1024, count - 1):
            if opened is index or slot < BLOCK_ENTRIES * 3:
                entry = (BASE + 10 * slot + 5, 5000 * (slot + 1))
                assert opened.lookup(entry[0]) == entry
                assert opened.lookup(entry[0] + 9) == entry
        assert opened.lookup(BASE + 4) == (BASE, 0)
    index.truncate_to(BASE + 10 * 700 + 5)
    assert index.lookup(10**6) == (BASE + 10 * 699 + 5, 5000 * 700)
    assert Path(index.path).stat().st_size == 8 * 700


def test_full(tmp_path: Path) -> None:
    offsets, times = offset_index(tmp_path, 8 * 3 + 7), time_index(tmp_path, 12 * 3 + 11)
    was_full = []
    for slot in range(3):
        was_full.append(offsets.is_full)
        offsets.append(BASE + slot + 1, slot + 1)
        times.append(slot, BASE + slot)
    assert was_full == [False] * 3 and offsets.is_full
    assert times.is_full  # already at two: the third slot is for the roll
    with pytest.raises(AssertionError):
        offsets.append(BASE + 9, 9)
    with pytest.raises(AssertionError):
        times.append(9, BASE + 9)


def test_what_does_not_rise_is_refused(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    index.append(BASE + 5, 100)
    with pytest.raises(AssertionError):
        index.append(BASE + 5, 200)
    times = time_index(tmp_path)
    times.append(50, BASE + 5)
    with pytest.raises(AssertionError):
        times.append(60, BASE + 4)


@pytest.mark.parametrize("entries", [0, 1, 2, 700])
def test_the_padding_of_a_crashed_kafka_is_not_counted(tmp_path: Path, entries: int) -> None:
    index, times = offset_index(tmp_path), time_index(tmp_path)
    data = b"".join(struct.pack(">ii", slot + 1, slot + 1) for slot in range(entries))
    Path(index.path).write_bytes(data.ljust(10_485_760, b"\0"))
    time_data = b"".join(struct.pack(">qi", slot + 9, slot + 1) for slot in range(entries))
    Path(times.path).write_bytes(time_data.ljust(10_485_756, b"\0"))
    assert index.entry_count == times.entry_count == entries
    assert index.lookup(BASE + 10**6) == (BASE + entries, entries)
    assert times.last_entry == ((entries + 8, BASE + entries) if entries else (-1, BASE))
    index.append(BASE + 9999, 9999)
    index.flush()
    assert Path(index.path).read_bytes() == data + struct.pack(">ii", 9999, 9999)
    times.flush()
    assert Path(times.path).read_bytes() == time_data


def test_a_torn_last_entry_is_dropped(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    Path(index.path).write_bytes(struct.pack(">iiii", 5, 50, 9, 90)[:-3])
    assert list(index.entries()) == [(5, 50)]
    index.append(BASE + 7, 70)
    index.flush()
    assert list(offset_index(tmp_path).entries()) == [(5, 50), (7, 70)]


def test_reset_rename_and_delete(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    index.append(BASE + 1, 10)
    moved = index.path + ".deleted"
    index.rename(moved)
    index.flush()
    assert list(tmp_path.iterdir()) == [Path(moved)]
    index.reset()
    assert index.entry_count == 0 and Path(moved).stat().st_size == 0
    index.append(BASE + 1, 5)
    index.flush(sync=True)
    index.delete()
    assert list(tmp_path.iterdir()) == []


def test_a_stable_offset_after_the_marker_hides_no_later_transaction(tmp_path: Path) -> None:
    """A follower of Kafka's that copied both at once records this."""
    index = TransactionIndex(RealDisk(), str(tmp_path / "0.txnindex"), 0)
    first, second = AbortedTransaction(7, 0, 1, 4), AbortedTransaction(7, 2, 3, 4)
    for each in (first, second):
        index.append(each)
    assert index.collect(0, 3) == ([first, second], True)
    assert index.collect(0, 2) == ([first], True)


def test_aborted_transactions_are_collected_until_nothing_later_can_matter(tmp_path: Path) -> None:
    index = transaction_index(tmp_path)
    assert index.collect(0, 9999) == ([], False)
    first = AbortedTransaction(1, 1000, 1010, 1005)
    second = AbortedTransaction(2, 1005, 1020, 1021)
    third = AbortedTransaction(1, 1030, 1040, 1041)
    for aborted in (first, second, third):
        index.append(aborted)
    index = transaction_index(tmp_path)
    assert list(index.entries()) == [first, second, third]
    assert index.collect(1000, 1004) == ([first], True)
    assert index.collect(1011, 1025) == ([second], True)
    assert index.collect(1000, 5000) == ([first, second, third], False)
    with pytest.raises(AssertionError):
        index.append(AbortedTransaction(3, 1000, 1040, 1041))
    index.truncate_to(1020)
    assert list(index.entries()) == [first]
    index.append(second)
    index.flush(sync=True)
    assert list(transaction_index(tmp_path).entries()) == [first, second]
    index.reset()
    assert list(index.entries()) == [] and not Path(index.path).exists()


def test_each_range_has_the_aborted_transactions_that_touch_it(tmp_path: Path) -> None:
    rng = random.Random(1)
    index = transaction_index(tmp_path)
    aborted: list[AbortedTransaction] = []
    for last in sorted(rng.sample(range(1000, 1200), 40)):
        aborted.append(
            AbortedTransaction(rng.randrange(5), rng.randrange(900, last), last, last + 1)
        )
        index.append(aborted[-1])
    for start in range(990, 1210, 3):
        for end in range(start + 1, 1210, 7):
            touching = [
                each for each in aborted if start <= each.last_offset and each.first_offset < end
            ]
            found, _ = index.collect(start, end)
            # It ends at the first that says that all before the range's end is decided.
            last = next((each.last_offset for each in aborted if each.last_offset + 1 >= end), 1200)
            assert found == [each for each in touching if each.last_offset <= last]


def test_damaged_transaction_indexes(tmp_path: Path) -> None:
    index = transaction_index(tmp_path)
    entry = struct.pack(">hqqqq", 0, 1, 1000, 1010, 1011)
    Path(index.path).write_bytes(entry + entry[:20])
    assert len(list(index.entries())) == 1
    index.append(AbortedTransaction(1, 1011, 1012, 1013))
    assert [aborted.last_offset for aborted in transaction_index(tmp_path).entries()] == [
        1010,
        1012,
    ]
    for data in (b"\0" * 34, entry + entry, struct.pack(">hqqqq", 1, 1, 1000, 1010, 1011)):
        Path(index.path).write_bytes(data)
        with pytest.raises(CorruptIndex):
            transaction_index(tmp_path).check()
