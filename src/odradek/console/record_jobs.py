"""What the worker does: pages of records, one record, a live tail, a search.

A search opens as little as it can. A fetched piece of the log is looked through for the bytes that
every match must contain; only batches that have them are opened, record by record. Its end is the
end of each log when it began, so it ends on a topic that is being written.
"""

import asyncio
import base64
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from odradek.client.client import Client
from odradek.client.reader import Batches, PartitionReader
from odradek.console.decoders import PREVIEW_BYTES, Decoder, decoder_of, hex_dump
from odradek.console.filters import Filter
from odradek.operations.positions import Position, Range, log_ranges, resolve
from odradek.wire.batch import BatchHeader, TimestampType
from odradek.wire.compression import Codec
from odradek.wire.errors import DecodeError, ErrorCode, KafkaError
from odradek.wire.records import Record, iterate_records
from odradek.wire.topics import TopicPartition

PAGE_FETCH_BYTES = 1024 * 1024
SEARCH_FETCH_BYTES = 8 * 1024 * 1024
TAIL_FETCH_BYTES = 4 * 1024 * 1024
# A batch that opens to more than this is not opened.
OPENED_BYTES_MAX = 160 * 1024 * 1024
ROW_PREVIEW_BYTES = 2 * 1024
HEADERS_MAX, HEADER_NAME_MAX, HEADER_LETTERS_MIN = 100, 1_000, 16
STEPS_BACK_MAX = 10
# A tab gets at most four messages a second: with this a report comes within half a second.
PROGRESS_S = 0.2
TAIL_S = 0.25
TAIL_RECORDS_PER_S = 200
FOUND_PER_MESSAGE = 100
RAW_BYTES_MAX = 16 * 1024 * 1024

Say = Callable[[dict[str, Any]], None]


