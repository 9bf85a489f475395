"""Starting with data that may be incomplete: leave the ISRs. KIP-966, unclean shutdowns.

**When.** What a process wrote is in the page cache and survives the process, but not the machine.
Each log directory keeps the id of the boot it was last used in (Linux gives every boot a random
one). The same id at the next start means that nothing was lost; another one, after a shutdown that
was not clean, that unflushed records may be; and none that this is another disk, however clean,
unless Apache Kafka was the one to shut it down cleanly: it keeps no such id.

**What.** Such a broker may lack records that it had acknowledged to its leader, so its replicas
must not count as in sync. Where the ISR has another member, this broker leaves it, in the very
transaction in which it registers: so it can never be elected on the strength of that ISR, and
nothing is written on behalf of an id that another process holds. The controller is not involved:
the write is the one it makes when a broker fails (the ISR without the replica, no leader if it led,
the next leader epoch), under the version of the state.

Where this broker is the only member, it stays: no other replica is known to have more, and whether
it may lead is decided by `Partition.lost_tail`. If it has no log at all there, it has lost one; and
an empty log that no checkpoint knows was created by an earlier start that ended, or whose disk
failed, before it could record the loss.

Damage to single logs that was found when they were loaded (log/damage.py) is treated alike, for
those partitions alone.

A crash at any point leaves the directories unmarked, so the next start does it all again.
"""

import logging
from collections.abc import Collection, Iterable

from odradek.controller.leader_and_isr_rules import without_replica
from odradek.log.manager import LogManager
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import BrokerRegistration, LeaderAndIsr
from odradek.wire.topics import TopicPartition

__all__ = [
    "ALL_PARTITIONS",
    "leave_isrs_after_data_loss",
    "lost_logs",
    "machine_boot_id",
    "mark_boot",
    "may_have_lost_records",
]

BOOT_ID = "/proc/sys/kernel/random/boot_id"
ALL_PARTITIONS = None

logger = logging.getLogger(__name__)


def machine_boot_id() -> str:
    """This machine's boot; empty where the system has no name for it, and then never trusted."""
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def may_have_lost_records(logs: LogManager, boot_id: str) -> bool:
    """To be called once the directories are loaded."""
    return any(
        directory.last_boot is None
        or (not directory.was_clean and (not boot_id or directory.last_boot != boot_id))
        for directory in logs.dirs.live.values()
        if not directory.is_from_kafka
    )


def mark_boot(logs: LogManager, boot_id: str) -> None:
    """Everything written from now on is written in this boot."""
    dirs = logs.dirs
    dirs.on_each(list(dirs.live), lambda path: dirs.live[path].mark_boot(boot_id))


async def leave_isrs_after_data_loss(
    store: ClusterStore,
    broker: BrokerRegistration,
    partitions: Collection[TopicPartition] | None = ALL_PARTITIONS,
    *,
    wait_ms: int = 0,
) -> tuple[int, set[TopicPartition]]:
    """Register, and leave every ISR, or those of `partitions`, that has another member.

    Returns the broker epoch, and the partitions of which this broker is the last in-sync replica.
    """
    left: set[TopicPartition] = set()
    last: set[TopicPartition] = set()

    async def departures() -> dict[TopicPartition, LeaderAndIsr]:
        states = await _assigned_states(store, broker.id, partitions)
        last.clear()
        last.update(tp for tp, state in states.items() if state.isr == (broker.id,))
        leaving = {
            tp: without_replica(state, broker.id, state.controller_epoch)
            for tp, state in states.items()
            if broker.id in state.isr and len(state.isr) > 1
        }
        left.update(leaving)
        return leaving

    epoch = await store.register_broker(broker, wait_ms=wait_ms, state_changes=departures)
    if left or last:
        logger.warning(
            "broker %d: %s; removed from the ISR of %d partitions, still the last in-sync replica"
            " of %d",
            broker.id,
            "unclean shutdown: unflushed records may be lost"
            if partitions is ALL_PARTITIONS
            else "damaged logs: records may be lost",
            len(left),
            len(last),
        )
    return epoch, last


async def _assigned_states(
    store: ClusterStore, broker_id: int, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, LeaderAndIsr]:
    nodes = await store.topic_nodes(await store.topics())
    assigned = [
        TopicPartition(topic, number)
        for topic, node in nodes.items()
        for number, replicas in node.partitions.items()
        if broker_id in replicas
    ]
    return await store.partition_states(
        [tp for tp in assigned if partitions is ALL_PARTITIONS or tp in partitions]
    )


def lost_logs(logs: LogManager, last: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Of the partitions this broker is the last in-sync replica of, those it has no records of."""
    checkpointed = logs.checkpoints.read_high_watermarks()
    return {
        tp
        for tp in last
        if (log := logs.get(tp)) is None or (log.end_offset == 0 and tp not in checkpointed)
    }
