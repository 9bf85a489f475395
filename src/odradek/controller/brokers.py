"""Brokers as they come, go, bounce and shut down; and their disks.

docs/spec/controller-and-replication.md 4.4 and 4.8.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from odradek.controller import partition_states, replica_states
from odradek.controller.context import Partition, Replica
from odradek.controller.elections import Strategy
from odradek.controller.leadership import Leadership
from odradek.controller.office import Office
from odradek.store.payloads import BrokerRegistration
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


async def brokers_changed(office: Office) -> None:
    """BrokerChange: a broker registered or its registration went, or nobody listens there any more.

    The channel of one that is gone stays as long as its registration, to see it come back.
    """
    context, channels = office.context, office.channels
    await office.store.broker_ids(office.watches["brokers"])
    in_store = await office.store.brokers()
    channels.keep(in_store)
    registered = {
        id: one
        for id, one in in_store.items()
        # Whoever asks is there, even if it has closed its own sockets.
        if id == office.broker_id or not channels.is_deserted(one)
    }
    changes = compare(context.brokers, registered)
    if not changes:
        return
    office.note(f"BrokerChange {changes}")
    for id in (*changes.new, *changes.bounced):
        channels.add(registered[id])
    if changes.new:
        context.brokers.update((id, registered[id]) for id in changes.new)
        await started(office, changes.new)
    if changes.bounced:
        # Before the dead: whoever came back short must be out of the ISR before it can be elected.
        for id in changes.bounced:
            del context.brokers[id]
        await failed(office, changes.bounced)
        context.brokers.update((id, registered[id]) for id in changes.bounced)
        await started(office, changes.bounced)
    if changes.dead:
        for id in changes.dead:
            del context.brokers[id]
        await failed(office, changes.dead)


async def started(office: Office, ids: Collection[int]) -> None:
    """These brokers are here: give them everything, and retry what waited for them."""
    context = office.context
    for id in ids:
        context.offline_dirs.pop(id, None)
    office.announce([id for id in context.brokers if id not in ids])
    office.announce(list(ids), everything=True)
    replicas = context.replicas_on(ids)
    # Not those that it had deleted before it went.
    undeleted = [
        r for r in replicas if context.replica_state(*r) is not replica_states.DELETION_SUCCESSFUL
    ]
    await office.machines.replicas_to(undeleted, replica_states.ONLINE)
    await _fence_earlier_incarnations(office, ids)
    await retry_offline(office)
    await office.reassigner.resume(
        [
            key
            for key in context.reassigning
            if any(replica in ids for replica in context.assignment(key).target)
        ]
    )
    doomed = dict.fromkeys(
        key.topic for key, _ in replicas if context.is_queued_for_deletion(key.topic)
    )
    await office.deletion.resume(doomed)
    for id in ids:
        await office.store.broker(id, office.watches["broker"])


async def _fence_earlier_incarnations(office: Office, ids: Collection[int]) -> None:
    """Write the states no controller has written since these brokers left. KIP-903.

    We saw the others leave and wrote then; a broker that was gone before our term may have an ISR
    change of its earlier incarnation on the way.
    """
    context = office.context
    absent = [id for id in ids if id in context.absent_at_start]
    context.absent_at_start.difference_update(absent)
    unfenced: dict[TopicPartition, Partition] = {}
    for key, id in context.replicas_on(absent):
        partition = context.partition(key)
        assert partition is not None
        state = partition.leadership
        if (
            state is not None
            and id not in state.isr
            and state.controller_epoch != context.epoch
            and not context.is_queued_for_deletion(key.topic)
        ):
            unfenced[key] = partition
    if unfenced:
        office.batch.open()
        await office.machines.raise_epochs(unfenced.values())
        office.batch.send()


async def retry_offline(office: Office, topic: str | None = None) -> set[TopicPartition]:
    """Try every partition without a leader again; answers those that have one now."""
    outcomes = await office.machines.partitions_to(
        office.context.partitions_without_leader(topic), partition_states.ONLINE
    )
    return {key for key, outcome in outcomes.items() if isinstance(outcome, Leadership)}


async def failed(office: Office, ids: Collection[int]) -> None:
    """These brokers are gone, and with them their replicas."""
    context = office.context
    for id in ids:
        context.offline_dirs.pop(id, None)
        context.shutting_down.discard(id)
    await _replicas_offline(office, context.replicas_on(ids))


async def _replicas_offline(office: Office, replicas: list[Replica]) -> None:
    """The same for a broker that went and for a directory that failed."""
    context = office.context
    doomed = [r for r in replicas if context.is_queued_for_deletion(r[0].topic)]
    others = [r for r in replicas if not context.is_queued_for_deletion(r[0].topic)]
    leaderless: dict[TopicPartition, Partition] = {}
    for key, _ in others:
        partition = context.partition(key)
        assert partition is not None
        leadership = partition.leadership
        if leadership is not None and not context.is_replica_online(key, leadership.leader):
            leaderless[key] = partition
    await office.machines.partitions_to(leaderless.values(), partition_states.OFFLINE)
    elected = await retry_offline(office)
    # Whoever led or fetched until now may have an ISR change on its way, unless an election has
    # just written the state. Who was offline before did neither: see `has_left`.
    unfenced = [
        key
        for key, id in others
        if key not in elected and context.replica_state(key, id) is not replica_states.OFFLINE
    ]
    await office.machines.replicas_to(others, replica_states.OFFLINE, fence=unfenced)
    await office.deletion.failed(doomed)
    if not others and not elected:
        office.announce(list(context.brokers))


async def broker_modified(office: Office, id: int) -> None:
    """BrokerModifications: a registration was rewritten. New endpoints are told to everybody."""
    broker = await office.store.broker(id, office.watches["broker"])
    known = office.context.brokers.get(id)
    if broker is None or known is None or broker.epoch != known.epoch:
        return  # BrokerChange tells
    if broker.endpoints != known.endpoints:
        office.note(f"BrokerModifications broker={id}")
        office.context.brokers[id] = broker
        office.announce(list(office.context.brokers))


async def controlled_shutdown(office: Office, id: int, epoch: int) -> set[TopicPartition]:
    """Take leadership and ISR membership off a broker; answers what it still leads."""
    context = office.context
    known = context.brokers.get(id)
    if known is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {id} is not registered")
    if epoch != UNKNOWN_EPOCH and epoch < known.epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {id} is at epoch {known.epoch}, the request at {epoch}",
        )
    office.note(f"ControlledShutdown broker={id}")
    context.shutting_down.add(id)
    led: list[Partition] = []
    followed: list[Partition] = []
    for key, _ in context.replicas_on((id,)):
        partition = context.partition(key)
        assert partition is not None
        leadership = partition.leadership
        if (
            leadership is None
            or len(partition.assignment.replicas) < 2
            or context.is_queued_for_deletion(key.topic)
        ):
            continue
        (led if leadership.leader == id else followed).append(partition)
    await office.machines.partitions_to(led, partition_states.ONLINE, Strategy.CONTROLLED_SHUTDOWN)
    # First stop fetching, then leave the ISR: the other way round it would be added again.
    office.batch.open()
    for partition in followed:
        office.batch.add_stop_replica(id, partition.key, delete=False)
    office.batch.send()
    # Also where it was not in the ISR: the leader may be about to let it in, and it may come back
    # with less than it has.
    await office.machines.replicas_to(
        [(partition.key, id) for partition in followed],
        replica_states.OFFLINE,
        fence=[partition.key for partition in followed],
    )
    return {
        partition.key
        for partition in [*led, *followed]
        if partition.leadership is not None and partition.leadership.leader == id
    }


async def directories_failed(office: Office) -> None:
    """LogDirEventNotification: ask the brokers about each of their replicas."""
    names = await office.store.log_dir_notifications(office.watches["log dirs"])
    if not names:
        return
    try:
        ids = sorted(await office.store.log_dir_failures(names))
        office.note(f"LogDirEventNotification brokers={ids}")
        await office.machines.replicas_to(office.context.replicas_on(ids), replica_states.ONLINE)
    finally:
        await office.store.drop_log_dir_notifications(names, office.fence)


async def replicas_answered(
    office: Office, id: int, online: Collection[TopicPartition], offline: Collection[TopicPartition]
) -> None:
    """What a LeaderAndIsr response says of a broker's directories."""
    context = office.context
    earlier = context.offline_dirs.get(id, set())
    known = {key for key in offline if context.partition(key) is not None}
    now = (earlier - set(online)) | known
    fresh = now - earlier
    if now:
        context.offline_dirs[id] = now
    else:
        context.offline_dirs.pop(id, None)
    if fresh:
        office.note(f"LeaderAndIsrResponseReceived broker={id} offline={_plain(fresh)}")
        await _replicas_offline(office, [(key, id) for key in sorted(fresh)])


def _plain(keys: Collection[TopicPartition]) -> str:
    return ",".join(map(str, sorted(keys)))
