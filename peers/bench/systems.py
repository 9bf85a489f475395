"""The clusters that are measured: three brokers each, on one disk, with Kafka's defaults."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from odradek.cluster import _free_ports as free_ports
from odradek.cluster import ask
from odradek.store.zookeeper_server import ZooKeeperServer
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from peers.kafka import STOCK, KafkaBroker
from peers.members import HOST, METADATA_VERSION, wait_until
from peers.ours import OurBroker

IDS = (1, 2, 3)
SESSION_MS = 6000
SETTINGS: Mapping[str, object] = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
    "auto.leader.rebalance.enable": "false",
}


class System:
    """Three brokers that start together and end with the block, and their metadata store."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.ports = dict(zip(IDS, free_ports(len(IDS)), strict=True))
        self.zookeeper: ZooKeeperServer | None = None
        self.brokers: dict[int, KafkaBroker | OurBroker] = {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def running(self) -> list[int]:
        return [broker for broker in IDS if self.brokers[broker].is_running]

    def start(self) -> None:
        if self.zookeeper is not None:
            self.zookeeper.start()
        for broker in self.brokers.values():
            broker.start()

    def wait_until_known(self) -> None:
        """Until every running broker knows all of them and a controller."""

        def complete() -> bool:
            views = [self.metadata(broker) for broker in self.running()]
            return all(
                view is not None
                and view.controller_id >= 0
                and len(view.brokers) == len(self.running())
                for view in views
            )

        wait_until(complete, f"the brokers of {self.name}", 120)

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        if self.zookeeper is not None:
            self.zookeeper.stop()

    def metadata(
        self, broker: int, request: MetadataRequest | None = None
    ) -> MetadataResponse | None:
        """A broker's view, without topics unless asked for; None if it does not answer."""
        asked = request or MetadataRequest(topics=[])
        try:
            return ask(HOST, self.ports[broker], asked, METADATA_VERSION, MetadataResponse)
        except OSError:
            return None

    def controller(self) -> int:
        for broker in self.running():
            view = self.metadata(broker)
            if view is not None and view.controller_id in self.running():
                return int(view.controller_id)
        return -1

    def memory_bytes(self) -> int:
        """Proportional set size of every process of the cluster, its metadata store included."""
        ids = [self.brokers[broker].process_id for broker in self.running()]
        if self.zookeeper is not None:
            ids.append(self.zookeeper.process_id)
        return sum(map(proportional_set_bytes, ids))

    def log_bytes(self, broker: int, topic: str) -> int:
        homes = self.brokers[broker].directory.glob(f"{topic}-*")
        return sum(each.stat().st_size for home in homes for each in home.glob("*.log"))


def proportional_set_bytes(process: int) -> int:
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no Pss of process {process}")


def ours_embedded(home: Path) -> System:
    """Ours with the metadata in SQLite, as it comes."""
    system = System("ours", home)
    store = f"sqlite:{home / 'metadata.db'}"
    for broker, port in system.ports.items():
        system.brokers[broker] = OurBroker(
            broker, port, store, home / f"broker-{broker}", SETTINGS, is_url=True
        )
    return system


def ours_on_zookeeper(home: Path) -> System:
    system = System("ours on ZooKeeper", home)
    system.zookeeper = ZooKeeperServer(home / "zookeeper", port=0)
    for broker, port in system.ports.items():
        address = system.zookeeper.address
        system.brokers[broker] = OurBroker(
            broker, port, address, home / f"broker-{broker}", SETTINGS
        )
    return system


def apache(home: Path) -> System:
    """Apache Kafka 3.9 on ZooKeeper, with the JVM settings of its start script."""
    system = System("Apache Kafka 3.9", home)
    system.zookeeper = ZooKeeperServer(home / "zookeeper", port=0)
    for broker, port in system.ports.items():
        address = system.zookeeper.address
        system.brokers[broker] = KafkaBroker(
            broker, port, address, home / f"broker-{broker}", SETTINGS, jvm=STOCK
        )
    return system


Make = Callable[[Path], System]


@contextmanager
def new(make: Make, home: Path) -> Iterator[System]:
    """A system in an empty directory, not started yet; nothing of it remains."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    system = make(home)
    try:
        yield system
    finally:
        system.close()
        shutil.rmtree(home, ignore_errors=True)
        os.sync()  # what one wrote is not the other's burden
