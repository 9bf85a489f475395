"""Every message in every version, there and back; and how values and versions get on."""

import re
import sys
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from tests.wire.samples import MESSAGES, sample

from odradek.wire.api import APIS, Api
from odradek.wire.errors import DecodeError, EncodeError
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.create_topics import CreateTopicsRequest
from odradek.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    PartitionData,
)
from odradek.wire.messages.leader_and_isr import UNCLEAN_TAG
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from odradek.wire.messages.offsets_topic import OffsetCommitValue
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.wire.schema import Message, Struct, fields_of

SAMPLES = 6


@pytest.mark.parametrize("message", MESSAGES)
def test_what_is_encoded_is_decoded(message: type[Message]) -> None:
    for version in message.VERSIONS:
        random = Random(f"{message.__name__} {version}")
        for _ in range(SAMPLES):
            value = sample(message, version, random)
            assert isinstance(value, message)
            encoded = value.encode(version)
            assert message.decode(encoded, version) == value, version
            assert message.decode(memoryview(bytearray(encoded)), version) == value, version
            assert b"".join(value.encode_parts(version)) == encoded, version


def structs_of(struct: type[Struct]) -> list[type[Struct]]:
    inner = [(field.kind.element or field.kind).struct for field in fields_of(struct)]
    return [struct, *(found for one in inner if one is not None for found in structs_of(one))]


@pytest.mark.parametrize("message", MESSAGES)
def test_the_schema_makes_sense(message: type[Message]) -> None:
    for struct in structs_of(message):
        tags = [
            field.tag
            for field in fields_of(struct)
            if field.tag is not None and field.tag < UNCLEAN_TAG  # from there on ours
        ]
        assert sorted(tags) == list(range(len(tags)))
        for field in fields_of(struct):
            assert field.first <= field.last
            assert field.first in message.VERSIONS or field.first == 0
            assert field.tag is None or field.first >= message.FLEXIBLE_FROM
            assert field.default is not None or field.nullable_since < 100


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_request_names_its_own_response(api: Api) -> None:
    """What a caller's types rest on, and nothing at run time knows."""
    module = Path(sys.modules[api.request.__module__].__file__ or "").read_text()
    declared = rf"class {api.name}Request\(\s*Request\[\"{api.name}Response\"\]"
    assert re.search(declared, module)


def test_defaults_are_kafkas_and_lists_are_not_shared() -> None:
    request = MetadataRequest()
    assert request.topics == []
    assert request.allow_auto_topic_creation is True
    assert request.topics is not MetadataRequest().topics
    partition = PartitionData()
    assert (partition.log_start_offset, partition.preferred_read_replica) == (-1, -1)
    assert (partition.diverging_epoch, partition.records) == (None, None)
    assert FetchRequest().max_bytes == 2**31 - 1


def test_messages_are_values() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    assert request == MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    assert request != MetadataRequest(topics=[MetadataRequestTopic(name="b")])
    assert request != MetadataRequestTopic(name="a")
    assert "MetadataRequestTopic(topic_id=UUID(" in repr(request)
    assert "name='a'" in repr(request)
    with pytest.raises(TypeError):
        MetadataRequest(topic=[])  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        request.topic = []  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        hash(request)


def test_a_field_the_version_lacks_is_at_its_default_when_decoded() -> None:
    topic = MetadataResponseTopic(name="t", topic_id=UUID(int=1), topic_authorized_operations=3)
    encoded = MetadataResponse(controller_id=4, topics=[topic]).encode(0)
    response = MetadataResponse.decode(encoded, 0)
    assert response.controller_id == -1
    assert response.topics[0].topic_id == UUID(int=0)
    assert response.topics[0].topic_authorized_operations == -(2**31)


def test_a_request_refuses_to_leave_out_what_matters() -> None:
    request = MetadataRequest(allow_auto_topic_creation=False)
    with pytest.raises(EncodeError, match="no allow_auto_topic_creation"):
        request.encode(3)
    assert MetadataRequest.decode(request.encode(4), 4) == request
    with pytest.raises(EncodeError, match="no forgotten_topics_data"):
        FetchRequest(forgotten_topics_data=[ForgottenTopic(topic="t")]).encode(6)


def test_a_request_leaves_out_what_does_not() -> None:
    request = FetchRequest(session_id=7, rack_id="here")
    assert FetchRequest.decode(request.encode(4), 4) == FetchRequest()


