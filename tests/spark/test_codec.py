"""Record batches to Arrow and back, held against Kafka clients' own codecs and against nonsense."""

import datetime
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2
from numba import njit

from odradek.spark import kernels
from odradek.spark.decode import (
    SCHEMA,
    SCHEMA_WITH_HEADERS,
    Decoder,
)
from odradek.spark.encode import BytesColumn, Columns, checksum, encode_rows, partitions_of
from odradek.spark.errors import MalformedRecord
from odradek.wire.batch import (
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    header_at,
    set_crc,
)
from odradek.wire.compression import Codec
from odradek.wire.errors import KafkaError
from odradek.wire.records import Record, encode_batch

MAX = 2**63 - 1
NOW = 1_700_000_000_000

optional_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), optional_bytes), max_size=3)
rows = st.lists(st.tuples(optional_bytes, optional_bytes, headers), min_size=1, max_size=20)


Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]


def built_by_aiokafka(content: list[Any], codec: int = 0, base: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 24,
    )
    for index, (key, value, head) in enumerate(content):
        assert builder.append(index, NOW + index, key, value, head) is not None
    raw = bytearray(builder.build())
    raw[:8] = base.to_bytes(8, "big")
    return bytes(raw)


def expected(content: list[Any], base: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "key": key,
            "value": value,
            "topic": "t",
            "partition": 2,
            "offset": base + index,
            "timestamp": datetime.datetime.fromtimestamp(NOW / 1000, datetime.UTC)
            + datetime.timedelta(milliseconds=index),
            "timestampType": 0,
            "headers": [{"key": k, "value": v} for k, v in head] or None,
        }
        for index, (key, value, head) in enumerate(content)
    ]


def only(decoder: Decoder, records: bytes | bytearray, **more: Any) -> pa.RecordBatch:
    """The rows of what fits into one piece."""
    (rows,) = decoder.decode(records, **more)
    return rows


@settings(max_examples=60)
@given(content=rows, codec=st.sampled_from([0, 1, 2, 3, 4]), base=st.integers(0, 2**40))
def test_what_a_client_wrote_is_what_arrow_holds(content: Any, codec: int, base: int) -> None:
    decoder = Decoder("t", 2, 0, MAX, include_headers=True)
    rows = only(decoder, built_by_aiokafka(content, codec, base))
    assert rows.schema == SCHEMA_WITH_HEADERS
    rows.validate(full=True)
    assert rows.to_pylist() == expected(content, base)
    assert decoder.start == base + len(content)


@settings(max_examples=60)
@given(content=rows, codec=st.sampled_from(list(Codec)), size_max=st.sampled_from([64, 1 << 20]))
def test_what_arrow_holds_is_what_a_client_reads(content: Any, codec: Codec, size_max: int) -> None:
    batch = arrow(content)
    indexes = pa.array(range(len(content))).to_numpy()
    seen = []
    for encoded in encode_rows(Columns.of(batch), indexes, NOW, codec, size_max):
        read = DefaultRecordBatch(bytes(encoded.data))
        assert read.validate_crc()
        of_batch = list(read)
        assert len(of_batch) == encoded.record_count
        assert [record.offset for record in of_batch] == list(range(len(of_batch)))
        assert {record.timestamp for record in of_batch} == {NOW}
        seen += [(record.key, record.value, list(record.headers)) for record in of_batch]
    assert seen == [tuple(row) for row in content]


def arrow(content: list[Any], **more: pa.Array) -> pa.RecordBatch:
    kind = SCHEMA_WITH_HEADERS.field("headers").type
    columns = {
        "key": pa.array([row[0] for row in content], pa.binary()),
        "value": pa.array([row[1] for row in content], pa.binary()),
        "headers": pa.array(
            [[{"key": k, "value": v} for k, v in row[2]] or None for row in content], kind
        ),
        **more,
    }
    return pa.RecordBatch.from_pydict(columns)


