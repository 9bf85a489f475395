"""Delegation tokens: short-lived credentials that stand for the user they were made for.

docs/spec/security.md, section 3.6. A token's secret (its hmac) is derived from its id and the
cluster's secret, so only brokers with the same `delegation.token.secret.key` know it. Tokens are
nodes of the store, followed through notifications.
The active controller deletes expired ones. A broker that dies between the write of a token and its
notification leaves a token that the other brokers do not know until they restart.
"""

import asyncio
import base64
import hmac
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from odradek.broker.change_follower import ChangeFollower
from odradek.security.exchange import Login
from odradek.security.principal import Principal
from odradek.security.scram import MECHANISMS, ScramCredential
from odradek.store.api import StoreError
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import InvalidPayload
from odradek.store.tokens import StoredToken
from odradek.wire.errors import ErrorCode, KafkaError

__all__ = ["DelegationToken", "TokenFollower", "TokenLimits", "Tokens"]

SALT_BYTES = 24
ID_BYTES = 16
# A user without any permission may make tokens, and every broker keeps all of them in memory.
TOKENS_PER_USER_MAX = 1000
RENEWERS_MAX = 100
NAME_LENGTH_MAX = 1000
# How often a broker looks whether it is the active controller and tokens are to be deleted.
LOOK_S = 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DelegationToken:
    id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    @classmethod
    def of(cls, stored: StoredToken) -> "DelegationToken":
        """Raises ValueError."""
        return cls(
            stored.id,
            Principal.parse(stored.owner),
            Principal.parse(stored.requester),
            tuple(map(Principal.parse, stored.renewers)),
            stored.issued_ms,
            stored.max_ms,
            stored.expires_ms,
        )

    @property
    def stored(self) -> StoredToken:
        return StoredToken(
            self.id,
            str(self.owner),
            str(self.requester),
            tuple(map(str, self.renewers)),
            self.issued_ms,
            self.max_ms,
            self.expires_ms,
        )

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms < now_ms or self.max_ms < now_ms

    def concerns(self, principal: Principal) -> bool:
        """Whether it was made for, asked for, or may be renewed by this one."""
        return principal in (self.owner, self.requester, *self.renewers)


class Tokens:
    """Those this broker knows, by id."""

    def __init__(self, secret: str, randbytes: Callable[[int], bytes]) -> None:
        self._secret = secret.encode()
        self._randbytes = randbytes
        self._tokens: dict[str, DelegationToken] = {}
        self._ids_by_hmac: dict[bytes, str] = {}
        self._counts: Counter[Principal] = Counter()
        # Made when a token first logs in here: it costs milliseconds.
        self._credentials: dict[tuple[str, str], ScramCredential] = {}

    def hmac_of(self, token_id: str) -> bytes:
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def update(self, token: DelegationToken) -> None:
        if token.id not in self._tokens:
            self._ids_by_hmac[self.hmac_of(token.id)] = token.id
            self._counts[token.requester] += 1
        self._tokens[token.id] = token

    def remove(self, token_id: str) -> None:
        token = self._tokens.pop(token_id, None)
        if token is not None:
            del self._ids_by_hmac[self.hmac_of(token_id)]
            self._counts[token.requester] -= 1
            if not self._counts[token.requester]:
                del self._counts[token.requester]
        for mechanism in MECHANISMS:
            self._credentials.pop((token_id, mechanism), None)

    def by_hmac(self, value: bytes) -> DelegationToken | None:
        """One look-up, however many tokens there are: each user may make some."""
        return self._tokens.get(self._ids_by_hmac.get(bytes(value), ""))

    def count_of(self, requester: Principal) -> int:
        """How many tokens this one has asked for."""
        return self._counts[requester]

    @property
    def all(self) -> list[DelegationToken]:
        return list(self._tokens.values())

    def credential(self, token_id: str, mechanism: str) -> ScramCredential | None:
        """What a client that holds the token's hmac can log in against."""
        if token_id not in self._tokens:
            return None
        key = token_id, mechanism
        if key not in self._credentials:
            password = base64.b64encode(self.hmac_of(token_id)).decode()
            self._credentials[key] = ScramCredential.from_password(
                MECHANISMS[mechanism], password, self._randbytes(SALT_BYTES)
            )
        return self._credentials[key]

    def owner_of(self, login: Login) -> Principal | None:
        """Whom a login by token stands for; None once the token is gone."""
        token = self._tokens.get(login.token_id or "")
        if token is None:
            return None
        return Principal(token.owner.name, token.owner.type, token_authenticated=True)

    def expires_ms_of(self, login: Login) -> int | None:
        token = self._tokens.get(login.token_id or "")
        return login.expires_at_ms if token is None else token.expires_ms


@dataclass(frozen=True)
class TokenLimits:
    """`delegation.token.max.lifetime.ms`, `.expiry.time.ms`, `.expiry.check.interval.ms`."""

    max_lifetime_ms: int
    expiry_ms: int
    check_interval_ms: int


