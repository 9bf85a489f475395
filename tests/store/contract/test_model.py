"""Each store against a model: the same random life, step by step, must give the same answers.

The model is as naive as can be: a dict of nodes that a multi copies, works on, and keeps or drops.
"""

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from tests.store.conftest import Backend, BackendFactory

from odradek.store.api import (
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionEvent,
    Set,
    Stat,
    Store,
    StoreError,
    WatchEvent,
)

SESSIONS = 2
ROOT = "/m"

names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/".join([ROOT, *parts]))
data = st.sampled_from([None, b"", b"x", b"yy"])
versions = st.sampled_from([-1, -1, 0, 1, 2])
operations = st.one_of(
    st.builds(Create, paths, data, st.booleans(), st.booleans()),
    st.builds(Set, paths, data, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)
sessions = st.integers(0, SESSIONS - 1)


class Model:
    """Nodes by path: data, version, owner (a session's number or None), children ever created."""

    def __init__(self) -> None:
        self.nodes: dict[str, list[Any]] = {ROOT: [None, 0, None, 0]}

    def children(self, path: str) -> list[str]:
        start = path + "/"
        inside = [other[len(start) :] for other in self.nodes if other.startswith(start)]
        return sorted(name for name in inside if "/" not in name)

    def apply(self, operation: Operation, session: int) -> tuple[Any, list[WatchEvent]]:
        """The result (for a set, the version) and the events; raises what the store must."""
        path = operation.path
        if isinstance(operation, Create):
            parent = path.rpartition("/")[0]
            if parent not in self.nodes:
                raise NoNode(path)
            if operation.sequential:
                path += f"{self.nodes[parent][3]:010d}"
            if path in self.nodes:
                raise NodeExists(path)
            if self.nodes[parent][2] is not None:
                raise NoChildrenForEphemerals(path)
            self.nodes[parent][3] += 1
            self.nodes[path] = [operation.data, 0, session if operation.ephemeral else None, 0]
            return path, [
                WatchEvent(EventKind.CREATED, path),
                WatchEvent(EventKind.CHILDREN, parent),
            ]
        if path not in self.nodes:
            raise NoNode(path)
        if operation.version not in (-1, self.nodes[path][1]):
            raise BadVersion(path)
        if isinstance(operation, Set):
            self.nodes[path][0] = operation.data
            self.nodes[path][1] += 1
            return self.nodes[path][1], [WatchEvent(EventKind.CHANGED, path)]
        if isinstance(operation, Delete):
            if self.children(path):
                raise NotEmpty(path)
            del self.nodes[path]
            return None, [
                WatchEvent(EventKind.DELETED, path),
                WatchEvent(EventKind.CHILDREN, path.rpartition("/")[0]),
            ]
        return None, []

    def multi(self, wanted: list[Operation], session: int) -> tuple[list[Any], list[WatchEvent]]:
        before = copy.deepcopy(self.nodes)
        results, events = [], []
        try:
            for operation in wanted:
                result, delivered = self.apply(operation, session)
                results.append(result)
                events += delivered
        except StoreError:
            self.nodes = before
            raise
        return results, events


async def wait_until_exists(store: Store, path: str) -> None:
    there = asyncio.Event()
    if await store.exists(path, lambda _: there.set()) is None:
        await asyncio.wait_for(there.wait(), 60)


class Life(RuleBasedStateMachine):
    """Two sessions on one store, and the model of both."""

    def __init__(self, make: Callable[[], Backend]) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.run = self.runner.run
        self.model = Model()
        # What each session waits for, and which events it must have got.
        self.waiting: list[set[tuple[str, str]]] = [set() for _ in range(SESSIONS)]
        self.expected: list[list[WatchEvent]] = [[] for _ in range(SESSIONS)]
        self.delivered: list[list[WatchEvent]] = [[] for _ in range(SESSIONS)]
        self.session_events: list[asyncio.Queue[SessionEvent]] = []
        self.run(self.begin(make))

    async def begin(self, make: Callable[[], Backend]) -> None:
        self.backend = make()
        self.stores = [await self.backend.open(timeout_ms=20_000) for _ in range(SESSIONS)]
        self.watches = [delivered.append for delivered in self.delivered]
        await self.stores[0].create(ROOT, None)
        await self.stores[0].create("/sync", None)
        for store in self.stores:
            queue: asyncio.Queue[SessionEvent] = asyncio.Queue()
            store.on_session(queue.put_nowait)
            self.session_events.append(queue)

    def teardown(self) -> None:
        self.run(self.backend.close())
        self.runner.close()

    def expect(self, events: list[WatchEvent]) -> None:
        kinds = {
            EventKind.CREATED: ["absence"],
            EventKind.CHANGED: ["data"],
            EventKind.DELETED: ["data", "children"],
            EventKind.CHILDREN: ["children"],
        }
        for event in events:
            for waiting, expected in zip(self.waiting, self.expected, strict=True):
                due = {(kind, event.path) for kind in kinds[event.kind]} & waiting
                if due:
                    expected.append(event)
                    waiting -= due

    async def settle(self, writer: int) -> None:
        """Every session got the events of all that the writer did, and no others."""
        path = await self.stores[writer].create("/sync/", None, sequential=True)
        for session, store in enumerate(self.stores):
            await wait_until_exists(store, path)
            assert self.delivered[session] == self.expected[session]

    @rule(session=sessions, wanted=st.lists(operations, min_size=1, max_size=4))
    def multi(self, session: int, wanted: list[Operation]) -> None:
        self.run(self.check_multi(session, wanted))

    async def check_multi(self, session: int, wanted: list[Operation]) -> None:
        store = self.stores[session]
        try:
            results, events = self.model.multi(wanted, session)
        except StoreError as error:
            with pytest.raises(type(error)):
                await store.multi(wanted)
            return
        answers = await store.multi(wanted)
        assert [a.version if isinstance(a, Stat) else a for a in answers] == results
        self.expect(events)
        await self.settle(session)

    @rule(session=sessions, path=paths, kind=st.sampled_from(["get", "exists", "children"]))
    def watch(self, session: int, path: str, kind: str) -> None:
        self.run(self.check_watch(session, path, kind))

    async def check_watch(self, session: int, path: str, kind: str) -> None:
        store, watch = self.stores[session], self.watches[session]
        node = self.model.nodes.get(path)
        if kind != "exists" and node is None:
            with pytest.raises(NoNode):
                await (store.get if kind == "get" else store.children)(path, watch)
            return
        if kind == "children":
            assert await store.children(path, watch) == self.model.children(path)
            self.waiting[session].add(("children", path))
            return
        stat = (
            (await store.get(path, watch))[1] if kind == "get" else await store.exists(path, watch)
        )
        self.waiting[session].add(("data" if node else "absence", path))
        assert (stat and stat.version) == (node and node[1])

    @rule(session=sessions)
    def look_at_everything(self, session: int) -> None:
        self.run(self.check_everything(session))

    async def check_everything(self, session: int) -> None:
        store = self.stores[session]
        where = list(self.model.nodes)
        found = await store.get_many(where)
        for path, node in zip(where, found, strict=True):
            wanted_data, version, owner, _ = self.model.nodes[path]
            assert node is not None
            assert (node[0], node[1].version) == (wanted_data, version)
            assert node[1].children == len(self.model.children(path))
            assert node[1].owner == (0 if owner is None else self.stores[owner].session_id)
            assert await store.children(path) == self.model.children(path)

    @rule(session=sessions)
    def expire(self, session: int) -> None:
        self.run(self.check_expire(session))

    async def check_expire(self, session: int) -> None:
        store, events = self.stores[session], self.session_events[session]
        await self.backend.expire(store)
        while await asyncio.wait_for(events.get(), 60) is not SessionEvent.EXPIRED:
            pass
        while await asyncio.wait_for(events.get(), 60) is not SessionEvent.CONNECTED:
            pass
        self.waiting[session].clear()
        owned = sorted(path for path, node in self.model.nodes.items() if node[2] == session)
        for path in owned:
            self.expect(self.model.apply(Delete(path), session)[1])
        # In which order a session's nodes go is not promised.
        await self.settle_unordered(session)

    async def settle_unordered(self, session: int) -> None:
        path = await self.stores[session].create("/sync/", None, sequential=True)
        for other, store in enumerate(self.stores):
            await wait_until_exists(store, path)
            assert sorted(self.delivered[other], key=str) == sorted(self.expected[other], key=str)
            self.delivered[other].clear()
            self.expected[other].clear()


EXAMPLES = {"memory": 60, "sqlite": 30, "zookeeper": 4}


@pytest.mark.parametrize(
    "name", ["memory", "sqlite", pytest.param("zookeeper", marks=pytest.mark.process)]
)
def test_a_random_life(name: str, backend_factory: BackendFactory, tmp_path: Path) -> None:
    counter = iter(range(10**6))

    def make() -> Backend:
        directory = tmp_path / str(next(counter))
        directory.mkdir()
        return backend_factory(name, directory)

    class Alive(Life):
        def __init__(self) -> None:
            super().__init__(make)

    run_state_machine_as_test(
        Alive,
        settings=settings(
            max_examples=EXAMPLES[name],
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
        ),
    )
