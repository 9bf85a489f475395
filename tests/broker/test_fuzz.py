"""Malformed requests of every API and version: answered or refused, and the broker serves on.

Frames go straight into connections of a whole broker. None may raise inside it: a trace in the log
fails the test.
"""

import asyncio
import logging
import struct
from pathlib import Path
from random import Random

import pytest
from tests.broker.clusters import cluster, produce
from tests.wire.samples import sample
from tests.wire.test_hostile import damaged

from odradek.broker.connection import ClientConnection
from odradek.broker.handlers import HANDLERS, served_versions
from odradek.broker.server import Broker
from odradek.wire.api import APIS, ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.header import encode_request
from odradek.wire.schema import Message

# A well-formed one from a liar says what only the controller may say, so only cut ones are sent.
CONTROL = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
TURNS_MAX = 30


class Nowhere(asyncio.Transport):
    """A transport whose client never complains and never reads to the end."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__({"peername": ("10.0.0.1", 1)})
        self._protocol = protocol
        self._is_closed = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def is_closing(self) -> bool:
        return self._is_closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close


def connect(broker: Broker) -> ClientConnection:
    arrival = broker.connections.arrival(broker.security.of("PLAINTEXT"))
    arrival.connection_made(Nowhere(arrival))
    assert isinstance(arrival.guest, ClientConnection)
    return arrival.guest


def frame_of(random: Random) -> bytes:
    key = random.choice(sorted(HANDLERS))
    version = random.choice(served_versions(key))
    message = sample(APIS[key].request, version, random)
    assert isinstance(message, Message)
    if hasattr(message, "max_wait_ms"):
        message.max_wait_ms = min(message.max_wait_ms, 5)
    for name in ("timeout_ms", "session_timeout_ms", "rebalance_timeout_ms"):
        if hasattr(message, name):
            setattr(message, name, min(getattr(message, name), 5))
    frame = b"".join(encode_request(message, version, 1, "fuzz"))[4:]
    if key in CONTROL:
        return frame[: random.randrange(12, 24)]
    return damaged(frame, random) if random.random() < 0.8 else frame


async def fuzz(directory: Path, count: int, seed: int, log: pytest.LogCaptureFixture) -> None:
    random = Random(seed)
    log.set_level(logging.ERROR)
    async with cluster(
        directory, auto_create_topics_enable="false", offsets_topic_replication_factor="1"
    ) as made:
        await made.create_topic("well")
        await made.create_topic("topic-1")
        well = await made.connect(1)
        broker = made.brokers[1]
        connection = connect(broker)
        for number in range(count):
            if not connection.is_open or number % 500 == 499:
                connection.close()
                connection = connect(broker)
            frame = frame_of(random)
            space = connection.get_buffer(-1)
            data = struct.pack(">i", len(frame)) + frame
            if len(data) > len(space):
                continue
            space[: len(data)] = data
            connection.buffer_updated(len(data))
            for _ in range(TURNS_MAX):
                if connection.is_idle:
                    break
                await asyncio.sleep(0)
            if number % 1000 == 0:
                assert (await produce(well, "well", b"well")).error_code == ErrorCode.NONE
        connection.close()
        assert sum(broker.routes.statistics().values()) > count / 2, "most were looked at"
        failures = [each for each in log.records if each.levelno >= logging.ERROR]
        assert not failures, failures[0].getMessage() + str(failures[0].exc_text)
        assert (await produce(well, "well", b"well")).error_code == ErrorCode.NONE


async def test_malformed_requests(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await fuzz(tmp_path, 15_000, 1, caplog)
