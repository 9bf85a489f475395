"""Channels to the brokers: one connection each, one request in flight, in order.

A broker must get every control request and in the order they were decided, so a request that fails
is sent again, for ever, with a pause, until the broker is gone from the store and its channel with
it. A registered broker may refuse connections for a while: Kafka opens its sockets last.
BEHAVIOUR.md section 4.9, INTERCHANGE.md section A.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from odradek.controller.requests import ControlRequest
from odradek.store.payloads import BrokerRegistration
from odradek.wire.errors import DecodeError
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

log = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.1
# Fixed by inter-broker protocol 2.6: these connections discover no versions.
VERSIONS: Mapping[type[ControlRequest], int] = {
    LeaderAndIsrRequest: 4,
    UpdateMetadataRequest: 6,
    StopReplicaRequest: 3,
}

ControlResponse = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse
OnResponse = Callable[[int, ControlRequest, ControlResponse], None]


class Peer(Protocol):
    """What a channel needs of a connection."""

    @property
    def closed(self) -> bool: ...

    async def request(self, message: ControlRequest, version: int) -> ControlResponse: ...

    def close(self) -> None: ...


Connect = Callable[[str, int], Awaitable[Peer]]


class Channel:
    """The way to one broker. Its responses come back through `on_response`."""

    def __init__(
        self, broker_id: int, host: str, port: int, connect: Connect, on_response: OnResponse
    ) -> None:
        self.broker_id = broker_id
        self.host = host
        self.port = port
        self._connect = connect
        self._on_response = on_response
        self._queue: deque[ControlRequest] = deque()
        self._wake = asyncio.Event()
        self._connection: Peer | None = None
        self.sent = 0
        self.retries = 0
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"controller-channel-{broker_id}"
        )

    def put(self, request: ControlRequest) -> None:
        self._queue.append(request)
        self._wake.set()

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
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
                continue
            request = self._queue[0]
            response = await self._deliver(request)
            self._queue.popleft()
            self.sent += 1
            self._on_response(self.broker_id, request, response)

    async def _deliver(self, request: ControlRequest) -> ControlResponse:
        """The broker's answer, however often we have to ask."""
        version = VERSIONS[type(request)]
        while True:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = await self._connect(self.host, self.port)
                return await self._connection.request(request, version)
            except (ConnectionError, TimeoutError, OSError, DecodeError) as error:
                self.retries += 1
                log.info("broker %d did not take %s: %s", self.broker_id, type(request), error)
                if self._connection is not None:
                    self._connection.close()
                await asyncio.sleep(RETRY_PAUSE_S)


class Channels:
    """A channel to every registered broker, the controller's own included."""

    def __init__(self, listener: str, connect: Connect, on_response: OnResponse) -> None:
        self._listener = listener
        self._connect = connect
        self._on_response = on_response
        self._channels: dict[int, Channel] = {}
        self.dropped = 0

    def add(self, broker: BrokerRegistration) -> None:
        """Open the way to a broker; one whose address changed gets a new one."""
        endpoint = broker.endpoint(self._listener)
        if endpoint is None:
            log.warning("broker %d has no listener %s", broker.id, self._listener)
            return
        assert broker.id not in self._channels, f"two channels to broker {broker.id}"
        self._channels[broker.id] = Channel(
            broker.id, endpoint.host, endpoint.port, self._connect, self._on_response
        )

    def remove(self, broker_id: int) -> None:
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def send(self, broker_id: int, request: ControlRequest) -> None:
        channel = self._channels.get(broker_id)
        if channel is None:
            self.dropped += 1
            log.warning("no channel to broker %d: %s dropped", broker_id, type(request).__name__)
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
