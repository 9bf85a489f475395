"""Bytes, records and requests by topic: what clients write and read, apart from replication.

A topic gets counters of its own when records of it are first written or read, up to a limit; later
ones share those of OTHER. A topic never changes sides and is never forgotten, not even when it is
deleted, so no counter ever falls. What fails makes no counters: clients can name any topic.
docs/spec/console.md section 5.

A partition has counters of its own for telemetry, which live as long as its replica here.
"""

from collections.abc import Iterator
from operator import attrgetter

__all__ = ["OTHER", "TOPICS_MAX", "PartitionCounters", "TopicCounters", "Traffic"]

# No topic can be called this.
OTHER = "(other)"
TOPICS_MAX = 1_000


class TopicCounters:
    """Of one topic on one broker. Only ever added to."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "produces",
        "records_in",
    )

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        # A request counts once for each partition that it names, as in Kafka.
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0


class PartitionCounters:
    """Of one replica on this broker. Only ever added to: what was sent and received in a while is
    the difference between two readings."""

    __slots__ = ("bytes_in", "bytes_out", "follower_out", "messages", "reported", "requests")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.follower_out = 0
        self.messages = 0
        # Of producers and consumers.
        self.requests = 0
        # The reading that telemetry has published last, with the size of the log.
        self.reported: tuple[int, ...] | None = None

    def reading(self, size: int) -> tuple[int, ...]:
        return (
            self.bytes_in,
            self.bytes_out,
            self.follower_out,
            self.messages,
            self.requests,
            size,
        )


class Traffic:
    """The counters of all topics of one broker, and of the replication between brokers."""

    def __init__(self, topics_max: int = TOPICS_MAX) -> None:
        self._topics_max = topics_max
        self._topics: dict[str, TopicCounters] = {}
        # Failures of topics that have no counters, or that do not exist.
        self._unknown = TopicCounters()
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def of(self, topic: str) -> TopicCounters:
        """The counters of a topic that is hosted here and in use."""
        found = self._topics.get(topic)
        if found is None:
            has_room = len(self._topics) < self._topics_max
            name = topic if has_room else OTHER
            found = self._topics.setdefault(name, TopicCounters())
        return found

    def produce_failed(self, topic: str, byte_count: int) -> None:
        counters = self._topics.get(topic, self._unknown)
        counters.produces += 1
        counters.failed_produces += 1
        counters.bytes_rejected += byte_count

    def fetch_failed(self, topic: str) -> None:
        counters = self._topics.get(topic, self._unknown)
        counters.fetches += 1
        counters.failed_fetches += 1

    def topics(self) -> Iterator[tuple[str, TopicCounters]]:
        return iter(self._topics.items())

    def total(self, name: str) -> int:
        """One counter over all topics, those without counters of their own included."""
        count = attrgetter(name)
        total: int = count(self._unknown) + sum(map(count, self._topics.values()))
        return total

    def statistics(self) -> dict[str, int]:
        return {
            **{name: self.total(name) for name in TopicCounters.__slots__},
            "replication_bytes_in": self.replication_bytes_in,
            "replication_bytes_out": self.replication_bytes_out,
            "topics": len(self._topics),
        }
