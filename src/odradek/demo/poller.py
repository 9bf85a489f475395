"""Polls a cluster on a thread of its own, so that the view never waits for a response.

A broker that has just been killed takes a while to be missed; whether its process runs is known at
once.
"""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from odradek.demo.view import BrokerLine, TopicLine
from odradek.operations.overview import rate
from odradek.spark.exactly_once import MARKS
from odradek.testing.cluster import Cluster

if TYPE_CHECKING:
    from odradek.client.blocking_client import Blocking
    from odradek.operations.overview import Overview

LOOK_S = 1.0
ASK_TIMEOUT_S = 2.0
INTERNAL = "__"


class ClusterPoller:
    """The last two looks at a cluster, from entering the block to leaving it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._addresses = dict(zip(cluster.ids, cluster.bootstrap_servers.split(","), strict=True))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_until_over, daemon=True)
        self._before: Overview | None = None
        self._now: Overview | None = None
        self._in_sync: Mapping[int, int] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look_until_over(self) -> None:
        from odradek.client.blocking_client import Blocking

        with Blocking(self._cluster.bootstrap_servers, timeout_s=ASK_TIMEOUT_S) as client:
            while not self._over.is_set():
                self._look(client)
                self._over.wait(LOOK_S)

    def _look(self, client: "Blocking") -> None:
        from odradek.operations.overview import read_overview
        from odradek.wire.errors import KafkaError

        try:
            now = client.run(read_overview(client.admin, measure=True))
        except (KafkaError, OSError, TimeoutError):
            return  # between two controllers: the next look will tell
        parts = [
            part
            for topic in client.client.metadata.topics.values()
            for part in topic.partitions.values()
        ]
        self._in_sync = {
            broker: sum(broker in part.isr for part in parts) for broker in self._cluster.ids
        }
        self._before, self._now = self._now, now

    def brokers(self) -> list[BrokerLine]:
        """Every broker that there should be."""
        running = self._cluster.running()
        return [self._broker(broker, broker in running) for broker in self._cluster.ids]

    def _broker(self, broker: int, is_running: bool) -> BrokerLine:
        now, before = self._now, self._before
        address = self._addresses[broker]
        state = now.brokers.get(broker) if now is not None else None
        if now is None or state is None or not is_running:
            is_coming = is_running or now is None
            return BrokerLine(broker, address, "starting" if is_coming else "down")
        earlier = before.brokers.get(broker) if before is not None else None
        return BrokerLine(
            id=broker,
            address=address,
            state="controller" if broker == now.controller else "up",
            leads=state.leads,
            in_sync=self._in_sync.get(broker, 0),
            holds=state.holds,
            size_bytes=state.size_bytes,
            rate=rate(now, before, state.size_bytes, earlier.size_bytes if earlier else None),
        )

    def topics(self) -> list[TopicLine]:
        """The topics that people made."""
        now, before = self._now, self._before
        if now is None:
            return []
        lines = []
        for name, topic in now.topics.items():
            if name.startswith(INTERNAL) or name == MARKS.topic:
                continue
            earlier = before.topics.get(name) if before is not None else None
            growth = rate(now, before, topic.records, earlier.records if earlier else None)
            is_well = not topic.under_replicated and not topic.offline
            lines.append(
                TopicLine(name, topic.partitions, topic.isr, is_well, topic.records, growth)
            )
        return lines
