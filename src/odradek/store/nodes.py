"""What all typed access shares: nodes that may be absent, fenced writes, and the one way to change
a node that others write too (compare and set).

A fence is the version of ``/controller_epoch`` that a controller was elected with. A write behind
it is a multi that checks it first, and raises ``ControllerMoved`` if another was elected since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from odradek.store import paths
from odradek.store.api import (
    BadVersion,
    Check,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Result,
    SessionExpired,
    Set,
    Stat,
    Store,
    StoreError,
    Watch,
    parent_of,
)

# A leader changes its ISR every few seconds at most: no writer loses a race this often.
ATTEMPTS_MAX = 100

K = TypeVar("K")


class ControllerMoved(Exception):
    """Another controller was elected: the one that meets this is fenced."""


class Refused(NamedTuple):
    """Why a node was not written: there is none, the caller decided so, or the store failed."""

    reason: str


NO_SESSION = -1
NO_NODE = Refused("there is no node to write")

# A node's key, its data and its version; the answer is what to write, or why not.
Decide = Callable[[K, bytes | None, int], bytes | Refused]


class Nodes:
    """A session of a store, and the clock that dates what is written through it."""

    def __init__(self, session: Store, clock: Callable[[], int]) -> None:
        self.session = session
        self.clock = clock
        # The session to write in on behalf of a broker; None where no broker is written for.
        self.registered_in: int | None = None

    def check_registered(self) -> None:
        """Call right before a write on behalf of a broker, without anything awaited between."""
        if self.registered_in not in (None, self.session.session_id):
            raise SessionExpired("", "the broker is not registered in this session")

    async def read(self, path: str, watch: Watch | None = None) -> Node | None:
        """A node that may be absent; then the watch waits for its creation."""
        while True:
            try:
                return await self.session.get(path, watch)
            except NoNode:
                if watch is None or await self.session.exists(path, watch) is None:
                    return None

    async def names(self, path: str, watch: Watch | None = None) -> list[str]:
        """The children of a node; none if it is absent."""
        try:
            return await self.session.children(path, watch)
        except NoNode:
            return []

    async def ensure(self, path: str) -> None:
        """Create a persistent node with null data, and its parents, unless they are there."""
        if path == "/":
            return
        try:
            await self.session.create(path, None)
        except NodeExists:
            pass  # that is what was wanted
        except NoNode:
            await self.ensure(parent_of(path))
            await self.ensure(path)

    async def delete_if_there(self, path: str) -> None:
        try:
            await self.session.delete(path)
        except NoNode:
            pass  # gone is what was wanted

    # Fenced writes

    async def write_many(
        self, multis: Iterable[Sequence[Operation]], fence: int | None
    ) -> list[list[Result] | StoreError]:
        """Each multi behind a check of the fence, if there is one; its own results or error. A
        controller whose session is over writes nothing more, also if none has followed it yet."""
        if fence is None:
            return await self.session.multi_many(multis)
        self.check_registered()
        check = Check(paths.CONTROLLER_EPOCH, fence)
        results = await self.session.multi_many([check, *multi] for multi in multis)
        for result in results:
            if isinstance(result, StoreError) and result.path == paths.CONTROLLER_EPOCH:
                raise ControllerMoved(f"the controller epoch is no longer at version {fence}")
        return [r if isinstance(r, StoreError) else r[1:] for r in results]

    async def write_all(
        self,
        multis: Iterable[Sequence[Operation]],
        fence: int | None,
        *,
        ignore: type[StoreError] | tuple[type[StoreError], ...] = (),
    ) -> None:
        """Each multi behind a check of the fence; the first error not ignored is raised."""
        for result in await self.write_many(multis, fence):
            if isinstance(result, StoreError) and not isinstance(result, ignore):
                raise result

    # Compare and set

    async def update(
        self,
        where: Mapping[K, str],
        decide: Decide[K],
        fence: int | None,
        beside: Callable[[K], Operation] | None = None,
    ) -> dict[K, int | Refused]:
        """Read these nodes, decide what each should hold, write it under the version that was read,
        and `beside` in the same transaction.

        Where another writer was faster, read and decide again. Answers for each node the version it
        now has. Data that is decided to stay as it is, is not written.
        """
        outcomes: dict[K, int | Refused] = {}
        remaining = list(where)
        for _ in range(ATTEMPTS_MAX):
            nodes = await self.session.get_many([where[key] for key in remaining])
            writes: dict[K, list[Operation]] = {}
            for key, node in zip(remaining, nodes, strict=True):
                if node is None:
                    outcomes[key] = NO_NODE
                    continue
                data, stat = node
                decided = decide(key, data, stat.version)
                if isinstance(decided, Refused):
                    outcomes[key] = decided
                elif decided == data:
                    outcomes[key] = stat.version
                else:
                    writes[key] = [Set(where[key], decided, stat.version)]
                    if beside is not None:
                        writes[key].append(beside(key))
            remaining = []
            results = await self.write_many(writes.values(), fence)
            for key, result in zip(writes, results, strict=True):
                if isinstance(result, BadVersion):
                    remaining.append(key)
                elif isinstance(result, StoreError):
                    outcomes[key] = Refused(f"{type(result).__name__}: {result}")
                else:
                    stat_now, *_ = result
                    assert isinstance(stat_now, Stat)
                    outcomes[key] = stat_now.version
            if not remaining:
                break
        for key in remaining:
            outcomes[key] = Refused(f"{where[key]} changed {ATTEMPTS_MAX} times while it was read")
        return {key: outcomes[key] for key in where}


def sequence_of(name: str) -> int:
    """The number a sequential name ends in; -1 for a name that is none."""
    digits = name[-10:]
    return int(digits) if digits.isdecimal() else -1
