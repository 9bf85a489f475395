"""The stores under test, behind the same handles, and a real ZooKeeper server for one of them."""

import asyncio
import itertools
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from odradek.store import open_store
from odradek.store.api import SessionEvent, Store, WatchEvent
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.store.sqlite_tree import SqliteTree
from odradek.store.zookeeper import ZooKeeperStore
from odradek.store.zookeeper_server import ZooKeeperServer

TIMEOUT_S = 60.0
TIMEOUT_MS = 1000
CHILD = Path(__file__).parent / "child.py"

_chroots = itertools.count()


class Recorder:
    """A watch or a session listener that remembers, and can be waited for."""

    def __init__(self) -> None:
        self.seen: list[WatchEvent | SessionEvent] = []
        self._queue: asyncio.Queue[WatchEvent | SessionEvent] = asyncio.Queue()

    def __call__(self, event: WatchEvent | SessionEvent) -> None:
        self.seen.append(event)
        self._queue.put_nowait(event)

    async def next(self) -> WatchEvent | SessionEvent:
        return await asyncio.wait_for(self._queue.get(), TIMEOUT_S)

    async def next_path(self) -> str:
        event = await self.next()
        assert isinstance(event, WatchEvent)
        return event.path

    async def until(self, wanted: object) -> None:
        while await self.next() != wanted:
            pass


class Backend(Protocol):
    """What a test may do to a store besides using it."""

    name: str

    async def open(self, timeout_ms: int = TIMEOUT_MS) -> Store:
        """A new session on the same tree."""
        ...

    async def expire(self, store: Store) -> None:
        """End this session as an administrator can."""
        ...

    async def close(self) -> None: ...


class RemoteBackend(Backend, Protocol):
    """A store that is reached over a connection."""

    async def disconnect(self, store: Store) -> None: ...

    async def reconnect(self, store: Store) -> None: ...


class SharedBackend(Backend, Protocol):
    """A store that other processes can open."""

    url: str


BackendFactory = Callable[[str, Path], Backend]


class MemoryBackend:
    name = "memory"

    def __init__(self) -> None:
        self.server = MemoryServer()
        self._stores: list[MemoryStore] = []

    async def open(self, timeout_ms: int = TIMEOUT_MS) -> MemoryStore:
        store = MemoryStore(self.server, session_timeout_ms=timeout_ms)
        await store.start()
        self._stores.append(store)
        return store

    async def expire(self, store: Store) -> None:
        assert isinstance(store, MemoryStore)
        self.server.expire(store)

    async def disconnect(self, store: Store) -> None:
        assert isinstance(store, MemoryStore)
        self.server.disconnect(store)

    async def reconnect(self, store: Store) -> None:
        assert isinstance(store, MemoryStore)
        self.server.reconnect(store)

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


class SqliteBackend:
    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        self.path = directory / "metadata.db"
        self.url = f"sqlite:{self.path}"
        self._stores: list[Store] = []

    async def open(self, timeout_ms: int = TIMEOUT_MS) -> Store:
        store = open_store(self.url, session_timeout_ms=timeout_ms)
        await store.start()
        self._stores.append(store)
        return store

    async def expire(self, store: Store) -> None:
        tree = SqliteTree(self.path)
        with tree.writing():
            assert tree.end_session(store.session_id)
        tree.close()
        for bell in self.path.with_name("metadata.db.sessions").glob("*.bell"):
            descriptor = os.open(bell, os.O_WRONLY | os.O_NONBLOCK)
            os.write(descriptor, b"!")
            os.close(descriptor)

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


