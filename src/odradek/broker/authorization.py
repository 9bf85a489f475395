"""What each API asks of an authorizer: one table, applied by the router before a handler runs.

docs/spec/security.md, section 4.5. A handler cannot forget to ask, because it is not asked: the
router rejects the whole request, or takes the items that are not allowed out of it and puts their
refusals into the handler's response. Both kinds of refusal are made from the schemas
(`wire/refusal.py`). An API without a row here fails a test.

| row | meaning |
|---|---|
| `Whole` | one question for the request; refused: the error, wherever the response has a place |
| `Each` | one question for each item of an array; refused items get the error, the others run |
| `InHandler` | the handler asks through its context, because the answer shapes the response |
| `Free` | nothing is asked, for the reason given |

Permission comes before existence: a refusal does not tell whether the thing exists.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from odradek.security.acls import (
    CLUSTER_NAME,
    AclOperation,
    Authorizer,
    ResourceType,
    authorized_operations,
)
from odradek.security.principal import Principal
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.refusal import refusal
from odradek.wire.reply import Reply
from odradek.wire.schema import Message

__all__ = ["AUTHORIZATION", "Each", "Free", "InHandler", "Permissions", "Whole", "authorized"]

_T, _O = ResourceType, AclOperation

ERRORS: Mapping[ResourceType, ErrorCode] = {
    _T.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    _T.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    _T.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    _T.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    _T.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    _T.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Permissions(NamedTuple):
    """What one connection may do. Without an authorizer that is everything."""

    authorizer: Authorizer | None
    principal: Principal
    host: str

    def allows(
        self, operation: AclOperation, type_: ResourceType, name: str = CLUSTER_NAME
    ) -> bool:
        """For listings, which leave out what is not allowed without a word."""
        if self.authorizer is None:
            return True
        return self.authorizer.allows(self.principal, self.host, operation, type_, name)

    def check(
        self, operation: AclOperation, type_: ResourceType, name: str = CLUSTER_NAME
    ) -> KafkaError | None:
        """For what a client named: the error, which is logged, or None."""
        if self.allows(operation, type_, name):
            return None
        assert self.authorizer is not None  # it has refused
        self.authorizer.refusals.add(
            self.principal, f"{operation.name} on {type_.name}:{name}", self.host
        )
        return KafkaError(ERRORS[type_])

    def operations(self, type_: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The bit field of what is allowed on a resource."""
        return authorized_operations(self.authorizer, self.principal, self.host, type_, name)

    def allows_on_any(self, operation: AclOperation, type_: ResourceType) -> bool:
        if self.authorizer is None:
            return True
        return self.authorizer.allows_by_type(self.principal, self.host, operation, type_)


Resource: TypeAlias = tuple[AclOperation, ResourceType, str]


@dataclass(frozen=True)
class Whole:
    """`field` names the resource; without one it is the cluster. A null name asks nothing."""

    operation: AclOperation
    type: ResourceType = _T.CLUSTER
    field: str | None = None

    def refused(self, request: Message, may: Permissions) -> KafkaError | None:
        name = CLUSTER_NAME if self.field is None else getattr(request, self.field)
        return None if name is None else may.check(self.operation, self.type, name)


@dataclass(frozen=True)
class Each:
    """Items of `array`; `name` is the field that names one, None where the item is the name.

    `resource` says what an item asks for where its kind differs from item to item. Who has `unless`
    on the cluster is asked nothing.
    """

    array: str
    operation: AclOperation
    type: ResourceType = _T.TOPIC
    name: str | None = "name"
    unless: AclOperation | None = None
    resource: Callable[[Any, AclOperation], Resource] | None = None

    def split(self, request: Message, may: Permissions) -> dict[ErrorCode, Message]:
        """Takes what is refused out of the request; requests with the refused items, by error."""
        if self.unless is not None and may.allows(self.unless, _T.CLUSTER):
            return {}
        # Nearly always all of them are allowed: nothing is built to find that out.
        for item in getattr(request, self.array) or ():
            if not may.allows(*self._resource(item)):
                break
        else:
            return {}
        allowed: list[object] = []
        refused: dict[ErrorCode, list[object]] = {}
        known: dict[Resource, KafkaError | None] = {}
        for item in getattr(request, self.array) or ():
            asked = self._resource(item)
            if asked not in known:
                known[asked] = may.check(*asked)
            error = known[asked]
            if error is None:
                allowed.append(item)
            else:
                refused.setdefault(error.error, []).append(item)
        if not refused:
            return {}
        parts = {}
        for code, items in refused.items():
            part = copy.copy(request)
            setattr(part, self.array, items)
            parts[code] = part
        setattr(request, self.array, allowed)
        return parts

    def _resource(self, item: Any) -> Resource:
        if self.resource is not None:
            return self.resource(item, self.operation)
        return self.operation, self.type, item if self.name is None else getattr(item, self.name)


