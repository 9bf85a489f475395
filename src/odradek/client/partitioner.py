"""Which partition a key goes to: Kafka's murmur2, so that every client of a topic agrees."""

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
ROTATION = 24
MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash that Kafka's Java client takes of a key, as an unsigned number."""
    length = len(data)
    value = SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> ROTATION) * MULTIPLIER & MASK
        value = value * MULTIPLIER & MASK ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    value = (value ^ value >> 13) * MULTIPLIER & MASK
    return value ^ value >> 15


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of a key among `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
