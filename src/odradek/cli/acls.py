"""`odradek acls`: who may do what. Options and their meaning are those of `kafka-acls`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from odradek.cli.output import Listing, examples, json_option, plural
from odradek.cli.session import finish, with_cluster

if TYPE_CHECKING:
    from odradek.client import Blocking
    from odradek.client.acls import Acl
    from odradek.security.acls import (
        AclFilter,
        AclOperation,
        AclPermission,
        PatternType,
        ResourcePattern,
    )

CLUSTER_NAME = "kafka-cluster"
COLUMNS = ("type", "name", "pattern", "principal", "host", "operation", "permission")


class Resources(TypedDict):
    """The options that say what a permission is about."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    tokens: tuple[str, ...]
    user_principals: tuple[str, ...]
    is_cluster: bool
    pattern: str


class Rights(Resources):
    """The options that say who may do what."""

    allowed: tuple[str, ...]
    denied: tuple[str, ...]
    allow_hosts: tuple[str, ...]
    deny_hosts: tuple[str, ...]
    operations: tuple[str, ...]
    is_producer: bool
    is_consumer: bool
    is_idempotent: bool


@click.group(
    epilog=examples(
        "odradek acls add --allow-principal User:alice --consumer --topic t --group g",
        "odradek acls add --deny-principal User:bob --operation Write --topic t",
        "odradek acls list --topic t",
    )
)
def acls() -> None:
    """Manage ACLs. Brokers need authorizer.class.name for them; see docs/security.md."""


def _options(
    *options: Callable[[click.decorators.FC], click.decorators.FC],
) -> Callable[[click.decorators.FC], click.decorators.FC]:
    def add_all(command: click.decorators.FC) -> click.decorators.FC:
        for option in reversed(options):
            command = option(command)
        return command

    return add_all


def _names(
    option: str, name: str, text: str
) -> Callable[[click.decorators.FC], click.decorators.FC]:
    return click.option(option, name, multiple=True, metavar="NAME", help=text)


def _resource_options(
    patterns: Sequence[str], default: str
) -> Callable[[click.decorators.FC], click.decorators.FC]:
    return _options(
        _names("--topic", "topics", "A topic; * is all of them."),
        _names("--group", "groups", "A consumer group; * is all of them."),
        _names("--transactional-id", "transactional_ids", "A transactional id."),
        _names("--delegation-token", "tokens", "A delegation token, by its id."),
        _names("--user-principal", "user_principals", "A user that tokens are made for."),
        click.option("--cluster", "is_cluster", is_flag=True, help="The cluster itself."),
        click.option(
            "--resource-pattern-type",
            "pattern",
            type=click.Choice(patterns, case_sensitive=False),
            default=default,
            show_default=True,
            help="How the names are matched.",
        ),
    )


_right_options = _options(
    _names("--allow-principal", "allowed", "Who may: User:name, or User:*."),
    _names("--deny-principal", "denied", "Who may not: this wins over every permission."),
    _names("--allow-host", "allow_hosts", "From this address only; default: *."),
    _names("--deny-host", "deny_hosts", "Not from this address; default: *."),
    _names("--operation", "operations", "Read, Write, DescribeConfigs, ...; default: All."),
    click.option("--producer", "is_producer", is_flag=True, help="What producers need: topic, id."),
    click.option(
        "--consumer", "is_consumer", is_flag=True, help="What consumers need: topic and group."
    ),
    click.option(
        "--idempotent", "is_idempotent", is_flag=True, help="With --producer: IdempotentWrite."
    ),
)


@acls.command(
    epilog=examples(
        "odradek acls add --allow-principal User:alice --operation Read --topic t",
        "odradek acls add --allow-principal User:etl --producer --topic raw- "
        "--resource-pattern-type prefixed",
    )
)
@_right_options
@_resource_options(("literal", "prefixed"), "literal")
@with_cluster
def add(cluster: "Blocking", **rights: Unpack[Rights]) -> None:
    """Grant or deny operations; existing ACLs stay."""
    wanted = _bindings(rights)
    finish(cluster.run(cluster.acls.add(wanted)))
    click.echo(f"{plural(len(wanted), 'ACL')} set")


