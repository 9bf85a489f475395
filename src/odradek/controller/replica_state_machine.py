"""Moves replicas from state to state: asks the table, and carries out what a transition entails.

Replicas are moved broker by broker. What a broker's transitions entail is decided first, from the
context alone (`plan`); then the plan is carried out: requests to brokers, and one bulk write for
all replicas that leave an ISR, under a version check, since leaders write the ISR too. docs/spec,
section 2 of the controller's behaviour.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from odradek.controller import leader_and_isr_rules, replica_states
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.context import (
    ControllerContext,
    Partition,
    Replica,
    grouped_by_broker,
    known_states,
)
from odradek.controller.control_request_batch import RequestBatch
from odradek.controller.journal import EntryKind
from odradek.controller.replica_states import ReplicaEffect, ReplicaState
from odradek.controller.term import Term
from odradek.store.api import StoreError, StoreUnavailable
from odradek.store.nodes import Refused
from odradek.store.payloads import LeaderAndIsr
from odradek.wire.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class Transition:
    """One replica's move. Without a partition where it is no longer known: then only the state."""

    tp: TopicPartition
    previous: ReplicaState
    effects: tuple[ReplicaEffect, ...] = ()
    partition: Partition | None = None


@dataclass(slots=True)
class Transitions:
    """What moving the replicas of one broker entails."""

    transitions: list[Transition] = field(default_factory=list)
    # (partition, its state, why it cannot move)
    failures: list[tuple[TopicPartition, ReplicaState, str]] = field(default_factory=list)


def plan(
    context: ControllerContext, broker_id: int, tps: Iterable[TopicPartition], target: ReplicaState
) -> Transitions:
    """Which of these replicas may move to `target`, and what that entails."""
    states = context.replicas.on(broker_id)
    valid_previous = replica_states.VALID_PREVIOUS[target]
    planned = Transitions()
    for tp in tps:
        previous = states.get(tp, replica_states.NON_EXISTENT)
        if previous not in valid_previous:
            planned.failures.append((tp, previous, "not a legal transition"))
            continue
        partition = context.partition(tp)
        state = None if partition is None else partition.leader_and_isr
        effects = replica_states.effects(
            previous,
            target,
            has_leadership=state is not None,
            is_leader=state is not None and state.leader == broker_id,
        )
        if ReplicaEffect.REFUSE in effects:
            planned.failures.append((tp, previous, "it is the leader"))
        elif partition is None:
            planned.transitions.append(Transition(tp, previous))
        else:
            planned.transitions.append(Transition(tp, previous, effects, partition))
    return planned


