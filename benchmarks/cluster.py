"""A cluster of three real broker processes on the embedded store: coming up, standing by, failing.

Wall time is what counts here: from the first `fork` until clients can work, and from the signal
that kills a process until another process does its work. Memory is the resident set, shared
pages counted in each process that has them. A busy machine makes all of it worse.
"""

import asyncio
import itertools
import statistics
import time

from benchmarks.replica import (
    PRODUCE_VERSION,
    SMALL,
    connect,
    cpu_s,
    create,
    produce_request,
    resident_mb,
)
from odradek.client import LATEST, Client, offsets_at
from odradek.testing.cluster import Cluster
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

BROKERS = 3
CONFIG = {"min.insync.replicas": 2}
STARTS = 9
LEADER_DEATHS = 20
CONTROLLER_DEATHS = 5
QUIET_S = 10.0
PATIENCE_S = 60.0
POLL_S = 0.002


def main() -> None:
    times_to_start(1)
    times_to_start(BROKERS)
    standing_by(100)
    standing_by(5_000)
    leader_deaths()
    controller_deaths(1_000)


def times_to_start(brokers: int) -> None:
    times = []
    for _ in range(STARTS):
        begun = time.perf_counter()
        with Cluster(brokers=brokers):
            times.append(time.perf_counter() - begun)
    show(f"a cluster of {brokers} is up and has elected", times)


def standing_by(partitions: int) -> None:
    """Memory and CPU of an idle cluster."""
    with Cluster(brokers=BROKERS, config=CONFIG) as cluster:
        asyncio.run(create(cluster, "many", partitions))
        cluster.wait_until(lambda: in_sync(cluster, "many", BROKERS), "full ISRs", 300)
        time.sleep(QUIET_S)
        before = cpu_s(cluster)
        time.sleep(QUIET_S)
        share = (cpu_s(cluster) - before) / QUIET_S * 100
        print(
            f"{f'idle with {partitions} partitions, RF 3':<52} memory {resident_mb(cluster):.0f} MB"
            f"   CPU {share:.1f} % of a core   (all three)",
            flush=True,
        )


def leader_deaths() -> None:
    """A leader is killed; the time until the next write with acks=all is acknowledged."""
    times = []
    with Cluster(brokers=BROKERS, config=CONFIG) as cluster:
        asyncio.run(create(cluster, "led", 1))
        for _ in range(LEADER_DEATHS):
            cluster.wait_until(lambda: in_sync(cluster, "led", BROKERS), "a full ISR", 120)
            leader = cluster.leader("led")
            assert leader is not None
            times.append(asyncio.run(time_to_write(cluster, "led", leader)))
            cluster.start(leader)
    show("leader killed, next acknowledged write", times)


async def time_to_write(cluster: Cluster, topic: str, victim: int) -> float:
    """Kill the leader and ask the others in turn until one of them takes a record."""
    connections = {broker: await connect(cluster, broker) for broker in cluster.ids}
    assert await is_taken(connections[victim], topic)
    connections.pop(victim).close()
    begun = time.perf_counter()
    cluster.kill(victim)
    for connection in itertools.cycle(connections.values()):
        if await is_taken(connection, topic):
            break
        assert time.perf_counter() - begun < PATIENCE_S, "no broker accepts a write"
        await asyncio.sleep(POLL_S)
    seconds = time.perf_counter() - begun
    for connection in connections.values():
        connection.close()
    return seconds


async def is_taken(connection: Connection, topic: str) -> bool:
    response = await connection.request(produce_request(topic, 0, SMALL, -1), PRODUCE_VERSION)
    return bool(response.responses[0].partition_responses[0].error_code == ErrorCode.NONE)


def controller_deaths(partitions: int) -> None:
    """The controller is killed: until the next is active, and until every partition is served."""
    elected, served = [], []
    with Cluster(brokers=BROKERS, config=CONFIG) as cluster:
        asyncio.run(create(cluster, "many", partitions))
        for _ in range(CONTROLLER_DEATHS):
            cluster.wait_until(lambda: in_sync(cluster, "many", BROKERS), "full ISRs", 120)
            victim = cluster.controller_id()
            assert victim is not None
            to_office, to_service = times_without(cluster, victim, partitions)
            elected.append(to_office)
            served.append(to_service)
            cluster.start(victim)
    show(f"controller of {partitions} partitions killed, next one active", elected)
    show("... and every partition is led and served", served)


def times_without(cluster: Cluster, victim: int, partitions: int) -> tuple[float, float]:
    begun = time.perf_counter()
    cluster.kill(victim)
    cluster.wait_until(lambda: has_other_controller(cluster, victim), "a controller")
    elected = time.perf_counter() - begun
    cluster.wait_until(lambda: is_led_without(cluster, "many", victim), "leaders")
    asyncio.run(ask_every_leader(cluster, "many", partitions))
    return elected, time.perf_counter() - begun


def has_other_controller(cluster: Cluster, victim: int) -> bool:
    return cluster.controller_id() not in (None, victim)


def is_led_without(cluster: Cluster, topic: str, victim: int) -> bool:
    described = cluster.topic(topic)
    return described is not None and all(
        one.leader_id not in (-1, victim) for one in described.partitions
    )


async def ask_every_leader(cluster: Cluster, topic: str, partitions: int) -> None:
    """Where each log ends: only a leader that serves its partition says so."""
    wanted = {TopicPartition(topic, number): LATEST for number in range(partitions)}
    async with Client(cluster.bootstrap_servers) as client:
        assert len(await offsets_at(client, wanted)) == partitions


def in_sync(cluster: Cluster, topic: str, copies: int) -> bool:
    described = cluster.topic(topic)
    return described is not None and all(
        len(one.isr_nodes) == copies for one in described.partitions
    )


def show(what: str, seconds: list[float]) -> None:
    ordered = sorted(1000 * each for each in seconds)
    p90 = ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)]
    print(
        f"{what:<52} p50 {statistics.median(ordered):.0f} ms   p90 {p90:.0f} ms"
        f"   max {ordered[-1]:.0f} ms   ({len(ordered)} times)",
        flush=True,
    )


if __name__ == "__main__":
    main()
