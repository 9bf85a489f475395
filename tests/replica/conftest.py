"""A few replica managers in one process, with real logs, a real store and sockets between them.

The world stands in for the controller: `World.elect` writes a partition's state to the store and
notifies all brokers, in the order the controller would. Under the simulated loop time jumps and
nothing depends on the machine; `real_world` runs the same on the machine's own loop and sockets.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID

import pytest

from odradek.broker.fetch_sessions import FetchSessions
from odradek.broker.metadata_cache import MetadataCache
from odradek.log.config import LogConfig
from odradek.log.disk import RealDisk
from odradek.log.host import LogEnvironment
from odradek.log.log import Log
from odradek.log.manager import LogManager, LogManagerConfig
from odradek.log.offload import on_the_spot
from odradek.replica.config import ReplicaConfig
from odradek.replica.leader.fetch_state import FetchParams, FetchSet, NamedById, PartitionAnswer
from odradek.replica.manager import Produced, ReplicaManager
from odradek.sim.loop import SimLoop
from odradek.sim.network import Network
from odradek.store.cluster import ClusterStore
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.store.payloads import BrokerRegistration, Endpoint, LeaderAndIsr
from odradek.wire.api import APIS, ApiKey
from odradek.wire.batch import scan
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.frames import FrameProtocol
from odradek.wire.header import decode_request_header, encode_response
from odradek.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from odradek.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.records import Record, encode_batch
from odradek.wire.reply import Later, Now, Promise, Reply
from odradek.wire.topic_ids import NO_TOPIC_ID
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
CONFIG = ReplicaConfig(replica_lag_time_max_ms=10_000, protocol=ProtocolVersion.V2_6_IV0)


Value = TypeVar("Value")


def now_or_promised(reply: Reply[Value]) -> Value | Promise[Value]:
    if isinstance(reply, Now):
        value: Value = reply.value
        return value
    assert isinstance(reply, Later)
    return reply.future


def batch(*values: bytes, timestamp: int = 0) -> bytearray:
    return encode_batch([Record(i, timestamp, None, value, ()) for i, value in enumerate(values)])


class Served(Protocol):
    """What answers the requests that arrive at a port, and keeps them for the test to look at."""

    ports: set["Port"]
    requests: list[Any]
    versions: list[tuple[int, int]]  # API key and version of each request

    def serve(self, request: Any, version: int) -> Any: ...


class Port(FrameProtocol):
    """The receiving side of brokers' connections: requests are answered in order."""

    def __init__(self, node: Served) -> None:
        super().__init__(1 << 26)
        self._node = node
        self._answers: deque[tuple[int, int, Any]] = deque()
        node.ports.add(self)

    def frame_received(self, frame: bytearray) -> None:
        header, start = decode_request_header(frame)
        api = APIS[ApiKey(header.api_key)]
        request = api.request.decode(memoryview(frame)[start:], header.api_version)
        self._node.requests.append(request)
        self._node.versions.append((header.api_key, header.api_version))
        answer = self._node.serve(request, header.api_version)
        self._answers.append((header.correlation_id, header.api_version, answer))
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda _: self._send())
        self._send()

    def _send(self) -> None:
        while self._answers and not self._is_waiting():
            correlation_id, version, answer = self._answers.popleft()
            response = answer.result() if isinstance(answer, asyncio.Future) else answer
            self.send(encode_response(response, version, correlation_id))

    def _is_waiting(self) -> bool:
        answer = self._answers[0][2]
        return isinstance(answer, asyncio.Future) and not answer.done()

    def lost(self, error: Exception | None) -> None:
        self._answers.clear()
        self._node.ports.discard(self)