class ReplicaStateMachine:
    """Replicas to any of their states."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._context = term.context

    async def move(
        self,
        replicas: Collection[Replica],
        target: ReplicaState,
        *,
        fence: Iterable[TopicPartition] = (),
    ) -> None:
        """Move replicas to `target`.

        The states of partitions in `fence` are written even if a replica that goes offline is not
        in their ISR: an ISR change that the leader decided before cannot land afterwards
        (KIP-903).
        """
        if not replicas:
            return
        unfenced = set(fence)
        try:
            async with self._term.control_requests() as requests:
                for broker_id, tps in grouped_by_broker(replicas).items():
                    await self._move(broker_id, tps, target, unfenced, requests)
                    await asyncio.sleep(0)  # this may be long, and clients wait on the same loop
        except StoreUnavailable:
            raise
        except StoreError as error:
            journal = self._term.journal
            what = f"moving {len(replicas)} replicas to {target.name}: {error}"
            journal.record(EntryKind.FAILURE, why=f"{journal.cause}: {what}")

    async def _move(
        self,
        broker_id: int,
        tps: list[TopicPartition],
        target: ReplicaState,
        unfenced: set[TopicPartition],
        requests: RequestBatch,
    ) -> None:
        planned = plan(self._context, broker_id, tps, target)
        for tp, previous, reason in planned.failures:
            self._term.record_failure(previous.name, target.name, tp, reason, broker_id)
        leaving: list[Partition] = []
        for transition in planned.transitions:
            partition = transition.partition
            if partition is not None:
                for effect in transition.effects:
                    self._apply(effect, partition, broker_id, requests)
                if ReplicaEffect.LEAVE_ISR in transition.effects:
                    leaving.append(partition)  # moved once the store has it
                    continue
            self._set_state(transition.tp, broker_id, transition.previous, target)
        if leaving:
            await self._leave_isr(broker_id, leaving, unfenced, requests)

    def _apply(
        self, effect: ReplicaEffect, partition: Partition, broker_id: int, requests: RequestBatch
    ) -> None:
        match effect:
            case ReplicaEffect.RESUME:
                requests.add_leader_and_isr((broker_id,), partition, is_new=False)
            case ReplicaEffect.START:
                requests.add_leader_and_isr((broker_id,), partition, is_new=True)
            case ReplicaEffect.STOP:
                requests.add_stop_replica(broker_id, partition.tp, delete=False)
            case ReplicaEffect.DELETE:
                requests.add_stop_replica(broker_id, partition.tp, delete=True)
            case ReplicaEffect.ANNOUNCE:
                requests.add_update_metadata(self._context.brokers, (partition,))
            case ReplicaEffect.JOIN_ASSIGNMENT:
                self._join_assignment(partition, broker_id)

    def _join_assignment(self, partition: Partition, broker_id: int) -> None:
        assignment = partition.assignment
        if broker_id in assignment.replicas:
            return
        self._term.record_failure("NEW", "ONLINE", partition.tp, "not assigned: added", broker_id)
        joined = (*assignment.replicas, broker_id)
        self._context.set_assignment(
            partition.tp, ReplicaAssignment(joined, assignment.adding, assignment.removing)
        )

    async def _leave_isr(
        self,
        broker_id: int,
        partitions: list[Partition],
        unfenced: set[TopicPartition],
        requests: RequestBatch,
    ) -> None:
        """Write each partition's state without the replica, notify the rest, record it offline."""
        epoch = self._context.epoch
        written: set[TopicPartition] = set()

        def decide(tp: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | Refused:
            if state.controller_epoch > epoch:
                return Refused(f"written by controller epoch {state.controller_epoch}")
            if broker_id in state.isr or (tp in unfenced and state.leader >= 0):
                written.add(tp)
                return leader_and_isr_rules.without_replica(state, broker_id, epoch)
            written.discard(tp)
            return state

        outcomes = await self._term.store.update_partition_states(
            [partition.tp for partition in partitions],
            decide,
            self._term.fence,
            known_states(partitions),
        )
        for partition in partitions:
            outcome = outcomes[partition.tp]
            if isinstance(outcome, LeaderAndIsr) and partition.tp in written:
                unfenced.discard(partition.tp)
            self._left_isr(broker_id, partition, outcome, requests)

    def _left_isr(
        self,
        broker_id: int,
        partition: Partition,
        outcome: LeaderAndIsr | Refused,
        requests: RequestBatch,
    ) -> None:
        tp = partition.tp
        previous = self._context.replicas.state(tp, broker_id)
        deleting = self._context.is_queued_for_deletion(tp.topic)
        if isinstance(outcome, LeaderAndIsr):
            self._term.learn(partition, outcome)
            if not deleting:
                others = [
                    id
                    for id in partition.assignment.replicas
                    if id != broker_id
                    and self._context.replicas.state(tp, id) is not replica_states.NON_EXISTENT
                ]
                requests.add_leader_and_isr(others, partition, is_new=False)
        elif not deleting:
            self._term.record_failure(previous.name, "OFFLINE", tp, outcome.reason, broker_id)
            return
        self._set_state(tp, broker_id, previous, replica_states.OFFLINE)

    def _set_state(
        self, tp: TopicPartition, broker_id: int, previous: ReplicaState, target: ReplicaState
    ) -> None:
        self._term.journal.record(
            EntryKind.REPLICA,
            before=previous.name,
            after=target.name,
            partition=tp,
            broker=broker_id,
        )
        if target is replica_states.NON_EXISTENT:
            self._context.forget_replica(tp, broker_id)
        else:
            self._context.replicas.set_state(tp, broker_id, target)
