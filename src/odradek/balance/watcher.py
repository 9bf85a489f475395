"""`odradek rebalance watch`: observes the cluster, and repairs what `healing` says is due.

As many watchers may run as one likes: the member of group `__odradek_watch` that has the partition
of `__odradek_plans` acts, the others wait. All that it does is a plan in that topic, so a watcher
that dies forgets only its clocks: they start again, and nothing is done too early.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from odradek.balance import execution
from odradek.balance.healing import (
    ADVICE,
    CLUSTER,
    DISK_WALL,
    Diagnosis,
    Healer,
    Looks,
    Repair,
    Seen,
    Space,
    Trigger,
    Trouble,
    described,
    nearly_empty,
    plan_more_replicas,
    plan_of,
    plan_relief,
    plan_repair,
    would_fill,
)
from odradek.balance.latency import BrokerHealth, Sample
from odradek.balance.plan_store import TOPIC, PlanStore, RunState, StoredPlans
from odradek.balance.settings import Settings
from odradek.client.admin import Admin
from odradek.client.group_member import GroupMember
from odradek.client.metadata import Metadata
from odradek.client.values import LogDir, Resource, ResourceType
from odradek.operations.plan import assignment_of
from odradek.operations.reassignment import replica_sizes
from odradek.placement import Broker
from odradek.wire.errors import KafkaError
from odradek.wire.telemetry import InvalidFrame, decode_frame
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.balance.load import LoadModel

GROUP = "__odradek_watch"
BY = "watch"
DISK_FULL = 0.9
MIN_ISR = "min.insync.replicas"
# So much further from its share than its band allows is a broker before anybody is told.
FAR = 1.5
# A broker that was emptied because it was slow gets nothing for so long, unless by hand.
DRAINED_MS = 14 * 86_400_000
# Frames arrive late: what is read again says nothing new.
OVERLAP_MS = 60_000

logger = logging.getLogger(__name__)


class Report(NamedTuple):
    """One look at the cluster: what was found, and what was done about it."""

    diagnosis: Diagnosis
    done: str = ""


class Watcher:
    """Looks, and acts if it is the one that may."""

    def __init__(self, admin: Admin, settings: Settings, clock_ms: Callable[[], int]) -> None:
        self._admin = admin
        self._store = PlanStore(admin)
        heal = settings.heal
        self._healer = Healer(heal.waits, heal.repairs_per_hour, heal.acts_on())
        self._looks = Looks(heal.look_s)
        self._settings = settings
        self._throttle = settings.pace.throttle
        self._clock_ms = clock_ms
        self._health = BrokerHealth()
        self._heard_ms = clock_ms() - OVERLAP_MS

    async def run(self) -> AsyncIterator[Report]:
        """One report after the other, as long as this member may act."""
        interval_s = self._settings.heal.interval_s
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
        if diagnosis.stop is not None:
            await execution.stop(
                self._admin, self._store, diagnosis.stop, at_once=False, now_ms=now_ms
            )
            return Report(diagnosis, f"plan {diagnosis.stop} stopped: a repair is due")
        if diagnosis.repair is None:
            return Report(diagnosis)
        directories = await self._directories(sorted(seen.live))
        id = stored.new_id(now_ms)
        repair = await self._plan(diagnosis, id, metadata, directories, now_ms)
        reason = would_fill(repair.plan.moves, _space(directories))
        if diagnosis.repair.trigger in ADVICE:
            self._looks.clear()
            if reason or not repair.plan.moves:
                self._healer.found_nothing(diagnosis.repair, seen.at_s)
        if reason:
            return Report(replace(diagnosis, repair=None, held_by=reason))
        left = f"; no help for {', '.join(repair.hopeless[:5])}" if repair.hopeless else ""
        if not repair.plan.moves:
            return Report(diagnosis, f"{diagnosis.repair}: nothing can be moved{left}")
        by = f"{BY}: {diagnosis.repair}"
        await execution.set_pace(self._admin, self._settings.pace.limits)
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
        await self._listen(now_ms)
        if stored.running() and (strained := self._health.strained(now_ms) & live):
            await self._report_strain(stored.running()[0], strained)
        pause = stored.pause if stored.pause and stored.pause.holds(now_ms) else None
        await self._look_at_balance(stored, now_ms)
        return Seen(
            at_s=now_ms / 1000,
            live=live,
            holding=frozenset(broker for part in parts for broker in part.replicas),
            controller=metadata.controller_id,
            racks={node.id: node.rack for node in metadata.nodes.values()},
            # A replica that is offline on a broker that is not: its directory has failed.
            failed=frozenset(broker for part in parts for broker in part.offline) & live,
            full=frozenset(
                broker
                for broker, of in (await self._directories(sorted(live))).items()
                if any(map(_is_full, of))
            ),
            slow=self._health.slow(now_ms),
            empty=nearly_empty(assignment_of(metadata, metadata.topics), live)
            - _drained(stored, now_ms),
            low=self._low(metadata),
            is_unbalanced=self._looks.is_unbalanced(),
            running=stored.running(),
            yielding=frozenset(id for id in stored.running() if _is_for_balance(stored, id)),
            paused=None if pause is None else pause.because,
        )

    async def _look_at_balance(self, stored: StoredPlans, now_ms: int) -> None:
        """Compare every broker with its share, now and then, if no plan is changing that."""
        if stored.running() or not self._looks.is_due(now_ms / 1000):
            return
        try:
            from odradek.balance.model import InvalidModel
            from odradek.balance.proposal import unevenness
        except ImportError:
            return
        found: list[str] = []
        try:
            load = await self._load(now_ms)
            if load is not None and load.coverage:
                found = await asyncio.to_thread(unevenness, load, self._settings, FAR)
        except (KafkaError, OSError, TimeoutError, InvalidModel) as error:
            logger.warning("the balance of the brokers is not known: %s", error)
        self._looks.add(now_ms / 1000, bool(found))
        if found:
            logger.info("outside: %s", "; ".join(found[:5]))

    async def _load(self, now_ms: int) -> "LoadModel | None":
        """The load table; None where the planner is not installed or not compiled yet."""
        try:
            from odradek.balance.compilation import is_compiled
            from odradek.balance.current import current_load
        except ImportError:
            return None
        return await current_load(self._admin, now_ms) if is_compiled() else None

    async def _listen(self, now_ms: int) -> None:
        """Read what brokers have published since the last time."""
        try:
            from odradek.balance.cluster import read_frames
        except ImportError:
            return  # without pyarrow there is healing, and no telemetry
        try:
            values = await read_frames(self._admin.client, self._heard_ms)
        except (KafkaError, OSError, TimeoutError) as error:
            # Repairs must not wait for telemetry: what is being repaired may be the reason.
            logger.warning("telemetry could not be read: %s", error)
            return
        self._heard_ms = now_ms - OVERLAP_MS
        samples = []
        for value in values:
            try:
                samples.append(Sample.of(decode_frame(value or b"")))
            except InvalidFrame as error:
                logger.warning("a record of the telemetry topic is skipped: %s", error)
        self._health.add(samples)

    async def _report_strain(self, plan: str, brokers: frozenset[int]) -> None:
        """The controller sees ISRs itself; latency and disks are reported to it from here."""
        if await self._admin.knows_plans():
            await self._admin.report_strain(plan, sorted(brokers))

    async def _directories(self, brokers: list[int]) -> dict[int, list[LogDir]]:
        """The log directories of these brokers, without their replicas, of those that answer."""
        found: dict[int, list[LogDir]] = {}
        for broker in brokers:
            try:
                found |= await self._admin.describe_log_dirs([broker], [])
            except (KafkaError, OSError, TimeoutError):
                continue  # it may be going
        return found

    def _low(self, metadata: Metadata) -> frozenset[str]:
        """The topics with fewer replicas than the settings ask for, where there are brokers for
        more."""
        factor = min(self._settings.heal.replication_factor or 0, len(metadata.nodes))
        return frozenset(
            topic.name
            for topic in metadata.topics.values()
            if any(len(part.replicas) < factor for part in topic.partitions.values())
            and not any(re.fullmatch(of, topic.name) for of in self._settings.excluded)
        )

    async def _plan(
        self,
        diagnosis: Diagnosis,
        id: str,
        metadata: Metadata,
        directories: Mapping[int, list[LogDir]],
        now_ms: int,
    ) -> Repair:
        trouble = diagnosis.repair
        assert trouble is not None
        if trouble.trigger in ADVICE:
            return await self._levelling(trouble, id, now_ms)
        if trouble.trigger is Trigger.DISK_FULL:
            return await self._relief(trouble, id, metadata, directories, now_ms)
        if trouble.trigger is Trigger.REPLICATION_LOW:
            due = [
                str(of.subject)
                for of in diagnosis.troubles
                if of.trigger is trouble.trigger and not of.left_s
            ]
            return await self._raise(trouble, due, id, metadata, now_ms)
        return await self._replacement(trouble, id, metadata, now_ms)

    async def _levelling(self, trouble: Trouble, id: str, now_ms: int) -> Repair:
        """A plan by load. A broker that is slow, or was, is emptied and stays so."""
        nothing = Repair(plan_of((), id, now_ms, self._throttle), ())
        try:
            from odradek.balance.explain import Facts
            from odradek.balance.model import InvalidModel
            from odradek.balance.proposal import propose
            from odradek.balance.search import Budget
        except ImportError:
            return nothing
        try:
            load = await self._load(now_ms)
            if load is None or not load.coverage:
                return nothing
            remove = _drained(await self._store.read(), now_ms)
            if trouble.trigger is Trigger.BROKER_SLOW:
                remove |= {int(trouble.subject)}
            known = frozenset(load.brokers["broker"].to_pylist())
            facts = Facts(id, now_ms, load.as_of_ms or now_ms, load.coverage, self._throttle)
            plan = await asyncio.to_thread(
                propose, load, self._settings, Budget(), facts, remove=remove & known
            )
        except (KafkaError, OSError, TimeoutError, InvalidModel) as error:
            logger.warning("%s: no plan by load: %s", trouble, error)
            return nothing
        return Repair(plan, ())

    async def _relief(
        self,
        trouble: Trouble,
        id: str,
        metadata: Metadata,
        directories: Mapping[int, list[LogDir]],
        now_ms: int,
    ) -> Repair:
        broker = int(trouble.subject)
        full = [of for of in directories.get(broker, []) if _is_full(of)]
        need = sum(of.total_bytes - of.usable_bytes - DISK_WALL * of.total_bytes for of in full)
        space = _space(directories)
        return plan_relief(
            trouble,
            assignment_of(metadata, metadata.topics),
            await self._replicas_in(broker, {of.path for of in full}),
            int(need),
            {
                Broker(node.id, node.rack): space[node.id]
                for node in metadata.nodes.values()
                if node.id != broker and node.id in space
            },
            id=id,
            now_ms=now_ms,
            rate=self._throttle,
        )

    async def _raise(
        self, trouble: Trouble, topics: list[str], id: str, metadata: Metadata, now_ms: int
    ) -> Repair:
        """More replicas for topics that have too few: one more than must be in sync, at least."""
        factor = self._settings.heal.replication_factor or 0
        owners = [Resource(ResourceType.TOPIC, topic) for topic in topics]
        wanted = dict.fromkeys(topics, factor)
        for owner, entries in (await self._admin.describe_configs(owners)).items():
            if isinstance(entries, list):
                least = next((of.value for of in entries if of.name == MIN_ISR), None) or "1"
                wanted[owner.name] = max(factor, int(least) + 1)
        current = assignment_of(metadata, metadata.topics)
        partitions = [tp for tp in current if tp.topic in wanted]
        return plan_more_replicas(
            trouble,
            current,
            wanted,
            [Broker(node.id, node.rack) for node in metadata.nodes.values()],
            await replica_sizes(self._admin, partitions),
            id=id,
            now_ms=now_ms,
            rate=self._throttle,
        )

    async def _replacement(
        self, trouble: Trouble, id: str, metadata: Metadata, now_ms: int
    ) -> Repair:
        """Other brokers for the replicas that a broker has lost."""
        lost = {
            TopicPartition(topic.name, part.id): part.leader
            for topic in metadata.topics.values()
            for part in topic.partitions.values()
            if trouble.subject
            in (part.replicas if trouble.trigger is Trigger.BROKER_GONE else part.offline)
        }
        targets = [
            Broker(node.id, node.rack)
            for node in metadata.nodes.values()
            if node.id != trouble.subject
        ]
        current = assignment_of(metadata, metadata.topics)
        return plan_repair(
            trouble,
            current,
            lost,
            targets,
            await replica_sizes(self._admin, lost),
            id=id,
            now_ms=now_ms,
            rate=self._throttle,
            by_load=await self._by_load(int(trouble.subject), now_ms),
        )

    async def _by_load(
        self, broker: int, now_ms: int
    ) -> Mapping[TopicPartition, tuple[int, ...]] | None:
        """Where the replicas of a broker should go by load. None without telemetry, and where the
        planner is not installed or not compiled yet: a repair does not wait for it."""
        try:
            from odradek.balance.model import InvalidModel
            from odradek.balance.proposal import replaced
        except ImportError:
            return None
        try:
            load = await self._load(now_ms)
            if load is None or not load.coverage:
                return None
            return await asyncio.to_thread(replaced, load, self._settings, broker)
        except (KafkaError, OSError, TimeoutError, InvalidModel) as error:
            logger.warning("broker %d is replaced by count, not by load: %s", broker, error)
            return None

    async def _replicas_in(self, broker: int, paths: set[str]) -> dict[TopicPartition, int]:
        """The sizes of the replicas in some directories of a broker."""
        found = (await self._admin.describe_log_dirs([broker]))[broker]
        return {
            replica.partition: replica.size_bytes
            for directory in found
            if directory.path in paths
            for replica in directory.replicas
            if not replica.is_future
        }


def _is_for_balance(stored: StoredPlans, id: str) -> bool:
    """Whether a watcher started a plan to level the cluster."""
    run = stored.run(id)
    return run.state is RunState.RUNNING and (
        run.by == f"{BY}: {described(Trigger.UNBALANCED, CLUSTER)}"
        or (run.by.startswith(f"{BY}: broker ") and run.by.endswith(Trigger.BROKER_EMPTY.value))
    )


def _drained(stored: StoredPlans, now_ms: int) -> frozenset[int]:
    """The brokers that a watcher has emptied because they were slow."""
    pattern = re.compile(f"{BY}: {described(Trigger.BROKER_SLOW, -1)}".replace("-1", r"(\d+)"))
    found = [
        pattern.fullmatch(run.by)
        for run in stored.runs.values()
        if run.started_ms > now_ms - DRAINED_MS
    ]
    return frozenset(int(match[1]) for match in found if match)


def _is_full(directory: LogDir) -> bool:
    total, free = directory.total_bytes, directory.usable_bytes
    return total > 0 and free < (1 - DISK_FULL) * total


def _space(directories: Mapping[int, list[LogDir]]) -> dict[int, Space]:
    """The free space on the brokers that report it."""
    found = {}
    for broker, of in directories.items():
        # The numbers of a file system that several directories share are the same.
        systems = {(each.total_bytes, each.usable_bytes) for each in of if each.total_bytes > 0}
        if systems:
            total = sum(total for total, _ in systems)
            found[broker] = Space(total, total - sum(free for _, free in systems))
    return found
