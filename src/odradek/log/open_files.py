"""How many files of logs are open at a time: those unused for longest are closed, and opened again
on use.

A broker has far more partitions than descriptors. Each segment asks for a place when it opens its
file; when there are too many, a walk over them closes the first that was not used since the last
walk (second chance), so that a use costs no more than setting a flag.

Rules
1. A file is closed by letting go of it. An operation under way, a sync in a thread for instance,
   holds it as well, and it stays open until that is done. So no lock is needed, and no count.
2. Owners address files by position, and know the size themselves: what one open file believes to
   be the end is not what another does.
3. Where the system has no descriptor left, some files are closed and the call is tried again. The
   spare descriptors are for the case that there is none to close.

What a crash does: nothing, for nothing is kept in the descriptor. A write that failed behind a file
that was closed since is reported to its next sync, as Linux keeps it with the file.
"""

import errno
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

__all__ = ["FILES_MAX", "OpenFiles"]

# More would make a miss rarer, which costs a tenth of what the cheapest request does.
FILES_MAX = 4096
# What is closed at once, of those that are open, when the system has no descriptor left.
CLOSED_FRACTION = 8
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)

T = TypeVar("T")


class Owner(Protocol):
    """Has one file open, and can open it again."""

    was_used: bool

    def let_go(self) -> None:
        """Drop the file without closing it: rule 1."""


def _reserve_nothing() -> object:
    return None


class OpenFiles:
    """The owners of open files, in the order in which they are asked to let go."""

    __slots__ = ("_files_max", "_owners", "_reserve", "_spares", "_spares_max", "evictions")

    def __init__(
        self,
        files_max: int = FILES_MAX,
        spares: int = 0,
        reserve: Callable[[], object] = _reserve_nothing,
    ) -> None:
        """`reserve` gives an object that holds a descriptor for as long as it lives."""
        assert files_max > 0
        self._files_max = files_max
        self._owners: OrderedDict[Owner, None] = OrderedDict()
        self._spares: list[object] = []
        self._spares_max = spares
        self._reserve = reserve
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, owner: Owner) -> None:
        """The owner has opened its file."""
        self._owners[owner] = None
        while len(self._owners) > self._files_max:
            self._close_one()

    def discard(self, owner: Owner) -> None:
        """The owner has closed its file."""
        self._owners.pop(owner, None)

    def opening(self, action: Callable[[], T]) -> T:
        """The result of an action that needs a descriptor, for which others may have to close."""
        self._restock()
        while True:
            try:
                return action()
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS or not self._make_room():
                    raise

    def statistics(self) -> dict[str, int]:
        return {"open_files": len(self._owners), "evictions": self.evictions}

    def _close_one(self) -> bool:
        """Threads may come in between: then one is closed too many or too few for a while."""
        for _ in range(len(self._owners) + 1):
            try:
                owner, _ = self._owners.popitem(last=False)
            except KeyError:
                return False
            if not owner.was_used:
                owner.let_go()
                self.evictions += 1
                return True
            owner.was_used = False
            self._owners[owner] = None
        return False

    def _make_room(self) -> bool:
        if self._owners:
            for _ in range(1 + len(self._owners) // CLOSED_FRACTION):
                self._close_one()
            return True
        if self._spares:
            self._spares.pop()
            return True
        return False

    def _restock(self) -> None:
        while len(self._spares) < self._spares_max:
            try:
                self._spares.append(self._reserve())
            except OSError:
                return
