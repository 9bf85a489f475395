"""The reply to a request: a value that is there now, or one that has to be waited for.

| kind | made with | while it is waited for |
|---|---|---|
| `Now` | `Reply.now(value)` | |
| `Later` | `Reply.later(future)` | the connection starts the requests behind this one |
| `Exclusive` | `Reply.exclusive(awaitable)` | the connection starts nothing else |

What a `Later` waits for is a `Promise`, a future that hands its value to one receiver at once: the
loop would take another turn, and ask the system for news, to call it.

Whatever the kind, replies leave in the order of their requests. `map` turns the value into another
one when it is there, so a handler says once how its response is made. `then` is for a next step
that may have to be waited for itself.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Promise(asyncio.Future[T]):
    """A future; its receiver, if it has one, is called by `set_result` itself."""

    _receiver: Callable[[T], None] | None = None

    def hand_to(self, receiver: Callable[[T], None]) -> None:
        if self.done():
            receiver(self.result())
        else:
            self._receiver = receiver

    def set_result(self, value: T, /) -> None:
        super().set_result(value)
        if self._receiver is not None:
            self._receiver(value)


class Reply(ABC, Generic[T]):
    """See the table above."""

    __slots__ = ()

    @staticmethod
    def now(value: U) -> Now[U]:
        return Now(value)

    @staticmethod
    def later(future: Promise[U]) -> Later[U]:
        return Later(future, _identity)

    @staticmethod
    def exclusive(awaitable: Awaitable[U]) -> Exclusive[U]:
        return Exclusive(awaitable)

    @abstractmethod
    def map(self, function: Callable[[T], U]) -> Reply[U]:
        """The reply whose value is `function` of this one's."""

    def while_waiting(self, bytes_max: int, abandon: Callable[[], None]) -> Reply[T]:
        """What the connection needs to know if the value has to be waited for: how large the
        response may get, and what to call if the client goes away before it is there."""
        return self

    def then(self, function: Callable[[T], Reply[U]]) -> Reply[U]:
        """The reply that `function` makes of this one's value; until then the connection starts
        nothing else."""
        return Exclusive(_chained(self, function))

    @abstractmethod
    async def result(self) -> T:
        """Waits for the value."""


class Now(Reply[T]):
    """A value that is there."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def map(self, function: Callable[[T], U]) -> Now[U]:
        return Now(function(self.value))

    def then(self, function: Callable[[T], Reply[U]]) -> Reply[U]:
        return function(self.value)

    async def result(self) -> T:
        return self.value


class Later(Reply[T]):
    """A value that comes with a future, by way of `finish`."""

    __slots__ = ("abandon", "bytes_max", "finish", "future")

    def __init__(
        self,
        future: Promise[Any],
        finish: Callable[[Any], T],
        bytes_max: int = 0,
        abandon: Callable[[], None] | None = None,
    ) -> None:
        self.future = future
        self.finish = finish
        self.bytes_max = bytes_max
        self.abandon = abandon

    def map(self, function: Callable[[T], U]) -> Later[U]:
        finish = self.finish
        if finish is _identity:
            return Later(self.future, function, self.bytes_max, self.abandon)
        return Later(
            self.future, lambda found: function(finish(found)), self.bytes_max, self.abandon
        )

    def while_waiting(self, bytes_max: int, abandon: Callable[[], None]) -> Later[T]:
        return Later(self.future, self.finish, bytes_max, abandon)

    async def result(self) -> T:
        return self.finish(await self.future)


class Exclusive(Reply[T]):
    """A value that an awaitable works out, with the connection to itself."""

    __slots__ = ("awaitable",)

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self.awaitable = awaitable

    def map(self, function: Callable[[T], U]) -> Exclusive[U]:
        return Exclusive(_mapped(self.awaitable, function))

    async def result(self) -> T:
        return await self.awaitable


def _identity(value: Any) -> Any:
    return value


async def _mapped(awaitable: Awaitable[T], function: Callable[[T], U]) -> U:
    return function(await awaitable)


async def _chained(reply: Reply[T], function: Callable[[T], Reply[U]]) -> U:
    return await function(await reply.result()).result()


def measured(
    serve: Callable[[], Reply[T]], now: Callable[[], float], spent: Callable[[float], None]
) -> Reply[T]:
    """Serves a request and passes the seconds it computed to `spent`, without those it waited.

    `spent` is called once, before the value is handed over.
    """
    begun = now()
    reply = serve()
    first_s = now() - begun
    if isinstance(reply, Later):
        finish = reply.finish

        def finished(found: Any) -> T:
            begun = now()
            value: T = finish(found)
            spent(first_s + now() - begun)
            return value

        return Later(reply.future, finished, reply.bytes_max, reply.abandon)
    if isinstance(reply, Exclusive) and isinstance(reply.awaitable, Coroutine):
        return Exclusive(_measured_coroutine(reply.awaitable, now, spent, first_s))
    # A value, or a future that another request completes: waiting for it costs nothing.
    spent(first_s)
    return reply


async def _measured_coroutine(
    work: Coroutine[Any, Any, T],
    now: Callable[[], float],
    spent: Callable[[float], None],
    first_s: float,
) -> T:
    steps_s = [first_s]
    try:
        return await _steps(work, now, steps_s)
    finally:
        spent(sum(steps_s))


@coroutine
def _steps(
    work: Coroutine[Any, Any, T], now: Callable[[], float], steps_s: list[float]
) -> Generator[Any, Any, T]:
    """Runs a coroutine and notes how long each of its steps takes: other tasks run in between."""
    resume = partial(work.send, None)
    while True:
        begun = now()
        try:
            awaited = resume()
        except StopIteration as done:
            value: T = done.value
            return value
        finally:
            steps_s.append(now() - begun)
        try:
            resume = partial(work.send, (yield awaited))
        except BaseException as error:  # whatever it is, the coroutine is to have it
            resume = partial(work.throw, error)
