"""One log: appending, reading, its marks and times."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.log.logs import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    CrashingDisk,
    batch,
    end,
    everything,
    fill,
    headers,
    mounted,
    offsets,
    open_log,
    part,
    produce,
    read_all,
    sim_disk,
)

from odradek.log.config import LogConfig
from odradek.log.disk import Disk, File
from odradek.log.log import UnexpectedOffset
from odradek.log.timestamp_search import LOOKED_AT_BYTES
from odradek.wire.batch import (
    BatchHeader,
    CorruptBatch,
    crc_ok,
    header_at,
    scan,
    set_crc,
)
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import (
    ControlType,
    Record,
    decode_records,
    encode_batch,
    iterate_records,
)

# Appending


def test_a_leader_numbers_batches_and_stamps_its_epoch() -> None:
    log = open_log()
    first = log.append_as_leader(batch(3), 5)
    assert (first.first_offset, first.last_offset, first.duplicate) == (0, 2, False)
    assert (first.max_timestamp, first.append_time_ms, first.log_start_offset) == (NOW_MS, -1, 0)
    second = log.append_as_leader(memoryview(batch(2)), 6)
    assert (second.first_offset, second.last_offset) == (3, 4)
    assert [(h.base_offset, h.leader_epoch) for h in headers(log)] == [(0, 5), (3, 6)]
    assert log.epochs.entries == [(5, 0), (6, 3)]
    assert log.end_offset == 5
    assert log.high_watermark == 0
    assert all(crc_ok(data, header_at(data)) for data in everything(log))


def test_the_buffer_is_patched_where_it_lies_and_written_from_there() -> None:
    log = open_log()
    fill(log, 1)
    data = batch(2)
    log.append_as_leader(data, 3)
    assert everything(log)[1] == bytes(data)


def test_append_time_and_recompression() -> None:
    times = iter(range(NOW_MS, NOW_MS + 100))
    config = LogConfig(message_timestamp_type="LogAppendTime", compression_type="zstd")
    log = open_log(config=config, clock=lambda: next(times))
    info = log.append_as_leader(batch(3, time_ms=5, codec=Codec.GZIP), 0)
    (header,) = headers(log)
    assert header.codec is Codec.ZSTD
    assert header.max_timestamp == info.max_timestamp == info.append_time_ms > NOW_MS
    records = decode_records(everything(log)[0], header)
    assert [(r.offset, r.value, r.timestamp) for r in records] == [
        (i, b"value", info.append_time_ms) for i in range(3)
    ]


def test_a_follower_takes_many_batches_as_they_are_and_leaves_a_partial_one() -> None:
    log = open_log()
    parts = [part(0, 2, epoch=1), part(2, epoch=1), part(7, 3, epoch=4)]
    info = log.append_as_follower(b"".join(parts) + parts[0][:-1])
    assert (info.first_offset, info.last_offset) == (0, 9)
    assert info.size_bytes == sum(map(len, parts))
    assert everything(log) == parts
    assert log.epochs.entries == [(1, 0), (4, 7)]
    assert log.append_as_follower(b"").size_bytes == 0
    assert log.append_as_follower(memoryview(part(10))).first_offset == 10


def test_what_a_follower_refuses_leaves_nothing_behind() -> None:
    log = open_log()
    log.append_as_follower(part(0, 5))
    with pytest.raises(UnexpectedOffset) as caught:
        log.append_as_follower(part(4, 2) + part(6))
    assert (caught.value.first_offset, caught.value.last_offset) == (4, 6)
    damaged = bytearray(part(5) + part(6))
    damaged[-1] ^= 1
    for bad in (damaged, part(6) + part(5), part(5) + b"\0" * 80):
        with pytest.raises(CorruptBatch):
            log.append_as_follower(bad)
    assert log.end_offset == 5
    assert len(everything(log)) == 1


def test_a_follower_splits_what_no_segment_can_hold() -> None:
    log = open_log()
    parts = [part(i, value=b"v" * 200) for i in range(20)]
    log.append_as_follower(b"".join(parts))
    assert everything(log) == parts
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
    far = 5_000_000_000  # more than 32 bits from the segment's base, and from one another
    parts = [part(far), part(3 * far)]
    log.append_as_follower(b"".join(parts))
    assert everything(log)[-2:] == parts
    assert [s.base_offset for s in log.segments][-2:] == [far, 3 * far]
    assert offsets(read_all(log)) == [*range(20), far, 3 * far]


# Idempotence and transactions


def test_a_repeated_batch_is_answered_as_the_first_time_and_not_appended() -> None:
    log = open_log()
    for sequence in range(7):
        produce(log, sequence, transactional=False)
    size = log.size_bytes
    for sequence in range(2, 7):  # The last five are remembered.
        data = batch(producer_id=7, producer_epoch=0, base_sequence=sequence)
        info = log.append_as_leader(data, 9)
        assert (info.first_offset, info.duplicate, info.max_timestamp) == (sequence, True, NOW_MS)
    for sequence in (1, 8):
        with pytest.raises(KafkaError) as caught:
            produce(log, sequence, transactional=False)
        assert caught.value.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.size_bytes == size
    assert log.epochs.entries == [(0, 0)]


def test_truncating_leaves_ended_transactions_stable() -> None:
    log = open_log()
    produce(log, 0)
    end(log, ControlType.ABORT)
    log.set_high_watermark(log.end_offset)
    fill(log, 2)
    log.truncate_to(3)
    assert (log.end_offset, log.high_watermark, log.last_stable_offset) == (3, 2, 2)
    log.truncate_to(2)
    assert log.last_stable_offset == 2
    log.truncate_to(1)
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    # Without its marker the transaction is open again, and may end otherwise.
    assert log.producers.has_open_transaction(7)
    assert log.aborted_transactions(0, 9) == []
    end(log, ControlType.COMMIT)
    log.set_high_watermark(log.end_offset)
    assert (log.last_stable_offset, log.aborted_transactions(0, 9)) == (2, [])


def test_a_follower_that_copies_many_transactions_at_once_knows_each_abort() -> None:
    leader, follower = open_log(), open_log()
    produce(leader, 0)
    end(leader, ControlType.ABORT)
    produce(leader, 1)
    end(leader, ControlType.ABORT)
    other = batch(producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
    leader.append_as_leader(other, 0)
    follower.append_as_follower(leader.read(0, 1 << 20).records)
    for to in range(1, 6):
        expected = leader.aborted_transactions(0, to)
        assert follower.aborted_transactions(0, to) == expected
    assert [each.first_offset for each in expected] == [0, 2]


def test_open_transactions_hold_the_last_stable_offset_back() -> None:
    log = open_log()
    fill(log, 2)
    first = produce(log, 0)
    fill(log, 1)
    log.set_high_watermark(log.end_offset)
    assert (first, log.last_stable_offset) == (2, 2)
    abort = end(log, ControlType.ABORT)
    assert log.last_stable_offset == 2  # not until the marker is on every replica
    log.set_high_watermark(log.end_offset)
    assert log.last_stable_offset == log.end_offset == 5
    assert [a[:3] for a in log.aborted_transactions(0, 5)] == [(7, 2, abort)]
    assert log.aborted_transactions(0, 2) == []
    assert log.aborted_transactions(5, 9) == []
    produce(log, 1)
    end(log, ControlType.COMMIT)
    assert len(log.aborted_transactions(0, 100)) == 1


def test_aborted_transactions_are_found_across_segments() -> None:
    log = open_log()
    for sequence in range(30):
        produce(log, sequence, producer=1)
        end(log, ControlType.ABORT, producer=1)
    assert len(log.segments) > 3
    assert len(log.aborted_transactions(0, log.end_offset)) == 30
    assert [a.first_offset for a in log.aborted_transactions(10, 14)] == [10, 12]


def test_the_index_of_overlapping_transactions_is_kafkas() -> None:
    """Of the aborted ones, with the first offset of the oldest that another producer had open."""
    disk = mounted(sim_disk())
    log = open_log(disk, LogConfig())

    def go_to(offset: int) -> None:
        fill(log, offset - log.end_offset)
        log.set_high_watermark(log.end_offset)

    assert produce(log, 0, producer=1) == 0
    go_to(8)
    assert produce(log, 0, producer=2) == 8
    go_to(29)
    assert log.last_stable_offset == 0
    assert end(log, ControlType.ABORT, producer=1) == 29
    go_to(36)
    assert log.last_stable_offset == 8
    assert produce(log, 0, producer=3) == 36
    go_to(74)
    assert end(log, ControlType.ABORT, producer=2) == 74
    go_to(90)
    assert log.last_stable_offset == 36
    assert end(log, ControlType.COMMIT, producer=3) == 90
    log.set_high_watermark(log.end_offset)
    assert log.last_stable_offset == log.end_offset == 91
    assert log.aborted_transactions(0, 91) == [(1, 0, 29, 8), (2, 8, 74, 36)]
    assert log.aborted_transactions(0, 8) == [(1, 0, 29, 8)]
    assert log.aborted_transactions(30, 91) == [(2, 8, 74, 36)]
    log.flush()
    index = disk.read_bytes(f"{DIRECTORY}/{0:020d}.txnindex")
    assert index[34:].hex() == (
        "0000 0000000000000002 0000000000000008 000000000000004a 0000000000000024"
    ).replace(" ", "")


# Reading


def test_a_read_begins_with_the_batch_that_has_the_offset() -> None:
    log = open_log()
    fill(log, 30, count=3)
    for offset in range(log.end_offset):
        for limit in (1, 200, 1 << 20):
            records = log.read(offset, limit).records
            assert header_at(records).base_offset == offset // 3 * 3
    assert read_all(log, 1) == read_all(log, 1 << 20) == everything(log)


def test_a_read_keeps_to_its_limits() -> None:
    log = open_log(config=LogConfig())
    fill(log, 10, count=2)
    one = len(everything(log)[0])
    assert len(log.read(0, 1).records) == one
    assert log.read(0, one - 1, min_one_batch=False).records == b""
    assert len(log.read(0, one, min_one_batch=False).records) == one
    assert len(log.read(0, 3 * one + 7).records) == 3 * one + 7  # the last one partial, as in Kafka
    for bound in range(21):
        found = list(scan(log.read(0, 1 << 20, end_offset=bound).records))
        assert [h.base_offset for h in found] == [o for o in range(0, 20, 2) if o + 1 < bound]


def test_offsets_outside_the_log_are_out_of_range() -> None:
    log = open_log()
    fill(log, 20)
    log.set_high_watermark(20)
    log.advance_start_offset(7)
    assert log.read(20, 100).records == b""
    assert log.read(7, 100, end_offset=7).records == b""
    assert log.read(15, 100, end_offset=10).records == b""
    for offset in (-1, 0, 6, 21):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100)
        assert caught.value.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert header_at(log.read(7, 100).records).base_offset == 7


class CountingDisk(CrashingDisk):
    """Counts what is read."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self.reads = 0
        self.bytes = 0

    def open(self, path: str, create: bool = False) -> File:
        file: Any = super().open(path, create)
        inner = file.read

        def read(position: int, length: int) -> bytes:
            data: bytes = inner(position, length)
            self.reads += 1
            self.bytes += len(data)
            return data

        file.read = read
        return file  # type: ignore[no-any-return]  # a File with another read


