"""Bugs planted through hooks, one or more for each invariant: what the checkers must find.

Each is a mistake one could make, or has made. `python -m tests.sim.planted` counts how many
seeds it takes to find each; the table in docs/simulation.md is made of that. Those in transactions
are in `planted_transactions`.
"""

import asyncio
import posixpath
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from unittest import mock

from odradek.broker import registration, server, unclean_start
from odradek.broker.handlers import alter_partition as alter_partition_handler
from odradek.broker.handlers import fetch, produce
from odradek.controller import (
    alter_partition,
    brokers,
    leader_and_isr_rules,
    partition_states,
    plan_pace,
    reassignment_rules,
    replica_states,
    restarted_replicas,
    topic_ids,
)
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.control_request_batch import ControlMessage, RequestBatch
from odradek.controller.plan_scheduler import PlanScheduler
from odradek.controller.reassigner import Reassigner
from odradek.coordinator.storage import GroupReplay
from odradek.log import recovery, retention, tail
from odradek.log.cleaner import _Cleaning
from odradek.log.flush import Flush
from odradek.log.flusher import Flusher
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.producers import Origin, ProducerStates
from odradek.log.shutdown_record import Differences
from odradek.log.tail import Tail
from odradek.replica import control_decisions, control_requests, log_dir_moves
from odradek.replica.control_requests import ControlRequests
from odradek.replica.follower import fetcher
from odradek.replica.follower.fetcher import ReplicaFetcher
from odradek.replica.leader import controller_isr_path, isr, read, role
from odradek.replica.leader.direct_isr_path import DirectIsrPath
from odradek.replica.leader.fetch_state import FollowerLink
from odradek.replica.leader.isr_change_queue import IsrChangeQueue
from odradek.replica.leader.partition_counts import Condition
from odradek.replica.leader.role import LeaderRole
from odradek.replica.log_dir_moves import LogDirMoves
from odradek.replica.manager import ReplicaManager
from odradek.replica.partition import Partition
from odradek.replica.replica_logs import ReplicaLogs
from odradek.sim.faults import CLIENT_LINKS, TWO, Fault, Kind
from odradek.sim.plan import (
    FETCH_BYTES,
    MOVE_RATE,
    SLOW_MOVES,
    SMALL_FETCHES,
    Plan,
    draw_plan,
    draw_wide_plan,
)
from odradek.sim.run import Report, run
from odradek.sim.workload import Load
from odradek.store import cluster
from odradek.store.cluster import ClusterStore
from odradek.store.nodes import Nodes
from odradek.wire.batch import scan
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.protocol_version import ProtocolVersion

SECONDS = 60.0
SEEDS_MAX = 40
SAMPLES = 5

Patches = Sequence[Any]  # mock's patchers have a private type


@dataclass(frozen=True)
class Bug:
    """A mistake, the invariant that must notice it, and a seed that is known to."""

    name: str
    invariants: frozenset[str]
    patches: Callable[[], Patches]
    seed: int
    plan: Callable[[int], Plan] = lambda seed: draw_plan(seed, SECONDS)
    # The inter-broker protocol of all brokers.
    protocol: ProtocolVersion = ProtocolVersion.V2_6_IV0

    @contextmanager
    def planted(self) -> Iterator[None]:
        patches = self.patches()
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in reversed(patches):
                patch.stop()

    def plan_for(self, seed: int) -> Plan:
        plan = self.plan(seed)
        faults = [fault for fault in plan.faults if fault.kind is not Kind.UPGRADE]
        if self.plan in NEWER:
            return replace(plan, faults=faults, protocols=(), later_protocol=str(self.protocol))
        # What was drawn later only for the bugs in it: the seeds of the others stay what they are.
        faults = [fault for fault in faults if fault.kind not in DRAWN_LATER]
        load = replace(
            plan.load,
            plans=self.plan is levelled,
            pipelining=0.0,
            cleaning=False,
            pause=1.0,
            directory_moves=self.plan in (moved_logs, moved_once),
        )
        kept = (FETCH_BYTES, MOVE_RATE) if load.directory_moves else (FETCH_BYTES,)
        settings = {name: plan.settings[name] for name in plan.settings if name in kept}
        return replace(
            plan,
            faults=faults,
            protocols=(),
            later_protocol=str(self.protocol),
            load=load,
            settings=settings,
            offload_s=0.0,
        )

    def is_found(self, report: Report) -> bool:
        if not self.invariants:
            return any("not well" in finding for finding in report.findings)
        return any(violation.invariant in self.invariants for violation in report.violations)


def isolated(seed: int) -> Plan:
    """A broker is isolated, deposed, and goes on serving its clients until it hears so."""
    rng = random.Random(seed)
    faults = []
    at = 2.0
    while at < SECONDS:
        victim, other = rng.sample([1, 2, 3], 2)
        faults.append(Fault(at, Kind.ISOLATE, victim, other, 4.0))
        faults.append(Fault(at + 0.5, Kind.STORE_EXPIRE, victim, other, 0.05))
        at += rng.uniform(6.0, 9.0)
    plan = draw_plan(seed, SECONDS)
    load = replace(plan.load, producers=3, consumers=2, admin=False)
    return replace(plan, brokers=3, replication=3, min_isr=2, faults=faults, log_dirs=1, load=load)


def levelled(seed: int) -> Plan:
    """Partitions are moved for plans, and controllers change meanwhile."""
    rng = random.Random(seed)
    faults = [
        Fault(at, Kind.STORE_EXPIRE, rng.randint(1, 5), rng.randint(1, 5), 0.05)
        for at in range(5, int(SECONDS), 5)
    ]
    plan = draw_plan(seed, SECONDS)
    load = replace(plan.load, admin=False)
    return replace(
        plan,
        brokers=5,
        replication=3,
        min_isr=2,
        partitions=4,
        faults=faults,
        log_dirs=1,
        load=load,
    )


