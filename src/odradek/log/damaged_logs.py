"""The logs of a broker that lost records or cannot be used: found, reported, set aside.

A log that is damaged, or that fails while its disk works, is offline by itself and stays where it
is. Nothing is created in its place until it is set aside.
"""

import logging
import posixpath
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from odradek.log.damage import Damage, DamagedLog
from odradek.log.directories import DirectoryKind, LogDirectory, name_for
from odradek.log.disk import Disk
from odradek.log.loader import find_missing
from odradek.log.log import Log
from odradek.log.log_dirs import LogDirs
from odradek.log.log_registry import LogRegistry
from odradek.wire.batch import UnsupportedMagic
from odradek.wire.errors import KafkaError
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)


class DamagedLogs:
    """`found` has what happened to each replica, at the last start or since. `on_failure` is called
    with a log that failed by itself."""

    def __init__(
        self,
        disk: Disk,
        rng: Random,
        dirs: LogDirs,
        registry: LogRegistry,
        on_failure: Callable[[str, list[TopicPartition]], None],
    ) -> None:
        self._disk = disk
        self._rng = rng
        self._dirs = dirs
        self._registry = registry
        self._on_failure = on_failure
        self.found: dict[TopicPartition, Damage] = {}
        # Logs that failed off the loop, and why.
        self._held: dict[Log, Exception] | None = None

    # At the start

    def add_unusable(
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
        directory.offline_logs[tp] = path
        self.found[tp] = Damage(reason, reached, path, not isinstance(error, UnsupportedMagic))

    def add_shortened(self, log: Log, reached: int) -> None:
        """A log was loaded with less than what was on disk before."""
        reason = f"{log.directory} ends at offset {log.end_offset}, and reached {reached} before"
        logger.error(
            "%s lost records: %s. They are copied from the leader", log.topic_partition, reason
        )
        self.found[log.topic_partition] = Damage(reason, reached)

    def add_missing(self) -> None:
        """The logs that the checkpoints know and no directory has."""
        loaded = {*self._registry.current, *self.found}
        for tp, (path, reached) in find_missing(self._dirs.live.values(), loaded).items():
            if any(self._dirs.holds(failed, tp) for failed in self._dirs.offline):
                continue
            reason = f"{path}/{tp} is gone, which reached offset {reached}"
            logger.error(
                "%s lost all records: %s. They are copied from the leader; if there is none, stop"
                " the broker and put the directory back",
                tp,
                reason,
            )
            self.found[tp] = Damage(reason, reached)

    # Later

    def add_failed(self, log: Log, error: Exception) -> None:
        """A log failed: with its directory if the disk did, else it contradicts itself and goes
        offline alone."""
        if self._held is not None:
            self._held[log] = error
            return
        parent = posixpath.dirname(log.directory)
        if isinstance(error, OSError):
            self._dirs.fail(parent, error)
            return
        directory = self._dirs.live.get(parent)
        if not self._registry.remove(log) or directory is None:
            return
        tp = log.topic_partition
        directory.log_count -= 1
        directory.offline_logs[tp] = log.directory
        reason = f"{type(error).__name__}: {error}"
        self.found[tp] = Damage(reason, log.end_offset, log.directory)
        self._on_failure(log.directory, [tp])

    @contextmanager
    def failures_held(self) -> Iterator[None]:
        """Logs are used off the loop meanwhile: what happens to them is dealt with afterwards."""
        held = self._held = {}
        try:
            yield
        finally:
            self._held = None
        for log, error in held.items():
            self.add_failed(log, error)

    def path_of(self, tp: TopicPartition) -> str | None:
        """Where a log of the partition stands that cannot be used."""
        found = (
            each.offline_logs[tp] for each in self._dirs.live.values() if tp in each.offline_logs
        )
        return next(found, None)

    def set_aside(self, tp: TopicPartition) -> None:
        """Make room for a new log of the partition: an unusable one is renamed and kept."""
        for parent, directory in list(self._dirs.live.items()):
            path = directory.offline_logs.get(tp)
            if path is None:
                continue
            name = name_for(tp, DirectoryKind.STRAY, self._rng.getrandbits(128))
            try:
                self._disk.rename(path, f"{parent}/{name}")
                self._disk.sync_dir(parent)
            except OSError as error:
                self._dirs.fail(parent, error)
                continue
            del directory.offline_logs[tp]
            logger.warning(
                "%s: the damaged log is now in %s/%s; delete it when %s is in sync again",
                tp,
                parent,
                name,
                tp,
            )
