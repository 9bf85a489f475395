"""Java's String.hashCode, by which Kafka spreads groups and fetchers."""

from functools import lru_cache


# A coordinator asks it of the same few names with every request.
@lru_cache(1024)
def java_hash(text: str) -> int:
    """Over UTF-16 units, as a signed 32-bit number."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
