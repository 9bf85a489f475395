"""Dynamic configurations and their change notifications.

INTERCHANGE.md section B.1: a configuration is written only while there is a controller, under a
check of ``/controller``, so that a cluster that moves to KRaft is not written behind its back.
The writer then leaves a notification; every broker replays those it has not seen, and purges
the ones older than fifteen minutes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from odradek.store import paths, payloads
from odradek.store.api import (
    Check,
    NodeExists,
    NoNode,
    Operation,
    Set,
    StoreError,
    Watch,
    parent_of,
)
from odradek.store.nodes import Nodes, sequence_of
from odradek.store.payloads import ConfigChange, InvalidPayload

logger = logging.getLogger(__name__)

CHANGE_EXPIRATION_MS = 15 * 60 * 1000


class NoController(StoreError):
    """Configurations cannot be written while there is no controller, or a KRaft one."""


class Configs:
    """Configurations of topics, brokers, clients, users and ips."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

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

    async def notify_change(self, entity_path: str) -> None:
        """Tell every broker that ``topics/t``, ``users/u/clients/c``... was written."""
        await self._nodes.session.create(
            f"{paths.CONFIG_CHANGES}/{paths.CONFIG_CHANGE_PREFIX}",
            payloads.encode_config_change(entity_path),
            sequential=True,
        )

    async def changes(self, after: int = -1, watch: Watch | None = None) -> list[ConfigChange]:
        """The notifications after this sequence, in order; unreadable ones are skipped."""
        names = await self._nodes.names(paths.CONFIG_CHANGES, watch)
        wanted = [name for name in names if sequence_of(name) > after]
        where = [f"{paths.CONFIG_CHANGES}/{name}" for name in wanted]
        changes = []
        for path, node in zip(where, await self._nodes.session.get_many(where), strict=True):
            if node is None:
                continue
            try:
                entity_path = payloads.decode_config_change(node[0], path)
            except InvalidPayload as error:
                logger.warning("skipping a notification: %s", error)
                continue
            changes.append(ConfigChange(sequence_of(path), entity_path))
        return sorted(changes)

    async def purge_changes(self, age_ms: int = CHANGE_EXPIRATION_MS) -> None:
        """Delete notifications every broker has had time to read."""
        names = await self._nodes.names(paths.CONFIG_CHANGES)
        where = [f"{paths.CONFIG_CHANGES}/{name}" for name in names]
        for path, node in zip(where, await self._nodes.session.get_many(where), strict=True):
            if node is not None and node[1].created_ms + age_ms < self._nodes.clock():
                await self._nodes.delete_if_there(path)  # another broker purges too
