"""Who waits for which node. The table of one session's watches, as ZooKeeper's client keeps it.

Three tables, by what the reader saw: the data of a node, the absence of a node, the children of a
node. An entry means that nothing has happened to its node since it was left; so after a gap (a lost
connection) one look at the node and the last transaction seen before tell whether the watch is due.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from odradek.store.api import EventKind, SessionEvent, SessionListener, Watch, WatchEvent

logger = logging.getLogger(__name__)


class Seen(Enum):
    """What the read that left a watch saw."""

    DATA = "data"
    ABSENCE = "absence"
    CHILDREN = "children"


class Marks(NamedTuple):
    """The transactions that created a node, last wrote its data, last changed its children."""

    created: int
    modified: int
    children_modified: int


_FIRED_BY = {
    EventKind.CREATED: (Seen.ABSENCE,),
    EventKind.CHANGED: (Seen.DATA,),
    EventKind.DELETED: (Seen.DATA, Seen.CHILDREN),
    EventKind.CHILDREN: (Seen.CHILDREN,),
}


class WatchTable:
    """The watches of one session. A dict of callbacks is a set that keeps their order."""

    def __init__(self) -> None:
        self._tables: dict[Seen, dict[str, dict[Watch, None]]] = {seen: {} for seen in Seen}

    def leave(self, seen: Seen, path: str, watch: Watch) -> bool:
        """Remember a watch; whether it is the first of this kind on this node."""
        watches = self._tables[seen].setdefault(path, {})
        watches[watch] = None
        return len(watches) == 1

    def take(self, event: WatchEvent) -> list[Watch]:
        """Those who wait for this event, each once; they wait no longer."""
        taken: dict[Watch, None] = {}
        for seen in _FIRED_BY[event.kind]:
            taken.update(self._tables[seen].pop(event.path, {}))
        return list(taken)

    def fire(self, event: WatchEvent) -> None:
        """Call those who wait."""
        for watch in self.take(event):
            self.call(watch, event)

    @staticmethod
    def call(watch: Watch, event: WatchEvent) -> None:
        """A watch that fails is logged; it must not silence the others."""
        try:
            watch(event)
        except Exception:
            logger.exception("a watch of %s failed", event.path)

    def forget(self, watch: Watch) -> None:
        for table in self._tables.values():
            for path in [path for path, watches in table.items() if watch in watches]:
                del table[path][watch]
                if not table[path]:
                    del table[path]

    def clear(self) -> None:
        for table in self._tables.values():
            table.clear()

    def waiting(self) -> Iterator[tuple[Seen, str]]:
        """Every node that is watched, and how."""
        for seen, table in self._tables.items():
            for path in list(table):
                yield seen, path

    def __len__(self) -> int:
        return sum(len(watches) for table in self._tables.values() for watches in table.values())


def missed(seen: Seen, path: str, now: Marks | None, since: int) -> WatchEvent | None:
    """What a watch has not seen, if it saw its node not later than transaction ``since``."""
    if seen is Seen.ABSENCE:
        return WatchEvent(EventKind.CREATED, path) if now is not None else None
    if now is None:
        return WatchEvent(EventKind.DELETED, path)
    if seen is Seen.DATA and max(now.created, now.modified) > since:
        return WatchEvent(EventKind.CHANGED, path)
    if seen is Seen.CHILDREN and now.children_modified > since:
        return WatchEvent(EventKind.CHILDREN, path)
    return None


class SessionListeners:
    """The listeners to changes of the session."""

    def __init__(self) -> None:
        self._listeners: list[SessionListener] = []

    def add(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def notify(self, event: SessionEvent) -> None:
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception:
                logger.exception("a listener for the session failed on %s", event.value)