def test_reading_a_million_records_costs_no_more_than_reading_a_few() -> None:
    disk = CountingDisk(mounted(sim_disk()))
    log = open_log(disk, LogConfig(segment_bytes=1 << 20))
    data = batch(100, value=b"v")
    costs = {}
    for length in (10_000, 1_000_000):
        while log.end_offset < length:
            data[0:8] = bytes(8)
            log.append_as_leader(data, 0)
        worst = (0, 0)
        for step in range(200):
            offset = step * length // 200
            disk.reads = disk.bytes = 0
            read = log.read(offset, 1000, end_offset=offset + 400)
            assert header_at(read.records).base_offset == offset // 100 * 100
            worst = max(worst, (disk.reads, disk.bytes))
        costs[length] = worst
    assert len(log.segments) > 3
    assert costs[1_000_000][0] <= 30, costs
    assert costs[1_000_000][1] <= 64 * 1024, costs
    # At the end, where followers and most consumers are, nothing is searched at all.
    disk.reads = disk.bytes = 0
    records = log.read(999_900, 1 << 20, end_offset=1_000_000).records
    assert (disk.reads, disk.bytes) == (1, len(records))
    disk.reads = 0
    log.read(995_000, 1 << 20, end_offset=999_900)
    assert disk.reads == 1


