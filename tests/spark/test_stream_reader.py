"""A stream's answers to Spark, from a real cluster and without a Spark session."""

import asyncio
import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from odradek.client.groups import Groups
from odradek.spark import lookup
from odradek.spark.batch_reader import BatchReader
from odradek.spark.errors import DataLoss, OptionError
from odradek.spark.options import source_options
from odradek.spark.stream_reader import COMMIT_AGAIN_S, StreamReader
from odradek.wire.errors import KafkaError
from odradek.wire.topics import TopicPartition

pytestmark = pytest.mark.process


def as_sent(value: Any) -> Any:
    """As Spark sends it to another process."""
    return pickle.loads(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


class Query:
    """Asks a reader what Spark asks, in Spark's order, and keeps the last offset."""

    def __init__(self, cluster: Any, topic: str, clock: Any = None, **options: object) -> None:
        given = cluster.options(subscribe=topic, **{"fetchOffset.retryIntervalMs": 10, **options})
        self.reader = StreamReader(given, clock=clock or (lambda: 0.0))
        self.limit = self.reader.getDefaultReadLimit()
        self.offset: dict[str, Any] = {}

    def start(self, offset: dict[str, Any] | None = None) -> "Query":
        self.offset = self.reader.initialOffset() if offset is None else offset
        return self

    def batch(self) -> list[bytes]:
        """The values of the next batch; the offset moves on."""
        end = self.reader.latestOffset(self.offset, self.limit)
        values = self.read(self.offset, end)
        self.offset = end
        return values

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
        reader: StreamReader = as_sent(self.reader)
        tasks = as_sent(self.reader.partitions(start, end))
        return [
            value
            for task in tasks
            for rows in reader.read(task)
            for value in rows["value"].to_pylist()
        ]


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % i for i in range(start, stop)]


def test_new_records_are_new_batches_and_nothing_is_the_same_offset(cluster: Any) -> None:
    topic = cluster.create()
    cluster.produce(topic, numbers(0, 3))
    query = Query(cluster, topic).start()
    assert query.batch() == []
    before = query.offset
    cluster.produce(topic, numbers(3, 7))
    assert query.batch() == numbers(3, 7)
    assert query.offset != before
    after = query.offset
    assert query.batch() == []
    assert json.dumps(query.offset) == json.dumps(after)
    assert query.reader.reportLatestOffset() == {topic: {"0": 7}}
    query.reader.stop()


def test_a_repeated_first_batch_begins_where_it_began(cluster: Any) -> None:
    topic = cluster.create()
    cluster.produce(topic, numbers(0, 3))
    query = Query(cluster, topic, startingOffsets="latest").start()
    cluster.produce(topic, numbers(3, 5))
    end = query.reader.latestOffset(query.offset, query.limit)
    # The driver dies with the batch planned and not committed. More comes in; a new one is asked
    # for its start again and says 9.
    cluster.produce(topic, numbers(5, 9))
    again = Query(cluster, topic, startingOffsets="latest").start()
    assert again.read(again.offset, end) == numbers(3, 5)
    again.offset = end
    assert again.batch() == numbers(5, 9)


def test_limits_and_the_trigger_that_ignores_them(cluster: Any) -> None:
    topic = cluster.create(partitions=3)
    for partition in range(3):
        cluster.produce(topic, numbers(0, 10), partition)
    query = Query(cluster, topic, startingOffsets="earliest", maxOffsetsPerTrigger=10).start()
    assert query.limit == ReadMaxRows(10)
    assert len(query.batch()) == 9
    query.limit = ReadAllAvailable()
    assert len(query.batch()) == 21


