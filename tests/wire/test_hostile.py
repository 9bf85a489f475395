"""Any bytes give a value or DecodeError, and memory in proportion to the bytes."""

import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.samples import MESSAGES, sample

from odradek.wire.decoder import unsigned_varint
from odradek.wire.encoder import unsigned_varint as encode_varint
from odradek.wire.errors import DecodeError
from odradek.wire.header import decode_request_header, decode_response
from odradek.wire.messages.api_versions import ApiVersionsResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek.wire.schema import Message

# One decoded object for every few bytes: the worst is CreateTopicsResponse v0, whose topics take
# four bytes each on the wire and 150 in memory.
MEMORY_TIMES_MAX = 50
MEMORY_BYTES_MORE = 100_000

LARGE_NUMBERS = [
    b"\x7f\xff\xff\xff",  # the largest classic count
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",  # the largest compact count
    b"\xff\xff\xff\xff\xff\xff",
    b"\x7f\xff",
    b"\x80",
]


def decode(message: type[Message], data: bytes, version: int) -> None:
    try:
        value = message.decode(data, version)
    except DecodeError:
        return
    assert isinstance(value, message)


def damaged(data: bytes, random: Random) -> bytes:
    """The same bytes with one thing wrong: cut short, changed, or with a monstrous number."""
    where = random.randrange(len(data) + 1)
    match random.randrange(4):
        case 0:
            return data[:where]
        case 1:
            return data[:where] + random.randbytes(3) + data[where + 3 :]
        case 2:
            number = random.choice(LARGE_NUMBERS)
            return data[:where] + number + data[where + len(number) :]
        case _:
            return data[:where] + random.randbytes(random.randrange(20))


def any_bytes(random: Random) -> bytes:
    """Small counts and lengths now and then, so that a decoder comes far, and large ones."""
    telling = b"\0\1\2\3\x7f\x80\xff"
    size = random.randrange(201)
    return bytes(
        random.choice(telling) if random.random() < 0.7 else random.randrange(256)
        for _ in range(size)
    )


@pytest.mark.parametrize("message", MESSAGES)
def test_damaged_messages_and_any_bytes(message: type[Message]) -> None:
    for version in message.VERSIONS:
        random = Random(f"{message.__name__} {version}")
        value = sample(message, version, random)
        assert isinstance(value, message)
        encoded = value.encode(version)
        for _ in range(30):
            decode(message, damaged(encoded, random), version)
        for _ in range(10):
            decode(message, any_bytes(random), version)


@pytest.mark.parametrize("message", MESSAGES)
def test_truncated_anywhere(message: type[Message]) -> None:
    version = message.VERSIONS[-1]
    value = sample(message, version, Random(5))
    assert isinstance(value, message)
    encoded = value.encode(version)
    for size in range(max(0, len(encoded) - 3000), len(encoded)):
        with pytest.raises(DecodeError):
            message.decode(encoded[:size], version)


def hostile_frames() -> list[bytes]:
    """Frames that promise much: counts as large as the bytes allow, and larger, near the start."""
    size = 8192
    frames = [(number * size)[:size] for number in (b"\0", b"\1", b"\x7f", *LARGE_NUMBERS)]
    for count in (500, 2000, 2**31 - 2):
        for promise in (encode_varint(count + 1), count.to_bytes(4, "big")):
            frames += [
                (bytes(position) + promise).ljust(size, b"\0") for position in range(0, 20, 2)
            ]
    return frames


def test_memory_is_in_proportion_to_the_frame() -> None:
    frames = hostile_frames()
    for message in MESSAGES:
        for version in {message.VERSIONS[0], message.VERSIONS[-1]}:
            decode(message, b"", version)  # the decoder itself is made now
            for frame in frames:
                tracemalloc.start()
                decode(message, frame, version)
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                limit = MEMORY_TIMES_MAX * len(frame) + MEMORY_BYTES_MORE
                assert peak < limit, (message, version, frame[:24])


@given(data=st.binary(max_size=64))
@settings(max_examples=300)
def test_any_header(data: bytes) -> None:
    try:
        header, position = decode_request_header(data)
    except DecodeError:
        pass
    else:
        assert 8 <= position <= len(data)
        assert -(2**15) <= header.api_key < 2**15
    for response, version in ((MetadataResponse, 9), (ApiVersionsResponse, 3)):
        try:
            decode_response(response, version, data)
        except DecodeError:
            pass


@given(number=st.integers(0, 2**32 - 1))
def test_varints(number: int) -> None:
    encoded = encode_varint(number)
    assert unsigned_varint(b"x" + encoded + b"y", 1) == (number, 1 + len(encoded))


@pytest.mark.parametrize("encoded", [b"\x80" * 5 + b"\x01", b"\xff" * 5, b"\xff\xff\xff\xff\x10"])
def test_overlong_varints(encoded: bytes) -> None:
    with pytest.raises(DecodeError, match="too long"):
        unsigned_varint(encoded, 0)
    with pytest.raises(DecodeError, match="too long"):
        MetadataRequest.decode(encoded, 9)


def test_text_that_fits_no_older_version() -> None:
    """What a client may send in one version, others must receive in another."""
    longest = FindCoordinatorRequest(key="k" * 32767)
    for version in (2, 3):
        assert FindCoordinatorRequest.decode(longest.encode(version), version) == longest
    with pytest.raises(DecodeError, match="more than 32767 bytes"):
        FindCoordinatorRequest.decode(FindCoordinatorRequest(key="k" * 32768).encode(3), 3)


def test_text_that_is_not_utf8() -> None:
    with pytest.raises(DecodeError, match="utf-8"):
        MetadataRequest.decode(b"\x00\x00\x00\x01\x00\x02\xff\xfe", 0)


def test_null_where_none_may_be() -> None:
    with pytest.raises(DecodeError, match="name is null"):
        MetadataRequest.decode(b"\x00\x00\x00\x01\xff\xff", 0)
    with pytest.raises(DecodeError, match="topics is null"):
        MetadataRequest.decode(b"\xff\xff\xff\xff", 0)
    assert MetadataRequest.decode(b"\xff\xff\xff\xff", 1).topics is None
    with pytest.raises(DecodeError, match="no version"):
        MetadataRequest.decode(b"", 13)