class Node:
    """One broker's replica layer, and as much of a broker as its followers need."""

    def __init__(self, world: "World", broker_id: int, dirs: list[Path]) -> None:
        self.world = world
        self.id = broker_id
        self.dirs = dirs
        self.ports: set[Port] = set()
        self.requests: list[Any] = []
        self.versions: list[tuple[int, int]] = []
        self.deaf = False
        self.config = world.config

    async def start(self) -> None:
        world = self.world
        self.session = world.open_store()
        await self.session.start()
        self.store = ClusterStore(self.session)
        await self.store.prepare()
        self.logs = LogManager(
            [str(path) for path in self.dirs],
            LogEnvironment(RealDisk(), world.clock, on_the_spot, random.Random(self.id)),
            LogManagerConfig(topic_defaults=world.log_config),
            lambda *failure: self.replicas.directory_failed(*failure),
        )
        await self.logs.load(world.topic_configs)
        self.cache = MetadataCache()
        self.replicas = ReplicaManager(
            self.id, self.logs, self.store, self.cache, self.config, topic_configs=self.configs
        )
        self.replicas.start()
        self.sessions = FetchSessions(1000, self.replicas.now, random.Random(self.id))
        self.server = await asyncio.get_running_loop().create_server(
            lambda: Port(self), "127.0.0.1", 0
        )
        self.port: int = self.server.sockets[0].getsockname()[1]
        self.registration = BrokerRegistration(
            self.id, -1, (Endpoint("127.0.0.1", self.port),), world.racks.get(self.id)
        )
        self.epoch = await self.store.register_broker(self.registration)
        self.replicas.control_requests.broker_epoch = self.epoch

    async def stop(self, *, clean: bool = True) -> None:
        """Go down; unclean leaves the logs as a killed process would."""
        self.server.close()
        for port in list(self.ports):
            port.close()
        await self.replicas.close()
        if clean:
            await self.logs.close()
        else:
            self.logs.close_files()
        await self.session.close()

    async def configs(self, topics: Collection[str]) -> Mapping[str, LogConfig]:
        return {
            topic: self.world.topic_configs.get(topic, self.world.log_config) for topic in topics
        }

    # What followers ask

    def serve(self, request: Any, version: int) -> Any:
        if self.deaf:
            return asyncio.get_running_loop().create_future()
        if isinstance(request, FetchRequest):
            return self.fetch(request, version)
        if isinstance(request, OffsetForLeaderEpochRequest):
            return self.epochs(request)
        assert isinstance(request, ListOffsetsRequest)
        return self.offsets(request)

    def fetch(self, request: FetchRequest, version: int = 11) -> Any:
        try:
            fetch_set, session = self.sessions.open(request, by_id=version >= 13)
        except KafkaError as error:
            return FetchResponse(error_code=error.error)
        fetch_set.resolve(self.cache.topic_name)
        params = FetchParams(
            replica_id=fetch_set.replica_id,
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
        )

        def finish(answers: Any) -> FetchResponse:
            session_id = 0
            if session is not None:
                session_id = self.sessions.keep(session) if session.is_new else session.id
            return FetchResponse(
                session_id=session_id,
                responses=[
                    FetchableTopicResponse(
                        topic="" if isinstance(of, NamedById) else of.topic,
                        topic_id=of.topic_id if isinstance(of, NamedById) else NO_TOPIC_ID,
                        partitions=[data],
                    )
                    for of, data in answers
                ],
            )

        answers = self.serve_fetch(params, fetch_set)
        if isinstance(answers, list):
            return finish(answers)
        done = asyncio.get_running_loop().create_future()
        answers.add_done_callback(lambda found: done.set_result(finish(found.result())))
        return done

    def epochs(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        def found(topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
            try:
                partition = self.replicas.partitions[TopicPartition(topic, asked.partition)]
                epoch, end = partition.end_offset_for_epoch(
                    asked.current_leader_epoch, asked.leader_epoch
                )
            except KafkaError as error:
                return EpochEndOffset(partition=asked.partition, error_code=error.error)
            return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)

        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[found(topic.topic, asked) for asked in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        def found(topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
            try:
                partition = self.replicas.partitions[TopicPartition(topic, asked.partition_index)]
                answer = partition.offset_for_timestamp(
                    asked.timestamp, None, asked.current_leader_epoch, leader_only=True
                )
            except KafkaError as error:
                return ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index, error_code=error.error
                )
            assert answer is not None
            return ListOffsetsPartitionResponse(
                partition_index=asked.partition_index, offset=answer[1], leader_epoch=answer[2]
            )

        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name, partitions=[found(topic.name, a) for a in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    # What tests ask

    def log(self, of: TopicPartition = T0) -> Log:
        return self.replicas.partitions[of].local_log

    def partition(self, of: TopicPartition = T0) -> Any:
        return self.replicas.partitions[of]

    def role(self, of: TopicPartition = T0) -> Any:
        return self.partition(of).role

    def append(self, *values: bytes, acks: int = 1, of: TopicPartition = T0) -> Any:
        return self.serve_append(acks, 30_000, {of: batch(*values)})

    def serve_append(
        self, acks: int, timeout_ms: int, entries: Any, **options: Any
    ) -> Produced | Promise[Produced]:
        """The results, or the promise of them."""
        return now_or_promised(self.replicas.append(acks, timeout_ms, entries, **options))

    def serve_fetch(
        self, params: FetchParams, fetch_set: FetchSet
    ) -> list[PartitionAnswer] | Promise[list[PartitionAnswer]]:
        return now_or_promised(self.replicas.fetch(params, fetch_set))

    def fetch_later(self, of: TopicPartition = T0) -> Any:
        """A consumer at the end of the log, waiting."""
        fetch_set = FetchSet()
        fetch_set.put(of, self.log(of).end_offset, 1 << 20)
        return self.serve_fetch(FetchParams(max_wait_ms=60_000), fetch_set)

    async def produce(
        self, *values: bytes, of: TopicPartition = T0, timeout_ms: int = 30_000
    ) -> Any:
        """With acks=all; the result of the one partition."""
        return (await self.replicas.append(-1, timeout_ms, {of: batch(*values)}).result())[of]

    def contents(self, of: TopicPartition = T0) -> bytes:
        """Every byte of the log from its start, as on disk."""
        return self.contents_to(self.log(of).end_offset, of)

    def contents_to(self, end: int, of: TopicPartition = T0) -> bytes:
        log = self.log(of)
        parts = []
        offset = log.start_offset
        while offset < end:
            records = log.read(offset, 1 << 20, end_offset=end).records
            headers = list(scan(records))
            parts.append(records[: headers[-1].end_position])
            offset = headers[-1].next_offset
        return b"".join(parts)


class World:
    """Nodes, their store, and a controller made of the test's own orders."""

    def __init__(self, path: Path, config: ReplicaConfig, log_config: LogConfig) -> None:
        self.path = path
        self.config = config
        self.log_config = log_config
        self.topic_configs: dict[str, LogConfig] = {}
        self.racks: dict[int, str] = {}
        self.nodes: dict[int, Node] = {}
        self.states: dict[TopicPartition, LeaderAndIsr] = {}
        self.replicas_of: dict[TopicPartition, list[int]] = {}
        # What the controller says they are; none below inter-broker protocol 2.8.
        self.topic_ids: dict[str, UUID] = {}
        self.store_server = MemoryServer()
        self.controller_epoch = 1
        self.controller_id = 9

    def open_store(self) -> Any:
        """A session of its own for each node."""
        return MemoryStore(self.store_server)

    batch = staticmethod(batch)
    scan = staticmethod(scan)

    def clock(self) -> int:
        return 1_700_000_000_000 + int(asyncio.get_running_loop().time() * 1000)

    async def start(self, *ids: int, dirs: int = 1) -> list[Node]:
        for broker_id in ids:
            paths = [self.path / f"{broker_id}-{index}" for index in range(dirs)]
            node = Node(self, broker_id, paths)
            await node.start()
            self.nodes[broker_id] = node
        return [self.nodes[broker_id] for broker_id in ids]

    async def restart(self, broker_id: int) -> Node:
        node = self.nodes[broker_id]
        await node.start()
        return node

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.stop()

    def live(self, *without: int) -> list[UpdateMetadataBroker]:
        return [
            UpdateMetadataBroker(
                id=node.id,
                endpoints=[
                    UpdateMetadataEndpoint(
                        host="127.0.0.1", port=node.port, listener="PLAINTEXT", security_protocol=0
                    )
                ],
                rack=self.racks.get(node.id),
            )
            for node in self.nodes.values()
            if node.id not in without
        ]

    def update_metadata(self, *, without: Collection[int] = (), to: int | None = None) -> None:
        """Send every broker the live brokers and the leaders."""
        request = UpdateMetadataRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=-1,
            live_brokers=self.live(*without),
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name=of.topic,
                    topic_id=self.topic_ids.get(of.topic, NO_TOPIC_ID),
                    partition_states=[
                        UpdateMetadataPartitionState(
                            partition_index=of.partition,
                            controller_epoch=state.controller_epoch,
                            leader=state.leader,
                            leader_epoch=state.leader_epoch,
                            isr=list(state.isr),
                            zk_version=state.partition_epoch,
                            replicas=self.replicas_of[of],
                        )
                    ],
                )
                for of, state in self.states.items()
            ],
        )
        for node in self.nodes.values():
            if node.id not in without and to in (None, node.id):
                response = node.replicas.control_requests.update_metadata(request)
                assert response.error_code == ErrorCode.NONE

    def request(
        self,
        of: TopicPartition,
        *,
        is_new: bool = False,
        broker_epoch: int = -1,
        is_unclean: bool = False,
    ) -> LeaderAndIsrRequest:
        state = self.states[of]
        return LeaderAndIsrRequest(
            controller_id=9,
            controller_epoch=self.controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name=of.topic,
                    topic_id=self.topic_ids.get(of.topic, NO_TOPIC_ID),
                    partition_states=[
                        LeaderAndIsrPartitionState(
                            partition_index=of.partition,
                            controller_epoch=state.controller_epoch,
                            leader=state.leader,
                            leader_epoch=state.leader_epoch,
                            isr=list(state.isr),
                            partition_epoch=state.partition_epoch,
                            replicas=self.replicas_of[of],
                            is_new=is_new,
                            is_unclean=is_unclean,
                        )
                    ],
                )
            ],
        )

    async def elect(
        self,
        leader: int,
        isr: list[int],
        replicas: list[int] | None = None,
        *,
        of: TopicPartition = T0,
        without: Collection[int] = (),
        is_new: bool = False,
        is_unclean: bool = False,
    ) -> dict[int, ErrorCode]:
        """Write a new state with the next leader epoch and tell the live replicas. Their errors."""
        store = next(node.store for node in self.nodes.values() if node.id not in without)
        if replicas is not None:
            self.replicas_of[of] = replicas
        found = await store.partition_state(of)
        if found is None:
            state = LeaderAndIsr(leader, 0, tuple(isr), self.controller_epoch)
            await self._create_state(store, of, state)
        else:
            state = replace(
                found, leader=leader, leader_epoch=found.leader_epoch + 1, isr=tuple(isr)
            )
            written = await store.update_isr(of, state)
            assert written is not None
            state = written
        self.states[of] = state
        self.update_metadata(without=without)
        errors = {}
        for broker_id in self.replicas_of[of]:
            if broker_id in self.nodes and broker_id not in without:
                node = self.nodes[broker_id]
                response = await node.replicas.control_requests.leader_and_isr(
                    self.request(
                        of,
                        is_new=is_new or found is None,
                        broker_epoch=node.epoch,
                        is_unclean=is_unclean,
                    )
                )
                errors[broker_id] = error_of(response)
        return errors

    async def _create_state(
        self, store: ClusterStore, of: TopicPartition, state: LeaderAndIsr
    ) -> None:
        from odradek.store import paths, payloads

        for path in (paths.topic(of.topic), paths.partitions(of.topic), paths.partition(of)):
            if await store.session.exists(path) is None:
                await store.session.create(path, None)
        await store.session.create(paths.partition_state(of), payloads.encode_state(state))

    def stop(
        self,
        node: Node,
        of: TopicPartition = T0,
        *,
        epoch: int = -1,
        delete: bool = False,
        controller_epoch: int | None = None,
    ) -> ErrorCode:
        """Send StopReplica to one node; the error of the request, or of the partition."""
        response = node.replicas.control_requests.stop_replica(
            StopReplicaRequest(
                controller_id=9,
                controller_epoch=controller_epoch or self.controller_epoch,
                topic_states=[
                    StopReplicaTopicState(
                        topic_name=of.topic,
                        partition_states=[
                            StopReplicaPartitionState(
                                partition_index=of.partition,
                                leader_epoch=epoch,
                                delete_partition=delete,
                            )
                        ],
                    )
                ],
            )
        )
        if response.error_code != ErrorCode.NONE:
            return ErrorCode(response.error_code)
        return ErrorCode(response.partition_errors[0].error_code)

    async def stored(self, of: TopicPartition = T0) -> LeaderAndIsr:
        """The state in the store, whoever wrote it."""
        store = next(iter(self.nodes.values())).store
        state = await store.partition_state(of)
        assert state is not None
        return state

    async def stored_by_others(self, broker_id: int) -> LeaderAndIsr:
        """The state in the store, read through somebody else's session."""
        store = next(node.store for node in self.nodes.values() if node.id != broker_id)
        state = await store.partition_state(T0)
        assert state is not None
        return state

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Let the world run until something holds. It is looked at after every step of the loop."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not condition():
            assert loop.time() < deadline, "it did not happen in time"
            await asyncio.sleep(0.001)

    async def until_stored(self, isr: set[int], of: TopicPartition = T0) -> LeaderAndIsr:
        for _ in range(60_000):
            state = await self.stored(of)
            if set(state.isr) == isr:
                return state
            await asyncio.sleep(0.001)
        raise AssertionError(f"the ISR never became {isr}")


