"""May it? The authorizer's decisions."""

import random
from typing import Any

import pytest

from odradek.security.acls import (
    CLUSTER_NAME,
    DECISIONS_MAX,
    AclEntry,
    AclOperation,
    AclPermission,
    Authorizer,
    PatternType,
    ResourcePattern,
    ResourceType,
    authorized_operations,
)
from odradek.security.principal import ANONYMOUS, Principal

ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALICE, BOB = Principal("alice"), Principal("bob")
HOST = "10.0.0.1"


def authorizer(*rules: tuple[str, PatternType, AclEntry]) -> Authorizer:
    made = Authorizer({Principal("root")})
    grouped: dict[ResourcePattern, set[AclEntry]] = {}
    for name, pattern, entry in rules:
        grouped.setdefault(ResourcePattern(TOPIC, name, pattern), set()).add(entry)
    made.replace(grouped)
    return made


def allow(who: str, operation: AclOperation = READ, host: str = "*") -> AclEntry:
    return AclEntry(who, ALLOW, operation, host)


def deny(who: str, operation: AclOperation = READ, host: str = "*") -> AclEntry:
    return AclEntry(who, DENY, operation, host)


def test_without_an_entry_the_setting_decides_and_super_users_always_may() -> None:
    assert not Authorizer().allows(ALICE, HOST, READ, TOPIC, "t")
    assert Authorizer(allow_if_no_acl=True).allows(ALICE, HOST, READ, TOPIC, "t")
    of_bob = authorizer(("t", LITERAL, allow("User:bob")))
    assert not of_bob.allows(ALICE, HOST, READ, TOPIC, "t")
    assert of_bob.allows(Principal("root"), HOST, READ, TOPIC, "t")


def test_an_entry_for_anyone_ends_the_default_for_everyone() -> None:
    made = Authorizer(allow_if_no_acl=True)
    made.update(ResourcePattern(TOPIC, "t"), {allow("User:bob")})
    assert not made.allows(ALICE, HOST, READ, TOPIC, "t")
    assert made.allows(ALICE, HOST, READ, TOPIC, "u")


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("orders", LITERAL), ("*", LITERAL), ("ord", PREFIXED), ("orders", PREFIXED)],
)
def test_a_deny_beats_every_allow_wherever_it_stands(name: str, pattern: PatternType) -> None:
    allowed = [
        ("orders", LITERAL, allow("User:alice")),
        ("o", PREFIXED, allow("User:*")),
        ("*", LITERAL, allow("User:alice", AclOperation.ALL)),
    ]
    assert authorizer(*allowed).allows(ALICE, HOST, READ, TOPIC, "orders")
    for entry in (deny("User:alice"), deny("User:*"), deny("User:*", AclOperation.ALL, HOST)):
        denied = authorizer(*allowed, (name, pattern, entry))
        assert not denied.allows(ALICE, HOST, READ, TOPIC, "orders")


def test_hosts_are_compared_as_text() -> None:
    made = authorizer(("t", LITERAL, allow("User:alice", host=HOST)))
    assert made.allows(ALICE, HOST, READ, TOPIC, "t")
    assert not made.allows(ALICE, "10.0.0.2", READ, TOPIC, "t")


def test_a_prefixed_asterisk_is_an_ordinary_prefix() -> None:
    made = authorizer(("*", PREFIXED, allow("User:alice")))
    assert not made.allows(ALICE, HOST, READ, TOPIC, "t")
    assert made.allows(ALICE, HOST, READ, TOPIC, "*t")


@pytest.mark.parametrize(
    "operation",
    [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALL, DESCRIBE],
)
def test_describe_is_implied_by_allow_and_not_by_deny(operation: AclOperation) -> None:
    made = authorizer(("t", LITERAL, allow("User:alice", operation)))
    assert made.allows(ALICE, HOST, DESCRIBE, TOPIC, "t")
    reader = authorizer(
        ("t", LITERAL, allow("User:alice", WRITE)), ("t", LITERAL, deny("User:alice", READ))
    )
    assert reader.allows(ALICE, HOST, DESCRIBE, TOPIC, "t")
    stopped = authorizer(
        ("t", LITERAL, allow("User:alice", operation)),
        ("t", LITERAL, deny("User:alice", DESCRIBE)),
    )
    assert not stopped.allows(ALICE, HOST, DESCRIBE, TOPIC, "t")


def test_describe_configs_is_implied_by_alter_configs_only() -> None:
    for operation, expected in ((AclOperation.ALTER_CONFIGS, True), (AclOperation.ALTER, False)):
        made = authorizer(("t", LITERAL, allow("User:alice", operation)))
        assert made.allows(ALICE, HOST, AclOperation.DESCRIBE_CONFIGS, TOPIC, "t") is expected


def test_a_change_is_seen_at_once() -> None:
    made = authorizer(("o", PREFIXED, allow("User:alice")))
    assert made.allows(ALICE, HOST, READ, TOPIC, "orders")
    made.update(ResourcePattern(TOPIC, "o", PREFIXED), ())
    assert not made.allows(ALICE, HOST, READ, TOPIC, "orders")
    made.replace({ResourcePattern(TOPIC, "orders"): {allow("User:alice")}})
    assert made.allows(ALICE, HOST, READ, TOPIC, "orders")
    made.replace({})
    assert not made.allows(ALICE, HOST, READ, TOPIC, "orders")
    assert not made.entries


def test_names_that_clients_invent_do_not_grow_the_cache_without_bound() -> None:
    made = Authorizer()
    for number in range(DECISIONS_MAX + 10):
        made.allows(ALICE, HOST, READ, TOPIC, str(number))
    assert len(made._decisions) <= DECISIONS_MAX


