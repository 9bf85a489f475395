"""A simulated world: hosts with disks, the brokers on them, and one metadata store.

The brokers are `odradek.broker.server.Broker`, the very class that runs in production; only loop,
disk, store and clock are the world's. Everything that is random is drawn from one seed, by a
generator of its own for each part, so that one part's dice do not disturb another's.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from odradek.broker.config import BrokerConfig
from odradek.broker.server import Broker, StartFailed
from odradek.controller.journal import Entry, describe
from odradek.log.offload import Offload, on_the_spot
from odradek.store.api import Create, Delete, Operation, Result
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.store.paths import broker as broker_path
from odradek.wire.protocol_version import ProtocolVersion

from .disk import SimDisk
from .loop import Process, SimLoop
from .network import Network
from .observation import Ledger

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
PORT = 9092
DATA = "/data"
SESSION_TIMEOUT_MS = 6_000
CAPACITY_BYTES = 1 << 40
# Telemetry has the time of a real processor in it, and a run must not depend on that.
QUIET = {"odradek.telemetry.interval.ms": "0"}
OPERATOR_S = 5.0  # from a broker that gives up until an operator restarts it


class Event(NamedTuple):
    """A line of the log of a run: something the world did, or a controller wrote in its journal."""

    at: float
    host: str
    what: str | Entry

    def __str__(self) -> str:
        what = self.what if isinstance(self.what, str) else describe(self.what)
        return f"{self.at:10.3f}  {self.host:9} {what}"


class ObservedBroker(Broker):
    """A broker whose controller's journal is read along."""

    def __init__(self, read_along: Callable[[Entry], None], *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._read_along = read_along

    def _make_parts(self) -> None:
        super()._make_parts()
        self.controller.journal.listen(self._read_along)


class ObservedServer(MemoryServer):
    """A store whose writes are seen, each with the client that made it, after it was done."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.observers: list[Callable[[MemoryStore, Sequence[Operation]], None]] = []

    def remove(self, path: str) -> None:
        """An operator deletes a node behind the brokers' backs."""
        if self.tree.exists(path) is not None:
            _, events = self.tree.apply([Delete(path)], 0, self._clock())
            self._publish(events)

    def write(self, operations: Sequence[Operation], session: Any) -> list[Result]:
        results = super().write(operations, session)
        for observe in self.observers:
            observe(session.client, operations)
        return results


class Host:
    """A machine with a disk and, when it is on, a broker."""

    def __init__(self, world: "World", broker_id: int, name: str) -> None:
        self.world = world
        self.id = broker_id
        self.name = name
        # Another machine has its id: no operator starts this one again.
        self.is_retired = False
        self.skew_ms = 0
        # Once it has been upgraded, the inter-broker protocol that its broker speaks.
        self._upgraded_to: ProtocolVersion | None = None
        self.disk = SimDisk(self.clock, CAPACITY_BYTES)
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.store: MemoryStore | None = None
        self.starts = 0
        self.boots = 1
        self.is_stopping = False

    def clock(self) -> int:
        return EPOCH_MS + int(self.world.loop.time() * 1000) + self.skew_ms

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def is_paused(self) -> bool:
        return self.process is not None and self.process.paused

    def start(self) -> None:
        """Power on: a new process starts the broker; it serves when it can."""
        assert not self.is_up
        self.starts += 1
        self.is_stopping = False
        self.world.network.power_on(self.name)
        self.process = self.world.loop.process(self.name)
        self.process.run(self._run(self.process), name=self.name)

    async def _run(self, process: Process) -> None:
        disk = self.disk.mounted(process)
        self.store = MemoryStore(self.world.server, session_timeout_ms=SESSION_TIMEOUT_MS)
        try:
            self.broker = ObservedBroker(
                self._read_along,
                BrokerConfig({**self.world.config, **self._settings()}),
                self.store,
                disk=disk,
                clock=self.clock,
                rng=self.world.dice(f"{self.name}/{self.starts}"),
                offload=self._offload(),
                boot_id=f"{self.name}/{self.boots}",
            )
            await self.broker.start()
            reason = await self.broker.failed
        except StartFailed as error:
            reason = str(error)
        except Exception as error:
            # No fault of the world makes a broker raise anything else: this is a finding.
            self.world.loop.call_exception_handler({"message": self.name, "exception": error})
            reason = repr(error)
        self.world.note(f"{self.name} gives up: {reason}")
        self.kill()
        self.world.loop.call_later(
            OPERATOR_S, self._start_again, self.starts, context=contextvars.Context()
        )

    def _offload(self) -> Offload:
        """How blocking work leaves the loop: it is done at some moment, and known to be done at a
        later one."""
        if not self.world.offload_s:
            return on_the_spot
        rate, rng = 2 / self.world.offload_s, self.world.dice(f"offload/{self.name}/{self.starts}")

        async def offload(work: Callable[[], T], /) -> T:
            await asyncio.sleep(rng.expovariate(rate))
            result = work()
            await asyncio.sleep(rng.expovariate(rate))
            return result

        return offload

    def _start_again(self, starts: int) -> None:
        """An operator finds that the broker ended by itself, and starts it unless another has."""
        if self.starts == starts and not self.is_up and not self.is_retired:
            self.start()

    @property
    def directories(self) -> list[str]:
        return [f"{DATA}/{number}" for number in range(self.world.log_dirs)]

    def _read_along(self, entry: Entry) -> None:
        self.world.journalled(self, entry)

    def upgrade(self) -> bool:
        """From its next start on the broker speaks the later protocol of this world; False if it
        does already, or if this world has one protocol only."""
        protocols = self.world.protocols
        if protocols is None or protocols.later <= (self._upgraded_to or protocols.first[self.id]):
            return False
        self._upgraded_to = protocols.later
        return True

    def _protocol(self) -> dict[str, str]:
        protocols = self.world.protocols
        if protocols is None:
            return {}
        return {"inter.broker.protocol.version": str(self._upgraded_to or protocols.first[self.id])}

    def _settings(self) -> dict[str, str]:
        return {
            **self._protocol(),
            "broker.id": str(self.id),
            "log.dirs": ",".join(self.directories),
            "listeners": self.world.listeners.format(host=self.name),
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        }

    def kill(self) -> None:
        """SIGKILL: what the process wrote is in the page cache and stays."""
        if self.process is not None:
            self.process.kill()
        self.broker = None

    def lose_power(self) -> None:
        """The process is gone, and some of what was not synced. Its peers hear nothing."""
        self.world.network.power_off(self.name)
        self.kill()
        self.boots += 1
        self.disk.lose_power(self.world.dice(f"power/{self.name}/{self.starts}"))

    def erase(self) -> None:
        """The machine is replaced by one with an empty disk."""
        self.world.network.power_off(self.name)
        self.kill()
        self.boots += 1
        self.disk.erase()

    def mend_disk(self) -> None:
        self.disk.failed.clear()
        self.disk.capacity_bytes = CAPACITY_BYTES

    def pause(self) -> None:
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        if self.process is not None:
            self.process.resume()

    async def stop(self) -> None:
        """SIGTERM: a controlled shutdown, in the process's own time."""
        if self.is_up and self.broker is not None and not self.is_paused:
            process = self.process
            assert process is not None
            self.is_stopping = True
            stopped = asyncio.Event()
            process.on_kill(stopped.set)
            process.run(self.broker.stop()).add_done_callback(lambda _: stopped.set())
            await stopped.wait()
            self.kill()


class Protocols(NamedTuple):
    """What each broker speaks to others at first, and what it is upgraded to."""

    first: Mapping[int, ProtocolVersion]
    later: ProtocolVersion


class World:
    """The loop, the network, the store and the hosts, all of one seed."""

    def __init__(
        self,
        seed: int,
        brokers: int,
        config: Mapping[str, str] | None = None,
        log_dirs: int = 1,
        latency_s: float = 0.0002,
        listeners: str = f"PLAINTEXT://{{host}}:{PORT}",
    ) -> None:
        self.seed = seed
        self.listeners = listeners
        self.log_dirs = log_dirs
        self.config = {**QUIET, **(config or {})}
        self.loop = SimLoop()
        self.network = Network(self.loop, self.dice("network"), latency_s)
        # The machine that has, or is to have, each broker id.
        self.hosts = {id: Host(self, id, f"broker-{id}") for id in range(1, brokers + 1)}
        # Machines started by mistake with an id that another one has.
        self.twins: dict[int, Host] = {}
        # Every machine there ever was.
        self.machines = list(self.hosts.values())
        self.events: list[Event] = []
        self._clients: list[Process] = []
        self.readers: list[Callable[[Host, Entry], None]] = []
        self.server: ObservedServer
        self.ledger: Ledger
        # Where brokers differ in what they speak, or are upgraded; else `config` has it.
        self.protocols: Protocols | None = None
        # How long work that leaves a broker's loop takes on the average.
        self.offload_s = 0.0

    def dice(self, name: str) -> random.Random:
        """A generator for one part, the same for the same seed and name."""
        return random.Random(f"{self.seed}/{name}")

    def note(self, event: str) -> None:
        """Add a line to the history of the run."""
        self.events.append(Event(self.loop.time(), "world", event))

    def journalled(self, host: Host, entry: Entry) -> None:
        """A controller wrote this in its journal."""
        self.events.append(Event(self.loop.time(), host.name, entry))
        for reader in self.readers:
            reader(host, entry)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host.name}:{PORT}" for host in self.hosts.values())

    def start_twin(self, broker_id: int) -> None:
        """Start a second machine, with an empty disk, under an id that is in use."""
        number = sum(machine.id == broker_id for machine in self.machines)
        twin = Host(self, broker_id, f"broker-{broker_id}-{chr(ord('a') + number)}")
        self.twins[broker_id] = twin
        self.machines.append(twin)
        twin.start()

    def _notice_takeover(self, writer: MemoryStore, operations: Sequence[Operation]) -> None:
        """A twin that registers has the id from then on; the machine that had it is its twin."""
        for broker_id, twin in list(self.twins.items()):
            path = broker_path(broker_id)
            if twin.store is writer and any(
                isinstance(operation, Create) and operation.path == path for operation in operations
            ):
                replaced = self.hosts[broker_id]
                replaced.is_retired = True
                self.hosts[broker_id], self.twins[broker_id] = twin, replaced
                self.note(f"{twin.name} has the id of {replaced.name}")

    def brokers(self) -> list[Broker]:
        """Those whose process is alive and has come as far as to have one."""
        return [h.broker for h in self.hosts.values() if h.is_up and h.broker is not None]

    @property
    def client_hosts(self) -> list[str]:
        """Where clients have run until now."""
        return sorted({process.host for process in self._clients})

    def process(self, name: str) -> Process:
        """A client's process."""
        process = self.loop.process(name)
        self._clients.append(process)
        return process

    def run(
        self,
        story: Callable[["World"], Coroutine[Any, Any, T]],
        prepare: Callable[[], None] = lambda: None,
    ) -> T:
        """Switch everything on, let the story happen, switch everything off."""

        async def whole() -> T:
            rng = self.dice("store")
            self.server = ObservedServer(
                clock=lambda: EPOCH_MS + int(self.loop.time() * 1000),
                delay=lambda: rng.uniform(0.0001, 0.002),
            )
            self.ledger = Ledger(self.server.tree)
            self.server.observers += [self._notice_takeover, self.ledger.observe]
            prepare()
            for host in self.hosts.values():
                host.start()
            try:
                return await story(self)
            finally:
                for machine in self.machines:
                    machine.kill()
                for process in self._clients:
                    process.kill()

        asyncio.set_event_loop(self.loop)
        try:
            return self.loop.run_until_complete(whole())
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()
            self.loop.clear_graveyard()