class RecordJobs:
    """Carries out one job after the other on a client of its own."""

    def __init__(self, client: Client, say: Say) -> None:
        self._client = client
        self._say = say
        self._going = asyncio.Event()
        self._going.set()
        self._bytes_per_s: float | None = None

    def control(self, message: Mapping[str, Any]) -> None:
        """To the job that is running: pause, resume, or another limit of speed."""
        match message["control"]:
            case "pause":
                self._going.clear()
            case "resume":
                self._going.set()
            case "limit":
                self._bytes_per_s = message["bytes_per_s"]

    async def run(self, job: dict[str, Any]) -> Any:
        match job["job"]:
            case "records":
                return await self._page(job)
            case "record":
                return await self._one(job)
            case "raw":
                return await self._raw(job)
            case "tail":
                return await self._tail(job)
            case "search":
                return await self._search(job)
            case "follow":
                return await self._follow_pairs(job)
            case other:
                raise ValueError(f"there is no job {other!r}")

    # Where

    async def _partitions(self, job: Mapping[str, Any]) -> list[TopicPartition]:
        metadata = await self._client.require_topics([job["topic"]])
        every = metadata.partitions_of([job["topic"]])
        wanted = job.get("partitions")
        if not wanted:
            return every
        missing = sorted(set(wanted) - {tp.partition for tp in every})
        if missing:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {job['topic']!r} has no partition {missing[0]}; it has {len(every)}",
            )
        return [TopicPartition(job["topic"], p) for p in sorted(set(wanted))]

    async def _starts(
        self, text: str, tps: list[TopicPartition], ranges: Mapping[TopicPartition, Range]
    ) -> dict[TopicPartition, int]:
        """Offsets for `oldest`, `offset:N`, `time:…` and explicit positions `at:{"0": 12}`."""
        kind, _, rest = text.partition(":")
        if kind == "oldest":
            return {tp: ranges[tp].start for tp in tps}
        if kind == "newest":
            return {tp: ranges[tp].end for tp in tps}
        if kind == "offset":
            return {tp: min(max(int(rest), ranges[tp].start), ranges[tp].end) for tp in tps}
        if kind == "time":
            return await resolve(self._client, Position.parse(_moment(rest)), tps)
        raise ValueError(f"from is newest, oldest, offset:N, time:T or group:ID, not {text!r}")

    def _reader(self, fetch_bytes: int, wait_ms: int = 0) -> PartitionReader:
        return PartitionReader(self._client, fetch_bytes=fetch_bytes, wait_ms=wait_ms)

    # A page

    async def _page(self, job: dict[str, Any]) -> dict[str, Any]:
        tps = await self._partitions(job)
        ranges = await log_ranges(self._client, tps)
        value, key = decoder_of(job.get("decode")), decoder_of(job.get("key_decode"))
        limit = job["limit"]
        at = {TopicPartition(job["topic"], int(p)): offset for p, offset in job["at"].items()}
        backwards = job["direction"] == "back"
        if not at:
            at = await self._starts(job["from"], tps, ranges)
        read = self._before if backwards else self._after
        found = await asyncio.gather(
            *(read(tp, at.get(tp, ranges[tp].end), ranges[tp], limit) for tp in tps)
        )
        rows = [
            (record.timestamp, tp, record, header)
            for tp, rows in zip(tps, found, strict=True)
            for record, header in rows
        ]
        rows.sort(key=lambda row: (row[0], row[1].partition, row[2].offset), reverse=backwards)
        shown = rows[:limit]
        first, last = dict(at), dict(at)
        for _, tp, record, _ in shown:
            low, high = record.offset, record.offset + 1
            if backwards:
                first[tp] = min(first.get(tp, low), low)
                last.setdefault(tp, high)
            else:
                last[tp] = max(last.get(tp, high), high)
        return {
            "items": [row_of(tp, record, header, value, key) for _, tp, record, header in shown],
            "first": {str(tp.partition): offset for tp, offset in first.items()},
            "last": {str(tp.partition): offset for tp, offset in last.items()},
            "ranges": [
                {"p": tp.partition, "start": ranges[tp].start, "end": ranges[tp].end} for tp in tps
            ],
        }

    async def _after(
        self, tp: TopicPartition, start: int, log: Range, limit: int
    ) -> list[tuple[Record, BatchHeader]]:
        """The first `limit` records from an offset on."""
        found: list[tuple[Record, BatchHeader]] = []
        start = max(start, log.start)
        reader = self._reader(PAGE_FETCH_BYTES)
        async for batches in reader.batches(tp, start, log.end):
            for row in opened(batches):
                if row[0].offset >= start:
                    found.append(row)
                if len(found) >= limit:
                    return found
        return found

    async def _before(
        self, tp: TopicPartition, end: int, log: Range, limit: int
    ) -> list[tuple[Record, BatchHeader]]:
        """The last `limit` records before an offset: further back while there are too few, as in a
        compacted log or one with many markers."""
        step, end = limit, min(end, log.end)
        start = end
        found: list[tuple[Record, BatchHeader]] = []
        for _ in range(STEPS_BACK_MAX):
            if start <= log.start or len(found) >= limit:
                break
            stop, start = start, max(log.start, start - step)
            part = []
            async for batches in self._reader(PAGE_FETCH_BYTES).batches(tp, start, stop):
                part += [row for row in opened(batches) if start <= row[0].offset < stop]
                part = part[-limit:]
            found = part + found
            step *= 4
        return found[-limit:]

    async def _one(self, job: dict[str, Any]) -> dict[str, Any]:
        record, header, tp = await self._record_at(job)
        value, key = decoder_of(job.get("decode")), decoder_of(job.get("key_decode"))
        row = row_of(tp, record, header, value, key, PREVIEW_BYTES)
        return {
            **row,
            "base64": _base64(record.value),
            "key_base64": _base64(record.key),
            "hex": hex_dump(record.value),
            "key_hex": hex_dump(record.key),
        }

    async def _raw(self, job: dict[str, Any]) -> dict[str, Any]:
        record, _, _ = await self._record_at(job)
        data = record.key if job["part"] == "key" else record.value
        if data is not None and len(data) > RAW_BYTES_MAX:
            raise ValueError(f"{len(data)} bytes are more than can be downloaded here")
        return {"base64": None if data is None else base64.b64encode(data).decode()}

    async def _record_at(self, job: dict[str, Any]) -> tuple[Record, BatchHeader, TopicPartition]:
        tp = TopicPartition(job["topic"], job["p"])
        await self._partitions({"topic": job["topic"], "partitions": [job["p"]]})
        log = (await log_ranges(self._client, [tp]))[tp]
        offset = job["offset"]
        if log.start <= offset < log.end:
            async for batches in self._reader(PAGE_FETCH_BYTES).batches(tp, offset, offset + 1):
                for record, header in opened(batches, strict=True):
                    if record.offset == offset:
                        return record, header, tp
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{tp} has no record at {offset}: it has {log.start} to {log.end}, and compaction and "
            "transactions leave gaps",
        )

    # Live

    async def _tail(self, job: dict[str, Any]) -> dict[str, Any]:
        """New records as they come, at most so many a second; the others are counted."""
        tps = await self._partitions(job)
        ends = {tp: log.end for tp, log in (await log_ranges(self._client, tps)).items()}
        tail = _Tail(job, self._say)
        self._say({"id": job["id"], "started": True})
        by_node: dict[int, dict[TopicPartition, int]] = {}
        for tp in tps:
            node = await self._client.leader(tp)
            by_node.setdefault(node, {})[tp] = ends[tp]
        await asyncio.gather(
            tail.report(), *(self._follow(node, some, tail) for node, some in by_node.items())
        )
        return {}

    async def _follow(self, node: int, offsets: dict[TopicPartition, int], tail: "_Tail") -> None:
        reader = self._reader(TAIL_FETCH_BYTES, wait_ms=500)
        while True:
            await self._going.wait()
            try:
                answers = await reader.fetch(node, offsets)
            except (OSError, TimeoutError, KafkaError):
                await asyncio.sleep(TAIL_S)
                await self._client.refresh({tp.topic for tp in offsets})
                node = await self._client.leader(next(iter(offsets)))
                continue
            for tp, batches in answers.items():
                if isinstance(batches, Batches):
                    tail.take(tp, batches)
                    offsets[tp] = batches.next_offset
                elif batches.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                    log = (await log_ranges(self._client, [tp]))[tp]
                    offsets[tp] = log.end
                else:
                    await asyncio.sleep(TAIL_S)
            await asyncio.sleep(0)

    async def _follow_pairs(self, job: dict[str, Any]) -> dict[str, Any]:
        """All keys and values of a small topic as text, from its start on, without an end."""
        tps = await self._partitions(job)
        positions = {tp: log.start for tp, log in (await log_ranges(self._client, tps)).items()}

        async def follow(tp: TopicPartition) -> None:
            reader = self._reader(PAGE_FETCH_BYTES, wait_ms=1000)
            while True:
                async for batches in reader.batches(tp, positions[tp], 2**62, timeout_s=2**31):
                    pairs = [
                        (_short(record.key) or "", _short(record.value))
                        for record, _ in opened(batches)
                        if record.offset >= batches.start
                    ]
                    self._say({"id": job["id"], "pairs": pairs})
                    positions[tp] = batches.next_offset

        await asyncio.gather(*map(follow, tps))
        return {}

    # Search

    async def _search(self, job: dict[str, Any]) -> dict[str, Any]:
        tps = await self._partitions(job)
        ranges = await log_ranges(self._client, tps)
        starts = await self._starts(job["from"], tps, ranges)
        until = job.get("until") or "newest"
        ends = await self._starts(until, tps, ranges)
        resumed = {int(p): offset for p, offset in (job.get("positions") or {}).items()}
        for tp in tps:
            starts[tp] = max(resumed.get(tp.partition, starts[tp]), ranges[tp].start)
        search = _Search(job, self._say, starts, ends)
        self._bytes_per_s = job.get("bytes_per_s")
        search.say()
        for tp in tps:
            if search.is_full:
                break
            await self._scan(tp, starts[tp], ends[tp], search)
        search.say()
        return {"complete": not search.is_full}

    async def _scan(self, tp: TopicPartition, start: int, end: int, search: "_Search") -> None:
        reader = self._reader(SEARCH_FETCH_BYTES)
        async for batches in reader.batches(tp, start, end):
            await self._going.wait()
            search.take(tp, batches, end)
            if search.is_full:
                return
            await search.pace(self._bytes_per_s)


