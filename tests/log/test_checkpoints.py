"""The files of a log directory: literal bytes, strict readers, whole or not at all."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.checkpoints import (
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    CorruptCheckpoint,
    InconsistentMetaProperties,
    MetaProperties,
    OffsetCheckpoint,
    claim_meta_properties,
    decode_checkpoint,
    encode_checkpoint,
    lock_directory,
    read_meta_properties,
    take_clean_shutdown,
    write_clean_shutdown,
)
from odradek.log.disk import RealDisk
from odradek.wire.topics import TopicPartition

DISK = RealDisk()
NAME = "recovery-point-offset-checkpoint"


def test_the_file_is_kafkas(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(DISK, str(tmp_path / NAME))
    assert checkpoint.read() == {}
    offsets = {TopicPartition("a-b", 0): 5, TopicPartition("t", 12): 9_000_000_000}
    checkpoint.write(offsets)
    assert (tmp_path / NAME).read_bytes() == b"0\n2\na-b 0 5\nt 12 9000000000\n"
    assert checkpoint.read() == offsets
    checkpoint.write({})
    assert (tmp_path / NAME).read_bytes() == b"0\n0\n"
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize(
    "data", [b"", b"0\n", b"0\n0\n", b"0", b"0\r\n0\r\n", b"+0\n0", b"0\n1\nt 0 1\n"]
)
def test_what_kafka_also_reads(tmp_path: Path, data: bytes) -> None:
    (tmp_path / NAME).write_bytes(data)
    read = OffsetCheckpoint(DISK, str(tmp_path / NAME)).read()
    assert read == ({TopicPartition("t", 0): 1} if b"t" in data else {})


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"\n",
        b"0\n\n",
        b"0\n1\n",
        b"0\n0\nt 0 1\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 1 2\n",
        b"0\n1\n t 0 1\n",
        b"0\n1\nt x 1\n",
        b"0\n1\nt 0 1_0\n",
        b"0\n2\nt 0 1\n\n",
        b"0\n1\nt 0 1\n\n",
        b"\0\0\0\0",
        b"0\n1\n\xff 0 1\n",
    ],
)
def test_damage_fails_the_directory(tmp_path: Path, data: bytes) -> None:
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(OSError):
        OffsetCheckpoint(DISK, str(tmp_path / NAME)).read()


@given(st.binary(max_size=60) | st.text("0123 \nt-", max_size=40).map(str.encode))
def test_any_bytes_are_entries_or_the_one_error(data: bytes) -> None:
    try:
        entries = decode_checkpoint(data, "x", str)
    except CorruptCheckpoint:
        return
    if entries:
        assert decode_checkpoint(encode_checkpoint(entries), "x", str) == entries


def test_meta_properties_are_kafkas() -> None:
    ours = MetaProperties(broker_id=1, cluster_id="yQy-l3IxSpqTMJ0t6_q5BQ")
    data = ours.encode(1_700_000_000_000)
    assert data == (
        b"#\n#Tue Nov 14 22:13:20 UTC 2023\n"
        b"broker.id=1\ncluster.id=yQy-l3IxSpqTMJ0t6_q5BQ\nversion=0\n"
    )
    assert MetaProperties.decode(data, "x") == ours


def test_meta_properties_as_java_may_write_them() -> None:
    data = (
        b"#\n# comment\n! another\n\ncluster.id : a\\:b\\=c\\u0041\\\n   d\nbroker.id 7\nversion=0"
        b"\r\nother=1\n"
    )
    assert MetaProperties.decode(data, "x") == MetaProperties(7, "a:b=cAd")
    assert MetaProperties.decode(b"", "x") == MetaProperties()


@given(st.text("ab:=#! \\-_", max_size=8), st.integers(0, 2**31 - 1))
def test_meta_properties_round_trip(cluster_id: str, broker_id: int) -> None:
    ours = MetaProperties(broker_id, cluster_id, "dir")
    assert MetaProperties.decode(ours.encode(0), "x") == ours


@given(st.binary(max_size=80))
def test_meta_properties_from_any_bytes(data: bytes) -> None:
    try:
        MetaProperties.decode(data, "x")
    except CorruptCheckpoint:
        pass


def test_claiming_a_directory(tmp_path: Path) -> None:
    directory = str(tmp_path)
    assert read_meta_properties(DISK, directory) is None
    ours = claim_meta_properties(DISK, directory, 1, "c", 0)
    assert ours == read_meta_properties(DISK, directory) == MetaProperties(1, "c")
    before = (tmp_path / META_PROPERTIES).stat().st_ino
    assert claim_meta_properties(DISK, directory, 1, "c", 0) == ours
    assert (tmp_path / META_PROPERTIES).stat().st_ino == before
    with pytest.raises(InconsistentMetaProperties, match="broker 1"):
        claim_meta_properties(DISK, directory, 2, "c", 0)
    with pytest.raises(InconsistentMetaProperties, match="cluster c"):
        claim_meta_properties(DISK, directory, 1, "d", 0)


def test_a_directory_id_is_kept_and_version_1_refused(tmp_path: Path) -> None:
    path = tmp_path / META_PROPERTIES
    path.write_text("directory.id=abc\n")
    claimed = claim_meta_properties(DISK, str(tmp_path), 3, "c", 0)
    assert claimed == MetaProperties(3, "c", "abc") == read_meta_properties(DISK, str(tmp_path))
    path.write_text("version=1\nnode.id=3\ncluster.id=c\n")
    with pytest.raises(InconsistentMetaProperties, match="version 1"):
        claim_meta_properties(DISK, str(tmp_path), 3, "c", 0)
    path.write_text("version=x\n")
    with pytest.raises(CorruptCheckpoint):
        claim_meta_properties(DISK, str(tmp_path), 3, "c", 0)


def test_the_clean_marker_is_taken_once(tmp_path: Path) -> None:
    directory = str(tmp_path)
    marker = tmp_path / CLEAN_SHUTDOWN
    assert take_clean_shutdown(DISK, directory) is None
    write_clean_shutdown(DISK, directory)
    assert marker.read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    assert take_clean_shutdown(DISK, directory) == ""
    assert take_clean_shutdown(DISK, directory) is None
    write_clean_shutdown(DISK, directory, "0123abcd")
    assert marker.read_bytes() == b'{"version":0,"brokerEpoch":-1,"odradek":"0123abcd"}'
    assert take_clean_shutdown(DISK, directory) == "0123abcd"


@pytest.mark.parametrize("content", [b"", b"\0" * 9, b"[]", b"7", b'{"odradek":7}', b"\xff{"])
def test_a_marker_that_says_nothing_of_ours_is_still_a_marker(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / CLEAN_SHUTDOWN).write_bytes(content)
    assert take_clean_shutdown(DISK, str(tmp_path)) == ""


@pytest.mark.process
def test_another_process_cannot_lock_the_directory(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = (
        "import sys; from odradek.log.disk import RealDisk\n"
        "from odradek.log.checkpoints import lock_directory\n"
        "try: lock_directory(RealDisk(), sys.argv[1])\n"
        "except OSError: sys.exit(7)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    lock = lock_directory(DISK, str(tmp_path))
    assert subprocess.run(command, check=False).returncode == 7
    lock.release()
    assert subprocess.run(command, check=False).returncode == 0
