"""Telemetry of real brokers: what clients did is in the frames, once, whatever happens between."""

import dataclasses
import itertools
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.broker.clusters import Cluster, cluster, fetch_request, produce, records_of, until

from odradek.broker.machine import Machine
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.server import Broker
from odradek.broker.telemetry import Telemetry
from odradek.log.disk import RealDisk
from odradek.log.offload import on_the_spot
from odradek.wire.batch import scan
from odradek.wire.records import decode_records
from odradek.wire.telemetry import IN_SYNC, LEADS, Frame, decode_frame
from odradek.wire.topics import TELEMETRY_TOPIC, TopicPartition

Row = dict[str, int]


def telemetry_of(broker: Broker) -> Telemetry:
    return Telemetry(broker, RealDisk(), on_the_spot)


def frames_of(made: Cluster, broker_id: int) -> list[Frame]:
    """As they are in the topic, oldest first."""
    tp = TopicPartition(TELEMETRY_TOPIC, broker_id % 16)
    hosted = (broker.replicas.partitions.get(tp) for broker in made.brokers.values())
    (leader,) = (each for each in hosted if each is not None and each.is_leader)
    buffer = leader.local_log.read(0, 1 << 24).records
    found = []
    for header in scan(buffer):
        for record in decode_records(buffer, header):
            assert record.key == broker_id.to_bytes(4, "big")
            assert record.value is not None
            frame = decode_frame(record.value)
            assert frame.broker == broker_id
            found.append(frame)
    return found


def rows_of(frame: Frame) -> dict[TopicPartition, Row]:
    rows = [
        dict(zip(frame.columns, row, strict=True))
        for row in zip(*frame.columns.values(), strict=True)
    ]
    return {TopicPartition(frame.topics[row["topic"]], row["partition"]): row for row in rows}


def isr_of(cache: MetadataCache, topic: str) -> Sequence[int]:
    known = cache.partition(topic, 0)
    return () if known is None else known.isr


