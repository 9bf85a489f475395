"""How the sessions of one SQLite store know of each other without asking: a lock, a heart, a bell.

A session has two files beside the database. On ``<id>.lock`` it holds an OS lock, so the kernel
shows whether its process lives, and beats its heart by touching the file, so that a frozen process
is distinguished from a live one without a write to the database. ``<id>.bell`` is a FIFO it reads:
a session that commits a change writes a byte to every other session's bell, so waiting costs
nothing until it rings. Writers also learn from the FIFO, at once, that its only reader is gone.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from odradek.store.sqlite_tree import Session

# A process that dies closes its bell before its lock: look for the lock after this.
CHECK_AGAIN_S = 0.01


class Presence:
    """This session's own lock, heart and bell."""

    def __init__(self, directory: Path, session_id: int) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        self._lock_path = _lock_path(directory, session_id)
        self._bell_path = _bell_path(directory, session_id)
        # The lock before the bell: when the process dies, files close in this order.
        self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The id is ours, but may have been given before: to a session that was killed before
            # it was committed.
            self._bell_path.unlink(missing_ok=True)
            os.mkfifo(self._bell_path, 0o600)
            # Reading and writing: with a writer of our own the FIFO never ends.
            self.bell = os.open(self._bell_path, os.O_RDWR | os.O_NONBLOCK)
        except BaseException:
            os.close(self._lock)
            raise

    def beat(self) -> None:
        os.utime(self._lock)

    def silence(self) -> None:
        """Forget that the bell rang."""
        try:
            os.read(self.bell, 4096)
        except BlockingIOError:
            pass  # already read

    def close(self) -> None:
        os.close(self._lock)
        os.close(self.bell)
        self._lock_path.unlink(missing_ok=True)
        self._bell_path.unlink(missing_ok=True)


class Peer:
    """Another session, seen from outside."""

    def __init__(self, directory: Path, session_id: int, timeout: float, process: int) -> None:
        self.id = session_id
        self.process = process
        self._timeout = timeout
        self._directory = directory
        self._lock: int | None = None
        self.bell: int | None = None
        self._beat_ns = 0
        self._silent = 0.0
        self.ending = False  # this process is about to end it

    def reach(self) -> int | None:
        """Find the bell. A FIFO without a reader cannot be opened: then the session is dead, and
        dead() says so; or we are out of descriptors, and try again."""
        try:
            self.bell = os.open(_bell_path(self._directory, self.id), os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return None
        return self.bell

    def ring(self) -> None:
        if self.bell is not None:
            try:
                os.write(self.bell, b"!")
            except (BlockingIOError, BrokenPipeError):
                pass  # it rings already, or has no reader

    def dead(self) -> bool:
        """Whether the process is gone: its lock is free. False if that is not known."""
        try:
            if self._lock is None:
                self._lock = os.open(_lock_path(self._directory, self.id), os.O_RDONLY)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        return True

    def frozen(self, passed: float) -> bool:
        """Whether the heart has been silent for the session's time-out.

        Only time that we watched counts, by our own clock: a clock that is set, or a machine that
        slept as a whole, must not look like the death of all others.
        """
        if self._lock is None:
            return False
        beat_ns = os.fstat(self._lock).st_mtime_ns
        self._silent = self._silent + passed if beat_ns == self._beat_ns else 0.0
        self._beat_ns = beat_ns
        return self._silent >= self._timeout

    @property
    def silent(self) -> float:
        return self._silent

    def close(self) -> None:
        for descriptor in (self._lock, self.bell):
            if descriptor is not None:
                os.close(descriptor)
        self._lock = self.bell = None

    def bury(self) -> None:
        """Remove what a session that is over left behind."""
        _lock_path(self._directory, self.id).unlink(missing_ok=True)
        _bell_path(self._directory, self.id).unlink(missing_ok=True)


class OtherSessions:
    """The other sessions on the same file. `on_end` is called for one that is over, with why."""

    def __init__(self, directory: Path, on_end: Callable[[Peer, str], None]) -> None:
        self._directory = directory
        self._on_end = on_end
        self._peers: dict[int, Peer] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def of(self, session: Session) -> Peer:
        return Peer(self._directory, session.id, session.timeout_ms / 1000, session.process)

    def meet(self, sessions: Iterable[Session], own_id: int) -> None:
        """Know exactly these sessions, our own apart."""
        present = {session.id: session for session in sessions if session.id != own_id}
        for session_id in self._peers.keys() - present.keys():
            self._leave(self._peers.pop(session_id))
        for session_id in present.keys() - self._peers.keys():
            peer = self._peers[session_id] = self.of(present[session_id])
            self._check(peer)

    def leave_all(self) -> None:
        for peer in self._peers.values():
            self._leave(peer)
        self._peers.clear()

    def ring(self) -> None:
        """Something was written: have every other session look for it."""
        for peer in self._peers.values():
            peer.ring()

    def look(self, passed_s: float) -> None:
        """Find those whose process died or is frozen; `passed_s` is the time since the last one."""
        for peer in list(self._peers.values()):
            if peer.dead():
                self._on_end(peer, "died")
            elif peer.frozen(passed_s):
                self._on_end(peer, "was silent for its time-out")

    def _check(self, peer: Peer) -> None:
        if self._peers.get(peer.id) is not peer:
            return
        loop = asyncio.get_running_loop()
        if peer.dead():
            self._on_end(peer, "died")
        elif peer.bell is None and (bell := peer.reach()) is not None:
            # Nothing can be read from the writing end, but its error wakes the reader.
            loop.add_reader(bell, self._on_bell_broken, peer)
        else:  # dying: the lock goes next
            loop.call_later(CHECK_AGAIN_S, self._check, peer)

    def _on_bell_broken(self, peer: Peer) -> None:
        """A session's process died, or closed it in good order and we have not read so yet."""
        assert peer.bell is not None
        asyncio.get_running_loop().remove_reader(peer.bell)
        self._check(peer)

    @staticmethod
    def _leave(peer: Peer) -> None:
        if peer.bell is not None:
            asyncio.get_running_loop().remove_reader(peer.bell)
        peer.close()


def _lock_path(directory: Path, session_id: int) -> Path:
    return directory / f"{session_id}.lock"


def _bell_path(directory: Path, session_id: int) -> Path:
    return directory / f"{session_id}.bell"
