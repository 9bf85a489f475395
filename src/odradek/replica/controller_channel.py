"""The way from a broker to the active controller: one connection, one request in flight.

docs/spec/protocol-ladder.md section 3.4.

The controller is the broker that the last UpdateMetadata came from, so none of this needs the
store. Versions are negotiated: the controller may be of another make or release. Nothing is sent
again here. What failed may have been done all the same, and only the caller knows whether it still
wants it.
"""

from collections.abc import Callable
from typing import TypeVar

from odradek.replica.cluster_metadata import ClusterMetadata
from odradek.replica.config import ReplicaConfig
from odradek.wire.connection import Connection
from odradek.wire.errors import DecodeError, KafkaError
from odradek.wire.negotiation import ServedVersions, common_version, served_versions
from odradek.wire.schema import Message, Request

R = TypeVar("R", bound=Message)

__all__ = ["ControllerChannel", "ControllerUnavailable"]


class ControllerUnavailable(Exception):
    """No controller has answered. What was sent may have been done."""


class ControllerChannel:
    """Requests to whichever broker is the active controller, for one purpose."""

    def __init__(self, broker_id: int, cluster: ClusterMetadata, config: ReplicaConfig) -> None:
        self._client_id = str(broker_id)
        self._cluster = cluster
        self._listener = config.controller_listener_name
        self._timeout_s = config.controller_socket_timeout_ms / 1000
        self._security = config.controller_security
        self._connection: Connection | None = None
        self._connected_to: tuple[str, int] | None = None
        self._served: ServedVersions = {}

    async def request(
        self, api_key: int, version_max: int, build: Callable[[int], Request[R]]
    ) -> R:
        """The answer to what `build` makes of the version that both sides know, right before it is
        sent. Raises ControllerUnavailable."""
        try:
            connection = await self._connect()
            version = common_version(
                self._served, api_key, ours_max=version_max, peer=connection.peer
            )
            return await connection.request(build(version), version)
        except (OSError, TimeoutError, DecodeError, KafkaError) as error:
            self.close()
            raise ControllerUnavailable(str(error) or type(error).__name__) from error

    async def _connect(self) -> Connection:
        endpoint = self._locate()
        if endpoint is None:
            raise ConnectionError("no controller is known")
        if self._connection is not None and not self._connection.closed:
            if self._connected_to == endpoint:
                return self._connection
            self._connection.close()
        self._connection = connection = await Connection.open(
            *endpoint,
            client_id=self._client_id,
            timeout=self._timeout_s,
            security=self._security,
        )
        self._connected_to = endpoint
        self._served = await served_versions(connection)
        return connection

    def _locate(self) -> tuple[str, int] | None:
        controller_id = self._cluster.controller_id
        return (
            None if controller_id is None else self._cluster.endpoint(controller_id, self._listener)
        )

    def controller_may_have_moved(self) -> None:
        """To be called when metadata has come: an earlier controller is not waited for."""
        if self._connection is not None and self._locate() not in (None, self._connected_to):
            self._connection.close()

    def close(self) -> None:
        """End the connection, as after NOT_CONTROLLER; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
