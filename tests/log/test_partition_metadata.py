"""`partition.metadata`: byte for byte Kafka's, on disk before the first record.

docs/spec/protocol-ladder.md section 2.4.
"""

import asyncio
import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.log.config import LogConfig
from odradek.log.disk import RealDisk
from odradek.log.host import LogEnvironment, LogHost
from odradek.log.log import Log
from odradek.log.manager import LogManager, LogManagerConfig
from odradek.log.offload import on_the_spot
from odradek.log.open_files import OpenFiles
from odradek.log.partition_metadata import (
    PARTITION_METADATA,
    CorruptPartitionMetadata,
    PartitionMetadata,
    read_topic_id,
    write_early_files,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, encode_batch
from odradek.wire.topic_ids import NO_TOPIC_ID, new_topic_id, parse_topic_id
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
TOPIC_ID = parse_topic_id("TWRvYm5hbWUtY2hlY2su_g")
CONTENT = b"version: 0\ntopic_id: TWRvYm5hbWUtY2hlY2su_g"


def batch() -> bytearray:
    return bytearray(encode_batch([Record(0, 0, None, b"v")]))


def open_log(directory: Path, *, keeps_topic_ids: bool = True) -> Log:
    host = LogHost(RealDisk(), lambda: 0, keeps_topic_ids=keeps_topic_ids)
    return Log(host, str(directory), T0, LogConfig())


def test_the_id_is_on_disk_before_the_first_record(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.metadata.assign(TOPIC_ID)
    file = tmp_path / "t-0" / PARTITION_METADATA
    log.append_as_leader(batch(), 0)
    assert file.read_bytes() == CONTENT
    log.close()
    assert open_log(tmp_path / "t-0").metadata.topic_id == TOPIC_ID


class FailingDisk(RealDisk):
    """Takes what is appended, and no file as a whole."""

    def write_atomically(self, path: str, data: bytes) -> None:
        raise OSError(errno.EIO, "input/output error", path)


def test_no_record_is_written_before_the_id(tmp_path: Path) -> None:
    host = LogHost(FailingDisk(), lambda: 0, keeps_topic_ids=True)
    log = Log(host, str(tmp_path / "t-0"), T0, LogConfig())
    log.metadata.assign(TOPIC_ID)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch(), 0)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert not (tmp_path / "t-0" / PARTITION_METADATA).exists()
    assert [file.stat().st_size for file in (tmp_path / "t-0").glob("*.log")] == [0]


@pytest.mark.parametrize("end", ["close", "rename"])
def test_an_id_without_records_is_written_at_the_end(tmp_path: Path, end: str) -> None:
    log = open_log(tmp_path / "t-0")
    log.metadata.assign(TOPIC_ID)
    if end == "close":
        log.close()
    else:
        log.rename_directory(str(tmp_path / "u-0"))
    assert (Path(log.directory) / PARTITION_METADATA).read_bytes() == CONTENT


def test_an_id_is_assigned_once(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.metadata.assign(NO_TOPIC_ID)
    log.metadata.assign(TOPIC_ID)
    log.metadata.assign(TOPIC_ID)
    log.metadata.assign(NO_TOPIC_ID)
    assert log.metadata.topic_id == TOPIC_ID
    with pytest.raises(AssertionError):
        log.metadata.assign(UUID(int=9))


def test_below_2_8_the_file_goes_at_load_and_none_is_made(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.metadata.assign(TOPIC_ID)
    log.close()
    older = open_log(tmp_path / "t-0", keeps_topic_ids=False)
    assert older.metadata.topic_id == NO_TOPIC_ID
    older.metadata.assign(TOPIC_ID)
    older.append_as_leader(batch(), 0)
    assert older.metadata.topic_id == NO_TOPIC_ID
    assert not (tmp_path / "t-0" / PARTITION_METADATA).exists()


def test_what_kafka_reads_is_read_and_the_rest_fails_the_directory(tmp_path: Path) -> None:
    def read(content: bytes) -> UUID:
        (tmp_path / PARTITION_METADATA).write_bytes(content)
        return read_topic_id(RealDisk(), str(tmp_path))

    assert read_topic_id(RealDisk(), str(tmp_path)) == NO_TOPIC_ID
    for content in (CONTENT, CONTENT + b"\n", b"v:  3\r\nid:\tTWRvYm5hbWUtY2hlY2su_g\nmore"):
        assert read(content) == TOPIC_ID, content
    for content in (
        b"",
        b"version: 0",
        b"version: 0\n",
        b"version: -1\ntopic_id: TWRvYm5hbWUtY2hlY2su_g",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: short",
        b"version: 0\ntopic_id:TWRvYm5hbWUtY2hlY2su_g",
        b"version: x\ntopic_id: TWRvYm5hbWUtY2hlY2su_g",
        b"\xff\xfe: 0\ntopic_id: TWRvYm5hbWUtY2hlY2su_g",
    ):
        with pytest.raises(CorruptPartitionMetadata, match=PARTITION_METADATA):
            read(content)


async def test_ids_are_written_in_the_background_and_a_bad_file_fails_its_directory(
    tmp_path: Path,
) -> None:
    directories = [str(tmp_path / name) for name in ("a", "b")]

    def manager() -> LogManager:
        environment = LogEnvironment(RealDisk(), lambda: 0, on_the_spot, random.Random(1))
        return LogManager(directories, environment, LogManagerConfig())

    logs = manager()
    await logs.load()
    log = logs.get_or_create(T0, is_new=True)
    logs.flusher.assign_topic_id(log, TOPIC_ID)
    file = Path(log.directory) / PARTITION_METADATA
    assert not file.exists()
    await logs.upkeep.work_off()
    assert file.read_bytes() == CONTENT
    await logs.close()
    file.write_bytes(b"")
    again = manager()
    await again.load()
    assert list(again.dirs.offline) == [str(Path(log.directory).parent)]
    assert again.get(T0) is None
    await again.close()


def test_no_id_is_reserved_or_looks_like_an_option() -> None:
    rng = random.Random(3)
    ids = {new_topic_id(rng) for _ in range(500)}
    assert len(ids) == 500
    assert {each.version for each in ids} == {4}


class InterruptedDisk(RealDisk):
    """Lets something happen before the next call of one of its methods."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, Callable[[], object]] = {}

    def rename(self, source: str, target: str) -> None:
        self.before.pop("rename", int)()
        super().rename(source, target)

    def sync_dir(self, path: str) -> None:
        self.before.pop("sync_dir", int)()
        super().sync_dir(path)


@pytest.mark.parametrize("step", ["start", "rename", "sync_dir"])
@pytest.mark.parametrize("event", ["append", "rename", "delete", "delete and create", "close"])
async def test_an_id_that_is_being_written_when_records_come_or_the_log_goes(
    tmp_path: Path, step: str, event: str
) -> None:
    """The write stands still in its thread before a step: nothing fails, and no id gets lost or
    into a log that is not its own."""
    disk = InterruptedDisk()
    other_id = UUID(int=77)

    async def offload(work: Callable[[], Any]) -> Any:
        disk.before.pop("start", int)()
        return work()

    environment = LogEnvironment(disk, lambda: 0, offload, random.Random(1))
    logs = LogManager([str(tmp_path)], environment, LogManagerConfig())
    await logs.load()
    log = logs.get_or_create(T0, is_new=True)
    logs.flusher.assign_topic_id(log, TOPIC_ID)

    def happen() -> None:
        if event == "append":
            log.append_as_leader(batch(), 0)
        elif event == "rename":
            log.rename_directory(str(tmp_path / "u-0"))
        elif event == "close":
            log.close()
        else:
            logs.async_delete(T0)
        if event == "delete and create":
            logs.flusher.assign_topic_id(logs.get_or_create(T0, is_new=True), other_id)

    disk.before[step] = happen
    await logs.upkeep.work_off()
    assert not disk.before and not logs.dirs.offline
    assert read_topic_id(disk, log.directory) == TOPIC_ID
    if event == "delete and create":
        assert read_topic_id(disk, logs.logs[T0].directory) == other_id
    left = disk.open(f"{log.directory}/{PARTITION_METADATA}.x.early", create=True)
    left.append(b"torn")
    assert open_log(Path(log.directory)).metadata.topic_id == TOPIC_ID
    assert not [name for name in disk.list_dir(log.directory) if "early" in name]


async def test_an_id_that_is_assigned_again_while_it_is_written(tmp_path: Path) -> None:
    """A second LeaderAndIsr names the topic too, and another task takes the log up."""
    partitions = [TopicPartition("t", number) for number in range(20)]

    async def offload(work: Callable[[], Any]) -> Any:
        for log in logs.logs.values():
            logs.flusher.assign_topic_id(log, TOPIC_ID)
        await asyncio.sleep(0)
        return work()

    environment = LogEnvironment(RealDisk(), lambda: 0, offload, random.Random(1))
    logs = LogManager([str(tmp_path)], environment, LogManagerConfig())
    await logs.load()
    for tp in partitions:
        logs.flusher.assign_topic_id(logs.get_or_create(tp, is_new=True), TOPIC_ID)
    await logs.upkeep.work_off()
    assert not logs.dirs.offline
    for log in logs.logs.values():
        assert read_topic_id(RealDisk(), log.directory) == TOPIC_ID


class CountingDisk(RealDisk):
    """Counts syncs, and cannot rename one file."""

    def __init__(self, unnamed: str) -> None:
        super().__init__()
        self.syncs: list[int] = []
        self.unnamed = unnamed

    def sync_files(self, paths: Sequence[str]) -> None:
        self.syncs.append(len(paths))
        super().sync_files(paths)

    def rename(self, source: str, target: str) -> None:
        if target == self.unnamed:
            raise FileNotFoundError(errno.ENOENT, "moved away", source)
        super().rename(source, target)


async def test_many_ids_are_synced_together_and_one_that_fails_is_alone(tmp_path: Path) -> None:
    disk = CountingDisk(unnamed=str(tmp_path / "moved" / PARTITION_METADATA))
    metadata = {}
    for name in ("moved", *map(str, range(300))):
        (tmp_path / name).mkdir()
        metadata[name] = PartitionMetadata(disk, str(tmp_path / name), is_kept=True)
        assert metadata[name].assign(TOPIC_ID)
    files = [file for each in metadata.values() if (file := each.start_write()) is not None]
    failed = write_early_files(disk, files)
    assert {file.directory: type(error) for file, error in failed.items()} == {
        str(tmp_path / "moved"): FileNotFoundError
    }
    assert disk.syncs == [301, 300]
    for name in metadata:
        written = read_topic_id(disk, str(tmp_path / name))
        assert written == (NO_TOPIC_ID if name == "moved" else TOPIC_ID)


class HalfFailingDisk(RealDisk):
    """Cannot sync anything in one log directory."""

    def __init__(self, broken: str) -> None:
        super().__init__()
        self.broken = broken

    def sync_files(self, paths: Sequence[str]) -> None:
        if any(path.startswith(self.broken) for path in paths):
            raise OSError(errno.EIO, "input/output error", self.broken)
        super().sync_files(paths)


def test_a_directory_that_cannot_be_synced_fails_alone(tmp_path: Path) -> None:
    disk = HalfFailingDisk(str(tmp_path / "b"))
    files = []
    for name in ("a/t-0", "b/t-1", "a/t-2"):
        (tmp_path / name).mkdir(parents=True)
        metadata = PartitionMetadata(disk, str(tmp_path / name), is_kept=True)
        metadata.assign(TOPIC_ID)
        file = metadata.start_write()
        assert file is not None
        files.append(file)
    assert [file.directory for file in write_early_files(disk, files)] == [str(tmp_path / "b/t-1")]
    assert read_topic_id(disk, str(tmp_path / "a/t-2")) == TOPIC_ID


def test_a_file_deleted_while_many_are_synced_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.log.disk.FILES_SYNCED_APART_MAX", 2)
    paths = [tmp_path / name for name in ("kept", "deleted")]
    for path in paths:
        path.touch()
    disk, opening = RealDisk(), OpenFiles.opening
    synced: list[str] = []

    def delete_and_open(files: OpenFiles, step: Callable[[], int]) -> int:
        paths[1].unlink(missing_ok=True)  # after it was looked at, before it is opened
        return opening(files, step)

    monkeypatch.setattr(OpenFiles, "opening", delete_and_open)
    monkeypatch.setattr(RealDisk, "sync_dir", lambda _, path: synced.append(path))
    disk.sync_files([str(path) for path in paths])
    assert synced == [str(path) for path in paths]
