"""Taking office: from nothing but the store to a controller that knows everything and has told it.

The order is docs/spec/controller-and-replication.md section 4.2. Watches come before reads, so that
nothing that happens meanwhile is missed; brokers hear who is alive before they hear whom to follow.
"""

from odradek.controller import (
    balance,
    brokers,
    incarnations,
    partition_states,
    replica_states,
    topics,
)
from odradek.controller.context import Partition, Replica
from odradek.controller.incarnations import Judgement
from odradek.controller.office import Office


async def take_office(office: Office) -> None:
    """Everything a new controller does before its first event."""
    store, context = office.store, office.context
    await store.disable_features(office.fence)
    await _watch(office)
    judgements = await load(office)
    await office.deletion.take_over()
    office.announce(list(context.brokers))
    await start_replicas(office, judgements)
    await start_partitions(office)
    await _resume_reassignments(office)
    await office.deletion.go_on()
    await balance.legacy_preferred_election(office)


async def _watch(office: Office) -> None:
    """Leave the watches, and drop notifications of what we are about to read anyway."""
    store, watches = office.store, office.watches
    await store.broker_ids(watches["brokers"])
    await store.topics(watches["topics"])
    await store.deletions(watches["deletions"])
    stale_directories = await store.log_dir_notifications(watches["log dirs"])
    stale_isr_changes = await store.isr_notifications(watches["isr changes"])
    await store.drop_log_dir_notifications(stale_directories, office.fence)
    await store.drop_isr_notifications(stale_isr_changes, office.fence)


async def load(office: Office) -> dict[Partition, Judgement]:
    """Fill the context; answers the partitions with replicas that came back unseen."""
    store, context = office.store, office.context
    context.brokers.update(await store.brokers())
    names = await store.topics()
    for topic, node in (await store.topic_nodes(names, office.watches["topic"])).items():
        context.add_topic(topic, node.topic_id)
        for key, assignment in topics.assignments(topic, node).items():
            context.set_assignment(key, assignment)
            if assignment.is_reassigning:
                context.reassigning[key] = None
    for id in context.brokers:
        await store.broker(id, office.watches["broker"])
    epochs = {broker.id: broker.epoch for broker in context.brokers.values()}
    judgements: dict[Partition, Judgement] = {}
    partitions = {partition.key: partition for partition in context.partitions()}
    states = await store.partition_states_and_writes(partitions.keys())
    for key, (state, written) in states.items():
        partition = partitions[key]
        context.set_leadership(partition, state)
        judgement = incarnations.judge(partition.assignment, state, written, epochs)
        if judgement:
            judgements[partition] = judgement
    context.absent_at_start = context.brokers_with_replicas() - context.brokers.keys()
    for broker in context.brokers.values():
        office.channels.add(broker)
    office.note(
        f"loaded brokers={sorted(context.brokers)} topics={len(context.topics)} "
        f"partitions={context.partition_count}"
    )
    office.journal.cause = "failover"
    return judgements


async def start_replicas(office: Office, judgements: dict[Partition, Judgement]) -> None:
    """The replica machine: the live go online, the rest offline.

    Those that came back unseen come first: they must not hear of a leadership they may have lost.
    """
    context = office.context
    online: list[Replica] = []
    offline: list[Replica] = []
    for partition in context.partitions():
        key = partition.key
        for replica in partition.assignment.replicas:
            is_online = context.is_replica_online(key, replica)
            context.set_replica_state(key, replica, replica_states.initial(is_online))
            (online if is_online else offline).append((key, replica))
    judged = {
        partition: judgement
        for partition, judgement in judgements.items()
        if not context.is_queued_for_deletion(partition.key.topic)
    }
    leaving = [
        (partition.key, replica)
        for partition, judgement in judged.items()
        for replica in judgement.leaving
        if replica in partition.assignment.replicas
    ]
    if judged:
        office.note(f"replicas came back unseen in {len(judged)} partitions")
        await office.machines.replicas_to(leaving, replica_states.OFFLINE)
    await office.machines.replicas_to(offline, replica_states.OFFLINE)
    await _raise_epochs(
        office, [partition for partition, judgement in judged.items() if judgement.raise_epoch]
    )
    await office.machines.replicas_to(online, replica_states.ONLINE)


async def _raise_epochs(office: Office, partitions: list[Partition]) -> None:
    """Write the states that this term has not written yet."""
    unwritten = [
        partition
        for partition in partitions
        if partition.leadership is not None
        and partition.leadership.controller_epoch != office.context.epoch
    ]
    if unwritten:
        office.batch.open()
        await office.machines.raise_epochs(unwritten)
        office.batch.send()


async def start_partitions(office: Office) -> None:
    """The partition machine: everything without a live leader gets an election."""
    context = office.context
    for partition in context.partitions():
        leadership = partition.leadership
        state = partition_states.initial(
            leadership is not None,
            leadership is not None and context.is_replica_online(partition.key, leadership.leader),
        )
        context.set_partition_state(partition, state)
    await brokers.retry_offline(office)


async def _resume_reassignments(office: Office) -> None:
    """What the legacy node asks for first, then what earlier controllers had begun."""
    context = office.context
    await office.reassigner.waiting.load()
    await office.reassigner.forget_doomed()
    begun = list(context.reassigning)
    asked = await office.store.reassignment(office.watches["reassignment"])
    resumed = await office.reassigner.legacy_request(asked, resume=True)
    await office.reassigner.resume([key for key in begun if key not in resumed])
