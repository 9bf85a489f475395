"""Fetch: bounds, limits, waiting, sessions, the nearest replica.

docs/spec/controller-and-replication.md section 5.5.
"""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.replica.conftest import CONFIG, Node, Simulation, World

from odradek.log.config import LogConfig
from odradek.replica.leader.fetch_state import FetchParams, FetchSet, NamedById
from odradek.wire.batch import scan
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.fetch import PartitionData
from odradek.wire.schema import size_bytes
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
NOBODY = TopicPartition("nobody", 0)
Fetched = list[tuple[TopicPartition | NamedById, PartitionData]]


def asking(offsets: dict[TopicPartition, int], **options: Any) -> FetchSet:
    fetch_set = FetchSet(options.pop("replica_id", -1), is_session=options.pop("session", False))
    for of, offset in offsets.items():
        fetch_set.put(of, offset, options.pop("max_bytes", 1 << 20), **options)
    return fetch_set


def at_once(answers: Fetched | asyncio.Future[Fetched]) -> Fetched:
    assert isinstance(answers, list), "the fetch waits"
    return answers


def offsets_in(data: Any) -> list[int]:
    return [header.base_offset for header in scan(data.records)]


async def alone(world: World, *partitions: TopicPartition) -> Node:
    (leader,) = await world.start(1)
    for of in partitions or (T0,):
        await world.elect(1, [1], [1], of=of)
    return leader


def fetch(node: Node, offsets: dict[TopicPartition, int], **params: Any) -> Any:
    names = {
        "leader_epoch": "leader_epoch",
        "last_fetched_epoch": "last_fetched_epoch",
        "max_bytes_each": "max_bytes",
    }
    options = {name: params.pop(key) for key, name in names.items() if key in params}
    return node.serve_fetch(FetchParams(**params), asking(offsets, **options))


