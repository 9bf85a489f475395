"""The simulated loop: virtual time, and processes that die, sleep and wake."""

import asyncio
import gc
import warnings
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from odradek.sim.loop import Deadlock, SimLoop


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop()
    yield loop
    loop.close()


def run(loop: SimLoop, coroutine: Coroutine[Any, Any, None]) -> None:
    loop.run_until_complete(coroutine)


def test_an_hour_passes_at_once_and_exactly(loop: SimLoop) -> None:
    run(loop, asyncio.sleep(3600))
    assert loop.time() == 3600


def test_timers_fire_in_order_of_time_then_of_scheduling(loop: SimLoop) -> None:
    fired: list[str] = []
    loop.call_later(2, fired.append, "late")
    loop.call_later(1, fired.append, "first")
    loop.call_later(1, fired.append, "second")
    run(loop, asyncio.sleep(3))
    assert fired == ["first", "second", "late"]


def test_a_cancelled_timer_does_not_fire(loop: SimLoop) -> None:
    fired: list[str] = []
    loop.call_later(1, fired.append, "x").cancel()
    run(loop, asyncio.sleep(2))
    assert fired == []


def test_waiting_for_what_never_happens_is_a_deadlock_not_a_hang(loop: SimLoop) -> None:
    async def forever() -> None:
        await loop.create_future()

    task = loop.create_task(forever())
    with pytest.raises(Deadlock):
        loop.run_until_complete(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_killed_process_runs_nothing_more_not_even_finally(loop: SimLoop) -> None:
    seen: list[str] = []

    async def worker() -> None:
        try:
            while True:
                seen.append(f"tick {loop.time():.0f}")
                await asyncio.sleep(1)
        finally:
            seen.append("finally")

    async def world() -> None:
        process = loop.process("a")
        process.run(worker())
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(10)

    run(loop, world())
    assert seen == ["tick 0", "tick 1", "tick 2"]


def test_what_a_killed_process_would_have_awaited_is_dropped_in_silence(loop: SimLoop) -> None:
    process = loop.process("host")

    async def inner() -> None:
        raise AssertionError("it is never begun")

    def begin() -> None:
        later = inner()

        async def outer() -> None:
            await later

        process.run(outer())

    async def story() -> None:
        begin()
        process.kill()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run(loop, story())
        loop.clear_graveyard()
        gc.collect()
    assert not any("inner" in str(warning.message) for warning in seen)


def test_children_of_a_process_die_with_it(loop: SimLoop) -> None:
    seen: list[str] = []

    async def child() -> None:
        await asyncio.sleep(1)
        seen.append("child lived")

    async def parent() -> None:
        task = asyncio.get_running_loop().create_task(child())
        loop.call_later(1, seen.append, "timer lived")
        await task

    async def world() -> None:
        process = loop.process("a")
        process.run(parent())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(5)

    run(loop, world())
    assert seen == []


def test_a_paused_process_sleeps_and_does_it_all_late_in_order(loop: SimLoop) -> None:
    seen: list[tuple[str, float]] = []

    async def world() -> None:
        process = loop.process("a")

        def schedule() -> None:
            for delay in (1, 2, 3):
                loop.call_later(delay, lambda d=delay: seen.append((f"due {d}", loop.time())))

        process.call(schedule)
        process.pause()
        await asyncio.sleep(2.5)
        process.resume()
        await asyncio.sleep(5)

    run(loop, world())
    assert seen == [("due 1", 2.5), ("due 2", 2.5), ("due 3", 3.0)]


def test_an_exception_that_is_never_awaited_is_kept_as_a_finding(loop: SimLoop) -> None:
    def broken() -> None:
        raise ValueError("planted")

    loop.call_soon(broken)
    run(loop, asyncio.sleep(1))
    assert [str(failure["exception"]) for failure in loop.failures] == ["planted"]


def test_offloaded_work_is_done_in_place(loop: SimLoop) -> None:
    async def world() -> None:
        assert await loop.run_in_executor(None, lambda: 41 + 1) == 42
        with pytest.raises(KeyError):
            await loop.run_in_executor(None, {}.__getitem__, "missing")

    run(loop, world())
