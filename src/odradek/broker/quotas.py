"""Client quotas: how much a client may ask of this broker (KIP-13, KIP-124, KIP-219, KIP-599).

A quota belongs to a user, a client id, or both, or to the default of either; the most specific one
counts, and all connections it counts for share it. A user is the name of a principal, whatever way
it logged in; without a login it is ANONYMOUS.

- producer_byte_rate, consumer_byte_rate: bytes a second, over the last eleven seconds
- request_percentage: the share of a second in which this broker may work for the client
- controller_mutation_rate: partitions a second that the client may have created and deleted

An address has a quota of its own, connection_creation_rate, which `admission` enforces.

A client over its quota is answered at once with a throttle time, and is not read for that long.
A fetch that would go over comes back empty, so that it costs nothing, and a change of topics is
refused with THROTTLING_QUOTA_EXCEEDED where the client knows that error.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from odradek.broker.routes import Answer
from odradek.replica.throttle import WINDOW_S, WINDOWS, Rate
from odradek.store.paths import desanitize
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.reply import measured

if TYPE_CHECKING:
    from odradek.broker.routes import RequestContext

__all__ = [
    "CONNECTION_RATE",
    "QUOTA_NAMES",
    "WHOLE_QUOTAS",
    "ClientQuotas",
    "Entity",
    "entity_of",
    "plain_entity",
]

CONNECTION_RATE = "connection_creation_rate"
DEFAULT = "<default>"
PRODUCER_RATE = "producer_byte_rate"
CONSUMER_RATE = "consumer_byte_rate"
REQUEST_SHARE = "request_percentage"
MUTATION_RATE = "controller_mutation_rate"
QUOTA_NAMES = frozenset({PRODUCER_RATE, CONSUMER_RATE, REQUEST_SHARE, MUTATION_RATE})
WHOLE_QUOTAS = frozenset({PRODUCER_RATE, CONSUMER_RATE})
# A client whose requests take too long is throttled in small steps.
REQUEST_THROTTLE_S_MAX = WINDOW_S
THROTTLE_MS_MAX = 2**31 - 1
CLIENTS_MAX = 10_000

# A user and a client id; each a name, the default, or None where the quota does not say.
Entity = tuple[str | None, str | None]


def entities(user: str, client_id: str) -> Iterator[Entity]:
    """Whose quota counts for this client, the most specific first."""
    for each in (user, DEFAULT):
        yield each, client_id
        yield each, DEFAULT
        yield each, None
    yield None, client_id
    yield None, DEFAULT


def entity_of(path: str) -> Entity | None:
    """The entity behind a path like `users/u/clients/c`; None if it is of no client."""
    parts = path.split("/")
    match parts:
        case ["clients", client]:
            return None, client
        case ["users", user]:
            return user, None
        case ["users", user, "clients", client]:
            return user, client
    return None


def plain_entity(entity: Entity) -> Entity:
    """The entity by the names its clients use, not the store's."""
    user, client = entity
    return (
        None if user is None else desanitize(user),
        None if client is None else desanitize(client),
    )


class TokenBucket:
    """Permits that come at a rate and pile up to so many. Who takes the last may take more than
    there are, and the others wait until the debt is paid.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._tokens = math.inf
        self._filled_at = now()

    def left(self, per_second: float) -> float:
        now = self._now()
        burst = WINDOWS * WINDOW_S * per_second
        self._tokens = min(burst, self._tokens + per_second * (now - self._filled_at))
        self._filled_at = now
        return self._tokens

    def take(self, permits: float) -> None:
        self._tokens -= permits

    def seconds_until(self, limit: float) -> float:
        left = self.left(limit)
        if left >= 0:
            return 0.0
        return -left / limit if limit > 0 else math.inf


Meter = TypeVar("Meter", Rate, TokenBucket)


class ClientUse(NamedTuple):
    """How much of a quota is used, a second. A user or client that it does not name is empty."""

    user: str
    client_id: str
    quota: str
    rate: float
    throttled_s: float


def _counted_for(entity: Entity, context: "RequestContext") -> tuple[str, str]:
    """A default counts for each user and client apart; a user's own for all its clients."""
    user = context.user if entity[0] is not None else ""
    return user, context.client_id if entity[1] is not None else ""


