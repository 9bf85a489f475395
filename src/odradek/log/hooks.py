"""What a log asks of its owner, the log manager. The defaults suit a log that has none."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.log.log import Log


def _nothing(log: "Log") -> None: ...


def _at_once(delay_s: float, action: Callable[[], None]) -> None:
    action()


def _no_failure(log: "Log", error: OSError) -> None: ...


@dataclass(frozen=True, slots=True)
class Hooks:
    """Called on the loop, from inside the call that brought it about."""

    # The disk has failed under this log.
    on_failure: Callable[["Log", OSError], None] = _no_failure
    # A segment was rolled: flush the log when there is time.
    on_roll: Callable[["Log"], None] = _nothing
    # The log was cut below its recovery point: the checkpoint on disk must follow at once, or a
    # crash would have the bytes written there next trusted unseen.
    on_recovery_point_lowered: Callable[["Log"], None] = _nothing
    # loop.call_later: deleted files stay for `file.delete.delay.ms`.
    call_later: Callable[[float, Callable[[], None]], object] = _at_once
