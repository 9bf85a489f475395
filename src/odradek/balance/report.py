"""Who bears what, for people: the load model summed by broker, by topic and by partition."""

from collections.abc import Callable, Iterable
from typing import Any

from odradek.balance.load import LoadModel
from odradek.wire.telemetry import LEADS

__all__ = ["RESOURCES", "by_broker", "by_partition", "by_topic", "sources"]

RESOURCES = ("cpu", "in", "out", "disk", "messages")
MICRO = 1_000_000
Row = dict[str, Any]


def by_broker(model: LoadModel, by: str) -> list[Row]:
    """Every broker, the one with the most of `by` first; `share` is 1 for the mean."""
    known = {row["broker"]: row for row in model.brokers.to_pylist()}
    sums = _summed(_borne(model), lambda row: row["broker"])
    rows = [
        {
            "broker": broker,
            **_amounts(sums.get(broker, {})),
            **{
                name: known.get(broker, {}).get(name)
                for name in ("rack", "state", "cores", "net_capacity", "disk_capacity", "source")
            },
        }
        for broker in sorted(known.keys() | sums.keys())
    ]
    mean = sum(row[by] for row in rows) / len(rows) if rows else 0
    for row in rows:
        row["share"] = round(row[by] / mean, 3) if mean else 0.0
    return sorted(rows, key=lambda row: (-row[by], row["broker"]))


def by_topic(model: LoadModel, by: str) -> list[Row]:
    """All replicas of a topic together."""
    sums = _summed(_borne(model), lambda row: row["topic"])
    rows = [{"topic": topic, **_amounts(each)} for topic, each in sums.items()]
    return sorted(rows, key=lambda row: (-row[by], row["topic"]))


def by_partition(model: LoadModel, by: str, topic: str | None = None) -> list[Row]:
    """The leader's part of each partition."""
    rows = [
        {
            "topic": row["topic"],
            "partition": row["partition"],
            "leader": row["broker"],
            **_amounts(row),
            "windows": row["windows"],
            "source": row["source"],
        }
        for row in _borne(model)
        if row["leaders"] and topic in (None, row["topic"])
    ]
    return sorted(rows, key=lambda row: (-row[by], row["topic"], row["partition"]))


def sources(model: LoadModel) -> dict[str, int]:
    """How many replicas have their load from where."""
    counts: dict[str, int] = {}
    for source in model.replicas["source"].to_pylist():
        counts[source] = counts.get(source, 0) + 1
    return counts


def _borne(model: LoadModel) -> Iterable[Row]:
    """What each replica costs its broker in the role it has."""
    for row in model.replicas.to_pylist():
        leads = bool(row["role"] & LEADS)
        yield {
            **row,
            "cpu": row["cpu_leader" if leads else "cpu_follower"],
            "out": row["out_leader"] if leads else row["out_follower"],
            "disk": row["size"],
            "messages": row["messages"] if leads else 0,
            "replicas": 1,
            "leaders": int(leads),
        }


def _summed(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, Row]:
    sums: dict[Any, Row] = {}
    for row in rows:
        to = sums.setdefault(key(row), dict.fromkeys((*RESOURCES, "replicas", "leaders"), 0))
        for name in to:
            to[name] += row[name]
    return sums


def _amounts(row: Row) -> Row:
    """`cpu` is in cores, the rest in bytes, and a second where it flows."""
    amounts = {name: row.get(name, 0) for name in (*RESOURCES, "replicas", "leaders")}
    return {**amounts, "cpu": amounts["cpu"] / MICRO}
