"""Channels to the brokers: one connection each, one request in flight, in order.

A broker must get every control request and in the order they were decided, so a request that fails
is sent again, for ever, with a pause, until the broker is gone from the store and its channel with
it. docs/spec/controller-and-replication.md section 4.9, docs/spec/interchange-with-apache-kafka.md
section A.

A connection that breaks is opened again at once. If it is refused, the broker no longer listens:
its process has ended, and need not be waited for until its session with the store has (section
4.4). Only one that we had reached is considered dead: a registered broker may refuse connections
for a while, since Kafka opens its sockets last.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol, TypeVar

from odradek.controller.control_request_batch import ControlRequest
from odradek.store.payloads import BrokerRegistration, Endpoint
from odradek.wire.errors import DecodeError, KafkaError
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.schema import Request

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_PAUSE_S = 0.1
# A connection that lasted for so long is not one that was dropped as soon as it was taken.
LASTING_S = 1.0
Versions = Mapping[type[ControlRequest], int]
ControlResponse = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse
OnResponse = Callable[[int, ControlRequest, ControlResponse], None]
# A broker listens that did not, or no longer listens.
OnReach = Callable[[int], None]


def versions_for(protocol: ProtocolVersion) -> Versions:
    """Fixed by the inter-broker protocol: these connections discover no versions."""
    return {
        LeaderAndIsrRequest: protocol.leader_and_isr_version,
        UpdateMetadataRequest: protocol.update_metadata_version,
        StopReplicaRequest: protocol.stop_replica_version,
    }


class ChannelPeer(Protocol):
    """What a channel needs of a connection."""

    on_lost: Callable[[], None]

    @property
    def closed(self) -> bool: ...

    async def request(self, message: Request[ControlResponse], version: int) -> ControlResponse: ...

    def close(self) -> None: ...


Connect = Callable[[str, int], Awaitable[ChannelPeer]]


class Channel:
    """The way to one incarnation of one broker. Its responses come back through `on_response`."""

    def __init__(
        self,
        broker: BrokerRegistration,
        endpoint: Endpoint,
        versions: Versions,
        connect: Connect,
        on_response: OnResponse,
        on_reach: OnReach,
    ) -> None:
        self.broker_id = broker.id
        self.epoch = broker.epoch
        self._endpoint = endpoint
        self._versions = versions
        self._connect = connect
        self.on_response = on_response
        self.on_reach = on_reach
        self._queue: deque[ControlRequest] = deque()
        self._wake = asyncio.Event()
        self._connection: ChannelPeer | None = None
        self._connected_at = 0.0
        # Whether the connection was good for anything yet.
        self._proven = False
        # Whether there is to be one although there is nothing to send.
        self._is_held = False
        # The broker no longer listens.
        self.is_deserted = False
        self.sent = 0
        self.retries = 0
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"controller-channel-{broker.id}"
        )

    def put(self, request: ControlRequest) -> None:
        self._queue.append(request)
        self._wake.set()

    def hold(self) -> None:
        """Keep a connection open, to see when the broker ends."""
        self._is_held = True
        self._wake.set()

    @property
    def was_reached(self) -> bool:
        return self._connection is not None

    def close(self) -> None:
        """Stop at once; what was not sent is for a broker that is gone."""
        self._task.cancel()
        self._queue.clear()
        if self._connection is not None:
            self._connection.close()

    def statistics(self) -> Mapping[str, int]:
        return {"queued": len(self._queue), "sent": self.sent, "retries": self.retries}

    async def _run(self) -> None:
        while True:
            if self._queue:
                response = await self._insist(self._deliver_first)
                self.sent += 1
                self.on_response(self.broker_id, self._queue.popleft(), response)
            elif self._connection is None and self._is_held:
                await self._insist(self._reach)
            elif self._connection is not None and self._connection.closed:
                lasted_s = asyncio.get_running_loop().time() - self._connected_at
                if not self._proven and lasted_s < LASTING_S:
                    # Something takes connections and drops them: a proxy, or a limit on them.
                    await asyncio.sleep(RETRY_PAUSE_S)
                await self._insist(self._reach)
            else:
                self._wake.clear()
                await self._wake.wait()

    async def _insist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of an attempt, however often we have to make it."""
        while True:
            try:
                return await attempt()
            except (ConnectionError, TimeoutError, OSError, DecodeError, KafkaError) as error:
                self.retries += 1
                logger.info(
                    "broker %d: control request failed, retrying: %s", self.broker_id, error
                )
                if self._connection is not None:
                    self._connection.close()
                await asyncio.sleep(RETRY_PAUSE_S)

    async def _deliver_first(self) -> ControlResponse:
        connection = await self._reach()
        request = self._queue[0]
        response = await connection.request(request, self._versions[type(request)])
        self._proven = True
        return response

    async def _reach(self) -> ChannelPeer:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        try:
            connection = await self._connect(self._endpoint.host, self._endpoint.port)
        except ConnectionRefusedError:
            self._set_deserted(self._connection is not None)
            raise
        connection.on_lost = self._wake.set
        self._connection = connection
        self._connected_at = asyncio.get_running_loop().time()
        self._proven = False
        self._set_deserted(False)
        return connection

    def _set_deserted(self, is_deserted: bool) -> None:
        if is_deserted is not self.is_deserted:
            self.is_deserted = is_deserted
            self.on_reach(self.broker_id)


class Channels:
    """A channel to every registered broker, the controller's own included."""

    def __init__(
        self,
        listener: str,
        versions: Versions,
        connect: Connect,
        on_response: OnResponse,
        on_reach: OnReach,
    ) -> None:
        self._listener = listener
        self._versions = versions
        self._connect = connect
        self._on_response = on_response
        self._on_reach = on_reach
        self._channels: dict[int, Channel] = {}
        self.dropped = 0

    def add(self, broker: BrokerRegistration) -> None:
        """Open the way to a broker, unless this incarnation of it has one."""
        channel = self._channels.get(broker.id)
        if channel is not None and channel.epoch == broker.epoch:
            return
        self._remove(broker.id)
        endpoint = broker.endpoint(self._listener)
        if endpoint is None:
            logger.warning("broker %d has no listener %s", broker.id, self._listener)
            return
        self._channels[broker.id] = Channel(
            broker, endpoint, self._versions, self._connect, self._on_response, self._on_reach
        )

    def adopt(self, channel: Channel) -> None:
        """Go on with a channel that is older than the term."""
        channel.on_response, channel.on_reach = self._on_response, self._on_reach
        self._channels[channel.broker_id] = channel

    def keep(self, broker_ids: Collection[int]) -> None:
        """Close the ways to all others."""
        for broker_id in [id for id in self._channels if id not in broker_ids]:
            self._remove(broker_id)

    def _remove(self, broker_id: int) -> None:
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def is_deserted(self, broker: BrokerRegistration) -> bool:
        """Whether this incarnation of a broker no longer listens where it did."""
        channel = self._channels.get(broker.id)
        return channel is not None and channel.epoch == broker.epoch and channel.is_deserted

    def send(self, broker_id: int, request: ControlRequest) -> None:
        channel = self._channels.get(broker_id)
        if channel is None:
            self.dropped += 1
            logger.warning("no channel to broker %d: %s dropped", broker_id, type(request).__name__)
            return
        channel.put(request)

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def statistics(self) -> dict[str, object]:
        return {
            "dropped": self.dropped,
            "brokers": {
                broker_id: channel.statistics() for broker_id, channel in self._channels.items()
            },
        }
