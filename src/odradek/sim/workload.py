"""What clients do meanwhile: they produce, consume, commit and administer, and keep the evidence.

Each client is a process of its own on a host of its own, using `odradek.client`, and draws from
dice of its own. Whatever a call may legitimately fail with is caught where it is called: a fault is
no finding. Anything else is.
"""

import asyncio
import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from odradek.client.admin import Admin
from odradek.client.client import Client
from odradek.client.consumer import Consumer
from odradek.client.producer import BATCH_BYTES, Delivery, Producer
from odradek.client.reader import EARLIEST, LATEST, Batches, Isolation, offsets_at
from odradek.client.values import ConfigChange, Resource, ResourceType
from odradek.coordinator.storage import OFFSETS_TOPIC
from odradek.placement import TopicPartitionReplica
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.elect_leaders import ElectLeadersRequest
from odradek.wire.topics import TopicPartition

from . import cleaned_topics
from .history import History
from .members import EXPECTED, Member
from .transactional_clients import Lives, Mover, TransactionalClient, Writer
from .world import EPOCH_MS, World

NO_SETTINGS: Mapping[str, str] = {}
# How many records a consumer reads once more when it starts again.
AGAIN = 50
# From so many records on a log is long, and not often read from its start.
LONG = 2000
FROM_THE_START = 0.1
# How long a consumer works at most on what it was given, before it asks for more.
WORK_S = 0.2
# Longer, and a member would be taken for dead.
MEMBERS_PAUSE_MAX = 3.0
# How long clients are busy at a time, where they are not always; how many times as long they pause
# between two of these bursts.
BURST_S = 12.0
CALM_PAUSE = 10.0
# How long a consumer's fetch waits for records at most.
READ_WAIT_MS_MAX = 2_000

# Topic settings that may change while everything else goes on, and to what.
SETTINGS: Mapping[str, Sequence[str]] = {
    "segment.bytes": ("1048576", "16384", "2048"),
    "flush.messages": ("9223372036854775807", "1", "10"),
    "min.insync.replicas": ("1", "2"),
    "index.interval.bytes": ("4096", "64"),
}


@dataclass(frozen=True, slots=True)
class Load:
    """How many of which clients."""

    producers: int
    idempotent: float
    consumers: int
    groups: int
    members: int
    admin: bool
    # Transactional ids, of clients that write and that copy, and consumers with read_committed.
    writers: int = 0
    movers: int = 0
    committed_consumers: int = 0
    # Whether topics have records when they are deleted.
    fills_topics: bool = False
    # Whether partitions are moved for plans.
    plans: bool = False
    # The share of producers that have several requests under way to one partition.
    pipelining: float = 0.0
    # Whether there are topics that are compacted and trimmed.
    cleaning: bool = False
    # How many times as long clients pause between what they do; and for what share of the time, in
    # bursts: else they are calm.
    pause: float = 1.0
    busy_share: float = 1.0
    # Whether replicas are moved between the log directories of their brokers.
    directory_moves: bool = False

    @property
    def has_transactions(self) -> bool:
        return bool(self.writers or self.movers)