def divided(seed: int) -> Plan:
    """The controller changes again and again, while requests of earlier ones are on the way."""
    rng = random.Random(seed)
    faults = []
    at = 2.0
    while at < SECONDS:
        victim, other = rng.sample([1, 2, 3], 2)
        faults.append(Fault(at, Kind.CUT_ONE_WAY, victim, other, rng.uniform(0.5, 2.0)))
        faults.append(Fault(at + 0.2, Kind.STORE_EXPIRE, other, victim, 0.05))
        faults.append(Fault(at + 0.2 + rng.uniform(0.001, 0.02), Kind.DEPOSE, victim, other, 0.1))
        at += rng.expovariate(1.0)
    plan = draw_plan(seed, SECONDS)
    return replace(plan, brokers=3, replication=3, min_isr=2, faults=faults, log_dirs=1)


def blackouts(seed: int) -> Plan:
    """Machines lose power or their disk, and are back before the cluster has missed them."""
    rng = random.Random(seed)
    faults = []
    at = 2.0
    while at < SECONDS:
        victim, other = rng.sample([1, 2, 3], 2)
        kind = rng.choice([Kind.POWER_LOSS, Kind.ERASE])
        faults.append(Fault(at, kind, victim, other, rng.uniform(0.1, 4.0)))
        at += rng.uniform(4.0, 10.0)
    plan = draw_plan(seed, SECONDS)
    return replace(
        plan,
        brokers=3,
        replication=3,
        min_isr=2,
        faults=faults,
        log_dirs=1,
        load=replace(plan.load, admin=True),
    )


def damaged(seed: int) -> Plan:
    """Brokers stop cleanly, and find their files changed when they start."""
    rng = random.Random(seed)
    faults = []
    at = 4.0
    while at < SECONDS:
        victim, other = rng.sample([1, 2, 3], 2)
        faults.append(Fault(at, Kind.DAMAGE, victim, other, rng.uniform(0.1, 2.0)))
        at += rng.uniform(4.0, 8.0)
    plan = draw_plan(seed, SECONDS)
    return replace(plan, brokers=3, replication=3, min_isr=2, faults=faults, log_dirs=1)


def lost_leaders(seed: int) -> Plan:
    """A follower leaves the ISR, and right then the leader is lost, before it could send the others
    the new high watermark; then its successor goes too."""
    rng = random.Random(seed)
    faults = []
    at = 3.0
    while at < SECONDS - 5:
        leader, successor, behind = rng.sample([1, 2, 3], 3)
        left = at + 2.0
        lost = left + rng.uniform(0.026, 0.06)
        next_lost = lost + rng.uniform(0.15, 0.35)
        faults += [
            Fault(at, Kind.CUT, leader, behind, 3.0),
            Fault(left, Kind.STORE_EXPIRE, behind, leader, 0.05),
            Fault(lost, Kind.ISOLATE, leader, behind, 4.0),
            Fault(lost, Kind.STORE_EXPIRE, leader, behind, 0.05),
            Fault(next_lost, Kind.STORE_EXPIRE, successor, behind, 0.05),
            Fault(next_lost + 0.001, Kind.KILL, successor, behind, 1.0),
        ]
        at += rng.uniform(9.0, 11.0)
    return _of_three(seed, faults, 0.01, SMALL_FETCHES, producers=10)


def hand_overs(seed: int) -> Plan:
    """A leader is replaced, and its successor is gone before others have fetched from it."""
    rng = random.Random(seed)
    faults = []
    at = 3.0
    while at < SECONDS - 5:
        leader, successor = rng.sample([1, 2, 3], 2)
        lost = at + rng.uniform(0.08, 0.4)
        faults += [
            Fault(at, Kind.STORE_EXPIRE, leader, successor, 0.05),
            Fault(lost, Kind.STORE_EXPIRE, successor, leader, 0.05),
            Fault(lost + 0.001, Kind.KILL, successor, leader, 1.0),
        ]
        at += rng.uniform(5.0, 8.0)
    return _of_three(seed, faults, 0.08, {})


def unseen_returns(seed: int) -> Plan:
    """A machine loses its disk and is back while the others pause; then one of them goes."""
    rng = random.Random(seed)
    faults = []
    at = 3.0
    while at < SECONDS - 10:
        victim, other, another = rng.sample([1, 2, 3], 3)
        lost = at + 7.0 + rng.uniform(0.1, 1.0)
        faults += [
            Fault(at, Kind.ERASE, victim, other, 0.5),
            Fault(at + 3.7, Kind.PAUSE, other, victim, 3.0),
            Fault(at + 3.7, Kind.PAUSE, another, victim, 3.0),
            Fault(lost, Kind.STORE_EXPIRE, other, victim, 0.05),
            Fault(lost + 0.001, Kind.KILL, other, victim, 1.0),
        ]
        at += rng.uniform(14.0, 18.0)
    # A follower may be silent for longer than a session lasts, as with Kafka's defaults.
    settings = {**SMALL_FETCHES, "replica.lag.time.max.ms": "30000"}
    return _of_three(seed, faults, 0.01, settings)


def same_ids(seed: int) -> Plan:
    """Second machines are started under ids that are in use; then brokers go and come back."""
    rng = random.Random(seed)
    faults = []
    at = 4.0
    while at < SECONDS - 10:
        victim, other = rng.sample([1, 2, 3], 2)
        kind = rng.choice([Kind.SAME_ID, Kind.PAUSE_AND_SAME_ID])
        faults += [
            Fault(at, kind, victim, victim, rng.uniform(2.0, 12.0)),
            Fault(at + rng.uniform(1.0, 8.0), Kind.KILL, other, victim, 1.0),
        ]
        at += rng.uniform(10.0, 20.0)
    return _of_three(seed, faults, 0.0002, {})


def filling(seed: int) -> Plan:
    """Disks fill in the middle of a write, and have room again soon."""
    rng = random.Random(seed)
    faults = []
    at = 3.0
    while at < SECONDS:
        victim, other = rng.sample([1, 2, 3], 2)
        faults.append(Fault(at, Kind.DISK_FILLS, victim, other, rng.uniform(0.1, 1.0)))
        at += rng.uniform(2.0, 4.0)
    return _of_three(seed, faults, 0.0002, {})


def churning(seed: int) -> Plan:
    """Topics come and go with their records, and nothing else is wrong."""
    plan = _of_three(seed, [], 0.0002, {}, producers=1)
    return replace(plan, load=replace(plan.load, admin=True, fills_topics=True, consumers=0))


