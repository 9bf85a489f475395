"""`odradek consume`: records become lines."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from odradek.cli.formats import FORMATS, writer
from odradek.cli.output import examples, progress
from odradek.cli.positions import EXPLANATION, checked, resolve
from odradek.cli.session import INT32_MAX, complete_topics, with_cluster
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.client import Batches, Blocking, Client, Consumer, ConsumerRecord, Isolation
    from odradek.client.group_member import GroupMember

POLL_S = 0.2
COMMIT_S = 1.0


class Wanted(NamedTuple):
    """What to read: of which topic, from where, how much, and whether to go on at the end."""

    topic: str
    partitions: tuple[int, ...]
    position: str
    follow: bool
    isolation: "Isolation"
    records_max: int | None


@click.command(
    epilog=examples(
        "odradek consume greetings",
        "odradek consume orders --follow --from latest",
        "odradek consume orders --from 2024-05-01T12:00 -f json -o orders.jsonl",
    )
)
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--from", "position", metavar="POSITION", callback=checked, default="earliest", help=EXPLANATION
)
@click.option("--follow", is_flag=True, help="Wait for more at the end, until Ctrl-C.")
@click.option("--max", "-n", "records_max", type=click.IntRange(1), help="Stop after N records.")
@click.option("--partition", "-p", "partitions", type=click.IntRange(0, INT32_MAX), multiple=True)
@click.option("--group", "-g", help="Share the topic with this group, and commit.")
@click.option("--format", "-f", "form", type=click.Choice(FORMATS), default="value")
@click.option("--separator", "-s", default=":", show_default=True, help="Of keyed lines.")
@click.option("--null", metavar="TEXT", help="What stands for null; nothing unless given.")
@click.option("--output", "-o", type=click.File("wb"), default="-", help="A file to write to.")
@click.option("--committed", is_flag=True, help="Leave out what transactions have not committed.")
@with_cluster
def consume(
    cluster: "Blocking",
    topic: str,
    position: str,
    follow: bool,
    records_max: int | None,
    partitions: tuple[int, ...],
    group: str | None,
    form: str,
    separator: str,
    null: str | None,
    output: BinaryIO,
    committed: bool,
) -> None:
    """Print the records of a topic, a line each.

    Without --follow it stops at what was the end when it began. Order holds within a partition.
    With --group it goes on where the group was, and --from counts only where it never was.
    """
    from odradek.client import Isolation

    if group is not None and partitions:
        raise click.UsageError("a group shares the partitions itself: leave out --partition")
    level = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    wanted = Wanted(topic, partitions, position, follow, level, records_max)
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
            output.write(b"".join(write(record) + b"\n" for record in records))
            output.flush()
            shown.advance(task, len(records))
            shown.update(task, total=shown.tasks[0].completed + remaining)


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
    starts = await resolve(client, wanted.position, parts, wanted.isolation)
    ends = await _ends(client, wanted, parts)
    budget = _Budget(wanted.records_max)
    async with Consumer(client, isolation=wanted.isolation) as consumer:
        await consumer.assign(starts)
        while _leave_finished(consumer, ends):
            for batches in await consumer.poll(POLL_S):
                records = _before(consumer.open(batches), ends)
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
    """The same until the group shares its partitions anew."""
    from odradek.client import Consumer, Groups

    client, loop = member.client, asyncio.get_running_loop()
    parts = await member.join()
    starts = await resolve(client, wanted.position, parts, wanted.isolation)
    known = await Groups(client).offsets(member.group, parts)
    starts.update({part: place.offset for part, place in known.items()})
    ends = await _ends(client, wanted, parts)
    done: dict[TopicPartition, int] = {}
    next_commit = loop.time() + COMMIT_S
    async with Consumer(client, isolation=wanted.isolation) as consumer:
        await consumer.assign(starts)
        try:
            while not member.must_rejoin and _leave_finished(consumer, ends):
                for batches in await _poll(consumer):
                    records = _before(consumer.open(batches), ends)
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


async def _poll(consumer: "Consumer") -> "list[Batches]":
    """A member without partitions waits for some."""
    if consumer.positions:
        return await consumer.poll(POLL_S)
    await asyncio.sleep(POLL_S)
    return []


async def _ends(
    client: "Client", wanted: Wanted, parts: list[TopicPartition]
) -> dict[TopicPartition, int] | None:
    """Where to stop; None to go on for ever."""
    if wanted.follow:
        return None
    return await resolve(client, "latest", parts, wanted.isolation)


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
