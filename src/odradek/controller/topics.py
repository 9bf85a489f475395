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
from odradek.controller.term import WatchKind
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
    context = active.context
    names = await active.store.topics(active.watches[WatchKind.TOPICS])
    new = [name for name in names if name not in context.topics]
    gone = context.topics.keys() - set(names)
    for topic in gone:
        context.remove_topic(topic)
    if gone:
        await active.reassigner.drop_deleted_topics()
    nodes = await active.store.topic_nodes(new, active.watches[WatchKind.TOPIC])
    if not nodes and not gone:
        return
    active.note(f"TopicChange new={sorted(nodes)} gone={sorted(gone)}")
    created: list[Partition] = []
    for topic, node in (await topic_ids.give_ids(active, nodes)).items():
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
    context = active.context
    node = await active.store.topic(topic, active.watches[WatchKind.TOPIC])
    if node is None or topic not in context.topics:
        return  # TopicChange follows
    if node.topic_id is None and topic in context.topic_ids.ids:
        await topic_ids.restore_id(active, topic)
    found = assignments(topic, node)
    new = {tp: of for tp, of in found.items() if not context.assignment(tp).replicas}
    if not new:
        return
    numbers = [tp.partition for tp in new]
    if context.is_queued_for_deletion(topic):
        active.note(f"PartitionModifications {topic} refused={numbers}: it is being deleted")
        await _restore(active, topic, found)
        return
    active.note(f"PartitionModifications {topic} new={numbers}")
    await create(active, [context.set_assignment(tp, of) for tp, of in new.items()])


async def _restore(
    active: ActiveController, topic: str, found: Mapping[TopicPartition, ReplicaAssignment]
) -> None:
    """Write the topic's node back to the partitions that exist: a topic that is being deleted does
    not grow."""
    existing = set(await active.store.partition_ids(topic))
    kept = {tp.partition: active.context.assignment(tp) for tp in found if tp.partition in existing}
    await active.store.set_topic(topic, topic_node(kept, active.context, topic), active.fence)


async def deletion_requested(active: ActiveController) -> None:
    """TopicDeletion: topics are to be deleted."""
    requested = await active.store.requests.deletions(active.watches[WatchKind.DELETIONS])
    fresh = [topic for topic in requested if topic not in active.context.topics_to_delete]
    if fresh:
        active.note(f"TopicDeletion topics={fresh}")
        await active.deletion.request(requested)
        await active.reassigner.drop_deleted_topics()


async def isr_changed(active: ActiveController) -> None:
    """IsrChangeNotification: leaders changed the ISR of partitions; every broker is informed."""
    names = await active.store.notifications.isr_notifications(
        active.watches[WatchKind.ISR_CHANGES]
    )
    if not names:
        return
    try:
        changed = await active.store.notifications.isr_changes(names)
        known = [tp for tp in sorted(changed) if active.context.partition(tp) is not None]
        if known:
            active.note(f"IsrChangeNotification {format_partitions(known)}")
            await _refresh(active, known)
            await active.reassigner.isr_changed(known)
    finally:
        await active.store.notifications.drop_isr_notifications(names, active.fence)


async def _refresh(active: ActiveController, tps: Iterable[TopicPartition]) -> None:
    states = await active.store.partition_states(list(tps))
    partitions = []
    for tp, state in states.items():
        partition = active.context.partition(tp)
        assert partition is not None
        active.learn(partition, state)
        partitions.append(partition)
    await active.announce(active.context.brokers, partitions)


async def reassignment_requested(active: ActiveController) -> None:
    """ZkPartitionReassignment: the legacy node was written."""
    moves = await active.store.requests.reassignment(active.watches[WatchKind.REASSIGNMENT])
    if moves:
        active.note(f"ZkPartitionReassignment {format_partitions(moves)}")
        await active.reassigner.legacy_request(moves)


async def reassigning_changed(active: ActiveController) -> None:
    """PartitionReassignmentIsrChange: the states of partitions being reassigned were written."""
    changed = sorted(active.changed_states)
    active.changed_states.clear()
    await active.reassigner.isr_changed(changed)
