"""A term of a controller for tests, without the controller, and with what it sent."""

from random import Random

from odradek.controller.channels import ChannelPeer, Channels
from odradek.controller.config import ControllerConfig
from odradek.controller.control_request_batch import ControlRequest
from odradek.controller.events import TermEvent
from odradek.controller.journal import Journal
from odradek.controller.term import Term
from odradek.store.cluster import ClusterStore
from odradek.store.controller_nodes import ControllerTerm


class RecordingChannels(Channels):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, ControlRequest]] = []

    def send(self, broker_id: int, request: ControlRequest) -> None:
        self.sent.append((broker_id, request))


class NoHost:
    """A controller that nothing happens to."""

    rng = Random(1)

    async def connect(self, host: str, port: int) -> ChannelPeer:
        raise ConnectionRefusedError

    def put_for_term(self, event: TermEvent, epoch: int) -> None:
        pass

    def on_reach(self, broker_id: int) -> None:
        pass


def term_on(
    store: ClusterStore, elected: ControllerTerm, config: ControllerConfig | None = None
) -> Term:
    term = Term(1, elected, store, config or ControllerConfig(), Journal(lambda: 0), NoHost())
    term.channels = RecordingChannels()
    return term


def sent_by(term: Term) -> list[tuple[int, ControlRequest]]:
    assert isinstance(term.channels, RecordingChannels)
    return term.channels.sent
