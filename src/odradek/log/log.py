"""One partition's log: batches in the order of their offsets, in segments on one disk.

Offsets: `start_offset` ≤ `last_stable_offset` ≤ `high_watermark` ≤ `end_offset`. Consumers read up
to the high watermark, which the replica layer moves; a transaction that is open or not yet on every
replica holds `last_stable_offset` back.

Rules
1. A buffer is appended with one write, from the memory it was received in; batches stay closed.
2. Nothing in memory changes before the write has succeeded. An OSError anywhere takes the log
   offline: every later call raises KAFKA_STORAGE_ERROR, and the log manager takes all logs of the
   directory offline (docs/spec/controller-and-replication.md section 5.6).
3. `recovery_point` is what is known to survive a crash, its leader epochs included. It moves with
   `flush` alone; whatever is beyond it is scanned when the log is loaded without a clean shutdown.

Everything runs on the loop. Only `Flush.sync` may run elsewhere.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from odradek.log import retention, timestamp_search
from odradek.log.config import LogConfig
from odradek.log.epochs import EPOCHS_FILE
from odradek.log.file_list import FileList
from odradek.log.flush import Flush
from odradek.log.host import LogHost
from odradek.log.indexes import AbortedTransaction
from odradek.log.partition_metadata import PartitionMetadata
from odradek.log.producers import Guard, Origin, ProducersUpdate, SequencedBatch
from odradek.log.read_check import sound_batches
from odradek.log.recovery import (
    HOLES_FILE,
    Checkpointed,
    add_batch,
    load_log,
    marker_of,
    rebuild_producers,
)
from odradek.log.segment import Segment, parts
from odradek.log.segment_files import (
    DELETED_SUFFIX,
    SWAP_SUFFIX,
    SegmentFiles,
)
from odradek.log.segments import LogRead, Segments
from odradek.log.shutdown_record import LogRecord
from odradek.log.tail import Tail
from odradek.log.validation import WritableBuffer, check_batch, one_batch, recompressed
from odradek.wire.batch import (
    BatchHeader,
    CorruptBatch,
    crc_ok,
    header_at,
    scan,
    set_append_time,
    set_offset_and_epoch,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import NO_TIMESTAMP
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

__all__ = ["AppendInfo", "Log", "LogHost", "LogRead", "Origin", "UnexpectedOffset"]


class AppendInfo(NamedTuple):
    """What became of an append. The append time is -1 unless the topic uses it."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    append_time_ms: int
    log_start_offset: int
    size_bytes: int
    duplicate: bool = False

    @classmethod
    def of_duplicate(
        cls, batch: SequencedBatch, config: LogConfig, start_offset: int
    ) -> "AppendInfo":
        """The reply to a producer that sends again what was appended before."""
        return cls(
            batch.first_offset,
            batch.last_offset,
            batch.timestamp,
            batch.timestamp if config.log_append_time else NO_TIMESTAMP,
            start_offset,
            0,
            duplicate=True,
        )


class UnexpectedOffset(Exception):
    """A leader sent records that begin before the end of this follower's log."""

    def __init__(self, first_offset: int, last_offset: int, end_offset: int) -> None:
        super().__init__(f"records {first_offset}..{last_offset} for a log that is at {end_offset}")
        self.first_offset = first_offset
        self.last_offset = last_offset


