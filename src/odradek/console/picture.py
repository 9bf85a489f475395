"""The last complete picture of a cluster, in columns: 100,000 partitions take a few megabytes.

Where the replicas of partitions are repeats, so each set of brokers is kept once and named by a
number. A new table is built beside the one that is served, in slices, and takes its place whole:
an answer never mixes two moments, and a refresh delays none.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from odradek.wire.messages.metadata import MetadataResponseTopic

Brokers = tuple[int, ...]


class PartitionState(NamedTuple):
    """One partition as a row."""

    topic: str
    p: int
    leader: int
    leader_epoch: int
    replicas: Brokers
    isr: Brokers
    offline: Brokers


class BrokerSets:
    """Sets of brokers, each kept once."""

    def __init__(self) -> None:
        self.sets: list[Brokers] = []
        self._numbers: dict[Brokers, int] = {}

    def number(self, brokers: Sequence[int]) -> int:
        key = tuple(brokers)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.sets)
            self.sets.append(key)
        return found


class PartitionTable:
    """Every partition of a cluster at one moment. Topics are sorted by name."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.internal = bytearray()
        self._sets = BrokerSets()
        # Where the partitions of topic i begin, and of the one after.
        self._first = array("I", [0])
        self._leader = array("i")
        self._epoch = array("i")
        self._replicas = array("I")
        self._isr = array("I")
        self._offline = array("I")

    def __len__(self) -> int:
        return len(self._leader)

    def append(self, topic: MetadataResponseTopic) -> None:
        """Topics must come in the order of their names."""
        number = self._sets.number
        self.names.append(topic.name or "")
        self.internal.append(bool(topic.is_internal))
        partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
        expected = 0
        for each in partitions:
            while expected < each.partition_index:  # a broker that does not know all of them yet
                self._append(-1, -1, number(()), number(()), number(()))
                expected += 1
            self._append(
                each.leader_id,
                each.leader_epoch,
                number(each.replica_nodes),
                number(each.isr_nodes),
                number(each.offline_replicas),
            )
            expected += 1
        self._first.append(len(self._leader))

    def _append(self, leader: int, epoch: int, *sets: int) -> None:
        self._leader.append(leader)
        self._epoch.append(epoch)
        self._replicas.append(sets[0])
        self._isr.append(sets[1])
        self._offline.append(sets[2])

    def find(self, name: str) -> int | None:
        """The number of a topic."""
        at = bisect_left(self.names, name)
        return at if at < len(self.names) and self.names[at] == name else None

    def partition_count(self, topic: int) -> int:
        return self._first[topic + 1] - self._first[topic]

    def partitions(self, topic: int) -> Iterator[PartitionState]:
        for row in range(self._first[topic], self._first[topic + 1]):
            yield self._state(topic, row)

    def partition(self, name: str, p: int) -> PartitionState | None:
        topic = self.find(name)
        if topic is None or not 0 <= p < self.partition_count(topic):
            return None
        return self._state(topic, self._first[topic] + p)

    def leader(self, name: str, p: int) -> int:
        """-1 if there is none, or no such partition."""
        topic = self.find(name)
        if topic is None or not 0 <= p < self.partition_count(topic):
            return -1
        return self._leader[self._first[topic] + p]

    def _state(self, topic: int, row: int) -> PartitionState:
        sets = self._sets.sets
        return PartitionState(
            self.names[topic],
            row - self._first[topic],
            self._leader[row],
            self._epoch[row],
            sets[self._replicas[row]],
            sets[self._isr[row]],
            sets[self._offline[row]],
        )

    def shape(self, row: int) -> tuple[int, Brokers, Brokers]:
        """Leader, replicas and ISR by row: for counts over the whole table."""
        sets = self._sets.sets
        return self._leader[row], sets[self._replicas[row]], sets[self._isr[row]]

    def rows(self, topic: int) -> range:
        return range(self._first[topic], self._first[topic + 1])


class BrokerCounts(NamedTuple):
    leads: int
    holds: int
    in_sync: int


class TopicCounts(NamedTuple):
    """What the list of topics shows, counted once for each table."""

    offline: "array[int]"
    under_replicated: "array[int]"
    replication: "array[int]"


class Counts:
    """Sums over a table, made in slices."""

    def __init__(self, table: PartitionTable, alive: Iterable[int]) -> None:
        self._table = table
        self._alive = frozenset(alive)
        self.brokers: dict[int, list[int]] = {}
        self.topics = TopicCounts(array("I"), array("I"), array("H"))
        self.offline = 0
        self.under_replicated = 0
        self.replicas = 0
        # The partitions with something wrong, as (topic number, partition).
        self.unhealthy: list[tuple[int, int]] = []

    def add(self, topic: int) -> None:
        table, alive, brokers = self._table, self._alive, self.brokers
        offline = under = 0
        replication = 0
        for p, row in enumerate(table.rows(topic)):
            leader, replicas, isr = table.shape(row)
            replication = max(replication, len(replicas))
            self.replicas += len(replicas)
            for id in replicas:
                brokers.setdefault(id, [0, 0, 0])[1] += 1
            for id in isr:
                brokers.setdefault(id, [0, 0, 0])[2] += 1
            if leader in alive:
                brokers.setdefault(leader, [0, 0, 0])[0] += 1
                if len(isr) < len(replicas):
                    under += 1
                    self.unhealthy.append((topic, p))
            else:
                offline += 1
                self.unhealthy.append((topic, p))
        self.offline += offline
        self.under_replicated += under
        self.topics.offline.append(offline)
        self.topics.under_replicated.append(under)
        self.topics.replication.append(replication)

    def of_broker(self, id: int) -> BrokerCounts:
        return BrokerCounts(*self.brokers.get(id, (0, 0, 0)))
