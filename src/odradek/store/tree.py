"""The tree of nodes as a plain value: operations in, results and events out. No sessions, no loop.

ZooKeeper's rules: one transaction id for all of a multi; a sequential name counts every child its
parent ever had; deleting a session's ephemeral nodes is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from odradek.store.api import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    Set,
    Stat,
    StoreError,
    WatchEvent,
    parent_of,
    validate_path,
)


@dataclass(slots=True)
class _Entry:
    data: bytes | None
    created: int
    modified: int
    created_ms: int
    owner: int = 0
    version: int = 0
    children: set[str] = field(default_factory=set)
    children_created: int = 0

    def stat(self) -> Stat:
        return Stat(
            self.created,
            self.modified,
            self.version,
            self.owner,
            len(self.children),
            self.created_ms,
        )


class Tree:
    """The nodes, and the id of the last transaction."""

    def __init__(self) -> None:
        self.transaction = 0
        self._nodes: dict[str, _Entry] = {"/": _Entry(None, 0, 0, 0)}
        self._owned: dict[int, set[str]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, path: str) -> Node:
        entry = self._at(path)
        return entry.data, entry.stat()

    def exists(self, path: str) -> Stat | None:
        validate_path(path)
        entry = self._nodes.get(path)
        return None if entry is None else entry.stat()

    def children(self, path: str) -> list[str]:
        return sorted(self._at(path).children)

    def _at(self, path: str) -> _Entry:
        validate_path(path)
        try:
            return self._nodes[path]
        except KeyError:
            raise NoNode(path) from None

    def apply(
        self, operations: Sequence[Operation], session_id: int, now_ms: int
    ) -> tuple[list[Result], list[WatchEvent]]:
        """All of the operations as one transaction, or the error of the first that fails."""
        self.transaction += 1
        events: list[WatchEvent] = []
        undo: list[Callable[[], None]] = []
        try:
            results = [self._apply(each, session_id, now_ms, events, undo) for each in operations]
        except (StoreError, ValueError):
            for step in reversed(undo):
                step()
            raise
        return results, events

    def expire(self, session_id: int) -> list[WatchEvent]:
        """Delete the ephemeral nodes of a session that is over."""
        doomed = sorted(self._owned.get(session_id, ()))
        if not doomed:
            return []
        return self.apply([Delete(path) for path in doomed], session_id, 0)[1]

    def _apply(
        self,
        operation: Operation,
        session_id: int,
        now_ms: int,
        events: list[WatchEvent],
        undo: list[Callable[[], None]],
    ) -> Result:
        match operation:
            case Create():
                return self._create(operation, session_id, now_ms, events, undo)
            case Set(path, data, version):
                entry = self._expect(path, version)
                before = entry.data, entry.version, entry.modified

                def restore() -> None:
                    entry.data, entry.version, entry.modified = before

                undo.append(restore)
                entry.data = data
                entry.version += 1
                entry.modified = self.transaction
                events.append(WatchEvent(EventKind.CHANGED, path))
                return entry.stat()
            case Delete(path, version):
                self._delete(path, version, events, undo)
                return None
            case Check(path, version):
                self._expect(path, version)
                return None

    def _expect(self, path: str, version: int) -> _Entry:
        entry = self._at(path)
        if version not in (ANY_VERSION, entry.version):
            raise BadVersion(path, f"{path} is at version {entry.version}, not {version}")
        return entry

    def _create(
        self,
        create: Create,
        session_id: int,
        now_ms: int,
        events: list[WatchEvent],
        undo: list[Callable[[], None]],
    ) -> str:
        path = create.path
        validate_path(path + "0" if create.sequential else path)
        if path == "/":
            raise NodeExists(path)
        parent_path = parent_of(path)
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise NoNode(path)
        if create.sequential:
            path += f"{parent.children_created:010d}"
        if path in self._nodes:
            raise NodeExists(path)
        if parent.owner:
            raise NoChildrenForEphemerals(path)
        name = path[path.rindex("/") + 1 :]
        owner = session_id if create.ephemeral else 0

        def remove() -> None:
            del self._nodes[path]
            parent.children.remove(name)
            parent.children_created -= 1
            self._disown(owner, path)

        undo.append(remove)
        self._nodes[path] = _Entry(create.data, self.transaction, self.transaction, now_ms, owner)
        parent.children.add(name)
        parent.children_created += 1
        self._own(owner, path)
        events.append(WatchEvent(EventKind.CREATED, path))
        events.append(WatchEvent(EventKind.CHILDREN, parent_path))
        return path

    def _delete(
        self, path: str, version: int, events: list[WatchEvent], undo: list[Callable[[], None]]
    ) -> None:
        if path == "/":
            raise ValueError("the root cannot be deleted")
        entry = self._expect(path, version)
        if entry.children:
            raise NotEmpty(path)
        parent_path = parent_of(path)
        parent = self._nodes[parent_path]
        name = path[path.rindex("/") + 1 :]

        def restore() -> None:
            self._nodes[path] = entry
            parent.children.add(name)
            self._own(entry.owner, path)

        undo.append(restore)
        del self._nodes[path]
        parent.children.remove(name)
        self._disown(entry.owner, path)
        events.append(WatchEvent(EventKind.DELETED, path))
        events.append(WatchEvent(EventKind.CHILDREN, parent_path))

    def _own(self, owner: int, path: str) -> None:
        if owner:
            self._owned.setdefault(owner, set()).add(path)

    def _disown(self, owner: int, path: str) -> None:
        if owner:
            self._owned[owner].discard(path)
            if not self._owned[owner]:
                del self._owned[owner]
