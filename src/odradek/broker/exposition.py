"""Prometheus' text format 0.0.4: a table of metrics, and how their samples are written.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Generic, TypeAlias, TypeVar

from odradek.broker.histogram import BOUNDS_US, US_PER_S, Histogram

__all__ = ["CONTENT_TYPE", "Metric", "MetricType", "Sample", "label_text", "render"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

S = TypeVar("S")
# The values of the labels, and the value itself.
Sample: TypeAlias = tuple[tuple[str, ...], float | Histogram]


class MetricType(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Metric(Generic[S]):
    """One row of a table: what a metric is called and where its samples come from."""

    name: str
    type: MetricType
    labels: tuple[str, ...]
    help: str
    collect: Callable[[S], Iterable[Sample]]

    @property
    def series(self) -> tuple[str, ...]:
        """The names under which a query finds it."""
        if self.type is MetricType.HISTOGRAM:
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


@lru_cache(maxsize=8192)
def label_text(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """`{a="x",b="y"}`. Values may be fewer than names: the sum over all has no labels."""
    if not values:
        return ""
    pairs = ",".join(
        f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=False)
    )
    return f"{{{pairs}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def head(metric: Metric[S]) -> str:
    return f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.type.value}\n"


def render(metrics: Iterable[Metric[S]], source: S) -> str:
    """All the samples of a table, each metric under its head."""
    parts: list[str] = []
    for metric in metrics:
        parts.append(head(metric))
        name, labels = metric.name, metric.labels
        if metric.type is MetricType.HISTOGRAM:
            for values, value in metric.collect(source):
                assert isinstance(value, Histogram)
                parts.append(_histogram(name, labels, values, value))
        else:
            parts += [
                f"{name}{label_text(labels, values)} {value}\n"
                for values, value in metric.collect(source)
            ]
    return "".join(parts)


def _histogram(
    name: str, labels: tuple[str, ...], values: tuple[str, ...], histogram: Histogram
) -> str:
    bounds = [*(f"{bound / US_PER_S:g}" for bound in BOUNDS_US), "+Inf"]
    counts = histogram.cumulative()
    lines = [
        f"{name}_bucket{label_text((*labels, 'le'), (*values, bound))} {count}\n"
        for bound, count in zip(bounds, counts, strict=True)
    ]
    text = label_text(labels, values)
    lines.append(f"{name}_sum{text} {histogram.sum_us / US_PER_S}\n")
    lines.append(f"{name}_count{text} {counts[-1]}\n")
    return "".join(lines)
