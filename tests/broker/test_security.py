"""A broker with every kind of listener: who gets in, and what they may do there."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from tests.broker.clusters import Cluster, cluster, until
from tests.broker.test_permissions import errors_of
from tests.broker.test_slices import COUNT, Turns
from tests.security.certificates import Authority, Identity, common_name

from odradek.broker.authentication import Authentication
from odradek.broker.authorization import AUTHORIZATION
from odradek.broker.config import BrokerConfig
from odradek.broker.connection import ClientConnection
from odradek.broker.handlers import HANDLERS
from odradek.broker.security import ACL_AUTHORIZER, BrokerSecurity
from odradek.broker.server import Broker
from odradek.broker.slices import SLICE
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
from odradek.security.scram import MECHANISMS, ScramCredential, salted_password
from odradek.store import paths, payloads
from odradek.store.cluster import ClusterStore
from odradek.store.memory import MemoryStore
from odradek.store.paths import ConfigKind
from odradek.wire.api import ApiKey
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_acls import DescribeAclsRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.wire.records import Record, encode_batch
from odradek.wire.schema import Message, Request

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
COORDINATOR_ERRORS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def server(authority: Authority) -> Identity:
    return authority.issue(common_name("broker"))


def secured(authority: Authority, server: Identity, **more: str) -> dict[str, str]:
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "ssl_keystore_type": "PEM",
        "ssl_keystore_key": server.key_pem,
        "ssl_keystore_certificate_chain": server.chain_pem,
        "ssl_truststore_type": "PEM",
        "ssl_truststore_certificates": authority.pem,
        "ssl_client_auth": "requested",
        "ssl_principal_mapping_rules": "RULE:^CN=(.*?)$/$1/L,DEFAULT",
        "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        **{
            f"listener.name.{name}.plain.sasl.jaas.config": (
                f'{PLAIN} required user_alice="hunter2" user_bob="x";'
            )
            for name in ("sasl_ssl", "sasl_plaintext")
        },
        **{
            f"listener.name.{name}.oauthbearer.sasl.jaas.config": f"{OAUTH} required;"
            for name in ("sasl_ssl", "sasl_plaintext")
        },
        **more,
    }


class Secured:
    """A cluster of one, and clients of every kind."""

    def __init__(self, made: Cluster, authority: Authority) -> None:
        self.made = made
        self.broker = made.brokers[1]
        self._authority = authority
        self._connections: list[Connection] = []

    def settings(self, listener: str, **more: str) -> dict[str, str]:
        settings = {"security.protocol": listener}
        if listener.endswith("SSL"):
            settings |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": self._authority.pem,
            }
        return settings | {name.replace("_", "."): value for name, value in more.items()}

    async def connect(self, listener: str, **more: str) -> Connection:
        security = ClientSecurity.read(
            self.settings(listener, **more),
            read_file=lambda path: Path(path).read_bytes(),
            now_ms=lambda: int(time.time() * 1000),
        )
        endpoint = next(each for each in self.broker.endpoints if each.listener == listener)
        connection = await Connection.open(
            endpoint.host, endpoint.port, client_id="test", timeout=60, security=security
        )
        self._connections.append(connection)
        return connection

    async def log_in(
        self, user: str, password: str, mechanism: str = "PLAIN", listener: str = "SASL_PLAINTEXT"
    ) -> Connection:
        module = PLAIN if mechanism == "PLAIN" else SCRAM
        jaas = f'{module} required username="{user}" password="{password}";'
        return await self.connect(listener, sasl_mechanism=mechanism, sasl_jaas_config=jaas)

    async def allow(
        self,
        name: str,
        operation: AclOperation,
        type_: ResourceType = TOPIC,
        permission: AclPermission = ALLOW,
        principal: str = "User:alice",
    ) -> None:
        assert self.broker.followers.acls is not None
        entry = AclEntry(principal, permission, operation, "*")
        assert not await self.broker.followers.acls.add(
            {ResourcePattern(type_, name, LITERAL): [entry]}
        )

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


@asynccontextmanager
async def running(
    path: Path, authority: Authority, server: Identity, **more: str
) -> AsyncIterator[Secured]:
    async with cluster(path, 1, **secured(authority, server, **more)) as made:
        clients = Secured(made, authority)
        try:
            yield clients
        finally:
            clients.close()


def other_end(connection: Connection, broker: Broker) -> ClientConnection:
    assert connection.transport is not None
    host, port = connection.transport.get_extra_info("sockname")
    return next(each for each in broker.connections._open if each.peer == f"{host}:{port}")


def login_of(connection: Connection, broker: Broker) -> Authentication:
    identity = other_end(connection, broker)._identity
    assert identity is not None
    assert identity._login is not None
    return identity._login


async def principal_of(connection: Connection, broker: Broker) -> str:
    """Whom the broker takes a connection for."""
    await connection.request(MetadataRequest(topics=[]), 9)
    return str(other_end(connection, broker).permissions.principal)


async def test_each_listener_lets_in_whom_it_should(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    async with running(tmp_path, authority, server) as clients:
        broker = clients.broker
        credential = ScramCredential.from_password(MECHANISMS["SCRAM-SHA-512"], "pw", b"salt" * 4)
        broker.security.credentials.update("carol", {"SCRAM-SHA-512": credential.encode()})
        duke = authority.issue(common_name("Duke"))
        certificate = {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_key": duke.key_pem,
            "ssl_keystore_certificate_chain": duke.chain_pem,
        }
        token = f'{OAUTH} required unsecuredLoginStringClaim_sub="dora";'
        known = {
            "User:ANONYMOUS": await clients.connect("PLAINTEXT"),
            "User:duke": await clients.connect("SSL", **certificate),
            "User:alice": await clients.log_in("alice", "hunter2", listener="SASL_SSL"),
            "User:bob": await clients.log_in("bob", "x"),
            "User:carol": await clients.log_in("carol", "pw", "SCRAM-SHA-512", "SASL_SSL"),
            "User:dora": await clients.connect(
                "SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_jaas_config=token
            ),
        }
        for principal, connection in known.items():
            assert await principal_of(connection, broker) == principal
        anonymous = await clients.connect("SSL")
        assert await principal_of(anonymous, broker) == "User:ANONYMOUS"


async def test_metadata_names_the_endpoints_of_its_listener(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    async with running(tmp_path, authority, server) as clients:
        ports = {each.listener: each.port for each in clients.broker.endpoints}
        assert len(set(ports.values())) == 4
        for listener in ("PLAINTEXT", "SSL"):
            connection = await clients.connect(listener)
            answer = await connection.request(MetadataRequest(topics=[]), 9)
            assert [each.port for each in answer.brokers] == [ports[listener]]


@pytest.mark.parametrize(
    ("user", "password", "mechanism"),
    [
        ("alice", "wrong", "PLAIN"),
        ("ghost", "x", "PLAIN"),
        ("ghost", "x", "SCRAM-SHA-256"),
    ],
)
async def test_a_wrong_login_is_refused_and_closed(
    tmp_path: Path, authority: Authority, server: Identity, user: str, password: str, mechanism: str
) -> None:
    async with running(tmp_path, authority, server) as clients:
        with pytest.raises(KafkaError) as raised:
            await clients.log_in(user, password, mechanism)
        assert raised.value.error is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert password not in str(raised.value)
        await clients.log_in("alice", "hunter2")


async def test_an_unverified_broker_is_not_talked_to(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    async with running(tmp_path, authority, server) as clients:
        clients._authority = Authority("another")
        with pytest.raises(ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            await clients.connect("SSL")


async def test_a_session_is_renewed_under_requests_and_ends_without(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    """Another login may begin a second after the last, so a session lasts a little longer."""
    async with running(tmp_path, authority, server, connections_max_reauth_ms="1200") as clients:
        renewing = await clients.log_in("alice", "hunter2", listener="SASL_SSL")
        silent = await clients.log_in("bob", "x")
        silent.on_lost()  # its renewal is cancelled, as if the client knew of none
        login = login_of(renewing, clients.broker)
        first_end = login.session_ends_ms
        while login.session_ends_ms == first_end:
            answers = [renewing.start(MetadataRequest(topics=[]), 9) for _ in range(5)]
            await asyncio.gather(*answers)
        await renewing.request(MetadataRequest(topics=[]), 9)
        await until(lambda: login_of(silent, clients.broker).is_expired)
        with pytest.raises(ConnectionError):
            await silent.request(MetadataRequest(topics=[]), 9)


AUTHORIZED = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}


@asynccontextmanager
async def authorizing(path: Path, authority: Authority, server: Identity) -> AsyncIterator[Secured]:
    """The inter-broker listener is plaintext here, so ANONYMOUS is the super user."""
    more = {**AUTHORIZED, "super_users": "User:ANONYMOUS"}
    async with running(path, authority, server, **more) as clients:
        await clients.made.create_topic("t")
        await clients.made.create_topic("other")
        yield clients


SASL_ONLY = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
}
SCRAM_JAAS = f'{SCRAM} required username="broker" password="hush";'
OF_SCRAM = "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config"


def security_of(**written: str) -> BrokerSecurity:
    settings = {"authorizer.class.name": ACL_AUTHORIZER, **written}
    return BrokerSecurity(
        BrokerConfig(settings),
        clock=lambda: 0,
        rng=Random(1),
        read_file=lambda path: b"",
        offload=lambda work: pytest.fail("nothing to do elsewhere"),
    )


def test_a_broker_that_others_would_refuse_is_warned(
    authority: Authority, server: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = {
        "listeners": "SSL://127.0.0.1:9092",
        "security.inter.broker.protocol": "SSL",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": server.key_pem,
        "ssl.keystore.certificate.chain": server.chain_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem,
        "ssl.principal.mapping.rules": "RULE:CN=(.*)/$1/",
    }
    subject = server.certificate.subject.rfc4514_string().removeprefix("CN=")
    for user, settings in (
        ("broker", {**SASL_ONLY, OF_SCRAM: SCRAM_JAAS}),
        (subject, certificate),
        ("ANONYMOUS", {**certificate, "ssl.client.auth": "none"}),
        ("ANONYMOUS", {}),
    ):
        for users, count in (("User:admin", 1), (f"User:admin;User:{user}", 0)):
            caplog.clear()
            security_of(**settings, **{"super.users": users}).check_own_permission()
            assert caplog.text.count(f"this broker is User:{user} to other brokers") == count


@pytest.mark.parametrize(
    ("listeners", "authorizer", "warned"),
    [
        ("PLAINTEXT://10.0.0.1:9092", "", True),
        ("PLAINTEXT://:9092", "", True),
        ("PLAINTEXT://[::]:9092", "", True),
        ("PLAINTEXT://127.0.0.1:9092", "", False),
        ("PLAINTEXT://[::1]:9092", "", False),
        ("PLAINTEXT://10.0.0.1:9092", ACL_AUTHORIZER, False),
    ],
)
def test_a_listener_that_is_open_to_other_machines_is_warned_of_once(
    caplog: pytest.LogCaptureFixture, listeners: str, authorizer: str, warned: bool
) -> None:
    security_of(**{"listeners": listeners, "authorizer.class.name": authorizer})
    assert caplog.text.count("listener PLAINTEXT is open to other machines") == warned


def test_a_jaas_setting_without_a_mechanism_is_ignored_and_said_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("sasl.jaas.config", "listener.name.sasl_plaintext.sasl.jaas.config"):
        caplog.clear()
        with pytest.raises(KafkaError, match=r"sasl\.jaas\.config must be set"):
            security_of(**SASL_ONLY, **{name: SCRAM_JAAS})
        assert f"{name} is ignored" in caplog.text
        assert "hush" not in caplog.text


def test_every_api_that_is_served_has_a_row() -> None:
    missing = {ApiKey(key).name for key in HANDLERS} - {key.name for key in AUTHORIZATION}
    assert not missing


def produce_request(topic: str) -> ProduceRequest:
    batch = encode_batch([Record(0, 0, None, b"v", ())])
    data = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def fetch_request(topic: str, replica_id: int = -1) -> FetchRequest:
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        topics=[
            FetchTopic(
                topic=topic, partitions=[FetchPartition(partition=0, partition_max_bytes=10_000)]
            )
        ],
    )


async def test_produce_and_fetch_need_their_permissions(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    async with authorizing(tmp_path, authority, server) as clients:
        alice = await clients.log_in("alice", "hunter2")
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED

        async def produced(topic: str) -> int:
            answer = await alice.request(produce_request(topic), 8)
            return int(answer.responses[0].partition_responses[0].error_code)

        async def fetched(topic: str, replica_id: int = -1) -> int:
            answer = await alice.request(fetch_request(topic, replica_id), 11)
            return int(answer.responses[0].partitions[0].error_code)

        assert await produced("t") == denied
        assert await produced("does-not-exist") == denied
        assert await fetched("t") == denied
        await clients.allow("t", WRITE)
        assert await produced("t") == 0
        assert await fetched("t") == denied
        await clients.allow("t", READ)
        assert await fetched("t") == 0
        assert await fetched("t", replica_id=2) == denied, "a follower is a broker"
        await clients.allow("t", WRITE, permission=DENY)
        assert await produced("t") == denied


async def test_an_open_session_loses_a_topic_with_its_permission(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    async with authorizing(tmp_path, authority, server) as clients:
        await clients.allow("t", READ)
        await clients.allow("other", READ)
        alice = await clients.log_in("alice", "hunter2")
        first = fetch_request("t")
        first.session_epoch = 0
        first.topics += fetch_request("other").topics
        opened = await alice.request(first, 11)
        assert [p.error_code for t in opened.responses for p in t.partitions] == [0, 0]
        await clients.allow("t", READ, permission=DENY)
        again = FetchRequest(session_id=opened.session_id, session_epoch=1, max_wait_ms=0)
        answer = await alice.request(again, 11)
        assert [(t.topic, p.error_code) for t in answer.responses for p in t.partitions] == [
            ("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        ]


async def test_metadata_shows_only_what_may_be_described(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    async with authorizing(tmp_path, authority, server) as clients:
        alice = await clients.log_in("alice", "hunter2")
        await clients.allow("t", READ)
        everything = await alice.request(
            MetadataRequest(topics=None, include_topic_authorized_operations=True), 9
        )
        assert [topic.name for topic in everything.topics] == ["t"]
        bits = everything.topics[0].topic_authorized_operations
        assert bits == 1 << READ | 1 << DESCRIBE
        names = [MetadataRequestTopic(name=name) for name in ("t", "other", "not-there")]
        named = await alice.request(
            MetadataRequest(topics=names, allow_auto_topic_creation=True), 9
        )
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert {topic.name: topic.error_code for topic in named.topics} == {
            "t": 0,
            "other": denied,
            "not-there": denied,
        }
        await clients.allow("not-there", DESCRIBE)
        creating = await alice.request(
            MetadataRequest(topics=names[2:], allow_auto_topic_creation=True), 9
        )
        assert creating.topics[0].error_code == denied, "Describe, but not Create"
        assert not clients.broker.cache.has_topic("not-there")


@pytest.mark.parametrize("allowed", [False, True])
async def test_metadata_of_many_topics_leaves_turns_to_others(
    tmp_path: Path, authority: Authority, server: Identity, allowed: bool
) -> None:
    """Whether they are refused, or described with all that is allowed on each."""
    async with authorizing(tmp_path, authority, server) as clients:
        if allowed:
            await clients.allow("*", DESCRIBE)
            clients.broker.cache._topics.update({f"t{number}": {} for number in range(COUNT)})
        alice = await clients.log_in("alice", "hunter2")
        asked = [MetadataRequestTopic(name=f"t{number}") for number in range(COUNT)]
        request = MetadataRequest(topics=asked, include_topic_authorized_operations=allowed)
        turns = Turns()
        answer = await alice.request(request, 9)
        assert turns.stop() >= COUNT // SLICE * (1 + allowed)
        error = ErrorCode.NONE if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert [topic.error_code for topic in answer.topics] == [error] * COUNT


async def test_items_that_are_not_allowed_do_not_stop_the_others(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    async with authorizing(tmp_path, authority, server) as clients:
        alice = await clients.log_in("alice", "hunter2")
        await clients.allow("t", AclOperation.DESCRIBE_CONFIGS)
        resources = [
            DescribeConfigsResource(resource_type=2, resource_name="t"),
            DescribeConfigsResource(resource_type=2, resource_name="other"),
            DescribeConfigsResource(resource_type=4, resource_name="1"),
        ]
        answer = await alice.request(DescribeConfigsRequest(resources=resources), 4)
        assert {
            (each.resource_type, each.resource_name): each.error_code for each in answer.results
        } == {
            (2, "t"): 0,
            (2, "other"): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            (4, "1"): ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        }


async def test_an_idempotent_producer_needs_write_on_some_topic(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    async with authorizing(tmp_path, authority, server) as clients:
        alice = await clients.log_in("alice", "hunter2")
        await clients.allow("t", READ)
        request = InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1)
        refused = await alice.request(request, 4)
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await clients.allow("t", WRITE)
        assert (await alice.request(request, 4)).error_code == 0


async def answered(connection: Connection, request: Request[Message], version: int) -> None:
    """Asks until a coordinator is there."""
    async with asyncio.timeout(30):
        while True:
            if not COORDINATOR_ERRORS & set(errors_of(await connection.request(request, version))):
                return
            await asyncio.sleep(0.01)


async def test_listings_show_what_may_be_described_without_an_error(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    async with authorizing(tmp_path, authority, server) as clients:
        admin = await clients.connect("PLAINTEXT")
        alice = await clients.log_in("alice", "hunter2")
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
        for name in ("one", "two"):
            commit = OffsetCommitRequest(group_id=name, topics=[topic])
            begin = InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=1000,
                producer_id=-1,
                producer_epoch=-1,
            )
            for kind, request, version in ((0, commit, 7), (1, begin, 4)):
                find = FindCoordinatorRequest(key=name, key_type=kind)
                await answered(admin, find, 3)
                await answered(admin, request, version)

        async def listed(connection: Connection) -> tuple[list[str], list[str]]:
            groups = await connection.request(ListGroupsRequest(), 4)
            transactions = await connection.request(ListTransactionsRequest(), 0)
            assert groups.error_code == transactions.error_code == 0
            ids = [each.transactional_id for each in transactions.transaction_states]
            return sorted(each.group_id for each in groups.groups), sorted(ids)

        both = ["one", "two"]
        assert await listed(admin) == (both, both)
        assert await listed(alice) == ([], [])
        await clients.allow("one", DESCRIBE, GROUP)
        await clients.allow("two", DESCRIBE, ResourceType.TRANSACTIONAL_ID)
        assert await listed(alice) == (["one"], ["two"])
        await clients.allow(CLUSTER_NAME, DESCRIBE, CLUSTER)
        assert await listed(alice) == (both, ["two"]), "the cluster's shows groups only"
        await clients.allow("one", DESCRIBE, GROUP, DENY)
        assert await listed(alice) == (both, ["two"])


async def test_a_topic_deleted_by_id_is_named_to_those_who_may_describe_it(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    async with authorizing(tmp_path, authority, server) as clients:
        alice = await clients.log_in("alice", "hunter2")
        topic_id = UUID(int=7)
        clients.broker.cache._remember_id("t", topic_id)  # topics have none at protocol 2.6
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=10_000
        )

        async def answer() -> tuple[str | None, int]:
            (result,) = (await alice.request(request, 6)).responses
            return result.name, result.error_code

        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await answer() == (None, refused)
        await clients.allow("t", DESCRIBE)
        assert await answer() == ("t", refused)
        await clients.allow("t", AclOperation.DELETE)
        await clients.allow("t", DESCRIBE, permission=DENY)
        assert await answer() == (None, refused), "who may not describe it does not delete it by id"
        assert clients.broker.followers.acls is not None
        denial = AclFilter(TOPIC, "t", LITERAL, None, None, DESCRIBE, DENY)
        await clients.broker.followers.acls.remove([denial])
        assert await answer() == ("t", 0)


async def test_who_may_not_describe_a_group_does_not_create_the_topic_of_groups(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    async with authorizing(tmp_path, authority, server) as clients:
        alice = await clients.log_in("alice", "hunter2")
        request = FindCoordinatorRequest(coordinator_keys=["g"])
        (found,) = (await alice.request(request, 4)).coordinators
        assert found.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert not clients.broker.cache.has_topic("__consumer_offsets")
        await clients.allow("g", DESCRIBE, GROUP)
        await alice.request(request, 4)
        await until(lambda: clients.broker.cache.has_topic("__consumer_offsets"))


async def test_a_listener_has_its_own_bound_on_frames_before_the_login(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    name = "listener.name.sasl_plaintext.sasl.server.max.receive.size"
    async with running(tmp_path, authority, server, **{name: "100"}) as clients:
        with pytest.raises(ConnectionError):
            await clients.log_in("alice", "x" * 100)
        await clients.log_in("alice", "hunter2")
        scram = await clients.log_in("alice", "hunter2", listener="SASL_SSL")
        assert await principal_of(scram, clients.broker) == "User:alice"


async def test_acls_are_created_described_and_deleted_over_the_wire(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    async with authorizing(tmp_path, authority, server) as clients:
        alice, admin = await clients.log_in("alice", "hunter2"), await clients.connect("PLAINTEXT")
        creation = AclCreation(
            resource_type=TOPIC,
            resource_name="o",
            resource_pattern_type=PREFIXED,
            principal="User:alice",
            host="*",
            operation=DESCRIBE,
            permission_type=ALLOW,
        )
        wrong = AclCreation(
            resource_type=CLUSTER,
            resource_name="other",
            resource_pattern_type=LITERAL,
            principal="User:alice",
            host="*",
            operation=DESCRIBE,
            permission_type=ALLOW,
        )
        request = CreateAclsRequest(creations=[creation, wrong, creation])
        refused = await alice.request(request, 3)
        assert {each.error_code for each in refused.results} == {
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        }
        created = await admin.request(request, 3)
        assert [each.error_code for each in created.results] == [0, ErrorCode.INVALID_REQUEST, 0]
        shown = await alice.request(MetadataRequest(topics=None), 9)
        assert [topic.name for topic in shown.topics] == ["other"]
        find: dict[str, Any] = {
            "resource_type_filter": TOPIC,
            "resource_name_filter": "other",
            "pattern_type_filter": PatternType.MATCH,
            "principal_filter": None,
            "host_filter": None,
            "operation": AclOperation.ANY,
            "permission_type": AclPermission.ANY,
        }
        described = await admin.request(DescribeAclsRequest(**find), 3)
        assert [
            (each.resource_name, each.pattern_type, [acl.principal for acl in each.acls])
            for each in described.resources
        ] == [("o", PREFIXED, ["User:alice"])]
        deleted = await admin.request(DeleteAclsRequest(filters=[DeleteAclsFilter(**find)] * 2), 3)
        assert [len(each.matching_acls) for each in deleted.filter_results] == [1, 0]
        nothing = await alice.request(MetadataRequest(topics=None), 9)
        assert nothing.topics == []


@pytest.mark.parametrize("patterns", [1, COUNT])
async def test_describing_many_acls_leaves_turns_to_others(
    tmp_path: Path, authority: Authority, server: Identity, patterns: int
) -> None:
    """However they are spread over resources."""
    async with authorizing(tmp_path, authority, server) as clients:
        assert clients.broker.authorizer is not None
        users = [AclEntry(f"User:u{number}", ALLOW, WRITE, "*") for number in range(COUNT)]
        for number in range(patterns):
            of = users[number::patterns]
            clients.broker.authorizer.update(ResourcePattern(TOPIC, f"t{number}", LITERAL), of)
        request = DescribeAclsRequest(
            resource_type_filter=TOPIC,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=WRITE,
            permission_type=AclPermission.ANY,
        )
        admin = await clients.connect("PLAINTEXT")
        turns = Turns()
        described = await admin.request(request, 3)
        assert turns.stop() >= COUNT // SLICE
        assert len(described.resources) == patterns
        assert {acl.principal for each in described.resources for acl in each.acls} == {
            user.principal for user in users
        }


async def test_scram_users_are_altered_and_described_and_log_in(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    async with running(tmp_path, authority, server) as clients:
        admin = await clients.connect("PLAINTEXT")
        mechanism = MECHANISMS["SCRAM-SHA-256"]
        salted = salted_password(mechanism, "pw", b"salt", 8192)
        good = ScramCredentialUpsertion(
            name="carol", mechanism=1, iterations=8192, salt=b"salt", salted_password=salted
        )
        few = ScramCredentialUpsertion(
            name="few", mechanism=1, iterations=4095, salt=b"salt", salted_password=salted
        )
        many = ScramCredentialUpsertion(
            name="many", mechanism=2, iterations=16385, salt=b"salt", salted_password=salted
        )
        gone = ScramCredentialDeletion(name="gone", mechanism=1)
        answer = await admin.request(
            AlterUserScramCredentialsRequest(deletions=[gone], upsertions=[good, few, many]), 0
        )
        assert {each.user: each.error_code for each in answer.results} == {
            "gone": ErrorCode.RESOURCE_NOT_FOUND,
            "carol": 0,
            "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        }
        await until(lambda: clients.broker.security.credentials.users == ["carol"])
        connection = await clients.log_in("carol", "pw", "SCRAM-SHA-256", "SASL_SSL")
        assert connection.is_open
        names = [UserName(name="carol"), UserName(name="ghost")]
        described = await admin.request(DescribeUserScramCredentialsRequest(users=names), 0)
        assert [
            (
                each.user,
                each.error_code,
                [(c.mechanism, c.iterations) for c in each.credential_infos],
            )
            for each in described.results
        ] == [("carol", 0, [(1, 8192)]), ("ghost", ErrorCode.RESOURCE_NOT_FOUND, [])]


async def test_secrets_are_described_without_their_values(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    async with running(tmp_path, authority, server) as clients:
        admin = await clients.connect("PLAINTEXT")
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=4, resource_name="1")],
            include_synonyms=True,
        )
        answer = await admin.request(request, 4)
        shown = {each.name: each for each in answer.results[0].configs}
        name = "listener.name.sasl_ssl.plain.sasl.jaas.config"
        assert shown[name].is_sensitive
        assert shown[name].value is None
        assert "hunter2" not in str([vars_of(each) for each in shown.values()])
        assert "PRIVATE KEY" not in str([vars_of(each) for each in shown.values()])


def vars_of(config: Any) -> tuple[Any, ...]:
    return config.name, config.value, [(each.name, each.value) for each in config.synonyms]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"ssl_keystore_key": ""}, "listener SSL"),
        ({"sasl_enabled_mechanisms": "GSSAPI"}, "GSSAPI is not supported"),
        ({"authorizer_class_name": "x.Y"}, "authorizer.class.name"),
        ({**AUTHORIZED, "super_users": "alice"}, "super.users"),
        ({"security_inter_broker_protocol": "SASL_SSL"}, "sasl.mechanism.inter.broker.protocol"),
        ({"ssl_principal_mapping_rules": "default"}, "listener SSL"),
        ({"listener.name.sasl_ssl.plain.sasl.jaas.config": "nonsense"}, "sasl.jaas.config"),
    ],
)
async def test_wrong_security_refuses_the_start(
    tmp_path: Path,
    authority: Authority,
    server: Identity,
    settings: dict[str, str],
    complaint: str,
) -> None:
    with pytest.raises(KafkaError, match=complaint):
        async with running(tmp_path, authority, server, **settings):
            pass


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
async def test_brokers_replicate_over_a_secured_listener(
    tmp_path: Path, authority: Authority, server: Identity, protocol: str
) -> None:
    """SCRAM over TLS between brokers, whose user is in the store before the first one starts."""
    jaas = f'{SCRAM} required username="broker" password="pw";'
    settings = secured(
        authority,
        server,
        security_inter_broker_protocol=protocol,
        sasl_mechanism_inter_broker_protocol="SCRAM-SHA-512",
        super_users="User:broker",
        **AUTHORIZED,
    )
    settings["listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config"] = jaas
    async with cluster(tmp_path, brokers=0, **settings) as made:
        store = ClusterStore(MemoryStore(made.server), lambda: 0)
        await store.session.start()
        await store.prepare()
        credential = ScramCredential.from_password(MECHANISMS["SCRAM-SHA-512"], "pw", b"salt" * 4)
        await store.session.create(
            paths.config(ConfigKind.USERS, "broker"),
            payloads.encode_config({"SCRAM-SHA-512": credential.encode()}),
        )
        for broker_id in (1, 2, 3):
            await made.start(broker_id)
        clients = Secured(made, authority)
        try:
            clients.broker = made.controller
            admin = await clients.log_in("broker", "pw", "SCRAM-SHA-512", "SASL_SSL")
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
            created = await admin.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
            assert created.topics[0].error_code == 0
            leader = made.controller.cache.partition("t", 0)
            assert leader is not None
            clients.broker = made.brokers[leader.leader]
            producer = await clients.log_in("broker", "pw", "SCRAM-SHA-512", "SASL_SSL")
            answer = await producer.request(produce_request("t"), 8)
            assert answer.responses[0].partition_responses[0].error_code == 0, "all three have it"
        finally:
            clients.close()
            await store.session.close()


async def test_a_users_quota_counts_over_connections_and_client_ids(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    """Written as Kafka's own tool writes it, beside a credential that stays."""
    async with running(tmp_path, authority, server) as clients:
        await clients.made.create_topic("t")
        store = clients.broker.store
        settings = {"producer_byte_rate": "10", "SCRAM-SHA-256": "unreadable"}
        await store.configs.set(ConfigKind.USERS, "alice", settings)
        await store.configs.changes.notify("users/alice")
        await until(lambda: clients.broker.quotas.are_set)
        throttled: list[int] = []
        for user, password in (("alice", "hunter2"), ("alice", "hunter2"), ("bob", "x")):
            connection = await clients.log_in(user, password)
            connection.client_id = f"{user}-{len(throttled)}"
            answer = await connection.request(produce_request("t"), 8)
            throttled.append(answer.throttle_time_ms)
        assert throttled[1] > throttled[0], "her second connection pays for the first"
        assert throttled[2] == 0


