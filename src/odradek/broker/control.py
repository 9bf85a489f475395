"""Which requests between brokers are believed: those that agree with the metadata store.

LeaderAndIsr, StopReplica, UpdateMetadata and ControlledShutdown elect leaders and delete logs, and
without authentication any client can send them. The store, which clients cannot reach, tells a
controller from one:

1. Where brokers have a listener of their own, these requests are served on that one only.
2. A request names the epoch at which the broker in question is registered. Every controller since
   inter-broker protocol 2.2 does; a request without one, or with one that the store does not have,
   is refused with STALE_BROKER_EPOCH.
3. A request names a controller epoch that the store has. One with a later epoch waits until the
   store shows it here, because a broker may see an election later than the new controller's
   first request. If it never does, the connection is closed: a real controller sends the request
   again, and an error code could make it believe that another one has been elected.

Whatever is refused is logged with the address and client id of its sender. An attacker who can read
the store, or who guesses a broker's epoch, is not kept out by this: that takes authentication.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Protocol

from odradek.store.api import StoreError
from odradek.store.cluster import ClusterStore
from odradek.wire.errors import ErrorCode, KafkaError

__all__ = ["ControlRequest", "ControlRequestGuard", "NotBelieved"]

# How long the store may take to show an election that a control request speaks of.
ELECTION_WAIT_S = 10.0
LOOK_S = 0.05
NO_EPOCH = -1

logger = logging.getLogger(__name__)


class ControlRequest(Protocol):
    """What LeaderAndIsr, StopReplica and UpdateMetadata have in common."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int


class NotBelieved(Exception):
    """The connection that this request came over is to be closed."""


class ControlRequestGuard:
    """Compares control requests with the store."""

    def __init__(self, store: ClusterStore) -> None:
        self._store = store
        self._controller_epoch = 0
        self._refused = 0

    def check_listener(self, listener: str, only: Collection[str] | None, sender: str) -> None:
        """Raises KafkaError unless brokers talk over this listener; `only` is None for any."""
        if only is not None and listener not in only:
            self._refuse(
                sender,
                KafkaError(
                    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                    f"requests between brokers are served on {', '.join(sorted(only))} only",
                ),
            )

    def is_known(self, request: ControlRequest, broker_epoch: int) -> bool:
        """Whether nothing has to be looked up. Epochs of the past are known, and refused later."""
        return (
            request.controller_epoch <= self._controller_epoch
            and NO_EPOCH < request.broker_epoch <= broker_epoch
        )

    async def check(self, request: ControlRequest, broker_id: int, sender: str) -> None:
        """Raises KafkaError for a broker epoch, NotBelieved for a controller epoch that the store
        does not have."""
        try:
            await self._check(request, broker_id, sender)
        except StoreError as error:
            # An error code would be an answer, and the controller would not send this again.
            raise NotBelieved(f"a control request while the store is away: {error}") from None

    async def _check(self, request: ControlRequest, broker_id: int, sender: str) -> None:
        await self.check_broker_epoch(broker_id, request.broker_epoch, sender)
        deadline = asyncio.get_running_loop().time() + ELECTION_WAIT_S
        while not await self._has_epoch(request.controller_epoch):
            if asyncio.get_running_loop().time() >= deadline:
                self._refused += 1
                raise NotBelieved(
                    f"a control request of controller {request.controller_id} at epoch"
                    f" {request.controller_epoch}, but the store has {self._controller_epoch}"
                )
            await asyncio.sleep(LOOK_S)

    async def check_broker_epoch(self, broker_id: int, epoch: int, sender: str) -> None:
        """Raises KafkaError unless the broker is registered at this epoch, or at a later one."""
        registered = await self._store.broker(broker_id)
        if epoch == NO_EPOCH or (registered is not None and epoch > registered.epoch):
            self._refuse(
                sender,
                KafkaError(
                    ErrorCode.STALE_BROKER_EPOCH,
                    f"broker {broker_id} is not registered at epoch {epoch}",
                ),
            )

    async def _has_epoch(self, epoch: int) -> bool:
        if epoch > self._controller_epoch:
            term = await self._store.controller.term()
            if term is not None:
                self._controller_epoch = max(self._controller_epoch, term.epoch)
        return epoch <= self._controller_epoch

    def _refuse(self, sender: str, error: KafkaError) -> None:
        self._refused += 1
        logger.warning("control request from %s refused: %s", sender, error)
        raise error

    def statistics(self) -> dict[str, int]:
        return {"controller_epoch": self._controller_epoch, "refused": self._refused}