def test_a_slice_of_an_arrow_batch_is_that_slice() -> None:
    content = [(b"k%d" % i, b"v%d" % i, [("h", b"%d" % i)] * (i % 3)) for i in range(10)]
    batch = arrow(content).slice(3, 4)
    (encoded,) = encode_rows(
        Columns.of(batch), pa.array(range(4)).to_numpy(), NOW, Codec.NONE, 1 << 20
    )
    assert [(r.key, r.value, list(r.headers)) for r in DefaultRecordBatch(bytes(encoded.data))] == (
        content[3:7]
    )


def test_rows_after_a_large_one_fill_batches_of_the_usual_size() -> None:
    content: list[Row] = [(None, b"x" * size, []) for size in (5, 1000, *[20] * 30, 2000, 20)]
    encoded = encode_rows(
        Columns.of(arrow(content)), pa.array(range(len(content))).to_numpy(), NOW, Codec.NONE, 100
    )
    assert [batch.record_count for batch in encoded] == [1, 1, *[3] * 10, 1, 1]


def test_rows_outside_the_range_are_left_out_and_a_partial_batch_waits() -> None:
    content: list[Row] = [(None, b"%d" % i, []) for i in range(10)]
    two = built_by_aiokafka(content) + built_by_aiokafka(content, base=10)
    decoder = Decoder("t", 0, 4, 17)
    first = only(decoder, two[:-1])
    assert first["offset"].to_pylist() == [4, 5, 6, 7, 8, 9]
    assert first.schema == SCHEMA
    assert decoder.start == 10
    rest = only(decoder, two)
    assert rest["offset"].to_pylist() == [10, 11, 12, 13, 14, 15, 16]
    assert list(decoder.decode(b"")) == []


def test_what_is_opened_at_a_time_is_bounded() -> None:
    content: list[Row] = [(None, b"%d" % i * 100, []) for i in range(10)]
    log = b"".join(built_by_aiokafka(content, codec=4, base=base) for base in range(0, 100, 10))
    decoder = Decoder("t", 0, 0, MAX, piece_bytes=4000)
    pieces = list(decoder.decode(log))
    assert len(pieces) == 4
    assert [x for piece in pieces for x in piece["offset"].to_pylist()] == list(range(100))


def test_append_time_is_the_time_of_every_record() -> None:
    raw = bytearray(built_by_aiokafka([(None, b"a", []), (None, b"b", [])]))
    fields = list(HEADER.unpack_from(raw))
    fields[5] |= 0x08
    fields[8] = NOW + 77
    HEADER.pack_into(raw, 0, *fields)
    set_crc(raw, header_at(raw))
    batch = only(Decoder("t", 0, 0, MAX), raw)
    assert batch["timestampType"].to_pylist() == [1, 1]
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [(NOW + 77) * 1000] * 2


def test_a_timestamp_beyond_microseconds_names_its_record() -> None:
    raw = encode_batch([Record(offset=0, timestamp=2**62, key=None, value=b"", headers=())])
    with pytest.raises(MalformedRecord, match=r"TIMESTAMP: t-5 offset 0: .* SQLSTATE: 22008$"):
        only(Decoder("t", 5, 0, MAX), raw)


