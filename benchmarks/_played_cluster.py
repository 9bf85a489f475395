"""Six brokers that are tables: they answer what a console asks, and do nothing else.

Ten thousand topics of real brokers take a long time to create and gigabytes to hold; what is
measured is the console, which cannot tell the difference.
"""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.managers import BaseManager
from typing import Any
from uuid import UUID

from odradek.wire.api import APIS, ApiKey
from odradek.wire.batch import set_offset_and_epoch
from odradek.wire.errors import ErrorCode
from odradek.wire.header import decode_request_header, encode_response
from odradek.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from odradek.wire.messages.describe_acls import DescribeAclsResponse
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from odradek.wire.records import Record, encode_batch
from odradek.wire.schema import Message

TOPICS, PER_TOPIC, GROUPS, BROKERS = 10_000, 10, 2_000, 6
PARTITIONS = TOPICS * PER_TOPIC
REPLICAS = 3
TOPICS_OF_A_GROUP = 2
END, COMMITTED = 10_000, 9_000
HOST = "127.0.0.1"
BUMP_S = 0.5
RECORDS_OF_A_BATCH, VALUE_BYTES = 1_000, 100
# Of a topic that is written while it is read, and of one that is large: 10 GB in each partition.
WRITTEN_PER_S, LARGE_END = 100_000, 80_000_000
# In one version each, so that there is one shape to answer in.
VERSIONS = {
    ApiKey.API_VERSIONS: 3,
    ApiKey.FETCH: 11,
    ApiKey.METADATA: 9,
    ApiKey.DESCRIBE_CONFIGS: 3,
    ApiKey.DESCRIBE_GROUPS: 4,
    ApiKey.LIST_GROUPS: 4,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.LIST_OFFSETS: 5,
    ApiKey.DESCRIBE_LOG_DIRS: 1,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.DESCRIBE_ACLS: 1,
    ApiKey.FIND_COORDINATOR: 2,
}


def topic_name(number: int) -> str:
    return f"team-{number % 97:02}.service-{number % 13:02}.topic-{number:05}"


NAMES = [topic_name(number) for number in range(TOPICS)]
NUMBERS = {name: number for number, name in enumerate(NAMES)}
WRITTEN, LARGE = NAMES[0], NAMES[1]
BATCH = encode_batch(
    Record(-1, 1_700_000_000_000 + n, b"user-%04d" % (n % 40), b"%0100d" % n)
    for n in range(RECORDS_OF_A_BATCH)
)


def replicas_of(topic: int, p: int) -> list[int]:
    return [(topic + p + copy) % BROKERS + 1 for copy in range(REPLICAS)]


def described(name: str) -> MetadataResponseTopic:
    number = NUMBERS[name]
    return MetadataResponseTopic(
        name=name,
        topic_id=UUID(int=number + 1),
        partitions=[
            MetadataResponsePartition(
                partition_index=p,
                leader_id=replicas_of(number, p)[0],
                leader_epoch=1,
                replica_nodes=replicas_of(number, p),
                isr_nodes=replicas_of(number, p),
            )
            for p in range(PER_TOPIC)
        ],
    )


def _has_records(response: FetchResponse) -> bool:
    return any(each.records for topic in response.responses for each in topic.partitions)


