"""Closes the logs of a broker, several at a time and off the loop."""

import asyncio
import logging
from functools import partial

from odradek.log.damaged_logs import DamagedLogs
from odradek.log.directory_checkpoints import DirectoryCheckpoints
from odradek.log.host import LogEnvironment
from odradek.log.loader import take_some
from odradek.log.log import Log
from odradek.log.log_dirs import LogDirs
from odradek.log.log_registry import LogRegistry
from odradek.wire.errors import KafkaError

logger = logging.getLogger(__name__)

# Threads that close logs. All syncs come later, together: more would only wait for each other.
CLOSED_AT_ONCE = 2


class LogCloser:
    """The last step of a broker: directories that need no recovery, here or in Kafka."""

    def __init__(
        self,
        environment: LogEnvironment,
        dirs: LogDirs,
        registry: LogRegistry,
        checkpoints: DirectoryCheckpoints,
        damaged: DamagedLogs,
    ) -> None:
        self._environment = environment
        self._dirs = dirs
        self._registry = registry
        self._checkpoints = checkpoints
        self._damaged = damaged

    async def close(self) -> None:
        """Close every log, and mark each directory clean in which all went well."""
        for path in list(self._dirs.live):
            waiting = self._registry.in_directory(path)
            to_sync: list[str] = []
            with self._damaged.failures_held():
                await asyncio.gather(
                    *(self._close_logs(waiting, to_sync) for _ in range(CLOSED_AT_ONCE))
                )
            if path not in self._dirs.live:
                continue
            failure = await self._environment.sync_files(to_sync)
            if failure is not None:
                self._dirs.fail(path, failure)
            if self._checkpoints.write_offsets(path):
                self._dirs.on_each([path], self._mark_clean)
        self.close_files()

    async def _close_logs(self, waiting: list[Log], to_sync: list[str]) -> None:
        def close(logs: list[Log]) -> None:
            for log in logs:
                try:
                    log.close(to_sync)
                except KafkaError as error:
                    logger.error("cannot close %s: %s", log, error.message)

        while waiting:
            await self._environment.offload(partial(close, take_some(waiting)))

    def _mark_clean(self, path: str) -> None:
        directory = self._dirs.live[path]
        if directory.offline_logs:
            logger.warning(
                "%s is not marked as cleanly shut down: %s are offline",
                path,
                ", ".join(map(str, directory.offline_logs)),
            )
        else:
            directory.mark_clean(self._registry.in_directory(path))

    def close_files(self) -> None:
        """Let go of all files and locks without writing anything."""
        for log in self._registry.all():
            log.close_files()
        self._dirs.release()