class TokenFollower:
    """Keeps the tokens in step with the store, and changes them there."""

    def __init__(
        self,
        store: ClusterStore,
        tokens: Tokens,
        limits: TokenLimits,
        clock: Callable[[], int],
        randbytes: Callable[[int], bytes],
    ) -> None:
        self.tokens = tokens
        self._store = store
        self._limits = limits
        self._clock = clock
        self._randbytes = randbytes
        self._changes = ChangeFollower(store.session, "delegation tokens")
        self._purge: asyncio.Task[None] | None = None

    async def start(self, is_controller: Callable[[], bool]) -> None:
        """Returns when all tokens are known."""
        await self._store.tokens.prepare()
        await self._changes.watch(self._store.tokens.changes, self._read_each)
        await self._read_each(await self._store.tokens.ids())
        self._changes.start()
        self._purge = asyncio.get_running_loop().create_task(self._purge_regularly(is_controller))

    async def stop(self) -> None:
        await self._changes.stop()
        if self._purge is not None:
            self._purge.cancel()
            await asyncio.gather(self._purge, return_exceptions=True)

    async def _read_each(self, token_ids: Iterable[str]) -> None:
        for token_id in token_ids:
            await self._read(token_id)

    async def _read(self, token_id: str) -> None:
        try:
            stored = await self._store.tokens.get(token_id)
            if stored is None:
                self.tokens.remove(token_id)
            else:
                self.tokens.update(DelegationToken.of(stored))
        except (InvalidPayload, ValueError) as error:
            logger.error("delegation token %s cannot be read: %s", token_id, error)

    # Changing

    async def create(
        self,
        owner: Principal,
        requester: Principal,
        renewers: tuple[Principal, ...],
        max_lifetime_ms: int,
    ) -> DelegationToken:
        """Raises KafkaError."""
        if self.tokens.count_of(requester) >= TOKENS_PER_USER_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"{requester} has {TOKENS_PER_USER_MAX} tokens"
            )
        if len(renewers) > RENEWERS_MAX or any(
            len(each.name) > NAME_LENGTH_MAX for each in (owner, *renewers)
        ):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"more than {RENEWERS_MAX} renewers, or a name above {NAME_LENGTH_MAX} characters",
            )
        now_ms = self._clock()
        longest_ms = self._limits.max_lifetime_ms
        lifetime_ms = min(max_lifetime_ms, longest_ms) if max_lifetime_ms > 0 else longest_ms
        token_id = base64.urlsafe_b64encode(self._randbytes(ID_BYTES)).rstrip(b"=").decode()
        max_ms = now_ms + lifetime_ms
        expires_ms = min(max_ms, now_ms + self._limits.expiry_ms)
        token = DelegationToken(token_id, owner, requester, renewers, now_ms, max_ms, expires_ms)
        await self._store.tokens.set(token.stored)
        await self._changed(token)
        return token

    async def renew(self, value: bytes, by: Principal, period_ms: int) -> int:
        """The new time of expiry. Raises KafkaError."""
        token = self._found(value, by)
        period_ms = self._limits.expiry_ms if period_ms < 0 else period_ms
        return await self._set_expiry(token, period_ms)

    async def expire(self, value: bytes, by: Principal, period_ms: int) -> int:
        """The new time of expiry; a negative period deletes the token now. Raises KafkaError."""
        token = self._found(value, by)
        if period_ms < 0:
            await self._delete(token)
            return self._clock()
        return await self._set_expiry(token, period_ms)

    def _found(self, value: bytes, by: Principal) -> DelegationToken:
        token = self.tokens.by_hmac(value)
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if by not in (token.owner, *token.renewers):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    async def _set_expiry(self, token: DelegationToken, period_ms: int) -> int:
        now_ms = self._clock()
        if token.is_expired(now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        changed = replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))
        if not await self._store.tokens.replace(changed.stored):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        await self._changed(changed)
        return changed.expires_ms

    async def _changed(self, token: DelegationToken) -> None:
        self.tokens.update(token)
        await self._store.tokens.changes.notify(token.id)

    async def _delete(self, token: DelegationToken) -> None:
        await self._store.tokens.delete(token.id)
        self.tokens.remove(token.id)
        await self._store.tokens.changes.notify(token.id)

    # The active controller's part

    async def _purge_regularly(self, is_controller: Callable[[], bool]) -> None:
        """At once when this broker becomes the active controller, then at the interval."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            if not is_controller():
                due = loop.time()
            elif loop.time() >= due:
                try:
                    await self.purge()
                    due = loop.time() + self._limits.check_interval_ms / 1000
                except StoreError as error:
                    logger.warning("cannot delete expired delegation tokens, retrying: %s", error)
            await asyncio.sleep(min(LOOK_S, self._limits.check_interval_ms / 1000))

    async def purge(self) -> None:
        """Deletes expired tokens, and notifications every broker has had time to read."""
        now_ms = self._clock()
        for token in self.tokens.all:
            if token.is_expired(now_ms):
                logger.info("delegation token %s of %s has expired: deleted", token.id, token.owner)
                await self._delete(token)
        await self._store.tokens.changes.purge()
