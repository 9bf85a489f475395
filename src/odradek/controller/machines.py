"""The two state machines at work: they ask the tables, write the store, and fill the request batch.

Everything is done in bulk: one read and one write of the store for all partitions of a call. Writes
are under a version check, since leaders write the ISR too; who loses the race is read and decided
again. Errors of the store other than losing the office are recorded and end the call, with no
rollback: the next one finds the batch not empty and the controller takes office anew, as it does at
once where the store cannot work at all.
docs/spec/controller-and-replication.md sections 2 and 3.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from odradek.controller import leadership as leaderships
from odradek.controller import partition_states, replica_states
from odradek.controller.config import ControllerConfig
from odradek.controller.context import ControllerContext, Partition, Replica, grouped_by_broker
from odradek.controller.elections import Strategy
from odradek.controller.journal import EntryKind, Journal
from odradek.controller.leadership import Election, Leadership
from odradek.controller.partition_states import PartitionState
from odradek.controller.replica_states import Effect, ReplicaState
from odradek.controller.requests import RequestBatch
from odradek.store.api import BadVersion, NodeExists, StoreError, StoreUnavailable
from odradek.store.cluster import ClusterStore, StateResult
from odradek.store.paths import ConfigKind
from odradek.wire.topics import TopicPartition

UNCLEAN_CONFIG = "unclean.leader.election.enable"
# A leader changes its ISR every few seconds at most: nobody loses a race this often.
ATTEMPTS_MAX = 100

# What became of a partition: its new leadership, or why there is none.
Outcome = Leadership | str


class StateMachines:
    """Moves partitions and replicas from state to state."""

    def __init__(
        self,
        context: ControllerContext,
        store: ClusterStore,
        batch: RequestBatch,
        journal: Journal,
        config: ControllerConfig,
    ) -> None:
        self._context = context
        self._store = store
        self._batch = batch
        self._journal = journal
        self._config = config

    # Partitions

    async def partitions_to(
        self,
        partitions: Iterable[Partition],
        target: PartitionState,
        strategy: Strategy = Strategy.OFFLINE,
    ) -> dict[TopicPartition, Outcome]:
        """Move partitions to `target`. Towards ONLINE, answers the outcome for each of them."""
        moving = list(partitions)
        if not moving:
            return {}
        self._batch.open()
        try:
            outcomes = await self._move_partitions(moving, target, strategy)
        except StoreUnavailable:
            raise
        except StoreError as error:
            self._failed(f"moving {len(moving)} partitions to {target.name}: {error}")
            return {partition.key: str(error) for partition in moving}
        self._batch.send()
        return outcomes

    async def _move_partitions(
        self, moving: list[Partition], target: PartitionState, strategy: Strategy
    ) -> dict[TopicPartition, Outcome]:
        fresh, electing = [], []
        for partition in moving:
            if not partition_states.is_valid(partition.state, target):
                self._illegal(partition.state.name, target.name, partition.key)
                continue
            effect = partition_states.effect(partition.state, target)
            if effect is partition_states.Effect.INITIALISE:
                fresh.append(partition)
            elif effect is partition_states.Effect.ELECT:
                electing.append(partition)
            else:
                self._partition_moved(partition, target)
        outcomes: dict[TopicPartition, Outcome] = {}
        if fresh:
            outcomes.update(await self._initialise(fresh))
        if electing:
            outcomes.update(await self._elect(electing, strategy))
        return outcomes

    async def _initialise(self, partitions: list[Partition]) -> dict[TopicPartition, Outcome]:
        """First leadership: a state node for each partition with a live replica."""
        outcomes: dict[TopicPartition, Outcome] = {}
        decided: dict[TopicPartition, Leadership] = {}
        for partition in partitions:
            live = self._context.online_replicas(partition)
            leadership = leaderships.initial(live, self._context.epoch)
            if leadership is None:
                outcomes[partition.key] = "no replica is live"
            else:
                decided[partition.key] = leadership
        written = await self._store.create_partition_states(decided, self._context.epoch_version)
        written.update(await self._created_unheard(decided, written))
        for partition in partitions:
            result = written.get(partition.key)
            if isinstance(result, Leadership):
                self._lead(partition, result)
                self._batch.add_leader_and_isr(result.isr, partition, is_new=True)
                self._partition_moved(partition, partition_states.ONLINE)
                outcomes[partition.key] = result
            elif result is not None:
                outcomes[partition.key] = f"the state node was not created: {result!r}"
        self._record_failures(partitions, outcomes, "initialise")
        return outcomes

    async def _created_unheard(
        self,
        decided: Mapping[TopicPartition, Leadership],
        written: Mapping[TopicPartition, StateResult],
    ) -> dict[TopicPartition, Leadership]:
        """The nodes that are ours after all: a connection that breaks before the answer has the
        creation asked for again, and it meets itself."""
        existing = [key for key, result in written.items() if isinstance(result, NodeExists)]
        states = await self._store.partition_states(existing) if existing else {}
        return {
            key: state
            for key, state in states.items()
            if state == replace(decided[key], partition_epoch=0)
        }

    async def _elect(
        self, partitions: list[Partition], strategy: Strategy
    ) -> dict[TopicPartition, Outcome]:
        outcomes: dict[TopicPartition, Outcome] = {}
        remaining = partitions
        for _ in range(ATTEMPTS_MAX):
            remaining = await self._elect_once(remaining, strategy, outcomes)
            if not remaining:
                break
        for partition in remaining:
            outcomes[partition.key] = "the state node changed too often"
        self._record_failures(partitions, outcomes, strategy.value)
        return outcomes

    async def _elect_once(
        self,
        partitions: list[Partition],
        strategy: Strategy,
        outcomes: dict[TopicPartition, Outcome],
    ) -> list[Partition]:
        """One round; answers the partitions whose state changed under our hands."""
        stored = await self._read_states(partitions, outcomes)
        unclean = await self._topics_accepting_loss(stored, strategy)
        elections: dict[TopicPartition, Election] = {}
        shutting_down = self._context.shutting_down
        for key, (partition, state) in stored.items():
            election = leaderships.elect(
                strategy,
                partition.assignment,
                self._without_strangers(key, state),
                live=self._context.online_replicas(
                    partition,
                    count_shutting_down=strategy is Strategy.CONTROLLED_SHUTDOWN,
                ),
                shutting_down=shutting_down,
                controller_epoch=self._context.epoch,
                unclean=key.topic in unclean,
            )
            if election is None:
                outcomes[key] = f"nobody is eligible ({strategy.value}, isr={list(state.isr)})"
            else:
                elections[key] = election
        written = await self._store.update_partition_states(
            {key: election.leadership for key, election in elections.items()},
            self._context.epoch_version,
        )
        lost = []
        for key, result in written.items():
            partition = stored[key][0]
            if isinstance(result, Leadership):
                self._lead(
                    partition, result, why=self._why_elected(strategy, stored[key][1], result)
                )
                self._batch.add_leader_and_isr(elections[key].recipients, partition, is_new=False)
                self._partition_moved(partition, partition_states.ONLINE)
                outcomes[key] = result
            elif isinstance(result, BadVersion):
                lost.append(partition)
            else:
                outcomes[key] = f"the state node was not written: {result!r}"
        return lost

    def _why_elected(self, strategy: Strategy, before: Leadership, after: Leadership) -> str:
        clean = "" if after.leader in before.isr else ", unclean: records may be lost"
        return f"{self._journal.cause}: election ({strategy.value}{clean})"

    async def _topics_accepting_loss(
        self, stored: dict[TopicPartition, tuple[Partition, Leadership]], strategy: Strategy
    ) -> Collection[str]:
        """The topics for which an unclean leader may be elected, as far as it matters now."""
        if strategy not in (Strategy.OFFLINE, Strategy.OFFLINE_UNCLEAN):
            return ()
        hopeless = {
            key.topic
            for key, (_, state) in stored.items()
            if not any(self._context.is_replica_online(key, member) for member in state.isr)
        }
        if strategy is Strategy.OFFLINE_UNCLEAN or not hopeless:
            return hopeless
        default = "true" if self._config.unclean_leader_election_enable else "false"
        configs = await self._store.configs(ConfigKind.TOPICS, sorted(hopeless))
        return {
            topic
            for topic, config in configs.items()
            if config.get(UNCLEAN_CONFIG, default).strip().lower() == "true"
        }

    async def _read_states(
        self, partitions: list[Partition], outcomes: dict[TopicPartition, Outcome]
    ) -> dict[TopicPartition, tuple[Partition, Leadership]]:
        """The stored leadership of each; those without, or of a later controller, are outcomes."""
        states = await self._store.partition_states([partition.key for partition in partitions])
        found = {}
        for partition in partitions:
            key = partition.key
            state = states.get(key)
            if state is None:
                outcomes[key] = "there is no state node"
            elif state.controller_epoch > self._context.epoch:
                outcomes[key] = f"written by controller epoch {state.controller_epoch}"
            else:
                found[key] = (partition, state)
        return found

    def _without_strangers(self, key: TopicPartition, state: Leadership) -> Leadership:
        """The state without replicas that we have let go: a leader that had not heard of that may
        have taken one into the ISR since."""
        isr = tuple(
            member
            for member in state.isr
            if self._context.replica_state(key, member) is not replica_states.NON_EXISTENT
        )
        return replace(state, isr=isr) if isr else state

    # Replicas

    async def replicas_to(
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
        self._batch.open()
        unfenced = set(fence)
        try:
            for broker_id, keys in grouped_by_broker(replicas).items():
                await self._move_replicas(broker_id, keys, target, unfenced)
                await asyncio.sleep(0)  # this may be long, and clients wait on the same loop
        except StoreUnavailable:
            raise
        except StoreError as error:
            self._failed(f"moving {len(replicas)} replicas to {target.name}: {error}")
            return
        self._batch.send()

    async def _move_replicas(
        self,
        broker_id: int,
        keys: list[TopicPartition],
        target: ReplicaState,
        unfenced: set[TopicPartition],
    ) -> None:
        states = self._context.replica_states_on(broker_id)
        valid_previous = replica_states.VALID_PREVIOUS[target]
        leaving: list[Partition] = []
        for key in keys:
            previous = states.get(key, replica_states.NON_EXISTENT)
            if previous not in valid_previous:
                self._illegal(previous.name, target.name, key, broker_id)
                continue
            partition = self._context.partition(key)
            leadership = None if partition is None else partition.leadership
            effects = replica_states.effects(
                previous,
                target,
                has_leadership=leadership is not None,
                is_leader=leadership is not None and leadership.leader == broker_id,
            )
            if Effect.REFUSE in effects:
                self._illegal(previous.name, target.name, key, broker_id, "it is the leader")
                continue
            if partition is not None:
                for effect in effects:
                    self._apply(effect, partition, broker_id)
            if Effect.LEAVE_ISR in effects:
                assert partition is not None
                leaving.append(partition)  # moved once the store has it
            else:
                self._replica_moved(key, broker_id, previous, target)
        if leaving:
            await self._leave_isr(broker_id, leaving, unfenced)

    def _apply(self, effect: Effect, partition: Partition, broker_id: int) -> None:
        batch = self._batch
        if effect is Effect.RESUME:
            batch.add_leader_and_isr((broker_id,), partition, is_new=False)
        elif effect is Effect.START:
            batch.add_leader_and_isr((broker_id,), partition, is_new=True)
        elif effect is Effect.STOP:
            batch.add_stop_replica(broker_id, partition.key, delete=False)
        elif effect is Effect.DELETE:
            batch.add_stop_replica(broker_id, partition.key, delete=True)
        elif effect is Effect.ANNOUNCE:
            batch.add_update_metadata(self._context.brokers, (partition,))
        elif effect is Effect.JOIN_ASSIGNMENT:
            assignment = partition.assignment
            if broker_id not in assignment.replicas:
                self._illegal("NEW", "ONLINE", partition.key, broker_id, "not assigned: added")
                joined = (*assignment.replicas, broker_id)
                self._context.set_assignment(
                    partition.key,
                    type(assignment)(joined, assignment.adding, assignment.removing),
                )

    async def _leave_isr(
        self, broker_id: int, partitions: list[Partition], unfenced: set[TopicPartition]
    ) -> None:
        """Write each partition's state without the replica, tell the others, record it offline."""
        outcomes: dict[TopicPartition, Outcome] = {}
        remaining = partitions
        for _ in range(ATTEMPTS_MAX):
            stored = await self._read_states(remaining, outcomes)
            decided: dict[TopicPartition, Leadership] = {}
            for key, (_, state) in stored.items():
                if broker_id in state.isr or (key in unfenced and state.leader >= 0):
                    decided[key] = leaderships.without_replica(
                        state, broker_id, self._context.epoch
                    )
                else:
                    outcomes[key] = state
            written = await self._store.update_partition_states(
                decided, self._context.epoch_version
            )
            remaining = []
            for key, result in written.items():
                if isinstance(result, BadVersion):
                    remaining.append(stored[key][0])
                elif isinstance(result, Leadership):
                    outcomes[key] = result
                    unfenced.discard(key)
                else:
                    outcomes[key] = repr(result)
            if not remaining:
                break
        for partition in partitions:
            self._left_isr(broker_id, partition, outcomes.get(partition.key, "changed too often"))

    def _left_isr(self, broker_id: int, partition: Partition, outcome: Outcome) -> None:
        key = partition.key
        deleting = self._context.is_queued_for_deletion(key.topic)
        if isinstance(outcome, Leadership):
            self.learned(partition, outcome)
            if not deleting:
                others = [
                    id
                    for id in partition.assignment.replicas
                    if id != broker_id
                    and self._context.replica_state(key, id) is not replica_states.NON_EXISTENT
                ]
                self._batch.add_leader_and_isr(others, partition, is_new=False)
        elif not deleting:
            previous = self._context.replica_state(key, broker_id)
            self._illegal(previous.name, "OFFLINE", key, broker_id, outcome)
            return
        previous = self._context.replica_state(key, broker_id)
        self._replica_moved(key, broker_id, previous, replica_states.OFFLINE)

    # Epochs

    async def raise_epochs(self, partitions: Iterable[Partition]) -> dict[TopicPartition, Outcome]:
        """Raise the leader epoch, so that replicas take a changed assignment to heart.

        Adds LeaderAndIsr to the batch: new to the replicas being added, not to the others. The
        batch is the caller's to open and send.
        """
        outcomes: dict[TopicPartition, Outcome] = {}
        chosen = remaining = list(partitions)
        for _ in range(ATTEMPTS_MAX):
            stored = await self._read_states(remaining, outcomes)
            written = await self._store.update_partition_states(
                {
                    key: leaderships.raised(
                        self._without_strangers(key, state), self._context.epoch
                    )
                    for key, (_, state) in stored.items()
                },
                self._context.epoch_version,
            )
            remaining = []
            for key, result in written.items():
                partition = stored[key][0]
                if isinstance(result, Leadership):
                    self._lead(partition, result)
                    assignment = partition.assignment
                    self._batch.add_leader_and_isr(assignment.origin, partition, is_new=False)
                    self._batch.add_leader_and_isr(assignment.adding, partition, is_new=True)
                    outcomes[key] = result
                elif isinstance(result, BadVersion):
                    remaining.append(partition)
                else:
                    outcomes[key] = repr(result)
            if not remaining:
                break
        for partition in remaining:
            outcomes[partition.key] = "the state node changed too often"
        self._record_failures(chosen, outcomes, "raise the leader epoch")
        return outcomes

    # Recording

    def learned(self, partition: Partition, leadership: Leadership) -> None:
        """The store has this: a leader changed its ISR, and we had not heard."""
        if leadership != partition.leadership:
            self._lead(partition, leadership)

    def _lead(self, partition: Partition, leadership: Leadership, why: str | None = None) -> None:
        self._journal.record(
            EntryKind.LEADERSHIP,
            before="" if partition.leadership is None else told(partition.leadership),
            after=told(leadership),
            partition=partition.key,
            why=why,
        )
        self._context.set_leadership(partition, leadership)

    def _partition_moved(self, partition: Partition, target: PartitionState) -> None:
        self._journal.record(
            EntryKind.PARTITION,
            before=partition.state.name,
            after=target.name,
            partition=partition.key,
        )
        self._context.set_partition_state(partition, target)

    def _replica_moved(
        self, key: TopicPartition, broker_id: int, previous: ReplicaState, target: ReplicaState
    ) -> None:
        self._journal.record(
            EntryKind.REPLICA,
            before=previous.name,
            after=target.name,
            partition=key,
            broker=broker_id,
        )
        if target is replica_states.NON_EXISTENT:
            self._context.forget_replica(key, broker_id)
        else:
            self._context.set_replica_state(key, broker_id, target)

    def _illegal(
        self,
        before: str,
        after: str,
        key: TopicPartition,
        broker_id: int | None = None,
        reason: str = "not a legal transition",
    ) -> None:
        self._journal.record(
            EntryKind.FAILURE,
            before=before,
            after=after,
            partition=key,
            broker=broker_id,
            why=f"{self._journal.cause}: {reason}",
        )

    def _record_failures(
        self, partitions: list[Partition], outcomes: dict[TopicPartition, Outcome], what: str
    ) -> None:
        for partition in partitions:
            outcome = outcomes.get(partition.key)
            if isinstance(outcome, str):
                self._illegal(
                    partition.state.name, "ONLINE", partition.key, reason=f"{what}: {outcome}"
                )

    def _failed(self, reason: str) -> None:
        self._journal.record(EntryKind.FAILURE, why=f"{self._journal.cause}: {reason}")


def told(leadership: Leadership) -> str:
    """Leadership as the journal prints it."""
    isr = ",".join(map(str, leadership.isr))
    return f"leader={leadership.leader} epoch={leadership.leader_epoch} isr=[{isr}]"
