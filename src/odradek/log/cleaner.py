"""Compaction of logs with `cleanup.policy=compact`: which one, how far, and the work itself.

The dirtiest log goes first. Its dirty part is read once to learn the newest offset of every key;
then all segments up to there are copied without what is superseded, in groups that fit one segment,
and each copy takes its originals' place (`Log.replace_segments`). What to keep is decided in
compaction.py; how far cleaning has come is in `cleaner-offset-checkpoint`.

Cleaning runs on the loop in slices of a few milliseconds and rests as long as it has worked, so
that requests are served. Between slices a log may be truncated, deleted or lose segments to
retention; then the copy is thrown away. What a crash leaves: `.cleaned` files, which loading
removes, or a finished `.swap`, which it puts in place.

A log that is being moved to another directory is left as it is: its copy may have a record already,
and would never hear of the deletion that is cleaned away before it is copied.
"""

import asyncio
import logging
import posixpath
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from odradek.log.checkpoints import CLEANER_OFFSETS, OffsetCheckpoint
from odradek.log.compaction import BatchCleaner, NewestOffsets, TransactionTracker, last_batch_of
from odradek.log.config import FOREVER
from odradek.log.disk import Disk
from odradek.log.log import Log
from odradek.log.offload import Offload
from odradek.log.segment import RELATIVE_OFFSET_MAX, Segment
from odradek.log.segment_files import CLEANED_SUFFIX, SegmentFiles
from odradek.wire.batch import BatchHeader, CorruptBatch, scan
from odradek.wire.errors import DecodeError, KafkaError
from odradek.wire.records import iterate_records
from odradek.wire.settings import configured
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

SLICE_BYTES = 32 * 1024
WRITE_BYTES = 1024 * 1024
REST_S_MAX = 0.05


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """`log.cleaner.*`, in Kafka's names."""

    enable: bool = configured("log.cleaner.enable")
    backoff_ms: int = configured("log.cleaner.backoff.ms")
    dedupe_buffer_size: int = configured("log.cleaner.dedupe.buffer.size")
    io_max_bytes_per_second: float = configured("log.cleaner.io.max.bytes.per.second")


async def _no_flush(log: Log) -> None: ...


class CleaningAborted(Exception):
    """The log has changed under the cleaner; it will be tried again later."""


