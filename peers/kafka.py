"""Apache Kafka's broker and tools as processes."""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek.store.zookeeper_server import find_java

LIB = Path(__file__).parent / "lib"
KAFKA_3_9 = LIB / "kafka-3.9"
KAFKA_4 = LIB / "kafka-4"
HEAP = ["-Xmx512m", "-Xms128m"]
TOOLS_HEAP = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
# For tests, which start brokers often and measure nothing.
QUICK_START = ["-Xmx384m", "-Xms96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
# What Kafka's own start script gives its JVM.
STOCK = [
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    *("-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
]
LOGGING = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


class PeersMissing(Exception):
    """Kafka has not been brought: `make peers` does that."""


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
    return [str(find_java()), *heap, *LOGGING, "-cp", classes, main, *arguments]


class KafkaBroker:
    """One Apache Kafka 3.9 broker in ZooKeeper mode at inter-broker protocol 2.6."""

    def __init__(
        self,
        broker_id: int,
        port: int,
        zookeeper: str,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        *,
        jvm: Sequence[str] = HEAP,
    ) -> None:
        self.id = broker_id
        self.port = port
        self.directory = directory
        self.log = directory.with_suffix(".kafka.log")
        self._jvm = jvm
        self._process: subprocess.Popen[bytes] | None = None
        properties = {
            "broker.id": broker_id,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "zookeeper.connect": zookeeper,
            "zookeeper.session.timeout.ms": 6000,
            "log.dirs": directory,
            "inter.broker.protocol.version": "2.6",
            "offsets.topic.replication.factor": 3,
            "group.initial.rebalance.delay.ms": 0,
            "controlled.shutdown.retry.backoff.ms": 1000,
            **(settings or {}),
        }
        directory.mkdir(parents=True, exist_ok=True)
        self._properties = directory.with_suffix(".properties")
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        assert not self.is_running
        with open(self.log, "ab") as output:
            self._process = subprocess.Popen(
                java("kafka.Kafka", str(self._properties), heap=self._jvm),
                stdout=output,
                stderr=output,
            )

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)


TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
}


# Classes that moved between versions, the newer place.
MOVED = {"kafka.tools.ConsoleProducer": "org.apache.kafka.tools.ConsoleProducer"}


def main_class(name: str, version: Path) -> str:
    """The class of a tool in a version, or of any main that is named in full."""
    known = TOOLS.get(name, name)
    return MOVED.get(known, known) if version == KAFKA_4 else known


def tool(
    name: str, *arguments: str, version: Path = KAFKA_3_9, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """A tool in a process of its own."""
    return subprocess.run(
        java(main_class(name, version), *arguments, heap=TOOLS_HEAP, version=version),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
