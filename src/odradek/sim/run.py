"""One run: a world of one seed, its faults, its clients, its checkers, and the verdict.

Phases: brokers start and topics are made; clients work while faults are injected; faults stop and
everything must become well again within bounded virtual time (liveness); then the evidence is
judged. The same seed gives the same run to the last byte, and `Report.trace` proves it.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from odradek.broker.server import Broker
from odradek.client.groups import Groups
from odradek.coordinator.storage import OFFSETS_TOPIC
from odradek.coordinator.transaction_storage import TRANSACTIONS_TOPIC
from odradek.replica.partition import Partition
from odradek.wire.topics import TopicPartition

from .checkers import CHECKERS
from .cleaned_topics import BROKER_SETTINGS, CLEANING_CHECKERS, COMPACTED
from .faults import Fault, FaultInjector, Kind
from .history import History, Violation
from .members import EXPECTED, Member, check_committed
from .observation import hosted, leaders
from .plan import FETCH_BYTES, MOVE_RATE, Plan
from .transaction_checkers import TRANSACTION_CHECKERS
from .transaction_evidence import TransactionEvidence
from .transactional_clients import DERIVED, MOVERS, SOURCE
from .unexpected_errors import watched
from .workload import Workload
from .world import Event, World

LOOK_S = 0.25
START_S = 60.0
HEAL_S = 180.0
GROUP_S = 60.0
SERVE_S = 60.0
# Open transactions are looked at as often as clients of this length want it.
TRANSACTION_SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}


@dataclass(slots=True)
class Report:
    """What became of a run."""

    plan: Plan
    violations: list[Violation] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    faults: dict[Kind, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    transitions: dict[str, int] = field(default_factory=dict)
    virtual_s: float = 0.0
    trace: str = ""

    @property
    def passed(self) -> bool:
        return not self.violations and not self.findings


def run(plan: Plan, until: Collection[str] = ()) -> Report:
    """Carry a plan out, to its end or until one of these invariants is violated."""
    world = World(
        plan.seed,
        plan.brokers,
        {
            "default.replication.factor": str(plan.replication),
            "offsets.topic.replication.factor": str(plan.replication),
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.replication.factor": str(plan.replication),
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.min.isr": str(min(2, plan.replication)),
            "group.initial.rebalance.delay.ms": "500",
            "unclean.leader.election.enable": "false",
            "replica.lag.time.max.ms": "5000",
            "auto.leader.rebalance.enable": "true",
            "leader.imbalance.check.interval.seconds": "20",
            "odradek.moves.per.broker": "1",
            "odradek.moves.per.broker.max": "2",
            **(TRANSACTION_SETTINGS if plan.load.has_transactions else {}),
            **(BROKER_SETTINGS if plan.load.cleaning else {}),
            **plan.settings,
        },
        log_dirs=plan.log_dirs,
        latency_s=plan.latency_s,
    )
    world.protocols = plan.world_protocols
    world.offload_s = plan.offload_s
    history = History()
    history.transactions = TransactionEvidence(
        lambda invariant, what: history.violated(invariant, world.loop.time(), what)
    )
    one = _Run(plan, world, history)
    with watched() as unexpected:
        world.run(lambda _: one.story_until(until) if until else one.story(), one.prepare)
    findings = [
        *one.findings,
        *unexpected,
        *(f"{each.get('message')}: {each.get('exception')!r}" for each in world.loop.failures),
    ]
    return Report(
        plan,
        history.violations,
        findings,
        world.events,
        one.injector.injected,
        history.counts,
        history.transitions,
        world.loop.time(),
        _trace(world, history),
    )


def _trace(world: World, history: History) -> str:
    digest = hashlib.sha256()
    for event in world.events:
        digest.update(f"{event.at!r} {event.host} {event.what}\n".encode())
    for of in sorted(history.acknowledged):
        digest.update(f"{of} {sorted(history.acknowledged[of].items())}\n".encode())
    digest.update(f"{world.loop.time()!r} {world.loop.steps} {world.network.bytes_sent}".encode())
    return digest.hexdigest()


class _Run:
    """The phases of one run."""

    def __init__(self, plan: Plan, world: World, history: History) -> None:
        self.plan = plan
        self.world = world
        self.history = history
        self.injector = FaultInjector(world)
        checkers = (*CHECKERS, *TRANSACTION_CHECKERS, *CLEANING_CHECKERS)
        self.checkers = [checker(world, history) for checker in checkers]
        self.load = Workload(world, history, plan.replication, plan.min_isr)
        self.findings: list[str] = []

    def prepare(self) -> None:
        """The checkers see everything, from the first write on."""
        for checker in self.checkers:
            self.world.ledger.listeners.append(checker.written)
            self.world.ledger.assignment_listeners.append(checker.assigned)
            self.world.readers.append(checker.journalled)

    async def story_until(self, invariants: Collection[str]) -> None:
        """As much of the story as it takes to see one of these invariants violated."""
        story = asyncio.ensure_future(self.story())
        while not story.done():
            await asyncio.wait([story], timeout=LOOK_S)
            if any(each.invariant in invariants for each in self.history.violations):
                story.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await story

    async def story(self) -> None:
        if not await self._begin():
            return
        self.load.start(self.plan.load)
        looking = asyncio.ensure_future(self._look())
        try:
            await self._suffer_and_heal()
        finally:
            looking.cancel()
        if not self.findings:
            for checker in self.checkers:
                checker.judge()

    async def _suffer_and_heal(self) -> None:
        plan = self.plan
        began = self.world.loop.time()
        await asyncio.gather(*(self._suffer(fault, began) for fault in plan.faults))
        rest = began + plan.seconds - self.world.loop.time()
        await asyncio.sleep(max(rest, 0))
        self.injector.heal_everything()
        for client in await self.load.stop(HEAL_S):
            self.findings.append(f"not well: {client} waits for an answer after {HEAL_S:.0f} s")
        await self._become_well()
        await self._groups_go_on()
        await self._transactions_go_on()
        await self._every_partition_is_served()
        if plan.load.producers and not self.history.counts.get("acknowledged"):
            self.findings.append("not well: no record was ever acknowledged")

    async def _begin(self) -> bool:
        name, process = "starter", self.world.process("starter")
        client = self.load.client(name, START_S)

        async def create() -> None:
            async with client:
                await client.refresh()
                while len(client.metadata.nodes) < self.plan.brokers:
                    await asyncio.sleep(0.1)
                    await client.refresh()
                await self.load.create_topic(client, SOURCE, self.plan.partitions)
                if self.plan.load.has_transactions:
                    await self.load.create_topic(client, DERIVED, self.plan.partitions)
                if self.plan.load.cleaning:
                    await self.load.create_cleaned_topics(client)

        try:
            async with asyncio.timeout(START_S):
                await process.run(create())
        except TimeoutError:
            self.findings.append("the cluster did not start")
            return False
        wanted = {SOURCE, DERIVED} if self.plan.load.has_transactions else {SOURCE}
        if not wanted <= self.load.topics.keys():
            self.findings.append("the first topics could not be created")
            return False
        return True

    async def _suffer(self, fault: Fault, began: float) -> None:
        await asyncio.sleep(max(0.0, began + fault.at - self.world.loop.time()))
        self._see_marks(hosted(self.world))  # before anything is lost
        if await self.injector.inject(fault):
            await asyncio.sleep(fault.duration_s)
            await self.injector.heal(fault)

    async def _look(self) -> None:
        while True:
            seen = list(hosted(self.world))
            self._see_marks(seen)
            for checker in self.checkers:
                checker.look(seen)
            await asyncio.sleep(LOOK_S)

    def _see_marks(self, seen: Iterable[tuple[Broker, Partition]]) -> None:
        marks = self.history.marks
        for _, partition in seen:
            of = partition.tp
            marks[of] = max(partition.local_log.high_watermark, marks.get(of, 0))

    async def _become_well(self) -> None:
        """Liveness: with all faults over, all is well within bounded time."""
        heal_s = HEAL_S + self._copy_s() + self._move_s()
        deadline = self.world.loop.time() + heal_s
        while (ill := self._ills()) and self.world.loop.time() < deadline:  # noqa: ASYNC110  # looks
            await asyncio.sleep(LOOK_S)
        self.findings += [f"not well {heal_s:.0f} s after all faults: {one}" for one in ill[:5]]
        if not ill:
            self.world.note("all is well")

    def _copy_s(self) -> float:
        """What it takes to copy the longest log, with fetches as small and brokers as far apart as
        in this world; twice that, since a fetch rarely comes back full."""
        if FETCH_BYTES not in self.plan.settings:
            return 0.0
        sizes_bytes = [p.log.size_bytes for _, p in hosted(self.world) if p.log is not None]
        fetches = max(sizes_bytes, default=0) / int(self.plan.settings[FETCH_BYTES])
        return 2 * fetches * 2 * self.plan.latency_s

    def _move_s(self) -> float:
        """What it takes to move every log of a broker to another directory, as fast as allowed."""
        if MOVE_RATE not in self.plan.settings:
            return 0.0
        used_bytes = max(host.disk.used_bytes for host in self.world.hosts.values())
        return used_bytes / int(self.plan.settings[MOVE_RATE])

    def _ills(self) -> list[str]:
        now = self.world.ledger
        ills = [f"broker {h.id} is down" for h in self.world.hosts.values() if not h.is_up]
        self._find_refused()
        for name, node in now.topics.items():
            for number, replicas in node.partitions.items():
                state = now.states.get((name, number))  # type: ignore[call-overload]
                if (name, number) in self.history.refused:
                    continue
                if state is None or state.leader < 0:
                    ills.append(f"{name}-{number} has no leader")
                elif set(state.isr) != set(replicas):
                    ills.append(f"{name}-{number} has ISR {list(state.isr)} of {list(replicas)}")
                elif node.adding.get(number) or node.removing.get(number):
                    ills.append(f"{name}-{number} is being reassigned")
        doomed = self.world.server.tree.children("/admin/delete_topics")
        ills += [f"{name} is being deleted" for name in doomed]
        ills += [
            f"{tp} is being moved between directories of broker {broker.id}"
            for broker in self.world.brokers()
            if hasattr(broker, "logs")
            for tp in broker.logs.future_logs
            if now.is_replica(broker.id, tp)
        ]
        waiting = sorted(now.plan_moves() - self.history.refused)
        ills += [f"{tp} is to be moved for a plan" for tp in waiting]
        # What an operator must help first may be what a transaction waits for.
        return ills if self.history.refused else ills + self._undecided()

    def _undecided(self) -> list[str]:
        """Transactions that are open, though their clients are gone, or whose markers are missing:
        each stops all readers with read_committed."""
        undecided = [
            f"transaction {each.transactional_id} is {each.state.label}"
            for broker in self.world.brokers()
            if hasattr(broker, "transactions")
            for each in broker.transactions.storage.entries()
            if not each.state.may_expire
        ]
        for of, partition in leaders(self.world).items():
            first = partition.local_log.producers.first_undecided_offset
            if first is not None:
                undecided.append(f"{of} has a transaction without end at offset {first}")
        return undecided

    def _find_refused(self) -> None:
        """Partitions that only an operator can help: the last in-sync replica lost records, knows
        it, and refuses to lead. That it lost any is seen: it ends before what was committed, or has
        nothing at all, and then it cannot know."""
        self.history.refused.clear()
        for broker, partition in hosted(self.world):
            of = partition.tp
            state = self.world.ledger.states.get(of)
            last = state is not None and state.isr == (broker.id,) and state.leader < 0
            end = partition.local_log.end_offset
            lost = end == 0 or end < self.history.marks.get(of, 0)
            if partition.lost_tail and last and lost:
                self.history.refused.add(of)
        if self.history.refused:
            self.history.count("waits for an operator")

    async def _groups_go_on(self) -> None:
        """Every group takes a new member in, and remembers what it had committed."""
        if self.findings or any(of.topic in ("main", OFFSETS_TOPIC) for of in self.history.refused):
            return
        for number in range(self.plan.load.groups):
            group, name = f"group-{number}", f"late-{number}"
            process = self.world.process(name)
            try:
                async with asyncio.timeout(GROUP_S):
                    await process.run(self._join_late(name, group))
            except (TimeoutError, *EXPECTED) as error:
                self.findings.append(f"{group} takes no new member: {error!r}")

    async def _join_late(self, name: str, group: str) -> None:
        async with self.load.client(name, GROUP_S) as client:
            await Member(self.world, self.history, client, group, self.world.dice(name)).join()
            await check_committed(self.world, self.history, client, group)

    async def _transactions_go_on(self) -> None:
        """Every transactional id commits once more; the movers' offsets are noted."""
        load = self.plan.load
        if self.findings or self.history.refused or not load.has_transactions:
            return
        names = [f"writer-{number}.late" for number in range(load.writers)]
        names += [f"mover-{number}.late" for number in range(load.movers)]
        for name in names:
            client = self.load.transactional(name)
            try:
                async with asyncio.timeout(GROUP_S):
                    await self.world.process(name).run(client.commit_once())
            except (TimeoutError, *EXPECTED) as error:
                self.findings.append(f"{client.transactional_id} commits no more: {error!r}")
        await self._become_well()  # the last markers are under way
        if load.movers and not self.findings:
            await self.world.process("moved").run(self._see_moved())

    async def _see_moved(self) -> None:
        async with self.load.client("moved", GROUP_S) as client:
            sources = [TopicPartition(SOURCE, number) for number in range(self.plan.load.movers)]
            found = await Groups(client).offsets(MOVERS, sources, require_stable=True)
            for of in sources:
                until = found[of].offset if of in found else 0
                self.history.transactions.moved_until[of] = until

    async def _every_partition_is_served(self) -> None:
        """Every partition takes a record, and gives it back."""
        if self.findings:
            return
        topics = self.world.ledger.topics
        partitions = [
            of
            for of in sorted(self.world.ledger.states)
            if of.topic in topics
            and of.topic not in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, COMPACTED.topic)
            and not self.history.waits_for_an_operator(of)
        ]
        try:
            async with asyncio.timeout(SERVE_S):
                await self.world.process("last").run(self.load.ask_once("last", partitions))
        except (TimeoutError, *EXPECTED) as error:
            self.findings.append(f"not well: not every partition is served: {error!r}")
