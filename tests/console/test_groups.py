"""How far groups are behind."""

import gc
import random
import time
from array import array

from tests.broker.clusters import Cluster, until
from tests.console.consoles import Browser

from odradek.client import Producer
from odradek.console.console import Console
from odradek.console.group_lags import GroupLag
from odradek.console.partition_offsets import PartitionOffsets
from odradek.wire.topics import TopicPartition

TOPIC = "orders"
RECORDS, STEP_S = 60, 10


def test_time_left_is_lag_over_the_rate_at_which_it_shrinks() -> None:
    """CONSOLE acceptance 22: at a steady rate."""
    tp = TopicPartition(TOPIC, 0)
    commits, ends = PartitionOffsets([(tp, 400)]), PartitionOffsets([(tp, 1_000)])
    group = GroupLag("billing", commits=commits, ends=ends, read_s=20.0)
    assert group.left_s() is None, "one look is no rate"
    group.history.extend([(0.0, 800), (10.0, 700), (20.0, 600)])
    assert group.slope() == -10.0
    assert group.left_s() == 60.0
    group.history.extend([(30.0, 900)])
    assert group.left_s() is None, "never, at this rate"


def test_offsets_in_columns_are_a_mapping() -> None:
    items = {TopicPartition("a", 3): 7, TopicPartition("a", 0): 0, TopicPartition("b", 1): 5}
    offsets = PartitionOffsets(items.items())
    assert dict(offsets) == items and len(offsets) == 3 and set(offsets.topics) == {"a", "b"}
    for absent in (("a", 1), ("a", 9), ("c", 0), ("a", -1)):
        assert TopicPartition(*absent) not in offsets
    none = PartitionOffsets([(TopicPartition("a", 2**31 - 1), 1), (TopicPartition("a", 0), -1)])
    assert dict(none) == {}, "neither a partition that cannot be, nor an offset that is none"


def test_the_garbage_collector_has_nothing_to_look_at_in_columns() -> None:
    """Of thousands of groups it would hold up the loop."""
    offsets = PartitionOffsets((TopicPartition(f"t{n}", p), n) for n in range(20) for p in range(5))
    assert [each for each in gc.get_referents(offsets) if gc.is_tracked(each)] == [PartitionOffsets]


def test_columns_that_were_collected_are_the_same_as_items() -> None:
    columns = {"a": array("q", [5, -1, 7]), "b": array("q", [0])}
    items = {TopicPartition("a", 0): 5, TopicPartition("a", 2): 7, TopicPartition("b", 0): 0}
    assert dict(PartitionOffsets.of_columns(columns)) == items
    assert len(PartitionOffsets.of_columns(columns)) == 3


def test_the_sum_and_the_slowest_partition_are_those_of_the_lags() -> None:
    chance = random.Random(7)

    def offsets() -> PartitionOffsets:
        every = (TopicPartition(topic, p) for topic in "abc" for p in range(6))
        return PartitionOffsets(
            (tp, chance.randrange(100)) for tp in every if chance.random() < 0.8
        )

    for _ in range(50):
        group = GroupLag("billing", commits=offsets(), ends=offsets(), read_s=1.0)
        lags = group.lags()
        assert group.lag == sum(lags.values())
        tp, share = group.slowest() or (None, 0.0)
        assert tp is not None and lags[tp] == max(lags.values())
        assert share == lags[tp] / sum(lags.values())
        group.commits = group.ends
        assert (group.lag, group.slowest()) == (0, None), "what was committed since counts"


async def test_lag_in_time_is_the_age_of_the_first_record_that_was_not_read(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    """CONSOLE acceptance 5 and 22: within 2 s of the truth, for groups that stopped at different
    moments on the same partitions; and a group at rest has no slope."""
    console, browser = seen
    await brokers.create_topic(TOPIC, partitions=2)
    await until(lambda: console.collector.table.leader(TOPIC, 1) >= 0)
    began_ms = time.time_ns() // 1_000_000 - RECORDS * STEP_S * 1000
    async with Producer(console.link.client) as producer:
        for number in range(RECORDS):
            stamp = began_ms + number * STEP_S * 1000
            await producer.send(TOPIC, b"x", partition=number % 2, timestamp_ms=stamp)
    stopped = {"billing": 10, "fraud": 25}
    for group, offset in stopped.items():
        commits = {TopicPartition(TOPIC, p): offset for p in range(2)}
        await console.link.api.groups.alter_offsets(group, commits)
    await console.group_lags.read_list()
    for _ in range(3):
        await console.group_lags.read(list(stopped))
    for group, offset in stopped.items():
        shown = await browser.get("/group", id=group)
        assert shown["lag"] == RECORDS - 2 * offset
        unread_ms = began_ms + 2 * offset * STEP_S * 1000
        truth_s = (time.time_ns() // 1_000_000 - unread_ms) / 1000
        assert abs(shown["lag_s"] - truth_s) < 2, group
        assert shown["kind"] == "simple"
        assert (shown["slope_per_s"] or 0.0) == 0.0
    rows = (await browser.get("/groups", topic=TOPIC, sort="-lag"))["items"]
    assert [row["id"] for row in rows] == ["billing", "fraud"]
