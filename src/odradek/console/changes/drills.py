"""Hurting a broker of a development cluster, on purpose."""

from typing import Any

from odradek.console.accounts import Account, Right
from odradek.console.console import Console
from odradek.console.drills import SIGNALS, UNDONE_BY
from odradek.console.link import Api
from odradek.console.plans import Basis, Change, Done, Draft, Kind, OutcomeRow
from odradek.console.web import Problem, int_of, text_of

SECONDS_MAX = 600


async def plan_drill(console: Console, body: dict[str, Any], account: Account) -> Draft:
    drills, collector = console.drills, console.collector
    if drills is None:
        raise Problem(409, "drills need a cluster that this console holds: odradek up --console")
    action, broker = text_of(body, "action"), int_of(body, "broker")
    seconds = 10 if body.get("seconds") is None else int_of(body, "seconds")
    if action not in SIGNALS:
        raise Problem(422, f"action is one of {', '.join(SIGNALS)}", field="action")
    if not 1 <= seconds <= SECONDS_MAX:
        raise Problem(422, f"seconds is 1 to {SECONDS_MAX}", field="seconds")
    if broker not in collector.known:
        raise Problem(404, f"there is no broker {broker}", error="BROKER_NOT_AVAILABLE")
    subject = f"broker {broker}"

    async def read_basis() -> Basis:
        return {subject: broker in console.collector.brokers.nodes}

    async def start(api: Api) -> Done:
        drill = drills.begin(action, broker, seconds)
        return Done([OutcomeRow(subject)], {"drill": drill.id})

    is_alive = broker in collector.brokers.nodes
    undone = f", then {UNDONE_BY[action]} after {seconds} s" if action in UNDONE_BY else ""
    change = Change(subject, "alive" if is_alive else "down", f"{SIGNALS[action]}{undone}")
    return Draft(
        f"Drill: {action} broker {broker}",
        [change],
        start,
        read_basis,
        {subject: is_alive},
        warnings=_warnings(console, action, broker),
        blockers=_blockers(console, action, broker, is_alive),
    )


def _blockers(console: Console, action: str, broker: int, is_alive: bool) -> list[str]:
    assert console.drills is not None
    if (running := console.drills.running) is not None:
        return [f"drill {running.id} is running"]
    if action in UNDONE_BY and not is_alive:
        return [f"broker {broker} is down already"]
    if action == "start" and is_alive:
        return [f"broker {broker} is running"]
    return []


def _warnings(console: Console, action: str, broker: int) -> list[str]:
    if action not in UNDONE_BY:
        return []
    collector = console.collector
    warnings = []
    if broker == collector.brokers.controller:
        warnings.append("it is the controller: another broker will be elected")
    alone = sum(
        list(state.isr) == [broker]
        for topic in range(len(collector.table.names))
        for state in collector.table.partitions(topic)
    )
    if alone:
        warnings.append(f"{alone} partitions have no other replica in sync: they will be offline")
    return warnings


KINDS = {"drill": Kind(Right.ADMINISTER, plan_drill)}
