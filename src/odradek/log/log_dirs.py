"""The directories of `log.dirs`: those that work, and those that have failed.

A directory that has failed stays offline until the broker is restarted, with all logs in it. What
stood in it is remembered: no log of such a partition may be created elsewhere.
"""

import logging
import posixpath
from collections.abc import Callable, Iterable, Sequence

from odradek.log.checkpoints import MetaProperties, claim_meta_properties, read_meta_properties
from odradek.log.directories import LogDirectory
from odradek.log.disk import Disk
from odradek.log.log_registry import LogRegistry
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

OnFailure = Callable[[str, list[TopicPartition]], None]


class NoDirectoryLeft(Exception):
    """Every log directory has failed."""


class LogDirs:
    """The directories of one broker. `on_failure` is called with one that has failed, and the
    partitions that were in it."""

    def __init__(
        self, disk: Disk, paths: Sequence[str], registry: LogRegistry, on_failure: OnFailure
    ) -> None:
        assert paths, "a broker needs a log directory"
        self.configured = [posixpath.normpath(path) for path in paths]
        if len(set(self.configured)) < len(self.configured):
            raise ValueError(f"a log directory is named twice: {', '.join(self.configured)}")
        self._disk = disk
        self._registry = registry
        self._on_failure = on_failure
        self.live: dict[str, LogDirectory] = {}
        self.offline: dict[str, OSError] = {}
        self._partitions_when_failed: dict[str, frozenset[TopicPartition]] = {}

    @property
    def unclean(self) -> list[str]:
        """Those that were not shut down cleanly."""
        return [path for path, directory in self.live.items() if not directory.was_clean]

    def open(self) -> None:
        """Create and lock the directories. Raises DirectoryInUse, or NoDirectoryLeft."""
        for path in self.configured:
            if path in self.live or path in self.offline:
                continue
            try:
                self.live[path] = LogDirectory(self._disk, path)
            except OSError as error:
                self.fail(path, error)
        self.require_live()

    def meta_properties(self) -> dict[str, MetaProperties]:
        """The `meta.properties` of each directory that has one: its broker and cluster."""
        found: dict[str, MetaProperties | None] = {}

        def read(path: str) -> None:
            found[path] = read_meta_properties(self._disk, path)

        self.on_each(list(self.live), read)
        self.require_live()
        return {path: properties for path, properties in found.items() if properties is not None}

    def claim(self, broker_id: int, cluster_id: str, now_ms: int) -> None:
        """Make the directories this broker's. Raises InconsistentMetaProperties."""

        def claim(path: str) -> None:
            claim_meta_properties(self._disk, path, broker_id, cluster_id, now_ms)

        self.on_each(list(self.live), claim)
        self.require_live()

    def on_each(self, paths: Iterable[str], work: Callable[[str], None]) -> None:
        """Do something to directories; one that fails goes offline and the others are done."""
        for path in paths:
            try:
                work(path)
            except OSError as error:
                self.fail(path, error)

    def fail(self, path: str, error: OSError) -> None:
        """Take a directory out of use, with all logs in it."""
        if path in self.offline:
            return
        logger.error("log directory %s has failed and is offline: %s", path, error)
        logs = self._registry.in_directory(path)
        for log in logs:
            self._registry.remove(log)
        partitions = [log.topic_partition for log in logs]
        self.offline[path] = error
        self._partitions_when_failed[path] = frozenset(partitions)
        directory = self.live.pop(path, None)
        if directory is not None:
            directory.release()
        self._on_failure(path, partitions)

    def holds(self, path: str, tp: TopicPartition) -> bool:
        """Whether a failed directory is known to hold the partition."""
        if tp in self._partitions_when_failed[path]:
            return True
        try:
            return self._disk.is_dir(f"{path}/{tp}")
        except OSError:
            return False

    def require_live(self) -> None:
        if not self.live:
            raise NoDirectoryLeft(", ".join(f"{p}: {e}" for p, e in self.offline.items()))

    def release(self) -> None:
        """Unlock all."""
        for directory in self.live.values():
            directory.release()
