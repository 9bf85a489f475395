"""Topics as they come, grow and go.

docs/spec/controller-and-replication.md sections 4.5 and 4.8.
"""

from collections.abc import Collection, Iterable, Mapping

from odradek.controller import partition_states, replica_states
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.context import Partition
from odradek.controller.office import Office
from odradek.controller.reassigner import topic_node
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


async def topics_changed(office: Office) -> None:
    """TopicChange: a topic node came or went."""
    context = office.context
    names = await office.store.topics(office.watches["topics"])
    new = [name for name in names if name not in context.topics]
    gone = context.topics.keys() - set(names)
    for topic in gone:
        context.remove_topic(topic)
    if gone:
        await office.reassigner.forget_doomed()
    nodes = await office.store.topic_nodes(new, office.watches["topic"])
    if not nodes and not gone:
        return
    office.note(f"TopicChange new={sorted(nodes)} gone={sorted(gone)}")
    created: list[Partition] = []
    for topic, node in nodes.items():
        context.add_topic(topic, node.topic_id)
        created += [context.set_assignment(key, of) for key, of in assignments(topic, node).items()]
    await create(office, created)


async def create(office: Office, partitions: Collection[Partition]) -> None:
    """Bring new partitions and their replicas to life."""
    replicas = [
        (partition.key, replica)
        for partition in partitions
        for replica in partition.assignment.replicas
    ]
    await office.machines.partitions_to(partitions, partition_states.NEW)
    await office.machines.replicas_to(replicas, replica_states.NEW)
    await office.machines.partitions_to(partitions, partition_states.ONLINE)
    await office.machines.replicas_to(replicas, replica_states.ONLINE)


async def topic_modified(office: Office, topic: str) -> None:
    """PartitionModifications: the topic's node was written. New partitions are created."""
    context = office.context
    node = await office.store.topic(topic, office.watches["topic"])
    if node is None or topic not in context.topics:
        return  # TopicChange tells
    found = assignments(topic, node)
    new = {key: of for key, of in found.items() if not context.assignment(key).replicas}
    if not new:
        return
    numbers = [key.partition for key in new]
    if context.is_queued_for_deletion(topic):
        office.note(f"PartitionModifications {topic} refused={numbers}: it is being deleted")
        await _restore(office, topic, found)
        return
    office.note(f"PartitionModifications {topic} new={numbers}")
    await create(office, [context.set_assignment(key, of) for key, of in new.items()])


async def _restore(
    office: Office, topic: str, found: Mapping[TopicPartition, ReplicaAssignment]
) -> None:
    """Write the topic's node back to the partitions that exist: a doomed topic does not grow."""
    existing = set(await office.store.partition_ids(topic))
    kept = {
        key.partition: office.context.assignment(key) for key in found if key.partition in existing
    }
    await office.store.set_topic(topic, topic_node(kept, office.context, topic), office.fence)


async def deletion_requested(office: Office) -> None:
    """TopicDeletion: somebody asked to delete topics."""
    requested = await office.store.deletions(office.watches["deletions"])
    fresh = [topic for topic in requested if topic not in office.context.topics_to_delete]
    if fresh:
        office.note(f"TopicDeletion topics={fresh}")
        await office.deletion.request(requested)
        await office.reassigner.forget_doomed()


async def isr_changed(office: Office) -> None:
    """IsrChangeNotification: leaders changed the ISR of partitions; everybody is told."""
    names = await office.store.isr_notifications(office.watches["isr changes"])
    if not names:
        return
    try:
        changed = await office.store.isr_changes(names)
        known = [key for key in sorted(changed) if office.context.partition(key) is not None]
        if known:
            office.note(f"IsrChangeNotification {','.join(map(str, known))}")
            await _refresh(office, known)
            await office.reassigner.isr_changed(known)
    finally:
        await office.store.drop_isr_notifications(names, office.fence)


async def _refresh(office: Office, keys: Iterable[TopicPartition]) -> None:
    states = await office.store.partition_states(list(keys))
    partitions = []
    for key, state in states.items():
        partition = office.context.partition(key)
        assert partition is not None
        office.machines.learned(partition, state)
        partitions.append(partition)
    office.batch.open()
    office.batch.add_update_metadata(office.context.brokers, partitions)
    office.batch.send()


async def reassignment_requested(office: Office) -> None:
    """ZkPartitionReassignment: the legacy node was written."""
    moves = await office.store.reassignment(office.watches["reassignment"])
    if moves:
        office.note(f"ZkPartitionReassignment {','.join(map(str, moves))}")
        await office.reassigner.legacy_request(moves)


async def reassigning_changed(office: Office) -> None:
    """PartitionReassignmentIsrChange: the states of partitions on the move were written."""
    changed = sorted(office.changed_states)
    office.changed_states.clear()
    await office.reassigner.isr_changed(changed)
