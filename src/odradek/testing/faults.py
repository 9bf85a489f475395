"""Faults on demand, for tests: what a cluster asks of a broker, and the requests it has on record.

- error: the request is not carried out, and answered with this error
- delay: it is carried out, and its answer waits
- drop: it is carried out, and instead of its answer the connection ends

The commands are JSON in one more API on the broker's port, with a key that no Kafka API has. The
broker's side is `faulty_broker.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.wire.schema import Message, Request, since

__all__ = ["FAULTS_KEY", "Fault", "FaultsRequest", "FaultsResponse", "LoggedRequest"]

FAULTS_KEY = 32_000


class FaultsRequest(Request["FaultsResponse"], api_key=FAULTS_KEY, versions=(0, 0)):
    command: bytes = since(0)


class FaultsResponse(Message, api_key=FAULTS_KEY, versions=(0, 0)):
    answer: bytes = since(0)


@dataclass(slots=True)
class Fault:
    """What shall happen to the next `times` requests of an API."""

    api: str
    error: str = ""
    delay_s: float = 0.0
    drop: bool = False
    times: int = 1
    client_id: str | None = None  # only this client's
    from_brokers: bool = False  # the other brokers' fetches instead of the clients'

    def strikes(self, api: str, request: Message, client_id: str) -> bool:
        return (
            self.api == api
            and self.client_id in (None, client_id)
            and self.from_brokers == (getattr(request, "replica_id", -1) >= 0)
        )


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request that a broker was sent."""

    number: int
    broker: int
    api: str
    version: int
    client_id: str
    topics: tuple[str, ...]
    fault: str  # the fault injected: error, delay or drop; empty for none
