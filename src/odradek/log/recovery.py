"""Loading a log from its directory, whatever the last owner left there.

Steps, in order (docs/spec/interchange-with-apache-kafka.md section D.2,
docs/spec/controller-and-replication.md section 6):
1. Leftovers of deletion and cleaning go; a finished swap is completed.
2. Segments are opened. One without its indexes is scanned and gets new ones.
3. Segments that should be whole are compared with the record of the clean stop
   (shutdown_record.py), or have their ends checked. A closed one that lacks records is damage:
   the log is left as it is and not loaded (damage.py).
4. Without a clean shutdown, every segment that reaches beyond the recovery point is scanned: each
   batch's checksum, its place in the order, its leader epoch. The first bad batch beyond the
   recovery point ends the log: it and everything after it is removed. So does a hole in the
   offsets, which only compaction can make rightly: the end of one segment was lost with the power
   and that of the next was not, or a base offset, which no checksum covers, was damaged.
   Compaction may have made it if the topic is compacted now, or was: then this log has the mark
   that is set before its first hole, or Kafka cleaned it, and `cleaner-offset-checkpoint` names it.
5. Producer state is the newest readable snapshot plus the batches after it.

A message of magic 0 or 1 is not corruption: the log is left alone and refuses to load.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from odradek.log.checkpoints import CorruptCheckpoint
from odradek.log.config import LogConfig
from odradek.log.damage import DamagedLog
from odradek.log.disk import Disk
from odradek.log.epochs import EPOCHS_FILE, LeaderEpochs
from odradek.log.file_list import FileList
from odradek.log.indexes import CorruptIndex
from odradek.log.partition_metadata import EARLY_SUFFIX
from odradek.log.producers import (
    EXPIRATION_MS_DEFAULT,
    Origin,
    ProducerStates,
    ProducersUpdate,
)
from odradek.log.segment import RELATIVE_OFFSET_MAX, Rebuild, Segment
from odradek.log.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SUFFIXES,
    SWAP_SUFFIX,
    SegmentFiles,
    offset_of,
)
from odradek.log.shutdown_record import Differences, LogRecord, compare
from odradek.wire.batch import BatchHeader, Buffer, CorruptBatch, UnsupportedMagic, crc_ok
from odradek.wire.errors import DecodeError
from odradek.wire.records import TransactionEnd, decode_transaction_end

logger = logging.getLogger(__name__)

HOLES_FILE = ".odradek_holes"
# Of files that a process that was killed left behind.
INTERRUPTED = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX, EARLY_SUFFIX)


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """What the directory's checkpoints, and the record of a clean stop, say of one log."""

    start_offset: int = 0
    recovery_point: int = 0
    # Whether the marker of a clean shutdown was found.
    clean: bool = False
    # What the clean stop recorded, if it was ours.
    record: LogRecord | None = None
    # Whether the machine went down with the process that used the log.
    machine_lost: bool = False
    # Whether `cleaner-offset-checkpoint` names the log.
    cleaned: bool = False
    # For the files that must be synced before the log is used; without it they are synced here.
    to_sync: list[str] | None = None


@dataclass(slots=True)
class LoadedLog:
    """What a directory holds, checked and consistent."""

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStates
    start_offset: int
    recovery_point: int
    has_holes: bool
    end_offset: int = -1
    # Where it ended when it was last known to be whole on disk, if that is beyond its end.
    lost_up_to: int | None = None
    # The record of the clean stop, if nothing differs from it.
    record: LogRecord | None = None


