"""The controller's own nodes: who is elected, in which epoch, and the first write of a new one.

``/controller`` is ephemeral and names the elected broker. ``/controller_epoch`` counts elections;
its version is the fence behind every write of the controller that was elected with it. docs/spec,
sections 4.1 and 4.2 of the controller's behaviour.
"""

from __future__ import annotations

import logging
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
from odradek.store.payloads import FeatureNode
from odradek.wire.protocol_version import ProtocolVersion

logger = logging.getLogger(__name__)

NO_FEATURES = -1


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

    async def is_kraft(self) -> bool:
        """Whether a KRaft controller has taken over the cluster, to migrate it from ZooKeeper."""
        node = await self._nodes.read(paths.CONTROLLER)
        return node is not None and payloads.decode_controller(node[0])[1] > 0

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

    async def write_features(self, protocol: ProtocolVersion, fence: int) -> None:
        """A new controller's first write: the feature node as its inter-broker protocol has it.

        A node that says the same already is not written: each version of it is an epoch that every
        broker shows. It is never deleted, for brokers of Kafka stop at a version that is lower than
        one they saw. docs/spec/protocol-ladder.md section 6.3.
        """
        wanted = FeatureNode(protocol.feature_node_version, protocol.enables_features)
        node = await self._nodes.read(paths.FEATURES)
        if node is None:
            data = payloads.encode_features(wanted)
            await self._nodes.write_all([[Create(paths.FEATURES, data)]], fence)
            return
        found = payloads.decode_features(node[0])
        if found.is_enabled and found.features and wanted.is_enabled:
            logger.warning(
                "%s: it finalizes %s, which no broker on ZooKeeper supports; left as it is",
                paths.FEATURES,
                ", ".join(found.features),
            )
        elif found != wanted:
            data = payloads.encode_features(wanted)
            write = Set(paths.FEATURES, data, node[1].version)
            await self._nodes.write_all([[write]], fence)

    async def features_epoch(self, watch: Watch | None = None) -> int:
        """What ApiVersions shows: the version of an enabled feature node, -1 without one."""
        node = await self._nodes.read(paths.FEATURES, watch)
        if node is None:
            return NO_FEATURES
        try:
            is_enabled = payloads.decode_features(node[0]).is_enabled
        except payloads.InvalidPayload as error:
            logger.warning("%s; treated as no features", error)
            return NO_FEATURES
        return node[1].version if is_enabled else NO_FEATURES
