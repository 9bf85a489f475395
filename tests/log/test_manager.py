"""The log manager: start, stop, crash, several directories, and one of them failing."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.log.conftest import World
from tests.log.managers import CONFIG, TP, A, B, make, put, started, tps

from odradek.log.checkpoints import InconsistentMetaProperties, OffsetCheckpoint
from odradek.log.cleaner import CleanerConfig
from odradek.log.directories import DirectoryInUse, UnexpectedDirectory
from odradek.log.log_dirs import NoDirectoryLeft
from odradek.log.manager import DuplicateLog
from odradek.log.reports import describe_directories
from odradek.log.upkeep import UpkeepConfig
from odradek.sim.loop import Process
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

# Where logs are made


async def test_partitions_spread_over_the_directories(world: World) -> None:
    manager = await started(world)
    for topic_partition in tps(5):
        log = manager.get_or_create(topic_partition, is_new=True)
        assert manager.get_or_create(topic_partition) is manager.get(topic_partition) is log
    assert [len(manager.registry.in_directory(path)) for path in (A, B)] == [3, 2]
    assert manager.get(TopicPartition("u", 0)) is None


async def test_a_clean_stop_and_start(world: World) -> None:
    manager = await started(world)
    for topic_partition in tps(4):
        put(manager.get_or_create(topic_partition), 10 + topic_partition.partition)
    manager.logs[TP].advance_start_offset(3)
    manager.checkpoints.write_high_watermarks(
        {tp: log.high_watermark for tp, log in manager.logs.items()}
    )
    await manager.close()
    files = {path: bytes(content.data) for path, content in world.platter.files.items()}
    marker = files[f"{A}/.kafka_cleanshutdown"]
    assert marker.startswith(b'{"version":0,"brokerEpoch":-1,"odradek":"')
    assert files[f"{A}/recovery-point-offset-checkpoint"] == b"0\n2\nt 0 10\nt 2 12\n"
    assert files[f"{A}/log-start-offset-checkpoint"] == b"0\n1\nt 0 3\n"
    assert files[f"{B}/replication-offset-checkpoint"] == b"0\n2\nt 1 11\nt 3 13\n"

    again = await started(world)
    assert {tp: log.end_offset for tp, log in again.logs.items()} == {
        tp: 10 + tp.partition for tp in tps(4)
    }
    assert again.logs[TP].start_offset == 3 and again.logs[TP].recovery_point == 10
    assert again.checkpoints.read_high_watermarks() == {tp: 10 + tp.partition for tp in tps(4)}
    assert not world.disk().exists(f"{A}/.kafka_cleanshutdown")


async def test_a_killed_broker_recovers(world: World) -> None:
    manager = await started(world)
    put(manager.get_or_create(TP), 20)
    manager.checkpoints.write_recovery_points()
    again = await started(world)
    assert again.logs[TP].end_offset == 20
    assert again.logs[TP].recovery_point <= 20
    # What did not load completely is never marked clean.
    broken = make(world)
    broken.dirs.open()
    await broken.close()
    assert not world.disk().exists(f"{A}/.kafka_cleanshutdown")


async def test_settings_of_a_topic_and_changes_of_them(world: World) -> None:
    own = replace(CONFIG, retention_ms=5)
    manager = await started(world)
    assert manager.get_or_create(TP, own).config is own
    assert manager.get_or_create(TopicPartition("u", 0)).config is CONFIG
    await manager.close()
    again = make(world)
    await again.load({"t": own})
    assert again.logs[TP].config is own
    again.update_topic_config("t", CONFIG)
    assert again.logs[TP].config is CONFIG


# Whose directory, and what is in it


async def test_two_brokers_cannot_share_a_directory(world: World) -> None:
    manager = make(world, A)
    another = cast(Process, SimpleNamespace(alive=True))
    world.platter.locks[f"{A}/.lock"] = another
    with pytest.raises(DirectoryInUse):
        manager.dirs.open()


async def test_the_directory_of_another_broker_is_refused(world: World) -> None:
    await (await started(world)).close()
    manager = make(world)
    manager.dirs.open()
    assert {p.broker_id for p in manager.dirs.meta_properties().values()} == {1}
    with pytest.raises(InconsistentMetaProperties):
        manager.dirs.claim(2, "cluster", world.clock())


def test_one_directory_twice(world: World) -> None:
    with pytest.raises(ValueError):
        make(world, A, A + "/")


@pytest.mark.parametrize("name", ["photos", "t-x", "t-0-delete"])
async def test_a_foreign_sub_directory_stops_the_start(world: World, name: str) -> None:
    world.disk().make_dirs(f"{A}/{name}")
    with pytest.raises(UnexpectedDirectory):
        await started(world)


async def test_kafkas_other_sub_directories_and_plain_files_are_passed_over(world: World) -> None:
    for name in ("remote-log-index-cache", "__cluster_metadata-0", "s-0.0123-stray"):
        world.disk().make_dirs(f"{A}/{name}")
    world.disk().open(f"{A}/notes", create=True)
    manager = await started(world)
    assert manager.logs == {} and world.disk().exists(f"{A}/s-0.0123-stray")


async def test_a_partition_in_two_directories_is_fatal(world: World) -> None:
    world.disk().make_dirs(f"{A}/t-0")
    world.disk().make_dirs(f"{B}/t-0")
    with pytest.raises(DuplicateLog, match=f"t-0 is in ({A}|{B})/t-0 and in ({A}|{B})/t-0"):
        await started(world)


# Deletion


async def test_a_topic_is_deleted_with_one_checkpoint_not_one_for_each_partition(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = await started(world)
    for topic_partition in tps(20):
        put(manager.get_or_create(topic_partition))
    manager.checkpoints.write_recovery_points()
    written: list[str] = []
    write = OffsetCheckpoint.write

    def counted(self: OffsetCheckpoint, offsets: Any) -> None:
        written.append(self.path)
        write(self, offsets)

    monkeypatch.setattr(OffsetCheckpoint, "write", counted)
    for topic_partition in tps(20):
        manager.async_delete(topic_partition)
    await asyncio.sleep(0)  # a turn of the loop
    assert sorted(written) == [f"{path}/recovery-point-offset-checkpoint" for path in (A, B)]
    written.clear()
    manager.get_or_create(TP)  # no checkpoint names it any more
    assert written == []
    await manager.close()


async def test_deletion_renames_at_once_and_removes_later(world: World) -> None:
    manager = await started(world)
    for topic_partition in tps(3):
        put(manager.get_or_create(topic_partition))
    manager.checkpoints.write_recovery_points()
    log = manager.async_delete(TP)
    assert log is not None and manager.get(TP) is None
    assert log.directory.startswith(f"{A}/t-0.") and log.directory.endswith("-delete")
    assert len(log.directory) == len(A) + 1 + len("t-0.") + 32 + len("-delete")
    await asyncio.sleep(0)  # a turn of the loop
    assert b"t 0" not in world.disk().read_bytes(f"{A}/recovery-point-offset-checkpoint")
    with pytest.raises(KafkaError) as caught:
        put(log)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    await manager.upkeep.work_off()
    assert world.disk().exists(log.directory)
    world.now_ms += 1000
    await manager.upkeep.work_off()
    assert not world.disk().exists(log.directory)
    assert manager.async_delete(TP) is None


async def test_a_stray_log_is_out_of_use_and_never_removed(world: World) -> None:
    manager = await started(world)
    put(manager.get_or_create(TP))
    log = manager.async_delete(TP, stray=True)
    assert log is not None and manager.get(TP) is None
    assert log.directory.startswith(f"{A}/t-0.") and log.directory.endswith("-stray")
    assert manager.get_or_create(TP).end_offset == 0
    again = await started(world)
    for each in (manager, again):
        world.now_ms += 1000
        assert each.statistics()["directories_to_remove"] == 0
        await each.upkeep.work_off()
    assert world.disk().exists(log.directory)


async def test_deletion_resumes_after_a_restart(world: World) -> None:
    manager = await started(world)
    put(manager.get_or_create(TP))
    manager.async_delete(TP)
    again = await started(world)
    assert again.logs == {} and again.statistics()["directories_to_remove"] == 1
    world.now_ms += 1000
    await again.upkeep.work_off()
    assert not any("-delete" in path for path in world.files("/"))


@pytest.mark.parametrize("kill", [False, True])
async def test_a_new_log_inherits_nothing_of_a_deleted_one(world: World, kill: bool) -> None:
    manager = await started(world, A)
    put(manager.get_or_create(TP), 20)
    await manager.flusher.flush(manager.logs[TP])
    manager.logs[TP].advance_start_offset(15)
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_start_offsets()
    manager.checkpoints.write_high_watermarks({TP: 20})
    stale = {path: bytes(c.data) for path, c in world.platter.files.items() if "checkpoint" in path}
    manager.async_delete(TP)
    if kill:
        # As if the process had died before the checkpoints were rewritten.
        for path, data in stale.items():
            if path.count("/") == 2:
                world.disk().write_atomically(path, data)
        manager = await started(world, A)
    log = manager.get_or_create(TP)
    assert (log.start_offset, log.end_offset, log.recovery_point) == (0, 0, 0)
    assert manager.checkpoints.read_high_watermarks() == {}
    put(log, 2)
    again = await started(world, A)
    assert again.logs[TP].end_offset == 2 and again.logs[TP].recovery_point == 0


# Looking


async def test_describe(world: World) -> None:
    manager = await started(world)
    put(manager.get_or_create(TP), 3)
    reports = describe_directories(manager)
    assert [report.path for report in reports] == [A, B]
    assert reports[0].is_online and reports[0].total_bytes == 1 << 40
    assert reports[0].usable_bytes < 1 << 40
    assert reports[0].logs == [(TP, manager.logs[TP].size_bytes, 0, False)]
    manager.dirs.fail(B, OSError("gone"))
    assert describe_directories(manager)[1] == (B, False, -1, -1, [])


# Failure


class Failures(list[tuple[str, list[TopicPartition]]]):
    def __call__(self, directory: str, partitions: list[TopicPartition]) -> None:
        self.append((directory, partitions))


async def test_a_failing_directory_takes_its_logs_only(world: World) -> None:
    failures = Failures()
    manager = await started(world, on_directory_failure=failures)
    for topic_partition in tps(4):
        put(manager.get_or_create(topic_partition))
    world.platter.failed.add(A)
    with pytest.raises(KafkaError) as caught:
        put(manager.logs[TP])
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert failures == []  # reported on the loop, not inside the append
    await asyncio.sleep(0)
    assert failures == [(A, [tps(4)[0], tps(4)[2]])]
    assert list(manager.logs) == [tps(4)[1], tps(4)[3]]
    assert list(manager.dirs.offline) == [A] and list(manager.dirs.live) == [B]
    put(manager.logs[tps(4)[1]])
    # A partition that may be in the lost directory is not made again, a new one is.
    with pytest.raises(KafkaError):
        manager.get_or_create(TP)
    assert manager.get_or_create(TopicPartition("new", 0), is_new=True).directory.startswith(B)
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_high_watermarks({})
    await manager.close()
    world.platter.failed.clear()
    assert world.disk().exists(f"{B}/.kafka_cleanshutdown")
    assert not world.disk().exists(f"{A}/.kafka_cleanshutdown")


async def test_a_directory_that_fails_while_checkpoints_are_written(world: World) -> None:
    failures = Failures()
    manager = await started(world, on_directory_failure=failures)
    put(manager.get_or_create(TP))
    await manager.flusher.flush(manager.logs[TP])
    world.platter.failed.add(A)
    manager.checkpoints.write_recovery_points()
    await asyncio.sleep(0)
    assert failures == [(A, [TP])]


async def test_a_directory_that_fails_while_it_is_closed(world: World) -> None:
    failures = Failures()
    manager = await started(world, on_directory_failure=failures)
    for topic_partition in tps(4):
        put(manager.get_or_create(topic_partition))
    world.platter.failed.add(A)
    await manager.close()
    await asyncio.sleep(0)
    world.platter.failed.clear()
    assert [directory for directory, _ in failures] == [A]
    assert world.disk().exists(f"{B}/.kafka_cleanshutdown")
    assert not world.disk().exists(f"{A}/.kafka_cleanshutdown")


async def test_a_directory_that_cannot_be_opened_at_the_start(world: World) -> None:
    failures = Failures()
    world.platter.failed.add(A)
    manager = make(world, on_directory_failure=failures)
    manager.dirs.open()
    await asyncio.sleep(0)
    assert failures == []  # not before the listener can act on it
    await manager.load()
    await asyncio.sleep(0)
    assert list(manager.dirs.live) == [B] and failures == [(A, [])]
    world.platter.failed.add(B)
    with pytest.raises(NoDirectoryLeft):
        await started(world)


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "cleaner-offset-checkpoint",
        "t-0/leader-epoch-checkpoint",
    ],
)
@pytest.mark.parametrize("data", [b"\0" * 40, b"0\n5\nt 0 1\n", b"9\n0\n"])
async def test_a_damaged_checkpoint_costs_nothing(world: World, name: str, data: bytes) -> None:
    manager = await started(world)
    put(manager.get_or_create(TP))
    put(manager.get_or_create(TopicPartition("t", 1)))
    await manager.close()
    world.disk().write_atomically(f"{A}/{name}", data)
    again = await started(world)
    assert not again.dirs.offline and not again.damaged.found
    assert {tp: log.end_offset for tp, log in again.logs.items()} == dict.fromkeys(tps(2), 1)
    assert again.logs[TP].epochs.entries == [(0, 0)]


async def test_creation_tries_the_next_directory(world: World) -> None:
    manager = await started(world)
    world.platter.failed.add(A)
    assert manager.get_or_create(TP).directory == f"{B}/t-0"
    world.platter.failed.add(B)
    with pytest.raises(KafkaError) as caught:
        manager.get_or_create(TopicPartition("t", 1), is_new=True)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_log_that_was_half_made_is_not_made_elsewhere_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = await started(world)

    def half(directory: Any, path: str, *_: Any) -> None:
        world.disk().make_dirs(path)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(manager, "_open_log", half)
    with pytest.raises(KafkaError) as caught:
        manager.get_or_create(TP)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert list(manager.dirs.live) == [B]
    again = await started(world)
    assert again.logs[TP].directory == f"{A}/t-0"


@pytest.mark.parametrize("readable", [True, False])
async def test_a_log_in_a_failed_directory_is_not_created_again(
    world: World, readable: bool
) -> None:
    """Or it would stand in two when that directory is back."""
    manager = await started(world)
    assert manager.get_or_create(TP).directory == f"{A}/t-0"
    if readable:
        manager.dirs.fail(A, OSError(errno.ENOSPC, "no space"))
    else:
        world.platter.failed.add(A)
        with pytest.raises(KafkaError):
            put(manager.logs[TP])
    with pytest.raises(KafkaError) as caught:
        manager.get_or_create(TP, is_new=True)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    other = manager.get_or_create(TopicPartition("t", 1), is_new=True)
    assert other.directory == f"{B}/t-1"
    world.platter.failed.clear()
    again = await started(world)
    assert set(again.logs) == {TP, TopicPartition("t", 1)}


async def test_logs_of_a_directory_that_failed_while_loading_are_not_created_again(
    world: World,
) -> None:
    (await started(world)).get_or_create(TP)
    manager = make(world)
    manager.dirs.open()
    manager.dirs.fail(A, OSError(errno.ENOSPC, "no space"))
    await manager.load()
    with pytest.raises(KafkaError) as caught:
        manager.get_or_create(TP, is_new=True)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_full_disk_fails_the_directory_and_loses_nothing_acknowledged(world: World) -> None:
    manager = await started(world)
    log = manager.get_or_create(TP)
    world.platter.capacity_bytes = world.platter.used_bytes + 5000
    acknowledged = 0
    try:
        while acknowledged < 100:
            put(log, value=b"v" * 100)
            acknowledged += 1
    except KafkaError:
        pass  # The disk is full, which the manager must have noticed.
    assert manager.dirs.offline[A].errno == errno.ENOSPC
    world.platter.capacity_bytes = 1 << 40
    again = await started(world)
    assert again.logs[TP].end_offset >= acknowledged > 10


# Crashes


async def busy_life(world: World, disk: Any) -> None:
    """All that changes files: create, append, roll, checkpoint, clean, cut, delete, close."""
    compact = replace(CONFIG, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
    manager = await started(world, disk=disk)
    one, two = manager.get_or_create(TP, compact), manager.get_or_create(TopicPartition("t", 1))
    put(one, 12)
    put(two, 12)
    await manager.upkeep.work_off()
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_high_watermarks({TP: 12})
    await manager.cleaner.run()
    two.advance_start_offset(8)
    two.delete_old_segments()
    manager.checkpoints.write_start_offsets()
    one.truncate_to(11)
    manager.async_delete(TopicPartition("t", 1))
    world.now_ms += 1000
    await manager.upkeep.work_off()
    put(manager.get_or_create(TopicPartition("t", 1)), 3)
    await manager.close()


@pytest.mark.parametrize("power_loss", [False, True])
async def test_a_crash_at_any_change_leaves_directories_that_load(
    make_world: Callable[[], Any], power_loss: bool
) -> None:
    changes = 0
    while True:
        world = make_world()
        try:
            await busy_life(world, world.disk(changes))
        except world.Died:
            pass
        else:
            break
        if power_loss:
            world.lose_power(changes)
        manager = await started(world)
        assert not manager.dirs.offline, (changes, manager.dirs.offline)
        for log in manager.logs.values():
            assert log.start_offset <= log.end_offset <= 12
            assert log.recovery_point <= log.end_offset
            put(log)
        if TP in manager.logs and world.now_ms > 1_700_000_000_000:
            assert manager.logs[TP].end_offset == 12 or power_loss
        await manager.close()
        changes += 1
    assert changes > 100


# Upkeep


async def test_upkeep_runs_on_the_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is the loop's; a test's sleep(0) is enough because every interval is 0."""
    upkeep = UpkeepConfig(0, 0, 0, 0, 0, 0)
    old = replace(CONFIG, retention_ms=1000, flush_ms=1)
    manager = await started(
        world, topic_defaults=old, upkeep=upkeep, cleaner=CleanerConfig(backoff_ms=0)
    )
    manager.start()
    log = manager.get_or_create(TP)
    put(log, 20)
    segments = len(log.segments)
    assert segments > 2
    world.now_ms += 2000

    async def until(done: Callable[[], bool]) -> None:
        for _ in range(1000):
            if done():
                return
            await asyncio.sleep(0)
        raise AssertionError("never came about")

    await until(lambda: log.start_offset == 20)
    await until(lambda: log.recovery_point == 20)
    checkpoint = f"{A}/recovery-point-offset-checkpoint"
    await until(lambda: b"t 0 20" in world.platter.files[checkpoint].data)
    manager.async_delete(TP)
    world.now_ms += 1000
    manager.upkeep.wake()
    await until(lambda: not any("-delete" in path for path in world.files(A)))
    await manager.close()


