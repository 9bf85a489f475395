"""The load of a running cluster, in the order that its assignment has: what a plan is made from.

What brokers publish and what the cluster says of itself make the load model (`load`). A plan needs
two things more of each replica: its place among those of its partition, the preferred leader first,
and the bytes that a copy of it has, while the model's size is that of a few hours later.
Without telemetry there are sizes alone, and a plan levels disk and counts.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from odradek.balance.cluster import UNKNOWN, read_frames, read_placement
from odradek.balance.frames import decode_frames
from odradek.balance.load import LoadModel, load_table
from odradek.client.admin import Admin
from odradek.wire.topics import TELEMETRY_TOPIC

DAY_MS = 24 * 3_600_000


async def current_load(
    admin: Admin, now_ms: int, telemetry_topic: str = TELEMETRY_TOPIC
) -> LoadModel:
    """The load of the last day; the frames of longer ago do not count."""
    values = await read_frames(admin.client, now_ms - DAY_MS, telemetry_topic)
    placement, brokers = await read_placement(admin)
    topics = await admin.describe_topics()
    assignment = {
        (name, partition.id): partition.replicas
        for name, topic in topics.items()
        for partition in topic.partitions.values()
    }
    model = load_table(decode_frames(values), placement, brokers)
    return replace(model, replicas=as_stored(in_places(model.replicas, assignment), placement))


def in_places(replicas: pa.Table, assignment: Mapping[tuple[str, int], Iterable[int]]) -> pa.Table:
    """The rows with a column `place`. What was created, moved or deleted between two questions is
    left out: the next plan sees it."""
    place = {
        (*partition, broker): at
        for partition, brokers in assignment.items()
        for at, broker in enumerate(brokers)
    }
    found = pa.array([place.get(key) for key in _keys(replicas)], pa.int32())
    placed = replicas.append_column("place", found)
    return placed.filter(found.is_valid())


def as_stored(replicas: pa.Table, placement: pa.Table) -> pa.Table:
    """The rows with a column `stored`, the size that the placement has. A silent broker's replica
    has the size of its partition's largest; where none is known, that of the model."""
    sizes = dict(zip(_keys(placement), placement["size"].to_pylist(), strict=True))
    largest: dict[tuple[str, int], int] = {}
    for (topic, partition, _), size in sizes.items():
        largest[topic, partition] = max(size, largest.get((topic, partition), UNKNOWN))

    def known(topic: str, partition: int, broker: int) -> int | None:
        size = sizes.get((topic, partition, broker), UNKNOWN)
        size = size if size >= 0 else largest.get((topic, partition), UNKNOWN)
        return size if size >= 0 else None

    stored = pa.array([known(*key) for key in _keys(replicas)], pa.int64())
    return replicas.append_column("stored", pc.coalesce(stored, replicas["size"]))


def _keys(table: pa.Table) -> Iterator[tuple[str, int, int]]:
    topics, partitions, brokers = (table[name] for name in ("topic", "partition", "broker"))
    return zip(topics.to_pylist(), partitions.to_pylist(), brokers.to_pylist(), strict=True)