class TestBounds:
    def test_consumers_see_the_high_watermark_followers_the_end(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (leader,) = await world.start(1)
            await world.elect(1, [1, 2], [1, 2])
            leader.append(b"a")
            ((_, consumer),) = fetch(leader, {T0: 0})
            assert (consumer.error_code, consumer.high_watermark) == (0, 0)
            assert offsets_in(consumer) == []
            follower = asking({T0: 0}, replica_id=2, leader_epoch=0)
            ((_, data),) = leader.serve_fetch(FetchParams(replica_id=2), follower)
            assert offsets_in(data) == [0]
            debugger = asking({T0: 0})
            ((_, data),) = leader.serve_fetch(FetchParams(replica_id=-2), debugger)
            assert offsets_in(data) == [0]

        simulate(story)

    @pytest.mark.parametrize(
        ("offset", "error"),
        [
            (0, ErrorCode.OFFSET_OUT_OF_RANGE),
            (1, ErrorCode.NONE),
            (3, ErrorCode.NONE),
            (4, ErrorCode.OFFSET_OUT_OF_RANGE),
        ],
    )
    def test_only_offsets_of_the_log(
        self, simulate: Simulation, offset: int, error: ErrorCode
    ) -> None:
        async def story(world: World) -> None:
            leader = await alone(world)
            for number in range(3):
                leader.append(b"%d" % number)
            leader.role().delete_records(1)
            ((_, data),) = fetch(leader, {T0: offset})
            assert data.error_code == error

        simulate(story)

    def test_who_is_asked_must_lead_and_agree_on_the_epoch(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            first, second = await world.start(1, 2)
            await world.elect(1, [1, 2], [1, 2])
            await world.elect(1, [1, 2])
            for epoch, error in (
                (-1, ErrorCode.NONE),
                (0, ErrorCode.FENCED_LEADER_EPOCH),
                (1, ErrorCode.NONE),
                (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
            ):
                ((_, data),) = fetch(first, {T0: 0}, leader_epoch=epoch)
                assert data.error_code == error
            ((_, data),) = fetch(second, {T0: 0})
            assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            ((_, data),) = fetch(second, {T0: 0}, may_read_follower=True)
            assert data.error_code == ErrorCode.NONE
            ((_, data),) = fetch(second, {NOBODY: 0})
            assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        simulate(story)

    @pytest.mark.parametrize(
        ("epoch", "error"),
        [(0, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)],
    )
    def test_a_stranger_is_no_follower(
        self, simulate: Simulation, epoch: int, error: ErrorCode
    ) -> None:
        async def story(world: World) -> None:
            leader = await alone(world)
            fetch_set = asking({T0: 0}, replica_id=7, leader_epoch=epoch)
            ((_, data),) = at_once(leader.serve_fetch(FetchParams(replica_id=7), fetch_set))
            assert data.error_code == error

        simulate(story)

    def test_divergence_is_reported_and_changes_nothing(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (leader,) = await world.start(1)
            await world.elect(1, [1, 2], [1, 2])
            leader.append(b"a")
            await world.elect(1, [1, 2])
            leader.append(b"b", b"c")
            fetch_set = asking({T0: 3}, replica_id=2, leader_epoch=1, last_fetched_epoch=0)
            params = FetchParams(replica_id=2, max_wait_ms=1000)
            ((_, data),) = at_once(leader.serve_fetch(params, fetch_set))
            diverging = data.diverging_epoch
            assert diverging is not None and (diverging.epoch, diverging.end_offset) == (0, 1)
            assert leader.role().followers[2].log_end == -1
            fetch_set = asking({T0: 1}, replica_id=2, leader_epoch=1, last_fetched_epoch=0)
            ((_, data),) = at_once(leader.serve_fetch(params, fetch_set))
            assert data.diverging_epoch is None
            assert offsets_in(data) == [1]
            assert leader.role().followers[2].log_end == 1
            fetch_set = asking({T0: 1}, replica_id=2, leader_epoch=1, last_fetched_epoch=7)
            ((_, data),) = at_once(leader.serve_fetch(params, fetch_set))
            assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

        simulate(story)


class TestLimits:
    def test_the_first_batch_comes_whole_the_second_only_if_it_fits(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            leader = await alone(world, T0, T1)
            leader.append(b"x" * 1000)
            leader.append(b"y" * 1000, of=T1)
            answers = dict(fetch(leader, {T0: 0, T1: 0}, max_bytes=100))
            assert offsets_in(answers[T0]) == [0]
            assert not answers[T1].records
            answers = dict(fetch(leader, {T0: 0, T1: 0}, max_bytes=100, hard_limit=True))
            assert offsets_in(answers[T0]) == []
            answers = dict(fetch(leader, {T0: 0, T1: 0}, max_bytes=1 << 20))
            assert offsets_in(answers[T0]) == offsets_in(answers[T1]) == [0]

        simulate(story)

    def test_in_a_session_no_partition_starves(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader = await alone(world, T0, T1)
            fetch_set = asking({T0: 0, T1: 0}, session=True)
            leader.serve_fetch(FetchParams(), fetch_set)
            seen = []
            for number in range(6):
                leader.append(b"x" * 100, of=T0)
                leader.append(b"y" * 100, of=T1)
                found = at_once(leader.serve_fetch(FetchParams(max_bytes=50), fetch_set))
                for of, data in found:
                    if data.records:
                        assert isinstance(of, TopicPartition)
                        seen.append(of)
                        fetch_set.put(of, offsets_in(data)[-1] + 1, 1 << 20)
                assert len(seen) == number + 1
            assert seen.count(T0) == seen.count(T1) == 3

        simulate(story)


class TestWaiting:
    def test_what_it_finds_it_answers_at_once(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader = await alone(world)
            leader.append(b"a")
            assert isinstance(fetch(leader, {T0: 0}, max_wait_ms=500), list)

        simulate(story)

    @pytest.mark.parametrize("offsets", [{}, {NOBODY: 0}, {T0: 99}])
    def test_nothing_or_an_error_does_not_wait(
        self, simulate: Simulation, offsets: dict[TopicPartition, int]
    ) -> None:
        async def story(world: World) -> None:
            leader = await alone(world)
            assert isinstance(fetch(leader, offsets, max_wait_ms=500), list)

        simulate(story)

    def test_it_wakes_with_the_append_in_the_same_step(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader = await alone(world)
            waiting = fetch(leader, {T0: 0}, max_wait_ms=500)
            assert isinstance(waiting, asyncio.Future)
            leader.append(b"a")
            assert waiting.done()
            ((_, data),) = waiting.result()
            assert offsets_in(data) == [0]
            assert leader.partition().replica.watchers.items == {}
            assert leader.replicas.statistics()["waiting"] == 0

        simulate(story)

    def test_it_expires_empty_handed(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader = await alone(world)
            before = leader.replicas.now()
            ((_, data),) = await fetch(leader, {T0: 0}, max_wait_ms=500)
            assert 0.5 <= leader.replicas.now() - before < 0.53
            assert (data.error_code, bytes(data.records)) == (0, b"")

        simulate(story)

    def test_it_waits_for_enough_bytes_over_all_partitions(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader = await alone(world, T0, T1)
            leader.append(b"x" * 300)
            waiting = fetch(leader, {T0: 0, T1: 0}, max_wait_ms=500, min_bytes=1000)
            assert isinstance(waiting, asyncio.Future)
            leader.append(b"x" * 300, of=T1)
            assert not waiting.done()
            leader.append(b"x" * 300, of=T1)
            assert waiting.done()
            assert sum(len(data.records) for _, data in waiting.result()) >= 1000

        simulate(story)

    def test_a_consumer_wakes_with_the_high_watermark_not_before(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            leader, follower = await world.start(1, 2)
            await world.elect(1, [1, 2], [1, 2])
            await leader.produce(b"a")
            waiting = fetch(leader, {T0: 1}, max_wait_ms=5000)
            produced = leader.append(b"b", acks=-1)
            assert not waiting.done()
            await produced
            assert waiting.done()
            await world.until(lambda: follower.log().high_watermark == 1)
            remote = fetch(follower, {T0: 1}, max_wait_ms=5000, may_read_follower=True)
            ((_, data),) = await remote
            assert offsets_in(data) == [1]

        simulate(story)

    def test_one_append_to_many_partitions_is_answered_with_all(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader = await alone(world, T0, T1)
            waiting = fetch(leader, {T0: 0, T1: 0}, max_wait_ms=500)
            leader.serve_append(1, 0, {T0: world.batch(b"a"), T1: world.batch(b"b")})
            assert [offsets_in(data) for _, data in waiting.result()] == [[0], [0]]

        simulate(story)

    @pytest.mark.parametrize("end", ["deposed", "stopped", "deleted"])
    def test_it_ends_when_the_partition_does(self, simulate: Simulation, end: str) -> None:
        async def story(world: World) -> None:
            leader, _ = await world.start(1, 2)
            await world.elect(1, [1, 2], [1, 2])
            waiting = fetch(leader, {T0: 0}, max_wait_ms=5000, leader_epoch=0)
            if end == "deposed":
                await world.elect(2, [1, 2])
                expected = ErrorCode.FENCED_LEADER_EPOCH
            else:
                world.stop(leader, delete=end == "deleted")
                expected = ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert waiting.done()
            ((_, data),) = waiting.result()
            assert data.error_code == expected

        simulate(story)

    def test_a_follower_that_disconnected_is_removed(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader = await alone(world)
            waiting = fetch(leader, {T0: 0}, max_wait_ms=500)
            waiting.cancel()
            leader.append(b"a")
            assert leader.partition().replica.watchers.items == {}
            assert leader.replicas.statistics()["waiting"] == 0

        simulate(story)


class TestSessions:
    def test_only_new_data_is_returned(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader = await alone(world, T0, T1)
            fetch_set = asking({T0: 0, T1: 0}, session=True)
            answers = leader.serve_fetch(FetchParams(), fetch_set)
            assert [of for of, _ in answers] == [T0, T1]
            assert leader.serve_fetch(FetchParams(), fetch_set) == []
            leader.append(b"a", of=T1)
            ((of, data),) = leader.serve_fetch(FetchParams(), fetch_set)
            assert (of, offsets_in(data)) == (T1, [0])
            # Not taken, so offered again.
            ((of, data),) = leader.serve_fetch(FetchParams(), fetch_set)
            assert (of, offsets_in(data)) == (T1, [0])
            fetch_set.put(T1, 1, 1 << 20)
            assert leader.serve_fetch(FetchParams(), fetch_set) == []
            leader.role(T1).delete_records(1)
            ((of, data),) = at_once(leader.serve_fetch(FetchParams(), fetch_set))
            assert (of, data.log_start_offset) == (T1, 1)

        simulate(story)

    def test_an_idle_one_reads_nothing(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            partitions = [TopicPartition("t", index) for index in range(50)]
            leader = await alone(world, *partitions)
            fetch_set = asking(dict.fromkeys(partitions, 0), session=True)
            leader.serve_fetch(FetchParams(), fetch_set)
            assert fetch_set.dirty == {}
            waiting = leader.serve_fetch(FetchParams(max_wait_ms=500), fetch_set)
            leader.append(b"a", of=partitions[7])
            assert isinstance(waiting, asyncio.Future)
            ((of, _),) = waiting.result()
            assert of == partitions[7]
            fetch_set.remove(partitions[8])
            assert len(leader.partition(partitions[8]).replica.watchers) == 0
            fetch_set.close()
            assert not any(leader.partition(of).replica.watchers.items for of in partitions)

        simulate(story)

    def test_a_partition_that_moved_is_returned_each_time(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader, _ = await world.start(1, 2)
            await world.elect(1, [1, 2], [1, 2])
            fetch_set = asking({T0: 0}, session=True)
            leader.serve_fetch(FetchParams(), fetch_set)
            waiting = leader.serve_fetch(FetchParams(max_wait_ms=500), fetch_set)
            await world.elect(2, [1, 2])
            assert isinstance(waiting, asyncio.Future)
            again = leader.serve_fetch(FetchParams(max_wait_ms=500), fetch_set)
            for answers in await waiting, at_once(again):
                ((_, data),) = answers
                assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

        simulate(story)

    @pytest.mark.parametrize("session", [False, True])
    def test_a_consumer_of_any_replica_learns_that_none_is_here_any_more(
        self, simulate: Simulation, session: bool
    ) -> None:
        async def story(world: World) -> None:
            away, _, _ = await world.start(1, 2, 3)
            await world.elect(1, [1, 2], [1, 2])
            await away.produce(b"a")
            params = FetchParams(max_wait_ms=500, may_read_follower=True)
            fetch_set = asking({T0: 0}, session=session)
            ((_, data),) = at_once(away.serve_fetch(params, fetch_set))
            assert offsets_in(data) == [0]
            fetch_set.put(T0, 1, 1 << 20, leader_epoch=0)
            waiting = away.serve_fetch(params, fetch_set)
            await world.elect(2, [2], [2, 3], without=[1])
            world.update_metadata()
            assert isinstance(waiting, asyncio.Future)
            for answers in await waiting, at_once(away.serve_fetch(params, fetch_set)):
                ((_, data),) = answers
                assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            # Once it is here again, it is read again.
            await world.elect(2, [2, 1], [2, 1], without=[3])
            fetch_set.put(T0, 0, 1 << 20, leader_epoch=2)
            ((_, data),) = at_once(away.serve_fetch(params, fetch_set))
            assert offsets_in(data) == [0]

        simulate(story)


class TestNearestReplica:
    CONFIG = replace(CONFIG, rack_aware_replica_selector=True)

    def test_a_consumer_is_sent_to_its_rack(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            world.racks = {1: "a", 2: "b", 3: "b"}
            leader, second, _ = await world.start(1, 2, 3)
            await world.elect(1, [1, 2, 3], [1, 2, 3])
            await leader.produce(b"a")
            params = FetchParams(may_read_follower=True, rack_id="b", max_wait_ms=500)
            ((_, data),) = at_once(leader.serve_fetch(params, asking({T0: 0})))
            assert data.preferred_read_replica in (2, 3)
            assert not data.records
            for rack in ("a", "c", ""):
                params = FetchParams(may_read_follower=True, rack_id=rack)
                ((_, data),) = at_once(leader.serve_fetch(params, asking({T0: 0})))
                assert data.preferred_read_replica == -1
                assert offsets_in(data) == [0]
            await world.until(lambda: second.log().high_watermark == 1)
            params = FetchParams(may_read_follower=True, rack_id="b")
            ((_, data),) = at_once(second.serve_fetch(params, asking({T0: 0})))
            assert (data.preferred_read_replica, offsets_in(data)) == (-1, [0])

        simulate(story, config=self.CONFIG)

    def test_not_to_one_that_is_out_of_sync_or_does_not_have_it(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            world.racks = {1: "a", 2: "b"}
            leader, _ = await world.start(1, 2)
            await world.elect(1, [1], [1, 2])
            leader.append(b"a")
            params = FetchParams(may_read_follower=True, rack_id="b")
            ((_, data),) = at_once(leader.serve_fetch(params, asking({T0: 0})))
            assert data.preferred_read_replica == -1

        simulate(story, config=self.CONFIG)


class TestThrottles:
    CONFIG = LogConfig(leader_replication_throttled_replicas=frozenset({"0:1"}))

    @pytest.mark.parametrize(("isr", "expected"), [([1], 0), ([1, 2], 1)])
    def test_a_leader_over_its_quota_holds_back_who_is_out_of_sync(
        self, simulate: Simulation, isr: list[int], expected: int
    ) -> None:
        async def story(world: World) -> None:
            (leader,) = await world.start(1)
            await world.elect(1, isr, [1, 2])
            leader.append(b"x" * 100)
            leader.replicas.leader_quota.bytes_per_second = 10
            leader.replicas.leader_quota.record(1000)
            fetch_set = asking({T0: 0}, replica_id=2, leader_epoch=0, session=True)
            params = FetchParams(replica_id=2)
            ((_, data),) = at_once(leader.serve_fetch(params, fetch_set))
            assert len(offsets_in(data)) == expected
            leader.replicas.leader_quota.bytes_per_second = 1 << 40
            ((_, data),) = at_once(leader.serve_fetch(params, fetch_set))
            assert len(offsets_in(data)) == 1

        simulate(story, log_config=self.CONFIG)

    def test_only_whole_batches_are_counted_against_a_quota(self, simulate: Simulation) -> None:
        """Others get what fits; a follower throws a part of a batch away, and asks for it again."""

        async def story(world: World) -> None:
            (leader,) = await world.start(1)
            await world.elect(1, [1], [1, 2])
            for _ in range(3):
                leader.append(b"x" * 1_000)
            quota = leader.replicas.leader_quota
            quota.bytes_per_second = 1_000_000
            fetch_set = asking({T0: 0}, replica_id=2, leader_epoch=0, max_bytes=2_500)
            ((_, data),) = at_once(leader.serve_fetch(FetchParams(replica_id=2), fetch_set))
            assert offsets_in(data) == [0, 1]
            assert data.records is not None
            assert size_bytes(data.records) == 2 * leader.log().size_bytes // 3
            assert quota.rate() == size_bytes(data.records)

        simulate(story, log_config=self.CONFIG)

    def test_a_throttled_fetch_is_answered_when_the_quota_allows_it(
        self, simulate: Simulation
    ) -> None:
        """And not at the end of the wait for news, of which there is none."""

        async def story(world: World) -> None:
            (leader,) = await world.start(1)
            await world.elect(1, [1], [1, 2])
            leader.append(b"x" * 1_000)
            quota = leader.replicas.leader_quota
            quota.bytes_per_second = 10_000
            quota.record(20_000)
            begun = leader.replicas.now()
            fetch_set = asking({T0: 0}, replica_id=2, leader_epoch=0)
            params = FetchParams(replica_id=2, max_wait_ms=30_000)
            waiting = leader.serve_fetch(params, fetch_set)
            assert isinstance(waiting, asyncio.Future)
            ((_, data),) = await waiting
            assert offsets_in(data) == [0]
            assert 2.0 <= leader.replicas.now() - begun < 2.1

        simulate(story, log_config=self.CONFIG)

    def test_a_follower_over_its_quota_does_not_ask(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader, follower = await world.start(1, 2)
            quota = follower.replicas.follower_quota
            quota.bytes_per_second = 10_000
            await world.elect(1, [1], [1, 2])
            for _ in range(40):
                leader.append(b"x" * 5_000)
            begun = leader.replicas.now()
            await world.until(lambda: follower.log().end_offset == 40, 120)
            # Whatever was taken in the first burst, the rest waited until it was paid back.
            taken = leader.replicas.now() - begun
            assert taken > 5
            assert follower.contents() == leader.contents()

        config = LogConfig(follower_replication_throttled_replicas=frozenset({"0:2"}))
        small = replace(CONFIG, replica_fetch_max_bytes=20_000)
        simulate(story, config=small, log_config=config)


class TestInMemory:
    """What was appended a moment ago is answered from the producer's own buffer."""

    @pytest.mark.parametrize("compression", ["producer", "gzip"])
    def test_what_it_gets_is_what_is_on_disk(self, simulate: Simulation, compression: str) -> None:
        async def story(world: World) -> None:
            leader = await alone(world)
            leader.append(b"before")
            waiting = fetch(leader, {T0: 1}, max_wait_ms=500)
            leader.append(b"x" * 1000, b"y" * 1000)
            ((_, data),) = waiting.result()
            assert bytes(data.records) == leader.log().read(1, 1 << 20).records
            assert isinstance(data.records, memoryview) is (compression == "producer")

        simulate(story, log_config=LogConfig(compression_type=compression))

    def test_who_comes_late_shares_the_buffers_with_who_waited(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader = await alone(world)
            session = asking({T0: 0}, session=True)
            waiting = leader.serve_fetch(FetchParams(max_wait_ms=500), session)
            for letter in (b"a", b"b"):
                leader.append(letter * 5_000)
            assert isinstance(waiting, asyncio.Future)
            ((_, first),) = waiting.result()
            assert isinstance(first.records, memoryview)
            ((_, one),) = fetch(leader, {T0: 0})
            ((_, other),) = fetch(leader, {T0: 0})
            assert one.records[0].obj is first.records.obj
            assert one.records[1].obj is other.records[1].obj
            assert b"".join(one.records) == leader.log().read(0, 1 << 20).records

        simulate(story)

    def test_a_deposed_leader_forgets_what_it_truncates(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            first, second = await world.start(1, 2)
            await world.elect(1, [1, 2], [1, 2])
            first.append(b"kept" * 2_000)
            await world.until(lambda: second.log().end_offset == 1)
            second.replicas.fetchers.remove([T0])
            fetch(first, {T0: 1}, max_wait_ms=60_000)
            first.append(b"lost" * 2_000)
            assert first.log().tail.read(1, 2, 1 << 20, min_one_batch=True)
            await world.elect(2, [2], [2, 1])
            second.append(b"else" * 2_000)
            await world.until(lambda: first.contents() == second.contents())
            assert not first.log().tail.read(1, 2, 1 << 20, min_one_batch=True)
            await world.elect(1, [1, 2], [2, 1])
            ((_, data),) = fetch(first, {T0: 1})
            assert bytes(data.records) == second.log().read(1, 1 << 20).records

        simulate(story)

    def test_limits_hold(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader = await alone(world, T0, T1)
            waiting = fetch(leader, {T0: 0, T1: 0}, max_wait_ms=500, max_bytes=100)
            leader.serve_append(1, 0, {T0: world.batch(b"a" * 500), T1: world.batch(b"b" * 500)})
            sizes = [len(data.records) for _, data in waiting.result()]
            assert sizes[0] > 500
            assert sizes[1] == 0

        simulate(story)
