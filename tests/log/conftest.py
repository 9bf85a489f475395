"""A host for tests of the log: a platter that outlives processes, and a clock that a test moves."""

import errno
import random
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.log.logs import NOW_MS, CrashingDisk, mounted

from odradek.sim.disk import SimDisk


class Died(BaseException):
    """The process ends here: no handler of the product may take it for an error to deal with."""


def _full() -> OSError:
    return OSError(errno.ENOSPC, "no space left on device")


class World:
    Died = Died

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.platter = SimDisk(self.clock)

    def clock(self) -> int:
        return self.now_ms

    def disk(self, changes: int | None = None, *, full: bool = False) -> CrashingDisk:
        """The disk as a new process sees it; locks of the one before are gone."""
        self.platter.locks.clear()
        error = _full if full else cast(Callable[[], Any], Died)
        return CrashingDisk(mounted(self.platter), changes, error)

    def lose_power(self, seed: int) -> None:
        self.platter.lose_power(random.Random(seed))

    def files(self, below: str) -> list[str]:
        return sorted(path for path in self.platter.files if path.startswith(below))


@pytest.fixture
def make_world() -> type[World]:
    return World


@pytest.fixture
def world() -> World:
    return World()
