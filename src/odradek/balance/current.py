"""The load of a running cluster, in the order that its assignment has: what a plan is made from.

What brokers publish and what the cluster says of itself make the load model (`load`). A plan needs
one thing more of each replica: its place among those of its partition, the preferred leader first.
Without telemetry there are sizes alone, and a plan levels disk and counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from odradek.balance.cluster import read_frames, read_placement
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
    return replace(model, replicas=in_places(model.replicas, assignment))


def in_places(replicas: pa.Table, assignment: Mapping[tuple[str, int], Iterable[int]]) -> pa.Table:
    """The rows with a column `place`. What was created, moved or deleted between two questions is
    left out: the next plan sees it."""
    place = {
        (*partition, broker): at
        for partition, brokers in assignment.items()
        for at, broker in enumerate(brokers)
    }
    keys = zip(
        *(replicas[name].to_pylist() for name in ("topic", "partition", "broker")), strict=True
    )
    found = pa.array([place.get(key) for key in keys], pa.int32())
    placed = replicas.append_column("place", found)
    return placed.filter(found.is_valid())
