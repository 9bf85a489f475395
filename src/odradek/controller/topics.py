"""Topics as they come, grow and go.

docs/spec/controller-and-replication.md sections 4.5 and 4.8.
"""

from collections.abc import Collection, Iterable, Mapping

from odradek.controller import partition_states, replica_states, topic_ids
from odradek.controller.active_controller import ActiveController
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.context import Partition
from odradek.controller.journal import format_partitions
from odradek.controller.reassigner import topic_node
from odradek.controller.term import Term, WatchKind
from odradek.store.payloads import TopicNode
from odradek.wire.topics import TopicPartition


def assignments(topic: str, node: TopicNode) -> dict[TopicPartition, ReplicaAssignment]:
    """A topic node as assignments, partitions ascending."""
    return {
        TopicPartition(topic, number): ReplicaAssignment(
            node.partitions[number], node.adding.get(number, ()), node.removing.get(number, ())
        )
        for number in sorted(node.partitions)
    }


async def topics_changed(active: ActiveController) -> None:
    """TopicChange: a topic node came or went."""
    term = active.term
    context = term.context
    names = await term.store.topics(term.watches[WatchKind.TOPICS])
    new = [name for name in names if name not in context.topics]
    gone = context.topics.keys() - set(names)
    for topic in gone:
        context.remove_topic(topic)
    if gone:
        await active.reassigner.drop_deleted_topics()
    nodes = await term.store.topic_nodes(new, term.watches[WatchKind.TOPIC])
    if not nodes and not gone:
        return
    term.note(f"TopicChange new={sorted(nodes)} gone={sorted(gone)}")
    created: list[Partition] = []
    for topic, node in (await topic_ids.give_ids(term, nodes)).items():
        context.add_topic(topic, node.topic_id)
        created += [context.set_assignment(tp, of) for tp, of in assignments(topic, node).items()]
    await create(active, created)


async def create(active: ActiveController, partitions: Collection[Partition]) -> None:
    """Bring new partitions and their replicas to life."""
    replicas = [
        (partition.tp, replica)
        for partition in partitions
        for replica in partition.assignment.replicas
    ]
    await active.partitions.move(partitions, partition_states.NEW)
    await active.replicas.move(replicas, replica_states.NEW)
    await active.partitions.move(partitions, partition_states.ONLINE)
    await active.replicas.move(replicas, replica_states.ONLINE)


async def topic_modified(active: ActiveController, topic: str) -> None:
    """PartitionModifications: the topic's node was written. New partitions are created."""
    term = active.term
    context = term.context
    node = await term.store.topic(topic, term.watches[WatchKind.TOPIC])
    if node is None or topic not in context.topics:
        return  # TopicChange follows
    if node.topic_id is None and topic in context.topic_ids.ids:
        await topic_ids.restore_id(term, topic)
    found = assignments(topic, node)
    new = {tp: of for tp, of in found.items() if not context.assignment(tp).replicas}
    if not new:
        return
    numbers = [tp.partition for tp in new]
    if context.is_queued_for_deletion(topic):
        term.note(f"PartitionModifications {topic} refused={numbers}: it is being deleted")
        await _restore(term, topic, found)
        return
    term.note(f"PartitionModifications {topic} new={numbers}")
    await create(active, [context.set_assignment(tp, of) for tp, of in new.items()])


async def _restore(
    term: Term, topic: str, found: Mapping[TopicPartition, ReplicaAssignment]
) -> None:
    """Write the topic's node back to the partitions that exist: a topic that is being deleted does
    not grow."""
    existing = set(await term.store.partition_ids(topic))
    kept = {tp.partition: term.context.assignment(tp) for tp in found if tp.partition in existing}
    await term.store.set_topic(topic, topic_node(kept, term.context, topic), term.fence)


async def deletion_requested(active: ActiveController) -> None:
    """TopicDeletion: topics are to be deleted."""
    term = active.term
    requested = await term.store.requests.deletions(term.watches[WatchKind.DELETIONS])
    fresh = [topic for topic in requested if topic not in term.context.topics_to_delete]
    if fresh:
        term.note(f"TopicDeletion topics={fresh}")
        await active.deletion.request(requested)
        await active.reassigner.drop_deleted_topics()


async def isr_changed(active: ActiveController) -> None:
    """IsrChangeNotification: leaders changed the ISR of partitions; every broker is informed."""
    term = active.term
    names = await term.store.notifications.isr_notifications(term.watches[WatchKind.ISR_CHANGES])
    if not names:
        return
    try:
        changed = await term.store.notifications.isr_changes(names)
        known = [tp for tp in sorted(changed) if term.context.partition(tp) is not None]
        if known:
            term.note(f"IsrChangeNotification {format_partitions(known)}")
            await _refresh(term, known)
            await active.reassigner.isr_changed(known)
    finally:
        await term.store.notifications.drop_isr_notifications(names, term.fence)


async def _refresh(term: Term, tps: Iterable[TopicPartition]) -> None:
    states = await term.store.partition_states(list(tps))
    partitions = []
    for tp, state in states.items():
        partition = term.context.partition(tp)
        assert partition is not None
        term.learn(partition, state)
        partitions.append(partition)
    await term.announce(term.context.brokers, partitions)


async def reassignment_requested(active: ActiveController) -> None:
    """ZkPartitionReassignment: the legacy node was written."""
    term = active.term
    moves = await term.store.requests.reassignment(term.watches[WatchKind.REASSIGNMENT])
    if moves:
        term.note(f"ZkPartitionReassignment {format_partitions(moves)}")
        await active.reassigner.legacy_request(moves)


async def reassigning_changed(active: ActiveController) -> None:
    """PartitionReassignmentIsrChange: the states of partitions being reassigned were written."""
    term = active.term
    changed = sorted(term.changed_states)
    term.changed_states.clear()
    await active.reassigner.isr_changed(changed)
