"""Carrying out reassignment plans: ask the cluster, start, watch, verify, cancel.

    plan = await generate_plan(admin, brokers=[1, 2, 3])
    await start(admin, Reassignment(plan.proposed), plan, throttle=50_000_000)
    async for progress in watch(admin, plan.proposed):
        print(progress.percent)
    verification = await verify(admin, Reassignment(plan.proposed))

The decisions are in `plan`. A client that dies meanwhile changes nothing: the controller carries a
reassignment on, and `verify` says later what became of it.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence

from odradek.client.admin import Admin
from odradek.client.values import Outcome, check
from odradek.operations.plan import (
    Plan,
    Progress,
    Sizes,
    Verification,
    assignment_of,
    compare,
    cost_of,
    leaders_of,
    progress_of,
    propose,
    require_alive,
    require_valid,
)
from odradek.operations.throttle import clear_throttles, set_throttles
from odradek.placement import Broker, Ongoing, Reassignment, TopicPartitionReplica, move_map
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

RETRY_S = 0.1
WATCH_S = 0.5
SIZES_TIMEOUT_S = 3.0


async def replica_sizes(admin: Admin, tps: Iterable[TopicPartition]) -> Sizes:
    """The bytes of each replica of these partitions. Brokers that do not answer are left out: one
    that is failing must not prevent partitions from being moved off it."""
    tps = list(tps)
    found: dict[TopicPartition, dict[int, int]] = {}

    async def ask(broker: int) -> None:
        try:
            async with asyncio.timeout(SIZES_TIMEOUT_S):
                directories = (await admin.describe_log_dirs([broker], tps))[broker]
        except (KafkaError, OSError, TimeoutError):
            return
        for directory in directories:
            for replica in directory.replicas:
                if not replica.is_future:
                    found.setdefault(replica.partition, {})[broker] = replica.size_bytes

    if tps:
        await asyncio.gather(*(ask(broker) for broker in list(admin.client.metadata.nodes)))
    return found


async def generate_plan(
    admin: Admin,
    *,
    topics: Collection[str] = (),
    brokers: Sequence[int] | None = None,
    replication_factor: int | None = None,
    from_scratch: bool = False,
    rack_aware: bool = True,
) -> Plan:
    """A plan that balances these topics (all, unless named) over these brokers (all that live)."""
    names = list(topics) or await admin.list_topics(internal=True)
    metadata = await admin.client.require_topics(names)
    chosen = sorted(metadata.nodes) if brokers is None else list(brokers)
    require_alive(metadata, chosen)
    targets = [Broker(id, metadata.nodes[id].rack if rack_aware else None) for id in chosen]
    current = assignment_of(metadata, names)
    proposed = propose(
        current,
        targets,
        replication_factor=replication_factor,
        from_scratch=from_scratch,
        rack_aware=rack_aware,
    )
    sizes = await replica_sizes(admin, proposed)
    cost = cost_of(current, proposed, sizes, leaders_of(metadata, proposed))
    return Plan(current, proposed, cost)


async def check_plan(admin: Admin, wanted: Reassignment) -> Plan:
    """What carrying out `wanted` would change and cost; KafkaError if it cannot be carried out."""
    names = sorted({tp.topic for tp in wanted.replicas})
    metadata = await admin.client.require_topics(names)
    current = assignment_of(metadata, names)
    require_valid(metadata, current, wanted.replicas)
    sizes = await replica_sizes(admin, wanted.replicas)
    cost = cost_of(current, wanted.replicas, sizes, leaders_of(metadata, wanted.replicas))
    return Plan(current, wanted.replicas, cost)


async def start(
    admin: Admin,
    wanted: Reassignment,
    plan: Plan,
    *,
    throttle: int | None = None,
    ongoing: Mapping[TopicPartition, Ongoing] | None = None,
) -> dict[TopicPartition, Outcome]:
    """Throttle if asked to, then hand the plan to the controller, and send replicas to their log
    directories. `ongoing` is what is being moved already, which the throttle includes."""
    if throttle is not None:
        moves = move_map(plan.current, wanted.replicas, ongoing or {})
        await set_throttles(admin, moves, throttle)
    outcomes = await admin.alter_reassignments(wanted.replicas)
    if not any(outcomes.values()):
        await _move_directories(admin, wanted.log_dirs, admin.client.timeout_s)
    return outcomes


async def watch(admin: Admin, tps: Collection[TopicPartition]) -> AsyncIterator[Progress]:
    """The progress of these partitions, twice a second, until none of them is being moved."""
    while ongoing := await admin.list_reassignments(tps):
        yield await progress(admin, ongoing)
        await asyncio.sleep(WATCH_S)


async def progress(admin: Admin, ongoing: Mapping[TopicPartition, Ongoing]) -> Progress:
    """How much of what is being added has arrived."""
    if not ongoing:
        return Progress(0, 0, 0)
    metadata = await admin.client.refresh({tp.topic for tp in ongoing})
    sizes = await replica_sizes(admin, ongoing)
    return progress_of(ongoing, sizes, leaders_of(metadata, ongoing))


async def verify(admin: Admin, wanted: Reassignment) -> Verification:
    """How each partition of a plan stands."""
    tps = sorted(wanted.replicas)
    ongoing = await admin.list_reassignments(tps)
    metadata = await admin.client.refresh({tp.topic for tp in tps})
    names = sorted({tp.topic for tp in tps} & set(metadata.topics))
    unmoved = await _unmoved_directories(admin, wanted.log_dirs)
    results = compare(
        wanted.replicas,
        assignment_of(metadata, names),
        ongoing,
        {TopicPartition(replica.topic, replica.partition) for replica in unmoved},
    )
    return Verification(results, await progress(admin, ongoing))


async def cancel(
    admin: Admin,
    tps: Collection[TopicPartition] | None = None,
    *,
    preserve_throttles: bool = False,
) -> dict[TopicPartition, tuple[list[int], Outcome]]:
    """Stop moving these partitions, or all: the replicas each goes back to, and whether it does."""
    ongoing = await admin.list_reassignments()
    if tps is not None:
        ongoing = {tp: state for tp, state in ongoing.items() if tp in tps}
    outcomes = await admin.alter_reassignments(dict.fromkeys(ongoing))
    if not preserve_throttles:
        await clear_throttles(admin, {tp.topic for tp in ongoing})
    return {
        tp: ([id for id in ongoing[tp].replicas if id not in ongoing[tp].adding], outcome)
        for tp, outcome in outcomes.items()
    }


async def _move_directories(
    admin: Admin, wanted: Mapping[TopicPartitionReplica, str], timeout_s: float
) -> None:
    """Send replicas to their log directories. A replica that does not exist yet is retried."""
    budget = admin.client.retry_budget(timeout_s)
    left = dict(wanted)
    while left:
        outcomes = await admin.alter_log_dirs(left)
        failed = {replica: error for replica, error in outcomes.items() if error is not None}
        check(
            {
                replica: error
                for replica, error in failed.items()
                if error.error is not ErrorCode.REPLICA_NOT_AVAILABLE
            }
        )
        left = {replica: path for replica, path in left.items() if replica in failed}
        if left:
            if budget.remaining_s < RETRY_S:
                raise next(iter(failed.values()))
            await asyncio.sleep(RETRY_S)


async def _unmoved_directories(
    admin: Admin, wanted: Mapping[TopicPartitionReplica, str]
) -> list[TopicPartitionReplica]:
    """The replicas that are not, or not yet, in the log directory they shall be in."""
    if not wanted:
        return []
    tps = {TopicPartition(replica.topic, replica.partition) for replica in wanted}
    brokers = sorted({replica.broker for replica in wanted})
    arrived = {
        TopicPartitionReplica(*replica.partition, broker)
        for broker, directories in (await admin.describe_log_dirs(brokers, tps)).items()
        for directory in directories
        for replica in directory.replicas
        if not replica.is_future
        and wanted.get(TopicPartitionReplica(*replica.partition, broker)) == directory.path
    }
    return sorted(set(wanted) - arrived)
