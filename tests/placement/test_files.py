"""The JSON files of kafka-reassign-partitions, literally as the tool reads and prints them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.placement import (
    TopicPartitionReplica,
    format_reassignment,
    format_topics_to_move,
    parse_broker_list,
    parse_reassignment,
    parse_topics_to_move,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

FROM_THE_SEED = """
{
    "version":1,
    "partitions":[
        {"topic":"my_topic_name", "partition":0, "replicas":[0,1,2,3]},
        {"topic":"my_topic_name", "partition":1, "replicas":[1,2,3,0]},
        {"topic":"my_topic_name", "partition":2, "replicas":[2,3,0,1]}
    ]
}
"""


def test_the_example_of_the_first_seed() -> None:
    reassignment = parse_reassignment(FROM_THE_SEED)
    assert reassignment.replicas == {
        TopicPartition("my_topic_name", 0): [0, 1, 2, 3],
        TopicPartition("my_topic_name", 1): [1, 2, 3, 0],
        TopicPartition("my_topic_name", 2): [2, 3, 0, 1],
    }
    assert reassignment.log_dirs == {}


def test_log_directories_are_kept_but_any() -> None:
    reassignment = parse_reassignment(
        '{"partitions":[{"topic":"t","partition":3,"replicas":[1,2],"log_dirs":["any","/disk2"]}]}'
    )
    assert reassignment.log_dirs == {TopicPartitionReplica("t", 3, 2): "/disk2"}


def test_written_as_kafka_writes_it() -> None:
    replicas = {
        TopicPartition("t", 10): [3],
        TopicPartition("t", 9): [1, 2],
        TopicPartition("a", 0): [2],
    }
    assert format_reassignment(replicas, {TopicPartitionReplica("t", 9, 2): "/d"}) == (
        '{"version":1,"partitions":['
        '{"topic":"a","partition":0,"replicas":[2],"log_dirs":["any"]},'
        '{"topic":"t","partition":9,"replicas":[1,2],"log_dirs":["any","/d"]},'
        '{"topic":"t","partition":10,"replicas":[3],"log_dirs":["any"]}]}'
    )


@given(
    st.dictionaries(
        st.builds(
            TopicPartition, st.from_regex(r"[a-c._-]{1,3}", fullmatch=True), st.integers(0, 99)
        ),
        st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4, unique=True),
        min_size=1,
    )
)
def test_what_is_written_is_read_back(replicas: dict[TopicPartition, list[int]]) -> None:
    assert parse_reassignment(format_reassignment(replicas)) == (replicas, {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[]", "JSON object"),
        ('{"version":2,"partitions":[]}', "Not supported version field value 2"),
        ('{"version":"1","partitions":[]}', "Not supported version field value 1"),
        ('{"partitions":7}', "list of objects"),
        ('{"partitions":[7]}', "list of objects"),
        ('{"partitions":[{"partition":0,"replicas":[1]}]}', "'topic' must be a string"),
        ('{"partitions":[{"topic":"t","partition":"0","replicas":[1]}]}', "whole number"),
        ('{"partitions":[{"topic":"t","partition":true,"replicas":[1]}]}', "whole number"),
        ('{"partitions":[{"topic":"t","partition":0}]}', "'replicas' must be a list"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[1.5]}]}', "whole number"),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any"]}]}',
            "t-0 has 2 replicas but 1 log",
        ),
    ],
)
def test_malformed_files(text: str, says: str) -> None:
    with pytest.raises(KafkaError, match=says) as caught:
        parse_reassignment(text)
    assert caught.value.error is ErrorCode.INVALID_REQUEST


ONE = '{"topic":"t","partition":0,"replicas":[1]}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"version":1}', "names no partition"),
        ('{"version":1,"partitions":[]}', "names no partition"),
        (f'{{"partitions":[{ONE},{ONE}]}}', "names t-0 more than once"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[]}]}', "without a replica"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[1,2,1]}]}', "name 1 more than"),
    ],
)
def test_files_that_ask_for_the_impossible(text: str, says: str) -> None:
    with pytest.raises(KafkaError, match=says) as caught:
        parse_reassignment(text)
    assert caught.value.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_topics_to_move() -> None:
    text = '{"topics":[{"topic":"foo"},{"topic":"bar"}],"version":1}'
    assert parse_topics_to_move(text) == ["foo", "bar"]
    assert parse_topics_to_move(format_topics_to_move(["x", "y"])) == ["x", "y"]
    assert format_topics_to_move(["x"]) == '{"version":1,"topics":[{"topic":"x"}]}'
    assert parse_topics_to_move("{}") == []
    for bad in ('{"version":3}', '{"topics":[{"topic":"t"},{"topic":"t"}]}', '{"topics":[{}]}'):
        with pytest.raises(KafkaError):
            parse_topics_to_move(bad)


def test_broker_lists() -> None:
    assert parse_broker_list("3,1, 2") == [3, 1, 2]
    for bad in ("", "1,,2", "1,x", "1,2,1"):
        with pytest.raises(KafkaError) as caught:
            parse_broker_list(bad)
        assert caught.value.error is ErrorCode.INVALID_REQUEST
