"""A standby's connection to the active controller, kept open to see when it ends.

A session with ZooKeeper outlives its process by seconds, and as long as the node `/controller`
stands no other broker can be elected. So a broker on standby holds a connection to the controller's
broker, as a controller does to every broker (channels.py): when it breaks and the next one is
refused, that process has ended, and the standby deletes the node. Were it wrong, an election more
would be all: a controller that is replaced can write nothing (controller_election.py, rule 3).

The next controller uses the same connection. What it knows, that this incarnation was
reached and no longer listens, says that the broker is dead, too.
"""

from collections.abc import Callable

from odradek.controller.channels import Channel, Connect, ControlResponse, Versions
from odradek.controller.control_request_batch import ControlRequest
from odradek.store.payloads import BrokerRegistration

__all__ = ["ControllerWatch"]


def _no_response(broker_id: int, request: ControlRequest, response: ControlResponse) -> None:
    raise AssertionError("a standby sends no control requests")


class ControllerWatch:
    """Follows one incarnation of one broker at a time."""

    def __init__(
        self, listener: str, versions: Versions, connect: Connect, on_deserted: Callable[[], None]
    ) -> None:
        self._listener = listener
        self._versions = versions
        self._connect = connect
        self._on_deserted = on_deserted
        self._followed: BrokerRegistration | None = None
        self._channel: Channel | None = None

    @property
    def deserted(self) -> BrokerRegistration | None:
        """The controller's broker, if it was reached and no longer listens."""
        channel = self._channel
        return self._followed if channel is not None and channel.is_deserted else None

    def follow(self, broker: BrokerRegistration) -> None:
        """This broker is the controller."""
        if self._followed == broker:
            return
        self.close()
        endpoint = broker.endpoint(self._listener)
        if endpoint is not None:
            self._followed = broker
            self._channel = Channel(
                broker, endpoint, self._versions, self._connect, _no_response, self._on_reach
            )
            self._channel.hold()

    def _on_reach(self, broker_id: int) -> None:
        if self.deserted is not None:
            self._on_deserted()

    def hand_over(self) -> Channel | None:
        """The channel, for the term that begins, if it was any use until now."""
        channel, self._channel, self._followed = self._channel, None, None
        if channel is not None and not channel.was_reached:
            channel.close()
            return None
        return channel

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = self._followed = None
