"""Leaving the ISRs after a life that may have forgotten records. KIP-966, unclean shutdowns.

A broker whose machine lost power, or that starts on another disk, may lack records that it had
told its leader it has. Its copies must not count as in sync: where the ISR has another member, this
one leaves it, before it registers and can be elected. Nothing is asked of the controller: the write
is the one the controller makes when a broker goes (the ISR without the replica, no leader if it
led, the next leader epoch), under the version of the state. Where it is the only member, it stays:
nobody else is known to have more, and whether it may lead is decided by `Partition.lost_tail`. If
there it has no log at all, it has lost one; and an empty log that no checkpoint knows was made by
an earlier life which ended, or whose disk failed, before it had written down what it lost.

Damage to single logs that was found when they were loaded (log/damage.py) is the same for those.

A process that was merely killed has forgotten nothing, since its writes are in the page cache of a
machine that still runs; it keeps its places.
"""

import asyncio
import logging
from collections.abc import Container, Iterable

from odradek.controller.leadership import without_replica
from odradek.log.manager import LogManager
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import PartitionState
from odradek.wire.topics import TopicPartition

__all__ = ["leave_isrs", "lost_logs"]

logger = logging.getLogger(__name__)

# Only leaders and the controller write states, and seldom: nobody loses a race this often.
ATTEMPTS_MAX = 100


async def leave_isrs(
    broker_id: int, store: ClusterStore, only: Container[TopicPartition] | None = None
) -> set[TopicPartition]:
    """Take this broker out of every ISR that has another member, or of those of `only`; returns
    where it is the last member."""
    nodes = await store.topic_nodes(await store.topics())
    assigned = [
        TopicPartition(topic, number)
        for topic, node in nodes.items()
        for number, replicas in node.partitions.items()
        if broker_id in replicas and (only is None or TopicPartition(topic, number) in only)
    ]
    left = 0
    last: set[TopicPartition] = set()
    for _ in range(ATTEMPTS_MAX):
        states = await store.partition_states(assigned)
        last.update(of for of, state in states.items() if state.isr == (broker_id,))
        leaving = {of: state for of, state in states.items() if _must_leave(broker_id, state)}
        if not leaving:
            break
        written = await asyncio.gather(
            *(
                store.update_isr(of, without_replica(state, broker_id, state.controller_epoch))
                for of, state in leaving.items()
            )
        )
        left += sum(state is not None for state in written)
        assigned = [of for of, state in zip(leaving, written, strict=True) if state is None]
    if left:
        logger.warning("records may have been forgotten: left the ISR of %d partitions", left)
    return last


def _must_leave(broker_id: int, state: PartitionState) -> bool:
    return broker_id in state.isr and len(state.isr) > 1


def lost_logs(logs: LogManager, last: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Of the partitions this broker is the last in-sync replica of, those it has nothing of."""
    checkpointed = logs.read_high_watermarks()
    return {
        of
        for of in last
        if (log := logs.get(of)) is None or (log.end_offset == 0 and of not in checkpointed)
    }