class _Tail:
    """Shows the newest, counts all."""

    def __init__(self, job: Mapping[str, Any], say: Say) -> None:
        self._id = job["id"]
        self._say = say
        self._value = decoder_of(job.get("decode"))
        self._key = decoder_of(job.get("key_decode"))
        self._filter = Filter(job["filter"]) if job.get("filter") else None
        self._rows: list[dict[str, Any]] = []
        self._shown = 0
        self._written = 0

    def take(self, tp: TopicPartition, batches: Batches) -> None:
        room = int(TAIL_RECORDS_PER_S * TAIL_S)
        for header in batches.headers():
            if header.is_control or header.next_offset <= batches.start:
                continue
            new = min(header.record_count, header.next_offset - batches.start)
            self._written += new
            if len(self._rows) >= room:
                continue  # counted, not opened
            for record, _ in _records_of(batches, header):
                if len(self._rows) >= room:
                    break
                if record.offset >= batches.start and (
                    self._filter is None or self._filter.matches(record, self._value)
                ):
                    self._rows.append(row_of(tp, record, header, self._value, self._key))

    async def report(self) -> None:
        loop = asyncio.get_running_loop()
        last_s, last = loop.time(), 0
        while True:
            await asyncio.sleep(TAIL_S)
            if not self._rows and self._written == last:
                continue
            now = loop.time()
            self._shown += len(self._rows)
            self._say(
                {
                    "id": self._id,
                    "tail": {
                        "records": self._rows,
                        "shown": self._shown,
                        "counted": self._written - self._shown,
                        "written": self._written,
                        "per_s": round((self._written - last) / max(now - last_s, 1e-3), 1),
                    },
                }
            )
            self._rows, last_s, last = [], now, self._written


