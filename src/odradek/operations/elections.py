"""Leader elections that an operator asks for, and whether they held.

A broker that was elected can refuse to lead, because its replica lost records. So an election
counts when the new leader serves the partition, not when the controller says it was held.
"""

import asyncio
from collections.abc import Iterable, Sequence

from odradek.client.admin import Admin
from odradek.client.reader import LATEST, offsets_at
from odradek.client.values import ElectionType, Outcome
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

CHECK_TIMEOUT_S = 5.0


async def elect(
    admin: Admin, election: ElectionType, tps: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Outcome]:
    """Elect leaders of these partitions, or of all that need one, and check that they lead.

    None for a partition that has a new leader; ELECTION_NOT_NEEDED for one that needs none."""
    outcomes = await admin.elect_leaders(election, tps)
    elected = [tp for tp, error in outcomes.items() if error is None]
    for topic in {tp.topic for tp in elected}:
        admin.client.forget(topic)
    if await _failure(admin, elected) is None:
        return outcomes
    failures = await asyncio.gather(*(_failure(admin, [tp]) for tp in elected))
    for tp, failure in zip(elected, failures, strict=True):
        if failure is not None:
            outcomes[tp] = KafkaError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, _not_held(admin, tp, failure)
            )
    return outcomes


async def _failure(admin: Admin, tps: Sequence[TopicPartition]) -> Exception | None:
    """Ask the leaders for the ends of their logs, which only a leader answers."""
    try:
        async with asyncio.timeout(min(CHECK_TIMEOUT_S, admin.client.timeout_s)):
            await offsets_at(admin.client, dict.fromkeys(tps, LATEST))
    except (KafkaError, OSError, TimeoutError) as error:
        return error
    return None


def _not_held(admin: Admin, tp: TopicPartition, error: Exception) -> str:
    topic = admin.client.metadata.topics.get(tp.topic)
    partition = topic.partitions.get(tp.partition) if topic is not None else None
    if partition is None or partition.leader >= 0:
        return f"{tp}: a leader was elected and does not serve it: {error}"
    down = sorted(set(partition.replicas) - set(admin.client.metadata.nodes))
    if down:
        return f"{tp}: a leader was elected and resigned; broker {down[0]} is down"
    return (
        f"{tp}: a leader was elected and resigned, though every replica is alive: they lost "
        "records; set unclean.leader.election.enable=true on the topic to accept the loss"
    )
