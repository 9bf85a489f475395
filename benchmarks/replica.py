"""Replication over three real broker processes: latency, throughput, catching up, standing by.

The load comes from this process through `wire/` itself, so that the client costs next to nothing:
ready-made batches, sent again and again. Wall time decides here, since the point is how fast three
processes work together; the CPU time of the brokers is shown beside it, because a busy machine
cannot change that.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable

from odradek.testing.cluster import Cluster
from odradek.wire.connection import Connection
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.wire.records import Record, encode_batch
from odradek.wire.schema import Message, Request

PRODUCE_VERSION = 7
CREATE_TOPICS_VERSION = 4
# Tens of thousands of partitions take a while.
CREATE_TIMEOUT_MS = 600_000
SMALL = encode_batch([Record(0, 0, None, b"x" * 100, ())])
LARGE = encode_batch([Record(i, 0, None, b"x" * 1024, ()) for i in range(900)])


def main() -> None:
    with Cluster(brokers=3, config={"num.partitions": 1}) as cluster:
        asyncio.run(measure(cluster))


async def measure(cluster: Cluster) -> None:
    await create(cluster, "latency", 1)
    await create(cluster, "one", 1)
    await create(cluster, "many", 6)
    await latency(cluster)
    await throughput(cluster, "one", 1)
    await throughput(cluster, "many", 6)
    await catching_up(cluster)
    await idle(cluster)


def cpu_s(cluster: Cluster) -> float:
    """CPU time of all brokers so far."""
    ticks = 0
    for broker in cluster.running():
        with open(f"/proc/{cluster.process_id(broker)}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mb(cluster: Cluster) -> float:
    pages = 0
    for broker in cluster.running():
        with open(f"/proc/{cluster.process_id(broker)}/statm") as file:
            pages += int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def connect(cluster: Cluster, broker: int) -> Connection:
    return await Connection.open("127.0.0.1", cluster.port_of(broker), client_id="bench")


async def create(cluster: Cluster, topic: str, partitions: int, copies: int = 3) -> None:
    controller = cluster.controller_id()
    assert controller is not None
    connection = await connect(cluster, controller)
    connection.timeout = CREATE_TIMEOUT_MS / 1000
    response = await connection.request(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(name=topic, num_partitions=partitions, replication_factor=copies)
            ],
            timeout_ms=CREATE_TIMEOUT_MS,
        ),
        CREATE_TOPICS_VERSION,
    )
    assert response.topics[0].error_code == 0, response
    connection.close()


def produce_request(topic: str, partition: int, batch: bytearray, acks: int) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=partition, records=bytes(batch))],
            )
        ],
    )


def check(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            assert partition.error_code == 0, partition


async def latency(cluster: Cluster, count: int = 3000) -> None:
    leader = cluster.leader("latency")
    assert leader is not None
    connection = await connect(cluster, leader)
    asked: list[tuple[str, Request[Message], int]] = [
        ("a question and its answer (ApiVersions)", ApiVersionsRequest(), 0),
        ("produce acks=1", produce_request("latency", 0, SMALL, 1), PRODUCE_VERSION),
        ("produce acks=all, RF 3", produce_request("latency", 0, SMALL, -1), PRODUCE_VERSION),
    ]
    for what, request, version in asked:
        for _ in range(200):
            await connection.request(request, version)
        times = []
        before = cpu_s(cluster)
        for _ in range(count):
            begun = time.perf_counter()
            response = await connection.request(request, version)
            times.append((time.perf_counter() - begun) * 1000)
            if isinstance(response, ProduceResponse):
                check(response)
        cpu = (cpu_s(cluster) - before) / count * 1e6
        times.sort()
        print(
            f"{what:<42} p50 {times[count // 2]:.3f} ms   p99 {times[count * 99 // 100]:.3f} ms"
            f"   brokers' CPU {cpu:.0f} µs each"
        )
    connection.close()


async def throughput(cluster: Cluster, topic: str, partitions: int, total_mb: int = 1500) -> None:
    connections = {broker: await connect(cluster, broker) for broker in cluster.ids}
    share = int(total_mb * 1e6 / len(LARGE) / partitions)

    async def fill(partition: int) -> None:
        leader = cluster.leader(topic, partition)
        assert leader is not None
        request = produce_request(topic, partition, LARGE, -1)
        connection = connections[leader]
        flying: list[Awaitable[ProduceResponse]] = []
        for _ in range(share):
            flying.append(connection.start(request, PRODUCE_VERSION))
            if len(flying) >= 5:
                check(await flying.pop(0))
        for waiting in flying:
            check(await waiting)

    before, begun = cpu_s(cluster), time.perf_counter()
    await asyncio.gather(*map(fill, range(partitions)))
    seconds = time.perf_counter() - begun
    megabytes = share * partitions * len(LARGE) / 1e6
    cpu_ms = (cpu_s(cluster) - before) * 1000 / megabytes
    print(
        f"RF 3, acks=all, {partitions} partition(s)   {megabytes / seconds:.0f} MB/s"
        f"   brokers' CPU {cpu_ms:.2f} ms per MB (all three)"
    )
    for connection in connections.values():
        connection.close()


async def catching_up(cluster: Cluster, total_mb: int = 1000) -> None:
    """A follower was down while much was written; how fast it has it, and what others notice."""
    leader = cluster.leader("one")
    other = cluster.leader("latency")
    assert leader is not None
    assert other is not None
    away = next(broker for broker in cluster.ids if broker not in (leader, other))
    quiet = await probe(cluster, lambda: False, seconds=2.0)
    cluster.kill(away)
    connection = await connect(cluster, leader)
    request = produce_request("one", 0, LARGE, 1)
    for _ in range(int(total_mb * 1e6 / len(LARGE))):
        check(await connection.request(request, PRODUCE_VERSION))
    connection.close()
    begun = time.perf_counter()
    cluster.start(away)
    started = time.perf_counter()

    def is_level() -> bool:
        described = cluster.topic("one")
        return described is not None and len(described.partitions[0].isr_nodes) == 3

    sizes = [log_bytes(cluster, leader), 0]

    def has_all() -> bool:
        sizes[1] = log_bytes(cluster, away)
        return sizes[1] >= sizes[0]

    busy = await probe(cluster, has_all, seconds=120.0)
    seconds = time.perf_counter() - started
    print(
        f"catching up {total_mb} MB   {total_mb / seconds:.0f} MB/s after a start of"
        f" {started - begun:.2f} s;  acks=1 elsewhere p50 {busy:.3f} ms, was {quiet:.3f} ms"
    )
    cluster.wait_until(is_level, "the follower back in the ISR", 120)


def log_bytes(cluster: Cluster, broker: int) -> int:
    directory = cluster.directory_of(broker) / "one-0"
    return sum(path.stat().st_size for path in directory.glob("*.log"))


async def probe(cluster: Cluster, until: Callable[[], bool], seconds: float) -> float:
    """The median latency of small produces to another topic meanwhile, in milliseconds."""
    leader = cluster.leader("latency")
    assert leader is not None
    connection = await connect(cluster, leader)
    request = produce_request("latency", 0, SMALL, 1)
    times = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline and not until():
        begun = time.perf_counter()
        check(await connection.request(request, PRODUCE_VERSION))
        times.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(0.01)
    connection.close()
    return statistics.median(times)


async def idle(cluster: Cluster, seconds: float = 5.0) -> None:
    await create(cluster, "idle", 100)
    await asyncio.sleep(2)
    before = cpu_s(cluster)
    await asyncio.sleep(seconds)
    share = (cpu_s(cluster) - before) / seconds * 100
    print(
        f"idle with 100 more partitions   CPU of all three {share:.1f} % of a core,"
        f"   memory {resident_mb(cluster):.0f} MB"
    )


if __name__ == "__main__":
    main()