class _Search:
    """How far a search has come, and what it found."""

    def __init__(
        self,
        job: Mapping[str, Any],
        say: Say,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        self._id = job["id"]
        self._say = say
        self._limit: int = job["limit"]
        self._value: Decoder = decoder_of(job.get("decode"))
        self._key: Decoder = decoder_of(job.get("key_decode"))
        self._filter = Filter(job["filter"])
        is_text = self._value.format in ("auto", "json", "text")
        self._needles = None if job.get("every_record") else self._filter.needles(is_text=is_text)
        self._positions = {tp.partition: starts[tp] for tp in starts}
        self._starts = {tp.partition: starts[tp] for tp in starts}
        self._ends = {tp.partition: ends[tp] for tp in ends}
        self._found: list[dict[str, Any]] = []
        self._count = 0
        self._bytes = 0
        self._records = 0
        self._undecodable = 0
        self._reached_ms = 0
        self._said_s = self._began_s = time.monotonic()

    @property
    def is_full(self) -> bool:
        return self._count >= self._limit

    def take(self, tp: TopicPartition, batches: Batches, end: int) -> None:
        data = bytes(batches.records)
        self._bytes += len(data)
        # Uncompressed batches are looked through all at once.
        hit = self._needles is None or any(needle in data for needle in self._needles)
        for header in batches.headers():
            if header.is_control:
                continue
            self._records += header.record_count
            self._reached_ms = max(self._reached_ms, header.max_timestamp)
            plain = header.codec is Codec.NONE
            if (hit or not plain) and not self.is_full:
                self._open(tp, data, batches.start, header, end, plain)
        self._positions[tp.partition] = min(batches.next_offset, end)

    def _open(
        self,
        tp: TopicPartition,
        data: bytes,
        start: int,
        header: BatchHeader,
        end: int,
        plain: bool,
    ) -> None:
        if plain and self._needles is not None:
            at, until = header.position, header.end_position
            if all(data.find(needle, at, until) < 0 for needle in self._needles):
                return
        try:
            for record in iterate_records(data, header, OPENED_BYTES_MAX):
                if not start <= record.offset < end:
                    continue
                if self._filter.matches(record, self._value):
                    self._found.append(row_of(tp, record, header, self._value, self._key))
                    self._count += 1
                    if self.is_full:
                        return
        except DecodeError:
            self._undecodable += 1

    async def pace(self, bytes_per_s: float | None) -> None:
        """Sleep as long as the limit of speed wants, and say how far it is."""
        now = time.monotonic()
        if now - self._said_s >= PROGRESS_S or len(self._found) >= FOUND_PER_MESSAGE:
            self.say()
        if bytes_per_s:
            ahead = self._bytes / bytes_per_s - (now - self._began_s)
            while ahead > 0:
                await asyncio.sleep(min(ahead, PROGRESS_S))
                ahead -= PROGRESS_S
                self.say()

    def say(self) -> None:
        self._said_s = time.monotonic()
        found, self._found = self._found, []
        self._say(
            {
                "id": self._id,
                "progress": {
                    "scanned_bytes": self._bytes,
                    "scanned_records": self._records,
                    "undecodable": self._undecodable,
                    "reached_ms": self._reached_ms or None,
                    "positions": {str(p): offset for p, offset in self._positions.items()},
                    "starts": {str(p): offset for p, offset in self._starts.items()},
                    "ends": {str(p): offset for p, offset in self._ends.items()},
                    "engine": "every record" if self._needles is None else "bytes first",
                    "found": found,
                },
            }
        )


def opened(batches: Batches, *, strict: bool = False) -> Iterator[tuple[Record, BatchHeader]]:
    """The records of whole batches with their headers. Damaged batches are left out, or raise."""
    for header in batches.headers():
        if not header.is_control and header.next_offset > batches.start:
            yield from _records_of(batches, header, strict=strict)


def _records_of(
    batches: Batches, header: BatchHeader, *, strict: bool = False
) -> Iterator[tuple[Record, BatchHeader]]:
    try:
        for record in iterate_records(batches.records, header, OPENED_BYTES_MAX):
            yield record, header
    except DecodeError:
        if strict:
            raise


def row_of(
    tp: TopicPartition,
    record: Record,
    header: BatchHeader,
    value: Decoder,
    key: Decoder,
    preview_bytes: int = ROW_PREVIEW_BYTES,
) -> dict[str, Any]:
    """A record as the API shows it."""
    append = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return {
        "topic": tp.topic,
        "p": tp.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "timestamp_type": "append" if append else "create",
        "leader_epoch": header.leader_epoch,
        "size_bytes": len(record.key or b"") + len(record.value or b""),
        "key": key.field(record.key, preview_bytes),
        "value": value.field(record.value, preview_bytes),
        "headers": _headers_of(record, preview_bytes),
    }


_TEXT_OR_HEX = Decoder("auto")


def _headers_of(record: Record, preview_bytes: int) -> list[dict[str, Any]]:
    """All of them together as long as a value: what is over is shown by its first letters."""
    found, left = [], preview_bytes
    for name, data in list(record.headers)[:HEADERS_MAX]:
        room = max(left, HEADER_LETTERS_MIN)
        shown = _name(name)[: min(room, HEADER_NAME_MAX)]
        found.append({"name": shown, "value": _TEXT_OR_HEX.field(data, room)})
        left -= len(shown) + len(data or b"")
    return found


def _name(name: Any) -> str:
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)


def _short(data: bytes | None) -> str | None:
    return None if data is None else data[:PREVIEW_BYTES].decode("utf-8", "replace")


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data[:PREVIEW_BYTES]).decode()


def _moment(text: str) -> str:
    """Digits alone are milliseconds; anything else is ISO 8601."""
    return f"@{text}" if text.isdecimal() else text
