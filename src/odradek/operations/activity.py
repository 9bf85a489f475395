"""What a cluster is doing: rates and request times, from the metrics that our brokers serve.

Two readings of every broker's `/metrics` make an `Activity`. A broker that cannot be read, or that
is Apache Kafka's and has no such listener, is in it without figures.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek.client.admin import Admin
from odradek.operations.broker_http import HttpAddress, get_text, http_addresses

__all__ = ["Activity", "BrokerActivity", "Reading", "TopicActivity", "compare", "read_brokers"]

QUANTILE = 0.99
# The last bound of the brokers' histograms.
SECONDS_MAX = 10.0
TOPICS = "kafka_server_brokertopicmetrics"
REPLICAS = "kafka_server_replicamanager"

_LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Reading:
    """The samples of the brokers that could be read, at one moment of the event loop's clock."""

    at_s: float
    brokers: Mapping[int, Mapping[str, Mapping[Labels, float]] | None]


@dataclass(frozen=True)
class BrokerActivity:
    """One broker between two readings; rates are per second."""

    records_in: float
    bytes_in: float
    bytes_out: float
    requests: float
    errors: float
    produce_ms_p99: float | None
    fetch_ms_p99: float | None
    loop_lag_ms_p99: float | None
    leaders: int
    under_replicated: int


@dataclass(frozen=True)
class TopicActivity:
    """One topic over all brokers, per second."""

    records_in: float
    bytes_in: float
    bytes_out: float


@dataclass(frozen=True)
class Activity:
    """A cluster between two readings. A broker without figures is None."""

    seconds: float
    brokers: Mapping[int, BrokerActivity | None] = field(default_factory=dict)
    topics: Mapping[str, TopicActivity] = field(default_factory=dict)


async def read_brokers(admin: Admin) -> Reading:
    """Ask every broker. Raises only if no broker answers at all."""
    addresses = await http_addresses(admin)
    samples = await asyncio.gather(*map(_read, addresses.values()))
    return Reading(asyncio.get_running_loop().time(), dict(zip(addresses, samples, strict=True)))


async def _read(address: HttpAddress | None) -> Mapping[str, Mapping[Labels, float]] | None:
    if address is None:
        return None
    try:
        return parse_samples(await get_text(address, "/metrics"))
    except (OSError, TimeoutError):
        return None


def parse_samples(text: str) -> dict[str, dict[Labels, float]]:
    """Prometheus text as our brokers write it: name, labels in their order, value."""
    samples: dict[str, dict[Labels, float]] = {}
    for line in text.splitlines():
        found = None if line.startswith("#") else _LINE.fullmatch(line)
        if found is not None:
            labels = tuple(_LABEL.findall(found[2])) if found[2] else ()
            samples.setdefault(found[1], {})[labels] = float(found[3])
    return samples


def compare(before: Reading, after: Reading) -> Activity:
    """What happened between two readings. A broker that restarted meanwhile has no figures."""
    seconds = max(after.at_s - before.at_s, 1e-9)
    brokers: dict[int, BrokerActivity | None] = {}
    topics: dict[str, list[float]] = {}
    for id, now in after.brokers.items():
        earlier = before.brokers.get(id)
        if now is None or earlier is None or _started(now) != _started(earlier):
            brokers[id] = None
            continue
        change = _Change(earlier, now, seconds)
        brokers[id] = _broker(change, now)
        for labels in now.get(f"{TOPICS}_bytesin_total", {}):
            if labels:
                sums = topics.setdefault(labels[0][1], [0.0, 0.0, 0.0])
                for index, name in enumerate(("messagesin", "bytesin", "bytesout")):
                    sums[index] += change.rate(f"{TOPICS}_{name}_total", labels)
    return Activity(
        seconds, brokers, {name: TopicActivity(*sums) for name, sums in sorted(topics.items())}
    )


class _Change:
    """How counters of one broker have grown."""

    def __init__(
        self,
        before: Mapping[str, Mapping[Labels, float]],
        after: Mapping[str, Mapping[Labels, float]],
        seconds: float,
    ) -> None:
        self._before = before
        self._after = after
        self._seconds = seconds

    def rate(self, name: str, labels: Labels = ()) -> float:
        return self._growth(name, labels) / self._seconds

    def total_rate(self, name: str) -> float:
        growths = (self._growth(name, labels) for labels in self._after.get(name, {}))
        return sum(growths) / self._seconds

    def _growth(self, name: str, labels: Labels) -> float:
        now = self._after.get(name, {}).get(labels, 0.0)
        return now - self._before.get(name, {}).get(labels, 0.0)

    def quantile_ms(self, name: str, labels: Labels = ()) -> float | None:
        """The bucket of a histogram in which the quantile is; None if nothing was counted."""
        buckets = [
            (float(found[-1][1]), self._growth(f"{name}_bucket", found))
            for found in self._after.get(f"{name}_bucket", {})
            if found[:-1] == labels
        ]
        total = max((count for _, count in buckets), default=0.0)
        reached = [bound for bound, count in sorted(buckets) if count >= QUANTILE * total]
        # What is above the last bound is at least that.
        return 1000 * min(reached[0], SECONDS_MAX) if total and reached else None


def _broker(change: _Change, now: Mapping[str, Mapping[Labels, float]]) -> BrokerActivity:
    def gauge(name: str) -> int:
        return int(now.get(name, {}).get((), 0))

    return BrokerActivity(
        records_in=change.rate(f"{TOPICS}_messagesin_total"),
        bytes_in=change.rate(f"{TOPICS}_bytesin_total"),
        bytes_out=change.rate(f"{TOPICS}_bytesout_total"),
        requests=change.total_rate("kafka_network_requestmetrics_requests_total"),
        errors=change.total_rate("odradek_request_errors_total"),
        produce_ms_p99=change.quantile_ms("odradek_request_seconds", (("api", "Produce"),)),
        fetch_ms_p99=change.quantile_ms("odradek_request_seconds", (("api", "Fetch"),)),
        loop_lag_ms_p99=change.quantile_ms("odradek_loop_lag_seconds"),
        leaders=gauge(f"{REPLICAS}_leadercount"),
        under_replicated=gauge(f"{REPLICAS}_underreplicatedpartitions"),
    )


def _started(samples: Mapping[str, Mapping[Labels, float]]) -> Iterable[float]:
    return list(samples.get("process_start_time_seconds", {}).values())
