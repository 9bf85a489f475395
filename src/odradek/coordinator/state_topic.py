"""A compacted topic as a coordinator's memory: which of its partitions are ours, and what they say.

Groups live in `__consumer_offsets`, transactional ids in `__transaction_state`. The broker that
leads a partition coordinates the names that hash to it; the leader epoch is the coordinator epoch.
What a coordinator answers is in the log first, on every in-sync replica, and only then in memory.

Rules
1. A partition is loading from the moment this broker is elected until all of it has been read.
2. A newer epoch, or a resignation, ends every older load: what it has read so far is dropped.
3. A broker that is elected for many partitions at once loads them one after the other, in pieces,
   so that its other work is not held up.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from odradek.wire.errors import DecodeError, ErrorCode, KafkaError
from odradek.wire.java_hash import java_hash

__all__ = ["Appended", "OwnedPartition", "Replay", "StateLog", "StatePartitions", "partition_for"]

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Appended(NamedTuple):
    """The outcome of an append, and where the batch begins; -1 if it was not written."""

    error: ErrorCode
    offset: int = -1


class StateLog(Protocol):
    """The local replicas of a state topic, as a coordinator uses them."""

    def partition_count(self) -> int:
        """How many partitions the topic has, or will have."""

    async def check_partition_count(self) -> None:
        """Raise KafkaError if the topic has another number of partitions by now: others hash the
        names over that."""

    def append(
        self, partition: int, batch: bytearray, timeout_ms: int
    ) -> "asyncio.Future[Appended]":
        """Append with acks=all; done when every in-sync replica has it."""

    def read(self, partition: int) -> Iterator[bytes]:
        """All batches from the log's start to its end, in pieces that are soon read."""


class Replay(Protocol[T]):
    """Builds the entries of one partition out of its batches."""

    def take(self, piece: bytes) -> None:
        """The next batches. May raise, which ends the load."""

    def entries(self) -> dict[str, T]:
        """What they have come to, by name."""


@dataclass(slots=True, eq=False)
class OwnedPartition(Generic[T]):
    """A partition of a state topic that this broker leads, with its groups or transactions."""

    partition: int
    epoch: int
    loading: bool = True
    entries: dict[str, T] = field(default_factory=dict)


def partition_for(name: str, count: int) -> int:
    hashed = java_hash(name)
    return 0 if hashed == -(1 << 31) else abs(hashed) % count


class StatePartitions(Generic[T]):
    """The partitions of one state topic that this broker leads."""

    def __init__(
        self,
        topic: str,
        state_log: StateLog,
        replay: Callable[[int], Replay[T]],
        *,
        gives_up_unreadable: bool,
    ) -> None:
        """A partition that cannot be read stays loading, because any answer might be wrong; or is
        given up until the next election, so that clients look elsewhere."""
        self._topic = topic
        self._log = state_log
        self._replay = replay
        self._gives_up_unreadable = gives_up_unreadable
        self.owned: dict[int, OwnedPartition[T]] = {}
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._one_load = asyncio.Lock()

    # Looking

    def partition_for(self, name: str) -> int:
        return partition_for(name, self._log.partition_count())

    def status(self, name: str) -> ErrorCode:
        """Whether this broker can answer for the name now."""
        owned = self.owned.get(self.partition_for(name))
        if owned is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if owned.loading else ErrorCode.NONE

    @property
    def is_loading(self) -> bool:
        return any(owned.loading for owned in self.owned.values())

    def entries(self) -> list[T]:
        return [entry for owned in self.owned.values() for entry in owned.entries.values()]

    def get(self, name: str) -> T | None:
        owned = self.owned.get(self.partition_for(name))
        return owned.entries.get(name) if owned else None

    # Partitions come and go with their leadership

    def elected(
        self, partition: int, epoch: int, on_loaded: Callable[[OwnedPartition[T]], None]
    ) -> bool:
        """This broker leads the partition at this epoch: load it. False if that is known."""
        current = self.owned.get(partition)
        if current is not None and current.epoch >= epoch:
            return False
        owned = self.owned[partition] = OwnedPartition[T](partition, epoch)
        load = self._load(owned, on_loaded)
        self._loads[partition] = asyncio.get_running_loop().create_task(load)
        return True

    def resigned(self, partition: int, epoch: int | None = None) -> list[T]:
        """Another broker leads the partition, since this epoch; what is no longer ours."""
        owned = self.owned.get(partition)
        if owned is None or (epoch is not None and owned.epoch > epoch):
            return []
        del self.owned[partition]
        return list(owned.entries.values())

    def is_current(self, owned: OwnedPartition[T]) -> bool:
        """Whether this broker still leads the partition at that epoch."""
        return self.owned.get(owned.partition) is owned

    async def loaded(self, partition: int) -> OwnedPartition[T] | None:
        """The partition once it is not loading, or None when this broker does not lead it."""
        while (owned := self.owned.get(partition)) is not None and owned.loading:
            load = self._loads[partition]
            if load.done():
                return None  # it cannot be read
            await asyncio.wait({load})
        return owned

    def close(self) -> None:
        for task in self._loads.values():
            task.cancel()

    async def _load(
        self, owned: OwnedPartition[T], on_loaded: Callable[[OwnedPartition[T]], None]
    ) -> None:
        partition = owned.partition
        try:
            await self._log.check_partition_count()
            async with self._one_load:
                replay = self._replay(partition)
                for piece in self._log.read(partition) if self.is_current(owned) else ():
                    replay.take(piece)
                    # A long partition must not keep the broker from its other work.
                    await asyncio.sleep(0)
                    if not self.is_current(owned):
                        break
        except Exception as error:
            logger.error(
                "%s-%d: cannot be loaded at epoch %d: %s",
                *(self._topic, partition, owned.epoch, error),
                exc_info=not isinstance(error, KafkaError | DecodeError),
            )
            if self._gives_up_unreadable:
                self.resigned(partition, owned.epoch)
            return
        if not self.is_current(owned):
            return
        owned.entries = replay.entries()
        owned.loading = False
        logger.info(
            "%s-%d: loaded %d entries at epoch %d",
            *(self._topic, partition, len(owned.entries), owned.epoch),
        )
        on_loaded(owned)
