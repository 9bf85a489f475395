"""Dynamic configurations and their change notifications.

docs/spec/interchange-with-apache-kafka.md section B.1: a configuration is written only while there
is a controller, under a check of ``/controller``, so that a cluster that is being migrated to KRaft
is not changed.
The writer then leaves a notification (`changes`: ``topics/t``, ``users/u/clients/c``...).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from odradek.store import paths, payloads
from odradek.store.api import (
    BadVersion,
    Check,
    Create,
    NodeExists,
    NoNode,
    Operation,
    Set,
    StoreError,
    parent_of,
)
from odradek.store.change_nodes import ChangeNodes
from odradek.store.nodes import ATTEMPTS_MAX, Nodes


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
        check = await self._check_controller(path)
        try:
            await self._write([check, Set(path, data)])
        except NoNode:
            await self._nodes.ensure(parent_of(path))
            try:
                await self._nodes.session.create(path, data)
            except NodeExists:
                await self._write([check, Set(path, data)])

    async def change(
        self, kind: str, entity: str, change: Callable[[dict[str, str]], Mapping[str, str]]
    ) -> None:
        """Change the settings of an entity under the version they were read at, so that those of
        another writer are kept. `change` is asked again when another writer was faster; what it
        raises, ends this. The notification is the caller's next step.
        """
        path = paths.config(kind, entity)
        await self._nodes.ensure(parent_of(path))
        for _ in range(ATTEMPTS_MAX):
            check = await self._check_controller(path)
            node = await self._nodes.read(path)
            before = {} if node is None else payloads.decode_config(node[0], path)
            data = payloads.encode_config(change(before))
            write = Create(path, data) if node is None else Set(path, data, node[1].version)
            try:
                await self._write([check, write])
            except (BadVersion, NodeExists, NoNode):
                continue
            return
        raise StoreError(path, f"{path} changed {ATTEMPTS_MAX} times while it was read")

    async def update(
        self,
        kind: str,
        entities: Collection[str],
        change: Callable[[str, dict[str, str]], Mapping[str, str]],
        fence: int,
    ) -> None:
        """For the controller: change the settings of many entities, each under the version it was
        read at and all behind the fence. Brokers are notified of those that are other now in the
        same transaction: the next controller would see no difference and notify none. An entity
        without a node, as that of a deleted topic, is passed over."""

        def decide(entity: str, data: bytes | None, version: int) -> bytes:
            before = payloads.decode_config(data, paths.config(kind, entity))
            after = change(entity, dict(before))
            if before == after:
                return data or b""
            return payloads.encode_config(after)

        def notification(entity: str) -> Operation:
            return self.changes.notification(f"{kind}/{entity}")

        where = {entity: paths.config(kind, entity) for entity in entities}
        await self._nodes.update(where, decide, fence, notification)

    async def prepare_brokers(self, brokers: Collection[str]) -> None:
        """Have a node for the settings of each of these brokers: one without any has none."""
        kind = paths.ConfigKind.BROKERS
        await self._nodes.ensure(paths.configs(kind))
        creates = [[Create(paths.config(kind, of), payloads.encode_config({}))] for of in brokers]
        await self._nodes.write_all(creates, None, ignore=NodeExists)

    async def _check_controller(self, path: str) -> Check:
        controller = await self._nodes.read(paths.CONTROLLER)
        if controller is None or payloads.decode_controller(controller[0])[1] > 0:
            raise NoController(path, f"there is no controller of ours: {path} was not written")
        return Check(paths.CONTROLLER, controller[1].version)

    async def _write(self, operations: list[Operation]) -> None:
        try:
            await self._nodes.session.multi(operations)
        except NoNode as missing:
            if missing.path == paths.CONTROLLER:
                where = operations[-1].path
                raise NoController(where, f"the controller left: {where} was not written") from None
            raise

    async def set_offline(self, kind: str, entity: str, config: Mapping[str, str]) -> None:
        """Write all settings of an entity while no broker runs: they read them when they start."""
        path = paths.config(kind, entity)
        await self._nodes.ensure(parent_of(path))
        data = payloads.encode_config(config)
        try:
            await self._nodes.session.create(path, data)
        except NodeExists:
            await self._nodes.session.set(path, data)