def test_a_minimum_waits_until_the_delay_is_over(cluster: Any) -> None:
    topic = cluster.create()
    now = [0.0]
    query = Query(
        cluster,
        topic,
        clock=lambda: now[0],
        startingOffsets="earliest",
        minOffsetsPerTrigger=5,
        maxTriggerDelay="10s",
    ).start()
    assert query.limit == ReadMinRows(5)
    cluster.produce(topic, numbers(0, 2))
    assert query.batch() == numbers(0, 2)  # the first always fires
    cluster.produce(topic, numbers(2, 5))
    now[0] = 9.9
    assert query.batch() == []
    now[0] = 10.0
    assert query.batch() == numbers(2, 5)
    cluster.produce(topic, numbers(5, 10))
    assert query.batch() == numbers(5, 10)


def test_available_now_ends_at_the_offsets_of_its_start(cluster: Any) -> None:
    topic = cluster.create(partitions=2)
    cluster.produce(topic, numbers(0, 6), 0)
    query = Query(
        cluster,
        topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=4,
        fetchOffset__numRetries=1,
    )
    query.reader.prepareForTriggerAvailableNow()
    query.start()
    assert len(query.batch()) == 4
    cluster.produce(topic, numbers(6, 50), 0)
    cluster.produce(topic, numbers(0, 50), 1)
    cluster.grow(topic, 3)
    assert query.batch() == numbers(4, 6)
    last = query.offset
    assert query.batch() == []
    assert json.dumps(query.offset) == json.dumps(last)
    cluster.delete(topic)
    with pytest.raises(KafkaError, match="does not exist"):
        query.batch()


def test_new_partitions_and_topics_are_found_while_running(cluster: Any) -> None:
    name = cluster.create()
    query = Query(cluster, "x", startingOffsets="latest")
    query.reader = StreamReader(cluster.options(subscribePattern=f"{name}(-more)?$"))
    query.start()
    cluster.grow(name, 2)
    cluster.produce(name, numbers(0, 3), 1)
    assert query.batch() == numbers(0, 3)
    more = cluster.create(name=f"{name}-more")
    cluster.produce(more, numbers(3, 6))
    assert query.batch() == numbers(3, 6)


@pytest.mark.parametrize("records", [2, 9], ids=["shorter", "longer"])
def test_a_topic_made_again_is_noticed_and_read_from_its_beginning(
    cluster: Any, records: int
) -> None:
    topic = cluster.create()
    cluster.produce(topic, numbers(0, 5))
    strict = Query(cluster, topic, startingOffsets="earliest").start()
    loose = Query(cluster, topic, startingOffsets="earliest", failOnDataLoss="false").start()
    assert strict.batch() == loose.batch() == numbers(0, 5)
    cluster.delete(topic)
    cluster.create(name=topic)
    again = [b"new %d" % i for i in range(records)]
    cluster.produce(topic, again)
    with pytest.raises(DataLoss, match=r"PARTITION_OFFSET_CHANGED: the topic of .* created again"):
        strict.batch()
    assert loose.batch() == again
    cluster.produce(topic, [b"last"])
    assert loose.batch() == [b"last"]


def test_a_partition_that_went_away(cluster: Any) -> None:
    kept, gone = cluster.create(), cluster.create()
    options = {"startingOffsets": "earliest", "fetchOffset.numRetries": 1}
    pattern = f"^({kept}|{gone})$"
    queries = []
    for fail in ("true", "false"):
        query = Query(cluster, "x")
        given = cluster.options(subscribePattern=pattern, failOnDataLoss=fail, **options)
        query.reader = StreamReader(given)
        queries.append(query.start())
    strict, loose = queries
    cluster.produce(kept, numbers(0, 2))
    assert strict.batch() == loose.batch() == numbers(0, 2)
    cluster.delete(gone)
    with pytest.raises(DataLoss, match=f"PARTITIONS_DELETED: {gone}-0 existed"):
        strict.batch()
    cluster.produce(kept, numbers(2, 4))
    assert loose.batch() == numbers(2, 4)
    assert gone not in loose.offset


