"""What all typed access shares: reading a node that may be absent, listing, ensuring one."""

from __future__ import annotations

from collections.abc import Callable

from odradek.store.api import Node, NodeExists, NoNode, Store, Watch, parent_of


class Nodes:
    """A session of a store, and the clock that dates what is written through it."""

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

    async def delete_if_there(self, path: str) -> None:
        try:
            await self.store.delete(path)
        except NoNode:
            pass  # gone is what was wanted


def sequence_of(name: str) -> int:
    """The number a sequential name ends in; -1 for a name that is none."""
    digits = name[-10:]
    return int(digits) if digits.isdecimal() else -1
