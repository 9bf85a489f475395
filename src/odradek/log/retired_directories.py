"""Directories of deleted partitions, until `file.delete.delay.ms` is over."""

import posixpath
from functools import partial

from odradek.log.disk import Disk
from odradek.log.log_dirs import LogDirs
from odradek.log.offload import Offload


class RetiredDirectories:
    """A crash forgets them; the next start finds them by their names."""

    def __init__(self, disk: Disk, offload: Offload, dirs: LogDirs) -> None:
        self._disk = disk
        self._offload = offload
        self._dirs = dirs
        self._due_ms: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._due_ms)

    def add(self, path: str, due_ms: int) -> None:
        self._due_ms[path] = due_ms

    @property
    def next_due_ms(self) -> int | None:
        return min(self._due_ms.values(), default=None)

    async def remove_due(self, now_ms: int) -> None:
        """Remove those whose time has come, except where the log directory has failed."""
        for path in [path for path, due_ms in self._due_ms.items() if due_ms <= now_ms]:
            parent = posixpath.dirname(path)
            if self._due_ms.pop(path, None) is None or parent not in self._dirs.live:
                continue
            try:
                await self._offload(partial(self._remove, path))
            except OSError as error:
                self._dirs.fail(parent, error)

    def _remove(self, path: str) -> None:
        if self._disk.exists(path):
            self._disk.remove_tree(path)