class Proxy:
    """A wire to the server that can be cut."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.partition(":")
        self._target_port = int(port)
        self._port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    async def join(self, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._serve, self._host, self._port, ssl=tls)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(self._host, self._target_port)
        for source, sink in ((reader, there[1]), (there[0], writer)):
            self._writers.add(sink)
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
        except OSError:
            pass  # the other direction was cut first
        finally:
            sink.close()
            self._writers.discard(sink)


class ZooKeeperBackend:
    name = "zookeeper"

    def __init__(self, address: str) -> None:
        self._address = address
        self._chroot = f"/test/{os.getpid()}/{next(_chroots)}"
        self.url = f"zookeeper://{address}{self._chroot}"
        self._stores: list[Store] = []
        self._proxies: dict[int, Proxy] = {}

    async def open(self, timeout_ms: int = TIMEOUT_MS) -> Store:
        proxy = Proxy(self._address)
        await proxy.join()
        store = open_store(
            f"zookeeper://{proxy.address}{self._chroot}", session_timeout_ms=timeout_ms
        )
        await store.start()
        self._stores.append(store)
        self._proxies[id(store)] = proxy
        return store

    async def expire(self, store: Store) -> None:
        """A client that knows a session's password may close it."""
        from kazoo.client import KazooClient

        def close_session() -> None:
            assert isinstance(store, ZooKeeperStore)
            client_id = store._client.client_id
            other = KazooClient(self._address, client_id=client_id, timeout=TIMEOUT_MS / 1000)
            other.start()
            other.stop()
            other.close()

        await asyncio.get_running_loop().run_in_executor(None, close_session)

    async def disconnect(self, store: Store) -> None:
        await self._proxies[id(store)].cut()

    async def reconnect(self, store: Store) -> None:
        await self._proxies[id(store)].join()

    async def close(self) -> None:
        for store in self._stores:
            await store.close()
        for proxy in self._proxies.values():
            await proxy.cut()


@pytest.fixture(scope="session")
def zookeeper_address(
    zookeeper_is_here: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), port=0, tick_ms=100)
    server.start()
    yield server.address
    server.stop()


@pytest.fixture
def proxy_to() -> type[Proxy]:
    return Proxy


@pytest.fixture
def backend_factory(request: pytest.FixtureRequest) -> BackendFactory:
    """A store by its name, with a directory of its own if it needs one."""

    def make(name: str, directory: Path) -> Backend:
        if name == "memory":
            return MemoryBackend()
        if name == "sqlite":
            return SqliteBackend(directory)
        return ZooKeeperBackend(request.getfixturevalue("zookeeper_address"))

    return make


ZOOKEEPER = pytest.param("zookeeper", marks=pytest.mark.process)


@pytest.fixture(params=["memory", "sqlite", ZOOKEEPER])
async def backend(
    request: pytest.FixtureRequest, backend_factory: BackendFactory, tmp_path: Path
) -> AsyncIterator[Backend]:
    """Each store in turn."""
    made = backend_factory(request.param, tmp_path)
    yield made
    await made.close()


@pytest.fixture(params=["memory", ZOOKEEPER])
async def remote(
    request: pytest.FixtureRequest, backend_factory: BackendFactory, tmp_path: Path
) -> AsyncIterator[RemoteBackend]:
    """The stores that are reached over a connection."""
    made = backend_factory(request.param, tmp_path)
    assert isinstance(made, MemoryBackend | ZooKeeperBackend)
    yield made
    await made.close()


@pytest.fixture(params=["sqlite", ZOOKEEPER])
async def shared(
    request: pytest.FixtureRequest, backend_factory: BackendFactory, tmp_path: Path
) -> AsyncIterator[SharedBackend]:
    """The stores that other processes can open."""
    made = backend_factory(request.param, tmp_path)
    assert isinstance(made, SqliteBackend | ZooKeeperBackend)
    yield made
    await made.close()


@pytest.fixture
async def store(backend: Backend) -> Store:
    return await backend.open()


@pytest.fixture
def recorder() -> type[Recorder]:
    return Recorder


class Child:
    """Another process with a session of its own (child.py)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def hear(self) -> str:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), TIMEOUT_S)
        assert line, "the child ended"
        return line.decode().rstrip("\n")

    async def ask(self, line: str) -> str:
        await self.say(line)
        return await self.hear()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


Spawn = Callable[..., Awaitable[Child]]


@pytest.fixture
async def spawn() -> AsyncIterator[Spawn]:
    children: list[Child] = []

    async def start(url: str, *arguments: object) -> Child:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(CHILD),
            url,
            *map(str, arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        child = Child(process)
        children.append(child)
        assert await child.hear() == "ready"
        return child

    yield start
    for child in children:
        await child.end()
