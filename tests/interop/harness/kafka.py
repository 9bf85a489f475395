"""Apache Kafka's brokers and tools as processes."""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from kazoo.client import KazooClient
from tests.interop.harness.members import Members, wait_until
from tests.interop.harness.processes import Member, bound_to_us

from odradek.java import find_java
from odradek.store.zookeeper_server import ZooKeeperServer
from odradek.testing.cluster import _free_ports as free_ports

LIB = Path(__file__).parent / "lib"
KAFKA_3_9 = LIB / "kafka-3.9"
KAFKA_4 = LIB / "kafka-4"
# Brokers only, to be in one cluster with ours.
KAFKA_2_8, KAFKA_3_5 = LIB / "kafka-2.8", LIB / "kafka-3.5"
HEAP = ["-Xmx512m", "-Xms128m"]
TOOLS_HEAP = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
# For tests, which start brokers often and measure nothing.
QUICK_START = ["-Xmx384m", "-Xms96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
# What Kafka's own start scripts give every JVM, a broker's, and that of ZooKeeper.
PERFORMANCE = [
    *("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    *("-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
]
STOCK = ["-Xmx1G", "-Xms1G", *PERFORMANCE]
STOCK_ZOOKEEPER = ["-Xmx512M", "-Xms512M", *PERFORMANCE]
OLDEST_PROTOCOL = "2.6"  # of those that ours speak, too
LOGGING = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


# Any will do: nodes of one cluster must have the same.
KRAFT_CLUSTER_ID = "b2RyYWRlay1wZWVycy4uLg"


class PeersMissing(Exception):
    """Kafka has not been brought: `make peers` does that."""


def is_here(version: Path = KAFKA_3_9) -> bool:
    """Whether `make peers` has brought a version."""
    return any(version.glob("kafka_*.jar"))


def classpath(version: Path = KAFKA_3_9) -> str:
    """All jars of a version, without the second logging binding."""
    jars = [jar for jar in sorted(version.glob("*.jar")) if "reload4j" not in jar.name]
    if not jars:
        raise PeersMissing(f"no jars in {version}: run `make peers` first (it needs Maven)")
    return ":".join(map(str, jars))


def java(
    main: str,
    *arguments: str,
    heap: Sequence[str] = HEAP,
    version: Path = KAFKA_3_9,
    also: Sequence[Path] = (),
) -> list[str]:
    """The command that runs a main class of a version; `also` are more directories of classes."""
    classes = ":".join([*map(str, also), classpath(version)])
    return [str(find_java("Apache Kafka")), *heap, *LOGGING, "-cp", classes, main, *arguments]


def write_properties(path: Path, properties: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


class KafkaBroker(Member):
    """One Apache Kafka broker in ZooKeeper mode, to be in one cluster with ours unless said."""

    def __init__(
        self,
        broker_id: int,
        port: int,
        zookeeper: str,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        *,
        jvm: Sequence[str] = HEAP,
        protocol: str | None = OLDEST_PROTOCOL,
        version: Path = KAFKA_3_9,
    ) -> None:
        """`protocol` is the inter-broker protocol's version, None for Kafka's default."""
        super().__init__(broker_id, port, directory, directory.with_suffix(".kafka.log"))
        self._jvm = jvm
        self._version = version
        self._properties = directory.with_suffix(".properties")
        write_properties(
            self._properties,
            {
                "broker.id": broker_id,
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "zookeeper.connect": zookeeper,
                "zookeeper.session.timeout.ms": 6000,
                # 2.8 waits for its feature cache as long, and gives up a slow start.
                "zookeeper.connection.timeout.ms": 60_000,
                "log.dirs": directory,
                **({"inter.broker.protocol.version": protocol} if protocol else {}),
                "offsets.topic.replication.factor": 3,
                "group.initial.rebalance.delay.ms": 0,
                "controlled.shutdown.retry.backoff.ms": 1000,
                **(settings or {}),
            },
        )

    def command(self) -> list[str]:
        return java("kafka.Kafka", str(self._properties), heap=self._jvm, version=self._version)


class KraftNode(Member):
    """One Apache Kafka 4.x node that is broker and controller at once."""

    def __init__(
        self,
        broker_id: int,
        port: int,
        voters: Mapping[int, int],
        directory: Path,
        settings: Mapping[str, object] | None = None,
        *,
        jvm: Sequence[str] = HEAP,
    ) -> None:
        """`voters` are the ports of all nodes' controllers by id."""
        super().__init__(broker_id, port, directory, directory.with_suffix(".kafka.log"))
        self._jvm = jvm
        self._properties = directory.with_suffix(".properties")
        quorum = ",".join(f"{node}@127.0.0.1:{its}" for node, its in voters.items())
        own = f"CONTROLLER://127.0.0.1:{voters[broker_id]}"
        write_properties(
            self._properties,
            {
                "process.roles": "broker,controller",
                "node.id": broker_id,
                "controller.quorum.voters": quorum,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://127.0.0.1:{port},{own}",
                "log.dirs": directory,
                "offsets.topic.replication.factor": 3,
                "group.initial.rebalance.delay.ms": 0,
                **(settings or {}),
            },
        )

    def format(self) -> None:
        """Once, before its first start."""
        done = tool(
            "kafka-storage",
            *("format", "--cluster-id", KRAFT_CLUSTER_ID, "--config", str(self._properties)),
            version=KAFKA_4,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def command(self) -> list[str]:
        return java("kafka.Kafka", str(self._properties), heap=self._jvm, version=KAFKA_4)


def wait_until_unregistered(nodes: KazooClient, broker: int) -> None:
    """Kafka gives up when it finds its id in use, so the session of its last life must be over."""
    node = f"/brokers/ids/{broker}"
    wait_until(lambda: nodes.exists(node) is None, f"{node} to go")


class KafkaCluster(Members[KafkaBroker]):
    """Apache Kafka 3.9 brokers on a ZooKeeper of their own, as `odradek.Cluster` is of ours.

        with KafkaCluster(brokers=3) as kafka:
            produce_to(kafka.bootstrap_servers)
            kafka.kill(kafka.leader("t", 0))     # kill -9
            kafka.start(1)                       # again, on the same port and directory
            kafka.stop(2)                        # SIGTERM: hands its leaderships over

    Entering the block starts everything and returns when all brokers know each other (about 5 s);
    leaving it ends every process and, unless `directory` was given, removes the files. The
    processes also end when this one does, however that happens. Brokers have the ids 1, 2, 3...
    (`ids`, `running()`). `settings` are Kafka's broker settings for all. New topics are not made
    by mentioning them. `PeersMissing` is raised if `make peers` has not been run; `is_here()` tells
    without trying.
    """

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        directory: Path | None = None,
    ) -> None:
        classpath()
        self._temporary = tempfile.mkdtemp(prefix="odradek-kafka-") if directory is None else None
        self.directory = directory or Path(str(self._temporary))
        self._zookeeper = ZooKeeperServer(self.directory / "zookeeper", port=0, tick_ms=500)
        copies = min(3, brokers)
        common = {
            "zookeeper.session.timeout.ms": 3000,
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": 1,
            "auto.create.topics.enable": "false",
            **(settings or {}),
        }
        ports = free_ports(brokers)
        super().__init__(
            {
                broker: KafkaBroker(
                    broker,
                    ports[broker - 1],
                    self._zookeeper.address,
                    self.directory / f"broker-{broker}",
                    common,
                    jvm=QUICK_START,
                )
                for broker in range(1, brokers + 1)
            }
        )

    def __enter__(self) -> Self:
        try:
            self._zookeeper.start()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def start(self, *ids: int) -> None:
        """Start these brokers or all, and wait until every running one knows every other."""
        nodes = KazooClient(hosts=self._zookeeper.address)
        nodes.start()
        for broker in ids:
            wait_until_unregistered(nodes, broker)
        nodes.stop()
        nodes.close()
        super().start(*ids)

    def close(self) -> None:
        super().close()
        self._zookeeper.stop()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-acls": "kafka.admin.AclCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-storage": "kafka.tools.StorageTool",
}


# Classes that moved between versions, the newer place.
MOVED = {
    "kafka.tools.ConsoleProducer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka.tools.DumpLogSegments": "org.apache.kafka.tools.DumpLogSegments",
}


def main_class(name: str, version: Path) -> str:
    """The class of a tool in a version, or of any main that is named in full."""
    known = TOOLS.get(name, name)
    return MOVED.get(known, known) if version == KAFKA_4 else known


def tool(
    name: str, *arguments: str, version: Path = KAFKA_3_9, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """A tool in a process of its own."""
    return subprocess.run(
        bound_to_us(java(main_class(name, version), *arguments, heap=TOOLS_HEAP, version=version)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