class DirtyLog(NamedTuple):
    """How dirty a log is, and between which offsets it may be cleaned."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        if self.is_overdue and self.cleanable_bytes > 0:
            return True
        return self.ratio > self.log.config.min_cleanable_dirty_ratio


def measure(log: Log, cleaned_to: int | None, now_ms: int) -> DirtyLog:
    """What there is to clean: from where the last cleaning ended, up to the first segment that is
    active, holds an undecided or uncommitted record, or one younger than the minimum lag."""
    segments, config = list(log.segments), log.config
    bases = [segment.base_offset for segment in segments]

    def index_of(offset: int) -> int:
        return max(0, bisect_right(bases, offset) - 1)

    first_dirty = log.start_offset
    if cleaned_to is not None and log.start_offset <= cleaned_to <= log.end_offset:
        # A log that was truncated and has grown again may be dirty anywhere in its active segment.
        first_dirty = max(log.start_offset, min(cleaned_to, bases[-1]))
    dirty = segments[index_of(first_dirty) : -1]

    limit = min(log.last_stable_offset, bases[-1])
    if config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - config.min_compaction_lag_ms
        young = (s.base_offset for s in dirty if s.largest_timestamp > youngest_ms)
        limit = min(limit, next(young, limit))
    uncleanable = index_of(max(first_dirty, limit))
    is_overdue = config.max_compaction_lag_ms < FOREVER and any(
        0 < s.first_timestamp < now_ms - config.max_compaction_lag_ms for s in dirty
    )
    first = min(index_of(first_dirty), uncleanable)
    return DirtyLog(
        log,
        first_dirty,
        bases[uncleanable],
        sum(s.size for s in segments if s.base_offset < first_dirty),
        sum(s.size for s in segments[first:uncleanable]),
        is_overdue,
    )


def group_segments(
    segments: Sequence[Segment], end_offset: int, size_max: int, index_entries_max: int
) -> list[list[Segment]]:
    """Neighbours that fit one segment together, whatever cleaning leaves of them.

    `end_offset` is where the last of them ends."""
    groups: list[list[Segment]] = []
    size = entries = 0
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        entry_count = max(segment.offset_index.entry_count, segment.time_index.entry_count)
        fits = (
            groups
            and size + segment.size <= size_max
            and entries + entry_count <= index_entries_max
            and following - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if fits:
            groups[-1].append(segment)
            size, entries = size + segment.size, entries + entry_count
        else:
            groups.append([segment])
            size, entries = segment.size, entry_count
    return groups


class Cleaner:
    """Cleans the logs of one broker, one at a time."""

    def __init__(
        self,
        disk: Disk,
        logs: Mapping[TopicPartition, Log],
        clock: Callable[[], int],
        offload: Offload,
        config: CleanerConfig = CleanerConfig(),
        moving: Container[TopicPartition] = (),
        before_swap: Callable[[Log], Awaitable[None]] = _no_flush,
    ) -> None:
        """`before_swap` must flush the log and have its recovery point checkpointed: a record
        must not go for the sake of a newer one that a power failure may still take."""
        self._disk = disk
        self.logs = logs
        self.clock = clock
        self.offload = offload
        self.config = config
        self.moving = moving
        self.before_swap = before_swap
        self._cleaned_to: dict[TopicPartition, int] = {}
        # What each directory's checkpoint says.
        self._written: dict[str, dict[TopicPartition, int]] = {}
        # Logs that could not be cleaned because of what is in them: not tried again.
        self._uncleanable: dict[TopicPartition, Log] = {}
        self._runs = self._aborted = self._failed = 0
        self.bytes_read = self.bytes_written = self.records_dropped = 0

    # Checkpoints

    def load(self, directory: str) -> None:
        """Read how far the logs of a directory were cleaned."""
        self._written[directory] = self._checkpoint(directory).read_or_report(
            "compacted logs are cleaned from their beginning"
        )
        self._cleaned_to.update(self._written[directory])

    def checkpoint(self, directory: str) -> None:
        """Write how far each log that is now in the directory has been cleaned."""
        offsets = {
            tp: offset
            for tp, offset in self._cleaned_to.items()
            if tp in self.logs and posixpath.dirname(self.logs[tp].directory) == directory
        }
        if self._written.get(directory, {}) != offsets:
            self._checkpoint(directory).write(offsets)
            self._written[directory] = offsets

    def has_cleaned(self, directory: str, topic_partition: TopicPartition) -> bool:
        """Whether the directory's checkpoint says that this log was cleaned, by us or by Kafka."""
        return topic_partition in self._written.get(directory, {})

    def lower_cleaned_offset(self, log: Log) -> None:
        """The log was truncated, loaded or replaced by its copy: what is, or will be, beyond its
        recovery point is not what was cleaned, for that was flushed (`before_swap`)."""
        cleaned_to = self._cleaned_to.get(log.topic_partition)
        if cleaned_to is not None and self.logs.get(log.topic_partition) is log:
            self._cleaned_to[log.topic_partition] = min(cleaned_to, log.recovery_point)

    def forget(self, topic_partition: TopicPartition) -> None:
        """The log is deleted; the checkpoint follows when it is next written."""
        self._uncleanable.pop(topic_partition, None)
        self._cleaned_to.pop(topic_partition, None)

    def _checkpoint(self, directory: str) -> OffsetCheckpoint:
        return OffsetCheckpoint(self._disk, f"{directory}/{CLEANER_OFFSETS}")

    # Choosing

    def dirtiest(self, skip: Collection[Log] = ()) -> DirtyLog | None:
        """The log most in need of cleaning among those that are due."""
        now_ms = self.clock()
        due = []
        for topic_partition, log in list(self.logs.items()):
            if not log.config.compact or log.offline or log in skip:
                continue
            if self._uncleanable.get(topic_partition) is log or topic_partition in self.moving:
                continue
            dirty = measure(log, self._cleaned_to.get(topic_partition), now_ms)
            if dirty.is_due:
                due.append(dirty)
        return max(due, key=lambda dirty: dirty.ratio, default=None)

    async def run(self) -> int:
        """Clean until no log is due; returns how many were cleaned. What was interrupted waits for
        the next time."""
        count = 0
        interrupted: set[Log] = set()
        while (dirty := self.dirtiest(interrupted)) is not None:
            if await self.clean(dirty):
                count += 1
            else:
                interrupted.add(dirty.log)
        return count

    async def clean(self, dirty: DirtyLog) -> bool:
        """Clean one log; says whether it was done."""
        log = dirty.log
        self._runs += 1
        try:
            cleaned_to = await _Cleaning(self, dirty).run()
        except CleaningAborted as error:
            self._aborted += 1
            logger.info("cleaning of %s was aborted: %s", log, error)
            return False
        except OSError as error:
            log.fail(error)
            return False
        except Exception as error:
            # Whatever is wrong with this log must not keep the others from being cleaned.
            self._failed += 1
            self._uncleanable[log.topic_partition] = log
            is_damage = isinstance(error, KafkaError | DecodeError)
            logger.error("%s cannot be cleaned: %s", log, error, exc_info=not is_damage)
            return False
        self._cleaned_to[log.topic_partition] = cleaned_to
        try:
            self.checkpoint(posixpath.dirname(log.directory))
        except OSError as error:
            log.fail(error)
        return True

    def statistics(self) -> dict[str, int]:
        return {
            "runs": self._runs,
            "aborted": self._aborted,
            "failed": self._failed,
            "uncleanable": len(self._uncleanable),
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "records_dropped": self.records_dropped,
        }


