"""Damage after a stop, on real files: every file of a log directory, in every way."""

import asyncio
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.log.logs import NOW_MS, end, fill, produce, read_all

from odradek.log import disk
from odradek.log.config import LogConfig
from odradek.log.damage import Damage
from odradek.log.disk import RealDisk, RealFile
from odradek.log.host import LogEnvironment
from odradek.log.log import Log
from odradek.log.manager import LogManager, LogManagerConfig
from odradek.log.offload import Offload, on_the_spot
from odradek.wire.batch import CorruptBatch, header_at, scan
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import ControlType
from odradek.wire.topics import TopicPartition

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200)
TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
BATCHES = 45


async def started(root: Path, offload: Offload = on_the_spot, **options: Any) -> LogManager:
    manager = LogManager(
        [str(root)],
        LogEnvironment(RealDisk(), lambda: NOW_MS, offload, random.Random(1)),
        LogManagerConfig(topic_defaults=CONFIG),
        **options,
    )
    manager.dirs.open()
    manager.dirs.claim(1, "cluster", NOW_MS)
    await manager.load()
    return manager


def life(log: Log) -> None:
    """Several segments and epochs, producers, and an aborted transaction in the last segment."""
    fill(log, 15)
    produce(log, 0, transactional=False, producer=5)
    fill(log, BATCHES - 20)
    produce(log, 0)
    end(log, ControlType.ABORT)
    fill(log, 2, epoch=3)
    log.set_high_watermark(log.end_offset)
    log.advance_start_offset(2)


async def stopped(root: Path) -> list[bytes]:
    """A directory with two equal logs that was shut down cleanly, and the batches of one."""
    manager = await started(root)
    for tp in (TP, OTHER):
        life(manager.get_or_create(tp, is_new=True))
    contents = read_all(manager.logs[TP])
    assert len(manager.logs[TP].segments) > 2
    manager.checkpoints.write_high_watermarks(
        {tp: log.high_watermark for tp, log in manager.logs.items()}
    )
    await manager.close()
    return contents


# What can happen to a file


def shortened_by_one(data: bytes) -> bytes:
    return data[:-1]


