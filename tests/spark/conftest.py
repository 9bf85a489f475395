"""One cluster and one Spark session at a time for all tests of the pipeline.

`tests/interop/test_spark.py` runs the same tests against Apache Kafka.
"""

import itertools
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.interop.harness.processes import bound_to_us
from tests.spark.short_lived import JAVA_OPTIONS, environment

from odradek.client.blocking_client import Blocking
from odradek.client.producer import Producer
from odradek.client.reader import LATEST, Isolation, PartitionReader, offsets_at
from odradek.client.values import NewPartitions, NewTopic, check
from odradek.testing.cluster import Cluster
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

LOCAL = "local[2]"
TIMEOUT_S = 60.0
# The files that take longest, in the order in which they begin: a long one that begins last would
# keep one process waiting for the other. The first wants a Spark that has done nothing else.
LONGEST_FIRST = ("test_memory.py", "test_on_cluster.py", "test_kills.py", "test_spark_tables.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


def wait_until(holds: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(0.01)


class Cluster3:
    """A cluster with the handful of things the tests do to it and its topics."""

    def __init__(self, brokers: Any) -> None:
        """`brokers` is an odradek.Cluster or what behaves like one."""
        self.brokers = brokers
        self.bootstrap: str = brokers.bootstrap_servers
        self.client = Blocking(self.bootstrap)
        self._numbers = itertools.count()

    wait_until = staticmethod(wait_until)

    def revive(self, broker: int) -> None:
        if broker not in self.brokers.running():
            self.brokers.start(broker)

    def options(self, **more: object) -> dict[str, str]:
        named = {name.replace("__", "."): str(value) for name, value in more.items()}
        return {"kafka.bootstrap.servers": self.bootstrap, **named}

    def create(
        self, partitions: int = 1, name: str | None = None, copies: int = -1, **configs: str
    ) -> str:
        name = name or f"topic-{os.getpid()}-{next(self._numbers)}"
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self.client.run(self._create(NewTopic(name, partitions, copies, configs=named)))
        return name

    async def _create(self, topic: NewTopic) -> None:
        budget = self.client.client.retry_budget()
        while True:
            outcome = (await self.client.admin.create_topics([topic]))[topic.name]
            if outcome is None:
                break
            if outcome.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise outcome
            # Its namesake is still being deleted.
            await budget.back_off(TimeoutError(outcome.message))
        await self.client.client.require_topics([topic.name])

    def leader(self, name: str) -> int:
        """A broker may learn of a topic's leaders a moment after the one that created it."""
        wait_until(lambda: self.brokers.leader(name) is not None, f"a leader of {name}", 30)
        found = self.brokers.leader(name)
        assert found is not None
        return int(found)

    def delete(self, name: str) -> None:
        check(self.client.run(self.client.admin.delete_topics([name])))
        self._until(lambda topics: name not in topics)

    def grow(self, name: str, partitions: int) -> None:
        admin = self.client.admin
        check(self.client.run(admin.create_partitions({name: NewPartitions(partitions)})))
        self._until(lambda topics: len(topics[name].partitions) == partitions)

    def delete_records(self, name: str, before: int, partition: int = 0) -> None:
        self.client.run(self.client.admin.delete_records({TopicPartition(name, partition): before}))

    def _until(self, holds: Any) -> None:
        async def look() -> None:
            budget = self.client.client.retry_budget()
            while not holds((await self.client.client.refresh(None)).topics):
                await budget.back_off(TimeoutError("the topic has not changed"))

        self.client.run(look())

    def produce(
        self,
        topic: str,
        values: Sequence[bytes | None],
        partition: int | None = 0,
        keys: Sequence[bytes | None] | None = None,
        **more: Any,
    ) -> None:
        async def send() -> None:
            async with Producer(self.client.client, linger_s=0) as producer:
                for index, value in enumerate(values):
                    key = keys[index] if keys else None
                    await producer.send(topic, value, key=key, partition=partition, **more)

        self.client.run(send())

    def fill(self, topic: str, rows: Sequence[bytes], partition: int = 0, **options: str) -> None:
        """Many records at once, the way the sink writes them."""
        from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

        from odradek.spark.sink import BatchWriter

        columns = [StructField("value", BinaryType()), StructField("partition", IntegerType())]
        given = self.options(topic=topic, **options)
        values = pa.array(rows, pa.binary())
        where = pa.repeat(pa.scalar(partition, pa.int32()), len(rows))
        batch = pa.RecordBatch.from_arrays([values, where], names=["value", "partition"])
        BatchWriter(given, StructType(columns)).write(iter([batch]))

    def read_committed(self, topic: str) -> list[bytes | None]:
        """The values of a topic, as a read_committed reader finds them."""

        async def read() -> list[bytes | None]:
            client = self.client.client
            partitions = (await client.require_topics([topic])).partitions_of([topic])
            ends = await offsets_at(client, dict.fromkeys(partitions, LATEST))
            reader = PartitionReader(client, isolation=Isolation.READ_COMMITTED)
            return [
                record.value
                for tp in partitions
                async for batches in reader.batches(tp, 0, ends[tp].offset)
                for record in batches.open(committed=True)
            ]

        return self.client.run(read())

    def committed(self, group: str) -> Mapping[TopicPartition, int]:
        lag = self.client.run(self.client.groups.lag(group))
        return {partition: one.committed for partition, one in lag.items()}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster3]:
    with Cluster(brokers=3) as brokers:
        yield Cluster3(brokers)


class SparkCluster:
    """A master and two workers from the installed PySpark; executors are processes of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.address = ""
        self._stack = ExitStack()

    def __enter__(self) -> "SparkCluster":
        from odradek.spark.session import prepare_environment

        prepare_environment()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"spark://127.0.0.1:{port}"
        self._start("master.Master", "--port", str(port))
        wait_until(lambda: _listens(port), "the master of Spark")
        for name in ("worker-1", "worker-2"):
            size = ("--cores", "1", "--memory", "1g")
            self._start("worker.Worker", *size, "--work-dir", str(self.home / name), self.address)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def executors(self) -> set[Path]:
        """The directories of all there have been."""
        return {path for path in self.home.glob("worker-*/app-*/*") if path.is_dir()}

    def _start(self, main: str, *arguments: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        process = subprocess.Popen(
            bound_to_us(
                [
                    *(str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}"),
                    *("--host", "127.0.0.1", "--webui-port", "0", *arguments),
                ]
            ),
            env={**environment(), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Sessions:
    """The Spark session of this process, which can have one at a time."""

    def __init__(self, event_logs: Path) -> None:
        self._session: Any = None
        self._master = ""
        self.event_logs = event_logs

    def on(self, master: str) -> Any:
        from odradek.spark.session import open_session

        if self._master != master:
            self.close()
            settings = {
                "spark.sql.python.filterPushdown.enabled": "true",
                "spark.driver.extraJavaOptions": JAVA_OPTIONS,
                "spark.executor.extraJavaOptions": JAVA_OPTIONS,
                "spark.executor.memory": "512m",
                "spark.sql.codegen.wholeStage": "false",
                "spark.eventLog.enabled": "true",
                "spark.eventLog.dir": self.event_logs.as_uri(),
                "spark.eventLog.rolling.enabled": "false",
                "spark.eventLog.compress": "false",
            }
            self._session, self._master = open_session("tests", master, settings), master
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session, self._master = None, ""


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark")) as spark_cluster:
        yield spark_cluster


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    sessions = Sessions(tmp_path_factory.mktemp("event-logs"))
    yield sessions
    sessions.close()


@pytest.fixture
def spark(sessions: Sessions) -> Any:
    return sessions.on(LOCAL)
