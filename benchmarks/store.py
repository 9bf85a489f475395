"""The metadata store: writes, reads, watches, loading a cluster, and the cost of doing nothing.

For SQLite (a file, processes of one machine) and for a real ZooKeeper server. Watch latency is
measured between two processes, from before the write to the callback.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from odradek.store import open_store
from odradek.store.api import Check, Create, Set, Store, WatchEvent
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import LeaderAndIsr, encode_state
from odradek.store.zookeeper_server import CannotStart, ZooKeeperServer
from odradek.wire.topics import TopicPartition

SINGLE_OPERATIONS = 2000
MANY_WRITES = 5000
WATCHED_CHANGES = 300
IDLE_PROCESSES = 10
IDLE_SECONDS = 5.0
PARTITIONS = (10_000, 100_000)
PARTITIONS_PER_TOPIC = 1000
SESSION_TIMEOUT_MS = 18_000


def main() -> None:
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as directory:
        print("store: sqlite")
        asyncio.run(measure(f"sqlite:{directory}/metadata.db"))
        server = ZooKeeperServer(Path(directory) / "zookeeper", port=0)
        try:
            server.start()
        except CannotStart as error:
            print(f"store: zookeeper skipped: {error}")
            return
        try:
            print("store: zookeeper")
            asyncio.run(measure(f"zookeeper://{server.address}/benchmark"))
        finally:
            server.stop()


def show(what: str, figure: str) -> None:
    print(f"  {what:<44} {figure:>12}", flush=True)


async def measure(url: str) -> None:
    store = open_store(url, session_timeout_ms=SESSION_TIMEOUT_MS)
    await store.start()
    await single_operations(store)
    await many_writes(store)
    await watches(url, store)
    for total in PARTITIONS:
        await load(store, total)
    await death(url, store)
    idle(url)
    await store.close()


async def single_operations(store: Store) -> None:
    await store.create("/node", b"")
    data = b"x" * 100
    started = time.perf_counter()
    for _ in range(SINGLE_OPERATIONS):
        await store.set("/node", data)
    show("set/s, one after another", f"{SINGLE_OPERATIONS / (time.perf_counter() - started):,.0f}")
    started = time.perf_counter()
    for _ in range(SINGLE_OPERATIONS):
        await store.get("/node")
    show("get/s, one after another", f"{SINGLE_OPERATIONS / (time.perf_counter() - started):,.0f}")


async def watches(url: str, store: Store) -> None:
    """Another process writes the time; the difference to when its change is told here."""
    await store.create("/clock", b"0")
    writer = spawn("write", url)
    assert writer.stdin is not None
    latencies = []
    for _ in range(WATCHED_CHANGES):
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def on_change(_: WatchEvent, told: asyncio.Future[int] = told) -> None:
            told.set_result(time.monotonic_ns())

        await store.get("/clock", on_change)
        writer.stdin.write(b"\n")
        writer.stdin.flush()
        now = await told
        latencies.append((now - int((await store.get("/clock"))[0] or b"0")) / 1e6)
    writer.stdin.close()
    writer.wait()
    latencies.sort()
    show("watch latency p50", f"{latencies[len(latencies) // 2]:.2f} ms")
    show("watch latency p99", f"{latencies[len(latencies) * 99 // 100]:.2f} ms")


async def many_writes(store: Store) -> None:
    """As a controller writes states: each a multi of its own, behind a check, all at once."""
    await store.create("/fence", None)
    await store.multi([Create(f"/w{number}", b"") for number in range(MANY_WRITES)])
    started = time.perf_counter()
    await store.multi_many(
        [Check("/fence", 0), Set(f"/w{number}", b"x" * 100, 0)] for number in range(MANY_WRITES)
    )
    show("fenced set/s, many at once", f"{MANY_WRITES / (time.perf_counter() - started):,.0f}")


async def load(store: Store, total: int) -> None:
    """What a new controller does first."""
    cluster = ClusterStore(store)
    await cluster.prepare()
    topics = [f"t{total}-{number}" for number in range(total // PARTITIONS_PER_TOPIC)]
    data = encode_state(LeaderAndIsr(1, 0, (1, 2, 3), 1))
    for topic in topics:
        root = f"/brokers/topics/{topic}"
        await store.multi([Create(root, None), Create(f"{root}/partitions", None)])
        nodes = (
            [Create(path, None), Create(f"{path}/state", data)]
            for path in (f"{root}/partitions/{number}" for number in range(PARTITIONS_PER_TOPIC))
        )
        await store.multi([create for pair in nodes for create in pair])
    partitions = [TopicPartition(t, p) for t in topics for p in range(PARTITIONS_PER_TOPIC)]
    started = time.perf_counter()
    states = await cluster.partition_states(partitions)
    assert len(states) == total
    show(f"load {total:,} partition states", f"{time.perf_counter() - started:.2f} s")


async def death(url: str, store: Store) -> None:
    """kill -9 of another process, to the event that its ephemeral node is gone."""
    victim = spawn("own", url)
    assert victim.stdout is not None
    await asyncio.get_running_loop().run_in_executor(None, victim.stdout.readline)
    gone = asyncio.Event()
    await store.exists("/owned", lambda _: gone.set())
    started = time.perf_counter()
    os.kill(victim.pid, signal.SIGKILL)
    await gone.wait()
    show("kill -9 to its ephemeral node gone", f"{(time.perf_counter() - started) * 1000:,.0f} ms")
    victim.wait()
    victim.stdout.close()


def idle(url: str) -> None:
    children = [spawn("idle", url) for _ in range(IDLE_PROCESSES)]
    used = 0.0
    for process in children:
        output, _ = process.communicate()
        used += float(output)
    percent = used / IDLE_SECONDS * 100
    show(f"idle CPU of {IDLE_PROCESSES} processes together", f"{percent:.2f} %")


def spawn(what: str, url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.store", what, url]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


async def be_child(what: str, url: str) -> None:
    store = open_store(url, session_timeout_ms=SESSION_TIMEOUT_MS)
    await store.start()
    loop = asyncio.get_running_loop()
    if what == "write":
        while await loop.run_in_executor(None, sys.stdin.readline):
            await store.set("/clock", b"%d" % time.monotonic_ns())
    elif what == "own":
        await store.create("/owned", None, ephemeral=True)
        print("ready", flush=True)
        await asyncio.Event().wait()
    elif what == "idle":
        await asyncio.sleep(3)  # until all ten are there, and nobody wakes anybody any more
        started = time.process_time()
        await asyncio.sleep(IDLE_SECONDS)
        print(time.process_time() - started)
    await store.close()


if __name__ == "__main__":
    asyncio.run(be_child(*sys.argv[1:]))
