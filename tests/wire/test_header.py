"""Frames: sizes, headers, and their two exceptions."""

import pytest

from odradek.wire.errors import DecodeError, ErrorCode
from odradek.wire.header import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from odradek.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.wire.messages.controlled_shutdown import ControlledShutdownRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.wire.schema import Message


def whole(message: Message, version: int, client_id: str | None = "me") -> bytes:
    return b"".join(encode_request(message, version, 7, client_id))


def test_a_classic_request() -> None:
    frame = whole(HeartbeatRequest(group_id="g", generation_id=3, member_id="m"), 0)
    assert frame == bytes.fromhex("00000016 000c 0000 00000007 0002 6d65 0001 67 00000003 0001 6d")
    header, position = decode_request_header(frame[4:])
    assert header == RequestHeader(12, 0, 7, "me")
    assert HeartbeatRequest.decode(frame[4 + position :], 0).generation_id == 3


def test_a_flexible_request_keeps_a_classic_client_id() -> None:
    frame = whole(HeartbeatRequest(group_id="g"), 4)
    assert frame[4:17] == bytes.fromhex("000c 0004 00000007 0002 6d65 00")
    assert decode_request_header(frame[4:]) == (RequestHeader(12, 4, 7, "me"), 13)


def test_no_client_id() -> None:
    frame = whole(HeartbeatRequest(), 0, client_id=None)
    assert decode_request_header(memoryview(frame)[4:]) == (RequestHeader(12, 0, 7, None), 10)


def test_controlled_shutdown_v0_has_no_client_id() -> None:
    frame = whole(ControlledShutdownRequest(broker_id=2), 0)
    assert frame == bytes.fromhex("0000000c 0007 0000 00000007 00000002")
    assert decode_request_header(frame[4:]) == (RequestHeader(7, 0, 7, None), 8)
    assert decode_request_header(whole(ControlledShutdownRequest(), 1)[4:])[0].client_id == "me"


def test_of_an_unknown_api_the_correlation_id_is_known() -> None:
    header, _ = decode_request_header(bytes.fromhex("03e7 0001 00000009"))
    assert header == RequestHeader(999, 1, 9, None)


def test_unknown_tags_in_a_header_are_skipped() -> None:
    frame = bytes.fromhex("000c 0004 00000007 ffff 01 05 02 abcd")
    assert decode_request_header(frame) == (RequestHeader(12, 4, 7, None), len(frame))


@pytest.mark.parametrize(
    "frame", ["", "000c0000000000", "000c 0000 00000007 0003 6d65", "000c 0000 00000007 0001 ff"]
)
def test_bad_headers(frame: str) -> None:
    with pytest.raises(DecodeError):
        decode_request_header(bytes.fromhex(frame))


@pytest.mark.parametrize(("version", "size"), [(0, 6), (1, 10), (4, 12)])
def test_responses(version: int, size: int) -> None:
    frame = b"".join(encode_response(HeartbeatResponse(error_code=27), version, 9))
    assert frame[:4] == size.to_bytes(4, "big")
    assert len(frame) == 4 + size
    decoded = decode_response(HeartbeatResponse, version, frame[4:])
    assert decoded == (9, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))


def test_an_api_versions_response_has_no_tags_in_its_header() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
    frame = b"".join(encode_response(response, 3, 9))
    assert frame[4:11] == bytes.fromhex("00000009 0000 02")
    assert decode_response(ApiVersionsResponse, 3, frame[4:]) == (9, response)
    assert (
        decode_request_header(whole(ApiVersionsRequest(), 3)[4:])[1] == 13
    )  # but its request does


def test_a_refused_api_versions_request_is_answered_in_v0() -> None:
    refusal = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_key=18, max_version=4)]
    )
    frame = b"".join(encode_response(refusal, 0, 9))
    assert decode_response(ApiVersionsResponse, 4, frame[4:]) == (9, refusal)


def test_a_bad_response_header() -> None:
    for frame in (b"", b"\0\0\0\1", b"\0\0\0\1\1"):
        with pytest.raises(DecodeError):
            decode_response(HeartbeatResponse, 4, frame)


def test_the_size_counts_records_that_are_pieces_of_their_own() -> None:
    records = bytes(10_000)
    data = [PartitionProduceData(index=0, records=records)]
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    parts = encode_request(request, 9, 1, "me")
    assert any(part is records for part in parts)
    frame = b"".join(parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
