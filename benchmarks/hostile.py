"""What one hostile client can do to a cluster, while another one goes on producing.

`make bench ONLY=hostile` starts three brokers of its own. Against a cluster of yours:

    python -m benchmarks.hostile --bootstrap host:port [--seconds 8] [attack ...]

Each attack is a function below and runs for some seconds. Beside it, in a process of its own, a
probe produces 45 records a second with acks=all, and its latencies are what the table shows: the
attackers share the machine with it, so compare with the row "idle". RSS is that of the largest
broker, at most and a while after the attack. Targets: RSS below 256 MB and back within a fifth a
minute later, p99 below 250 ms, no latency above 1 s, and no controller elected.
"""

import argparse
import asyncio
import json
import random
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from odradek.client import Admin, Client, NewTopic, check
from odradek.operations.broker_http import http_addresses
from odradek.testing.cluster import Cluster
from odradek.wire.connection import Connection
from odradek.wire.header import encode_request
from odradek.wire.messages.controlled_shutdown import ControlledShutdownRequest
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.stop_replica import StopReplicaRequest
from odradek.wire.messages.update_metadata import UpdateMetadataRequest
from odradek.wire.records import Record, encode_batch
from odradek.wire.schema import Message

PROBE, BULK = "probe", "bulk"
PARTITIONS = 3
PROBE_PAUSE_S = 1 / 45
BULK_BATCHES, BULK_BYTES = 60, 1_000_000
SAMPLE_S = 0.1
AFTER_S = 60.0
WITHIN = 1.2
RSS_MB_MAX, P99_MS_MAX, MAX_MS_MAX = 256, 250, 1000

Address = tuple[str, int]
CLAIM = struct.pack(">ii", 100_000_000, 0)


# Attacks: each is given the brokers' addresses and how long it has.


class Sockets:
    """Connections that send bytes, and read nothing unless they are asked to."""

    def __init__(self) -> None:
        self._open: list[asyncio.StreamWriter] = []

    async def open(self, address: Address) -> asyncio.StreamWriter | None:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(*address, limit=1), 10)
        except (OSError, TimeoutError):
            return None
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a socket's
        self._open.append(writer)
        return writer

    async def each(self, addresses: list[Address], count: int, data: bytes) -> None:
        for number in range(count):
            writer = await self.open(addresses[number % len(addresses)])
            if writer is not None:
                writer.write(data)

    def close(self) -> None:
        for writer in self._open:
            writer.transport.abort()


