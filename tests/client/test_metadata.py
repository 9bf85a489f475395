"""What the client makes of Metadata's answers."""

import pytest

from odradek.client.metadata import Metadata
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.topics import TopicPartition


def topic(name: str, *leaders: int, error: ErrorCode = ErrorCode.NONE) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=leader, replica_nodes=[1])
            for index, leader in reversed(list(enumerate(leaders)))
        ],
    )


def answer(*topics: MetadataResponseTopic) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=node, host="h", port=node) for node in (1, 2)]
    return MetadataResponse(brokers=brokers, controller_id=2, topics=list(topics))


def test_leaders() -> None:
    metadata = Metadata()
    metadata.update(answer(topic("t", 1, -1, 7)), whole=False)
    assert metadata.leader(TopicPartition("t", 0)) == 1
    assert metadata.partitions_of(["t"]) == [TopicPartition("t", index) for index in range(3)]
    for partition, says in ((1, "has no leader"), (2, "has no leader"), (3, "it has 3")):
        with pytest.raises(KafkaError, match=says):
            metadata.leader(TopicPartition("t", partition))
    with pytest.raises(KafkaError, match="'u' does not exist"):
        metadata.leader(TopicPartition("u", 0))


def test_topics_come_and_go() -> None:
    metadata = Metadata()
    metadata.update(answer(topic("a", 1), topic("b", 1)), whole=True)
    metadata.update(answer(topic("b", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)), whole=False)
    assert set(metadata.topics) == {"a"}
    metadata.update(answer(topic("b", 2)), whole=False)
    assert set(metadata.topics) == {"a", "b"} and metadata.problems == {}
    metadata.update(answer(topic("c", 2)), whole=True)
    assert set(metadata.topics) == {"c"}


def test_why_a_topic_is_unknown() -> None:
    metadata = Metadata()
    metadata.update(answer(topic("s", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)), whole=False)
    assert metadata.problem_with("s").error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
