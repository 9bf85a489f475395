"""Moving partitions: plan, cost, throttle, start, cancel.

The plans are those of `odradek reassign`: the same function makes them. A console that is killed
leaves the move to the controller. What it had throttled is in a file, and the console that reads it
next takes the throttles away when the move has ended.
"""

from collections.abc import Mapping
from typing import Any

from odradek.console.accounts import Account, Right
from odradek.console.changes.topics import partitions_of
from odradek.console.console import Console
from odradek.console.link import Api
from odradek.console.plans import Basis, Change, Done, Draft, Kind, outcome_rows
from odradek.console.web import Problem, int_of, ints_of, objects_of, text_of, texts_of
from odradek.operations import (
    Plan,
    cancel,
    check_plan,
    clear_throttles,
    generate_plan,
    set_throttles,
    start,
)
from odradek.placement import Ongoing, Reassignment, format_reassignment, move_map
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

DISK_USED_MAX = 0.85
RATES = (10_000_000, 25_000_000, 50_000_000, 100_000_000, 250_000_000)
THROTTLE_MIN = 1_000
PARTITIONS_SHOWN = 1_000


async def plan_reassign(console: Console, body: dict[str, Any], account: Account) -> Draft:
    plan = await _generated(console, body)
    throttle = _throttle_of(body)
    ongoing = await console.link.api.admin.list_reassignments()
    busy = [tp for tp in plan.proposed if tp in ongoing]

    async def read_basis() -> Basis:
        topics = {tp.topic for tp in plan.proposed}
        metadata = await console.link.client.refresh(topics)
        found = {}
        for tp in plan.proposed:
            topic = metadata.topics.get(tp.topic)
            known = topic.partitions.get(tp.partition) if topic is not None else None
            found[str(tp)] = None if known is None else list(known.replicas)
        return found

    async def begin(api: Api) -> Done:
        wanted = Reassignment({tp: list(to) for tp, to in plan.proposed.items()}, {})
        if throttle is not None:
            console.moves.throttled({tp.topic for tp in plan.proposed})
        now = await api.admin.list_reassignments()
        outcomes = await start(api.admin, wanted, plan, throttle=throttle, ongoing=now)
        return Done(outcome_rows(outcomes))

    changes = [
        Change(str(tp), _listed(plan.current[tp]), _listed(to), _why(tp, plan, body))
        for tp, to in sorted(plan.proposed.items())
    ]
    return Draft(
        f"Move {len(plan.proposed)} partitions",
        changes,
        begin,
        read_basis,
        {str(tp): list(plan.current[tp]) for tp in plan.proposed},
        warnings=_warnings(console, plan, throttle),
        blockers=_blockers(plan, busy),
        details=_details(console, plan, throttle, changes),
    )


def _blockers(plan: Plan, busy: list[TopicPartition]) -> list[str]:
    if not plan.proposed:
        return ["nothing has to move"]
    return [f"{tp} is being moved already" for tp in busy[:10]]


async def _generated(console: Console, body: dict[str, Any]) -> Plan:
    admin = console.link.api.admin
    mode = text_of(body, "mode", "level")
    topics, brokers = texts_of(body, "topics"), ints_of(body, "brokers")
    scratch, racks = body.get("from_scratch") is True, body.get("rack_aware") is not False
    if mode == "manual":
        wanted = {
            TopicPartition(text_of(each, "topic"), int_of(each, "p")): ints_of(each, "replicas")
            for each in objects_of(body, "partitions")
        }
        if not wanted or not all(wanted.values()):
            raise Problem(422, "each partition needs replicas", field="partitions")
        repeated = [tp for tp, to in wanted.items() if len(set(to)) < len(to)]
        if repeated:
            raise Problem(422, f"{repeated[0]} names a broker twice", field="partitions")
        return await check_plan(admin, Reassignment(wanted, {}))
    if mode == "empty":
        await admin.client.refresh()
        rest = sorted(set(admin.client.metadata.nodes) - set(brokers))
        if not brokers or not rest:
            raise Problem(422, "name the brokers to empty; some must be left", field="brokers")
        return await generate_plan(
            admin, topics=topics, brokers=rest, from_scratch=scratch, rack_aware=racks
        )
    if mode not in ("level", "replication"):
        raise Problem(422, "mode is level, empty, replication or manual", field="mode")
    factor = int_of(body, "factor") if mode == "replication" else None
    if factor is not None and not 0 < factor < 2**15:
        raise Problem(422, "factor is at least 1", field="factor")
    return await generate_plan(
        admin,
        topics=topics,
        brokers=brokers or None,
        replication_factor=factor,
        from_scratch=scratch,
        rack_aware=racks,
    )