async def test_what_clients_and_followers_did_is_in_the_frames(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as made:
        await made.create_topic("hot", partitions=2, replicas=2)
        caches = [each.cache for each in made.brokers.values()]
        await until(lambda: all(len(isr_of(cache, "hot")) == 2 for cache in caches))
        info = made.brokers[1].cache.partition("hot", 0)
        assert info is not None
        leader, follower = made.brokers[info.leader], made.brokers[3 - info.leader]
        telemetry = {id: telemetry_of(broker) for id, broker in made.brokers.items()}
        connection = await made.connect(leader.id)
        for _ in range(3):
            answer = await produce(connection, "hot", b"a" * 1000, b"b")
            assert answer.error_code == 0
        size = leader.replicas.partitions[TopicPartition("hot", 0)].local_log.size_bytes
        for _ in range(2):
            response = await connection.request(fetch_request("hot"), 11)
            assert len(records_of(response.responses[0].partitions[0])) == size
        assert await telemetry[1].publish()
        assert await telemetry[2].publish()

        (frame,) = frames_of(made, leader.id)
        assert frame.is_whole and not frame.is_estimated
        assert frame.incarnation == leader.epoch and frame.tick == 0
        assert frame.from_ms < frame.to_ms
        row = rows_of(frame)[TopicPartition("hot", 0)]
        assert row == {
            **row,
            "role": LEADS | IN_SYNC,
            "directory": 0,
            "bytes_in": size,
            "bytes_out": 2 * size,
            "follower_out": size,
            "messages": 6,
            "requests": 5,
            "size": size,
            "log_end": 6,
        }
        load, directory = frame.load, frame.directories[0]
        assert 0 < directory.free < directory.capacity and not directory.is_failed
        assert load.cores > 0 and load.cpu_s > 0
        spent = load.produce_s, load.consumer_s, load.follower_s, load.other_s
        assert sum(spent) == pytest.approx(load.cpu_s) and min(spent[:3]) > 0
        assert load.produce_p99_us >= load.produce_p50_us > 0
        assert (load.net_in, load.net_out) == (size, 3 * size)
        assert (load.under_min_isr, load.isr_shrinks) == (0, 0)

        row = rows_of(frames_of(made, follower.id)[0])[TopicPartition("hot", 0)]
        assert row == {
            **row,
            "role": IN_SYNC,
            "bytes_in": 0,
            "follower_out": 0,
            "messages": 0,
            "size": size,
        }
        await check_topic(leader)
        for each in telemetry.values():
            await each.stop()


async def check_topic(broker: Broker) -> None:
    found = broker.cache.partitions(TELEMETRY_TOPIC)
    assert [len(each.replicas) for each in found.values()] == [2] * 16
    config = broker.settings.topic_config(TELEMETRY_TOPIC)
    assert config.retention_ms == 6 * 3_600_000 and config.compression_type == "producer"


async def test_a_frame_that_is_not_acknowledged_is_in_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as made:
        broker = made.brokers[1]
        await made.create_topic("t", partitions=3)
        connection = await made.connect(1)
        milliseconds = itertools.count(broker.clock())
        broker.clock = lambda: next(milliseconds)  # no two frames in one of them
        telemetry = telemetry_of(broker)
        assert await telemetry.publish()
        config = broker.settings.topic_config(TELEMETRY_TOPIC)
        broker.logs.update_topic_config(
            TELEMETRY_TOPIC, dataclasses.replace(config, max_message_bytes=100)
        )
        await produce(connection, "t", b"1")
        with caplog.at_level(logging.INFO):
            assert not await telemetry.publish()
            await produce(connection, "t", b"22")
            assert not await telemetry.publish()
            broker.logs.update_topic_config(TELEMETRY_TOPIC, config)
            await produce(connection, "t", b"333")
            assert await telemetry.publish()
        said = [each for each in caplog.records if each.msg.startswith("telemetry")]
        assert [each.levelname for each in said] == ["INFO", "WARNING", "INFO"]
        assert all("MESSAGE_TOO_LARGE" in each.getMessage() for each in said[:2])
        assert "again" in said[2].getMessage()
        assert await telemetry.publish()

        first, second, third = frames_of(made, 1)
        assert [each.tick for each in (first, second, third)] == [0, 1, 2]
        assert (second.from_ms, third.from_ms) == (first.to_ms, second.to_ms)
        rows = rows_of(second)
        size = broker.replicas.partitions[TopicPartition("t", 0)].local_log.size_bytes
        row = rows[TopicPartition("t", 0)]
        assert (row["messages"], row["requests"], row["bytes_in"]) == (3, 3, size)
        quiet = {TopicPartition("t", 1), TopicPartition("t", 2)}
        assert quiet <= rows_of(first).keys() and not quiet & rows.keys()
        assert not any(tp.topic == "t" for tp in rows_of(third)), "nothing happened meanwhile"
        assert telemetry.statistics() == {"acknowledged": 3, "failed": 2}
        await telemetry.stop()


async def test_a_broker_publishes_by_itself_and_every_twentieth_frame_is_whole(
    tmp_path: Path,
) -> None:
    interval = {"odradek_telemetry_interval_ms": "5", "odradek_network_capacity": "1000000"}
    async with cluster(tmp_path, 1, **interval) as made:
        await made.create_topic("t")
        tp = TopicPartition(TELEMETRY_TOPIC, 1)
        partitions = made.brokers[1].replicas.partitions
        await until(lambda: tp in partitions and partitions[tp].local_log.end_offset > 20)
        frames = frames_of(made, 1)
    assert [each.tick for each in frames] == list(range(len(frames)))
    assert [each.tick for each in frames if each.is_whole][:2] == [0, 20]
    assert [each.from_ms for each in frames[1:]] == [each.to_ms for each in frames[:-1]]
    assert {each.load.net_capacity for each in frames} == {1_000_000}
    assert TopicPartition("t", 0) in rows_of(frames[20])


def test_processors_are_those_that_the_process_may_use(tmp_path: Path) -> None:
    def machine(name: str, **files: str) -> Machine:
        for path, text in files.items():
            file = tmp_path / name / path.replace("__", "/").replace("_", ".")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return Machine(tmp_path / name)

    every = machine("none").cores()
    assert every >= 1
    # Version 2: of the group and those above it the smallest limit.
    group = "0::/pod/broker\n"
    tree = "sys__fs__cgroup"
    v2 = {"proc__self__cgroup": group, f"{tree}__pod__cpu_max": "50000 100000"}
    v2[f"{tree}__pod__broker__cpu_max"] = "max 100000"
    assert machine("v2", **v2).cores() == 0.5
    assert machine("large", **{**v2, f"{tree}__pod__cpu_max": "9999999 1000"}).cores() == every
    # A container that sees only its own group.
    own = {"proc__self__cgroup": group, f"{tree}__cpu_max": "25000 100000"}
    assert machine("own", **own).cores() == 0.25
    for nonsense in ("", "max", "-1 100000", "1 0", "a b", "1 2 3"):
        own[f"{tree}__cpu_max"] = nonsense
        assert machine("nonsense", **own).cores() == every


def test_processors_of_a_group_of_version_1_and_the_speed_of_links(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup/cpu,cpuacct/broker"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:cpu,cpuacct:/broker\n2:memory:/broker\n")
    (group / "cpu.cfs_quota_us").write_text("150000")
    (group / "cpu.cfs_period_us").write_text("200000")
    machine = Machine(tmp_path)
    assert machine.cores() == 0.75
    assert machine.network_bytes_per_second() == 0
    for name, speed, state in (
        ("eth0", "10000", "up"),
        ("eth1", "25000", "down"),
        ("br0", "1", "up"),
    ):
        link = tmp_path / "sys/class/net" / name
        link.mkdir(parents=True)
        (link / "speed").write_text(speed)
        (link / "operstate").write_text(state)
        if name != "br0":
            (link / "device").touch()
    assert machine.network_bytes_per_second() == 1_250_000_000
    (tmp_path / "sys/class/net/eth0/speed").write_text("-1")
    assert machine.network_bytes_per_second() == 0
