"""One cluster of Apache Kafka's brokers and ours on one ZooKeeper, and what must hold in it.

A member is a broker id, a port and a data directory; which of the two programs serves them can be
changed while it is stopped (`become`), since they keep the same files.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from odradek.client import Admin, Blocking, ElectionType, NewTopic, check
from odradek.cluster import _free_ports as free_ports
from odradek.cluster import ask
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from odradek.wire.topics import TopicPartition
from peers.kafka import QUICK_START, KafkaBroker
from peers.ours import OurBroker

HOST = "127.0.0.1"
TIMEOUT_S = 60.0
POLL_S = 0.05
METADATA_VERSION = 9


class Kind(Enum):
    """Whose program a member runs."""

    APACHE = "apache"
    OURS = "ours"


APACHE, OURS = Kind.APACHE, Kind.OURS

SETTINGS: Mapping[str, object] = {
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


class NotInTime(AssertionError):
    """Something that should have come did not."""


def wait_until(holds: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Look again and again until it holds."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise NotInTime(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(POLL_S)


class MixedCluster:
    """Members by broker id. Nothing runs until `start`."""

    def __init__(
        self,
        zookeeper: str,
        directory: Path,
        members: Mapping[int, Kind],
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """`zookeeper` is host:port/chroot, a chroot that nobody else uses."""
        self.zookeeper = zookeeper
        self.directory = directory
        self.kinds = dict(members)
        self.ports = dict(zip(members, free_ports(len(members)), strict=True))
        self._settings = {**SETTINGS, **(settings or {})}
        self.brokers = {broker: self._member(broker, kind) for broker, kind in members.items()}
        self._nodes = KazooClient(hosts=zookeeper)
        self._nodes.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self._nodes.stop()
        self._nodes.close()

    # Members

    def _member(self, broker: int, kind: Kind) -> KafkaBroker | OurBroker:
        port, home = self.ports[broker], self.directory_of(broker)
        if kind is OURS:
            return OurBroker(broker, port, self.zookeeper, home, self._settings)
        return KafkaBroker(broker, port, self.zookeeper, home, self._settings, jvm=QUICK_START)

    def directory_of(self, broker: int) -> Path:
        return self.directory / f"broker-{broker}"

    def of_kind(self, kind: Kind) -> list[int]:
        return [broker for broker, its in self.kinds.items() if its is kind]

    def running(self) -> list[int]:
        return [broker for broker, member in self.brokers.items() if member.is_running]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def address(self, broker: int) -> str:
        return self.brokers[broker].address

    def start(self, *ids: int) -> None:
        """Start members, and wait until every running one knows every other."""
        for broker in ids or tuple(self.brokers):
            self._wait_for_its_session(broker)
            self.brokers[broker].start()
        wait_until(self._is_complete, f"brokers {self.running()} to know each other")

    def stop(self, broker: int) -> None:
        """A clean stop: the member hands its leaderships over first."""
        self.brokers[broker].stop()

    def kill(self, broker: int) -> None:
        """kill -9."""
        self.brokers[broker].kill()

    def become(self, broker: int, kind: Kind) -> None:
        """The same id, port and directory, served by the other program from now on."""
        assert not self.brokers[broker].is_running
        self.kinds[broker] = kind
        self.brokers[broker] = self._member(broker, kind)

    def _wait_for_its_session(self, broker: int) -> None:
        """Kafka gives up when its id is still registered, so the old session must be over."""
        node = f"/brokers/ids/{broker}"
        wait_until(lambda: self._nodes.exists(node) is None, f"{node} to go")

    def _is_complete(self) -> bool:
        for broker, member in self.brokers.items():
            if not member.is_running and broker in self.running():
                raise AssertionError(f"broker {broker} ended by itself: see {member.log}")
        running = self.running()
        views = [self.metadata(broker) for broker in running]
        return all(
            view is not None
            and view.controller_id in running
            and sorted(node.node_id for node in view.brokers) == sorted(running)
            for view in views
        )

    # What the cluster says of itself

    def metadata(self, broker: int, *topics: str) -> MetadataResponse | None:
        """One member's view; None if it does not answer."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
        )
        try:
            return ask(HOST, self.ports[broker], request, METADATA_VERSION, MetadataResponse)
        except OSError:
            return None

    def partitions(self, topic: str, broker: int | None = None) -> list[MetadataResponsePartition]:
        """A topic's partitions as one member sees them; none if it does not know the topic."""
        view = self.metadata(broker or self.running()[0], topic)
        return list(view.topics[0].partitions) if view is not None else []

    def controller(self) -> int | None:
        """Who holds the office, according to ZooKeeper."""
        try:
            data, _ = self._nodes.get("/controller")
        except NoNodeError:
            return None
        return int(json.loads(data)["brokerid"])

    def exists(self, node: str) -> bool:
        return self._nodes.exists(node) is not None

    def make_controller(self, broker: int) -> None:
        """End the term of whoever is controller, and hold the others back until it is this one."""
        wait_until(lambda: self.controller() is not None, "a controller")
        if self.controller() != broker:
            rivals = [self.brokers[other] for other in self.running() if other != broker]
            for rival in rivals:
                rival.pause()  # shorter than a session
            try:
                self._nodes.delete("/controller")
                wait_until(lambda: self.controller() == broker, f"controller {broker}", 2)
            finally:
                for rival in rivals:
                    rival.resume()
        wait_until(self._is_complete, "everybody to know the new controller")

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

    def lead(self, topic: str, broker: int) -> None:
        """Make a member the preferred replica and the leader of all its partitions of a topic."""
        orders = {
            TopicPartition(topic, number): [broker, *(set(replicas) - {broker})]
            for number, (replicas, _) in self.states(topic).items()
            if broker in replicas
        }
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
                if broker in part.replica_nodes
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
