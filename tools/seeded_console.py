"""A cluster that has something to show on every screen, and a console for it.

The browser tests and `make screenshots` use it:

    with SeededConsole() as seeded:
        open_in_a_browser(seeded.link)
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek.client import Blocking, NewTopic, Producer
from odradek.testing.cluster import Cluster
from odradek.wire.topics import TopicPartition

ORDERS = "orders"
PARTITIONS = 12
# What a client can send to run in, hide from or break a page. Acceptance 28 and 29.
HOSTILE = "<script>document.title='run'</script><img src=x onerror=alert(1)>\u202e\0\x1b[31m\u200b"
HOSTILE_GROUPS = ("../../etc", "..", "?a=1#b", "%2e%2e", HOSTILE.replace("\0", ""))
PAGES = ("/", "/cart", "/checkout", "/orders", "/help")
READY_S = 60.0


class SeededConsole:
    """Three brokers in two racks, some topics with records, groups that are behind, a failover."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._stack = ExitStack()
        self.link = ""

    def __enter__(self) -> Self:
        try:
            self.cluster = self._stack.enter_context(Cluster(brokers=3, racks=["a", "a", "b"]))
            with Blocking(self.cluster.bootstrap_servers, client_id="shop") as client:
                self._seed(client)
            self._fail_over()
            state = self._stack.enter_context(tempfile.TemporaryDirectory())
            self.link = self._stack.enter_context(
                console(self.cluster.bootstrap_servers, Path(state), *self._arguments)
            )
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def address(self) -> str:
        return self.link.partition("/#")[0]

    def _seed(self, client: Blocking) -> None:
        topics = [
            NewTopic(ORDERS, PARTITIONS, 3, configs={"retention.ms": "86400000"}),
            NewTopic("clicks", 6, 3, configs={"cleanup.policy": "compact"}),
            NewTopic("payments", 3, 2),
            # On two of three brokers, so that there is something to level.
            NewTopic("archive", assignment={p: (1 + p % 2, 2 - p % 2) for p in range(6)}),
            NewTopic("empty", 1, 1),
            NewTopic("t" * 249, 1, 1),
        ]
        for outcome in client.run(client.admin.create_topics(topics)).values():
            assert outcome is None, outcome
        client.run(self._produce(client))
        committed = {TopicPartition(ORDERS, p): 3 * p for p in range(PARTITIONS)}
        for group in ("billing", *HOSTILE_GROUPS):
            client.run(client.groups.alter_offsets(group, committed))

    async def _produce(self, client: Blocking) -> None:
        chance, now_ms = random.Random(4), time.time_ns() // 1_000_000
        async with Producer(client.client) as producer:
            for number in range(600):
                await producer.send(
                    ORDERS,
                    json.dumps(order(number, chance)).encode(),
                    key=f"user-{number % 40}".encode(),
                    headers=(("trace", f"{chance.getrandbits(64):016x}".encode()),),
                    timestamp_ms=now_ms - (600 - number) * 1000,
                )
                click = {"user": number % 40, "page": chance.choice(PAGES)}
                await producer.send("clicks", json.dumps(click).encode(), key=b"%d" % (number % 9))
            await producer.send(
                "payments",
                HOSTILE.encode(),
                key=HOSTILE.encode(),
                headers=((HOSTILE, HOSTILE.encode()),),
                partition=0,
            )
            await producer.send("payments", b"\xff\xfe\x00binary", key=None, partition=0)
            await producer.send("payments", None, key=b"tombstone", partition=0)
            await producer.send("payments", b"x" * 900_000, key=b"long", partition=1)

    def _fail_over(self) -> None:
        """One broker dies and comes back, so that the journal has something to say."""
        self.cluster.kill(3)
        self.cluster.wait_until(lambda: self.cluster.leader(ORDERS, 0) in (1, 2), "a new leader")
        self.cluster.start(3)


def order(number: int, chance: random.Random) -> Mapping[str, object]:
    lines = [
        {"sku": f"SKU-{chance.randrange(1000):03}", "count": chance.randrange(1, 4)}
        for _ in range(chance.randrange(1, 4))
    ]
    return {
        "order": {"id": 4200 + number, "total": round(chance.uniform(5, 250), 2), "lines": lines},
        "state": chance.choice(["new", "paid", "shipped"]),
    }


@contextmanager
def console(bootstrap: str, state: Path, *arguments: str) -> Iterator[str]:
    """A console process; gives the link it printed."""
    command = [sys.executable, "-m", "odradek", "console", "--bootstrap-server", bootstrap]
    command += ["--port", "0", "--state", str(state), *arguments]
    with (state / "console.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ}
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if "http" not in line:
            raise RuntimeError(f"no console: {line}{(state / 'console.log').read_text()}")
        yield line[line.index("http") :].strip()
    finally:
        process.terminate()
        process.wait(READY_S)
