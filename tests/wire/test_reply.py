"""Replies: now, later and exclusive, mapped, awaited and measured."""

import asyncio
from collections.abc import Callable

import pytest

from odradek.wire.reply import Exclusive, Later, Now, Promise, Reply, measured


class Watch:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.spent_s: list[float] = []

    def now(self) -> float:
        return self.time_s

    def work(self, seconds: float) -> None:
        self.time_s += seconds


async def test_a_reply_is_mapped_when_its_value_is_there() -> None:
    future: Promise[int] = Promise()

    async def three() -> int:
        return 3

    replies: list[Reply[int]] = [Reply.now(1), Reply.later(future), Reply.exclusive(three())]
    texts = [reply.map(lambda value: value + 1).map(str) for reply in replies]
    future.set_result(2)
    assert [await text.result() for text in texts] == ["2", "3", "4"]
    assert [type(text) for text in texts] == [Now, Later, Exclusive]


async def test_a_mapped_reply_keeps_its_size_and_what_is_done_when_the_client_leaves() -> None:
    left: list[str] = []
    future: Promise[int] = Promise()
    reply = Reply.later(future).while_waiting(100, lambda: left.append("left")).map(str).map(len)
    assert isinstance(reply, Later)
    assert reply.bytes_max == 100
    assert reply.abandon is not None
    reply.abandon()
    assert left == ["left"]


async def test_a_promise_hands_its_value_over_at_once() -> None:
    received: list[int] = []
    promise: Promise[int] = Promise()
    promise.hand_to(received.append)
    promise.set_result(1)
    assert received == [1]
    assert await promise == 1
    promise.hand_to(received.append)
    assert received == [1, 1]


async def test_time_is_measured_where_it_is_worked_and_not_where_it_is_waited() -> None:
    watch = Watch()
    loop = asyncio.get_running_loop()

    async def coroutine() -> str:
        watch.work(1)
        await asyncio.sleep(0)
        watch.work(2)
        return "done"

    future: Promise[str] = Promise()

    def finish(text: str) -> str:
        watch.work(3)
        return text

    def later() -> Reply[str]:
        watch.work(4)
        return Reply.later(future).map(finish)

    def now() -> Reply[str]:
        watch.work(5)
        return Reply.now("done")

    async def spent(serve: Callable[[], Reply[str]]) -> float:
        watch.spent_s.clear()
        reply = measured(serve, watch.now, watch.spent_s.append)
        loop.call_soon(watch.work, 100)  # while it waits, or after it was served
        if not future.done():
            loop.call_soon(future.set_result, "done")
        assert await reply.result() == "done"
        (seconds,) = watch.spent_s
        return seconds

    assert await spent(lambda: Reply.exclusive(coroutine())) == 3
    assert await spent(later) == 7
    assert await spent(now) == 5


async def test_a_coroutine_that_is_measured_is_given_its_errors() -> None:
    watch = Watch()

    async def fails() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            watch.work(1)
            raise
        return ""

    reply = measured(lambda: Reply.exclusive(fails()), watch.now, watch.spent_s.append)
    task = asyncio.ensure_future(reply.result())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert watch.spent_s == [1]
