"""Any value of any message, from its schema and a source of chance."""

from random import Random
from uuid import UUID

from odradek.wire.api import APIS
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import consumer_protocol, offsets_topic
from odradek.wire.schema import Field, Message, Struct, WireType, fields_of

INTERNAL: list[type[Message]] = [
    offsets_topic.OffsetCommitKey,
    offsets_topic.OffsetCommitValue,
    offsets_topic.GroupMetadataKey,
    offsets_topic.GroupMetadataValue,
    consumer_protocol.ConsumerProtocolSubscription,
    consumer_protocol.ConsumerProtocolAssignment,
]
MESSAGES = [message for api in APIS.values() for message in (api.request, api.response)] + INTERNAL
EVERY_VERSION = [(message, version) for message in MESSAGES for version in message.VERSIONS]

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# Above 127 a size takes two bytes when it is compact, above 64 an array is packed another way.
SIZES = (0, 1, 2, 3, 64, 65, 126, 127, 128, 300)
TEXTS = ("", "a", "topic-1", "Ὀδραδέκ", "\U0001f9f5 spool", "x" * 126, "y" * 127, "z" * 300)
ERROR_CODES = [int(code) for code in ErrorCode]

# Tagged fields of our own are numbered from here on.
OUR_TAGS = 10_000


def sample(struct: type[Struct], version: int, random: Random, depth: int = 0) -> Struct:
    """A value with every field that the version carries at random, all others at their default."""
    values = {
        field.name: sample_field(field, version, random, depth)
        for field in fields_of(struct)
        if field.in_version(version)
    }
    return struct(**values)


def sample_field(field: Field, version: int, random: Random, depth: int) -> object:
    if field.tag is not None and field.tag >= OUR_TAGS:
        return field.default  # kio does not know it; Kafka skips it
    if field.nullable_in(version) and random.random() < 0.25:
        return None
    if field.kind.struct is not None:
        value = sample(field.kind.struct, version, random, depth)
        # Kafka does not write a tagged struct that is all defaults, and we read that as None.
        return None if random.random() < 0.25 or value == field.kind.struct() else value
    if "error_code" in field.name:
        return random.choice(ERROR_CODES)
    if field.kind.primitive == "int64" and ("time" in field.name or field.name.endswith("_ms")):
        return random.randrange(2**31) * 1000  # kio reads a date, with the precision of a float
    return sample_value(field.kind, version, random, depth)


def sample_value(kind: WireType, version: int, random: Random, depth: int) -> object:
    if kind.element is not None:
        element = kind.element
        limit = len(SIZES) if element.struct is None and depth < 2 else 3
        size = SIZES[random.randrange(limit)]
        if element.struct is not None:
            return [sample(element.struct, version, random, depth + 1) for _ in range(size)]
        if element.primitive == "str":
            size = min(size, 3)
        return [sample_value(element, version, random, depth) for _ in range(size)]
    assert kind.primitive is not None
    if bits := INTEGER_BITS.get(kind.primitive):
        edges = (-(2 ** (bits - 1)), -1, 0, 1, 2 ** (bits - 1) - 1)
        return random.choice((*edges, random.getrandbits(bits - 1)))
    if kind.primitive == "str":
        return random.choice(TEXTS)
    if kind.primitive in ("bytes", "Records"):
        return bytes(random.choice(SIZES))
    return {
        "bool": random.random() < 0.5,
        "float64": random.getrandbits(32) / 256,
        "UUID": UUID(int=random.getrandbits(128)),
    }[kind.primitive]
