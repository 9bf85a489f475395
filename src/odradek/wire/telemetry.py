"""The telemetry frame: what one broker measured between two moments, as the value of one record.

A header, the names of the topics, a block about the broker, and then fixed-width columns with one
row per partition. Everything is little-endian, so that a reader takes each column as one array.

    header   magic "ODRT", version u8, flags u8 (1 whole, 2 estimated), 2 bytes zero, rows u32,
             topics u32, broker i32, incarnation i64, tick i64, from_ms i64, to_ms i64,
             names_bytes u32, broker_bytes u32, crc32c u32 of everything else
    names    the topics' names, separated by line feeds
    broker   `BrokerLoad`, then for each log directory: capacity u64, free u64, failed u8, the
             length of its path u16, its path
    columns  `COLUMNS`, one after the other

Counts are what was added in [from_ms, to_ms). A frame that is not whole leaves out the partitions
that had no traffic and whose size did not change. A tick may be written twice, by a broker that
does not know whether the first arrived: of the same (broker, incarnation, tick) the one that ends
last has all that the others have.

`decode_frame` believes nothing: what is not exactly one frame raises InvalidFrame, and takes no
more memory than the buffer has bytes. Whether rows name topics and directories that exist is for
the reader to check, who looks them up.
"""

import sys
from array import array
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from odradek.wire.crc32c import crc32c
from odradek.wire.errors import DecodeError
from odradek.wire.topics import TOPIC_NAME_LENGTH_MAX

__all__ = [
    "BEING_ADDED",
    "COLUMNS",
    "IN_SYNC",
    "LEADS",
    "BrokerLoad",
    "Directory",
    "Frame",
    "InvalidFrame",
    "decode_frame",
    "encode_frame",
    "new_columns",
]

# The topic of frames, as the first broker that publishes one creates it.
TOPIC_PARTITIONS = 16
TOPIC_REPLICAS_MAX = 3
TOPIC_CONFIG = {
    "retention.ms": str(6 * 3_600_000),
    "compression.type": "producer",
    # A whole frame of some 600,000 partitions.
    "max.message.bytes": str(8 * 1024 * 1024),
}

MAGIC = b"ODRT"
VERSION = 1
WHOLE = 1
ESTIMATED = 2

# Bits of a row's role.
LEADS = 1
IN_SYNC = 2
BEING_ADDED = 4

# Names and types of the columns, in their order. Bytes and requests are a leader's, except that
# bytes_out is also what a follower served to consumers.
COLUMNS = {
    "topic": "i",
    "partition": "i",
    "role": "B",
    "directory": "B",
    "bytes_in": "q",
    "bytes_out": "q",
    "follower_out": "q",
    "messages": "q",
    "requests": "q",
    "size": "q",
    "log_end": "q",
}
ROW_BYTES = sum(array(code).itemsize for code in COLUMNS.values())
# The directory of a replica that has none, such as one whose disk has failed.
NO_DIRECTORY = 255
DIRECTORIES_MAX = 255

_HEADER = Struct("<4sBB2xIIiqqqqII")
_CRC = Struct("<I")
HEADER_BYTES = _HEADER.size + _CRC.size
_LOAD = Struct("<f5d3Q7I")
_DIRECTORY = Struct("<QQBH")

assert HEADER_BYTES == 64

Buffer = bytes | bytearray | memoryview
Columns = dict[str, "array[int]"]


class InvalidFrame(DecodeError):
    """These bytes are not a telemetry frame."""


class BrokerLoad(NamedTuple):
    """What the broker as a whole did and had. Times are seconds of processor time."""

    # How many the process may use; 0 where it is not known.
    cores: float = 0.0
    cpu_s: float = 0.0
    # Of it, by what it was spent on.
    produce_s: float = 0.0
    consumer_s: float = 0.0
    follower_s: float = 0.0
    other_s: float = 0.0
    net_in: int = 0
    net_out: int = 0
    # Bytes a second; 0 where it is not known.
    net_capacity: int = 0
    produce_p50_us: int = 0
    produce_p99_us: int = 0
    queue_us: int = 0
    isr_shrinks: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0


class Directory(NamedTuple):
    """One log directory; nothing is known of the room on a failed one."""

    path: str
    capacity: int = 0
    free: int = 0
    is_failed: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """One tick of one broker. `columns` has an array of each of COLUMNS, all as long."""

    broker: int
    incarnation: int
    tick: int
    from_ms: int
    to_ms: int
    load: BrokerLoad
    directories: tuple[Directory, ...]
    topics: tuple[str, ...]
    columns: Columns
    is_whole: bool = False
    is_estimated: bool = False

    def __len__(self) -> int:
        return len(self.columns["topic"])


def new_columns() -> Columns:
    return {name: array(code) for name, code in COLUMNS.items()}


