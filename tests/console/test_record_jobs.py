"""What the child that opens records makes of hostile ones."""

from typing import Any

from odradek.console.decoders import Decoder
from odradek.console.record_jobs import FOUND_PER_MESSAGE, HEADERS_MAX, row_of
from odradek.console.web import dumps
from odradek.console.workers import MESSAGE_BYTES_MAX
from odradek.wire.batch import header_at
from odradek.wire.records import Record, encode_batch, iterate_records
from odradek.wire.topics import TopicPartition


def row(record: Record) -> dict[str, Any]:
    batch = encode_batch([record])
    header = header_at(batch)
    (read,) = iterate_records(batch, header)
    decoder = Decoder("auto")
    return row_of(TopicPartition("t" * 249, 0), read, header, decoder, decoder)


def test_a_message_with_the_largest_rows_is_within_its_limit() -> None:
    """Or a search would end, as one that takes too much memory, at a hostile record."""
    large = "\u202e" * 100_000
    headers = ((large, large.encode()),) * (HEADERS_MAX + 50)
    found = row(Record(0, 0, key=large.encode(), value=large.encode(), headers=headers))
    assert len(dumps([found] * FOUND_PER_MESSAGE)) < MESSAGE_BYTES_MAX
    assert len(found["headers"]) == HEADERS_MAX


def test_the_headers_of_an_ordinary_record_are_whole() -> None:
    headers = tuple((f"name-{number}", b"value %d" % number) for number in range(20))
    found = row(Record(0, 0, key=b"k", value=b"v", headers=headers))["headers"]
    assert [(each["name"], each["value"]["text"]) for each in found] == [
        (name, value.decode()) for name, value in headers
    ]
