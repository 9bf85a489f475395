"""Users that log in to the cluster, and its ACLs. Passwords are in no plan that is shown."""

from typing import Any

from odradek.client.acls import Acl
from odradek.console.accounts import Account, Right
from odradek.console.console import Console
from odradek.console.link import Api
from odradek.console.plans import Basis, Change, Done, Draft, Kind, OutcomeRow, outcome_rows
from odradek.console.web import Problem, objects_of, text_of, texts_of
from odradek.security.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
    parse_word,
    word,
)
from odradek.security.scram import MECHANISMS

ACLS_MAX = 200


async def plan_create_user(console: Console, body: dict[str, Any], account: Account) -> Draft:
    user, password = text_of(body, "user"), text_of(body, "password")
    mechanisms = texts_of(body, "mechanisms") or sorted(MECHANISMS)
    unknown = [name for name in mechanisms if name not in MECHANISMS]
    if unknown or not user or not password:
        raise Problem(422, f"a user has a name, a password and {' or '.join(sorted(MECHANISMS))}")
    basis = await _users(console)
    exists = user in basis

    async def read_basis() -> Basis:
        return {user: (await _users(console)).get(user)}

    async def start(api: Api) -> Done:
        await api.users.add(user, password, mechanisms=mechanisms)
        return Done([OutcomeRow(user)])

    return Draft(
        f"{'Change the password of' if exists else 'Create'} {user}",
        [Change(user, "exists" if exists else "", ", ".join(mechanisms))],
        start,
        read_basis,
        {user: basis.get(user)},
    )


async def plan_delete_user(console: Console, body: dict[str, Any], account: Account) -> Draft:
    user = text_of(body, "user")
    basis = await _users(console)
    if user not in basis:
        raise Problem(404, f"there is no user {user!r}", error="RESOURCE_NOT_FOUND")

    async def read_basis() -> Basis:
        return {user: (await _users(console)).get(user)}

    async def start(api: Api) -> Done:
        await api.users.delete(user)
        return Done([OutcomeRow(user)])

    change = Change(user, ", ".join(basis[user]), "")
    return Draft(f"Delete {user}", [change], start, read_basis, {user: basis[user]}, confirm=user)


async def _users(console: Console) -> dict[str, list[str]]:
    users = await console.link.api.users.describe()
    return {user.name: sorted(user.mechanisms) for user in users}


def acls_of(body: dict[str, Any]) -> list[Acl]:
    given = objects_of(body, "acls")
    if not given or len(given) > ACLS_MAX:
        raise Problem(422, f"acls has 1 to {ACLS_MAX} entries", field="acls")
    found = [
        Acl(
            ResourcePattern(
                parse_word(ResourceType, text_of(each, "resource_type")),
                text_of(each, "resource_name"),
                parse_word(PatternType, text_of(each, "pattern", "literal")),
            ),
            AclEntry(
                text_of(each, "principal"),
                parse_word(AclPermission, text_of(each, "permission", "allow")),
                parse_word(AclOperation, text_of(each, "operation")),
                text_of(each, "host", "*"),
            ),
        )
        for each in given
    ]
    for acl in found:
        words = (acl.resource.type, acl.resource.pattern, acl.entry.permission, acl.entry.operation)
        if any(int(each) == 0 for each in words):
            raise Problem(422, "a word of an ACL is not known", field="acls")
    return found


def acl_row(acl: Acl) -> dict[str, str]:
    return {
        "resource_type": word(acl.resource.type),
        "resource_name": acl.resource.name,
        "pattern": word(acl.resource.pattern),
        "principal": acl.entry.principal,
        "host": acl.entry.host,
        "operation": word(acl.entry.operation),
        "permission": word(acl.entry.permission),
    }


def _text(acl: Acl) -> str:
    row = acl_row(acl)
    return (
        f"{row['permission']} {row['principal']} {row['operation']} on {row['resource_type']} "
        f"{row['resource_name']} ({row['pattern']}) from {row['host']}"
    )


EVERY_ACL = AclFilter(
    ResourceType.ANY, None, PatternType.ANY, None, None, AclOperation.ANY, AclPermission.ANY
)


async def _existing(console: Console, acls: list[Acl]) -> dict[str, bool]:
    known = set(await console.link.api.acls.describe(EVERY_ACL))
    return {_text(acl): acl in known for acl in acls}


async def plan_add_acls(console: Console, body: dict[str, Any], account: Account) -> Draft:
    acls = acls_of(body)
    basis = await _existing(console, acls)

    async def start(api: Api) -> Done:
        outcomes = await api.acls.add(acls)
        return Done(outcome_rows({_text(acl): error for acl, error in outcomes.items()}))

    changes = [Change(text, "exists" if known else "", "exists") for text, known in basis.items()]
    return Draft(f"Add {len(acls)} ACLs", changes, start, lambda: _existing(console, acls), basis)


async def plan_delete_acls(console: Console, body: dict[str, Any], account: Account) -> Draft:
    acls = acls_of(body)
    basis = await _existing(console, acls)
    missing = [text for text, known in basis.items() if not known]

    async def start(api: Api) -> Done:
        filters = [
            AclFilter(
                *acl.resource,
                acl.entry.principal,
                acl.entry.host,
                acl.entry.operation,
                acl.entry.permission,
            )
            for acl in acls
        ]
        deleted = await api.acls.delete(filters)
        return Done([OutcomeRow(_text(acl)) for acl in deleted])

    return Draft(
        f"Delete {len(acls)} ACLs",
        [Change(text, "exists", "") for text in basis],
        start,
        lambda: _existing(console, acls),
        basis,
        blockers=[f"there is no ACL: {text}" for text in missing],
        confirm="delete",
    )


KINDS = {
    "create-user": Kind(Right.ADMINISTER, plan_create_user),
    "delete-user": Kind(Right.ADMINISTER, plan_delete_user),
    "add-acls": Kind(Right.ADMINISTER, plan_add_acls),
    "delete-acls": Kind(Right.ADMINISTER, plan_delete_acls),
}
