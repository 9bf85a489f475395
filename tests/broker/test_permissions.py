"""Every API with no permission, with the ones it asks for, and with a DENY: over the wire.

docs/spec/security.md, section 4.5. A case lists what an API asks for, in the order in which it is
refused. Without any permission the first refusal is seen; each one that is granted makes the next
visible; with all of them none is; and a DENY of any brings its refusal back.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.broker.clusters import Cluster, batch_of, cluster

from odradek.broker.acl_follower import AclFollower
from odradek.broker.authorization import AUTHORIZATION, Free
from odradek.broker.handlers import HANDLERS, served_versions
from odradek.security.acls import (
    CLUSTER_NAME,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.client import ClientSecurity
from odradek.security.jaas import Module, jaas_text
from odradek.wire.api import APIS, ApiKey
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.schema import Message, Request, Struct

K, Op, T = ApiKey, AclOperation, ResourceType
USER = "User:alice"
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    # Control requests are taken on the inter-broker listener only, so that is the one to test.
    "inter_broker_listener_name": "SASL_PLAINTEXT",
    "sasl_mechanism_inter_broker_protocol": "PLAIN",
    "sasl_enabled_mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas_text(
        Module.PLAIN, username="broker", password="y", user_broker="y", user_alice="x"
    ),
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS;User:broker",
}
# A coordinator that has just been made; not what is to be seen here.
LOADING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
EVERY_ACL = AclFilter(T.ANY, None, PatternType.ANY, None, None, Op.ANY, AclPermission.ANY)


class Need(NamedTuple):
    operation: AclOperation
    type: ResourceType
    name: str
    error: ErrorCode


def topic(operation: AclOperation, name: str = "t") -> Need:
    return Need(operation, T.TOPIC, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def group(operation: AclOperation) -> Need:
    return Need(operation, T.GROUP, "g", ErrorCode.GROUP_AUTHORIZATION_FAILED)


def transaction(operation: AclOperation) -> Need:
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return Need(operation, T.TRANSACTIONAL_ID, "x", code)


def on_cluster(
    operation: AclOperation, error: ErrorCode = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
) -> Need:
    return Need(operation, T.CLUSTER, CLUSTER_NAME, error)


class Case(NamedTuple):
    key: ApiKey
    needs: list[Need]
    fields: Mapping[str, Any] = MappingProxyType({})
    version: int | None = None

    @property
    def served_version(self) -> int:
        return served_versions(self.key)[-1] if self.version is None else self.version

    def request(self) -> Request[Message]:
        request = build(APIS[self.key].request, self.fields)
        assert isinstance(request, Request)
        return request


def build(kind: type[Any], fields: Mapping[str, Any]) -> Any:
    """A message from plain dictionaries: a list of them is a list of its structs."""
    structs = {
        name: inner
        for name, inner in vars(__import__(kind.__module__, fromlist=["x"])).items()
        if isinstance(inner, type) and issubclass(inner, Struct)
    }
    values = {}
    for name, value in fields.items():
        if callable(value):
            value = value()
        if isinstance(value, list) and value and isinstance(value[0], dict):
            annotation = str(kind.__annotations__[name])
            inner = structs[annotation.partition("list[")[2].partition("]")[0]]
            value = [build(inner, each) for each in value]
        values[name] = value
    return kind(**values)


def resource(type_: int, name: str) -> dict[str, Any]:
    return {"resources": [{"resource_type": type_, "resource_name": name, "configs": []}]}


def described(type_: int, name: str) -> dict[str, Any]:
    return {"resources": [{"resource_type": type_, "resource_name": name}]}


PRODUCE = {
    "acks": -1,
    "timeout_ms": 1000,
    "topic_data": [
        {"name": "t", "partition_data": [{"index": 0, "records": lambda: batch_of(b"v")}]}
    ],
}
FETCH = {
    "max_wait_ms": 0,
    "topics": [{"topic": "t", "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}],
}
EPOCHS = {"topics": [{"topic": "t", "partitions": [{"partition": 0, "leader_epoch": 0}]}]}
OFFSETS = {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}
ACL_FILTER = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1}
ANY_ACL = {**ACL_FILTER, "permission_type": 1, "resource_name_filter": "nothing"}
ANY_ACL |= {"principal_filter": None, "host_filter": None}
ACL = {"resource_type": 2, "resource_name": "other", "resource_pattern_type": 3}
ACL |= {"principal": "User:bob", "host": "*", "operation": 3, "permission_type": 3}
QUOTA = {"entity": [{"entity_type": "user", "entity_name": "bob"}], "ops": []}
TOPICS_OF_T = {"topics": [{"name": "t", "partition_indexes": [0]}]}

CASES = [
    Case(K.PRODUCE, [topic(Op.WRITE)], PRODUCE),
    Case(
        K.PRODUCE,
        [transaction(Op.WRITE), topic(Op.WRITE)],
        {**PRODUCE, "transactional_id": "x"},
    ),
    Case(K.FETCH, [topic(Op.READ)], FETCH, 11),
    Case(
        K.FETCH,
        [on_cluster(Op.CLUSTER_ACTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)],
        {**FETCH, "replica_id": 2},
        11,
    ),
    Case(
        K.LIST_OFFSETS,
        [topic(Op.DESCRIBE)],
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
    ),
    Case(K.METADATA, [topic(Op.DESCRIBE)], {"topics": [{"name": "t"}]}, 9),
    Case(K.LEADER_AND_ISR, [on_cluster(Op.CLUSTER_ACTION)], {"controller_id": 9}, 4),
    Case(K.STOP_REPLICA, [on_cluster(Op.CLUSTER_ACTION)], {"controller_id": 9}, 3),
    Case(K.UPDATE_METADATA, [on_cluster(Op.CLUSTER_ACTION)], {"controller_id": 9}, 6),
    Case(K.CONTROLLED_SHUTDOWN, [on_cluster(Op.CLUSTER_ACTION)], {"broker_id": 9}),
    Case(K.ALTER_PARTITION, [on_cluster(Op.CLUSTER_ACTION)], {"broker_id": 9}, 3),
    Case(K.ALLOCATE_PRODUCER_IDS, [on_cluster(Op.CLUSTER_ACTION)], {"broker_id": 9}, 0),
    Case(K.OFFSET_COMMIT, [group(Op.READ), topic(Op.READ)], OFFSETS),
    Case(
        K.OFFSET_FETCH,
        [group(Op.DESCRIBE), topic(Op.DESCRIBE)],
        {"groups": [{"group_id": "g", "topics": TOPICS_OF_T["topics"]}]},
    ),
    Case(
        K.OFFSET_FETCH,
        [group(Op.DESCRIBE), topic(Op.DESCRIBE)],
        {"group_id": "g", **TOPICS_OF_T},
        7,
    ),
    Case(K.FIND_COORDINATOR, [group(Op.DESCRIBE)], {"coordinator_keys": ["g"]}, 4),
    Case(K.FIND_COORDINATOR, [group(Op.DESCRIBE)], {"key": "g"}, 3),
    Case(
        K.FIND_COORDINATOR,
        [transaction(Op.DESCRIBE)],
        {"coordinator_keys": ["x"], "key_type": 1},
        4,
    ),
    Case(
        K.JOIN_GROUP,
        [group(Op.READ)],
        {"group_id": "g", "session_timeout_ms": 10_000, "member_id": "stranger"},
    ),
    Case(K.HEARTBEAT, [group(Op.READ)], {"group_id": "g"}),
    Case(K.LEAVE_GROUP, [group(Op.READ)], {"group_id": "g"}),
    Case(K.SYNC_GROUP, [group(Op.READ)], {"group_id": "g"}, 3),
    Case(K.DESCRIBE_GROUPS, [group(Op.DESCRIBE)], {"groups": ["g"]}),
    Case(
        K.CREATE_TOPICS,
        [topic(Op.CREATE, "new")],
        {"topics": [{"name": "new", "num_partitions": 0, "replication_factor": 1}]},
        4,
    ),
    Case(K.DELETE_TOPICS, [topic(Op.DELETE, "absent")], {"topic_names": ["absent"]}, 5),
    Case(K.DELETE_TOPICS, [topic(Op.DELETE, "absent")], {"topics": [{"name": "absent"}]}, 6),
    Case(
        K.DELETE_RECORDS,
        [topic(Op.DELETE)],
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0}]}], "timeout_ms": 1000},
    ),
    Case(K.INIT_PRODUCER_ID, [transaction(Op.WRITE)], {"transactional_id": "x"}),
    Case(K.INIT_PRODUCER_ID, [on_cluster(Op.IDEMPOTENT_WRITE)], {"transactional_id": None}),
    Case(
        K.ADD_PARTITIONS_TO_TXN,
        [transaction(Op.WRITE), topic(Op.WRITE)],
        {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
        },
        3,
    ),
    Case(
        K.ADD_PARTITIONS_TO_TXN,
        [on_cluster(Op.CLUSTER_ACTION)],
        {"transactions": [{"transactional_id": "x", "topics": [{"name": "t"}]}]},
        4,
    ),
    Case(
        K.ADD_OFFSETS_TO_TXN,
        [transaction(Op.WRITE), group(Op.READ)],
        {"transactional_id": "x", "group_id": "g"},
    ),
    Case(K.END_TXN, [transaction(Op.WRITE)], {"transactional_id": "x"}),
    Case(
        K.WRITE_TXN_MARKERS,
        [on_cluster(Op.ALTER)],
        {"markers": [{"producer_id": 1, "topics": [{"name": "t", "partition_indexes": [9]}]}]},
    ),
    Case(
        K.TXN_OFFSET_COMMIT,
        [transaction(Op.WRITE), group(Op.READ), topic(Op.READ)],
        {"transactional_id": "x", **OFFSETS},
    ),
    Case(K.DESCRIBE_TRANSACTIONS, [transaction(Op.DESCRIBE)], {"transactional_ids": ["x"]}),
    Case(K.OFFSET_FOR_LEADER_EPOCH, [topic(Op.DESCRIBE)], EPOCHS),
    Case(K.DESCRIBE_ACLS, [on_cluster(Op.DESCRIBE)], ANY_ACL),
    Case(K.CREATE_ACLS, [on_cluster(Op.ALTER)], {"creations": [ACL]}),
    Case(K.DELETE_ACLS, [on_cluster(Op.ALTER)], {"filters": [ANY_ACL]}),
    Case(K.DESCRIBE_CONFIGS, [topic(Op.DESCRIBE_CONFIGS)], described(2, "t")),
    Case(K.DESCRIBE_CONFIGS, [on_cluster(Op.DESCRIBE_CONFIGS)], described(4, "1")),
    Case(K.ALTER_CONFIGS, [topic(Op.ALTER_CONFIGS)], resource(2, "t")),
    Case(K.ALTER_CONFIGS, [on_cluster(Op.ALTER_CONFIGS)], resource(4, "1")),
    Case(K.INCREMENTAL_ALTER_CONFIGS, [topic(Op.ALTER_CONFIGS)], resource(2, "t")),
    Case(K.INCREMENTAL_ALTER_CONFIGS, [on_cluster(Op.ALTER_CONFIGS)], resource(4, "1")),
    Case(
        K.ALTER_REPLICA_LOG_DIRS,
        [on_cluster(Op.ALTER)],
        {"dirs": [{"path": "/nowhere", "topics": [{"name": "t", "partitions": [0]}]}]},
    ),
    Case(K.DESCRIBE_LOG_DIRS, [on_cluster(Op.DESCRIBE)], {"topics": None}),
    Case(
        K.CREATE_PARTITIONS,
        [topic(Op.ALTER)],
        {"topics": [{"name": "t", "count": 2, "assignments": None}], "validate_only": True},
    ),
    Case(K.DELETE_GROUPS, [group(Op.DELETE)], {"groups_names": ["g"]}),
    Case(
        K.ELECT_LEADERS,
        [on_cluster(Op.ALTER)],
        {"topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout_ms": 1000},
    ),
    Case(K.ALTER_PARTITION_REASSIGNMENTS, [on_cluster(Op.ALTER)], {"timeout_ms": 1000}),
    Case(K.LIST_PARTITION_REASSIGNMENTS, [on_cluster(Op.DESCRIBE)], {"topics": None}),
    Case(K.OFFSET_DELETE, [group(Op.DELETE), topic(Op.READ)], OFFSETS),
    Case(K.DESCRIBE_CLIENT_QUOTAS, [on_cluster(Op.DESCRIBE_CONFIGS)]),
    Case(K.ALTER_CLIENT_QUOTAS, [on_cluster(Op.ALTER_CONFIGS)], {"entries": [QUOTA]}),
    Case(K.DESCRIBE_USER_SCRAM_CREDENTIALS, [on_cluster(Op.DESCRIBE)], {"users": None}),
    Case(
        K.ALTER_USER_SCRAM_CREDENTIALS,
        [on_cluster(Op.ALTER)],
        {"deletions": [{"name": "nobody", "mechanism": 1}]},
    ),
    Case(
        K.DESCRIBE_PRODUCERS,
        [topic(Op.READ)],
        TOPICS_OF_T,
    ),
]
# What a listing shows is filtered, without an error: test_security.py.
FILTERED = {K.LIST_GROUPS, K.LIST_TRANSACTIONS}
# How a client logged in counts, too: test_delegation_tokens.py.
TOKENS = {
    K.CREATE_DELEGATION_TOKEN,
    K.RENEW_DELEGATION_TOKEN,
    K.EXPIRE_DELEGATION_TOKEN,
    K.DESCRIBE_DELEGATION_TOKEN,
}


def test_every_row_of_the_table_has_a_case() -> None:
    asked = {ApiKey(key) for key in HANDLERS if not isinstance(AUTHORIZATION[ApiKey(key)], Free)}
    assert asked - FILTERED - TOKENS - {case.key for case in CASES} == set()


async def test_each_api_asks_for_its_permissions(tmp_path: Path) -> None:
    """All of them on one broker, one after the other, each without the permissions before it."""
    async with cluster(tmp_path, 1, **SETTINGS) as made:
        await made.create_topic("t")
        await find_coordinator(made)
        acls = made.brokers[1].followers.acls
        assert acls is not None
        port = next(
            each.port for each in made.brokers[1].endpoints if each.listener == "SASL_PLAINTEXT"
        )
        for case in CASES:
            alice = await log_in(port)
            await check_case(case, alice, acls)
            await acls.remove([EVERY_ACL])
            alice.close()


async def test_log_directories_are_not_shown_where_the_error_has_no_place(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, **SETTINGS) as made:
        port = next(
            each.port for each in made.brokers[1].endpoints if each.listener == "SASL_PLAINTEXT"
        )
        alice = await log_in(port)
        for version in range(3):
            response = await alice.request(DescribeLogDirsRequest(topics=None), version)
            assert response.results == []
        alice.close()


async def check_case(case: Case, alice: Connection, acls: AclFollower) -> None:
    types = {need.type for need in case.needs}
    has_coordinator = T.GROUP in types and T.TRANSACTIONAL_ID not in types
    where = f"{case.key.name} v{case.served_version}"

    async def seen() -> set[int]:
        while True:
            response = await alice.request(case.request(), case.served_version)
            codes = set(errors_of(response))
            if not (has_coordinator and codes & LOADING):
                return codes
            await asyncio.sleep(0)

    for need in case.needs:
        assert need.error in await seen(), f"{where} without {need}"
        assert not await acls.add(binding(need, ALLOW))
    refusals = {need.error for need in case.needs}
    assert not refusals & await seen(), f"{where} with all of them"
    for need in case.needs:
        assert not await acls.add(binding(need, DENY))
        assert need.error in await seen(), f"{where} denied {need}"
        await acls.remove([only(need, DENY)])
    assert not refusals & await seen(), f"{where}: nothing is denied any more"


async def find_coordinator(made: Cluster) -> None:
    """Creates the offsets topic, as the super user."""
    port = next(each.port for each in made.brokers[1].endpoints if each.listener == "PLAINTEXT")
    connection = await Connection.open("127.0.0.1", port, timeout=60)
    response = await connection.request(FindCoordinatorRequest(key="g"), 3)
    while response.error_code:
        response = await connection.request(FindCoordinatorRequest(key="g"), 3)
    connection.close()


def binding(need: Need, permission: AclPermission) -> dict[ResourcePattern, list[AclEntry]]:
    entry = AclEntry(USER, permission, need.operation)
    return {ResourcePattern(need.type, need.name): [entry]}


def only(need: Need, permission: AclPermission) -> AclFilter:
    return AclFilter(
        need.type, need.name, PatternType.LITERAL, USER, "*", need.operation, permission
    )


async def log_in(port: int) -> Connection:
    security = ClientSecurity.read(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "x",
        },
        read_file=lambda path: b"",
        now_ms=lambda: 0,
    )
    return await Connection.open("127.0.0.1", port, timeout=60, security=security)


def errors_of(value: object) -> Iterator[int]:
    """Every error code in a response."""
    if isinstance(value, list):
        for each in value:
            yield from errors_of(each)
    elif isinstance(value, Struct | Message):
        for name in value.FIELDS:
            inner = getattr(value, name)
            if name.endswith("error_code"):
                yield inner
            else:
                yield from errors_of(inner)