def broken_clients(seed: int) -> Plan:
    """Connections of clients break several times a second, often in the middle of a response."""
    rng = random.Random(seed)
    faults = []
    at = 2.0
    while at < SECONDS:
        faults.append(Fault(at, Kind.BREAK_CLIENTS, rng.randint(1, 3), 1, 0.0))
        at += rng.expovariate(3.0)
    plan = _of_three(seed, faults, 0.01, {})
    return replace(plan, load=replace(plan.load, idempotent=1.0))


def pipelined(seed: int) -> Plan:
    """Several requests of each producer are under way to one partition, and connections break."""
    plan = broken_clients(seed)
    load = replace(Load(3, 1.0, 0, 0, 0, admin=False), pipelining=1.0)
    return replace(plan, load=load, partitions=1, seconds=20.0, faults=plan.faults[:40])


def wide(seed: int) -> Plan:
    """More than a thousand partitions, and a broker that is killed."""
    return replace(
        draw_wide_plan(seed, 10.0),
        partitions=1200,
        faults=[Fault(3.0, Kind.KILL, 1 + seed % 3, 1, 2.0)],
    )


def cut_clients(seed: int) -> Plan:
    """Clients are cut off from a broker, often for longer than they wait for a response."""
    rng = random.Random(seed)
    faults = []
    at = 2.0
    while at < SECONDS:
        victim, way = rng.randint(1, 3), rng.randint(1, 3)
        faults.append(Fault(at, Kind.CUT_CLIENTS, victim, way, rng.uniform(10.0, 40.0)))
        at += rng.expovariate(0.2)
    plan = _of_three(seed, faults, 0.01, {})
    return replace(plan, load=Load(3, 1.0, 1, 0, 0, admin=False))


def cleaned(seed: int) -> Plan:
    """A compacted and a trimmed topic, and brokers that are killed."""
    rng = random.Random(seed)
    faults = [Fault(at, Kind.KILL, rng.randint(1, 3), 1, 2.0) for at in (8.0, 14.0)]
    plan = _of_three(seed, faults, 0.0002, {})
    load = replace(Load(1, 1.0, 0, 0, 0, admin=False), cleaning=True)
    return replace(plan, load=load, seconds=30.0)


def jumped(seed: int) -> Plan:
    """A compacted and a trimmed topic, and clocks that jump and are set right again."""
    rng = random.Random(seed)
    faults = [Fault(at, Kind.CLOCK_JUMP, rng.randint(1, 3), 1, 2.5) for at in (3.0, 7.0, 11.0)]
    return replace(cleaned(seed), faults=faults)


def moved_logs(seed: int) -> Plan:
    """Logs are moved between directories, slowly, while leaders are replaced and killed."""
    plan = hand_overs(seed)
    load = replace(plan.load, directory_moves=True)
    return replace(plan, log_dirs=2, load=load, settings=SLOW_MOVES)


def behind(seed: int) -> Plan:
    """Brokers are killed, come back, and lose power while they copy what they missed, segment after
    segment, with flushes that take their time."""
    rng = random.Random(seed)
    faults = []
    at = 8.0
    while at < SECONDS - 10:
        victim = rng.randint(1, 3)
        lost = at + 6.0 + rng.uniform(0.8, 2.0)
        faults.append(Fault(at, Kind.KILL, victim, victim, 6.0))
        faults.append(Fault(lost, Kind.POWER_LOSS_BEHIND, victim, victim, 0.5))
        at += rng.uniform(10.0, 14.0)
    plan = _of_small_segments(seed, faults)
    settings = {**plan.settings, **SMALL_FETCHES}
    return replace(plan, offload_s=0.5, latency_s=0.01, settings=settings)


def slow_flushes(seed: int) -> Plan:
    """Segments are rolled and flushed all the time, and machines lose power meanwhile."""
    plan = _of_small_segments(seed, _power_losses(seed, Kind.POWER_LOSS))
    settings = {**plan.settings, "log.flush.offset.checkpoint.interval.ms": "200"}
    return replace(plan, offload_s=0.5, settings=settings)


def slow_syncs(seed: int) -> Plan:
    """A compacted topic on machines that lose power, whose work off the loop takes its time."""
    plan = replace(cleaned(seed), faults=_power_losses(seed, Kind.POWER_LOSS), seconds=SECONDS)
    return replace(plan, offload_s=0.5, settings={"log.cleaner.backoff.ms": "1000"})


def two_blackouts(seed: int) -> Plan:
    """Two machines of three lose power at once, and are back before the cluster missed them."""
    return _of_three(seed, _power_losses(seed, Kind.TWO_POWER_LOSSES), 0.0002, {})


def late_messages(seed: int) -> Plan:
    """Messages take up to a second, in any order, and the controller changes meanwhile."""
    rng = random.Random(seed)
    faults = []
    at = 2.0
    while at < SECONDS:
        victim, other = rng.sample([1, 2, 3], 2)
        faults.append(Fault(at, Kind.SPIKE, victim, other, 2.0))
        faults.append(Fault(at + 0.5, Kind.STORE_EXPIRE, other, victim, 0.05))
        faults.append(Fault(at + 0.5 + rng.uniform(0.0, 0.5), Kind.DEPOSE, victim, other, 0.1))
        at += rng.uniform(2.0, 4.0)
    return _of_three(seed, faults, 0.0002, {})


def _power_losses(seed: int, kind: Kind) -> list[Fault]:
    rng = random.Random(seed)
    faults = []
    at = 4.0
    while at < SECONDS - 5:
        victim, other = rng.sample([1, 2, 3], 2)
        faults.append(Fault(at, kind, victim, other, rng.uniform(0.1, 3.0)))
        at += rng.uniform(6.0, 10.0)
    return faults


def _of_small_segments(seed: int, faults: Sequence[Fault]) -> Plan:
    settings = {"log.segment.bytes": "1000", "log.flush.offset.checkpoint.interval.ms": "1000"}
    plan = _of_three(seed, faults, 0.0002, settings)
    return replace(plan, load=Load(3, 1.0, 1, 0, 0, admin=False))


def moved_once(seed: int) -> Plan:
    """A few moves between directories, and nothing is wrong."""
    return replace(moved_logs(seed), faults=[], seconds=8.0)


