"""Protobuf messages to columns, by `ptars`: the descriptors of a compiled `.proto` and no code.

`protoc --include_imports --descriptor_set_out=clicks.desc clicks.proto` writes the file. A message
that is none fails all of its batch in ptars, which does not say which: the batch is halved until
the bad ones are alone.
"""

from typing import Any

import pyarrow as pa

from odradek.spark.pipeline.avro import CONFLUENT_HEADER_BYTES
from odradek.spark.pipeline.avro_program import NO_VALUE, Decoded

NO_FRAME = "it does not begin with a zero, the id of a schema and the index of a message"


def _handler(descriptors: bytes, message: str) -> Any:
    """ptars' decoder of a message; ValueError if the descriptors do not have it."""
    import ptars
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(descriptors)
    except DecodeError:
        raise ValueError("this is no file of descriptors, as protoc writes it") from None
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        found = pool.FindMessageTypeByName(message)
    except (KeyError, TypeError) as error:
        raise ValueError(f"there is no message {message} in it: {error}") from None
    return ptars.HandlerPool([pool.FindFileByName(f.name) for f in files.file]).get_for_message(
        found
    )


def event_type(descriptors: bytes, message: str) -> pa.DataType:
    """What a message is in Arrow; ValueError if the descriptors do not have it."""
    empty = _handler(descriptors, message).list_to_record_batch([])
    return pa.struct([one.with_nullable(True) for one in empty.schema])


class ProtobufDecoder:
    """Decodes batches of one message."""

    def __init__(self, descriptors: bytes, message: str, confluent: bool = False) -> None:
        self._handler = _handler(descriptors, message)
        self._type = event_type(descriptors, message)
        self._confluent = confluent

    def decode(self, values: pa.Array) -> Decoded:
        """The values of a column of bytes; null where one is no message, and then why."""
        reasons: list[str | None] = [None] * len(values)
        messages: list[bytes] = []
        rows: list[int] = []
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                reasons[row] = NO_VALUE
                continue
            content = _unframed(value) if self._confluent else value
            if content is None:
                reasons[row] = NO_FRAME
                continue
            messages.append(content)
            rows.append(row)
        events = pa.nulls(len(values), self._type)
        parts = list(self._parts(messages, rows, reasons))
        if parts:
            found = pa.concat_arrays([part for part, _ in parts])
            places = {row: index for index, row in enumerate(r for _, of in parts for r in of)}
            events = found.take(
                pa.array([places.get(row) for row in range(len(values))], pa.int64())
            )
        return Decoded(events, reasons)

    def _parts(self, messages: list[bytes], rows: list[int], reasons: list[str | None]) -> Any:
        """The messages as structs, without those that are none, which get their reasons."""
        if not messages:
            return
        try:
            batch = self._handler.list_to_record_batch(messages)
        except Exception as error:  # ptars has no class for it
            if len(messages) == 1:
                reasons[rows[0]] = str(error) or "it ends in the middle"
                return
            half = len(messages) // 2
            yield from self._parts(messages[:half], rows[:half], reasons)
            yield from self._parts(messages[half:], rows[half:], reasons)
            return
        columns = [batch.column(index) for index in range(batch.num_columns)]
        yield pa.StructArray.from_arrays(columns, fields=list(self._type)), rows


def _unframed(value: bytes) -> bytes | None:
    """A message without Confluent's frame, whose message must be the first of its file."""
    if len(value) <= CONFLUENT_HEADER_BYTES or value[0] or value[CONFLUENT_HEADER_BYTES]:
        return None
    return value[CONFLUENT_HEADER_BYTES + 1 :]
