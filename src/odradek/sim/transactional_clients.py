"""Clients with transactions: they commit, abort, die in the middle, and come back as zombies.

Each transactional id has one process after the other, and sometimes two at once: a process is
killed, or stopped (SIGSTOP) and continued when its successor is at work, or simply joined by it.
A writer puts records into any partitions. A mover copies one partition of `main` to `derived`, and
commits what it has read in the same transaction, so that every committed record is copied once.
"""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from itertools import count

from odradek.client.client import Client
from odradek.client.consumer import Consumer, ConsumerRecord
from odradek.client.groups import Groups
from odradek.client.producer import Delivery
from odradek.client.reader import Isolation
from odradek.client.transactional_producer import TransactionalProducer
from odradek.coordinator.storage import OFFSETS_TOPIC
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import Record, encode_batch
from odradek.wire.topics import TopicPartition

from .history import History
from .loop import Process
from .members import EXPECTED
from .observation import has_deposed_leader
from .transaction_evidence import Attempt, Owner
from .world import EPOCH_MS, World

SOURCE = "main"
DERIVED = "derived"
MOVERS = "movers"
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
DELIVERY_S = 15.0
# What a mover takes into one transaction, about.
MOVE_BYTES = 2_000


class TransactionalClient(ABC):
    """One process under a transactional id: what it has in common, whatever it writes."""

    def __init__(
        self,
        world: World,
        history: History,
        client: Client,
        name: str,
        partitions: Callable[[], list[TopicPartition]],
    ) -> None:
        """`name` is the transactional id, a dot, and the number of the process."""
        self.world = world
        self.history = history
        self.evidence = history.transactions
        self.client = client
        self.name = name
        self.partitions = partitions
        self.rng = world.dice(f"{name}/load")
        self.is_stopping = False
        self.transactional_id = name.rpartition(".")[0]
        self.timeout_ms = self.rng.choice([2_000, 5_000, 10_000])
        self.producer = TransactionalProducer(
            client,
            self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            linger_s=self.rng.choice([0.0, 0.005]),
            delivery_timeout_s=DELIVERY_S,
            clock=lambda: EPOCH_MS + int(world.loop.time() * 1000),
        )
        self.chance_of_commit = 0.75
        self.pause: Callable[[], float] = lambda: 1.0
        self.owner: Owner
        self._sent: list[tuple[Delivery, bytes, bool]] = []
        self._transactions = 0

    async def live(self) -> None:
        """Transaction after transaction, until there is a later owner of the id."""
        try:
            while not self.is_stopping:
                try:
                    await self.own()
                    while not self.is_stopping:
                        await self.transact()
                        await asyncio.sleep(self.pause() * self.rng.expovariate(4))
                except EXPECTED as error:
                    if isinstance(error, KafkaError) and error.error in FENCED:
                        self.history.count("fenced")
                        return
                    self.history.count("transactional client troubled")
                    await asyncio.sleep(self.rng.uniform(0.1, 1.0))
        finally:
            await self.producer.close()

    async def commit_once(self) -> None:
        """Take the id over and commit one transaction, however often that takes: one may time out
        while a leader waits for an answer on a connection whose other end is gone."""
        self.chance_of_commit = 1.0
        is_committed = False
        async with self.client:
            while not is_committed:
                try:
                    await self.own()
                    is_committed = await self.transact()
                except EXPECTED:
                    self.history.count("last transactions repeated")
            await self.producer.close()

    async def own(self) -> None:
        await self.producer.init_transactions()
        self._note_owner()

    def _note_owner(self) -> None:
        identity = self.producer._identity
        assert identity is not None
        self.owner = self.evidence.take_over(self.transactional_id, identity)

    @abstractmethod
    async def transact(self) -> bool:
        """One transaction, to its end; whether it is known to be committed."""

    def begin(self) -> Attempt:
        self._transactions += 1
        self._sent.clear()
        self.producer.begin()
        return self.evidence.begin(f"{self.name}/{self._transactions}", self.owner)

    async def send(self, attempt: Attempt, tp: TopicPartition, suffix: str = "") -> None:
        value = f"{attempt.name}#{len(self._sent)}{suffix}".encode()
        self.history.idempotent.add(value)
        was_fenced = self.evidence.is_fenced(attempt.owner)
        delivery = await self.producer.send(tp.topic, value, partition=tp.partition)
        self._sent.append((delivery, value, was_fenced))
        self.history.count("sent")

    async def finish(self, attempt: Attempt, work: Awaitable[None]) -> bool:
        """Do the work of a transaction, and end it one way or the other; whether it is known to be
        committed. Raises what only another init_transactions helps against."""
        try:
            await work
            await self._flush(attempt)
            if self.rng.random() < self.chance_of_commit:
                await self._commit(attempt)
                return True
        except EXPECTED as error:
            if isinstance(error, KafkaError) and error.error in FENCED:
                raise
        await self._abort(attempt)
        return False

    async def _flush(self, attempt: Attempt) -> None:
        await self.producer.flush()
        for delivery, value, was_fenced in self._sent:
            placed = await delivery
            self.evidence.accepted(attempt.owner, repr(value), was_fenced=was_fenced)
            self.evidence.place(attempt, placed.partition, placed.offset)
            now = self.world.loop.time()
            self.history.acknowledge(placed.partition, placed.offset, value, now)

    async def _commit(self, attempt: Attempt) -> None:
        attempt.is_commit_asked = True
        was_fenced = self.evidence.is_fenced(attempt.owner)
        await self.producer.commit()
        attempt.is_committed = True
        if attempt.placed or attempt.offsets:
            self.evidence.accepted(attempt.owner, attempt.name, was_fenced=was_fenced)
        self.history.count("transactions committed")

    async def _abort(self, attempt: Attempt) -> None:
        identity = self.producer._identity
        await self.producer.abort()
        # What is flushed first may fail, and then, too, the producer takes a new epoch.
        is_own_end = identity is not None and self.producer._identity == identity
        if not is_own_end:
            # It was ended by a new epoch, whichever way it had been decided before.
            self._note_owner()
        if is_own_end or not attempt.is_commit_asked:
            self.evidence.abort(attempt)
            self.history.count("transactions aborted")
        if is_own_end and attempt.placed and self.rng.random() < 0.2:
            await self._send_late(attempt, self.rng.choice(sorted(attempt.placed)))

    async def _send_late(self, attempt: Attempt, tp: TopicPartition) -> None:
        """A batch of the transaction was held up in the network until after its end. Where the
        marker has come first, it would open a transaction that no coordinator knows of."""
        identity = self.producer._identity
        assert identity is not None
        value = f"{attempt.name}#late".encode()
        now = EPOCH_MS + int(self.world.loop.time() * 1000)
        batch = encode_batch(
            [Record(-1, now, None, value)],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=self.producer._lanes[tp].sequence,
            transactional=True,
        )
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[
                TopicProduceData(
                    name=tp.topic,
                    partition_data=[PartitionProduceData(index=tp.partition, records=batch)],
                )
            ],
        )
        await asyncio.sleep(self.rng.uniform(0, 0.5))
        await self.client.ask(await self.client.leader(tp), request)
        self.history.count("late batches")
        # A producer that does not know which of its batches have arrived needs another epoch.
        await self.own()


