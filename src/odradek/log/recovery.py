"""Loading a log from its directory, whatever the last owner left there.

Steps, in order (INTERCHANGE.md section D.2, BEHAVIOUR.md section 6):
1. Leftovers of deletion and cleaning go; a finished swap is completed.
2. Segments are opened. One without its indexes is scanned and gets new ones.
3. Without a clean shutdown, every segment that reaches beyond the recovery point is scanned: each
   batch's checksum, its place in the order, its leader epoch. The first bad batch ends the log:
   it and everything after it is removed. So does a hole in the offsets, which only compaction can
   make rightly: the end of one segment was lost with the power and that of the next was not, or a
   base offset, which no checksum covers, was damaged. Compaction may have made it if the topic is
   compacted now, or was: then this log has the mark that is set before its first hole, or Kafka
   cleaned it, and `cleaner-offset-checkpoint` names it.
4. Producer state is the newest readable snapshot plus the batches after it.

A message of magic 0 or 1 is not corruption: the log is left alone and refuses to load.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from odradek.log.config import LogConfig
from odradek.log.disk import Disk
from odradek.log.epochs import LeaderEpochs
from odradek.log.indexes import CorruptIndex
from odradek.log.producers import (
    EXPIRATION_MS_DEFAULT,
    Origin,
    ProducerStates,
    ProducersUpdate,
)
from odradek.log.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    RELATIVE_OFFSET_MAX,
    SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
)
from odradek.wire.batch import BatchHeader, Buffer, CorruptBatch, crc_ok
from odradek.wire.errors import DecodeError
from odradek.wire.records import TransactionEnd, decode_transaction_end

logger = logging.getLogger(__name__)

EPOCHS_FILE = "leader-epoch-checkpoint"
HOLES_FILE = ".odradek_holes"


@dataclass(slots=True)
class LoadedLog:
    """What a directory holds, checked and consistent."""

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStates
    start_offset: int
    end_offset: int
    recovery_point: int
    has_holes: bool


def load_log(
    disk: Disk,
    directory: str,
    config: LogConfig,
    *,
    start_offset: int,
    recovery_point: int,
    clean: bool,
    cleaned: bool = False,
    now_ms: int,
    producer_expiration_ms: int = EXPIRATION_MS_DEFAULT,
) -> LoadedLog:
    """Open the log in `directory`, which is created if need be.

    `start_offset`, `recovery_point` and `cleaned` are what the checkpoints say; `clean` is whether
    the marker of a clean shutdown was found. OSErrors are the caller's: the directory has failed.
    """
    disk.make_dirs(directory)
    finish_interrupted_work(disk, directory, config, now_ms)
    epochs = LeaderEpochs(f"{directory}/{EPOCHS_FILE}", disk=disk)
    producers = ProducerStates(disk, directory, expiration_ms=producer_expiration_ms)
    segments = _open_segments(disk, directory, config, now_ms)
    has_holes = disk.exists(f"{directory}/{HOLES_FILE}")
    holes_allowed = has_holes or cleaned or config.compact
    recovery = _Recovery(disk, segments, epochs, producers, start_offset, holes_allowed, now_ms)
    recovery.run(recovery_point, clean)

    end_offset = segments[-1].next_offset() if segments else -1
    if segments and end_offset < start_offset:
        logger.warning("%s ends at %s, before its start %s", directory, end_offset, start_offset)
        for segment in segments:
            segment.delete()
        segments.clear()
        epochs.clear()
        producers.truncate_fully_and_start_at(start_offset)
    if not segments:
        segments.append(
            Segment(disk, directory, start_offset, config, created_ms=now_ms, create=True)
        )
        end_offset, clean = start_offset, False
    start_offset = max(start_offset, segments[0].base_offset)
    recovery_point = end_offset if clean else min(recovery_point, end_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    producers.remove_stray_snapshots(segment.base_offset for segment in segments)
    rebuild_producers(producers, segments, start_offset, end_offset, now_ms, clean=clean)
    return LoadedLog(
        segments, epochs, producers, start_offset, end_offset, recovery_point, has_holes
    )


# Leftovers


def offset_of(name: str) -> int | None:
    """The base offset in a file's name, if it has one."""
    digits = name.split(".", 1)[0]
    return int(digits) if len(digits) == 20 and digits.isdecimal() else None