@acls.command("list", epilog=examples("odradek acls list --principal User:alice --json"))
@_names("--principal", "principals", "Only of these.")
@_resource_options(("any", "match", "literal", "prefixed"), "any")
@json_option
@with_cluster
def list_acls(
    cluster: "Blocking",
    principals: tuple[str, ...],
    as_json: bool,
    **resources: Unpack[Resources],
) -> None:
    """List all ACLs, or those of the resources named."""
    found = {
        acl
        for wanted in _filters(resources, principals)
        for acl in cluster.run(cluster.acls.describe(wanted))
    }
    Listing([_row(acl) for acl in sorted(found)], {name: name for name in COLUMNS}).show(
        as_json, empty="no ACLs"
    )


@acls.command(epilog=examples("odradek acls delete --topic t --allow-principal User:alice --yes"))
@_right_options
@_resource_options(("any", "match", "literal", "prefixed"), "literal")
@click.option("--yes", "--force", "-y", is_flag=True, help="Do not ask.")
@json_option
@with_cluster
def delete(cluster: "Blocking", yes: bool, as_json: bool, **rights: Unpack[Rights]) -> None:
    """Delete permissions of the resources named: of all principals and operations, unless some are
    named."""
    filters = _deletions(rights)
    found = {acl for each in filters for acl in cluster.run(cluster.acls.describe(each))}
    if not yes and found:
        for acl in sorted(found):
            click.echo("  ".join(str(value) for value in _row(acl).values()))
        click.confirm(f"Delete {plural(len(found), 'ACL')}?", abort=True)
    deleted = cluster.run(cluster.acls.delete(filters)) if filters else []
    if as_json:
        Listing([_row(acl) for acl in deleted], {}).show(as_json=True)
        return
    click.echo(f"{plural(len(deleted), 'ACL')} deleted")


def _patterns(resources: Resources) -> "list[ResourcePattern]":
    from odradek.security.acls import PatternType, ResourcePattern, ResourceType

    pattern = PatternType[resources["pattern"].upper()]
    named = {
        ResourceType.TOPIC: resources["topics"],
        ResourceType.GROUP: resources["groups"],
        ResourceType.TRANSACTIONAL_ID: resources["transactional_ids"],
        ResourceType.DELEGATION_TOKEN: resources["tokens"],
        ResourceType.USER: resources["user_principals"],
    }
    patterns = [ResourcePattern(kind, name, pattern) for kind in named for name in named[kind]]
    if resources["is_cluster"]:
        patterns.append(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME, _literal(pattern)))
    return patterns


def _literal(pattern: "PatternType") -> "PatternType":
    """The cluster has one name: a prefix of it would be a mistake."""
    from odradek.security.acls import PatternType

    return PatternType.LITERAL if pattern is PatternType.PREFIXED else pattern


def _operations(rights: Rights) -> "dict[ResourcePattern, list[AclOperation]]":
    """What each resource is to be granted or denied."""
    from odradek.security.acls import AclOperation, PatternType, ResourcePattern, ResourceType

    patterns = _patterns(rights)
    if not (rights["is_producer"] or rights["is_consumer"]):
        operations = [_operation(name) for name in rights["operations"]] or [AclOperation.ALL]
        return dict.fromkeys(patterns, operations)
    if rights["operations"]:
        raise click.UsageError("--producer and --consumer say which operations: leave --operation")
    by_type: dict[ResourceType, list[AclOperation]] = {}
    if rights["is_producer"]:
        by_type[ResourceType.TOPIC] = [
            AclOperation.WRITE,
            AclOperation.DESCRIBE,
            AclOperation.CREATE,
        ]
        by_type[ResourceType.TRANSACTIONAL_ID] = [AclOperation.WRITE, AclOperation.DESCRIBE]
    if rights["is_consumer"]:
        if not rights["groups"]:
            raise click.UsageError("--consumer needs --group")
        topic = by_type.setdefault(ResourceType.TOPIC, [])
        topic += [each for each in (AclOperation.READ, AclOperation.DESCRIBE) if each not in topic]
        by_type[ResourceType.GROUP] = [AclOperation.READ]
    if not rights["topics"]:
        raise click.UsageError("--producer and --consumer need --topic")
    wanted = {pattern: by_type[pattern.type] for pattern in patterns if pattern.type in by_type}
    if rights["is_idempotent"]:
        cluster = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
        wanted[cluster] = [AclOperation.IDEMPOTENT_WRITE]
    return wanted


