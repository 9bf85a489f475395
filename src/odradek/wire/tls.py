"""TLS between a plain transport and a frame protocol, driven by hand through memory BIOs.

asyncio's own TLS keeps 256 KB of zeroed buffer for each connection and waits for the peer's
close_notify; this layer costs 18 KB for an idle connection and runs unchanged in the simulator,
whose transports are plain. docs/spec/security.md, section 2.7.

Rules
1. All connections of one owner share one buffer for ciphertext. It is another than the frame
   protocol's, since both are in use at once.
2. Plaintext is decrypted straight into the frame protocol's buffer, at most a megabyte in one turn
   of the loop.
3. A protocol that pauses reading is handed nothing more, neither from the socket nor from what is
   decrypted already; resuming begins with what is here, for which no socket event would come.
4. At most 256 KB are encrypted ahead of what the socket takes: a large answer never exists twice.
5. Closing sends close_notify once and does not wait for the peer's.
6. A handshake has limits on time and bytes. `HandshakeQueue` runs one step of one handshake per
   turn of the loop, so that a thousand reconnecting clients do not stop replication.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from odradek.wire.frames import FrameProtocol

__all__ = ["HANDSHAKE_TIMEOUT_S", "HandshakeQueue", "TlsLayer", "TlsTransport"]

CIPHERTEXT_BYTES = 256 * 1024
DECRYPT_BYTES_MAX = 1024 * 1024
ENCRYPT_BYTES_MAX = 256 * 1024
HANDSHAKE_BYTES_MAX = 256 * 1024
HANDSHAKE_TIMEOUT_S = 30.0

logger = logging.getLogger(__name__)


class HandshakeQueue:
    """One step of one handshake per turn of the loop: it may cost a private-key operation."""

    def __init__(self) -> None:
        self._steps: deque[Callable[[], None]] = deque()

    def submit(self, step: Callable[[], None]) -> None:
        self._steps.append(step)
        if len(self._steps) == 1:
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        step = self._steps[0]
        try:
            step()
        finally:
            self._steps.popleft()
            if self._steps:
                asyncio.get_running_loop().call_soon(self._run)


class TlsTransport(asyncio.Transport):
    """What the frame protocol sees instead of the socket's transport."""

    def __init__(self, layer: "TlsLayer") -> None:
        super().__init__()
        self._layer = layer

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._layer.tls
        return self._layer.plain.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._layer.write(data)

    def pause_reading(self) -> None:
        self._layer.pause_reading()

    def resume_reading(self) -> None:
        self._layer.resume_reading()

    def is_reading(self) -> bool:
        return not self._layer.is_paused

    def is_closing(self) -> bool:
        return self._layer.plain.is_closing()

    def close(self) -> None:
        self._layer.close()

    def abort(self) -> None:
        self._layer.plain.abort()

    def get_write_buffer_size(self) -> int:
        return self._layer.queued_bytes + self._layer.plain.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._layer.plain.set_write_buffer_limits(high, low)


