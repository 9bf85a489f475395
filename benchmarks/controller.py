"""What failover and a broker's failure cost the controller, and how that grows.

Run: python -m benchmarks controller. Five brokers, replication factor 3, the embedded store in a
file. Brokers are stand-ins that acknowledge each request at once, so the figures are the
controller's own: state loaded, machines started, every request built and encoded. CPU seconds of
this process. Growth must be linear: what one partition costs must stay about the same.
"""

import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random

from odradek.controller.channels import ControlResponse, versions_for
from odradek.controller.config import ControllerConfig
from odradek.controller.control_request_batch import ControlRequest
from odradek.controller.controller import Controller
from odradek.controller.journal import Journal, RotatingFile
from odradek.log.disk import RealDisk
from odradek.store import open_store
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import BrokerRegistration, Endpoint, LeaderAndIsr, TopicNode
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataResponse
from odradek.wire.schema import Request
from odradek.wire.topics import TopicPartition

BROKERS = 5
REPLICATION_FACTOR = 3
PARTITIONS_PER_TOPIC = 100
SIZES = (1_000, 10_000, 50_000)
VICTIM = 2


class StandIn:
    """A broker that accepts every control request."""

    closed = False

    def __init__(self) -> None:
        self.on_lost: Callable[[], None] = lambda: None

    async def request(self, message: Request[ControlResponse], version: int) -> ControlResponse:
        assert isinstance(message, ControlRequest)
        assert version == versions_for(ControllerConfig().protocol)[type(message)]
        message.encode(version)
        if isinstance(message, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(
                partition_errors=[
                    LeaderAndIsrPartitionError(
                        topic_name=topic.topic_name, partition_index=state.partition_index
                    )
                    for topic in message.topic_states
                    for state in topic.partition_states
                ]
            )
        if isinstance(message, StopReplicaRequest):
            return StopReplicaResponse()
        return UpdateMetadataResponse()

    def close(self) -> None:
        pass


async def connect(host: str, port: int) -> StandIn:
    return StandIn()


def replicas_of(index: int) -> tuple[int, ...]:
    return tuple((index + step) % BROKERS + 1 for step in range(REPLICATION_FACTOR))


async def fill(store: ClusterStore, partitions: int) -> None:
    """Topics with their states, as an earlier controller left them."""
    states = {}
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        topic = f"topic-{number:05}"
        lists = {p: replicas_of(p) for p in range(PARTITIONS_PER_TOPIC)}
        await store.create_topic(topic, TopicNode(lists))
        for p, replicas in lists.items():
            states[TopicPartition(topic, p)] = LeaderAndIsr(replicas[0], 0, replicas, 1)
    term = await store.controller.term()
    assert term is not None
    await store.create_partition_states(states, term.fence)


async def at_rest(controller: Controller, without: int | None = None) -> None:
    """Every event done and every request answered; and that broker forgotten."""
    while True:
        await controller.list_reassignments([])  # stands in the queue behind what came before
        statistics = controller.statistics()
        channels = statistics["channels"]
        assert isinstance(channels, dict)
        waiting = sum(channel["queued"] for channel in channels["brokers"].values())
        if not (statistics["queue_length"] or waiting or without in channels["brokers"]):
            return
        await asyncio.sleep(0)


async def measure(
    partitions: int, directory: Path, memory: bool = False
) -> tuple[float, float, int]:
    """CPU seconds of failover and of a broker's failure, and bytes the context holds."""
    url = f"sqlite:{directory / 'metadata.db'}"
    outside = ClusterStore(open_store(url))
    await outside.session.start()
    await outside.prepare()
    endpoint = (Endpoint("127.0.0.1", 9092),)
    for id in range(1, BROKERS + 1):
        await outside.register_broker(BrokerRegistration(id, -1, endpoint))
    # Nodes of topics are written in an earlier controller's term.
    await outside.controller.elect(BROKERS)
    await fill(outside, partitions)
    term = await outside.controller.term()
    assert term is not None
    # Registered before the topics were filled: nobody came back.
    await outside.controller.resign(term.fence)

    store = ClusterStore(open_store(url))
    await store.session.start()
    journal = Journal(lambda: 0, sink=RotatingFile(RealDisk(), str(directory / "journal.jsonl")))
    config = ControllerConfig(auto_leader_rebalance_enable=False)
    controller = Controller(1, store, config, journal=journal, rng=Random(1), connect=connect)
    gc.collect()
    if memory:
        tracemalloc.start()
    begin = time.process_time()
    await controller.start()
    await at_rest(controller)
    takeover = time.process_time() - begin
    held = tracemalloc.get_traced_memory()[0] if memory else 0
    tracemalloc.stop()

    begin = time.process_time()
    await outside.session.delete(f"/brokers/ids/{VICTIM}")
    await at_rest(controller, without=VICTIM)
    failure = time.process_time() - begin

    await controller.stop()
    await store.session.close()
    await outside.session.close()
    return takeover, failure, held


def main() -> None:
    print(f"controller: {BROKERS} brokers, replication factor {REPLICATION_FACTOR}, SQLite")
    columns = ("takeover", "each", "broker dies", "led", "each")
    print(f"{'partitions':>10} {''.join(f'{column:>12}' for column in columns)}")
    for size in SIZES:
        with tempfile.TemporaryDirectory() as directory:
            takeover, failure, _ = asyncio.run(measure(size, Path(directory)))
        led = size // BROKERS
        print(
            f"{size:>10,} {takeover:>10.2f} s {takeover / size * 1e6:>8.0f} µs "
            f"{failure:>10.2f} s {led:>11,} {failure / led * 1e6:>8.0f} µs"
        )
    size = SIZES[1]
    with tempfile.TemporaryDirectory() as directory:
        _, _, held = asyncio.run(measure(size, Path(directory), memory=True))
    print(f"memory held after failover: {held / size:,.0f} bytes for each partition")


if __name__ == "__main__":
    main()
