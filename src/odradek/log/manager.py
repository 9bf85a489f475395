"""All logs of one broker, in one or more directories.

docs/spec/controller-and-replication.md sections 5.6 and 6.

Rules
1. A directory that raises an OSError is gone for good: its logs go offline, the others go on, and
   `on_directory_failure` is told, on the loop, after the call that met the error, or after `load`.
2. Checkpoints are written from what the logs are now, and before a partition is created where one
   of its name was deleted, so that no log ever inherits another's offsets.
3. A partition that stands in two directories is fatal: nobody can say which one is right. So none
   is made anew that is known to stand in a directory that has failed. Of two copies for a move
   one is set aside: the move begins again from the log in use.
4. A log that is damaged, or that fails while its disk works, is offline by itself and stays where
   it is; `damaged` says why. Nothing is created in its place until it is set aside.

`open`, `claim` and `load` come first, in this order; `start` begins what is due from time to time
(upkeep.py); `close` leaves directories that Kafka or we open again without recovery.
"""

import asyncio
import logging
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from odradek.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    MetaProperties,
    claim_meta_properties,
    read_meta_properties,
)
from odradek.log.cleaner import Cleaner, CleanerConfig
from odradek.log.config import LogConfig
from odradek.log.damage import Damage, DamagedLog
from odradek.log.directories import (
    DirectoryKind,
    LogDirectory,
    RetiredDirectories,
    name_for,
)
from odradek.log.disk import Disk
from odradek.log.host import LogHost
from odradek.log.loading import find_missing, load_directory
from odradek.log.log import Flush, Log
from odradek.log.offload import Offload
from odradek.log.producers import EXPIRATION_MS_DEFAULT
from odradek.log.recovery import Checkpointed
from odradek.log.upkeep import Upkeep, UpkeepConfig
from odradek.wire.batch import UnsupportedMagic
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

CLOSED_AT_ONCE = 8

OnDirectoryFailure = Callable[[str, list[TopicPartition]], None]


class NoDirectoryLeft(Exception):
    """Every log directory has failed."""


def _ignore_failure(directory: str, partitions: list[TopicPartition]) -> None: ...


