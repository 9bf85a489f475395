"""The reply to DescribeLogDirs: every configured directory, and the size of each log in it."""

import posixpath
from collections.abc import Iterable
from typing import NamedTuple

from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.wire.topics import TopicPartition

UNKNOWN = -1


class LogSize(NamedTuple):
    """One log. The lag is to the high watermark, that of a copy to the log it copies; -1 if there
    is no such log."""

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


class DirectoryReport(NamedTuple):
    """One directory. A failed one has nothing but its path."""

    path: str
    is_online: bool
    total_bytes: int
    usable_bytes: int
    logs: list[LogSize]


def describe_directories(
    manager: LogManager, asked: Iterable[TopicPartition] | None = None
) -> list[DirectoryReport]:
    """All directories, with all logs or only those asked for, which costs no more than they do."""
    logs: dict[str, list[Log]] = {}
    for log in manager.registry.all() if asked is None else _logs_of(manager, asked):
        logs.setdefault(posixpath.dirname(log.directory), []).append(log)
    reports = []
    live = manager.dirs.live
    for path in manager.dirs.configured:
        total_bytes = usable_bytes = UNKNOWN
        sizes: list[LogSize] = []
        is_online = path in live
        if is_online:
            try:
                total_bytes, usable_bytes = manager.disk.space(path)
                sizes = [_size_of(log, manager) for log in logs.get(path, ())]
            except OSError as error:
                manager.dirs.fail(path, error)
                is_online = False
        reports.append(DirectoryReport(path, is_online, total_bytes, usable_bytes, sizes))
    return reports


def _logs_of(manager: LogManager, asked: Iterable[TopicPartition]) -> list[Log]:
    found = (manager.get(tp, future=future) for tp in asked for future in (False, True))
    return [log for log in found if log is not None]


def _size_of(log: Log, manager: LogManager) -> LogSize:
    current = manager.get(log.topic_partition)
    is_future = current is not log
    lag = UNKNOWN
    if current is not None:
        reached = current.end_offset if is_future else current.high_watermark
        lag = max(0, reached - log.end_offset)
    return LogSize(log.topic_partition, log.size_bytes, lag, is_future)
