"""A world with users: ACLs, passwords and tokens change while clients log in and ask.

docs/spec/security.md, sections 3 and 4. The truth is what the store says, from moment to moment.
Every answer of a broker is compared with it:

- RevokedIsRefused: what was allowed had a permission that was in force at some moment between
  `BOUND_S` before the request was sent and its answer; what was refused lacked it at some moment
- OldPasswordsAreRefused: the same for logins, and the passwords that users had
- ExpiredTokensAreRefused: no request is served that was sent `BOUND_S` after its token's end

`BOUND_S` is what a broker may take to learn of a change: it covers a short cut from the store. The
brokers are killed, restarted and cut off from the store meanwhile.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Any

from odradek.client.acls import Acl, Acls
from odradek.client.client import Client
from odradek.client.tokens import Token, Tokens
from odradek.client.users import Users
from odradek.security.acls import (
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
from odradek.security.scram import MECHANISMS, ScramCredential
from odradek.store.acls import decode_acls
from odradek.store.api import Operation
from odradek.store.memory import MemoryStore
from odradek.store.payloads import decode_config
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

from .faults import Fault, FaultInjector, Kind
from .history import History, Violation
from .members import EXPECTED
from .unexpected_errors import watched
from .world import EPOCH_MS, PORT, World

__all__ = ["SecurityReport", "run_security"]

BOUND_S = 5.0
START_S = 60.0
CLIENT_PORT = PORT + 1
BROKERS = 3
USERS = ("alice", "bob")
PASSWORDS = ("one", "two")
TOPICS = ("red", "green", "blue")
MECHANISM = "SCRAM-SHA-256"
TOKEN_LIVES_S = (3.0, 8.0, 20.0)
FAULTS = (Kind.KILL, Kind.KILL, Kind.STORE_CUT, Kind.STORE_EXPIRE, Kind.DEPOSE)
CUT_S = 2.0
CONFIG = {
    "default.replication.factor": "1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": MECHANISM,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",  # brokers and the administrator, on the other listener
    "delegation.token.secret.key": "of-the-simulated-cluster",
    "connections.max.reauth.ms": "0",
    "auto.create.topics.enable": "false",
}


@dataclass(slots=True)
class SecurityReport:
    seed: int
    violations: list[Violation]
    findings: list[str]
    counts: dict[str, int]

    @property
    def passed(self) -> bool:
        return not self.violations and not self.findings


@dataclass(slots=True)
class Truth:
    """What the store has said, and since when."""

    # By user and topic: whether the user may describe it.
    allowed: dict[tuple[str, str], list[tuple[float, bool]]] = field(default_factory=dict)
    credentials: dict[str, list[tuple[float, str | None]]] = field(default_factory=dict)

    @staticmethod
    def values_between(changes: list[tuple[float, Any]], begin: float, end: float) -> list[Any]:
        """What held at some moment of this time, both ends included."""
        before = [value for at, value in changes if at <= begin]
        during = [value for at, value in changes if begin < at <= end]
        return [*before[-1:], *during]


def run_security(seed: int, seconds: float = 20.0) -> SecurityReport:
    """The world of one seed."""
    world = World(
        seed,
        BROKERS,
        CONFIG,
        listeners=f"PLAINTEXT://{{host}}:{PORT},CLIENTS://{{host}}:{CLIENT_PORT}",
    )
    one = _Run(world, seconds)
    with watched() as unexpected:
        world.run(lambda _: one.story(), one.prepare)
    failures = [f"{each.get('message')}: {each.get('exception')!r}" for each in world.loop.failures]
    findings = [*one.findings, *unexpected, *failures]
    return SecurityReport(seed, one.history.violations, findings, one.history.counts)


class _Run:
    def __init__(self, world: World, seconds: float) -> None:
        self.world = world
        self.history = History()
        self.truth = Truth(
            {(user, topic): [(0.0, False)] for user in USERS for topic in TOPICS},
            {user: [(0.0, None)] for user in USERS},
        )
        self.findings: list[str] = []
        self._seconds = seconds
        self._injector = FaultInjector(world)
        self._tokens: list[Token] = []
        self._is_over = False

    def prepare(self) -> None:
        self.world.server.observers.append(self._observe)

    # The truth

    def _observe(self, writer: MemoryStore, operations: Any) -> None:
        for operation in operations:
            path = _path(operation)
            if path.startswith("/kafka-acl/Topic/"):
                self._see_acls(path)
            elif path.startswith("/config/users/"):
                self._see_user(path)

    def _see_acls(self, path: str) -> None:
        topic = path.rpartition("/")[2]
        tree = self.world.server.tree
        exists = tree.exists(path) is not None
        entries = decode_acls(tree.get(path)[0], path) if exists else frozenset()
        for user in USERS:
            own = {entry.permission for entry in entries if entry.principal == f"User:{user}"}
            changes = self.truth.allowed[user, topic]
            changes.append((self.world.loop.time(), own == {"Allow"}))

    def _see_user(self, path: str) -> None:
        user = path.rpartition("/")[2]
        data = self.world.server.tree.get(path)[0]
        text = decode_config(data, path).get(MECHANISM)
        self.truth.credentials[user].append((self.world.loop.time(), text))

    # The story

    async def story(self) -> None:
        try:
            async with asyncio.timeout(START_S):
                await self.world.process("starter").run(self._begin())
        except TimeoutError:
            self.findings.append("the cluster did not start")
            return
        clients = [self._client(f"changer-{number}", self._change) for number in range(2)] + [
            self._client(f"prober-{number}", self._probe) for number in range(3)
        ]
        clients += [self._client("bearer", self._bear), self._client("maker", self._make_tokens)]
        faults = asyncio.ensure_future(self._suffer(self.world.dice("faults")))
        end = self.world.loop.time() + self._seconds
        while self.world.loop.time() < end and not self.history.violations:  # noqa: ASYNC110  # looks
            await asyncio.sleep(0.5)
        self._is_over = True
        if faults.done():
            self.findings.append(f"the faults ended: {faults.exception()!r}")
        faults.cancel()
        self._injector.heal_everything()
        done, waiting = await asyncio.wait(clients, timeout=120)
        self.findings += [f"{task.get_name()} does not end" for task in waiting]
        self.findings += [repr(task.exception()) for task in done if task.exception() is not None]

    def _client(self, name: str, work: Callable[[str, Random], Any]) -> "asyncio.Task[None]":
        process = self.world.process(name)
        return process.run(work(name, self.world.dice(name)), name=name)

    def _administrator(self, name: str) -> Client:
        return Client(
            self.world.bootstrap, client_id=name, timeout_s=10.0, rng=self.world.dice(f"{name}/c")
        )

    async def _begin(self) -> None:
        async with self._administrator("starter") as client:
            await client.refresh()
            while len(client.metadata.nodes) < BROKERS:
                await asyncio.sleep(0.1)
                await client.refresh()
            for user in USERS:
                await Users(client).add(user, PASSWORDS[0], mechanisms=[MECHANISM])

    async def _suffer(self, rng: Random) -> None:
        while True:
            await asyncio.sleep(rng.uniform(1.0, 4.0))
            victim = rng.randint(1, BROKERS)
            fault = Fault(0.0, rng.choice(FAULTS), victim, victim, CUT_S)
            if await self._injector.inject(fault):
                self.history.count(fault.kind.value)
                await asyncio.sleep(rng.uniform(0.2, CUT_S))
                await self._injector.heal(fault)

    # Changing

    async def _change(self, name: str, rng: Random) -> None:
        async with self._administrator(name) as client:
            while not self._is_over:
                try:
                    await self._change_once(client, rng)
                    self.history.count("changes")
                except EXPECTED:
                    pass  # of the faults; the truth is in the store
                await asyncio.sleep(rng.expovariate(2.0))

    async def _change_once(self, client: Client, rng: Random) -> None:
        user, topic = rng.choice(USERS), rng.choice(TOPICS)
        pattern = ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL)
        permission = rng.choice([AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY])
        match rng.randrange(5):
            case 0 | 1:
                entry = AclEntry(f"User:{user}", permission, AclOperation.DESCRIBE, "*")
                await Acls(client).add([Acl(pattern, entry)])
            case 2 | 3:
                filters = AclFilter(
                    *pattern, f"User:{user}", None, AclOperation.ANY, AclPermission.ANY
                )
                await Acls(client).delete([filters])
            case _:
                users = Users(client)
                if rng.random() < 0.3:
                    await users.delete(user, [MECHANISM])
                else:
                    await users.add(user, rng.choice(PASSWORDS), mechanisms=[MECHANISM])

    # Asking

    async def _probe(self, name: str, rng: Random) -> None:
        """Logs in to one broker after the other, and asks there for a while."""
        while not self._is_over:
            user, password = rng.choice(USERS), rng.choice(PASSWORDS)
            connection = await self._log_in(rng, user, password)
            if connection is None:
                await asyncio.sleep(rng.uniform(0.1, 0.5))
                continue
            for _ in range(rng.randint(1, 10)):
                await asyncio.sleep(rng.expovariate(5.0))
                if not await self._ask(connection, user):
                    break
            connection.close()

    async def _log_in(self, rng: Random, user: str, password: str) -> Connection | None:
        sent = self.world.loop.time()
        try:
            connection = await self._connect(
                rng, jaas_text(Module.SCRAM, username=user, password=password)
            )
        except KafkaError as error:
            if error.error is ErrorCode.SASL_AUTHENTICATION_FAILED:
                self._check_login(sent, user, password, accepted=False)
            return None
        except (OSError, TimeoutError):
            return None
        self._check_login(sent, user, password, accepted=True)
        return connection

    async def _connect(self, rng: Random, jaas: str) -> Connection:
        host = self.world.hosts[rng.randint(1, BROKERS)].name
        security = ClientSecurity.read(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": MECHANISM,
                "sasl.jaas.config": jaas,
            },
            read_file=lambda path: b"",
            now_ms=lambda: EPOCH_MS + int(self.world.loop.time() * 1000),
        )
        return await Connection.open(
            host, CLIENT_PORT, client_id="probe", timeout=5.0, security=security
        )

    def _check_login(self, sent: float, user: str, password: str, *, accepted: bool) -> None:
        now = self.world.loop.time()
        texts = Truth.values_between(self.truth.credentials[user], sent - BOUND_S, now)
        self.history.count("logins" if accepted else "refused logins")
        if accepted not in {_is_password(text, password) for text in texts}:
            what = "accepted" if accepted else "refused"
            self.history.violated("OldPasswordsAreRefused", now, f"{user} {password}: {what}")

    async def _ask(self, connection: Connection, user: str) -> bool:
        """Whether the connection is still good."""
        sent = self.world.loop.time()
        topics = [MetadataRequestTopic(name=topic) for topic in TOPICS]
        try:
            answer = await connection.request(MetadataRequest(topics=topics), 9, timeout=5.0)
        except EXPECTED:
            return False
        now = self.world.loop.time()
        for topic in answer.topics:
            assert topic.name is not None, "what is asked for by name is named"
            accepted = topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
            changes = self.truth.allowed[user, topic.name]
            self.history.count("allowed" if accepted else "refused")
            if accepted not in Truth.values_between(changes, sent - BOUND_S, now):
                what = "allowed" if accepted else "refused"
                message = f"{user} {topic.name}: {what}, sent at {sent:.3f}"
                self.history.violated("RevokedIsRefused", now, message)
        return True

    # Tokens

    async def _make_tokens(self, name: str, rng: Random) -> None:
        while not self._is_over:
            connection_settings = {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": MECHANISM,
                "sasl.username": rng.choice(USERS),
                "sasl.password": rng.choice(PASSWORDS),
            }
            addresses = [f"{host.name}:{CLIENT_PORT}" for host in self.world.hosts.values()]
            client = Client(
                addresses, timeout_s=3.0, rng=self.world.dice(name), security=connection_settings
            )
            try:
                lifetime_ms = int(1000 * rng.choice(TOKEN_LIVES_S))
                token = await Tokens(client).create(max_lifetime_ms=lifetime_ms)
                self._tokens.append(token)
                self.history.count("tokens")
            except EXPECTED:
                pass
            await client.close()
            await asyncio.sleep(rng.uniform(0.5, 2.0))

    async def _bear(self, name: str, rng: Random) -> None:
        """Uses tokens, also after their end."""
        while not self._is_over:
            await asyncio.sleep(rng.uniform(0.1, 0.5))
            if not self._tokens:
                continue
            token = rng.choice(self._tokens[-6:])
            jaas = jaas_text(Module.SCRAM, username=token.id, password=token.hmac, tokenauth="true")
            try:
                connection = await self._connect(rng, jaas)
            except EXPECTED:
                continue
            for _ in range(rng.randint(1, 12)):
                await asyncio.sleep(rng.uniform(0.1, 1.0))
                if not await self._ask_with_token(connection, token):
                    break
            connection.close()

    async def _ask_with_token(self, connection: Connection, token: Token) -> bool:
        sent = self.world.loop.time()
        if not await self._ask(connection, token.owner.partition(":")[2]):
            return False
        self.history.count("asked with a token")
        if EPOCH_MS + 1000 * (sent - BOUND_S) > token.expires_ms:
            end = (token.expires_ms - EPOCH_MS) / 1000
            message = f"a token that ended at {end:.3f} was served at {sent:.3f}"
            self.history.violated("ExpiredTokensAreRefused", sent, message)
        return True


def _path(operation: Operation) -> str:
    return operation.path


@lru_cache(1000)
def _is_password(text: str | None, password: str) -> bool:
    if text is None:
        return False
    stored = ScramCredential.parse(text)
    mechanism = MECHANISMS[MECHANISM]
    made = ScramCredential.from_password(mechanism, password, stored.salt, stored.iterations)
    return made.stored_key == stored.stored_key
