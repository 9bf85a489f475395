"""`odradek rebalance watch`: observes the cluster, and repairs what `healing` says is due.

As many watchers may run as one likes: the member of group `__odradek_watch` that has the partition
of `__odradek_plans` acts, the others wait. All that it does is a plan in that topic, so a watcher
that dies forgets only its clocks: they start again, and nothing is done too early.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from odradek.balance import execution
from odradek.balance.healing import Diagnosis, Healer, Repair, Seen, Trigger, Trouble, plan_repair
from odradek.balance.plan_store import TOPIC, PlanStore, RunState, StoredPlans
from odradek.client.admin import Admin
from odradek.client.group_member import GroupMember
from odradek.client.metadata import Metadata
from odradek.operations.plan import assignment_of
from odradek.operations.reassignment import replica_sizes
from odradek.placement import Broker
from odradek.wire.errors import KafkaError
from odradek.wire.topics import TopicPartition

GROUP = "__odradek_watch"
BY = "watch"
DISK_FULL = 0.9


class Report(NamedTuple):
    """One look at the cluster: what was found, and what was done about it."""

    diagnosis: Diagnosis
    done: str = ""


class Watcher:
    """Looks, and acts if it is the one that may."""

    def __init__(
        self, admin: Admin, healer: Healer, *, throttle: int, clock_ms: Callable[[], int]
    ) -> None:
        self._admin = admin
        self._store = PlanStore(admin)
        self._healer = healer
        self._throttle = throttle
        self._clock_ms = clock_ms

    async def run(self, interval_s: float) -> AsyncIterator[Report]:
        """One report after the other, as long as this member may act."""
        await self._store.ensure_topic()
        async with GroupMember(self._admin.client, GROUP, [TOPIC]) as member:
            while True:
                try:
                    partitions = await member.join()
                    while not member.must_rejoin:
                        if partitions:
                            yield await self.look()
                        await asyncio.sleep(interval_s)
                except (KafkaError, OSError, TimeoutError) as error:
                    # The cluster is not well, or out of reach: all the more reason to go on.
                    yield Report(Diagnosis(news=(f"could not look: {error}",)))
                    await asyncio.sleep(interval_s)

    async def look(self) -> Report:
        """Observe once, and start the repair that is due."""
        now_ms = self._clock_ms()
        stored = await execution.settle(self._admin, self._store, await self._store.read(), now_ms)
        for id in stored.running():
            if stored.run(id).is_fed:
                await execution.feed(self._admin, stored, id)
        metadata = await self._admin.client.refresh(None)
        if returned := await self._stop_for_those_back(stored, metadata):
            return Report(Diagnosis(), returned)
        seen = await self._seen(stored, metadata, now_ms)
        diagnosis = self._healer.observe(seen)
        if diagnosis.repair is None:
            return Report(diagnosis)
        repair = await self._plan(diagnosis.repair, stored, metadata, now_ms)
        left = f"; no help for {', '.join(repair.hopeless[:5])}" if repair.hopeless else ""
        if not repair.plan.moves:
            return Report(diagnosis, f"{diagnosis.repair}: nothing can be moved{left}")
        by = f"{BY}: {diagnosis.repair}"
        applied = await execution.apply(
            self._admin, self._store, repair.plan, throttle=self._throttle, by=by, now_ms=now_ms
        )
        self._healer.repaired(seen.at_s)
        text = f"{diagnosis.repair}: plan {repair.plan.id} with {applied.accepted} moves{left}"
        return Report(diagnosis, text)

    async def _stop_for_those_back(self, stored: StoredPlans, metadata: Metadata) -> str:
        """A broker whose loss is being repaired is back: what has not begun is not needed."""
        for id in stored.running():
            run = stored.run(id)
            for broker in metadata.nodes:
                trouble = Trouble(Trigger.BROKER_GONE, broker, 0.0)
                if run.by == f"{BY}: {trouble}" and run.state is RunState.RUNNING:
                    await execution.stop(
                        self._admin, self._store, id, at_once=False, now_ms=self._clock_ms()
                    )
                    return f"broker {broker} is back: plan {id} stopped"
        return ""

    async def _seen(self, stored: StoredPlans, metadata: Metadata, now_ms: int) -> Seen:
        parts = [part for topic in metadata.topics.values() for part in topic.partitions.values()]
        live = frozenset(metadata.nodes)
        pause = stored.pause if stored.pause and stored.pause.holds(now_ms) else None
        return Seen(
            at_s=now_ms / 1000,
            live=live,
            holding=frozenset(broker for part in parts for broker in part.replicas),
            controller=metadata.controller_id,
            racks={node.id: node.rack for node in metadata.nodes.values()},
            # A replica that is offline on a broker that is not: its directory has failed.
            failed=frozenset(broker for part in parts for broker in part.offline) & live,
            full=await self._full(sorted(live)),
            running=stored.running(),
            paused=None if pause is None else pause.because,
        )

    async def _full(self, brokers: list[int]) -> frozenset[int]:
        """Brokers with a directory that is over 90 % full, of those that tell."""
        found = set()
        for broker in brokers:
            try:
                directories = (await self._admin.describe_log_dirs([broker], []))[broker]
            except (KafkaError, OSError, TimeoutError):
                continue  # it may be going
            for of in directories:
                if of.total_bytes > 0 and of.usable_bytes < (1 - DISK_FULL) * of.total_bytes:
                    found.add(broker)
        return frozenset(found)

    async def _plan(
        self, trouble: Trouble, stored: StoredPlans, metadata: Metadata, now_ms: int
    ) -> Repair:
        lost = {
            TopicPartition(topic.name, part.id): part.leader
            for topic in metadata.topics.values()
            for part in topic.partitions.values()
            if trouble.broker
            in (part.replicas if trouble.trigger is Trigger.BROKER_GONE else part.offline)
        }
        targets = [
            Broker(node.id, node.rack)
            for node in metadata.nodes.values()
            if node.id != trouble.broker
        ]
        return plan_repair(
            trouble,
            assignment_of(metadata, metadata.topics),
            lost,
            targets,
            await replica_sizes(self._admin, lost),
            id=stored.new_id(now_ms),
            now_ms=now_ms,
            rate=self._throttle,
        )
