"""All logs of one broker, in one or more directories.

docs/spec/controller-and-replication.md sections 5.6 and 6.

Rules
1. A directory that raises an OSError is gone for good: its logs go offline, the others go on, and
   `on_directory_failure` is called, on the loop, after the call that met the error, or after
   `load`.
2. Checkpoints are written from what the logs are now, and before a partition is created where one
   of its name was deleted, so that no log ever inherits another's offsets.
3. A partition that is in two directories is fatal: which one is right cannot be known. So no log
   is created for a partition that is known to be in a failed directory. Of two copies for a move
   one is set aside: the move begins again from the log in use.
4. A log that is damaged, or that fails while its disk works, is offline by itself and stays where
   it is; `damaged` says why. Nothing is created in its place until it is set aside.

`dirs.open`, `dirs.claim` and `load` come first, in this order; `start` begins retention, flushes
and checkpoints (upkeep.py); `close` leaves directories that need no recovery, here or in Kafka.
"""

import asyncio
import logging
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from odradek.log.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from odradek.log.cleaner import Cleaner, CleanerConfig
from odradek.log.config import LogConfig
from odradek.log.damage import Damage, DamagedLog
from odradek.log.directories import (
    DirectoryKind,
    LogDirectory,
    RetiredDirectories,
    name_for,
)
from odradek.log.host import LogEnvironment, LogHost
from odradek.log.loader import LoadedDirectory, find_missing, load_directory
from odradek.log.log import Flush, Log
from odradek.log.log_dirs import LogDirs
from odradek.log.producers import EXPIRATION_MS_DEFAULT
from odradek.log.recovery import Checkpointed
from odradek.log.upkeep import Upkeep, UpkeepConfig
from odradek.wire.batch import UnsupportedMagic
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

# Threads that close logs, and the logs that one closes before it reports to the loop.
CLOSED_AT_ONCE = 8
CLOSED_IN_A_ROW = 16

OnDirectoryFailure = Callable[[str, list[TopicPartition]], None]


class DuplicateLog(Exception):
    """One partition in two directories."""


@dataclass(frozen=True, slots=True)
class LogManagerConfig:
    """The broker's settings for all of its logs."""

    # For topics without settings of their own.
    topic_defaults: LogConfig = field(default_factory=LogConfig)
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)
    upkeep: UpkeepConfig = field(default_factory=UpkeepConfig)
    producer_expiration_ms: int = EXPIRATION_MS_DEFAULT
    recovery_threads_per_directory: int = 2
    # Whether `partition.metadata` says which topic each log is of.
    keeps_topic_ids: bool = True


def _ignore_failure(directory: str, partitions: list[TopicPartition]) -> None: ...