class PlayedCluster:
    """Answers on a thread of its own, from when it is entered until it is left."""

    def __init__(self, written_per_s: int = WRITTEN_PER_S) -> None:
        self._written_per_s = written_per_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        self._ports: list[int] = []
        self._http: list[int] = []
        self._updates = 1
        self._is_changing = threading.Event()
        self.metadata_answers = 0
        # Seconds spent on answering, by client id.
        self.busy_s: dict[str, float] = {}

    def __enter__(self) -> "PlayedCluster":
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._ports[0]}"

    # For another process: a proxy has methods only.

    def open(self) -> str:
        """Where clients connect."""
        self.__enter__()
        return self.bootstrap

    def close(self) -> None:
        self.__exit__()

    def change(self, goes_on: bool) -> None:
        """From now on the brokers say each half second that their metadata has changed, or no
        more."""
        (self._is_changing.set if goes_on else self._is_changing.clear)()

    def answered(self) -> tuple[int, float]:
        """How many answers about topics, and the seconds spent on all answers."""
        return self.metadata_answers, sum(self.busy_s.values())

    async def _open(self) -> None:
        for broker in range(1, BROKERS + 1):
            kafka = await asyncio.start_server(self._serve(broker), HOST, 0)
            web = await asyncio.start_server(self._web, HOST, 0)
            self._servers += [kafka, web]
            self._ports.append(kafka.sockets[0].getsockname()[1])
            self._http.append(web.sockets[0].getsockname()[1])
        self._opened_s = self._loop.time()
        self._bumping = asyncio.ensure_future(self._bump())

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _bump(self) -> None:
        while True:
            await asyncio.sleep(BUMP_S)
            self._updates += self._is_changing.is_set()

    # Kafka's protocol

    def _serve(self, broker: int) -> Callable[[Any, Any], Any]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    frame = await reader.readexactly(size)
                    answer, wait_s = self._answer(broker, frame)
                    await asyncio.sleep(wait_s)
                    writer.writelines(answer)
                    await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()

        return serve

    def _answer(self, broker: int, frame: bytes) -> tuple[Any, float]:
        """The response, and how long to wait with it."""
        begun_s = time.thread_time()
        header, offset = decode_request_header(frame)
        wait_s = 0.0
        key = ApiKey(header.api_key)
        version = header.api_version
        if key is ApiKey.API_VERSIONS:
            response: Message = ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=each, min_version=0, max_version=highest)
                    for each, highest in VERSIONS.items()
                ]
            )
        else:
            request = APIS[key].request.decode(memoryview(frame)[offset:], version)
            response = getattr(self, f"_{key.name.lower()}")(broker, request)
            if isinstance(response, FetchResponse) and not _has_records(response):
                assert isinstance(request, FetchRequest)
                wait_s = request.max_wait_ms / 1000
        encoded = encode_response(response, version, header.correlation_id)
        client = header.client_id or ""
        spent_s = time.thread_time() - begun_s
        self.busy_s[client] = self.busy_s.get(client, 0.0) + spent_s
        return encoded, wait_s

    def _metadata(self, broker: int, request: MetadataRequest) -> Message:
        asked = NAMES if request.topics is None else [str(each.name) for each in request.topics]
        self.metadata_answers += bool(asked)
        nodes = [
            MetadataResponseBroker(node_id=id, host=HOST, port=port, rack=f"r{id % 3}")
            for id, port in enumerate(self._ports, 1)
        ]
        return MetadataResponse(
            brokers=nodes,
            cluster_id="played",
            controller_id=1,
            topics=[described(name) for name in asked if name in NUMBERS],
        )

    def _describe_configs(self, broker: int, request: DescribeConfigsRequest) -> Message:
        def values(kind: int, name: str) -> dict[str, str]:
            if kind == 4:
                return {"odradek.http.listener": f"{HOST}:{self._http[int(name or 1) - 1]}"}
            return {"min.insync.replicas": "2", "retention.ms": "604800000"}

        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    configs=[
                        DescribeConfigsResourceResult(name=name, value=value, config_source=5)
                        for name, value in values(each.resource_type, each.resource_name).items()
                    ],
                )
                for each in request.resources
            ]
        )

    def _list_groups(self, broker: int, request: Message) -> Message:
        return ListGroupsResponse(
            groups=[
                ListedGroup(
                    group_id=f"group-{number}", protocol_type="consumer", group_state="Stable"
                )
                for number in range(GROUPS)
                if number % BROKERS + 1 == broker
            ]
        )

    def _find_coordinator(self, broker: int, request: FindCoordinatorRequest) -> Message:
        id = int(request.key.rpartition("-")[2]) % BROKERS + 1
        return FindCoordinatorResponse(node_id=id, host=HOST, port=self._ports[id - 1])

    def _describe_groups(self, broker: int, request: DescribeGroupsRequest) -> Message:
        return DescribeGroupsResponse(
            groups=[
                DescribedGroup(group_id=id, group_state="Stable", protocol_type="consumer")
                for id in request.groups
            ]
        )

    def _offset_fetch(self, broker: int, request: OffsetFetchRequest) -> Message:
        number = int(request.group_id.rpartition("-")[2])
        names = [NAMES[(number * 5 + each) % TOPICS] for each in range(TOPICS_OF_A_GROUP)]
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name=name,
                    partitions=[
                        OffsetFetchResponsePartition(partition_index=p, committed_offset=COMMITTED)
                        for p in range(PER_TOPIC)
                    ],
                )
                for name in names
            ]
        )

    def _list_offsets(self, broker: int, request: ListOffsetsRequest) -> Message:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            offset=self._at(topic.name, each.timestamp),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _at(self, topic: str, timestamp: int) -> int:
        """Of any time there was, the middle."""
        end = self._end(topic)
        return end if timestamp == -1 else 0 if timestamp == -2 else end // 2

    def _end(self, topic: str) -> int:
        if topic == LARGE:
            return LARGE_END
        if topic != WRITTEN:
            return END
        written = int(self._written_per_s / PER_TOPIC * (self._loop.time() - self._opened_s))
        return END + written - written % RECORDS_OF_A_BATCH

    def _fetch(self, broker: int, request: FetchRequest) -> Message:
        def records(topic: str, at: int, bytes_max: int) -> bytearray:
            first = at - at % RECORDS_OF_A_BATCH
            count = min((self._end(topic) - first) // RECORDS_OF_A_BATCH, bytes_max // len(BATCH))
            found = BATCH * max(0, count)
            for number in range(count):
                base = first + number * RECORDS_OF_A_BATCH
                set_offset_and_epoch(found, number * len(BATCH), base, 1)
            return found

        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=[
                        PartitionData(
                            partition_index=each.partition,
                            high_watermark=self._end(topic.topic),
                            last_stable_offset=self._end(topic.topic),
                            log_start_offset=0,
                            records=records(
                                topic.topic, each.fetch_offset, each.partition_max_bytes
                            ),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _describe_log_dirs(self, broker: int, request: DescribeLogDirsRequest) -> Message:
        topics = [
            DescribeLogDirsTopic(
                name=topic.topic,
                partitions=[
                    DescribeLogDirsPartition(partition_index=p, partition_size=1_000_000 + p)
                    for p in topic.partitions
                    if broker in replicas_of(NUMBERS[topic.topic], p)
                ],
            )
            for topic in request.topics or ()
        ]
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/d", topics=topics)])

    def _list_partition_reassignments(self, broker: int, request: Message) -> Message:
        return ListPartitionReassignmentsResponse()

    def _describe_acls(self, broker: int, request: Message) -> Message:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED)

    # HTTP

    async def _web(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode().partition("?")[0]
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            if path == "/journal/events":
                await reader.read()  # until the console goes
            elif path == "/topics":
                writer.write("\n".join(NAMES).encode())
            elif path == "/statistics":
                writer.write(json.dumps({"metadata": {"updates": self._updates}}).encode())
            await writer.drain()
        writer.close()


class _Manager(BaseManager):
    pass


_Manager.register("cluster", PlayedCluster, exposed=("open", "close", "change", "answered"))


class PlayedElsewhere:
    """The same in a process of its own: who measures does not wait for what the brokers do."""

    def __init__(self) -> None:
        self._manager = _Manager(ctx=get_context("spawn"))

    def __enter__(self) -> "PlayedElsewhere":
        self._manager.start()
        self._cluster = self._manager.cluster()  # type: ignore[attr-defined]
        self.bootstrap: str = self._cluster.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()
        self._manager.shutdown()

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """While it lasts the brokers say each half second that their metadata has changed."""
        self._cluster.change(True)
        try:
            yield
        finally:
            self._cluster.change(False)

    @property
    def metadata_answers(self) -> int:
        return int(self._cluster.answered()[0])

    @property
    def busy_s(self) -> float:
        return float(self._cluster.answered()[1])
