"""CRC-32C (Castagnoli) of any buffer, the checksum of record batches and producer snapshots.

google-crc32c runs at memory speed but takes read-only bytes only, and copying a megabyte costs half
as much again as summing it. It asks for a buffer that needs no release, which a ctypes array over
the caller's memory is, so large writable buffers are summed where they lie, in blocks of one fixed
array type (a ctypes type per length would be costly). Measured on 1 MB: 64 µs with the copy, 44 µs
without; small buffers are cheaper copied (0.2 µs against 0.7 µs).
"""

from collections.abc import Callable

import google_crc32c

Buffer = bytes | bytearray | memoryview

BLOCK_BYTES = 128 * 1024

_value: Callable[[bytes], int] = google_crc32c.value
_extend: Callable[[int, bytes], int] = google_crc32c.extend
_block_at: Callable[[Buffer, int], bytes] | None = None


def crc32c(buffer: Buffer) -> int:
    if isinstance(buffer, bytes):
        return _value(buffer)
    if len(buffer) < BLOCK_BYTES or (isinstance(buffer, memoryview) and buffer.readonly):
        return _value(bytes(buffer))
    return _crc32c_in_place(memoryview(buffer))


def _crc32c_in_place(view: memoryview) -> int:
    block_at = _block_at or _make_block_at()
    crc = 0
    whole = len(view) - len(view) % BLOCK_BYTES
    for position in range(0, whole, BLOCK_BYTES):
        crc = _extend(crc, block_at(view, position))
    return _extend(crc, bytes(view[whole:]))


def _make_block_at() -> Callable[[Buffer, int], bytes]:
    # ctypes is imported only by a broker that has seen a large batch.
    import ctypes

    global _block_at
    _block_at = (ctypes.c_char * BLOCK_BYTES).from_buffer  # type: ignore[assignment]
    assert _block_at is not None
    return _block_at
