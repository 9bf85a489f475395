"""What `produce` reads and how it ends, and how `consume` writes, without a cluster."""

import asyncio
import io
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO
from uuid import UUID

import click
import pytest
from click.testing import CliRunner

import odradek.client
from odradek.cli import produce
from odradek.cli.consume import write_all
from odradek.cli.main import main
from odradek.cli.produce import _send, lines
from odradek.cli.session import explained
from odradek.client import Client, ConsumerRecord, Producer
from odradek.client.metadata import Metadata, Partition, Topic
from odradek.client.producer import DELIVERY_TIMEOUT_S
from odradek.operations.formats import Line, reader, writer
from odradek.wire.errors import KafkaError
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@pytest.fixture
def nothing() -> Iterator[BinaryIO]:
    with open(os.devnull, "rb") as file:
        yield file


async def test_a_device_that_is_no_terminal_is_read_like_a_file(nothing: BinaryIO) -> None:
    async with asyncio.timeout(60):
        assert [line async for line in lines(nothing)] == []


async def test_lines_are_put_together_from_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once: with a copy for every chunk, the long one would take an hour."""
    monkeypatch.setattr(produce, "CHUNK_BYTES", 1024)
    long = b"x" * 50_000_000
    file = io.BytesIO(b"one\r\n\n" + long + b"\r\n\r\nthe last")
    assert [line async for line in lines(file)] == [b"one", b"", long, b"", b"the last"]


def test_what_an_output_takes_in_parts_is_written_whole() -> None:
    class Parts(io.BytesIO):
        def write(self, data: "ReadableBuffer", /) -> int:
            return super().write(memoryview(data)[:3])

    output = Parts()
    write_all(output, b"a record of many bytes")
    assert output.getvalue() == b"a record of many bytes"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_not_taken_for_a_missing_cluster() -> None:
    said = "^the output cannot be written: No space left on device$"
    refused = pytest.raises(click.ClickException, match=said)
    with open("/dev/full", "wb", 0) as output, refused, explained():
        write_all(output, b"a record")


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, int]]:
    reading, writing = os.pipe()
    with open(reading, "rb") as file:
        yield file, writing


async def test_a_pipe_is_read_as_it_comes(pipe: tuple[BinaryIO, int]) -> None:
    file, writing = pipe
    os.write(writing, b"one\ntw")
    found = lines(file)
    assert await anext(found) == b"one"
    os.write(writing, b"o")
    os.close(writing)
    assert [line async for line in found] == [b"two"]


@pytest.mark.parametrize("timestamp_ms", [-1, 0, 1714564800000])
def test_json_goes_round_with_bytes_that_are_no_text(timestamp_ms: int) -> None:
    binary = b"\xff\x00\x80"
    headers = (("h", binary), ("h", b"text"), ("none", None), ("empty", b""), ("h", binary))
    record = ConsumerRecord(TopicPartition("t", 3), 7, timestamp_ms, binary, binary, headers)
    line = reader("json", ":", None)(writer("json", ":", None)(record))
    assert line == Line(binary, binary, headers, 3, timestamp_ms)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '{"value": "v", "timestamp": "2024-01-01"}',
            'a timestamp is a whole number, not "2024-01-01"',
        ),
        ('{"value": "v", "timestamp": 1.5}', "a timestamp is a whole number, not 1.5"),
        (
            '{"value": "v", "timestamp": 9223372036854775808}',
            "a timestamp is a whole number, not 92",
        ),
        ('{"value": "v", "partition": true}', "a partition is a whole number, not true"),
        ('{"value": "v", "partition": -1}', "a partition is a whole number, not -1"),
        ('{"value": "v", "headers": 5}', "headers are an object, or a list of pairs"),
        ('{"value": "v", "headers": [1]}', "a header is a pair or has a key and a value, unlike 1"),
        ('{"value": "v", "headers": [["h"]]}', r'a header is a pair .*, unlike \["h"\]'),
        (
            '{"value": "v", "headers": [{"value": "v"}]}',
            "a header is a pair or has a key and a value",
        ),
        (
            '{"value": "v", "headers": [{"key": "h"}]}',
            "a header is a pair or has a key and a value",
        ),
        ('{"value": "v", "headers": {"\\ud800": "x"}}', "surrogates not allowed"),
        ('{"value": "v", "headers": [["\\ud800", "x"]]}', "surrogates not allowed"),
        ('{"value": "v", "headers": [{"key": "\\ud800", "value": 1}]}', "surrogates not allowed"),
        ("[]", "a record is a JSON object"),
        ("{}", "a record has a value, which is null for a tombstone"),
        ('{"key": "k"}', "a record has a value, which is null for a tombstone"),
        ('{"id": 7, "name": "ann"}', 'a record has no field "id"; .* with --format value'),
        ('{"vlaue": "v"}', 'a record has no field "vlaue"; did you mean value'),
        ('{"value_base64": 7}', "value_base64 is a text, not 7"),
        ('{"value": "v", "key_base64": null}', "key_base64 is a text, not null"),
    ],
)
def test_json_that_is_no_record_is_reported_in_words(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        reader("json", ":", None)(text.encode())


class Known(Client):
    """A client that always finds one topic with one partition."""

    async def refresh(self, topics: Iterable[str] | None = None) -> Metadata:
        partitions = {0: Partition(0, 1, 0, [1], [1], [])}
        self.metadata.topics["t"] = Topic("t", UUID(int=1), False, partitions)
        return self.metadata


async def test_a_partition_that_does_not_exist_is_reported_before_it_is_sent_to() -> None:
    producer = Producer(Known("h:1", missing_topic_s=0))
    await producer.client.require_topics(["t"])
    for line, default in ((Line(b"v", partition=5), None), (Line(b"v"), 5)):
        with pytest.raises(KafkaError, match="topic 't' has no partition 5; it has 1"):
            await _send(producer, "t", line, Line(None, partition=default))
    assert producer.statistics()["records"] == 0


@pytest.mark.parametrize(
    ("given", "taken_s"), [(["--timeout", "5"], 5.0), ([], DELIVERY_TIMEOUT_S)]
)
def test_a_time_that_is_asked_for_is_that_of_a_delivery(
    given: list[str], taken_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []

    class Noted(Producer):
        async def flush(self) -> None:
            taken.append(self.delivery_timeout_s)
            await super().flush()

    monkeypatch.setattr(odradek.client, "Producer", Noted)
    monkeypatch.setattr(Client, "refresh", Known.refresh)
    result = CliRunner().invoke(main, ["produce", "t", *given], input="")
    assert result.exit_code == 0, result.output
    assert set(taken) == {taken_s}


async def test_a_failure_is_raised_before_more_is_sent() -> None:
    class Failed(Producer):
        def raise_failure(self) -> None:
            raise ConnectionError("the brokers are gone")

    producer = Failed(Client("h:1"))
    with pytest.raises(ConnectionError, match="the brokers are gone"):
        await _send(producer, "t", Line(b"v"), Line(None, partition=0))
    assert producer.statistics()["records"] == 0
