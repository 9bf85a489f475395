"""Thousands of frames that make no sense, of every API, while others are served.

Each connection sends a few requests whose values are drawn at random, absurd ones among them, and
then one that is damaged: cut short, changed, or with a monstrous count. What only the controller
may send is only ever cut short: a forged one that can be read is believed, as by Kafka.
`HOSTILE_FRAMES` and `HOSTILE_SEED` make it longer, shorter, or another.
"""

import os
import socket
import threading
import time
from pathlib import Path
from random import Random

import pytest
from tests.wire.samples import sample

from odradek import Cluster
from odradek.broker.handlers import HANDLERS, served_versions
from odradek.client import Blocking, NewTopic, Producer, check
from odradek.wire.api import APIS, ApiKey
from odradek.wire.header import encode_request
from odradek.wire.schema import Message
from odradek.wire.topics import TopicPartition

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

FRAMES = int(os.environ.get("HOSTILE_FRAMES", "15000"))
SEED = int(os.environ.get("HOSTILE_SEED", "1"))
MEMORY_MB_MAX = 400
SAMPLES_PER_VERSION = 8
SENT_BEFORE_DAMAGE = 5
ANSWER_S_MAX = 60.0
WORK = TopicPartition("work", 0)

CONTROL = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
}
MONSTROUS = [
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x7f\xff",
    b"\x80\x00",
]


def frames_of(random: Random) -> dict[int, list[bytes]]:
    """Requests that can be read but ask for nonsense, by API."""
    frames: dict[int, list[bytes]] = {}
    for key in HANDLERS:
        for version in served_versions(key):
            for _ in range(SAMPLES_PER_VERSION):
                request = sample(APIS[key].request, version, random)
                assert isinstance(request, Message)
                client = random.choice([None, "", "hostile", "x" * 300])
                frame = b"".join(encode_request(request, version, random.getrandbits(31), client))
                frames.setdefault(key, []).append(frame[4:])
    return frames


def damaged(frame: bytes, random: Random) -> bytes:
    """One thing wrong, behind the version."""
    where = random.randrange(4, len(frame) + 1)
    match random.randrange(5):
        case 0:
            return frame[:where]
        case 1:
            return frame[:where] + random.randbytes(4) + frame[where + 4 :]
        case 2 | 3:
            number = random.choice(MONSTROUS)
            return frame[:where] + number + frame[where + len(number) :]
        case _:
            return frame[:2] + random.randbytes(2) + frame[4:]


def sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


class Bystander(threading.Thread):
    """Somebody who works with the broker meanwhile, and must not notice anything."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.servers = bootstrap
        self.stop = threading.Event()
        self.rounds = 0
        self.slowest_s = 0.0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with Blocking(self.servers, client_id="bystander") as client:
                while not self.stop.is_set():
                    started = time.monotonic()
                    client.run(self._round(client))
                    self.slowest_s = max(self.slowest_s, time.monotonic() - started)
                    self.rounds += 1
        except BaseException as error:
            self.failure = error

    async def _round(self, client: Blocking) -> None:
        async with Producer(client.client, linger_s=0) as producer:
            value = b"%d" % self.rounds
            placed = await (await producer.send(WORK.topic, value, partition=0))
        assert placed.offset == self.rounds
        reading = client.reader().batches(WORK, placed.offset, placed.offset + 1)
        records = [record async for batches in reading for record in batches.open()]
        assert [record.value for record in records] == [value]


def attack(cluster: Cluster, random: Random) -> None:
    """Send the frames."""
    frames = frames_of(random)
    keys = sorted(frames)
    sent = 0
    while sent < FRAMES:
        key = random.choice(keys)
        if key in CONTROL:
            frame = random.choice(frames[key])
            batch = [frame[: random.randrange(8, len(frame))]]
        else:
            batch = [
                random.choice(frames[other])
                for other in random.choices(keys, k=SENT_BEFORE_DAMAGE)
                if other not in CONTROL
            ]
            batch.append(damaged(random.choice(frames[key]), random))
        data = b"".join(map(sized, batch))
        if random.random() < 0.1:
            data += random.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n"])
        with socket.create_connection(("127.0.0.1", cluster.port_of(1)), ANSWER_S_MAX) as link:
            try:
                link.sendall(data)
                link.shutdown(socket.SHUT_WR)
                # It reads everything before it sees that we are gone; half the time we see it go.
                if random.random() < 0.5:
                    while link.recv(1 << 16):
                        pass
            except ConnectionError:
                pass  # it has closed on us, as it should
        sent += len(batch)


def test_the_broker_serves_the_others() -> None:
    config = {"log.retention.check.interval.ms": 600_000, "auto.create.topics.enable": False}
    with Cluster(brokers=1, config=config) as cluster:
        with Blocking(cluster.bootstrap_servers) as client:
            check(client.run(client.admin.create_topics([NewTopic(WORK.topic, 1, 1)])))
        bystander = Bystander(cluster.bootstrap_servers)
        bystander.start()
        try:
            attack(cluster, Random(SEED))
        finally:
            bystander.stop.set()
            bystander.join(60)
        log = cluster.log_of(1).read_text()
        assert cluster.running() == [1], log[-4000:]
        assert bystander.failure is None, repr(bystander.failure)
        assert bystander.rounds > 10
        assert bystander.slowest_s < ANSWER_S_MAX
        status = Path(f"/proc/{cluster.process_id(1)}/status").read_text()
        (memory,) = [line.split()[1] for line in status.splitlines() if "VmRSS" in line]
        assert int(memory) / 1024 < MEMORY_MB_MAX
