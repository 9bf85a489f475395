"""Dynamic configurations and their change notifications; and the reading all typed access shares.

INTERCHANGE.md section B.1: a configuration is written only while there is a controller, under a
check of ``/controller``, so that a cluster that moves to KRaft is not written behind its back.
Whoever writes then leaves a notification; every broker replays those it has not seen, and purges
the ones older than fifteen minutes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from odradek.store import paths, payloads
from odradek.store.api import (
    Check,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Set,
    Store,
    StoreError,
    Watch,
    parent_of,
)
from odradek.store.payloads import AclEntry, ConfigChange, InvalidPayload

log = logging.getLogger(__name__)

CHANGE_EXPIRATION_MS = 15 * 60 * 1000


class NoController(StoreError):
    """Configurations cannot be written while nobody, or a KRaft controller, is in office."""


class Configs:
    """Configurations of topics, brokers, clients, users and ips."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self.store = store
        self.clock = clock

    async def read(self, path: str, watch: Watch | None = None) -> Node | None:
        """A node that may be absent; then the watch waits for its creation."""
        while True:
            try:
                return await self.store.get(path, watch)
            except NoNode:
                if watch is None or await self.store.exists(path, watch) is None:
                    return None

    async def names(self, path: str, watch: Watch | None = None) -> list[str]:
        """The children of a node; none if it is absent."""
        try:
            return await self.store.children(path, watch)
        except NoNode:
            return []

    async def ensure(self, path: str) -> None:
        """Create a persistent node with null data, and its parents, unless they are there."""
        if path == "/":
            return
        try:
            await self.store.create(path, None)
        except NodeExists:
            pass  # that is what was wanted
        except NoNode:
            await self.ensure(parent_of(path))
            await self.ensure(path)

    async def config(self, kind: str, entity: str) -> dict[str, str]:
        """An entity's own settings; empty if it has none. The entity's name is sanitized."""
        node = await self.read(paths.config(kind, entity))
        return {} if node is None else payloads.decode_config(node[0], paths.config(kind, entity))

    async def configs(self, kind: str, entities: Collection[str]) -> dict[str, dict[str, str]]:
        where = [paths.config(kind, entity) for entity in entities]
        nodes = await self.store.get_many(where)
        return {
            entity: {} if node is None else payloads.decode_config(node[0], path)
            for entity, path, node in zip(entities, where, nodes, strict=True)
        }

    async def configured(self, kind: str) -> list[str]:
        """The entities of a kind that have a node."""
        return await self.names(f"/config/{kind}")

    async def set_config(self, kind: str, entity: str, config: Mapping[str, str]) -> None:
        """Write all settings of an entity. The notification is the caller's next step."""
        path = paths.config(kind, entity)
        data = payloads.encode_config(config)
        controller = await self.read(paths.CONTROLLER)
        if controller is None or payloads.decode_controller(controller[0])[1] > 0:
            raise NoController(path, f"no controller of ours is in office: {path} was not written")
        write: list[Operation] = [Check(paths.CONTROLLER, controller[1].version), Set(path, data)]
        try:
            await self.store.multi(write)
        except NoNode as missing:
            if missing.path == paths.CONTROLLER:
                raise NoController(path, f"the controller left: {path} was not written") from None
            await self.ensure(parent_of(path))
            try:
                await self.store.create(path, data)
            except NodeExists:
                await self.store.multi(write)

    async def notify_config_change(self, entity_path: str) -> None:
        """Tell every broker that ``topics/t``, ``users/u/clients/c``... was written."""
        await self.store.create(
            f"{paths.CONFIG_CHANGES}/{paths.CONFIG_CHANGE_PREFIX}",
            payloads.encode_config_change(entity_path),
            sequential=True,
        )

    async def config_changes(
        self, after: int = -1, watch: Watch | None = None
    ) -> list[ConfigChange]:
        """The notifications after this sequence, in order; unreadable ones are skipped."""
        names = await self.names(paths.CONFIG_CHANGES, watch)
        wanted = [name for name in names if _sequence(name) > after]
        where = [f"{paths.CONFIG_CHANGES}/{name}" for name in wanted]
        changes = []
        for path, node in zip(where, await self.store.get_many(where), strict=True):
            if node is None:
                continue
            try:
                entity_path = payloads.decode_config_change(node[0], path)
            except InvalidPayload as error:
                log.warning("skipping a notification: %s", error)
                continue
            changes.append(ConfigChange(_sequence(path), entity_path))
        return sorted(changes)

    async def purge_config_changes(self, age_ms: int = CHANGE_EXPIRATION_MS) -> None:
        """Delete notifications every broker has had time to read."""
        names = await self.names(paths.CONFIG_CHANGES)
        where = [f"{paths.CONFIG_CHANGES}/{name}" for name in names]
        for path, node in zip(where, await self.store.get_many(where), strict=True):
            if node is not None and node[1].created_ms + age_ms < self.clock():
                try:
                    await self.store.delete(path)
                except NoNode:
                    pass  # another broker purges too

    async def acls(self, pattern: str, resource_type: str, name: str) -> tuple[set[AclEntry], int]:
        """The entries of a resource and the version they stand at; -1 without a node."""
        path = paths.acls(pattern, resource_type, name)
        node = await self.read(path)
        return (
            (set(), -1) if node is None else (payloads.decode_acls(node[0], path), node[1].version)
        )


def _sequence(name: str) -> int:
    """The number a sequential name ends in; -1 for a name that is none."""
    digits = name[-10:]
    return int(digits) if digits.isdecimal() else -1