def finish_interrupted_work(disk: Disk, directory: str, config: LogConfig, now_ms: int) -> None:
    """Remove what was being deleted or cleaned; put finished swaps in place of what they replace.

    A swap is finished once no `.cleaned` file stands at or below it: renaming to `.swap` is the
    last thing a cleaner does before it removes the originals."""
    names = disk.list_dir(directory)
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
    for name in [*(name for name in names if name.endswith(DELETED_SUFFIX)), *cleaned]:
        disk.remove(f"{directory}/{name}")
    _swap_in(disk, directory, swaps, config, now_ms)


def _swap_in(
    disk: Disk, directory: str, swaps: Sequence[str], config: LogConfig, now_ms: int
) -> None:
    ranges = []
    for name in swaps:
        offset = offset_of(name)
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and offset is not None:
            segment = Segment(
                disk, directory, offset, config, created_ms=now_ms, suffix=SWAP_SUFFIX
            )
            ranges.append((offset, segment.next_offset()))
            segment.close_file()
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


def _open_segments(disk: Disk, directory: str, config: LogConfig, now_ms: int) -> list[Segment]:
    names = set(disk.list_dir(directory))
    segments = []
    for name in sorted(names):
        offset = offset_of(name)
        if offset is None:
            continue
        if name.endswith(LOG_SUFFIX):
            segments.append(Segment(disk, directory, offset, config, created_ms=now_ms))
        elif name.endswith(SUFFIXES) and f"{offset:020d}{LOG_SUFFIX}" not in names:
            logger.warning("removing %s/%s, whose log is gone", directory, name)
            disk.remove(f"{directory}/{name}")
    return segments


class _Recovery:
    """The scan of segments that cannot be trusted as they are."""

    def __init__(
        self,
        disk: Disk,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: ProducerStates,
        start_offset: int,
        holes_allowed: bool,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self._segments = segments
        self._epochs = epochs
        self._producers = producers
        self._start_offset = start_offset
        self._holes_allowed = holes_allowed
        self._now_ms = now_ms

    def run(self, recovery_point: int, clean: bool) -> None:
        """Scan what must be; a cut ends the log there, and what came after it is removed."""
        segments = self._segments
        for index, segment in enumerate(segments):
            following = segments[index + 1].base_offset if index + 1 < len(segments) else None
            unflushed = not clean and (following is None or following > recovery_point)
            if not unflushed and self._has_indexes(segment):
                continue
            cut = self._scan(index, following, self._holes_allowed or not unflushed)
            hole = following is not None and self._producers.end_offset < following
            if cut or (unflushed and hole and not self._holes_allowed):
                logger.warning("%s: the log ends here; %s bad bytes were cut", segment, cut)
                for later in segments[index + 1 :]:
                    later.delete()
                del segments[index + 1 :]
                return

    def _has_indexes(self, segment: Segment) -> bool:
        try:
            segment.transaction_index.check()
        except CorruptIndex as error:
            logger.warning("scanning %s: %s", segment, error)
            return False
        return all(
            self._disk.exists(segment.path(kind)) for kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        )

    def _scan(self, index: int, following: int | None, holes_allowed: bool) -> int:
        """Check and index one segment anew; returns how many bytes were cut from its end."""
        segment = self._segments[index]
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

        def accept(chunk: bytes, header: BatchHeader) -> bool:
            nonlocal next_offset
            if (
                header.base_offset < next_offset
                or (header.base_offset > next_offset and not holes_allowed)
                or header.last_offset_delta < 0
                or header.last_offset > offset_max
                or not crc_ok(chunk, header)
            ):
                return False
            next_offset = header.next_offset
            latest = self._epochs.latest_epoch
            if header.leader_epoch >= 0 and (latest is None or header.leader_epoch > latest):
                self._epochs.assign(header.leader_epoch, header.base_offset)
            update = producers.begin(Origin.REPLICATION)
            add_batch(update, chunk, header)
            for transaction in producers.apply(update):
                segment.transaction_index.append(transaction)
            producers.end_offset = next_offset
            return True

        cut = segment.rebuild(accept)
        producers.take_snapshot()
        return cut


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
        # A cut brings nobody back: there is nothing to replay, however much is left of the log.
        position = end_offset
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        if following <= position or segment.base_offset >= end_offset:
            continue
        producers.end_offset = max(segment.base_offset, position, start_offset)
        if segment.base_offset in snapshot_at:
            producers.take_snapshot()
        _replay(producers, segment, producers.end_offset, end_offset)
    producers.end_offset = end_offset
    producers.take_snapshot()


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
