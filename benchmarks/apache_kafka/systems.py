"""The clusters that are measured: three brokers each, on one disk, with Kafka's defaults."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.interop.harness.kafka import STOCK, STOCK_ZOOKEEPER, KafkaBroker, KraftNode
from tests.interop.harness.members import HOST, Members
from tests.interop.harness.ours import OurBroker
from tests.interop.harness.processes import Member, descendants

from odradek.security.development import DevelopmentSecurity
from odradek.store.zookeeper_server import ZooKeeperServer
from odradek.testing.cluster import _free_ports as free_ports
from odradek.testing.cluster import ask
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

IDS = (1, 2, 3)
OURS, ON_ZOOKEEPER = "ours", "ours on ZooKeeper"
APACHE, KRAFT = "Apache Kafka 3.9", "Apache Kafka 4.x (KRaft)"
SESSION_MS = 6000
COMMON: Mapping[str, object] = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
    "auto.leader.rebalance.enable": "false",
}
SETTINGS: Mapping[str, object] = {"zookeeper.session.timeout.ms": SESSION_MS, **COMMON}
# KRaft's sessions are those of the brokers with the controller.
KRAFT_SETTINGS: Mapping[str, object] = {"broker.session.timeout.ms": SESSION_MS, **COMMON}
CONTROLLERS = 2  # DescribeCluster's endpoint type


class System(Members[Member]):
    """Three brokers that start together and end with the block, and their metadata store."""

    def __init__(
        self,
        name: str,
        brokers: Mapping[int, Member],
        zookeeper: ZooKeeperServer | None = None,
        tls: "Tls | None" = None,
    ) -> None:
        super().__init__(brokers)
        self.name = name
        self.zookeeper = zookeeper
        self.tls = tls

    def start(self, *ids: int) -> None:
        if self.zookeeper is not None and not ids:
            self.zookeeper.start()
        super().start(*ids)

    def close(self) -> None:
        super().close()
        if self.zookeeper is not None:
            self.zookeeper.stop()

    def controller(self) -> int:
        """The active controller according to any running broker; -1 if none names a running one."""
        for broker in self.running():
            view = self.metadata(broker)
            if view is not None and view.controller_id in self.running():
                return int(view.controller_id)
        return -1

    def memory_bytes(self) -> int:
        """Proportional set size of every process of the cluster, its metadata store included."""
        ids = [self.brokers[broker].process_id for broker in self.running()]
        if self.zookeeper is not None:
            guard = self.zookeeper.process_id
            ids += [guard, *descendants(guard)]
        return sum(map(proportional_set_bytes, ids))

    def processor_seconds(self) -> float:
        """What the running brokers have taken of the processors since they started."""
        ids = [self.brokers[broker].process_id for broker in self.running()]
        return sum(map(processor_ticks, ids)) / os.sysconf("SC_CLK_TCK")

    def log_bytes(self, broker: int, topic: str) -> int:
        homes = self.brokers[broker].directory.glob(f"{topic}-*")
        return sum(each.stat().st_size for home in homes for each in home.glob("*.log"))


class Kraft(System):
    """Nodes that are brokers and controllers; to clients, any broker passes for the controller."""

    def __init__(
        self, name: str, nodes: Mapping[int, KraftNode], voters: Mapping[int, int]
    ) -> None:
        super().__init__(name, nodes)
        self._voters = voters
        for node in nodes.values():
            node.format()

    def controller(self) -> int:
        request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
        for broker in self.running():
            try:
                view = ask(HOST, self._voters[broker], request, 1, DescribeClusterResponse)
            except OSError:
                continue
            if view.controller_id in self.running():
                return int(view.controller_id)
        return -1


class Tls:
    """A second listener for clients; the brokers speak in plain text to each other."""

    def __init__(self, home: Path) -> None:
        files = DevelopmentSecurity(home / "security")
        files.create_in(files.directory, [HOST])
        self._store = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": files.directory / "broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": files.authority_file,
        }
        both = free_ports(2 * len(IDS))  # at once, lest one be given out twice
        self.plain_ports = dict(zip(IDS, both, strict=False))
        self._ports = dict(zip(IDS, both[len(IDS) :], strict=True))
        servers = ",".join(f"{HOST}:{port}" for port in self._ports.values())
        self.client: Mapping[str, object] = {
            "bootstrap.servers": servers,
            "security.protocol": "ssl",
            "ssl.ca.location": str(files.authority_file),
        }

    def settings(self, broker: int) -> dict[str, object]:
        plain = f"PLAINTEXT://{HOST}:{self.plain_ports[broker]}"
        return {
            "listeners": f"{plain},TLS://{HOST}:{self._ports[broker]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            **{f"listener.name.tls.{name}": value for name, value in self._store.items()},
        }


def processor_ticks(process: int) -> int:
    """User and system time of a process, all threads."""
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


def proportional_set_bytes(process: int) -> int:
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no Pss of process {process}")


def ours_embedded(home: Path, tls: Tls | None = None) -> System:
    """Ours with the metadata in SQLite, as it comes."""
    store = f"sqlite:{home / 'metadata.db'}"
    return System(
        OURS,
        {
            broker: OurBroker(
                broker,
                port,
                store,
                home_of(home, broker),
                {**SETTINGS, **(tls.settings(broker) if tls else {})},
                is_url=True,
            )
            for broker, port in (tls.plain_ports if tls else ports()).items()
        },
        tls=tls,
    )


def ours_with_tls(home: Path) -> System:
    return ours_embedded(home, Tls(home))


def zookeeper_of(home: Path) -> ZooKeeperServer:
    """The same for ours and for Kafka: with the JVM settings of Kafka's start script for it."""
    return ZooKeeperServer(home / "zookeeper", port=0, jvm=STOCK_ZOOKEEPER)


