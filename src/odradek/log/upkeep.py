"""What the logs of a broker need from time to time, as tasks on the loop.

Each task waits its interval, does its work log by log with the loop free in between, and goes on
whatever one log did: a disk error has taken that log's directory offline already.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from odradek.log.cleaner import Cleaner
from odradek.log.directory_checkpoints import DirectoryCheckpoints
from odradek.log.flusher import Flusher
from odradek.log.host import LogEnvironment
from odradek.log.log import Log
from odradek.log.log_registry import LogRegistry
from odradek.log.retired_directories import RetiredDirectories
from odradek.wire.errors import KafkaError
from odradek.wire.settings import configured

logger = logging.getLogger(__name__)


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
    """The tasks of one broker's logs."""

    def __init__(
        self,
        config: UpkeepConfig,
        environment: LogEnvironment,
        registry: LogRegistry,
        checkpoints: DirectoryCheckpoints,
        flusher: Flusher,
        cleaner: Cleaner,
        retired: RetiredDirectories,
    ) -> None:
        self.config = config
        self._clock = environment.clock
        self._registry = registry
        self._checkpoints = checkpoints
        self._flusher = flusher
        self._cleaner = cleaner
        self._retired = retired
        self._tasks: list[asyncio.Task[None]] = []
        self._work = asyncio.Event()

    def start(self) -> None:
        assert not self._tasks, "started twice"
        config, checkpoints, cleaner = self.config, self._checkpoints, self._cleaner
        loop = asyncio.get_running_loop()
        every: list[tuple[int, Callable[[], Awaitable[object]]]] = [
            (config.retention_check_interval_ms, self.delete_old_segments),
            (config.flush_scheduler_interval_ms, self.flush_by_time),
            (
                config.flush_offset_checkpoint_interval_ms,
                _as_coroutine(checkpoints.write_recovery_points),
            ),
            (
                config.flush_start_offset_checkpoint_interval_ms,
                _as_coroutine(checkpoints.write_start_offsets),
            ),
            (config.producer_id_expiration_check_interval_ms, self.expire_producers),
        ]
        if cleaner.config.enable:
            every.append((cleaner.config.backoff_ms, cleaner.run))
        for interval_ms, work in every:
            self._tasks.append(loop.create_task(self._repeat(interval_ms, work)))
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
        now_ms = self._clock()
        await self._for_each_log(lambda log: log.producers.remove_expired(now_ms))

    async def flush_by_time(self) -> None:
        """Flush the logs whose `flush.ms` has passed with something unflushed."""
        now_ms = self._clock()
        for log in self._registry.all():
            is_due = now_ms - log.last_flush_ms >= log.config.flush_ms
            if is_due and log.end_offset > log.recovery_point:
                await self._flusher.flush(log)

    async def work_off(self) -> None:
        """Write and flush what waits for it, remove the directories whose time has come."""
        await self._flusher.run()
        await self._retired.remove_due(self._clock())

    async def _work_off(self) -> None:
        while True:
            self._work.clear()
            try:
                await self.work_off()
            except Exception:
                logger.exception("log maintenance failed; retrying")
            due_ms = self._retired.next_due_ms
            wait_s = None if due_ms is None else max(0, due_ms - self._clock()) / 1000
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
                logger.exception("log maintenance failed; retrying")
            await asyncio.sleep(interval_ms / 1000)

    async def _for_each_log(self, work: Callable[[Log], object]) -> None:
        for log in self._registry.all():
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