class Writer(TransactionalClient):
    """Puts some records into some partitions."""

    async def transact(self) -> bool:
        attempt = self.begin()
        return await self.finish(attempt, self._write(attempt))

    async def _write(self, attempt: Attempt) -> None:
        for _ in range(self.rng.randint(1, 4)):
            await self.send(attempt, self.rng.choice(self.partitions()))
            if self.rng.random() < 0.3:
                # Where fewer are begun they take longer: as many are open when something fails.
                await asyncio.sleep(self.pause() * self.rng.uniform(0, 0.2))
        if self.rng.random() < 0.02:
            # It takes too long: the coordinator aborts it.
            await asyncio.sleep(self.timeout_ms / 1000 * self.rng.uniform(0.5, 2.0))


class Mover(TransactionalClient):
    """Copies one partition, exactly once."""

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(SOURCE, int(self.transactional_id.rpartition("-")[2]))

    async def own(self) -> None:
        await super().own()
        self._position: int | None = None

    async def transact(self) -> bool:
        if self._position is None or self.rng.random() < 0.4:
            self._position = await self._committed()
        until, records = await self._read(self._position)
        self._position = None  # unless the transaction is known to be committed
        attempt = self.begin()
        is_committed = await self.finish(attempt, self._move(attempt, until, records))
        if is_committed:
            self._position = until
        return is_committed

    async def _committed(self) -> int:
        """Where to go on. Without waiting for what is undecided, only to see what is told."""
        if self.rng.random() < 0.3:
            await self.check_committed(stable=False)
        return await self.check_committed(stable=True)

    async def check_committed(self, *, stable: bool) -> int:
        known = self.evidence.committed_offset(self.source) if stable else None
        groups = Groups(self.client)
        # It may hear of its successor, or give up, once it has answered.
        is_doubtful = has_deposed_leader(self.world, OFFSETS_TOPIC)
        found = (await groups.offsets(MOVERS, [self.source], require_stable=stable)).get(
            self.source
        )
        offset = -1 if found is None else found.offset
        is_doubtful |= has_deposed_leader(self.world, OFFSETS_TOPIC)
        if known is not None and offset < known and is_doubtful:
            # As in Kafka, reads from a coordinator of the past are not fenced.
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "an earlier coordinator has answered")
        self.evidence.check_offset(self.source, offset, known)
        return max(offset, 0)

    async def _read(self, position: int) -> tuple[int, list[ConsumerRecord]]:
        async with Consumer(
            self.client,
            isolation=Isolation.READ_COMMITTED,
            fetch_bytes=MOVE_BYTES,
            wait_ms=200,
            # A leader of the past may not have what was committed. To start again is to copy twice.
            out_of_range=None,
        ) as consumer:
            await consumer.assign({self.source: position})
            received = await consumer.poll(1.0)
            records = [record for batches in received for record in consumer.open(batches)]
            for batches in received:
                of_these = {record.offset: record.value for record in consumer.open(batches)}
                self.evidence.check_read(self.source, batches.start, batches.next_offset, of_these)
            return consumer.positions[self.source], records

    async def _move(self, attempt: Attempt, until: int, records: list[ConsumerRecord]) -> None:
        targets = [tp for tp in self.partitions() if tp.topic == DERIVED]
        for record in records:
            suffix = f"@{record.partition}:{record.offset}"
            await self.send(attempt, self.rng.choice(targets), suffix)
        self.evidence.move(attempt, self.source, until)
        was_fenced = self.evidence.is_fenced(attempt.owner)
        await self.producer.send_offsets({self.source: until}, MOVERS)
        self.evidence.accepted(attempt.owner, f"offset {until}", was_fenced=was_fenced)