class LogManager:
    """The logs of one broker; the module's docstring has the rules."""

    def __init__(
        self,
        directories: Sequence[str],
        disk: Disk,
        clock: Callable[[], int],
        offload: Offload,
        *,
        rng: Random,
        default_config: LogConfig = LogConfig(),
        cleaner_config: CleanerConfig = CleanerConfig(),
        producer_expiration_ms: int = EXPIRATION_MS_DEFAULT,
        recovery_threads_per_directory: int = 2,
        upkeep_config: UpkeepConfig = UpkeepConfig(),
        on_directory_failure: OnDirectoryFailure = _ignore_failure,
    ) -> None:
        assert directories, "a broker needs a log directory"
        paths = [posixpath.normpath(path) for path in directories]
        if len(set(paths)) < len(paths):
            raise ValueError(f"a log directory is named twice: {', '.join(paths)}")
        self.configured_dirs = paths
        self.disk = disk
        self.clock = clock
        self.offload = offload
        self.default_config = default_config
        self.on_directory_failure = on_directory_failure
        self._rng = rng
        self._host = LogHost(
            disk,
            clock,
            producer_expiration_ms=producer_expiration_ms,
            jitter=lambda limit_ms: rng.randrange(limit_ms) if limit_ms > 0 else 0,
            on_failure=self._on_log_failure,
            on_roll=self._on_roll,
            on_recovery_point_lowered=self._on_recovery_point_lowered,
            call_later=self._call_later,
        )
        self._recovery_threads = recovery_threads_per_directory
        self._live: dict[str, LogDirectory] = {}
        self.offline_dirs: dict[str, OSError] = {}
        # What was in them when they failed.
        self._partitions_when_failed: dict[str, frozenset[TopicPartition]] = {}
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
            cleaner_config,
            moving=self.future_logs,
            before_swap=self._flush_and_checkpoint,
        )
        self.to_flush: set[Log] = set()
        self.upkeep = Upkeep(self, upkeep_config)
        # The loop, once everything is loaded; and the failures that came before.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unreported: list[tuple[str, list[TopicPartition]]] = []
        # While logs are being closed, which happens off the loop: those that failed.
        self._closing: dict[Log, Exception] | None = None

    # Starting

    @property
    def live_dirs(self) -> list[str]:
        return list(self._live)

    @property
    def unclean_dirs(self) -> list[str]:
        return [path for path, directory in self._live.items() if not directory.was_clean]

    def open(self) -> None:
        """Create and lock the directories. Raises DirectoryInUse, or NoDirectoryLeft."""
        for path in self.configured_dirs:
            if path in self._live or path in self.offline_dirs:
                continue
            try:
                self._live[path] = LogDirectory(self.disk, path)
            except OSError as error:
                self.fail_directory(path, error)
        self._require_live()

    def meta_properties(self) -> dict[str, MetaProperties]:
        """What each directory says of its owner, where it says anything."""
        found: dict[str, MetaProperties | None] = {}

        def read(path: str) -> None:
            found[path] = read_meta_properties(self.disk, path)

        self._on_each(self.live_dirs, read)
        self._require_live()
        return {path: properties for path, properties in found.items() if properties is not None}

    def claim(self, broker_id: int, cluster_id: str) -> None:
        """Make the directories this broker's. Raises InconsistentMetaProperties."""

        def claim(path: str) -> None:
            claim_meta_properties(self.disk, path, broker_id, cluster_id, self.clock())

        self._on_each(self.live_dirs, claim)
        self._require_live()

    async def load(self, configs: Mapping[str, LogConfig] | None = None) -> None:
        """Load every log, recovering those of a directory that was not shut down cleanly.

        `configs` are the topics that have settings of their own. What was lost is in `damaged`.
        Raises UnexpectedDirectory or DuplicateLog: the broker must not start; NoDirectoryLeft: it
        cannot."""
        self.open()
        loading = [
            load_directory(self, self._live[path], configs or {}, self._recovery_threads)
            for path in self.live_dirs
        ]
        # Let every directory finish, whatever happens to one, so that none is left half loaded.
        outcomes = await asyncio.gather(*loading, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                self._let_go()
                raise outcome
        self._require_live()
        self._find_missing()
        self._loop = asyncio.get_running_loop()
        self._report_failures()

    def start(self) -> None:
        """Begin retention, cleaning, flushing and checkpoints, on the running loop."""
        self.upkeep.start()

    def open_log(
        self,
        directory: LogDirectory,
        path: str,
        topic_partition: TopicPartition,
        config: LogConfig,
    ) -> Log:
        name = posixpath.basename(path)
        is_first_load = not directory.is_loaded
        return Log(
            self._host,
            path,
            topic_partition,
            config,
            Checkpointed(
                start_offset=directory.offsets(LOG_START_OFFSETS).get(topic_partition, 0),
                recovery_point=directory.offsets(RECOVERY_POINTS).get(topic_partition, 0),
                clean=is_first_load and directory.is_clean(name),
                record=directory.record_of(name) if is_first_load else None,
                cleaned=self.cleaner.has_cleaned(directory.path, topic_partition),
            ),
        )

    # Damage

    def log_unusable(
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

    def log_shortened(self, log: Log, reached: int) -> None:
        """A log was loaded with less than what was on disk before."""
        reason = f"{log.directory} ends at offset {log.end_offset}, and reached {reached} before"
        logger.error(
            "%s lost records: %s. They are copied from the leader", log.topic_partition, reason
        )
        self.damaged[log.topic_partition] = Damage(reason, reached)

    def _find_missing(self) -> None:
        found = {*self.logs, *self.damaged}
        for tp, (path, reached) in find_missing(self._live.values(), found).items():
            if any(self._stands_in(failed, tp) for failed in self.offline_dirs):
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
        for parent, directory in list(self._live.items()):
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

    def set_copy_aside(self, directory: LogDirectory, copy: Log, kept: Log) -> None:
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
        directory = self._live.get(parent)
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

    def get(self, topic_partition: TopicPartition, *, future: bool = False) -> Log | None:
        return (self.future_logs if future else self.logs).get(topic_partition)

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        config: LogConfig | None = None,
        *,
        is_new: bool = False,
        future: bool = False,
    ) -> Log:
        """The partition's log. A missing one is created in the preferred directory, or in the one
        with the fewest partitions. Where a failed directory holds it, or might because it is not
        new, KAFKA_STORAGE_ERROR is raised instead."""
        existing = self.get(topic_partition, future=future)
        if existing is not None:
            return existing
        for live in self._live.values():
            if topic_partition in live.offline_logs:
                path = live.offline_logs[topic_partition]
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is damaged and offline")
        for path in self.offline_dirs:
            if not is_new or self._stands_in(path, topic_partition):
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} may be in {path}: offline"
                )
        kind = DirectoryKind.FUTURE if future else DirectoryKind.CURRENT
        name = name_for(topic_partition, kind, self._rng.getrandbits(128))
        for path in self._candidates(topic_partition, future):
            directory = self._live.get(path)
            if directory is None:
                continue
            try:
                self._disown(directory, topic_partition)
                log = self.open_log(
                    directory, f"{path}/{name}", topic_partition, config or self.default_config
                )
            except OSError as error:
                self.fail_directory(path, error)
                if self._stands_in(path, topic_partition):
                    break  # half made
                continue
            (self.future_logs if future else self.logs)[topic_partition] = log
            directory.log_count += 1
            self._preferred.pop(topic_partition, None)
            logger.info("created %s", log)
            return log
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"no log directory could take {topic_partition}"
        )

    def _stands_in(self, path: str, topic_partition: TopicPartition) -> bool:
        """Rule 3: whether we know that a failed directory holds the partition."""
        if topic_partition in self._partitions_when_failed[path]:
            return True
        try:
            return self.disk.is_dir(f"{path}/{topic_partition}")
        except OSError:
            return False

    def prefer_directory(self, topic_partition: TopicPartition, path: str) -> None:
        """Where the partition's next log is to be made: the target of a move."""
        path = posixpath.normpath(path)
        if path not in self.configured_dirs:
            raise KafkaError(
                ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not among the log directories"
            )
        if path not in self._live:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
        for logs in (self.logs, self.future_logs):
            log = logs.get(topic_partition)
            if log is not None and posixpath.dirname(log.directory) == path:
                return
        self._preferred[topic_partition] = path

    def _candidates(self, topic_partition: TopicPartition, future: bool) -> list[str]:
        preferred = self._preferred.get(topic_partition)
        if future:
            current = self.logs.get(topic_partition)
            assert preferred is not None, f"no directory is preferred for {topic_partition}"
            assert current is None or posixpath.dirname(current.directory) != preferred
        if preferred is not None:
            return [preferred]
        return sorted(self._live, key=lambda path: self._live[path].log_count)

    def _disown(self, directory: LogDirectory, topic_partition: TopicPartition) -> None:
        """Rule 2: drop what the checkpoints know of a deleted partition of the same name."""
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS):
            offsets = dict(directory.offsets(name))
            if offsets.pop(topic_partition, None) is not None:
                directory.write(name, offsets)
        if topic_partition not in self.logs:
            self.cleaner.forget(topic_partition)
            self.cleaner.checkpoint(directory.path)

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """New settings for a topic's logs; the next append already obeys them."""
        for log in self.all_logs():
            if log.topic_partition.topic == topic:
                log.config = config

    # Moving and deleting

    def replace_current_with_future(self, topic_partition: TopicPartition) -> Log:
        """The copy has caught up: it becomes the log, and the old one is deleted.

        A crash between the two renames leaves the partition in two directories, which is fatal at
        the next start, as it is in Kafka; the other order could lose the partition. An old log that
        its disk will not let go is left there likewise; that directory fails, and we go on."""
        source, target = self.logs.get(topic_partition), self.future_logs.get(topic_partition)
        if source is None or target is None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} or its copy is offline"
            )
        target_path = posixpath.dirname(target.directory)
        target.rename_directory(f"{target_path}/{topic_partition}")
        self._on_each([target_path], self.disk.sync_dir)
        if target.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{target_path} has failed")
        target.set_high_watermark(source.high_watermark)
        del self.future_logs[topic_partition]
        self.logs[topic_partition] = target
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
        self, topic_partition: TopicPartition, *, future: bool = False, stray: bool = False
    ) -> Log | None:
        """Take a log out of use; its files go after `file.delete.delay.ms`, those of a stray one
        are left to whoever knows better. Where the disk will not have it, its directory fails, and
        KAFKA_STORAGE_ERROR is raised; not for a copy, which is given up either way."""
        logs = self.future_logs if future else self.logs
        log = logs.get(topic_partition)
        if log is None:
            return None
        if not future:
            self.cleaner.forget(topic_partition)
            self._preferred.pop(topic_partition, None)
        try:
            changed = self._rename_for_deletion(log, stray=stray)
        except KafkaError as error:
            if not future:
                raise
            logger.error("cannot delete %s: %s", log, error.message)
            return log
        del logs[topic_partition]
        self._checkpoint_directories([changed])
        return log

    def _rename_for_deletion(self, log: Log, *, stray: bool = False) -> str:
        parent = posixpath.dirname(log.directory)
        kind = DirectoryKind.STRAY if stray else DirectoryKind.DELETE
        name = name_for(log.topic_partition, kind, self._rng.getrandbits(128))
        log.rename_directory(f"{parent}/{name}")
        log.close_files()
        self.to_flush.discard(log)
        self._live[parent].log_count -= 1
        if not stray:
            self.retire(log.directory)
            logger.info("%s will be deleted", log)
        return parent

    def retire(self, path: str) -> None:
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

    def _checkpoint_directories(self, paths: Iterable[str]) -> None:
        for path in sorted(paths):
            if self._write_checkpoints(path, (RECOVERY_POINTS, LOG_START_OFFSETS)):
                self._on_each([path], self.cleaner.checkpoint)

    def _write_checkpoints(self, path: str, names: Sequence[str]) -> bool:
        """Write checkpoints of one directory; says whether it still works."""
        directory = self._live.get(path)
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
            directory = self._live.get(posixpath.normpath(path))
            return {} if directory is None else dict(directory.offsets(HIGH_WATERMARKS))
        found = {}
        for topic_partition, log in self.logs.items():
            directory = self._live.get(posixpath.dirname(log.directory))
            if directory is not None:
                offset = directory.offsets(HIGH_WATERMARKS).get(topic_partition)
                if offset is not None:
                    found[topic_partition] = offset
        return found

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Keep the high watermarks of the logs in use, and of the copies under way. A log that is
        not mentioned keeps what it had: nobody has led or followed it since the start."""

        def write(path: str) -> None:
            directory = self._live[path]
            if not directory.is_loaded:
                return
            offsets = dict(directory.offsets(HIGH_WATERMARKS))
            logs = {log.topic_partition: log for log in self.logs_in(path)}
            for topic_partition, log in logs.items():
                if self.future_logs.get(topic_partition) is log:
                    offsets[topic_partition] = log.high_watermark
                elif topic_partition in high_watermarks:
                    offsets[topic_partition] = high_watermarks[topic_partition]
            known = {tp: offset for tp, offset in offsets.items() if tp in logs}
            known |= directory.kept_offsets(HIGH_WATERMARKS)
            directory.write(HIGH_WATERMARKS, known)

        self._on_each(self.live_dirs, write)

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

    def _on_recovery_point_lowered(self, log: Log) -> None:
        path = posixpath.dirname(log.directory)
        self.cleaner.lower_cleaned_offset(log)
        if self._write_checkpoints(path, (RECOVERY_POINTS,)):
            self._on_each([path], self.cleaner.checkpoint)

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
        self.offline_dirs[path] = error
        logger.error("log directory %s has failed: %s", path, error)
        directory = self._live.pop(path, None)
        partitions = []
        for logs in (self.logs, self.future_logs):
            for topic_partition, log in list(logs.items()):
                if posixpath.dirname(log.directory) == path:
                    del logs[topic_partition]
                    log.close_files()
                    self.to_flush.discard(log)
                    partitions.append(topic_partition)
        self._preferred = {tp: to for tp, to in self._preferred.items() if to != path}
        self.retired.forget_in(path)
        if directory is not None:
            directory.release()
        self._partitions_when_failed[path] = frozenset(partitions)
        self._unreported.append((path, partitions))
        self._report_failures()

    def _report_failures(self) -> None:
        """Pass failures on, but not before everything is loaded and can take them."""
        if self._loop is not None:
            for failure in self._unreported:
                self._loop.call_soon(self.on_directory_failure, *failure)
            self._unreported.clear()

    def _on_each(self, paths: Iterable[str], work: Callable[[str], None]) -> None:
        """Do something to directories; one that fails goes offline and the others are done."""
        for path in paths:
            try:
                work(path)
            except OSError as error:
                self.fail_directory(path, error)

    def _require_live(self) -> None:
        if not self._live:
            raise NoDirectoryLeft(", ".join(f"{p}: {e}" for p, e in self.offline_dirs.items()))

    # Ending

    async def close(self) -> None:
        """Close every log, and mark each directory clean in which all went well."""
        await self.upkeep.stop()
        for path in self.live_dirs:
            waiting = self.logs_in(path)
            # Several at a time: the file system commits what is synced together once.
            self._closing = {}
            await asyncio.gather(*(self._close_logs(waiting) for _ in range(CLOSED_AT_ONCE)))
            for log, error in self._closing.items():
                self._log_failed(log, error)
            if self._write_checkpoints(path, (RECOVERY_POINTS, LOG_START_OFFSETS)):
                self._on_each([path], self._mark_clean)
        self._let_go()

    def _mark_clean(self, path: str) -> None:
        directory = self._live[path]
        if directory.offline_logs:
            logger.warning(
                "%s is not marked as cleanly shut down: %s are offline",
                path,
                ", ".join(map(str, directory.offline_logs)),
            )
        else:
            directory.mark_clean(self.logs_in(path))

    async def _close_logs(self, waiting: list[Log]) -> None:
        while waiting:
            log = waiting.pop()
            try:
                await self.offload(log.close)
            except KafkaError as error:
                logger.error("cannot close %s: %s", log, error.message)

    def _let_go(self) -> None:
        for log in self.all_logs():
            log.close_files()
        for directory in self._live.values():
            directory.release()

    # What there is

    def all_logs(self) -> list[Log]:
        return [*self.logs.values(), *self.future_logs.values()]

    def logs_in(self, path: str) -> list[Log]:
        return [log for log in self.all_logs() if posixpath.dirname(log.directory) == path]

    def statistics(self) -> dict[str, int]:
        return {
            "logs": len(self.logs),
            "future_logs": len(self.future_logs),
            "live_directories": len(self._live),
            "offline_directories": len(self.offline_dirs),
            "directories_to_remove": len(self.retired),
            "logs_to_flush": len(self.to_flush),
            "damaged_logs": len(self.damaged),
            "size_bytes": sum(log.size_bytes for log in self.all_logs()),
            **{f"cleaner_{name}": value for name, value in self.cleaner.statistics().items()},
        }
