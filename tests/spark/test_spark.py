"""The format in a real Spark session, against a real cluster.

`test_on_cluster` has what executors do, `tests/interop/test_spark.py` runs all of this against
Apache Kafka.
"""

import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from odradek.spark.exactly_once import Part, Reached, Step
from odradek.spark.pipeline.runner import NOT_UP, RESTARTS_MAX
from odradek.spark.sink import StreamWriter
from odradek.spark.source import OdradekSource

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def values(frame: Any) -> list[str]:
    return sorted(row.value.decode() for row in frame.select("value").collect())


def numbers(start: int, stop: int) -> list[str]:
    return sorted(str(i) for i in range(start, stop))


def raw(start: int, stop: int) -> list[bytes]:
    return [b"%d" % i for i in range(start, stop)]


def test_what_is_written_is_what_is_read(spark: Any, cluster: Any) -> None:
    topic = cluster.create(partitions=2)
    written = spark.sql(
        f"""SELECT cast(id AS string) AS key, if(id = 3, NULL, concat('v', id)) AS value,
            '{topic}' AS topic, cast(id % 2 AS int) AS partition,
            if(id = 4, array(struct('h' AS key, cast('x' AS binary) AS value)), NULL) AS headers
            FROM range(10)"""
    )
    written.write.format("odradek").options(**cluster.options()).mode("append").save()
    # A name in any case, and nothing registered.
    read = (
        spark.read.format("Odradek")
        .options(**cluster.options(subscribe=topic, includeHeaders="true"))
        .load()
    )
    assert read.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = {row.key.decode(): row for row in read.collect()}
    assert len(rows) == 10
    assert rows["3"].value is None
    assert rows["5"].value == b"v5"
    assert rows["5"].headers is None
    assert [(h.key, h.value) for h in rows["4"].headers] == [("h", b"x")]
    assert {(int(key) % 2, row.partition) for key, row in rows.items()} == {(0, 0), (1, 1)}
    assert all(row.timestampType == 0 and row.topic == topic for row in rows.values())
    narrow = read.where("partition = 1 AND offset >= 3")
    assert narrow.rdd.getNumPartitions() == 1
    assert sorted(row.offset for row in narrow.collect()) == [3, 4]


def test_what_is_wrong_is_one_sentence(spark: Any, cluster: Any) -> None:
    from pyspark.errors import AnalysisException

    reader = spark.read.format("odradek").options(**cluster.options())
    with pytest.raises(AnalysisException) as caught:
        reader.option("subscribe", "t").option("startingOfsets", "earliest").load()
    text = str(caught.value)
    assert "OptionError: unknown option startingofsets; did you mean startingOffsets?" in text
    assert "Traceback" not in text
    writer = spark.range(3).write.format("odradek").options(**cluster.options(topic="t"))
    with pytest.raises(AnalysisException, match="a column value is needed; there are id"):
        writer.mode("append").save()
    frame = spark.sql("SELECT 'x' AS value").write.format("odradek")
    with pytest.raises(AnalysisException, match="a topic cannot be overwritten"):
        frame.options(**cluster.options(topic="t")).mode("overwrite").save()
    with pytest.raises(AnalysisException, match="takes no schema"):
        spark.read.format("odradek").schema("a int").options(
            **cluster.options(subscribe="t")
        ).load().collect()


def start(spark: Any, cluster: Any, topic: str, where: Path, sink: Any, **options: object) -> Any:
    """A stream with AvailableNow whose batches go to `sink`."""
    given = cluster.options(subscribe=topic, **options)
    stream = spark.readStream.format("odradek").options(**given).load()
    return (
        stream.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(where))
        .trigger(availableNow=True)
        .start()
    )


def test_a_stream_in_limited_batches_while_its_leader_dies(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    topic = cluster.create(partitions=2)
    cluster.produce(topic, raw(0, 600), 0)
    cluster.produce(topic, raw(600, 900), 1)
    batches: list[list[str]] = []
    brokers = cluster.brokers
    victim = cluster.leader(topic)

    def collect(frame: Any, number: int) -> None:
        if number == 1:
            # After the batch was planned, before it is read.
            brokers.kill(victim)
            cluster.produce(topic, raw(900, 950), 1)
        batches.append(values(frame))

    group = f"group-{topic}"
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 300, "commitGroup": group}
    try:
        query = start(spark, cluster, topic, tmp_path / "c", collect, **options)
        assert query.awaitTermination(120)
        assert query.exception() is None
    finally:
        cluster.revive(victim)
    assert [len(batch) for batch in batches] == [300, 300, 300]
    assert sorted(value for batch in batches for value in batch) == numbers(0, 900)
    assert sum(cluster.committed(group).values()) == 900
    # The next run goes on where this one ended.
    query = start(spark, cluster, topic, tmp_path / "c", collect, **options)
    assert query.awaitTermination(120)
    assert batches[3:] == [numbers(900, 950)]


