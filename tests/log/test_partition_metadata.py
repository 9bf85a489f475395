"""`partition.metadata`: byte for byte Kafka's, on disk before the first record.

docs/spec/protocol-ladder.md section 2.4.
"""

import random
from pathlib import Path
from uuid import UUID

import pytest

from odradek.log.config import LogConfig
from odradek.log.disk import RealDisk
from odradek.log.host import LogEnvironment, LogHost
from odradek.log.log import Log
from odradek.log.manager import LogManager, LogManagerConfig
from odradek.log.offload import on_the_spot
from odradek.log.partition_metadata import (
    PARTITION_METADATA,
    CorruptPartitionMetadata,
    read_topic_id,
)
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
    logs.assign_topic_id(log, TOPIC_ID)
    file = Path(log.directory) / PARTITION_METADATA
    assert not file.exists()
    await logs.upkeep.work_off()
    assert file.read_bytes() == CONTENT
    await logs.close()
    file.write_bytes(b"")
    again = manager()
    await again.load()
    assert list(again.offline_dirs) == [str(Path(log.directory).parent)]
    assert again.get(T0) is None
    await again.close()


def test_no_id_is_reserved_or_looks_like_an_option() -> None:
    rng = random.Random(3)
    ids = {new_topic_id(rng) for _ in range(500)}
    assert len(ids) == 500
    assert {each.version for each in ids} == {4}