def load_log(
    disk: Disk,
    directory: str,
    config: LogConfig,
    checkpointed: Checkpointed,
    *,
    now_ms: int,
    producer_expiration_ms: int = EXPIRATION_MS_DEFAULT,
) -> LoadedLog:
    """Open or create the log in `directory`. Raises DamagedLog, with nothing truncated, if records
    are lost that others follow; OSErrors."""
    start_offset, recovery_point = checkpointed.start_offset, checkpointed.recovery_point
    clean, record = checkpointed.clean, checkpointed.record if checkpointed.clean else None
    if record is not None:
        start_offset, recovery_point = record.start_offset, record.end_offset
    disk.make_dirs(directory)
    there = finish_interrupted_work(disk, directory, config, now_ms)
    epochs_path = f"{directory}/{EPOCHS_FILE}"
    differences = compare(there, record) if record else Differences()
    epochs, epochs_lost = _read_epochs(disk, epochs_path, is_damaged=differences.epochs_differ)
    producers = ProducerStates(
        disk, directory, expiration_ms=producer_expiration_ms, names=there.names
    )
    segments = _open_segments(disk, there, config, now_ms)
    has_holes = HOLES_FILE in there.names
    log = LoadedLog(segments, epochs, producers, start_offset, recovery_point, has_holes)
    recovery = _Recovery(
        disk,
        log,
        was_clean=clean,
        holes_allowed=has_holes or checkpointed.cleaned or config.compact,
        ends_are_trusted=not checkpointed.machine_lost,
        now_ms=now_ms,
    )
    recovery.run(differences, scan_all=epochs_lost, sizes_are_known=record is not None)
    recovery.sync(checkpointed.to_sync)
    end_offset = next_offset_of(segments[-1]) if segments else -1
    if max(end_offset, start_offset) < recovery_point:
        log.lost_up_to = recovery_point
    if segments and end_offset < start_offset:
        # All that is left was deleted before: the log continues at its start.
        logger.warning("%s ends at %s, before its start %s", directory, end_offset, start_offset)
        _delete_all(segments)
        epochs.clear()
        producers.truncate_fully_and_start_at(start_offset)
    if not segments:
        files = SegmentFiles(disk, directory, start_offset)
        files.create(is_alone=not there.names)
        segments.append(Segment(files, config, now_ms))
        end_offset, clean = start_offset, False
    log.end_offset = end_offset
    log.start_offset = start_offset = max(start_offset, segments[0].base_offset)
    log.recovery_point = end_offset if clean else min(recovery_point, end_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    if clean or epochs_lost:
        epochs.flush()  # of records before the recovery point, too
    producers.remove_stray_snapshots(segment.base_offset for segment in segments)
    # A clean stop of ours leaves a snapshot always; without one it is lost, not absent.
    was_foreign = clean and record is None
    rebuild_producers(producers, segments, start_offset, end_offset, now_ms, clean=was_foreign)
    if clean and differences == Differences() and not recovery.scanned:
        log.record = record
    return log


def _delete_all(segments: list[Segment]) -> None:
    for segment in segments:
        segment.delete()
    segments.clear()


def _read_epochs(disk: Disk, path: str, *, is_damaged: bool) -> tuple[LeaderEpochs, bool]:
    """The leader epochs, and whether they are lost: then the batches must say what they were."""
    try:
        epochs = LeaderEpochs(path, disk=disk)
    except CorruptCheckpoint as error:
        logger.error("%s; rebuilding it from the log", error)
        disk.remove(path)
        return LeaderEpochs(path, disk=disk), True
    if is_damaged:
        epochs.clear()
    return epochs, is_damaged


# Leftovers


def finish_interrupted_work(disk: Disk, directory: str, config: LogConfig, now_ms: int) -> FileList:
    """Remove what was being deleted or cleaned; put finished swaps in place of what they replace.
    Returns what is there then.

    A swap is finished once no `.cleaned` file stands at or below it: renaming to `.swap` is the
    last thing a cleaner does before it removes the originals."""
    there = FileList(disk, directory)
    names = sorted(name for name in there.names if name.endswith(INTERRUPTED))
    if not names:
        return there
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    cleaned_from = min((o for name in cleaned if (o := offset_of(name)) is not None), default=None)
    swaps = []
    for name in names:
        if not name.endswith(SWAP_SUFFIX):
            continue
        offset = offset_of(name)
        if cleaned_from is not None and (offset is None or offset >= cleaned_from):
            disk.remove(f"{directory}/{name}")
        else:
            swaps.append(name)
    # Only now the `.cleaned` ones: they are what tells an unfinished swap from a finished one.
    leftover = (DELETED_SUFFIX, EARLY_SUFFIX)
    for name in [*(name for name in names if name.endswith(leftover)), *cleaned]:
        disk.remove(f"{directory}/{name}")
    _swap_in(disk, directory, swaps, config, now_ms)
    return FileList(disk, directory)


def _swap_in(
    disk: Disk, directory: str, swaps: Sequence[str], config: LogConfig, now_ms: int
) -> None:
    ranges = []
    for name in swaps:
        offset = offset_of(name)
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and offset is not None:
            files = SegmentFiles(disk, directory, offset, SWAP_SUFFIX)
            segment = Segment(files, config, now_ms)
            ranges.append((offset, next_offset_of(segment)))
            segment.files.close()
    if ranges:
        low, high = min(ranges)[0], max(end for _, end in ranges)
        for name in disk.list_dir(directory):
            offset = offset_of(name)
            is_segment_file = name.endswith((*SUFFIXES, ".snapshot"))
            if is_segment_file and offset is not None and low <= offset < high:
                disk.remove(f"{directory}/{name}")
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    if swaps:
        disk.sync_dir(directory)


# Segments


def _open_segments(disk: Disk, there: FileList, config: LogConfig, now_ms: int) -> list[Segment]:
    directory, names = there.directory, there.names
    segments = []
    for name in sorted(names):
        offset = offset_of(name)
        if offset is None:
            continue
        if name.endswith(LOG_SUFFIX):
            segments.append(Segment(SegmentFiles(disk, directory, offset), config, now_ms))
        elif name.endswith(SUFFIXES) and f"{offset:020d}{LOG_SUFFIX}" not in names:
            logger.warning("removing %s/%s, whose segment does not exist", directory, name)
            disk.remove(f"{directory}/{name}")
    return segments


def next_offset_of(segment: Segment) -> int:
    """The offset after the last batch, read from the file."""
    found = segment.find(segment.offset_index.last_offset)
    end, position = segment.base_offset, found.position if found else 0
    for _, header in segment.batches(position):
        end = header.next_offset
        position += header.size_bytes
    segment.refuse_old_message(position)
    return end


def check_end(segment: Segment) -> int:
    """The offset after the last batch, if all is well at the end of the segment: the batches from
    the last index entry on are whole, their checksums are right, they end where the file ends, and
    no index points beyond them. Otherwise raises CorruptBatch or CorruptIndex: the segment
    must be scanned."""
    path = segment.files.log_path
    found = segment.find(segment.offset_index.last_offset)
    if found is None and segment.offset_index.entry_count:
        raise CorruptIndex(f"{segment.offset_index.path} points beyond the end of {path}")
    end, position = segment.base_offset, found.position if found else 0
    for chunk, header in segment.batches(position):
        if header.base_offset < end or header.last_offset_delta < 0:
            raise CorruptBatch(f"{path}: offset {header.base_offset} at {position}, after {end}")
        if not crc_ok(chunk, header):
            raise CorruptBatch(f"{path}: wrong checksum at position {position}")
        end = header.next_offset
        position += header.size_bytes
    if position != segment.size:
        segment.refuse_old_message(position)
        raise CorruptBatch(f"{path} ends at {segment.size}, within the batch at {position}")
    timestamp, offset = segment.time_index.last_entry
    if timestamp >= 0 and not segment.base_offset <= offset < end:
        raise CorruptIndex(f"{segment.time_index.path} points beyond the end of {path}")
    if segment.transaction_index.last_offset >= end:
        raise CorruptIndex(f"{segment.transaction_index.path} points beyond the end of {path}")
    return end


class _Recovery:
    """The scan of segments that cannot be trusted as they are."""

    def __init__(
        self,
        disk: Disk,
        log: LoadedLog,
        *,
        was_clean: bool,
        holes_allowed: bool,
        ends_are_trusted: bool,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self._segments = log.segments
        self._epochs = log.epochs
        self._producers = log.producers
        self._start_offset = log.start_offset
        # None after a clean stop: then all of the log was on disk.
        self._recovery_point = None if was_clean else log.recovery_point
        self._holes_allowed = holes_allowed
        # Else the end of a segment that was not flushed may be gone although the next one is there,
        # and what looks as if compaction had removed it ends the log.
        self._ends_are_trusted = ends_are_trusted
        self._now_ms = now_ms
        # What the epochs were before the last batch began one, while no other batch has that.
        self._before_odd: list[tuple[int, int]] | None = None
        # The files of the segments that were scanned.
        self.scanned: list[str] = []

    def run(self, differences: Differences, *, scan_all: bool, sizes_are_known: bool) -> None:
        """Scan what must be. A bad batch beyond the recovery point, or in the last segment, ends
        the log, and what came after it is removed; one before that is damage."""
        segments = self._segments
        for segment in segments:
            if segment.base_offset in differences.to_shorten:
                segment.shorten(differences.to_shorten[segment.base_offset])
        for index, segment in enumerate(segments):
            following = segments[index + 1].base_offset if index + 1 < len(segments) else None
            unflushed = self._is_unflushed(following)
            must_scan = unflushed or scan_all or segment.base_offset in differences.to_scan
            if must_scan and following is None and segment.size == 0:
                # There is nothing to scan, unless its indexes claim so; but a process that was
                # killed may have truncated it, and not have come to the sync.
                self.scanned.append(segment.files.log_path)
                must_scan = False
            if not must_scan and self._has_indexes(segment):
                if following is not None and sizes_are_known:
                    continue
                if self._ends_well(segment, following):
                    continue
            removed = self._scan(index, following, self._holes_allowed or not unflushed)
            end_offset = self._producers.end_offset
            if not removed and not unflushed:
                self._check_gap(segment, end_offset, following)
                continue
            is_known_hole = self._holes_allowed and (self._ends_are_trusted or not unflushed)
            hole = following is not None and end_offset < following and not is_known_hole
            if removed or hole:
                if self._recovery_point is not None and end_offset < self._recovery_point:
                    self._check_gap(segment, end_offset, following)
                logger.warning(
                    "%s: truncated to offset %s; %s bad bytes and %s later segments removed",
                    segment.files.log_path,
                    end_offset,
                    removed,
                    len(segments) - index - 1,
                )
                later = segments[index + 1 :]
                del segments[index + 1 :]
                _delete_all(later)
                return

    def sync(self, to_sync: list[str] | None) -> None:
        """What was scanned is synced before anything is built on it (Rebuild.finish), now or by the
        caller."""
        if to_sync is None:
            self._disk.sync_files(self.scanned)
        else:
            to_sync += self.scanned

    def _is_unflushed(self, following: int | None) -> bool:
        """Whether a crash may have left a segment in pieces, `following` being the next one."""
        if self._recovery_point is None:
            return False
        return following is None or following > self._recovery_point

    def _ends_well(self, segment: Segment, following: int | None) -> bool:
        """Whether a segment that should be whole is, as far as its end shows. Raises DamagedLog if
        it lacks records and another follows."""
        try:
            end_offset = check_end(segment)
        except (CorruptIndex, CorruptBatch, UnsupportedMagic) as error:
            logger.warning("scanning %s: %s", segment.files.log_path, error)
            return False
        finally:
            if following is not None:
                segment.files.close()  # a descriptor for each would be too many
        self._check_gap(segment, end_offset, following)
        return True

    def _check_gap(self, segment: Segment, end_offset: int, following: int | None) -> None:
        """Raise DamagedLog unless the next segment begins where this one ends."""
        if following is None or end_offset == following:
            return
        if end_offset > following or not self._holes_allowed:
            raise DamagedLog(
                f"{segment.files.log_path} ends at offset {end_offset} and the next segment"
                f" begins at {following} (if compaction made this gap, create an empty"
                f" {HOLES_FILE} in the directory)"
            )

    def _has_indexes(self, segment: Segment) -> bool:
        try:
            segment.transaction_index.check()
        except CorruptIndex as error:
            logger.warning("scanning %s: %s", segment, error)
            return False
        paths = (segment.offset_index.path, segment.time_index.path)
        return segment.size == 0 or all(self._disk.exists(path) for path in paths)

    def _scan(self, index: int, following: int | None, holes_allowed: bool) -> int:
        """Check and index one segment again; returns how many bytes were removed from its end."""
        segment = self._segments[index]
        self.scanned.append(segment.files.log_path)
        producers = self._producers
        next_offset = segment.base_offset
        offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        if following is not None:
            offset_max = min(offset_max, following - 1)
        # The transaction index comes out of the producers' state, so that must be right first.
        rebuild_producers(
            producers,
            self._segments[:index],
            self._start_offset,
            segment.base_offset,
            self._now_ms,
            clean=False,
        )

        rebuild = Rebuild(segment)
        for chunk, header in rebuild.batches():
            if (
                header.base_offset < next_offset
                or (header.base_offset > next_offset and not holes_allowed)
                or header.last_offset_delta < 0
                or header.last_offset > offset_max
                or not crc_ok(chunk, header)
            ):
                break
            next_offset = header.next_offset
            try:
                self._replay_batch(segment, chunk, header)
            except CorruptBatch:
                break  # A control batch without a readable marker.
            rebuild.keep(header)
        flushed_to = self._recovery_point
        may_truncate = following is None or (flushed_to is not None and next_offset >= flushed_to)
        try:
            removed = rebuild.finish(may_truncate=may_truncate)
        except CorruptBatch as error:
            raise DamagedLog(error.message) from None
        producers.take_snapshot(sync=False)  # its reader sees if a crash tears it
        return removed

    def _replay_batch(self, segment: Segment, chunk: bytes, header: BatchHeader) -> None:
        """Take a good batch into the leader epochs, the producers and the transaction index."""
        self._take_epoch(segment, header)
        update = self._producers.begin(Origin.REPLICATION)
        add_batch(update, chunk, header)
        for transaction in self._producers.apply(update):
            segment.transaction_index.append(transaction)
        self._producers.end_offset = header.next_offset

    def _take_epoch(self, segment: Segment, header: BatchHeader) -> None:
        """Epochs rise, and no checksum covers them. One that a single batch has and the next falls
        below is not believed: the leader would know no such epoch, and the replica never follow."""
        epochs, epoch, before = self._epochs, header.leader_epoch, self._before_odd
        self._before_odd = None
        if epoch < 0:
            return
        latest = epochs.latest_epoch
        if before is not None and latest is not None and epoch < latest:
            logger.error(
                "%s: the batch before offset %d has leader epoch %d, and the next one %d; the"
                " first is damaged and passed over",
                segment.files.log_path,
                header.base_offset,
                latest,
                epoch,
            )
            epochs.replace(before)
            latest = epochs.latest_epoch
        if latest is None or epoch > latest:
            self._before_odd = epochs.entries
            epochs.begin(epoch, header.base_offset)


# Producers


def marker_of(buffer: Buffer, header: BatchHeader) -> TransactionEnd | None:
    """What a control batch says about its producer's transaction."""
    if not header.is_control:
        return None
    try:
        return decode_transaction_end(buffer, header)
    except DecodeError as error:
        raise CorruptBatch(f"control batch at offset {header.base_offset}: {error}") from None


def add_batch(update: ProducersUpdate, buffer: Buffer, header: BatchHeader) -> None:
    """Take a batch, which has its final offsets, into account for its producer."""
    if header.producer_id >= 0:
        update.add(header, header.base_offset, marker_of(buffer, header))


def rebuild_producers(
    producers: ProducerStates,
    segments: Sequence[Segment],
    start_offset: int,
    end_offset: int,
    now_ms: int,
    *,
    clean: bool,
) -> None:
    """Make the producer state that of the log up to `end_offset`, with snapshots to match.

    After a clean shutdown without any snapshot there were no producers, as Kafka assumes too."""
    snapshot_at = {segment.base_offset for segment in segments[-2:]}
    if clean and not producers.snapshots:
        for offset in sorted({*snapshot_at, end_offset}):
            producers.end_offset = offset
            producers.take_snapshot()
        return
    was_empty = producers.is_empty and producers.end_offset >= end_offset
    position = producers.reload(start_offset, end_offset, now_ms)
    if was_empty and producers.is_empty:
        # Truncation adds no producer: there is nothing to replay, however much is left of the log.
        position = end_offset
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        if following <= position or segment.base_offset >= end_offset:
            continue
        producers.end_offset = max(segment.base_offset, position, start_offset)
        if segment.base_offset in snapshot_at:
            producers.take_snapshot(sync=False)
        _replay(producers, segment, producers.end_offset, end_offset)
    producers.end_offset = end_offset
    producers.take_snapshot(sync=False)


def _replay(
    producers: ProducerStates, segment: Segment, start_offset: int, end_offset: int
) -> None:
    found = segment.find(start_offset)
    if found is None:
        return
    for chunk, header in segment.batches(found.position):
        if header.base_offset >= end_offset:
            return
        if header.producer_id >= 0:
            update = producers.begin(Origin.REPLICATION)
            add_batch(update, chunk, header)
            producers.apply(update)
        producers.end_offset = header.next_offset
