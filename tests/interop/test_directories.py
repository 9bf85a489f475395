"""A data directory goes from one program to the other: same id, same files, clean stop or kill -9.

A producer goes on all the while, so the heir must know its sequence numbers from the directory; a
consumer group's offsets and the offsets of timestamps must be found by the heir too.
"""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.broker.clusters import fetch_request
from tests.interop.conftest import MakeCluster
from tests.interop.harness.members import wait_until
from tests.interop.harness.mixed import APACHE, OURS, Kind, MixedCluster
from tests.interop.harness.traffic import Traffic, check_nothing_lost, read_all

from odradek.client import Client, Isolation, PartitionReader
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.topics import TopicPartition as Place

PARTITIONS = 2
ALONE = {"offsets_topic_replication_factor": 1, "offsets_topic_num_partitions": 1}


def some_more(traffic: Traffic, records: int = 1000) -> None:
    wanted = traffic.count + records
    wait_until(lambda: traffic.count >= wanted, f"{wanted} acknowledged records ({traffic.failed})")


def group_of(cluster: MixedCluster) -> Consumer:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 2}
    return Consumer(settings)


def commit(cluster: MixedCluster, offsets: dict[int, int]) -> None:
    consumer = group_of(cluster)
    places = [TopicPartition("t", partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def committed(cluster: MixedCluster) -> dict[int, int]:
    consumer = group_of(cluster)
    asked = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
    found = {place.partition: place.offset for place in consumer.committed(asked, timeout=60)}
    consumer.close()
    return found


def offsets_at(cluster: MixedCluster, timestamp_ms: int) -> dict[int, int]:
    consumer = group_of(cluster)
    asked = [TopicPartition("t", partition, timestamp_ms) for partition in range(PARTITIONS)]
    found = {place.partition: place.offset for place in consumer.offsets_for_times(asked, 60)}
    consumer.close()
    return found


# What is in a directory changed with topic ids.
@pytest.mark.parametrize("protocol", ["2.6", "2.8", "3.9"])
@pytest.mark.parametrize("leave", ["stop", "kill"])
@pytest.mark.parametrize("kind", [APACHE, OURS], ids=["Apache first", "ours first"])
def test_one_directory_two_programs(
    kind: Kind, leave: str, protocol: str, make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster({1: kind}, inter_broker_protocol_version=protocol, **ALONE)
    cluster.start()
    cluster.create_topic("t", {0: [1], 1: [1]}, segment_bytes="50000", index_interval_bytes="500")
    with Traffic(cluster.bootstrap_servers, "t") as traffic:
        some_more(traffic)
        offsets = {partition: 100 + partition for partition in range(PARTITIONS)}
        commit(cluster, offsets)
        middle = traffic.times[max(traffic.acknowledged) // 2]
        places = offsets_at(cluster, middle)
        for heir in (OURS, APACHE) if kind is APACHE else (APACHE, OURS):
            some_more(traffic)
            getattr(cluster, leave)(1)
            before = [cluster.log_bytes(1, "t", number) for number in range(PARTITIONS)]
            cluster.become(1, heir)
            cluster.start(1)
            cluster.wait_for_isr("t")
            some_more(traffic)
            after = [cluster.log_bytes(1, "t", number) for number in range(PARTITIONS)]
            for old, new in zip(before, after, strict=True):
                assert new.startswith(old), "the heir changed what was written before it"
            assert committed(cluster) == offsets
            assert offsets_at(cluster, middle) == places
    check_nothing_lost(traffic, read_all(cluster.bootstrap_servers, "t", PARTITIONS))
    if leave == "stop":
        (log,) = tmp_path.rglob("*.odradek.log")
        assert "unclean" not in log.read_text(), "Apache Kafka's clean shutdown is one"


TRANSACTIONAL = {
    **ALONE,
    "transaction_state_log_num_partitions": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
}
WAIT_S = 60.0


def transactional(cluster: MixedCluster, id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": id,
            "transaction.timeout.ms": 600_000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,
        }
    )
    producer.init_transactions(WAIT_S)
    return producer


def begin(producer: Producer, topic: str, values: list[str]) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, value.split()[0], partition=0)
    assert producer.flush(WAIT_S) == 0


class Seen(NamedTuple):
    """What a broker says of the transactions in a partition."""

    last_stable_offset: int
    producers: set[tuple[int, int, int, int]]  # id, epoch, last sequence, start of the open one
    values: list[str]  # of the committed records

    @property
    def open_count(self) -> int:
        return sum(producer[3] >= 0 for producer in self.producers)


async def stable_end(client: Client) -> int:
    """The last stable offset; -1 from a broker that does not lead yet."""
    response = await client.ask(1, fetch_request("t", isolation_level=1), version_max=11)
    return int(response.responses[0].partitions[0].last_stable_offset)


def look(cluster: MixedCluster) -> Seen:
    async def ask(client: Client) -> Seen:
        await client.refresh()
        end = await stable_end(client)
        asked = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
        described = (await client.ask(1, asked)).topics[0].partitions[0].active_producers
        reader = PartitionReader(client, isolation=Isolation.READ_COMMITTED)
        values: list[str] = []
        async for batches in reader.batches(Place("t", 0), 0, end):
            values += [(one.value or b"").decode() for one in batches.open(committed=True)]
        return Seen(
            end,
            {
                (
                    one.producer_id,
                    one.producer_epoch,
                    one.last_sequence,
                    one.current_txn_start_offset,
                )
                for one in described
            },
            values,
        )

    with cluster.admin() as client:
        return client.run(ask(client.client))


def hand_over(cluster: MixedCluster, leave: str, heir: Kind) -> None:
    getattr(cluster, leave)(1)
    cluster.become(1, heir)
    cluster.start(1)
    with cluster.admin() as client:
        client.run(client.client.refresh())
        wait_until(lambda: client.run(stable_end(client.client)) >= 0, f"{heir.value} to lead")


@pytest.mark.slow
@pytest.mark.parametrize("leave", ["stop", "kill"])
@pytest.mark.parametrize("kind", [APACHE, OURS], ids=["Apache first", "ours first"])
def test_transactions_in_a_directory_of_two_programs(
    kind: Kind, leave: str, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster({1: kind}, **TRANSACTIONAL)
    cluster.start()
    cluster.create_topic("t", {0: [1]}, segment_bytes="2000")
    ended, held = transactional(cluster, "ended"), transactional(cluster, "held")
    wanted: list[str] = []

    def index() -> bytes:
        home = cluster.directory_of(1) / "t-0"
        return b"".join(path.read_bytes() for path in sorted(home.glob("*.txnindex")))

    for heir in (OURS, APACHE) if kind is APACHE else (APACHE, OURS):
        for number in range(20):
            values = [f"{heir.value} {number} {'.' * 50}"] * 5
            begin(ended, "t", values)
            if number % 2:
                ended.abort_transaction(WAIT_S)
            else:
                ended.commit_transaction(WAIT_S)
                wanted += values
        begin(held, "t", [f"{heir.value} open"])
        begin(ended, "t", [f"{heir.value} behind it"])
        ended.commit_transaction(WAIT_S)
        # The marker is written a moment after the response; the open transaction hides it.
        wait_until(lambda: look(cluster).open_count == 1, "one open transaction")
        before, entries = look(cluster), index()
        assert before.values == wanted
        hand_over(cluster, leave, heir)
        assert look(cluster) == before
        assert index() == entries
        held.commit_transaction(WAIT_S)
        wait_until(lambda: look(cluster).open_count == 0, "the end of the open transaction")
        wanted += [f"{heir.value} open", f"{heir.value} behind it"]
        assert look(cluster).values == wanted


@pytest.mark.slow
@pytest.mark.parametrize("kind", [APACHE, OURS], ids=["Apache first", "ours first"])
def test_what_one_has_compacted_the_other_opens_and_compacts(
    kind: Kind, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster({1: kind}, **TRANSACTIONAL, log_cleaner_backoff_ms=200)
    cluster.start()
    cluster.create_topic(
        "t",
        {0: [1]},
        cleanup_policy="compact",
        segment_bytes="2000",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="100",
    )
    producer = transactional(cluster, "id")
    table: dict[str, str] = {}

    def write(life: int) -> None:
        for number in range(40):
            is_commit = number % 4 != 1
            word = "committed" if is_commit else f"aborted in {life}"
            values = [f"key-{key} {word} {life} {number}" for key in range(number % 3, 9, 3)]
            begin(producer, "t", values)
            if is_commit:
                producer.commit_transaction(WAIT_S)
                table.update((value.split()[0], value) for value in values)
            else:
                producer.abort_transaction(WAIT_S)

    def is_cleaned(life: int) -> bool:
        """All but what is in the last segment, which is not cleaned."""
        with suppress(FileNotFoundError):  # a segment that was replaced meanwhile
            log = cluster.log_bytes(1, "t", 0)
            return f"aborted in {life}".encode() not in log and log.count(b"committed") < 40
        return False

    def read() -> dict[str, str]:
        values = look(cluster).values
        return {value.split()[0]: value for value in values}

    for life, heir in enumerate((OURS, APACHE, OURS) if kind is APACHE else (APACHE, OURS, APACHE)):
        write(life)
        for number in range(20):
            begin(producer, "t", [f"filler-{number} {'.' * 200}"])
            producer.commit_transaction(WAIT_S)
            table[f"filler-{number}"] = f"filler-{number} {'.' * 200}"
        wait_until(partial(is_cleaned, life), f"what {cluster.kinds[1].value} cleans")
        assert read() == table
        hand_over(cluster, "stop", heir)
        assert read() == table
