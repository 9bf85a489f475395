"""Creating, extending, emptying and deleting topics, and electing leaders."""

from typing import Any

from odradek.client.reader import EARLIEST, LATEST, offsets_at
from odradek.client.values import ElectionType, NewPartitions, NewTopic
from odradek.console.accounts import Account, Right
from odradek.console.console import Console
from odradek.console.link import Api
from odradek.console.plans import Basis, Change, Done, Draft, Kind, OutcomeRow, outcome_rows
from odradek.console.web import Problem, int_of, objects_of, text_of
from odradek.operations import elect
from odradek.wire.topics import TopicPartition

PARTITIONS_MAX = 100_000


async def plan_create(console: Console, body: dict[str, Any], account: Account) -> Draft:
    name = text_of(body, "name")
    configs = settings_of(body, "configs")
    new = NewTopic(
        name,
        -1 if body.get("partitions") is None else int_of(body, "partitions"),
        -1 if body.get("replication") is None else int_of(body, "replication"),
        configs=configs,
    )
    if new.partitions > PARTITIONS_MAX:
        raise Problem(422, f"a topic has at most {PARTITIONS_MAX} partitions", field="partitions")
    admin = console.link.api.admin
    error = (await admin.create_topics([new], validate_only=True)).get(name)
    replicas = "default" if new.replication_factor < 0 else str(new.replication_factor)
    partitions = "default" if new.partitions < 0 else str(new.partitions)

    async def read_basis() -> Basis:
        metadata = await console.link.client.refresh([name])
        return {name: name in metadata.topics}

    async def start(api: Api) -> Done:
        return Done(outcome_rows(await api.admin.create_topics([new])))

    return Draft(
        f"Create {name}",
        [
            Change(
                name,
                "",
                f"partitions={partitions} replication={replicas} "
                + " ".join(f"{key}={value}" for key, value in configs.items()),
            )
        ],
        start,
        read_basis,
        {name: False},
        blockers=[] if error is None else [error.message or error.error.name],
    )


def settings_of(body: dict[str, Any], name: str) -> dict[str, str]:
    given = body.get(name) or {}
    if not isinstance(given, dict) or not all(
        isinstance(value, str | int | float) for value in given.values()
    ):
        raise Problem(422, f"{name} is an object of settings", field=name)
    return {str(key): str(value) for key, value in given.items()}


async def _count_of(console: Console, topic: str) -> int:
    metadata = await console.link.client.require_topics([topic])
    return len(metadata.topics[topic].partitions)


async def plan_add_partitions(console: Console, body: dict[str, Any], account: Account) -> Draft:
    topic, count = text_of(body, "topic"), int_of(body, "count")
    now = await _count_of(console, topic)
    if not now < count <= PARTITIONS_MAX:
        raise Problem(422, f"{topic} has {now} partitions; count must be more", field="count")
    admin = console.link.api.admin
    new = {topic: NewPartitions(count)}
    error = (await admin.create_partitions(new, validate_only=True)).get(topic)

    async def read_basis() -> Basis:
        return {topic: await _count_of(console, topic)}

    async def start(api: Api) -> Done:
        return Done(outcome_rows(await api.admin.create_partitions(new)))

    return Draft(
        f"Add {count - now} partitions to {topic}",
        [Change(topic, f"{now} partitions", f"{count} partitions")],
        start,
        read_basis,
        {topic: now},
        warnings=["records with the same key go to another partition from then on"],
        blockers=[] if error is None else [error.message or error.error.name],
    )


async def plan_delete(console: Console, body: dict[str, Any], account: Account) -> Draft:
    topic = text_of(body, "topic")
    metadata = await console.link.client.require_topics([topic])
    found = metadata.topics[topic]
    basis = {topic: [str(found.id), len(found.partitions)]}
    groups = [
        group.id for group in console.group_lags.groups.values() if topic in group.commits.topics
    ]

    async def read_basis() -> Basis:
        again = (await console.link.client.require_topics([topic])).topics[topic]
        return {topic: [str(again.id), len(again.partitions)]}

    async def start(api: Api) -> Done:
        return Done(outcome_rows(await api.admin.delete_topics([topic])))

    return Draft(
        f"Delete {topic}",
        [Change(topic, f"{len(found.partitions)} partitions", "", "all records are lost")],
        start,
        read_basis,
        basis,
        warnings=[f"groups that read it: {', '.join(groups[:20])}"] if groups else [],
        blockers=["an internal topic cannot be deleted here"] if found.is_internal else [],
        confirm=topic,
    )


