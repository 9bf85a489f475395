"""One run: a world of one seed, its faults, its clients, its checkers, and the verdict.

Phases: everybody starts and topics are made; clients work while faults strike; the faults stop and
everything must become well again within bounded virtual time (liveness); then the evidence is
judged. The same seed gives the same run to the last byte, and `Report.trace` proves it.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from .checkers import Snapshot, all_checkers
from .faults import Fault, Kind, Mischief, draw_faults
from .history import History, Violation
from .workload import Workload
from .world import World

LOOK_S = 0.25
START_S = 60.0
HEAL_S = 180.0
PRODUCERS_MAX = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed draws before anything happens."""

    seed: int
    brokers: int
    replication: int
    min_isr: int
    partitions: int
    seconds: float
    producers: int
    idempotent: float
    consumers: int
    admin: bool
    faults: Sequence[Fault]


@dataclass(slots=True)
class Report:
    """What became of a run."""

    plan: Plan
    violations: list[Violation] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    faults: dict[Kind, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    virtual_s: float = 0.0
    trace: str = ""

    @property
    def passed(self) -> bool:
        return not self.violations and not self.findings


def draw_plan(seed: int, seconds: float = 60.0) -> Plan:
    """The world of a seed."""
    rng = World(seed, 1).dice("plan")
    brokers = rng.choice([3, 3, 3, 4, 5])
    replication = rng.choice([3, 3, 2])
    return Plan(
        seed=seed,
        brokers=brokers,
        replication=replication,
        min_isr=min(replication, rng.choice([2, 2, 1])),
        partitions=rng.randint(1, 4),
        seconds=seconds,
        producers=rng.randint(1, PRODUCERS_MAX),
        idempotent=rng.choice([0.0, 0.5, 1.0]),
        consumers=rng.randint(1, 2),
        admin=rng.random() < 0.6,
        faults=draw_faults(rng, range(1, brokers + 1), seconds),
    )


def run(plan: Plan, config: dict[str, str] | None = None) -> Report:
    """Carry a plan out."""
    world = World(
        plan.seed,
        plan.brokers,
        {
            "default.replication.factor": str(plan.replication),
            "offsets.topic.replication.factor": str(plan.replication),
            "unclean.leader.election.enable": "false",
            "replica.lag.time.max.ms": "5000",
            "auto.leader.rebalance.enable": "true",
            "leader.imbalance.check.interval.seconds": "20",
            **(config or {}),
        },
    )
    history = History()
    mischief = Mischief(world)
    findings = world.run(lambda world: _Run(plan, world, history, mischief).story())
    findings += [
        f"{failure.get('message')}: {failure.get('exception')!r}" for failure in world.loop.failures
    ]
    report = Report(
        plan,
        history.violations,
        findings,
        world.events,
        mischief.struck,
        history.counts,
        world.loop.time(),
    )
    report.trace = _trace(world, history)
    return report


def _trace(world: World, history: History) -> str:
    digest = hashlib.sha256()
    for at, event in world.events:
        digest.update(f"{at!r} {event}\n".encode())
    for of in sorted(history.acknowledged):
        digest.update(f"{of} {sorted(history.acknowledged[of].items())}\n".encode())
    digest.update(f"{world.loop.time()!r} {world.loop.steps} {world.network.bytes_sent}".encode())
    return digest.hexdigest()


class _Run:
    """The phases of one run."""

    def __init__(self, plan: Plan, world: World, history: History, mischief: Mischief) -> None:
        self.plan = plan
        self.world = world
        self.history = history
        self.mischief = mischief
        self.checkers = list(all_checkers().values())
        self.load = Workload(world, history, plan.replication, plan.min_isr)
        self.findings: list[str] = []

    async def story(self) -> list[str]:
        plan = self.plan
        if not await self._begin():
            return self.findings
        self.load.start(plan.producers, plan.idempotent, plan.consumers, plan.admin)
        looking = asyncio.ensure_future(self._look())
        began = self.world.loop.time()
        await asyncio.gather(*(self._suffer(fault, began) for fault in plan.faults))
        rest = began + plan.seconds - self.world.loop.time()
        await asyncio.sleep(max(rest, 0))
        self.mischief.heal_everything()
        await self.load.stop()
        await self._become_well()
        looking.cancel()
        if not self.findings:
            for checker in self.checkers:
                checker.judge(self.world, self.history)
        return self.findings

    async def _begin(self) -> bool:
        name, process = "starter", self.world.process("starter")
        client = self.load.client(name, START_S)

        async def create() -> None:
            async with client:
                await client.refresh()
                while len(client.view.nodes) < self.plan.brokers:
                    await asyncio.sleep(0.1)
                    await client.refresh()
                await self.load.create_topic(client, "main", self.plan.partitions)

        try:
            async with asyncio.timeout(START_S):
                await process.run(create())
        except TimeoutError:
            self.findings.append("the cluster did not start")
            return False
        if "main" not in self.load.topics:
            self.findings.append("the first topic could not be created")
            return False
        return True

    async def _suffer(self, fault: Fault, began: float) -> None:
        await asyncio.sleep(max(0.0, began + fault.at - self.world.loop.time()))
        if await self.mischief.strike(fault):
            await asyncio.sleep(fault.duration_s)
            self.mischief.relieve(fault)

    async def _look(self) -> None:
        while True:
            for checker in self.checkers:
                checker.look(self.world, self.history)
            await asyncio.sleep(LOOK_S)

    async def _become_well(self) -> None:
        """Liveness: with all faults over, all is well within bounded time."""
        deadline = self.world.loop.time() + HEAL_S
        while (ill := self._ills()) and self.world.loop.time() < deadline:  # noqa: ASYNC110  # looks
            await asyncio.sleep(LOOK_S)
        self.findings += [f"not well {HEAL_S:.0f} s after all faults: {one}" for one in ill[:5]]
        if not ill:
            self.world.note("all is well")

    def _ills(self) -> list[str]:
        now = Snapshot(self.world)
        ills = [f"broker {h.id} is down" for h in self.world.hosts.values() if not h.is_up]
        for name, node in now.topics.items():
            for number, replicas in node.partitions.items():
                state = now.states.get((name, number))  # type: ignore[call-overload]
                if state is None or state.leader < 0:
                    ills.append(f"{name}-{number} has no leader")
                elif set(state.isr) != set(replicas):
                    ills.append(f"{name}-{number} has ISR {list(state.isr)} of {list(replicas)}")
            if any(node.adding.values()) or any(node.removing.values()):
                ills.append(f"{name} is being reassigned")
        doomed = self.world.server.tree.children("/admin/delete_topics")
        return ills + [f"{name} is being deleted" for name in doomed]