async def test_a_lost_checkpoint_takes_one_line_however_many_partitions_it_had(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    manager = await started(world)
    for tp in tps(40):
        put(manager.get_or_create(tp), 10)
    await manager.close()
    world.platter.files[f"{A}/recovery-point-offset-checkpoint"].data[:] = b"0\n0\n"
    again = await started(world)
    assert [log.recovery_point for log in again.logs.values()] == [10] * 40
    (line,) = (each.message for each in caplog.records if each.levelname == "ERROR")
    assert "of 20 partitions" in line and "recovery-point-offset-checkpoint" in line
    await again.close()


async def test_upkeep_stops_also_when_there_is_work_at_that_moment(world: World) -> None:
    manager = await started(world)
    manager.start()
    put(manager.get_or_create(TP))
    manager.async_delete(TP)
    for _ in range(10):
        await asyncio.sleep(0)
    manager.upkeep.wake()
    stopping = asyncio.ensure_future(manager.close())
    for _ in range(100):
        await asyncio.sleep(0)
    assert stopping.done()


async def test_rolled_segments_are_flushed_off_the_loop(world: World) -> None:
    offloaded = []

    async def offload(work: Callable[[], Any]) -> Any:
        offloaded.append(work)
        return work()

    manager = make(world, A, offload=offload)
    await manager.load()
    log = manager.get_or_create(TP)
    put(log, 10)
    assert manager.statistics()["logs_to_flush"] == 1
    offloaded.clear()
    await manager.upkeep.work_off()
    assert log.recovery_point == 10 and len(offloaded) == 1


async def test_truncating_below_the_recovery_point_rewrites_the_checkpoint(world: World) -> None:
    manager = await started(world)
    log = manager.get_or_create(TP)
    put(log, 10)
    await manager.flusher.flush(log)
    manager.checkpoints.write_recovery_points()
    log.truncate_to(4)
    assert world.disk().read_bytes(f"{A}/recovery-point-offset-checkpoint") == b"0\n1\nt 0 4\n"


async def test_a_log_deleted_during_its_flush(world: World) -> None:
    manager = await started(world)
    log = manager.get_or_create(TP)
    put(log, 3)

    async def offload(work: Callable[[], Any]) -> Any:
        manager.async_delete(TP)
        return work()

    manager.flusher.offload = offload
    await manager.flusher.flush(log)
    assert manager.dirs.offline == {}