def _of_three(
    seed: int,
    faults: Sequence[Fault],
    latency_s: float,
    settings: dict[str, str],
    producers: int = 3,
) -> Plan:
    plan = draw_plan(seed, SECONDS)
    return replace(
        plan,
        brokers=3,
        replication=3,
        min_isr=2,
        partitions=3,
        log_dirs=1,
        latency_s=latency_s,
        settings=settings,
        faults=faults,
        load=replace(plan.load, producers=producers, admin=False),
    )


def replace_segments_before_they_are_synced() -> Patches:
    """A cleaned segment takes the place of its originals while it is being synced."""
    original = _Cleaning._clean_group

    async def clean_group(self: _Cleaning, *arguments: Any) -> None:
        offload = self._cleaner.offload
        started: list[asyncio.Future[Any]] = []

        async def begin(work: Callable[[], Any], /) -> None:
            started.append(asyncio.ensure_future(offload(work)))

        with mock.patch.object(self._cleaner, "offload", begin):
            await original(self, *arguments)

    return attribute(_Cleaning, "_clean_group", clean_group)


def count_flushes_when_they_begin() -> Patches:
    """The recovery point moves before what is below it has been synced."""
    original = Flusher._sync

    async def sync(self: Flusher, log: Log, flush: Flush) -> bool:
        log.finish_flush(flush)
        return await original(self, log, flush)

    return attribute(Flusher, "_sync", sync)


def move_a_part() -> Patches:
    """A copy takes its log's place when it has got some batches."""

    async def move(self: LogDirMoves, partition: Partition, future: Log) -> None:
        log_dir_moves._copy_some(partition.local_log, future)
        partition.replica.log = self._logs.replace_current_with_future(partition.tp)
        partition.replica.future_log = None

    return [
        *attribute(LogDirMoves, "_move", move),
        *attribute(log_dir_moves, "CHUNK_BYTES", 500),
    ]


def leave_the_moved_log() -> Patches:
    """The log that its copy has replaced stays where it is."""
    original = LogManager.replace_current_with_future

    def replaced(self: LogManager, tp: Any) -> Log:
        def keep(self: LogManager, log: Log) -> str:
            return posixpath.dirname(log.directory)

        with mock.patch.object(LogManager, "_rename_for_deletion", keep):
            return original(self, tp)

    return attribute(LogManager, "replace_current_with_future", replaced)


def see_no_holes() -> Patches:
    """Recovery goes on behind records that are missing."""
    original = recovery._Recovery.__init__

    def init(self: Any, *arguments: Any, holes_allowed: bool, **options: Any) -> None:
        options["ends_are_trusted"] = True
        original(self, *arguments, holes_allowed=True, **options)

    return [
        *attribute(recovery._Recovery, "__init__", init),
        *attribute(recovery._Recovery, "_check_gap", lambda *_: None),
    ]


def forget_the_copy() -> Patches:
    """A move that was begun before a restart is not begun again."""
    return attribute(LogDirMoves, "resume", lambda self, partition: None)


def attribute(owner: Any, name: str, value: Any) -> Patches:
    return [mock.patch.object(owner, name, value)]


def keep_truncated_batches() -> Patches:
    return [
        *attribute(Tail, "clear", lambda self: None),
        # The batches here are small: let them be served as large ones are.
        *attribute(tail, "WALKED_BYTES_MIN", 0),
    ]


def ack_at_once() -> Patches:
    def no_wait(self: LeaderRole, produce: Any, offset: int) -> None:
        produce.results[self.replica.tp].error = ErrorCode.NONE

    return attribute(LeaderRole, "wait_for_commit", no_wait)


def truncate_nothing() -> Patches:
    def truncation_for(*_: Any, log_end: int, **__: Any) -> tuple[int, bool]:
        return log_end, True

    return attribute(fetcher, "truncation_for", truncation_for)


def read_to_the_end() -> Patches:
    return attribute(read, "_readable_end", lambda params, log: log.end_offset)


def tell_the_end() -> Patches:
    """The last offset is taken from the log's end, not from the high watermark."""
    original = Partition.offset_for_timestamp

    def to_the_end(
        self: Partition, timestamp: int, isolation: int | None, epoch: int, *, leader_only: bool
    ) -> Any:
        return original(self, timestamp, None, epoch, leader_only=leader_only)

    return attribute(Partition, "offset_for_timestamp", to_the_end)


def drop_the_last_member() -> Patches:
    original = leader_and_isr_rules.without_replica

    def without(state: Any, replica: int, controller_epoch: int) -> Any:
        decided = original(state, replica, controller_epoch)
        return replace(decided, isr=tuple(member for member in state.isr if member != replica))

    return attribute(leader_and_isr_rules, "without_replica", without)


def keep_the_epoch() -> Patches:
    """An election does not raise the leader epoch."""
    original = leader_and_isr_rules._decided

    def decided(previous: Any, *rest: Any) -> Any:
        return replace(original(previous, *rest), leader_epoch=previous.leader_epoch)

    return attribute(leader_and_isr_rules, "_decided", decided)


def accept_an_equal_epoch() -> Patches:
    """Elections keep the epoch, and brokers take that."""
    original = control_decisions.decide

    def decided(broker_id: int, states: Any, facts_of: Any, **more: Any) -> Any:
        def facts(tp: Any) -> Any:
            known = facts_of(tp)
            is_equal = known.leader_epoch == states[tp].leader_epoch
            return replace(known, leader_epoch=known.leader_epoch - is_equal)

        return original(broker_id, states, facts, **more)

    def fence(self: Partition, state: Any) -> bool:
        self.leader_epoch = min(self.leader_epoch, state.leader_epoch - 1)
        return original_fence(self, state)

    original_fence = Partition._fence
    return [
        *keep_the_epoch(),
        *attribute(control_requests, "decide", decided),
        *attribute(Partition, "_fence", fence),
    ]


