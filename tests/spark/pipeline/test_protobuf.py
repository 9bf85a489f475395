"""Protobuf messages become columns, and those that are none get their reasons."""

from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from odradek.spark.pipeline.avro_program import NO_VALUE
from odradek.spark.pipeline.protobuf import NO_FRAME, ProtobufDecoder, event_type


def described() -> bytes:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="click.proto", package="p", syntax="proto3")
    message = file.message_type.add(name="Click")
    kinds = descriptor_pb2.FieldDescriptorProto
    for place, (name, kind) in enumerate(
        (("id", kinds.TYPE_INT64), ("page", kinds.TYPE_STRING), ("ok", kinds.TYPE_BOOL)), start=1
    ):
        message.field.add(name=name, number=place, type=kind, label=kinds.LABEL_OPTIONAL)
    return files.SerializeToString()


def click(**values: Any) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(described()).file:
        pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Click"))(**values)
    return made.SerializeToString()


def test_good_messages_among_bad_ones() -> None:
    decoder = ProtobufDecoder(described(), "p.Click")
    values = [click(id=n, page=f"/{n}", ok=True) for n in range(5)]
    mixed = [*values[:2], b"\xff\xff", values[2], None, *values[3:], b"\x08"]
    decoded = decoder.decode(pa.array(mixed, pa.binary()))
    assert [row and row["id"] for row in decoded.events.to_pylist()] == [
        0,
        1,
        None,
        2,
        None,
        3,
        4,
        None,
    ]
    assert decoded.events.type == event_type(described(), "p.Click")
    assert [reason is None for reason in decoded.reasons] == [
        row is not None for row in decoded.events.to_pylist()
    ]
    assert decoded.reasons[4] == NO_VALUE
    assert decoded.reasons[2]


def test_confluents_frame() -> None:
    decoder = ProtobufDecoder(described(), "p.Click", confluent=True)
    framed = b"\x00\x00\x00\x00\x07\x00" + click(id=7)
    decoded = decoder.decode(pa.array([framed, click(id=7)], pa.binary()))
    assert [row and row["id"] for row in decoded.events.to_pylist()] == [7, None]
    assert decoded.reasons == [None, NO_FRAME]


def test_descriptors_without_the_message() -> None:
    with pytest.raises(ValueError, match=r"there is no message p\.Clack"):
        event_type(described(), "p.Clack")
    with pytest.raises(ValueError, match="no file of descriptors"):
        event_type(b"\xff", "p.Click")
