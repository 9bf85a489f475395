"""Brokers that start on log directories that were damaged after a clean stop."""

import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from tests.broker.clusters import Cluster, cluster, produce, until

from odradek.store.cluster import ClusterStore
from odradek.store.memory import MemoryStore
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

TP = TopicPartition("t", 0)


# Offset 0, length, CRC-32, magic 0, no attributes, no key, no value.
_OLD_BODY = bytes(2) + b"\xff" * 8
OLD_MESSAGE = bytes(11) + b"\x0e" + zlib.crc32(_OLD_BODY).to_bytes(4, "big") + _OLD_BODY


async def filled(made: Cluster, replicas: int) -> tuple[int, list[int]]:
    """A topic with records on all its replicas; its leader and the others."""
    await made.create_topic("t", replicas=replicas, segment_bytes="400")
    info = made.controller.cache.partitions("t")[0]
    connection = await made.connect(info.leader)
    for number in range(12):
        answer = await produce(connection, "t", b"%050d" % number)
        assert answer.error_code == ErrorCode.NONE
    return info.leader, [each for each in info.replicas if each != info.leader]


def segments(made: Cluster, broker_id: int) -> list[Path]:
    found = sorted((made.directory / str(broker_id) / str(TP)).glob("*.log"))
    assert len(found) > 2
    return found


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def contents(made: Cluster, broker_id: int) -> bytes:
    return b"".join(path.read_bytes() for path in segments(made, broker_id))


def has_all(made: Cluster, broker_id: int) -> bool:
    log = made.brokers[broker_id].logs.get(TP)
    return log is not None and log.end_offset == 12


@pytest.mark.parametrize("which", [0, -1], ids=["closed segment", "active segment"])
async def test_a_damaged_follower_is_copied_again(tmp_path: Path, which: int) -> None:
    async with cluster(tmp_path, brokers=3) as made:
        leader, (victim, _) = await filled(made, replicas=3)
        await made.stop(victim)
        shorten(segments(made, victim)[which])
        await made.start(victim)
        await until(lambda: has_all(made, victim))
        partition = made.brokers[leader].replicas.partitions[TP]
        await until(lambda: victim in partition.leader.isr.committed)
        assert contents(made, victim) == contents(made, leader)
        assert not made.brokers[victim].replicas.partitions[TP].lost_tail


async def test_a_damaged_replica_leaves_the_isr_before_it_can_be_elected(tmp_path: Path) -> None:
    """The ISR still names it when it starts, as when all brokers stopped at once."""
    async with cluster(tmp_path, brokers=3) as made:
        leader, others = await filled(made, replicas=3)
        for broker_id in (*others, leader):
            await made.stop(broker_id)
        store = ClusterStore(MemoryStore(made.server, session_timeout_ms=6000))
        await store.session.start()
        (state,) = (await store.partition_states([TP])).values()
        assert await store.update_isr(TP, replace(state, isr=(*others, leader)))
        shorten(segments(made, leader)[-1])
        await made.start(leader)
        (state,) = (await store.partition_states([TP])).values()
        assert state.isr and set(state.isr) <= set(others)
        for broker_id in others:
            await made.start(broker_id)
        await until(lambda: has_all(made, leader))
        await until(lambda: made.controller.cache.partitions("t")[0].leader in others)
        assert contents(made, leader) == contents(made, others[0])
        await store.session.close()


async def test_the_last_replica_that_lost_its_tail_does_not_lead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, brokers=2) as made:
        leader, (other,) = await filled(made, replicas=2)
        await made.stop(other)
        await made.stop(leader)
        # The marks alone would not tell.
        (tmp_path / str(leader) / "replication-offset-checkpoint").unlink()
        last = segments(made, leader)[-1]
        shorten(last)
        await made.start(other)
        back = await made.start(leader)
        await until(lambda: f"{TP}: refuses to lead in leader epoch" in caplog.text)
        assert not back.replicas.partitions[TP].is_leader
        assert "its log ends at 11, before" in caplog.text
        assert last.name in caplog.text


async def test_the_last_replica_that_is_damaged_stays_offline_and_untouched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as made:
        leader, _ = await filled(made, replicas=1)
        await made.create_topic("other")
        await made.stop(leader)
        first = segments(made, leader)[0]
        whole = first.read_bytes()
        shorten(first)
        broker = await made.start(leader)
        connection = await made.connect(leader)
        await until(lambda: broker.cache.has_topic("other"))
        assert (await produce(connection, "other", b"v")).error_code == ErrorCode.NONE
        assert TP in broker.replicas.partitions.offline
        assert (await produce(connection, "t", b"v")).error_code != ErrorCode.NONE
        assert first.name in caplog.text and "move the directory away" in caplog.text
        await made.stop(leader)
        first.write_bytes(whole)
        await made.start(leader)
        await until(lambda: has_all(made, leader))


async def test_a_missing_directory_is_copied_from_the_leader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, brokers=2) as made:
        leader, (victim,) = await filled(made, replicas=2)
        await made.stop(victim)
        shutil.rmtree(tmp_path / str(victim) / str(TP))
        await made.start(victim)
        await until(lambda: has_all(made, victim))
        assert f"{TP} lost all records" in caplog.text
        assert contents(made, victim) == contents(made, leader)


async def test_a_log_of_old_messages_is_offline_and_the_broker_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as made:
        await made.stop(1)
        old = tmp_path / "1" / "old-0"
        old.mkdir(parents=True)
        (old / f"{0:020d}.log").write_bytes(OLD_MESSAGE)
        broker = await made.start(1)
        assert TopicPartition("old", 0) in broker.replicas.partitions.offline
        assert f"{old}/" in caplog.text and "magic 0" in caplog.text
        assert (old / f"{0:020d}.log").read_bytes() == OLD_MESSAGE
