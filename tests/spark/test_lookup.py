"""What the driver makes of a cluster that is starting or electing; no broker is needed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from odradek.client.client import Client
from odradek.client.reader import LATEST, OffsetAt
from odradek.spark import lookup
from odradek.spark.errors import DataLoss, NoBroker, OptionError
from odradek.spark.lookup import Lookup
from odradek.spark.options import source_options
from odradek.spark.stream_reader import StreamReader
from odradek.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.topics import TopicPartition

A = TopicPartition("t", 0)

Readers = Callable[..., StreamReader]


@dataclass
class Brokers:
    """Topics of one partition with ten records, and how the cluster tells of them."""

    topics: list[str] = field(default_factory=lambda: ["t"])
    # What the next answers name instead.
    answers: list[list[str]] = field(default_factory=list)
    epoch: int = 0
    first: tuple[int, int] = (0, 77)
    # What an election changes that comes while the first records are asked for.
    election: tuple[int, tuple[int, int]] | None = None
    asked: int = 0

    def metadata(self) -> MetadataResponse:
        self.asked += 1
        names = self.answers.pop(0) if self.answers else self.topics
        part = MetadataResponsePartition(leader_id=1, leader_epoch=self.epoch)
        topics = [MetadataResponseTopic(name=name, partitions=[part]) for name in names]
        return MetadataResponse(topics=topics)

    async def offsets_at(
        self, client: Client, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAt]:
        if self.election is not None and lookup.BEGINNING_OF_TIME_MS in wanted.values():
            (self.epoch, self.first), self.election = self.election, None
            await client.refresh({partition.topic for partition in wanted})
        times = {LATEST: (10, -1), lookup.BEGINNING_OF_TIME_MS: self.first}
        return {
            of: OffsetAt(*times.get(time, (self.first[0], -1)), 0) for of, time in wanted.items()
        }


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    scripted = Brokers()

    async def ask_any(client: Client, message: object) -> MetadataResponse:
        return scripted.metadata()

    async def offsets_at(client: Client, wanted: Any, isolation: object) -> Any:
        return await scripted.offsets_at(client, wanted)

    monkeypatch.setattr(Client, "ask_any", ask_any)
    monkeypatch.setattr(lookup, "offsets_at", offsets_at)
    return scripted


def options(**more: str) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": "b:1", "startingOffsets": "earliest"}
    return {**given, "subscribePattern": "^t", "fetchOffset.retryIntervalMs": "0", **more}


@pytest.fixture
def reader(brokers: Brokers) -> Iterator[Readers]:
    with ExitStack() as stack:

        def build(**more: str) -> StreamReader:
            stream = StreamReader(options(**more))
            stack.callback(stream.stop)
            return stream

        yield build


def read_to(stream: StreamReader, start: Mapping[str, Any]) -> dict[str, Any]:
    return stream.latestOffset(dict(start), ReadAllAvailable())


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("named", [[], ["other"]], ids=["nothing", "another topic"])
def test_topics_that_an_answer_leaves_out_are_looked_for_again(
    brokers: Brokers, reader: Readers, named: list[str], fail: str
) -> None:
    stream = reader(failOnDataLoss=fail)
    read = read_to(stream, stream.initialOffset())
    brokers.answers = [named, named]
    assert read_to(stream, read) == read


def test_a_list_that_is_kept_is_asked_for_again_when_partitions_are_missing(
    brokers: Brokers, reader: Readers
) -> None:
    stream = reader(**{"partition.metadata.cache.ttl.ms": "600000"})
    brokers.topics = ["t", "t2"]
    read = read_to(reader(), reader().initialOffset())
    brokers.answers = [["t"]]
    assert read_to(stream, read) == read


def test_what_is_missing_at_every_look_is_gone(brokers: Brokers, reader: Readers) -> None:
    brokers.topics = ["t", "t2"]
    stream = reader()
    read = read_to(stream, stream.initialOffset())
    brokers.topics, brokers.asked = ["t"], 0
    with pytest.raises(DataLoss, match="PARTITIONS_DELETED: t2-0 existed"):
        read_to(stream, read)
    assert brokers.asked == 3


def test_a_run_that_ends_waits_also_for_what_it_has_yet_to_begin(
    brokers: Brokers, reader: Readers
) -> None:
    before = read_to(reader(), reader().initialOffset())
    brokers.topics = ["t", "t2"]
    stream = reader(maxOffsetsPerTrigger="1")
    stream.prepareForTriggerAvailableNow()
    end = read_to(stream, before)
    brokers.answers = [["t"]]
    assert read_to(stream, before) == end


@pytest.mark.parametrize(("topics", "asked"), [([], 2), (["other"], 1), (["t"], 1)])
def test_a_cluster_that_names_no_topic_is_asked_once_more(
    brokers: Brokers, topics: list[str], asked: int
) -> None:
    brokers.topics = topics
    pauses: list[float] = []
    one = Lookup(source_options(options(), streaming=False), sleep=pauses.append)
    assert one.chosen().partitions == ((A,) if topics == ["t"] else ())
    assert (brokers.asked, len(pauses)) == (asked, asked - 1)
    one.close()


def test_a_batch_read_in_that_moment_reads_what_there_is(brokers: Brokers) -> None:
    brokers.answers = [[]]
    one = Lookup(source_options(options(), streaming=False))
    assert one.chosen().partitions == (A,)
    one.close()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_leader_elected_while_it_is_asked_is_known_by_its_epoch(
    brokers: Brokers, reader: Readers, fail: str
) -> None:
    stream = reader(failOnDataLoss=fail)
    brokers.first = (5, 88)
    read = read_to(stream, stream.initialOffset())
    assert read["@odradek"]["epoch"] == {"t": {"0": 0}}
    # Its log has not been compacted yet, and Metadata named the old leader when it was asked.
    brokers.election = (1, (0, 77))
    assert read_to(stream, read) == read


def test_a_topic_made_again_has_no_next_leader(brokers: Brokers, reader: Readers) -> None:
    stream = reader()
    brokers.epoch, brokers.first = 3, (5, 88)
    read = read_to(stream, stream.initialOffset())
    brokers.epoch, brokers.first = 0, (0, 99)
    with pytest.raises(DataLoss, match="PARTITION_OFFSET_CHANGED: the topic of t-0 was deleted"):
        read_to(stream, read)


def test_a_cluster_that_tells_no_epochs_is_remembered_without(
    brokers: Brokers, reader: Readers
) -> None:
    brokers.epoch = -1
    stream = reader()
    assert "epoch" not in read_to(stream, stream.initialOffset())["@odradek"]


def test_an_address_at_which_no_broker_answers_is_named_at_the_first_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert lookup.FIRST_CONTACT_S < 15
    monkeypatch.setattr(lookup, "FIRST_CONTACT_S", 0.3)
    options = source_options(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}, streaming=True
    )
    asked = Lookup(options)
    with pytest.raises(NoBroker, match=r"^no broker answers at 127\.0\.0\.1:1: "):
        asked.chosen()
    # Not three times: the address will not become right.
    assert asked.statistics() == {"questions": 1, "failures": 1}


def test_only_offsets_are_advised_about_earliest_and_latest() -> None:
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    for name, has_advice in (("startingOffsets", True), ("startingOffsetsByTimestamp", False)):
        given = source_options({**options, name: '{"t":{"0":5}}'}, streaming=False)
        with pytest.raises(OptionError, match="DOES_NOT_MATCH_ASSIGNED") as refused:
            Lookup(given).resolve(given.start, [A, TopicPartition("t", 1)], is_start=True)
        assert ("-2 is earliest" in str(refused.value)) == has_advice
