"""The codecs: what they frame, what they read, and that nothing opens to more than it may."""

import pytest
from aiokafka import codec as theirs
from hypothesis import given
from hypothesis import strategies as st

from odradek.wire.compression import (
    LZ4_BLOCK_BYTES,
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    Codec,
    compress,
    decompress,
)
from odradek.wire.errors import DecodeError

CODECS = [codec for codec in Codec if codec is not Codec.NONE]
SAMPLES = [
    b"",
    b"x",
    b"The Cares of a Family Man " * 1000,
    bytes(i * i % 251 for i in range(XERIAL_BLOCK_BYTES * 3 + 5)),
    bytes(LZ4_BLOCK_BYTES * 2),
]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_data_comes_back(codec: Codec, data: bytes) -> None:
    for buffer in (data, bytearray(data), memoryview(data)):
        assert decompress(codec, compress(codec, buffer)) == data
    assert decompress(codec, compress(codec, data), size_max=len(data)) == data


@given(st.binary(max_size=5000), st.sampled_from(CODECS))
def test_any_data_comes_back(data: bytes, codec: Codec) -> None:
    assert decompress(codec, memoryview(bytearray(compress(codec, data)))) == data


@pytest.mark.parametrize("data", SAMPLES[1:], ids=len)
def test_other_clients_and_we_understand_each_other(data: bytes) -> None:
    assert bytes(theirs.gzip_decode(compress(Codec.GZIP, data))) == data
    assert bytes(theirs.snappy_decode(compress(Codec.SNAPPY, data))) == data
    assert bytes(theirs.lz4_decode(compress(Codec.LZ4, data))) == data
    assert bytes(theirs.zstd_decode(compress(Codec.ZSTD, data))) == data
    assert decompress(Codec.GZIP, bytes(theirs.gzip_encode(data))) == data
    assert decompress(Codec.SNAPPY, bytes(theirs.snappy_encode(data))) == data
    bare = bytes(theirs.snappy_encode(data, xerial_compatible=False))
    assert decompress(Codec.SNAPPY, bare) == data
    assert decompress(Codec.LZ4, bytes(theirs.lz4_encode(data))) == data
    assert decompress(Codec.ZSTD, bytes(theirs.zstd_encode(data))) == data


def test_frames_are_those_that_the_java_clients_read() -> None:
    assert compress(Codec.SNAPPY, b"x").startswith(
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    )
    frame = compress(Codec.LZ4, bytes(i * i % 251 for i in range(100)) + bytes(LZ4_BLOCK_BYTES))
    flags = frame[4]
    assert flags >> 6 == 1  # version
    assert flags & 0x20  # independent blocks: Kafka's reader knows no others
    assert frame.endswith(bytes(4))


@pytest.mark.parametrize("codec", CODECS)
def test_what_opens_to_too_much_is_refused(codec: Codec) -> None:
    bomb = compress(codec, bytes(10_000_000))
    assert len(bomb) < 600_000
    assert len(decompress(codec, bomb)) == 10_000_000
    for size_max in (0, 1000, 9_999_999):
        with pytest.raises(DecodeError):
            decompress(codec, bomb, size_max=size_max)
    with pytest.raises(DecodeError):
        decompress(Codec.NONE, b"four", size_max=3)


def test_a_snappy_length_is_not_believed() -> None:
    claims_4_gb = b"\xff\xff\xff\xff\x0f"
    for data in (claims_4_gb, XERIAL_HEADER + b"\x00\x00\x00\x05" + claims_4_gb):
        with pytest.raises(DecodeError):
            decompress(Codec.SNAPPY, data)
    for block_size in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00"):
        with pytest.raises(DecodeError):
            decompress(Codec.SNAPPY, XERIAL_HEADER + block_size)


@given(st.binary(max_size=300), st.sampled_from(CODECS), st.data())
def test_damaged_data_is_a_decode_error_or_other_data(
    data: bytes, codec: Codec, draw: st.DataObject
) -> None:
    packed = bytearray(compress(codec, data))
    packed[draw.draw(st.integers(0, len(packed) - 1))] ^= draw.draw(st.integers(1, 255))
    try:
        assert len(decompress(codec, packed, size_max=100_000)) <= 100_000
    except DecodeError:
        pass


@given(st.binary(max_size=100), st.sampled_from(CODECS))
def test_any_bytes_are_a_decode_error_or_data(data: bytes, codec: Codec) -> None:
    try:
        assert len(decompress(codec, data, size_max=100_000)) <= 100_000
    except DecodeError:
        pass
