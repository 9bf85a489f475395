"""Carrying plans out: hand them to the controller, say how they stand, stop them, take them back.

    store = PlanStore(admin)
    applied = await apply(admin, store, plan, throttle=50_000_000, by="alice", now_ms=now_ms)
    standing = await status(admin, store, plan.id, now_ms=now_ms)

The decisions are pure functions: `compare` (is the plan still about this cluster), `standing_of`
(how far it has come), `way_back` (the plan that undoes it) and `next_batch` (what to ask of a
controller that knows no plans). A controller of ours moves the partitions, paced, in steps and
throttled; a client that dies changes nothing about that, and `apply` again continues where it died.

Apache Kafka's controller starts all that it is asked for at once. There `feed` hands it a few moves
at a time, again and again, from the `apply` that waits or from the watcher; the throttle is held by
the plan's record, and `status`, `stop`, the next `apply` and the watcher put the settings back once
nothing of the plan moves.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from odradek.balance.plan import COPY, LEADERSHIP, Move, Plan, PlanCost
from odradek.balance.plan_store import PlanStore, Run, RunState, StoredPlans
from odradek.client.admin import Admin
from odradek.client.metadata import Metadata
from odradek.client.values import (
    ConfigChange,
    ElectionType,
    Outcome,
    Resource,
    ResourceType,
    check,
)
from odradek.operations.plan import Sizes, require_alive
from odradek.operations.reassignment import replica_sizes
from odradek.operations.throttle import HeldSetting, held_settings, restore, set_held
from odradek.placement import Ongoing, move_map
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

DROPPED_MAX = 0.05
# The controller does nothing else while it takes a request in.
MOVES_PER_REQUEST = 1_000
# Where the controller does not pace: moves on a broker at a time, as source or target.
FED_PER_BROKER = 5
# A plan just started may not be with the controller yet: it is not taken for one that has ended.
HAND_OVER_MS = 10_000

# The replicas and the leader of each partition; one that does not exist is not there.
Where = dict[TopicPartition, tuple[tuple[int, ...], int]]


class StalePlan(KafkaError):
    """Too many partitions are not where the plan has them."""

    def __init__(self, plan: Plan, dropped: Sequence[str]) -> None:
        some = ", ".join(dropped[:5]) + (", ..." if len(dropped) > 5 else "")
        super().__init__(
            ErrorCode.INVALID_REQUEST,
            f"plan {plan.id} is stale: {len(dropped)} of {len(plan.moves)} partitions are not "
            f"where it has them ({some}); make a new plan",
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is to be done of a plan: the moves left, those done, and those that no longer fit."""

    left: tuple[Move, ...]
    done: tuple[Move, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a plan has come. `unmoved` are neither done nor under way."""

    plan: Plan
    run: Run
    done: int
    moving: int
    waiting: int
    unmoved: tuple[str, ...]
    done_bytes: int
    total_bytes: int
    seconds_left: float | None
    # Settings of the throttle that were left as they are: changed meanwhile, or the broker is away.
    left_settings: tuple[str, ...] = ()

    @property
    def is_active(self) -> bool:
        return bool(self.moving or self.waiting)

    @property
    def failed(self) -> tuple[str, ...]:
        """What is not where the plan wants it, although it was there when the plan started."""
        return tuple(name for name in self.unmoved if name not in self.run.dropped)

    def has_ended(self, now_ms: int) -> bool:
        if self.is_active:
            return False
        return not self.failed or now_ms - self.run.started_ms > HAND_OVER_MS

    @property
    def percent(self) -> float:
        return 100.0 * self.done_bytes / self.total_bytes if self.total_bytes else 100.0


# Decisions


def compare(plan: Plan, where: Where, *, was_started: bool) -> Comparison:
    """Which moves still fit the cluster: a partition is where the plan has it, or has arrived. Of a
    plan that was started before, it may be on the way."""
    left, done, dropped = [], [], []
    for move in plan.moves:
        replicas, leader = where.get(move.tp, ((), -1))
        if replicas == move.after and leader == move.after[0]:
            done.append(move)
        elif replicas in (move.before, move.after) or (
            was_started and replicas and set(replicas) <= {*move.before, *move.after}
        ):
            left.append(move)
        else:
            dropped.append(str(move.tp))
    return Comparison(tuple(left), tuple(done), tuple(dropped))


def standing_of(
    plan: Plan,
    run: Run,
    where: Where,
    ongoing: Mapping[TopicPartition, Ongoing],
    sizes: Sizes,
    now_ms: int,
) -> Standing:
    """How each move stands, in bytes and in time. The time is that of the rate so far. What moves
    although the plan was never started, moves for something else."""
    if run.state is RunState.PLANNED:
        ongoing = {}
    done = moving = waiting = done_bytes = 0
    unmoved = []
    total = sum(move.bytes for move in plan.moves)
    for move in plan.moves:
        replicas, leader = where.get(move.tp, ((), -1))
        state = ongoing.get(move.tp)
        if state is not None:
            begun = set(state.adding) <= set(replicas)
            moving += begun
            waiting += not begun
            done_bytes += _arrived(move, sizes.get(move.tp, {}))
        elif replicas == move.after and leader == move.after[0]:
            done += 1
            done_bytes += move.bytes
        elif run.is_fed and run.state is RunState.RUNNING and str(move.tp) not in run.dropped:
            waiting += 1
        else:
            unmoved.append(str(move.tp))
            # A partition that is not listed and not led as planned may be between two elections.
            done_bytes += move.bytes if replicas == move.after else 0
    elapsed = max(0.001, (now_ms - run.started_ms) / 1000)
    rate = done_bytes / elapsed if done_bytes else float(plan.cost.rate)
    is_active = moving or waiting
    seconds_left = (total - done_bytes) / rate if is_active and rate else None
    return Standing(
        plan, run, done, moving, waiting, tuple(unmoved), done_bytes, total, seconds_left
    )


def settled(standing: Standing, where: Where, left: int) -> Standing:
    """How a plan stands of which nothing moves, although partitions are not led as planned, and
    the controller has so many moves of plans left.

    Those that it has left wait for their leader to be elected, whose broker may be away. Otherwise
    they were led as planned, and that leader has died since: leadership returns by itself, and the
    plan is done where the replicas are its own.
    """
    if left:
        return replace(standing, waiting=len(standing.failed), unmoved=standing.run.dropped)
    there = {str(of.tp) for of in standing.plan.moves if where.get(of.tp, ((), 0))[0] == of.after}
    unmoved = tuple(name for name in standing.unmoved if name not in there)
    return replace(standing, done=len(there), unmoved=unmoved)


def _arrived(move: Move, sizes: Mapping[int, int]) -> int:
    """How many bytes of a move's new replicas are there."""
    new = set(move.after) - set(move.before)
    each = move.bytes // len(new) if new else 0
    return sum(min(sizes.get(broker, 0), each) for broker in new)


def way_back(
    plan: Plan, where: Where, ongoing: Mapping[TopicPartition, Ongoing], id: str, now_ms: int
) -> tuple[Plan, tuple[str, ...]]:
    """The plan that undoes another, last move first, and the partitions that were moved elsewhere
    since: those are left alone."""
    moves, foreign = [], []
    for move in reversed(plan.moves):
        replicas, _ = where.get(move.tp, ((), -1))
        if not replicas or not set(replicas) <= {*move.before, *move.after}:
            foreign.append(str(move.tp))
        elif replicas != move.before or move.tp in ongoing:
            moves.append(_undo(move, replicas))
    copies = [move for move in moves if move.kind == COPY]
    size = sum(move.bytes for move in moves)
    rate = max(1, plan.cost.rate)
    cost = PlanCost(size, len(copies), len(moves) - len(copies), size / rate, rate, None, 0)
    back = replace(
        plan, id=id, created_ms=now_ms, moves=tuple(moves), rules=(), brokers=(), cost=cost, bound=0
    )
    return back, tuple(foreign)


def _undo(move: Move, replicas: tuple[int, ...]) -> Move:
    new = set(move.before) - set(replicas)
    added = len(set(move.after) - set(move.before))
    size = len(new) * (move.bytes // added) if added else 0
    share = size / move.bytes if move.bytes else 0.0
    return replace(
        move,
        before=replicas,
        after=move.before,
        kind=COPY if new else LEADERSHIP,
        gain="",
        bytes=size,
        seconds=move.seconds * share,
        because_of=None,
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """What to ask a controller for that does not pace."""

    moves: tuple[Move, ...]
    elections: tuple[Move, ...]


def next_batch(
    plan: Plan,
    run: Run,
    where: Where,
    ongoing: Mapping[TopicPartition, Ongoing],
    live: frozenset[int],
) -> Batch:
    """The next moves in the order of the plan whose brokers take part in few others, and the
    partitions that have arrived and are not led as planned. A move to a broker that is away, or of
    a partition without a leader, waits."""
    busy: Counter[int] = Counter()
    for tp, state in ongoing.items():
        busy.update({*state.adding, *([where[tp][1]] if tp in where else [])})
    moves, elections = [], []
    for move in plan.moves:
        replicas, leader = where.get(move.tp, ((), -1))
        if move.tp in ongoing or str(move.tp) in run.dropped or leader not in live:
            continue
        if replicas == move.after:
            if leader != move.after[0]:
                elections.append(move)
            continue
        new = set(move.after) - set(replicas)
        involved = {*new, leader} if new else set()
        if new <= live and all(busy[id] < FED_PER_BROKER for id in involved):
            busy.update(involved)
            moves.append(move)
    return Batch(tuple(moves), tuple(elections))


def replica_bytes(moves: Iterable[Move]) -> dict[TopicPartition, int]:
    """The bytes of one new replica of each partition."""
    return {
        move.tp: move.bytes // max(1, len(set(move.after) - set(move.before))) for move in moves
    }


# Work


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a plan that was handed to the controller."""

    accepted: int
    dropped: tuple[str, ...]
    refused: Mapping[TopicPartition, Outcome]
    # Whether the controller has only some of the moves: it is Apache Kafka's, and must be fed.
    is_fed: bool = False


async def apply(
    admin: Admin,
    store: PlanStore,
    plan: Plan,
    *,
    throttle: int | None,
    by: str,
    now_ms: int,
    rollback_of: str | None = None,
) -> Applied:
    """Hand a plan to the controller. StalePlan if it is no longer about this cluster."""
    paces = await admin.knows_plans()
    stored = await settle(admin, store, await store.read(), now_ms)
    for other in stored.running():
        if other != plan.id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"plan {other} is being carried out; wait for it, or stop it with "
                f"`odradek rebalance stop {other}`",
            )
    before = stored.run(plan.id)
    fits = compare(plan, await find(admin, plan), was_started=bool(before.started_ms))
    left, dropped = fits.left, fits.dropped
    if len(dropped) > DROPPED_MAX * len(plan.moves):
        raise StalePlan(plan, dropped)
    require_alive(admin.client.metadata, {id for m in left for id in set(m.after) - set(m.before)})
    since_ms = before.started_ms if before.state is RunState.RUNNING else now_ms
    run = Run(RunState.RUNNING, since_ms, 0, by, throttle, dropped, rollback_of, not paces)
    await store.put(plan, stored, run)
    if paces:
        refused = await _hand_over(admin, plan.id, left, throttle or 0)
        return Applied(len(left) - len(refused), dropped, refused)
    if throttle is not None and left and not stored.throttles.get(plan.id):
        await _throttle(admin, store, plan.id, left, throttle)
    await feed(admin, await store.read(), plan.id)
    return Applied(len(left), dropped, {}, is_fed=True)


async def set_pace(admin: Admin, limits: Mapping[str, str]) -> None:
    """Set the cluster's limits of moves, where its controller knows them."""
    if limits and await admin.knows_plans():
        changes = [ConfigChange(name, value) for name, value in limits.items()]
        check(await admin.alter_configs({Resource(ResourceType.BROKER, ""): changes}))


async def feed(admin: Admin, stored: StoredPlans, id: str) -> None:
    """Ask Apache Kafka's controller for the next moves of a plan that runs."""
    run = stored.run(id)
    if run.state is not RunState.RUNNING:
        return
    plan = stored.plan(id)
    where = await find(admin, plan)
    ongoing = await admin.list_reassignments(None)
    batch = next_batch(plan, run, where, ongoing, frozenset(admin.client.metadata.nodes))
    if batch.moves:
        await admin.alter_reassignments({move.tp: move.after for move in batch.moves})
    if batch.elections:
        await admin.elect_leaders(ElectionType.PREFERRED, [move.tp for move in batch.elections])


async def _throttle(
    admin: Admin, store: PlanStore, id: str, moves: Sequence[Move], throttle: int
) -> None:
    """What the settings were is known before the first is changed."""
    wanted = move_map({m.tp: m.before for m in moves}, {m.tp: m.after for m in moves})
    held = await held_settings(admin, wanted, throttle)
    await store.hold(id, held)
    await set_held(admin, held)


async def _hand_over(
    admin: Admin, id: str, moves: Sequence[Move], throttle: int
) -> dict[TopicPartition, Outcome]:
    sizes = replica_bytes(moves)
    refused: dict[TopicPartition, Outcome] = {}
    for some in _pieces(moves):
        targets = {move.tp: move.after for move in some}
        outcomes = await admin.move_for_plan(id, targets, sizes, throttle)
        refused.update({tp: error for tp, error in outcomes.items() if error is not None})
    return refused


async def status(admin: Admin, store: PlanStore, id: str, *, now_ms: int) -> Standing:
    """How a plan stands. One that has ended is marked so, and its throttle removed."""
    stored = await store.read()
    standing = await _standing(admin, stored, id, now_ms)
    if id not in stored.running() or not standing.has_ended(now_ms):
        return standing
    run, left = await _end(admin, store, stored, standing, now_ms)
    return replace(standing, run=run, left_settings=tuple(_described(left)))


async def settle(admin: Admin, store: PlanStore, stored: StoredPlans, now_ms: int) -> StoredPlans:
    """Mark the plans that have ended, and put back the settings they held."""
    changed = False
    for id in stored.running():
        standing = await _standing(admin, stored, id, now_ms)
        if standing.has_ended(now_ms):
            await _end(admin, store, stored, standing, now_ms)
            changed = True
    return await store.read() if changed else stored


async def _end(
    admin: Admin, store: PlanStore, stored: StoredPlans, standing: Standing, now_ms: int
) -> tuple[Run, list[HeldSetting]]:
    id, run = standing.plan.id, standing.run
    left = await restore(admin, stored.throttles.get(id, ()))
    await store.release(id, stored)
    if run.state is RunState.RUNNING:
        state = RunState.STOPPED if standing.failed else RunState.DONE
        run = replace(run, state=state, ended_ms=now_ms)
        await store.set_run(id, run)
    return run, left


async def stop(admin: Admin, store: PlanStore, id: str, *, at_once: bool, now_ms: int) -> Standing:
    """Start nothing more of a plan. What is under way ends, or `at_once` is taken back."""
    stored = await store.read()
    plan = stored.plan(id)
    paces = await admin.knows_plans()
    for some in _pieces(plan.moves):
        targets: dict[TopicPartition, Sequence[int] | None] = {move.tp: None for move in some}
        if paces:
            await admin.move_for_plan(id, targets, {})
        if at_once:
            ongoing = await admin.list_reassignments([move.tp for move in some])
            if ongoing:
                await admin.alter_reassignments(dict.fromkeys(ongoing))
    run = stored.run(id)
    if run.state is RunState.RUNNING:
        run = replace(run, state=RunState.STOPPED, ended_ms=now_ms)
        await store.set_run(id, run)
    return await status(admin, store, id, now_ms=now_ms)


async def rollback(
    admin: Admin, store: PlanStore, id: str, *, throttle: int | None, by: str, now_ms: int
) -> tuple[Plan, Applied, tuple[str, ...]]:
    """Stop a plan and carry out the one that undoes it; also returns what was left alone."""
    await stop(admin, store, id, at_once=True, now_ms=now_ms)
    stored = await store.read()
    plan = stored.plan(id)
    where = await find(admin, plan)
    ongoing = await admin.list_reassignments([move.tp for move in plan.moves])
    back, foreign = way_back(plan, where, ongoing, stored.new_id(now_ms), now_ms)
    applied = await apply(
        admin, store, back, throttle=throttle, by=by, now_ms=now_ms, rollback_of=id
    )
    return back, applied, foreign


async def find(admin: Admin, plan: Plan) -> Where:
    """Where the partitions of a plan are."""
    metadata: Metadata = await admin.client.refresh({move.topic for move in plan.moves})
    found = Where()
    for move in plan.moves:
        topic = metadata.topics.get(move.topic)
        partition = None if topic is None else topic.partitions.get(move.partition)
        if partition is not None:
            found[move.tp] = (tuple(partition.replicas), partition.leader)
    return found


async def _standing(admin: Admin, stored: StoredPlans, id: str, now_ms: int) -> Standing:
    plan = stored.plan(id)
    ongoing = await admin.list_reassignments([move.tp for move in plan.moves])
    where = await find(admin, plan)
    copying = [tp for tp, state in ongoing.items() if tp in where and state.adding]
    sizes: Sizes = await replica_sizes(admin, copying) if copying else {}
    standing = standing_of(plan, stored.run(id), where, ongoing, sizes, now_ms)
    if standing.failed and not standing.is_active:
        return settled(standing, where, await admin.moves_of_plans())
    return standing


def _described(settings: Iterable[HeldSetting]) -> Iterator[str]:
    for of in settings:
        yield f"{of.name} of {of.resource.type.name.lower()} {of.owner}"


def _pieces(moves: Sequence[Move]) -> Iterator[list[Move]]:
    rest = iter(moves)
    while piece := list(islice(rest, MOVES_PER_REQUEST)):
        yield piece
