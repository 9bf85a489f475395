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

from odradek.log.directories import DirectoryKind, LogDirectory, PartitionDirectory
from odradek.log.log import Log
from odradek.log.offload import Offload
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

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
        path, (tp, kind) = waiting.pop()
        try:
            log = await offload(partial(open_log, path, tp))
        except OSError as error:
            error.filename = error.filename or path  # an operator must know where
            loaded.error = error
        except Exception as error:
            loaded.unusable.append((path, tp, error))
        else:
            loaded.logs.append((log, kind))


def find_missing(
    directories: Iterable[LogDirectory], found: Container[TopicPartition]
) -> dict[TopicPartition, tuple[str, int]]:
    """The partitions that were in a directory at its last checkpoint and have no sub-directory in
    any: where each was, and how far it reached."""
    missing: dict[TopicPartition, tuple[str, int]] = {}
    for directory in directories:
        on_their_way = {parsed.topic_partition for _, parsed in directory.partitions()}
        for tp, offset in directory.known_partitions().items():
            if tp not in found and tp not in on_their_way:
                missing[tp] = (directory.path, offset)
    return missing