def halved(data: bytes) -> bytes:
    return data[: len(data) // 2]


def emptied(data: bytes) -> bytes:
    return b""


def zeroed(data: bytes) -> bytes:
    return bytes(len(data))


def zeroed_at_its_end(data: bytes) -> bytes:
    return data[: -(len(data) // 3)] + bytes(len(data) // 3)


def randomized(data: bytes) -> bytes:
    return random.Random(3).randbytes(len(data))


def flipped_at_its_end(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 4])


def lengthened_by_zeros(data: bytes) -> bytes:
    return data + bytes(100)


def lengthened_by_noise(data: bytes) -> bytes:
    return data + random.Random(4).randbytes(100)


FAULTS = (
    shortened_by_one,
    halved,
    emptied,
    zeroed,
    zeroed_at_its_end,
    randomized,
    flipped_at_its_end,
    lengthened_by_zeros,
    lengthened_by_noise,
)
Fault = Callable[[bytes], bytes] | None  # None: the file is gone

every_fault = pytest.mark.parametrize(
    "fault", [*FAULTS, None], ids=lambda fault: "gone" if fault is None else fault.__name__
)


def inflict(path: Path, fault: Fault) -> None:
    if fault is None:
        path.unlink()
    else:
        path.write_bytes(fault(path.read_bytes()))


def segment_file(root: Path, which: str, suffix: str, tp: TopicPartition = TP) -> Path:
    files = sorted((root / str(tp)).glob(f"*{suffix}"))
    return files[{"first": 0, "middle": 1, "last": -1}[which]]


def directories(root: Path) -> dict[str, Path]:
    return {path.name: path for path in root.iterdir() if path.is_dir()}


def damage_to(manager: LogManager, path: Path) -> Damage | None:
    """Only what was damaged is out of use."""
    assert OTHER in manager.logs and OTHER not in manager.damaged.found
    damage = manager.damaged.found.get(TP)
    assert damage is None or str(path.parent) in damage.reason
    return damage


# Batches


@every_fault
async def test_the_last_segment_is_truncated_and_what_is_lost_is_known(
    tmp_path: Path, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    contents = await stopped(tmp_path)
    path = segment_file(tmp_path, "last", ".log")
    inflict(path, fault)
    manager = await started(tmp_path)
    log = manager.logs[TP]
    kept = read_all(log)
    assert kept == contents[: len(kept)]
    damage = damage_to(manager, path)
    assert (damage is not None) == (len(kept) < len(contents))
    assert path.name in caplog.text
    if damage is not None:
        assert damage.reached == header_at(contents[-1]).next_offset > log.end_offset
        assert damage.unusable is None
    assert (fault in (lengthened_by_zeros, lengthened_by_noise)) == (damage is None)
    # It goes on as a follower that copies the rest.
    for data in contents[len(kept) :]:
        log.append_as_follower(data)
    assert read_all(log) == contents
    assert log.aborted_transactions(0, log.end_offset)
    await manager.close()
    again = await started(tmp_path)
    assert read_all(again.logs[TP]) == contents and not again.damaged.found


@pytest.mark.parametrize("which", ["first", "middle"])
@pytest.mark.parametrize("fault", [shortened_by_one, halved, emptied, None])
async def test_a_closed_segment_that_lost_records_takes_its_log_offline_as_it_is(
    tmp_path: Path, fault: Fault, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    contents = await stopped(tmp_path)
    whole = segment_file(tmp_path, which, ".log")
    original = whole.read_bytes()
    inflict(whole, fault)
    left = {p.name: p.read_bytes() for p in (tmp_path / str(TP)).glob("*.log")}
    manager = await started(tmp_path)
    damage = damage_to(manager, whole)
    assert damage is not None and whole.name in damage.reason and damage.reason in caplog.text
    assert damage.unusable == str(tmp_path / str(TP))
    assert damage.reached == header_at(contents[-1]).next_offset
    assert {p.name: p.read_bytes() for p in (tmp_path / str(TP)).glob("*.log")} == left
    with pytest.raises(KafkaError) as refused:
        manager.get_or_create(TP, is_new=True)
    assert refused.value.error == ErrorCode.KAFKA_STORAGE_ERROR
    await manager.close()
    # A file that is put back makes it whole again.
    whole.write_bytes(original)
    again = await started(tmp_path)
    assert read_all(again.logs[TP]) == contents and not again.damaged.found


async def test_a_damaged_log_that_is_set_aside_is_kept_and_makes_room(tmp_path: Path) -> None:
    await stopped(tmp_path)
    inflict(segment_file(tmp_path, "first", ".log"), halved)
    manager = await started(tmp_path)
    manager.damaged.set_aside(TP)
    assert manager.get_or_create(TP).end_offset == 0
    strays = [path for name, path in directories(tmp_path).items() if name.endswith("-stray")]
    assert len(strays) == 1 and len(list(strays[0].glob("*.log"))) > 2
    await manager.close()
    again = await started(tmp_path)
    assert again.logs[TP].end_offset == 0 and not again.damaged.found


@pytest.mark.parametrize("fault", [lengthened_by_zeros, lengthened_by_noise])
async def test_a_closed_segment_that_has_grown_is_what_it_was(tmp_path: Path, fault: Fault) -> None:
    contents = await stopped(tmp_path)
    path = segment_file(tmp_path, "middle", ".log")
    original = path.read_bytes()
    inflict(path, fault)
    manager = await started(tmp_path)
    assert damage_to(manager, path) is None
    assert read_all(manager.logs[TP]) == contents
    assert path.read_bytes() == original


async def test_a_segment_that_appears_takes_its_log_offline(tmp_path: Path) -> None:
    await stopped(tmp_path)
    last = segment_file(tmp_path, "last", ".log")
    shutil.copy(last, last.with_name(f"{10**6:020d}.log"))
    manager = await started(tmp_path)
    damage = damage_to(manager, last)
    assert damage is not None and f"{10**6:020d}.log was not there" in damage.reason


@pytest.mark.parametrize("which", ["first", "middle"])
async def test_a_bad_batch_in_a_closed_segment_is_not_handed_out(
    tmp_path: Path, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    contents = await stopped(tmp_path)
    path = segment_file(tmp_path, which, ".log")
    data = bytearray(path.read_bytes())
    before, bad = list(scan(data))[3:5]
    data[bad.position + 70] ^= 1
    path.write_bytes(data)
    manager = await started(tmp_path)
    log = manager.logs[TP]
    assert log.read(before.base_offset, 10_000).records == data[before.position : bad.position]
    with pytest.raises(CorruptBatch, match=path.name):
        log.read(bad.base_offset, 10_000)
    assert path.name in caplog.text and "move" in caplog.text
    assert log.corrupt_reads == 1 and not log.offline
    assert log.read(header_at(contents[-1]).base_offset, 10_000).records


# Indexes, epochs, snapshots


@pytest.mark.parametrize("which", ["middle", "last"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@every_fault
async def test_a_broken_index_changes_no_answer(
    tmp_path: Path, fault: Fault, suffix: str, which: str
) -> None:
    contents = await stopped(tmp_path)
    expected = await answers_of(tmp_path)
    path = segment_file(tmp_path, which, suffix)
    inflict(path, fault)
    manager = await started(tmp_path)
    assert damage_to(manager, path) is None
    log = manager.logs[TP]
    assert read_all(log) == contents
    assert answers(log) == expected
    fill(log, 20, epoch=3)  # nothing is left that an append could stumble over
    assert len(read_all(log)) == len(contents) + 20


async def answers_of(root: Path) -> list[Any]:
    """Those of the log as it is; the directory is cleanly shut down again."""
    manager = await started(root)
    found = answers(manager.logs[TP])
    await manager.close()
    return found


def answers(log: Log) -> list[Any]:
    times = range(NOW_MS, NOW_MS + BATCHES + 2)
    return [
        *(log.offset_for_timestamp(time_ms) for time_ms in times),
        log.offset_of_greatest_timestamp(),
        log.aborted_transactions(0, log.end_offset),
        [segment.largest_timestamp for segment in log.segments],
    ]


@every_fault
async def test_a_broken_transaction_index_is_rebuilt(tmp_path: Path, fault: Fault) -> None:
    await stopped(tmp_path)
    expected = await answers_of(tmp_path)
    path = segment_file(tmp_path, "last", ".txnindex")
    inflict(path, fault)
    manager = await started(tmp_path)
    assert damage_to(manager, path) is None
    assert answers(manager.logs[TP]) == expected


@every_fault
async def test_broken_leader_epochs_are_rebuilt(tmp_path: Path, fault: Fault) -> None:
    contents = await stopped(tmp_path)
    path = tmp_path / str(TP) / "leader-epoch-checkpoint"
    expected = path.read_bytes()
    inflict(path, fault)
    manager = await started(tmp_path)
    assert damage_to(manager, path) is None
    log = manager.logs[TP]
    assert [epoch for epoch, _ in log.epochs.entries] == [0, 3]
    assert path.read_bytes() == expected
    assert read_all(log) == contents


@pytest.mark.parametrize("all_of_them", [False, True])
@every_fault
async def test_broken_snapshots_are_made_from_the_log(
    tmp_path: Path, fault: Fault, all_of_them: bool
) -> None:
    await stopped(tmp_path)
    snapshots = sorted((tmp_path / str(TP)).glob("*.snapshot"))
    for path in snapshots if all_of_them else snapshots[-1:]:
        inflict(path, fault)
    manager = await started(tmp_path)
    assert damage_to(manager, snapshots[-1]) is None
    producers = manager.logs[TP].producers
    states = [producers.get(producer_id) for producer_id in (5, 7)]
    assert [state.last_sequence for state in states if state is not None] == [0, 0]


# The files of the directory


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
        ".odradek_shutdown",
        ".kafka_cleanshutdown",
    ],
)
@every_fault
async def test_a_broken_checkpoint_costs_no_record(
    tmp_path: Path, fault: Fault, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    contents = await stopped(tmp_path)
    path = tmp_path / name
    if not path.exists():
        path.write_bytes(b"0\n1\nt 0 1\n")  # the cleaner had nothing to write
    inflict(path, fault)
    manager = await started(tmp_path)
    assert not manager.damaged.found and not manager.dirs.offline
    assert read_all(manager.logs[TP])[-5:] == contents[-5:]
    assert manager.logs[TP].end_offset == header_at(contents[-1]).next_offset
    trusted = not name.startswith(".")
    if trusted:
        assert manager.logs[TP].start_offset == 2
        assert manager.checkpoints.read_high_watermarks()[TP] == manager.logs[TP].end_offset
    if name.startswith("re") and fault is not shortened_by_one:  # which takes the last line's end
        assert name in caplog.text


@pytest.mark.parametrize("name", [".odradek_shutdown", ".kafka_cleanshutdown"])
@every_fault
async def test_a_lost_tail_is_noticed_also_without_the_record(
    tmp_path: Path, fault: Fault, name: str
) -> None:
    contents = await stopped(tmp_path)
    inflict(tmp_path / name, fault)
    path = segment_file(tmp_path, "last", ".log")
    inflict(path, halved)
    manager = await started(tmp_path)
    damage = damage_to(manager, path)
    assert damage is not None and damage.reached == header_at(contents[-1]).next_offset
    kept = read_all(manager.logs[TP])
    assert kept == contents[: len(kept)]


async def test_what_kafka_left_is_checked_by_its_ends(tmp_path: Path) -> None:
    """Its marker names no record of ours, and one of ours may still be there."""
    contents = await stopped(tmp_path)
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":-1}')
    manager = await started(tmp_path)
    assert not manager.damaged.found and read_all(manager.logs[TP]) == contents
    fill(manager.logs[TP], 1, epoch=9)
    await manager.close()
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"")
    for which, fault in (("last", zeroed_at_its_end), ("middle", shortened_by_one)):
        directory = tmp_path / which
        shutil.copytree(tmp_path, directory, ignore=shutil.ignore_patterns("last"))
        path = segment_file(directory, which, ".log")
        inflict(path, fault)
        assert damage_to(await started(directory), path) is not None


async def test_a_missing_directory_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    contents = await stopped(tmp_path)
    shutil.rmtree(tmp_path / str(TP))
    manager = await started(tmp_path)
    assert manager.damaged.found.keys() == {TP}
    assert manager.damaged.found[TP].reached == header_at(contents[-1]).next_offset
    assert f"{tmp_path}/{TP} is gone" in caplog.text
    assert manager.get_or_create(TP).end_offset == 0


async def test_a_deleted_partition_is_not_missed(tmp_path: Path) -> None:
    await stopped(tmp_path)
    manager = await started(tmp_path)
    manager.async_delete(TP)
    # Killed here: the high watermarks still name it.
    assert TP in {
        TopicPartition(line.split()[0], int(line.split()[1]))
        for line in (tmp_path / "replication-offset-checkpoint").read_text().splitlines()[2:]
    }
    manager.close_files()
    again = await started(tmp_path)
    assert not again.damaged.found and list(again.logs) == [OTHER]


@pytest.mark.parametrize("content", [None, b"", b"\0" * 60, b"version=0\nbroker.id=1\n"])
async def test_a_directory_that_does_not_say_whose_it_is(
    tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    await stopped(tmp_path)
    path = tmp_path / "meta.properties"
    inflict(path, None if content is None else (lambda data: content))
    manager = await started(tmp_path)
    assert not manager.damaged.found and not manager.dirs.offline
    assert str(path) in caplog.text and "cannot be checked" in caplog.text
    assert b"cluster.id=cluster" in path.read_bytes()


# While it runs


async def test_an_append_that_fails_takes_its_log_offline_alone(tmp_path: Path) -> None:
    failures: list[tuple[str, list[TopicPartition]]] = []
    manager = await started(tmp_path, on_directory_failure=lambda *each: failures.append(each))
    for tp in (TP, OTHER):
        fill(manager.get_or_create(tp, is_new=True), 5)
    manager.checkpoints.write_high_watermarks(
        {tp: log.end_offset for tp, log in manager.logs.items()}
    )
    log = manager.logs[TP]
    # An index that is ahead of its log, as the damage left it that this is a guard against.
    log.segments.active.offset_index.append(1000, 1 << 20)
    with pytest.raises(KafkaError) as refused:
        fill(log, 50)
    assert refused.value.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline and TP not in manager.logs
    fill(manager.logs[OTHER], 5)
    await asyncio.sleep(0)
    assert failures == [(str(tmp_path / str(TP)), [TP])]
    with pytest.raises(KafkaError, match="offline"):
        manager.get_or_create(TP)
    manager.checkpoints.write_high_watermarks({OTHER: 5})
    manager.checkpoints.write_recovery_points()
    await manager.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    again = await started(tmp_path)
    assert again.logs[TP].end_offset >= 5
    assert again.checkpoints.read_high_watermarks()[TP] == 5


# What a stop costs


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of what is synced, in order."""
    synced: list[str] = []
    file_sync, directory_sync = RealFile.sync, RealDisk.sync_dir

    def sync(file: RealFile) -> None:
        synced.append(file.path)
        file_sync(file)

    def sync_dir(disk: RealDisk, path: str) -> None:
        synced.append(path)
        directory_sync(disk, path)

    monkeypatch.setattr(RealFile, "sync", sync)
    monkeypatch.setattr(RealDisk, "sync_dir", sync_dir)
    return synced


async def test_a_stop_syncs_only_the_logs_that_have_changed(
    tmp_path: Path, synced: list[str]
) -> None:
    contents = await stopped(tmp_path)
    manager = await started(tmp_path)
    manager.get_or_create(TopicPartition("t", 2), is_new=True)
    fill(manager.logs[OTHER], 1, epoch=3)
    manager.logs[TP].set_high_watermark(9)
    manager.logs[TP].advance_start_offset(7)
    synced.clear()
    await manager.close()
    assert {Path(path).parts[len(tmp_path.parts) :][:1] for path in synced} == {(), (str(OTHER),)}
    again = await started(tmp_path)
    assert not again.damaged.found and again.logs[TP].start_offset == 7
    assert read_all(again.logs[TP]) == [
        data for data in contents if header_at(data).last_offset >= 7
    ]
    assert len(read_all(again.logs[OTHER])) == len(contents) + 1


async def test_a_stop_syncs_each_file_once_and_none_that_was_flushed(
    tmp_path: Path, synced: list[str]
) -> None:
    manager = await started(tmp_path)
    flushed, unflushed, moved = (
        manager.get_or_create(TopicPartition("t", n), is_new=True) for n in range(3)
    )
    fill(flushed, 1)
    flushed.flush()
    fill(unflushed, 1)
    for _ in range(2):
        fill(moved, 1)
    moved.flush()
    moved.truncate_to(1)
    synced.clear()
    await manager.close()

    def of(log: Log) -> list[str]:
        inside = [path for path in synced if path.startswith(log.directory)]
        return [Path(path).suffix for path in inside if not path.endswith("checkpoint")]

    directory = ""
    assert of(flushed) == [".timeindex", ".snapshot", directory]
    epochs_of_directory = [directory]
    assert of(unflushed) == [*epochs_of_directory, ".log", ".timeindex", ".snapshot", directory]
    assert of(moved) == [".timeindex", ".snapshot", directory], "truncation has synced the rest"
    again = await started(tmp_path)
    assert not again.damaged.found and {log.end_offset for log in again.logs.values()} == {1}


async def test_a_start_after_a_crash_syncs_the_last_segment_of_each_log_alone(
    tmp_path: Path, synced: list[str]
) -> None:
    manager = await started(tmp_path)
    log = manager.get_or_create(TP, is_new=True)
    fill(log, 5)
    manager.close_files()
    synced.clear()
    again = await started(tmp_path)
    assert again.logs[TP].end_offset == 5
    assert [Path(path).suffix for path in synced if path.startswith(f"{tmp_path}/{TP}/")] == [
        ".log"
    ]


async def test_thousands_of_logs_are_closed_and_loaded_in_few_calls_off_the_loop(
    tmp_path: Path,
) -> None:
    calls = 0

    async def counting(work: Any) -> Any:
        nonlocal calls
        calls += 1
        return work()

    manager = await started(tmp_path, counting)
    for n in range(64):
        manager.get_or_create(TopicPartition("t", n), is_new=True)
    calls = 0
    await manager.close()
    assert calls == 4
    calls = 0
    again = LogManager(
        [str(tmp_path)], LogEnvironment(RealDisk(), lambda: NOW_MS, counting, random.Random(1))
    )
    await again.load()
    assert len(again.logs) == 64 and calls == 4
    await again.close()


async def test_logs_that_were_not_closed_are_synced_together_not_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "FILES_SYNCED_APART_MAX", 8)
    crashed = await started(tmp_path)
    for n in range(16):
        fill(crashed.get_or_create(TopicPartition("t", n), is_new=True), 1)
    crashed.close_files()
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    manager = await started(tmp_path)
    assert [log.end_offset for log in manager.logs.values()] == [1] * 16
    assert len(synced) < 16
    monkeypatch.undo()
    await manager.close()
