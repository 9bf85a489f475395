"""An Avro schema as a program for the compiled decoder, and the Arrow columns of what it decodes.

A row that is no value of the schema gets its reason from the plain decoder (`avro`), which sees
only those. Schemas whose lists may have items of no bytes at all are left to the plain decoder
too: no column may outgrow the batch's bytes.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from odradek.spark.arrays import frozen, numbers_of, to_bits, valid_of
from odradek.spark.pipeline import avro, avro_kernel
from odradek.spark.pipeline.avro import CONFLUENT_HEADER_BYTES, Codec
from odradek.wire.errors import DecodeError

NO_VALUE = "the record has no value"
NUMBERS = {
    "long": avro_kernel.LONG,
    "int": avro_kernel.INT,
    "millis": avro_kernel.MILLIS,
    "float": avro_kernel.FLOAT,
    "double": avro_kernel.DOUBLE,
    "boolean": avro_kernel.BOOL,
    "enum": avro_kernel.ENUM,
    "decimal": avro_kernel.DECIMAL,
    "null": avro_kernel.NOTHING,
}
TEXTS = {
    "bytes": avro_kernel.BYTES,
    "string": avro_kernel.TEXT,
    "uuid": avro_kernel.UUID,
    "fixed": avro_kernel.FIXED,
}
MASK = 2**64 - 1


class Unsuited(Exception):
    """A schema that the compiled decoder does not take."""


class Column(NamedTuple):
    """A column of the result: its codec, the columns inside it, and whether it is in a list."""

    codec: Codec
    children: tuple[int, ...]
    in_list: bool


class Decoded(NamedTuple):
    """A batch: null where a row is no value, and then why."""

    events: pa.Array
    reasons: list[str | None]


class AvroDecoder:
    """Decodes batches of values of one schema."""

    def __init__(self, text: str) -> None:
        self.codec = avro.load_schema(text)
        self._ops: list[list[int]] = []
        self._columns: list[Column] = []
        try:
            self._add(self.codec, False, 0)
            self._program: Any = frozen(np.array(self._ops, np.int64))
        except Unsuited:
            self._program = None

    def decode(self, values: pa.Array, *, confluent: bool = False) -> Decoded:
        """The values of a column of bytes."""
        if self._program is None:
            return self._plainly(values, confluent)
        events, bad = self._run(values, CONFLUENT_HEADER_BYTES if confluent else 0)
        reasons: list[str | None] = [None] * len(values)
        for row in np.flatnonzero(bad):
            reason = self._reason(values[int(row)].as_py(), confluent)
            if reason is None:  # a spelling that only the plain decoder knows
                return self._plainly(values, confluent)
            reasons[row] = reason
        return Decoded(events, reasons)

    def _reason(self, value: bytes | None, confluent: bool) -> str | None:
        if value is None:
            return NO_VALUE
        try:
            avro.decode(self.codec, value, confluent=confluent)
        except DecodeError as error:
            return str(error)
        return None

    def _plainly(self, values: pa.Array, confluent: bool) -> Decoded:
        events: list[Any] = []
        reasons: list[str | None] = []
        for value in values.to_pylist():
            reason = self._reason(value, confluent)
            reasons.append(reason)
            good = None if reason else avro.decode(self.codec, value, confluent=confluent)
            events.append(good)
        return Decoded(pa.array(events, self.codec.type), reasons)

    # The program: operation, column, and what each operation needs besides

    def _add(self, codec: Codec, in_list: bool, depth: int) -> int:
        """Append the operations of a type; its column."""
        node = codec.node
        if node.kind == "union":
            at = len(self._ops)
            self._ops.append([avro_kernel.UNION, len(node.names), node.number, 0, 0, 0])
            column = self._add(node.children[0], in_list, depth)
            self._ops[at][3] = len(self._ops)
            return column
        column = len(self._columns)
        self._columns.append(Column(codec, (), in_list))
        if node.kind == "record":
            self._ops.append([avro_kernel.STRUCT, column, 0, 0, 0, 0])
            children = tuple(self._add(child, in_list, depth) for child in node.children)
            self._columns[column] = Column(codec, children, in_list)
        elif node.kind in ("array", "map"):
            self._add_list(codec, column, in_list, depth + 1)
        elif node.kind == "decimal":
            bound = 10**codec.type.precision
            high, low = _signed(bound >> 64), _signed(bound & MASK)
            self._ops.append([avro_kernel.DECIMAL, column, node.number, 0, high, low])
        else:
            extra = len(node.names) if node.kind == "enum" else node.number
            op = NUMBERS[node.kind] if node.kind in NUMBERS else TEXTS[node.kind]
            self._ops.append([op, column, extra, 0, 0, 0])
        return column

    def _add_list(self, codec: Codec, column: int, in_list: bool, depth: int) -> None:
        node = codec.node
        if depth > avro_kernel.DEPTH_MAX or (node.kind == "array" and not _least(node.children[0])):
            raise Unsuited
        at = len(self._ops)
        self._ops.append([avro_kernel.LIST, column, 0, 0, 0, 0])
        children: tuple[int, ...] = ()
        if node.kind == "map":
            children = (self._add(avro.PRIMITIVES["string"], True, depth),)
        children = (*children, self._add(node.children[0], True, depth))
        self._columns[column] = Column(codec, children, in_list)
        self._ops[at][2] = children[0]
        self._ops.append([avro_kernel.END, column, children[0], at + 1, 0, 0])
        self._ops[at][3] = len(self._ops)

    # Running it

    def _run(self, values: pa.Array, skipped: int) -> tuple[pa.Array, Any]:
        if not pa.types.is_binary(values.type):
            values = values.cast(pa.binary())
        rows = len(values)
        begins = numbers_of(values, np.int32, 1) if rows else np.zeros(1, np.int32)
        buffer = values.buffers()[2] if rows else None
        data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
        total = int(begins[-1] - begins[0])
        state, numbers, flags = self._state(rows, total)
        large, small = np.zeros(numbers, np.int64), np.empty(flags, np.uint8)
        bad = np.zeros(rows, np.uint8)
        avro_kernel.decode_rows(
            self._program,
            frozen(begins.view()),
            frozen(data.view()),
            frozen(~valid_of(values)),
            skipped,
            large,
            small,
            state,
            bad,
        )
        return self._array(0, large, small, state), bad

    def _state(self, rows: int, total: int) -> tuple[Any, int, int]:
        """What the loop knows of each column, and how many numbers and bytes they all may have."""
        state = np.zeros((len(self._columns), 6), np.int64)
        numbers = flags = 0
        for index, column in enumerate(self._columns):
            kind = column.codec.node.kind
            most = (total if column.in_list else rows) + 2
            state[index, avro_kernel.WORDS] = state[index, avro_kernel.OFFSETS] = numbers
            numbers += most * (2 if kind == "decimal" else 1)
            state[index, avro_kernel.FLAGS] = flags
            flags += most
            if kind in TEXTS:
                state[index, avro_kernel.TEXTS] = flags
                flags += total
        return state, numbers, flags

    def _array(self, index: int, large: Any, small: Any, state: Any) -> pa.Array:
        """A column as Arrow has it, over the same memory where it can be."""
        column = self._columns[index]
        node, kind = column.codec.node, column.codec.type
        word, flag, _, text, count, size = (int(number) for number in state[index])
        flags = small[flag : flag + count]
        mask = None if flags.all() else pa.py_buffer(to_bits(flags))
        children = [self._array(child, large, small, state) for child in column.children]
        if node.kind == "null":
            return pa.nulls(count)
        if node.kind == "record":
            return pa.Array.from_buffers(kind, count, [mask], children=children)
        if node.kind in TEXTS or node.kind in ("array", "map"):
            begins = _narrow(large[word : word + count + 1], np.int32)
            if node.kind == "map":
                fields = [kind.key_field, kind.item_field]
                children = [pa.StructArray.from_arrays(children, fields=fields)]
            if children:
                return pa.Array.from_buffers(kind, count, [mask, begins], children=children)
            data = pa.py_buffer(small[text : text + size])
            return pa.Array.from_buffers(kind, count, [mask, begins, data])
        if node.kind == "decimal":
            data = pa.py_buffer(large[word : word + 2 * count])
            return pa.Array.from_buffers(kind, count, [mask, data])
        return _numbers(node, kind, large[word : word + count], mask)


def _numbers(node: avro.Node, kind: pa.DataType, words: Any, mask: Any) -> pa.Array:
    count = len(words)
    if node.kind == "enum":
        indices = pa.Array.from_buffers(pa.int32(), count, [mask, _narrow(words, np.int32)])
        symbols = pa.array(node.names, pa.string())
        return pa.DictionaryArray.from_arrays(indices, symbols).cast(pa.string())
    if node.kind == "boolean":
        return pa.Array.from_buffers(kind, count, [mask, pa.py_buffer(to_bits(words))])
    if node.kind in ("int", "float"):
        width: Any = np.int32 if node.kind == "int" else np.uint32
        return pa.Array.from_buffers(kind, count, [mask, _narrow(words, width)])
    return pa.Array.from_buffers(kind, count, [mask, pa.py_buffer(words)])


def _narrow(words: Any, width: Any) -> Any:
    return pa.py_buffer(words.astype(width))


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def _least(codec: Codec) -> int:
    """The fewest bytes that a value can take."""
    node = codec.node
    if node.kind == "record":
        return sum(_least(child) for child in node.children)
    if node.kind in ("null", "fixed"):
        return node.number
    if node.kind == "decimal":
        return max(node.number, 0) if node.number >= 0 else 1
    return 1
