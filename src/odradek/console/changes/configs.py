"""Changing settings of topics and brokers, and quotas of clients."""

from typing import Any

from odradek.client.quotas import QuotaEntity
from odradek.client.values import ConfigChange, ConfigOperation, Resource, ResourceType
from odradek.console.accounts import Account, Right
from odradek.console.changes.topics import settings_of
from odradek.console.console import Console
from odradek.console.link import Api
from odradek.console.plans import Basis, Change, Done, Draft, Kind, OutcomeRow, outcome_rows
from odradek.console.web import Problem, optional_text, text_of, texts_of
from odradek.wire.errors import KafkaError

HIDDEN = "(hidden)"
TYPES = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER}


def resource_of(body: dict[str, Any]) -> Resource:
    kind, name = text_of(body, "type"), text_of(body, "name", "")
    if kind not in TYPES:
        raise Problem(422, "type is topic or broker", field="type")
    if kind == "broker" and name and not (name.isdecimal() and len(name) < 10):
        raise Problem(422, "a broker is named by its id", field="name")
    return Resource(TYPES[kind], name)


async def read_values(console: Console, resource: Resource) -> dict[str, tuple[str | None, bool]]:
    """Value, and whether it is sensitive, by setting."""
    described = await console.link.api.admin.describe_configs([resource])
    entries = described.get(resource)
    if entries is None:
        raise Problem(404, f"{resource.name!r} does not exist")
    if isinstance(entries, KafkaError):
        raise entries
    return {entry.name: (entry.value, entry.is_sensitive) for entry in entries}


async def plan_alter(console: Console, body: dict[str, Any], account: Account) -> Draft:
    resource = resource_of(body)
    wanted, deleted = settings_of(body, "set"), texts_of(body, "delete")
    if not wanted and not deleted:
        raise Problem(422, "nothing to change", field="set")
    known = await read_values(console, resource)
    names = [*wanted, *deleted]
    unknown = [name for name in names if name not in known]
    alterations = [
        *(ConfigChange(name, value) for name, value in wanted.items()),
        *(ConfigChange(name, None, ConfigOperation.DELETE) for name in deleted),
    ]
    changes = []
    for name in names:
        value, sensitive = known.get(name, (None, True))
        after = wanted.get(name, "(its default)")
        changes.append(
            Change(
                f"{resource.name or 'all brokers'} {name}",
                HIDDEN if sensitive else value or "",
                HIDDEN if sensitive and name in wanted else after,
            )
        )
    admin = console.link.api.admin
    error = (await admin.alter_configs({resource: alterations}, validate_only=True)).get(resource)
    basis = {name: known.get(name, (None, False))[0] for name in names}

    async def read_basis() -> Basis:
        again = await read_values(console, resource)
        return {name: again.get(name, (None, False))[0] for name in names}

    async def start(api: Api) -> Done:
        outcomes = await api.admin.alter_configs({resource: alterations})
        if resource.type is ResourceType.TOPIC:
            console.collector.settings.pop(resource.name, None)
        failed = outcomes.get(resource)
        return Done(
            [OutcomeRow(change.subject) for change in changes]
            if failed is None
            else outcome_rows({change.subject: failed for change in changes})
        )

    return Draft(
        f"Change {len(names)} settings of {resource.name or 'all brokers'}",
        changes,
        start,
        read_basis,
        basis,
        warnings=[f"{name} is not a known setting" for name in unknown],
        blockers=[] if error is None else [error.message or error.error.name],
    )


async def plan_quotas(console: Console, body: dict[str, Any], account: Account) -> Draft:
    entity = QuotaEntity(optional_text(body, "user"), optional_text(body, "client_id"))
    if entity == QuotaEntity():
        raise Problem(422, "a quota is for a user, a client id or both", field="client_id")
    given = body.get("set") or {}
    if not isinstance(given, dict) or not all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in given.values()
    ):
        raise Problem(422, "set is an object of numbers", field="set")
    wanted: dict[str, float | None] = {str(name): float(value) for name, value in given.items()}
    wanted |= dict.fromkeys(texts_of(body, "delete"))
    if not wanted:
        raise Problem(422, "nothing to change", field="set")
    quotas = console.link.api.quotas

    async def read_basis() -> Basis:
        now = (await quotas.describe(entity)).get(entity, {})
        return {f"{entity} {name}": now.get(name) for name in wanted}

    basis = await read_basis()
    blockers = []
    try:
        await quotas.alter(entity, wanted, validate_only=True)
    except KafkaError as error:
        blockers.append(error.message or error.error.name)
    changes = [
        Change(
            f"{entity} {name}",
            _number(basis[f"{entity} {name}"]),
            "none" if value is None else _number(value),
        )
        for name, value in wanted.items()
    ]

    async def start(api: Api) -> Done:
        await api.quotas.alter(entity, wanted)
        return Done([OutcomeRow(change.subject) for change in changes])

    title = f"Change quotas of {entity}"
    return Draft(title, changes, start, read_basis, basis, blockers=blockers)


def _number(value: Any) -> str:
    return "none" if value is None else f"{value:g}"


KINDS = {
    "alter-configs": Kind(Right.OPERATE, plan_alter),
    "alter-quotas": Kind(Right.OPERATE, plan_quotas),
}
