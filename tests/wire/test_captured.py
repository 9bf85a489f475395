"""Frames that real programs sent: we read them, and would have written the very same bytes."""

from pathlib import Path

import pytest

from odradek.wire.api import APIS, ApiKey
from odradek.wire.header import (
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from odradek.wire.messages.fetch import FetchResponse
from odradek.wire.messages.join_group import JoinGroupRequest

FRAMES = [
    (direction, program, ApiKey[api], int(version), bytes.fromhex(frame))
    for line in (Path(__file__).parent / "captured_frames.txt").read_text().splitlines()
    if not line.startswith("#")
    for direction, program, name, version, frame in [line.split(", ")]
    for api in [next(api.key.name for api in APIS.values() if api.name == name)]
]
REQUESTS = [captured[1:] for captured in FRAMES if captured[0] == "request"]
RESPONSES = [captured[1:] for captured in FRAMES if captured[0] == "response"]


@pytest.mark.parametrize(("program", "key", "version", "frame"), REQUESTS)
def test_requests(program: str, key: ApiKey, version: int, frame: bytes) -> None:
    header, position = decode_request_header(frame)
    assert (header.api_key, header.api_version) == (key, version)
    assert header.client_id
    message = APIS[key].request.decode(frame[position:], version)
    again = encode_request(message, version, header.correlation_id, header.client_id)
    assert b"".join(again) == len(frame).to_bytes(4, "big") + frame


@pytest.mark.parametrize(("program", "key", "version", "frame"), RESPONSES)
def test_responses(program: str, key: ApiKey, version: int, frame: bytes) -> None:
    correlation_id, message = decode_response(APIS[key].response, version, frame)
    again = b"".join(encode_response(message, version, correlation_id))[4:]
    if key is ApiKey.METADATA and version >= 9:
        # librdkafka's mock ends with one empty list of tags too many; like Kafka we look away.
        again += b"\0"
    assert again == frame


def test_there_is_something_of_everybody() -> None:
    assert {program.split()[0] for program, *_ in REQUESTS} == {
        "aiokafka",
        "confluent-kafka",
        "kafka-python",
    }
    assert len(REQUESTS) > 50
    assert len(RESPONSES) > 12


def test_meaning_of_a_join() -> None:
    frame = next(row[3] for row in REQUESTS if row[1:3] == (ApiKey.JOIN_GROUP, 7))
    _, position = decode_request_header(frame)
    request = JoinGroupRequest.decode(frame[position:], 7)
    assert (request.group_id, request.protocol_type) == ("g", "consumer")
    assert "range" in [protocol.name for protocol in request.protocols]


def test_records_of_a_fetch_are_a_view_of_the_frame() -> None:
    frame = next(row[3] for row in RESPONSES if row[1:3] == (ApiKey.FETCH, 12))
    _, response = decode_response(FetchResponse, 12, frame)
    (topic,) = response.responses
    (partition,) = topic.partitions
    assert topic.topic == "spool"
    assert isinstance(partition.records, memoryview)
    assert partition.records.obj is frame
    assert b"value" in bytes(partition.records)
