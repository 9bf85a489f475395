"""Settings, quotas, users and ACLs as they are."""

import asyncio
from typing import Any, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from odradek.client.values import ConfigEntry, ConfigSource, Resource, ResourceType
from odradek.console.accounts import Right
from odradek.console.changes.configs import TYPES
from odradek.console.changes.security import EVERY_ACL, acl_row
from odradek.console.console import Console
from odradek.console.routes import Parameter, Route
from odradek.console.web import Problem, answer, required_parameter
from odradek.operations.broker_http import get_json
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.settings import BROKER_SETTINGS, TOPIC_SETTINGS, Scope

SOURCES = {
    ConfigSource.TOPIC: "topic",
    ConfigSource.BROKER: "broker",
    ConfigSource.BROKER_DEFAULT: "cluster",
    ConfigSource.STATIC: "file",
    ConfigSource.DEFAULT: "default",
}


class Changed(TypedDict):
    user: str
    time_ms: int


class SettingRow(TypedDict):
    name: str
    value: str | None
    default: str | None
    source: str
    read_only: bool
    sensitive: bool
    doc: str | None
    changed: Changed | None


class ConfigsAnswer(TypedDict):
    type: str
    name: str
    differ: int
    total: int
    items: list[SettingRow]


class QuotaRow(TypedDict):
    user: str | None
    client_id: str | None
    quotas: dict[str, float]


class QuotasAnswer(TypedDict):
    items: list[QuotaRow]
    clients: list[dict[str, Any]]
    use_known: bool


async def show_configs(console: Console, request: Request) -> Response:
    kind = required_parameter(request, "type")
    name = request.query_params.get("name", "")
    if kind not in TYPES:
        raise Problem(422, "type is topic or broker", field="type")
    if kind == "broker" and name and not (name.isdecimal() and len(name) < 10):
        raise Problem(422, "a broker is named by its id", field="name")
    resource = Resource(TYPES[kind], name)
    admin = console.link.api.admin
    entries = (await admin.describe_configs([resource], documentation=True)).get(resource)
    if entries is None:
        raise Problem(404, f"{name!r} does not exist")
    if isinstance(entries, KafkaError):
        raise entries
    if kind == "broker" and not name:
        entries = [*entries, *_settable(entries)]
    own = _own_sources(resource)
    differ = [entry for entry in entries if entry.source in own]
    shown = entries if request.query_params.get("all") == "1" else differ
    return answer(
        request,
        {
            "type": kind,
            "name": name,
            "differ": len(differ),
            "total": len(entries),
            "items": [
                _row(console, resource, entry)
                for entry in sorted(shown, key=lambda entry: entry.name)
            ],
        },
    )


def _settable(entries: list[ConfigEntry]) -> list[ConfigEntry]:
    """What can be set for all brokers at once, and is not: the cluster lists only what is."""
    known = {entry.name for entry in entries}
    return [
        ConfigEntry(name, setting.default, ConfigSource.DEFAULT, False, False, setting.doc)
        for name, setting in BROKER_SETTINGS.items()
        if setting.scope is Scope.CLUSTER_WIDE and name not in known
    ]


def _own_sources(resource: Resource) -> set[ConfigSource]:
    if resource.type is ResourceType.TOPIC:
        return {ConfigSource.TOPIC}
    return {ConfigSource.BROKER, ConfigSource.BROKER_DEFAULT, ConfigSource.STATIC}


def _default(resource: Resource, name: str) -> str | None:
    """What a setting is where no one has set it, as Kafka and ours have it."""
    known = TOPIC_SETTINGS if resource.type is ResourceType.TOPIC else BROKER_SETTINGS
    setting = known.get(name)
    return None if setting is None else setting.default


def _row(console: Console, resource: Resource, entry: ConfigEntry) -> SettingRow:
    subject = f"{resource.name or 'all brokers'} {entry.name}"
    last = next(
        (
            line
            for line in reversed(console.audit.lines)
            if line.action == "alter-configs" and line.subject == subject and line.outcome == "done"
        ),
        None,
    )
    is_default = entry.source is ConfigSource.DEFAULT
    return {
        "name": entry.name,
        # A sensitive value never leaves the broker; one that did would not leave here.
        "value": None if entry.is_sensitive else entry.value,
        "default": entry.value if is_default else _default(resource, entry.name),
        "source": SOURCES.get(entry.source, "unknown"),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "doc": entry.documentation,
        "changed": None if last is None else {"user": last.user, "time_ms": last.time_ms},
    }


async def show_quotas(console: Console, request: Request) -> Response:
    quotas = await console.link.api.quotas.describe()
    items = [
        {"user": entity.user, "client_id": entity.client_id, "quotas": limits}
        for entity, limits in sorted(quotas.items(), key=lambda item: str(item[0]))
    ]
    use = await _read_use(console)
    clients = [_client(*key, each) for key, each in sorted(use.items())]
    known = bool(console.link.http())
    return answer(request, {"items": items, "clients": clients, "use_known": known})


Use = dict[str, float]


async def _read_use(console: Console) -> dict[tuple[str, str], Use]:
    """What clients use of their quotas, by user and client id, summed over the brokers. Of clients
    without a quota brokers measure nothing."""
    token = console.link.token
    found = await asyncio.gather(
        *(get_json(each, "/clients", token) for each in console.link.http().values()),
        return_exceptions=True,
    )
    use: dict[tuple[str, str], Use] = {}
    for rows in found:
        for row in rows if isinstance(rows, list) else ():
            own = use.setdefault((str(row["user"]), str(row["client_id"])), {})
            own[row["quota"]] = own.get(row["quota"], 0.0) + row["rate"]
            own["throttled_s"] = max(own.get("throttled_s", 0.0), row["throttled_s"])
    return use


def _client(user: str, client_id: str, use: Use) -> dict[str, Any]:
    busy = use.get("request_percentage")
    return {
        "client_id": client_id or None,
        "user": user or None,
        "in_per_s": use.get("producer_byte_rate"),
        "out_per_s": use.get("consumer_byte_rate"),
        "busy": None if busy is None else busy / 100,
        "throttled_s_per_min": 60 * use["throttled_s"],
    }


def _without_security(error: KafkaError) -> Problem:
    return Problem(409, "this cluster has no security", error=error.error.name)


async def list_users(console: Console, request: Request) -> Response:
    try:
        users = await console.link.api.users.describe()
    except KafkaError as error:
        if error.error is not ErrorCode.SECURITY_DISABLED:
            raise
        raise _without_security(error) from None
    items = [{"user": user.name, "mechanisms": sorted(user.mechanisms)} for user in users]
    return answer(request, {"items": items, "total": len(items)})


async def list_acls(console: Console, request: Request) -> Response:
    try:
        acls = await console.link.api.acls.describe(EVERY_ACL)
    except KafkaError as error:
        if error.error is not ErrorCode.SECURITY_DISABLED:
            raise
        raise _without_security(error) from None
    return answer(request, {"items": [acl_row(acl) for acl in acls], "total": len(acls)})


ROUTES = (
    Route(
        "GET",
        "/configs",
        show_configs,
        "Settings that differ",
        answer=ConfigsAnswer,
        parameters=(
            Parameter("type", "topic or broker", True),
            Parameter("name", "whose"),
            Parameter("all", "1: also those that do not differ"),
        ),
    ),
    Route("GET", "/quotas", show_quotas, "Quotas", answer=QuotasAnswer),
    Route("GET", "/users", list_users, "Users of the cluster", Right.ADMINISTER),
    Route("GET", "/acls", list_acls, "ACLs of the cluster", Right.ADMINISTER),
)
