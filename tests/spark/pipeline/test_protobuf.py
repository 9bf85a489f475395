"""Protobuf messages become columns, and those that are none get their reasons."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from packaging.requirements import Requirement
from packaging.version import Version
from pyspark.sql.streaming.proto import StateMessage_pb2

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
    return bytes(files.SerializeToString())


def click(**values: Any) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(described()).file:
        pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Click"))(**values)
    return bytes(made.SerializeToString())


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


def test_the_extra_has_a_protobuf_that_transform_with_state_can_use() -> None:
    # PySpark's generated messages refuse to be imported by a protobuf older than this.
    generated = Path(StateMessage_pb2.__file__).read_text()
    version = re.search(r"^# Protobuf Python Version: (\S+)$", generated, re.MULTILINE)
    assert version is not None
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    needs = map(Requirement, project["optional-dependencies"]["spark"])
    (protobuf,) = [need for need in needs if need.name == "protobuf"]
    (bound,) = protobuf.specifier
    assert bound.operator == ">="
    assert Version(bound.version) >= Version(version[1])
