"""One topic or group among ten thousand costs what one alone costs: work is counted, not timed.

Every question is asked of a broker that has almost nothing, and again when it has ten thousand
topics, logs and groups. Client and broker share the test's loop, so what is counted is everything
from the call to its answer: the bytecodes that were executed, and the memory that was needed at its
worst, which shows what is copied or sorted without bytecodes.
"""

import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.broker.clusters import Cluster, cluster, until
from tests.bytecodes import counted

from odradek.broker.metadata_cache import LEADER_DURING_DELETE
from odradek.broker.server import Broker
from odradek.client import LATEST, Admin, Client, Groups, Resource, ResourceType, offsets_at
from odradek.coordinator.group import CommittedOffset
from odradek.store import paths, payloads
from odradek.store.api import Create
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from odradek.wire.topics import TopicPartition

MANY = 10_000
ASKED = "asked"
OF = TopicPartition(ASKED, 0)
ATTEMPTS = 5
# What ten thousand others may add: a timer that happens to fire. One step for each would be 10,000.
MORE_BYTECODES = 2_000
MORE_BYTES = 16_000

Question = Callable[[Client], Awaitable[object]]

QUESTIONS: dict[str, Question] = {
    "Metadata": lambda client: Admin(client).describe_topics([ASKED]),
    "DescribeConfigs": lambda client: Admin(client).describe_configs(
        [Resource(ResourceType.TOPIC, ASKED)]
    ),
    "DescribeLogDirs": lambda client: Admin(client).describe_log_dirs(partitions=[OF]),
    "ListOffsets": lambda client: offsets_at(client, {OF: LATEST}),
    "FindCoordinator": lambda client: client.ask_any(FindCoordinatorRequest(key=ASKED)),
    "DescribeGroups": lambda client: Groups(client).describe_group(ASKED),
    "OffsetFetch": lambda client: Groups(client).offsets(ASKED),
    "lag": lambda client: Groups(client).lag(ASKED),
}


class Work(NamedTuple):
    bytecodes: int
    bytes: int


async def test_one_among_ten_thousand(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await prepare(made)
        alone = {name: await work(made, ask) for name, ask in QUESTIONS.items()}
        async with others(made, MANY):
            among_many = {name: await work(made, ask) for name, ask in QUESTIONS.items()}
    for name, found in among_many.items():
        assert found.bytecodes < alone[name].bytecodes + MORE_BYTECODES, name
        assert found.bytes < alone[name].bytes + MORE_BYTES, name


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: Admin(client).list_topics(),
        lambda client: Admin(client).describe_log_dirs(),
        lambda client: Groups(client).list_groups(),
    ],
    ids=["topics", "logs", "groups"],
)
async def test_what_grows_would_be_found(tmp_path: Path, ask: Question) -> None:
    async with cluster(tmp_path) as made:
        await prepare(made)
        alone = await work(made, ask)
        async with others(made, MANY // 10):
            found = await work(made, ask)
    assert found.bytecodes > alone.bytecodes + MORE_BYTECODES
    assert found.bytes > alone.bytes + MORE_BYTES


async def prepare(made: Cluster) -> None:
    """The topic with a setting and a log, and the group, that are asked for."""
    await made.create_topic(ASKED, retention_ms="1000")
    await (await made.connect(1)).request(FindCoordinatorRequest(key=ASKED), 3)
    storage = made.brokers[1].groups.storage
    await until(lambda: len(storage.owned) == 2 and not storage.is_loading)
    storage.add(ASKED).offsets[OF] = CommittedOffset(0, "", -1)


@asynccontextmanager
async def others(made: Cluster, count: int) -> AsyncIterator[None]:
    """As many topics and groups more, in every place where a broker would keep them.

    Their logs are all the same one: what is counted is how a log is found, not what is in it.
    """
    broker = made.brokers[1]
    names = [f"other-{number}" for number in range(count)]
    data = payloads.encode_config({"retention.ms": "1000"})
    await broker.store.session.multi(
        [Create(paths.config(paths.ConfigKind.TOPICS, name), data) for name in names]
    )
    merge(broker, names, leader=1)
    parts = [TopicPartition(name, 0) for name in names]
    broker.logs.logs.update(dict.fromkeys(parts, broker.logs.logs[OF]))
    broker.replicas.partitions.update(dict.fromkeys(parts, broker.replicas.partitions[OF]))
    for name in names:
        broker.groups.storage.add(name).offsets[OF] = CommittedOffset(0, "", -1)
    yield
    merge(broker, names, leader=LEADER_DURING_DELETE)
    for part in parts:
        del broker.logs.logs[part]
        del broker.replicas.partitions[part]


def merge(broker: Broker, topics: list[str], leader: int) -> None:
    """Tell the broker's metadata what the controller would."""
    endpoint = broker.endpoints[0]
    state = UpdateMetadataPartitionState(leader=leader, isr=[1], replicas=[1])
    update = UpdateMetadataRequest(
        controller_id=1,
        live_brokers=[
            UpdateMetadataBroker(
                id=broker.id,
                endpoints=[
                    UpdateMetadataEndpoint(
                        port=endpoint.port, host=endpoint.host, listener=endpoint.listener
                    )
                ],
            )
        ],
        topic_states=[
            UpdateMetadataTopicState(topic_name=topic, partition_states=[state]) for topic in topics
        ],
    )
    broker.cache.update(update)


async def work(made: Cluster, ask: Question) -> Work:
    """The least that answering took, after everything that is done once has been done."""
    endpoint = made.brokers[1].endpoints[0]
    async with Client([f"{endpoint.host}:{endpoint.port}"]) as client:
        await ask(client)
        counted = [await bytecodes(ask, client) for _ in range(ATTEMPTS)]
        sizes = [await memory(ask, client) for _ in range(ATTEMPTS)]
    return Work(min(counted), min(sizes))


async def bytecodes(ask: Question, client: Client) -> int:
    with counted() as count:
        await ask(client)
    return count.value


async def memory(ask: Question, client: Client) -> int:
    tracemalloc.start()
    try:
        await ask(client)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