class ClientQuotas:
    """The quotas that are set, and how much each client has used of its own."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.are_set = False
        # Whether time is to be measured, which costs something for every request.
        self.limit_time = False
        self._now = now
        self._limits: dict[Entity, Mapping[str, float]] = {}
        # What was used, by the quota's name and whom it is set and counted for.
        self._used: dict[tuple[str, Entity, str, str], Rate | TokenBucket] = {}
        # Seconds of throttling, by whom the quota counts for.
        self._throttles: dict[tuple[str, str], Rate] = {}
        self._throttled = 0
        self._throttled_ms = 0

    def set(self, entity: Entity, config: Mapping[str, str]) -> None:
        limits = {name: float(text) for name, text in config.items() if name in QUOTA_NAMES}
        if limits:
            self._limits[entity] = limits
        else:
            self._limits.pop(entity, None)
        self.are_set = bool(self._limits)
        self.limit_time = any(REQUEST_SHARE in each for each in self._limits.values())

    # Bytes

    def produced(self, context: "RequestContext") -> None:
        self._record(PRODUCER_RATE, context, context.size_bytes)

    def fetched(self, context: "RequestContext", byte_count: int) -> bool:
        """Whether the client may have these bytes; if not, they do not count."""
        rate = self._record(CONSUMER_RATE, context, byte_count)
        if rate is None:
            return True
        rate.record(-byte_count)
        return False

    def fetch_bytes_max(self, context: "RequestContext") -> float:
        """The most that a single fetch can ever be given: what the quota lets through in a window.

        Without this bound a larger fetch would come back empty for ever.
        """
        _, limit = self._limit(CONSUMER_RATE, context)
        return math.inf if limit is None else limit * (WINDOWS - 1) * WINDOW_S

    def _record(self, name: str, context: "RequestContext", amount: float) -> Rate | None:
        """Counts the amount. The meter, and the client is throttled, if that was too much."""
        entity, limit = self._limit(name, context)
        if entity is None or limit is None:
            return None
        rate = self._meter(name, entity, context, Rate)
        rate.record(amount)
        over_s = rate.seconds_until(limit)
        if over_s <= 0:
            return None
        if name == REQUEST_SHARE:
            over_s = min(over_s, REQUEST_THROTTLE_S_MAX)
        self._throttle(context, entity, over_s)
        return rate

    # Time

    def timed(self, serve: Callable[[], Answer], context: "RequestContext") -> Answer:
        """Serves a request and charges its client for the time, except that spent waiting."""
        return measured(serve, self._now, lambda seconds: self._spent(context, seconds))

    def _spent(self, context: "RequestContext", seconds: float) -> None:
        self._record(REQUEST_SHARE, context, seconds * 100)

    # Changes of topics

    def mutate(self, context: "RequestContext", partitions: int, *, strict: bool) -> None:
        """So many partitions are about to be created or deleted.

        Strictly: THROTTLING_QUOTA_EXCEEDED if the client has used up its quota. Else, for clients
        that do not know this error, it is done and the client throttled.
        """
        entity, limit = self._limit(MUTATION_RATE, context)
        if entity is None or limit is None:
            return
        bucket = self._meter(MUTATION_RATE, entity, context, TokenBucket)
        over_s = bucket.seconds_until(limit)
        if strict and over_s > 0:
            self._throttle(context, entity, over_s)
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
            )
        bucket.take(partitions)
        if not strict and (over_s := bucket.seconds_until(limit)) > 0:
            self._throttle(context, entity, over_s)

    # Who, and how much

    def _limit(self, name: str, context: "RequestContext") -> tuple[Entity | None, float | None]:
        for entity in entities(context.user, context.client_id):
            limit = self._limits.get(entity, {}).get(name)
            if limit is not None:
                return entity, limit
        return None, None

    def _throttle(self, context: "RequestContext", entity: Entity, seconds: float) -> None:
        self._throttled += 1
        counted_for = _counted_for(entity, context)
        if counted_for not in self._throttles and len(self._throttles) >= CLIENTS_MAX:
            self._throttles.pop(next(iter(self._throttles)))
        self._throttles.setdefault(counted_for, Rate(self._now)).record(
            min(seconds, THROTTLE_MS_MAX / 1000)
        )
        # Without end if the quota is zero, so it is bounded before it is rounded.
        throttle_ms = math.ceil(min(seconds * 1000, THROTTLE_MS_MAX))
        self._throttled_ms += throttle_ms
        context.throttle_ms = max(context.throttle_ms, throttle_ms)

    def _meter(
        self, name: str, entity: Entity, context: "RequestContext", kind: type[Meter]
    ) -> Meter:
        key = (name, entity, *_counted_for(entity, context))
        found = self._used.get(key)
        if found is None:
            if len(self._used) >= CLIENTS_MAX:
                self._used.pop(next(iter(self._used)))
            found = self._used[key] = kind(self._now)
        assert isinstance(found, kind)
        return found

    def use(self) -> Iterator[ClientUse]:
        """What clients that have a quota use of it."""
        for (name, _, user, client), meter in self._used.items():
            if isinstance(meter, Rate):
                throttles = self._throttles.get((user, client))
                throttled = 0.0 if throttles is None else throttles.rate()
                yield ClientUse(user, client, name, meter.rate(), throttled)

    def statistics(self) -> dict[str, int]:
        return {
            "quotas": len(self._limits),
            "clients": len(self._used),
            "throttled": self._throttled,
            "throttled_ms": self._throttled_ms,
        }
