"""What grows with the size of a cluster: cost against partitions, connections and groups.

Three real broker processes on the embedded store for partitions, RF 3, so that each broker holds a
replica of every one; one broker for connections and groups. CPU time is of the brokers alone and
hardly varies with what else the machine does; wall time does.

PARTITIONS=1000,5000 CONNECTIONS=100 CONSUMER_GROUPS=10 choose other sizes. 50,000 partitions take
several minutes, 150,000 directories, and some 2 GB of memory. PROTOCOL=2.6-IV0 chooses another
inter-broker protocol for the partitions: below 2.7-IV2 leaders write ISRs themselves.
"""

import asyncio
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cluster import (
    ask_every_leader,
    has_other_controller,
    in_sync,
    is_led_without,
)
from benchmarks.replica import (
    PRODUCE_VERSION,
    SMALL,
    check,
    connect,
    cpu_s,
    create,
    produce_request,
    resident_mb,
)
from odradek.testing import cluster as testing
from odradek.testing.cluster import Cluster
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

PARTITIONS = "1000,5000,10000,50000"
CONNECTIONS = "100,1000,10000"
GROUPS = "10,100,1000,10000"
CONFIG = {"min.insync.replicas": 2, "offsets.topic.num.partitions": 5}
FIND_VERSION = 2
COMMIT_VERSION = 7
LIST_VERSION = 2
QUIET_S = 10.0
# Between two looks: describing ten thousand partitions takes a broker tens of milliseconds.
LOOK_S = 0.2
PATIENCE_S = 900.0
PRODUCES = 1000


def main() -> None:
    testing.START_TIMEOUT_S = testing.STOP_TIMEOUT_S = PATIENCE_S
    testing.ASK_TIMEOUT_S = 60.0
    # Removed at the end: ext4 without a journal is slow to create files after others were removed.
    with tempfile.TemporaryDirectory(prefix="odradek-growth-") as home:
        for partitions in sizes("PARTITIONS", PARTITIONS):
            of_partitions(partitions, Path(home, str(partitions)))
    for connections in sizes("CONNECTIONS", CONNECTIONS):
        of_connections(connections)
    for groups in sizes("CONSUMER_GROUPS", GROUPS):
        of_groups(groups)


def sizes(variable: str, default: str) -> list[int]:
    return [int(size) for size in os.environ.get(variable, default).split(",") if size]


def show(what: str, *figures: str) -> None:
    print(f"{what:<46} {'   '.join(figures)}", flush=True)


@contextmanager
def timed(cluster: Cluster, what: str, per: int = 0) -> Iterator[None]:
    """Wall time and the brokers' CPU time of a step, or the latter per operation in µs. Of a broker
    that is killed or started in it, what it has used since counts."""
    begun, before = time.perf_counter(), cpu_s(cluster)
    yield
    cpu = cpu_s(cluster) - before
    if per:
        show(what, f"CPU {cpu / per * 1e6:.0f} µs each")
    else:
        show(what, f"{time.perf_counter() - begun:.2f} s", f"CPU {cpu:.2f} s")


def idle(cluster: Cluster, per: int, before_mb: float) -> None:
    """CPU and memory of a cluster that has nothing to do."""
    time.sleep(QUIET_S)
    before = cpu_s(cluster)
    time.sleep(QUIET_S)
    share = (cpu_s(cluster) - before) / QUIET_S * 100
    kilobytes = (resident_mb(cluster) - before_mb) * 1000 / per / len(cluster.running())
    show("  idle", f"CPU {share:.1f} % of a core, all brokers", f"{kilobytes:.1f} kB each")


def of_partitions(partitions: int, home: Path) -> None:
    config: dict[str, object] = {**CONFIG}
    if protocol := os.environ.get("PROTOCOL"):
        config["inter.broker.protocol.version"] = protocol
    show(f"{partitions} partitions, RF 3{f', protocol {protocol}' if protocol else ''}")
    with Cluster(brokers=3, config=config, data_dir=home) as cluster:

        def is_in_sync() -> bool:
            time.sleep(LOOK_S)
            return in_sync(cluster, "many", 3)

        def wait_for_isrs() -> None:
            cluster.wait_until(is_in_sync, "full ISRs", PATIENCE_S)

        before_mb = resident_mb(cluster)
        with timed(cluster, "  created"):
            asyncio.run(create(cluster, "many", partitions))
            wait_for_isrs()
        idle(cluster, partitions, before_mb)
        asyncio.run(produces(cluster, "many"))
        victim = cluster.controller_id()
        assert victim is not None
        cluster.kill(victim)
        with timed(cluster, "  controller killed: another is active"):
            cluster.wait_until(lambda: has_other_controller(cluster, victim), "one", PATIENCE_S)
        with timed(cluster, "  ... and all partitions are led"):
            cluster.wait_until(
                lambda: is_led_without(cluster, "many", victim), "leaders", PATIENCE_S
            )
            asyncio.run(ask_every_leader(cluster, "many", partitions))
        with timed(cluster, "  started after the kill, to full ISRs"):
            cluster.start(victim)
            wait_for_isrs()
        begun = time.perf_counter()
        cluster.stop(victim)
        show("  stopped cleanly", f"{time.perf_counter() - begun:.2f} s")
        with timed(cluster, "  started after that, to full ISRs"):
            cluster.start(victim)
            wait_for_isrs()


