"""Requests that wait for something named: a topic to be created, a partition to be elected."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from odradek.replica.delayed import Delayed, TimeoutWheel

__all__ = ["DelayedByKey"]

KeyT = TypeVar("KeyT", bound=Hashable)


class DelayedByKey(Generic[KeyT]):
    """Operations found by any of the keys they wait for: topic creation, elections, deletions."""

    def __init__(self, wheel: TimeoutWheel) -> None:
        self._wheel = wheel
        self._by_key: dict[KeyT, OrderedDict[_Keyed[KeyT], None]] = {}

    def __len__(self) -> int:
        return len({operation for waiting in self._by_key.values() for operation in waiting})

    def wait(
        self,
        keys: Iterable[KeyT],
        timeout_s: float,
        is_complete: Callable[[], bool],
        on_end: Callable[[bool], None],
    ) -> None:
        """Call `on_end(True)` once `is_complete()` after a `check` of any key, or `on_end(False)`
        when the time is up. It is asked once now, so nothing that happened before is missed."""
        if is_complete():
            on_end(True)
            return
        if timeout_s <= 0:
            on_end(False)
            return
        operation = _Keyed(self, tuple(keys), is_complete, on_end)
        for key in operation.keys:
            self._by_key.setdefault(key, OrderedDict())[operation] = None
        self._wheel.add(operation, timeout_s)

    def check(self, key: KeyT) -> int:
        """Something happened to `key`: complete who can. Says how many did."""
        waiting = self._by_key.get(key)
        if not waiting:
            return 0
        ready = [operation for operation in waiting if operation.is_complete()]
        for operation in ready:
            if operation.finish():
                operation.on_end(True)
        return len(ready)

    def keys(self) -> list[KeyT]:
        return list(self._by_key)

    def _forget(self, operation: "_Keyed[KeyT]") -> None:
        for key in operation.keys:
            waiting = self._by_key.get(key)
            if waiting is not None:
                waiting.pop(operation, None)
                if not waiting:
                    del self._by_key[key]


class _Keyed(Delayed, Generic[KeyT]):
    __slots__ = ("_owner", "is_complete", "keys", "on_end")

    def __init__(
        self,
        owner: DelayedByKey[KeyT],
        keys: tuple[KeyT, ...],
        is_complete: Callable[[], bool],
        on_end: Callable[[bool], None],
    ) -> None:
        super().__init__()
        self._owner = owner
        self.keys = keys
        self.is_complete = is_complete
        self.on_end = on_end

    def unregister(self) -> None:
        self._owner._forget(self)

    def expire(self) -> None:
        if self.finish():
            self.on_end(False)
