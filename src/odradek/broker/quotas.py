"""Client quotas: how many bytes a second a client may produce and fetch (KIP-13, KIP-124, KIP-219).

A quota belongs to a user, a client id, or both, or to the default of either; the most specific one
counts, and all connections it counts for share it. Without authentication every user is ANONYMOUS.
Who goes over is answered at once, told for how long to be quiet, and not listened to for as long.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from odradek.replica.throttle import ReplicationQuota
from odradek.store.paths import desanitize
from odradek.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from odradek.broker.requests import RequestContext

__all__ = ["QUOTA_NAMES", "WHOLE_QUOTAS", "ClientQuotas", "Entity", "entity_of", "plain_entity"]

ANONYMOUS = "ANONYMOUS"
DEFAULT = "<default>"
PRODUCER_RATE = "producer_byte_rate"
CONSUMER_RATE = "consumer_byte_rate"
QUOTA_NAMES = frozenset(
    {PRODUCER_RATE, CONSUMER_RATE, "request_percentage", "controller_mutation_rate"}
)
WHOLE_QUOTAS = frozenset({PRODUCER_RATE, CONSUMER_RATE})
THROTTLE_MS_MAX = 30_000
CLIENTS_MAX = 10_000

# A user and a client id; each a name, the default, or None where the quota does not say.
Entity = tuple[str | None, str | None]


def entities(client_id: str) -> Iterator[Entity]:
    """Whose quota counts for this client, the most specific first."""
    for user in (ANONYMOUS, DEFAULT):
        yield user, client_id
        yield user, DEFAULT
        yield user, None
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


class ClientQuotas:
    """The quotas that are set, and how much each client has used of its own."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.are_set = False
        self._now = now
        self._limits: dict[Entity, Mapping[str, float]] = {}
        # What was used, by the quota's name and the entity or client it is counted for.
        self._used: dict[tuple[str, Entity, str], ReplicationQuota] = {}
        self._throttled = 0

    def set(self, entity: Entity, config: Mapping[str, str]) -> None:
        limits = {name: float(text) for name, text in config.items() if name in QUOTA_NAMES}
        if limits:
            self._limits[entity] = limits
        else:
            self._limits.pop(entity, None)
        self._used.clear()
        self.are_set = bool(self._limits)

    def produced(self, context: "RequestContext") -> int:
        return self._record(PRODUCER_RATE, context, context.size_bytes)

    def fetched(self, context: "RequestContext", response: FetchResponse) -> int:
        byte_count = sum(
            len(data.records or b"") for topic in response.responses for data in topic.partitions
        )
        return self._record(CONSUMER_RATE, context, byte_count)

    def _record(self, name: str, context: "RequestContext", byte_count: int) -> int:
        """Counts the bytes, and says for how many milliseconds the client must be quiet."""
        entity = next(
            (each for each in entities(context.client_id) if name in self._limits.get(each, {})),
            None,
        )
        if entity is None:
            return 0
        limit = self._limits[entity][name]
        used = self._usage(name, entity, context.client_id, limit)
        used.record(byte_count)
        rate = used.rate()
        if rate <= limit:
            return 0
        self._throttled += 1
        over_s = (rate - limit) / limit * 10 if limit > 0 else math.inf
        throttle_ms = min(math.ceil(over_s * 1000), THROTTLE_MS_MAX)
        context.connection.mute(throttle_ms / 1000)
        return throttle_ms

    def _usage(self, name: str, entity: Entity, client_id: str, limit: float) -> ReplicationQuota:
        # A default counts for each client apart; a quota of a user alone for all its clients.
        shared = client_id if entity[1] is not None else ""
        key = (name, entity, shared)
        used = self._used.get(key)
        if used is None:
            if len(self._used) >= CLIENTS_MAX:
                self._used.pop(next(iter(self._used)))
            used = self._used[key] = ReplicationQuota(self._now, int(limit))
        return used

    def statistics(self) -> dict[str, int]:
        return {
            "quotas": len(self._limits),
            "clients": len(self._used),
            "throttled": self._throttled,
        }
