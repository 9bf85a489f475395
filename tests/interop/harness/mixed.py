"""One cluster of Apache Kafka's brokers and ours on one ZooKeeper, and what must hold in it.

A member is a broker id, a port and a data directory; which of the two programs serves them can be
changed while it is stopped (`become`), since they keep the same files.
"""

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.interop.harness.kafka import (
    KAFKA_3_9,
    OLDEST_PROTOCOL,
    QUICK_START,
    KafkaBroker,
    wait_until_unregistered,
)
from tests.interop.harness.members import TIMEOUT_S, Members, NotInTime, wait_until
from tests.interop.harness.ours import OurBroker
from tests.interop.harness.processes import Member

from odradek.client import Admin, Blocking, ElectionType, NewTopic, check
from odradek.testing.cluster import _free_ports as free_ports
from odradek.wire.topics import TopicPartition

ELECTION_S = 1.5


class Kind(Enum):
    """Whose program a member runs."""

    APACHE = "apache"
    OURS = "ours"


APACHE, OURS = Kind.APACHE, Kind.OURS

PROTOCOL = "inter.broker.protocol.version"
# What mixed clusters are tried at: before and after each change of behaviour between brokers.
PROTOCOLS = (OLDEST_PROTOCOL, "2.8", "3.1", "3.5", "3.9")

SETTINGS: Mapping[str, object] = {
    PROTOCOL: OLDEST_PROTOCOL,
    "zookeeper.session.timeout.ms": 3000,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 3,
    "min.insync.replicas": 1,
    "group.initial.rebalance.delay.ms": 0,
    "controlled.shutdown.retry.backoff.ms": 1000,
    "replica.fetch.backoff.ms": 200,
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
}