def _operation(text: str) -> "AclOperation":
    from odradek.operations import did_you_mean
    from odradek.security.acls import AclOperation, parse_word, word

    found = parse_word(AclOperation, text)
    if found in (AclOperation.UNKNOWN, AclOperation.ANY):
        names = [word(each) for each in AclOperation if each > AclOperation.ANY]
        raise click.UsageError(
            f"there is no operation {text!r}{did_you_mean(text, names)}; there are"
            f" {', '.join(names)}"
        )
    return found


def _subjects(rights: Rights) -> "list[tuple[str, AclPermission, str]]":
    """Whom the options name: principal, permission and host."""
    from odradek.security.acls import AclPermission
    from odradek.security.principal import Principal

    subjects = []
    for permission, principals, hosts in (
        (AclPermission.ALLOW, rights["allowed"], rights["allow_hosts"]),
        (AclPermission.DENY, rights["denied"], rights["deny_hosts"]),
    ):
        if hosts and not principals:
            raise click.UsageError("a host needs its --allow-principal or --deny-principal")
        for principal in principals:
            try:
                Principal.parse(principal)
            except ValueError as error:
                raise click.UsageError(str(error)) from None
            subjects += [(principal, permission, host) for host in hosts or ("*",)]
    return subjects


def _bindings(rights: Rights) -> "list[Acl]":
    from odradek.client.acls import Acl
    from odradek.security.acls import AclEntry

    subjects = _subjects(rights)
    if not subjects:
        raise click.UsageError("missing principal: give --allow-principal or --deny-principal")
    wanted = _operations(rights)
    if not wanted:
        raise click.UsageError("missing resource: give --topic, --group, --cluster, ...")
    return [
        Acl(pattern, AclEntry(principal, permission, operation, host))
        for pattern, operations in wanted.items()
        for operation in operations
        for principal, permission, host in subjects
    ]


def _filters(resources: Resources, principals: Sequence[str]) -> "list[AclFilter]":
    """What to list: everything, unless resources or principals are named."""
    from odradek.security.acls import (
        AclFilter,
        AclOperation,
        AclPermission,
        PatternType,
        ResourceType,
    )

    everything = [(ResourceType.ANY, None, PatternType[resources["pattern"].upper()])]
    return [
        AclFilter(kind, name, pattern, principal, None, AclOperation.ANY, AclPermission.ANY)
        for kind, name, pattern in _patterns(resources) or everything
        for principal in principals or (None,)
    ]


def _deletions(rights: Rights) -> "list[AclFilter]":
    from odradek.security.acls import AclFilter, AclOperation, AclPermission

    subjects: list[tuple[str | None, AclPermission, str | None]] = [*_subjects(rights)]
    named = bool(rights["operations"] or rights["is_producer"] or rights["is_consumer"])
    wanted = (
        _operations(rights)
        if named
        else {pattern: [AclOperation.ANY] for pattern in _patterns(rights)}
    )
    if not wanted:
        raise click.UsageError("missing resource: give --topic, --group, --cluster, ...")
    return [
        AclFilter(*pattern, principal, host, operation, permission)
        for pattern, operations in wanted.items()
        for operation in operations
        for principal, permission, host in subjects or [(None, AclPermission.ANY, None)]
    ]


def _row(acl: "Acl") -> dict[str, object]:
    from odradek.security.acls import word

    resource, entry = acl
    return {
        "type": word(resource.type),
        "name": resource.name,
        "pattern": resource.pattern.name.lower(),
        "principal": entry.principal,
        "host": entry.host,
        "operation": word(entry.operation),
        "permission": word(entry.permission),
    }
