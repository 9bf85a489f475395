"""One log: appending, reading, rolling, cutting, flushing, deleting, failing."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.log.logs import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    CrashingDisk,
    batch,
    everything,
    fill,
    headers,
    mounted,
    offsets,
    open_log,
    read_all,
    sim_disk,
)

from odradek.log.config import LogConfig
from odradek.log.disk import Disk, File, RealDisk
from odradek.log.log import Hooks, Log, UnexpectedOffset
from odradek.log.producers import Origin
from odradek.log.segment import CLEANED_SUFFIX, Segment
from odradek.wire.batch import (
    CorruptBatch,
    crc_ok,
    header_at,
    scan,
    set_crc,
    set_offset_and_epoch,
)
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import (
    ControlType,
    Record,
    TransactionEnd,
    decode_records,
    encode_batch,
    encode_transaction_end,
)


def produce(log: Log, sequence: int, *, transactional: bool = True, producer: int = 7) -> int:
    data = batch(
        producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=transactional
    )
    return log.append_as_leader(data, 0).first_offset


def end(log: Log, kind: ControlType, producer: int = 7) -> int:
    marker = encode_transaction_end(TransactionEnd(kind, 0, NOW_MS), producer, 0)
    return log.append_as_leader(marker, 0, origin=Origin.COORDINATOR).first_offset


def part(base_offset: int, count: int = 1, *, epoch: int = 0, **options: Any) -> bytes:
    """A batch as a leader would send it to a follower."""
    data = batch(count, **options)
    set_offset_and_epoch(data, 0, base_offset, epoch)
    return bytes(data)


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


def test_how_much_a_waiting_fetch_would_get() -> None:
    log = open_log(config=LogConfig())
    fill(log, 10)
    one = len(everything(log)[0])
    assert log.available_bytes(10, 10) == 0
    assert log.available_bytes(7, 10) == 3 * one
    assert log.available_bytes(7, 9) == 2 * one
    assert log.available_bytes(0, 99) == 10 * one


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
    data = batch(2, time_ms=NOW_MS + 50)
    data[61] = 0x7F  # The checksum is right, and nobody has looked inside.
    set_crc(data, header_at(data))
    log.append_as_leader(data, 0)
    assert log.offset_for_timestamp(NOW_MS + 10) == (NOW_MS + 50, 3, 0)
    assert log.offset_of_greatest_timestamp() == (NOW_MS + 50, 3, 0)


def test_records_without_timestamps() -> None:
    log = open_log()
    log.append_as_leader(batch(time_ms=-1), 0)
    assert log.offset_of_greatest_timestamp() is None
    assert log.segments[0].largest_timestamp == NOW_MS  # the file's own


# Rolling


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_is_rolled_when_the_next_batch_does_not_fit() -> None:
    log = open_log(config=LogConfig(segment_bytes=3 * len(batch())))
    fill(log, 7)
    assert bases(log) == [0, 3, 6]


def test_a_segment_is_rolled_when_its_first_record_is_too_old() -> None:
    log = open_log(config=LogConfig(segment_ms=1000))
    for age_ms in (0, 1000, 500, 1001, 1002, 2001, 2002):
        log.append_as_leader(batch(time_ms=NOW_MS + age_ms), 0)
    assert bases(log) == [0, 3, 6]


def test_jitter_rolls_earlier_and_records_without_time_are_as_old_as_the_segment() -> None:
    now = NOW_MS
    log = open_log(
        config=LogConfig(segment_ms=1000, segment_jitter_ms=500),
        clock=lambda: now,
        jitter=lambda limit: limit - 1,
    )
    log.append_as_leader(batch(time_ms=-1), 0)
    now += 1001
    log.append_as_leader(batch(time_ms=-1), 0)  # The first segment was there before the jitter.
    assert bases(log) == [0, 1]
    now += 502
    log.append_as_leader(batch(time_ms=-1), 0)
    assert bases(log) == [0, 1, 2]


def test_a_segment_is_rolled_when_an_index_is_full() -> None:
    log = open_log(config=LogConfig(index_interval_bytes=0, segment_index_bytes=36))
    fill(log, 10)
    # Three time-index entries fit, one of them kept for the end; the first batch needs none.
    assert bases(log) == [0, 3, 6, 9]
    for segment in log.segments:
        assert segment.time_index.entry_count <= 3
    assert read_all(log) == everything(log)


def test_rolling_leaves_a_snapshot_and_sealed_indexes() -> None:
    rolled: list[Log] = []
    disk = mounted(sim_disk())
    log = open_log(disk, LogConfig(), hooks=Hooks(on_roll=rolled.append))
    produce(log, 0)
    fill(log, 4)
    log.roll()
    assert rolled == [log]
    assert log.roll() is log.segments.active  # An empty segment is not rolled again.
    assert len(log.segments) == 2
    names = disk.list_dir(DIRECTORY)
    assert "00000000000000000005.snapshot" in names
    assert disk.size(f"{DIRECTORY}/00000000000000000000.index") == 0
    time_index = disk.read_bytes(f"{DIRECTORY}/00000000000000000000.timeindex")
    assert time_index == (NOW_MS + 4).to_bytes(8, "big") + (4).to_bytes(4, "big")


# Cutting


def test_truncation_goes_back_to_a_batch_boundary() -> None:
    log = open_log()
    fill(log, 20, count=3)
    log.assign_epoch(9, 60)
    assert not log.truncate_to(60)
    assert log.epochs.entries == [(0, 0)]  # a reign without a record leaves no trace
    assert log.truncate_to(31)
    assert log.end_offset == 30
    assert offsets(everything(log)) == list(range(0, 30, 3))
    fill(log, 2, count=3, epoch=2)
    assert log.end_offset == 36
    assert log.epochs.entries == [(0, 0), (2, 30)]
    assert offsets(read_all(log)) == list(range(0, 36, 3))


def test_truncation_lowers_high_watermark_and_recovery_point() -> None:
    lowered: list[int] = []
    log = open_log(
        hooks=Hooks(on_recovery_point_lowered=lambda log: lowered.append(log.recovery_point))
    )
    fill(log, 30)
    log.set_high_watermark(25)
    log.flush()
    log.truncate_to(26)
    assert (log.recovery_point, log.high_watermark, lowered) == (26, 25, [26])
    log.truncate_to(10)
    assert (log.recovery_point, log.high_watermark, lowered) == (10, 10, [26, 10])
    with pytest.raises(ValueError, match="-1"):
        log.truncate_to(-1)


def test_truncation_forgets_what_producers_did_after_it() -> None:
    log = open_log()
    for sequence in range(10):
        produce(log, sequence)
    log.truncate_to(4)
    state = log.producers.get(7)
    assert state is not None
    assert state.last_sequence == 3
    assert produce(log, 4) == 4


def test_a_log_thrown_away_starts_where_it_is_told() -> None:
    log = open_log()
    fill(log, 30)
    produce(log, 0)
    log.flush()
    log.truncate_fully_and_start_at(1000)
    assert (log.start_offset, log.high_watermark, log.end_offset) == (1000, 1000, 1000)
    assert (log.recovery_point, log.epochs.entries, len(log.producers)) == (1000, [], 0)
    fill(log, 1)
    assert offsets(read_all(log)) == [1000]
    log.truncate_to(5)  # before the first segment: the same
    assert (log.start_offset, log.end_offset, log.size_bytes) == (5, 5, 0)


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


# Flushing


def test_flush_by_number_of_messages() -> None:
    log = open_log(config=LogConfig(flush_messages=5))
    points = []
    for _ in range(11):
        fill(log, 1)
        points.append(log.recovery_point)
    assert points == [0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10]


def test_a_flush_off_the_loop_counts_only_if_the_log_was_not_cut() -> None:
    log = open_log()
    assert log.start_flush() is None
    fill(log, 10)
    flush = log.start_flush()
    assert flush is not None
    fill(log, 5)
    flush.sync()
    log.finish_flush(flush)
    assert log.recovery_point == 10
    flush = log.start_flush()
    assert flush is not None
    log.truncate_to(3)
    fill(log, 20)
    flush.sync()  # Files that were deleted meanwhile do not matter.
    log.finish_flush(flush)
    assert log.recovery_point == 3


def test_real_files_closed_under_a_flush(tmp_path: Path) -> None:
    log = open_log(RealDisk(), directory=str(tmp_path / "topic-0"))
    fill(log, 30)
    flush = log.start_flush()
    assert flush is not None
    log.truncate_fully_and_start_at(0)
    flush.sync()
    log.close()


# Deleting


def test_old_segments_go_and_their_files_after_a_delay() -> None:
    later: list[tuple[float, Callable[[], None]]] = []
    disk = mounted(sim_disk())
    config = LogConfig(segment_bytes=1000, retention_bytes=2500, file_delete_delay_ms=1500)
    log = open_log(
        disk, config, hooks=Hooks(call_later=lambda delay, act: later.append((delay, act)))
    )
    fill(log, 60)
    assert log.delete_old_segments() == 0  # Nothing is committed yet.
    log.set_high_watermark(60)
    gone = log.delete_old_segments()
    assert gone > 0
    assert log.start_offset == log.segments[0].base_offset > 0
    assert log.size_bytes <= 2500 + 1000
    assert log.epochs.entries == [(0, log.start_offset)]
    deleted = [name for name in disk.list_dir(DIRECTORY) if name.endswith(".deleted")]
    assert "00000000000000000000.log.deleted" in deleted
    ((delay, action),) = later
    assert delay == 1.5
    action()
    assert not [name for name in disk.list_dir(DIRECTORY) if name.endswith(".deleted")]
    assert read_all(log) == everything(log)


def test_a_log_whose_every_record_is_old_is_emptied() -> None:
    now = NOW_MS
    log = open_log(config=LogConfig(segment_bytes=1000, retention_ms=1000), clock=lambda: now)
    fill(log, 30)
    log.set_high_watermark(30)
    now += 2000
    count = len(log.segments)
    assert log.delete_old_segments() == count
    assert (log.start_offset, log.end_offset, log.size_bytes) == (30, 30, 0)
    assert log.delete_old_segments() == 0
    fill(log, 1)
    assert offsets(read_all(log)) == [30]


def test_cleaned_segments_take_the_place_of_those_they_came_from() -> None:
    disk = mounted(sim_disk())
    log = open_log(disk)
    fill(log, 30)
    old = list(log.segments)[:2]
    kept = [data for data in everything(log) if header_at(data).base_offset % 2]
    clean = Segment(
        disk, DIRECTORY, 0, SMALL, created_ms=NOW_MS, suffix=CLEANED_SUFFIX, create=True
    )
    for data in kept:
        if header_at(data).base_offset < log.segments[2].base_offset:
            clean.append(data, [header_at(data)])
    clean.seal()
    log.replace_segments([clean], old)
    rest = [data for data in everything(log) if header_at(data).base_offset >= bases(log)[1]]
    assert bases(log)[0] == 0
    assert not [name for name in disk.list_dir(DIRECTORY) if name.count(".") > 1]
    found = read_all(log)
    assert found == everything(log)
    assert found[: len(found) - len(rest)] == [d for d in kept if d not in rest]
    assert header_at(log.read(0, 1).records).base_offset == 1  # what is gone is skipped


def test_a_log_can_be_moved() -> None:
    disk = mounted(sim_disk())
    log = open_log(disk)
    fill(log, 30)
    log.rename_directory("/data/topic-0.abc-delete")
    fill(log, 30, epoch=1)
    log.close()
    assert not disk.exists(DIRECTORY)
    again = open_log(disk, directory="/data/topic-0.abc-delete", clean=True, recovery_point=60)
    assert again.end_offset == 60
    assert again.epochs.entries == [(0, 0), (1, 30)]


# The end


def test_what_a_clean_shutdown_leaves_on_a_real_disk(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    log = open_log(RealDisk(), LogConfig(index_interval_bytes=100), str(directory))
    fill(log, 5)
    produce(log, 0)
    log.close()
    assert sorted(path.name for path in directory.iterdir()) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000006.snapshot",
        "leader-epoch-checkpoint",
    ]
    size = len(batch())
    index = (directory / "00000000000000000000.index").read_bytes()
    # An entry each time more than 100 bytes have gone by since the last.
    assert index == b"".join(
        offset.to_bytes(4, "big") + (offset * size).to_bytes(4, "big") for offset in (2, 4)
    )
    times = (directory / "00000000000000000000.timeindex").read_bytes()
    assert times == b"".join(
        (NOW_MS + offset).to_bytes(8, "big") + offset.to_bytes(4, "big") for offset in (2, 4)
    )
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    log = open_log(RealDisk(), LogConfig(), str(directory), clean=True)
    assert (log.end_offset, log.recovery_point, log.high_watermark) == (6, 6, 0)
    assert produce(log, 1) == 6
    assert log.statistics()["end_offset"] == 7
    log.close()


# Failing


def failing_log(changes: int | None, failures: list[OSError]) -> tuple[Log, CrashingDisk, Disk]:
    disk = mounted(sim_disk())
    failing = CrashingDisk(disk, None, lambda: OSError(errno.ENOSPC, "no space left on device"))
    hooks = Hooks(on_failure=lambda log, error: failures.append(error))
    log = open_log(failing, hooks=hooks)
    failing.changes_left = changes
    return log, failing, disk


def life(log: Log) -> None:
    for step in range(40):
        fill(log, 1, epoch=step // 10)
        if step % 9 == 8:
            log.flush()
    log.truncate_to(30)
    log.set_high_watermark(20)
    log.advance_start_offset(15)
    log.delete_old_segments()
    fill(log, 2)
    log.close()


def test_a_full_disk_takes_the_log_offline_at_any_point() -> None:
    failures: list[OSError] = []
    log, failing, _ = failing_log(None, failures)
    life(log)
    total = failing.changes
    assert not failures
    for changes in range(total):
        failures.clear()
        log, failing, disk = failing_log(changes, failures)
        try:
            life(log)
        except KafkaError as error:
            assert error.error is ErrorCode.KAFKA_STORAGE_ERROR  # noqa: PT017
        else:
            break  # The first log took changes to create that this one did not.
        assert log.offline
        assert len(failures) == 1
        assert failures[0].errno == errno.ENOSPC
        end_offset, start_offset = log.end_offset, log.start_offset
        made = failing.changes
        for action in (
            lambda log=log: log.append_as_leader(batch(), 0),
            lambda log=log: log.append_as_follower(part(1000)),
            lambda log=log: log.read(log.start_offset, 100),
            lambda log=log: log.truncate_to(0),
            lambda log=log: log.flush(),
            lambda log=log: log.roll(100_000),
            lambda log=log: log.offset_for_timestamp(0),
        ):
            with pytest.raises(KafkaError) as caught:
                action()
            assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
        log.close()
        assert failing.changes == made
        assert len(failures) == 1
        # The disk was replaced by one with room: everything acknowledged is still there.
        again = open_log(disk, start_offset=start_offset, recovery_point=0)
        assert again.end_offset >= min(end_offset, 30)
        fill(again, 1, epoch=9)
        assert read_all(again)[-1] == everything(again)[-1]


def test_a_disk_that_cannot_be_read_takes_the_log_offline() -> None:
    platter = sim_disk()
    failures: list[OSError] = []
    log = open_log(
        mounted(platter), hooks=Hooks(on_failure=lambda log, error: failures.append(error))
    )
    fill(log, 3)
    platter.failed.add("/data")
    with pytest.raises(KafkaError) as caught:
        log.read(0, 100)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert [error.errno for error in failures] == [errno.EIO]