class Workload:
    """All clients of one run."""

    def __init__(self, world: World, history: History, replication: int, min_isr: int) -> None:
        self.world = world
        self.history = history
        self.replication = replication
        self.min_isr = min_isr
        self._fills_topics = False
        self._load: Load | None = None
        self.topics: dict[str, int] = {}
        self.stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._members: list[Member] = []
        self._lives: list[Lives] = []

    def client(self, name: str, timeout_s: float = 20.0) -> Client:
        return Client(
            self.world.bootstrap, client_id=name, timeout_s=timeout_s, rng=self.world.dice(name)
        )

    def clock(self) -> int:
        return EPOCH_MS + int(self.world.loop.time() * 1000)

    async def create_cleaned_topics(self, client: Client) -> None:
        """Make the topics that only their own clients use."""
        for of, settings in cleaned_topics.SETTINGS.items():
            self.history.unprotected.add(of.topic)
            await self.create_topic(client, of.topic, 1, settings)
            self.topics.pop(of.topic, None)

    async def create_topic(
        self,
        client: Client,
        name: str,
        partitions: int,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> None:
        """Make a topic; it counts once the controller has said so."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=self.replication,
                    configs=[
                        CreatableTopicConfig(name=name, value=value)
                        for name, value in {
                            "min.insync.replicas": str(self.min_isr),
                            **settings,
                        }.items()
                    ],
                )
            ],
            timeout_ms=10_000,
        )
        response = await client.ask_controller(request, lambda r: r.topics[0].error_code)
        if not response.topics[0].error_code:
            self.topics[name] = partitions

    @property
    def pause(self) -> float:
        """How many times as long clients pause now."""
        load = self._load
        if load is None:
            return 1.0
        is_busy = self.world.loop.time() % (BURST_S / load.busy_share) < BURST_S
        return load.pause if is_busy else max(load.pause, CALM_PAUSE)

    def start(self, load: Load) -> None:
        """Set the clients to work until `stop`."""
        self._fills_topics = load.fills_topics
        self._load = load
        for index in range(load.producers):
            name = f"producer-{index}"
            once = self.world.dice(name).random() < load.idempotent
            pipelines = self.world.dice(f"{name}/pipelines").random() < load.pipelining
            self._run(name, self._produce(name, once, pipelines))
        for index in range(load.consumers):
            self._run(f"consumer-{index}", self._consume(f"consumer-{index}"))
        for index in range(load.groups * load.members):
            name, group = f"member-{index}", f"group-{index % load.groups}"
            self._run(name, self._belong(name, group))
        if load.cleaning:
            self._run("keeper", cleaned_topics.keep(self, "keeper"))
            self._run("trimmer", cleaned_topics.trim(self, "trimmer"))
        if load.admin:
            self._run("admin", self._administer("admin"))
        if load.plans:
            self._run("planner", self._carry_out_plans("planner"))
        if load.directory_moves:
            self._run("mover-of-logs", self._move_logs("mover-of-logs"))
        for index in range(load.committed_consumers):
            name = f"committed-consumer-{index}"
            self._run(name, self._consume(name, Isolation.READ_COMMITTED))
        for index in range(load.writers):
            self._run_transactional(f"writer-{index}")
        for index in range(load.movers):
            self._run_transactional(f"mover-{index}")

    def transactional(self, name: str) -> TransactionalClient:
        """A process under a transactional id; it is not running yet."""
        kind = Mover if name.startswith("mover") else Writer
        client = kind(self.world, self.history, self.client(name), name, self.partitions)
        client.pause = lambda: self.pause
        return client

    def _run_transactional(self, name: str) -> None:
        lives = Lives(self.world, name, self.transactional)
        self._lives.append(lives)
        self._run(name, lives.run())

    def _run(self, name: str, coroutine: object) -> None:
        self._tasks.append(self.world.process(name).run(coroutine, name=name))  # type: ignore[arg-type]

    async def stop(self, within_s: float) -> list[str]:
        """Let every client finish its work; returns those that do not. A client that fails is
        a finding."""
        self.stopping = True
        for member in self._members:
            member.is_stopping = True
        for lives in self._lives:
            lives.stop()
        if not self._tasks:
            return []
        done, waiting = await asyncio.wait(self._tasks, timeout=within_s)
        for task in self._tasks:
            if task in done and (error := task.exception()) is not None:
                self.world.loop.call_exception_handler(
                    {"message": "a client of the workload", "exception": error}
                )
        return [task.get_name() for task in self._tasks if task in waiting]

    # Producing

    async def _produce(self, name: str, idempotent: bool, pipelines: bool) -> None:
        rng = self.world.dice(f"{name}/load")
        async with self.client(name) as client:
            producer = Producer(
                client,
                idempotent=idempotent,
                linger_s=rng.choice([0.0, 0.005, 0.05]),
                delivery_timeout_s=30.0,
                clock=self.clock,
                # Batches of one record: those handed in together leave one behind the other.
                batch_bytes=1 if pipelines else BATCH_BYTES,
            )
            sent = 0
            # An impatient one does not wait for an answer before it sends the next.
            depth = max(rng.choice([1, 4, 16]), 4 if pipelines else 1)
            waiting: set[asyncio.Task[None]] = set()
            while not self.stopping:
                topic = rng.choice(sorted(self.topics))
                partition = rng.randrange(self.topics[topic])
                values = [b"%s:%d" % (name.encode(), sent + i) for i in range(rng.randint(1, 5))]
                sent += len(values)
                if idempotent:
                    self.history.idempotent.update(values)
                deliveries = await self._send(producer, TopicPartition(topic, partition), values)
                waiting.add(asyncio.ensure_future(self._answers(deliveries)))
                while len(waiting) >= depth:
                    _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                # Each record is a request of its own: as many requests as of others, no more.
                await asyncio.sleep(self.pause * rng.expovariate(3 if pipelines else 10))
            await asyncio.gather(*waiting)
            await producer.close()

    async def _send(
        self, producer: Producer, of: TopicPartition, values: list[bytes]
    ) -> list[tuple[bytes, Delivery]]:
        self.history.count("sent", len(values))
        try:
            return [
                (value, await producer.send(of.topic, value, partition=of.partition))
                for value in values
            ]
        except EXPECTED:
            self.history.count("refused", len(values))
            return []

    async def _answers(self, deliveries: list[tuple[bytes, Delivery]]) -> None:
        for value, delivery in deliveries:
            try:
                placed = await delivery
            except EXPECTED:
                self.history.count("given up")
                continue
            now = self.world.loop.time()
            self.history.acknowledge(placed.partition, placed.offset, value, now)

    # Consuming

    async def _consume(self, name: str, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> None:
        rng, starts = self.world.dice(f"{name}/load"), self.world.dice(f"{name}/starts")
        async with self.client(name) as client:
            for round_number in count():
                if self.stopping:
                    return
                # Old records once in a while; else what is new, and a little of what was.
                wanted = {
                    of: self._earlier(of, starts) if round_number % 4 == 0 else self._recent(of)
                    for of in self.partitions()
                }
                try:
                    wait_ms = min(READ_WAIT_MS_MAX, int(self.pause * rng.choice([50, 500])))
                    async with Consumer(client, isolation=isolation, wait_ms=wait_ms) as consumer:
                        await consumer.assign(wanted)
                        await self._follow(client, consumer, rng)
                except EXPECTED:
                    self.history.count("consumer troubled")
                    await asyncio.sleep(0.5)

    def partitions(self) -> list[TopicPartition]:
        """Of all topics that clients use."""
        return [
            TopicPartition(topic, partition)
            for topic, partitions in self.topics.items()
            for partition in range(partitions)
        ]

    def _earlier(self, of: TopicPartition, rng: random.Random) -> int:
        """All of a short log; of a long one anything, the nearer the likelier, or it would be read
        a hundred times in a long run."""
        last = self.history.last_acknowledged.get(of, 0)
        if last < LONG or rng.random() < FROM_THE_START:
            return EARLIEST
        return last - int(last ** rng.random())

    def _recent(self, of: TopicPartition) -> int:
        return max(0, self.history.last_acknowledged.get(of, 0) - AGAIN)

    async def _follow(self, client: Client, consumer: Consumer, rng: random.Random) -> None:
        until = self.world.loop.time() + rng.uniform(5, 30)
        while not self.stopping and self.world.loop.time() < until:
            for batches in await consumer.poll(1.0):
                if self.history.protected(batches.partition):
                    self._check_batches(batches)
                    self._check_committed(consumer, batches)
            # Transactions are shorter than what makes a high watermark go back.
            if rng.random() < (0.6 if consumer.isolation is Isolation.READ_COMMITTED else 0.2):
                await self._check_ends(client, list(consumer.positions), consumer.isolation)
            await asyncio.sleep(self.pause * rng.uniform(0, WORK_S))

    def _check_batches(self, batches: Batches) -> None:
        """The same bytes hold the same records: what was read before need not be opened again.

        NothingSkipped: what is read follows on from where was asked, and batch from batch.
        """
        known = self.history.batches.setdefault(batches.partition, {})
        expected = batches.start
        for header in batches.headers():
            self.history.count("read", header.record_count)
            if header.base_offset > expected:
                self.history.violated(
                    "NothingSkipped",
                    self.world.loop.time(),
                    f"{batches.partition} was to go on at {expected}, and did at "
                    f"{header.base_offset}",
                )
            expected = header.next_offset
            batch = bytes(batches.records[header.position : header.end_position])
            if known.get(header.base_offset) != batch:
                known[header.base_offset] = batch
                one = replace(batches, start=header.base_offset, records=memoryview(batch))
                for record in one.open():
                    self._check_read(batches.partition, record.offset, record.value)

    def _check_committed(self, consumer: Consumer, batches: Batches) -> None:
        if consumer.isolation is Isolation.READ_COMMITTED:
            records = {record.offset: record.value for record in consumer.open(batches)}
            self.history.transactions.check_read(
                batches.partition, batches.start, batches.next_offset, records
            )

    def _check_read(self, of: TopicPartition, offset: int, value: bytes | None) -> None:
        """ConsistentRead: what was once read at an offset is what is read there ever after."""
        known = self.history.read.setdefault(of, {}).setdefault(offset, value or b"")
        if known != (value or b""):
            self.history.violated(
                "ConsistentRead",
                self.world.loop.time(),
                f"{of} offset {offset}: {known!r} was read before, and now {value!r}",
            )

    async def _check_ends(
        self, client: Client, partitions: list[TopicPartition], isolation: Isolation
    ) -> None:
        """HighWatermarkNeverGoesBack: the end of a partition never recedes for consumers; nor does,
        for those with read_committed, LastStableOffsetNeverGoesBack.

        A leader that was deposed and does not know it answers from the past; a client that has
        heard of a later epoch takes no notice, and neither do we.
        """
        invariant, known = "HighWatermarkNeverGoesBack", self.history.ends
        if isolation is Isolation.READ_COMMITTED:
            invariant, known = "LastStableOffsetNeverGoesBack", self.history.stable_ends
        before = {of: known.get(of, (-1, 0)) for of in partitions}
        asked = await offsets_at(client, dict.fromkeys(partitions, LATEST), isolation=isolation)
        for of, found in asked.items():
            epoch, end = before[of]
            if not self.history.protected(of) or found.leader_epoch < epoch:
                continue
            if found.offset < end:
                self.history.violated(
                    invariant,
                    self.world.loop.time(),
                    f"{of} ended at {end} in epoch {epoch}, and now at {found.offset} in epoch "
                    f"{found.leader_epoch}",
                )
            known_epoch, known_end = known.get(of, (-1, 0))
            if found.leader_epoch >= known_epoch:
                known[of] = (found.leader_epoch, max(found.offset, known_end))

    # Both, once

    async def ask_once(self, name: str, partitions: Sequence[TopicPartition]) -> None:
        """One record to each partition, and read back. Raises what a client would see."""
        value = b"%s:0" % name.encode()
        async with self.client(name) as client:
            producer = Producer(client, clock=self.clock)
            sent = {
                of: await producer.send(of.topic, value, partition=of.partition)
                for of in partitions
            }
            placed = {of: (await delivery).offset for of, delivery in sent.items()}
            await producer.close()
            for of, offset in placed.items():
                self.history.acknowledge(of, offset, value, self.world.loop.time())
            async with Consumer(client) as consumer:
                await consumer.assign(placed)
                while any(consumer.positions[of] <= offset for of, offset in placed.items()):
                    for batches in await consumer.poll(1.0):
                        self._check_batches(batches)

    # Belonging to groups

    async def _belong(self, name: str, group: str) -> None:
        rng = self.world.dice(f"{name}/load")
        async with self.client(name) as client:
            while not self.stopping:
                try:
                    member = Member(self.world, self.history, client, group, rng)
                    member.pause = lambda: min(self.pause, MEMBERS_PAUSE_MAX)
                    self._members.append(member)
                    await member.live(rng.uniform(10, 60))
                    self._members.remove(member)
                except EXPECTED:
                    self.history.count("member troubled")
                    await asyncio.sleep(0.5)

    # Administering

    async def _administer(self, name: str) -> None:
        rng = self.world.dice(f"{name}/load")
        acts = [
            self._reassign,
            self._elect,
            self._expand,
            self._churn,
            self._misplace,
            self._configure,
        ]
        if self._fills_topics:
            acts += [self._churn] * 3
        async with self.client(name) as client:
            while not self.stopping:
                await asyncio.sleep(rng.expovariate(0.5))
                act = rng.choice(acts)
                try:
                    await act(client, rng)
                    self.history.count(act.__name__.strip("_"))
                except EXPECTED:
                    self.history.count("admin troubled")

    async def _reassign(self, client: Client, rng: random.Random) -> None:
        topic = rng.choice(sorted(self.topics))
        target = rng.sample(sorted(self.world.hosts), self.replication)
        moves = [
            ReassignablePartition(
                partition_index=rng.randrange(self.topics[topic]),
                replicas=None if rng.random() < 0.2 else target,
            )
        ]
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=10_000, topics=[ReassignableTopic(name=topic, partitions=moves)]
        )
        await client.ask_controller(request, lambda r: r.error_code)

    async def _carry_out_plans(self, name: str) -> None:
        """Plan after plan for all partitions of a topic, some stopped half way."""
        rng = self.world.dice(f"{name}/load")
        async with self.client(name) as client:
            number = 0
            while not self.stopping:
                await asyncio.sleep(rng.expovariate(0.2))
                number += 1
                topic = rng.choice(sorted(self.topics))
                hosts = sorted(self.world.hosts)
                moves: dict[TopicPartition, list[int] | None] = {
                    TopicPartition(topic, index): rng.sample(hosts, self.replication)
                    for index in range(self.topics[topic])
                }
                try:
                    await Admin(client).move_for_plan(f"plan-{number}", moves, {})
                    self.history.count("plan")
                    if rng.random() < 0.2:
                        await asyncio.sleep(rng.uniform(0.0, 2.0))
                        stopped = dict.fromkeys(moves)
                        await Admin(client).move_for_plan(f"plan-{number}", stopped, {})
                        self.history.count("plan stopped")
                except EXPECTED:
                    self.history.count("planner troubled")

    async def _move_logs(self, name: str) -> None:
        """The replicas of a topic on one broker, each to any of its directories, again and again;
        a replica that is not there yet is to be made in that directory."""
        rng = self.world.dice(f"{name}/load")
        async with self.client(name) as client:
            while not self.stopping:
                await asyncio.sleep(rng.expovariate(0.3))
                topic, count = rng.choice([*sorted(self.topics.items()), (OFFSETS_TOPIC, 2)])
                host = self.world.hosts[rng.choice(sorted(self.world.hosts))]
                moves = {
                    TopicPartitionReplica(topic, index, host.id): rng.choice(host.directories)
                    for index in range(count)
                }
                try:
                    outcomes = await Admin(client).alter_log_dirs(moves)
                    done = sum(outcome is None for outcome in outcomes.values())
                    self.history.count("moves between directories", done)
                except EXPECTED:
                    self.history.count("mover of logs troubled")

    async def _elect(self, client: Client, rng: random.Random) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=10_000)
        await client.ask_controller(request, lambda r: r.error_code)

    async def _expand(self, client: Client, rng: random.Random) -> None:
        topic = rng.choice(sorted(self.topics))
        count = self.topics[topic] + 1
        if count > 6:
            return
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=count)], timeout_ms=10_000
        )
        response = await client.ask_controller(request, lambda r: r.results[0].error_code)
        if not response.results[0].error_code:
            self.topics[topic] = count

    async def _configure(self, client: Client, rng: random.Random) -> None:
        name = rng.choice(sorted(SETTINGS))
        value = rng.choice(SETTINGS[name])
        if name == "min.insync.replicas":
            value = str(min(int(value), self.replication))
        await Admin(client).alter_configs(
            {Resource(ResourceType.TOPIC, "main"): [ConfigChange(name, value)]}
        )

    async def _churn(self, client: Client, rng: random.Random) -> None:
        """Create a topic, perhaps with records, and delete it."""
        name = f"passing-{rng.randrange(3)}"
        self.history.unprotected.add(name)
        if rng.random() < 0.5:
            await self.create_topic(client, name, rng.randint(1, 3))
            partitions = self.topics.pop(name, 0)
            if partitions and self._fills_topics:
                await self._fill(client, name, partitions)
        else:
            deletions = self.history.deletions.get(name, 0) + 1
            self.history.deletions[name] = deletions
            if not await self._delete_topic(client, name):
                self.history.deleted[name] = deletions

    async def _fill(self, client: Client, topic: str, partitions: int) -> None:
        """A few records, of which each says how often the topic was to be deleted before."""
        value = b"%d" % self.history.deletions.get(topic, 0)
        producer = Producer(client, clock=self.clock, batch_bytes=1, delivery_timeout_s=5.0)
        deliveries = [
            await producer.send(topic, value, partition=partition)
            for partition in range(partitions)
            for _ in range(5)
        ]
        # Each has its answer, or none will come: nothing is under way when the topic is deleted.
        for delivery in deliveries:
            with contextlib.suppress(*EXPECTED):
                await delivery
                self.history.count("records in topics to be deleted")
        await producer.close()

    async def _misplace(self, client: Client, rng: random.Random) -> None:
        """A topic is made on a single broker, one that is down if there is any, and deleted before
        it may have had a leader."""
        down = [host.id for host in self.world.hosts.values() if not host.is_up]
        place = CreatableReplicaAssignment(
            partition_index=0, broker_ids=[rng.choice(down or sorted(self.world.hosts))]
        )
        name = f"misplaced-{rng.randrange(3)}"
        self.history.unprotected.add(name)
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name, num_partitions=-1, replication_factor=-1, assignments=[place]
                )
            ],
            timeout_ms=0,
        )
        await client.ask_controller(request, lambda r: r.topics[0].error_code)
        await self._delete_topic(client, name)

    async def _delete_topic(self, client: Client, name: str) -> int:
        """The error, if any; without one, the topic is gone."""
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
        response = await client.ask_controller(request, lambda r: r.responses[0].error_code)
        return int(response.responses[0].error_code)
