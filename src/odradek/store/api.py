"""The one interface of the metadata store: ZooKeeper's semantics, on the running event loop.

Rules, the same for every store (tests/store/contract keeps them):

1. A tree of nodes. A node has data (``bytes``, or ``None``: null is not empty), a data version that
   starts at 0 and counts writes, and the ids of the transactions that created and last modified it.
   Transaction ids only grow, over the whole store.
2. A version of -1 matches any version.
3. A watch is a callback for one event. A read leaves it; the first change after that read calls it,
   once, on the loop, before any reader on this session can see the changed value. The same callback
   left twice on one node is called once.
4. A watch survives a lost connection: what changed meanwhile is reported on return. It does not
   survive the session: after ``EXPIRED`` nothing left before is called, and the owner reads afresh.
5. A lost connection makes callers wait, not fail: operations are sent again on return. So a write
   may meet its own earlier success (``NodeExists``, ``BadVersion``), as in Kafka.
   Only a lost session (``SessionExpired``) or ``close`` ends the waiting.
6. After ``EXPIRED`` the store opens a new session by itself and reports ``CONNECTED``.
   Ephemeral nodes of the old one are gone.
7. A multi happens whole or not at all, as one transaction.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1
DEFAULT_SESSION_TIMEOUT_MS = 18_000


class Stat(NamedTuple):
    """What is known of a node besides its data."""

    created: int  # transaction that created it (czxid); a broker's epoch
    modified: int  # transaction that last wrote its data (mzxid)
    version: int  # how often the data was written since creation
    owner: int  # session of an ephemeral node, 0 for a persistent one
    children: int  # how many
    created_ms: int = 0  # wall clock at creation


class EventKind(Enum):
    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"


class WatchEvent(NamedTuple):
    kind: EventKind
    path: str


class SessionEvent(Enum):
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    EXPIRED = "expired"


Watch = Callable[[WatchEvent], None]
SessionListener = Callable[[SessionEvent], None]
Node = tuple[bytes | None, Stat]


class StoreError(Exception):
    """An operation failed. ``path`` is the node it was about."""

    def __init__(self, path: str = "", message: str = "") -> None:
        super().__init__(message or path)
        self.path = path


class NoNode(StoreError):
    """The node, or the parent of the node to create, does not exist."""


class NodeExists(StoreError):
    """The node to create exists."""


class BadVersion(StoreError):
    """The node's version is not the one expected."""


class NotEmpty(StoreError):
    """The node to delete has children."""


class NoChildrenForEphemerals(StoreError):
    """An ephemeral node was asked to have a child."""


class SessionExpired(StoreError):
    """The session in which the operation was requested is over."""


class ConnectionLost(StoreError):
    """The store was closed, or never reached, before the answer came."""


class AuthenticationFailed(StoreError):
    """The store refuses us, or refuses us this node."""


class StoreUnavailable(StoreError):
    """The store cannot work, and a person must help: full disk, locked or damaged file."""


class Create(NamedTuple):
    path: str
    data: bytes | None
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    path: str
    data: bytes | None
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    path: str
    version: int


Operation = Create | Set | Delete | Check
# What each operation of a multi answers: Create the path, Set the new stat, the others nothing.
Result = str | Stat | None


class StoreLogin(NamedTuple):
    """How to say who we are: ``StoreLogin("sasl", "user:password")``, or the scheme ``digest``."""

    scheme: str
    credential: str

    def __repr__(self) -> str:
        return f"StoreLogin({self.scheme}, [hidden])"


class Store(Protocol):
    """A session with the metadata store. All of it is used from one event loop."""

    @property
    def session_id(self) -> int:
        """The current session; 0 while there is none."""
        ...

    async def start(self) -> None:
        """Open the session. Returns when connected; keeps trying until then or until ``close``."""
        ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes go at once, no watch is called any more."""
        ...

    async def create(
        self, path: str, data: bytes | None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a node, answer its path; a sequential one has ten digits appended."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Data and stat. The watch (CHANGED, DELETED) is left only if the node exists."""
        ...

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat: ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The stat, or None. The watch (CREATED, CHANGED, DELETED) is left in either case."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names of the children, sorted. The watch: CHILDREN, or DELETED of the node itself."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """All of the operations or none. Raises the error of the one that failed."""
        ...

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """Many nodes at once, in the order asked; None for one that does not exist."""
        ...

    async def multi_many(
        self, multis: Iterable[Sequence[Operation]]
    ) -> list[list[Result] | StoreError]:
        """Many multis at once, each whole or not at all; its error stands in its place."""
        ...

    def unwatch(self, watch: Watch) -> None:
        """Forget this callback wherever it was left."""
        ...

    def on_session(self, listener: SessionListener) -> None:
        """Notify this listener of every change of the session from now on."""
        ...

    def statistics(self) -> Mapping[str, int | float]: ...


def wall_clock_ms() -> int:
    """Milliseconds since 1970, unless another clock is injected."""
    return time.time_ns() // 1_000_000


def parent_of(path: str) -> str:
    """``/a/b`` -> ``/a``; ``/a`` -> ``/``."""
    return path[: path.rindex("/")] or "/"


def validate_path(path: str) -> None:
    """A path is absolute, has no empty, ``.`` or ``..`` part, and does not end in a slash."""
    if path == "/":
        return
    if not path.startswith("/") or any(part in ("", ".", "..") for part in path[1:].split("/")):
        raise ValueError(f"not a path of the store: {path!r}")
    if "\0" in path:
        raise ValueError(f"null character in path {path!r}")


class SingleWrites(ABC):
    """A single write as a multi-operation of one, for stores that have only those."""

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[Result]: ...

    async def create(
        self, path: str, data: bytes | None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        (created,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created, str)
        return created

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        (stat,) = await self.multi([Set(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])