def _throttle_of(body: dict[str, Any], name: str = "throttle_bytes_per_s") -> int | None:
    if body.get(name) is None:
        return None
    throttle = int_of(body, name)
    if throttle < THROTTLE_MIN:
        raise Problem(422, f"a throttle is at least {THROTTLE_MIN} bytes per second", field=name)
    return throttle


def _why(tp: TopicPartition, plan: Plan, body: dict[str, Any]) -> str:
    before, after = plan.current[tp], plan.proposed[tp]
    if len(before) != len(after):
        return f"replication factor {len(before)} → {len(after)}"
    leaving = [id for id in before if id not in after]
    coming = [id for id in after if id not in before]
    if not coming:
        return f"broker {after[0]} becomes the preferred leader"
    if body.get("mode") == "manual":
        return f"broker {leaving[0]} → {coming[0]}"
    held: dict[int, int] = {}
    for replicas in plan.current.values():
        for id in replicas:
            held[id] = held.get(id, 0) + 1
    if body.get("mode") == "empty" and set(leaving) & set(ints_of(body, "brokers")):
        return f"broker {leaving[0]} is emptied"
    fewer = held.get(leaving[0], 0) - held.get(coming[0], 0)
    return f"broker {coming[0]} holds {fewer} fewer" if fewer > 0 else "for racks or leaders"


def _seconds(plan: Plan, bytes_per_s: float) -> dict[int, float]:
    """How long each broker sends or receives; both directions are throttled apart."""
    ids = plan.cost.sent.keys() | plan.cost.received.keys()
    return {
        id: max(plan.cost.sent.get(id, 0), plan.cost.received.get(id, 0)) / bytes_per_s
        for id in ids
    }


def _disks(console: Console, plan: Plan) -> dict[int, tuple[float | None, float | None]]:
    """The share of each broker's disk that is used, before and after."""
    found: dict[int, tuple[float | None, float | None]] = {}
    for row in plan.cost.rows():
        id = row["broker"]
        directories = console.collector.directories.get(id, [])
        total = max((each.total_bytes for each in directories), default=-1)
        usable = min((each.usable_bytes for each in directories), default=-1)
        if total <= 0 or usable < 0:
            found[id] = (None, None)
            continue
        used = 1 - usable / total
        found[id] = (used, used + row["receives_bytes"] / total)
    return found


def _warnings(console: Console, plan: Plan, throttle: int | None) -> list[str]:
    found = [str(change) for change in plan.replication_changes()]
    found += [
        f"the disk of broker {id} would be {after:.0%} full"
        for id, (_, after) in _disks(console, plan).items()
        if after is not None and after > DISK_USED_MAX
    ]
    if throttle is not None:
        incoming: dict[int, float] = {
            id: activity.bytes_in
            for id, activity in console.collector.activity.brokers.items()
            if activity is not None
        }
        found += [
            f"broker {id} is written {rate:,.0f} bytes/s, more than the throttle: new replicas "
            "may never catch up"
            for id, rate in sorted(incoming.items())
            if rate > throttle and id in plan.cost.sent
        ]
    racks = {id: node.rack for id, node in console.collector.brokers.nodes.items()}
    fewer = [
        tp
        for tp, to in plan.proposed.items()
        if len({racks.get(id) for id in to}) < len({racks.get(id) for id in plan.current[tp]})
    ]
    if fewer:
        found.append(f"{len(fewer)} partitions would be in fewer racks, {fewer[0]} among them")
    return found