async def idle(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """Nothing at all."""
    await asyncio.sleep(seconds)


async def claims(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """400 connections that announce 100 MB and send four bytes of it."""
    await sockets.each(addresses, 400, CLAIM)
    await asyncio.sleep(seconds)


async def halves(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """200 connections that announce 100 MB and send one."""
    await sockets.each(addresses, 200, CLAIM + bytes(1_000_000))
    await asyncio.sleep(seconds)


async def loris(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """1,000 connections that send a request byte by byte."""
    await sockets.each(addresses, 1000, CLAIM[:4])
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for writer in sockets._open:
            if not writer.transport.is_closing():
                writer.write(b"x")
        await asyncio.sleep(1)


def fetch(min_bytes: int, max_wait_ms: int) -> bytes:
    partitions = [
        FetchPartition(partition=number, partition_max_bytes=2**31 - 1)
        for number in range(PARTITIONS)
    ]
    return framed(
        FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=2**31 - 1,
            topics=[FetchTopic(topic=BULK, partitions=partitions)],
        ),
        11,
    )


async def unread(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """100 connections that fetch 2 GB three times, and read nothing."""
    await sockets.each(addresses, 100, fetch(1, 0) * 3)
    await asyncio.sleep(seconds)


async def parked(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """100 connections whose fetches wait for 2 GB, all until the same moment."""
    await sockets.each(addresses, 100, fetch(2**31 - 1, int(seconds * 500)))
    await asyncio.sleep(seconds)


async def repeated(address: Address, seconds: float, message: Message, version: int) -> None:
    """The request again and again, over new connections where the broker closes them."""
    frame = framed(message, version)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(frame)
            async with asyncio.timeout(20):
                size = struct.unpack(">i", await reader.readexactly(4))[0]
                while size > 0:
                    size -= len(await reader.read(min(size, 1 << 20))) or size
            writer.close()
        await asyncio.sleep(0.2)


def names(count: int) -> Message:
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


async def million(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """Metadata of a million topics that do not exist, 9 MB."""
    await repeated(addresses[0], seconds, names(1_000_000), 8)


async def within(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """Metadata of as many topics as one request may name."""
    await repeated(addresses[0], seconds, names(20_000), 8)


async def elements(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """ListOffsets, DeleteRecords and DescribeGroups with 10,000 elements, which is allowed."""
    count = range(10_000 - 2)
    requests: list[tuple[Message, int]] = [
        (
            ListOffsetsRequest(
                topics=[
                    ListOffsetsTopic(
                        name="t",
                        partitions=[ListOffsetsPartition(partition_index=each) for each in count],
                    )
                ]
            ),
            5,
        ),
        (
            DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name="t",
                        partitions=[DeleteRecordsPartition(partition_index=each) for each in count],
                    )
                ]
            ),
            1,
        ),
        (DescribeGroupsRequest(groups=[f"g{each}" for each in count]), 4),
    ]
    for message, version in requests:
        await repeated(addresses[0], seconds / 3, message, version)


async def topics(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """Metadata of 2,000 topics that are to be created, three times."""
    wanted = [MetadataRequestTopic(name=f"unwanted-{number}") for number in range(2000)]
    request = framed(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 8)
    await sockets.each(addresses, 3, request)
    await asyncio.sleep(seconds)


async def joins(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """30 members that join a group, each with 10 MB of metadata."""
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(10_000_000))
    request = JoinGroupRequest(
        group_id="hostile",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    await sockets.each(addresses, 30, framed(request, 3))
    await asyncio.sleep(seconds)


async def flood(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """20 connections that send small requests as fast as they can, and read nothing."""
    frames = framed(MetadataRequest(topics=[]), 9) * 2000
    end = time.monotonic() + seconds
    writers = [await sockets.open(addresses[number % len(addresses)]) for number in range(20)]
    while time.monotonic() < end:
        for writer in writers:
            if writer is not None and writer.transport.get_write_buffer_size() == 0:
                writer.write(frames)
        await asyncio.sleep(0.02)


async def churn(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """Connections opened and closed without a word."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(50):
            with suppress(OSError):
                _, writer = await asyncio.open_connection(*random.choice(addresses))
                writer.transport.abort()
        await asyncio.sleep(0)


async def crowd(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """3,000 connections that stay and say nothing."""
    await sockets.each(addresses, 3000, b"")
    await asyncio.sleep(seconds)


HTTP = (
    b"",
    b"GET /metrics HT",
    b"GET /" + b"x" * 9_000,
    b"POST /metrics HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\n\r\n" * 200,
)


async def http(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """10,000 connections to the HTTP listeners: silent ones, half requests, long lines, wrong
    methods, and requests whose answers are not read."""
    async with Client([f"{host}:{port}" for host, port in addresses]) as client:
        found = await http_addresses(Admin(client))
    listeners = [(each.host, each.port) for each in found.values() if each is not None]
    for data in HTTP:
        await sockets.each(listeners, 10_000 // len(HTTP), data)
    await asyncio.sleep(seconds)


async def control(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """Control requests of a controller that was never elected, and shutdowns of others."""
    for address in addresses:
        for message, version in (
            (UpdateMetadataRequest(controller_id=99, controller_epoch=1_000_000), 6),
            (UpdateMetadataRequest(controller_id=99, controller_epoch=1_000_000), 0),
            (LeaderAndIsrRequest(controller_id=99, controller_epoch=1_000_000), 4),
            (StopReplicaRequest(controller_id=1, controller_epoch=1), 0),
            (ControlledShutdownRequest(broker_id=1), 0),
            (ControlledShutdownRequest(broker_id=2, broker_epoch=-1), 3),
        ):
            writer = await sockets.open(address)
            if writer is not None:
                writer.write(framed(message, version))
    await asyncio.sleep(seconds)


async def poison(addresses: list[Address], seconds: float, sockets: Sockets) -> None:
    """Batches that cannot be read, to the probe's own topic and to that of the groups."""
    batch = encode_batch([Record(0, 0, b"k", b"v")])
    batch[-3:] = b"\xff\xff\xff"
    for topic in (PROBE, "__consumer_offsets"):
        for address in addresses:
            writer = await sockets.open(address)
            if writer is not None:
                message = produce_request(topic, 0, batch)
                writer.write(b"".join(encode_request(message, 9, 1, "__admin_client")))
    await asyncio.sleep(seconds)


Attack = Callable[[list[Address], float, Sockets], Awaitable[None]]
ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        *(idle, claims, halves, loris, unread, parked, million, within, elements),
        *(topics, joins, flood, churn, crowd, http, control, poison),
    )
}


# Measuring


class Row(NamedTuple):
    name: str
    p50_ms: float
    p99_ms: float
    max_ms: float
    failed: int
    peak_mb: float
    after_mb: float
    before_mb: float
    elections: int

    @property
    def is_within_targets(self) -> bool:
        return (
            self.peak_mb <= RSS_MB_MAX
            and self.after_mb <= self.before_mb * WITHIN
            and self.p99_ms <= P99_MS_MAX
            and self.max_ms <= MAX_MS_MAX
            and not self.elections
        )


def framed(message: Message, version: int) -> bytes:
    return b"".join(encode_request(message, version, 1, "hostile"))


def produce_request(topic: str, partition: int, batch: bytes | bytearray) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


async def leaders(bootstrap: Address, topic: str) -> list[Address]:
    """Where each partition of the topic is led."""
    connection = await Connection.open(*bootstrap, timeout=10)
    try:
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        found = await connection.request(wanted, 8)
    finally:
        connection.close()
    brokers = {broker.node_id: (broker.host, broker.port) for broker in found.brokers}
    partitions = sorted(found.topics[0].partitions, key=lambda each: int(each.partition_index))
    return [brokers[each.leader_id] for each in partitions]


async def probe(bootstrap: Address) -> None:
    """Produces for ever; a line for each record: when it was sent, and how long it took."""
    connections: dict[Address, Connection] = {}
    where = await leaders(bootstrap, PROBE)
    for number in range(sys.maxsize):
        begun = time.time()
        failed = 0
        while True:
            try:
                address = where[number % PARTITIONS]
                if address not in connections or connections[address].closed:
                    connections[address] = await Connection.open(*address, timeout=20)
                batch = encode_batch([Record(0, int(begun * 1000), None, b"x" * 100)])
                request = produce_request(PROBE, number % PARTITIONS, batch)
                response = await connections[address].request(request, 9)
                if response.responses[0].partition_responses[0].error_code == 0:
                    break
            except (OSError, TimeoutError):
                pass
            failed += 1
            await asyncio.sleep(0.05)
            with suppress(OSError, TimeoutError, KeyError):
                where = await leaders(bootstrap, PROBE)
        print(json.dumps([begun, time.time() - begun, failed]), flush=True)
        await asyncio.sleep(PROBE_PAUSE_S)


def resident_mb(cluster: Cluster | None) -> float:
    """The memory of the largest broker; 0 for a cluster that is not ours."""
    sizes = [0.0]
    for broker in cluster.running() if cluster is not None else ():
        status = Path(f"/proc/{cluster.process_id(broker)}/status").read_text()  # type: ignore[union-attr]
        sizes += [int(line.split()[1]) / 1000 for line in status.splitlines() if "VmRSS" in line]
    return max(sizes)


async def prepare(bootstrap: Address) -> None:
    async with Client([f"{bootstrap[0]}:{bootstrap[1]}"]) as client:
        existing = await Admin(client).list_topics()
        wanted = [
            NewTopic(topic, PARTITIONS, 3, configs={"max.message.bytes": "1100000"})
            for topic in (PROBE, BULK)
            if topic not in existing
        ]
        check(await Admin(client).create_topics(wanted))
    where = await leaders(bootstrap, BULK)
    value = random.Random(1).randbytes(BULK_BYTES)
    for number in range(BULK_BATCHES):
        connection = await Connection.open(*where[number % PARTITIONS])
        batch = encode_batch([Record(0, int(time.time() * 1000), None, value)])
        await connection.request(produce_request(BULK, number % PARTITIONS, batch), 9)
        connection.close()


async def measure(
    name: str, bootstrap: Address, seconds: float, cluster: Cluster | None, samples: list[Any]
) -> Row:
    addresses = sorted(set(await leaders(bootstrap, BULK)))
    sockets = Sockets()
    before_mb = peak_mb = resident_mb(cluster)
    controller = cluster.controller_id() if cluster is not None else None
    begun = time.time()
    attack = asyncio.ensure_future(ATTACKS[name](addresses, seconds, sockets))
    while not attack.done():
        peak_mb = max(peak_mb, resident_mb(cluster))
        await asyncio.sleep(SAMPLE_S)
    await attack
    ended = time.time()
    sockets.close()
    while True:
        after_mb = resident_mb(cluster)
        if after_mb <= before_mb * WITHIN or time.time() > ended + AFTER_S:
            break
        await asyncio.sleep(1)
    await asyncio.sleep(1)  # the probe's line for what was sent last
    during = [each for each in samples if begun <= each[0] <= ended]
    latencies = sorted(each[1] * 1000 for each in during) or [float("inf")]
    elections = 0
    if cluster is not None and cluster.controller_id() != controller:
        elections = 1
    return Row(
        name,
        latencies[len(latencies) // 2],
        latencies[int(len(latencies) * 0.99)],
        latencies[-1],
        sum(each[2] for each in during),
        peak_mb,
        after_mb,
        before_mb,
        elections,
    )


async def run(
    bootstrap: Address, attacks: list[str], seconds: float, cluster: Cluster | None
) -> list[Row]:
    await prepare(bootstrap)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.hostile", "--probe"),
        *("--bootstrap", f"{bootstrap[0]}:{bootstrap[1]}"),
        stdout=subprocess.PIPE,
    )
    samples: list[Any] = []

    async def collect() -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            samples.append(json.loads(line))

    collecting = asyncio.ensure_future(collect())
    rows = []
    try:
        for name in attacks:
            rows.append(await measure(name, bootstrap, seconds, cluster, samples))
            print(line_of(rows[-1]), flush=True)
    finally:
        process.kill()
        await process.wait()
        await collecting
    return rows


HEADER = (
    f"{'attack':<10} {'p50':>7} {'p99':>8} {'max':>8} {'retries':>7}"
    f" {'RSS':>7} {'after':>7} {'before':>7}  targets"
)


def line_of(row: Row) -> str:
    verdict = "met" if row.is_within_targets else "MISSED"
    if row.elections:
        verdict += ", another controller"
    return (
        f"{row.name:<10} {row.p50_ms:>4.0f} ms {row.p99_ms:>5.0f} ms {row.max_ms:>5.0f} ms"
        f" {row.failed:>7} {row.peak_mb:>4.0f} MB {row.after_mb:>4.0f} MB {row.before_mb:>4.0f} MB"
        f"  {verdict}"
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", help="host:port of one broker; else a cluster of our own")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each attack")
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("attacks", nargs="*", metavar="attack", help=", ".join(ATTACKS))
    options = parser.parse_args(arguments if arguments is not None else [])
    attacks = options.attacks or list(ATTACKS)
    if unknown := [name for name in attacks if name not in ATTACKS]:
        parser.error(f"no attack {unknown[0]!r}: there are {', '.join(ATTACKS)}")
    if options.bootstrap is not None:
        host, _, port = options.bootstrap.rpartition(":")
        address = host, int(port)
        if options.probe:
            asyncio.run(probe(address))
            return
        print(HEADER)
        asyncio.run(run(address, attacks, options.seconds, None))
        return
    with Cluster(brokers=3) as cluster:
        host, _, port = cluster.bootstrap_servers.split(",")[0].rpartition(":")
        print(HEADER)
        asyncio.run(run((host, int(port)), attacks, options.seconds, cluster))


if __name__ == "__main__":
    main(sys.argv[1:])
