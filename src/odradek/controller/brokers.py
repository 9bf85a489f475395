"""Brokers as they come, go, bounce and shut down; and their disks.

docs/spec/controller-and-replication.md 4.4 and 4.8.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from odradek.controller import partition_states, replica_states
from odradek.controller.active_controller import ActiveController
from odradek.controller.context import Partition, Replica
from odradek.controller.elections import Strategy
from odradek.controller.journal import format_partitions
from odradek.controller.term import Term, WatchKind
from odradek.store.payloads import BrokerRegistration, LeaderAndIsr
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

UNKNOWN_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Changes:
    """How the registered brokers differ from those we knew. Ids ascending."""

    new: tuple[int, ...] = ()
    bounced: tuple[int, ...] = ()  # the same id in a new incarnation: gone and back
    dead: tuple[int, ...] = ()

    def __str__(self) -> str:
        named = (("new", self.new), ("bounced", self.bounced), ("dead", self.dead))
        return " ".join(f"{name}={list(ids)}" for name, ids in named if ids)

    def __bool__(self) -> bool:
        return bool(self.new or self.bounced or self.dead)


def compare(
    known: Mapping[int, BrokerRegistration], registered: Mapping[int, BrokerRegistration]
) -> Changes:
    """A higher epoch under the same id is a bounce."""
    return Changes(
        new=tuple(sorted(registered.keys() - known.keys())),
        bounced=tuple(
            sorted(
                id
                for id in registered.keys() & known.keys()
                if registered[id].epoch > known[id].epoch
            )
        ),
        dead=tuple(sorted(known.keys() - registered.keys())),
    )


async def brokers_changed(active: ActiveController) -> None:
    """BrokerChange: a broker registered, its registration went, or its socket opened or closed.

    The channel of one that is gone stays as long as its registration, to see it come back.
    """
    term = active.term
    context, channels = term.context, term.channels
    await term.store.broker_ids(term.watches[WatchKind.BROKERS])
    in_store = await term.store.brokers()
    channels.keep(in_store)
    registered = {
        id: one
        for id, one in in_store.items()
        # This broker is there, even if it has closed its own sockets.
        if id == term.broker_id or not channels.is_deserted(one)
    }
    changes = compare(context.brokers, registered)
    if not changes:
        return
    term.note(f"BrokerChange {changes}")
    for id in (*changes.new, *changes.bounced):
        channels.add(registered[id])
    if changes.new:
        context.brokers.update((id, registered[id]) for id in changes.new)
        await started(active, changes.new)
    if changes.bounced:
        # Before the dead: a replica that came back short must leave the ISR before it can be
        # elected.
        for id in changes.bounced:
            del context.brokers[id]
        await failed(active, changes.bounced)
        context.brokers.update((id, registered[id]) for id in changes.bounced)
        await started(active, changes.bounced)
    if changes.dead:
        for id in changes.dead:
            del context.brokers[id]
        await failed(active, changes.dead)


async def started(active: ActiveController, ids: Collection[int]) -> None:
    """These brokers are here: give them everything, and retry what waited for them."""
    term = active.term
    context = term.context
    for id in ids:
        context.brokers.offline_dirs.pop(id, None)
    await term.announce([id for id in context.brokers if id not in ids])
    await term.announce(
        ids,
        (p for p in context.partitions() if not context.is_queued_for_deletion(p.tp.topic)),
    )
    replicas = context.replicas_on(ids)
    # Not those that the broker had deleted before it went.
    undeleted = [
        r for r in replicas if context.replicas.state(*r) is not replica_states.DELETION_SUCCESSFUL
    ]
    await active.replicas.move(undeleted, replica_states.ONLINE)
    await _fence_earlier_incarnations(active, ids)
    await retry_offline(active)
    await active.reassigner.resume(
        [
            tp
            for tp in context.reassigning
            if any(replica in ids for replica in context.assignment(tp).target)
        ]
    )
    deleting = dict.fromkeys(
        tp.topic for tp, _ in replicas if context.is_queued_for_deletion(tp.topic)
    )
    await active.deletion.resume(deleting)
    for id in ids:
        await term.store.broker(id, term.watches[WatchKind.BROKER])


async def _fence_earlier_incarnations(active: ActiveController, ids: Collection[int]) -> None:
    """Write the states no controller has written since these brokers left. KIP-903.

    We saw the others leave and wrote then; a broker that was gone before our term may have an ISR
    change of its earlier incarnation on the way.
    """
    context = active.term.context
    absent = [id for id in ids if id in context.brokers.absent_at_start]
    context.brokers.absent_at_start.difference_update(absent)
    unfenced: dict[TopicPartition, Partition] = {}
    for tp, id in context.replicas_on(absent):
        partition = context.partition(tp)
        assert partition is not None
        state = partition.leader_and_isr
        if (
            state is not None
            and id not in state.isr
            and state.controller_epoch != context.epoch
            and not context.is_queued_for_deletion(tp.topic)
        ):
            unfenced[tp] = partition
    await active.partitions.raise_epochs(unfenced.values())


async def retry_offline(active: ActiveController, topic: str | None = None) -> set[TopicPartition]:
    """Try every partition without a leader again; answers those that have one now."""
    outcomes = await active.partitions.move(
        active.term.context.partitions_without_leader(topic), partition_states.ONLINE
    )
    return {tp for tp, outcome in outcomes.items() if isinstance(outcome, LeaderAndIsr)}


async def failed(active: ActiveController, ids: Collection[int]) -> None:
    """These brokers are gone, and with them their replicas."""
    context = active.term.context
    for id in ids:
        context.brokers.offline_dirs.pop(id, None)
        context.brokers.shutting_down.discard(id)
    await _replicas_offline(active, context.replicas_on(ids))


async def _replicas_offline(active: ActiveController, replicas: list[Replica]) -> None:
    """The same for a broker that went and for a directory that failed."""
    term = active.term
    context = term.context
    deleting = [r for r in replicas if context.is_queued_for_deletion(r[0].topic)]
    others = [r for r in replicas if not context.is_queued_for_deletion(r[0].topic)]
    leaderless: dict[TopicPartition, Partition] = {}
    for tp, _ in others:
        partition = context.partition(tp)
        assert partition is not None
        state = partition.leader_and_isr
        if state is not None and not context.brokers.is_replica_online(tp, state.leader):
            leaderless[tp] = partition
    await active.partitions.move(leaderless.values(), partition_states.OFFLINE)
    elected = await retry_offline(active)
    # A leader that led or was fetched from until now may have an ISR change on its way, unless an
    # election has just written the state. One that was offline before has not: see `has_left`.
    unfenced = [
        tp
        for tp, id in others
        if tp not in elected and context.replicas.state(tp, id) is not replica_states.OFFLINE
    ]
    await active.replicas.move(others, replica_states.OFFLINE, fence=unfenced)
    await active.deletion.failed(deleting)
    if not others and not elected:
        await term.announce(list(context.brokers))


async def broker_modified(term: Term, id: int) -> None:
    """BrokerModifications: a registration was rewritten. New endpoints are announced to every
    broker."""
    broker = await term.store.broker(id, term.watches[WatchKind.BROKER])
    known = term.context.brokers.get(id)
    if broker is None or known is None or broker.epoch != known.epoch:
        return  # BrokerChange follows
    if broker.endpoints != known.endpoints:
        term.note(f"BrokerModifications broker={id}")
        term.context.brokers[id] = broker
        await term.announce(list(term.context.brokers))


async def controlled_shutdown(active: ActiveController, id: int, epoch: int) -> set[TopicPartition]:
    """Take leadership and ISR membership off a broker; answers what it still leads."""
    term = active.term
    context = term.context
    known = context.brokers.get(id)
    if known is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {id} is not registered")
    if epoch != UNKNOWN_EPOCH and epoch < known.epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {id} is at epoch {known.epoch}, the request at {epoch}",
        )
    term.note(f"ControlledShutdown broker={id}")
    context.brokers.shutting_down.add(id)
    led: list[Partition] = []
    followed: list[Partition] = []
    for tp, _ in context.replicas_on((id,)):
        partition = context.partition(tp)
        assert partition is not None
        leader_and_isr = partition.leader_and_isr
        if (
            leader_and_isr is None
            or len(partition.assignment.replicas) < 2
            or context.is_queued_for_deletion(tp.topic)
        ):
            continue
        (led if leader_and_isr.leader == id else followed).append(partition)
    await active.partitions.move(led, partition_states.ONLINE, Strategy.CONTROLLED_SHUTDOWN)
    # First stop fetching, then leave the ISR: the other way round it would be added again.
    async with term.control_requests() as requests:
        for partition in followed:
            requests.add_stop_replica(id, partition.tp, delete=False)
    # Also where it was not in the ISR: the leader may be about to let it in, and it may come back
    # with less than it has.
    await active.replicas.move(
        [(partition.tp, id) for partition in followed],
        replica_states.OFFLINE,
        fence=[partition.tp for partition in followed],
    )
    return {
        partition.tp
        for partition in [*led, *followed]
        if partition.leader_and_isr is not None and partition.leader_and_isr.leader == id
    }


async def allocate_producer_ids(term: Term, id: int, epoch: int) -> range:
    """A block of producer ids for a registered broker. KIP-730, docs/spec/protocol-ladder.md 4.

    Not behind the fence of this term: each writer takes the block after the last, so blocks never
    overlap, and one that was taken for an answer that was lost stays unused.
    """
    known = term.context.brokers.get(id)
    if known is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {id} is not registered")
    if epoch != known.epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {id} is at epoch {known.epoch}, the request at {epoch}",
        )
    block = await term.store.allocate_producer_ids(id)
    term.note(f"AllocateProducerIds broker={id} first={block.start} last={block.stop - 1}")
    return block


async def directories_failed(active: ActiveController) -> None:
    """LogDirEventNotification: ask the brokers about each of their replicas."""
    term = active.term
    names = await term.store.notifications.log_dir_notifications(term.watches[WatchKind.LOG_DIRS])
    if not names:
        return
    try:
        ids = sorted(await term.store.notifications.log_dir_failures(names))
        term.note(f"LogDirEventNotification brokers={ids}")
        await active.replicas.move(term.context.replicas_on(ids), replica_states.ONLINE)
    finally:
        await term.store.notifications.drop_log_dir_notifications(names, term.fence)


async def replicas_answered(
    active: ActiveController,
    id: int,
    online: Collection[TopicPartition],
    offline: Collection[TopicPartition],
) -> None:
    """What a LeaderAndIsr response says of a broker's directories."""
    term = active.term
    context = term.context
    earlier = context.brokers.offline_dirs.get(id, set())
    known = {tp for tp in offline if context.partition(tp) is not None}
    now = (earlier - set(online)) | known
    fresh = now - earlier
    if now:
        context.brokers.offline_dirs[id] = now
    else:
        context.brokers.offline_dirs.pop(id, None)
    if fresh:
        term.note(
            f"LeaderAndIsrResponseReceived broker={id} offline={format_partitions(sorted(fresh))}"
        )
        await _replicas_offline(active, [(tp, id) for tp in sorted(fresh)])
