"""What the tests of the log manager share."""

import random
from typing import Any

from tests.log.conftest import World

from odradek.log.config import LogConfig
from odradek.log.host import LogEnvironment
from odradek.log.log import Log
from odradek.log.manager import LogManager, LogManagerConfig
from odradek.log.offload import Offload, on_the_spot
from odradek.wire.records import Record, encode_batch
from odradek.wire.topics import TopicPartition

A, B, C = "/a", "/b", "/c"
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=1000)
TP = TopicPartition("t", 0)


def make(
    world: World,
    *directories: str,
    disk: Any = None,
    offload: Offload = on_the_spot,
    on_directory_failure: Any = lambda path, partitions: None,
    **settings: Any,
) -> LogManager:
    return LogManager(
        directories or (A, B),
        LogEnvironment(disk or world.disk(), world.clock, offload, random.Random(1)),
        LogManagerConfig(**{"topic_defaults": CONFIG, **settings}),
        on_directory_failure,
    )


async def started(world: World, *directories: str, **options: Any) -> LogManager:
    manager = make(world, *directories, **options)
    manager.dirs.open()
    manager.dirs.claim(1, "cluster", world.clock())
    await manager.load()
    return manager


def put(log: Log, count: int = 1, value: bytes = b"v") -> None:
    for _ in range(count):
        log.append_as_leader(encode_batch([Record(-1, 1_700_000_000_000, b"k", value)]), 0)
    log.set_high_watermark(log.end_offset)


def tps(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in range(count)]
