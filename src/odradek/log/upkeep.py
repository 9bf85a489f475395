"""What the logs of a broker need from time to time, as tasks on the loop.

Each task waits its interval, does its work log by log with the loop free in between, and goes on
whatever one log did: a disk error has taken that log's directory offline already.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.wire.errors import KafkaError
from odradek.wire.settings import configured

if TYPE_CHECKING:
    from odradek.log.log import Log
    from odradek.log.manager import LogManager

logger = logging.getLogger(__name__)

# How many topic ids are written at a time: the file system commits what is synced together once.
IDS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class UpkeepConfig:
    """How often, in milliseconds. The names are Kafka's without their `log.` prefix."""

    initial_task_delay_ms: int = configured("log.initial.task.delay.ms")
    retention_check_interval_ms: int = configured("log.retention.check.interval.ms")
    flush_scheduler_interval_ms: int = configured("log.flush.scheduler.interval.ms")
    flush_offset_checkpoint_interval_ms: int = configured("log.flush.offset.checkpoint.interval.ms")
    flush_start_offset_checkpoint_interval_ms: int = configured(
        "log.flush.start.offset.checkpoint.interval.ms"
    )
    producer_id_expiration_check_interval_ms: int = configured(
        "producer.id.expiration.check.interval.ms"
    )


class Upkeep:
    """The tasks of one log manager."""

    def __init__(self, manager: "LogManager", config: UpkeepConfig) -> None:
        self._manager = manager
        self.config = config
        self._tasks: list[asyncio.Task[None]] = []
        self._work = asyncio.Event()

    def start(self) -> None:
        assert not self._tasks, "started twice"
        config, manager = self.config, self._manager
        loop = asyncio.get_running_loop()
        every = (
            (config.retention_check_interval_ms, self.delete_old_segments),
            (config.flush_scheduler_interval_ms, self.flush_by_time),
            (
                config.flush_offset_checkpoint_interval_ms,
                _as_coroutine(manager.checkpoint_recovery_points),
            ),
            (
                config.flush_start_offset_checkpoint_interval_ms,
                _as_coroutine(manager.checkpoint_start_offsets),
            ),
            (config.producer_id_expiration_check_interval_ms, self.expire_producers),
        )
        for interval_ms, work in every:
            self._tasks.append(loop.create_task(self._repeat(interval_ms, work)))
        if manager.cleaner.config.enable:
            backoff_ms = manager.cleaner.config.backoff_ms
            self._tasks.append(loop.create_task(self._repeat(backoff_ms, manager.cleaner.run)))
        self._tasks.append(loop.create_task(self._work_off()))

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        """There is something to write, to flush or to remove."""
        self._work.set()

    async def delete_old_segments(self) -> None:
        await self._for_each_log(lambda log: log.delete_old_segments())

    async def expire_producers(self) -> None:
        now_ms = self._manager.clock()
        await self._for_each_log(lambda log: log.producers.remove_expired(now_ms))

    async def flush_by_time(self) -> None:
        """Flush the logs whose `flush.ms` has passed with something unflushed."""
        now_ms = self._manager.clock()
        for log in self._manager.all_logs():
            is_due = now_ms - log.last_flush_ms >= log.config.flush_ms
            if is_due and log.end_offset > log.recovery_point:
                await self._manager.flush(log)

    async def work_off(self) -> None:
        """Write the topic ids that logs were given, flush the logs that have rolled, remove the
        directories whose time has come."""
        manager = self._manager
        await asyncio.gather(*(self._write_topic_ids() for _ in range(IDS_AT_ONCE)))
        while manager.to_flush:
            await manager.flush(next(iter(manager.to_flush)))
        await manager.remove_retired()

    async def _write_topic_ids(self) -> None:
        manager = self._manager
        while manager.without_id_on_disk:
            log, _ = manager.without_id_on_disk.popitem()
            directory = log.directory
            try:
                write = None if log.offline else log.metadata.start_write()
                if write is None:
                    continue
                await manager.offload(write)
            except OSError as error:
                log.metadata.finish_write(is_on_disk=False)
                if log.directory == directory and not log.offline:
                    log.fail(error)
            else:
                log.metadata.finish_write(is_on_disk=log.directory == directory)

    async def _work_off(self) -> None:
        while True:
            self._work.clear()
            try:
                await self.work_off()
            except Exception:
                logger.exception("upkeep failed; it will be tried again")
            due_ms = self._manager.retired.next_due_ms
            wait_s = None if due_ms is None else max(0, due_ms - self._manager.clock()) / 1000
            try:
                # Not wait_for: in Python 3.11 it forgets a cancellation that comes with the event.
                async with asyncio.timeout(wait_s):
                    await self._work.wait()
            except TimeoutError:
                continue  # The next directory is due.

    async def _repeat(self, interval_ms: int, work: Callable[[], Awaitable[object]]) -> None:
        await asyncio.sleep(min(interval_ms, self.config.initial_task_delay_ms) / 1000)
        while True:
            try:
                await work()
            except Exception:
                logger.exception("upkeep failed; it will be tried again")
            await asyncio.sleep(interval_ms / 1000)

    async def _for_each_log(self, work: Callable[["Log"], object]) -> None:
        for log in self._manager.all_logs():
            try:
                if not log.offline:
                    work(log)
            except KafkaError as error:
                logger.error("%s: %s", log, error.message)
            await asyncio.sleep(0)


def _as_coroutine(work: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        work()

    return run