def test_a_topic_that_went_away_while_its_name_was_kept(cluster: Any) -> None:
    kept, gone = cluster.create(), cluster.create()
    query = Query(cluster, "x")
    query.reader = StreamReader(
        cluster.options(
            subscribePattern=f"^({kept}|{gone})$",
            startingOffsets="earliest",
            failOnDataLoss="false",
            fetchOffset__numRetries=1,
            partition__metadata__cache__ttl__ms=600_000,
        )
    )
    query.start()
    cluster.produce(kept, numbers(0, 2))
    cluster.delete(gone)
    seen: list[bytes] = []

    def is_noticed() -> bool:
        seen.extend(query.batch())
        return gone not in query.offset

    cluster.wait_until(is_noticed, "the partition to leave the offset")
    assert seen == numbers(0, 2)


def test_available_now_does_not_go_on_in_another_log(cluster: Any) -> None:
    topic = cluster.create()
    cluster.produce(topic, numbers(0, 6))
    query = Query(
        cluster, topic, startingOffsets="earliest", maxOffsetsPerTrigger=2, failOnDataLoss="false"
    )
    query.reader.prepareForTriggerAvailableNow()
    query.start()
    assert query.batch() == numbers(0, 2)
    cluster.delete(topic)
    cluster.create(name=topic)
    cluster.produce(topic, [b"new %d" % i for i in range(9)])
    with pytest.raises(DataLoss, match=f"PARTITION_OFFSET_CHANGED: {topic}-0 became another log"):
        query.batch()


def test_records_that_retention_took(cluster: Any) -> None:
    topic = cluster.create()
    cluster.produce(topic, numbers(0, 10))
    strict = Query(cluster, topic, startingOffsets="earliest").start()
    loose = Query(cluster, topic, startingOffsets="earliest", failOnDataLoss="false").start()
    cluster.delete_records(topic, 4)
    with pytest.raises(
        DataLoss, match=f"COULD_NOT_READ_OFFSET_RANGE: offsets 0 to 10 of {topic}-0"
    ):
        strict.batch()
    assert loose.batch() == numbers(4, 10)
    cluster.produce(topic, numbers(10, 12))
    end = loose.reader.latestOffset(loose.offset, loose.limit)
    cluster.delete_records(topic, 12)
    assert loose.read(loose.offset, end) == []


def test_finished_batches_are_visible_as_a_group(cluster: Any) -> None:
    topic = cluster.create()
    partition = TopicPartition(topic, 0)
    group = f"group-of-{topic}"
    query = Query(cluster, topic, startingOffsets="earliest", commitGroup=group).start()
    cluster.produce(topic, numbers(0, 5))
    query.batch()
    assert cluster.committed(group) == {}  # planned, and not known to be finished
    query.batch()
    assert cluster.committed(group) == {partition: 5}
    cluster.produce(topic, numbers(5, 6))
    query.batch()
    query.reader.commit(query.offset)
    assert cluster.committed(group) == {partition: 6}


