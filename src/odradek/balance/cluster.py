"""What a running cluster says about its load: its telemetry topic, its metadata, its disks."""

from collections.abc import Callable, Iterable

import pyarrow as pa

from odradek.balance.frames import disk_space
from odradek.balance.load import BROKER_LOAD, PLACEMENT
from odradek.client.admin import Admin
from odradek.client.client import Client
from odradek.client.producer import Producer
from odradek.client.reader import (
    EARLIEST,
    LATEST,
    PartitionReader,
    UndecodableBatch,
    offsets_at,
)
from odradek.client.values import LogDir, NewTopic
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.telemetry import (
    IN_SYNC,
    LEADS,
    TOPIC_CONFIG,
    TOPIC_PARTITIONS,
    TOPIC_REPLICAS_MAX,
    Frame,
    InvalidFrame,
    decode_frame,
    encode_frame,
)
from odradek.wire.topics import TELEMETRY_TOPIC, TopicPartition

__all__ = [
    "disk_columns",
    "read_frames",
    "read_log_dirs",
    "read_placement",
    "speaking",
    "write_frames",
]

UNKNOWN = -1


def _no_op(done: int, total: int) -> None:
    pass


async def read_frames(
    client: Client,
    since_ms: int,
    topic: str = TELEMETRY_TOPIC,
    progress: Callable[[int, int], None] = _no_op,
) -> list[bytes | None]:
    """The values of all records since then; none where there is no such topic, nor of partitions
    that have no leader now: what is known of the others is an answer, too. `progress` is told how
    many records were read, of how many."""
    metadata = await client.refresh(None)
    if topic not in metadata.topics:
        return []
    tps = [
        TopicPartition(topic, partition.id)
        for partition in metadata.topics[topic].partitions.values()
        if partition.leader >= 0
    ]
    ends = await offsets_at(client, dict.fromkeys(tps, LATEST))
    found = await offsets_at(client, dict.fromkeys(tps, since_ms))
    first = await offsets_at(client, dict.fromkeys(tps, EARLIEST))
    # -1 is a partition with nothing so late.
    begins = {tp: ends[tp].offset if at.offset < 0 else at.offset for tp, at in found.items()}
    begins = {tp: max(begin, first[tp].offset) for tp, begin in begins.items()}
    total = sum(max(0, ends[tp].offset - begins[tp]) for tp in tps)
    reader = PartitionReader(client)
    values: list[bytes | None] = []
    for tp in tps:
        async for batches in reader.batches(tp, begins[tp], ends[tp].offset):
            damaged: list[UndecodableBatch] = []
            values += (record.value for record in batches.open(skip=damaged.append))
            values += [None] * len(damaged)
            progress(len(values), total)
    return values


def speaking(values: Iterable[bytes | None]) -> set[int]:
    """The brokers that measure themselves, by frames that are theirs and not estimated."""
    brokers = set()
    for value in values:
        try:
            frame = decode_frame(value or b"")
        except InvalidFrame:
            continue
        if not frame.is_estimated:
            brokers.add(frame.broker)
    return brokers


async def write_frames(client: Client, frames: Iterable[Frame], topic: str) -> None:
    """Creates the topic if there is none, as brokers do. Raises if a frame is not acknowledged."""
    metadata = await client.refresh(None)
    if topic not in metadata.topics:
        admin = Admin(client)
        copies = min(TOPIC_REPLICAS_MAX, len(metadata.nodes))
        outcomes = await admin.create_topics(
            [NewTopic(topic, TOPIC_PARTITIONS, copies, configs=TOPIC_CONFIG)]
        )
        if (error := outcomes[topic]) and error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error
    count = len((await client.require_topics([topic])).topics[topic].partitions)
    # By all replicas: what was said to be written is read by whatever comes next.
    async with Producer(client, codec=Codec.ZSTD) as producer:
        for frame in frames:
            await producer.send(
                topic,
                encode_frame(frame),
                key=frame.broker.to_bytes(4, "big"),
                partition=frame.broker % count,
                timestamp_ms=frame.to_ms,
            )


async def read_log_dirs(admin: Admin) -> dict[int, list[LogDir]]:
    """Of every broker that answers."""
    found: dict[int, list[LogDir]] = {}
    for broker in sorted((await admin.client.refresh()).nodes):
        try:
            found |= await admin.describe_log_dirs([broker])
        except (KafkaError, OSError, TimeoutError):
            found[broker] = []
    return found


async def read_placement(admin: Admin) -> tuple[pa.Table, pa.Table]:
    """Every replica with its size and directory, and every broker that is alive or should be."""
    topics = await admin.describe_topics()
    nodes = {node.id: node for node in (await admin.describe_cluster()).nodes}
    disks = await read_log_dirs(admin)
    sizes = {
        (replica.partition, broker): (replica.size_bytes, directory.path)
        for broker, directories in disks.items()
        for directory in directories
        for replica in directory.replicas
        if not replica.is_future
    }
    rows, mentioned = [], set(nodes)
    for name, topic in topics.items():
        for partition in topic.partitions.values():
            for broker in partition.replicas:
                size, path = sizes.get(
                    (TopicPartition(name, partition.id), broker), (UNKNOWN, None)
                )
                rows.append(
                    {
                        "topic": name,
                        "partition": partition.id,
                        "broker": broker,
                        "rack": nodes[broker].rack if broker in nodes else None,
                        "role": LEADS * (broker == partition.leader)
                        | IN_SYNC * (broker in partition.isr),
                        "directory": path,
                        "size": size,
                    }
                )
                mentioned.add(broker)
    brokers = [
        {
            "broker": broker,
            "rack": nodes[broker].rack if broker in nodes else None,
            "cores": 0.0,
            "net_capacity": 0,
            **disk_columns(disks.get(broker, [])),
            "state": "live" if broker in nodes else "dead",
            "source": "size",
        }
        for broker in sorted(mentioned)
    ]
    return pa.Table.from_pylist(rows, PLACEMENT), pa.Table.from_pylist(brokers, BROKER_LOAD)


def disk_columns(directories: list[LogDir]) -> dict[str, object]:
    """What a broker's row in the table of brokers says of its disks."""
    live = [each for each in directories if each.error is None]
    capacity, free = disk_space(
        (max(0, each.total_bytes), max(0, each.usable_bytes)) for each in live
    )
    held = sum(replica.size_bytes for each in live for replica in each.replicas)
    return {
        "disk_capacity": capacity,
        "disk_used": capacity - free if capacity else held,
        "failed_directories": [each.path for each in directories if each.error is not None],
    }