def _details(
    console: Console, plan: Plan, throttle: int | None, changes: list[Change]
) -> dict[str, Any]:
    disks = _disks(console, plan)
    at = _seconds(plan, throttle) if throttle else {}
    cost = [
        {
            **row,
            "disk_before": disks[row["broker"]][0],
            "disk_after": disks[row["broker"]][1],
            "seconds": at.get(row["broker"]),
        }
        for row in plan.cost.rows()
    ]
    loads = _seconds(plan, 1.0)
    return {
        "moves": len(plan.proposed),
        "replicas": plan.cost.replicas,
        "partitions": [
            {
                "topic": tp.topic,
                "p": tp.partition,
                "from": list(plan.current[tp]),
                "to": list(to),
                "why": change.note,
            }
            for (tp, to), change in zip(
                sorted(plan.proposed.items())[:PARTITIONS_SHOWN], changes, strict=False
            )
        ],
        "cost": cost,
        "total_bytes": plan.cost.total_bytes,
        "seconds_at": {
            str(rate): max(_seconds(plan, rate).values(), default=0.0) for rate in RATES
        },
        "longest_broker": max(loads, key=loads.__getitem__, default=None),
        "throttle_bytes_per_s": throttle,
        "json": format_reassignment(plan.proposed) if plan.proposed else "",
        "rollback_json": format_reassignment(plan.rollback) if plan.proposed else "",
    }


def _listed(replicas: Any) -> str:
    return ",".join(map(str, replicas))


# What is under way


def _back_to(state: Ongoing) -> list[int]:
    return [id for id in state.replicas if id not in state.adding]


async def _ongoing(console: Console) -> Mapping[TopicPartition, Ongoing]:
    return await console.link.api.admin.list_reassignments()


async def plan_cancel(console: Console, body: dict[str, Any], account: Account) -> Draft:
    ongoing = await _ongoing(console)
    wanted = partitions_of(body) if body.get("partitions") is not None else sorted(ongoing)
    missing = [tp for tp in wanted if tp not in ongoing]
    if missing:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{missing[0]} is not being moved")

    async def read_basis() -> Basis:
        now = await _ongoing(console)
        return {str(tp): list(now[tp].adding) if tp in now else None for tp in wanted}

    async def begin(api: Api) -> Done:
        outcomes = await cancel(api.admin, wanted)
        return Done(outcome_rows({tp: error for tp, (_, error) in outcomes.items()}))

    return Draft(
        f"Cancel the move of {len(wanted)} partitions",
        [
            Change(
                str(tp),
                _listed(ongoing[tp].replicas),
                _listed(_back_to(ongoing[tp])),
                "goes back to where it was",
            )
            for tp in wanted
        ],
        begin,
        read_basis,
        {str(tp): list(ongoing[tp].adding) for tp in wanted},
        blockers=[] if wanted else ["nothing is being moved"],
    )


async def plan_throttle(console: Console, body: dict[str, Any], account: Account) -> Draft:
    rate = _throttle_of(body, "bytes_per_s")
    ongoing = await _ongoing(console)
    before = await console.moves.read_throttle()

    async def read_basis() -> Basis:
        return {"moves": sorted(map(str, await _ongoing(console)))}

    async def begin(api: Api) -> Done:
        now = await _ongoing(console)
        topics = {tp.topic for tp in now}
        if rate is None:
            await clear_throttles(api.admin, topics)
            console.moves.forget()
        else:
            console.moves.throttled(topics)
            await set_throttles(api.admin, move_map({}, {}, now), rate)
        return Done(outcome_rows({"throttle": None}))

    return Draft(
        "Change the throttle" if rate is not None else "Take the throttle away",
        [
            Change(
                "throttle",
                "none" if before is None else f"{before} B/s",
                "none" if rate is None else f"{rate} B/s",
            )
        ],
        begin,
        read_basis,
        {"moves": sorted(map(str, ongoing))},
        blockers=[] if ongoing or rate is None else ["nothing is being moved"],
    )


KINDS = {
    "reassign": Kind(Right.OPERATE, plan_reassign),
    "cancel-moves": Kind(Right.OPERATE, plan_cancel),
    "throttle": Kind(Right.OPERATE, plan_throttle),
}