class Log:
    """One partition's log; the module's docstring has its rules."""

    def __init__(
        self,
        host: LogHost,
        directory: str,
        tp: TopicPartition,
        config: LogConfig,
        checkpointed: Checkpointed = Checkpointed(),
    ) -> None:
        """Load or create the log in `directory`. OSErrors come as they are; DamagedLog and
        UnsupportedMagic say that it cannot be used, and then nothing of it was removed."""
        self._host = host
        self.disk = host.disk
        self.directory = directory
        self.topic_partition = tp
        self.config = config
        self.offline = False
        self._clock = host.clock
        self.metadata = PartitionMetadata(host.disk, directory, is_kept=host.keeps_topic_ids)
        loaded = load_log(
            host.disk,
            directory,
            config,
            checkpointed,
            now_ms=host.clock(),
            producer_expiration_ms=host.producer_expiration_ms,
        )
        # What is known to have been on disk and is not any more: records up to here are lost.
        self.lost_up_to = loaded.lost_up_to
        # Batches before this were on disk when the log was loaded: only their reader checks them.
        self._unread_before = loaded.end_offset
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        self._has_holes = loaded.has_holes
        self.high_watermark = loaded.start_offset
        self.last_flush_ms = host.clock()
        self.segments = Segments(loaded.segments)
        self.segments.forget_boundaries(self.end_offset)
        # The record of the last clean stop, as long as no file of a segment has changed since.
        self._unchanged = loaded.record
        # Made when the log is closed.
        self.record: LogRecord | None = None
        self.appended_batches = 0
        self.appended_bytes = 0
        self.read_bytes = 0
        self.corrupt_reads = 0
        self.truncations = 0  # a copy of the log begins again when this has changed
        # What was appended last, still in memory; cleared whenever bytes on disk change otherwise.
        self.tail = Tail(host.tails)

    def __repr__(self) -> str:
        return f"Log({self.directory!r}, {self.start_offset}..{self.end_offset})"

    # What there is

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def last_stable_offset(self) -> int:
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.start_offset)

    def statistics(self) -> dict[str, int]:
        return {
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "high_watermark": self.high_watermark,
            "last_stable_offset": self.last_stable_offset,
            "recovery_point": self.recovery_point,
            "size_bytes": self.size_bytes,
            "segments": len(self.segments),
            "appended_batches": self.appended_batches,
            "appended_bytes": self.appended_bytes,
            "read_bytes": self.read_bytes,
            "corrupt_reads": self.corrupt_reads,
            "offline": int(self.offline),
        }

    # Appending

    def append_as_leader(
        self,
        buffer: WritableBuffer,
        leader_epoch: int,
        *,
        origin: Origin = Origin.CLIENT,
        guard: Guard | None = None,
    ) -> AppendInfo:
        """Give the one batch in `buffer` the next offsets and append it.

        The buffer is patched in place and may be reused once this returns. Raises the KafkaError to
        answer the producer with. A batch that repeats one of its producer's last five is not
        appended again: the answer is that of the first time."""
        if self.offline:
            raise self._storage_error()
        config, now_ms, offset = self.config, self._clock(), self.end_offset
        header = one_batch(buffer)
        if header.end_position != len(buffer):
            buffer = memoryview(buffer)[: header.end_position]
        check_batch(buffer, header, config, origin, now_ms)
        if config.compression_type != "producer":
            replaced = recompressed(buffer, header, config)
            if replaced is not None:
                buffer, header = replaced, header_at(replaced)
        if header.size_bytes > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{header.size_bytes} bytes do not fit a segment of {config.segment_bytes}",
            )
        append_time_ms = NO_TIMESTAMP
        if config.log_append_time:
            append_time_ms = now_ms
            set_append_time(buffer, header, now_ms)
        set_offset_and_epoch(buffer, 0, offset, leader_epoch)
        header = header_at(buffer)
        update = None
        if header.producer_id >= 0:
            if origin is Origin.CLIENT:
                earlier = self.producers.duplicate_of(header)
                if earlier is not None:
                    return AppendInfo.of_duplicate(earlier, self.config, self.start_offset)
                self.producers.check_guard(header, guard)
            update = self.producers.begin(origin)
            update.add(header, offset, marker_of(buffer, header))
        self._write(buffer, (header,), update, now_ms)
        return AppendInfo(
            offset,
            self.end_offset - 1,
            header.max_timestamp,
            append_time_ms,
            self.start_offset,
            header.size_bytes,
        )

    def append_as_follower(
        self, buffer: bytes | bytearray | memoryview, epoch_max: int | None = None
    ) -> AppendInfo:
        """Append batches as the leader numbered them; a partial batch at the end is left out.

        So is a batch of a leader epoch after `epoch_max`, with all behind it: a follower that has
        not heard of that epoch would believe its log to agree with the leader's where it has not
        been compared.

        Raises UnexpectedOffset if they begin before the log's end, CorruptBatch if one is damaged:
        then nothing of the buffer is appended."""
        if self.offline:
            raise self._storage_error()
        headers: list[BatchHeader] = []
        first, next_offset, has_gap = -1, self.end_offset, False
        max_timestamp = NO_TIMESTAMP
        for header in scan(buffer):
            if not crc_ok(buffer, header) or header.last_offset_delta < 0:
                raise CorruptBatch(f"damaged batch at offset {header.base_offset}")
            if epoch_max is not None and header.leader_epoch > epoch_max:
                break
            if header.base_offset > next_offset:
                has_gap = True
            elif header.base_offset < next_offset and headers:
                raise CorruptBatch(f"offset {header.base_offset} comes after {next_offset - 1}")
            if not headers:
                first = header.base_offset
            next_offset = header.base_offset + header.last_offset_delta + 1
            if header.max_timestamp > max_timestamp:
                max_timestamp = header.max_timestamp
            headers.append(header)
        end_offset = self.end_offset
        if not headers:
            return AppendInfo(end_offset, end_offset - 1, -1, -1, self.start_offset, 0)
        if first < end_offset:
            raise UnexpectedOffset(first, next_offset - 1, end_offset)
        if has_gap:
            self._expect_holes()
        view = memoryview(buffer)
        now_ms = self._clock()
        for part in parts(headers, self.config.segment_bytes):
            update = self.producers.begin(Origin.REPLICATION)
            for header in part:
                add_batch(update, view, header)
            self._write(view[part[0].position : part[-1].end_position], part, update, now_ms)
        size = headers[-1].end_position
        return AppendInfo(first, next_offset - 1, max_timestamp, -1, self.start_offset, size)

    def _write(
        self,
        buffer: bytes | bytearray | memoryview,
        headers: Sequence[BatchHeader],
        update: ProducersUpdate | None,
        now_ms: int,
    ) -> None:
        """The write itself, and everything that follows from its success."""
        size = len(buffer)
        max_timestamp = max([header.max_timestamp for header in headers])
        next_offset = headers[-1].next_offset
        try:
            self.metadata.write()
            for header in headers:
                if header.leader_epoch >= 0:
                    self.epochs.begin(header.leader_epoch, header.base_offset)
            segment = self.segments.active
            if segment.should_roll(self.config, size, next_offset - 1, max_timestamp, now_ms):
                segment = self.roll(headers[0].base_offset)
            self._unchanged = None
            segment.append(buffer, headers)
            self.end_offset = next_offset
            self.segments.remember_boundary(next_offset)
            if update is not None:
                for aborted in self.producers.apply(update):
                    segment.transaction_index.append(aborted)
            self.producers.end_offset = next_offset
            self.appended_batches += len(headers)
            self.appended_bytes += size
            if next_offset - self.recovery_point >= self.config.flush_messages:
                self.flush()
        except Exception as error:
            # Whatever it was, the log may be half written: it must not count as in sync.
            raise self.fail(error) from error

    def _expect_holes(self) -> None:
        """Mark the log permanently, before its first hole: recovery takes one in a log without the
        mark for lost data, and the topic need not be compacted any more by then."""
        if not self._has_holes:
            with self._storage():
                self.disk.write_atomically(f"{self.directory}/{HOLES_FILE}", b"")
            self._has_holes = True

    def assign_epoch(self, epoch: int, offset: int) -> None:
        """A leader epoch begins at `offset`."""
        with self._storage():
            self.epochs.begin(epoch, offset)

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int | None = None,
        min_one_batch: bool = True,
    ) -> LogRead:
        """Batches from the one that reaches `offset`, none that reaches `end_offset`.

        At most `max_bytes`, except that with `min_one_batch` the first batch comes whole; without,
        nothing comes if it does not fit. As in Kafka the limit may end inside the last batch.
        One read of one segment: the answer ends where the segment does."""
        if self.offline:
            raise self._storage_error()
        log_end = self.end_offset
        if offset < self.start_offset or offset > log_end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.start_offset} to {log_end}",
            )
        end = log_end if end_offset is None or end_offset > log_end else end_offset
        try:
            result = self.segments.read(offset, end, log_end, max_bytes, min_one_batch)
            if offset < self._unread_before:
                result = sound_batches(result, self.directory)
        except OSError as error:
            raise self.fail(error) from error
        except CorruptBatch as error:
            self.corrupt_reads += 1
            logger.error("%s has a damaged batch near offset %d: %s", self, offset, error.message)
            raise
        self.read_bytes += len(result.records)
        return result

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record at or after `timestamp`."""
        with self._storage():
            return timestamp_search.first_at_or_after(self.segments, timestamp, self.start_offset)

    def offsets_before(self, timestamp: int, count_max: int) -> list[int]:
        """Where segments begin that were last written to by `timestamp`, and the end of the log if
        that is by now; the greatest first, at most `count_max`. What ListOffsets v0 means by time.
        """
        end = (self.end_offset, self._clock()) if self.segments.active.size else None
        with self._storage():
            return timestamp_search.last_written_by(
                self.segments, timestamp, self.start_offset, end
            )[: max(0, count_max)]

    def offset_of_greatest_timestamp(self) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record with the greatest timestamp."""
        with self._storage():
            return timestamp_search.first_of_greatest(self.segments)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of [start, end) must skip."""
        with self._storage():
            return self.segments.aborted_transactions(start, end)

    # Moving the marks

    def set_high_watermark(self, offset: int) -> bool:
        """Move the high watermark, within the log; says whether it has changed."""
        offset = max(self.start_offset, min(offset, self.end_offset))
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.on_high_watermark(offset)
        self._check_order()
        return True

    def _check_order(self) -> None:
        """The order of the offsets, which every change of one of them must keep."""
        start, end, high_watermark = self.start_offset, self.end_offset, self.high_watermark
        if min(end, high_watermark) < start:
            return  # A copy of a log that starts within a batch begins with the whole batch.
        assert start <= self.last_stable_offset <= high_watermark <= end, repr(self.statistics())

    def advance_start_offset(self, offset: int) -> bool:
        """Let the log begin later. Records before it are gone for readers at once, from the disk
        when their segment goes. Raises OFFSET_OUT_OF_RANGE above the high watermark."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is above the high watermark {self.high_watermark}",
            )
        if offset <= self.start_offset:
            return False
        with self._storage():
            self.start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.producers.on_start_offset(offset)
        self._check_order()
        return True

    # Rolling and flushing

    def roll(self, next_offset: int | None = None) -> Segment:
        """Begin a new segment, at `next_offset` if that is beyond the log's end."""
        base_offset = self.end_offset if next_offset is None else max(next_offset, self.end_offset)
        active = self.segments.active
        if active.base_offset == base_offset:
            assert active.size == 0, f"{active} is not empty and cannot be rolled to itself"
            return active
        self._unchanged = None
        with self._storage():
            # What is flushed already will not be flushed again, so its last index entries must be.
            active.seal(sync=self.recovery_point >= self.end_offset)
            self.producers.end_offset = base_offset
            self.producers.take_snapshot(sync=False)
            segment = self._new_segment(base_offset)
        self.segments.add(segment)
        self.tail.clear()
        self._host.on_roll(self)
        return segment

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment.create(
            SegmentFiles(self.disk, self.directory, base_offset),
            self.config,
            self._clock(),
            self._host.jitter(self.config.segment_jitter_ms),
        )

    def start_flush(self) -> Flush | None:
        """The first step of a flush up to the log's end, or None if there is nothing to do."""
        if self.offline:
            raise self._storage_error()
        if self.end_offset <= self.recovery_point:
            return None
        # The segment of the last flushed record too: it may have been sealed since.
        dirty = self.segments.from_offset(self.recovery_point - 1)
        with self._storage():
            self.epochs.flush()
            for segment in dirty:
                segment.write_indexes()
        paths = [segment.files.log_path for segment in dirty]
        paths += [path for segment in dirty for path in segment.index_paths()]
        paths += [
            self.producers.snapshot_path(offset)
            for offset in self.producers.snapshots
            if offset > self.recovery_point
        ]
        return Flush(self.disk, self.directory, self.end_offset, self.truncations, paths)

    def flush(self) -> None:
        """Make everything appended so far survive a crash."""
        flush = self.start_flush()
        if flush is not None:
            with self._storage():
                flush.sync()
            self.finish_flush(flush)

    def finish_flush(self, flush: Flush) -> None:
        """The disk is done. If the log was truncated meanwhile, its new end is not flushed."""
        if flush.truncations == self.truncations:
            done = self.segments.from_offset(self.recovery_point - 1)
            # Who reads what is full opens it again: each batch may have filled a segment.
            for segment in [each for each in done if each.base_offset < flush.end_offset][:-1]:
                segment.files.close()
            self.recovery_point = max(self.recovery_point, flush.end_offset)
        self.last_flush_ms = self._clock()

    # Shrinking

    def truncate_to(self, offset: int) -> bool:
        """Truncate the log so that it ends at `offset`, or where the batch begins that contains it;
        says whether anything was removed. What a crash leaves: a log truncated at or after
        `offset`."""
        if offset < 0:
            raise ValueError(f"cannot truncate {self} to {offset}")
        with self._storage():
            if offset >= self.end_offset:
                # This broker may have begun a leader epoch here without writing anything.
                self.epochs.truncate_from_end(self.end_offset)
                return False
            if offset < self.segments[0].base_offset:
                self.truncate_fully_and_start_at(offset)
                return True
            self.tail.clear()
            self._lower_recovery_point(offset)
            self._delete_segments(self.segments.remove_above(offset))
            end = self.segments.active.truncate_to(offset, self._clock())
            self._after_truncation(end)
        return True

    def _after_truncation(self, end_offset: int) -> None:
        self._unchanged = None
        self.truncations += 1
        self.end_offset = end_offset
        self.start_offset = min(self.start_offset, end_offset)
        self._lower_recovery_point(end_offset)
        self.segments.forget_boundaries(end_offset)
        self.epochs.truncate_from_end(end_offset)
        rebuild_producers(
            self.producers,
            list(self.segments),
            self.start_offset,
            end_offset,
            self._clock(),
            clean=False,
        )
        self.high_watermark = min(self.high_watermark, end_offset)
        # The producers were rebuilt without knowing which markers are on every replica.
        self.producers.on_high_watermark(self.high_watermark)
        self._check_order()

    def truncate_fully_and_start_at(self, offset: int, start_offset: int | None = None) -> None:
        """Delete all records; the next one gets `offset`."""
        self._unchanged = None
        self.tail.clear()
        with self._storage():
            self._lower_recovery_point(min(offset, self.segments[0].base_offset))
            self._delete_segments(self.segments.remove_above(-1))
            self.segments.add(self._new_segment(offset))
            self.epochs.clear()
            self.producers.truncate_fully_and_start_at(offset)
            self.truncations += 1
            self.end_offset = self.recovery_point = offset
            self.start_offset = offset if start_offset is None else start_offset
            self.high_watermark = offset
            self._host.on_recovery_point_lowered(self)
        self._check_order()

    def _lower_recovery_point(self, offset: int) -> None:
        if offset < self.recovery_point:
            self.recovery_point = offset
            self._host.on_recovery_point_lowered(self)

    def delete_old_segments(self) -> int:
        """Delete the segments that retention has done with; returns how many."""
        now_ms = self._clock()
        with self._storage():
            expired = retention.expired(
                list(self.segments),
                self.config,
                start_offset=self.start_offset,
                high_watermark=self.high_watermark,
                end_offset=self.end_offset,
                now_ms=now_ms,
            )
            if expired.total == 0:
                return 0
            if expired.total == len(self.segments):
                self.roll()
            self.advance_start_offset(self.segments[expired.total].base_offset)
            self._delete_segments(self.segments.remove_first(expired.total))
            logger.info("%s: deleted old segments: %s", self, expired)
        return expired.total

    def _delete_segments(self, doomed: Sequence[Segment]) -> None:
        """Segments that are no longer of the log; their files go after a delay."""
        for segment in doomed:
            self.producers.delete_snapshot(segment.base_offset)
        self._discard(doomed)

    def _discard(self, doomed: Sequence[Segment]) -> None:
        self._unchanged = None
        for segment in doomed:
            segment.files.close()
            segment.change_suffix(DELETED_SUFFIX)
        if doomed:
            self._host.call_later(
                self.config.file_delete_delay_ms / 1000, lambda: self._delete_files(doomed)
            )

    def _delete_files(self, doomed: Sequence[Segment]) -> None:
        try:
            with self._storage():
                for segment in doomed:
                    segment.delete()
        except KafkaError:
            pass  # a timer's caller: the log is offline, and has said why

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Put cleaned segments (suffix `.cleaned`, flushed) in the place of those they came from.

        What a crash leaves: before the last rename to `.swap` the old segments, after it the new
        ones, which loading puts in place."""
        self._expect_holes()
        self.tail.clear()
        with self._storage():
            for segment in sorted(new, key=lambda segment: -segment.base_offset):
                segment.change_suffix(SWAP_SUFFIX)
            self.disk.sync_dir(self.directory)
            bases = {segment.base_offset for segment in new}
            for segment in old:
                if segment.base_offset not in bases:
                    self.producers.delete_snapshot(segment.base_offset)
            self.segments.replace(old, new)
            self._discard(old)
            for segment in new:
                segment.change_suffix("")
            self.disk.sync_dir(self.directory)

    # The end

    def close(self, to_sync: list[str] | None = None) -> None:
        """Flush, and leave everything that a clean shutdown promises to the next owner: trimmed
        indexes, the final time-index entry, a producer snapshot at the log's end. With `to_sync`,
        the caller syncs the files that are put there before any checkpoint says that it was done.
        """
        if self.offline:
            self.close_files()
            return
        with self._storage():
            self.metadata.write()
        if self._unchanged is None:
            with self._storage():
                self.producers.end_offset = self.end_offset
                self.producers.take_snapshot(sync=False)
                self.segments.active.seal()
                self._flush_for_good(to_sync)
        for segment in self.segments:
            segment.files.close()
        with self._storage():
            there = FileList(self.disk, self.directory)
            if self._unchanged is not None:
                self.record = self._unchanged.with_start(self.start_offset, there)
            else:
                bases = [segment.base_offset for segment in self.segments]
                self.record = LogRecord.of(there, self.start_offset, self.end_offset, bases)

    def _flush_for_good(self, to_sync: list[str] | None) -> None:
        """Flush, or if all records are on disk already, sync what closing has written. A log that
        never held anything is as well as new if a power failure takes it."""
        end_offset, active = self.end_offset, self.segments.active
        if end_offset == 0:
            return
        flush = self.start_flush()
        if flush is None:
            self.epochs.flush()
            paths = [*active.index_paths(), self.producers.snapshot_path(end_offset)]
            flush = Flush(self.disk, self.directory, end_offset, self.truncations, paths)
        if to_sync is None:
            flush.sync()
        else:
            flush.sync_later(to_sync)
        self.finish_flush(flush)

    def close_files(self) -> None:
        """Let go of all files without writing: the directory has failed, or is to be deleted."""
        self.offline = True
        self.tail.clear()
        for segment in self.segments:
            segment.files.close()

    def rename_directory(self, directory: str) -> None:
        """Move the log, on the same disk: for deletion, or when a future log takes its place."""
        with self._storage():
            self.metadata.write()
            self.disk.rename(self.directory, directory)
            self.metadata.directory = directory
            self.directory = directory
            for segment in self.segments:
                segment.move_to(directory)
            self.producers.directory = directory
            self.epochs.path = f"{directory}/{EPOCHS_FILE}"

    # Failure

    @contextmanager
    def _storage(self) -> Iterator[None]:
        """An OSError inside takes the log offline and is answered with KAFKA_STORAGE_ERROR; so
        does an unexpected exception, for the log may be half changed by then."""
        if self.offline:
            raise self._storage_error()
        try:
            yield
        except KafkaError:
            raise
        except Exception as error:
            raise self.fail(error) from error

    def fail(self, error: Exception) -> KafkaError:
        """Take the log offline. The owner takes the whole directory with it if the disk failed."""
        if not self.offline:
            self.offline = True
            self.tail.clear()
            logger.error(
                "%s in %s goes offline: %s: %s",
                self.topic_partition,
                self.directory,
                type(error).__name__,
                error,
                exc_info=None if isinstance(error, OSError) else error,
            )
            self._host.on_failure(self, error)
        return self._storage_error()

    def _storage_error(self) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory} is offline")