def certificate_of(connection: Connection) -> bytes:
    assert connection.transport is not None
    tls = connection.transport.get_extra_info("ssl_object")
    return bytes(tls.getpeercert(binary_form=True))


async def alter_broker(connection: Connection, **settings: str) -> ErrorCode:
    configs = [
        AlterableConfig(name=name, config_operation=0, value=value)
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
    answer = await connection.request(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return ErrorCode(answer.responses[0].error_code)


async def test_a_new_certificate_counts_for_new_connections(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    """The file is replaced, and a setting altered to the value that it has."""
    store = tmp_path / "broker.pem"
    store.write_text(server.chain_pem + server.key_pem)
    more = {
        "ssl_keystore_key": "",
        "ssl_keystore_certificate_chain": "",
        "ssl_keystore_location": str(store),
    }
    name = "listener.name.ssl.ssl.keystore.location"
    async with running(tmp_path / "data", authority, server, **more) as clients:
        admin, old = await clients.connect("PLAINTEXT"), await clients.connect("SSL")
        assert certificate_of(old) == server.der
        renewed = authority.issue(common_name("broker"))
        store.write_text(renewed.chain_pem + renewed.key_pem)
        assert certificate_of(await clients.connect("SSL")) == server.der, "not yet read"
        assert await alter_broker(admin, **{name: str(store)}) == 0
        assert certificate_of(await clients.connect("SSL")) == renewed.der
        assert (await old.request(MetadataRequest(topics=[]), 9)).brokers, "lives on"
        for wrong in (authority.issue(common_name("mallory")), None):
            store.write_text("nonsense" if wrong is None else wrong.chain_pem + wrong.key_pem)
            assert await alter_broker(admin, **{name: str(store)}) is ErrorCode.INVALID_REQUEST
            assert certificate_of(await clients.connect("SSL")) == renewed.der
        plain = await alter_broker(admin, **{"ssl.keystore.location": str(store)})
        assert plain is ErrorCode.INVALID_REQUEST, "only with the listener's prefix"


async def test_a_certificate_set_while_the_broker_runs_is_stored_encrypted(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    renewed = authority.issue(common_name("broker"))
    prefix = "listener.name.ssl.ssl.keystore."
    settings = {f"{prefix}key": renewed.key_pem, f"{prefix}certificate.chain": renewed.chain_pem}
    async with running(tmp_path / "without", authority, server) as clients:
        admin = await clients.connect("PLAINTEXT")
        assert await alter_broker(admin, **settings) is ErrorCode.INVALID_REQUEST, "no secret"
    secret = {"password_encoder_secret": "encoder-secret"}
    async with running(tmp_path / "with", authority, server, **secret) as clients:
        admin = await clients.connect("PLAINTEXT")
        assert await alter_broker(admin, **settings) == 0
        stored = await clients.broker.store.configs.get(ConfigKind.BROKERS, "1")
        assert "PRIVATE" not in str(stored)
        assert stored[f"{prefix}key"].startswith("keyFactoryAlgorithm:PBKDF2WithHmacSHA512,")
        await until(lambda: serves(clients.broker, renewed))
        assert certificate_of(await clients.connect("SSL")) == renewed.der


def serves(broker: Broker, wanted: Identity) -> bool:
    assert broker.security.certificates is not None
    key = broker.security.certificates._current["SSL"].key
    return key is not None and wanted.chain_pem.strip() in key.chain


async def test_only_the_active_controller_changes_users(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2) as made:
        other = next(each for each in made.brokers.values() if not each.controller.is_active)
        connection = await made.connect(other.id)
        gone = ScramCredentialDeletion(name="gone", mechanism=1)
        request = AlterUserScramCredentialsRequest(deletions=[gone])
        (result,) = (await connection.request(request, 0)).results
        assert (result.user, result.error_code) == ("gone", ErrorCode.NOT_CONTROLLER)
