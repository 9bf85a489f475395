"""The children that open records, from the console's side: started, asked, ended.

A page of records is asked of one child that stays. If it takes too long, or more memory than it
may have, it is ended, the request gets a message, and the next request gets a new child. A search
and a live tail each have a child of their own, and are cancelled by ending it. No child outlives
the console: each ends when its standard input does.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

from odradek.console.web import Problem

# The answer with a whole value; and a message of a search or tail, of which twice as much waits in
# memory while a tab does not read: then its child is held up.
LINE_BYTES_MAX = 64 * 1024 * 1024
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
BOUNDED = ("search", "tail")
READY_S = 30.0
CHILDREN_MAX = 16


class WorkerEnded(Exception):
    """The child ended before it had answered."""


class Worker:
    """One child process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, connect: Mapping[str, Any], line_bytes_max: int) -> "Worker":
        """Raises WorkerEnded, or OSError if no process can be started."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "odradek.console.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=line_bytes_max,
        )
        worker = cls(process)
        try:
            await worker.send(connect)
            async with asyncio.timeout(READY_S):
                await worker.read()
        except BaseException:
            await worker.end()
            raise
        return worker

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def send(self, message: Mapping[str, Any]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(message).encode() + b"\n")
            await stdin.drain()
        except OSError:
            raise WorkerEnded from None

    async def read(self) -> dict[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            line = await stdout.readline()
        except ValueError:
            raise WorkerEnded("an answer that is too long") from None
        if not line:
            raise WorkerEnded
        message: dict[str, Any] = json.loads(line)
        return message

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        self.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()


class Workers:
    """Hands out children, never more than so many at a time."""

    def __init__(self, connect: Mapping[str, Any], timeout_s: float) -> None:
        self._connect = dict(connect)
        self._timeout_s = timeout_s
        self._page: Worker | None = None
        self._lock = asyncio.Lock()
        self._children: set[Worker] = set()
        self._starting = 0
        self._jobs = 0

    async def ask(self, job: Mapping[str, Any]) -> Any:
        """The result of one short job. Raises Problem."""
        async with self._lock:
            worker = await self._page_worker()
            self._jobs += 1
            try:
                async with asyncio.timeout(self._timeout_s):
                    await worker.send({**job, "id": self._jobs})
                    while True:
                        message = await worker.read()
                        if message.get("id") == self._jobs:
                            return result_of(message)
            except TimeoutError:
                await self._drop_page()
                raise Problem(
                    504, f"this takes more than {self._timeout_s:.0f} s to open", error="TOO_LARGE"
                ) from None
            except WorkerEnded:
                await self._drop_page()
                raise Problem(
                    422, "this takes more memory to open than is allowed", error="TOO_LARGE"
                ) from None
            except asyncio.CancelledError:
                await self._drop_page()  # its answer would be read as that of the next job
                raise

    async def _page_worker(self) -> Worker:
        if self._page is None or not self._page.is_running:
            self._page = await self._start("")
        return self._page

    async def _drop_page(self) -> None:
        worker, self._page = self._page, None
        if worker is not None:
            await worker.end()

    async def _start(self, purpose: str) -> Worker:
        client_id = self._connect["client_id"] + (f"-{purpose}" if purpose else "")
        limit = MESSAGE_BYTES_MAX if purpose in BOUNDED else LINE_BYTES_MAX
        try:
            return await Worker.start({**self._connect, "client_id": client_id}, limit)
        except (WorkerEnded, OSError, TimeoutError) as error:
            raise Problem(503, f"no worker can be started: {error}") from None

    @contextlib.asynccontextmanager
    async def own(self, purpose: str) -> AsyncIterator[Worker]:
        """A child for one long job, ended with the block."""
        if len(self._children) + self._starting >= CHILDREN_MAX:
            raise Problem(429, f"{CHILDREN_MAX} searches and live tails are running already")
        self._starting += 1
        try:
            worker = await self._start(purpose)
        finally:
            self._starting -= 1
        self._children.add(worker)
        try:
            yield worker
        finally:
            self._children.discard(worker)
            await asyncio.shield(worker.end())

    def end_own(self) -> None:
        """Searches and tails end, as if their children had."""
        for worker in self._children:
            worker.kill()

    async def close(self) -> None:
        await asyncio.gather(*(worker.end() for worker in self._children), return_exceptions=True)
        await self._drop_page()


def result_of(message: Mapping[str, Any]) -> Any:
    """What a job brought. Raises Problem."""
    if "failed" in message:
        error = message.get("error")
        status = _STATUS.get(str(error), 422)
        raise Problem(status, message["failed"], error=error)
    return message["result"]


_STATUS = {
    "UNKNOWN_TOPIC_OR_PARTITION": 404,
    "OFFSET_OUT_OF_RANGE": 404,
    "REQUEST_TIMED_OUT": 504,
    "LEADER_NOT_AVAILABLE": 503,
    "TOPIC_AUTHORIZATION_FAILED": 403,
}
