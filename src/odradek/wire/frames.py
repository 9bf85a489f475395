"""Frames on a socket: four bytes of size, then as many bytes; both directions, without needless
copies.

Incoming. All connections of one owner read into one scratch buffer; whole frames are cut out of it,
each into a bytearray of its own that the receiver may keep and patch. The rest of a frame that has
not arrived whole is received straight into its own bytearray, so the records of a large produce
request are copied once by the kernel and never again here. The scratch buffer may be shared because
the event loop asks for the buffer, fills it and hands it over in one step.

Outgoing. Parts of frames are gathered and written once per turn of the loop; small ones are joined,
large ones go to the socket as they are. While the peer does not read, what is left waits here and
`outgoing_bytes` says how much, so that its producer can stop. A sender that gets no answer waits
with `drain` until the operating system has all of it.

Bounds. A size below zero or above `frame_bytes_max` ends the connection before anything is
allocated. A claimed size costs nothing: a frame's buffer begins small and grows with what has
really arrived. Who connects to a peer of its own choice `trusts_sizes` instead, and then a buffer
has its full size at once. A subclass is notified of every change of these buffers and of what waits
to be sent, so that it can keep a budget over many connections.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from struct import Struct
from typing import TypeAlias, cast

__all__ = ["SCRATCH_BYTES", "Buffer", "FrameProtocol", "unset_buffer"]

Buffer: TypeAlias = bytes | bytearray | memoryview

SCRATCH_BYTES = 256 * 1024
NO_SCRATCH = memoryview(b"")
# The buffer of a frame of which next to nothing has arrived.
FIRST_BYTES = 4 * 1024
# How much larger than what has arrived the buffer may be: a fast sender fills the scratch buffer at
# once, so the whole of an ordinary produce request is allocated after its first read.
GROWTH = 4
# A smaller buffer is zeroed in less time than it takes to ask for one that is not.
UNSET_BYTES_MIN = 64 * 1024
# Parts below this are joined into one write; above it the copy costs more than another system call.
JOIN_BYTES = 64 * 1024
# What is given to the transport at a time: what the socket does not take at once, it copies.
WRITE_BYTES = 512 * 1024

_SIZE = Struct(">i")

logger = logging.getLogger(__name__)

_make_unset: Callable[[int], bytearray] | None = None


def unset_buffer(size: int) -> bytearray:
    """A bytearray whose bytes are not set yet: what is received is written over all of them, and
    zeroing them first would cost as much as summing them up."""
    if size < UNSET_BYTES_MIN:
        return bytearray(size)
    return (_make_unset or _find_make_unset())(size)


def _find_make_unset() -> Callable[[int], bytearray]:
    # ctypes is imported only by a process that has seen a large frame.
    import ctypes

    global _make_unset
    _make_unset = bytearray  # of an interpreter that offers nothing else
    with suppress(AttributeError):
        prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t)
        make = prototype(("PyByteArray_FromStringAndSize", ctypes.pythonapi))
        _make_unset = partial(make, None)
    return _make_unset


class FrameProtocol(asyncio.BufferedProtocol):
    """One end of a connection that speaks in frames. Subclasses say what a frame means.

    A subclass overrides `frame_received`, and where it matters `read_finished` (all frames of one
    read were handed over), `drained` (nothing waits to be sent) and `lost` (the connection is
    gone).
    """

    # Whether a buffer is made as large as the peer says that its frame will be.
    trusts_sizes = False

    def __init__(self, frame_bytes_max: int, scratch: memoryview | None = None) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.transport: asyncio.Transport | None = None
        self.peer = ""
        self.outgoing_bytes = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self._loop = asyncio.get_running_loop()
        # Its own is made with the connection: an attempt to connect that fails needs none.
        self._scratch = scratch if scratch is not None else NO_SCRATCH
        self._prefix = b""
        self._frame: bytearray | None = None
        self._frame_bytes = 0
        self._filled = 0
        self._open = False
        self._outgoing: deque[Buffer] = deque()
        self._blocked = False
        self._reading = False
        self._flush_scheduled = False
        self._drains: list[asyncio.Future[None]] = []

    # What a subclass overrides

    def frame_received(self, frame: bytearray) -> None:
        """A whole frame, without its size. It belongs to the receiver."""
        raise AssertionError("a frame protocol must say what a frame means")

    def read_finished(self) -> None:
        """All frames of one read were handed over."""

    def receiving_changed(self, byte_count: int) -> None:
        """The buffer of a frame that has not arrived whole has grown, or (below zero) is gone."""

    def outgoing_changed(self) -> None:
        """More waits to be sent than before, or less."""

    def drained(self) -> None:
        """Everything that was sent has been taken over by the transport, which can take more."""

    def lost(self, error: Exception | None) -> None:
        """The connection has ended, by either side or by a fault."""

    # asyncio's side: connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one, but no subclass
        self._open = True
        if not self._scratch:
            self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "unknown"

    def connection_lost(self, error: Exception | None) -> None:
        self._open = False
        self._set_frame(None)
        self._outgoing.clear()
        self.outgoing_bytes = 0
        self._end_drains(ConnectionError(f"the connection to {self.peer} is closed"))
        self.lost(error)

    @property
    def is_open(self) -> bool:
        return self._open

    def close(self) -> None:
        """Ends the connection once what was sent has left, as far as the peer still reads."""
        if not self._open:
            return
        if not self._blocked:
            self.flush()
        self._open = False
        if self.transport is not None:
            if self._blocked:
                self.transport.abort()
            else:
                self.transport.close()

    def abort(self) -> None:
        """Ends the connection at once, with whatever has not been sent."""
        self._open = False
        if self.transport is not None:
            self.transport.abort()

    # asyncio's side: reading

    def get_buffer(self, sizehint: int) -> memoryview:
        frame = self._frame
        if frame is None:
            prefix = self._prefix
            if not prefix:
                return self._scratch
            self._scratch[: len(prefix)] = prefix
            return self._scratch[len(prefix) :]
        if self._filled == len(frame):
            larger = unset_buffer(min(GROWTH * len(frame), self._frame_bytes))
            memoryview(larger)[: self._filled] = frame
            self._set_frame(larger)
            frame = larger
        return memoryview(frame)[self._filled :]

    def _set_frame(self, frame: bytearray | None) -> None:
        before = 0 if self._frame is None else len(self._frame)
        self._frame = frame
        change = (0 if frame is None else len(frame)) - before
        if change:
            self.receiving_changed(change)

    def buffer_updated(self, count: int) -> None:
        if not self._open:
            # A layer below us may hand over what it had when we closed: without the frames before
            # it, the middle of a frame would be taken for the size of another.
            return
        self.bytes_received += count
        self._reading = True
        try:
            frame = self._frame
            if frame is None:
                self._cut(len(self._prefix) + count)
            else:
                self._filled += count
                if self._filled == self._frame_bytes:
                    self._set_frame(None)
                    self.frame_received(frame)
        except BaseException:
            # The rest of this read is lost, and what follows cannot be understood without it.
            self.abort()
            raise
        finally:
            self._reading = False
        self.read_finished()
        if self._outgoing and not self._blocked:
            self.flush()

    def _cut(self, end: int) -> None:
        """Hands over the whole frames in the scratch buffer up to `end` and keeps the rest."""
        scratch = self._scratch
        position = 0
        while end - position >= 4:
            (size,) = _SIZE.unpack_from(scratch, position)
            start = position + 4
            if size < 0 or size > self.frame_bytes_max:
                self._refuse(size)
                return
            position = start + size
            if position > end:
                arrived = end - start
                expected = size if self.trusts_sizes else max(FIRST_BYTES, GROWTH * arrived)
                frame = unset_buffer(min(size, expected))
                memoryview(frame)[:arrived] = scratch[start:end]
                self._prefix = b""
                self._frame_bytes, self._filled = size, arrived
                self._set_frame(frame)
                return
            self.frame_received(bytearray(scratch[start:position]))
            if not self._open:
                return
        self._prefix = bytes(scratch[position:end])

    def _refuse(self, size: int) -> None:
        logger.warning(
            "%s: closing, a frame of %d bytes is not between 0 and %d",
            self.peer,
            size,
            self.frame_bytes_max,
        )
        self._prefix = b""
        self.close()

    def pause_reading(self) -> None:
        if self._open and self.transport is not None:
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._open and self.transport is not None:
            self.transport.resume_reading()

    # asyncio's side: writing

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        self.flush()

    def send(self, parts: list[Buffer]) -> None:
        """Queues one whole frame, its size included, for the end of this turn of the loop."""
        may_leave = self._queue(parts)
        self.outgoing_changed()
        if may_leave and not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush_soon)

    def send_now(self, parts: list[Buffer]) -> None:
        """Sends one whole frame, and all that is queued before it, without waiting for the end of
        the turn: for a sender that has nothing more to send in it."""
        if self._queue(parts):
            self.flush()
        else:
            self.outgoing_changed()

    def _queue(self, parts: list[Buffer]) -> bool:
        """Returns whether something is to be done so that it leaves."""
        if not self._open:
            return False
        self._outgoing.extend(parts)
        for part in parts:
            self.outgoing_bytes += len(part)
        return not (self._reading or self._blocked)

    def _flush_soon(self) -> None:
        self._flush_scheduled = False
        if not self._blocked:
            self.flush()

    def flush(self) -> None:
        """Writes what is queued until the transport has had enough."""
        transport, outgoing = self.transport, self._outgoing
        if transport is None or not self._open:
            return
        # A transport whose peer has gone takes whatever it is given and complains in the log.
        while outgoing and not self._blocked and not transport.is_closing():
            part = outgoing.popleft()
            size = len(part)
            if size > WRITE_BYTES:
                part = memoryview(part)
                outgoing.appendleft(part[WRITE_BYTES:])
                part = part[:WRITE_BYTES]
                size = WRITE_BYTES
            elif outgoing and size < JOIN_BYTES:
                part = self._joined(part)
                size = len(part)
            self.outgoing_bytes -= size
            self.bytes_sent += size
            transport.write(part)
        self.outgoing_changed()
        if not self._blocked and not transport.is_closing():
            if self._drains:
                self._end_drains(None)
            self.drained()

    async def drain(self) -> None:
        """Waits until what was sent so far is with the operating system, which delivers it also
        after we have closed; ConnectionError if the connection ends before."""
        if not self._open or self.transport is None:
            raise ConnectionError(f"the connection to {self.peer} is closed")
        # From now on the transport counts as blocked while it holds anything back itself.
        self.transport.set_write_buffer_limits(0)
        if self._outgoing or self._blocked:
            waiting = self._loop.create_future()
            self._drains.append(waiting)
            await waiting

    def _end_drains(self, failure: Exception | None) -> None:
        waiting, self._drains = self._drains, []
        for drain in waiting:
            if drain.done():
                continue  # the waiter has given up
            if failure is None:
                drain.set_result(None)
            else:
                drain.set_exception(failure)

    def _joined(self, part: Buffer) -> bytes | Buffer:
        """This part and the small ones that follow it, as one."""
        outgoing = self._outgoing
        small, size = [part], len(part)
        while outgoing and size + len(outgoing[0]) < JOIN_BYTES:
            size += len(outgoing[0])
            small.append(outgoing.popleft())
        return b"".join(small) if len(small) > 1 else part

    @property
    def is_blocked(self) -> bool:
        """True while the peer does not read what it was sent."""
        return self._blocked
