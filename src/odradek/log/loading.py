"""Loading the logs of a directory when a broker starts, several at a time."""

import asyncio
import logging
from collections.abc import Container, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from odradek.log.config import LogConfig
from odradek.log.directories import DirectoryKind, LogDirectory, PartitionDirectory
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.log.manager import LogManager

logger = logging.getLogger(__name__)

Configs = Mapping[str, LogConfig]


class DuplicateLog(Exception):
    """One partition in two directories."""


async def load_directory(
    manager: "LogManager", directory: LogDirectory, configs: Configs, at_once: int
) -> None:
    """Load every log, and retire what was on its way to be deleted. A directory that cannot be
    read fails."""
    try:
        directory.read()
        manager.cleaner.load(directory.path)
        waiting = []
        for name, parsed in directory.partitions():
            path = f"{directory.path}/{name}"
            if parsed.kind is DirectoryKind.DELETE:
                manager.retire(path)
            elif parsed.kind is DirectoryKind.STRAY:
                logger.warning("%s is stray and is left alone", path)
            else:
                waiting.append((path, parsed))
        logger.info(
            "loading %s logs of %s, %s",
            len(waiting),
            directory.path,
            "cleanly shut down" if directory.was_clean else "with recovery",
        )
        # Popped from the end by several workers.
        waiting.reverse()
        workers = [_load_logs(manager, directory, waiting, configs) for _ in range(at_once)]
        await asyncio.gather(*workers)
        directory.is_loaded = True
    except OSError as error:
        manager.fail_directory(directory.path, error)


async def _load_logs(
    manager: "LogManager",
    directory: LogDirectory,
    waiting: list[tuple[str, PartitionDirectory]],
    configs: Configs,
) -> None:
    while waiting and directory.path in manager.live_dirs:
        path, (topic_partition, kind) = waiting.pop()
        config = configs.get(topic_partition.topic, manager.default_config)
        try:
            log = await manager.offload(
                partial(manager.open_log, directory, path, topic_partition, config)
            )
        except OSError as error:
            error.filename = error.filename or path  # an operator must know where
            raise
        except Exception as error:
            manager.log_unusable(directory, path, topic_partition, error)
            continue
        logs = manager.future_logs if kind is DirectoryKind.FUTURE else manager.logs
        if topic_partition in logs:
            if kind is DirectoryKind.FUTURE:
                manager.set_copy_aside(directory, log, logs[topic_partition])
                continue
            log.close_files()
            raise DuplicateLog(
                f"{topic_partition} is in {logs[topic_partition].directory} and in {path}: move "
                "away the one that was not in use last"
            )
        logs[topic_partition] = log
        manager.cleaner.lower_cleaned_offset(log)
        directory.log_count += 1
        if log.lost_up_to is not None and kind is DirectoryKind.CURRENT:
            manager.log_shortened(log, log.lost_up_to)


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
