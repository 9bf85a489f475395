"""The same bytes and the same meaning as kio 0.5.0, which is generated from Kafka's own schemas."""

import datetime
import importlib
import io
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from tests.wire.samples import EVERY_VERSION, OUR_TAGS, sample

from odradek.wire.api import APIS
from odradek.wire.messages import consumer_protocol
from odradek.wire.schema import ZERO_UUID, Message, Struct, fields_of

SAMPLES = 4
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


def schema_of(message: type[Message]) -> tuple[str, EntityType]:
    if message.API_KEY < 0:
        name = message.__name__.removeprefix("ConsumerProtocol").lower()
        return f"consumer_protocol_{name}", EntityType.data
    is_request = message.__name__.endswith("Request")
    kind = EntityType.request if is_request else EntityType.response
    return APIS[message.API_KEY].module, kind


def known_to_kio() -> Iterator[tuple[type[Message], int, str]]:
    for message, version in EVERY_VERSION:
        if message.API_KEY >= 0 or message.__module__ == consumer_protocol.__name__:
            name, kind = schema_of(message)
            yield message, version, schema_name_map[name][version][kind]  # type: ignore[index]


KNOWN = list(known_to_kio())


def name_of(field: str) -> str:
    """Our name of a field of kio, but for a unit, which kio puts in the type."""
    return field.replace("k_raft", "kraft").rstrip("_").removesuffix("_ms")


def theirs(value: Any) -> object:
    """What kio read, without the types it adds."""
    if is_dataclass(value):
        return {name_of(field.name): theirs(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [theirs(item) for item in value]
    if isinstance(value, ErrorCode):
        return value.value
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // MILLISECOND
    if isinstance(value, datetime.timedelta):
        return value // MILLISECOND
    return value


def ours(value: object, version: int) -> object:
    """What we meant, the way kio would say it."""
    if isinstance(value, list):
        return [ours(item, version) for item in value]
    if not isinstance(value, Struct):
        return None if value == ZERO_UUID else value
    meaning = {}
    for field in fields_of(type(value)):
        if field.tag is not None and field.tag >= OUR_TAGS:
            continue
        if field.in_version(version):
            item = getattr(value, field.name)
            if item is None and field.kind.struct is not None:
                item = field.kind.struct()
            meaning[name_of(field.name)] = ours(item, version)
    return meaning


def test_kio_knows_every_api() -> None:
    assert {message.API_KEY for message, _, _ in KNOWN} == {*APIS, -1}
    assert len(KNOWN) == len(EVERY_VERSION) - 13  # all but the records of the offsets topic


@pytest.mark.parametrize("message", {message: None for message, _, _ in KNOWN})
def test_same_bytes_as_kio(message: type[Message]) -> None:
    for version, path in [(version, path) for known, version, path in KNOWN if known is message]:
        module, _, name = path.partition(":")
        entity_type = getattr(importlib.import_module(module), name)
        read, write = entity_reader(entity_type), entity_writer(entity_type)
        random = Random(f"{name} {version}")
        for _ in range(SAMPLES):
            value = sample(message, version, random)
            assert isinstance(value, message)
            encoded = value.encode(version)
            entity, size = read(encoded, 0)
            assert size == len(encoded), version
            assert theirs(entity) == ours(value, version), version
            written = io.BytesIO()
            write(written, entity)
            assert written.getvalue() == encoded, version
