"""Partitions: the heat grid, one partition, its history, and how it was at a moment."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from itertools import islice
from typing import Any, TypedDict

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from odradek.client.reader import EARLIEST, LATEST
from odradek.console.audit import AuditLine
from odradek.console.console import Console
from odradek.console.journal import EntryRow, entry_row
from odradek.console.link import FAILURES
from odradek.console.past import PastView
from odradek.console.picture import Brokers, PartitionState, PartitionTable
from odradek.console.routes import AT, Parameter, Route
from odradek.console.views.controller import moment_of
from odradek.console.views.topics import PartitionRow, find_topic, partition_row
from odradek.console.web import Problem, answer, dumps, number_parameter, required_parameter
from odradek.controller.journal import EntryKind, parse_state
from odradek.operations.journal_book import Kept
from odradek.placement import Ongoing
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from odradek.wire.topics import TopicPartition

INT32_MAX = 2**31 - 1
GRID_PARTITIONS_MAX = 100_000
# Topics whose letters are found in one turn of the loop.
GRID_SLICE = 250
LIMIT, LIMIT_MAX = 100, 500
PRODUCERS_SHOWN = 100
# Partitions of a topic whose offsets and producers a screen asks for.
OFFSETS_MAX = 1_000
LEGEND = {
    "L": "leads",
    "F": "in sync",
    "B": "behind",
    "X": "offline",
    ">": "being added",
    "<": "being removed",
    ".": "no replica here",
    "?": "not known",
}


class ProducerRow(TypedDict):
    id: int
    epoch: int
    last_sequence: int
    last_ms: int
    transaction_start: int | None


class PlacedProducer(ProducerRow):
    p: int


class ProducersAnswer(TypedDict):
    items: list[PlacedProducer]


class OffsetsRow(TypedDict):
    p: int
    start_offset: int | None
    end_offset: int | None


class OffsetsAnswer(TypedDict):
    items: list[OffsetsRow]


class PartitionAnswer(PartitionRow):
    start_offset: int | None
    end_offset: int | None
    records: int | None
    lags: dict[str, int]
    sizes: dict[str, int]
    producers: list[PlacedProducer]
    age_s: float | None
    at_ms: int | None


class HistoryAnswer(TypedDict):
    items: list[EntryRow]
    lanes: dict[str, list[list[int]]]
    complete: bool
    kept_since_ms: int | None
    next: str | None


class GridTopic(TypedDict):
    name: str
    partitions: int
    cells: dict[str, str]


class GridAnswer(TypedDict):
    brokers: list[int]
    topics: list[GridTopic]
    total: int
    legend: dict[str, str]
    at_ms: int | None


def cell(
    state: PartitionState | None, id: int, alive: Any, adding: Any = (), removing: Any = ()
) -> str:
    """One letter for one broker and one partition."""
    if state is None:
        return "?"
    if id not in state.replicas:
        return "."
    if id in adding and id not in state.isr:
        return ">"
    if id in removing:
        return "<"
    if id not in alive:
        return "X"
    if id == state.leader:
        return "L"
    return "F" if id in state.isr else "B"


async def show_grid(console: Console, request: Request) -> Response:
    at = moment_of(request)
    collector = console.collector
    table = collector.table
    name = request.query_params.get("topic")
    chosen = [find_topic(console, name)] if name is not None else range(len(table.names))
    past = None if at is None else PastView(console.journal.book, table, at)
    alive = collector.brokers.nodes if past is None else set(past.brokers() or ())
    ids = sorted({*collector.known, *collector.counts.brokers})
    moves = collector.moves if past is None else {}
    grid = _Grid(table, ids, alive, past, moves)
    rest = {
        "brokers": ids,
        "total": len(table.names) if name is None else 1,
        "legend": LEGEND,
        "at_ms": at,
    }
    if name is not None:
        return answer(request, {**rest, "topics": [grid.topic(topic) for topic in chosen]})
    return StreamingResponse(_stream(grid, chosen, rest), media_type="application/json")


async def _stream(
    grid: "_Grid", chosen: Sequence[int], rest: Mapping[str, object]
) -> AsyncIterator[bytes]:
    """The letters of many topics: made, written as JSON and compressed a slice in each turn of the
    loop, which the whole at once would hold up."""
    yield dumps(rest)[:-1] + b',"topics":['
    left = GRID_PARTITIONS_MAX
    for start in range(0, len(chosen), GRID_SLICE):
        topics = []
        for topic in chosen[start : start + GRID_SLICE]:
            shown = grid.topic(topic)
            left -= shown["partitions"]
            if left < 0:
                break
            topics.append(shown)
        if topics:
            yield (b"," if start else b"") + dumps(topics)[1:-1]
        if left < 0:
            break
        await asyncio.sleep(0)
    yield b"]}"


class _Grid:
    """The letters of partitions. Most have the same leader, replicas and ISR as others: of those
    the letters are found once."""

    def __init__(
        self,
        table: PartitionTable,
        ids: list[int],
        alive: Collection[int],
        past: PastView | None,
        moves: Mapping[TopicPartition, Ongoing],
    ) -> None:
        self._table = table
        self._ids = ids
        self._alive = alive
        self._past = past
        self._moves = moves
        self._known: dict[tuple[int, Brokers, Brokers], str] = {}

    def topic(self, number: int) -> GridTopic:
        name = self._table.names[number]
        columns = [self._column(state) for state in self._table.partitions(number)]
        rows = map("".join, zip(*columns, strict=True))
        return {
            "name": name,
            "partitions": len(columns),
            "cells": {
                str(id): row for id, row in zip(self._ids, rows, strict=False) if row.strip(".")
            },
        }

    def _column(self, now: PartitionState) -> str:
        """A letter for each broker."""
        ongoing = self._moves.get(TopicPartition(now.topic, now.p)) if self._moves else None
        if self._past is not None or ongoing is not None:
            state = now if self._past is None else self._past.partition(now)
            moving = (ongoing.adding, ongoing.removing) if ongoing is not None else ()
            return "".join(cell(state, id, self._alive, *moving) for id in self._ids)
        key = now.leader, now.replicas, now.isr
        if key not in self._known:
            self._known[key] = "".join(cell(now, id, self._alive) for id in self._ids)
        return self._known[key]


def _place(request: Request) -> TopicPartition:
    p = number_parameter(request, "p", -1, 0, INT32_MAX)
    return TopicPartition(required_parameter(request, "topic"), p)


async def show_partition(console: Console, request: Request) -> Response:
    tp, at = _place(request), moment_of(request)
    state = console.collector.table.partition(*tp)
    if state is None:
        raise Problem(404, f"partition {tp} does not exist", error="UNKNOWN_TOPIC_OR_PARTITION")
    if at is not None:
        return answer(request, _past_partition(console, state, at))
    row = partition_row(console, state)
    ends = await console.group_lags.read_ends([tp], LATEST)
    starts = await console.group_lags.read_ends([tp], EARLIEST)
    start, end = starts.get(tp), ends.get(tp)
    lags, sizes = await _replicas(console, state)
    return answer(
        request,
        {
            **row,
            "start_offset": start,
            "end_offset": end,
            "records": None if start is None or end is None else end - start,
            "lags": lags,
            "sizes": sizes,
            "producers": await _producers(console, state.leader, tp.topic, [tp.partition]),
            "age_s": console.collector.age_s,
            "at_ms": None,
        },
    )


def _past_partition(console: Console, now: PartitionState, at: int) -> dict[str, Any]:
    past = PastView(console.journal.book, console.collector.table, at)
    state = past.partition(now)
    alive = set(past.brokers() or ())
    return {
        "topic": now.topic,
        "p": now.p,
        "leader": -1 if state is None else state.leader,
        "leader_epoch": -1 if state is None else state.leader_epoch,
        "replicas": list(now.replicas),
        "isr": [] if state is None else list(state.isr),
        "offline_replicas": [id for id in now.replicas if alive and id not in alive],
        "adding": [],
        "removing": [],
        "preferred": now.replicas[0] if now.replicas else None,
        "state": past.word(now),
        "size_bytes": None,
        "known": past.is_known,
        "start_offset": None,
        "end_offset": None,
        "records": None,
        "lags": {},
        "sizes": {},
        "producers": [],
        "age_s": console.collector.age_s,
        "at_ms": at,
    }


async def _replicas(
    console: Console, state: PartitionState
) -> tuple[dict[str, int], dict[str, int]]:
    """How far each replica is behind, and how large it is, as its broker says."""
    tp = TopicPartition(state.topic, state.p)
    lags: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for id in state.replicas:
        if id not in console.collector.brokers.nodes:
            continue
        try:
            answers = await console.link.api.admin.describe_log_dirs([id], [tp])
        except FAILURES:
            continue
        for directory in answers.get(id, ()):
            for replica in directory.replicas:
                if not replica.is_future:
                    sizes[str(id)] = replica.size_bytes
                    lags[str(id)] = replica.offset_lag
    return lags, sizes


async def _producers(
    console: Console, leader: int, topic: str, partitions: list[int]
) -> list[PlacedProducer]:
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=partitions)]
    )
    try:
        response = await console.link.client.ask(leader, request)
    except FAILURES:
        return []
    return [
        {
            "p": part.partition_index,
            "id": each.producer_id,
            "epoch": each.producer_epoch,
            "last_sequence": each.last_sequence,
            "last_ms": each.last_timestamp,
            "transaction_start": each.current_txn_start_offset
            if each.current_txn_start_offset >= 0
            else None,
        }
        for found in response.topics
        for part in found.partitions
        for each in part.active_producers[:PRODUCERS_SHOWN]
    ]


async def show_offsets(console: Console, request: Request) -> Response:
    """Where each partition of a topic begins and ends, asked of the leaders now."""
    name = required_parameter(request, "name")
    topic = find_topic(console, name)
    count = min(console.collector.table.partition_count(topic), OFFSETS_MAX)
    tps = [TopicPartition(name, p) for p in range(count)]
    starts = await console.group_lags.read_ends(tps, EARLIEST)
    ends = await console.group_lags.read_ends(tps, LATEST)
    items = [
        {"p": tp.partition, "start_offset": starts.get(tp), "end_offset": ends.get(tp)}
        for tp in tps
    ]
    return answer(request, {"items": items})


async def list_producers(console: Console, request: Request) -> Response:
    """The producers that the leaders of a topic keep a state for."""
    name = required_parameter(request, "name")
    by_leader: dict[int, list[int]] = {}
    for state in islice(console.collector.table.partitions(find_topic(console, name)), OFFSETS_MAX):
        if state.leader in console.collector.brokers.nodes:
            by_leader.setdefault(state.leader, []).append(state.p)
    found = await asyncio.gather(
        *(_producers(console, leader, name, parts) for leader, parts in by_leader.items())
    )
    items = sorted((each for some in found for each in some), key=lambda row: (row["p"], row["id"]))
    return answer(request, {"items": items})


async def show_history(console: Console, request: Request) -> Response:
    tp = _place(request)
    limit = number_parameter(request, "limit", LIMIT, 1, LIMIT_MAX)
    start = number_parameter(request, "before", 0, 0, 1_000_000)
    book = console.journal.book
    entries = book.about(tp)
    rows = [entry_row(kept) for kept in entries]
    rows += [audit_row(line) for line in console.audit.about(tp.topic)]
    # Entries stand in the order of decisions; what a user did stands where its time says.
    rows.sort(key=lambda row: row["time_ms"] if row["kind"] == "audit" else -1)
    ordered = _merged(
        [row for row in rows if row["kind"] != "audit"],
        [row for row in rows if row["kind"] == "audit"],
    )
    end = start + limit
    return answer(
        request,
        {
            "items": ordered[start:end],
            "lanes": _lanes(entries),
            "complete": not book.dropped and _is_born(entries),
            "kept_since_ms": book.first_ms,
            "next": str(end) if end < len(ordered) else None,
        },
    )


def _merged(entries: list[EntryRow], audited: list[EntryRow]) -> list[EntryRow]:
    """Newest first."""
    merged: list[EntryRow] = []
    waiting = audited[::-1]
    for entry in reversed(entries):
        while waiting and waiting[0]["time_ms"] >= entry["time_ms"]:
            merged.append(waiting.pop(0))
        merged.append(entry)
    return merged + waiting


def audit_row(line: AuditLine) -> EntryRow:
    return {
        "id": f"audit-{line.time_ms}",
        "time_ms": line.time_ms,
        "controller_epoch": -1,
        "sequence": -1,
        "controller": None,
        "kind": "audit",
        "why": line.outcome,
        "before": line.before,
        "after": line.after,
        "topic": None,
        "p": None,
        "broker": None,
        "partitions": 0,
        "text": f"{line.action} {line.subject}: {line.before} -> {line.after}",
        "user": line.user,
    }


def _is_born(entries: list[Kept]) -> bool:
    """Whether the first leadership of all is among them."""
    leaderships = [kept.entry for kept in entries if kept.entry.kind is EntryKind.LEADERSHIP]
    return bool(leaderships) and not leaderships[0].before


def _lanes(entries: list[Kept]) -> dict[str, list[list[int]]]:
    leaders: list[list[int]] = []
    sizes: list[list[int]] = []
    for kept in entries:
        if kept.entry.kind is not EntryKind.LEADERSHIP:
            continue
        after = parse_state(kept.entry.after)
        if after is not None:
            leaders.append([kept.entry.time_ms, after.leader])
            sizes.append([kept.entry.time_ms, len(after.isr)])
    return {"leader": leaders, "isr": sizes}


TOPIC = Parameter("topic", "the topic", True)
P = Parameter("p", "the partition", True)
NAME = Parameter("name", "the topic", True)
ROUTES = (
    Route(
        "GET",
        "/topic/offsets",
        show_offsets,
        "Where the partitions of a topic begin and end",
        parameters=(NAME,),
        answer=OffsetsAnswer,
    ),
    Route(
        "GET",
        "/topic/producers",
        list_producers,
        "Producers that the brokers keep a state for",
        parameters=(NAME,),
        answer=ProducersAnswer,
    ),
    Route(
        "GET",
        "/grid",
        show_grid,
        "Brokers and partitions as letters",
        answer=GridAnswer,
        parameters=(Parameter("topic", "one topic; all without it"), AT),
    ),
    Route(
        "GET",
        "/partition",
        show_partition,
        "One partition",
        answer=PartitionAnswer,
        parameters=(TOPIC, P, AT),
    ),
    Route(
        "GET",
        "/partition/history",
        show_history,
        "What happened to it, and why",
        answer=HistoryAnswer,
        parameters=(TOPIC, P, Parameter("limit", "1 to 500"), Parameter("before", "a cursor")),
    ),
)
