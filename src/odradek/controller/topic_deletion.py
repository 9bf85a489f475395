"""Deleting topics, so that no copy is forgotten.

Three sets: topics *to delete*, topics whose deletion is *started*, topics that are *ineligible*
for now because a replica is not online, a reassignment runs, or an attempt failed. What to do
next is decided from the states of a topic's replicas alone; it is asked again whenever one of
them changed. docs/spec/controller-and-replication.md section 4.5.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from odradek.controller import partition_states, replica_states
from odradek.controller.context import Replica
from odradek.controller.journal import EntryKind
from odradek.controller.partition_state_machine import PartitionStateMachine
from odradek.controller.replica_state_machine import ReplicaStateMachine
from odradek.controller.replica_states import ReplicaState
from odradek.controller.term import Term


@dataclass(slots=True)
class Plan:
    """What to do now, by topic."""

    complete: list[str] = field(default_factory=list)  # every copy is gone: forget the topic
    retry: list[str] = field(default_factory=list)  # some copies failed: make them OFFLINE again
    start: list[str] = field(default_factory=list)  # ask the replicas to delete their logs


def plan(states_of: Mapping[str, Collection[ReplicaState]], ineligible: Collection[str]) -> Plan:
    """What to do for each queued topic, given the states of its replicas."""
    decided = Plan()
    for topic, states in states_of.items():
        if all(state is replica_states.DELETION_SUCCESSFUL for state in states):
            decided.complete.append(topic)
            continue
        if replica_states.DELETION_STARTED in states:
            continue  # wait for the answers that are out
        if replica_states.DELETION_INELIGIBLE in states:
            decided.retry.append(topic)
        if topic not in ineligible:
            decided.start.append(topic)
    return decided


class TopicDeletions:
    """Carries the plan out."""

    def __init__(
        self, term: Term, partitions: PartitionStateMachine, replicas: ReplicaStateMachine
    ) -> None:
        self._term = term
        self._context = term.context
        self._partitions = partitions
        self._replicas = replicas
        self._journal = term.journal
        self._enabled = term.config.delete_topic_enable

    async def take_over(self) -> None:
        """Learn what an earlier controller was asked to delete. Nothing is started yet."""
        context = self._context
        queued = await self._term.store.requests.deletions()
        if not self._enabled:
            await self._term.store.requests.drop_deletions(queued, self._term.fence)
            return
        self._queue(queued)
        moving = {tp.topic for tp in context.reassigning}
        for topic in queued:
            if topic in moving:
                self.halt((topic,), "a reassignment is in progress")
            elif not all(
                context.brokers.is_replica_online(tp, replica)
                for tp, replica in context.replicas_of_topic(topic)
            ):
                self.halt((topic,), "a replica is not online")

    async def request(self, topics: Collection[str]) -> None:
        """These topics are to be deleted."""
        context = self._context
        unknown = [topic for topic in topics if topic not in context.topics]
        known = [topic for topic in topics if topic in context.topics]
        if not self._enabled:
            await self._term.store.requests.drop_deletions(topics, self._term.fence)
            return
        if unknown:
            await self._term.store.requests.drop_deletions(unknown, self._term.fence)
        if not known:
            return
        self._queue(known)
        moving = {tp.topic for tp in context.reassigning}
        self.halt([topic for topic in known if topic in moving], "a reassignment is in progress")
        await self.go_on()

    def _queue(self, topics: Iterable[str]) -> None:
        for topic in topics:
            if topic not in self._context.topics_to_delete:
                self._context.queue_deletion(topic)
                self._journal.record(EntryKind.DELETION, after="queued", topic=topic)

    def halt(self, topics: Iterable[str], reason: str) -> None:
        """Pause the deletion of these."""
        for topic in topics:
            if topic in self._context.topics_to_delete:
                self._context.topics_ineligible.add(topic)
                self._journal.record(EntryKind.DELETION, after="halted", topic=topic, why=reason)

    async def resume(self, topics: Iterable[str]) -> None:
        """What stood in the way of these is gone: a broker came, or a reassignment ended."""
        moving = {tp.topic for tp in self._context.reassigning}
        resumed = [
            topic
            for topic in topics
            if topic in self._context.topics_to_delete and topic not in moving
        ]
        if resumed:
            self._context.topics_ineligible.difference_update(resumed)
            await self.go_on()

    async def failed(self, replicas: Iterable[Replica]) -> None:
        """These replicas could not be deleted: their broker or disk is gone, or said no."""
        ours = [
            replica for replica in replicas if replica[0].topic in self._context.topics_to_delete
        ]
        if ours:
            await self._replicas.move(self._failing(ours), replica_states.DELETION_INELIGIBLE)
            self.halt(dict.fromkeys(tp.topic for tp, _ in ours), "a replica was not deleted")
            await self.go_on()

    async def succeeded(self, replicas: Iterable[Replica]) -> None:
        """These replicas' brokers have deleted them."""
        ours = [
            replica for replica in replicas if replica[0].topic in self._context.topics_to_delete
        ]
        if ours:
            await self._replicas.move(ours, replica_states.DELETION_SUCCESSFUL)
            await self.go_on()

    async def go_on(self) -> None:
        """Do whatever can be done now for every queued topic."""
        if not self._enabled:
            return
        context = self._context
        decided = plan(
            {
                topic: context.replica_states_of_topic(topic).values()
                for topic in context.topics_to_delete
            },
            context.topics_ineligible,
        )
        for topic in decided.complete:
            await self._complete(topic)
        if decided.retry:
            failed = [
                replica
                for topic in decided.retry
                for replica, state in context.replica_states_of_topic(topic).items()
                if state is replica_states.DELETION_INELIGIBLE
            ]
            await self._replicas.move(failed, replica_states.OFFLINE)
        if decided.start:
            await self._start(decided.start)

    async def _start(self, topics: list[str]) -> None:
        context = self._context
        fresh = [topic for topic in topics if topic not in context.topics_deleting]
        partitions = [p for topic in fresh for p in context.partitions_of(topic)]
        await self._partitions.move(partitions, partition_states.OFFLINE)
        await self._partitions.move(partitions, partition_states.NON_EXISTENT)
        context.topics_deleting.update(fresh)
        for topic in topics:
            self._journal.record(EntryKind.DELETION, after="started", topic=topic)
        # From here on brokers stop serving these topics.
        await self._term.announce(
            context.brokers, (p for topic in topics for p in context.partitions_of(topic))
        )
        dead: list[Replica] = []
        live: list[Replica] = []
        for topic in topics:
            for replica, state in context.replica_states_of_topic(topic).items():
                # Not one that has only failed to lead: a log that it cannot read it may well
                # delete, and if not its response says so.
                if not context.brokers.is_live(replica[1]):
                    dead.append(replica)
                elif state is not replica_states.DELETION_SUCCESSFUL:
                    live.append(replica)
        await self._replicas.move(self._failing(dead), replica_states.DELETION_INELIGIBLE)
        await self._replicas.move(live, replica_states.OFFLINE)
        await self._replicas.move(live, replica_states.DELETION_STARTED)
        self.halt(dict.fromkeys(tp.topic for tp, _ in dead), "a replica is not online")

    def _failing(self, replicas: Iterable[Replica]) -> list[Replica]:
        """Of these, the ones whose deletion can fail: not those that are deleted already, nor those
        of a topic that is only queued."""
        target = replica_states.DELETION_INELIGIBLE
        return [
            replica
            for replica in replicas
            if replica_states.is_valid(self._context.replicas.state(*replica), target)
        ]

    async def _complete(self, topic: str) -> None:
        gone = self._context.replicas_of_topic(topic)
        await self._replicas.move(gone, replica_states.NON_EXISTENT)
        await self._term.store.delete_topic(topic, self._term.fence)
        self._context.remove_topic(topic)
        self._journal.record(EntryKind.DELETION, after="completed", topic=topic)
