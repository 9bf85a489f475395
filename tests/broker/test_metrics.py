"""A broker's HTTP service: what Prometheus' own parser reads, health, statistics, the journal."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.broker.config import BrokerConfig
from odradek.broker.journal_feed import QUEUE_MAX, TOGETHER, JournalFeed
from odradek.broker.loop_lag import LoopLag
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.metrics import METRICS, PARTITION_METRICS, PARTITIONS_MAX
from odradek.broker.server import Broker
from odradek.controller.journal import EntryKind, Journal
from odradek.wire.errors import KafkaError

from . import clusters
from .clusters import Cluster, fetch_request, produce, until

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@asynccontextmanager
async def cluster(path: Path, brokers: int = 1, **settings: str) -> AsyncIterator[Cluster]:
    settings = {"odradek.http.listener": "127.0.0.1:0", **settings}
    async with clusters.cluster(path, brokers, **settings) as made:
        yield made


async def get(broker: Broker, path: str, **headers: str) -> tuple[int, str]:
    address = broker.config.http_listener()
    assert address is not None
    reader, writer = await asyncio.open_connection(*address)
    lines = [f"GET {path} HTTP/1.1", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split(" ", 2)[1]), body


async def scrape(broker: Broker, path: str = "/metrics") -> Values:
    status, text = await get(broker, path)
    assert status == 200, text
    values: Values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            # The parser gives every counter the suffix, also those that Kafka names otherwise.
            bare = sample.name.removesuffix("_total")
            name = bare if f"{bare} " in text or f"{bare}{{" in text else sample.name
            key = name, tuple(sorted(sample.labels.items()))
            assert key not in values, f"{key} twice"
            values[key] = sample.value
    return values


def of(values: Values, name: str, **labels: str) -> float:
    return values[name, tuple(sorted(labels.items()))]


class TestMetrics:
    async def test_what_clients_do_is_counted(self, tmp_path: Path) -> None:
        async with cluster(tmp_path) as made:
            await made.create_topic("t")
            connection = await made.connect(1)
            await produce(connection, "t", b"one", b"two")
            await produce(connection, "unknown", b"one")
            await connection.request(fetch_request("t"), 11)
            await connection.request(fetch_request("unknown"), 11)
            values = await scrape(made.brokers[1])
            prefix = "kafka_server_brokertopicmetrics"
            assert of(values, f"{prefix}_messagesin_total", topic="t") == 2
            bytes_in = of(values, f"{prefix}_bytesin_total", topic="t")
            assert bytes_in == of(values, f"{prefix}_bytesout_total", topic="t") > 0
            assert of(values, f"{prefix}_bytesin_total") == bytes_in
            assert of(values, f"{prefix}_failedproducerequests_total") == 1
            assert of(values, f"{prefix}_failedfetchrequests_total") == 1
            assert of(values, f"{prefix}_failedfetchrequests_total", topic="t") == 0
            error = {"api": "Fetch", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
            assert of(values, "odradek_request_errors_total", **error) == 1
            assert of(values, "odradek_request_seconds_count", api="Produce") == 2
            assert of(values, "odradek_request_seconds_bucket", api="Produce", le="+Inf") == 2
            assert (
                of(
                    values,
                    "kafka_network_requestmetrics_requests_total",
                    request="Fetch",
                    version="11",
                )
                == 2
            )
            assert of(values, "kafka_server_replicamanager_leadercount") == 1
            assert of(values, "kafka_controller_kafkacontroller_activecontrollercount") == 1
            assert of(values, "kafka_controller_kafkacontroller_globaltopiccount") == 1
            assert of(values, "kafka_log_log_logendoffset", topic="t", partition="0") == 2
            assert (
                of(values, "kafka_cluster_partition_replicascount", topic="t", partition="0") == 1
            )

    async def test_replication_is_counted_on_both_sides(self, tmp_path: Path) -> None:
        async with cluster(tmp_path, brokers=2) as made:
            await made.create_topic("t", replicas=2)
            leader = next(each for each in made.brokers.values() if each.replicas.counts.leaders)
            follower = next(each for each in made.brokers.values() if each is not leader)
            await produce(await made.connect(leader.id), "t", b"x" * 1000)
            name = "kafka_server_brokertopicmetrics_replicationbytes"
            sent = of(await scrape(leader), f"{name}out_total")
            assert sent == of(await scrape(follower), f"{name}in_total") > 1000
            assert of(await scrape(follower), "kafka_server_brokertopicmetrics_bytesin_total") == 0

    async def test_every_metric_of_the_table_and_no_other_is_exported(self, tmp_path: Path) -> None:
        async with cluster(tmp_path) as made:
            await made.create_topic("t")
            connection = await made.connect(1)
            await connection.request(fetch_request("unknown"), 11)
            values = await scrape(made.brokers[1])
            labels = {
                **{s: {*metric.labels, "le"} for metric in METRICS for s in metric.series},
                **{
                    s: {*metric.labels, "le"} for metric in PARTITION_METRICS for s in metric.series
                },
            }
            assert {name for name, _ in values} == labels.keys()
            for name, found in values:
                assert {label for label, _ in found} <= labels[name], name

    async def test_counters_never_fall(self, tmp_path: Path) -> None:
        async with cluster(tmp_path, brokers=2) as made:
            await made.create_topic("t", partitions=2, replicas=2)
            broker = made.brokers[1]
            before = await scrape(broker)
            await made.stop(2)
            after = await scrape(broker)
            counters = {s for metric in METRICS if metric.type != "gauge" for s in metric.series}
            for key, value in before.items():
                if key[0] in counters:
                    assert after[key] >= value, key

    async def test_an_unclean_election_is_counted(self, tmp_path: Path) -> None:
        async with cluster(tmp_path, brokers=3, unclean_leader_election_enable="true") as made:
            await made.create_topic("t", partitions=3, replicas=2)
            controller = made.controller
            first, last = (each for each in made.brokers if each != controller.id)
            await made.stop(first)
            await made.stop(last)
            name = "kafka_controller_controllerstats_uncleanleaderelections_total"
            assert of(await scrape(controller), name) == 0
            # One partition is on these two alone, and only the last is known to have everything.
            await made.start(first)
            await until(lambda: controller.controller.statistics()["offline_partitions"] == 0)
            assert of(await scrape(controller), name) == 1

    async def test_topics_beyond_the_limit_are_added_up(self, tmp_path: Path) -> None:
        async with cluster(tmp_path, 1, **{"odradek.metrics.topics.max": "1"}) as made:
            connection = await made.connect(1)
            for topic in ("a", "b", "c"):
                await made.create_topic(topic)
                await produce(connection, topic, b"x")
            name = "kafka_server_brokertopicmetrics_messagesin_total"
            values = await scrape(made.brokers[1])
            assert {
                labels: value for (found, labels), value in values.items() if found == name
            } == {
                (): 3,
                (("topic", "a"),): 1,
                (("topic", "(other)"),): 2,
            }

    async def test_the_partitions_apart(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("odradek.broker.http_service.SLICE", 2)
        monkeypatch.setattr("odradek.broker.http_service.WALKED_PARTITIONS_MAX", 5)
        monkeypatch.setattr("odradek.broker.http_service.PARTITIONS_MAX", 3)
        assert PARTITIONS_MAX == 2_000
        async with cluster(tmp_path) as made:
            await made.create_topic("t", partitions=7)
            broker = made.brokers[1]
            assert not [name for name, _ in await scrape(broker) if name == "kafka_log_log_size"]
            values = await scrape(broker, "/metrics/partitions")
            assert len([name for name, _ in values if name == "kafka_log_log_size"]) == 5
            assert of(values, "odradek_metrics_left_out") == 2
            rest = await scrape(broker, "/metrics/partitions?skip=5")
            assert len([name for name, _ in rest if name == "kafka_log_log_size"]) == 2
            assert not {key for key in values if key[1]} & {key for key in rest if key[1]}

    async def test_37_no_partition_is_looked_at_where_there_are_many(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """So 33,000 partitions cost no more than 3: `make bench ONLY=metrics` has the figure. And a
        thousand topics, which is as many as have series, make less than 10,000 lines."""

        class Unwalked:
            """Says how many there are, and nothing else of them all."""

            def __init__(self, partitions: object) -> None:
                self._partitions = partitions

            def __len__(self) -> int:
                return 33_000

            def __getattr__(self, name: str) -> object:
                assert name not in ("keys", "values", "items"), "all partitions were walked"
                return getattr(self._partitions, name)

        async with cluster(tmp_path) as made:
            await made.create_topic("t")
            broker = made.brokers[1]
            for number in range(1_500):
                broker.replicas.traffic.of(f"topic-{number}").fetches += 1
            await scrape(broker)
            with monkeypatch.context() as patched:
                patched.setattr(broker.replicas, "partitions", Unwalked(broker.replicas.partitions))
                _, text = await get(broker, "/metrics")
            assert "kafka_log_log_size" not in text
            assert 8_000 < len(text.splitlines()) <= 10_000


class TestHealth:
    async def test_alive_and_ready(self, tmp_path: Path) -> None:
        async with cluster(tmp_path) as made:
            broker = made.brokers[1]
            assert (await get(broker, "/livez"))[0] == 200
            assert await get(broker, "/readyz") == (200, "ok\n")
            broker.connections.is_serving = False
            assert await get(broker, "/readyz") == (503, "not serving clients yet\n")
            assert (await get(broker, "/livez"))[0] == 200
            broker.connections.is_serving = True  # or its controlled shutdown never ends

    async def test_a_broker_that_cannot_continue_is_not_ready(self, tmp_path: Path) -> None:
        async with cluster(tmp_path) as made:
            broker = made.brokers[1]
            broker.fail("all log directories have failed")
            status, text = await get(broker, "/readyz")
            assert (status, text) == (503, "failed: all log directories have failed\n")

    def test_the_lag_of_a_timer(self) -> None:
        loop = asyncio.new_event_loop()
        lag = LoopLag(loop, lambda: 0.0)
        lag.start()
        lag._due = loop.time() - 0.3
        lag._tick()
        lag.stop()
        assert lag.last_s >= 0.3
        assert lag.times.count == 1
        assert lag.idle_share == 1.0
        loop.close()


class TestEverythingElse:
    async def test_statistics_are_json_and_topics_lines(self, tmp_path: Path) -> None:
        async with cluster(tmp_path) as made:
            await made.create_topic("b")
            await made.create_topic("a")
            broker = made.brokers[1]
            assert json.loads((await get(broker, "/statistics"))[1])["replicas"]["leaders"] == 2
            assert await get(broker, "/topics") == (200, "a\nb\n")
            assert (await get(broker, "/topics", host="evil.example"))[0] == 401
            # As one that has just started: that it knows no topic does not mean that there is none.
            broker.cache = MetadataCache()
            assert (await get(broker, "/topics"))[0] == 503

    async def test_the_journal_from_a_number_on(self, tmp_path: Path) -> None:
        async with cluster(tmp_path) as made:
            await made.create_topic("t")
            broker = made.brokers[1]
            _, text = await get(broker, "/journal")
            entries = [json.loads(line) for line in text.splitlines()]
            assert [entry["sequence"] for entry in entries] == list(range(1, len(entries) + 1))
            _, text = await get(broker, f"/journal?after={len(entries) - 3}&limit=2")
            assert [json.loads(line) for line in text.splitlines()] == entries[-3:-1]
            assert (await get(broker, "/journal", host="evil.example"))[0] == 401

    async def test_without_the_setting_there_is_no_listener(self, tmp_path: Path) -> None:
        async with clusters.cluster(tmp_path) as made:
            assert made.brokers[1].config.http_listener() is None

    @pytest.mark.parametrize("text", ["8080", "host", "host:port", ":99999", "host:"])
    def test_an_address_is_host_and_port(self, text: str) -> None:
        with pytest.raises(KafkaError, match=re.escape(text)):
            BrokerConfig({"odradek.http.listener": text})


class TestJournalFeed:
    async def test_a_follower_continues_after_its_last_id(self) -> None:
        journal = Journal(lambda: 7)
        feed = JournalFeed(journal, 5)
        for number in range(3):
            journal.record(EntryKind.CONTROLLER, after=str(number))
        events = feed.events("5-1")
        first, second = (await anext(events)).removesuffix("\n\n").split("\n\n")
        assert first.startswith("id: 5-2\nevent: entry\ndata: {")
        assert json.loads(first.split("data: ")[1])["to"] == "1"
        assert second.startswith("id: 5-3\n")
        journal.record(EntryKind.CONTROLLER, after="live")
        assert '"live"' in await anext(events)
        assert feed.statistics()["followers"] == 1
        await events.aclose()
        assert feed.statistics()["followers"] == 0

    async def test_catching_up_does_not_hold_up_the_loop(self) -> None:
        journal = Journal(lambda: 7)
        feed = JournalFeed(journal, 5)
        for number in range(10 * TOGETHER):
            journal.record(EntryKind.CONTROLLER, after=str(number))
        turns = [0]

        def turn() -> None:
            turns[0] += 1
            asyncio.get_running_loop().call_soon(turn)

        turn()
        events, sent = feed.events("5-1"), 0
        while sent < 10 * TOGETHER - 1:
            chunk = await anext(events)
            sent += chunk.count("event: entry")
            assert chunk.count("event: entry") <= TOGETHER
        assert turns[0] >= 9, "the loop served others in between"
        follower = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        for _ in range(2 * TOGETHER):
            journal.record(EntryKind.CONTROLLER)
        assert (await follower).count("event: entry") == TOGETHER
        turns[0] = 0
        assert (await anext(events)).count("event: entry") == TOGETHER
        assert turns[0] >= 1
        await events.aclose()

    async def test_an_id_of_another_run_is_reset(self) -> None:
        journal = Journal(lambda: 7)
        feed = JournalFeed(journal, 5)
        journal.record(EntryKind.CONTROLLER)
        for last_id in ("4-1", "nonsense", "5-99", "5-", "5-" + "9" * 5_000):
            events = feed.events(last_id)
            assert await anext(events) == "event: reset\ndata: 1\n\n"
            assert (await anext(events)).startswith("id: 5-1\n")
            await events.aclose()

    async def test_what_has_left_the_memory_is_a_gap(self) -> None:
        journal = Journal(lambda: 7, entries_max=2)
        feed = JournalFeed(journal, 5)
        for _ in range(10):
            journal.record(EntryKind.CONTROLLER)
        events = feed.events("5-3")
        assert await anext(events) == "event: gap\ndata: 5\n\n"
        assert (await anext(events)).startswith("id: 5-9\n")
        await events.aclose()

    async def test_a_slow_follower_gets_a_gap_and_costs_its_queue(self) -> None:
        journal = Journal(lambda: 7)
        feed = JournalFeed(journal, 5)
        events = feed.events("")
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        for _ in range(QUEUE_MAX + 50):
            journal.record(EntryKind.CONTROLLER)
        assert await waiting == "event: gap\ndata: 50\n\n"
        assert (await anext(events)).startswith("id: 5-51\n")
        await events.aclose()
