"""Small clusters as load tables, written as a person would: who is where, and what it costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from odradek.balance.load import BROKER_LOAD, REPLICA_LOAD

LIVE = "live"


@dataclass(frozen=True)
class Part:
    """One partition: where it is, the preferred leader first, and its load."""

    topic: str
    number: int
    replicas: tuple[int, ...]
    size: int = 10**9
    rate: int = 0
    out: int = 0
    cpu: int = 0
    directory: str = "/data"


@dataclass(frozen=True)
class Node:
    """One broker; a capacity of 0 is not known."""

    id: int
    rack: str | None = None
    state: str = LIVE
    cores: float = 0.0
    net: int = 0
    disk: int = 0
    failed: tuple[str, ...] = ()


def replica_rows(parts: Sequence[Part]) -> list[dict[str, Any]]:
    return [
        {
            "topic": part.topic,
            "partition": part.number,
            "broker": broker,
            "rack": None,
            "role": 3 if place == 0 else 2,
            "place": place,
            "directory": part.directory,
            "size": part.size,
            "in": part.rate,
            "out_leader": part.out,
            "out_follower": 0,
            "cpu_leader": part.cpu,
            "cpu_follower": part.cpu // 4,
            "messages": 0,
            "windows": 1,
            "coverage": 1.0,
            "source": "measured",
        }
        for part in parts
        for place, broker in enumerate(part.replicas)
    ]


def broker_rows(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    return [
        {
            "broker": node.id,
            "rack": node.rack,
            "cores": node.cores,
            "net_capacity": node.net,
            "disk_capacity": node.disk,
            "disk_used": 0,
            "failed_directories": list(node.failed),
            "state": node.state,
            "source": "measured",
        }
        for node in nodes
    ]


# As a cluster is read: with the place of each replica in its assignment.
REPLICAS = REPLICA_LOAD.insert(5, pa.field("place", pa.int32()))


def tables(parts: Sequence[Part], nodes: Sequence[Node]) -> tuple[pa.Table, pa.Table]:
    return (
        pa.Table.from_pylist(replica_rows(parts), REPLICAS),
        pa.Table.from_pylist(broker_rows(nodes), BROKER_LOAD),
    )


def moved(parts: Sequence[Part], after: Mapping[tuple[str, int], Sequence[int]]) -> list[Part]:
    """The partitions after a plan; what is in failed directories has left them."""
    return [
        Part(
            part.topic,
            part.number,
            tuple(after[part.topic, part.number]),
            part.size,
            part.rate,
            part.out,
            part.cpu,
        )
        for part in parts
    ]