# Time


def test_offsets_by_time() -> None:
    log = open_log()
    for index in range(60):
        records = [Record(-1, NOW_MS + index * 10 + i, b"k", b"v" * 20) for i in range(3)]
        log.append_as_leader(encode_batch(records, codec=Codec(index % 5)), index // 20)
    assert len(log.segments) > 3
    assert log.offset_for_timestamp(0) == (NOW_MS, 0, 0)
    assert log.offset_for_timestamp(NOW_MS + 251) == (NOW_MS + 251, 76, 1)
    assert log.offset_for_timestamp(NOW_MS + 253) == (NOW_MS + 260, 78, 1)
    assert log.offset_for_timestamp(NOW_MS + 593) is None
    assert log.offset_of_greatest_timestamp() == (NOW_MS + 592, 179, 2)
    log.set_high_watermark(180)
    log.advance_start_offset(100)
    assert log.offset_for_timestamp(0) == (NOW_MS + 331, 100, 1)


def test_offsets_by_time_when_time_goes_back() -> None:
    log = open_log()
    for time_ms in (500, 400, 900, 100, 950, 200):
        log.append_as_leader(batch(value=b"v" * 150, time_ms=time_ms), 0)
    assert [log.offset_for_timestamp(t) for t in (1, 450, 501, 901, 951)] == [
        (500, 0, 0),
        (500, 0, 0),
        (900, 2, 0),
        (950, 4, 0),
        None,
    ]
    assert log.offset_of_greatest_timestamp() == (950, 4, 0)


def test_offsets_by_time_in_a_batch_that_cannot_be_opened() -> None:
    log = open_log()
    fill(log, 3)
    data = batch(2, time_ms=NOW_MS + 50, codec=Codec.GZIP)
    data[61] = 0x7F  # The checksum is right, and a compressed batch is not opened.
    set_crc(data, header_at(data))
    log.append_as_leader(data, 0)
    assert log.offset_for_timestamp(NOW_MS + 10) == (NOW_MS + 50, 3, 0)
    assert log.offset_of_greatest_timestamp() == (NOW_MS + 50, 3, 0)


def _opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first offset of each batch that is opened from now on to find a time."""
    opened: list[int] = []

    def opening(buffer: bytes, header: BatchHeader) -> Iterator[Record]:
        opened.append(header.base_offset)
        return iterate_records(buffer, header)

    monkeypatch.setattr("odradek.log.timestamp_search.iterate_records", opening)
    return opened


def _claiming_time(data: bytearray, time_ms: int) -> bytearray:
    data[35:43] = time_ms.to_bytes(8, "big")  # The greatest timestamp.
    set_crc(data, header_at(data))
    return data


def test_offsets_by_time_open_one_batch_that_lies_about_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = _opened(monkeypatch)
    log = open_log()
    for _ in range(20):
        log.append_as_leader(_claiming_time(batch(2), NOW_MS + 50), 0)
    assert log.offset_for_timestamp(NOW_MS + 10) == (NOW_MS + 50, 0, 0)
    assert log.offset_of_greatest_timestamp() == (NOW_MS + 50, 0, 0)
    assert opened == [0, 0]
    log.set_high_watermark(40)
    log.advance_start_offset(5)  # Within a batch: what was that late may be gone.
    assert log.offset_for_timestamp(NOW_MS + 10) == (NOW_MS + 50, 6, 0)
    assert opened == [0, 0, 4, 6]


def test_offsets_by_time_skip_what_is_gone_from_the_first_batch() -> None:
    log = open_log()
    log.append_as_leader(
        encode_batch([Record(-1, NOW_MS + 50, b"k", b"v"), Record(-1, NOW_MS, b"k", b"v")]), 0
    )
    log.append_as_leader(batch(time_ms=NOW_MS + 20), 0)
    log.set_high_watermark(3)
    log.advance_start_offset(1)
    assert log.offset_for_timestamp(NOW_MS + 10) == (NOW_MS + 20, 2, 0)


def test_offsets_by_time_pass_over_a_batch_that_was_emptied() -> None:
    log = open_log()
    emptied = encode_batch([], last_offset_delta=0, producer_id=1, producer_epoch=0)
    log.append_as_follower(_claiming_time(emptied, NOW_MS + 50))
    log.append_as_follower(batch(base_offset=1, time_ms=NOW_MS + 20, leader_epoch=0))
    assert log.offset_for_timestamp(NOW_MS + 10) == (NOW_MS + 20, 1, 0)


def test_offsets_by_time_do_not_open_a_batch_of_millions(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = _opened(monkeypatch)
    log = open_log()
    data = batch(codec=Codec.ZSTD)
    data[57:61] = (LOOKED_AT_BYTES // 7 + 1).to_bytes(4, "big")  # The record count.
    log.append_as_follower(_claiming_time(data, NOW_MS + 50))
    assert log.offset_for_timestamp(NOW_MS + 10) == (NOW_MS + 50, 0, -1)
    assert opened == []


def test_records_without_timestamps() -> None:
    log = open_log()
    log.append_as_leader(batch(time_ms=-1), 0)
    assert log.offset_of_greatest_timestamp() is None
    assert log.segments[0].largest_timestamp == NOW_MS  # the file's own


# The marks


def test_the_high_watermark_stays_within_the_log() -> None:
    log = open_log()
    fill(log, 10)
    assert log.set_high_watermark(99)
    assert log.high_watermark == 10
    assert not log.set_high_watermark(10)
    log.advance_start_offset(4)
    assert log.set_high_watermark(0)
    assert log.high_watermark == 4


def test_the_start_moves_up_to_the_high_watermark_only() -> None:
    log = open_log()
    fill(log, 10)
    log.set_high_watermark(5)
    with pytest.raises(KafkaError) as caught:
        log.advance_start_offset(6)
    assert caught.value.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.advance_start_offset(5)
    assert not log.advance_start_offset(3)
    assert log.start_offset == 5
    assert log.epochs.entries == [(0, 5)]


def test_the_start_takes_the_last_stable_offset_with_it() -> None:
    log = open_log()
    produce(log, 0)
    fill(log, 4)
    log.set_high_watermark(5)
    assert log.last_stable_offset == 0
    for start in (3, 5):
        log.advance_start_offset(start)
        assert log.start_offset == log.last_stable_offset == start
    assert log.producers.has_open_transaction(7)
    end(log, ControlType.COMMIT)
    log.set_high_watermark(6)
    assert log.last_stable_offset == 6
