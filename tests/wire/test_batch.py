"""Record batch headers: read, scanned and patched in place, and refused when they are nonsense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.wire.batch import (
    HEADER_BYTES,
    CorruptBatch,
    TimestampType,
    UnsupportedMagic,
    crc_ok,
    header_at,
    scan,
    set_append_time,
    set_offset_and_epoch,
)
from odradek.wire.compression import Codec
from odradek.wire.crc32c import BLOCK_BYTES, crc32c
from odradek.wire.errors import ErrorCode
from odradek.wire.records import Record, decode_records, encode_batch

NOW_MS = 1_700_000_000_000


def batch(count: int = 3, **options: object) -> bytearray:
    records = [Record(-1, NOW_MS + i, b"key", b"value %d" % i) for i in range(count)]
    return encode_batch(records, **options)  # type: ignore[arg-type]  # passed through


def test_a_header_says_what_the_batch_was_made_with() -> None:
    data = batch(
        4,
        base_offset=100,
        leader_epoch=7,
        producer_id=9,
        producer_epoch=2,
        base_sequence=2**31 - 2,
        transactional=True,
        codec=Codec.GZIP,
    )
    header = header_at(data)
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 103, 104)
    assert (header.size_bytes, header.end_position) == (len(data), len(data))
    assert (header.leader_epoch, header.magic, header.record_count) == (7, 2, 4)
    assert (header.producer_id, header.producer_epoch, header.has_producer_id) == (9, 2, True)
    assert (header.base_sequence, header.last_sequence) == (2**31 - 2, 1)  # sequences wrap
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS + 3)
    assert header.codec is Codec.GZIP
    assert header.is_transactional
    assert not header.is_control
    assert header.delete_horizon_ms is None
    assert crc_ok(data, header)


def test_scan_finds_whole_batches_and_stops_at_a_partial_one() -> None:
    parts = [batch(n, base_offset=n * 10) for n in (1, 2, 3)]
    data = bytes(b"".join(parts))
    assert [h.base_offset for h in scan(data)] == [10, 20, 30]
    assert [h.position for h in scan(data)] == [0, len(parts[0]), len(parts[0]) + len(parts[1])]
    for cut in range(len(parts[0]) + len(parts[1]), len(data)):
        assert [h.base_offset for h in scan(data[:cut])] == [10, 20]
    assert [h.base_offset for h in scan(data, len(parts[0]), len(data) - 1)] == [20]


@pytest.mark.parametrize("length", [-1, 0, 13, 14, 48, -(2**31)])
def test_a_length_shorter_than_a_header_is_corrupt(length: int) -> None:
    data = batch()
    data[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch) as caught:
        list(scan(data))
    assert caught.value.error is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(CorruptBatch):
        header_at(data)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_recognised_and_refused(magic: int) -> None:
    data = batch()
    data[16] = magic
    with pytest.raises(UnsupportedMagic) as caught:
        list(scan(data))
    assert caught.value.error is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    # The smallest message there was in magic 0 is shorter than a header of ours.
    shortest = bytes(8) + (14).to_bytes(4, "big") + bytes(4) + bytes([magic]) + bytes(9)
    with pytest.raises(UnsupportedMagic):
        list(scan(shortest))


def test_an_unknown_magic_or_codec_is_corrupt() -> None:
    data = batch()
    data[16] = 3
    with pytest.raises(CorruptBatch):
        list(scan(data))
    data = batch()
    data[22] |= 5
    with pytest.raises(CorruptBatch):
        _ = header_at(data).codec


@given(st.binary(max_size=200))
def test_any_bytes_give_headers_or_the_declared_errors(data: bytes) -> None:
    try:
        for header in scan(data):
            assert header.end_position <= len(data)
    except (CorruptBatch, UnsupportedMagic):
        pass


def test_a_leader_stamps_offset_and_epoch_outside_the_checksum() -> None:
    data = bytearray(7) + batch()
    set_offset_and_epoch(data, 7, 1 << 40, 12)
    header = header_at(data, 7)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 12)
    assert crc_ok(data, header)
    assert [r.offset for r in decode_records(data, header)] == [
        1 << 40,
        (1 << 40) + 1,
        2 + (1 << 40),
    ]


def test_the_append_time_replaces_every_timestamp_and_the_checksum() -> None:
    data = bytearray(5) + batch()
    set_append_time(memoryview(data), header_at(data, 5), NOW_MS + 99)
    header = header_at(data, 5)
    assert crc_ok(data, header)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS + 99)
    assert {r.timestamp for r in decode_records(data, header)} == {NOW_MS + 99}


def test_the_checksum_sees_every_bit_after_it() -> None:
    data = batch(1)
    for position in range(21, len(data)):
        data[position] ^= 1
        header = header_at(data)
        assert not crc_ok(data, header), position
        data[position] ^= 1
    assert crc_ok(data, header_at(data))
    assert len(data) > HEADER_BYTES


def test_crc32c_is_castagnoli() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
    assert crc32c(bytes(32)) == 0x8A9136AA


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 17])
def test_crc32c_is_the_same_for_every_kind_of_buffer(size: int) -> None:
    data = bytes(i * 7 & 0xFF for i in range(size + 3))
    expected = crc32c(data[3:])
    assert crc32c(bytearray(data[3:])) == expected
    assert crc32c(memoryview(bytearray(data))[3:]) == expected
    assert crc32c(memoryview(data)[3:]) == expected
