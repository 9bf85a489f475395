"""Settings that are changed while plans move partitions, and what they were: one node per owner.

Nodes of ours, under a path that no Kafka broker reads. What a setting was is written down before it
is changed, so that the next controller can put it back.
"""

import logging
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.store import payloads
from odradek.store.api import Create, Delete, NoNode, Set
from odradek.store.nodes import Nodes
from odradek.store.paths import ConfigKind
from odradek.store.payloads import InvalidPayload, Json

__all__ = ["PLAN_THROTTLES", "ConfigOwner", "Held", "HeldByOwner", "PlanThrottles"]

logger = logging.getLogger(__name__)

PLAN_THROTTLES = "/odradek/plan_throttles"
_NAME = re.compile(rf"({ConfigKind.TOPICS}|{ConfigKind.BROKERS}):([A-Za-z0-9._-]+)")


class ConfigOwner(NamedTuple):
    """A topic or a broker, as settings have them."""

    kind: ConfigKind
    entity: str


class Held(NamedTuple):
    """What a setting was, None for not set, and what it was set to."""

    before: str | None
    value: str


HeldByOwner = dict[ConfigOwner, dict[str, Held]]


class PlanThrottles:
    """The nodes of held settings."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    async def read(self) -> HeldByOwner:
        """All there are. One that cannot be read is left alone, with a line in the log."""
        names = sorted(await self._nodes.names(PLAN_THROTTLES))
        owners = {name: match for name in names if (match := _NAME.fullmatch(name))}
        found: HeldByOwner = {}
        where = [f"{PLAN_THROTTLES}/{name}" for name in owners]
        nodes = await self._nodes.session.get_many(where)
        for match, path, node in zip(owners.values(), where, nodes, strict=True):
            try:
                if node is not None:
                    found[ConfigOwner(ConfigKind(match[1]), match[2])] = _decode(node[0], path)
            except InvalidPayload as error:
                logger.warning("ignoring settings held for plans: %s", error)
        return found

    async def write(
        self,
        held: Mapping[ConfigOwner, Mapping[str, Held]],
        known: Iterable[ConfigOwner],
        fence: int,
    ) -> None:
        """Write these, of which some have a node."""
        await self._nodes.ensure(PLAN_THROTTLES)
        there = set(known)
        writes: list[list[Create | Set]] = [
            [(Set if owner in there else Create)(_path(owner), _encode(settings))]
            for owner, settings in held.items()
        ]
        await self._nodes.write_all(writes, fence)

    async def delete(self, owners: Iterable[ConfigOwner], fence: int) -> None:
        deletes = [[Delete(_path(owner))] for owner in owners]
        await self._nodes.write_all(deletes, fence, ignore=NoNode)


def _path(owner: ConfigOwner) -> str:
    return f"{PLAN_THROTTLES}/{owner.kind}:{owner.entity}"


def _encode(settings: Mapping[str, Held]) -> bytes:
    held = [{"name": name, "before": of.before, "value": of.value} for name, of in settings.items()]
    return payloads.dump({"version": 1, "held": held})


def _decode(data: bytes | None, path: str) -> dict[str, Held]:
    return {
        payloads.typed(of, "name", str, path): Held(
            _text_or_none(of, path), payloads.typed(of, "value", str, path)
        )
        for of in payloads.objects(payloads.parse(data, path), "held", path)
    }


def _text_or_none(of: Json, path: str) -> str | None:
    return None if of.get("before") is None else payloads.typed(of, "before", str, path)
