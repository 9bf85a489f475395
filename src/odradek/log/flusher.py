"""Flushes logs, off the loop where it blocks: those that have rolled, and those that are due.

Topic ids are written here too: a cluster that is upgraded brings those of all logs at once, and
none is needed on disk before its log's next append.
"""

import logging
from collections.abc import Callable
from functools import partial
from itertools import islice
from uuid import UUID

from odradek.log.disk import FILES_SYNCED_APART_MAX, Disk
from odradek.log.flush import Flush
from odradek.log.log import Log
from odradek.log.offload import Offload
from odradek.log.partition_metadata import EarlyFile, write_early_files
from odradek.wire.errors import KafkaError

logger = logging.getLogger(__name__)

# How many topic ids are written at a time: so many files are synced as one (`Disk.sync_files`), and
# making them takes the loop a few milliseconds.
IDS_AT_ONCE = FILES_SYNCED_APART_MAX


class Flusher:
    """The logs of a broker that have something to write. `wake` has `run` called soon."""

    def __init__(self, disk: Disk, offload: Offload, wake: Callable[[], None]) -> None:
        self._disk = disk
        self.offload = offload
        self._wake = wake
        self._to_flush: set[Log] = set()
        # Logs with a topic id that is not on disk yet, in the order they got it.
        self._without_id: dict[Log, None] = {}

    @property
    def to_flush_count(self) -> int:
        return sum(not log.offline for log in self._to_flush)

    def flush_soon(self, log: Log) -> None:
        self._to_flush.add(log)
        self._wake()

    def assign_topic_id(self, log: Log, topic_id: UUID) -> None:
        """Say whose log this is. It is written when there is time, or before the next append."""
        if log.metadata.assign(topic_id):
            self._without_id[log] = None
            self._wake()

    async def run(self) -> None:
        """Write the topic ids that logs were given, and flush the logs that have rolled."""
        while self._without_id:
            await self._write_topic_ids()
        while self._to_flush:
            await self.flush(next(iter(self._to_flush)))

    async def flush(self, log: Log) -> None:
        self._to_flush.discard(log)
        try:
            while not log.offline and (flush := log.start_flush()) is not None:
                if await self._sync(log, flush):
                    log.finish_flush(flush)
                    return
        except KafkaError as error:
            logger.error("cannot flush %s: %s", log, error.message)

    async def _sync(self, log: Log, flush: Flush) -> bool:
        """Whether all was synced. A copy that took its log's place meanwhile was renamed: that it
        is not found is no failure of the disk, but it is to be synced again where it is now."""
        try:
            await self.offload(flush.sync)
        except OSError as error:
            moved = log.directory != flush.directory and isinstance(error, FileNotFoundError)
            if not log.offline and not moved:
                log.fail(error)
        return not log.offline and log.directory == flush.directory

    async def _write_topic_ids(self) -> None:
        writing: dict[EarlyFile, Log] = {}
        for log in list(islice(self._without_id, IDS_AT_ONCE)):
            del self._without_id[log]
            try:
                file = None if log.offline else log.metadata.start_write()
            except OSError as error:
                log.fail(error)
            else:
                if file is not None:
                    writing[file] = log
        if not writing:
            return
        failed = await self.offload(partial(write_early_files, self._disk, list(writing)))
        for file, log in writing.items():
            is_here = log.directory == file.directory
            log.metadata.finish_write(is_on_disk=is_here and file not in failed)
            if file in failed and is_here and not log.offline:
                log.fail(failed[file])
