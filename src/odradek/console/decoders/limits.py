"""What every decoder must keep to."""

import math
from typing import Any

DEPTH_MAX = 64
ITEMS_MAX = 100_000


class Undecodable(Exception):
    """Bytes that are not in the format, or go beyond a limit; the text says which."""


class Budget:
    """Depth and number of values of one decoding. A few bytes can claim millions of items."""

    def __init__(self) -> None:
        self._items = 0
        self._depth = 0

    def item(self) -> None:
        self._items += 1
        if self._items > ITEMS_MAX:
            raise Undecodable(f"more than {ITEMS_MAX} values")

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise Undecodable(f"deeper than {DEPTH_MAX} levels")

    def __exit__(self, *_: object) -> None:
        self._depth -= 1


class Input:
    """Bytes that are read from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    @property
    def rest(self) -> int:
        return len(self._data) - self.position

    def take(self, count: int) -> bytes:
        if not 0 <= count <= self.rest:
            raise Undecodable(f"{count} bytes wanted, {self.rest} left")
        self.position += count
        return self._data[self.position - count : self.position]

    def byte(self) -> int:
        return self.take(1)[0]

    def varint(self) -> int:
        """Seven bits a byte, the lowest first; at most ten bytes."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF
        raise Undecodable("a number of more than ten bytes")

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)


def printable(value: Any) -> Any:
    """A value that JSON has: bytes as hex, and numbers that are none as their names."""
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
