"""Records inside batches: made, opened, compared with other clients' codecs, and fuzzed."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from odradek.wire.batch import (
    DELETE_HORIZON_BIT,
    TimestampType,
    crc_ok,
    header_at,
    set_crc,
    set_offset_and_epoch,
)
from odradek.wire.compression import Codec
from odradek.wire.errors import DecodeError
from odradek.wire.records import (
    ControlType,
    Record,
    TransactionEnd,
    decode_records,
    decode_transaction_end,
    encode_batch,
    encode_transaction_end,
)

NOW_MS = 1_700_000_000_000

headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3)
records = st.builds(
    Record,
    offset=st.just(-1),
    timestamp=st.integers(0, 2**50),
    key=st.none() | st.binary(max_size=200),
    value=st.none() | st.binary(max_size=200),
    headers=headers.map(tuple),
)


@given(st.lists(records, min_size=1, max_size=20), st.sampled_from(Codec), st.integers(0, 2**40))
def test_records_come_back_as_they_were(items: list[Record], codec: Codec, base: int) -> None:
    data = encode_batch(items, base_offset=base, codec=codec)
    header = header_at(data)
    assert crc_ok(data, header)
    assert header.max_timestamp == max(item.timestamp for item in items)
    expected = [item._replace(offset=base + i) for i, item in enumerate(items)]
    assert decode_records(data, header) == expected


def test_offsets_may_have_gaps_and_a_range_of_their_own() -> None:
    items = [Record(105, NOW_MS, b"a", b"1"), Record(109, NOW_MS, b"b", None)]
    data = encode_batch(items, base_offset=100, last_offset_delta=19, delete_horizon_ms=NOW_MS + 5)
    header = header_at(data)
    assert (header.base_offset, header.last_offset, header.record_count) == (100, 119, 2)
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.delete_horizon_ms == NOW_MS + 5
    assert decode_records(data, header) == items
    empty = encode_batch([], base_offset=100, last_offset_delta=19)
    assert decode_records(empty, header_at(empty)) == []


def test_append_time_is_every_records_timestamp() -> None:
    data = encode_batch(
        [Record(-1, 5, None, b"x"), Record(-1, 6, None, b"y")],
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        append_time_ms=77,
    )
    header = header_at(data)
    assert header.max_timestamp == 77
    assert [record.timestamp for record in decode_records(data, header)] == [77, 77]


@pytest.mark.parametrize("codec", Codec)
def test_another_client_reads_what_we_write(codec: Codec) -> None:
    items = [
        Record(-1, NOW_MS + i, b"k%d" % i, b"v" * i * 50, (("h", b"x"), ("n", None)))
        for i in range(40)
    ]
    data = encode_batch(items, codec=codec, producer_id=5, producer_epoch=1, base_sequence=3)
    theirs: Any = DefaultRecordBatch(bytes(data))
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (5, 1, 3)
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert read == [tuple(item._replace(offset=i)) for i, item in enumerate(items)]


@pytest.mark.parametrize("codec", Codec)
def test_we_read_what_another_client_writes(codec: Codec) -> None:
    builder: Any = DefaultRecordBatchBuilder(2, int(codec), 1, 8, 4, 0, 1 << 20)
    for i in range(40):
        builder.append(i, NOW_MS + i, b"k%d" % i, b"v" * i * 50, [("h", b"x")])
    data = bytes(builder.build())
    header = header_at(data)
    assert header.codec is codec
    assert header.is_transactional
    assert crc_ok(data, header)
    assert decode_records(data, header) == [
        Record(i, NOW_MS + i, b"k%d" % i, b"v" * i * 50, (("h", b"x"),)) for i in range(40)
    ]


def test_the_end_of_a_transaction() -> None:
    for kind in ControlType:
        end = TransactionEnd(kind, 11, NOW_MS)
        data = encode_transaction_end(end, producer_id=3, producer_epoch=4)
        header = header_at(data)
        assert header.is_control
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 4, -1)
        assert decode_transaction_end(data, header) == end


def test_the_end_of_a_transaction_is_kafkas_bytes() -> None:
    for kind, crc, key in (
        (ControlType.COMMIT, "a7d9b82a", "00000001"),
        (ControlType.ABORT, "53e76e62", "00000000"),
    ):
        data = encode_transaction_end(TransactionEnd(kind, 5, 1_700_000_000_000), 1000, 2)
        set_offset_and_epoch(data, 0, 10, 3)
        assert data.hex() == (
            f"000000000000000a 00000042 00000003 02 {crc} 0030 00000000"
            " 0000018bcfe56800 0000018bcfe56800 00000000000003e8 0002 ffffffff 00000001"
            f" 20 00 00 00 08 {key} 0c 000000000005 00"
        ).replace(" ", "")


def test_control_batches_that_end_nothing() -> None:
    emptied = encode_batch([], control=True)
    assert decode_transaction_end(emptied, header_at(emptied)) is None
    other = encode_batch([Record(-1, 0, b"\x00\x00\x00\x02", b"")], control=True)
    assert decode_transaction_end(other, header_at(other)) is None
    for key, value in ((None, b""), (b"\x00", b""), (b"\x00\x00\x00\x00", b"\x00")):
        broken = encode_batch([Record(-1, 0, key, value)], control=True)
        with pytest.raises(DecodeError):
            decode_transaction_end(broken, header_at(broken))


@given(st.lists(records, min_size=1, max_size=5), st.sampled_from(Codec), st.data())
def test_damaged_records_are_a_decode_error_or_other_records(
    items: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = encode_batch(items, codec=codec)
    for _ in range(3):
        position = data.draw(st.integers(57, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    set_crc(batch, header_at(batch))
    try:
        decode_records(batch, header_at(batch), size_max=1 << 20)
    except DecodeError:
        pass


@pytest.mark.parametrize("count", [-1, 0, 2, 2**31 - 1])
def test_a_wrong_record_count_is_a_decode_error(count: int) -> None:
    batch = encode_batch([Record(-1, 0, b"k", b"v")])
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(DecodeError):
        decode_records(batch, header_at(batch))
