"""A puppet broker: a real socket and a real session with the store, and no log.

It answers control requests as a broker must (docs/spec/controller-and-replication.md sections 4.9,
5.1 and 5.6), remembers what they made of its replicas, and does what the test asks: be silent,
refuse a partition, write an ISR.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from odradek.store.cluster import ClusterStore
from odradek.store.payloads import BrokerRegistration, Endpoint, LeaderAndIsr
from odradek.wire.api import APIS, ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import FrameProtocol
from odradek.wire.header import decode_request_header, encode_response
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from odradek.wire.topics import TopicPartition

IDS_SINCE = 5
FRAME_BYTES_MAX = 100 * 1024 * 1024
Control = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
Answer = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse


@dataclass
class HeldReplica:
    """What the broker believes of one of its replicas."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int


class _Connection(FrameProtocol):
    def __init__(self, puppet: "Puppet") -> None:
        super().__init__(FRAME_BYTES_MAX)
        self._puppet = puppet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._puppet.connections.add(self)

    def lost(self, error: Exception | None) -> None:
        self._puppet.connections.discard(self)

    def frame_received(self, frame: bytearray) -> None:
        header, start = decode_request_header(frame)
        request = APIS[ApiKey(header.api_key)].request.decode(
            memoryview(frame)[start:], header.api_version
        )
        assert isinstance(request, Control)
        self._puppet.requests.append((header.api_version, request))
        answer = self._puppet.answer(request)
        if answer is not None:
            if isinstance(answer, LeaderAndIsrResponse) and header.api_version >= IDS_SINCE:
                assert isinstance(request, LeaderAndIsrRequest)
                answer = by_id(request, answer)
            self.send(encode_response(answer, header.api_version, header.correlation_id))


def by_id(request: LeaderAndIsrRequest, answer: LeaderAndIsrResponse) -> LeaderAndIsrResponse:
    """As v5 and later have it."""
    return LeaderAndIsrResponse(
        error_code=answer.error_code,
        topics=[
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionError(
                        partition_index=error.partition_index, error_code=error.error_code
                    )
                    for error in answer.partition_errors
                    if error.topic_name == topic.topic_name
                ],
            )
            for topic in request.topic_states
        ],
    )


