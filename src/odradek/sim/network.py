"""The network between simulated processes: ordered byte streams with delay, loss and partitions.

What a link can do is what TCP lets a network do to a program: bytes of one connection arrive in
order, later; two connections are not ordered with each other; a cut link delivers nothing until it
heals, and a connection that has been silent on a cut link for long enough is reset. A killed
process's peers see a reset; a paused one's see silence.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from .loop import PROCESS, Process, SimLoop

HIGH_WATER_BYTES = 1 << 16
JITTER_S = 0.0003


@dataclass
class Link:
    """One direction between two hosts."""

    latency_s: float = 0.0002
    jitter_s: float = JITTER_S
    bytes_per_s: float = 1e9
    cut: bool = False

    def delay(self, rng: random.Random, size: int) -> float:
        return self.latency_s + rng.random() * self.jitter_s + size / self.bytes_per_s


class Network:
    """All hosts, links, listening ports and connections of one simulated world."""

    RESET_AFTER_S = 60.0  # how long a connection survives on a cut link
    CONNECT_AGAIN_S = (1.0, 2.0, 4.0, 8.0, 16.0)  # when an attempt without an answer is repeated

    def __init__(self, loop: SimLoop, rng: random.Random, latency_s: float = 0.0002) -> None:
        self.loop = loop
        self.rng = rng
        self.latency_s = latency_s  # of a link that nothing is wrong with
        self.links: dict[tuple[str, str], Link] = {}
        self.listeners: dict[tuple[str, int], _Server] = {}
        self.connections: set[_Endpoint] = set()
        # Hosts without power: they refuse and reset nothing.
        self.dark: set[str] = set()
        # Ends that are closed, of which the other end could not hear: the link was cut.
        self.unheard: set[_Endpoint] = set()
        self._next_port = 40_000
        self._next_id = 0
        self.bytes_sent = 0
        loop.network = self

    def link(self, source: str, target: str) -> Link:
        link = self.links.get((source, target))
        if link is None:
            link = self.links[source, target] = Link(self.latency_s)
        return link

    def cut(self, source: str, target: str) -> None:
        """Nothing passes from source to target; the other direction is its own link."""
        self.link(source, target).cut = True

    def heal(self, source: str, target: str) -> None:
        self.link(source, target).cut = False
        for endpoint in sorted(self.connections, key=lambda endpoint: endpoint.id):
            if endpoint.host == source and endpoint.peer_host == target:
                endpoint.flush()
        for endpoint in sorted(self.unheard, key=lambda endpoint: endpoint.id):
            if endpoint.host == source and endpoint.peer_host == target:
                endpoint.tell_reset()

    def heal_all(self) -> None:
        for source, target in sorted(self.links):
            self.heal(source, target)

    def reset_connections(self, one: str, other: str) -> None:
        """Drop every connection between two hosts, as a firewall that lost its state does."""
        for endpoint in sorted(self.connections, key=lambda endpoint: endpoint.id):
            if (endpoint.host, endpoint.peer_host) == (one, other):
                endpoint.reset()

    def break_clients(self, host: str, brokers: Collection[str]) -> None:
        """Break the connections of clients to a broker: some now, some in the next response."""
        for endpoint in sorted(self.connections, key=lambda endpoint: endpoint.id):
            if endpoint.host == host and endpoint.peer_host not in brokers:
                if self.rng.random() < 0.5:
                    endpoint.reset()
                else:
                    endpoint.breaks_at_next_write = True

    def power_off(self, host: str) -> None:
        self.dark.add(host)

    def power_on(self, host: str) -> None:
        """Peers still connected to an earlier process learn that it is gone."""
        if host not in self.dark:
            return
        self.dark.remove(host)
        for endpoint in sorted(self.connections, key=lambda endpoint: endpoint.id):
            if endpoint.peer_host == host and endpoint.peer.closed:
                endpoint.peer.reset()

    def listen(
        self,
        factory: Callable[[], Any],
        host: str | None,
        port: int | None,
        start_serving: bool = True,
    ) -> "_Server":
        process = _current()
        if not port:
            self._next_port += 1
            port = self._next_port
        if (process.host, port) in self.listeners:
            raise OSError(98, f"address already in use: {process.host}:{port}")
        server = _Server(self, process, factory, process.host, port)
        server.serving = start_serving
        self.listeners[process.host, port] = server
        return server

    def process_died(self, process: Process) -> None:
        """The operating system closes what a dead process had open; peers see a reset."""
        for server in [s for s in self.listeners.values() if s.process is process]:
            server.close()
        for endpoint in sorted(self.connections, key=lambda endpoint: endpoint.id):
            if endpoint.process is process:
                endpoint.process_died()

    async def connect(
        self, factory: Callable[[], Any], host: str, port: int
    ) -> tuple["_Endpoint", Any]:
        process = _current()
        out, back = self.link(process.host, host), self.link(host, process.host)
        await asyncio.sleep(out.delay(self.rng, 64) + back.delay(self.rng, 64))
        for pause_s in self.CONNECT_AGAIN_S:
            if not (out.cut or back.cut or host in self.dark):
                break
            await asyncio.sleep(pause_s)
        else:
            raise TimeoutError(110, f"connection to {host}:{port} timed out")
        server = self.listeners.get((host, port))
        if server is None or not server.serving:
            raise ConnectionRefusedError(111, f"connection refused by {host}:{port}")
        self._next_id += 2
        near = _Endpoint(self, self._next_id, process, host, (host, port))
        far = _Endpoint(self, self._next_id + 1, server.process, process.host, None)
        near.join(far)
        protocol = factory()
        near.attach(protocol)
        # The accepting side learns of it in its own time; bytes sent meanwhile wait in the stream.
        self.loop.call_soon(_accept, server, far, context=server.process.context)
        return near, protocol


def _accept(server: "_Server", endpoint: "_Endpoint") -> None:
    if server.closed:
        endpoint.reset()
    else:
        endpoint.attach(server.factory())


def _current() -> Process:
    process = PROCESS.get()
    assert process is not None, "only a simulated process can use the network"
    return process


class _Socket:
    """As much of a socket as a program asks of one it may not touch."""

    family = 2

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def setsockopt(self, *_: object) -> None:
        """No option changes anything here."""


class _Server:
    """What loop.create_server returns."""

    def __init__(
        self, network: Network, process: Process, factory: Callable[[], Any], host: str, port: int
    ) -> None:
        self.network = network
        self.process = process
        self.factory = factory
        self.sockets = [_Socket((host, port))]
        self.closed = False
        self.serving = False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.serving = False
            del self.network.listeners[self.sockets[0].getsockname()]

    def is_serving(self) -> bool:
        return self.serving

    async def start_serving(self) -> None:
        """From now on connections are accepted; before, the port was only taken."""
        self.serving = True

    async def wait_closed(self) -> None:
        """It is closed when close returns."""


class _Endpoint(asyncio.Transport):
    """One end of a connection: the transport its protocol sees."""

    peer: "_Endpoint"

    def __init__(
        self,
        network: Network,
        identity: int,
        process: Process,
        peer_host: str,
        peer_address: tuple[str, int] | None,
    ) -> None:
        super().__init__()
        self.network = network
        self.id = identity
        self.process = process
        self.host = process.host
        self.peer_host = peer_host
        self.address = (self.host, 50_000 + identity)
        self.peer_address = peer_address or (peer_host, 50_000 + identity - 1)
        self.link = network.link(self.host, peer_host)
        self.protocol: Any = None
        self.is_buffered = False
        self.closing = False
        self.closed = False
        self.paused_writing = False
        self.paused_reading = False
        self.unsent: deque[bytes] = deque()  # written here, held back by a cut link
        self.in_flight_bytes = 0  # written here, not yet taken by the peer's protocol
        self.inbox: deque[bytes] = deque()  # arrived, not yet given to the protocol
        self.arrival = 0.0  # when the last bytes on the way will be there: streams are ordered
        self.finished = False  # the peer has closed its side after what is in the inbox
        self.breaks_at_next_write = False  # in the middle of it
        network.connections.add(self)

    def join(self, peer: "_Endpoint") -> None:
        self.peer = peer
        peer.peer = self

    def attach(self, protocol: Any) -> None:
        self.set_protocol(protocol)
        protocol.connection_made(self)
        self._deliver()

    # What a protocol asks of its transport.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known = {
            "peername": self.peer_address,
            "sockname": self.address,
            "socket": _Socket(self.address),
        }
        return known.get(name, default)

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol
        self.is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def is_closing(self) -> bool:
        return self.closing

    def is_reading(self) -> bool:
        return not self.paused_reading

    def pause_reading(self) -> None:
        self.paused_reading = True

    def resume_reading(self) -> None:
        if self.paused_reading:
            self.paused_reading = False
            self.network.loop.call_soon(self._deliver, context=self.process.context)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """One limit for all connections."""

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return HIGH_WATER_BYTES // 4, HIGH_WATER_BYTES

    def get_write_buffer_size(self) -> int:
        return self.in_flight_bytes

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write(self, data: Any) -> None:
        if self.closing or self.closed or not self.process.alive or not data:
            return
        content = bytes(data)
        self.in_flight_bytes += len(content)
        if self.unsent or self.link.cut:
            self.unsent.append(content)
            self.flush()
        else:
            self._send(content)
        if not self.paused_writing and self.in_flight_bytes > HIGH_WATER_BYTES:
            self.paused_writing = True
            self.protocol.pause_writing()

    def close(self) -> None:
        """What was written still arrives; then the peer sees the end."""
        if self.closing:
            return
        self.closing = True
        self.unsent.append(b"")
        self.flush()
        self.network.loop.call_soon(self._lose, None, context=self.process.context)

    def abort(self) -> None:
        self.reset()

    # The way of the bytes.

    def flush(self) -> None:
        """Put what was written on the wire, unless the link is cut."""
        if self.link.cut:
            if self.unsent:
                self._reset_if_still_cut_later()
            return
        while self.unsent:
            self._send(self.unsent.popleft())
        if self.closed:
            self.network.connections.discard(self)

    def _send(self, content: bytes) -> None:
        network = self.network
        breaks = self.breaks_at_next_write and len(content) > 1
        if breaks:
            content = content[: network.rng.randrange(1, len(content))]
        network.bytes_sent += len(content)
        due = network.loop.time() + self.link.delay(network.rng, len(content))
        self.arrival = max(self.arrival, due)
        network.loop.call_at(self.arrival, self._arrive, content, context=self.peer.process.context)
        if breaks:
            self._break()

    def _break(self) -> None:
        """Lost on this side now, on the other once it has what is on its way."""
        self.breaks_at_next_write = False
        self.closing = True
        self.unsent.clear()
        loop, error = self.network.loop, ConnectionResetError(104, "reset")
        loop.call_soon(self._lose, error, context=self.process.context)
        peer = self.peer
        loop.call_at(self.arrival, peer._lose, error, context=peer.process.context)

    def _reset_if_still_cut_later(self) -> None:
        oldest = self.unsent[0]

        def check() -> None:
            if self.unsent and self.unsent[0] is oldest:
                self.unsent.clear()
                if self.closed:
                    self.network.connections.discard(self)
                else:
                    self.reset()

        self.network.loop.call_later(
            self.network.RESET_AFTER_S, check, context=self.process.context
        )

    def _arrive(self, content: bytes) -> None:
        """Runs in the peer's process: a paused peer takes it when it wakes."""
        peer = self.peer
        if peer.closed:
            return
        if content:
            peer.inbox.append(content)
        else:
            peer.finished = True
        peer._deliver()

    def _deliver(self) -> None:
        while self.inbox and self.protocol and not self.paused_reading and not self.closed:
            content = self.inbox.popleft()
            self._hand_over(content)
            self.peer._taken(len(content))
        if self.finished and not self.inbox and self.protocol and not self.closed:
            self.closing = True
            self._lose(None)

    def _hand_over(self, content: bytes) -> None:
        if not self.is_buffered:
            self.protocol.data_received(content)
            return
        while content and not self.closed:
            buffer = self.protocol.get_buffer(len(content))
            size = min(len(content), len(buffer))
            buffer[:size] = content[:size]
            self.protocol.buffer_updated(size)
            content = content[size:]
            if self.paused_reading and content:
                self.inbox.appendleft(content)
                return

    def _taken(self, size: int) -> None:
        self.in_flight_bytes -= size
        if self.paused_writing and self.in_flight_bytes <= HIGH_WATER_BYTES // 4:
            self.paused_writing = False
            if not self.closed:
                self.network.loop.call_soon(
                    self.protocol.resume_writing, context=self.process.context
                )

    def reset(self) -> None:
        """Both ends lose the connection; the far one learns of it when the link lets it."""
        self.closing = True
        self.unsent.clear()
        network = self.network
        network.loop.call_soon(self._lose, None, context=self.process.context)
        if self.process.host in network.dark:
            self._lose_peer_in(network.RESET_AFTER_S)
        elif self.link.cut:
            network.unheard.add(self)
            self._lose_peer_in(network.RESET_AFTER_S)
        else:
            self.tell_reset()

    def tell_reset(self) -> None:
        """The far end hears that this one is gone, as soon as a message takes."""
        self.network.unheard.discard(self)
        self._lose_peer_in(self.link.delay(self.network.rng, 64))

    def _lose_peer_in(self, wait_s: float) -> None:
        peer, error = self.peer, ConnectionResetError(104, "reset")
        self.network.loop.call_later(wait_s, peer._lose, error, context=peer.process.context)

    def _lose(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = self.closing = True
        if error is not None or not self.unsent:
            self.network.connections.discard(self)
        # Else the link is cut, and the system sends what was written before the close once it can.
        if self.protocol is not None:
            self.protocol.connection_lost(error)

    def process_died(self) -> None:
        self.unsent.clear()
        self.network.connections.discard(self)
        if not self.closed:
            self.closed = self.closing = True
            self.reset()