class Lives:
    """The processes of one transactional id, one after the other, and sometimes two at once."""

    def __init__(self, world: World, name: str, make: Callable[[str], TransactionalClient]) -> None:
        self.world = world
        self.name = name
        self.is_stopping = False
        self._make = make
        self._rng: random.Random = world.dice(f"{name}/lives")
        # Processes that others have succeeded, and that are alive.
        self._zombies: list[tuple[Process, TransactionalClient, asyncio.Task[None]]] = []

    async def run(self) -> None:
        """Until `stop`, and until all that are alive have finished."""
        for number in count():
            name = f"{self.name}.{number}"
            client, process = self._make(name), self.world.process(name)
            task = process.run(_connected(client), name=name)
            self._zombies.append((process, client, task))
            await asyncio.wait([task], timeout=self._rng.uniform(2, 20))
            if self.is_stopping:
                break
            if not task.done():
                self._meet_fate(process)
            await asyncio.sleep(self._rng.choice([0.0, self._rng.uniform(0, 8)]))
        for process, client, task in self._zombies:
            client.is_stopping = True
            process.resume()
            if process.alive:
                await task

    def stop(self) -> None:
        self.is_stopping = True
        for _, client, _ in self._zombies:
            client.is_stopping = True

    def _meet_fate(self, process: Process) -> None:
        fate = self._rng.choice(["dies", "sleeps", "stays"])
        self.world.note(f"{process.host} {fate}")
        if fate == "dies":
            process.kill()
        elif fate == "sleeps":
            process.pause()
            self.world.loop.call_later(self._rng.uniform(0.5, 12), process.resume)


async def _connected(client: TransactionalClient) -> None:
    async with client.client:
        await client.live()