class Puppet:
    """One broker, as far as the controller can see."""

    def __init__(self, broker_id: int, store: ClusterStore, rack: str | None = None) -> None:
        self.id = broker_id
        self.store = store
        self.rack = rack
        self.epoch = -1
        self.controller_epoch = 0
        self.replicas: dict[TopicPartition, HeldReplica] = {}
        self.live_brokers: list[int] = []
        self.requests: list[tuple[int, Control]] = []
        # What control requests did, in order: (partition or "", what it is now).
        self.deeds: list[tuple[str, str]] = []
        self.connections: set[_Connection] = set()
        self.is_silent = False
        self.broken: set[TopicPartition] = set()
        self.undeletable: set[TopicPartition] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen and register."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)
        self.epoch = await self.register()

    async def start_again(self, port: int) -> None:
        """Listen where we did before; the registration has stayed."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", port)

    async def register(self) -> int:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        self.epoch = await self.store.register_broker(
            BrokerRegistration(self.id, -1, (Endpoint("127.0.0.1", port),), self.rack)
        )
        return self.epoch

    async def stop(self) -> None:
        """Let go of the socket; the registration goes with the store's session."""
        assert self._server is not None
        self._server.close()
        for connection in list(self.connections):
            connection.close()

    # What a scenario can do to it

    def silence(self) -> None:
        self.is_silent = True

    def speak(self) -> None:
        self.is_silent = False
        for connection in list(self.connections):
            connection.close()  # what was not answered is asked again

    async def fail_directory(self, key: TopicPartition) -> None:
        self.broken.add(key)
        await self.store.notifications.notify_log_dir_failure(self.id)

    def mend_directory(self, key: TopicPartition) -> None:
        self.broken.discard(key)

    def refuse_deletion(self, key: TopicPartition) -> None:
        self.undeletable.add(key)

    def allow_deletion(self, key: TopicPartition) -> None:
        self.undeletable.discard(key)

    async def change_isr(
        self, key: TopicPartition, isr: Iterable[int], *, notify: bool = True
    ) -> bool:
        """As leader, decide on an ISR and write it; answers whether it passed the version check."""
        return await self.write_isr(key, await self.decide_isr(key, isr), notify=notify)

    async def decide_isr(self, key: TopicPartition, isr: Iterable[int]) -> LeaderAndIsr:
        """What the leader would write, by what it knows now."""
        held = self.replicas[key]
        assert held.leader == self.id, f"broker {self.id} does not lead {key}"
        return LeaderAndIsr(
            held.leader, held.leader_epoch, tuple(isr), held.controller_epoch, held.partition_epoch
        )

    async def decide_later(
        self, key: TopicPartition, isr: Iterable[int]
    ) -> Callable[[], Awaitable[bool]]:
        """Decide on an ISR now; the function returned writes it."""
        wanted = await self.decide_isr(key, isr)
        return lambda: self.write_isr(key, wanted)

    async def write_isr(
        self, key: TopicPartition, wanted: LeaderAndIsr, *, notify: bool = True
    ) -> bool:
        written = await self.store.update_isr(key, wanted)
        if written is None:
            return False
        held = self.replicas[key]
        held.isr, held.partition_epoch = written.isr, written.partition_epoch
        if notify:
            await self.store.notifications.notify_isr_changes([key])
        return True

    # Answering

    def answer(self, request: Control) -> Answer | None:
        if self.is_silent:
            return None
        error = self._request_error(request)
        if isinstance(request, UpdateMetadataRequest):
            if error is ErrorCode.NONE:
                self.live_brokers = sorted(broker.id for broker in request.live_brokers)
            return UpdateMetadataResponse(error_code=error)
        if isinstance(request, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(
                error_code=error,
                partition_errors=[
                    LeaderAndIsrPartitionError(
                        topic_name=topic.topic_name,
                        partition_index=state.partition_index,
                        error_code=error
                        or self._lead_or_follow(
                            TopicPartition(topic.topic_name, state.partition_index), state
                        ),
                    )
                    for topic in request.topic_states
                    for state in topic.partition_states
                ],
            )
        return StopReplicaResponse(
            error_code=error,
            partition_errors=[
                StopReplicaPartitionError(
                    topic_name=topic.topic_name,
                    partition_index=state.partition_index,
                    error_code=error
                    or self._stop_replica(
                        TopicPartition(topic.topic_name, state.partition_index), state
                    ),
                )
                for topic in request.topic_states
                for state in topic.partition_states
            ],
        )

    def _request_error(self, request: Control) -> ErrorCode:
        if request.broker_epoch not in (-1, self.epoch) and request.broker_epoch < self.epoch:
            self.deeds.append(("", "refused: stale broker epoch"))
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            self.deeds.append(("", f"refused: controller epoch {request.controller_epoch}"))
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = request.controller_epoch
        return ErrorCode.NONE

    def _lead_or_follow(self, key: TopicPartition, state: LeaderAndIsrPartitionState) -> ErrorCode:
        if key in self.broken:
            self.replicas.pop(key, None)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        held = self.replicas.get(key)
        if held is not None and state.leader_epoch <= held.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.replicas[key] = HeldReplica(
            state.leader,
            state.leader_epoch,
            tuple(state.isr),
            state.partition_epoch,
            state.controller_epoch,
        )
        role = "leads" if state.leader == self.id else f"follows {state.leader}"
        new = " new" if state.is_new else ""
        self.deeds.append((str(key), f"{role} epoch={state.leader_epoch}{new}"))
        return ErrorCode.NONE

    def _stop_replica(self, key: TopicPartition, state: StopReplicaPartitionState) -> ErrorCode:
        if key in self.broken:
            return ErrorCode.KAFKA_STORAGE_ERROR
        held = self.replicas.get(key)
        if held is not None and 0 <= state.leader_epoch < held.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if state.delete_partition and key in self.undeletable:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        self.replicas.pop(key, None)
        if held is not None or state.delete_partition:
            self.deeds.append((str(key), "deleted" if state.delete_partition else "stopped"))
        return ErrorCode.NONE