def encode_frame(frame: Frame) -> bytes:
    names = "\n".join(frame.topics).encode("ascii")
    load = _LOAD.pack(*frame.load, len(frame.directories)) + b"".join(
        map(_encode_directory, frame.directories)
    )
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        WHOLE * frame.is_whole | ESTIMATED * frame.is_estimated,
        len(frame),
        len(frame.topics),
        frame.broker,
        frame.incarnation,
        frame.tick,
        frame.from_ms,
        frame.to_ms,
        len(names),
        len(load),
    )
    rest = b"".join((names, load, *(_little_endian(frame.columns[name]) for name in COLUMNS)))
    return b"".join((header, _CRC.pack(crc32c(header + rest)), rest))


def _encode_directory(directory: Directory) -> bytes:
    path = directory.path.encode()
    return (
        _DIRECTORY.pack(directory.capacity, directory.free, directory.is_failed, len(path)) + path
    )


def _little_endian(column: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column


def decode_frame(buffer: Buffer) -> Frame:
    """Raises InvalidFrame."""
    view = memoryview(buffer)
    if len(view) < HEADER_BYTES:
        raise InvalidFrame(f"{len(view)} bytes are less than a header")
    magic, version, flags, rows, topics, *about, names_bytes, load_bytes = _HEADER.unpack_from(view)
    broker, incarnation, tick, from_ms, to_ms = about
    if magic != MAGIC:
        raise InvalidFrame(f"begins with {magic!r}, not with {MAGIC!r}")
    if version != VERSION:
        raise InvalidFrame(f"version {version} is not known here")
    names_end = HEADER_BYTES + names_bytes
    rows_begin = names_end + load_bytes
    if rows_begin + rows * ROW_BYTES != len(view):
        raise InvalidFrame(
            f"{len(view)} bytes for {rows} rows, {names_bytes} bytes of names and {load_bytes}"
            " about the broker"
        )
    (crc,) = _CRC.unpack_from(view, _HEADER.size)
    if crc32c(bytes(view[: _HEADER.size]) + view[HEADER_BYTES:]) != crc:
        raise InvalidFrame("the checksum is wrong")
    if not (broker >= 0 and tick >= 0 and 0 <= from_ms <= to_ms):
        raise InvalidFrame(f"broker {broker}, tick {tick}, from {from_ms} to {to_ms}")
    load, directories = _decode_load(view[names_end:rows_begin])
    return Frame(
        broker,
        incarnation,
        tick,
        from_ms,
        to_ms,
        load,
        directories,
        _decode_names(view[HEADER_BYTES:names_end], topics),
        _decode_columns(view[rows_begin:], rows),
        is_whole=bool(flags & WHOLE),
        is_estimated=bool(flags & ESTIMATED),
    )


def _decode_names(view: memoryview, count: int) -> tuple[str, ...]:
    try:
        names = tuple(str(view, "ascii").split("\n")) if view else ()
    except UnicodeDecodeError:
        raise InvalidFrame("topic names that are not ASCII") from None
    if len(names) != count:
        raise InvalidFrame(f"{len(names)} topic names, {count} were announced")
    if not all(0 < len(name) <= TOPIC_NAME_LENGTH_MAX for name in names):
        raise InvalidFrame("a topic name that is empty or too long")
    return names


def _decode_load(view: memoryview) -> tuple[BrokerLoad, tuple[Directory, ...]]:
    if len(view) < _LOAD.size:
        raise InvalidFrame(f"{len(view)} bytes about the broker")
    *values, count = _LOAD.unpack_from(view)
    load = BrokerLoad(*values)
    # Also refuses what is not a number.
    if not all(0 <= seconds < float("inf") for seconds in load[:6]):
        raise InvalidFrame(f"processor times {load[:6]}")
    if count > DIRECTORIES_MAX:
        raise InvalidFrame(f"{count} log directories")
    directories, position = [], _LOAD.size
    for _ in range(count):
        if len(view) < position + _DIRECTORY.size:
            raise InvalidFrame("a log directory is truncated")
        capacity, free, failed, length = _DIRECTORY.unpack_from(view, position)
        position += _DIRECTORY.size
        path = view[position : position + length]
        if len(path) < length:
            raise InvalidFrame("the path of a log directory is truncated")
        directories.append(Directory(str(path, "utf-8", "replace"), capacity, free, failed != 0))
        position += length
    if position != len(view):
        raise InvalidFrame(f"{len(view) - position} bytes behind the log directories")
    return load, tuple(directories)


def _decode_columns(view: memoryview, rows: int) -> Columns:
    columns, position = new_columns(), 0
    for name, column in columns.items():
        end = position + rows * column.itemsize
        column.frombytes(view[position:end])
        columns[name] = _little_endian(column)
        position = end
    return columns
