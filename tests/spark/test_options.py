"""Every option of Spark's `kafka` format: what it means, and what is refused in which words."""

from typing import Any

import pytest

from odradek.spark.errors import OptionError
from odradek.spark.options import (
    Choice,
    Kind,
    Limit,
    SourceOptions,
    duration_ms,
    source_options,
    without_effect,
)
from odradek.wire.topics import TopicPartition

BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def read(streaming: bool = False, drop: str = "", **more: str) -> SourceOptions:
    options = {**BASE, **{name.replace("__", "."): value for name, value in more.items()}}
    options.pop(drop, None)
    return source_options(options, streaming)


def test_the_defaults() -> None:
    batch, stream = read(), read(streaming=True)
    assert (batch.start, batch.end) == (Limit(Kind.EARLIEST), Limit(Kind.LATEST))
    assert stream.start == Limit(Kind.LATEST)
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert not batch.read_committed
    assert not batch.start_strategy_latest
    assert batch.attempts == 3
    assert batch.retry_interval_ms == 1000
    assert batch.poll_timeout_ms == 120_000
    assert batch.metadata_ttl_ms == -1
    assert batch.max_delay_ms == 15 * 60_000
    for unset in ("max_offsets", "min_offsets", "min_partitions", "max_records", "commit_group"):
        assert getattr(batch, unset) is None


def test_names_and_words_are_read_in_any_case() -> None:
    options = source_options(
        {"KAFKA.Bootstrap.Servers": "h:1", "SUBSCRIBE": "t", "StartingOffsets": "Earliest"},
        streaming=True,
    )
    assert options.start.kind is Kind.EARLIEST


def test_topics_by_name_pattern_and_assignment() -> None:
    assert read(subscribe=" a, ,b ").topics.names == ("a", "b")
    pattern = read(drop="subscribe", subscribePattern=" top.* ").topics
    assert (pattern.choice, pattern.pattern) == (Choice.PATTERN, "top.*")
    assert read(drop="subscribe", assign='{"b":[1,0],"a":[2]}').topics.partitions == (
        TopicPartition("a", 2),
        TopicPartition("b", 0),
        TopicPartition("b", 1),
    )


def test_a_single_time_beats_times_beat_offsets_and_the_losers_are_not_read() -> None:
    beaten = read(startingTimestamp="17", startingOffsetsByTimestamp="{", startingOffsets="{")
    assert beaten.start == Limit(Kind.TIMESTAMP, 17)
    by_partition = read(startingOffsetsByTimestamp='{"t":{"0":9}}', startingOffsets="{").start
    assert by_partition == Limit(Kind.TIMESTAMPS, 0, {TopicPartition("t", 0): 9})
    assert read(startingOffsets='{"t":{"0":-2}}').start.by_partition == {TopicPartition("t", 0): -2}


def test_what_a_stream_does_with_an_end() -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp"):
        with pytest.raises(OptionError, match=f"{name} is for batch reads"):
            read(streaming=True, **{name: "latest"})
    # Spark's own format does not look at it either.
    assert read(streaming=True, endingTimestamp="not even a number").topics.names == ("t",)


def test_what_a_batch_read_does_not_heed() -> None:
    assert without_effect({"MaxOffsetsPerTrigger": "5", "commitgroup": "g", "subscribe": "t"}) == [
        "maxOffsetsPerTrigger",
        "commitGroup",
    ]
    assert read(maxOffsetsPerTrigger="5").max_offsets == 5  # yet it is not refused


def test_settings_of_the_java_client_may_come_along() -> None:
    options = read(
        kafka__max__poll__records="9", kafka__ssl__truststore__type="x", kafka__linger__ms="5"
    )
    assert options.client["max.poll.records"] == "9"


