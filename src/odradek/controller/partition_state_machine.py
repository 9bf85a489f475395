"""Moves partitions from state to state: asks the table, elects leaders, writes them.

Everything is done in bulk: one read and one write of the store for all partitions of a call, under
a version check, since leaders write the ISR too. Decisions are functions over values (`leadership`,
`elections`); here they are carried out. A store error other than being fenced is recorded and ends
the call with no rollback: if something was decided by then the controller resigns, as it does where
the store cannot work at all. docs/spec, section 3 of the controller's behaviour.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from odradek.controller import leader_and_isr_rules, partition_states, replica_states
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.context import Partition, known_states
from odradek.controller.control_request_batch import RequestBatch
from odradek.controller.elections import Strategy
from odradek.controller.journal import EntryKind
from odradek.controller.leader_and_isr_rules import Election
from odradek.controller.partition_states import PartitionEffect, PartitionState
from odradek.controller.term import Term
from odradek.store.api import StoreError, StoreUnavailable
from odradek.store.nodes import Refused
from odradek.store.paths import ConfigKind
from odradek.store.payloads import LeaderAndIsr
from odradek.wire.topics import TopicPartition

UNCLEAN_CONFIG = "unclean.leader.election.enable"

Outcomes = dict[TopicPartition, LeaderAndIsr | Refused]


class PartitionStateMachine:
    """Partitions to NEW, ONLINE, OFFLINE or NON_EXISTENT."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._context = term.context

    async def move(
        self,
        partitions: Iterable[Partition],
        target: PartitionState,
        strategy: Strategy = Strategy.OFFLINE,
        *,
        candidates: Mapping[TopicPartition, ReplicaAssignment] | None = None,
    ) -> Outcomes:
        """Move partitions to `target`. Towards ONLINE, answers the outcome for each of them.

        `candidates` are the assignments to elect from, where these are not yet the partitions' own.
        """
        moving = list(partitions)
        if not moving:
            return {}
        try:
            async with self._term.control_requests() as requests:
                return await self._move(moving, target, strategy, candidates or {}, requests)
        except StoreUnavailable:
            raise
        except StoreError as error:
            self._record_error(f"moving {len(moving)} partitions to {target.name}: {error}")
            return {partition.tp: Refused(str(error)) for partition in moving}

    async def _move(
        self,
        moving: list[Partition],
        target: PartitionState,
        strategy: Strategy,
        candidates: Mapping[TopicPartition, ReplicaAssignment],
        requests: RequestBatch,
    ) -> Outcomes:
        by_effect: dict[PartitionEffect, list[Partition]] = {
            effect: [] for effect in PartitionEffect
        }
        for partition in moving:
            if partition_states.is_valid(partition.state, target):
                by_effect[partition_states.effect(partition.state, target)].append(partition)
            else:
                self._term.record_failure(partition.state.name, target.name, partition.tp)
        for partition in by_effect[PartitionEffect.RECORD]:
            self._set_state(partition, target)
        outcomes: Outcomes = {}
        if fresh := by_effect[PartitionEffect.INITIALISE]:
            outcomes.update(await self._initialise(fresh, requests))
        if electing := by_effect[PartitionEffect.ELECT]:
            outcomes.update(await self._elect(electing, strategy, candidates, requests))
        return outcomes

    # The first leader

    async def _initialise(self, partitions: list[Partition], requests: RequestBatch) -> Outcomes:
        """A state node for each partition with a live replica."""
        outcomes: Outcomes = {}
        decided: dict[TopicPartition, LeaderAndIsr] = {}
        for partition in partitions:
            live = self._context.brokers.online_replicas(partition.tp, partition.assignment)
            state = leader_and_isr_rules.initial(live, self._context.epoch)
            if state is None:
                outcomes[partition.tp] = Refused("no replica is live")
            else:
                decided[partition.tp] = state
        outcomes.update(await self._term.store.create_partition_states(decided, self._term.fence))
        for partition in partitions:
            outcome = outcomes[partition.tp]
            if isinstance(outcome, LeaderAndIsr):
                self._term.learn(partition, outcome)
                requests.add_leader_and_isr(outcome.isr, partition, is_new=True)
                self._set_state(partition, partition_states.ONLINE)
        self._record_failures(partitions, outcomes, "initialise")
        return outcomes

    # Elections

    async def _elect(
        self,
        partitions: list[Partition],
        strategy: Strategy,
        candidates: Mapping[TopicPartition, ReplicaAssignment],
        requests: RequestBatch,
    ) -> Outcomes:
        electing = {partition.tp: partition for partition in partitions}
        elections: dict[TopicPartition, Election] = {}
        # Without a live in-sync replica: whether loss is accepted is asked only for these.
        hopeless: dict[TopicPartition, None] = {}
        accepting_loss: Collection[str] = ()

        def decide(tp: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | Refused:
            partition = electing[tp]
            hopeless.pop(tp, None)
            if (refused := self._of_later_controller(state)) is not None:
                return refused
            state = self._assigned_isr_only(tp, state)
            election = self._election(
                strategy,
                tp,
                candidates.get(tp, partition.assignment),
                state,
                unclean=strategy is Strategy.OFFLINE_UNCLEAN or tp.topic in accepting_loss,
            )
            if election is None:
                if not any(
                    self._context.brokers.is_replica_online(tp, member) for member in state.isr
                ):
                    hopeless[tp] = None
                return Refused(f"no replica is eligible ({strategy.value}, isr={list(state.isr)})")
            elections[tp] = election
            return election.leader_and_isr

        store, fence = self._term.store, self._term.fence
        outcomes: Outcomes = dict(
            await store.update_partition_states(electing, decide, fence, known_states(partitions))
        )
        if strategy is Strategy.OFFLINE and hopeless:
            accepting_loss = await self._topics_accepting_loss({tp.topic for tp in hopeless})
            again = [tp for tp in hopeless if tp.topic in accepting_loss]
            outcomes.update(await store.update_partition_states(again, decide, fence))
        for tp, partition in electing.items():
            outcome = outcomes[tp]
            if isinstance(outcome, LeaderAndIsr):
                self._apply_election(partition, outcome, elections[tp], strategy, requests)
        self._record_failures(partitions, outcomes, strategy.value)
        return outcomes

    def _election(
        self,
        strategy: Strategy,
        tp: TopicPartition,
        assignment: ReplicaAssignment,
        state: LeaderAndIsr,
        *,
        unclean: bool,
    ) -> Election | None:
        context = self._context
        live = context.brokers.online_replicas(
            tp, assignment, count_shutting_down=strategy is Strategy.CONTROLLED_SHUTDOWN
        )
        if not live and strategy is Strategy.OFFLINE_UNCLEAN:
            # An operator accepts loss, and only replicas are left that have refused to lead, for
            # they lost records, or whose disk failed: they answer which.
            live = tuple(
                replica for replica in assignment.replicas if context.brokers.is_live(replica)
            )
        return leader_and_isr_rules.elect(
            strategy,
            assignment,
            state,
            live=live,
            shutting_down=context.brokers.shutting_down,
            controller_epoch=context.epoch,
            unclean=unclean,
            marks_recovery=self._term.config.protocol.writes_leader_recovery_state,
        )

    def _apply_election(
        self,
        partition: Partition,
        state: LeaderAndIsr,
        election: Election,
        strategy: Strategy,
        requests: RequestBatch,
    ) -> None:
        note = ", unclean: records may be lost" if election.is_unclean else ""
        why = f"{self._term.journal.cause}: election ({strategy.value}{note})"
        self._term.learn(partition, state, why=why)
        self._context.brokers.clear_offline_dir(partition.tp, state.leader)  # it is asked again
        requests.add_leader_and_isr(
            election.recipients,
            partition,
            is_new=False,
            # The replica that leads may have lost records, and must know that this is accepted.
            is_unclean=election.is_unclean or strategy is Strategy.OFFLINE_UNCLEAN,
        )
        self._set_state(partition, partition_states.ONLINE)

    async def _topics_accepting_loss(self, topics: Collection[str]) -> Collection[str]:
        """The topics for which an unclean leader may be elected."""
        default = "true" if self._term.config.unclean_leader_election_enable else "false"
        configs = await self._term.store.configs.get_many(ConfigKind.TOPICS, sorted(topics))
        return {
            topic
            for topic, config in configs.items()
            if config.get(UNCLEAN_CONFIG, default).strip().lower() == "true"
        }

    # Epochs

    async def raise_epochs(self, partitions: Iterable[Partition]) -> None:
        """Raise the leader epoch, so that replicas take over a changed assignment.

        The replicas being added learn that they are new, the others do not.
        """
        raising = {partition.tp: partition for partition in partitions}
        if not raising:
            return

        def decide(tp: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | Refused:
            if (refused := self._of_later_controller(state)) is not None:
                return refused
            return leader_and_isr_rules.raised(
                self._assigned_isr_only(tp, state), self._context.epoch
            )

        async with self._term.control_requests() as requests:
            outcomes = await self._term.store.update_partition_states(
                raising, decide, self._term.fence, known_states(raising.values())
            )
            for tp, partition in raising.items():
                outcome = outcomes[tp]
                if isinstance(outcome, LeaderAndIsr):
                    self._term.learn(partition, outcome)
                    assignment = partition.assignment
                    requests.add_leader_and_isr(assignment.origin, partition, is_new=False)
                    requests.add_leader_and_isr(assignment.adding, partition, is_new=True)
        self._record_failures(raising.values(), outcomes, "raise the leader epoch")

    # What decisions have in common

    def _of_later_controller(self, state: LeaderAndIsr) -> Refused | None:
        if state.controller_epoch > self._context.epoch:
            return Refused(f"written by controller epoch {state.controller_epoch}")
        return None

    def _assigned_isr_only(self, tp: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr:
        """The state without replicas that we have let go: a leader that had not heard of that may
        have taken one into the ISR since."""
        isr = tuple(
            member
            for member in state.isr
            if self._context.replicas.state(tp, member) is not replica_states.NON_EXISTENT
        )
        return replace(state, isr=isr) if isr else state

    # Recording

    def _set_state(self, partition: Partition, target: PartitionState) -> None:
        self._term.journal.record(
            EntryKind.PARTITION,
            before=partition.state.name,
            after=target.name,
            partition=partition.tp,
        )
        self._context.set_partition_state(partition, target)

    def _record_failures(
        self, partitions: Iterable[Partition], outcomes: Mapping[TopicPartition, object], what: str
    ) -> None:
        for partition in partitions:
            outcome = outcomes.get(partition.tp)
            if isinstance(outcome, Refused):
                self._term.record_failure(
                    partition.state.name, "ONLINE", partition.tp, f"{what}: {outcome.reason}"
                )

    def _record_error(self, what: str) -> None:
        journal = self._term.journal
        journal.record(EntryKind.FAILURE, why=f"{journal.cause}: {what}")
