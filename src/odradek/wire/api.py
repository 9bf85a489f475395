"""Every API this project speaks: its number, its messages, and the versions a broker serves.

The messages themselves may know more versions than are served. Produce is served from v0 because
librdkafka reads that as leave to compress. docs/spec/controller-and-replication.md, section 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import NamedTuple

from .schema import NEVER, Message


class ApiKey(IntEnum):
    """Kafka's names and numbers."""

    __hash__ = int.__hash__  # that of enumerations is a call of Python's, some for each request

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    ALTER_PARTITION = 56
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67


class Api(NamedTuple):
    """One API, as a broker serves it. Its messages are imported on first use."""

    key: ApiKey
    name: str
    module: str
    min_version: int
    max_version: int
    flexible_from: int

    @property
    def request(self) -> type[Message]:
        return _message(self.module, self.name + "Request")

    @property
    def response(self) -> type[Message]:
        return _message(self.module, self.name + "Response")


@cache
def _message(module: str, name: str) -> type[Message]:
    message: type[Message] = getattr(import_module(f".messages.{module}", __package__), name)
    return message


def _api(module: str, min_version: int, max_version: int, flexible_from: int) -> Api:
    name = "".join(word.capitalize() for word in module.split("_"))
    return Api(ApiKey[module.upper()], name, module, min_version, max_version, flexible_from)


APIS: Mapping[int, Api] = {
    api.key: api
    for api in (
        _api("produce", 0, 11, 9),
        _api("fetch", 0, 17, 12),
        _api("list_offsets", 0, 9, 6),
        _api("metadata", 0, 12, 9),
        _api("leader_and_isr", 0, 7, 4),
        _api("stop_replica", 0, 4, 2),
        _api("update_metadata", 0, 8, 6),
        _api("controlled_shutdown", 0, 3, 3),
        _api("offset_commit", 0, 9, 8),
        _api("offset_fetch", 0, 9, 6),
        _api("find_coordinator", 0, 6, 3),
        _api("join_group", 0, 9, 6),
        _api("heartbeat", 0, 4, 4),
        _api("leave_group", 0, 5, 4),
        _api("sync_group", 0, 5, 4),
        _api("describe_groups", 0, 5, 5),
        _api("list_groups", 0, 5, 3),
        _api("sasl_handshake", 0, 1, NEVER),
        _api("api_versions", 0, 4, 3),
        _api("create_topics", 0, 7, 5),
        _api("delete_topics", 0, 6, 4),
        _api("delete_records", 0, 2, 2),
        _api("init_producer_id", 0, 5, 2),
        _api("offset_for_leader_epoch", 0, 4, 4),
        _api("add_partitions_to_txn", 0, 5, 3),
        _api("add_offsets_to_txn", 0, 4, 3),
        _api("end_txn", 0, 4, 3),
        _api("write_txn_markers", 0, 1, 1),
        _api("txn_offset_commit", 0, 4, 3),
        _api("describe_acls", 0, 3, 2),
        _api("create_acls", 0, 3, 2),
        _api("delete_acls", 0, 3, 2),
        _api("describe_configs", 0, 4, 4),
        _api("alter_configs", 0, 2, 2),
        _api("alter_replica_log_dirs", 0, 2, 2),
        _api("describe_log_dirs", 0, 4, 2),
        _api("sasl_authenticate", 0, 2, 2),
        _api("create_partitions", 0, 3, 2),
        _api("create_delegation_token", 0, 3, 2),
        _api("renew_delegation_token", 0, 2, 2),
        _api("expire_delegation_token", 0, 2, 2),
        _api("describe_delegation_token", 0, 3, 2),
        _api("delete_groups", 0, 2, 2),
        _api("elect_leaders", 0, 2, 2),
        _api("incremental_alter_configs", 0, 1, 1),
        _api("alter_partition_reassignments", 0, 0, 0),
        _api("list_partition_reassignments", 0, 0, 0),
        _api("offset_delete", 0, 0, NEVER),
        _api("describe_client_quotas", 0, 1, 1),
        _api("alter_client_quotas", 0, 1, 1),
        _api("describe_user_scram_credentials", 0, 0, 0),
        _api("alter_user_scram_credentials", 0, 0, 0),
        _api("alter_partition", 0, 3, 0),
        _api("describe_cluster", 0, 1, 0),
        _api("describe_producers", 0, 0, 0),
        _api("describe_transactions", 0, 0, 0),
        _api("list_transactions", 0, 1, 0),
        _api("allocate_producer_ids", 0, 0, 0),
    )
}
