"""What a record costs each broker on its way: the leader, and each of two followers.

Three real broker processes, one partition of three replicas, acks=all, so that a role is a process.
Small records are sent by a lean client in ready-made frames, one at a time and 50 in flight; large
ones by librdkafka. CPU is what the scheduler charged each process, which other load disturbs less
than the clock does, but not little: compare variants in turns. Calls of functions, counted in a
second run under cProfile, do not vary. PROFILE=30 prints the functions with most of the time.

Large records go to the one partition, and then to 12 with their leaders on all three brokers. The
system's share of their cost depends on the memory that the page cache gets: a virtual machine whose
free memory goes back to its host waits for the host at the first write to each page of it. So
before such a load as much memory is written to, and given back, as the load will need.
"""

import asyncio
import os
import pstats
import resource
import signal
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.replica import SMALL, check, connect, create, produce_request
from odradek.testing.cluster import Cluster
from odradek.wire.connection import Connection
from odradek.wire.messages.produce import ProduceResponse

PRODUCE_VERSION = 9
WARM_UP = 500
ONE_AT_A_TIME = 3000
IN_FLIGHT = 50
PIPELINED = 20_000
MEGABYTES = 300
RECORD = os.urandom(1024)
PROFILED = Path(__file__).parent / "profiled"
TOPIC = "hot"
SPREAD_TOPIC = "hot-spread"
SPREAD_PARTITIONS = 12
SPREAD = f"the same to {SPREAD_PARTITIONS} partitions"
REPLICAS = 3

Load = Callable[[Cluster], Awaitable[float]]


def main() -> None:
    loads: dict[str, Load] = {
        "one record at a time": one_at_a_time,
        f"{IN_FLIGHT} records in flight": pipelined,
        "1 KiB records in batches, MB": partial(bulk, topic=TOPIC),
        SPREAD: partial(bulk, topic=SPREAD_TOPIC),
    }
    with Cluster(brokers=3, config={"min.insync.replicas": 2}) as cluster:
        asyncio.run(prepare(cluster))
        for name, load in loads.items():
            asyncio.run(measure(cluster, name, load))
    with tempfile.TemporaryDirectory() as directory:
        os.environ["PROFILE_TO"] = f"{directory}/{{pid}}"
        path = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = f"{PROFILED}{os.pathsep}{path}"
        with Cluster(brokers=3, config={"min.insync.replicas": 2}) as cluster:
            asyncio.run(prepare(cluster))
            for name, load in loads.items():
                asyncio.run(count_calls(cluster, name, load, Path(directory)))


# Measuring


def roles(cluster: Cluster) -> tuple[int, list[int]]:
    """The leader, and its followers."""
    leader = cluster.leader(TOPIC)
    assert leader is not None
    return leader, [broker for broker in cluster.ids if broker != leader]


def cpu_us(cluster: Cluster, broker: int) -> float:
    """What the scheduler has charged the main thread so far."""
    run_ns = Path(f"/proc/{cluster.process_id(broker)}/schedstat").read_text().split()[0]
    return int(run_ns) / 1000


async def measure(cluster: Cluster, name: str, load: Load) -> None:
    leader, followers = roles(cluster)
    before = {broker: cpu_us(cluster, broker) for broker in cluster.ids}
    count = await load(cluster)
    spent = {broker: (cpu_us(cluster, broker) - before[broker]) / count for broker in cluster.ids}
    by_role = (
        f"leader {spent[leader]:.0f} µs, follower"
        f" {statistics.mean(spent[each] for each in followers):.0f} µs, "
    )
    print(
        f"{name:<32} CPU each: {'' if name == SPREAD else by_role}"
        f"all three {sum(spent.values()):.0f} µs",
        flush=True,
    )