class LogManager:
    """The logs of one broker; the module's docstring has the rules."""

    def __init__(
        self,
        directories: Sequence[str],
        environment: LogEnvironment,
        config: LogManagerConfig = LogManagerConfig(),
        on_directory_failure: OnDirectoryFailure = _ignore_failure,
    ) -> None:
        disk, clock, offload = environment.disk, environment.clock, environment.offload
        self.disk = disk
        self.clock = clock
        self.offload = offload
        self.default_config = config.topic_defaults
        self.on_directory_failure = on_directory_failure
        self._rng = rng = environment.rng
        self.dirs = LogDirs(disk, directories, self.fail_directory)
        self._host = LogHost(
            disk,
            clock,
            producer_expiration_ms=config.producer_expiration_ms,
            jitter=lambda limit_ms: rng.randrange(limit_ms) if limit_ms > 0 else 0,
            on_failure=self._on_log_failure,
            on_roll=self._on_roll,
            on_recovery_point_lowered=self._on_recovery_point_lowered,
            keeps_topic_ids=config.keeps_topic_ids,
            call_later=self._call_later,
        )
        self._recovery_threads = config.recovery_threads_per_directory
        # Replicas that lost records, at the last start or since.
        self.damaged: dict[TopicPartition, Damage] = {}
        self.logs: dict[TopicPartition, Log] = {}
        self.future_logs: dict[TopicPartition, Log] = {}
        self._preferred: dict[TopicPartition, str] = {}
        self.retired = RetiredDirectories(disk, offload)
        self.cleaner = Cleaner(
            disk,
            self.logs,
            clock,
            offload,
            config.cleaner,
            moving=self.future_logs,
            before_swap=self._flush_and_checkpoint,
        )
        self.to_flush: set[Log] = set()
        # Directories from which logs were deleted in this turn of the loop.
        self._to_checkpoint: set[str] = set()
        # Logs with a topic id that is not on disk yet, in the order they got it.
        self.without_id_on_disk: dict[Log, None] = {}
        self.upkeep = Upkeep(self, config.upkeep)
        # The loop, once everything is loaded; and the failures that came before.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unreported: list[tuple[str, list[TopicPartition]]] = []
        # While logs are being closed, which happens off the loop: those that failed.
        self._closing: dict[Log, Exception] | None = None

    # Starting

    @property
    def live_dirs(self) -> list[str]:
        return list(self.dirs.live)

    @property
    def offline_dirs(self) -> Mapping[str, OSError]:
        return self.dirs.offline

    async def load(self, configs: Mapping[str, LogConfig] | None = None) -> None:
        """Load every log, recovering those of a directory that was not shut down cleanly.

        `configs` are the topics that have settings of their own. What was lost is in `damaged`.
        Raises UnexpectedDirectory or DuplicateLog: the broker must not start; NoDirectoryLeft: it
        cannot."""
        self.dirs.open()
        loading = [
            self._load_directory(directory, configs or {})
            for directory in list(self.dirs.live.values())
        ]
        # Let every directory finish, whatever happens to one, so that none is left half loaded.
        outcomes = await asyncio.gather(*loading, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                self._close_files()
                raise outcome
        self.dirs.require_live()
        self._find_missing()
        self._loop = asyncio.get_running_loop()
        self._report_failures()

    def start(self) -> None:
        """Begin retention, cleaning, flushing and checkpoints, on the running loop."""
        self.upkeep.start()

    async def _load_directory(
        self, directory: LogDirectory, configs: Mapping[str, LogConfig]
    ) -> None:
        to_sync: list[str] = []

        def open_log(path: str, tp: TopicPartition) -> Log:
            config = configs.get(tp.topic, self.default_config)
            return self._open_log(directory, path, tp, config, to_sync)

        try:
            directory.read()
            self.cleaner.load(directory.path)
        except OSError as error:
            self.fail_directory(directory.path, error)
            return
        loaded = await load_directory(directory, open_log, self.offload, self._recovery_threads)
        failure = await self._sync_files(to_sync)
        loaded.error = loaded.error or failure
        self._adopt(directory, loaded)

    async def _sync_files(self, paths: list[str]) -> OSError | None:
        """All files of many logs together, which is one transaction for the file system."""
        if paths:
            try:
                await self.offload(partial(self.disk.sync_files, paths))
            except OSError as error:
                return error
        return None

    def _adopt(self, directory: LogDirectory, loaded: LoadedDirectory) -> None:
        for path in loaded.deleted:
            self._retire(path)
        for path, tp, error in loaded.unusable:
            self._log_unusable(directory, path, tp, error)
        duplicates = []
        for log, kind in loaded.logs:
            tp = log.topic_partition
            logs = self.future_logs if kind is DirectoryKind.FUTURE else self.logs
            if directory.path not in self.dirs.live:
                log.close_files()
            elif tp not in logs:
                logs[tp] = log
                self.cleaner.lower_cleaned_offset(log)
                directory.log_count += 1
                if log.lost_up_to is not None and kind is DirectoryKind.CURRENT:
                    self._log_shortened(log, log.lost_up_to)
            elif kind is DirectoryKind.FUTURE:
                self._set_copy_aside(directory, log, logs[tp])
            else:
                log.close_files()
                duplicates.append(f"{tp} is in {logs[tp].directory} and in {log.directory}")
        if loaded.error is not None:
            self.fail_directory(directory.path, loaded.error)
        else:
            directory.is_loaded = True
        if duplicates:
            raise DuplicateLog(f"{'; '.join(duplicates)}: move away the one not in use last")

    def _open_log(
        self,
        directory: LogDirectory,
        path: str,
        tp: TopicPartition,
        config: LogConfig,
        to_sync: list[str] | None = None,
    ) -> Log:
        name = posixpath.basename(path)
        is_first_load = not directory.is_loaded
        return Log(
            self._host,
            path,
            tp,
            config,
            Checkpointed(
                start_offset=directory.offsets(LOG_START_OFFSETS).get(tp, 0),
                recovery_point=directory.offsets(RECOVERY_POINTS).get(tp, 0),
                clean=is_first_load and directory.is_clean(name),
                record=directory.record_of(name) if is_first_load else None,
                cleaned=self.cleaner.has_cleaned(directory.path, tp),
                to_sync=to_sync,
            ),
        )

    # Damage

    def _log_unusable(
        self, directory: LogDirectory, path: str, tp: TopicPartition, error: Exception
    ) -> None:
        """The log in `path` cannot be loaded; the others can."""
        reason = error.message if isinstance(error, KafkaError) else str(error)
        expected = isinstance(error, DamagedLog | KafkaError)
        logger.error(
            "%s is damaged and offline: %s. No record in %s was removed. If another replica is"
            " in sync, it is copied from there; else restore the file, or move the directory away",
            tp,
            reason,
            path,
            exc_info=None if expected else error,
        )
        reached = directory.known_partitions().get(tp, 0)
        can_be_copied = not isinstance(error, UnsupportedMagic)
        self._set_offline(directory, path, tp, Damage(reason, reached, path, can_be_copied))

    def _log_shortened(self, log: Log, reached: int) -> None:
        """A log was loaded with less than what was on disk before."""
        reason = f"{log.directory} ends at offset {log.end_offset}, and reached {reached} before"
        logger.error(
            "%s lost records: %s. They are copied from the leader", log.topic_partition, reason
        )
        self.damaged[log.topic_partition] = Damage(reason, reached)

    def _find_missing(self) -> None:
        found = {*self.logs, *self.damaged}
        for tp, (path, reached) in find_missing(self.dirs.live.values(), found).items():
            if any(self.dirs.holds(failed, tp) for failed in self.offline_dirs):
                continue
            reason = f"{path}/{tp} is gone, which reached offset {reached}"
            logger.error(
                "%s lost all records: %s. They are copied from the leader; if there is none, stop"
                " the broker and put the directory back",
                tp,
                reason,
            )
            self.damaged[tp] = Damage(reason, reached)

    def _set_offline(
        self, directory: LogDirectory, path: str, tp: TopicPartition, damage: Damage
    ) -> None:
        directory.offline_logs[tp] = path
        self.damaged[tp] = damage

    def set_damaged_aside(self, tp: TopicPartition) -> None:
        """Make room for a new log of the partition: an unusable one is renamed and kept."""
        for parent, directory in list(self.dirs.live.items()):
            path = directory.offline_logs.get(tp)
            if path is None:
                continue
            name = name_for(tp, DirectoryKind.STRAY, self._rng.getrandbits(128))
            try:
                self.disk.rename(path, f"{parent}/{name}")
                self.disk.sync_dir(parent)
            except OSError as error:
                self.fail_directory(parent, error)
                continue
            del directory.offline_logs[tp]
            logger.warning(
                "%s: the damaged log is now in %s/%s; delete it when %s is in sync again",
                tp,
                parent,
                name,
                tp,
            )

    def _set_copy_aside(self, directory: LogDirectory, copy: Log, kept: Log) -> None:
        """Two moves were begun, the second while the disk of the first was absent. Neither copy has
        what the log in use has not, and a move that goes on starts with an empty one."""
        found_in = copy.directory
        directory.log_count += 1
        try:
            self._rename_for_deletion(copy, stray=True)
        except KafkaError as error:
            logger.error("%s: cannot set the copy %s aside: %s", copy, found_in, error.message)
            return
        logger.warning(
            "%s has two future logs, %s and %s: the second is stray and now %s; delete it",
            copy.topic_partition,
            kept.directory,
            found_in,
            copy.directory,
        )

    def _fail_log(self, log: Log, error: Exception) -> None:
        """The log contradicts itself, and its disk works: it goes offline alone."""
        tp, parent = log.topic_partition, posixpath.dirname(log.directory)
        logs = self.future_logs if self.future_logs.get(tp) is log else self.logs
        if logs.get(tp) is not log:
            return
        del logs[tp]
        log.close_files()
        self.to_flush.discard(log)
        directory = self.dirs.live.get(parent)
        if directory is None:
            return
        directory.log_count -= 1
        reason = f"{type(error).__name__}: {error}"
        self._set_offline(
            directory, log.directory, tp, Damage(reason, log.end_offset, log.directory)
        )
        self._unreported.append((log.directory, [tp]))
        self._report_failures()

    # Finding and making

    def get(self, tp: TopicPartition, *, future: bool = False) -> Log | None:
        return (self.future_logs if future else self.logs).get(tp)

    def get_or_create(
        self,
        tp: TopicPartition,
        config: LogConfig | None = None,
        *,
        is_new: bool = False,
        future: bool = False,
    ) -> Log:
        """The partition's log. A missing one is created in the preferred directory, or in the one
        with the fewest partitions. Where a failed directory holds it, or might because it is not
        new, KAFKA_STORAGE_ERROR is raised instead."""
        existing = self.get(tp, future=future)
        if existing is not None:
            return existing
        for live in self.dirs.live.values():
            if tp in live.offline_logs:
                path = live.offline_logs[tp]
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is damaged and offline")
        for path in self.offline_dirs:
            if not is_new or self.dirs.holds(path, tp):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} may be in {path}: offline")
        kind = DirectoryKind.FUTURE if future else DirectoryKind.CURRENT
        name = name_for(tp, kind, self._rng.getrandbits(128))
        for path in self._candidates(tp, future):
            directory = self.dirs.live.get(path)
            if directory is None:
                continue
            try:
                self._disown(directory, tp)
                log = self._open_log(directory, f"{path}/{name}", tp, config or self.default_config)
            except OSError as error:
                self.fail_directory(path, error)
                if self.dirs.holds(path, tp):
                    break  # half made
                continue
            (self.future_logs if future else self.logs)[tp] = log
            directory.log_count += 1
            self._preferred.pop(tp, None)
            logger.info("created %s", log)
            return log
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"no log directory could take {tp}")

    def prefer_directory(self, tp: TopicPartition, path: str) -> None:
        """Where the partition's next log is to be made: the target of a move."""
        path = posixpath.normpath(path)
        if path not in self.dirs.configured:
            raise KafkaError(
                ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not among the log directories"
            )
        if path not in self.dirs.live:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
        for logs in (self.logs, self.future_logs):
            log = logs.get(tp)
            if log is not None and posixpath.dirname(log.directory) == path:
                return
        self._preferred[tp] = path

    def _candidates(self, tp: TopicPartition, future: bool) -> list[str]:
        preferred = self._preferred.get(tp)
        if future:
            current = self.logs.get(tp)
            assert preferred is not None, f"no directory is preferred for {tp}"
            assert current is None or posixpath.dirname(current.directory) != preferred
        if preferred is not None:
            return [preferred]
        return sorted(self.dirs.live, key=lambda path: self.dirs.live[path].log_count)

    def _disown(self, directory: LogDirectory, tp: TopicPartition) -> None:
        """Rule 2: drop what the checkpoints know of a deleted partition of the same name."""
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS):
            offsets = directory.offsets(name)
            if tp in offsets:  # else nothing is copied: there may be thousands, for each new log
                directory.write(name, {each: at for each, at in offsets.items() if each != tp})
        if tp not in self.logs:
            self.cleaner.forget(tp)
            self.cleaner.checkpoint(directory.path)

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """New settings for a topic's logs; the next append already obeys them."""
        for log in self.all_logs():
            if log.topic_partition.topic == topic:
                log.config = config

    # Moving and deleting

    def replace_current_with_future(self, tp: TopicPartition) -> Log:
        """The copy has caught up: it becomes the log, and the old one is deleted.

        A crash between the two renames leaves the partition in two directories, which is fatal at
        the next start, as it is in Kafka; the other order could lose the partition. An old log that
        cannot be renamed is left there likewise; that directory goes offline, and we go on."""
        source, target = self.logs.get(tp), self.future_logs.get(tp)
        if source is None or target is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} or its copy is offline")
        target_path = posixpath.dirname(target.directory)
        target.rename_directory(f"{target_path}/{tp}")
        self.dirs.on_each([target_path], self.disk.sync_dir)
        if target.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{target_path} has failed")
        target.set_high_watermark(source.high_watermark)
        del self.future_logs[tp]
        self.logs[tp] = target
        self.cleaner.lower_cleaned_offset(target)
        changed = {target_path}
        try:
            changed.add(self._rename_for_deletion(source))
        except KafkaError as error:
            logger.error("%s is left behind: %s", source, error.message)
            source.close_files()
            self.to_flush.discard(source)
        self._checkpoint_directories(changed)
        return target

    def async_delete(
        self, tp: TopicPartition, *, future: bool = False, stray: bool = False
    ) -> Log | None:
        """Take a log out of use; its files go after `file.delete.delay.ms`, those of a stray one
        are left for an operator to remove. If the disk refuses, its directory fails, and
        KAFKA_STORAGE_ERROR is raised; not for a copy, which is given up either way."""
        logs = self.future_logs if future else self.logs
        log = logs.get(tp)
        if log is None:
            return None
        if not future:
            self.cleaner.forget(tp)
            self._preferred.pop(tp, None)
        try:
            changed = self._rename_for_deletion(log, stray=stray)
        except KafkaError as error:
            if not future:
                raise
            logger.error("cannot delete %s: %s", log, error.message)
            return log
        del logs[tp]
        if stray:
            self._checkpoint_directories([changed])
        else:
            self._checkpoint_soon(changed)
        return log

    def _rename_for_deletion(self, log: Log, *, stray: bool = False) -> str:
        parent = posixpath.dirname(log.directory)
        kind = DirectoryKind.STRAY if stray else DirectoryKind.DELETE
        name = name_for(log.topic_partition, kind, self._rng.getrandbits(128))
        log.rename_directory(f"{parent}/{name}")
        log.close_files()
        self.to_flush.discard(log)
        self.dirs.live[parent].log_count -= 1
        if not stray:
            self._retire(log.directory)
            logger.info("%s will be deleted", log)
        return parent

    def _retire(self, path: str) -> None:
        self.retired.add(path, self.clock() + self.default_config.file_delete_delay_ms)
        self.upkeep.wake()

    async def remove_retired(self) -> None:
        """Remove the deleted directories whose delay is over."""
        for path, error in await self.retired.remove_due(self.clock()):
            self.fail_directory(posixpath.dirname(path), error)

    # Checkpoints

    def checkpoint_recovery_points(self) -> None:
        for path in self.live_dirs:
            self._write_checkpoints(path, (RECOVERY_POINTS,))

    def checkpoint_start_offsets(self) -> None:
        for path in self.live_dirs:
            self._write_checkpoints(path, (LOG_START_OFFSETS,))

    def _checkpoint_soon(self, path: str) -> None:
        """When this turn of the loop is over: a topic is deleted with all its partitions, and each
        checkpoint names every log. A crash before leaves the directory that is to be removed, by
        which a start knows that its log is not lost."""
        if self._loop is None:
            self._checkpoint_directories([path])
            return
        if not self._to_checkpoint:
            self._loop.call_soon(self._checkpoint_now)
        self._to_checkpoint.add(path)

    def _checkpoint_now(self) -> None:
        due, self._to_checkpoint = self._to_checkpoint, set()
        self._checkpoint_directories(due)

    def _checkpoint_directories(self, paths: Iterable[str]) -> None:
        for path in sorted(paths):
            if self._write_checkpoints(path, (RECOVERY_POINTS, LOG_START_OFFSETS)):
                self.dirs.on_each([path], self.cleaner.checkpoint)

    def _write_checkpoints(self, path: str, names: Sequence[str]) -> bool:
        """Write checkpoints of one directory; says whether it still works."""
        directory = self.dirs.live.get(path)
        if directory is None or not directory.is_loaded:
            return False
        try:
            for name in names:
                directory.checkpoint(name, self.logs_in(path))
        except OSError as error:
            self.fail_directory(path, error)
            return False
        return True

    def read_high_watermarks(self, path: str | None = None) -> dict[TopicPartition, int]:
        """The high watermarks that were last written: all of one directory, or those of the logs in
        use, each from where it stands, for a copy under way elsewhere has a mark of its own."""
        if path is not None:
            directory = self.dirs.live.get(posixpath.normpath(path))
            return {} if directory is None else dict(directory.offsets(HIGH_WATERMARKS))
        found = {}
        for tp, log in self.logs.items():
            directory = self.dirs.live.get(posixpath.dirname(log.directory))
            if directory is not None:
                offset = directory.offsets(HIGH_WATERMARKS).get(tp)
                if offset is not None:
                    found[tp] = offset
        return found

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Keep the high watermarks of the logs in use, and of the copies under way. A log that is
        not mentioned keeps what it had: it has had no role since the start."""

        def write(path: str) -> None:
            directory = self.dirs.live[path]
            if not directory.is_loaded:
                return
            offsets = dict(directory.offsets(HIGH_WATERMARKS))
            logs = {log.topic_partition: log for log in self.logs_in(path)}
            for tp, log in logs.items():
                if self.future_logs.get(tp) is log:
                    offsets[tp] = log.high_watermark
                elif tp in high_watermarks:
                    offsets[tp] = high_watermarks[tp]
            known = {tp: offset for tp, offset in offsets.items() if tp in logs}
            known |= directory.kept_offsets(HIGH_WATERMARKS)
            directory.write(HIGH_WATERMARKS, known)

        self.dirs.on_each(self.live_dirs, write)

    # Flushing

    async def flush(self, log: Log) -> None:
        """Flush a log, off the loop where it blocks."""
        self.to_flush.discard(log)
        try:
            while not log.offline and (flush := log.start_flush()) is not None:
                if await self._sync(log, flush):
                    log.finish_flush(flush)
                    return
        except KafkaError as error:
            logger.error("cannot flush %s: %s", log, error.message)

    async def _sync(self, log: Log, flush: Flush) -> bool:
        """Whether all was synced. A copy that took its log's place meanwhile was renamed: that it
        is not found is no failure of the disk, but it is to be synced again where it is now."""
        try:
            await self.offload(flush.sync)
        except OSError as error:
            moved = log.directory != flush.directory and isinstance(error, FileNotFoundError)
            if not log.offline and not moved:
                log.fail(error)
        return not log.offline and log.directory == flush.directory

    async def _flush_and_checkpoint(self, log: Log) -> None:
        """Flush a log and let the disk know that it is."""
        await self.flush(log)
        self._write_checkpoints(posixpath.dirname(log.directory), (RECOVERY_POINTS,))

    def _on_roll(self, log: Log) -> None:
        self.to_flush.add(log)
        self.upkeep.wake()

    def assign_topic_id(self, log: Log, topic_id: UUID) -> None:
        """Say whose log this is. It is written when there is time, or before the next append: a
        cluster that is upgraded brings the ids of all logs at once."""
        if log.metadata.assign(topic_id):
            self.without_id_on_disk[log] = None
            self.upkeep.wake()

    def _on_recovery_point_lowered(self, log: Log) -> None:
        path = posixpath.dirname(log.directory)
        self.cleaner.lower_cleaned_offset(log)
        if self._write_checkpoints(path, (RECOVERY_POINTS,)):
            self.dirs.on_each([path], self.cleaner.checkpoint)

    def _call_later(self, delay_s: float, action: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.call_later(delay_s, action)

    # Failure

    def _on_log_failure(self, log: Log, error: Exception) -> None:
        if self._closing is None:
            self._log_failed(log, error)
        else:
            # Not on the loop: only remembered here.
            self._closing[log] = error

    def _log_failed(self, log: Log, error: Exception) -> None:
        if isinstance(error, OSError):
            self.fail_directory(posixpath.dirname(log.directory), error)
        else:
            self._fail_log(log, error)

    def fail_directory(self, path: str, error: OSError) -> None:
        """Take a directory out of use, with all logs in it."""
        if path in self.offline_dirs:
            return
        logger.error("log directory %s has failed and is offline: %s", path, error)
        partitions = []
        for logs in (self.logs, self.future_logs):
            for tp, log in list(logs.items()):
                if posixpath.dirname(log.directory) == path:
                    del logs[tp]
                    log.close_files()
                    self.to_flush.discard(log)
                    partitions.append(tp)
        self._preferred = {tp: to for tp, to in self._preferred.items() if to != path}
        self.retired.forget_in(path)
        self.dirs.take_offline(path, error, partitions)
        self._unreported.append((path, partitions))
        self._report_failures()

    def _report_failures(self) -> None:
        """Pass failures on, but not before everything is loaded and can take them."""
        if self._loop is not None:
            for failure in self._unreported:
                self._loop.call_soon(self.on_directory_failure, *failure)
            self._unreported.clear()

    # Ending

    async def close(self) -> None:
        """Close every log, and mark each directory clean in which all went well."""
        await self.upkeep.stop()
        for path in self.live_dirs:
            waiting = self.logs_in(path)
            to_sync: list[str] = []
            self._closing = {}
            await asyncio.gather(
                *(self._close_logs(waiting, to_sync) for _ in range(CLOSED_AT_ONCE))
            )
            for log, error in self._closing.items():
                self._log_failed(log, error)
            if path not in self.dirs.live:
                continue
            failure = await self._sync_files(to_sync)
            if failure is not None:
                self.fail_directory(path, failure)
            if self._write_checkpoints(path, (RECOVERY_POINTS, LOG_START_OFFSETS)):
                self.dirs.on_each([path], self._mark_clean)
        self._close_files()

    def _mark_clean(self, path: str) -> None:
        directory = self.dirs.live[path]
        if directory.offline_logs:
            logger.warning(
                "%s is not marked as cleanly shut down: %s are offline",
                path,
                ", ".join(map(str, directory.offline_logs)),
            )
        else:
            directory.mark_clean(self.logs_in(path))

    async def _close_logs(self, waiting: list[Log], to_sync: list[str]) -> None:
        def close(logs: list[Log]) -> None:
            for log in logs:
                try:
                    log.close(to_sync)
                except KafkaError as error:
                    logger.error("cannot close %s: %s", log, error.message)

        while waiting:
            logs = waiting[-CLOSED_IN_A_ROW:]
            del waiting[-CLOSED_IN_A_ROW:]
            await self.offload(partial(close, logs))

    def _close_files(self) -> None:
        for log in self.all_logs():
            log.close_files()
        self.dirs.release()

    # What there is

    def all_logs(self) -> list[Log]:
        return [*self.logs.values(), *self.future_logs.values()]

    def logs_in(self, path: str) -> list[Log]:
        return [log for log in self.all_logs() if posixpath.dirname(log.directory) == path]

    def statistics(self) -> dict[str, int]:
        return {
            "logs": len(self.logs),
            "future_logs": len(self.future_logs),
            "live_directories": len(self.dirs.live),
            "offline_directories": len(self.offline_dirs),
            "directories_to_remove": len(self.retired),
            "logs_to_flush": len(self.to_flush),
            "damaged_logs": len(self.damaged),
            "size_bytes": sum(log.size_bytes for log in self.all_logs()),
            **{f"cleaner_{name}": value for name, value in self.cleaner.statistics().items()},
        }