def test_client_settings_lose_their_prefix() -> None:
    options = read(kafka__isolation__level="read_committed", kafka__fetch__max__bytes="9")
    read(kafka__buffer__memory="3000000000")
    assert options.read_committed
    assert options.client["fetch.max.bytes"] == "9"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribePattern": "x"}, "exactly one of .* got subscribe, subscribePattern"),
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "cannot be latest"),
        ({"startingOffsets": "erliest"}, "must be earliest, latest or JSON"),
        ({"startingOffsets": '{"t":{"0":1.5}}'}, "must be earliest, latest or JSON"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "must be earliest, latest or JSON"),
        ({"endingOffsets": '{"t":{"0":-3}}'}, "must be earliest, latest or JSON"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "cannot be earliest"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp must be a whole number"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "must be error or latest"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({"includeHeaders": "1"}, "includeHeaders must be true or false"),
        ({"minPartitions": "0"}, "minPartitions must be greater than 0"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be greater than 0"),
        ({"partition.metadata.cache.ttl.ms": "0"}, "must be -1"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is greater than"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time"),
        ({"kafka.isolation.level": "chaos"}, "must be read_uncommitted or read_committed"),
        ({"kafka.auto.offset.reset": "none"}, "use startingOffsets instead"),
        ({"kafka.key.deserializer": "x"}, "is not supported"),
        ({"kafka.value.deserializer": "x"}, "is not supported"),
        ({"kafka.enable.auto.commit": "x"}, "commitGroup"),
        ({"kafka.interceptor.classes": "x"}, "is not supported"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"bootstrap.servers": "h:1"}, r"did you mean kafka\.bootstrap\.servers?"),
        ({"zzz": "1"}, "unknown option zzz$"),
        ({"kafka.isolation.levl": "x"}, r"did you mean kafka\.isolation\.level?"),
        ({"kafka.bootstrap.server": "h:1"}, r"did you mean kafka\.bootstrap\.servers?"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism: unset"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol: TLS is not one of"),
        ({"kafka.odradek.config.file": "/nowhere"}, "cannot read /nowhere"),
        ({"kafka.fetch.max.bytes": "-1"}, "must not be negative"),
        ({"kafka.fetch.max.bytes": "3000000000"}, "must be at most 2147483647, got 3000000000"),
        ({"kafka.fetch.max.wait.ms": "3000000000"}, "must be at most 2147483647"),
        (
            {"startingTimestamp": f"{2**63}"},
            "startingTimestamp must be from .* to 9223372036854775",
        ),
        (
            {"startingOffsetsByTimestamp": f'{{"t":{{"0":{2**63}}}}}'},
            "startingOffsetsByTimestamp must be earliest, latest or JSON",
        ),
        ({"kafka.bootstrap.servers": "h:x"}, "looks like host:port"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss must be true or false"),
        ({"fetchOffset.numRetries": "some"}, "must be a whole number"),
        ({"partition.metadata.cache.ttl.ms": "-2"}, "must be -1"),
        (
            {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"1":1}}'},
            "MISMATCHED_TOPIC_PARTITIONS.*the start names t-0, the end t-1",
        ),
        (
            {"startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":5}}'},
            "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET: t-0 starts at 9 and ends at 5",
        ),
    ],
)
def test_what_is_refused(more: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        source_options({**BASE, **more}, streaming=False)


@pytest.mark.parametrize("value", ["", "t", "[0]", '{"t":0}', '{"t":["0"]}', "{"])
def test_assign_shows_a_sample(value: str) -> None:
    with pytest.raises(OptionError, match="assign must be JSON such as"):
        read(drop="subscribe", assign=value)


def test_a_pattern_that_is_none() -> None:
    with pytest.raises(OptionError, match="no regular expression"):
        read(drop="subscribe", subscribePattern="(")
    with pytest.raises(OptionError, match="subscribePattern is empty"):
        read(drop="subscribe", subscribePattern=" ")


def test_a_missing_topic_is_reported_before_missing_servers() -> None:
    with pytest.raises(OptionError, match="exactly one of"):
        source_options({}, streaming=True)
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers must be given"):
        read(drop="kafka.bootstrap.servers")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500", 500), ("15m", 900_000), ("2 h", 7_200_000), ("1D", 86_400_000), ("30s", 30_000)],
)
def test_times(text: str, expected: Any) -> None:
    assert duration_ms(text, "x") == expected


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "startingOffsets",
            '{"t":{"0":5,"1":-1}}',
            r"startingOffsets of a batch read cannot be latest \(-1\) for t-1: nothing follows",
        ),
        ("startingOffsets", "latest", r"cannot be latest \(-1\): nothing follows"),
        (
            "endingOffsets",
            '{"t":{"0":-2,"1":5}}',
            r"endingOffsets cannot be earliest \(-2\) for t-0: nothing comes before",
        ),
        ("endingOffsets", "earliest", r"cannot be earliest \(-2\): nothing comes before"),
    ],
)
def test_a_side_that_leaves_nothing_to_read_is_refused_with_its_partition(
    name: str, value: str, message: str
) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", name: value}
    with pytest.raises(OptionError, match=message):
        source_options(given, streaming=False)