def obey_a_stale_controller() -> Patches:
    def stale(self: ControlRequests, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    return attribute(ControlRequests, "_stale", stale)


def write_without_a_fence() -> Patches:
    async def unfenced(self: Nodes, multis: Any, fence: int | None) -> Any:
        return await self.session.multi_many(multis)

    return attribute(Nodes, "write_many", unfenced)


def any_transition() -> Patches:
    """The tables are not asked, and a replica that is let go skips its deletion."""
    everything = frozenset(replica_states.ReplicaState)

    async def delete(self: Reassigner, replicas: Any) -> None:
        await self._replicas.move(replicas, replica_states.NON_EXISTENT)

    return [
        *attribute(Reassigner, "_delete", delete),
        mock.patch.dict(
            replica_states.VALID_PREVIOUS,
            dict.fromkeys(replica_states.ReplicaState, everything),
        ),
        *attribute(partition_states, "is_valid", lambda previous, target: True),
    ]


def forget_groups() -> Patches:
    """A new coordinator starts from nothing."""

    def take(self: GroupReplay, piece: bytes) -> None:
        pass

    return attribute(GroupReplay, "take", take)


def know_no_duplicates() -> Patches:
    """Sequence numbers are not looked at."""
    return [
        *attribute(ProducerStates, "duplicate_of", lambda self, header: None),
        mock.patch("odradek.log.producers._check_sequence", return_value=None),
    ]


def accept_gaps() -> Patches:
    """A batch is taken although the one before it is missing; and of all batches some are refused
    for a moment, as they are while the ISR is small."""
    return [
        mock.patch("odradek.log.producers._check_sequence", return_value=None),
        *refuse_some_batches(),
    ]


def refuse_some_batches() -> Patches:
    original = LeaderRole.append
    seen = count(1)

    def append(self: Any, buffer: Any, acks: int, origin: Any, guard: Any = None) -> Any:
        if origin is Origin.CLIENT and next(seen) % 7 == 0:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return original(self, buffer, acks, origin, guard)

    return attribute(LeaderRole, "append", append)


def tell_keys_by_their_first_bytes() -> Patches:
    return [mock.patch("odradek.log.compaction._short", lambda key: key[:4])]


def keep_nothing() -> Patches:
    """Retention takes everything that is replicated."""
    original = retention.expired

    def expired(segments: Any, config: Any, **options: Any) -> Any:
        return original(segments, replace(config, retention_bytes=0), **options)

    return [mock.patch.object(retention, "expired", expired)]


def believe_the_latest_clock() -> Patches:
    """Retention takes the latest time that any clock ever showed for now."""
    original, latest = retention.expired, [0]

    def expired(segments: Any, config: Any, *, now_ms: int, **options: Any) -> Any:
        latest[0] = max(latest[0], now_ms)
        return original(segments, config, now_ms=latest[0], **options)

    return [mock.patch.object(retention, "expired", expired)]


def listen_before_registering() -> Patches:
    """A broker takes orders before it knows its own epoch."""
    original = server.Broker._register

    async def register(self: Any, **options: Any) -> Any:
        await self.connections.accept()
        return await original(self, **options)

    return attribute(server.Broker, "_register", register)


def count_for_good() -> Patches:
    def count_as(self: LeaderRole, condition: Condition) -> None:
        if condition:
            self._context.counts.change(self._counted, condition)
            self._counted = condition

    return attribute(LeaderRole, "_count_as", count_as)


def never_grow_the_isr() -> Patches:
    return attribute(role, "may_join", lambda *_: False)


def inform_of_the_first_thousand() -> Patches:
    """A control request names a thousand partitions, and the others are forgotten."""
    build = RequestBatch._build_leader_and_isr

    def shortened(self: RequestBatch) -> Iterator[ControlMessage]:
        for message in build(self):
            for _, request in message.requests:
                for topic in request.topic_states:
                    del topic.partition_states[1000:]
            yield message

    return attribute(RequestBatch, "_build_leader_and_isr", shortened)


def stay_after_a_failed_write() -> Patches:
    """A log that could be written in part only stays in use."""
    return attribute(Log, "fail", lambda self, error: self._storage_error())


def delete_no_log() -> Patches:
    """A replica that is deleted leaves its log behind, and its successor takes it for its own."""
    return [
        *attribute(ReplicaLogs, "delete", lambda self, tp: None),
        *attribute(ReplicaLogs, "set_aside", lambda self, tp: None),
    ]


def take_no_records() -> Patches:
    def refuse(*_: Any) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "no write is accepted")

    return attribute(produce, "handle", refuse)


def give_no_records() -> Patches:
    original = fetch.handle

    def refuse(broker: Any, request: Any, context: Any) -> Any:
        if request.replica_id < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "no read is accepted")
        return original(broker, request, context)

    return attribute(fetch, "handle", refuse)


def skip_a_batch() -> Patches:
    """An answer to a consumer begins with its second batch, if it has one."""
    original = read.Reader._read_item

    def without_the_first(self: read.Reader, params: Any, *more: Any) -> Any:
        data, hint = original(self, params, *more)
        if not params.is_follower and isinstance(data.records, bytes | memoryview):
            batches = list(scan(data.records))
            if len(batches) > 1:
                data.records = memoryview(data.records)[batches[0].end_position :]
        return data, hint

    return attribute(read.Reader, "_read_item", without_the_first)


def refuse_for_nothing() -> Patches:
    """A replica that has everything takes itself for one that lost its last records."""
    original = ReplicaLogs.open

    def open_log(self: ReplicaLogs, partition: Partition, *more: Any, **options: Any) -> None:
        is_open = partition.log is not None
        original(self, partition, *more, **options)
        log = partition.local_log
        if not is_open and log.high_watermark == log.end_offset > 0:
            partition.replica.high_watermark_before_loss = log.end_offset

    return attribute(ReplicaLogs, "open", open_log)


def join_below_the_epochs_start() -> Patches:
    """A follower joins the ISR at a new leader's high watermark, which may be behind."""
    original = isr.may_join

    def joins(follower: Any, members: Any, mark: int, epoch_start: int) -> bool:
        return original(follower, members, mark, 0)

    return attribute(role, "may_join", joins)


def truncate_at_the_high_watermark() -> Patches:
    """A follower truncates to its high watermark in a new epoch, and does not ask its leader."""

    async def attend_to(self: ReplicaFetcher, connection: Any, due: Any) -> None:
        unsure = [each for each in due if each.phase is fetcher.Phase.TRUNCATING]
        for state in unsure:
            self._truncate(state, state.log.high_watermark, complete=True)
        await original(self, connection, [each for each in due if each not in unsure])

    original = ReplicaFetcher._attend_to
    return attribute(ReplicaFetcher, "_attend_to", attend_to)


