"""The logs in use, by partition."""

import posixpath
from typing import TYPE_CHECKING

from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.log.log import Log


class LogRegistry:
    """One log of each partition, and the copy of each that is being moved to another directory."""

    __slots__ = ("current", "future")

    def __init__(self) -> None:
        self.current: dict[TopicPartition, Log] = {}
        self.future: dict[TopicPartition, Log] = {}

    def all(self) -> list["Log"]:
        return [*self.current.values(), *self.future.values()]

    def in_directory(self, path: str) -> list["Log"]:
        return [log for log in self.all() if posixpath.dirname(log.directory) == path]

    def remove(self, log: "Log") -> bool:
        """Take a log out of use and let go of its files; says whether it was in use."""
        tp = log.topic_partition
        for logs in (self.current, self.future):
            if logs.get(tp) is log:
                del logs[tp]
                log.close_files()
                return True
        return False
