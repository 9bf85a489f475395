"""Runs of records of one size: what is skipped is sound, and what is not is left to be found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.wire import records as checked
from odradek.wire.batch import Buffer
from odradek.wire.errors import DecodeError
from odradek.wire.even_records import RUN_MIN, skip_even_records
from odradek.wire.records import Record, check_records, encode_batch


def encoded(values: list[tuple[int, bytes]]) -> bytearray:
    """The records of a batch with these timestamps and values."""
    return encode_batch([Record(-1, time, None, value) for time, value in values])[61:]


def is_sound(data: Buffer, count: int) -> bool:
    try:
        check_records(data, count, whole=False)
    except DecodeError:
        return False
    return True


def is_sound_one_by_one(data: Buffer, count: int) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checked, "skip_even_records", lambda data, count: (0, 0))
        return is_sound(data, count)


@pytest.mark.parametrize("size", [1, 100, 1024, 8000])
@pytest.mark.parametrize("count", [RUN_MIN, 64, 65, 700, 8300])
def test_records_of_one_size_are_skipped_whatever_their_offsets_take(size: int, count: int) -> None:
    data = encoded([(number // 40, bytes(size)) for number in range(count)])
    position, index = skip_even_records(data, count)
    left = count - index
    # A change in the bytes that a number takes ends a run, and a short one is not looked for.
    assert left < 2 * RUN_MIN
    assert len(data) - position <= left * (size + 20)
    assert is_sound(data, count)


@given(
    st.lists(
        st.tuples(st.integers(1, 70), st.sampled_from([0, 1, 70, 9000]), st.integers(0, 3)),
        min_size=1,
        max_size=6,
    ),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=2),
    st.integers(0, 9),
)
def test_the_verdict_is_that_of_looking_at_each(
    runs: list[tuple[int, int, int]], damage: list[tuple[int, int]], cut: int
) -> None:
    values = [(time, bytes(size)) for count, time, size in runs for _ in range(count)]
    data = encoded(values)
    for at, byte in damage:
        data[at % len(data)] = byte
    data = data[: len(data) - cut]
    assert is_sound(data, len(values)) is is_sound_one_by_one(data, len(values))


def test_a_wrong_offset_within_a_run_is_found() -> None:
    data = encoded([(0, bytes(10))] * 300)
    record_bytes = len(data) - len(encoded([(0, bytes(10))] * 299))
    first = data.index(bytes([2 * 20]), 20 * 17)  # the offset of record 20, in one byte
    data[first] += 2
    assert skip_even_records(data, 300)[1] <= 20
    with pytest.raises(DecodeError, match="record 20 "):
        check_records(data, 300, whole=False)
    data[first] -= 2
    data[-record_bytes + 4] ^= 1  # the second byte of the last one's
    with pytest.raises(DecodeError, match="record 299 "):
        check_records(data, 300, whole=False)
