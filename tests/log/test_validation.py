"""What a leader refuses, with the error Kafka's clients know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.log.logs import NOW_MS, batch, everything, headers, open_log

from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.producers import Origin
from odradek.log.timestamp_search import LOOKED_AT_BYTES
from odradek.log.validation import RECORD_ERRORS_MAX, InvalidRecords
from odradek.wire.batch import header_at, set_append_time, set_crc
from odradek.wire.compression import SIZE_MAX, Codec, compress
from odradek.wire.errors import DecodeError, ErrorCode, KafkaError
from odradek.wire.records import (
    ControlType,
    Record,
    TransactionEnd,
    check_records,
    decode_records,
    encode_batch,
    encode_transaction_end,
)


def refusal(log: Log, data: bytearray | memoryview, origin: Origin = Origin.CLIENT) -> ErrorCode:
    end_offset, size = log.end_offset, log.size_bytes
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(data, 0, origin=origin)
    assert (log.end_offset, log.size_bytes) == (end_offset, size)
    assert not log.offline
    return caught.value.error


def patched(data: bytearray, position: int, value: bytes) -> bytearray:
    """The batch with a field changed and its checksum right again."""
    data[position : position + len(value)] = value
    set_crc(data, header_at(data))
    return data


def i32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


@pytest.mark.parametrize("position", [17, 21, 30, 61, 70])
def test_a_wrong_checksum_is_corrupt(position: int) -> None:
    data = batch()
    data[position] ^= 0x40
    assert refusal(open_log(), data) is ErrorCode.CORRUPT_MESSAGE


def test_old_formats_are_refused() -> None:
    for magic in (0, 1):
        data = batch()
        data[16] = magic
        assert refusal(open_log(), data) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_a_buffer_holds_one_whole_batch() -> None:
    log = open_log()
    assert refusal(log, bytearray()) is ErrorCode.INVALID_RECORD
    assert refusal(log, batch()[:30]) is ErrorCode.INVALID_RECORD
    assert refusal(log, batch()[:-1]) is ErrorCode.INVALID_RECORD
    assert refusal(log, batch() + batch()) is ErrorCode.INVALID_RECORD
    short = batch()[:40]
    short[8:12] = i32(5)
    assert refusal(log, short) is ErrorCode.CORRUPT_MESSAGE
    log.append_as_leader(batch() + batch()[:20], 0)  # Kafka, too, drops a partial second one.
    assert log.size_bytes == len(batch())


def test_sizes() -> None:
    config = LogConfig(max_message_bytes=200, segment_bytes=150)
    log = open_log(config=config)
    assert refusal(log, batch(value=b"v" * 150)) is ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(log, batch(value=b"v" * 90)) is ErrorCode.RECORD_LIST_TOO_LARGE
    exact = batch(value=b"v" * 66)
    log = open_log(config=LogConfig(max_message_bytes=len(exact), segment_bytes=len(exact)))
    log.append_as_leader(exact, 0)


def test_counts_and_offsets_of_a_client_must_agree() -> None:
    log = open_log()
    for changed in (
        patched(batch(3), 0, (1).to_bytes(8, "big")),  # base offset
        patched(batch(3), 23, i32(3)),  # last offset delta
        patched(batch(3), 23, i32(-1)),
        patched(batch(3), 57, i32(2)),  # record count
        patched(batch(3), 57, i32(0)),
        patched(patched(batch(1), 57, i32(0)), 23, i32(-1)),
    ):
        assert refusal(log, changed) is ErrorCode.INVALID_RECORD


def claiming(data: bytearray, count: int) -> bytearray:
    """The batch with another record count, and the offsets to go with it."""
    return patched(patched(data, 23, i32(count - 1)), 57, i32(count))


@pytest.mark.parametrize("codec", Codec)
def test_a_count_that_no_batch_of_this_size_can_hold_is_refused(codec: Codec) -> None:
    log = open_log()
    for count in (2**31 - 1, SIZE_MAX // 7 + 1):
        assert refusal(log, claiming(batch(codec=codec), count)) is ErrorCode.INVALID_RECORD
    # The densest there is: seven bytes a record, in the codec that makes the least of them.
    count = 100_000 if codec else 64
    records = b"".join(bytes([12, 0, 0, 0 if codec else 2 * n, 1, 1, 0]) for n in range(count))
    densest = batch(codec=codec)[:61] + compress(codec, records)
    densest[8:12] = i32(len(densest) - 12)
    log = open_log(config=LogConfig())
    log.append_as_leader(claiming(densest, count), 0)
    assert log.end_offset == count


# One record of an empty key, the value "v" and no header, at offset delta 0.
GOOD = bytes([14, 0, 0, 0, 0, 2, ord("v"), 0])


@pytest.mark.parametrize(
    "records",
    [
        bytes([14, 0, 0, 198, 1, 0, 2, ord("v"), 0]),  # offset delta 99
        bytes([14, 0, 0, 2, 0, 2, ord("v"), 0]),  # offset delta 1
        b"\xfe\xff\xff\xff\x0f" + GOOD[1:],  # 2 GB long
        b"\x0d" + GOOD[1:],  # of negative size
        bytes([14, 0, 0, 0, 3, 2, ord("v"), 0]),  # a key of -2 bytes
        bytes([14, 0, 0, 0, 0, 200, 1, 0]),  # a value beyond the record
        GOOD[:-1] + b"\xfe\xff\xff\xff\x0f",  # a thousand million headers
        GOOD[:-1] + bytes([2]),  # a header that is not there
        GOOD[:-1],
        GOOD + b"\0",
        b"\xff" * 30,
    ],
)
def test_records_that_no_consumer_could_read_are_refused(records: bytes) -> None:
    log = open_log()
    data = batch()[:61] + records
    data[8:12] = i32(len(data) - 12)
    assert refusal(log, claiming(data, 1)) is ErrorCode.INVALID_RECORD


def test_the_greatest_timestamp_is_not_before_the_first() -> None:
    data = batch()
    base = int.from_bytes(data[27:35], "big")
    patched(data, 35, (base - 1).to_bytes(8, "big"))
    assert refusal(open_log(), data) is ErrorCode.INVALID_RECORD


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=200),
            st.none() | st.binary(max_size=20_000),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
            st.integers(0, 2**40),
        ),
        min_size=1,
        max_size=150,
    )
)
def test_every_batch_of_a_producer_passes(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
) -> None:
    data = encode_batch(
        [Record(-1, time, key, value, tuple(headers)) for key, value, headers, time in records]
    )
    for whole in (False, True):
        check_records(bytes(data[61:]), len(records), whole=whole)


@given(st.binary(max_size=200), st.integers(1, 40))
def test_what_passes_can_be_decoded(noise: bytes, count: int) -> None:
    try:
        check_records(noise, count, whole=True)
    except DecodeError:
        return
    data = claiming(batch()[:61] + noise, count)
    data[8:12] = i32(len(data) - 12)
    assert [each.offset for each in decode_records(data, header_at(data))] == list(range(count))


def test_a_compacted_topic_does_not_look_for_millions_of_keys_in_one_batch() -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    assert config.max_message_bytes < LOOKED_AT_BYTES
    log, most = open_log(config=config), LOOKED_AT_BYTES // 7
    packed = batch(codec=Codec.ZSTD)[:61] + bytes(1000)
    packed[8:12] = i32(len(packed) - 12)
    with pytest.raises(KafkaError, match="too many"):
        log.append_as_leader(claiming(packed, most + 1), 0)
    with pytest.raises(KafkaError, match="bad zstd"):
        log.append_as_leader(claiming(packed, most), 0)


def test_clients_write_no_control_batches_and_no_negative_sequences() -> None:
    log = open_log()
    marker = encode_transaction_end(TransactionEnd(ControlType.COMMIT, 0, NOW_MS), 1, 0)
    assert refusal(log, marker) is ErrorCode.INVALID_RECORD
    data = batch(producer_id=4, producer_epoch=0, base_sequence=-1)
    assert refusal(log, data) is ErrorCode.INVALID_RECORD
    log.append_as_leader(marker, 0, origin=Origin.COORDINATOR)
    assert headers(log)[0].is_control


def test_an_unknown_codec_is_invalid() -> None:
    assert refusal(open_log(), patched(batch(), 22, b"\x05")) is ErrorCode.INVALID_RECORD


def test_timestamps_must_be_near_the_brokers() -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    log = open_log(config=config)
    for time_ms in (NOW_MS - 1000, NOW_MS, NOW_MS + 500, -1):
        log.append_as_leader(batch(time_ms=time_ms), 0)
    for time_ms in (NOW_MS - 1001, NOW_MS + 501, 0):
        assert refusal(log, batch(time_ms=time_ms)) is ErrorCode.INVALID_TIMESTAMP
    set_append_time(data := batch(), header_at(data), NOW_MS)
    assert refusal(log, data) is ErrorCode.INVALID_TIMESTAMP
    append_time = open_log(config=LogConfig(message_timestamp_type="LogAppendTime"))
    append_time.append_as_leader(batch(time_ms=5), 0)
    assert headers(append_time)[0].max_timestamp == NOW_MS


def test_the_older_limit_on_timestamps_is_enforced() -> None:
    log = open_log(config=LogConfig(message_timestamp_difference_max_ms=1000))
    log.append_as_leader(batch(time_ms=NOW_MS - 1000), 0)
    for time_ms in (NOW_MS - 1001, NOW_MS + 1001):
        assert refusal(log, batch(time_ms=time_ms)) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", Codec)
def test_a_compacted_topic_needs_keys(codec: Codec) -> None:
    log = open_log(config=LogConfig(cleanup_policy=frozenset({"compact"})))
    keyed = [Record(-1, NOW_MS, b"k", b"v"), Record(-1, NOW_MS, b"", None)]
    log.append_as_leader(encode_batch(keyed, codec=codec), 0)
    keyless = [*keyed, Record(-1, NOW_MS, None, b"v")]
    assert refusal(log, encode_batch(keyless, codec=codec)) is ErrorCode.INVALID_RECORD
    open_log().append_as_leader(encode_batch(keyless, codec=codec), 0)


@pytest.mark.parametrize("codec", Codec)
def test_the_bad_records_of_a_batch_are_named(codec: Codec) -> None:
    log = open_log(config=LogConfig(cleanup_policy=frozenset({"compact"})))
    records = [Record(-1, NOW_MS, None if index in (3, 7) else b"k", b"v") for index in range(10)]
    with pytest.raises(InvalidRecords, match="2 of 10 records are invalid") as caught:
        log.append_as_leader(encode_batch(records, codec=codec), 0)
    assert [index for index, _ in caught.value.records] == [3, 7]
    limited = open_log(config=LogConfig(message_timestamp_before_max_ms=1000))
    old = [Record(-1, NOW_MS - (5000 if index == 4 else 0), b"k", b"v") for index in range(10)]
    data = encode_batch(old, codec=codec)
    # The header has the first record's time: one that is too old must be the first to be noticed.
    limited.append_as_leader(data, 0)
    with pytest.raises(InvalidRecords) as caught:
        limited.append_as_leader(encode_batch([*old[4:], *old[:4]], codec=codec), 0)
    ((index, reason),) = caught.value.records
    assert index == 0 and str(NOW_MS - 5000) in reason
    assert caught.value.error is ErrorCode.INVALID_TIMESTAMP


def test_of_many_bad_records_a_bounded_number_is_named() -> None:
    log = open_log(config=LogConfig(cleanup_policy=frozenset({"compact"})))
    data = encode_batch([Record(-1, NOW_MS, None, b"")] * (RECORD_ERRORS_MAX + 1))
    with pytest.raises(InvalidRecords) as caught:
        log.append_as_leader(data, 0)
    assert len(caught.value.records) == RECORD_ERRORS_MAX


def test_a_compacted_topic_opens_batches_and_refuses_what_is_broken_inside() -> None:
    log = open_log(config=LogConfig(cleanup_policy=frozenset({"compact"})))
    assert refusal(log, patched(batch(), 61, b"\x7f")) is ErrorCode.INVALID_RECORD
    broken = patched(batch(codec=Codec.ZSTD), 61, b"nonsense")
    assert refusal(log, broken) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("source", Codec)
def test_a_topic_may_prescribe_its_codec(source: Codec, target: str) -> None:
    log = open_log(config=LogConfig(compression_type=target))
    records = [Record(-1, NOW_MS + i, b"k", b"v" * 50, (("h", b"x"),)) for i in range(5)]
    data = encode_batch(records, codec=source, producer_id=3, producer_epoch=1, base_sequence=0)
    log.append_as_leader(data, 6)
    (stored,) = everything(log)
    header = header_at(stored)
    assert header.codec is (Codec.NONE if target == "uncompressed" else Codec[target.upper()])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 0)
    assert (header.leader_epoch, header.base_timestamp) == (6, NOW_MS)
    expected = [record._replace(offset=i) for i, record in enumerate(records)]
    assert decode_records(stored, header) == expected


def test_what_grows_too_large_when_recompressed_is_refused() -> None:
    log = open_log(config=LogConfig(compression_type="uncompressed", max_message_bytes=500))
    data = batch(value=bytes(1000), codec=Codec.GZIP)
    assert refusal(log, data) is ErrorCode.MESSAGE_TOO_LARGE


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_refused_with_a_kafka_error(data: bytes, framed: bool) -> None:
    if framed:  # Get past the first checks more often.
        data = bytes(8) + i32(max(49, len(data))) + bytes(4) + b"\x02" + data
    error = refusal(open_log(), bytearray(data))
    assert error in (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    )
