"""Reassignment: the work. Takes requests from the API and the legacy node, and moves partitions.

All partitions that reach a step in one event take it together: one write per topic, one batch of
requests, whatever their number. docs/spec/controller-and-replication.md section 4.7; the decisions
are in `reassignment`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from odradek.controller import partition_states, reassignment_rules, replica_states
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.context import ControllerContext, Partition, Replica
from odradek.controller.elections import Strategy
from odradek.controller.journal import EntryKind
from odradek.controller.partition_outcome import SUCCESS, PartitionOutcome
from odradek.controller.partition_state_machine import PartitionStateMachine
from odradek.controller.plan_scheduler import PlanScheduler, Tried
from odradek.controller.reassignment_queue import ReassignmentQueue
from odradek.controller.reassignment_rules import Step, Target
from odradek.controller.replica_state_machine import ReplicaStateMachine
from odradek.controller.term import Term, WatchKind
from odradek.controller.topic_deletion import TopicDeletions
from odradek.store.api import StoreError
from odradek.store.nodes import NO_NODE, Refused
from odradek.store.payloads import TopicNode
from odradek.store.plan_moves import PlannedMove
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

UNKNOWN = PartitionOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
NOT_MOVING = PartitionOutcome(
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress"
)

Moves = dict[TopicPartition, ReplicaAssignment]


class Reassigner:
    """Moves partitions from replica set to replica set."""

    def __init__(
        self,
        term: Term,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        deletion: TopicDeletions,
    ) -> None:
        self._term = term
        self._context = term.context
        self._partitions = partitions
        self._replicas = replicas
        self._deletion = deletion
        self.queue = ReassignmentQueue(term)
        self.plans = PlanScheduler(term)

    @property
    def _in_flight_max(self) -> int:
        return self._term.config.moves_cluster

    async def load(self) -> None:
        """Learn what waited under an earlier controller."""
        await self.queue.load()
        await self.plans.load()

    # Requests

    async def request(
        self, asked: Mapping[TopicPartition, Target]
    ) -> dict[TopicPartition, PartitionOutcome]:
        """Move, redirect or cancel; answers for each partition. The latest request wins."""
        context = self._context
        live = context.brokers.live
        results: dict[TopicPartition, PartitionOutcome] = {}
        accepted: dict[TopicPartition, tuple[ReplicaAssignment, ReplicaAssignment]] = {}
        cancelled_waiting = []
        for tp, target in asked.items():
            current = context.assignment(tp)
            error = None
            if target is not None:
                error = reassignment_rules.invalid_target(target, current, live)
            if error is not None:
                results[tp] = error
                continue
            assignment = reassignment_rules.wanted(current, target)
            if assignment is None:
                waits = tp in self.queue or tp in self.plans.queue
                results[tp] = SUCCESS if waits else NOT_MOVING
                if waits:
                    cancelled_waiting.append(tp)
            elif current.replicas and (target is None or not self._is_being_deleted(tp)):
                # A cancel is always possible: a topic's deletion may be waiting for nothing else.
                accepted[tp] = (current, assignment)
            else:
                results[tp] = UNKNOWN
        await self.queue.remove([*cancelled_waiting, *accepted])
        await self.plans.queue.remove([*cancelled_waiting, *accepted])
        for tp in cancelled_waiting:
            self._record(tp, "cancelled before it started")
        admission = reassignment_rules.admit(
            accepted,
            in_flight=context.reassigning,
            waiting=len(self.queue),
            in_flight_max=self._in_flight_max,
        )
        await self.queue.add(admission.wait)
        for tp in admission.wait:
            self._record(tp, "waits for its turn")
        results.update(dict.fromkeys(admission.wait, SUCCESS))
        results.update(await self._move(admission.start))
        await self.start_waiting()
        return {tp: results[tp] for tp in asked}

    async def request_for_plan(
        self, plan: str, asked: Mapping[TopicPartition, PlannedMove | None], throttle: int = 0
    ) -> dict[TopicPartition, PartitionOutcome]:
        """Move in this order and paced, or take partitions out of the plan; answers for each.

        What waits to move elsewhere is replaced; what moves already continues where it
        arrives.
        """
        context = self._context
        results: dict[TopicPartition, PartitionOutcome] = {}
        accepted: dict[TopicPartition, PlannedMove] = {}
        stopped = []
        for tp, move in asked.items():
            current = context.assignment(tp)
            if move is None:
                is_ours = self.plans.queue.plan_of(tp) == plan
                results[tp] = SUCCESS if is_ours else NOT_MOVING
                if is_ours:
                    stopped.append(tp)
            elif not current.replicas or self._is_being_deleted(tp):
                results[tp] = UNKNOWN
            elif error := reassignment_rules.invalid_target(
                move.replicas, current, context.brokers.live
            ):
                results[tp] = error
            else:
                results[tp] = SUCCESS
                accepted[tp] = move
        await self.queue.remove(accepted)
        await self.plans.queue.remove([*stopped, *accepted])
        for tp in stopped:
            self._record(tp, f"taken out of plan {plan}")
        await self.plans.add(plan, accepted, throttle)
        await self.start_waiting()
        return results

    def listed(
        self, tps: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """What moves or waits to move, of these partitions or of all. For a plan's that is the step
        under way, or else all that is left."""
        context = self._context
        waiting = {tp: self.plans.queue[tp].replicas for tp in self.plans.queue}
        waiting |= {tp: self.queue.target(tp) for tp in self.queue}
        found = {}
        for tp in [*context.reassigning, *waiting] if tps is None else tps:
            assignment = context.assignment(tp)
            if not assignment.is_reassigning and tp in waiting and assignment.replicas:
                assignment = assignment.reassign_to(waiting[tp])
            if assignment.is_reassigning:
                found[tp] = assignment
        return found

    async def legacy_request(
        self, moves: Mapping[TopicPartition, tuple[int, ...]], *, resume: bool = False
    ) -> set[TopicPartition]:
        """The legacy node holds these; answers which were moved. Those on their way need nothing,
        unless an earlier controller sent them."""
        context = self._context
        asked: dict[TopicPartition, tuple[ReplicaAssignment, ReplicaAssignment]] = {}
        unknown = []
        for tp, target in moves.items():
            current = context.assignment(tp)
            if not current.replicas or self._is_being_deleted(tp):
                unknown.append(tp)
            elif resume or tp not in context.reassigning or current.target != tuple(target):
                asked[tp] = (current, current.reassign_to(target))
        admission = reassignment_rules.admit(
            asked,
            in_flight=context.reassigning,
            waiting=self.queue.waiting_before_legacy(),
            in_flight_max=self._in_flight_max,
        )
        self.queue.set_legacy(admission.wait)
        for tp in unknown:
            self._record(tp, "refused: the partition does not exist")
        await self.queue.remove_from_legacy_node(unknown)
        await self._move(admission.start)
        await self.start_waiting()
        return set(admission.start)

    # Going on

    async def resume(self, tps: Iterable[TopicPartition]) -> None:
        """Take up moves that were begun: after an election, or when a target broker comes back."""
        moves = {tp: self._context.assignment(tp) for tp in tps}
        await self._move(moves)
        await self.start_waiting()

    async def isr_changed(self, tps: Iterable[TopicPartition]) -> None:
        """The ISR of these may have grown; whatever is complete enters part B."""
        moving = [tp for tp in tps if tp in self._context.reassigning]
        if not moving:
            return
        complete = await self._complete_ones({tp: self._context.assignment(tp) for tp in moving})
        if complete:
            await self._move({tp: self._context.assignment(tp) for tp in complete})
            await self.start_waiting()

    async def start_waiting(self) -> None:
        """Let those that wait start, as far as there is room."""
        context = self._context
        while True:
            chosen = reassignment_rules.next_to_start(
                self.queue, context.reassigning, self._in_flight_max
            )
            if not chosen:
                break
            moves: Moves = {}
            for tp in chosen:
                current = context.assignment(tp)
                if current.replicas and not self._is_being_deleted(tp):
                    moves[tp] = current.reassign_to(self.queue.target(tp))
            await self._move(moves)
            await self.queue.started(chosen)
        await self._start_for_plans()

    async def _start_for_plans(self) -> None:
        """Take the moves of plans as far as there is room: the next step of each, and when there is
        none left, the leadership."""
        tried: Tried = set()
        while due := self.plans.due(tried):
            tried.update(due.steps.items())
            tried.update((tp, None) for tp in due.elections)
            for tp, step in due.steps.items():
                self._record(tp, f"step of plan {self.plans.queue.plan_of(tp)}: {list(step)}")
            await self._move(
                {tp: self._context.assignment(tp).reassign_to(to) for tp, to in due.steps.items()}
            )
            await self._partitions.move(
                [self._partition(tp) for tp in due.elections],
                partition_states.ONLINE,
                Strategy.PREFERRED,
            )
            for tp in due.arrived:
                self._record(tp, f"done for plan {self.plans.queue.plan_of(tp)}")
            await self.plans.queue.remove(due.arrived)
        await self.plans.rest()

    async def pace_moves(self) -> None:
        """Look how the moves of plans go; take back steps to brokers that are gone."""
        lost = await self.plans.observe()
        for tp in lost:
            self._record(tp, "taken back: the broker of the new replica is gone; it waits")
        origins = {tp: self._context.assignment(tp) for tp in lost}
        await self._move({tp: of.reassign_to(of.origin) for tp, of in origins.items()})
        await self.start_waiting()

    async def drop_deleted_topics(self) -> None:
        """Remove from the queue what belongs to topics that are deleted or are to be."""

        def is_gone(tp: TopicPartition) -> bool:
            return self._is_being_deleted(tp) or not self._context.assignment(tp).replicas

        await self.queue.remove(filter(is_gone, self.queue.named()))
        await self.plans.queue.remove([tp for tp in self.plans.queue if is_gone(tp)])

    # Moving

    async def _move(self, moves: Moves) -> dict[TopicPartition, PartitionOutcome]:
        """Take every partition as far as it goes now."""
        refused = await self._refuse_unsafe(moves)
        results = {tp: refused.get(tp, SUCCESS) for tp in moves}
        moves = {tp: assignment for tp, assignment in moves.items() if tp not in refused}
        if not moves:
            return results
        self._deletion.halt(
            dict.fromkeys(tp.topic for tp in moves), "a reassignment is in progress"
        )
        await self._write_plan(moves)
        self._context.reassigning.update(dict.fromkeys(moves))
        complete = await self._complete_ones(moves)
        begun = [self._partition(tp) for tp in moves if tp not in complete]
        if begun:
            await self._begin(begun)
        if complete:
            await self._finish([self._partition(tp) for tp in complete])
        return results

    async def _refuse_unsafe(self, moves: Moves) -> dict[TopicPartition, PartitionOutcome]:
        """Refuse the moves that would delete the last in-sync replica, and have the others led by a
        replica that stays: a leader is always in sync, so from then on one that stays is."""
        dropping = {
            tp: assignment
            for tp, assignment in moves.items()
            if set(self._context.assignment(tp).replicas) - set(assignment.replicas)
            and not self._is_being_deleted(tp)
        }
        if not dropping:
            return {}
        refused: dict[TopicPartition, PartitionOutcome] = {}
        states = await self._term.store.partition_states(dropping)
        for tp, state in states.items():
            assignment, partition = dropping[tp], self._partition(tp)
            self._term.learn(partition, state)
            error = reassignment_rules.loses_last_in_sync(assignment.replicas, state.isr)
            if error is None and state.leader >= 0 and state.leader not in assignment.replicas:
                error = await self._hand_over(partition, assignment)
            if error is not None:
                refused[tp] = error
                self._record(tp, f"refused: {error.message}")
        return refused

    async def _hand_over(
        self, partition: Partition, assignment: ReplicaAssignment
    ) -> PartitionOutcome | None:
        """Elect among the replicas that the plan keeps, before it is written."""
        outcomes = await self._partitions.move(
            [partition], partition_states.ONLINE, candidates={partition.tp: assignment}
        )
        if isinstance(outcomes[partition.tp], Refused):
            return PartitionOutcome(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"none of the replicas {list(assignment.replicas)} that stay can lead",
            )
        return None

    async def _write_plan(self, moves: Moves) -> None:
        changed = {
            tp: assignment
            for tp, assignment in moves.items()
            if self._context.assignment(tp) != assignment
        }
        if not changed:
            return
        before = {tp: self._context.assignment(tp) for tp in changed}
        unneeded = [
            (tp, replica)
            for tp, assignment in changed.items()
            for replica in before[tp].replicas
            if replica not in assignment.replicas
        ]
        for tp, assignment in changed.items():
            self._context.set_assignment(tp, assignment)
        # Out of the ISR before it is out of the assignment: a reader of the store in between
        # finds an ISR of assigned replicas. The leader hears with that who stays, and what it had
        # decided before, to let one in that has caught up, cannot be written any more.
        leaving = await self._leave(unneeded, fence=changed)
        for tp, assignment in changed.items():
            self._step(tp, Step.WRITE_PLAN, str(before[tp]), str(assignment))
        await self._write_assignments(changed)
        self._steps(dict.fromkeys(tp for tp, _ in unneeded), Step.STOP_UNNEEDED)
        await self._delete(leaving)

    async def _complete_ones(self, moves: Moves) -> list[TopicPartition]:
        """Which of these are ready for part B. Leaves a watch on the state of the others."""
        moving = [tp for tp, assignment in moves.items() if assignment.is_reassigning]
        watch = self._term.watches[WatchKind.REASSIGNING]
        states = await self._term.store.partition_states(moving, watch)
        for tp, state in states.items():
            self._term.learn(self._partition(tp), state)
        isr_of = {tp: state.isr for tp, state in states.items()}
        return [
            tp
            for tp, assignment in moves.items()
            if reassignment_rules.is_complete(assignment, isr_of.get(tp))
        ]

    async def _begin(self, partitions: list[Partition]) -> None:
        """Part A."""
        for partition in partitions:
            self._step(partition.tp, Step.RAISE_EPOCH)
        await self._partitions.raise_epochs(partitions)
        adding = [
            (partition.tp, replica)
            for partition in partitions
            for replica in partition.assignment.adding
            if self._is_non_existent(partition.tp, replica)
        ]
        for partition in partitions:
            self._step(partition.tp, Step.START_ADDING)
        await self._replicas.move(adding, replica_states.NEW)

    async def _finish(self, partitions: list[Partition]) -> None:
        """Part B."""
        context = self._context
        moved = {partition.tp: partition.assignment for partition in partitions}
        adding = [(tp, replica) for tp, of in moved.items() for replica in of.adding]
        targets = {tp: ReplicaAssignment(of.target) for tp, of in moved.items()}
        self._steps(moved, Step.ADDING_ONLINE)
        # A replica can be in the ISR that an earlier controller started: NEW is then behind it.
        await self._replicas.move(
            [replica for replica in adding if self._is_non_existent(*replica)], replica_states.NEW
        )
        await self._replicas.move(adding, replica_states.ONLINE)
        for tp, target in targets.items():
            self._step(tp, Step.TAKE_TARGET, str(moved[tp]), str(target))
            context.set_assignment(tp, target)
        self._steps(moved, Step.MOVE_LEADER)
        await self._move_leaders(partitions)
        for tp in self._defer(moved):
            del moved[tp], targets[tp]
        partitions = [partition for partition in partitions if partition.tp in moved]
        self._steps(moved, Step.STOP_REMOVING)
        leaving = await self._leave(
            [(tp, replica) for tp, of in moved.items() for replica in of.removing]
        )
        self._steps(dict.fromkeys(tp for tp, _ in leaving), Step.DELETE_REMOVING)
        await self._delete(leaving)
        self._steps(moved, Step.WRITE_TARGET)
        await self._write_assignments(targets)
        self._steps(moved, Step.FORGET_MOVE)
        await self.queue.remove_arrived({tp: to.replicas for tp, to in targets.items()})
        for tp in moved:
            context.reassigning.pop(tp, None)
        self._steps(moved, Step.ANNOUNCE)
        await self._term.announce(context.brokers, partitions)
        await self._deletion.resume(dict.fromkeys(tp.topic for tp in moved))

    async def _move_leaders(self, partitions: list[Partition]) -> None:
        """Elect where the leader does not stay or is not alive; raise the epoch of the others."""
        staying: list[Partition] = []
        leaving: list[Partition] = []
        for partition in partitions:
            leader = None if partition.leader_and_isr is None else partition.leader_and_isr.leader
            stays = (
                leader is not None
                and leader in partition.assignment.replicas
                and self._context.brokers.is_replica_online(partition.tp, leader)
            )
            (staying if stays else leaving).append(partition)
        await self._partitions.move(leaving, partition_states.ONLINE, Strategy.REASSIGN)
        await self._partitions.raise_epochs(staying)

    def _defer(self, moved: Moves) -> list[TopicPartition]:
        """The moves whose target could not take the leadership after all. Their replicas must not
        be deleted: the plan stays, and is tried again when something has changed."""
        deferred = []
        for tp, assignment in moved.items():
            leader_and_isr = self._partition(tp).leader_and_isr
            if assignment.removing and (
                leader_and_isr is None or leader_and_isr.leader not in assignment.target
            ):
                deferred.append(tp)
                self._context.set_assignment(tp, assignment)
                self._record(tp, "deferred: no target replica can lead")
        return deferred

    async def _leave(
        self, replicas: list[Replica], fence: Iterable[TopicPartition] = ()
    ) -> list[Replica]:
        """Take replicas out of the ISR; returns those that may be deleted then, without
        waiting for their brokers."""
        born = []
        for tp, replica in replicas:
            if self._is_non_existent(tp, replica):
                self._context.forget_replica(tp, replica)
            else:
                born.append((tp, replica))
        await self._replicas.move(born, replica_states.OFFLINE, fence=fence)
        return [(tp, replica) for tp, replica in born if not self._is_in_sync(tp, replica)]

    async def _delete(self, replicas: list[Replica]) -> None:
        await self._replicas.move(replicas, replica_states.DELETION_STARTED)
        await self._replicas.move(replicas, replica_states.DELETION_SUCCESSFUL)
        await self._replicas.move(replicas, replica_states.NON_EXISTENT)

    def _is_in_sync(self, tp: TopicPartition, replica: int) -> bool:
        """Still in the ISR after leaving it: the last one, and its log the last copy."""
        leader_and_isr = self._partition(tp).leader_and_isr
        last = (
            leader_and_isr is not None
            and replica in leader_and_isr.isr
            and not self._is_being_deleted(tp)
        )
        if last:
            self._record(tp, f"broker {replica} keeps its log: it is the last in sync")
        return last

    def _is_being_deleted(self, tp: TopicPartition) -> bool:
        return self._context.is_queued_for_deletion(tp.topic)

    def _is_non_existent(self, tp: TopicPartition, replica: int) -> bool:
        return self._context.replicas.state(tp, replica) is replica_states.NON_EXISTENT

    async def _write_assignments(self, changed: Moves) -> None:
        """Rewrite the topic nodes with these assignments, the others as they are in memory.

        Partitions that were added meanwhile, and that we have not heard of, stay.
        """
        by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
        for tp, assignment in changed.items():
            by_topic.setdefault(tp.topic, {})[tp.partition] = assignment

        def rewrite(topic: str, node: TopicNode) -> TopicNode:
            unheard_of = {n: ReplicaAssignment(to) for n, to in node.partitions.items()}
            known = self._context.assignments_of(topic)
            written = topic_node({**unheard_of, **known, **by_topic[topic]}, self._context, topic)
            return replace(written, topic_id=written.topic_id or node.topic_id)

        refused = await self._term.store.update_topics(by_topic, rewrite, self._term.fence)
        for topic, refusal in refused.items():
            if refusal is not NO_NODE:  # a topic that is gone needs no assignment
                raise StoreError(
                    topic, f"the assignment of {topic} was not written: {refusal.reason}"
                )

    def _partition(self, tp: TopicPartition) -> Partition:
        partition = self._context.partition(tp)
        assert partition is not None, f"{tp} moves and is not known"
        return partition

    def _steps(self, tps: Iterable[TopicPartition], step: Step) -> None:
        for tp in tps:
            self._step(tp, step)

    def _step(self, tp: TopicPartition, step: Step, before: str = "", after: str = "") -> None:
        text = f"{step.value}: {after}" if after else step.value
        self._term.journal.record(EntryKind.REASSIGNMENT, before=before, after=text, partition=tp)

    def _record(self, tp: TopicPartition, what: str) -> None:
        self._term.journal.record(EntryKind.REASSIGNMENT, after=what, partition=tp)


def topic_node(
    assignments: Mapping[int, ReplicaAssignment], context: ControllerContext, topic: str
) -> TopicNode:
    """A topic's assignments as the store keeps them; the topic's id, if it has one, stays."""
    return TopicNode(
        {number: tuple(of.replicas) for number, of in assignments.items()},
        {number: tuple(of.adding) for number, of in assignments.items() if of.adding},
        {number: tuple(of.removing) for number, of in assignments.items() if of.removing},
        context.topic_ids.ids.get(topic),
    )