class _Cleaning:
    """One pass over one log."""

    def __init__(self, cleaner: Cleaner, dirty: DirtyLog) -> None:
        self._cleaner = cleaner
        self._dirty = dirty
        self._log = dirty.log
        self._truncations = self._log.truncations
        self._newest = NewestOffsets(cleaner.config.dedupe_buffer_size)
        self._loop = asyncio.get_running_loop()
        self._slice_bytes = 0
        self._slice_start = self._loop.time()

    async def run(self) -> int:
        """Clean, and return the offset up to which the log is clean."""
        log, dirty = self._log, self._dirty
        await self._read_keys()
        end_offset = self._newest.covered_to
        if end_offset <= dirty.first_dirty_offset < dirty.first_uncleanable_offset:
            raise CorruptBatch("one batch has more keys than log.cleaner.dedupe.buffer.size holds")
        sources = [segment for segment in log.segments if segment.base_offset < end_offset]
        transactions = TransactionTracker(
            log.aborted_transactions(log.segments[0].base_offset, end_offset)
        )
        groups = group_segments(
            sources,
            dirty.first_uncleanable_offset,
            log.config.segment_bytes,
            # Copies may be indexed a little more densely than their originals.
            log.config.segment_index_bytes // 12 // 2,
        )
        for group in groups:
            await self._clean_group(group, transactions)
        return end_offset

    async def _read_keys(self) -> None:
        """Learn the newest offset of each key in the dirty part, as far as memory reaches."""
        log, newest, end = self._log, self._newest, self._dirty.first_uncleanable_offset
        start = self._dirty.first_dirty_offset
        transactions = TransactionTracker(log.aborted_transactions(start, end))
        dirty = [s for s in log.segments.from_offset(start) if s.base_offset < end]
        newest.covered_to = start
        for index, segment in enumerate(dirty):
            found = segment.find(start)
            position = segment.size if found is None else found.position
            for buffer, header in segment.batches(position):
                if header.is_control:
                    transactions.on_control(buffer, header)
                elif not transactions.on_data(header) and not newest.add(
                    iterate_records(buffer, header), start
                ):
                    return
                newest.covered_to = max(newest.covered_to, header.next_offset)
                await self._pause(header.size_bytes, dirty)
            newest.covered_to = dirty[index + 1].base_offset if index + 1 < len(dirty) else end

    async def _clean_group(
        self, group: Sequence[Segment], transactions: TransactionTracker
    ) -> None:
        """Copy a group of segments into one, and put it in their place."""
        log, cleaner = self._log, self._cleaner
        self._check(group)
        copy = Segment.create(
            SegmentFiles(log.disk, log.directory, group[0].base_offset, CLEANED_SUFFIX),
            log.config,
            group[-1].created_ms,
        )
        try:
            await self._copy(group, copy, transactions)
            for aborted in transactions.retained:
                copy.transaction_index.append(aborted)
            transactions.retained.clear()
            copy.seal()
            await cleaner.offload(lambda: _sync(copy))
            await cleaner.before_swap(log)
            self._check(group)
        except BaseException:
            copy.delete()
            raise
        log.replace_segments([copy], group)

    async def _copy(
        self, group: Sequence[Segment], copy: Segment, transactions: TransactionTracker
    ) -> None:
        log, cleaner = self._log, self._cleaner
        batches = BatchCleaner(
            self._newest,
            transactions,
            last_batch_of(log.producers.items()),
            now_ms=cleaner.clock(),
            delete_retention_ms=log.config.delete_retention_ms,
        )
        output = bytearray()
        for segment in group:
            for buffer, header in segment.batches():
                cleaned = batches.clean(buffer, header)
                cleaner.bytes_read += header.size_bytes
                cleaner.records_dropped += cleaned.records_read - cleaned.records_kept
                if cleaned.data is not None:
                    output += cleaned.data
                if len(output) >= WRITE_BYTES:
                    self._write(output, copy)
                await self._pause(header.size_bytes, group)
        self._write(output, copy)

    def _write(self, output: bytearray, copy: Segment) -> None:
        if output:
            headers: list[BatchHeader] = list(scan(output))
            copy.append(bytes(output), headers)
            self._cleaner.bytes_written += len(output)
            output.clear()

    async def _pause(self, work_bytes: int, segments: Sequence[Segment]) -> None:
        """After a slice of work, let others have as much time; then see what they have done."""
        self._slice_bytes += work_bytes
        if self._slice_bytes < SLICE_BYTES:
            return
        worked_s = self._loop.time() - self._slice_start
        throttle_s = self._slice_bytes / self._cleaner.config.io_max_bytes_per_second - worked_s
        await asyncio.sleep(max(min(worked_s, REST_S_MAX), throttle_s))
        self._slice_bytes = 0
        self._slice_start = self._loop.time()
        self._check(segments)

    def _check(self, segments: Sequence[Segment]) -> None:
        log = self._log
        if log.offline:
            raise CleaningAborted("its directory has failed or it was closed")
        if self._cleaner.logs.get(log.topic_partition) is not log:
            raise CleaningAborted("it was deleted or replaced")
        if log.topic_partition in self._cleaner.moving:
            raise CleaningAborted("it is being moved")
        if log.truncations != self._truncations:
            raise CleaningAborted("it was truncated")
        if not log.config.compact:
            raise CleaningAborted("it is not compacted any more")
        if not set(map(id, segments)) < set(map(id, log.segments)):
            raise CleaningAborted("it has lost segments to retention")


def _sync(segment: Segment) -> None:
    """Everything of the copy must survive a crash before the originals go."""
    segment.files.log.sync()
    for index in segment.indexes:
        index.flush(sync=True)
