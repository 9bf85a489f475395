"""Running counts agree with a walk over all partitions, and counters of topics never fall."""

from dataclasses import replace

from tests.replica.conftest import Node, Simulation, World

from odradek.replica.leader.partition_counts import walk_counts
from odradek.replica.traffic import OTHER, Traffic
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)


def agree(node: Node) -> dict[str, int]:
    replicas = node.replicas
    found: dict[str, int] = replicas.counts.statistics()
    assert found == walk_counts(replicas.partitions.led()).statistics()
    return found


def test_counts_follow_elections_and_the_isr(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        (first,) = await world.start(1)
        assert agree(first)["leaders"] == 0
        await world.elect(1, [1], [1, 2, 3])
        assert agree(first) == {
            "at_min_isr": 1,
            "leaders": 1,
            "reassigning": 0,
            "under_min_isr": 0,
            "under_replicated": 1,
        }
        second, third = await world.start(2, 3)
        await world.elect(1, [1], [1, 2, 3])
        await world.until(lambda: first.replicas.counts.under_replicated == 0)
        assert agree(first)["at_min_isr"] == 0
        await world.elect(2, [1, 2, 3], [1, 2, 3])
        assert agree(first)["leaders"] == 0
        assert agree(second)["leaders"] == 1
        assert agree(third)["leaders"] == 0

    simulate(story)


def test_min_insync_replicas_may_change_while_a_partition_is_led(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        (first,) = await world.start(1)
        await world.elect(1, [1], [1, 2])
        assert (agree(first)["under_min_isr"], agree(first)["at_min_isr"]) == (0, 1)
        log = first.log()
        log.config = replace(log.config, min_insync_replicas=2)
        first.replicas.min_isr_changed()
        assert (agree(first)["under_min_isr"], agree(first)["at_min_isr"]) == (1, 0)

    simulate(story)


def test_what_clients_write_is_counted_apart_from_replication(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        first, second = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await first.produce(b"one")
        await first.produce(b"two")
        counted = first.replicas.traffic.of("t")
        assert (counted.records_in, counted.produces) == (2, 2)
        assert counted.bytes_in == len(first.contents())
        assert second.replicas.traffic.replication_bytes_in == counted.bytes_in
        assert second.replicas.traffic.total("bytes_in") == 0
        failed = second.append(b"three")[T0]
        assert failed.error != 0
        assert second.replicas.traffic.total("failed_produces") == 1
        assert second.replicas.traffic.total("bytes_rejected") > 0
        assert dict(second.replicas.traffic.topics()) == {}, "a failure makes no series"

    simulate(story)


class TestTraffic:
    def test_topics_beyond_the_limit_share_one(self) -> None:
        traffic = Traffic(topics_max=2)
        traffic.of("a").bytes_in += 1
        traffic.of("b").bytes_in += 2
        traffic.of("c").bytes_in += 4
        traffic.of("d").bytes_in += 8
        traffic.of("a").bytes_in += 16
        assert {name: each.bytes_in for name, each in traffic.topics()} == {
            "a": 17,
            "b": 2,
            OTHER: 12,
        }
        assert traffic.total("bytes_in") == 31

    def test_failures_of_unknown_topics_are_in_the_sum_alone(self) -> None:
        traffic = Traffic()
        for number in range(10):
            traffic.fetch_failed(f"unknown-{number}")
        assert list(traffic.topics()) == []
        assert traffic.total("failed_fetches") == traffic.total("fetches") == 10