def transactional(producer: int, base: int, value: bytes) -> bytes:
    record = Record(offset=base, timestamp=NOW, key=None, value=value, headers=())
    return bytes(
        encode_batch(
            [record],
            base_offset=base,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
    )


def marker(producer: int, base: int, kind: int) -> bytes:
    key = b"\0\0" + kind.to_bytes(2, "big")
    record = Record(offset=base, timestamp=NOW, key=key, value=b"\0" * 6, headers=())
    return bytes(
        encode_batch(
            [record],
            base_offset=base,
            producer_id=producer,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
    )


def test_a_record_that_is_none_names_its_batch() -> None:
    raw = bytearray(built_by_aiokafka([(b"k", b"v", [])], base=41))
    raw[61] = 0x7F  # its length goes beyond the batch
    with pytest.raises(MalformedRecord, match=r"t-3: the batch at offset 41 cannot be read"):
        only(Decoder("t", 3, 0, MAX), raw)
    wrong_codec = bytearray(built_by_aiokafka([(b"k", b"v", [])], base=41))
    wrong_codec[22] |= 4
    with pytest.raises(MalformedRecord, match=r"t-3: the batch at offset 41 .* zstd"):
        only(Decoder("t", 3, 0, MAX), wrong_codec)


def test_control_batches_and_aborted_transactions_are_not_rows() -> None:
    log = (
        transactional(1, 0, b"aborted")
        + transactional(2, 1, b"committed")
        + marker(1, 2, 0)
        + transactional(1, 3, b"second try")
        + marker(1, 4, 1)
        + marker(2, 5, 1)
    )
    decoder = Decoder("t", 0, 0, MAX)
    committed = only(decoder, log, aborted=[(1, 0)])
    assert committed["value"].to_pylist() == [b"committed", b"second try"]
    assert decoder.start == 6
    everything = only(Decoder("t", 0, 0, MAX), log)
    assert everything["offset"].to_pylist() == [0, 1, 3]


def test_a_read_that_begins_at_an_abort_has_what_is_committed_after_it() -> None:
    log = marker(1, 20, 0) + transactional(1, 21, b"committed") + marker(1, 22, 1)
    decoder = Decoder("t", 0, 20, MAX)
    assert only(decoder, log, aborted=[(1, 10)])["value"].to_pylist() == [b"committed"]
    assert decoder.start == 23


def test_a_marker_that_was_emptied_is_passed_over() -> None:
    """The last batch of a producer stays in a compacted log when its record has gone."""

    def emptied(producer: int, offset: int) -> bytes:
        raw = bytearray(marker(producer, offset, 0)[:HEADER_BYTES])
        fields = list(HEADER.unpack_from(raw))
        fields[1], fields[-1] = HEADER_BYTES - OVERHEAD_BYTES, 0
        HEADER.pack_into(raw, 0, *fields)
        set_crc(raw, header_at(raw))
        return bytes(raw)

    log = emptied(1, 7) + transactional(1, 8, b"aborted") + marker(1, 9, 0)
    log += transactional(1, 10, b"committed") + marker(1, 11, 1) + emptied(2, 12)
    decoder = Decoder("t", 0, 0, MAX)
    assert only(decoder, log, aborted=[(1, 8)])["value"].to_pylist() == [b"committed"]
    assert decoder.start == 13


@settings(max_examples=150)
@given(data=st.data(), content=rows, codec=st.sampled_from([0, 0, 0, 1, 2, 3, 4]))
def test_damage_under_a_right_checksum_is_refused_or_read_never_worse(
    data: st.DataObject, content: Any, codec: int
) -> None:
    raw = bytearray(built_by_aiokafka(content, codec))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(21, len(raw) - 1))
        raw[position] = data.draw(st.integers(0, 255))
    header = header_at(raw)
    set_crc(raw, header)
    try:
        batches = list(Decoder("t", 0, -(2**63), MAX, include_headers=True).decode(raw))
    except (MalformedRecord, KafkaError):
        return
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows <= len(raw) * 300


def test_a_count_of_records_that_cannot_be_true_allocates_nothing() -> None:
    raw = bytearray(built_by_aiokafka([(None, b"v", [])]))
    fields = list(HEADER.unpack_from(raw))
    fields[-1] = 2**31 - 1
    HEADER.pack_into(raw, 0, *fields)
    set_crc(raw, header_at(raw))
    with pytest.raises(MalformedRecord, match="cannot hold 2147483647 records"):
        only(Decoder("t", 0, 0, MAX), raw)
    assert not fields[5] & CONTROL_BIT


@settings(max_examples=200)
@given(st.binary(max_size=40))
def test_the_hash_is_kafkas(key: bytes) -> None:
    column = BytesColumn.of(pa.array([b"before", key], pa.binary()))
    at, size = kernels.piece(column.offsets, column.valid, 1)
    assert kernels.murmur2(column.data, at, size) == murmur2(key) & 0xFFFFFFFF


def test_a_row_goes_to_its_column_then_its_key_then_the_callers_choice() -> None:
    content: list[Row] = [(b"a", b"1", []), (b"a", b"2", []), (None, b"3", [])]
    batch = arrow(content, partition=pa.array([5, None, None], pa.int32()))
    keys = BytesColumn.of(batch["key"])
    by_key = (murmur2(b"a") & 0x7FFFFFFF) % 7
    assert partitions_of(batch, keys, 7, keyless=6).tolist() == [5, by_key, 6]


def test_loops_are_compiled_where_nothing_can_be_kept() -> None:
    namespace: dict[str, Any] = {}
    exec("def doubled(x):\n    return 2 * x", namespace)  # in no file at all
    with pytest.raises(RuntimeError, match="cannot cache"):
        njit(cache=True)(namespace["doubled"])
    assert kernels.compiled(namespace["doubled"])(21) == 42


def test_every_loop_is_compiled_once_and_says_so(tmp_path: Path) -> None:
    program = """
import pyarrow as pa
from odradek.spark import kernels
from odradek.spark.decode import Decoder
from odradek.wire.compression import Codec
from odradek.wire.records import Record, encode_batch
for codec in (Codec.NONE, Codec.ZSTD):
    batch = encode_batch([Record(0, 1, b"k", b"v", (("h", b"x"),))], codec=codec)
    for records in (batch, bytes(batch)):
        for headers in (False, True):
            list(Decoder("t", 0, 0, 9, headers).decode(records))
print(len(kernels.read_records.signatures))
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    said = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "1\n"
        said.append(done.stderr)
    assert said == ["compiling the loops that read and write records, once\n", ""]


def test_a_process_that_finds_no_compiled_loops_has_a_child_make_them_all(tmp_path: Path) -> None:
    program = """
from odradek.spark.compilation import are_kept, compile_apart, records
loops = records()
print(are_kept(loops))
compile_apart()
print(are_kept(loops))
loops.exercise()
print(sum(sum(entry.stats.cache_misses.values()) for entry in loops.entries))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "True", "0"]
    assert done.stderr == "compiling the loops that read and write records, once\n"