def test_a_response_leaves_out_what_the_version_cannot_say() -> None:
    partition = ListOffsetsPartitionResponse(partition_index=1, offset=5, leader_epoch=9)
    response = ListOffsetsResponse(
        throttle_time_ms=3, topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])]
    )
    decoded = ListOffsetsResponse.decode(response.encode(1), 1)
    assert decoded.throttle_time_ms == 0
    assert decoded.topics[0].partitions[0].leader_epoch == -1
    assert decoded.topics[0].partitions[0].offset == 5


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (MetadataRequest(topics=None), 0),  # null only since v1
        (MetadataResponse(topics=[MetadataResponseTopic(name=None)]), 9),
        (MetadataResponse(controller_id=2**31), 1),
        (MetadataResponse(cluster_id="x" * 32768), 2),
        (MetadataResponse(cluster_id="\ud800"), 9),
        (MetadataResponse(), 13),
        (MetadataResponse(), -1),
        (CreateTopicsRequest(timeout_ms="soon"), 0),  # type: ignore[arg-type]  # that is the point
    ],
)
def test_what_cannot_be_encoded(message: Message, version: int) -> None:
    with pytest.raises(EncodeError, match=type(message).__name__):
        message.encode(version)


def produce(records: Any) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=records)]
    return ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=data)])


@pytest.mark.parametrize("version", [7, 9])
def test_large_records_are_never_copied(version: int) -> None:
    first, second = bytes(100_000), bytearray(b"x" * 50_000)
    parts = produce([first, memoryview(second)]).encode_parts(version)
    assert any(part is first for part in parts)
    assert any(isinstance(part, memoryview) and part.obj is second for part in parts)
    frame = bytearray(b"".join(parts))
    decoded = ProduceRequest.decode(frame, version)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records == first + second
    assert records.obj is frame
    assert not records.readonly  # offsets and epochs are patched where they were received


@pytest.mark.parametrize(
    "records", [None, b"", bytearray(b"abc"), memoryview(b"abc"), [b"a", b"bc"]]
)
@pytest.mark.parametrize("version", [7, 9])
def test_records_in_every_form(version: int, records: Any) -> None:
    decoded = ProduceRequest.decode(produce(records).encode(version), version)
    found = decoded.topic_data[0].partition_data[0].records
    if records is None:
        assert found is None
    else:
        assert found == b"".join(records if isinstance(records, list) else [records])


def test_tagged_fields_are_left_out_at_their_default() -> None:
    def encoded(**values: Any) -> bytes:
        partition = PartitionData(aborted_transactions=[], **values)
        topic = FetchableTopicResponse(topic="t", partitions=[partition])
        return FetchResponse(responses=[topic]).encode(12)

    diverging = EpochEndOffset(epoch=3, end_offset=7)
    assert len(encoded(diverging_epoch=diverging)) == len(encoded()) + 1 + 1 + 4 + 8 + 1
    decoded = FetchResponse.decode(encoded(diverging_epoch=diverging), 12)
    assert decoded.responses[0].partitions[0].diverging_epoch == diverging


def test_a_reassignment_says_only_for_a_plan_what_kafka_does_not_know() -> None:
    topic = ReassignableTopic(
        name="t",
        partitions=[ReassignablePartition(replicas=[1], plan_position=3, replica_bytes=1 << 40)],
    )
    planned = AlterPartitionReassignmentsRequest(topics=[topic], plan_id="20261116-1")
    assert AlterPartitionReassignmentsRequest.decode(planned.encode(0), 0) == planned
    plain = ReassignableTopic(name="t", partitions=[ReassignablePartition(replicas=[1])])
    encoded = AlterPartitionReassignmentsRequest(topics=[plain]).encode(0)
    # Timeout, one topic, one partition, one replica, and no tag at any level.
    assert encoded == bytes.fromhex("0000ea60 02 0274 02 00000000 02 00000001 00 00 00")


def test_unknown_tagged_fields_are_skipped() -> None:
    encoded = MetadataRequest().encode(9)
    assert encoded[-1:] == b"\0"
    tagged = encoded[:-1] + b"\x02" + b"\x63\x03abc" + b"\x80\x01\x00"
    assert MetadataRequest.decode(tagged, 9) == MetadataRequest()
    with pytest.raises(DecodeError):
        MetadataRequest.decode(encoded[:-1] + b"\x01\x63\x04abc", 9)


def test_what_follows_a_message_is_not_looked_at() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert MetadataRequest.decode(request.encode(9) + b"\0more", 9) == request


def test_records_of_internal_topics_begin_with_their_version() -> None:
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=1)
    encoded = value.encode_versioned(3)
    assert encoded[:2] == b"\x00\x03"
    assert OffsetCommitValue.decode_versioned(encoded) == value
    for bad in (b"", b"\x00", b"\x00\x05" + encoded[2:], b"\xff\xff" + encoded[2:]):
        with pytest.raises(DecodeError):
            OffsetCommitValue.decode_versioned(bad)