def trust_broker_ids() -> Patches:
    """The incarnation of a broker is ignored: by the controller, active or new, by a
    leader that lets it join, and by the broker itself."""
    original = brokers.failed

    async def failed(active: Any, ids: Any) -> None:
        there = await active.term.store.brokers()
        await original(active, [id for id in ids if id not in there])

    return [
        *attribute(brokers, "failed", failed),
        *attribute(
            restarted_replicas, "repair_after_restart", lambda *_: restarted_replicas.NO_REPAIR
        ),
        *attribute(FollowerLink, "is_proven", True),
        mock.patch.object(IsrChangeQueue, "_is_present", staticmethod(lambda *_: True)),
        *attribute(server, "may_have_lost_records", lambda *_: False),
    ]


def believe_the_clean_marker() -> Patches:
    """A log that was closed cleanly is loaded without a look at its files."""
    return [
        mock.patch.object(recovery, "compare", return_value=Differences()),
        mock.patch.object(recovery._Recovery, "_ends_well", return_value=True),
        mock.patch("odradek.log.log.sound_batches", lambda result, _: result),
    ]


def leave_isrs_first() -> Patches:
    """A broker whose disk is empty leaves its ISRs, and only then looks whose id it has."""

    async def leave_first(store: ClusterStore, broker: Any, *_: Any, wait_ms: int) -> Any:
        states = await unclean_start._assigned_states(store, broker.id, None)
        for tp, state in states.items():
            if broker.id in state.isr and len(state.isr) > 1:
                left = leader_and_isr_rules.without_replica(
                    state, broker.id, state.controller_epoch
                )
                await store.session.multi([cluster._write(tp, left)])
        return await unclean_start.leave_isrs_after_data_loss(store, broker, wait_ms=wait_ms)

    return attribute(registration, "leave_isrs_after_data_loss", leave_first)


def send_no_last_epoch() -> Patches:
    """A follower does not say which epoch its log ends in, and no other question is asked."""
    return attribute(ReplicaFetcher, "_last_fetched_epoch", lambda *_: -1)


def propose_for_a_deposed_leader() -> Patches:
    """A leader's change outlives its leadership and is sent with the epochs of now; the controller
    does not look who leads, as Kafka's does not."""
    epochs: dict[tuple[int, Any], tuple[int, int]] = {}
    fence, build, judge = Partition._fence, controller_isr_path._partition, alter_partition.judge

    def remember(self: Partition, state: Any) -> bool:
        epochs[self._context.broker_id, self.tp] = state.leader_epoch, state.partition_epoch
        return fence(self, state)

    def with_epochs_of_now(proposal: Any, version: int) -> Any:
        partition = build(proposal, version)
        known = epochs[proposal.state.leader, proposal.change.tp]
        partition.leader_epoch, partition.partition_epoch = known
        return partition

    def judge_anyone(context: Any, partition: Any, proposal: Any) -> Any:
        current = partition.leader_and_isr
        if current is not None:
            state = replace(proposal.state, leader=current.leader, isr=current.isr)
            if (
                judge(context, partition, replace(proposal, state=state))
                is alter_partition.Acceptance.IN_FORCE
            ):
                return alter_partition.Acceptance.WRITE
        return judge(context, partition, proposal)

    return [
        *attribute(Partition, "_fence", remember),
        *attribute(LeaderRole, "_withdraw", lambda _: None),
        *attribute(controller_isr_path, "_partition", with_epochs_of_now),
        *attribute(alter_partition, "judge", judge_anyone),
    ]


def answer_with_the_epoch_before() -> Patches:
    """The controller does not tell a leader the version that its state has now."""
    original = alter_partition_handler._answer

    def answer(proposal: Any, outcome: Any, version: int) -> Any:
        made = original(proposal, outcome, version)
        if not made.error_code:
            made.partition_epoch = proposal.state.partition_epoch
        return made

    return attribute(alter_partition_handler, "_answer", answer)


def mix_both_ways() -> Patches:
    """A leader writes itself that a follower leaves, and asks the controller to let it join."""
    original = ReplicaManager._isr_path

    class Mixed:
        writes_unchanged_isr = False
        retry_s = 1.0

        def __init__(self, asked: Any, written: Any) -> None:
            self.asked, self.written = asked, written

        async def write(self, proposals: Any) -> Any:
            return [
                (await (self.written if each.change.joining is None else self.asked).write([each]))[
                    0
                ]
                for each in proposals
            ]

    def mixed(self: Any, broker_id: int, store: Any, config: Any) -> Any:
        silent = mock.Mock()  # no notification either
        asked = original(self, broker_id, store, config)
        return Mixed(asked, DirectIsrPath(store, silent))

    return attribute(ReplicaManager, "_isr_path", mixed)


def lose_topic_ids() -> Patches:
    """No bug of ours: before each term of a controller a tool rewrites the topics' nodes without
    their ids, so the controller gives them others."""
    original = topic_ids.give_ids

    async def give_others(term: Any, nodes: Any) -> Any:
        without = {name: replace(node, topic_id=None) for name, node in nodes.items()}
        await term.store.update_topics(without, lambda name, _: without[name], term.fence)
        return await original(term, without)

    return attribute(topic_ids, "give_ids", give_others)


def set_aside_by_id_alone() -> Patches:
    """A log with another id than its topic's is set aside, whoever needs it."""
    original = control_decisions.is_stale_log

    def is_other(broker_id: int, state: Any, facts: Any, topic_id: Any) -> bool:
        ids = control_decisions.compare_ids(topic_id, facts)
        if ids is control_decisions.Ids.DIFFER and facts.log is control_decisions.LogHere.LOADED:
            return True
        return original(broker_id, state, facts, topic_id)

    return [
        *lose_topic_ids(),
        *attribute(control_decisions, "is_stale_log", is_other),
        *attribute(control_requests, "is_stale_log", is_other),
    ]