def error_of(response: LeaderAndIsrResponse) -> ErrorCode:
    if response.error_code != ErrorCode.NONE:
        return ErrorCode(response.error_code)
    (error,) = response.partition_errors
    return ErrorCode(error.error_code)


Story = Callable[[World], Awaitable[None]]


class Simulation:
    """Runs a story under virtual time, on a network in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Of all brokers, where it is not that of the story's own configuration.
        self.protocol: ProtocolVersion | None = None

    def at(self, path: Path) -> "Simulation":
        """The same somewhere else."""
        return Simulation(path)

    def __call__(
        self,
        story: Story,
        *,
        config: ReplicaConfig = CONFIG,
        log_config: LogConfig = LogConfig(),
        seed: int = 0,
    ) -> None:
        loop = SimLoop()
        Network(loop, random.Random(seed))
        if self.protocol is not None:
            config = replace(config, protocol=self.protocol)

        async def run_story() -> None:
            world = World(self._path, config, log_config)
            try:
                await story(world)
            finally:
                await world.close()

        try:
            loop.run_until_complete(loop.process("127.0.0.1").run(run_story()))
            assert not loop.failures, loop.failures
        finally:
            loop.close()


@pytest.fixture
def simulate(tmp_path: Path) -> Simulation:
    return Simulation(tmp_path)


@pytest.fixture
def reality(tmp_path: Path) -> Callable[..., Any]:
    """`async with reality() as world`: on the machine's own loop and sockets."""

    @asynccontextmanager
    async def real(
        config: ReplicaConfig = CONFIG, log_config: LogConfig = LogConfig()
    ) -> AsyncIterator[World]:
        world = World(tmp_path, config, log_config)
        try:
            yield world
        finally:
            await world.close()

    return real
