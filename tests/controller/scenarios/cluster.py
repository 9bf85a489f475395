"""A cluster of puppet brokers for scenarios, some of them with a controller, on any store.

Each node has its own session with the store, through a `HeldStore` that can keep watch events
back: so a controller is made late, and what happened meanwhile is seen all at once.
"""

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Sized
from random import Random
from typing import Generic, Protocol, TypeVar

from tests.controller.scenarios.puppet import Puppet

from odradek.controller.config import ControllerConfig
from odradek.controller.controller import Controller
from odradek.controller.journal import Entry, EntryKind, Journal
from odradek.store import paths
from odradek.store.api import (
    Node,
    Operation,
    Result,
    SessionExpired,
    SessionListener,
    Stat,
    Store,
    StoreError,
    Watch,
    WatchEvent,
)
from odradek.store.cluster import ClusterStore
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.topics import TopicPartition

BARRIER = "/scenario"
ROUNDS_MAX = 100_000
UNCLEAN = "unclean.leader.election.enable"

OpenStore = Callable[[], Awaitable[Store]]
EndSession = Callable[[Store], Awaitable[None]]


class Crash(BaseException):
    """The broker's process is gone, in the middle of whatever it did."""


class HeldStore:
    """A store whose watch events can be held back, and whose user can be raced.

    With them any other news (`holding`): a member that is held learns nothing at all.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._held: list[Callable[[], None]] | None = None
        self._wrapped: dict[Watch, Watch] = {}
        self._after_read: dict[str, Callable[[], Awaitable[object]]] = {}
        self._before_write: dict[str, Callable[[], Awaitable[object]]] = {}

    def hold(self) -> None:
        self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        for tell in held:
            tell()

    def holding(self, tell: Callable[[int], None]) -> Callable[[int], None]:
        """The same, held back with the watch events."""

        def record(subject: int) -> None:
            if self._held is None:
                tell(subject)
            else:
                self._held.append(lambda: tell(subject))

        return record

    def race(self, path: str, action: Callable[[], Awaitable[object]]) -> None:
        """Do this right after the next bulk read of this node, before the reader knows."""
        self._after_read[path] = action

    def race_to_write(self, path: str, action: Callable[[], Awaitable[object]]) -> None:
        """Do this right before the next bulk write of this node."""
        self._before_write[path] = action

    def _wrap(self, watch: Watch | None) -> Watch | None:
        if watch is None:
            return None
        wrapped = self._wrapped.get(watch)
        if wrapped is None:

            def wrapped(event: WatchEvent) -> None:
                if self._held is None:
                    watch(event)
                else:
                    self._held.append(lambda: watch(event))

            self._wrapped[watch] = wrapped
        return wrapped

    @property
    def session_id(self) -> int:
        return self.store.session_id

    async def start(self) -> None:
        await self.store.start()

    async def close(self) -> None:
        await self.store.close()

    async def create(
        self, path: str, data: bytes | None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        return await self.store.create(path, data, ephemeral=ephemeral, sequential=sequential)

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        return await self.store.get(path, self._wrap(watch))

    async def set(self, path: str, data: bytes | None, version: int = -1) -> Stat:
        return await self.store.set(path, data, version)

    async def delete(self, path: str, version: int = -1) -> None:
        await self.store.delete(path, version)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self.store.exists(path, self._wrap(watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self.store.children(path, self._wrap(watch))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return await self.store.multi(operations)

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        nodes = await self.store.get_many(paths, self._wrap(watch))
        for path in paths:
            if path in self._after_read:
                await self._after_read.pop(path)()
        return nodes

    async def multi_many(
        self, multis: Iterable[Sequence[Operation]]
    ) -> list[list[Result] | StoreError]:
        writing = [list(multi) for multi in multis]
        for operation in itertools.chain.from_iterable(writing):
            if operation.path in self._before_write:
                await self._before_write.pop(operation.path)()
        return await self.store.multi_many(writing)

    def unwatch(self, watch: Watch) -> None:
        if watch in self._wrapped:
            self.store.unwatch(self._wrapped[watch])

    def on_session(self, listener: SessionListener) -> None:
        self.store.on_session(listener)

    def statistics(self) -> Mapping[str, int | float]:
        return self.store.statistics()


class ScenarioBroker(Protocol):
    """A broker as far as a cluster must know it to tell whether it is at rest."""

    is_silent: bool
    # What control requests did, in order: (partition or "", what it is now).
    deeds: list[tuple[str, str]]

    @property
    def requests(self) -> Sized: ...


Broker = TypeVar("Broker", bound=ScenarioBroker)


class Member(Generic[Broker]):
    """One node: a broker and, on some, a controller."""

    def __init__(self, puppet: Broker, held: HeldStore, controller: Controller | None) -> None:
        self.puppet = puppet
        self.held = held
        self.controller = controller


class ScenarioCluster(ABC, Generic[Broker]):
    """Makes, kills and starts members, and knows when they have come to rest."""

    # So often nothing must be new before all is at rest.
    quiet_rounds = 3

    def __init__(
        self,
        open_store: OpenStore,
        config: Mapping[str, int | bool | ProtocolVersion],
    ) -> None:
        self._open_store = open_store
        self.config = dict(config)
        self.members: dict[int, Member[Broker]] = {}
        self.with_controller: list[int] = []
        self.entries: list[tuple[int, Entry]] = []
        self.traps: list[str] = []
        self._puppets: dict[int, Broker] = {}
        self._barrier = 0
        self._tasks: set[asyncio.Task[object]] = set()

    async def open(self, brokers: Iterable[int], controllers: Iterable[int]) -> None:
        """Start the nodes; the first of `controllers` is elected."""
        self.admin = ClusterStore(await self._open_store())
        await self.admin.prepare()
        await self.admin.session.create(BARRIER, None)
        self.with_controller = list(controllers)
        for id in [*self.with_controller, *(b for b in brokers if b not in self.with_controller)]:
            await self.start(id)
            await self.settle()

    async def close(self) -> None:
        for id in list(self.members):
            await self.kill(id)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.admin.session.close()

    @abstractmethod
    async def start(self, id: int) -> None:
        """A broker starts, with what it held when it was killed."""

    @abstractmethod
    async def kill(self, id: int) -> None:
        """A broker's process ends: its session, its socket, its controller."""

    def _heard(self, id: int, entry: Entry) -> None:
        if id not in self.members and self.members:
            return  # the dead do not speak
        self.entries.append((id, entry))
        text = f"{entry.kind.value} {entry.after}"
        if entry.kind in (EntryKind.REASSIGNMENT, EntryKind.DELETION):
            for trap in self.traps:
                if trap in text:
                    self.traps.remove(trap)
                    end = entry._replace(kind=EntryKind.CONTROLLER, after=f"crashed at {trap}")
                    self.entries.append((id, end))
                    raise Crash(trap)

    @property
    def active(self) -> list[int]:
        return [
            id
            for id, m in self.members.items()
            if m.controller is not None and m.controller.is_active
        ]

    def _elected(self, id: int | None = None) -> Controller:
        """The controller of a node, or of the node with the active controller."""
        chosen = id if id is not None else max(self.active, key=lambda i: self._of(i).epoch)
        return self._of(chosen)

    def _of(self, id: int) -> Controller:
        controller = self.members[id].controller
        assert controller is not None
        return controller

    async def call(self, coroutine: Awaitable[object]) -> object:
        """Await an answer of a controller, or its death."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        while not task.done():
            await self._look()
            if (dead := self._crashed()) is not None:
                task.cancel()
                await self._bury(dead)
                return None
        return task.result()

    async def _bury(self, id: int) -> None:
        """What the dead had handed over for sending is still delivered, and then it is gone."""
        while not self._has_sent_all(self._of(id)):
            await self._look()
        await self.kill(id)

    def _crashed(self) -> int | None:
        for id, member in self.members.items():
            if member.controller is not None:
                task = member.controller._queue._task
                if task is not None and task.done() and isinstance(task.exception(), Crash):
                    return id
        return None

    # Coming to rest

    async def settle(self) -> None:
        """Return when every watch has fired, every event is done, every request answered."""
        quiet = 0
        seen = -1
        for _ in range(ROUNDS_MAX):
            await self._look()
            if (dead := self._crashed()) is not None:
                await self._bury(dead)
            now = self._events()
            quiet = quiet + 1 if self._is_at_rest() and now == seen else 0
            seen = now
            if quiet == self.quiet_rounds:
                return
        raise AssertionError(f"never at rest: {self._state()}")

    async def _look(self) -> None:
        """Write with one session, read with all: earlier events are delivered by then."""
        await asyncio.sleep(0)  # one turn of the loop: a store in a file answers without one
        self._barrier += 1
        await self.admin.session.set(BARRIER, b"%d" % self._barrier)
        for member in list(self.members.values()):
            while True:
                try:
                    data, _ = await member.held.get(BARRIER)
                except SessionExpired:
                    continue  # it gets a new one
                if data is not None and int(data) >= self._barrier:
                    break

    def _is_at_rest(self) -> bool:
        for member in self.members.values():
            if member.controller is None:
                continue
            statistics = member.controller.statistics()
            if statistics["queue_length"] or statistics["processing"]:
                return False
            if not self._has_sent_all(member.controller):
                return False
        waits_for_election = (
            any(m.controller is not None for m in self.members.values()) and not self.active
        )
        return not waits_for_election

    def _has_sent_all(self, controller: Controller) -> bool:
        channels = controller.statistics().get("channels", {"brokers": {}})
        for id, channel in channels["brokers"].items():  # type: ignore[index]
            listening = id in self.members and not self.members[id].puppet.is_silent
            if channel["queued"] and listening:
                return False
        return True

    def _events(self) -> int:
        return len(self.entries) + sum(len(m.puppet.requests) for m in self.members.values())

    def _state(self) -> object:
        return {id: m.controller and m.controller.statistics() for id, m in self.members.items()}


def hold_news(controller: Controller, held: HeldStore) -> None:
    """What a held store keeps back includes which sockets open and refuse."""
    setattr(controller, "on_reach", held.holding(controller.on_reach))  # noqa: B010  # a method


class PuppetCluster(ScenarioCluster[Puppet]):
    """Puppet brokers on any store."""

    def __init__(
        self,
        open_store: OpenStore,
        config: Mapping[str, int | bool | ProtocolVersion],
        end_session: EndSession | None = None,
    ) -> None:
        super().__init__(open_store, config)
        self._end_session = end_session

    async def start(self, id: int) -> None:
        held = HeldStore(await self._open_store())
        store = ClusterStore(held)
        earlier = self._puppets.get(id)
        puppet = self._puppets[id] = Puppet(id, store)
        if earlier is not None:
            puppet.broken, puppet.undeletable = earlier.broken, earlier.undeletable
            puppet.deeds = earlier.deeds
        await puppet.start()
        controller = None
        if id in self.with_controller:
            journal = Journal(lambda: 0)
            journal.listen(lambda entry: self._heard(id, entry))
            # Puppets write the ISR themselves, as leaders do at the oldest protocol.
            config = ControllerConfig(
                auto_leader_rebalance_enable=False, protocol=ProtocolVersion.oldest()
            )
            for name, value in self.config.items():
                setattr(config, name, value)
            controller = Controller(
                id, store, config, journal=journal, rng=Random(id), register=puppet.register
            )
            hold_news(controller, held)
        self.members[id] = Member(puppet, held, controller)
        if controller is not None:
            await self.call(controller.start())

    async def kill(self, id: int) -> None:
        member = self.members.pop(id)
        await member.puppet.stop()
        await member.held.close()
        if member.controller is not None:
            await member.controller.stop()

    async def expire(self, id: int) -> None:
        """An administrator ends the session of this node."""
        assert self._end_session is not None
        await self._end_session(self.members[id].held.store)

    async def announce_config(self, topic: str) -> None:
        """Puppets read no settings: their part is played here."""
        if (await self.admin.configs.get(paths.ConfigKind.TOPICS, topic)).get(UNCLEAN) == "true":
            self.controller().enable_unclean_leader_election(topic)

    def controller(self, id: int | None = None) -> Controller:
        return self._elected(id)

    def leader_of(self, key: TopicPartition) -> Puppet:
        for member in self.members.values():
            held = member.puppet.replicas.get(key)
            if held is not None and held.leader == member.puppet.id:
                return member.puppet
        raise AssertionError(f"no broker leads {key}")
