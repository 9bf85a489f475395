"""The journal in the order of decisions, and what was at a moment."""

import random

from tests.broker.clusters import Cluster, until
from tests.console.consoles import Browser

from odradek.console.console import Console
from odradek.console.journal import entry_row, parse_place
from odradek.console.past import PastView
from odradek.console.picture import PartitionTable
from odradek.controller.journal import Entry, EntryKind
from odradek.operations.journal_book import JournalBook
from odradek.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from odradek.wire.topics import TopicPartition


def leadership(
    time_ms: int, epoch: int, sequence: int, before: str, after: str, p: int = 0
) -> Entry:
    return Entry(
        time_ms,
        epoch,
        EntryKind.LEADERSHIP,
        "why",
        before,
        after,
        TopicPartition("orders", p),
        sequence=sequence,
    )


def test_15_the_order_is_that_of_decisions_whatever_the_clocks_say() -> None:
    book = JournalBook()
    # The second controller's clock is 10 s behind the first one's.
    first = [leadership(100_000 + n, 1, n, "", f"a{n}") for n in range(1, 4)]
    second = [leadership(90_000 + n, 2, n, "", f"b{n}") for n in range(1, 4)]
    for source, entry in sorted(
        [(1, entry) for entry in first] + [(2, entry) for entry in second],
        key=lambda pair: pair[1].time_ms,
    ):
        book.add(source, entry)
    assert [kept.entry.after for kept in book] == ["a1", "a2", "a3", "b1", "b2", "b3"]
    assert book.add(1, first[0]) is None, "seen before"
    row = entry_row(next(iter(book)))
    place = parse_place(row["id"])
    assert place is not None and book.at_or_after(place) == 0
    for text in ("", "1-2", "a-b-c", "1-2-3-4", "9" * 30 + "-1-1"):
        assert parse_place(text) is None, text


def test_a_book_is_bounded() -> None:
    book = JournalBook(entries_max=100)
    many = tuple(TopicPartition("t", p) for p in range(10_000))
    for n in range(1, 1001):
        book.add(1, Entry(n, 1, EntryKind.REQUEST, "w" * 10, partitions=many, sequence=n))
    assert len(book) <= 100
    kept = list(book)
    assert kept[-1].entry.sequence == 1000 and len(kept[-1].entry.partitions) <= 200
    assert book.dropped == 1000 - len(book)


def last_change(console: Console, tp: TopicPartition) -> Entry | None:
    """The last entry that changed leader or ISR."""
    entries = [kept.entry for kept in console.journal.book.about(tp)]
    return next((each for each in entries[::-1] if each.kind is EntryKind.LEADERSHIP), None)


def table_of(states: dict[int, tuple[int, int, list[int]]]) -> PartitionTable:
    table = PartitionTable()
    table.append(
        MetadataResponseTopic(
            name="orders",
            partitions=[
                MetadataResponsePartition(
                    partition_index=p,
                    leader_id=leader,
                    leader_epoch=epoch,
                    replica_nodes=[1, 2, 3],
                    isr_nodes=isr,
                )
                for p, (leader, epoch, isr) in states.items()
            ],
        )
    )
    return table


def test_14_the_state_at_any_moment_is_the_one_that_was_recorded_then() -> None:
    """Random histories: what was true at each moment is written down as it happens."""
    for seed in range(20):
        rng = random.Random(seed)
        book, partitions = JournalBook(), 4
        states: dict[int, tuple[int, int, list[int]]] = {}
        recorded: list[tuple[int, dict[int, tuple[int, int, list[int]]]]] = []
        now, epoch, sequence, controller = 1_000, 1, 0, 1
        for _ in range(80):
            now += rng.randrange(1, 50)
            if rng.random() < 0.1:
                epoch, sequence, controller = epoch + 1, 0, rng.randrange(1, 4)
            p = rng.randrange(partitions)
            before = states.get(p)
            isr = rng.sample([1, 2, 3], rng.randrange(1, 4))
            states[p] = (rng.choice([*isr, -1]), 0 if before is None else before[1] + 1, isr)
            sequence += 1
            text = "" if before is None else _text(before)
            book.add(controller, leadership(now, epoch, sequence, text, _text(states[p]), p))
            recorded.append((now, dict(states)))
        table = table_of(
            dict(sorted({**dict.fromkeys(range(partitions), (-1, -1, [])), **states}.items()))
        )
        for at_ms, truth in recorded:
            past = PastView(book, table, at_ms)
            assert past.is_known
            for p in range(partitions):
                current = table.partition("orders", p)
                assert current is not None
                found = past.partition(current)
                if p not in truth:
                    assert found is None or p not in states, (seed, at_ms, p)
                    continue
                assert found is not None, (seed, at_ms, p)
                assert (found.leader, found.leader_epoch, list(found.isr)) == truth[p], (seed, p)
        before_all = PastView(book, table, recorded[0][0] - 1)
        assert not before_all.is_known
        current = table.partition("orders", 0)
        assert current is not None and before_all.word(current) == "not known"


def _text(state: tuple[int, int, list[int]]) -> str:
    return f"leader={state[0]} epoch={state[1]} isr=[{','.join(map(str, state[2]))}]"


async def test_13_a_partition_knows_why_it_moved(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    console, browser = seen
    await brokers.create_topic("orders", partitions=1, replicas=3)
    await until(lambda: console.collector.table.leader("orders", 0) >= 0)
    before = console.collector.table.leader("orders", 0)
    tp = TopicPartition("orders", 0)
    await until(lambda: last_change(console, tp) is not None)
    born = last_change(console, tp)
    assert born is not None
    await brokers.stop(before)
    await until(lambda: console.collector.table.leader("orders", 0) not in (before, -1))
    await until(lambda: last_change(console, tp) != born)
    history = await browser.get("/partition/history", topic="orders", p=0)
    leaderships = [row for row in history["items"] if row["kind"] == "leadership"]
    change = next(row for row in leaderships if f"leader={before}" in row["before"])
    assert f"leader={before}" not in change["after"]
    assert f"broker={before}" in change["why"] or f"dead=[{before}]" in change["why"]
    assert leaderships[-1]["before"] == "" and history["complete"]
    assert history["lanes"]["leader"][0][1] == before
    then = await browser.get("/partition", topic="orders", p=0, at=born.time_ms)
    assert then["leader"] == before and then["known"]
    long_ago = await browser.get("/partition", topic="orders", p=0, at="2001-01-01T00:00:00")
    assert not long_ago["known"] and long_ago["state"] == "not known"
    overview = await browser.get("/overview", at=born.time_ms)
    assert before in overview["brokers"]["alive"] and overview["under_replicated"] == 0
    timeline = await browser.get("/timeline")
    assert timeline["first_entry_ms"] <= born.time_ms and timeline["marks"]
    page = await browser.get("/journal", kind="leadership", topic="orders", limit=1)
    assert len(page["items"]) == 1 and page["next"] == page["items"][0]["id"]
    older = await browser.get("/journal", kind="leadership", topic="orders", before=page["next"])
    assert page["items"][0]["id"] not in {row["id"] for row in older["items"]}