class MixedCluster(Members[Member]):
    """Members by broker id. Nothing runs until `start`."""

    def __init__(
        self,
        zookeeper: str,
        directory: Path,
        members: Mapping[int, Kind],
        settings: Mapping[str, object] | None = None,
        ports: Iterable[int] | None = None,
        kafka: Path = KAFKA_3_9,
    ) -> None:
        """`zookeeper` is host:port/chroot, a chroot that nobody else uses; `kafka` is the version
        of Apache Kafka."""
        self._kafka = kafka
        self.zookeeper = zookeeper
        self.directory = directory
        self.kinds = dict(members)
        self.ports = dict(zip(members, ports or free_ports(len(members)), strict=True))
        self._settings = {**SETTINGS, **(settings or {})}
        self._upgraded: dict[int, str] = {}
        super().__init__({broker: self._member(broker, kind) for broker, kind in members.items()})
        self._nodes = KazooClient(hosts=zookeeper)
        self._nodes.start()

    def close(self) -> None:
        super().close()
        self._nodes.stop()
        self._nodes.close()

    # Members

    def _member(self, broker: int, kind: Kind) -> Member:
        port, home = self.ports[broker], self.directory_of(broker)
        settings = {
            **self._settings,
            PROTOCOL: self._upgraded.get(broker, str(self._settings[PROTOCOL])),
        }
        if kind is OURS:
            return OurBroker(broker, port, self.zookeeper, home, settings)
        return KafkaBroker(
            broker, port, self.zookeeper, home, settings, jvm=QUICK_START, version=self._kafka
        )

    def directory_of(self, broker: int) -> Path:
        return self.directory / f"broker-{broker}"

    def of_kind(self, kind: Kind) -> list[int]:
        return [broker for broker, its in self.kinds.items() if its is kind]

    def start(self, *ids: int) -> None:
        """Start members, and wait until every running one knows every other."""
        for broker in ids:
            wait_until_unregistered(self._nodes, broker)
        super().start(*ids)

    def become(self, broker: int, kind: Kind) -> None:
        """The same id, port and directory, served by the other program from now on."""
        assert not self.brokers[broker].is_running
        self.kinds[broker] = kind
        self.brokers[broker] = self._member(broker, kind)

    def upgrade(self, broker: int, protocol: str) -> None:
        """The same member, which speaks another inter-broker protocol from its next start on."""
        assert not self.brokers[broker].is_running
        self._upgraded[broker] = protocol
        self.brokers[broker] = self._member(broker, self.kinds[broker])

    # What the cluster says of itself

    def controller(self) -> int | None:
        """The active controller, according to ZooKeeper."""
        try:
            data, _ = self._nodes.get("/controller")
        except NoNodeError:
            return None
        return int(json.loads(data)["brokerid"])

    def exists(self, node: str) -> bool:
        return self._nodes.exists(node) is not None

    def topic_id(self, topic: str) -> str | None:
        """What the topic's node has; the id's text as Kafka writes it."""
        found = json.loads(self._nodes.get(f"/brokers/topics/{topic}")[0]).get("topic_id")
        return None if found is None else str(found)

    def child_changes(self, node: str) -> int:
        """How many children were ever created or deleted below a node."""
        return int(self._nodes.get(node)[1].cversion)

    def make_controller(self, broker: int) -> None:
        """End the term of whoever is controller until it is this one."""
        wait_until(lambda: self.controller() is not None, "a controller")
        wait_until(lambda: self._try_controller(broker), f"controller {broker}")
        self.wait_until_known()

    def _try_controller(self, broker: int) -> bool:
        """One election, for which the others are held back: for less than a session."""
        if self.controller() == broker:
            return True
        rivals = [self.brokers[other] for other in self.running() if other != broker]
        for rival in rivals:
            rival.pause()
        try:
            self._nodes.delete("/controller")
            wait_until(lambda: self.controller() == broker, f"controller {broker}", ELECTION_S)
        except (NoNodeError, NotInTime):
            return False
        finally:
            for rival in rivals:
                rival.resume()
        return True

    # What is done to it

    def admin(self) -> Blocking:
        return Blocking([self.address(broker) for broker in self.running()], timeout_s=30)

    def create_topic(
        self, topic: str, assignment: Mapping[int, Iterable[int]], **configs: str
    ) -> None:
        """A topic with these replicas; names of settings with underscores."""
        names = {name.replace("_", "."): value for name, value in configs.items()}
        placed = {partition: list(replicas) for partition, replicas in assignment.items()}
        new = NewTopic(topic, assignment=placed, configs=names)
        with self.admin() as client:
            check(client.run(client.admin.create_topics([new])))
        self.wait_for_topic(topic)

    def wait_for_topic(self, topic: str) -> None:
        """Until a topic's replicas are in sync and every running member knows its leaders."""
        wait_until(lambda: self.exists(f"/brokers/topics/{topic}"), f"the topic {topic}")
        self.wait_for_isr(topic)
        wait_until(
            lambda: all(
                parts and all(part.leader_id >= 0 for part in parts)
                for broker in self.running()
                for parts in [self.partitions(topic, broker)]
            ),
            f"every broker to know {topic}",
        )

    def wait_for_isr(self, topic: str, timeout_s: float = TIMEOUT_S) -> None:
        """Until every running replica is in sync and one of them leads, according to ZooKeeper:
        brokers hear of an ISR that grew only seconds later."""

        def in_sync() -> bool:
            running = set(self.running())
            return all(
                state["leader"] in running and set(state["isr"]) == set(replicas) & running
                for replicas, state in self.states(topic).values()
            )

        wait_until(in_sync, f"all replicas of {topic} in sync", timeout_s)

    def states(self, topic: str) -> dict[int, tuple[list[int], dict[str, Any]]]:
        """Each partition's replicas and its state node; an empty state has nobody in it."""
        node = f"/brokers/topics/{topic}"
        assignment = json.loads(self._nodes.get(node)[0])["partitions"]
        states: dict[int, tuple[list[int], dict[str, Any]]] = {}
        for partition, replicas in assignment.items():
            try:
                state = json.loads(self._nodes.get(f"{node}/partitions/{partition}/state")[0])
            except NoNodeError:
                state = {"leader": -1, "isr": []}
            states[int(partition)] = (replicas, state)
        return states

    def lead(self, topic: str, order: list[int]) -> None:
        """Put a topic's replicas into this order and elect the first, the preferred one."""
        broker = order[0]
        orders = {TopicPartition(topic, number): order for number in self.states(topic)}
        with self.admin() as client:
            check(client.run(client.admin.alter_reassignments(orders)))
            wait_until(lambda: not self.ongoing(client.admin, client), "the new order")
            moving = [
                partition
                for partition in orders
                if self.states(topic)[partition.partition][1]["leader"] != broker
            ]
            if moving:
                check(client.run(client.admin.elect_leaders(ElectionType.PREFERRED, moving)))
        wait_until(
            lambda: all(
                part.leader_id == broker
                for each in self.running()
                for part in self.partitions(topic, each)
            ),
            f"broker {broker} to lead {topic}",
        )

    def ongoing(self, admin: Admin, client: Blocking) -> bool:
        return bool(client.run(admin.list_reassignments()))

    def reassign(self, topic: str, targets: Mapping[int, list[int]]) -> None:
        """Begin to move partitions; `wait_for_move` waits for the end."""
        moves = {TopicPartition(topic, part): where for part, where in targets.items()}
        with self.admin() as client:
            check(client.run(client.admin.alter_reassignments(moves)))

    def wait_for_move(self, topic: str, targets: Mapping[int, list[int]]) -> None:
        def moved() -> bool:
            states = self.states(topic)
            return not self._nodes.exists("/admin/reassign_partitions") and all(
                states[partition][0] == where and set(states[partition][1]["isr"]) == set(where)
                for partition, where in targets.items()
            )

        def known() -> bool:
            return all(
                part.replica_nodes == targets[part.partition_index]
                for broker in self.running()
                for part in self.partitions(topic, broker)
                if part.partition_index in targets
            )

        wait_until(moved, f"{topic} on {dict(targets)}")
        wait_until(known, f"everybody to know that {topic} is on {dict(targets)}")

    # What is on disk

    def log_bytes(self, broker: int, topic: str, partition: int) -> bytes:
        """A replica's records, all segments joined."""
        home = self.directory_of(broker) / f"{topic}-{partition}"
        return b"".join(segment.read_bytes() for segment in sorted(home.glob("*.log")))

    def check_logs_are_equal(self, topic: str) -> int:
        """Every replica of every partition has the same bytes; how many there are."""
        self.wait_for_isr(topic)
        total = 0
        for partition, (replicas, _) in self.states(topic).items():
            logs = [self.log_bytes(broker, topic, partition) for broker in replicas]
            sizes = dict(zip(replicas, map(len, logs), strict=True))
            assert logs.count(logs[0]) == len(logs), f"{topic}-{partition}: {sizes}"
            total += len(logs[0])
        return total