class TlsLayer(asyncio.BufferedProtocol):
    """The protocol of the plain transport; `protocol` is connected once the handshake is done.

    `on_failure` is called if it never is, with the reason; by default it is logged.
    """

    plain: asyncio.Transport

    def __init__(
        self,
        protocol: FrameProtocol,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        host: str | None = None,
        scratch: memoryview | None = None,
        handshakes: HandshakeQueue | None = None,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=host
        )
        self._scratch = scratch if scratch is not None else memoryview(bytearray(CIPHERTEXT_BYTES))
        self._handshakes = handshakes
        self._on_failure = on_failure
        self._timer: asyncio.TimerHandle | None = None
        self._failure: ssl.SSLError | None = None
        self._handshake_bytes = 0
        self._is_step_queued = False
        self._is_connected = False
        self._is_closed = False
        self._is_blocked = False
        self._is_protocol_blocked = False
        self._turn: asyncio.Handle | None = None
        self._queue: deque[memoryview] = deque()
        self.queued_bytes = 0
        self.is_paused = False

    # The plain transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.plain = cast(asyncio.Transport, transport)  # uvloop's is one, but no subclass
        self._timer = self._loop.call_later(
            HANDSHAKE_TIMEOUT_S, self._fail, TimeoutError("the TLS handshake took too long")
        )
        if not self.tls.server_side:
            self._step()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closed = True
        self._stop_timer()
        if self._turn is not None:
            self._turn.cancel()
        self._queue.clear()
        self.queued_bytes = 0
        if self._is_connected:
            self._protocol.connection_lost(error or self._failure)
        else:
            self._report(
                error or ConnectionError("closed during the TLS handshake; does it speak TLS?")
            )

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch

    def buffer_updated(self, count: int) -> None:
        self._incoming.write(self._scratch[:count])
        if self._is_connected:
            self._decrypt()
            return
        self._handshake_bytes += count
        if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
            self._fail(ConnectionError("the TLS handshake is too large"))
        elif self._handshakes is None:
            self._step()
        elif not self._is_step_queued:
            self._is_step_queued = True
            self._handshakes.submit(self._queued_step)

    def eof_received(self) -> bool | None:
        return False  # the transport closes itself

    def pause_writing(self) -> None:
        self._is_blocked = True

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._encrypt()

    # The handshake

    def _queued_step(self) -> None:
        self._is_step_queued = False
        if not self._is_closed:
            self._step()

    def _step(self) -> None:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_ciphertext()
            return
        except ssl.SSLError as error:
            self._send_ciphertext()  # the alert, if there is one
            self._fail(error)
            return
        self._send_ciphertext()
        self._stop_timer()
        self._is_connected = True
        self._protocol.connection_made(TlsTransport(self))
        self._decrypt()

    def _fail(self, error: Exception) -> None:
        self._report(error)
        self._is_closed = True
        self._stop_timer()
        self.plain.close()

    def _report(self, error: Exception) -> None:
        if self._is_closed and self._on_failure is None:
            return
        report, self._on_failure = self._on_failure, None
        if report is not None:
            report(error)
            self._on_failure = _ignore
        elif not self._is_closed:
            peer = self.plain.get_extra_info("peername") or ("unknown", 0)
            reason = getattr(error, "reason", None) or error
            logger.info("%s:%s: closing, TLS handshake failed: %s", peer[0], peer[1], reason)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Reading

    def pause_reading(self) -> None:
        self.is_paused = True
        if not self.plain.is_closing():
            self.plain.pause_reading()

    def resume_reading(self) -> None:
        self.is_paused = False
        if self._turn is None:
            self._turn = self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._turn = None
        if self._is_closed or self.is_paused:
            return
        if self._decrypt() and not self.plain.is_closing():
            self.plain.resume_reading()

    def _decrypt(self) -> bool:
        """Hands plaintext over; whether everything that has arrived is handed over."""
        left = DECRYPT_BYTES_MAX
        protocol, tls = self._protocol, self.tls
        try:
            while left > 0:
                if self.is_paused or self._is_closed or self.plain.is_closing():
                    return False
                buffer = protocol.get_buffer(-1)
                # Given a buffer it fills it and returns the count, which typeshed does not know.
                count: int = tls.read(len(buffer), buffer)  # type: ignore[assignment]
                if not count:
                    self.close()
                    return False
                left -= count
                protocol.buffer_updated(count)
        except ssl.SSLWantReadError:
            self._send_ciphertext()  # the answer to a key update
            return True
        except ssl.SSLZeroReturnError:
            self.close()
            return False
        except ssl.SSLError as error:
            self._send_ciphertext()
            logger.info("closing a connection, TLS failed: %s", error.reason or error)
            # In TLS 1.3 a server that rejects our certificate says so after the handshake.
            self._failure = error
            self.plain.close()
            return False
        # More may be here already: the socket stays quiet until this turn's share is digested.
        if not self.plain.is_closing():
            self.plain.pause_reading()
            if self._turn is None:
                self._turn = self._loop.call_soon(self._resume)
        return False

    # Writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closed:
            return
        view = memoryview(data)
        self._queue.append(view)
        self.queued_bytes += view.nbytes
        self._encrypt()

    def _encrypt(self) -> None:
        queue = self._queue
        while queue and not self._is_blocked and not self._is_closed:
            part = queue.popleft()
            if part.nbytes > ENCRYPT_BYTES_MAX:
                queue.appendleft(part[ENCRYPT_BYTES_MAX:])
                part = part[:ENCRYPT_BYTES_MAX]
            self.queued_bytes -= part.nbytes
            try:
                self.tls.write(part)
            except ssl.SSLError as error:
                logger.info("closing a connection, TLS failed: %s", error.reason or error)
                self.plain.abort()
                return
            self._send_ciphertext()
        if queue and not self._is_protocol_blocked:
            # What waits may be a view of the caller's buffer, which is the caller's again from now.
            self._queue = deque(memoryview(bytes(part)) for part in queue)
            self._is_protocol_blocked = True
            self._protocol.pause_writing()
        elif not queue and self._is_protocol_blocked:
            self._is_protocol_blocked = False
            self._protocol.resume_writing()

    def _send_ciphertext(self) -> None:
        if self._outgoing.pending:
            self.plain.write(self._outgoing.read())

    def close(self) -> None:
        """Sends what is queued, says goodbye and closes; does not wait for the peer."""
        if self._is_closed:
            return
        if self._is_connected:
            while self._queue:
                self.tls.write(self._queue.popleft())
                self._send_ciphertext()
            self.queued_bytes = 0
            try:
                self.tls.unwrap()
            except ssl.SSLError:
                pass  # the peer's goodbye is not waited for
            self._send_ciphertext()
        self._is_closed = True
        self.plain.close()


def _ignore(error: Exception) -> None:
    """A failure that was reported is reported once."""