def restarts_of_all(seed: int) -> Plan:
    """All brokers are killed at once, and come back."""
    rng = random.Random(seed)
    faults = []
    for at in (8.0, 30.0):
        faults += [Fault(at, Kind.KILL, broker, 1, rng.uniform(0.5, 2.0)) for broker in (1, 2, 3)]
    plan = draw_plan(seed, SECONDS)
    load = replace(plan.load, producers=3, admin=False)
    return replace(plan, brokers=3, replication=3, min_isr=2, faults=faults, log_dirs=1, load=load)


def cut_off(seed: int) -> Plan:
    """A leader is isolated until it wants others out of the ISR, and deposed meanwhile."""
    rng = random.Random(seed)
    faults = []
    at = 2.0
    while at < SECONDS:
        victim, other = rng.sample([1, 2, 3], 2)
        faults.append(Fault(at, Kind.ISOLATE, victim, other, rng.uniform(9.0, 12.0)))
        faults.append(Fault(at + 8.5, Kind.STORE_EXPIRE, victim, other, 0.05))
        at += rng.uniform(14.0, 18.0)
    plan = draw_plan(seed, SECONDS)
    load = replace(plan.load, producers=3, admin=False)
    return replace(plan, brokers=3, replication=3, min_isr=2, faults=faults, log_dirs=1, load=load)


def lagging(seed: int) -> Plan:
    """Brokers keep their sessions and lose sight of each other: leaders let followers go, and let
    them in again in the same leader epoch."""
    plan = cut_off(seed)
    faults = [fault for fault in plan.faults if fault.kind is Kind.ISOLATE]
    return replace(plan, faults=faults)


LATEST = ProtocolVersion.latest()


def count_no_moves() -> Patches:
    return [mock.patch.object(PlanScheduler, "in_flight", return_value=[])]


def move_all_at_once() -> Patches:
    def leap(
        current: Sequence[int], target: Sequence[int], racks: object
    ) -> tuple[int, ...] | None:
        return None if tuple(current) == tuple(target) else tuple(target)

    return [mock.patch.object(plan_pace, "next_step", leap)]


def end_a_move_early() -> Patches:
    def is_complete(assignment: ReplicaAssignment, isr: Sequence[int] | None) -> bool:
        return not assignment.is_reassigning or bool(set(assignment.target) & set(isr or ()))

    return [mock.patch.object(reassignment_rules, "is_complete", is_complete)]


# Plans with what seeds have drawn since the other hunts were made; and what that is.
NEWER = (
    wide,
    pipelined,
    cut_clients,
    cleaned,
    jumped,
    behind,
    slow_flushes,
    slow_syncs,
    two_blackouts,
    late_messages,
)
DRAWN_LATER = {*CLIENT_LINKS, *TWO, Kind.CLOCK_JUMP, Kind.POWER_LOSS_BEHIND}