def ours_on_zookeeper(home: Path) -> System:
    zookeeper = zookeeper_of(home)
    return System(
        ON_ZOOKEEPER,
        {
            broker: OurBroker(broker, port, zookeeper.address, home_of(home, broker), SETTINGS)
            for broker, port in ports().items()
        },
        zookeeper,
    )


def apache(home: Path, tls: Tls | None = None) -> System:
    """Apache Kafka 3.9 on ZooKeeper, with its own protocol and the JVM settings of its scripts."""
    zookeeper = zookeeper_of(home)
    return System(
        APACHE,
        {
            broker: KafkaBroker(
                broker,
                port,
                zookeeper.address,
                home_of(home, broker),
                {**SETTINGS, **(tls.settings(broker) if tls else {})},
                jvm=STOCK,
                protocol=None,
            )
            for broker, port in (tls.plain_ports if tls else ports()).items()
        },
        zookeeper,
        tls,
    )


def apache_with_tls(home: Path) -> System:
    return apache(home, Tls(home))


def kraft(home: Path) -> System:
    """The current Apache Kafka: three nodes, each broker and controller, with the same JVM."""
    listening = free_ports(2 * len(IDS))
    voters = dict(zip(IDS, listening[len(IDS) :], strict=True))
    nodes = {
        broker: KraftNode(broker, port, voters, home_of(home, broker), KRAFT_SETTINGS, jvm=STOCK)
        for broker, port in zip(IDS, listening, strict=False)
    }
    return Kraft(KRAFT, nodes, voters)


def ports() -> dict[int, int]:
    return dict(zip(IDS, free_ports(len(IDS)), strict=True))


def home_of(home: Path, broker: int) -> Path:
    return home / f"broker-{broker}"


Make = Callable[[Path], System]


@contextmanager
def new(make: Make, home: Path) -> Iterator[System]:
    """A system in an empty directory, not started yet; of its files only the names remain.

    ext4 without a journal does not use an inode again for a while, and looks through all that were
    freed lately for each new file: the next system would pay for the removal of these (creating
    2,000 partitions took it five times the processor time).
    """
    home.mkdir(parents=True)
    system = make(home)
    try:
        yield system
    finally:
        system.close()
        for file in home.rglob("*"):
            if file.is_file():
                os.truncate(file, 0)
        os.sync()  # what one wrote is not the other's burden