def test_a_group_that_cannot_be_committed_to_holds_nothing_up(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    async def no_answer(groups: Groups, group: str, offsets: Any) -> None:
        asked.append(dict(offsets))
        await asyncio.Event().wait()

    commit = Groups.alter_offsets
    monkeypatch.setattr(Groups, "alter_offsets", no_answer)
    monkeypatch.setattr(lookup, "COMMIT_TIMEOUT_S", 0.0)
    topic = cluster.create()
    partition, group = TopicPartition(topic, 0), f"group-of-{topic}"
    options = {"startingOffsets": "earliest", "commitGroup": group}
    now = 0.0
    query = Query(cluster, topic, lambda: now, **options).start()
    for number in range(3):
        cluster.produce(topic, numbers(number, number + 1))
        assert query.batch() == numbers(number, number + 1)
        query.reader.commit(query.offset)
        query.reader.commit(query.offset)
    # Once for each batch, and warned of once.
    assert asked == [{partition: 1}, {partition: 2}, {partition: 3}]
    assert caplog.text.count("are not committed: not within 0 s") == 1
    # A stream that has nothing to do says it again after a while.
    now = COMMIT_AGAIN_S
    monkeypatch.setattr(Groups, "alter_offsets", commit)
    monkeypatch.setattr(lookup, "COMMIT_TIMEOUT_S", 60.0)
    assert query.batch() == []
    assert cluster.committed(group) == {partition: 3}


def test_a_start_that_does_not_name_every_partition(cluster: Any) -> None:
    topic = cluster.create(partitions=2)
    query = Query(cluster, topic, startingOffsets=f'{{"{topic}":{{"0":0}}}}')
    with pytest.raises(OptionError, match=f"the partitions are {topic}-0, {topic}-1"):
        query.start()


def batch_values(cluster: Any, topic: str, **options: object) -> list[bytes]:
    reader = BatchReader(source_options(cluster.options(subscribe=topic, **options), False))
    return [
        value
        for task in reader.partitions()
        for rows in reader.read(task)
        for value in rows["value"].to_pylist()
    ]


def test_a_batch_by_times(cluster: Any) -> None:
    topic = cluster.create()
    for i in range(5):
        cluster.produce(topic, [b"%d" % i], timestamp_ms=1000 + i)
    assert batch_values(cluster, topic, startingTimestamp=1002) == numbers(2, 5)
    assert batch_values(cluster, topic, endingTimestamp=1002) == numbers(0, 2)
    assert batch_values(cluster, topic, startingTimestamp=1001, endingTimestamp=9999) == numbers(
        1, 5
    )
    with pytest.raises(OptionError, match="startingOffsetsByTimestampStrategy"):
        batch_values(cluster, topic, startingTimestamp=9999)
    assert (
        batch_values(
            cluster,
            topic,
            startingOffsetsByTimestamp=f'{{"{topic}":{{"0":9999}}}}',
            startingOffsetsByTimestampStrategy="latest",
        )
        == []
    )
    with pytest.raises(OptionError, match="RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"):
        batch_values(cluster, topic, startingTimestamp=1004, endingTimestamp=1001)


def test_a_log_that_begins_late_is_read_from_there_and_pieces_meet(cluster: Any) -> None:
    topic = cluster.create()
    cluster.produce(topic, numbers(0, 50))
    cluster.delete_records(topic, 20)
    assert batch_values(cluster, topic, maxRecordsPerPartition=7) == numbers(20, 50)
    assert batch_values(cluster, topic, minPartitions=4) == numbers(20, 50)


def test_a_frame_read_again_sees_what_came_since(cluster: Any) -> None:
    topic = cluster.create()
    cluster.produce(topic, numbers(0, 4))
    reader = BatchReader(source_options(cluster.options(subscribe=topic, minPartitions=2), False))
    tasks = reader.partitions()
    assert len(tasks) == 2
    cluster.produce(topic, numbers(4, 6))
    rows = [rows for task in tasks for rows in reader.read(task)]
    assert pa.Table.from_batches(rows)["offset"].to_pylist() == list(range(6))


def test_the_last_topic_of_a_pattern_goes_and_the_query_restarts(cluster: Any) -> None:
    topic = cluster.create()
    cluster.produce(topic, numbers(0, 3))
    options = cluster.options(
        subscribePattern=f"^{topic}$",
        startingOffsets="earliest",
        failOnDataLoss="false",
        **{"fetchOffset.retryIntervalMs": "10"},
    )
    query = Query(cluster, topic)
    query.reader = StreamReader(options)
    assert query.start().batch() == numbers(0, 3)
    cluster.delete(topic)
    assert query.batch() == []
    # What Spark's own source writes into the offset log then.
    assert query.offset == {}
    # A driver that starts from there finds the topic when it is created again.
    after = Query(cluster, topic)
    after.reader = StreamReader(options)
    assert after.start({}).batch() == []
    cluster.create(name=topic)
    cluster.produce(topic, numbers(5, 7))
    assert after.batch() == numbers(5, 7)
    restarted = Query(cluster, topic)
    restarted.reader = StreamReader(options)
    assert restarted.start(after.offset).batch() == []
