"""What telemetry costs a broker with 5,000 partitions: processor time per frame, bytes, memory.

One broker in this process, with real logs. Seconds are CPU time of this process, so a busy machine
disturbs them little. "of a core" is a frame's time at the default interval of 15 s.
"""

import asyncio
import random
import tempfile
import time
import timeit
import tracemalloc
from collections.abc import Coroutine
from typing import Any

from odradek.broker.config import BrokerConfig
from odradek.broker.memory import collect_seldom
from odradek.broker.server import Broker
from odradek.broker.telemetry import Telemetry
from odradek.broker.topics import NewTopic
from odradek.log.disk import RealDisk
from odradek.log.offload import on_the_spot
from odradek.replica.traffic import PartitionCounters
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.wire.batch import scan
from odradek.wire.records import decode_records
from odradek.wire.telemetry import decode_frame
from odradek.wire.topics import TELEMETRY_TOPIC, TopicPartition

PARTITIONS = 5_000
TOPICS = 50
FRAMES = 20
INTERVAL_S = 15.0
ADDITIONS = 5


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def start(directory: str) -> Broker:
    settings = {
        "broker.id": "1",
        "log.dirs": directory,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "odradek.telemetry.interval.ms": "0",
    }
    broker = Broker(
        BrokerConfig(settings),
        MemoryStore(MemoryServer(clock=now_ms), session_timeout_ms=60_000),
        disk=RealDisk(),
        clock=now_ms,
        rng=random.Random(1),
        offload=on_the_spot,
    )
    await broker.start()
    for topic in range(TOPICS):
        name = f"some.topic-{topic}"
        assigned = await broker.topics.create(NewTopic(name, PARTITIONS // TOPICS, 1))
        await broker.topics.wait_for_leaders(name, assigned, 60_000)
    return broker


def add_traffic(broker: Broker, share: float, rng: random.Random) -> None:
    for partition in broker.replicas.partitions.values():
        if rng.random() < share:
            load = partition.replica.load
            load.bytes_in += rng.randrange(10_000_000)
            load.bytes_out += rng.randrange(10_000_000)
            load.messages += rng.randrange(10_000)
            load.requests += rng.randrange(1_000)


async def longest_turn(publishing: Coroutine[Any, Any, bool]) -> float:
    """How long a request may have to wait for a part of the frame: seconds of processor time
    between two turns of another task."""
    task = asyncio.create_task(publishing)
    longest, before = 0.0, time.process_time()
    while not task.done():
        await asyncio.sleep(0)
        now = time.process_time()
        longest, before = max(longest, now - before), now
    assert task.result()
    return longest


async def measure(broker: Broker, telemetry: Telemetry, share: float) -> None:
    rng, seconds, turn = random.Random(1), 0.0, 0.0
    log = broker.replicas.partitions[TopicPartition(TELEMETRY_TOPIC, 1)].local_log
    begin = log.end_offset
    for _ in range(FRAMES):
        add_traffic(broker, share, rng)
        started = time.process_time()
        turn = max(turn, await longest_turn(telemetry.publish()))
        seconds += time.process_time() - started
    buffer = log.read(begin, 1 << 30).records
    frames = [
        decode_frame(record.value or b"")
        for header in scan(buffer)
        for record in decode_records(buffer, header)
    ]
    rows = sum(map(len, frames))
    per_frame = seconds / FRAMES
    print(
        f"telemetry, {PARTITIONS:,} partitions, {share:4.0%} active: {per_frame * 1000:5.1f} ms a"
        f" frame, {per_frame / INTERVAL_S:6.3%} of a core, {rows // FRAMES:5,} rows,"
        f" {len(buffer) / rows:4.1f} bytes a row as written; longest turn {turn * 1000:4.1f} ms"
    )


async def run() -> None:
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        broker = await start(directory)
        telemetry = Telemetry(broker, RealDisk(), on_the_spot)
        await telemetry.publish()
        for share in (0.0, 0.2, 1.0):
            await measure(broker, telemetry, share)
        tracemalloc.start()
        add_traffic(broker, 1.0, random.Random(2))
        tracemalloc.reset_peak()
        held = tracemalloc.get_traced_memory()[0]
        assert await telemetry.publish()
        kept, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(
            f"telemetry, {PARTITIONS:,} partitions: {(peak - held) / 1e6:4.1f} MB while a frame is"
            f" made, {(kept - held) / 1e6:4.1f} MB kept"
        )
        await telemetry.stop()
        await broker.stop()


def count_hot_path() -> None:
    load = PartitionCounters()
    statement = "load.requests += 1; load.bytes_in += 1000; load.messages += 7"
    count = 1_000_000
    best = min(timeit.repeat(statement, globals={"load": load}, number=count, repeat=ADDITIONS))
    print(f"telemetry, additions for one partition of a produce: {best / count * 1e9:4.0f} ns")


def main() -> None:
    collect_seldom()  # as the process of a broker does
    asyncio.run(run())
    count_hot_path()


if __name__ == "__main__":
    main()
