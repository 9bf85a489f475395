"""All logs of one broker, in one or more directories.

docs/spec/controller-and-replication.md sections 5.6 and 6.

Rules
1. A directory that raises an OSError stays offline (log_dirs.py): so do its logs, while the
   others are served, and `on_directory_failure` is called, on the loop, after the call that met the
   error, or after `load`.
2. Checkpoints are written from what the logs are now, and before a partition is created where one
   of its name was deleted (directory_checkpoints.py).
3. A partition that is in two directories is fatal: which one is right cannot be known. So no log
   is created for a partition that is known to be in a failed directory. Of two copies for a move
   one is set aside: the move begins again from the log in use.
4. A log that is damaged, or that fails while its disk works, is offline by itself
   (damaged_logs.py).

`dirs.open`, `dirs.claim` and `load` come first, in this order; `start` begins retention, flushes
and checkpoints (upkeep.py); `close` leaves directories that need no recovery, here or in Kafka.
"""

import asyncio
import logging
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from odradek.log.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS
from odradek.log.cleaner import Cleaner, CleanerConfig
from odradek.log.closer import LogCloser
from odradek.log.config import LogConfig
from odradek.log.damaged_logs import DamagedLogs
from odradek.log.directories import DirectoryKind, LogDirectory, name_for
from odradek.log.directory_checkpoints import DirectoryCheckpoints
from odradek.log.flusher import Flusher
from odradek.log.host import LogEnvironment, LogHost
from odradek.log.loader import LoadedDirectory, load_directory
from odradek.log.log import Log
from odradek.log.log_dirs import LogDirs, OnFailure
from odradek.log.log_registry import LogRegistry
from odradek.log.loop_calls import LoopCalls
from odradek.log.producers import EXPIRATION_MS_DEFAULT
from odradek.log.recovery import Checkpointed
from odradek.log.retired_directories import RetiredDirectories
from odradek.log.upkeep import Upkeep, UpkeepConfig
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)


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
        on_directory_failure: OnFailure = _ignore_failure,
    ) -> None:
        self._environment = environment
        disk, rng = environment.disk, environment.rng
        self.disk = disk
        self.default_config = config.topic_defaults
        self._recovery_threads = config.recovery_threads_per_directory
        self._preferred: dict[TopicPartition, str] = {}
        self._loop_calls = calls = LoopCalls()

        def report(path: str, partitions: list[TopicPartition]) -> None:
            calls.soon(lambda: on_directory_failure(path, partitions))

        self.registry = registry = LogRegistry()
        self.logs, self.future_logs = registry.current, registry.future
        self.dirs = LogDirs(disk, directories, registry, report)
        self.damaged = DamagedLogs(disk, rng, self.dirs, registry, report)
        self.flusher = Flusher(disk, environment.offload, lambda: self.upkeep.wake())
        self.cleaner = Cleaner(
            disk,
            registry.current,
            environment.clock,
            environment.offload,
            config.cleaner,
            moving=registry.future,
            before_swap=self._flush_and_checkpoint,
        )
        self.checkpoints = DirectoryCheckpoints(self.dirs, registry, self.cleaner, calls.soon)
        self._host = LogHost(
            disk,
            environment.clock,
            producer_expiration_ms=config.producer_expiration_ms,
            jitter=lambda limit_ms: rng.randrange(limit_ms) if limit_ms > 0 else 0,
            on_failure=self.damaged.add_failed,
            on_roll=self.flusher.flush_soon,
            on_recovery_point_lowered=self.checkpoints.lower_recovery_point,
            keeps_topic_ids=config.keeps_topic_ids,
            call_later=calls.later,
        )
        self._retired = RetiredDirectories(disk, environment.offload, self.dirs)
        self.upkeep = Upkeep(
            config.upkeep,
            environment,
            registry,
            self.checkpoints,
            self.flusher,
            self.cleaner,
            self._retired,
        )
        self._closer = LogCloser(environment, self.dirs, registry, self.checkpoints, self.damaged)

    # Starting and ending

    async def load(self, configs: Mapping[str, LogConfig] | None = None) -> None:
        """Load every log, recovering those of a directory that was not shut down cleanly.

        `configs` are the topics that have settings of their own. Raises UnexpectedDirectory or
        DuplicateLog: the broker must not start; NoDirectoryLeft: it cannot."""
        self.dirs.open()
        loading = [
            self._load_directory(directory, configs or {})
            for directory in list(self.dirs.live.values())
        ]
        # Let every directory finish, whatever happens to one, so that none is left half loaded.
        outcomes = await asyncio.gather(*loading, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                self.close_files()
                raise outcome
        self.dirs.require_live()
        self.damaged.add_missing()
        self._loop_calls.start()

    def start(self) -> None:
        """Begin retention, cleaning, flushing and checkpoints, on the running loop."""
        self.upkeep.start()

    async def close(self) -> None:
        """Close every log, and mark each directory clean in which all went well."""
        await self.upkeep.stop()
        await self._closer.close()

    def close_files(self) -> None:
        """Let go of all files and locks without writing anything."""
        self._closer.close_files()

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
            self.dirs.fail(directory.path, error)
            return
        environment = self._environment
        loaded = await load_directory(
            directory, open_log, environment.offload, self._recovery_threads
        )
        failure = await environment.sync_files(to_sync)
        loaded.error = loaded.error or failure
        self._adopt(directory, loaded)

    def _adopt(self, directory: LogDirectory, loaded: LoadedDirectory) -> None:
        for path in loaded.deleted:
            self._retire(path)
        for path, tp, error in loaded.unusable:
            self.damaged.add_unusable(directory, path, tp, error)
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
                    self.damaged.add_shortened(log, log.lost_up_to)
            elif kind is DirectoryKind.FUTURE:
                self._set_copy_aside(directory, log, logs[tp])
            else:
                log.close_files()
                duplicates.append(f"{tp} is in {logs[tp].directory} and in {log.directory}")
        if loaded.error is not None:
            self.dirs.fail(directory.path, loaded.error)
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
                machine_lost=is_first_load and directory.lost_machine(self._environment.boot_id),
                cleaned=self.cleaner.has_cleaned(directory.path, tp),
                to_sync=to_sync,
            ),
        )

    def _set_copy_aside(self, directory: LogDirectory, copy: Log, kept: Log) -> None:
        """Two moves were begun, the second while the disk of the first was absent. Neither copy has
        what the log in use has not, and a move that is resumed starts with an empty one."""
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
        damaged = self.damaged.path_of(tp)
        if damaged is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{damaged} is damaged and offline")
        for path in self.dirs.offline:
            if not is_new or self.dirs.holds(path, tp):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} may be in {path}: offline")
        kind = DirectoryKind.FUTURE if future else DirectoryKind.CURRENT
        name = name_for(tp, kind, self._environment.rng.getrandbits(128))
        for path in self._candidates(tp, future):
            directory = self.dirs.live.get(path)
            if directory is None:
                continue
            try:
                self.checkpoints.forget(directory, tp)
                log = self._open_log(directory, f"{path}/{name}", tp, config or self.default_config)
            except OSError as error:
                self.dirs.fail(path, error)
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
        if preferred not in self.dirs.live:
            preferred = None
        if future:
            current = self.logs.get(tp)
            assert preferred is not None, f"no directory is preferred for {tp}"
            assert current is None or posixpath.dirname(current.directory) != preferred
        if preferred is not None:
            return [preferred]
        return sorted(self.dirs.live, key=lambda path: self.dirs.live[path].log_count)

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """New settings for a topic's logs; the next append already obeys them."""
        for log in self.registry.all():
            if log.topic_partition.topic == topic:
                log.config = config

    # Moving and deleting

    def replace_current_with_future(self, tp: TopicPartition) -> Log:
        """The copy has caught up: it becomes the log, and the old one is deleted.

        A crash between the two renames leaves the partition in two directories, which is fatal at
        the next start, as it is in Kafka; the other order could lose the partition. An old log that
        cannot be renamed is left there likewise; that directory goes offline, and the others are
        served. So a failed disk has to be noticed first: nothing is replaced then."""
        source, target = self.logs.get(tp), self.future_logs.get(tp)
        if source is not None:
            self.dirs.on_each([posixpath.dirname(source.directory)], self.disk.sync_dir)
            source = self.logs.get(tp)
        if source is None or target is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} or its copy is offline")
        target_path = posixpath.dirname(target.directory)
        # Not all are known from the records: a leader's epoch begins before its first record, and
        # compaction leaves epochs without any.
        epochs = source.epochs.entries
        self.dirs.on_each([target_path], lambda _: target.epochs.replace(epochs))
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
            logger.error("%s could not be deleted and stays: %s", source, error.message)
            source.close_files()
        self.checkpoints.write(changed)
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
            self.checkpoints.write([changed])
        else:
            self.checkpoints.write_soon(changed)
        return log

    def _rename_for_deletion(self, log: Log, *, stray: bool = False) -> str:
        parent = posixpath.dirname(log.directory)
        kind = DirectoryKind.STRAY if stray else DirectoryKind.DELETE
        name = name_for(log.topic_partition, kind, self._environment.rng.getrandbits(128))
        log.rename_directory(f"{parent}/{name}")
        log.close_files()
        self.dirs.live[parent].log_count -= 1
        if not stray:
            self._retire(log.directory)
            logger.info("%s will be deleted", log)
        return parent

    def _retire(self, path: str) -> None:
        due_ms = self._environment.clock() + self.default_config.file_delete_delay_ms
        self._retired.add(path, due_ms)
        self.upkeep.wake()

    async def _flush_and_checkpoint(self, log: Log) -> None:
        """Flush a log and let the disk know that it is."""
        await self.flusher.flush(log)
        self.checkpoints.write_recovery_point_of(log)

    def statistics(self) -> dict[str, int]:
        return {
            "logs": len(self.logs),
            "future_logs": len(self.future_logs),
            "live_directories": len(self.dirs.live),
            "offline_directories": len(self.dirs.offline),
            "directories_to_remove": len(self._retired),
            "logs_to_flush": self.flusher.to_flush_count,
            "damaged_logs": len(self.damaged.found),
            "size_bytes": sum(log.size_bytes for log in self.registry.all()),
            **{f"cleaner_{name}": value for name, value in self.cleaner.statistics().items()},
        }
