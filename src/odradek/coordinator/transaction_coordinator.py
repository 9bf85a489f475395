"""The transaction coordinator: who owns a transactional id, and how its transactions end.

docs/spec/transactions.md section 2. What a request changes is decided by `Transaction`, written to
`__transaction_state`, and taken over when every in-sync replica has it; here is what waits in
between. Every operation begins and ends under one coordinator epoch: if the partition was lost
meanwhile, the answer is NOT_COORDINATOR, whatever became of the write.

In a crash: before PrepareCommit or PrepareAbort is on all in-sync replicas the transaction is still
open, and is aborted when it times out; after that the next coordinator finds it decided in the log
and sends the markers again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from odradek.coordinator.config import TransactionConfig
from odradek.coordinator.markers import BACKOFF_FIRST_S, BACKOFF_MAX_S, Fenced, Marker, MarkerSender
from odradek.coordinator.state_topic import OwnedPartition, StateLog
from odradek.coordinator.transaction import NO_EPOCH, NO_PRODUCER_ID, Transaction, TransactionChange
from odradek.coordinator.transaction_states import TransactionState
from odradek.coordinator.transaction_storage import TRANSACTIONS_TOPIC, TransactionStorage
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

__all__ = ["TransactionCoordinator"]

T = TypeVar("T")
Owned = OwnedPartition[Transaction]

logger = logging.getLogger(__name__)

# How long AddPartitionsToTxn waits for the markers of the transaction before it. A client that is
# answered CONCURRENT_TRANSACTIONS instead backs off for longer than markers take.
MARKERS_WAIT_S = 1.0

# The keys of one batch of tombstones together; a topic's max.message.bytes is 1 MiB or more.
TOMBSTONE_BYTES_MAX = 512 * 1024

LOG_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class TransactionCoordinator:
    """The transactional ids this broker answers for. Its operations raise KafkaError."""

    def __init__(
        self,
        state_log: StateLog,
        config: TransactionConfig,
        markers: MarkerSender,
        *,
        take_producer_id: Callable[[], Awaitable[int]],
        clock: Callable[[], int],
    ) -> None:
        self.config = config
        self.storage = TransactionStorage(state_log, clock)
        self._markers = markers
        self._take_producer_id = take_producer_id
        self._clock = clock
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # Operations under way: a client that disconnects does not end what it has begun.
        self._operations: set[asyncio.Task[Any]] = set()
        # Decided transactions whose markers are under way, by partition and transactional id.
        self._finishing: dict[int, dict[str, asyncio.Task[None]]] = {}
        # Transactional ids whose next transaction waits for these markers.
        self._waiting: Counter[str] = Counter()
        self._timed_out = 0

    # Partitions of the state topic come and go with their leadership

    def on_elected(self, partition: int, epoch: int) -> None:
        """This broker leads a partition of the state topic: load it, then answer for it."""
        if self.storage.elected(partition, epoch, self._loaded):
            self._stop_finishing(partition)

    def on_resigned(self, partition: int, epoch: int | None = None) -> None:
        self.storage.resigned(partition, epoch)
        if partition not in self.storage.owned:
            self._stop_finishing(partition)

    def _loaded(self, owned: Owned) -> None:
        for transaction in list(owned.entries.values()):
            if transaction.state.is_prepared:
                self._finish(owned, transaction)

    def _stop_finishing(self, partition: int) -> None:
        for task in self._finishing.pop(partition, {}).values():
            task.cancel()

    def start(self) -> None:
        """Look for what has timed out or expired, now and then."""
        self._every(self.config.timeout_check_interval_ms, self.abort_timed_out)
        self._every(self.config.expiration_check_interval_ms, self.remove_expired)

    def _every(self, interval_ms: int, check: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def due() -> None:
            self._every(interval_ms, check)
            check()

        self._timers[check.__name__] = loop.call_later(interval_ms / 1000, due)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for partition in list(self.storage.owned):
            self.on_resigned(partition)
        for task in self._operations:
            task.cancel()
        self.storage.close()
        self._markers.close()

    # What producers ask for

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        epoch: int = NO_EPOCH,
    ) -> tuple[int, int]:
        """A producer id and an epoch that no other producer has: all earlier ones are fenced."""
        if not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction.timeout.ms is {timeout_ms}; it must be above 0 and at most"
                f" {self.config.transaction_max_timeout_ms}",
            )
        owned = self._owned(transactional_id)
        return await self._operation(
            self._init_producer_id(owned, transactional_id, timeout_ms, producer_id, epoch)
        )

    async def _init_producer_id(
        self, owned: Owned, transactional_id: str, timeout_ms: int, producer_id: int, epoch: int
    ) -> tuple[int, int]:
        transaction = owned.entries.get(transactional_id)
        if transaction is None:
            new = Transaction(
                transactional_id,
                await self._take_producer_id(),
                timeout_ms=timeout_ms,
                updated_ms=self._clock(),
            )
            self._check_current(owned)
            transaction = owned.entries.setdefault(transactional_id, new)
        new_producer_id = None
        if transaction.must_abort_first(producer_id, epoch):
            await self._decide(owned, transaction, transaction.fence_and_abort(self._clock()))
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction.needs_new_producer_id(epoch):
            new_producer_id = await self._take_producer_id()
            self._check_current(owned)
            if transaction.must_abort_first(producer_id, epoch):
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        transition = transaction.initialize(timeout_ms, self._clock(), epoch, new_producer_id)
        await self._write(owned, transaction, transition)
        return transition.producer_id, transition.epoch

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> None:
        """The producer is about to write to these partitions in its transaction.

        Kafka answers CONCURRENT_TRANSACTIONS while the markers of the transaction before are under
        way. A producer that aborts before it has read that answer then ends a transaction that has
        not begun, which is fatal to librdkafka; so the markers are waited for here.
        """
        owned, transaction = self._find(transactional_id, producer_id, epoch)
        if transaction.state.is_prepared:
            await self._wait_for_markers(owned, transaction)
            owned, transaction = self._find(transactional_id, producer_id, epoch)
        transition = transaction.add(partitions, self._clock())
        if transition is not None:
            await self._operation(self._write(owned, transaction, transition))

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """For leaders: whether these partitions are in the producer's open transaction."""
        _, transaction = self._find(transactional_id, producer_id, epoch)
        return {tp: transaction.verify(tp) for tp in partitions}

    async def end(
        self, transactional_id: str, producer_id: int, epoch: int, is_commit: bool
    ) -> None:
        """Returns when the outcome is decided, that is on all in-sync replicas; before any marker
        is written."""
        owned, transaction = self._find(transactional_id, producer_id, epoch)
        if transactional_id in self._waiting:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        transition = transaction.end(is_commit, self._clock())
        if transition is not None:
            await self._operation(self._decide(owned, transaction, transition))

    # What is asked about them

    def describe(self, transactional_id: str) -> Transaction:
        owned = self._owned(transactional_id)
        transaction = owned.entries.get(transactional_id)
        if transaction is None or transaction.pending is TransactionState.DEAD:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return transaction

    def statistics(self) -> dict[str, int]:
        transactions = self.storage.entries()
        return {
            "ids": len(transactions),
            "ongoing": sum(each.state is TransactionState.ONGOING for each in transactions),
            "finishing": sum(map(len, self._finishing.values())),
            "timed_out": self._timed_out,
            "partitions": len(self.storage.owned),
            **{f"markers_{name}": count for name, count in self._markers.statistics().items()},
        }

    # What time does to them

    def abort_timed_out(self) -> None:
        now = self._clock()
        for owned in list(self.storage.owned.values()):
            for transaction in [each for each in owned.entries.values() if each.is_timed_out(now)]:
                logger.info(
                    "%s: transaction of producer %d epoch %d timed out after %d ms: aborting it",
                    transaction.transactional_id,
                    *(transaction.producer_id, transaction.epoch, transaction.timeout_ms),
                )
                self._timed_out += 1
                # Begun here, not in the task: an EndTxn may be served before that runs.
                transition = transaction.fence_and_abort(now)
                self._start(self._abort_quietly(owned, transaction, transition))

    async def _abort_quietly(
        self, owned: Owned, transaction: Transaction, transition: TransactionChange
    ) -> None:
        try:
            await self._decide(owned, transaction, transition)
        except KafkaError as error:
            logger.info(
                "%s: aborting the transaction failed, to be repeated: %s",
                *(transaction.transactional_id, error.error.name),
            )

    def remove_expired(self) -> None:
        now = self._clock()
        for owned in list(self.storage.owned.values()):
            batch: list[Transaction] = []
            size_bytes = 0
            for transaction in list(owned.entries.values()):
                if not transaction.is_expired(now, self.config.transactional_id_expiration_ms):
                    continue
                transaction.expire()
                batch.append(transaction)
                size_bytes += len(transaction.transactional_id) * 3 + 16
                if size_bytes >= TOMBSTONE_BYTES_MAX:
                    self._start(self._remove(owned, batch))
                    batch, size_bytes = [], 0
            if batch:
                self._start(self._remove(owned, batch))

    async def _remove(self, owned: Owned, expired: list[Transaction]) -> None:
        ids = [transaction.transactional_id for transaction in expired]
        appended = await self.storage.store_tombstones(
            owned.partition, ids, self.config.request_timeout_ms
        )
        for transaction in expired:
            if appended.error:
                transaction.give_up()
            elif self.storage.is_current(owned):
                owned.entries.pop(transaction.transactional_id, None)

    # Carrying transitions out

    def _owned(self, transactional_id: str) -> Owned:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        error = self.storage.status(transactional_id)
        if error:
            raise KafkaError(error)
        return self.storage.owned[self.storage.partition_for(transactional_id)]

    def _find(
        self, transactional_id: str, producer_id: int, epoch: int
    ) -> tuple[Owned, Transaction]:
        owned = self._owned(transactional_id)
        transaction = owned.entries.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        transaction.check_producer(producer_id, epoch)
        return owned, transaction

    def _check_current(self, owned: Owned) -> None:
        if not self.storage.is_current(owned):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def _start(self, operation: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(operation)
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)
        return task

    async def _operation(self, operation: Coroutine[Any, Any, T]) -> T:
        return await asyncio.shield(self._start(operation))

    async def _write(
        self, owned: Owned, transaction: Transaction, transition: TransactionChange
    ) -> None:
        """The transaction has taken over the transition when this returns."""
        appended = await self.storage.store(transaction.transactional_id, transition)
        self._check_current(owned)
        if appended.error:
            transaction.give_up()
            raise KafkaError(LOG_ERRORS.get(appended.error, appended.error))
        transaction.complete(transition)

    async def _decide(
        self, owned: Owned, transaction: Transaction, transition: TransactionChange
    ) -> None:
        await self._write(owned, transaction, transition)
        self._finish(owned, transaction)

    def _finish(self, owned: Owned, transaction: Transaction) -> None:
        """Begin to send the markers of a decided transaction."""
        transition = transaction.finish(self._clock())
        operation = self._send_markers(owned, transaction, transition)
        task = asyncio.get_running_loop().create_task(operation)
        tasks = self._finishing.setdefault(owned.partition, {})
        tasks[transaction.transactional_id] = task
        task.add_done_callback(lambda _: tasks.pop(transaction.transactional_id))

    async def _wait_for_markers(self, owned: Owned, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        task = self._finishing.get(owned.partition, {}).get(transactional_id)
        if task is None:  # fenced: it stays prepared
            return
        self._waiting[transactional_id] += 1
        try:
            await asyncio.wait({task}, timeout=MARKERS_WAIT_S)
        finally:
            self._waiting[transactional_id] -= 1
            if not self._waiting[transactional_id]:
                del self._waiting[transactional_id]

    async def _send_markers(
        self, owned: Owned, transaction: Transaction, transition: TransactionChange
    ) -> None:
        marker = Marker(
            transaction.producer_id,
            transaction.epoch,
            transition.state is TransactionState.COMPLETE_COMMIT,
            owned.epoch,
        )
        if not transaction.is_replicated:
            # A marker cannot be taken back: of a decision that is lost with this broker's log the
            # other partitions would never hear.
            if not await self._written(owned, transaction, transaction.decision()):
                return
            transaction.is_replicated = True
        try:
            await self._markers.send(marker, transaction.unmarked)
        except Fenced as error:
            logger.error(
                "%s: transaction of producer %d epoch %d stays %s: coordinator epoch %d of %s-%d"
                " is fenced: %s",
                *(transaction.transactional_id, transaction.producer_id, transaction.epoch),
                *(transaction.state.label, owned.epoch, TRANSACTIONS_TOPIC, owned.partition, error),
            )
            return
        if await self._written(owned, transaction, transition):
            transaction.complete(transition)

    async def _written(
        self, owned: Owned, transaction: Transaction, transition: TransactionChange
    ) -> bool:
        """Whether a transition that nothing can prevent any more is in the log; False if it is for
        the next coordinator to write."""
        backoff_s = BACKOFF_FIRST_S
        while True:
            appended = await self.storage.store(transaction.transactional_id, transition)
            if not self.storage.is_current(owned):
                return False
            if not appended.error:
                return True
            if LOG_ERRORS.get(appended.error) is ErrorCode.NOT_COORDINATOR:
                return False
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