def test_long_names_are_decided_and_not_remembered() -> None:
    """A client may name topics and groups of 32 KB: a hundred thousand of them are 3 GB."""
    made = authorizer(("a", PREFIXED, allow("User:alice", READ)))
    before = len(made._decisions)
    assert made.allows(ALICE, HOST, READ, TOPIC, "a" * 32_000)
    assert not made.allows(ALICE, HOST, READ, TOPIC, "b" * 32_000)
    assert len(made._decisions) == before


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], False),
        ([("t", LITERAL, allow("User:alice", WRITE))], True),
        ([("t", LITERAL, allow("User:alice", READ))], False),
        ([("t", LITERAL, allow("User:bob", WRITE))], False),
        (
            [("t", LITERAL, allow("User:alice", WRITE)), ("t", LITERAL, deny("User:*", WRITE))],
            False,
        ),
        (
            [("tx", LITERAL, allow("User:alice", WRITE)), ("t", PREFIXED, deny("User:*", WRITE))],
            False,
        ),
        (
            [("t", LITERAL, allow("User:alice", WRITE)), ("tx", PREFIXED, deny("User:*", WRITE))],
            True,
        ),
        (
            [("t", PREFIXED, allow("User:alice", WRITE)), ("t", LITERAL, deny("User:*", WRITE))],
            True,
        ),
        (
            [("t", PREFIXED, allow("User:alice", WRITE)), ("t", PREFIXED, deny("User:*", WRITE))],
            False,
        ),
        (
            [("*", LITERAL, allow("User:*", AclOperation.ALL)), ("t", PREFIXED, deny("User:*"))],
            True,
        ),
        (
            [("*", LITERAL, deny("User:*", WRITE)), ("t", LITERAL, allow("User:alice", WRITE))],
            False,
        ),
    ],
)
def test_write_on_any_topic(rules: list[tuple[str, PatternType, AclEntry]], expected: bool) -> None:
    made = authorizer(*rules)
    assert made.allows_by_type(ALICE, HOST, WRITE, TOPIC) is expected
    assert made.allows_by_type(Principal("root"), HOST, WRITE, TOPIC)


def test_write_on_any_topic_is_decided_once_until_acls_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It looks at every ACL, and each InitProducerId asks, of users without permission too."""
    made = authorizer(("t", LITERAL, allow("User:bob", WRITE)))
    asked: list[Principal] = []
    decide = made._decide_by_type

    def counted(principal: Principal, *what: Any) -> bool:
        asked.append(principal)
        return decide(principal, *what)

    monkeypatch.setattr(made, "_decide_by_type", counted)
    for _ in range(3):
        assert not made.allows_by_type(ALICE, HOST, WRITE, TOPIC)
        assert made.allows_by_type(BOB, HOST, WRITE, TOPIC)
    assert asked == [ALICE, BOB]
    made.update(ResourcePattern(TOPIC, "t"), {allow("User:alice", WRITE)})
    assert made.allows_by_type(ALICE, HOST, WRITE, TOPIC)
    assert not made.allows_by_type(BOB, HOST, WRITE, TOPIC)


def test_authorized_operations_are_bits() -> None:
    assert authorized_operations(None, ANONYMOUS, HOST, TOPIC, "t") == 3576
    assert authorized_operations(None, ANONYMOUS, HOST, GROUP, "g") == 328
    assert authorized_operations(None, ANONYMOUS, HOST, CLUSTER, CLUSTER_NAME) == 8096
    made = authorizer(("t", LITERAL, allow("User:alice", READ)))
    assert authorized_operations(made, ALICE, HOST, TOPIC, "t") == 1 << READ | 1 << DESCRIBE
    assert authorized_operations(made, BOB, HOST, TOPIC, "t") == 0


def test_decisions_agree_with_the_rules_read_one_by_one() -> None:
    """The oracle walks all entries; the authorizer looks names and prefixes up."""
    rng = random.Random(7)
    names = ["*", "a", "ab", "abc", "b"]
    for _ in range(300):
        rules = [
            (
                rng.choice(names),
                rng.choice([LITERAL, PREFIXED]),
                AclEntry(
                    rng.choice(["User:alice", "User:bob", "User:*"]),
                    rng.choice([ALLOW, ALLOW, DENY]),
                    rng.choice([READ, WRITE, DESCRIBE, AclOperation.ALL]),
                    rng.choice(["*", HOST, "10.0.0.2"]),
                ),
            )
            for _ in range(rng.randrange(5))
        ]
        made = authorizer(*rules)
        for name in names:
            for operation in (READ, WRITE, DESCRIBE):
                assert made.allows(ALICE, HOST, operation, TOPIC, name) == oracle(
                    rules, operation, name
                ), (rules, operation, name)


def oracle(
    rules: list[tuple[str, PatternType, AclEntry]], operation: AclOperation, name: str
) -> bool:
    matching = [
        entry
        for pattern_name, pattern, entry in rules
        if (pattern is LITERAL and pattern_name in (name, "*"))
        or (pattern is PREFIXED and name.startswith(pattern_name))
    ]
    mine = [
        entry
        for entry in matching
        if entry.principal in ("User:alice", "User:*") and entry.host in (HOST, "*")
    ]
    if any(e.permission is DENY and e.operation in (operation, AclOperation.ALL) for e in mine):
        return False
    implied = {operation, AclOperation.ALL}
    if operation is DESCRIBE:
        implied |= {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}
    return any(e.permission is ALLOW and e.operation in implied for e in mine)
