"""Refusals are made from the schemas: the error stands where Kafka's clients look for it."""

from random import Random

import pytest
from tests.wire.samples import sample

from odradek.wire.api import APIS, ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.refusal import refusal

ERROR = KafkaError(ErrorCode.POLICY_VIOLATION, "why")


def test_a_response_with_an_error_code_of_its_own_carries_only_that() -> None:
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=1)])])
    response = refusal(request, FetchResponse, 7, ERROR)
    assert response == FetchResponse(error_code=ErrorCode.POLICY_VIOLATION)


def test_without_one_every_partition_named_carries_it_and_knows_no_offset() -> None:
    asked = FetchPartition(partition=3, fetch_offset=9, log_start_offset=5)
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[asked])])
    response = refusal(request, FetchResponse, 5, ERROR)
    assert isinstance(response, FetchResponse)
    (topic,) = response.responses
    (data,) = topic.partitions
    assert (topic.topic, data.partition_index) == ("t", 3)
    assert data.error_code == ErrorCode.POLICY_VIOLATION
    assert (data.high_watermark, data.log_start_offset, data.records) == (-1, -1, b"")


def test_what_the_request_asked_for_is_not_taken_for_what_was_found() -> None:
    asked = ListOffsetsPartition(partition_index=2, timestamp=1234)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    response = refusal(request, ListOffsetsResponse, 4, ERROR)
    assert isinstance(response, ListOffsetsResponse)
    listed = response.topics[0].partitions[0]
    assert (listed.partition_index, listed.timestamp, listed.offset) == (2, -1, -1)
    topics = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=7)])
    created = refusal(topics, CreateTopicsResponse, 5, ERROR)
    assert isinstance(created, CreateTopicsResponse)
    assert (created.topics[0].name, created.topics[0].num_partitions) == ("t", -1)
    assert created.topics[0].error_message == "why"


def test_elements_that_are_names_alone_become_the_names_of_the_results() -> None:
    response = refusal(DeleteGroupsRequest(groups_names=["g"]), DeleteGroupsResponse, 2, ERROR)
    assert isinstance(response, DeleteGroupsResponse)
    assert response.results[0].group_id == "g"
    assert response.results[0].error_code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("key", sorted(APIS), ids=lambda key: ApiKey(key).name)
def test_every_refusal_can_be_written_in_its_version(key: int) -> None:
    api = APIS[key]
    for version in range(api.min_version, api.max_version + 1):
        for seed in range(5):
            request = sample(api.request, version, Random(seed))
            assert isinstance(request, api.request)
            response = refusal(request, api.response, version, ERROR)
            if response is not None:
                response.encode(version)
