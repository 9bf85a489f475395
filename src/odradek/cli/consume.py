"""`odradek consume`: records become lines."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from odradek.cli.output import examples, progress
from odradek.cli.session import (
    INT32_MAX,
    complete_topics,
    explain,
    position_option,
    with_cluster,
)
from odradek.operations import AT_END, FORMATS, Position, log_ranges, resolve, writer
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.client import (
        Batches,
        Blocking,
        Client,
        Consumer,
        ConsumerRecord,
        Isolation,
        UndecodableBatch,
    )
    from odradek.client.group_member import GroupMember

POLL_S = 0.2
COMMIT_S = 1.0


class Wanted(NamedTuple):
    """What to read: of which topic, from where, how much, and whether to wait at the end."""

    topic: str
    partitions: tuple[int, ...]
    position: Position
    follow: bool
    isolation: "Isolation"
    records_max: int | None
    skip: "Callable[[UndecodableBatch], None] | None" = None


@click.command(
    epilog=examples(
        "odradek consume greetings",
        "odradek consume orders --follow --from latest",
        "odradek consume orders --from 2024-05-01T12:00 -f json -o orders.jsonl",
    )
)
@click.argument("topic", shell_complete=complete_topics)
@position_option("--from", "position", default="earliest")
@click.option("--follow", is_flag=True, help="Wait for more at the end, until Ctrl-C.")
@click.option("--max", "-n", "records_max", type=click.IntRange(1), help="Stop after N records.")
@click.option("--partition", "-p", "partitions", type=click.IntRange(0, INT32_MAX), multiple=True)
@click.option("--group", "-g", help="Read as a member of this consumer group, and commit.")
@click.option("--format", "-f", "form", type=click.Choice(FORMATS), default="value")
@click.option("--separator", "-s", default=":", show_default=True, help="Between key and value.")
@click.option("--null", metavar="TEXT", help="Printed for null; default: empty.")
@click.option("--output", "-o", type=click.File("wb"), default="-", help="A file to write to.")
@click.option("--committed", is_flag=True, help="Only records of committed transactions.")
@click.option(
    "--skip-undecodable",
    is_flag=True,
    help="Report batches that cannot be decoded and skip them, instead of stopping.",
)
@with_cluster
def consume(
    cluster: "Blocking",
    topic: str,
    position: Position,
    follow: bool,
    records_max: int | None,
    partitions: tuple[int, ...],
    group: str | None,
    form: str,
    separator: str,
    null: str | None,
    output: BinaryIO,
    committed: bool,
    skip_undecodable: bool,
) -> None:
    """Print the records of a topic, one per line.

    Without --follow it stops at the end the log had when it began. Order holds within a partition.
    With --group it resumes from the group's offsets; --from applies where it has committed none.
    """
    from odradek.client import Isolation

    if group is not None and partitions:
        raise click.UsageError("a group assigns the partitions: leave out --partition")
    level = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    skip = _report_skipped if skip_undecodable else None
    wanted = Wanted(topic, partitions, position, follow, level, records_max, skip)
    source = (
        _read_alone(cluster.client, wanted)
        if group is None
        else _read_in_group(cluster.client, wanted, group)
    )
    write = writer(form, separator, null)
    try:
        cluster.run(_copy(source, write, output))
    except KeyboardInterrupt:
        output.flush()
        if not follow:
            raise


def _report_skipped(batch: "UndecodableBatch") -> None:
    click.echo(f"skipped: {explain(batch)}; continuing at offset {batch.next_offset}", err=True)


async def _copy(
    source: AsyncIterator[tuple[list["ConsumerRecord"], int]],
    write: Callable[["ConsumerRecord"], bytes],
    output: BinaryIO,
) -> None:
    """Write what comes, until the source has an end."""
    with progress(unit_is_bytes=False) as shown:
        # A bar would tear the records apart where they go to the same terminal.
        task = shown.add_task("records", visible=not output.isatty())
        async for records, remaining in source:
            write_all(output, b"".join(write(record) + b"\n" for record in records))
            output.flush()
            shown.advance(task, len(records))
            shown.update(task, total=shown.tasks[0].completed + remaining)


def write_all(output: BinaryIO, data: bytes) -> None:
    """Without a buffer, as under PYTHONUNBUFFERED, a write may take a part and say no more: where
    the disk is nearly full, or the reader of a pipe is gone."""
    left = memoryview(data)
    while left:
        left = left[output.write(left) :]


class _Budget:
    """How many records are still wanted."""

    def __init__(self, records_max: int | None) -> None:
        self.left = records_max

    @property
    def is_spent(self) -> bool:
        return self.left is not None and self.left <= 0

    def take(self, records: list["ConsumerRecord"]) -> list["ConsumerRecord"]:
        """As many of these as are wanted."""
        if self.left is None:
            return records
        taken = records[: self.left]
        self.left -= len(taken)
        return taken


async def _read_alone(
    client: "Client", wanted: Wanted
) -> AsyncIterator[tuple[list["ConsumerRecord"], int]]:
    """The records of all or some partitions, and how many are left before the end."""
    from odradek.client import Consumer

    metadata = await client.require_topics([wanted.topic])
    parts = [TopicPartition(wanted.topic, index) for index in wanted.partitions]
    parts = parts or metadata.partitions_of([wanted.topic])
    await _require_in_range(client, wanted, parts)
    starts = await resolve(client, wanted.position, parts, wanted.isolation)
    ends = await _ends(client, wanted, parts)
    budget = _Budget(wanted.records_max)
    async with Consumer(client, isolation=wanted.isolation, follows_name=wanted.follow) as consumer:
        await consumer.assign(starts)
        while _leave_finished(consumer, ends):
            for batches in await _poll(consumer, wanted):
                records = _before(consumer.open(batches, skip=wanted.skip), ends)
                yield budget.take(records), sum(consumer.lag().values())
                if budget.is_spent:
                    return


async def _read_in_group(
    client: "Client", wanted: Wanted, group: str
) -> AsyncIterator[tuple[list["ConsumerRecord"], int]]:
    """The records of the partitions that are ours in the group, committed when they are taken."""
    from odradek.client.group_member import GroupMember

    await client.require_topics([wanted.topic])
    budget = _Budget(wanted.records_max)
    async with GroupMember(client, group, [wanted.topic]) as member:
        while member.must_rejoin and not budget.is_spent:
            async for item in _read_generation(wanted, member, budget):
                yield item


async def _read_generation(
    wanted: Wanted, member: "GroupMember", budget: _Budget
) -> AsyncIterator[tuple[list["ConsumerRecord"], int]]:
    """The same until the group rebalances."""
    from odradek.client import Consumer, Groups

    client, loop = member.client, asyncio.get_running_loop()
    parts = await member.join()
    starts = await resolve(client, wanted.position, parts, wanted.isolation)
    known = await Groups(client).offsets(member.group, parts)
    starts.update({part: place.offset for part, place in known.items()})
    ends = await _ends(client, wanted, parts)
    done: dict[TopicPartition, int] = {}
    next_commit = loop.time() + COMMIT_S
    async with Consumer(client, isolation=wanted.isolation, follows_name=wanted.follow) as consumer:
        await consumer.assign(starts)
        try:
            while not member.must_rejoin and _leave_finished(consumer, ends):
                for batches in await _poll(consumer, wanted):
                    records = _before(consumer.open(batches, skip=wanted.skip), ends)
                    taken = budget.take(records)
                    yield taken, sum(consumer.lag().values())
                    if taken:
                        done[batches.partition] = taken[-1].offset + 1
                    if budget.is_spent:
                        return
                if loop.time() >= next_commit and done:
                    await member.commit(done)
                    next_commit = loop.time() + COMMIT_S
        finally:
            if done:
                await member.commit(done)


async def _poll(consumer: "Consumer", wanted: Wanted) -> "list[Batches]":
    """What has come in. A member of a group without partitions waits for some."""
    from odradek.client import UndecodableBatch

    if not consumer.positions:
        await asyncio.sleep(POLL_S)
        return []
    try:
        return await consumer.poll(POLL_S)
    except UndecodableBatch as batch:
        if wanted.skip is None:
            raise
        wanted.skip(batch)
        consumer.skip(batch)
        return []


async def _require_in_range(
    client: "Client", wanted: Wanted, parts: Sequence[TopicPartition]
) -> None:
    """Refuse an offset that is beyond the end of every partition: probably a slip."""
    offset = wanted.position.offset
    if offset is None or offset <= 0:
        return
    ends = {tp: log.end for tp, log in (await log_ranges(client, parts)).items()}
    if parts and all(offset > end for end in ends.values()):
        last = max(ends, key=lambda tp: ends[tp])
        raise click.ClickException(
            f"offset {offset} is beyond the end of {wanted.topic}: {last} ends at {ends[last]}"
        )


async def _ends(
    client: "Client", wanted: Wanted, parts: list[TopicPartition]
) -> dict[TopicPartition, int] | None:
    """Where to stop; None to follow without end."""
    if wanted.follow:
        return None
    return await resolve(client, AT_END, parts, wanted.isolation)


def _before(
    records: list["ConsumerRecord"], ends: Mapping[TopicPartition, int] | None
) -> list["ConsumerRecord"]:
    if ends is None:
        return records
    return [record for record in records if record.offset < ends[record.partition]]


def _leave_finished(consumer: "Consumer", ends: Mapping[TopicPartition, int] | None) -> bool:
    """Read no more of the partitions that are read to their ends; whether others are left.

    One that cannot be read any more is then the only one left, and the consumer says so.
    """
    if ends is None:
        return True
    for part, end in ends.items():
        if consumer.positions.get(part, -1) >= end:
            del consumer.positions[part]
    return bool(consumer.positions)
