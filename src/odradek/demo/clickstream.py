"""A stream of clicks that keeps the books: which of them the cluster acknowledged.

Clicks are made at a rate, keyed by user, and a few of them are broken on purpose. The producer runs
on an event loop in a thread of its own, so that a busy pipeline does not slow the users down.
"""

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random

from odradek.client.client import Client
from odradek.client.producer import Producer

PAGES = ("/", "/search", "/product", "/cart", "/checkout", "/help")
WEIGHTS = (30, 25, 25, 10, 5, 5)
LAST_PAGE = "/end-of-stream"
USERS = 200
BROKEN_SHARE = 0.01
TICK_S = 0.1


class ClickStream:
    """Makes clicks from `start` to `stop`. `acknowledged` has the ids of those that are safe."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        rate_per_s: int,
        rng: Random,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._rate_per_s = rate_per_s
        self._rng = rng
        self._now = now
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._next_id = 0
        self.acknowledged: set[int] = set()
        self.uncertain: set[int] = set()
        self.failure: BaseException | None = None

    @property
    def sent(self) -> int:
        return self._next_id

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send what is left and one last click, dated later: it closes all windows of time."""
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    async def _run(self) -> None:
        try:
            async with Client(self._bootstrap) as client, Producer(client) as producer:
                waiting: set[asyncio.Task[None]] = set()
                owed = 0.0
                while not self._stop.is_set():
                    owed += self._rate_per_s * TICK_S
                    while owed >= 1:
                        owed -= 1
                        await self._send(producer, waiting)
                    await asyncio.sleep(TICK_S)
                await producer.flush()
                await self._send(producer, waiting, is_last=True)
                await producer.flush()
                await asyncio.gather(*waiting)
        except BaseException as error:
            self.failure = error

    async def _send(
        self, producer: Producer, waiting: "set[asyncio.Task[None]]", is_last: bool = False
    ) -> None:
        number = self._next_id
        self._next_id += 1
        user, value = self.click(number, is_last)
        delivery = await producer.send(self._topic, value, key=user.encode())

        async def settle() -> None:
            try:
                await delivery
                self.acknowledged.add(number)
            except Exception:
                # Whether it arrived is unknown; the audit allows for either.
                self.uncertain.add(number)

        task = asyncio.ensure_future(settle())
        waiting.add(task)
        task.add_done_callback(waiting.discard)

    def click(self, number: int, is_last: bool = False) -> tuple[str, bytes]:
        """A user and what they did, as JSON; now and then with its end missing."""
        user = f"user-{self._rng.randrange(USERS)}"
        at = self._now() + (timedelta(hours=1) if is_last else timedelta())
        page = LAST_PAGE if is_last else self._rng.choices(PAGES, WEIGHTS)[0]
        text = json.dumps({"id": number, "user": user, "page": page, "at": at.isoformat()})
        is_broken = not is_last and self._rng.random() < BROKEN_SHARE
        return user, (text[:-20] if is_broken else text).encode()
