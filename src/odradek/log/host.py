"""What logs need from the broker that owns them: a disk, the time, chance, and callbacks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from odradek.log.disk import Disk
from odradek.log.offload import Offload
from odradek.log.producers import EXPIRATION_MS_DEFAULT
from odradek.log.tail import Tails

if TYPE_CHECKING:
    from odradek.log.log import Log


def _no_op(log: "Log") -> None: ...


def _call_now(delay_s: float, action: Callable[[], None]) -> None:
    action()


def _ignore_failure(log: "Log", error: Exception) -> None: ...


def _no_jitter(limit_ms: int) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class LogEnvironment:
    """The outside world of a log manager; the simulator has one of its own."""

    disk: Disk
    # Milliseconds since 1970.
    clock: Callable[[], int]
    # Runs blocking work off the loop.
    offload: Offload
    rng: Random
    # Of this machine; empty where the system has no name for it.
    boot_id: str = ""

    async def sync_files(self, paths: list[str]) -> OSError | None:
        """All files of many logs together, which is one transaction for the file system; returns
        why they are not synced, if so."""
        if paths:
            try:
                await self.offload(partial(self.disk.sync_files, paths))
            except OSError as error:
                return error
        return None


@dataclass(frozen=True, slots=True)
class LogHost:
    """Shared by all logs of a broker. Callbacks run on the loop, inside the call that caused them.
    The defaults suit a log without a log manager."""

    disk: Disk
    clock: Callable[[], int]
    producer_expiration_ms: int = EXPIRATION_MS_DEFAULT
    # Draws a number below its argument: segments of many logs must not all roll at once.
    jitter: Callable[[int], int] = _no_jitter
    # The log is offline: its disk has failed (OSError), or the log contradicts itself.
    on_failure: Callable[["Log", Exception], None] = _ignore_failure
    # A segment was rolled: flush the log when there is time.
    on_roll: Callable[["Log"], None] = _no_op
    # The log was truncated below its recovery point: the checkpoint on disk must follow at once,
    # or after a crash the bytes written there next would be believed unread.
    on_recovery_point_lowered: Callable[["Log"], None] = _no_op
    # Whether `partition.metadata` is kept; else it is removed at load.
    keeps_topic_ids: bool = True
    # loop.call_later: deleted files stay for `file.delete.delay.ms`.
    call_later: Callable[[float, Callable[[], None]], object] = _call_now
    # What was appended last, in memory.
    tails: Tails = field(default_factory=Tails)
