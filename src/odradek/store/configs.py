"""Dynamic configurations and their change notifications.

INTERCHANGE.md section B.1: a configuration is written only while there is a controller, under a
check of ``/controller``, so that a cluster that moves to KRaft is not written behind its back.
The writer then leaves a notification (`changes`: ``topics/t``, ``users/u/clients/c``...).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from odradek.store import paths, payloads
from odradek.store.api import (
    Check,
    NodeExists,
    NoNode,
    Operation,
    Set,
    StoreError,
    parent_of,
)
from odradek.store.change_nodes import ChangeNodes
from odradek.store.nodes import Nodes


class NoController(StoreError):
    """Configurations cannot be written while there is no controller, or a KRaft one."""


class Configs:
    """Configurations of topics, brokers, clients, users and ips."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.changes = ChangeNodes(
            nodes,
            paths.CONFIG_CHANGES,
            paths.CONFIG_CHANGE_PREFIX,
            payloads.encode_config_change,
            payloads.decode_config_change,
        )

    async def get(self, kind: str, entity: str) -> dict[str, str]:
        """An entity's own settings; empty if it has none. The entity's name is sanitized."""
        node = await self._nodes.read(paths.config(kind, entity))
        return {} if node is None else payloads.decode_config(node[0], paths.config(kind, entity))

    async def get_many(self, kind: str, entities: Collection[str]) -> dict[str, dict[str, str]]:
        where = [paths.config(kind, entity) for entity in entities]
        nodes = await self._nodes.session.get_many(where)
        return {
            entity: {} if node is None else payloads.decode_config(node[0], path)
            for entity, path, node in zip(entities, where, nodes, strict=True)
        }

    async def entities(self, kind: str) -> list[str]:
        """The entities of a kind that have a node."""
        return await self._nodes.names(paths.configs(kind))

    async def clients_of_user(self, user: str) -> list[str]:
        """The clients that a user has settings for, apart from those for all of its clients."""
        return await self._nodes.names(paths.config(paths.ConfigKind.USERS, f"{user}/clients"))

    async def set(self, kind: str, entity: str, config: Mapping[str, str]) -> None:
        """Write all settings of an entity. The notification is the caller's next step."""
        path = paths.config(kind, entity)
        data = payloads.encode_config(config)
        controller = await self._nodes.read(paths.CONTROLLER)
        if controller is None or payloads.decode_controller(controller[0])[1] > 0:
            raise NoController(path, f"there is no controller of ours: {path} was not written")
        write: list[Operation] = [Check(paths.CONTROLLER, controller[1].version), Set(path, data)]
        try:
            await self._nodes.session.multi(write)
        except NoNode as missing:
            if missing.path == paths.CONTROLLER:
                raise NoController(path, f"the controller left: {path} was not written") from None
            await self._nodes.ensure(parent_of(path))
            try:
                await self._nodes.session.create(path, data)
            except NodeExists:
                await self._nodes.session.multi(write)

    async def set_offline(self, kind: str, entity: str, config: Mapping[str, str]) -> None:
        """Write all settings of an entity while no broker runs: they read them when they start."""
        path = paths.config(kind, entity)
        await self._nodes.ensure(parent_of(path))
        data = payloads.encode_config(config)
        try:
            await self._nodes.session.create(path, data)
        except NodeExists:
            await self._nodes.session.set(path, data)