def test_a_first_batch_that_failed_is_repeated_from_its_own_start(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    topic = cluster.create()
    cluster.produce(topic, raw(0, 5))
    seen: list[list[str]] = []
    planned = threading.Event()

    def fail(frame: Any, number: int) -> None:
        if not frame.isEmpty():
            planned.set()
            raise RuntimeError("the sink is down")

    def collect(frame: Any, number: int) -> None:
        seen.append(values(frame))

    given = cluster.options(subscribe=topic)  # from the latest, as streams do
    stream = spark.readStream.format("odradek").options(**given).load()
    checkpoint = tmp_path / "c"
    query = (
        stream.writeStream.foreachBatch(fail).option("checkpointLocation", str(checkpoint)).start()
    )
    first = checkpoint / "offsets" / "0"
    cluster.wait_until(first.exists, "the first offset in the checkpoint")
    begun = json.loads(first.read_text().splitlines()[-1])
    assert begun[topic] == {"0": 5}
    cluster.produce(topic, raw(5, 8))
    assert planned.wait(60)
    query.stop()
    cluster.produce(topic, raw(8, 9))
    query = start(spark, cluster, topic, checkpoint, collect)
    assert query.awaitTermination(120)
    assert [value for batch in seen for value in batch] == numbers(5, 9)


def test_a_stream_into_a_topic(spark: Any, cluster: Any, tmp_path: Path) -> None:
    source, target = cluster.create(), cluster.create()
    cluster.produce(source, raw(0, 50))
    given = cluster.options(subscribe=source, startingOffsets="earliest")
    stream = spark.readStream.format("odradek").options(**given).load()
    query = (
        stream.selectExpr("value", "cast(offset AS string) AS key")
        .writeStream.format("odradek")
        .options(**cluster.options(topic=target, checkpointLocation=tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    read = spark.read.format("odradek").options(**cluster.options(subscribe=target)).load()
    assert values(read) == numbers(0, 50)


def deaths(home: Path, steps: list[Step]) -> Reached:
    """Kills the process that carries out a write: in batch N, once, before the Nth of the steps.

    Where a task has nothing left to do but to return, the executor's Java dies too, if it is not
    the driver's."""

    def die(step: Step, part: Part) -> None:
        if part.task or step not in steps or steps.index(step) != part.batch:
            return
        done = home / step.name
        if done.exists():
            return
        done.touch()
        if step is Step.RETURN:
            # Of Spark's daemon for Python, whose child this is.
            java = subprocess.getoutput(f"ps -o ppid= -p {os.getppid()}").strip()
            if "CoarseGrainedExecutorBackend" in subprocess.getoutput(f"ps -o args= -p {java}"):
                os.kill(int(java), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    return die


def source_with(reached: Reached) -> Any:
    """The format, whose writers tell `reached` where they are. Like that made here and not
    importable, so that Spark takes it to workers that know nothing of this module."""

    class Mortal(OdradekSource):
        @classmethod
        def name(cls) -> str:
            return "mortal"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            return StreamWriter(self._given, schema, reached)

    return Mortal


@pytest.mark.timeout(600)
def test_a_stream_is_exactly_once_although_all_who_write_it_die(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    source, target = cluster.create(partitions=2), cluster.create(partitions=2)
    # On a cluster a task is repeated. In a session, and for the driver's own steps, the query is.
    steps = list(Step) if is_cluster(spark) else [Step.COMMIT, Step.FINISHED]
    batches = len(steps) + 1
    for partition in range(2):
        cluster.produce(source, raw(partition * 100, partition * 100 + batches), partition)
    spark.dataSource.register(source_with(deaths(tmp_path, steps)))
    given = cluster.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    stream = spark.readStream.format("odradek").options(**given).load()
    writer = (
        stream.writeStream.format("mortal")
        .options(**cluster.options(topic=target, exactlyOnce="true"))
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
    )
    for _ in range(len(steps) + RESTARTS_MAX):
        try:
            assert writer.start().awaitTermination(500)
            break
        except StreamingQueryException as error:
            if "Python worker exited unexpectedly" not in str(error) and NOT_UP not in str(error):
                raise
    assert {path.name for path in tmp_path.iterdir()} == {"c", *(step.name for step in steps)}
    written = raw(0, batches) + raw(100, 100 + batches)
    assert sorted(cluster.read_committed(target)) == sorted(written)
    # What was sent by those who died before they committed is there for those who ask for it.
    read = spark.read.format("odradek").options(**cluster.options(subscribe=target)).load()
    assert read.count() > len(written)


def is_cluster(spark: Any) -> bool:
    return bool(spark.sparkContext.master.startswith("spark:"))


def test_registration_for_those_who_prefer_it(spark: Any, cluster: Any) -> None:
    from odradek.spark import register

    topic = cluster.create()
    cluster.produce(topic, raw(0, 3))
    register(spark)
    read = spark.read.format("odradek").options(**cluster.options(subscribe=topic)).load()
    assert values(read) == numbers(0, 3)
