"""The life of a log in its segments: rolling, cutting, flushing, deleting, failing."""

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.log.logs import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    CrashingDisk,
    batch,
    everything,
    fill,
    mounted,
    offsets,
    open_log,
    part,
    produce,
    read_all,
    sim_disk,
)

from odradek.log import recovery
from odradek.log.config import LogConfig
from odradek.log.disk import Disk, RealDisk, RealFile
from odradek.log.log import Log
from odradek.log.segment import Segment
from odradek.log.segment_files import CLEANED_SUFFIX, SegmentFiles
from odradek.wire.batch import (
    header_at,
)
from odradek.wire.errors import ErrorCode, KafkaError

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
    log = open_log(disk, LogConfig(), on_roll=rolled.append)
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
    log = open_log(on_recovery_point_lowered=lambda log: lowered.append(log.recovery_point))
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


def test_truncating_where_no_producer_is_known_replays_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replayed: list[int] = []
    monkeypatch.setattr(recovery, "_replay", lambda *_: replayed.append(1))
    log = open_log()
    fill(log, 40)
    log.truncate_to(33)
    assert replayed == [] and log.producers.end_offset == 33
    produce(log, 0)
    log.truncate_to(32)
    assert replayed == [1]
    monkeypatch.undo()
    log.truncate_to(31)
    assert log.producers.end_offset == 31 and len(log.producers) == 0


def test_a_fully_truncated_log_starts_at_the_given_offset() -> None:
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


class ListingDisk(RealDisk):
    """Knows the files that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: set[RealFile] = set()

    def open(self, path: str, create: bool = False) -> RealFile:
        disk = self

        class Listed(RealFile):
            def close(self) -> None:
                super().close()
                disk.opened.discard(self)

        file = Listed(path, create)
        self.opened.add(file)
        return file


def test_a_segment_that_is_full_and_flushed_holds_no_file(tmp_path: Path) -> None:
    disk = ListingDisk()
    log = open_log(disk, LogConfig(segment_ms=1000), str(tmp_path / "topic-0"))

    def backfill(count: int) -> None:
        for _ in range(count):
            log.append_as_leader(batch(time_ms=2000 * log.end_offset), 0)

    def opened() -> list[int]:
        return sorted(int(Path(file.path).stem) for file in disk.opened)

    backfill(3)
    flush = log.start_flush()
    assert flush is not None
    backfill(2)
    flush.sync()
    log.finish_flush(flush)
    assert opened() == [2, 3, 4]  # of the first two nothing is left to be flushed
    assert bases(log) == [0, 1, 2, 3, 4]
    assert len(read_all(log)) == 5
    log.flush()
    backfill(1)
    log.flush()
    assert 5 in opened()
    assert not {2, 3, 4} & set(opened())
    log.truncate_to(1)
    backfill(1)
    assert offsets(read_all(log)) == [0, 1]
    log.close()
    assert not disk.opened


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
    log = open_log(disk, config, call_later=lambda delay, act: later.append((delay, act)))
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
    clean = Segment.create(SegmentFiles(disk, DIRECTORY, 0, CLEANED_SUFFIX), SMALL, NOW_MS)
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
    log = open_log(failing, on_failure=lambda log, error: failures.append(error))
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
        actions: list[Callable[[], object]] = [
            partial(log.append_as_leader, batch(), 0),
            partial(log.append_as_follower, part(1000)),
            partial(log.read, log.start_offset, 100),
            partial(log.truncate_to, 0),
            log.flush,
            partial(log.roll, 100_000),
            partial(log.offset_for_timestamp, 0),
        ]
        for action in actions:
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
    log = open_log(mounted(platter), on_failure=lambda log, error: failures.append(error))
    fill(log, 3)
    platter.failed.add("/data")
    with pytest.raises(KafkaError) as caught:
        log.read(0, 100)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert [error.errno for error in failures] == [errno.EIO]


def test_a_disk_that_fails_when_old_files_are_deleted_takes_the_log_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers: list[Callable[[], None]] = []
    log = open_log(call_later=lambda delay_s, call: timers.append(call))
    log.append_as_leader(batch(), 0)
    log.truncate_fully_and_start_at(5)

    def fail(segment: Segment) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(Segment, "delete", fail)
    for due in timers:
        due()  # a timer has no caller that an error could be answered to
    assert timers and log.offline
