"""Which moves of plans are due. Reads brokers, ISRs and settings; `plan_pace` decides.

While moves of plans remain, a timer checks again: leaderships every second, the health of brokers
and partitions every ten. No new move starts while a partition is under its min ISR although it has
a leader and all its brokers are alive; the queue stays. A step whose new broker has been gone for a
minute is taken back and waits until that broker returns, so that it does not occupy a slot that
another move could use.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from odradek.controller import elections, events, plan_pace
from odradek.controller.context import Partition
from odradek.controller.journal import EntryKind
from odradek.controller.plan_pace import Health, Limits, MoveStep, Pace
from odradek.controller.plan_queue import PlanQueue
from odradek.controller.plan_throttle import PlanThrottle
from odradek.controller.term import Term
from odradek.store.paths import ConfigKind
from odradek.store.plan_moves import PlannedMove
from odradek.wire.topics import TopicPartition

MIN_ISR = "min.insync.replicas"
OBSERVE_S = 10.0
LEADERSHIPS_S = 1.0
# How many of those that wait are considered at a time: a plan may have a hundred thousand.
LOOKAHEAD = 1_000
# Observations after which a step is taken back whose new broker is gone.
GONE_OBSERVATIONS = 6

Tried = set[tuple[TopicPartition, tuple[int, ...] | None]]


@dataclass(slots=True)
class Due:
    """What can be done for plans now."""

    steps: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    elections: list[TopicPartition] = field(default_factory=list)
    arrived: list[TopicPartition] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.steps or self.elections or self.arrived)


class PlanScheduler:
    """Says what of the plans is due, and when to look again."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._context = term.context
        self._config = term.config
        self.queue = PlanQueue(term)
        self.throttle = PlanThrottle(term)
        self.pace = Pace(term.config.moves_per_broker, term.config.moves_per_broker_max)
        self.halted_by: TopicPartition | None = None
        self._min_isr: dict[str, int] = {}
        self._urgent: list[TopicPartition] = []
        self._shrunk: set[TopicPartition] = set()
        self._gone: Counter[TopicPartition] = Counter()
        self._strained: frozenset[int] = frozenset()
        self._timer: asyncio.TimerHandle | None = None
        self._observe_at = 0.0
        self._leaderships_at = 0
        self._leaderships = 0

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # What comes and goes

    async def load(self) -> None:
        """Learn what earlier controllers did not finish."""
        await self.queue.load()
        await self.learn_min_isr(tp.topic for tp in self.queue)
        await self.throttle.load(
            {
                rate: {tp: self.queue[tp].replicas for tp in tps}
                for rate, tps in self.queue.throttled().items()
            }
        )

    async def add(
        self, plan: str, moves: Mapping[TopicPartition, PlannedMove], throttle: int
    ) -> None:
        """Put these at the end of the queue, where the rate of the throttle is kept, too: what a
        controller that dies has not set, the next one sets."""
        await self.learn_min_isr(tp.topic for tp in moves)
        await self.queue.add(plan, moves, throttle)
        if throttle and moves:
            await self.throttle.hold(throttle, {tp: of.replicas for tp, of in moves.items()})

    def report_strain(self, brokers: frozenset[int]) -> None:
        """These have been seen strained, by their latency or their disks: the next observation
        lowers their pace."""
        self._strained |= brokers & self._context.brokers.live

    async def rest(self) -> None:
        """All that could be started is: put back what is no longer throttled, and have the event
        put that looks again."""
        if await self.throttle.release(self.queue):
            self._term.put(events.PaceMoves())
        self._schedule()

    # What is due

    def due(self, tried: Tried) -> Due:
        """What can be done now, apart from what was tried in vain."""
        due = Due()
        steps = {}
        waiting = []
        may_copy = self.halted_by is None and not self.throttle.seconds_left(_now())
        racks = {broker.id: broker.rack for broker in self._context.brokers.values()}
        for tp in self._waiting():
            partition = self._context.partition(tp)
            state = None if partition is None else partition.leader_and_isr
            if partition is None or state is None:
                continue
            move = self.queue[tp]
            step = plan_pace.next_step(partition.assignment.replicas, move.replicas, racks)
            if step is None:
                self._lead(partition, due, tried)
            elif (tp, step) in tried:
                continue
            elif may_copy and self._can_begin(partition, step):
                adding = tuple(set(step) - set(partition.assignment.replicas))
                steps[tp] = step
                waiting.append(MoveStep(tp, adding, state.leader, move.bytes))
        chosen = plan_pace.choose(waiting, self.in_flight(), self._limits())
        due.steps = {tp: steps[tp] for tp in chosen}
        return due

    def _waiting(self) -> Iterator[TopicPartition]:
        """Those of which nothing is under way, the urgent first."""
        urgent = dict.fromkeys(tp for tp in self._urgent if tp in self.queue)
        rest = (tp for tp in self.queue if tp not in urgent)
        left = LOOKAHEAD
        for tp in chain(urgent, rest):
            if tp in self._context.reassigning or self._context.is_queued_for_deletion(tp.topic):
                continue
            if left <= 0:
                return
            left -= 1
            yield tp

    def _lead(self, partition: Partition, due: Due, tried: Tried) -> None:
        """The replicas are where they shall be: the first must lead, or the move is not done."""
        state, replicas = partition.leader_and_isr, partition.assignment.replicas
        assert state is not None
        if state.leader == replicas[0]:
            due.arrived.append(partition.tp)
            return
        live = self._context.brokers.online_replicas(partition.tp, partition.assignment)
        can_lead = elections.preferred(replicas, state.isr, live) is not None
        if (
            can_lead
            and self.halted_by is None
            and (partition.tp, None) not in tried
            and self._may_elect()
        ):
            due.elections.append(partition.tp)

    def _may_elect(self) -> bool:
        second = int(_now() / LEADERSHIPS_S)
        if second != self._leaderships_at:
            self._leaderships_at, self._leaderships = second, 0
        self._leaderships += 1
        return self._leaderships <= self._config.moves_leaderships

    def _can_begin(self, partition: Partition, step: Iterable[int]) -> bool:
        """Not without a leader to copy from, nor to a broker that is away."""
        state = partition.leader_and_isr
        assert state is not None
        new = set(step) - set(partition.assignment.replicas)
        return self._context.brokers.is_live(state.leader) and new <= self._context.brokers.live

    def in_flight(self) -> list[MoveStep]:
        """All that moves, for a plan or not."""
        found = []
        for tp in self._context.reassigning:
            state = self._context.leader_and_isr(tp)
            leader = -1 if state is None else state.leader
            size = self.queue[tp].bytes if tp in self.queue else 0
            found.append(MoveStep(tp, tuple(self._context.assignment(tp).adding), leader, size))
        return found

    def _limits(self) -> Limits:
        config = self._config
        self.pace.configure(config.moves_per_broker, config.moves_per_broker_max)
        return Limits(
            config.moves_cluster,
            self.pace.default(),
            config.moves_bytes_per_broker,
            self.pace.of_broker,
        )

    # Looking again

    def _schedule(self) -> None:
        """Have the event put that looks again, as long as anything is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not len(self.queue) and not len(self.throttle):
            return
        now = _now()
        if now >= self._observe_at:
            self._observe_at = now + OBSERVE_S
        delay = self._observe_at - now
        if self._leaderships > self._config.moves_leaderships:
            delay = min(delay, LEADERSHIPS_S)
        if wait_s := self.throttle.seconds_left(now):
            delay = min(delay, wait_s)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay, self._term.put, events.PaceMoves())

    async def learn_min_isr(self, topics: Iterable[str]) -> None:
        """Read the min ISR of these topics: the controller knows no other setting of a topic."""
        names = sorted(set(topics))
        configs = await self._term.store.configs.get_many(ConfigKind.TOPICS, names)
        for topic in names:
            text = configs.get(topic, {}).get(MIN_ISR, "")
            if text.isdecimal():
                self._min_isr[topic] = int(text)
            else:
                self._min_isr.pop(topic, None)

    async def observe(self) -> list[TopicPartition]:
        """Look at the health of what moves, every ten seconds; returns the steps to take back."""
        if _now() < self._observe_at:
            return []
        context = self._context
        in_flight = self.in_flight()
        shrinks = self._count_shrinks()
        watched = [*(step.tp for step in in_flight), *sorted(self._shrunk)]
        await self.learn_min_isr(tp.topic for tp in watched)
        moving = Counter(broker for step in in_flight for broker in step.brokers)
        strained = set(self._strained & moving.keys())
        self._strained = frozenset()
        halted_by = None
        for tp in watched:
            health = self._health(tp)
            if health is None or not context.assignment(tp).replicas:
                continue
            if health.is_at_min and tp in context.reassigning:
                strained.update(context.assignment(tp).replicas)
            if health.is_under_min and health.all_live and health.is_led:
                halted_by = tp
        self._shrunk = {tp for tp in self._shrunk if self._is_short(tp)}
        for broker, (before, after) in self.pace.observe(moving, strained, shrinks).items():
            self._record(f"broker {broker} takes {after} moves at a time, was {before}")
        self._halt(halted_by)
        urgency = {tp: health.urgency for tp in self.queue if (health := self._health(tp))}
        self._urgent = sorted((tp for tp, of in urgency.items() if of < 2), key=urgency.__getitem__)
        return self._lost()

    def _count_shrinks(self) -> Counter[int]:
        """How often each broker was leader or lost member of an ISR that shrank, of partitions that
        do not move, and not because the member is gone."""
        context = self._context
        found: Counter[int] = Counter()
        for tp, leader, lost in self._term.shrinks:
            alive = {id for id in lost if context.brokers.is_live(id)}
            if alive and tp not in context.reassigning:
                self._shrunk.add(tp)
                found.update({leader, *alive})
        self._term.shrinks.clear()
        return found

    def _health(self, tp: TopicPartition) -> Health | None:
        context = self._context
        state = context.leader_and_isr(tp)
        if state is None:
            return None
        origin = context.assignment(tp).origin
        return Health(
            in_sync=len(state.isr),
            replicas=len(origin),
            min_isr=self._min_isr.get(tp.topic, self._config.min_insync_replicas),
            all_live=all(context.brokers.is_replica_online(tp, id) for id in origin),
            is_led=context.brokers.is_live(state.leader),
        )

    def _is_short(self, tp: TopicPartition) -> bool:
        health = self._health(tp)
        return health is not None and health.in_sync < health.replicas

    def _halt(self, by: TopicPartition | None) -> None:
        if (by is None) != (self.halted_by is None):
            self._record(
                f"stopped: {by} is under its min ISR and all its brokers are alive"
                if by is not None
                else "resumed"
            )
        self.halted_by = by

    def _lost(self) -> list[TopicPartition]:
        """Steps of plans whose new broker has been gone for so long."""
        context = self._context
        gone = {
            tp
            for tp in context.reassigning
            if tp in self.queue and not set(context.assignment(tp).adding) <= context.brokers.live
        }
        self._gone = Counter({tp: self._gone[tp] + 1 for tp in gone})
        return [tp for tp, times in self._gone.items() if times >= GONE_OBSERVATIONS]

    def _record(self, what: str) -> None:
        self._term.journal.record(EntryKind.REASSIGNMENT, after=f"moves of plans: {what}")


def _now() -> float:
    return asyncio.get_running_loop().time()
