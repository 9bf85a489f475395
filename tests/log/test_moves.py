"""Logs that move between directories: what they are after a kill, and what else a move meets."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.log.conftest import World
from tests.log.managers import CONFIG, TP, A, B, C, put, started

from odradek.log import cleaner
from odradek.log.epochs import LeaderEpochs
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.reports import describe_directories
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, decode_records, encode_batch


class ReadOnly:
    """A disk on which nothing below `path` is renamed or replaced, or its names synced."""

    def __init__(self, disk: Any, path: str) -> None:
        self._disk = disk
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def rename(self, source: str, target: str) -> None:
        self._refuse(source)
        self._disk.rename(source, target)

    def sync_dir(self, path: str) -> None:
        self._refuse(path)
        self._disk.sync_dir(path)

    def write_atomically(self, path: str, data: bytes) -> None:
        self._refuse(path)
        self._disk.write_atomically(path, data)

    def _refuse(self, path: str) -> None:
        if path.startswith(self._path):
            raise OSError(errno.EROFS, "read-only", path)


def copied(manager: LogManager) -> Log:
    """A copy in B of the log in A, complete."""
    current = manager.logs[TP]
    manager.prefer_directory(TP, B)
    future = manager.get_or_create(TP, current.config, future=True)
    while future.end_offset < current.end_offset:
        future.append_as_follower(current.read(future.end_offset, 1 << 20).records)
    return future


async def test_a_future_log_takes_the_place_of_the_current(world: World) -> None:
    manager = await started(world)
    current = manager.get_or_create(TP)
    put(current, 5)
    with pytest.raises(KafkaError) as caught:
        manager.prefer_directory(TP, "/nowhere")
    assert caught.value.error is ErrorCode.LOG_DIR_NOT_FOUND
    manager.prefer_directory(TP, B)
    future = manager.get_or_create(TP, future=True)
    assert future.directory.startswith(f"{B}/t-0.") and future.directory.endswith("-future")
    future.append_as_follower(current.read(0, 1 << 20, end_offset=5).records)
    sizes = {report.path: report.logs for report in describe_directories(manager)}
    assert sizes[A][0].offset_lag == 0 and not sizes[A][0].is_future
    assert sizes[B][0].offset_lag == 0 and sizes[B][0].is_future

    restarted = await started(world)
    assert restarted.get(TP, future=True) is not None
    restarted.logs[TP].set_high_watermark(5)
    moved = restarted.replace_current_with_future(TP)
    assert moved is restarted.logs[TP] and moved.directory == f"{B}/t-0"
    assert moved.high_watermark == 5 and restarted.future_logs == {}
    put(moved)
    await restarted.close()
    again = await started(world)
    assert again.logs[TP].directory == f"{B}/t-0" and again.logs[TP].end_offset == 6
    with pytest.raises(KafkaError):
        again.replace_current_with_future(TP)


async def test_leader_epochs_without_records_move_with_the_log(world: World) -> None:
    manager = await started(world)
    current = manager.get_or_create(TP)
    put(current, 5)
    current.assign_epoch(7, 5)
    future = copied(manager)
    assert future.epochs.latest_epoch != 7
    moved = manager.replace_current_with_future(TP)
    assert moved.epochs.entries == current.epochs.entries
    assert LeaderEpochs(moved.epochs.path, disk=moved.disk).entries == moved.epochs.entries


async def test_a_cancelled_move(world: World) -> None:
    manager = await started(world)
    put(manager.get_or_create(TP))
    manager.prefer_directory(TP, B)
    manager.get_or_create(TP, future=True)
    assert manager.async_delete(TP, future=True) is not None
    assert manager.get(TP, future=True) is None and manager.get(TP) is not None


async def test_of_two_copies_one_is_set_aside(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    manager = await started(world, A)
    put(manager.get_or_create(TP), 5)
    disk = world.disk()
    for path in (B, C):
        disk.make_dirs(f"{path}/t-0.{path[1] * 32}-future")
    again = await started(world, A, B, C)
    assert again.logs[TP].end_offset == 5
    assert again.future_logs[TP].directory == f"{B}/t-0.{'b' * 32}-future"
    (aside,) = (name for name in disk.list_dir(C) if name.startswith("t-0"))
    assert aside.endswith("-stray") and aside in caplog.text
    await again.close()
    last = await started(world, A, B, C)
    assert not last.dirs.unclean and last.future_logs[TP].directory.startswith(B)


async def test_a_copy_serves_where_the_log_cannot_be_deleted(world: World) -> None:
    manager = await started(world)
    source = manager.get_or_create(TP)
    put(source, 5)
    future = copied(manager)
    source.disk = ReadOnly(source.disk, A)
    assert manager.replace_current_with_future(TP) is future is manager.logs[TP]
    put(future)
    assert source.offline and list(manager.dirs.offline) == [A]
    assert world.disk().exists(f"{A}/t-0") and manager.future_logs == {}


async def test_a_log_serves_where_its_copy_cannot_take_its_place(world: World) -> None:
    manager = await started(world)
    source = manager.get_or_create(TP)
    put(source, 5)
    copied(manager)
    manager.disk = ReadOnly(manager.disk, B)
    with pytest.raises(KafkaError) as caught:
        manager.replace_current_with_future(TP)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    put(source)
    assert manager.logs[TP] is source and list(manager.dirs.offline) == [B]
    assert manager.future_logs == {}


async def test_a_log_serves_where_its_copy_cannot_take_its_epochs(world: World) -> None:
    manager = await started(world)
    source = manager.get_or_create(TP)
    put(source, 5)
    source.assign_epoch(7, 5)
    future = copied(manager)
    future.epochs._disk = ReadOnly(future.disk, B)
    with pytest.raises(KafkaError) as caught:
        manager.replace_current_with_future(TP)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    put(source)
    assert manager.logs[TP] is source and list(manager.dirs.offline) == [B]
    assert world.disk().exists(f"{A}/t-0") and not world.disk().exists(f"{B}/t-0")


async def test_a_log_on_a_failed_disk_is_not_replaced(world: World) -> None:
    """It could not be renamed, and would be there beside its copy when the disk is back."""
    manager = await started(world)
    put(manager.get_or_create(TP), 5)
    copied(manager)
    world.platter.failed.add(A)
    with pytest.raises(KafkaError) as caught:
        manager.replace_current_with_future(TP)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert TP not in manager.logs and list(manager.dirs.offline) == [A]
    world.platter.failed.clear()
    again = await started(world)
    assert again.logs[TP].directory == f"{A}/t-0" and again.logs[TP].end_offset == 5


async def test_a_copy_that_cannot_be_deleted_is_given_up(world: World) -> None:
    manager = await started(world)
    put(manager.get_or_create(TP), 5)
    future = copied(manager)
    future.disk = ReadOnly(future.disk, B)
    assert manager.async_delete(TP, future=True) is future
    assert manager.future_logs == {} and list(manager.dirs.offline) == [B]
    put(manager.logs[TP])


async def test_the_copy_of_a_cleaned_log_is_whole_after_a_kill(world: World) -> None:
    compact = replace(CONFIG, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
    manager = await started(world)
    put(manager.get_or_create(TP, compact), 30)
    assert await manager.cleaner.run() == 1
    manager.update_topic_config("t", CONFIG)
    copied(manager)
    moved = manager.replace_current_with_future(TP)
    put(moved, 5)
    again = await started(world)
    assert again.logs[TP].directory == f"{B}/t-0" and again.logs[TP].end_offset == 35
    again.async_delete(TP)
    world.now_ms += 1000
    await again.upkeep.work_off()
    assert not any("t-0" in path for path in world.files("/"))


async def test_a_copy_that_takes_its_logs_place_while_it_is_flushed(world: World) -> None:
    manager = await started(world)
    put(manager.get_or_create(TP), 20)
    future = copied(manager)

    async def offload(work: Callable[[], Any]) -> Any:
        if TP in manager.future_logs:
            manager.replace_current_with_future(TP)
        return work()

    manager.flusher.offload = offload
    await manager.flusher.flush(future)
    assert manager.dirs.offline == {} and manager.logs[TP] is future
    assert future.recovery_point == 20
    for path in world.files(f"{B}/t-0/"):
        assert world.platter.files[path].pending == [], path


async def test_a_directory_that_is_gone_and_was_not_renamed_has_failed(world: World) -> None:
    manager = await started(world)
    put(manager.get_or_create(TP))

    async def offload(work: Callable[[], Any]) -> Any:
        world.disk().remove_tree(f"{A}/t-0")
        return work()

    manager.flusher.offload = offload
    await manager.flusher.flush(manager.logs[TP])
    assert list(manager.dirs.offline) == [A]


async def test_a_segment_that_retention_takes_while_it_is_flushed(world: World) -> None:
    manager = await started(world)
    log = manager.get_or_create(TP)
    put(log, 20)

    class Disk:
        def __getattr__(self, name: str) -> Any:
            return getattr(log.disk, name)

        def open(self, path: str, create: bool = False) -> Any:
            """Retention comes between any look at the file and this."""
            world.now_ms += CONFIG.retention_ms + 1
            log.delete_old_segments()
            return log.disk.open(path, create)

    async def offload(work: Any) -> Any:
        return replace(work.__self__, disk=Disk()).sync()

    manager.flusher.offload = offload
    await manager.flusher.flush(log)
    assert manager.dirs.offline == {} and log.start_offset == 20


COMPACT = replace(
    CONFIG,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=1000,
)


def tell(world: World, log: Log, key: bytes, value: bytes | None) -> None:
    log.append_as_leader(encode_batch([Record(-1, world.now_ms, key, value)]), 0)
    log.set_high_watermark(log.end_offset)


def tell_others(world: World, log: Log, count: int = 20) -> None:
    """Each with a key of its own, so that none of these records is ever cleaned away."""
    for _ in range(count):
        tell(world, log, b"%d" % log.end_offset, b"v")


def told_of(log: Log, key: bytes) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value)
        for segment in log.segments
        for data, header in segment.batches()
        for record in decode_records(data, header)
        if record.key == key
    ]


async def clean_until_deletions_are_forgotten(world: World, manager: LogManager) -> None:
    for _ in range(3):
        world.now_ms += COMPACT.delete_retention_ms
        tell_others(world, manager.logs[TP])
        await manager.cleaner.run()


async def test_a_key_deleted_while_its_log_is_moved_stays_deleted(world: World) -> None:
    manager = await started(world, topic_defaults=COMPACT)
    log = manager.get_or_create(TP)
    tell(world, log, b"K", b"secret")
    tell_others(world, log)
    copied(manager)
    tell(world, log, b"K", None)
    tell_others(world, log)
    assert await manager.cleaner.run() == manager.cleaner.statistics()["runs"] == 0
    copied(manager)
    moved = manager.replace_current_with_future(TP)
    assert told_of(moved, b"K") == [(0, b"secret"), (21, None)]
    await clean_until_deletions_are_forgotten(world, manager)
    assert told_of(moved, b"K") == []


async def test_a_cleaning_that_is_under_way_when_a_move_begins_is_abandoned(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner, "SLICE_BYTES", 1)
    manager = await started(world, topic_defaults=COMPACT)
    log = manager.get_or_create(TP)
    put(log, 30)
    task = asyncio.ensure_future(manager.cleaner.run())
    await asyncio.sleep(0)
    copied(manager)
    assert await task == 0 and manager.cleaner.statistics()["aborted"] == 1
    assert len(told_of(log, b"k")) == 30


async def test_a_move_that_is_called_off_lets_the_log_be_cleaned(world: World) -> None:
    manager = await started(world, topic_defaults=COMPACT)
    put(manager.get_or_create(TP), 30)
    copied(manager)
    assert await manager.cleaner.run() == 0
    manager.async_delete(TP, future=True)
    assert await manager.cleaner.run() == 1


@pytest.mark.parametrize("is_moved", [False, True])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_records_that_replace_truncated_ones_are_dirty(
    world: World, is_moved: bool, is_restarted: bool
) -> None:
    manager = await started(world, topic_defaults=COMPACT)
    log = manager.get_or_create(TP)
    tell_others(world, log, 30)
    assert await manager.cleaner.run() == 1
    if is_moved:
        copied(manager)
        log = manager.replace_current_with_future(TP)
        assert log.recovery_point < 20
    log.truncate_to(10)
    log.config = replace(COMPACT, segment_bytes=1 << 20)
    tell(world, log, b"K", b"secret")
    tell(world, log, b"K", None)
    tell_others(world, log, 40)
    log.config = COMPACT
    if is_restarted:
        await manager.close()
        manager = await started(world, topic_defaults=COMPACT)
        log = manager.logs[TP]
    await clean_until_deletions_are_forgotten(world, manager)
    assert told_of(log, b"K") == []


async def test_a_log_that_is_shorter_at_load_than_it_was_cleaned_is_dirty(world: World) -> None:
    """Kafka does not flush what it cleans: after a power failure there may be less of it."""
    manager = await started(world, topic_defaults=COMPACT)
    tell_others(world, manager.get_or_create(TP), 10)
    path = f"{A}/cleaner-offset-checkpoint"
    world.disk().write_atomically(path, b"0\n1\nt 0 20\n")
    manager = await started(world, topic_defaults=COMPACT)
    log = manager.logs[TP]
    tell(world, log, b"K", b"secret")
    tell(world, log, b"K", None)
    tell_others(world, log, 40)
    await clean_until_deletions_are_forgotten(world, manager)
    assert told_of(log, b"K") == []
