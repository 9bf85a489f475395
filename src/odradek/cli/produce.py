"""`odradek produce`: lines of a file or of standard input become records."""

import asyncio
import io
import os
import stat
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, BinaryIO

import click
from click.core import ParameterSource

from odradek.cli.output import duration, examples, plural, progress, size
from odradek.cli.session import INT32_MAX, assignments, complete_topics, with_cluster
from odradek.operations import FORMATS, Line, reader
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.client import Blocking, Client, Producer

CHUNK_BYTES = 256 * 1024
ACKS = {"all": -1, "1": 1, "0": 0}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command(
    epilog=examples(
        "echo hello | odradek produce greetings",
        "odradek produce orders orders.jsonl --format json --codec zstd",
    )
)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--format", "-f", "form", type=click.Choice(FORMATS), default="value")
@click.option("--separator", "-s", default=":", show_default=True, help="Between key and value.")
@click.option("--null", metavar="TEXT", help="Read as null, e.g. for a tombstone.")
@click.option("--key", "-k", help="The key of every record that has none of its own.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE")
@click.option(
    "--partition",
    "-p",
    type=click.IntRange(0, INT32_MAX),
    help="Write to this partition, whatever the key.",
)
@click.option("--codec", type=click.Choice(CODECS), default="none", show_default=True)
@click.option("--acks", type=click.Choice(tuple(ACKS)), default="all", show_default=True)
@with_cluster
def produce(
    cluster: "Blocking",
    topic: str,
    file: BinaryIO,
    form: str,
    separator: str,
    null: str | None,
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    codec: str,
    acks: str,
) -> None:
    """Write the lines of FILE, or of standard input, to a topic, a record each.

    A line is a value, a key and a value (--format keyed), or a JSON object with key, value,
    headers, partition and timestamp (--format json). A line that cannot be read ends the command
    when those before it are written. Each record must be acknowledged within --timeout seconds of
    being read, two minutes by default; the first that is not ends the command.
    """
    from odradek.client import Producer
    from odradek.wire.compression import Codec

    read = reader(form, separator, null)
    common = tuple((name, text.encode()) for name, text in assignments(headers, "--header").items())
    default = Line(None, None if key is None else key.encode(), common, partition)

    async def run() -> tuple[int, int]:
        await cluster.client.require_topics([topic])
        async with Producer(
            cluster.client,
            acks=ACKS[acks],
            codec=Codec[codec.upper()],
            delivery_timeout_s=_delivery_timeout_s(cluster.client),
        ) as producer:
            records = size_bytes = read_bytes = 0
            with progress() as shown:
                task = shown.add_task(topic, total=_file_bytes(file))
                async for line in lines(file):
                    try:
                        await _send(producer, topic, read(line), default)
                    except ValueError as error:
                        await producer.flush()
                        written = "; the lines before it are written" if records else ""
                        raise click.ClickException(
                            f"line {records + 1}: {error}{written}"
                        ) from None
                    records += 1
                    size_bytes += len(line)
                    read_bytes += len(line) + 1
                    if records % 1000 == 0:
                        shown.update(task, completed=read_bytes)
                await producer.flush()
            return records, size_bytes

    started = time.monotonic()
    records, size_bytes = cluster.run(run())
    seconds = time.monotonic() - started
    click.echo(
        f"{plural(records, 'record')}, {size(size_bytes)}, to {topic} in {duration(seconds)}",
        err=True,
    )


def _delivery_timeout_s(client: "Client") -> float:
    """What was asked for. By default longer than one answer may take: so that a record outlives
    its partition's leader, whose death a cluster needs a while to find out."""
    from odradek.client.producer import DELIVERY_TIMEOUT_S

    source = click.get_current_context().get_parameter_source("timeout")
    return DELIVERY_TIMEOUT_S if source is ParameterSource.DEFAULT else client.timeout_s


async def _send(producer: "Producer", topic: str, line: Line, default: Line) -> None:
    producer.raise_failure()
    partition = default.partition if line.partition is None else line.partition
    known = producer.client.metadata.topics.get(topic)
    if partition is not None and known is not None and partition not in known.partitions:
        # Unless it was added meanwhile this says that there is none: a delivery would keep
        # asking, as it does for what comes back.
        await producer.client.leaders([TopicPartition(topic, partition)])
    await producer.send(
        topic,
        line.value,
        key=default.key if line.key is None else line.key,
        headers=default.headers + line.headers,
        partition=partition,
        timestamp_ms=line.timestamp_ms,
    )


async def lines(file: BinaryIO) -> AsyncIterator[bytes]:
    """The lines of a file, without their ends; those of a pipe or terminal as they come."""
    begun: list[bytes] = []  # of a line of many chunks, which are put together once
    async for chunk in _chunks(file):
        end, *others = chunk.split(b"\n")
        begun.append(end)
        for line in others:
            yield b"".join(begun).removesuffix(b"\r")
            begun = [line]
    if rest := b"".join(begun):
        yield rest


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    if not _comes_by_and_by(file):
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
        return
    # What is typed or piped may take its time, and what came before must leave meanwhile.
    stream = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), file)
    try:
        while chunk := await stream.read(CHUNK_BYTES):
            yield chunk
    finally:
        transport.close()


def _comes_by_and_by(file: BinaryIO) -> bool:
    """Whether a file is a pipe, a socket or a terminal, which end when the writer closes them.
    Other devices, such as /dev/null, are always ready and cannot be waited for."""
    if _file_bytes(file) is not None:
        return False
    return file.isatty() or not stat.S_ISCHR(os.fstat(file.fileno()).st_mode)


def _file_bytes(file: BinaryIO) -> int | None:
    """How large a file is; None for what is no file in a directory, and has no size."""
    try:
        status = os.fstat(file.fileno())
    except io.UnsupportedOperation:
        return file.seek(0, io.SEEK_END) - file.seek(0)  # memory that is read like a file
    return status.st_size if stat.S_ISREG(status.st_mode) else None
