"""The controller's own nodes: who is elected, in which epoch, and the first write of a new one.

``/controller`` is ephemeral and names the elected broker. ``/controller_epoch`` counts elections;
its version is the fence behind every write of the controller that was elected with it. docs/spec,
sections 4.1 and 4.2 of the controller's behaviour.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.store import paths, payloads
from odradek.store.api import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Set,
    Stat,
    Watch,
)
from odradek.store.nodes import ControllerMoved, Nodes


class ControllerTerm(NamedTuple):
    """An election won: the new controller epoch, and the fence for every write made in it."""

    epoch: int
    fence: int


class ControllerNodes:
    """Elects the controller, and knows which one is elected."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    async def id(self, watch: Watch | None = None) -> int | None:
        node = await self._nodes.read(paths.CONTROLLER, watch)
        return None if node is None else payloads.decode_controller(node[0])[0]

    async def term(self) -> ControllerTerm | None:
        """The latest epoch and the version it stands at; None before the first election."""
        node = await self._nodes.read(paths.CONTROLLER_EPOCH)
        if node is None:
            return None
        return ControllerTerm(payloads.decode_controller_epoch(node[0]), node[1].version)

    async def elect(self, broker_id: int) -> ControllerTerm:
        """Create ``/controller`` and raise the epoch, both or neither."""
        session = self._nodes.session
        current = await self.term()
        if current is None:
            try:
                await session.create(paths.CONTROLLER_EPOCH, payloads.encode_controller_epoch(0))
                current = ControllerTerm(0, 0)
            except NodeExists:
                current = await self.term()
                assert current is not None, "the controller epoch is never deleted"
        epoch = current.epoch + 1
        registration = payloads.encode_controller(broker_id, self._nodes.clock())
        self._nodes.check_registered()
        try:
            _, stat = await session.multi(
                [
                    Create(paths.CONTROLLER, registration, ephemeral=True),
                    Set(
                        paths.CONTROLLER_EPOCH,
                        payloads.encode_controller_epoch(epoch),
                        current.fence,
                    ),
                ]
            )
        except (NodeExists, BadVersion):
            return await self._confirm_election(broker_id, epoch)
        assert isinstance(stat, Stat)
        return ControllerTerm(epoch, stat.version)

    async def _confirm_election(self, broker_id: int, epoch: int) -> ControllerTerm:
        """Was it our own multi, sent twice over a lost connection, that took the place?"""
        elected = await self.id()
        current = await self.term()
        if elected == broker_id and current is not None and current.epoch == epoch:
            return current
        raise ControllerMoved(f"broker {elected} is the controller")

    async def resign(self, fence: int) -> None:
        """Delete ``/controller``, if it is still ours."""
        self._nodes.check_registered()
        await self._nodes.write_all([[Delete(paths.CONTROLLER)]], fence, ignore=NoNode)

    async def disable_features(self, fence: int) -> None:
        """A new controller's first write: the feature node as inter-broker protocol 2.6 has it."""
        node = await self._nodes.read(paths.FEATURES)
        disabled = payloads.FEATURES_DISABLED
        if node is None:
            await self._nodes.write_all([[Create(paths.FEATURES, disabled)]], fence)
            return
        payloads.check_features(node[0])
        if node[0] != disabled:
            await self._nodes.write_all([[Set(paths.FEATURES, disabled)]], fence)
