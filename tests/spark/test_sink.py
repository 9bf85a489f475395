"""Rows to records: columns, options, and a cluster that changes under the writer."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2
from pyspark.sql.types import StructType, _parse_datatype_json_string

from odradek.client.client import Client
from odradek.client.metadata import Partition, Topic
from odradek.client.producer import Delivery, Producer
from odradek.client.reader import PartitionReader
from odradek.log.config import LogConfig
from odradek.spark.decode import SCHEMA_WITH_HEADERS
from odradek.spark.errors import HIDE_TRACEBACK, BadRow, OptionError
from odradek.spark.sender import Sender, gather
from odradek.spark.sink import BatchWriter, StreamWriter
from odradek.spark.sink_options import sink_options
from odradek.wire.batch import HEADER_BYTES
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record
from odradek.wire.topics import TopicPartition

HEADERS = SCHEMA_WITH_HEADERS.field("headers").type
BASE = {"kafka.bootstrap.servers": "h:1"}


def columns(*names_and_types: tuple[str, str]) -> StructType:
    fields = ",".join(
        f'{{"name":"{name}","type":{kind},"nullable":true,"metadata":{{}}}}'
        for name, kind in names_and_types
    )
    parsed = _parse_datatype_json_string(f'{{"type":"struct","fields":[{fields}]}}')
    assert isinstance(parsed, StructType)
    return parsed


HEADERS_JSON = (
    '{"type":"array","containsNull":true,"elementType":{"type":"struct","fields":['
    '{"name":"key","type":"string","nullable":true,"metadata":{}},'
    '{"name":"value","type":"binary","nullable":true,"metadata":{}}]}}'
)
ALL = columns(
    ("key", '"binary"'),
    ("value", '"binary"'),
    ("topic", '"string"'),
    ("partition", '"integer"'),
    ("headers", HEADERS_JSON),
    ("ignored", '"double"'),
)
VALUE = columns(("value", '"string"'))


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (VALUE, {}, "an option topic or a column topic"),
        (columns(("key", '"string"')), {"topic": "t"}, "a column value is needed"),
        (columns(("Value", '"string"')), {"topic": "t"}, "a column value is needed"),
        (columns(("value", '"integer"')), {"topic": "t"}, "value must be string or binary"),
        (
            columns(("value", '"string"'), ("partition", '"long"')),
            {"topic": "t"},
            "partition must be int, and is bigint",
        ),
        (VALUE, {"topic": "t", "kafka.key.serializer": "x"}, "is not supported"),
        (VALUE, {"topic": "t", "kafka.partitioner.class": "x"}, "a column partition says"),
        (VALUE, {"topic": "t", "kafka.transactional.id": "x"}, "with exactlyOnce each task"),
        (VALUE, {"topic": "t", "exactlyOnce": "yes"}, "exactlyOnce must be true or false"),
        (VALUE, {"topic": "t", "exactlyOnce": "true", "kafka.acks": "1"}, "needs kafka.acks"),
        (VALUE, {"topic": "t", "txnAppId": "a", "txnVersion": "1"}, "is for exactlyOnce=true"),
        (
            VALUE,
            {"topic": "t", "exactlyOnce": "false", "kafka.transactional.id.prefix": "p"},
            "prefix is for exactlyOnce=true",
        ),
        (VALUE, {"topic": "t", "exactlyOnce": "true", "txnVersion": "1"}, "go together"),
        (
            VALUE,
            {"topic": "t", "exactlyOnce": "true", "txnAppId": "a.b", "txnVersion": "1"},
            "letters, digits, _ and -",
        ),
        (
            VALUE,
            {"topic": "t", "exactlyOnce": "true", "txnAppId": "a", "txnVersion": "-1"},
            "txnVersion must not be negative",
        ),
        (
            VALUE,
            {"topic": "t", "exactlyOnce": "true", "kafka.transaction.timeout.ms": "0"},
            "must be positive",
        ),
        (VALUE, {"topic": "t", "kafka.compresion.type": "x"}, "mean kafka.compression.type?"),
        (VALUE, {"topics": "t"}, "did you mean topic?"),
        (VALUE, {"topic": "t", "kafka.acks": "2"}, "kafka.acks must be one of all"),
        (VALUE, {"topic": "t", "kafka.compression.type": "zip"}, "must be one of none, gzip"),
        (
            VALUE,
            {"topic": "t", "kafka.security.protocol": "TELNET"},
            "is not one of PLAINTEXT, SSL",
        ),
        (VALUE, {"topic": "t", "kafka.batch.size": "big"}, "must be a whole number"),
        (
            VALUE,
            {"topic": "t", "kafka.acks": "1", "kafka.enable.idempotence": "true"},
            "needs kafka.acks to be all",
        ),
    ],
)
def test_what_is_refused(schema: StructType, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        BatchWriter({**BASE, **options}, schema)


def test_defaults_and_what_follows_from_acks() -> None:
    options = sink_options({**BASE, "TOPIC": " t ", "checkpointlocation": "/c"})
    assert (options.topic, options.acks, options.idempotent) == ("t", -1, True)
    assert options.codec is Codec.NONE
    assert not sink_options({**BASE, "kafka.acks": "1"}).idempotent
    assert options.transactions is None
    named = sink_options({**BASE, "kafka.transactional.id.prefix": "billing"}).transactions
    assert named is not None
    assert (named.prefix, named.timeout_ms, named.application) == ("billing", 900_000, "")
    of_stream = {**BASE, "exactlyOnce": "true", "txnAppId": "a", "txnVersion": "1", "topic": "t"}
    with pytest.raises(OptionError, match="a stream has its query and batch"):
        StreamWriter(of_stream, VALUE)


def test_a_batch_that_is_too_large_names_both_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: Any) -> int:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "partition t-0: batch of 9 bytes")

    monkeypatch.setattr("odradek.spark.sink._write", refused)
    # What a writer changes in its process is not for the other tests.
    monkeypatch.setattr("odradek.spark.memory.for_writing", lambda: None)
    monkeypatch.setenv(HIDE_TRACEBACK, "0")
    writer = BatchWriter({**BASE, "topic": "t"}, VALUE)
    with pytest.raises(KafkaError, match=r"9 bytes; set kafka\.batch\.size .*max\.message\.bytes"):
        writer.write(iter(()))


def test_a_batch_of_small_rows_fits_a_topic_that_nothing_was_set_for() -> None:
    assert sink_options(BASE).batch_bytes + HEADER_BYTES <= LogConfig().max_message_bytes


def test_gathering_keeps_the_rows_and_their_order() -> None:
    batches = [pa.RecordBatch.from_pydict({"value": [b"%d" % i] * 3}) for i in range(10)]
    empty = batches[0].slice(0, 0)
    gathered = list(gather([empty, *batches, empty], size_bytes=100))
    assert 1 < len(gathered) < 10
    whole = pa.Table.from_batches(batches)
    assert pa.Table.from_batches(gathered).to_pydict() == whole.to_pydict()
    assert list(gather([empty])) == []


def rows(*content: dict[str, Any]) -> pa.RecordBatch:
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("headers", HEADERS),
            ("ignored", pa.float64()),
        ]
    )
    return pa.RecordBatch.from_pylist(list(content), schema=schema)


def read(cluster: Any, topic: str, partition: int = 0) -> list[Record]:
    target = TopicPartition(topic, partition)
    client = cluster.client

    async def all_of_it() -> list[Record]:
        from odradek.client.reader import LATEST, offsets_at

        end = (await offsets_at(client.client, {target: LATEST}))[target].offset
        reader = PartitionReader(client.client)
        return [
            record async for batches in reader.batches(target, 0, end) for record in batches.open()
        ]

    found: list[Record] = client.run(all_of_it())
    return found


@pytest.mark.process
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_column_goes_where_it_belongs(cluster: Any, codec: str) -> None:
    one, three = cluster.create(), cluster.create(partitions=3)
    writer = BatchWriter(cluster.options(kafka__compression__type=codec), ALL)
    batch = rows(
        {"value": b"a", "topic": one, "headers": [{"key": "h", "value": None}], "ignored": 1.0},
        {"value": None, "key": b"gone", "topic": one},
        {"value": b"", "key": b"", "topic": one},
        {"value": b"b", "key": b"k", "topic": three},
        {"value": b"c", "key": b"k", "topic": three, "partition": 2},
    )
    assert writer.write(iter([batch])).rows == 5
    assert [(r.key, r.value, list(r.headers)) for r in read(cluster, one)] == [
        (None, b"a", [("h", None)]),
        (b"gone", None, []),
        (b"", b"", []),
    ]
    by_hash = (murmur2(b"k") & 0x7FFFFFFF) % 3
    assert b"b" in [r.value for r in read(cluster, three, by_hash)]
    assert b"c" in [r.value for r in read(cluster, three, 2)]


@pytest.mark.process
def test_the_option_beats_the_column_and_no_topic_is_an_error(cluster: Any) -> None:
    topic = cluster.create()
    batch = rows({"value": b"x", "topic": "elsewhere"}, {"value": b"y"})
    StreamWriter(cluster.options(topic=topic, checkpointLocation="/c"), ALL).write(iter([batch]))
    assert [r.value for r in read(cluster, topic)] == [b"x", b"y"]
    with pytest.raises(BadRow, match="KAFKA_NULL_TOPIC_IN_DATA"):
        BatchWriter(cluster.options(), ALL).write(iter([rows({"value": b"y"})]))


@pytest.mark.process
@pytest.mark.parametrize("partition", [7, -1])
def test_a_partition_that_does_not_exist(cluster: Any, partition: int) -> None:
    topic = cluster.create()
    batch = rows({"value": b"x", "topic": topic, "partition": partition})
    with pytest.raises(BadRow, match=f"has 1 partitions, and a row asks for {partition}"):
        BatchWriter(cluster.options(), ALL).write(iter([batch]))


@pytest.mark.process
def test_a_leader_that_dies_while_rows_are_written_costs_no_row_and_adds_none(
    cluster: Any,
) -> None:
    brokers = cluster.brokers
    topic = cluster.create()
    leader = cluster.leader(topic)
    schema = columns(("value", '"binary"'))

    def slowly() -> Iterator[pa.RecordBatch]:
        for number in range(40):
            if number == 20:
                brokers.kill(leader)
            values = [b"%d" % (number * 1000 + i) * 20 for i in range(1000)]
            yield pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})

    writer = BatchWriter(cluster.options(topic=topic, kafka__batch__size=20_000), schema)
    try:
        assert writer.write(slowly()).rows == 40_000
        written = [r.value for r in read(cluster, topic)]
        assert written == [b"%d" % i * 20 for i in range(40_000)]
    finally:
        brokers.start(leader)


async def test_a_failure_ends_the_task_before_more_is_sent() -> None:
    """Else a task without brokers would go on for as long as it has rows, each batch in vain."""

    class Failed(Producer):
        def raise_failure(self) -> None:
            raise ConnectionError("the brokers are gone")

        async def send_batch(self, partition: TopicPartition, batch: bytearray) -> Delivery:
            raise AssertionError("sent all the same")

    client = Client("h:1")
    client.metadata.topics["t"] = Topic(
        "t", UUID(int=0), False, {0: Partition(0, 1, 0, [1], [1], [])}
    )
    sender = Sender(
        sink_options({**BASE, "topic": "t"}), ["value"], client, Failed(client, linger_s=0)
    )
    with pytest.raises(ConnectionError, match="the brokers are gone"):
        await sender.send(pa.RecordBatch.from_pydict({"value": [b"x"]}))
