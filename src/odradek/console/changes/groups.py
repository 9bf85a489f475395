"""Resetting where a group goes on reading, and deleting groups."""

from typing import Any

from odradek.console.accounts import Account, Right
from odradek.console.console import Console
from odradek.console.link import Api
from odradek.console.plans import Basis, Change, Done, Draft, Kind, OutcomeRow, outcome_rows
from odradek.console.web import Problem, text_of, texts_of
from odradek.operations import AT_END, AT_START, Position, plan_reset
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition


def target_of(text: str) -> tuple[Position | None, int]:
    """A position, or how far to shift."""
    kind, _, rest = text.partition(":")
    if kind == "earliest":
        return AT_START, 0
    if kind == "latest":
        return AT_END, 0
    try:
        if kind == "shift":
            return None, int(rest)
        if kind == "offset":
            return Position(offset=int(rest)), 0
        if kind == "time":
            return Position.parse(f"@{rest}" if rest.isdecimal() else rest), 0
    except ValueError as error:
        raise Problem(422, str(error), field="to") from None
    raise Problem(422, "to is earliest, latest, offset:N, time:T or shift:N", field="to")


async def _members(console: Console, group: str) -> list[str]:
    try:
        described = await console.link.api.groups.describe_group(group)
    except KafkaError as error:
        if error.error is ErrorCode.GROUP_ID_NOT_FOUND:
            return []
        raise
    return [f"{member.client_id} ({member.host})" for member in described.members]


async def plan_reset_offsets(console: Console, body: dict[str, Any], account: Account) -> Draft:
    group, to = text_of(body, "group"), text_of(body, "to")
    position, shift = target_of(to)
    groups = console.link.api.groups
    try:
        reset = await plan_reset(
            groups, group, topics=texts_of(body, "topics"), to=position, shift=shift
        )
    except ValueError as error:
        raise Problem(422, str(error), field="topics") from None
    members = await _members(console, group)
    rows, changes = [], []
    for tp in sorted(reset.after):
        before, after = reset.before[tp], reset.after[tp]
        delta = None if before is None else after - before
        rows.append(
            {"topic": tp.topic, "p": tp.partition, "from": before, "to": after, "delta": delta}
        )
        changes.append(
            Change(str(tp), "" if before is None else str(before), str(after), _note(delta))
        )

    async def read_basis() -> Basis:
        committed = await groups.offsets(group)
        now: dict[str, Any] = {
            str(tp): committed[tp].offset if tp in committed else None for tp in reset.after
        }
        return {**now, "members": await _members(console, group)}

    async def start(api: Api) -> Done:
        after: dict[TopicPartition, int] = dict(reset.after)
        return Done(outcome_rows(await api.groups.alter_offsets(group, after)))

    blockers = []
    if members:
        blockers.append(
            f"{len(members)} members are live, stop them first: {', '.join(members[:10])}"
        )
    return Draft(
        f"Reset {group} to {to}",
        changes,
        start,
        read_basis,
        {**{str(tp): reset.before[tp] for tp in reset.after}, "members": members},
        blockers=blockers,
        details={"rows": rows, "members": members},
        audited=[
            Change(f"group {group} {each.subject}", each.before, each.after) for each in changes
        ],
    )


def _note(delta: int | None) -> str:
    if delta is None or delta == 0:
        return ""
    return f"{delta:,} skipped" if delta > 0 else f"{-delta:,} read again"


async def plan_delete_group(console: Console, body: dict[str, Any], account: Account) -> Draft:
    group = text_of(body, "group")
    groups = console.link.api.groups
    described = await groups.describe_group(group)
    committed = await groups.offsets(group)
    members = [f"{member.client_id} ({member.host})" for member in described.members]

    async def read_basis() -> Basis:
        again = await groups.offsets(group)
        return {group: [len(again), await _members(console, group)]}

    async def start(api: Api) -> Done:
        outcomes = await api.groups.delete_groups([group])
        return Done(
            [OutcomeRow(row.subject, row.error, row.message) for row in outcome_rows(outcomes)]
        )

    return Draft(
        f"Delete group {group}",
        [Change(group, f"{len(committed)} commits", "", "its commits are lost")],
        start,
        read_basis,
        {group: [len(committed), members]},
        blockers=[f"{len(members)} members are live: {', '.join(members[:10])}"] if members else [],
        confirm=group,
    )


KINDS = {
    "reset-offsets": Kind(Right.OPERATE, plan_reset_offsets),
    "delete-group": Kind(Right.ADMINISTER, plan_delete_group),
}