def test_a_header_key_that_is_not_utf_8_is_read_with_what_stands_for_it() -> None:
    content: list[Row] = [
        (None, b"a", [("plain", b"1"), ("kXy", b"2")]),
        (None, b"b", []),
        (None, b"c", []),
    ]
    raw = bytearray(built_by_aiokafka(content))
    raw[raw.index(b"kXy") + 1] = 0xFF
    set_crc(raw, header_at(raw))
    read = only(Decoder("t", 0, 0, MAX, include_headers=True), raw)
    read.validate(full=True)
    named = [{"key": "plain", "value": b"1"}, {"key": "k\ufffdy", "value": b"2"}]
    assert read["headers"].to_pylist() == [named, None, None]


def test_a_header_without_a_key_is_refused() -> None:
    kind = SCHEMA_WITH_HEADERS.field("headers").type
    broken = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"v"], pa.binary()),
            "headers": pa.array([[{"key": None, "value": b"x"}]], kind),
        }
    )
    with pytest.raises(ValueError, match="a header must have a key"):
        Columns.of(broken)


ROW = {"key": b"k", "value": b"v", "topic": "t", "partition": 1, "headers": [{"key": "h"}]}
CHANGES: list[dict[str, Any]] = [
    {"key": b"v", "value": b"k"},
    {"key": None},
    {"key": b""},
    {"value": None},
    {"value": b"v\0"},
    {"topic": "u"},
    {"partition": None},
    {"partition": 0},
    {"headers": []},
    {"headers": [{"key": "h", "value": b""}]},
    {"headers": [{"key": "i"}]},
]


def test_a_checksum_of_rows_in_any_order() -> None:
    schema = pa.schema([SCHEMA_WITH_HEADERS.field(name) for name in ROW])
    kinds = [ROW, *({**ROW, **change} for change in CHANGES)]
    batch = pa.RecordBatch.from_pylist(kinds, schema)
    single = [checksum(batch.slice(index, 1)) for index in range(len(kinds))]
    assert len(set(single)) == len(kinds)
    assert checksum(batch) == sum(single) % 2**64
    assert checksum(pa.RecordBatch.from_pylist(kinds[::-1], schema)) == checksum(batch)
    twice = pa.RecordBatch.from_pylist([ROW, ROW], schema)
    assert checksum(twice) not in (0, single[0])
    # Columns that are not there are columns of nulls.
    values = pa.RecordBatch.from_pylist([{"value": b"v"}], schema)
    assert checksum(values) == checksum(values.select(["value"]))