@dataclass(frozen=True)
class InHandler:
    asks: str


@dataclass(frozen=True)
class Free:
    reason: str


Row: TypeAlias = tuple[Whole | Each, ...] | InHandler | Free

TOPIC_RESOURCE = 2


def _config_resource(item: Any, operation: AclOperation) -> Resource:
    """Settings of a topic, or of brokers and their loggers, which are the cluster's."""
    if item.resource_type == TOPIC_RESOURCE:
        return operation, _T.TOPIC, item.resource_name
    return operation, _T.CLUSTER, CLUSTER_NAME


_CLUSTER_ACTION = (Whole(_O.CLUSTER_ACTION),)
_GROUP_READ = (Whole(_O.READ, _T.GROUP, "group_id"),)
_TRANSACTION_WRITE = (Whole(_O.WRITE, _T.TRANSACTIONAL_ID, "transactional_id"),)

AUTHORIZATION: Mapping[ApiKey, Row] = {
    ApiKey.PRODUCE: (
        Whole(_O.WRITE, _T.TRANSACTIONAL_ID, "transactional_id"),
        Each("topic_data", _O.WRITE),
    ),
    ApiKey.FETCH: InHandler("ClusterAction for followers, else Read on each topic of the session"),
    ApiKey.LIST_OFFSETS: (Each("topics", _O.DESCRIBE),),
    ApiKey.METADATA: InHandler("Describe on each topic, Create for those to be created"),
    ApiKey.LEADER_AND_ISR: _CLUSTER_ACTION,
    ApiKey.STOP_REPLICA: _CLUSTER_ACTION,
    ApiKey.UPDATE_METADATA: _CLUSTER_ACTION,
    ApiKey.CONTROLLED_SHUTDOWN: _CLUSTER_ACTION,
    ApiKey.OFFSET_COMMIT: (*_GROUP_READ, Each("topics", _O.READ)),
    ApiKey.OFFSET_FETCH: InHandler("Describe on each group, then on each topic"),
    ApiKey.FIND_COORDINATOR: InHandler("Describe on each group or transactional id"),
    ApiKey.JOIN_GROUP: _GROUP_READ,
    ApiKey.HEARTBEAT: _GROUP_READ,
    ApiKey.LEAVE_GROUP: _GROUP_READ,
    ApiKey.SYNC_GROUP: _GROUP_READ,
    ApiKey.DESCRIBE_GROUPS: (Each("groups", _O.DESCRIBE, _T.GROUP, name=None),),
    ApiKey.LIST_GROUPS: InHandler("Describe on the cluster, else on each group it shows"),
    ApiKey.SASL_HANDSHAKE: Free("before the login"),
    ApiKey.SASL_AUTHENTICATE: Free("the login itself"),
    ApiKey.API_VERSIONS: Free("before the login"),
    ApiKey.CREATE_TOPICS: (Each("topics", _O.CREATE, unless=_O.CREATE),),
    ApiKey.DELETE_TOPICS: InHandler("Delete on each topic, by id also Describe"),
    ApiKey.DELETE_RECORDS: (Each("topics", _O.DELETE),),
    ApiKey.INIT_PRODUCER_ID: InHandler("Write on the transactional id, or on any topic"),
    ApiKey.ADD_PARTITIONS_TO_TXN: InHandler(
        "Write on the transactional id and each topic; ClusterAction for leaders"
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (*_TRANSACTION_WRITE, *_GROUP_READ),
    ApiKey.END_TXN: _TRANSACTION_WRITE,
    ApiKey.WRITE_TXN_MARKERS: InHandler("Alter or ClusterAction on the cluster"),
    ApiKey.TXN_OFFSET_COMMIT: (*_TRANSACTION_WRITE, *_GROUP_READ, Each("topics", _O.READ)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Each("topics", _O.DESCRIBE, name="topic", unless=_O.CLUSTER_ACTION),
    ),
    ApiKey.DESCRIBE_ACLS: (Whole(_O.DESCRIBE),),
    ApiKey.CREATE_ACLS: (Whole(_O.ALTER),),
    ApiKey.DELETE_ACLS: (Whole(_O.ALTER),),
    ApiKey.DESCRIBE_CONFIGS: (Each("resources", _O.DESCRIBE_CONFIGS, resource=_config_resource),),
    ApiKey.ALTER_CONFIGS: (Each("resources", _O.ALTER_CONFIGS, resource=_config_resource),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        Each("resources", _O.ALTER_CONFIGS, resource=_config_resource),
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (Whole(_O.ALTER),),
    ApiKey.DESCRIBE_LOG_DIRS: (Whole(_O.DESCRIBE),),
    ApiKey.CREATE_PARTITIONS: (Each("topics", _O.ALTER),),
    ApiKey.CREATE_DELEGATION_TOKEN: InHandler("how the client logged in, and for whom it asks"),
    ApiKey.RENEW_DELEGATION_TOKEN: InHandler("how the client logged in; owner or renewer"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: InHandler("how the client logged in; owner or renewer"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: InHandler("how the client logged in; Describe on each"),
    ApiKey.DELETE_GROUPS: (Each("groups_names", _O.DELETE, _T.GROUP, name=None),),
    ApiKey.ELECT_LEADERS: (Whole(_O.ALTER),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (Whole(_O.ALTER),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (Whole(_O.DESCRIBE),),
    ApiKey.OFFSET_DELETE: (Whole(_O.DELETE, _T.GROUP, "group_id"), Each("topics", _O.READ)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (Whole(_O.DESCRIBE_CONFIGS),),
    ApiKey.ALTER_CLIENT_QUOTAS: (Whole(_O.ALTER_CONFIGS),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (Whole(_O.DESCRIBE),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (Whole(_O.ALTER),),
    ApiKey.ALTER_PARTITION: _CLUSTER_ACTION,
    ApiKey.DESCRIBE_CLUSTER: Free("brokers are always shown"),
    ApiKey.DESCRIBE_PRODUCERS: (Each("topics", _O.READ),),
    # Topics inside a transaction that the client may not describe are left out by the handler.
    ApiKey.DESCRIBE_TRANSACTIONS: (
        Each("transactional_ids", _O.DESCRIBE, _T.TRANSACTIONAL_ID, name=None),
    ),
    ApiKey.LIST_TRANSACTIONS: InHandler("Describe on each transactional id it shows"),
    ApiKey.ALLOCATE_PRODUCER_IDS: _CLUSTER_ACTION,
}
_ROWS: Mapping[int, Row] = {int(key): row for key, row in AUTHORIZATION.items()}
# Asked before the broker says that it is not the controller; for all others after.
BEFORE_CONTROLLER_CHECK = frozenset(
    {
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    }
)


class _Route(Protocol):
    """What the table needs to know of a route."""

    @property
    def key(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def response(self) -> type[Message]: ...


def authorized(
    route: _Route, request: Message, may: Permissions, handle: Callable[[], Reply[Message | None]]
) -> Reply[Message | None]:
    """Serves what is allowed of a request. Raises KafkaError if that is nothing at all."""
    row = _ROWS[route.key]
    if may.authorizer is None or not isinstance(row, tuple):
        return handle()
    refusals: list[Message] = []
    for rule in row:
        if isinstance(rule, Whole):
            error = rule.refused(request, may)
            if error is not None:
                raise error
            continue
        for code, part in rule.split(request, may).items():
            refused = None
            if getattr(request, "acks", None) != 0:
                refused = refusal(part, route.response, route.version, KafkaError(code))
            if refused is None:
                raise KafkaError(code)  # no place for it in the response: the connection is closed
            refusals.append(refused)
        if refusals and not getattr(request, rule.array):
            return Reply.now(_merged(refusals[0], refusals[1:]))
    if not refusals:
        return handle()
    return handle().map(lambda response: _merged(response, refusals))


def _merged(response: Message | None, refusals: list[Message]) -> Message | None:
    """The response with the refused items behind the others."""
    if response is not None:
        for refused in refusals:
            for name in response.FIELDS:
                items = getattr(refused, name)
                if isinstance(items, list) and items:
                    setattr(response, name, [*(getattr(response, name) or ()), *items])
    return response
