"""Reassignment: the work. Takes requests from the API and the legacy node, and moves partitions.

All partitions that reach a step in one event take it together: one write per topic, one batch of
requests, whatever their number. docs/spec/controller-and-replication.md section 4.7; the decisions
are in `reassignment`.
"""

from collections.abc import Iterable, Mapping

from odradek.controller import partition_states, reassignment, replica_states
from odradek.controller.api_error import NO_ERROR, ApiError
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.config import ControllerConfig
from odradek.controller.context import ControllerContext, Partition, Replica
from odradek.controller.deletion import TopicDeletion
from odradek.controller.elections import Strategy
from odradek.controller.journal import EntryKind, Journal
from odradek.controller.machines import ATTEMPTS_MAX, StateMachines
from odradek.controller.reassignment import Step, Target
from odradek.controller.requests import RequestBatch
from odradek.controller.waiting import WaitingMoves
from odradek.store.api import BadVersion, Watch
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import TopicNode
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

UNKNOWN = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
NOT_MOVING = ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress")

Moves = dict[TopicPartition, ReplicaAssignment]


class Reassigner:
    """Moves partitions from replica set to replica set."""

    def __init__(
        self,
        context: ControllerContext,
        store: ClusterStore,
        machines: StateMachines,
        batch: RequestBatch,
        deletion: TopicDeletion,
        journal: Journal,
        config: ControllerConfig,
        *,
        isr_watch: Watch,
    ) -> None:
        assert config.reassignment_partitions_in_flight_max > 0
        self._context = context
        self._store = store
        self._machines = machines
        self._batch = batch
        self._deletion = deletion
        self._journal = journal
        self._in_flight_max = config.reassignment_partitions_in_flight_max
        self._isr_watch = isr_watch
        self.waiting = WaitingMoves(store, config.reassignment_partitions_per_node_max)
        # What the legacy node asked for and has not started for want of room.
        self._legacy_waiting: dict[TopicPartition, tuple[int, ...]] = {}

    # Requests

    async def request(
        self, asked: Mapping[TopicPartition, Target]
    ) -> dict[TopicPartition, ApiError]:
        """Move, redirect or cancel; answers for each partition. The latest request wins."""
        context, fence = self._context, self._context.epoch_version
        live = context.live_brokers
        results: dict[TopicPartition, ApiError] = {}
        accepted: dict[TopicPartition, tuple[ReplicaAssignment, ReplicaAssignment]] = {}
        cancelled_waiting = []
        for key, target in asked.items():
            current = context.assignment(key)
            error = None
            if target is not None:
                error = reassignment.invalid_target(target, current, live)
            if error is not None:
                results[key] = error
                continue
            assignment = reassignment.wanted(current, target)
            if assignment is None:
                waits = key in self.waiting or key in self._legacy_waiting
                results[key] = NO_ERROR if waits else NOT_MOVING
                if waits:
                    cancelled_waiting.append(key)
            elif current.replicas and (target is None or not self._is_doomed(key)):
                # A cancel is always possible: a topic's deletion may be waiting for nothing else.
                accepted[key] = (current, assignment)
            else:
                results[key] = UNKNOWN
        superseded = [*cancelled_waiting, *accepted]
        await self.waiting.strike(superseded, fence)
        await self._drop_from_legacy(superseded)
        for key in cancelled_waiting:
            self._record(key, "cancelled before it started")
        admission = reassignment.admit(
            accepted,
            in_flight=context.reassigning,
            waiting=len(self.waiting) + len(self._legacy_waiting),
            in_flight_max=self._in_flight_max,
        )
        await self.waiting.add(admission.wait, fence)
        for key in admission.wait:
            self._record(key, "waits for its turn")
        results.update(dict.fromkeys(admission.wait, NO_ERROR))
        results.update(await self._move(admission.start))
        await self.start_waiting()
        return {key: results[key] for key in asked}

    def listed(
        self, keys: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """What moves or waits to move, of these partitions or of all."""
        context = self._context
        waiting = {
            **self._legacy_waiting,
            **{key: self.waiting.target(key) for key in self.waiting},
        }
        found = {}
        for key in [*context.reassigning, *waiting] if keys is None else keys:
            assignment = context.assignment(key)
            if not assignment.is_reassigning and key in waiting and assignment.replicas:
                assignment = assignment.reassign_to(waiting[key])
            if assignment.is_reassigning:
                found[key] = assignment
        return found

    async def legacy_request(
        self, moves: Mapping[TopicPartition, tuple[int, ...]], *, resume: bool = False
    ) -> set[TopicPartition]:
        """The legacy node holds these; answers which were moved. Those on their way need nothing,
        unless an earlier controller sent them."""
        context = self._context
        asked: dict[TopicPartition, tuple[ReplicaAssignment, ReplicaAssignment]] = {}
        unknown = []
        for key, target in moves.items():
            current = context.assignment(key)
            if not current.replicas or self._is_doomed(key):
                unknown.append(key)
            elif resume or key not in context.reassigning or current.target != tuple(target):
                asked[key] = (current, current.reassign_to(target))
        admission = reassignment.admit(
            asked,
            in_flight=context.reassigning,
            waiting=len(self.waiting),
            in_flight_max=self._in_flight_max,
        )
        self._legacy_waiting = admission.wait
        for key in unknown:
            self._record(key, "refused: the partition does not exist")
        await self._drop_from_legacy(unknown)
        await self._move(admission.start)
        await self.start_waiting()
        return set(admission.start)

    async def _drop_from_legacy(self, keys: Iterable[TopicPartition]) -> None:
        """Strike partitions from the legacy node; the node goes with the last of them."""
        dropped = set(keys)
        for key in dropped:
            self._legacy_waiting.pop(key, None)
        if not dropped:
            return
        moves = await self._store.reassignment()
        left = {key: to for key, to in moves.items() if key not in dropped}
        if len(left) < len(moves):
            await self._store.set_reassignment(left, self._context.epoch_version)

    # Going on

    async def resume(self, keys: Iterable[TopicPartition]) -> None:
        """Take up moves that were begun: after an election, or when a target broker comes back."""
        moves = {key: self._context.assignment(key) for key in keys}
        await self._move(moves)
        await self.start_waiting()

    async def isr_changed(self, keys: Iterable[TopicPartition]) -> None:
        """The ISR of these may have grown; whatever is complete goes on to part B."""
        moving = [key for key in keys if key in self._context.reassigning]
        if not moving:
            return
        complete = await self._complete_ones({key: self._context.assignment(key) for key in moving})
        if complete:
            await self._move({key: self._context.assignment(key) for key in complete})
            await self.start_waiting()

    async def start_waiting(self) -> None:
        """Let those that wait start, as far as there is room."""
        context = self._context
        while True:
            everybody = [*self.waiting, *self._legacy_waiting]
            chosen = reassignment.next_to_start(everybody, context.reassigning, self._in_flight_max)
            if not chosen:
                return
            moves: Moves = {}
            for key in chosen:
                target = (
                    self.waiting.target(key) if key in self.waiting else self._legacy_waiting[key]
                )
                current = context.assignment(key)
                if current.replicas and not self._is_doomed(key):
                    moves[key] = current.reassign_to(target)
            await self._move(moves)
            for key in chosen:
                self._legacy_waiting.pop(key, None)
            await self.waiting.started(chosen, context.epoch_version)

    async def forget_doomed(self) -> None:
        """Strike what waits to move of topics that are gone or are to go."""
        doomed = [
            key
            for key in self.waiting.named() | self._legacy_waiting.keys()
            if self._is_doomed(key) or not self._context.assignment(key).replicas
        ]
        if doomed:
            await self.waiting.strike(doomed, self._context.epoch_version)
            await self._drop_from_legacy(doomed)

    # Moving

    async def _move(self, moves: Moves) -> dict[TopicPartition, ApiError]:
        """Take every partition as far as it goes now."""
        refused = await self._secure(moves)
        results = {key: refused.get(key, NO_ERROR) for key in moves}
        moves = {key: assignment for key, assignment in moves.items() if key not in refused}
        if not moves:
            return results
        self._deletion.halt(
            dict.fromkeys(key.topic for key in moves), "a reassignment is in progress"
        )
        await self._write_plan(moves)
        self._context.reassigning.update(dict.fromkeys(moves))
        complete = await self._complete_ones(moves)
        begun = [self._partition(key) for key in moves if key not in complete]
        if begun:
            await self._begin(begun)
        if complete:
            await self._finish([self._partition(key) for key in complete])
        return results

    async def _secure(self, moves: Moves) -> dict[TopicPartition, ApiError]:
        """Refuse the moves that would let the last in-sync replica go, and have the others led by a
        replica that stays: a leader is always in sync, so from then on somebody who stays is."""
        dropping = {
            key: assignment
            for key, assignment in moves.items()
            if set(self._context.assignment(key).replicas) - set(assignment.replicas)
            and not self._is_doomed(key)
        }
        if not dropping:
            return {}
        refused: dict[TopicPartition, ApiError] = {}
        states = await self._store.partition_states(dropping)
        for key, state in states.items():
            assignment, partition = dropping[key], self._partition(key)
            self._machines.learned(partition, state)
            error = reassignment.loses_the_last(assignment.replicas, state.isr)
            if error is None and state.leader >= 0 and state.leader not in assignment.replicas:
                error = await self._hand_over(partition, assignment)
            if error is not None:
                refused[key] = error
                self._record(key, f"refused: {error.message}")
        return refused

    async def _hand_over(
        self, partition: Partition, assignment: ReplicaAssignment
    ) -> ApiError | None:
        """Elect among the replicas that the plan keeps, before it is written."""
        before = partition.assignment
        self._context.set_assignment(partition.key, assignment)
        outcomes = await self._machines.partitions_to([partition], partition_states.ONLINE)
        self._context.set_assignment(partition.key, before)
        if isinstance(outcomes[partition.key], str):
            return ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"none of the replicas {list(assignment.replicas)} that stay can lead",
            )
        return None

    async def _write_plan(self, moves: Moves) -> None:
        changed = {
            key: assignment
            for key, assignment in moves.items()
            if self._context.assignment(key) != assignment
        }
        if not changed:
            return
        before = {key: self._context.assignment(key) for key in changed}
        unneeded = [
            (key, replica)
            for key, assignment in changed.items()
            for replica in before[key].replicas
            if replica not in assignment.replicas
        ]
        for key, assignment in changed.items():
            self._context.set_assignment(key, assignment)
        # Out of the ISR before it is out of the assignment: whoever reads the store in between
        # finds an ISR of assigned replicas. The leader hears with that who stays, and what it had
        # decided before, to let one in that has caught up, cannot be written any more.
        leaving = await self._leave(unneeded, fence=changed)
        for key, assignment in changed.items():
            self._step(key, Step.WRITE_PLAN, str(before[key]), str(assignment))
        await self._write_assignments(changed)
        self._steps(dict.fromkeys(key for key, _ in unneeded), Step.STOP_UNNEEDED)
        await self._delete(leaving)

    async def _complete_ones(self, moves: Moves) -> list[TopicPartition]:
        """Which of these are ready for part B. Leaves a watch on the state of the others."""
        moving = [key for key, assignment in moves.items() if assignment.is_reassigning]
        states = await self._store.partition_states(moving, self._isr_watch)
        for key, state in states.items():
            self._machines.learned(self._partition(key), state)
        isr_of = {key: state.isr for key, state in states.items()}
        return [
            key
            for key, assignment in moves.items()
            if reassignment.is_complete(assignment, isr_of.get(key))
        ]

    async def _begin(self, partitions: list[Partition]) -> None:
        """Part A."""
        for partition in partitions:
            self._step(partition.key, Step.RAISE_EPOCH)
        self._batch.open()
        await self._machines.raise_epochs(partitions)
        self._batch.send()
        adding = [
            (partition.key, replica)
            for partition in partitions
            for replica in partition.assignment.adding
            if self._is_unborn(partition.key, replica)
        ]
        for partition in partitions:
            self._step(partition.key, Step.START_ADDING)
        await self._machines.replicas_to(adding, replica_states.NEW)

    async def _finish(self, partitions: list[Partition]) -> None:
        """Part B."""
        context = self._context
        moved = {partition.key: partition.assignment for partition in partitions}
        adding = [(key, replica) for key, of in moved.items() for replica in of.adding]
        targets = {key: ReplicaAssignment(of.target) for key, of in moved.items()}
        self._steps(moved, Step.ADDING_ONLINE)
        # A replica can be in the ISR that an earlier controller started: NEW is then behind it.
        await self._machines.replicas_to(
            [replica for replica in adding if self._is_unborn(*replica)], replica_states.NEW
        )
        await self._machines.replicas_to(adding, replica_states.ONLINE)
        for key, target in targets.items():
            self._step(key, Step.TAKE_TARGET, str(moved[key]), str(target))
            context.set_assignment(key, target)
        self._steps(moved, Step.MOVE_LEADER)
        await self._move_leaders(partitions)
        for key in self._put_off(moved):
            del moved[key], targets[key]
        partitions = [partition for partition in partitions if partition.key in moved]
        self._steps(moved, Step.STOP_REMOVING)
        leaving = await self._leave(
            [(key, replica) for key, of in moved.items() for replica in of.removing]
        )
        self._steps(dict.fromkeys(key for key, _ in leaving), Step.DELETE_REMOVING)
        await self._delete(leaving)
        self._steps(moved, Step.WRITE_TARGET)
        await self._write_assignments(targets)
        self._steps(moved, Step.FORGET_MOVE)
        await self._drop_finished_from_legacy(targets)
        for key in moved:
            context.reassigning.pop(key, None)
        self._steps(moved, Step.ANNOUNCE)
        self._batch.open()
        self._batch.add_update_metadata(context.brokers, partitions)
        self._batch.send()
        await self._deletion.resume(dict.fromkeys(key.topic for key in moved))

    async def _move_leaders(self, partitions: list[Partition]) -> None:
        """Elect where the leader does not stay or is not alive; raise the epoch of the others."""
        staying: list[Partition] = []
        leaving: list[Partition] = []
        for partition in partitions:
            leader = None if partition.leadership is None else partition.leadership.leader
            stays = (
                leader is not None
                and leader in partition.assignment.replicas
                and self._context.is_replica_online(partition.key, leader)
            )
            (staying if stays else leaving).append(partition)
        await self._machines.partitions_to(leaving, partition_states.ONLINE, Strategy.REASSIGN)
        if staying:
            self._batch.open()
            await self._machines.raise_epochs(staying)
            self._batch.send()

    def _put_off(self, moved: Moves) -> list[TopicPartition]:
        """The moves whose target could not take the leadership after all. Their replicas must not
        be let go: the plan stays, and is tried again when something has changed."""
        put_off = []
        for key, assignment in moved.items():
            leadership = self._partition(key).leadership
            if assignment.removing and (
                leadership is None or leadership.leader not in assignment.target
            ):
                put_off.append(key)
                self._context.set_assignment(key, assignment)
                self._record(key, "put off: nobody of the target can lead")
        return put_off

    async def _leave(
        self, replicas: list[Replica], fence: Iterable[TopicPartition] = ()
    ) -> list[Replica]:
        """Take replicas out of the ISR; answers those that may be deleted then. Nobody waits for
        their brokers."""
        born = []
        for key, replica in replicas:
            if self._is_unborn(key, replica):
                self._context.forget_replica(key, replica)
            else:
                born.append((key, replica))
        await self._machines.replicas_to(born, replica_states.OFFLINE, fence=fence)
        return [(key, replica) for key, replica in born if not self._is_in_sync(key, replica)]

    async def _delete(self, replicas: list[Replica]) -> None:
        await self._machines.replicas_to(replicas, replica_states.DELETION_STARTED)
        await self._machines.replicas_to(replicas, replica_states.DELETION_SUCCESSFUL)
        await self._machines.replicas_to(replicas, replica_states.NON_EXISTENT)

    def _is_in_sync(self, key: TopicPartition, replica: int) -> bool:
        """Still in the ISR after leaving it: the last one, and its log the last copy."""
        leadership = self._partition(key).leadership
        last = leadership is not None and replica in leadership.isr and not self._is_doomed(key)
        if last:
            self._record(key, f"broker {replica} keeps its log: it is the last in sync")
        return last

    def _is_doomed(self, key: TopicPartition) -> bool:
        return self._context.is_queued_for_deletion(key.topic)

    def _is_unborn(self, key: TopicPartition, replica: int) -> bool:
        return self._context.replica_state(key, replica) is replica_states.NON_EXISTENT

    async def _write_assignments(self, changed: Moves) -> None:
        """Rewrite the topic nodes with these assignments, the others as they are in memory.

        Partitions that were added meanwhile, and that we have not heard of, stay.
        """
        by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
        for key, assignment in changed.items():
            by_topic.setdefault(key.topic, {})[key.partition] = assignment
        for _ in range(ATTEMPTS_MAX):
            found = await self._store.topics_and_versions(by_topic.keys())
            if not found:
                return
            for topic, (node, version) in found.items():
                if await self._rewrite(topic, node, version, by_topic[topic]):
                    del by_topic[topic]
        raise BadVersion("", f"{sorted(by_topic)} changed too often")

    async def _rewrite(
        self, topic: str, node: TopicNode, version: int, changed: Mapping[int, ReplicaAssignment]
    ) -> bool:
        """False if somebody else wrote the node since it was read."""
        unheard_of = {n: ReplicaAssignment(to) for n, to in node.partitions.items()}
        assignments = {**unheard_of, **self._context.assignments_of(topic), **changed}
        rewritten = topic_node(assignments, self._context, topic)
        try:
            await self._store.set_topic(
                topic, rewritten, self._context.epoch_version, version=version
            )
        except BadVersion:
            return False
        return True

    async def _drop_finished_from_legacy(self, targets: Moves) -> None:
        """The legacy node forgets a partition that has arrived where the node wanted it."""
        moves = await self._store.reassignment()
        done = {
            key
            for key, to in moves.items()
            if key in targets and targets[key].replicas == tuple(to)
        }
        if done:
            await self._drop_from_legacy(done)

    def _partition(self, key: TopicPartition) -> Partition:
        partition = self._context.partition(key)
        assert partition is not None, f"{key} moves and is not known"
        return partition

    def _steps(self, keys: Iterable[TopicPartition], step: Step) -> None:
        for key in keys:
            self._step(key, step)

    def _step(self, key: TopicPartition, step: Step, before: str = "", after: str = "") -> None:
        text = f"{step.value}: {after}" if after else step.value
        self._journal.record(EntryKind.REASSIGNMENT, before=before, after=text, partition=key)

    def _record(self, key: TopicPartition, what: str) -> None:
        self._journal.record(EntryKind.REASSIGNMENT, after=what, partition=key)


def topic_node(
    assignments: Mapping[int, ReplicaAssignment], context: ControllerContext, topic: str
) -> TopicNode:
    """A topic's assignments as the store keeps them; the topic's id, if it has one, stays."""
    return TopicNode(
        {number: tuple(of.replicas) for number, of in assignments.items()},
        {number: tuple(of.adding) for number, of in assignments.items() if of.adding},
        {number: tuple(of.removing) for number, of in assignments.items() if of.removing},
        context.topic_ids.get(topic),
    )
