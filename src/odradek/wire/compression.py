"""The four codecs of record batches, framed the way Kafka's clients frame them.

- gzip: a gzip member. zstd: a frame.
- snappy: the blocks of Xerial's stream, which no library writes; a bare snappy block is read too.
- lz4: a frame of independent blocks. The Java reader refuses linked blocks, which is all the
  library offers, so the frame is laid out here; any valid frame is read.

Decompression never yields more than `size_max` bytes, whatever a hostile sender claims.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct

from odradek.wire.errors import DecodeError

Buffer = bytes | bytearray | memoryview

# No batch that we open opens to more than this.
SIZE_MAX = 128 * 1024 * 1024
FIRST_GUESS_BYTES_MIN = 64 * 1024

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2
XERIAL_BLOCK_BYTES = 32 * 1024

LZ4_BLOCK_BYTES = 64 * 1024
# Magic, flags (version 1, independent blocks, nothing else), 64 KiB blocks, checksum of those two.
LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
LZ4_END_MARK = b"\x00\x00\x00\x00"
LZ4_STORED_BIT = 0x80000000

_BLOCK_SIZE = Struct(">i")
_LZ4_BLOCK_SIZE = Struct("<I")


class Codec(IntEnum):
    """Numbers as in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`level` is gzip's or zstd's own; None is the codec's default, as is -1 for gzip."""
    if codec is Codec.NONE:
        return bytes(data)
    import cramjam

    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=None if level == -1 else level))
    if codec is Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    if codec is Codec.SNAPPY:
        return _compress_snappy(data)
    return _compress_lz4(data)


def decompress(codec: Codec, data: Buffer, size_max: int = SIZE_MAX) -> bytes:
    """Raises DecodeError when the data is damaged or opens to more than `size_max` bytes."""
    if codec is Codec.NONE:
        if len(data) > size_max:
            raise DecodeError(f"{len(data)} bytes of data, more than {size_max}")
        return bytes(data)
    import cramjam

    if codec is Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), size_max)
    into: Callable[[Buffer, bytearray], int] = {
        Codec.GZIP: cramjam.gzip.decompress_into,
        Codec.LZ4: cramjam.lz4.decompress_into,
        Codec.ZSTD: cramjam.zstd.decompress_into,
    }[codec]
    # How much it opens to is not known, or not to be believed: guess, and guess higher.
    guess = max(FIRST_GUESS_BYTES_MIN, 8 * len(data))
    while True:
        output = bytearray(min(guess, size_max))
        try:
            size = into(data, output)
        except cramjam.DecompressionError as error:
            if guess >= size_max:
                raise DecodeError(f"bad {codec.name.lower()} data: {error}") from None
            guess *= 8
        else:
            with memoryview(output) as view:
                return bytes(view[:size])


def _pieces(data: Buffer, size: int) -> Iterator[memoryview]:
    view = memoryview(data)
    for start in range(0, len(view), size):
        yield view[start : start + size]


def _compress_snappy(data: Buffer) -> bytes:
    import cramjam

    parts = [XERIAL_HEADER]
    for piece in _pieces(data, XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(piece))
        parts += (_BLOCK_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(view: memoryview, size_max: int) -> bytes:
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _decompress_snappy_block(view, size_max)
    parts: list[bytes] = []
    size = 0
    position = len(XERIAL_HEADER)
    while position < len(view):
        if position + _BLOCK_SIZE.size > len(view):
            raise DecodeError("bad snappy data: truncated block size")
        (length,) = _BLOCK_SIZE.unpack_from(view, position)
        position += _BLOCK_SIZE.size
        if not 0 <= length <= len(view) - position:
            raise DecodeError(f"bad snappy data: block of {length} bytes")
        parts.append(_decompress_snappy_block(view[position : position + length], size_max - size))
        size += len(parts[-1])
        position += length
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, size_max: int) -> bytes:
    import cramjam

    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > size_max:
            raise DecodeError(f"snappy block opens to {size} bytes, more than {size_max}")
        output = bytearray(size)
        if cramjam.snappy.decompress_raw_into(block, output) != size:
            raise DecodeError("bad snappy data: block is shorter than it says")
    except cramjam.DecompressionError as error:
        raise DecodeError(f"bad snappy data: {error}") from None
    return bytes(output)


def _compress_lz4(data: Buffer) -> bytes:
    import cramjam

    parts: list[Buffer] = [LZ4_HEADER]
    for piece in _pieces(data, LZ4_BLOCK_BYTES):
        block: Buffer = bytes(cramjam.lz4.compress_block(piece, store_size=False))
        stored = 0
        if len(block) >= len(piece):
            block, stored = piece, LZ4_STORED_BIT
        parts += (_LZ4_BLOCK_SIZE.pack(len(block) | stored), block)
    parts.append(LZ4_END_MARK)
    return b"".join(parts)
