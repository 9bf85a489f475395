"""Loads the logs of one directory when a broker starts, several at a time.

It changes nothing but the directory's files: what was found is a value, and the log manager adopts
it. An OSError ends the load; the logs loaded until then are in the value and go offline with the
directory.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from odradek.log.directories import DirectoryKind, LogDirectory, PartitionDirectory
from odradek.log.log import Log
from odradek.log.offload import Offload
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

# How many logs one thread takes before it reports to the loop: what a hand-over costs is more than
# what loading or closing a log takes that nothing was written to.
IN_A_ROW_MIN, IN_A_ROW_MAX = 16, 64

T = TypeVar("T")
OpenLog = Callable[[str, TopicPartition], Log]


@dataclass(slots=True)
class LoadedDirectory:
    """What was found in one directory."""

    logs: list[tuple[Log, DirectoryKind]] = field(default_factory=list)
    # Logs that cannot be used: where they are, and why.
    unusable: list[tuple[str, TopicPartition, Exception]] = field(default_factory=list)
    # Logs of deleted partitions, whose files are still to be removed.
    deleted: list[str] = field(default_factory=list)
    # Why the directory has failed, if it has.
    error: OSError | None = None


async def load_directory(
    directory: LogDirectory, open_log: OpenLog, offload: Offload, at_once: int
) -> LoadedDirectory:
    """Load every log in the directory. Raises UnexpectedDirectory."""
    loaded = LoadedDirectory()
    try:
        waiting = _sort(directory, loaded)
    except OSError as error:
        loaded.error = error
        return loaded
    logger.info(
        "loading %s logs of %s, %s",
        len(waiting),
        directory.path,
        "cleanly shut down" if directory.was_clean else "with recovery",
    )
    # Popped from the end by several workers.
    waiting.reverse()
    workers = [_load_logs(waiting, loaded, open_log, offload) for _ in range(at_once)]
    await asyncio.gather(*workers)
    return loaded


def _sort(directory: LogDirectory, loaded: LoadedDirectory) -> list[tuple[str, PartitionDirectory]]:
    """The logs that are to be loaded, in order of their names."""
    waiting = []
    for name, parsed in directory.partitions():
        path = f"{directory.path}/{name}"
        if parsed.kind is DirectoryKind.DELETE:
            loaded.deleted.append(path)
        elif parsed.kind is DirectoryKind.STRAY:
            logger.warning("%s is stray and is left alone", path)
        else:
            waiting.append((path, parsed))
    return waiting


async def _load_logs(
    waiting: list[tuple[str, PartitionDirectory]],
    loaded: LoadedDirectory,
    open_log: OpenLog,
    offload: Offload,
) -> None:
    while waiting and loaded.error is None:
        some = take_some(waiting)
        outcomes = await offload(partial(_open_logs, open_log, some))
        for (path, (tp, kind)), outcome in zip(some, outcomes, strict=False):
            if isinstance(outcome, OSError):
                outcome.filename = outcome.filename or path  # an operator must know where
                loaded.error = outcome
            elif isinstance(outcome, Exception):
                loaded.unusable.append((path, tp, outcome))
            else:
                loaded.logs.append((outcome, kind))


def take_some(waiting: list[T]) -> list[T]:
    """What a thread does next, off the end of what is left to do: fewer as it comes to an end, so
    that all threads come to theirs at the same time."""
    count = min(IN_A_ROW_MAX, max(IN_A_ROW_MIN, len(waiting) // IN_A_ROW_MIN))
    some = waiting[: -count - 1 : -1]
    del waiting[-count:]
    return some


def _open_logs(
    open_log: OpenLog, some: list[tuple[str, PartitionDirectory]]
) -> list[Log | Exception]:
    """What became of each, up to the first OSError."""
    outcomes: list[Log | Exception] = []
    for path, (tp, _) in some:
        try:
            outcomes.append(open_log(path, tp))
        except Exception as error:
            outcomes.append(error)
            if isinstance(error, OSError):
                break
    return outcomes


def find_missing(
    directories: Iterable[LogDirectory], found: Container[TopicPartition]
) -> dict[TopicPartition, tuple[str, int]]:
    """The partitions that were in a directory at its last checkpoint and have no sub-directory in
    any: where each was, and how far it reached."""
    missing: dict[TopicPartition, tuple[str, int]] = {}
    for directory in directories:
        unknown = {
            tp: offset for tp, offset in directory.known_partitions().items() if tp not in found
        }
        if unknown:
            on_their_way = {parsed.topic_partition for _, parsed in directory.partitions()}
            missing |= {
                tp: (directory.path, offset)
                for tp, offset in unknown.items()
                if tp not in on_their_way
            }
    return missing
