"""The checkpoints of all log directories, written from what the logs are now.

A log that is deleted disappears from them before one of the same name is created, so that no log
ever inherits another's offsets.
"""

import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence

from odradek.log.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from odradek.log.cleaner import Cleaner
from odradek.log.directories import LogDirectory
from odradek.log.log import Log
from odradek.log.log_dirs import LogDirs
from odradek.log.log_registry import LogRegistry
from odradek.wire.topics import TopicPartition


class DirectoryCheckpoints:
    """Recovery points, start offsets, high watermarks, and how far logs are cleaned."""

    def __init__(
        self,
        dirs: LogDirs,
        registry: LogRegistry,
        cleaner: Cleaner,
        call_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        self._dirs = dirs
        self._registry = registry
        self._cleaner = cleaner
        self._call_soon = call_soon
        # Directories from which logs were deleted in this turn of the loop.
        self._due: set[str] = set()

    def write_recovery_points(self) -> None:
        for path in list(self._dirs.live):
            self._write(path, (RECOVERY_POINTS,))

    def write_recovery_point_of(self, log: Log) -> None:
        """Those of the log's directory."""
        self._write(posixpath.dirname(log.directory), (RECOVERY_POINTS,))

    def write_start_offsets(self) -> None:
        for path in list(self._dirs.live):
            self._write(path, (LOG_START_OFFSETS,))

    def write_soon(self, path: str) -> None:
        """When this turn of the loop is over: a topic is deleted with all its partitions, and each
        checkpoint names every log. A crash before leaves the directory that is to be removed, by
        which a start knows that its log is not lost."""
        if not self._due:
            self._call_soon(self._write_due)
        self._due.add(path)

    def _write_due(self) -> None:
        due, self._due = self._due, set()
        self.write(due)

    def write(self, paths: Iterable[str]) -> None:
        """All that depends on which logs are in these directories."""
        for path in sorted(paths):
            if self.write_offsets(path):
                self._dirs.on_each([path], self._cleaner.checkpoint)

    def write_offsets(self, path: str) -> bool:
        """Recovery points and start offsets of a directory; says whether it still works."""
        return self._write(path, (RECOVERY_POINTS, LOG_START_OFFSETS))

    def lower_recovery_point(self, log: Log) -> None:
        """The log was truncated below what the checkpoints say."""
        path = posixpath.dirname(log.directory)
        self._cleaner.lower_cleaned_offset(log)
        if self._write(path, (RECOVERY_POINTS,)):
            self._dirs.on_each([path], self._cleaner.checkpoint)

    def _write(self, path: str, names: Sequence[str]) -> bool:
        directory = self._dirs.live.get(path)
        if directory is None or not directory.is_loaded:
            return False
        try:
            for name in names:
                directory.checkpoint(name, self._registry.in_directory(path))
        except OSError as error:
            self._dirs.fail(path, error)
            return False
        return True

    def forget(self, directory: LogDirectory, tp: TopicPartition) -> None:
        """Drop what a directory's checkpoints say of a deleted partition of this name. OSErrors
        come as they are."""
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS):
            offsets = directory.offsets(name)
            if tp in offsets:  # else nothing is copied: there may be thousands, for each new log
                directory.write(name, {each: at for each, at in offsets.items() if each != tp})
        if tp not in self._registry.current:
            self._cleaner.forget(tp)
            self._cleaner.checkpoint(directory.path)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks of the logs in use that were last written, each from the directory it
        is in: a copy under way elsewhere has a mark of its own."""
        found = {}
        for tp, log in self._registry.current.items():
            directory = self._dirs.live.get(posixpath.dirname(log.directory))
            if directory is not None:
                offset = directory.offsets(HIGH_WATERMARKS).get(tp)
                if offset is not None:
                    found[tp] = offset
        return found

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Keep the high watermarks of the logs in use, and of the copies under way. A log that is
        not mentioned keeps what it had: it has had no role since the start."""

        def write(path: str) -> None:
            directory = self._dirs.live[path]
            if not directory.is_loaded:
                return
            offsets = dict(directory.offsets(HIGH_WATERMARKS))
            logs = {log.topic_partition: log for log in self._registry.in_directory(path)}
            for tp, log in logs.items():
                if self._registry.future.get(tp) is log:
                    offsets[tp] = log.high_watermark
                elif tp in high_watermarks:
                    offsets[tp] = high_watermarks[tp]
            known = {tp: offset for tp, offset in offsets.items() if tp in logs}
            known |= directory.kept_offsets(HIGH_WATERMARKS)
            directory.write(HIGH_WATERMARKS, known)

        self._dirs.on_each(list(self._dirs.live), write)
