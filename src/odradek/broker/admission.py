"""Which newcomers a broker takes: counts and rates of connections.

docs/spec/security.md, section 5. Decisions only; `connections` carries them out.

- Over `max.connections.per.ip`, or over the connection_creation_rate of its address: refused. The
  latter is closed only after the time it is too early, so that it cannot simply try again.
- Over `max.connections` or `max.connection.creation.rate`, of the broker or of the listener: waits.
  Brokers that have a listener to themselves are bound by that listener's limits only.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.replica.throttle import WINDOW_S, Rate
from odradek.security.principal import host_text

__all__ = ["UNLIMITED", "AdmissionControl", "ConnectionLimits", "Rejection", "Wait"]

DEFAULT_ADDRESS = "<default>"
UNLIMITED = 2**31 - 1
# Addresses whose rate is known: they are the clients' to choose, so memory stays bounded.
ADDRESSES_MAX = 10_000


class Rejection(NamedTuple):
    """Closed, after so many seconds."""

    reason: str
    after_s: float = 0.0


class Wait(NamedTuple):
    """Taken, but not before this time of the loop."""

    until: float


@dataclass(frozen=True)
class ConnectionLimits:
    """As the settings have them; a listener that is not named has none of its own."""

    connections: int = UNLIMITED
    per_address: int = UNLIMITED
    overrides: Mapping[str, int] = field(default_factory=dict)
    by_listener: Mapping[str, int] = field(default_factory=dict)
    rate: int = UNLIMITED
    rate_by_listener: Mapping[str, int] = field(default_factory=dict)


class AdmissionControl:
    """Counts who is connected. `protected`: listeners that are the brokers' own."""

    def __init__(self, now: Callable[[], float], protected: frozenset[str]) -> None:
        self.limits = ConnectionLimits()
        self._now = now
        self._protected = protected
        self._address_rates: dict[str, float] = {}
        self._from_address: dict[str, Rate] = {}
        self._through_listener: dict[str, Rate] = {}
        self._through_all = Rate(now)
        self._by_address: Counter[str] = Counter()
        self.by_listener: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return self.by_listener.total()

    def set_address_rate(self, address: str, per_second: float | None) -> None:
        """`connection_creation_rate` of an address, or of all that have none of their own."""
        address = address if address == DEFAULT_ADDRESS else host_text(address)
        if per_second is None:
            self._address_rates.pop(address, None)
        else:
            self._address_rates[address] = per_second

    # A newcomer's way in

    def arrive(self, address: str, listener: str) -> Rejection | Wait:
        """To be asked once about every newcomer. One that may wait counts for its address."""
        refused = self._too_fast(address)
        if refused is not None:
            return refused
        limit = self.limits.overrides.get(address, self.limits.per_address)
        if self._by_address[address] >= limit:
            return Rejection(f"more than {limit} connections from {address}")
        self._by_address[address] += 1
        return Wait(self._now() + self._early_s(listener))

    def has_room(self, listener: str) -> bool:
        """Whether one more may come in through this listener."""
        limit = self.limits.by_listener.get(listener, UNLIMITED)
        if self.by_listener[listener] >= limit:
            return False
        return listener in self._protected or not self.is_full

    @property
    def is_full(self) -> bool:
        return self.count >= self.limits.connections

    @property
    def is_overfull(self) -> bool:
        """By brokers, who are let in all the same: a client's connection has to go."""
        return self.count > self.limits.connections

    def enter(self, listener: str) -> None:
        self.by_listener[listener] += 1

    def leave(self, listener: str) -> None:
        self.by_listener[listener] -= 1

    def depart(self, address: str) -> None:
        """One that arrived is gone, whether it had come in or not."""
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    # Rates

    def _too_fast(self, address: str) -> Rejection | None:
        rates = self._address_rates
        if not rates:
            return None
        address = host_text(address)
        limit = rates.get(address, rates.get(DEFAULT_ADDRESS))
        if limit is None:
            return None
        rate = self._from_address.pop(address, None) or Rate(self._now)
        if len(self._from_address) >= ADDRESSES_MAX:
            del self._from_address[next(iter(self._from_address))]
        self._from_address[address] = rate  # the last one used is the last to be forgotten
        rate.record(1)
        over_s = rate.seconds_until(limit)
        if over_s <= 0:
            return None
        rate.record(-1)
        reason = f"more than {limit:g} connections a second from {address}"
        return Rejection(reason, min(over_s, WINDOW_S))

    def _early_s(self, listener: str) -> float:
        """How long a newcomer has to wait for the rate to be kept."""
        early_s = 0.0
        limit = self.limits.rate_by_listener.get(listener, UNLIMITED)
        if limit < UNLIMITED:
            rate = self._through_listener.setdefault(listener, Rate(self._now))
            rate.record(1)
            early_s = rate.seconds_until(limit)
        if self.limits.rate < UNLIMITED and listener not in self._protected:
            self._through_all.record(1)
            early_s = max(early_s, self._through_all.seconds_until(self.limits.rate))
        return min(max(early_s, 0.0), WINDOW_S)
