"""Operations that wait, and the wheel that ends them."""

import asyncio
import random
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

import pytest
from tests.bytecodes import counted

from odradek.replica.delayed import BUCKETS_MIN, TICK_S, Delayed, TimeoutWheel
from odradek.sim.loop import SimLoop

Arguments = TypeVarTuple("Arguments")


class Operation(Delayed):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self.expired_at: float | None = None
        self.left = 0

    def unregister(self) -> None:
        self.left += 1

    def expire(self) -> None:
        if self.finish():
            self.expired_at = self._loop.time()


class CountingLoop(SimLoop):
    """Counts the timers that were set: each is a wake-up."""

    timers = 0

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(when, callback, *args, context=context)


@pytest.fixture
def loop() -> CountingLoop:
    return CountingLoop()


def test_each_expires_after_its_time_and_within_a_tick(loop: SimLoop) -> None:
    wheel = TimeoutWheel(loop)
    rng = random.Random(1)
    due = [(Operation(loop), rng.uniform(0.001, 40)) for _ in range(500)]
    for operation, timeout in due:
        wheel.add(operation, timeout)
    assert len(wheel) == 500
    loop.run_until_complete(asyncio.sleep(41))
    for operation, timeout in due:
        assert operation.expired_at is not None
        assert timeout <= operation.expired_at <= timeout + 2 * TICK_S
        assert operation.left == 1
    assert len(wheel) == 0


def test_one_that_ends_before_does_not_expire(loop: SimLoop) -> None:
    wheel = TimeoutWheel(loop)
    operation = Operation(loop)
    wheel.add(operation, 1.0)
    assert operation.finish()
    assert not operation.finish()
    loop.run_until_complete(asyncio.sleep(2))
    assert operation.expired_at is None
    assert (operation.left, len(wheel)) == (1, 0)


def test_who_has_ended_leaves_no_bucket_behind_however_late_it_was_due(loop: SimLoop) -> None:
    wheel = TimeoutWheel(loop)
    kept = []
    for number in range(3 * BUCKETS_MIN):
        operation = Operation(loop)
        wheel.add(operation, 1_000_000 - number * TICK_S)
        if number % 1000:
            operation.finish()
        else:
            kept.append(operation)
    assert wheel.statistics()["buckets"] <= BUCKETS_MIN
    assert len(wheel) == len(kept)
    soon = Operation(loop)
    wheel.add(soon, 1.0)
    loop.run_until_complete(asyncio.sleep(2))
    assert soon.expired_at is not None
    assert not any(operation.done for operation in kept)
    loop.run_until_complete(asyncio.sleep(1_000_000))
    assert all(operation.expired_at is not None for operation in kept)
    assert wheel.statistics()["buckets"] == 0


def test_without_waiters_there_is_no_wakeup(loop: CountingLoop) -> None:
    wheel = TimeoutWheel(loop)
    for _ in range(100):
        operation = Operation(loop)
        wheel.add(operation, 1.0)
        operation.finish()
    assert loop.timers == 1
    loop.run_until_complete(asyncio.sleep(100))
    assert loop.timers == 2  # the second is the sleep's own


def test_few_wakeups_however_many_wait(loop: CountingLoop) -> None:
    wheel = TimeoutWheel(loop)
    for _ in range(10_000):
        wheel.add(Operation(loop), 5.0)
    loop.run_until_complete(asyncio.sleep(6))
    assert loop.timers <= 3
    assert wheel.statistics() == {"waiting": 0, "expired": 10_000, "buckets": 0}


def test_an_earlier_one_added_later_expires_first(loop: SimLoop) -> None:
    wheel = TimeoutWheel(loop)
    late, soon = Operation(loop), Operation(loop)
    wheel.add(late, 10.0)
    wheel.add(soon, 0.5)
    loop.run_until_complete(asyncio.sleep(1))
    assert soon.expired_at is not None
    assert late.expired_at is None


def test_one_may_be_added_while_another_expires(loop: SimLoop) -> None:
    wheel = TimeoutWheel(loop)

    class Chain(Operation):
        def expire(self) -> None:
            super().expire()
            wheel.add(last, 0.5)

    last = Operation(loop)
    wheel.add(Chain(loop), 0.5)
    loop.run_until_complete(asyncio.sleep(2))
    assert last.expired_at == pytest.approx(1.0, abs=3 * TICK_S)


def test_the_cost_does_not_grow_with_the_number_waiting(loop: SimLoop) -> None:
    def cost(waiting: int) -> int:
        wheel = TimeoutWheel(loop)
        for _ in range(waiting):
            wheel.add(Operation(loop), 30.0)
        with counted() as count:
            for _ in range(2000):
                operation = Operation(loop)
                wheel.add(operation, 30.0)
                operation.finish()
        wheel.close()
        return count.value

    # What is over is swept out when there is as much of it as of what waits.
    assert cost(50_000) < 2 * cost(10)
