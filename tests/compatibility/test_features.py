"""Every feature with every client, unmodified, against three brokers."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.compatibility.drivers import Driver, Sent

from odradek import Cluster
from odradek.client import Blocking, NewTopic, check
from odradek.wire.topics import TopicPartition

pytestmark = [pytest.mark.process, pytest.mark.slow]

SESSION_MS = 6_000
WAIT_S = 60.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def make_topic(
    cluster: Cluster, topic: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> None:
    with Blocking(cluster.bootstrap_servers) as client:
        new = NewTopic(topic, partitions, 3, configs=configs or {})
        check(client.run(client.admin.create_topics([new])))
    cluster.wait_until(lambda: cluster.leader(topic) is not None, "a leader")


def numbered(count: int, **more: int) -> list[Sent]:
    return [Sent(b"key-%d" % (n % 10), b"%d" % n, **more) for n in range(count)]  # type: ignore[arg-type]  # ints


def leader_of(cluster: Cluster, topic: str) -> int:
    leader = cluster.leader(topic)
    assert leader is not None
    return leader


# Records


def test_produce_and_consume(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic, 3)
    driver.produce(topic, numbered(300))
    found = driver.consume(topic, {0: 0, 1: 0, 2: 0}, 300)
    assert sorted(int(record.value or b"") for record in found) == list(range(300))
    for key in {record.key for record in found}:
        mine = [record for record in found if record.key == key]
        assert len({record.partition for record in mine}) == 1, "a key stays in its partition"
        numbers = [int(record.value or b"") for record in mine]
        assert numbers == sorted(numbers), "and in order"


@pytest.mark.parametrize("codec", CODECS)
def test_codec(driver: Driver, cluster: Cluster, topic: str, codec: str) -> None:
    make_topic(cluster, topic)
    driver.produce(topic, numbered(100, partition=0), codec=codec)
    found = driver.consume(topic, {0: 0}, 100)
    assert [record.value for record in found] == [b"%d" % n for n in range(100)]
    with Blocking(cluster.bootstrap_servers) as client:
        part = TopicPartition(topic, 0)
        batches = list(client.iterate(client.reader().batches(part, 0, 100)))
    codecs = {header.codec.name.lower() for some in batches for header in some.headers()}
    assert codecs == {codec}, "the broker keeps what the client compressed"


def test_headers(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic)
    headers = (("a", b"1"), ("a", b"2"), ("bytes", "\N{SNOWMAN}".encode()), ("empty", b""))
    driver.produce(topic, [Sent(b"k", b"v", headers, None, 0)])
    (record,) = driver.consume(topic, {0: 0}, 1)
    assert record.headers == headers


def test_timestamps(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic)
    first = 1_700_000_000_000
    driver.produce(topic, [Sent(b"k", b"v", (), first + 1000 * n, 0) for n in range(10)])
    found = driver.consume(topic, {0: 0}, 10)
    assert [record.timestamp_ms for record in found] == [first + 1000 * n for n in range(10)]


def test_offsets_by_time(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic)
    first = 1_700_000_000_000
    driver.produce(topic, [Sent(b"k", b"v", (), first + 1000 * n, 0) for n in range(10)])
    assert driver.offset_at(topic, 0, first + 4_500) == 5


def test_append_time(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic, configs={"message.timestamp.type": "LogAppendTime"})
    driver.produce(topic, [Sent(b"k", b"v", (), None, 0)])
    (record,) = driver.consume(topic, {0: 0}, 1)
    assert record.timestamp_ms > 1_700_000_000_000


def test_tombstones(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic)
    driver.produce(topic, [Sent(b"k", b"v", (), None, 0), Sent(b"k", None, (), None, 0)])
    values = [record.value for record in driver.consume(topic, {0: 0}, 2)]
    assert values == [b"v", None]


def test_large_records(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic)
    value = bytes(range(97, 123)) * 30_000
    driver.produce(topic, [Sent(b"k", value, (), None, 0)])
    (record,) = driver.consume(topic, {0: 0}, 1)
    assert record.value == value


def test_seek(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic)
    driver.produce(topic, numbered(20, partition=0))
    assert driver.seek(topic, 15, 3) == [15, 3]


def test_pause_and_resume(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic, 2)
    records = [Sent(b"k", b"v", (), None, part) for part in (0, 1) for _ in range(3)]
    driver.produce(topic, records)
    assert driver.pause(topic) == ({1}, {0})


# Delivery


def test_idempotence_over_lost_answers(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic)
    leader = leader_of(cluster, topic)
    for _ in range(2):
        cluster.inject(leader, "Produce", drop=True, client_id=topic)
        cluster.inject(leader, "Produce", error="NOT_ENOUGH_REPLICAS", client_id=topic)
    driver.produce(topic, numbered(200, partition=0), idempotent=True)
    faults = [entry.fault for entry in cluster.requests(leader, "Produce", topic)]
    assert "drop" in faults, "an answer was lost"
    found = driver.consume(topic, {0: 0}, 200)
    assert [int(record.value or b"") for record in found] == list(range(200))
    with Blocking(cluster.bootstrap_servers) as client:
        from odradek.client import LATEST, offsets_at

        part = TopicPartition(topic, 0)
        ends = client.run(offsets_at(client.client, {part: LATEST}))
    assert ends[part].offset == 200, "and nothing twice"


def test_a_leader_dies_while_producing(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic, configs={"min.insync.replicas": "2"})
    leader = leader_of(cluster, topic)
    try:
        driver.produce(
            topic,
            numbered(100, partition=0),
            idempotent=True,
            between=lambda: cluster.kill(leader),
        )
        found = driver.consume(topic, {0: 0}, 100)
        assert [int(record.value or b"") for record in found] == list(range(100))
    finally:
        if leader not in cluster.running():
            cluster.start(leader)


# Groups


class Member:
    """A member's process, and what it has reported so far."""

    _heard = threading.Condition()  # by any of them: who waits may wait for several

    def __init__(self, command: list[str]) -> None:
        self.assigned: list[int] | None = None
        self.records: list[tuple[int, int]] = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            with self._heard:
                if "assigned" in message:
                    self.assigned = message["assigned"]
                elif "record" in message:
                    self.records.append(tuple(message["record"]))
                self._heard.notify_all()

    def wait_for(self, holds: Callable[[], bool], what: str) -> None:
        with self._heard:
            assert self._heard.wait_for(holds, WAIT_S), f"{what}: {self.assigned} {self.records}"

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(60)
        self._reader.join(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def members(driver: Driver, topic: str, count: int) -> Iterator[list[Member]]:
    command = driver.member_command(f"{topic}-group", topic, SESSION_MS)
    started = [Member(command) for _ in range(count)]
    try:
        yield started
    finally:
        for member in started:
            if member.process.poll() is None:
                member.end(signal.SIGKILL)


def share(started: list[Member], partitions: int) -> None:
    """Wait until the members have disjoint shares of everything."""
    everything = list(range(partitions))

    def shared() -> bool:
        shares = [member.assigned or [] for member in started]
        return all(shares) and sorted(part for some in shares for part in some) == everything

    started[0].wait_for(shared, "no share of the partitions")


def test_a_group_shares_and_rebalances(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic, 4)
    records = [Sent(b"k", b"v", (), None, n % 4) for n in range(40)]
    driver.produce(topic, records)
    with members(driver, topic, 2) as (one, other):
        share([one, other], 4)
        expected = {(part, offset) for part in range(4) for offset in range(10)}
        one.wait_for(lambda: expected <= {*one.records, *other.records}, "records are missing")
        other.end(signal.SIGTERM)
        one.wait_for(lambda: sorted(one.assigned or ()) == [0, 1, 2, 3], "no rebalance")
        driver.produce(topic, records)
        more = {(part, offset) for part in range(4) for offset in range(10, 20)}
        one.wait_for(lambda: more <= set(one.records), "records are missing after it")


def test_a_member_crashes(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic, 2)
    with members(driver, topic, 2) as (one, other):
        share([one, other], 2)
        other.end(signal.SIGKILL)
        driver.produce(topic, [Sent(b"k", b"v", (), None, part) for part in (0, 1)])
        one.wait_for(lambda: {(0, 0), (1, 0)} <= {*one.records, *other.records}, "nobody took over")
        assert sorted(one.assigned or ()) == [0, 1]


def test_a_group_resumes_at_its_committed_offsets(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    make_topic(cluster, topic)
    driver.produce(topic, numbered(10, partition=0))
    with members(driver, topic, 1) as (member,):
        member.wait_for(lambda: len(member.records) == 10, "records are missing")
        member.end(signal.SIGTERM)
    driver.produce(topic, numbered(10, partition=0))
    with members(driver, topic, 1) as (member,):
        member.wait_for(lambda: len(member.records) == 10, "records are missing")
        assert member.records == [(0, offset) for offset in range(10, 20)]


def test_the_coordinator_dies(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic, 2)
    with members(driver, topic, 1) as (member,):
        member.wait_for(lambda: sorted(member.assigned or ()) == [0, 1], "no assignment")
        with Blocking(cluster.bootstrap_servers) as client:
            coordinator = client.run(client.client.coordinator(f"{topic}-group"))
        cluster.kill(coordinator)
        try:
            driver.produce(topic, [Sent(b"k", b"v", (), None, part) for part in (0, 1)])
            member.wait_for(lambda: {(0, 0), (1, 0)} <= set(member.records), "nothing came")
        finally:
            cluster.start(coordinator)


# Administration


def test_admin_topics(cluster: Cluster, driver: Driver, topic: str) -> None:
    driver.create_topic(topic, 2, 3)
    # Any broker may be asked, and only the one that created it knows of it for sure.
    cluster.wait_until(lambda: topic in driver.topics(), "the topic to be listed")
    placed = driver.describe(topic)
    assert sorted(placed) == [0, 1]
    assert all(sorted(part.replicas) == [1, 2, 3] for part in placed.values())
    driver.add_partitions(topic, 4)
    assert sorted(driver.describe(topic)) == [0, 1, 2, 3]
    with pytest.raises(Exception, match=r"(?i)already.?exists"):
        driver.create_topic(topic, 2, 3)
    driver.delete_topic(topic)
    assert topic not in driver.topics()


def test_admin_configs(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic)
    driver.set_config(topic, "retention.ms", "12345")
    assert driver.config(topic, "retention.ms") == "12345"


def test_admin_groups(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic)
    group = f"{topic}-group"
    with Blocking(cluster.bootstrap_servers) as client:
        wanted = {TopicPartition(topic, 0): 7}
        check(client.run(client.groups.alter_offsets(group, wanted)))
    assert group in driver.groups()
    assert driver.group_offset(group, topic, 0) == 7


def test_admin_deletes_groups(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic)
    group = f"{topic}-group"
    with Blocking(cluster.bootstrap_servers) as client:
        wanted = {TopicPartition(topic, 0): 7}
        check(client.run(client.groups.alter_offsets(group, wanted)))
    driver.delete_group(group)
    assert group not in driver.groups()


def test_admin_deletes_records(driver: Driver, cluster: Cluster, topic: str) -> None:
    make_topic(cluster, topic)
    driver.produce(topic, numbered(10, partition=0))
    driver.delete_records(topic, 0, 4)
    found = driver.consume(topic, {0: 4}, 6)
    assert [record.offset for record in found] == list(range(4, 10))
    with Blocking(cluster.bootstrap_servers) as client:
        from odradek.client import EARLIEST, offsets_at

        part = TopicPartition(topic, 0)
        starts = client.run(offsets_at(client.client, {part: EARLIEST}))
    assert starts[part].offset == 4
