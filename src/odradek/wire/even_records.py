"""Records of one size after another, checked by columns: their sizes, then their offsets.

Metrics, telemetry and counters often have records of one size. In a run of them the same byte of
each stands at the same distance from that of the one before, so all of them are compared in one
step: a tenth of what looking at them one by one takes (`records.check_records`).
"""

from odradek.wire.batch import Buffer

__all__ = ["skip_even_records"]

# Where a run is shorter, the records are looked at one by one from there on.
RUN_MIN = 16
# As many are compared at a time: a batch made of short runs must not cost more than any other.
RUN_MAX = 512

_LAST = bytes(range(128))  # bytes that end a varint
_GOES_ON = bytes(range(128, 256))

# Offset deltas are written as twice their value, seven bits to a byte: one byte for 64 of them, two
# for the next, and three while what is above 8192 fits one more. Each byte but the last goes on.
_ONE_BYTE_MAX, _TWO_BYTES_MAX, _THREE_BYTES_MAX = 1 << 6, 1 << 13, 1 << 20
_FIRST = bytes(range(0, 128, 2))
_FIRST_OF_SEVERAL = bytes(range(128, 256, 2)) * 128
_SECOND = b"".join(bytes([second]) * 64 for second in range(128))
_SECOND_OF_THREE = b"".join(bytes([second]) * 64 for second in range(128, 256))


def skip_even_records(data: Buffer, count: int) -> tuple[int, int]:
    """The position and index of the first record that is left to be looked at: all before it have
    sizes within `data`, and the offsets 0, 1, 2, ..."""
    view = memoryview(data)
    position = index = 0
    while index < count:
        taken, size = _run(view, position, index, count)
        if not taken:
            break
        position += taken * size
        index += taken
    return position, index


def _run(view: memoryview, start: int, index: int, count: int) -> tuple[int, int]:
    """How many sound records of one size begin at `start`, and that size with its own bytes."""
    limit = len(view)
    if limit - start < RUN_MIN:
        return 0, 0
    size, size_bytes = view[start], 1
    if size > 127:
        size, size_bytes = size - 128 + (view[start + 1] << 7), 2
    if size & 1 or (size_bytes == 2 and view[start + 1] > 127):
        return 0, 0
    stride = size_bytes + (size >> 1)
    time_at = start + size_bytes + 1  # after the attributes
    delta_at = time_at + 1
    while delta_at < limit and view[delta_at - 1] > 127:
        delta_at += 1
    run = min(RUN_MAX, count - index, (limit - start) // stride)
    deltas = _deltas(index, run)
    if not deltas or delta_at + len(deltas) > start + stride:
        return 0, 0
    run = len(deltas[0])
    columns = [(at, bytes(view[at : at + 1])) for at in range(start, start + size_bytes)]
    columns += [(at, _GOES_ON) for at in range(time_at, delta_at - 1)]
    columns.append((delta_at - 1, _LAST))
    for at, allowed in columns:
        run -= len(bytes(view[at : start + run * stride : stride]).lstrip(allowed))
        if run < RUN_MIN:
            return 0, 0
    end = start + run * stride
    for at, expected in enumerate(deltas, delta_at):
        if bytes(view[at:end:stride]) != expected[:run]:
            return 0, 0
    return run, stride


def _deltas(index: int, count: int) -> list[bytes]:
    """The offset deltas from `index` on as columns of bytes: as many of `count` as are written in
    the same number of bytes, with the same third one."""
    start = index % _TWO_BYTES_MAX
    end = min(start + count, _TWO_BYTES_MAX)
    if index < _ONE_BYTE_MAX:
        return [_FIRST[index : index + count]]
    if index < _TWO_BYTES_MAX:
        return [_FIRST_OF_SEVERAL[start:end], _SECOND[start:end]]
    if index < _THREE_BYTES_MAX:
        third = bytes([index // _TWO_BYTES_MAX])
        return [_FIRST_OF_SEVERAL[start:end], _SECOND_OF_THREE[start:end], third * (end - start)]
    return []