async def count_calls(cluster: Cluster, name: str, load: Load, directory: Path) -> None:
    leader, followers = roles(cluster)
    for broker in cluster.ids:
        os.kill(cluster.process_id(broker), signal.SIGUSR1)
    count = await load(cluster)
    for broker in cluster.ids:
        os.kill(cluster.process_id(broker), signal.SIGUSR2)
    shown_roles = [("leader", leader), ("follower", followers[0])]
    if name == SPREAD:
        shown_roles = [("both", broker) for broker in cluster.ids]
    for role, broker in shown_roles:
        path = directory / str(cluster.process_id(broker))
        cluster.wait_until(path.exists, "a profile")
        stats = pstats.Stats(str(path))
        path.unlink()
        calls = {key: entry[1] for key, entry in stats.stats.items()}  # type: ignore[attr-defined]  # pstats has it
        builtin = sum(calls for (file, _, _), calls in calls.items() if file == "~")
        python = sum(calls.values()) - builtin
        turns = sum(calls for (_, _, what), calls in calls.items() if what == "_run_once")
        print(
            f"{name:<32} calls each: {role:<8} {python / count:.1f} of Python functions,"
            f" {builtin / count:.1f} of built-in ones, {turns / count:.2f} turns of the loop",
            flush=True,
        )
        if shown := int(os.environ.get("PROFILE", "0")):
            stats.sort_stats("tottime").print_stats(shown)


# Loads: each returns by what its cost is to be divided.


async def prepare(cluster: Cluster) -> None:
    await create(cluster, TOPIC, 1)
    await create(cluster, SPREAD_TOPIC, SPREAD_PARTITIONS)
    await one_at_a_time(cluster, WARM_UP)


async def one_at_a_time(cluster: Cluster, count: int = ONE_AT_A_TIME) -> float:
    connection = await connect(cluster, roles(cluster)[0])
    request = produce_request(TOPIC, 0, SMALL, -1)
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        check(await connection.request(request, PRODUCE_VERSION))
        times.append(time.perf_counter() - begun)
    connection.close()
    if count == ONE_AT_A_TIME:
        ordered = sorted(times)
        print(
            f"{'':<32} wall: p10 {ordered[count // 10] * 1000:.3f} ms,"
            f" p50 {ordered[count // 2] * 1000:.3f} ms, p99 {ordered[count * 99 // 100] * 1000:.3f}"
        )
    return count


async def pipelined(cluster: Cluster) -> float:
    connections: list[Connection] = [await connect(cluster, roles(cluster)[0])]
    request = produce_request(TOPIC, 0, SMALL, -1)
    flying: list[Awaitable[ProduceResponse]] = []
    for _ in range(PIPELINED):
        flying.append(connections[0].start(request, PRODUCE_VERSION))
        if len(flying) >= IN_FLIGHT:
            check(await flying.pop(0))
    for waiting in flying:
        check(await waiting)
    connections[0].close()
    return PIPELINED


async def bulk(cluster: Cluster, topic: str) -> float:
    take_memory(REPLICAS * MEGABYTES + MEGABYTES // 2)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.kbytes": 256_000,
            "log_level": 2,
        }
    )
    for _ in range(MEGABYTES * 1_000_000 // len(RECORD)):
        while True:
            try:
                producer.produce(topic, RECORD)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0
    return MEGABYTES


def take_memory(megabytes: int) -> None:
    """Lets the machine have this much free memory that its host does not have to find first. What
    that cost is printed, beside what the same costs when it is there."""
    system_ms = [write_and_remove(megabytes) / megabytes for _ in range(2)]
    print(
        f"{'':<32} 1 MB written to the page cache: {system_ms[0]:.2f} ms of system time, and"
        f" {system_ms[1]:.2f} in the same memory again",
        flush=True,
    )


def write_and_remove(megabytes: int) -> float:
    """Milliseconds of system time that the writing took."""
    megabyte = bytes(1_000_000)
    with tempfile.TemporaryFile(buffering=0) as file:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_stime
        for _ in range(megabytes):
            file.write(megabyte)
        return (resource.getrusage(resource.RUSAGE_SELF).ru_stime - before) * 1000


if __name__ == "__main__":
    main()
