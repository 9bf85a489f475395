"""Failover: from nothing but the store to a controller that knows the cluster and has announced it.

The order is docs/spec/controller-and-replication.md section 4.2. Watches come before reads, so that
nothing that happens meanwhile is missed; brokers hear who is alive before they hear whom to follow.
Partitions without a leader come before all else that is to be announced: clients wait for them.
"""

from odradek.controller import (
    brokers,
    elect_leaders,
    partition_states,
    replica_states,
    restarted_replicas,
    topic_ids,
    topics,
)
from odradek.controller.active_controller import ActiveController
from odradek.controller.context import Partition, Replica
from odradek.controller.restarted_replicas import IsrRepair
from odradek.controller.term import Term, WatchKind


async def failover(active: ActiveController) -> None:
    """Everything a new controller does before its first event."""
    term = active.term
    store, context = term.store, term.context
    await store.controller.write_features(term.config.protocol, term.fence)
    await _watch(term)
    repairs = await load(term)
    await active.deletion.take_over()
    repairs = {
        partition: repair
        for partition, repair in repairs.items()
        if not context.is_queued_for_deletion(partition.tp.topic)
    }
    await term.announce(list(context.brokers))
    await start_partitions(active, repairs)
    await start_replicas(active, repairs)
    await _resume_reassignments(active)
    await active.deletion.go_on()
    await elect_leaders.legacy_preferred_election(active)


async def _watch(term: Term) -> None:
    """Leave the watches, and drop notifications of what we are about to read anyway."""
    store, watches = term.store, term.watches
    await store.broker_ids(watches[WatchKind.BROKERS])
    await store.topics(watches[WatchKind.TOPICS])
    await store.requests.deletions(watches[WatchKind.DELETIONS])
    stale_directories = await store.notifications.log_dir_notifications(watches[WatchKind.LOG_DIRS])
    stale_isr_changes = await store.notifications.isr_notifications(watches[WatchKind.ISR_CHANGES])
    await store.notifications.drop_log_dir_notifications(stale_directories, term.fence)
    await store.notifications.drop_isr_notifications(stale_isr_changes, term.fence)


async def load(term: Term) -> dict[Partition, IsrRepair]:
    """Fill the context; answers the partitions with replicas that restarted unseen."""
    store, context = term.store, term.context
    registered = await store.brokers()
    context.brokers.update(
        (id, one) for id, one in registered.items() if not term.channels.is_deserted(one)
    )
    names = await store.topics()
    nodes = await store.topic_nodes(names, term.watches[WatchKind.TOPIC])
    for topic, node in (await topic_ids.give_ids(term, nodes)).items():
        context.add_topic(topic, node.topic_id)
        for tp, assignment in topics.assignments(topic, node).items():
            context.set_assignment(tp, assignment)
            if assignment.is_reassigning:
                context.reassigning[tp] = None
    for id in context.brokers:
        await store.broker(id, term.watches[WatchKind.BROKER])
    epochs = {broker.id: broker.epoch for broker in context.brokers.values()}
    repairs: dict[Partition, IsrRepair] = {}
    partitions = {partition.tp: partition for partition in context.partitions()}
    states = await store.partition_states_and_writes(partitions.keys())
    for tp, (state, written) in states.items():
        partition = partitions[tp]
        context.set_leader_and_isr(partition, state)
        repair = restarted_replicas.repair_after_restart(
            partition.assignment, state, written, epochs
        )
        if repair:
            repairs[partition] = repair
    context.brokers.absent_at_start = context.replicas.brokers() - context.brokers.keys()
    for broker in context.brokers.values():
        term.channels.add(broker)
    term.note(
        f"loaded brokers={sorted(context.brokers)} topics={len(context.topics)} "
        f"partitions={context.partition_count}"
    )
    term.journal.cause = "failover"
    return repairs


async def start_partitions(active: ActiveController, repairs: dict[Partition, IsrRepair]) -> None:
    """The partition machine: everything without a live leader gets an election.

    Replicas that restarted while no controller was watching leave the ISRs first: they must not be
    elected, nor hear of a leadership that they may have lost.
    """
    term = active.term
    context = term.context
    for partition in context.partitions():
        tp = partition.tp
        for replica in partition.assignment.replicas:
            is_online = context.brokers.is_replica_online(tp, replica)
            context.replicas.set_state(tp, replica, replica_states.initial(is_online))
    if repairs:
        term.note(f"replicas restarted unseen in {len(repairs)} partitions")
        await active.replicas.move(
            [
                (partition.tp, replica)
                for partition, repair in repairs.items()
                for replica in repair.leaving
                if replica in partition.assignment.replicas
            ],
            replica_states.OFFLINE,
        )
    for partition in context.partitions():
        leader_and_isr = partition.leader_and_isr
        state = partition_states.initial(
            leader_and_isr is not None,
            leader_and_isr is not None
            and context.brokers.is_replica_online(partition.tp, leader_and_isr.leader),
        )
        context.set_partition_state(partition, state)
    await brokers.retry_offline(active)


async def start_replicas(active: ActiveController, repairs: dict[Partition, IsrRepair]) -> None:
    """The replica machine: those that are gone go offline, and the live hear, once, whom to
    follow."""
    context = active.term.context
    online: list[Replica] = []
    offline: list[Replica] = []
    for partition in context.partitions():
        tp = partition.tp
        for replica in partition.assignment.replicas:
            is_online = context.brokers.is_replica_online(tp, replica)
            (online if is_online else offline).append((tp, replica))
    async with active.term.control_requests():
        await active.replicas.move(offline, replica_states.OFFLINE)
        await _raise_epochs(
            active, [partition for partition, repair in repairs.items() if repair.raise_epoch]
        )
        await active.replicas.move(online, replica_states.ONLINE)


async def _raise_epochs(active: ActiveController, partitions: list[Partition]) -> None:
    """Write the states that this term has not written yet."""
    await active.partitions.raise_epochs(
        partition
        for partition in partitions
        if partition.leader_and_isr is not None
        and partition.leader_and_isr.controller_epoch != active.term.context.epoch
    )


async def _resume_reassignments(active: ActiveController) -> None:
    """First what the legacy node asks for, then what earlier controllers had begun."""
    term = active.term
    context = term.context
    await active.reassigner.load()
    await active.reassigner.drop_deleted_topics()
    begun = list(context.reassigning)
    asked = await term.store.requests.reassignment(term.watches[WatchKind.REASSIGNMENT])
    resumed = await active.reassigner.legacy_request(asked, resume=True)
    await active.reassigner.resume([tp for tp in begun if tp not in resumed])