async def plan_empty(console: Console, body: dict[str, Any], account: Account) -> Draft:
    """DeleteRecords up to the ends as they are when the plan is made: what comes later stays."""
    topic = text_of(body, "topic")
    client = console.link.client
    metadata = await client.require_topics([topic])
    tps = metadata.partitions_of([topic])
    starts = await offsets_at(client, dict.fromkeys(tps, EARLIEST))
    ends = await offsets_at(client, dict.fromkeys(tps, LATEST))
    before = {tp: ends[tp].offset for tp in tps}
    given = body.get("before")
    if isinstance(given, dict):
        for tp in tps:
            wanted = given.get(str(tp.partition))
            if wanted is not None:
                before[tp] = min(int_of({"before": wanted}, "before"), ends[tp].offset)
        before = {tp: before[tp] for tp in tps if str(tp.partition) in given}
    changes = [
        Change(
            str(tp),
            f"begins at {starts[tp].offset}",
            f"begins at {before[tp]}",
            f"{max(0, before[tp] - starts[tp].offset)} offsets are lost",
        )
        for tp in before
    ]

    async def read_basis() -> Basis:
        again = await offsets_at(client, dict.fromkeys(before, EARLIEST))
        return {str(tp): again[tp].offset for tp in before}

    async def start(api: Api) -> Done:
        await api.admin.delete_records(before)
        return Done([OutcomeRow(str(tp)) for tp in before])

    return Draft(
        f"Empty {topic}",
        changes,
        start,
        read_basis,
        {str(tp): starts[tp].offset for tp in before},
        confirm=topic,
    )


async def plan_elect(console: Console, body: dict[str, Any], account: Account) -> Draft:
    name = text_of(body, "election", "preferred")
    if name not in ("preferred", "unclean"):
        raise Problem(422, "election is preferred or unclean", field="election")
    election = ElectionType.PREFERRED if name == "preferred" else ElectionType.UNCLEAN
    if election is ElectionType.UNCLEAN and not account.may(Right.ADMINISTER):
        raise Problem(403, "an unclean election needs the right to administer")
    tps = partitions_of(body) if body.get("partitions") is not None else _imbalanced(console)
    await console.collector.read_table()
    table = console.collector.table
    basis, changes = {}, []
    for tp in tps:
        state = table.partition(*tp)
        if state is None:
            raise Problem(404, f"partition {tp} does not exist", error="UNKNOWN_TOPIC_OR_PARTITION")
        after = state.replicas[0] if state.replicas else -1
        shown = str(after) if election is ElectionType.PREFERRED else "any live replica"
        changes.append(Change(str(tp), f"leader {state.leader}", f"leader {shown}"))
        basis[str(tp)] = [state.leader, state.leader_epoch]

    async def read_basis() -> Basis:
        await console.collector.read_table()
        found = {}
        for tp in tps:
            state = console.collector.table.partition(*tp)
            found[str(tp)] = None if state is None else [state.leader, state.leader_epoch]
        return found

    async def start(api: Api) -> Done:
        return Done(outcome_rows(await elect(api.admin, election, tps)))

    unclean = election is ElectionType.UNCLEAN
    return Draft(
        f"Elect {'unclean' if unclean else 'preferred'} leaders of {len(tps)} partitions",
        changes,
        start,
        read_basis,
        basis,
        warnings=["records that only replicas out of sync lack are lost for good"]
        if unclean
        else [],
        blockers=[] if tps else ["every partition is led by its preferred replica"],
        confirm="unclean" if unclean else None,
    )


def _imbalanced(console: Console) -> list[TopicPartition]:
    table, alive = console.collector.table, console.collector.brokers.nodes
    return [
        TopicPartition(state.topic, state.p)
        for topic in range(len(table.names))
        for state in table.partitions(topic)
        if state.replicas and state.leader != state.replicas[0] and state.replicas[0] in alive
    ]


def partitions_of(body: dict[str, Any]) -> list[TopicPartition]:
    return [
        TopicPartition(text_of(each, "topic"), int_of(each, "p"))
        for each in objects_of(body, "partitions")
    ]


KINDS = {
    "create-topic": Kind(Right.OPERATE, plan_create),
    "add-partitions": Kind(Right.OPERATE, plan_add_partitions),
    "delete-topic": Kind(Right.ADMINISTER, plan_delete),
    "empty-topic": Kind(Right.ADMINISTER, plan_empty),
    "elect": Kind(Right.OPERATE, plan_elect),
}
