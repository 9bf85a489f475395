"""The client for code without an event loop: the command line, Spark tasks, notebooks.

    with Blocking("127.0.0.1:9092") as cluster:
        topics = cluster.run(cluster.admin.list_topics())
        for batches in cluster.iterate(cluster.reader().batches(partition, 0, 100)):
            ...

One loop, on the calling thread, that runs only while a call is being made.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping
from random import Random
from typing import Any, Self, TypeVar

from odradek.client.acls import Acls
from odradek.client.admin import Admin
from odradek.client.client import MISSING_TOPIC_S, TIMEOUT_S, Client
from odradek.client.groups import Groups
from odradek.client.quotas import Quotas
from odradek.client.reader import FETCH_BYTES, FETCH_WAIT_MS, Isolation, PartitionReader
from odradek.client.tokens import Tokens
from odradek.client.transactions import Transactions
from odradek.client.users import Users

T = TypeVar("T")


class Blocking:
    """A client and the loop it runs on. Use it as a context manager, or close it."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        *,
        client_id: str = "odradek",
        timeout_s: float = TIMEOUT_S,
        missing_topic_s: float = MISSING_TOPIC_S,
        rack: str = "",
        rng: Random | None = None,
        security: Mapping[str, str] | None = None,
    ) -> None:
        self.client = Client(
            bootstrap,
            client_id=client_id,
            timeout_s=timeout_s,
            missing_topic_s=missing_topic_s,
            rack=rack,
            rng=rng,
            security=security,
        )
        self.admin = Admin(self.client)
        self.groups = Groups(self.client)
        self.quotas = Quotas(self.client)
        self.transactions = Transactions(self.client)
        self.users = Users(self.client)
        self.acls = Acls(self.client)
        self.tokens = Tokens(self.client)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and the loop."""
        try:
            self._runner.run(self.client.close())
        finally:
            self._runner.close()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """The result of one call of the client."""
        return self._runner.run(call)

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """What an asynchronous iterator gives, one by one; it stands still in between."""

        async def following() -> tuple[bool, T | None]:
            try:
                return True, await anext(source)
            except StopAsyncIteration:
                return False, None

        try:
            while True:
                more, item = self._runner.run(following())
                if not more:
                    return
                yield item  # type: ignore[misc]  # an item, since there was more
        finally:
            close = getattr(source, "aclose", None)
            if close is not None:
                self._runner.run(close())

    def reader(
        self,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        fetch_bytes: int = FETCH_BYTES,
        wait_ms: int = FETCH_WAIT_MS,
    ) -> PartitionReader:
        """A reader of raw batches on this client."""
        return PartitionReader(
            self.client, isolation=isolation, fetch_bytes=fetch_bytes, wait_ms=wait_ms
        )
