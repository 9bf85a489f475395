"""An asyncio event loop whose time is a number: virtual time, simulated processes, no sockets.

Rules
1. Time passes only when nothing is ready: the loop jumps to the next timer. Hours cost what their
   events cost.
2. Every callback belongs to the simulated process that was current when it was scheduled (the
   context says which). A dead process's callbacks never run; a paused one's run when it wakes, in
   order, late, as after SIGSTOP and SIGCONT.
3. The same seed gives the same order: nothing here depends on the machine, its clock or its hash
   seed.

The product's code runs on it unchanged: it asks the running loop for time, timers, servers and
connections, and gets simulated ones.
"""

import asyncio
import contextlib
import contextvars
import heapq
import inspect
import warnings
from asyncio import base_events, events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .network import Network

T = TypeVar("T")

# Timers closer together than this run in one turn, as on a real loop.
CLOCK_RESOLUTION_S = 1e-9

PROCESS: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)


class Deadlock(Exception):
    """Nothing is ready, no timer is set, and a task still waits."""


class Process:
    """One simulated operating-system process: what it scheduled dies, sleeps and wakes with it."""

    def __init__(self, loop: "SimLoop", host: str) -> None:
        self.loop = loop
        self.host = host
        self.alive = True
        self.paused = False
        self.running = True  # alive and not paused
        self._tasks: list[asyncio.Task[Any]] = []
        self._deferred: list[events.Handle] = []
        self._on_kill: list[Callable[[], None]] = []
        # What other parts of the world (network, timers) use to act in this process's name.
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    def run(self, coroutine: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Start a coroutine inside this process."""
        assert self.alive, f"process on {self.host} is dead"
        return self.loop.create_task(coroutine, name=name, context=self.context.copy())

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function as if this process did: what it schedules belongs to the process."""
        return self.context.copy().run(function, *arguments)

    def on_kill(self, callback: Callable[[], None]) -> None:
        """What the operating system does when the process is gone: drop its locks and files."""
        self._on_kill.append(callback)

    def kill(self) -> None:
        """SIGKILL: no further instruction of this process runs."""
        if not self.alive:
            return
        self.alive = self.paused = self.running = False
        self._deferred.clear()
        if self.loop.network is not None:
            self.loop.network.process_died(self)
        for callback in self._on_kill:
            callback()
        self.loop.bury(self._tasks)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.alive:
            self.paused = True
            self.running = False

    def resume(self) -> None:
        """SIGCONT: everything that came due meanwhile runs now, in the order it came due."""
        if not self.paused:
            return
        self.paused = False
        self.running = True
        deferred, self._deferred = self._deferred, []
        self.loop.reschedule(deferred)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks.append(task)
        if len(self._tasks) > 256:
            self._tasks = [task for task in self._tasks if not task.done()]

    def defer(self, handle: events.Handle) -> None:
        """A callback came due that may not run now: a paused process keeps it for later."""
        if self.paused:
            self._deferred.append(handle)


class _Handle(events.Handle):
    """As the base class, without asking about debugging: one is made for every step."""

    __slots__ = ("process",)
    process: Process | None

    def __init__(
        self, callback: Any, args: Any, loop: "SimLoop", context: contextvars.Context | None
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self.process = self._context.get(PROCESS)

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = None, ()


class _Timer(events.TimerHandle):
    """Likewise; most are time-outs, which are cancelled long before they are due."""

    __slots__ = ("process",)
    process: Process | None

    def __init__(
        self,
        when: float,
        callback: Any,
        args: Any,
        loop: "SimLoop",
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = True
        self.process = self._context.get(PROCESS)

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback, self._args = None, ()
            self._loop._timer_handle_cancelled(self)


class SimLoop(base_events.BaseEventLoop):
    """The loop. `network` answers create_server and create_connection."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        # Timers due at one instant fire in the order they were set: byte streams rely on it.
        self._timers: list[tuple[float, int, _Timer]] = []
        self._timers_set = 0
        self._timers_cancelled = 0
        self.network: Network | None = None
        self.steps = 0
        self._graveyard: list[asyncio.Task[Any]] = []
        self.failures: list[dict[str, Any]] = []
        # Asked for every task and future; the answer is no, and the built-in says so fastest.
        self.get_debug = bool  # type: ignore[method-assign]
        self.set_task_factory(_task_factory)
        self.set_exception_handler(_remember_failure)

    def time(self) -> float:
        return self._now

    def process(self, host: str) -> Process:
        return Process(self, host)

    def _run_once(self) -> None:
        """Turn after turn until the loop is stopped: what is due joins what is ready, and what
        was ready at the turn's begin runs."""
        ready: deque[_Handle | _Timer] = self._ready  # type: ignore[attr-defined]  # inherited
        while True:
            timers = self._timers
            if not ready:
                while timers and timers[0][2]._cancelled:
                    heapq.heappop(timers)
                    self._timers_cancelled -= 1
                if not timers:
                    raise Deadlock("nothing is scheduled and nothing is ready")
                self._now = max(self._now, timers[0][0])
            due = self._now + CLOCK_RESOLUTION_S
            while timers and timers[0][0] <= due:
                timer = heapq.heappop(timers)[2]
                timer._scheduled = False
                if timer._cancelled:
                    self._timers_cancelled -= 1
                else:
                    ready.append(timer)
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                process = handle.process
                if process is not None and not process.running:
                    process.defer(handle)
                    continue
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler(
                        {"message": f"in {handle}", "exception": error, "handle": handle}
                    )
            if self._stopping:  # type: ignore[attr-defined]  # inherited
                return

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """Do not carry those along that will never fire."""
        if not handle._scheduled:  # type: ignore[attr-defined]  # it has left the timers
            return
        self._timers_cancelled += 1
        if self._timers_cancelled > 100 and 2 * self._timers_cancelled > len(self._timers):
            # In place: the turn that runs now holds the list.
            self._timers[:] = [entry for entry in self._timers if not entry[2]._cancelled]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def _write_to_self(self) -> None:
        """There is no other thread that could need waking."""

    def call_soon(  # type: ignore[override]  # typeshed spells the arguments as a TypeVarTuple
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> events.Handle:
        if self._closed:  # type: ignore[attr-defined]  # inherited
            raise RuntimeError("Event loop is closed")
        self.steps += 1
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]  # BaseEventLoop's own queue
        return handle

    def call_later(  # type: ignore[override]  # as above
        self,
        delay: float,
        callback: Any,
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> events.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # as above
        self,
        when: float,
        callback: Any,
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> events.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, timer))
        return timer

    def reschedule(self, handles: list[events.Handle]) -> None:
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def bury(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Keep a dead process's tasks until the end: no `finally` of theirs runs."""
        with dropping_work():
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                work = task.get_coro()
                if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == "CORO_CREATED":
                    work.close()  # it never began: nothing of it may be missed
        self._graveyard.extend(task for task in tasks if not task.done())

    def clear_graveyard(self) -> None:
        """At the end of the world: what killed processes do in their `finally` does not count."""
        with dropping_work():
            for task in self._graveyard:
                work = task.get_coro()
                if inspect.iscoroutine(work):
                    with contextlib.suppress(Exception):
                        work.close()
            self._graveyard.clear()

    async def create_server(
        self,
        protocol_factory: Any,
        host: Any = None,
        port: Any = None,
        *,
        start_serving: bool = True,
        **_: Any,
    ) -> Any:
        assert self.network is not None, "this loop has no network"
        return self.network.listen(protocol_factory, host, port, start_serving)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        assert self.network is not None, "this loop has no network"
        return await self.network.connect(protocol_factory, host, port)

    def run_in_executor(  # type: ignore[override]  # as above
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        """A simulated process has one thread: the work is done at once, in its place."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


@contextlib.contextmanager
def dropping_work() -> Iterator[None]:
    """While a dead process's work is thrown away: that it had coroutines which it would have
    awaited later is no mistake of the program."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        yield


def _process_of(context: contextvars.Context | None) -> Process | None:
    return PROCESS.get() if context is None else context.get(PROCESS)


def _task_factory(loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    process = _process_of(options.get("context"))
    if process is not None:
        process.adopt(task)
    return task


def _remember_failure(loop: Any, context: dict[str, Any]) -> None:
    """An exception that was never awaited is a finding, whichever process it happened in."""
    loop.failures.append(context)