async def produces(cluster: Cluster, topic: str) -> None:
    """One record at a time, acks=all, to ten partitions in turn."""
    connections = {broker: await connect(cluster, broker) for broker in cluster.ids}
    leaders = [cluster.leader(topic, partition) for partition in range(10)]
    with timed(cluster, "  a record, acks=all", PRODUCES):
        for number in range(PRODUCES):
            leader = leaders[number % 10]
            assert leader is not None
            request = produce_request(topic, number % 10, SMALL, -1)
            check(await connections[leader].request(request, PRODUCE_VERSION))
    for connection in connections.values():
        connection.close()


def of_connections(count: int) -> None:
    show(f"{count} idle connections")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Cluster(brokers=1, config={"max.connections.per.ip": 2 * count}) as cluster:
        asyncio.run(hold_connections(cluster, count))


async def hold_connections(cluster: Cluster, count: int) -> None:
    await create(cluster, "one", 1, copies=1)
    before_mb = resident_mb(cluster)
    with timed(cluster, "  accepted", count):
        held = [await connect(cluster, 1) for _ in range(count)]
    await asyncio.to_thread(idle, cluster, count, before_mb)
    request = produce_request("one", 0, SMALL, 1)
    with timed(cluster, "  a record, beside them", PRODUCES):
        for _ in range(PRODUCES):
            check(await held[0].request(request, PRODUCE_VERSION))
    for connection in held:
        connection.close()


def of_groups(count: int) -> None:
    show(f"{count} groups")
    with Cluster(brokers=1, config=CONFIG | {"min.insync.replicas": 1}) as cluster:
        asyncio.run(commit_of_all(cluster, count))
        cluster.kill(1)
        begun = time.perf_counter()
        cluster.start(1)
        asyncio.run(until_listed(cluster, count))
        show("  killed and started, to all groups loaded", f"{time.perf_counter() - begun:.2f} s")


async def commit_of_all(cluster: Cluster, count: int) -> None:
    await create(cluster, "one", 1, copies=1)
    connection = await connect(cluster, 1)
    # Which creates the topic of offsets.
    await connection.request(FindCoordinatorRequest(key="group-0"), FIND_VERSION)
    while await commit(connection, 0) != ErrorCode.NONE:  # noqa: ASYNC110  # in another process
        await asyncio.sleep(0.05)
    before_mb = resident_mb(cluster)
    with timed(cluster, "  a first commit of each", count):
        for group in range(count):
            assert await commit(connection, group) == ErrorCode.NONE
    with timed(cluster, "  a commit of some", PRODUCES):
        for number in range(PRODUCES):
            assert await commit(connection, number % count) == ErrorCode.NONE
    with timed(cluster, "  a list of all"):
        await connection.request(ListGroupsRequest(), LIST_VERSION)
    connection.close()
    await asyncio.to_thread(idle, cluster, count, before_mb)


async def commit(connection: Connection, group: int) -> int:
    """An offset of a group without members."""
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=group, committed_metadata=""
    )
    response = await connection.request(
        OffsetCommitRequest(
            group_id=f"group-{group}",
            topics=[OffsetCommitRequestTopic(name="one", partitions=[partition])],
        ),
        COMMIT_VERSION,
    )
    return int(response.topics[0].partitions[0].error_code)


async def until_listed(cluster: Cluster, count: int) -> None:
    connection = await connect(cluster, 1)
    while True:
        response = await connection.request(ListGroupsRequest(), LIST_VERSION)
        if response.error_code == ErrorCode.NONE and len(response.groups) >= count:
            break
        await asyncio.sleep(0.02)
    connection.close()


if __name__ == "__main__":
    main()
