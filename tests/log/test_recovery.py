"""Loading what somebody else left: a crash, a cleaner, Kafka, a bad disk."""

import contextlib
import random
import zlib

import pytest
from tests.log.logs import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    Crash,
    CrashingDisk,
    batch,
    everything,
    fill,
    headers,
    mounted,
    offsets,
    open_log,
    part,
    read_all,
    sim_disk,
)

from odradek.log.config import LogConfig
from odradek.log.damage import DamagedLog
from odradek.log.disk import Disk
from odradek.log.log import Log
from odradek.log.producers import Origin
from odradek.log.segment import Segment
from odradek.log.segment_files import SegmentFiles
from odradek.sim.disk import SimDisk
from odradek.wire.batch import UnsupportedMagic, header_at
from odradek.wire.records import (
    ControlType,
    TransactionEnd,
    encode_transaction_end,
)

ONE_SEGMENT = LogConfig(index_interval_bytes=100)
COMPACTED = LogConfig(segment_bytes=1000, cleanup_policy=frozenset({"compact"}))


def name(base_offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{base_offset:020d}{suffix}"


def filled(config: LogConfig = SMALL, batches: int = 40) -> tuple[SimDisk, Disk, list[bytes]]:
    """A disk with a log that was closed cleanly, and its batches."""
    platter = sim_disk()
    disk = mounted(platter)
    log = open_log(disk, config)
    fill(log, batches, count=2)
    contents = everything(log)
    log.close()
    return platter, disk, contents


def overwrite(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.append(data)
    file.close()


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def contents_of_segments(disk: Disk) -> dict[str, bytes]:
    names = [name for name in disk.list_dir(DIRECTORY) if name.endswith(".log")]
    return {name: disk.read_bytes(f"{DIRECTORY}/{name}") for name in names}


# Damage


def test_a_file_truncated_at_any_length_keeps_its_whole_batches() -> None:
    _, disk, contents = filled(ONE_SEGMENT, batches=6)
    whole = disk.read_bytes(name(0, ".log"))
    size = len(contents[0])
    for length in range(len(whole) + 1):
        overwrite(disk, name(0, ".log"), whole[:length])
        log = open_log(disk, ONE_SEGMENT)
        kept = length // size
        assert everything(log) == contents[:kept]
        assert log.end_offset == kept * 2
        assert log.segments[0].size == kept * size
        log.close_files()


def test_zeros_from_any_position_on_end_the_log_there() -> None:
    _, disk, contents = filled(ONE_SEGMENT, batches=4)
    whole = disk.read_bytes(name(0, ".log"))
    size = len(contents[0])
    for length in range(len(whole)):
        overwrite(disk, name(0, ".log"), whole[:length] + bytes(len(whole) - length + 50))
        log = open_log(disk, ONE_SEGMENT)
        # The last byte of a batch is its record's header count: zero already.
        assert everything(log) == contents[: (length + 1) // size]
        log.close_files()


def test_a_flipped_bit_anywhere_ends_the_log_before_its_batch() -> None:
    _, disk, contents = filled(ONE_SEGMENT, batches=4)
    whole = disk.read_bytes(name(0, ".log"))
    size = len(contents[0])
    for position in range(size, 2 * size):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        overwrite(disk, name(0, ".log"), bytes(damaged))
        log = open_log(disk, ONE_SEGMENT)
        found = everything(log)
        if 12 <= position - size < 16:  # The leader epoch is outside the checksum.
            assert len(found) == 4
        else:
            assert found == contents[:1], position
        log.close_files()


def test_damage_in_one_segment_removes_the_later_ones() -> None:
    _, disk, contents = filled()
    log = open_log(disk, clean=True)
    segments = bases(log)
    log.close_files()
    damaged = bytearray(disk.read_bytes(name(segments[1], ".log")))
    damaged[-1] ^= 1
    overwrite(disk, name(segments[1], ".log"), bytes(damaged))
    log = open_log(disk, recovery_point=0)
    assert bases(log) == segments[:2]
    assert everything(log) == [d for d in contents if header_at(d).base_offset < log.end_offset]
    assert log.end_offset == segments[2] - 2
    assert log.epochs.entries == [(0, 0)]
    files = disk.list_dir(DIRECTORY)
    assert not [file for file in files if file[:20].isdecimal() and int(file[:20]) > log.end_offset]
    fill(log, 5)
    assert read_all(log) == everything(log)


def test_what_lies_below_the_recovery_point_is_trusted() -> None:
    _, disk, _ = filled()
    log = open_log(disk, clean=True)
    segments = bases(log)
    log.close_files()
    damaged = bytearray(disk.read_bytes(name(0, ".log")))
    damaged[61] ^= 1
    overwrite(disk, name(0, ".log"), bytes(damaged))
    log = open_log(disk, recovery_point=segments[1])
    assert bases(log) == segments
    assert log.recovery_point == segments[1]
    log.close_files()
    with pytest.raises(DamagedLog, match="is damaged at position 0"):
        open_log(disk, recovery_point=segments[1] - 1)
    assert bases(open_log(disk, recovery_point=0)) == [0]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_a_closed_segment_that_lost_its_end_is_damage_and_nothing_is_removed(clean: bool) -> None:
    _, disk, _ = filled()
    first = disk.read_bytes(name(0, ".log"))
    following = bases(open_log(disk, clean=True))[1]
    for data in (first[:-1], first[: len(first) // 2], first[:-1] + b"?"):
        overwrite(disk, name(0, ".log"), data)
        before = contents_of_segments(disk)
        with pytest.raises(DamagedLog, match=name(0, ".log")):
            open_log(disk, clean=clean, recovery_point=following)
        assert contents_of_segments(disk) == before


def test_a_gap_between_flushed_segments_is_damage_unless_compaction_made_it() -> None:
    _, disk, _ = filled()
    segments = bases(open_log(disk, clean=True))
    disk.remove(name(segments[1], ".log"))
    with pytest.raises(DamagedLog, match=r"create an empty \.odradek_holes"):
        open_log(disk, recovery_point=segments[-1])
    assert bases(open_log(disk, COMPACTED, recovery_point=segments[-1]))[0] == 0
    overwrite(disk, f"{DIRECTORY}/.odradek_holes", b"")
    log = open_log(disk, recovery_point=segments[-1])
    assert bases(log) == [segments[0], *segments[2:]]


def test_a_hole_between_segments_ends_the_log_unless_it_is_compacted() -> None:
    _, disk, contents = filled()
    log = open_log(disk, clean=True)
    segments = bases(log)
    log.close_files()
    first = disk.read_bytes(name(0, ".log"))
    overwrite(disk, name(0, ".log"), first[: -len(contents[0])])
    saved = {file: disk.read_bytes(f"{DIRECTORY}/{file}") for file in disk.list_dir(DIRECTORY)}
    log = open_log(disk, recovery_point=0)
    assert (bases(log), log.end_offset) == ([0], segments[1] - 2)
    log.close_files()
    for file, data in saved.items():
        overwrite(disk, f"{DIRECTORY}/{file}", data)
    log = open_log(disk, COMPACTED, recovery_point=0)
    assert bases(log) == segments
    assert len(everything(log)) == len(contents) - 1


@pytest.mark.parametrize("machine_lost", [False, True], ids=["process killed", "power lost"])
def test_a_hole_of_a_compacted_log_may_be_a_lost_end_after_a_power_loss(machine_lost: bool) -> None:
    _, disk, contents = filled(COMPACTED)
    log = open_log(disk, COMPACTED, clean=True)
    segments = bases(log)
    log.close_files()
    second = disk.read_bytes(name(segments[1], ".log"))
    overwrite(disk, name(segments[1], ".log"), second[: -len(contents[0])])
    lost = segments[2] - 2
    flushed = open_log(disk, COMPACTED, recovery_point=segments[2], machine_lost=machine_lost)
    assert bases(flushed) == segments, "an end that was synced is not lost"
    flushed.close_files()
    log = open_log(disk, COMPACTED, recovery_point=segments[1], machine_lost=machine_lost)
    kept = [data for data in contents if header_at(data).base_offset != lost]
    if machine_lost:
        kept = [data for data in kept if header_at(data).base_offset < lost]
        assert log.end_offset == lost
    assert everything(log) == kept


@pytest.mark.parametrize("apart", [False, True], ids=["one append", "several"])
@pytest.mark.parametrize("config", [ONE_SEGMENT, SMALL, COMPACTED])
def test_holes_that_a_leaders_cleaner_made_outlive_the_topics_policy(
    config: LogConfig, apart: bool
) -> None:
    platter = sim_disk()
    disk = mounted(platter)
    log = open_log(disk, config)
    log.append_as_follower(part(0))
    assert not disk.exists(f"{DIRECTORY}/.odradek_holes")
    batches = [part(offset) for offset in (*range(1, 20), *range(27, 50), 70)]
    for data in batches if apart else [b"".join(batches)]:
        log.append_as_follower(data)
    fill(log, 3)
    for segment in log.segments:
        segment.files.log.sync()
    log.close_files()
    platter.lose_power(random.Random(1))
    again = open_log(disk, ONE_SEGMENT)
    assert offsets(everything(again)) == [0, *range(1, 20), *range(27, 50), 70, 71, 72, 73]
    assert again.end_offset == 74


def test_the_mark_for_holes_is_there_before_the_first_of_them() -> None:
    written = []
    for changes in range(3):
        disk = CrashingDisk(mounted(sim_disk()))
        log = open_log(disk, ONE_SEGMENT)
        log.append_as_follower(part(0))
        before = disk.size(name(0, ".log"))
        disk.changes_left = changes
        with contextlib.suppress(Crash):
            log.append_as_follower(part(7))
        marked = disk.exists(f"{DIRECTORY}/.odradek_holes")
        written.append((marked, disk.size(name(0, ".log")) > before))
    # Nothing; the mark and a torn batch; all.
    assert written == [(False, False), (True, True), (True, True)]


def old_message(offset: int, value: bytes = b"x") -> bytes:
    """A message of magic 1."""
    body = b"\x01\x00" + bytes(8) + b"\xff\xff\xff\xff" + len(value).to_bytes(4, "big") + value
    message = zlib.crc32(body).to_bytes(4, "big") + body
    return offset.to_bytes(8, "big") + len(message).to_bytes(4, "big") + message


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("messages", [1, 2, 20])
@pytest.mark.parametrize("batches", [0, 2])
def test_an_old_message_is_not_damage(batches: int, messages: int, clean: bool) -> None:
    """However much of it there is, and whatever comes before it."""
    _, disk, _ = filled(ONE_SEGMENT, batches)
    old = b"".join(old_message(batches * 2 + number) for number in range(messages))
    data = disk.read_bytes(name(0, ".log")) + old
    overwrite(disk, name(0, ".log"), data)
    with pytest.raises(UnsupportedMagic):
        open_log(disk, ONE_SEGMENT, clean=clean)
    assert disk.read_bytes(name(0, ".log")) == data


def test_a_log_of_old_segments_keeps_them_all() -> None:
    disk = mounted(sim_disk())
    disk.make_dirs(DIRECTORY)
    for base in (0, 50, 100):
        messages = [old_message(base + number, bytes(100)) for number in range(50)]
        overwrite(disk, name(base, ".log"), b"".join(messages))
    for clean in (False, True):
        with pytest.raises(UnsupportedMagic, match=DIRECTORY):
            open_log(disk, clean=clean)
        assert [disk.size(name(base, ".log")) for base in (0, 50, 100)] == [50 * 134] * 3


# Indexes


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_is_built_again(suffix: str, clean: bool) -> None:
    _, disk, contents = filled()
    before = {n: disk.read_bytes(f"{DIRECTORY}/{n}") for n in disk.list_dir(DIRECTORY)}
    for file in before:
        if file.endswith(suffix):
            disk.remove(f"{DIRECTORY}/{file}")
    log = open_log(disk, clean=clean, recovery_point=80)
    assert everything(log) == contents
    log.close()
    for file, data in before.items():
        if file.endswith(suffix):
            assert disk.read_bytes(f"{DIRECTORY}/{file}") == data, file


def test_the_padded_indexes_of_a_crashed_kafka_are_read_for_what_they_hold() -> None:
    _, disk, contents = filled()
    for file in disk.list_dir(DIRECTORY):
        if file.endswith("index"):
            data = disk.read_bytes(f"{DIRECTORY}/{file}")
            overwrite(disk, f"{DIRECTORY}/{file}", data + bytes(12 * 8 * 100))
    for clean in (True, False):
        log = open_log(disk, clean=clean, recovery_point=80)
        assert everything(log) == read_all(log) == contents
        assert log.offset_for_timestamp(NOW_MS + 40) == (NOW_MS + 40, 40, 0)
        fill(log, 1)
        log.truncate_to(80)
        log.close()
        active = log.segments.active
        assert disk.size(active.offset_index.path) < 1000


def test_a_wrong_offset_index_costs_time_but_no_answer() -> None:
    _, disk, contents = filled(ONE_SEGMENT)
    index = bytearray(disk.read_bytes(name(0, ".index")))
    for position in range(7, len(index), 8):
        index[position] ^= 3  # every entry now points between two batches
    overwrite(disk, name(0, ".index"), bytes(index))
    log = open_log(disk, ONE_SEGMENT, clean=True)
    assert read_all(log) == contents


def test_files_without_their_log_are_removed() -> None:
    _, disk, contents = filled()
    for suffix in (".index", ".timeindex", ".txnindex"):
        overwrite(disk, name(7777, suffix), b"x" * 34)
    metadata = b"version: 0\ntopic_id: 4xfU3e5pRUqvBiPXSDBIFw"
    overwrite(disk, f"{DIRECTORY}/partition.metadata", metadata)
    log = open_log(disk, clean=True)
    assert everything(log) == contents
    left = disk.list_dir(DIRECTORY)
    assert not [file for file in left if "7777" in file]
    assert "partition.metadata" in left


def test_leader_epochs_wait_for_the_flush_and_survive_every_crash() -> None:
    """No disk is waited for when an epoch begins; the records beyond the recovery point tell it."""
    for seed in range(40):
        platter = sim_disk()
        log = open_log(mounted(platter))
        syncs = platter.syncs
        for epoch in (2, 3):
            log.assign_epoch(epoch, log.end_offset)
            fill(log, 3, epoch=epoch)
        assert platter.syncs == syncs
        log.flush()
        fill(log, 3, epoch=4)
        recovery_point = log.recovery_point
        if seed:
            platter.lose_power(random.Random(seed))
        for _ in range(2):  # the second time after a crash right behind the recovery
            again = open_log(mounted(platter), recovery_point=recovery_point)
            of_records = [(2, 0), (3, 3)] + ([(4, 6)] if again.end_offset > 6 else [])
            assert again.epochs.entries == of_records
            assert seed or again.end_offset == 9


# Interrupted work


def swap_segment(disk: Disk, base_offset: int, parts: list[bytes], suffix: str) -> None:
    segment = Segment.create(SegmentFiles(disk, DIRECTORY, base_offset, suffix), SMALL, NOW_MS)
    for data in parts:
        segment.append(data, [header_at(data)])
    segment.seal()


def test_deleted_and_cleaned_files_go() -> None:
    _, disk, contents = filled()
    for suffix in (".log.deleted", ".index.deleted", ".snapshot.deleted", ".log.cleaned"):
        overwrite(disk, name(4, suffix), b"anything")
    assert everything(open_log(disk, clean=True)) == contents
    assert not [n for n in disk.list_dir(DIRECTORY) if n.endswith((".deleted", ".cleaned"))]


def test_a_finished_swap_replaces_the_segments_in_its_range() -> None:
    _, disk, contents = filled()
    log = open_log(disk, clean=True)
    third = bases(log)[2]
    log.close_files()
    kept = [d for d in contents if header_at(d).base_offset < third][1::2]
    swap_segment(disk, 0, kept, ".swap")
    log = open_log(disk, clean=True)
    rest = [d for d in contents if header_at(d).base_offset >= third]
    assert bases(log)[:2] == [0, third]
    assert everything(log) == read_all(log) == [*kept, *rest]
    assert not [n for n in disk.list_dir(DIRECTORY) if n.endswith(".swap")]


def test_an_unfinished_swap_is_given_up() -> None:
    _, disk, contents = filled()
    swap_segment(disk, 10, contents[5:6], ".swap")
    swap_segment(disk, 0, contents[:1], ".cleaned")
    log = open_log(disk, clean=True)
    assert everything(log) == contents
    assert not [n for n in disk.list_dir(DIRECTORY) if n.endswith((".swap", ".cleaned"))]


def test_a_swap_half_renamed_is_finished() -> None:
    _, disk, contents = filled()
    log = open_log(disk, clean=True)
    second = bases(log)[1]
    log.close_files()
    kept = [d for d in contents if header_at(d).base_offset < second][-1:]
    swap_segment(disk, 0, kept, ".swap")
    for suffix in (".index", ".timeindex"):  # the old ones were deleted, the new ones put in place
        disk.rename(name(0, suffix + ".swap"), name(0, suffix))
    disk.remove(name(0, ".log"))
    log = open_log(disk, clean=True)
    assert everything(log)[0] == kept[0]
    assert read_all(log) == everything(log)


# Offsets, epochs, producers


def test_a_log_that_ends_before_its_start_begins_again_there() -> None:
    _, disk, _ = filled()
    log = open_log(disk, clean=True, start_offset=1000)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (1000, 1000, 0)
    assert log.epochs.entries == []
    fill(log, 1)
    assert offsets(read_all(log)) == [1000]
    log.close()
    assert open_log(disk, clean=True, start_offset=1000).end_offset == 1001


def test_the_start_is_never_below_the_first_segment() -> None:
    _, disk, _ = filled()
    log = open_log(disk, clean=True)
    second = bases(log)[1]
    log.close_files()
    for suffix in (".log", ".index", ".timeindex"):
        disk.remove(name(0, suffix))
    log = open_log(disk, clean=True)
    assert log.start_offset == second
    assert log.epochs.entries == [(0, second)]
    log.close_files()
    assert open_log(disk, clean=True, start_offset=second + 3).start_offset == second + 3


def test_epochs_come_back_from_the_batches_after_a_crash_only() -> None:
    disk = mounted(sim_disk())
    log = open_log(disk)
    for epoch in (1, 4, 7):
        fill(log, 10, epoch=epoch)
    log.close()
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    disk.remove(path)
    log = open_log(disk, clean=True)
    assert log.epochs.entries == []
    log.close_files()
    log = open_log(disk, clean=False)
    assert log.epochs.entries == [(1, 0), (4, 10), (7, 20)]
    log.close_files()
    overwrite(disk, path, b"0\n3\n1 0\n")
    assert open_log(disk, clean=True).epochs.entries == [(1, 0), (4, 10), (7, 20)]


@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("damaged_epoch", [0, 35])
def test_the_epoch_of_one_damaged_batch_is_not_believed(
    damaged_epoch: int, has_checkpoint: bool
) -> None:
    """It is outside the checksum. A replica whose log ends in an epoch that its leader does not
    know would never follow again."""
    disk = mounted(sim_disk())
    log = open_log(disk, ONE_SEGMENT)
    for epoch in (1, 4, 7):
        fill(log, 10, epoch=epoch)
    log.flush()
    log.close_files()
    path, epochs = name(0, ".log"), f"{DIRECTORY}/leader-epoch-checkpoint"
    whole, checkpoint = disk.read_bytes(path), disk.read_bytes(epochs)
    size, damage = len(whole) // 30, damaged_epoch.to_bytes(4)
    for number in range(29):  # the last one has nothing behind it that would tell
        if number == 0 and damaged_epoch == 0:
            continue  # an earlier epoch
        if number % 10 == 1 and damaged_epoch == 0 and not has_checkpoint:
            continue  # of two batches, either may be the damaged one
        position = number * size + 12
        overwrite(disk, path, whole[:position] + damage + whole[position + 4 :])
        overwrite(disk, epochs, checkpoint if has_checkpoint else b"0\n0\n")
        again = open_log(disk, ONE_SEGMENT, clean=False)
        begin = [0, 10, 20]
        if number in begin and not has_checkpoint:
            begin[number // 10] += 1  # it alone told where its epoch began
        assert again.epochs.entries == list(zip((1, 4, 7), begin, strict=True)), number
        assert again.end_offset == 30
        again.close_files()


def test_epochs_beyond_the_end_are_dropped() -> None:
    disk = mounted(sim_disk())
    log = open_log(disk)
    fill(log, 10, epoch=1)
    log.assign_epoch(2, 10)
    log.close()
    log = open_log(disk, clean=True)
    assert log.epochs.entries == [(1, 0)]


def test_producers_come_back_from_the_newest_good_snapshot() -> None:
    disk = mounted(sim_disk())
    log = open_log(disk)
    for sequence in range(40):
        data = batch(producer_id=3, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(data, 0)
    log.close()
    newest = max(log.producers.snapshots)
    assert newest == 40
    for offset in log.producers.snapshots[1:]:
        overwrite(disk, name(offset, ".snapshot"), b"torn")
    log = open_log(disk, clean=True)
    state = log.producers.get(3)
    assert state is not None
    assert state.last_sequence == 39


def test_a_clean_log_without_snapshots_had_no_producers() -> None:
    disk = mounted(sim_disk())
    log = open_log(disk)
    log.append_as_leader(batch(producer_id=3, producer_epoch=0, base_sequence=0), 0)
    log.close()
    disk.remove(name(1, ".snapshot"))
    log = open_log(disk, clean=True)
    assert log.producers.get(3) is None
    assert disk.exists(name(1, ".snapshot"))
    log.close_files()
    disk.remove(name(1, ".snapshot"))
    assert open_log(disk, clean=False).producers.get(3) is not None


def test_transactions_come_back_after_a_crash() -> None:
    disk = mounted(sim_disk())
    log = open_log(disk)
    for sequence in range(20):
        data = batch(producer_id=3, producer_epoch=0, base_sequence=sequence, transactional=True)
        log.append_as_leader(data, 0)
        if sequence < 19:
            end = TransactionEnd(ControlType(sequence % 2), 0, NOW_MS)
            marker = encode_transaction_end(end, 3, 0)
            log.append_as_leader(marker, 0, origin=Origin.COORDINATOR)
    expected = log.aborted_transactions(0, 100)
    assert len(expected) == 10
    log.close_files()
    for file in disk.list_dir(DIRECTORY):
        if file.endswith((".txnindex", ".snapshot")):
            disk.remove(f"{DIRECTORY}/{file}")
    log = open_log(disk, clean=False)
    assert log.aborted_transactions(0, 100) == expected
    log.set_high_watermark(log.end_offset)
    assert log.last_stable_offset == log.end_offset - 1
    marker = encode_transaction_end(TransactionEnd(ControlType.COMMIT, 0, NOW_MS), 3, 0)
    log.append_as_leader(marker, 0, origin=Origin.COORDINATOR)
    log.set_high_watermark(log.end_offset)
    assert log.last_stable_offset == log.end_offset


def test_loading_twice_changes_nothing() -> None:
    _, disk, _ = filled()
    open_log(disk, clean=False).close()
    before = {n: disk.read_bytes(f"{DIRECTORY}/{n}") for n in disk.list_dir(DIRECTORY)}
    open_log(disk, clean=True, recovery_point=80).close()
    assert {n: disk.read_bytes(f"{DIRECTORY}/{n}") for n in disk.list_dir(DIRECTORY)} == before


def test_batches_with_gaps_are_read_across_segments() -> None:
    disk = mounted(sim_disk())
    log = open_log(disk)
    fill(log, 30)
    second, third = bases(log)[1:3]
    log.close()
    # A cleaner left only the first batch of the first segment, and an empty second one.
    first = everything(log)[:1]
    for suffix in (".log", ".index", ".timeindex"):
        disk.remove(name(0, suffix))
        overwrite(disk, name(second, suffix), b"")
    swap_segment(disk, 0, first, "")
    overwrite(disk, f"{DIRECTORY}/.odradek_holes", b"")
    log = open_log(disk, clean=True)
    assert offsets(read_all(log)) == [0, *range(third, 30)]
    for offset in range(1, third):
        assert header_at(log.read(offset, 1).records).base_offset == third
    assert [h.base_offset for h in headers(log)] == [0, *range(third, 30)]
    bounded = log.read(0, 1 << 20, end_offset=second).records
    assert bounded == first[0]


def index_files(disk: Disk) -> list[str]:
    return [name for name in disk.list_dir(DIRECTORY) if name.endswith("index")]


def test_an_empty_log_needs_no_indexes_however_often_it_is_loaded_and_closed() -> None:
    disk = mounted(sim_disk())
    log = open_log(disk)
    log.close_files()
    for clean in (False, True, True, False):
        log = open_log(disk, clean=clean)
        assert not log.segments.active.files.is_open
        assert index_files(disk) == []
        log.close()
    assert index_files(disk) == []
    log = open_log(disk, clean=True)
    fill(log, 3)
    log.close()
    assert len(index_files(disk)) == 2


def test_a_segment_that_lost_all_its_records_is_synced_and_loses_its_indexes() -> None:
    """A start that was killed may have truncated it without a sync: the old end must not come back
    beside what is written next."""
    platter, disk, contents = filled(ONE_SEGMENT, batches=4)
    assert disk.size(name(0, ".index")) > 0
    file = disk.open(name(0, ".log"))
    file.truncate(0)
    log = open_log(disk, ONE_SEGMENT)
    assert (log.end_offset, log.segments.active.offset_index.entry_count) == (0, 0)
    assert disk.size(name(0, ".index")) == 0
    log.close_files()
    file.append(contents[0])
    file.sync()
    file.truncate(0)
    log = open_log(disk, ONE_SEGMENT)
    platter.lose_power(random.Random(1))
    assert mounted(platter).size(name(0, ".log")) == 0


def test_aborted_transactions_of_records_that_a_crash_took_are_forgotten() -> None:
    disk = mounted(sim_disk())

    def abort(log: Log) -> None:
        data = batch(producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
        log.append_as_leader(data, 0)
        marker = encode_transaction_end(TransactionEnd(ControlType.ABORT, 0, NOW_MS), 3, 0)
        log.append_as_leader(marker, 0, origin=Origin.COORDINATOR)

    log = open_log(disk)
    abort(log)
    log.close_files()
    overwrite(disk, name(0, ".log"), b"")
    log = open_log(disk, clean=False)
    assert log.end_offset == 0
    assert not log.aborted_transactions(0, 100)
    abort(log)
    assert len(log.aborted_transactions(0, 100)) == 1