BUGS = [
    Bug(
        "a follower does not name the epoch that its log ends in",
        frozenset({"LogMatching", "ConsistentRead", "NoCommittedRecordLost"}),
        send_no_last_epoch,
        3,
        isolated,
        LATEST,
    ),
    Bug(
        "a leader that was deposed changes the ISR, and the controller makes it leader again",
        frozenset({"EpochsOnlyGrow", "OneLeaderPerEpoch"}),
        propose_for_a_deposed_leader,
        3,
        cut_off,
        LATEST,
    ),
    Bug(
        "the answer to an ISR change does not name the new partition epoch",
        frozenset(),
        answer_with_the_epoch_before,
        1,
        lagging,
        LATEST,
    ),
    Bug(
        "a leader writes its state and asks the controller, within one leader epoch",
        frozenset(),
        mix_both_ways,
        3,
        lagging,
        LATEST,
    ),
    Bug(
        "a tool lost the topics' ids, and replicas set their logs aside for the new ones",
        frozenset({"NoCommittedRecordLost", "LeaderCompleteness"}),
        set_aside_by_id_alone,
        1,
        restarts_of_all,
        LATEST,
    ),
    Bug(
        "a log that was shut down cleanly is believed, whatever its files are now",
        frozenset(),
        believe_the_clean_marker,
        1,
        damaged,
    ),
    Bug(
        "batches that a change of leader has truncated are still served from memory",
        frozenset({"LogMatching", "ConsistentRead", "NothingSkipped", "NoCommittedRecordLost"}),
        keep_truncated_batches,
        1,
        isolated,
        LATEST,
    ),
    Bug(
        "a follower joins the ISR below the start of the leader's epoch",
        frozenset({"NoCommittedRecordLost", "LeaderCompleteness"}),
        join_below_the_epochs_start,
        1001,
        lost_leaders,
    ),
    Bug(
        "a follower truncates at the high watermark, not where its leader's epoch ended",
        frozenset({"NoCommittedRecordLost", "LeaderCompleteness"}),
        truncate_at_the_high_watermark,
        1,
        hand_overs,
    ),
    Bug(
        "a broker is trusted by its id, whatever its incarnation",
        frozenset({"NoCommittedRecordLost", "LeaderCompleteness"}),
        trust_broker_ids,
        1,
        unseen_returns,
    ),
    Bug(
        "a broker leaves its ISRs before it has claimed its id",
        frozenset({"OnlyTheRegisteredBrokerWrites"}),
        leave_isrs_first,
        1,
        same_ids,
    ),
    Bug(
        "a produce is acknowledged before the high watermark has passed it",
        frozenset({"NoCommittedRecordLost", "LeaderCompleteness"}),
        ack_at_once,
        1,
    ),
    Bug(
        "a follower does not truncate its log",
        frozenset({"LogMatching"}),
        truncate_nothing,
        20,
        isolated,
    ),
    Bug(
        "consumers read beyond the high watermark",
        frozenset({"ConsistentRead"}),
        read_to_the_end,
        1,
        isolated,
    ),
    Bug(
        "consumers are told the log's end for the high watermark",
        frozenset({"HighWatermarkNeverGoesBack"}),
        tell_the_end,
        3,
        isolated,
    ),
    Bug(
        "the last member of the ISR is dropped",
        frozenset({"IsrWithinAssignment"}),
        drop_the_last_member,
        4,
    ),
    Bug(
        "an election keeps the leader epoch",
        frozenset({"EpochsOnlyGrow"}),
        keep_the_epoch,
        1,
    ),
    Bug(
        "an election keeps the leader epoch, and brokers follow it",
        frozenset({"OneLeaderPerEpoch"}),
        accept_an_equal_epoch,
        1,
    ),
    Bug(
        "brokers obey a stale controller",
        frozenset({"FencedControllerChangesNothing"}),
        obey_a_stale_controller,
        4,
        divided,
    ),
    Bug(
        "the controller writes without its fence",
        frozenset({"FencedControllerChangesNothing"}),
        write_without_a_fence,
        1,
        divided,
    ),
    Bug(
        "the state machines do not ask their tables",
        frozenset({"StatesWithinTables"}),
        any_transition,
        4,
    ),
    Bug(
        "a new coordinator does not load its groups",
        frozenset({"OffsetsNeverForgotten"}),
        forget_groups,
        1,
    ),
    Bug(
        "sequence numbers are not checked",
        frozenset({"NoDuplicates"}),
        know_no_duplicates,
        1,
        broken_clients,
    ),
    Bug(
        "a batch is accepted although the one before it is missing",
        frozenset({"OrderKept"}),
        accept_gaps,
        1,
        pipelined,
    ),
    Bug(
        "sequence numbers are not checked, and links of clients are cut",
        frozenset({"NoDuplicates"}),
        know_no_duplicates,
        1,
        cut_clients,
    ),
    Bug(
        "compaction takes keys that begin alike for one",
        frozenset({"LatestValueKept"}),
        tell_keys_by_their_first_bytes,
        1,
        cleaned,
    ),
    Bug(
        "retention deletes more than it should",
        frozenset({"OnlyOldIsDeleted"}),
        keep_nothing,
        1,
        cleaned,
    ),
    Bug(
        "a clock that was ahead is believed when it has been set right",
        frozenset({"OnlyOldIsDeleted"}),
        believe_the_latest_clock,
        1,
        jumped,
    ),
    Bug(
        "a broker obeys control requests before it has registered",
        frozenset({"NoCommittedRecordLost", "LeaderCompleteness"}),
        listen_before_registering,
        1,
        blackouts,
    ),
    Bug(
        "a leader that resigns is still counted",
        frozenset({"CountsAgree"}),
        count_for_good,
        1,
    ),
    Bug(
        "a log stays in use after a write that failed in the middle",
        frozenset(),
        stay_after_a_failed_write,
        1,
        filling,
    ),
    Bug(
        "a deleted replica leaves its log behind",
        frozenset({"DeletedIsGone"}),
        delete_no_log,
        1,
        churning,
    ),
    Bug(
        "moves that an earlier controller began are not counted",
        frozenset({"MovesWithinLimits"}),
        count_no_moves,
        1,
        levelled,
    ),
    Bug(
        "a plan moves all replicas of a partition at once",
        frozenset({"MovesKeepReplicas"}),
        move_all_at_once,
        1,
        levelled,
    ),
    Bug(
        "a move ends as soon as one replica of its target is in sync",
        frozenset({"MovesKeepMinIsr"}),
        end_a_move_early,
        1,
        levelled,
    ),
    Bug(
        "a copy takes its log's place before it has everything",
        frozenset({"NoCommittedRecordLost", "LeaderCompleteness"}),
        move_a_part,
        1,
        moved_logs,
    ),
    Bug(
        "recovery goes on behind records that are missing, and power is lost while catching up",
        frozenset({"LogMatching", "NoCommittedRecordLost", "ConsistentRead"}),
        see_no_holes,
        2,
        behind,
    ),
    Bug(
        "a flush counts as done when it has begun, and power is lost",
        frozenset({"DamageHasACause"}),
        count_flushes_when_they_begin,
        1001,
        slow_flushes,
    ),
    Bug(
        "a cleaned segment replaces its originals before it is synced, and power is lost",
        frozenset({"LatestValueKept"}),
        replace_segments_before_they_are_synced,
        4,
        slow_syncs,
    ),
    Bug(
        "brokers are trusted by their ids, and two lose power at once",
        frozenset({"NoCommittedRecordLost", "LeaderCompleteness"}),
        trust_broker_ids,
        1,
        two_blackouts,
    ),
    Bug(
        "brokers obey a stale controller, and messages are late",
        frozenset({"FencedControllerChangesNothing"}),
        obey_a_stale_controller,
        1,
        late_messages,
    ),
    Bug(
        "a log stays in its directory when its copy has replaced it",
        frozenset({"OneDirectoryPerReplica"}),
        leave_the_moved_log,
        1,
        moved_once,
    ),
    Bug(
        "a move between directories is forgotten over a restart",
        frozenset(),
        forget_the_copy,
        1,
        moved_logs,
    ),
    Bug(
        "a control request names no more than a thousand partitions",
        frozenset(),
        inform_of_the_first_thousand,
        1,
        wide,
        ProtocolVersion.latest(),
    ),
    Bug("no replica rejoins the ISR", frozenset(), never_grow_the_isr, 1),
    Bug("every write is refused", frozenset(), take_no_records, 1),
    Bug("every read is refused", frozenset(), give_no_records, 1),
    Bug("consumers miss a batch", frozenset({"NothingSkipped"}), skip_a_batch, 2),
    Bug("a replica that has everything refuses to lead", frozenset(), refuse_for_nothing, 7),
]


def seeds_to_find(bug: Bug, first: int, seeds_max: int = SEEDS_MAX) -> int | None:
    """How many seeds it takes, from `first` on; None if more than `seeds_max`."""
    with bug.planted():
        for count, seed in enumerate(range(first, first + seeds_max), start=1):
            try:
                report = run(bug.plan_for(seed), until=bug.invariants)
            except AssertionError:
                continue  # the product's own asserts found it; that does not count here
            if bug.is_found(report):
                return count
    return None


def main(bugs: Sequence[Bug], names: list[str]) -> None:
    import logging

    logging.disable(logging.CRITICAL)
    for bug in bugs:
        if names and not any(name in bug.name for name in names):
            continue
        counts = [seeds_to_find(bug, 1 + sample * 1000) for sample in range(SAMPLES)]
        found = sorted(SEEDS_MAX if count is None else count for count in counts)
        print(f"| {bug.name} | {statistics.median(found):.0f} | {counts} |", flush=True)


if __name__ == "__main__":
    main(BUGS, sys.argv[1:])
