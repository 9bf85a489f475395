"""A cluster that has something to show on every screen, and a console for it.

The browser tests and `make screenshots` use it:

    with SeededConsole() as seeded:
        open_in_a_browser(seeded.link)

With `lively=True`, for pictures, clients go on writing and reading, so that rates and charts have
something to show, and the names that attack a page are left out.
"""

import json
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import confluent_kafka

from odradek.client import Blocking, NewTopic, Producer
from odradek.client.quotas import QuotaEntity
from odradek.testing.cluster import Cluster
from odradek.testing.console import HeldConsole
from odradek.wire.topics import TopicPartition

ORDERS = "orders"
PARTITIONS = 12
# What a client can send to run in, hide from or break a page. Acceptance 28 and 29.
HOSTILE = "<script>document.title='run'</script><img src=x onerror=alert(1)>\u202e\0\x1b[31m\u200b"
HOSTILE_GROUPS = ("../../etc", "..", "?a=1#b", "%2e%2e", HOSTILE.replace("\0", ""))
HOSTILE_PIPELINE = "<img src=x onerror=alert(1)>/<img src=x onerror=alert(1)>"
PIPELINES, DEAD_LETTERS = "odradek.pipelines", "clicks.dead"
PAGES = ("/", "/cart", "/checkout", "/orders", "/help")
READY_S = 60.0
TRAFFIC_PAUSE_S, TRIGGER_S = 0.1, 10.0


class SeededConsole:
    """Three brokers in two racks, some topics with records, groups that are behind, a failover."""

    def __init__(self, lively: bool = False) -> None:
        self._is_lively = lively
        self._stack = ExitStack()
        self.link = ""

    def __enter__(self) -> Self:
        try:
            self.cluster = self._stack.enter_context(Cluster(brokers=3, racks=["a", "a", "b"]))
            with Blocking(self.cluster.bootstrap_servers, client_id="shop") as client:
                self._seed(client)
            self._fail_over()
            if self._is_lively:
                self._stack.enter_context(Traffic(self.cluster.bootstrap_servers))
            console = self._stack.enter_context(HeldConsole(self.cluster, port=0))
            self.link, self.console_pid = console.link, console.process_id
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
            NewTopic(PIPELINES, 1, 3, configs={"cleanup.policy": "compact"}),
            NewTopic(DEAD_LETTERS, 1, 3),
        ]
        if not self._is_lively:
            topics.append(NewTopic("t" * 249, 1, 1))
        for outcome in client.run(client.admin.create_topics(topics)).values():
            assert outcome is None, outcome
        client.run(self._produce(client))
        committed = {TopicPartition(ORDERS, p): 3 * p for p in range(PARTITIONS)}
        for group in ("billing", *(("fraud",) if self._is_lively else HOSTILE_GROUPS)):
            client.run(client.groups.alter_offsets(group, committed))
        limits = {"producer_byte_rate": 5_000_000.0, "request_percentage": 50.0}
        client.run(client.quotas.alter(QuotaEntity(client_id="etl"), limits))

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
            for number in range(24):  # so that a move has more to copy than one fetch brings
                await producer.send("archive", chance.randbytes(400_000), partition=number % 6)
            await producer.send("payments", b"\xff\xfe\x00binary", key=None, partition=0)
            await producer.send("payments", None, key=b"tombstone", partition=0)
            await producer.send("payments", b"x" * 900_000, key=b"long", partition=1)
            for batch in range(40):
                for key, report in reports(batch, now_ms - (40 - batch) * 10_000, chance):
                    if key != HOSTILE_PIPELINE or not self._is_lively:
                        value = json.dumps(report).encode()
                        await producer.send(PIPELINES, value, key=key.encode())
            hostile = () if self._is_lively else (HOSTILE,)
            for reason in ("page: not a string", "not JSON: at 1", *hostile):
                await producer.send(
                    DEAD_LETTERS,
                    b'{"user": 7, "page": 12}',
                    headers=(("odradek.reason", reason.encode()),),
                )

    def _fail_over(self) -> None:
        """One broker dies and comes back, so that the journal has something to say."""
        self.cluster.kill(3)
        self.cluster.wait_until(lambda: self.cluster.leader(ORDERS, 0) in (1, 2), "a new leader")
        self.cluster.start(3)


def reports(
    batch: int, time_ms: int, chance: random.Random
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """What the queries of two pipelines say after a batch: key and value of a record."""
    for key, lag, state_rows in (
        ("clicks/events", 12, 0),
        ("clicks/counts", 40, 1_204),
        (HOSTILE_PIPELINE, 0, 0),
    ):
        rows = chance.randrange(9_000, 16_000)
        yield (
            key,
            {
                "batch": 278 + batch,
                "time_ms": time_ms,
                "rows_in": rows,
                "rows_out": rows,
                "rows_in_per_s": rows / 10,
                "rows_out_per_s": rows / 10,
                "duration_ms": chance.randrange(1_200, 2_600),
                "trigger_ms": 10_000,
                "lag": {"clicks": lag},
                "state_rows": state_rows,
                "state_bytes": state_rows * 200,
                "dead_letters": 3,
                "dead_letter_topic": DEAD_LETTERS,
                "group": key,
                "is_active": True,
            },
        )


class Traffic:
    """Clients that write orders and clicks, and a group that reads them and keeps up."""

    def __init__(self, bootstrap: str) -> None:
        servers = {"bootstrap.servers": bootstrap}
        self._producer = confluent_kafka.Producer({**servers, "client.id": "etl", "linger.ms": 5})
        self._consumer = confluent_kafka.Consumer(
            {
                **servers,
                "client.id": "shipping-1",
                "group.id": "shipping",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
            }
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._consumer.subscribe([ORDERS])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._producer.flush(READY_S)
        self._consumer.close()

    def _run(self) -> None:
        chance, number, batch, report_s = random.Random(5), 600, 40, 0.0
        while not self._stopped.wait(TRAFFIC_PAUSE_S):
            for _ in range(chance.randrange(10, 60)):
                number += 1
                value = json.dumps(order(number, chance))
                self._producer.produce(ORDERS, value, key=f"user-{number % 40}")
            if time.monotonic() >= report_s:
                report_s, batch = time.monotonic() + TRIGGER_S, batch + 1
                for key, report in reports(batch, time.time_ns() // 1_000_000, chance):
                    if key != HOSTILE_PIPELINE:
                        self._producer.produce(PIPELINES, json.dumps(report), key=key)
            self._producer.poll(0)
            self._consumer.consume(100, timeout=0.01)


def order(number: int, chance: random.Random) -> Mapping[str, object]:
    lines = [
        {"sku": f"SKU-{chance.randrange(1000):03}", "count": chance.randrange(1, 4)}
        for _ in range(chance.randrange(1, 4))
    ]
    return {
        "order": {"id": 4200 + number, "total": round(chance.uniform(5, 250), 2), "lines": lines},
        "state": chance.choice(["new", "paid", "shipped"]),
    }
