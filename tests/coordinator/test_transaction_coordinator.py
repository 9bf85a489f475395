"""The transaction coordinator: its log, its markers, failovers and time."""

import asyncio

import pytest
from tests.coordinator.transactions_world import TIMEOUT, A, B, World, error_of

from odradek.coordinator.state_topic import partition_for
from odradek.coordinator.transaction import EPOCH_EXHAUSTED, TransactionChange
from odradek.coordinator.transaction_states import TransactionState
from odradek.coordinator.transaction_storage import decode_value, encode_value
from odradek.wire.errors import DecodeError, ErrorCode, KafkaError
from odradek.wire.records import Record, encode_batch
from odradek.wire.topics import TopicPartition

S = TransactionState
E = ErrorCode


class TestRecords:
    def test_bytes_are_those_of_apache_kafka(self) -> None:
        orders = frozenset({TopicPartition("orders", 0), TopicPartition("orders", 3)})
        ongoing = TransactionChange(
            S.ONGOING, 1000, 2, 60_000, orders, 1700000000500, 1700000000000
        )
        assert encode_value(ongoing).hex() == (
            "0000"
            "00000000000003e8"
            "0002"
            "0000ea60"
            "01"
            "00000001"
            "00066f7264657273"
            "00000002"
            "00000000"
            "00000003"
            "0000018bcfe569f4"
            "0000018bcfe56800"
        )
        empty = TransactionChange(S.EMPTY, 1000, 2, 60_000, frozenset(), 1700000000500, -1)
        assert encode_value(empty).hex().endswith("00ffffffff0000018bcfe569f4ffffffffffffffff")
        read = decode_value("id", encode_value(ongoing))
        assert (read.state, read.partitions, read.epoch) == (S.ONGOING, orders, 2)

    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (b"\0\2", "unknown version 2"),
            (bytes.fromhex("0000" + "00" * 14 + "09" + "ffffffff" + "00" * 16), "unknown status 9"),
            (bytes.fromhex("0000" + "00" * 14 + "06" + "ffffffff" + "00" * 16), "never written"),
            (bytes.fromhex("0000" + "00" * 14 + "01" + "ffffffff" + "00" * 16), "without part"),
        ],
    )
    def test_what_cannot_be_read_is_refused(self, data: bytes, why: str) -> None:
        with pytest.raises(DecodeError, match=why):
            decode_value("id", data)

    @pytest.mark.parametrize(
        ("id", "partition"),
        [
            ("my-txn", 45),
            ("transactional-producer", 8),
            ("foobar", 13),
            ("barfoo", 13),
            ("one", 32),
        ],
    )
    def test_ids_have_the_partitions_that_kafka_gives_them(self, id: str, partition: int) -> None:
        assert partition_for(id, 50) == partition


def state_of(world: World) -> TransactionState:
    return world.transaction.state


def test_each_producer_of_an_id_has_an_epoch_of_its_own() -> None:
    async def story(world: World) -> None:
        assert await world.init() == (1000, 0)
        assert await world.init() == (1000, 1)
        assert await world.init("other") == (1001, 0)
        assert await error_of(world.transactions.add_partitions("id", 1000, 0, [A])) == (
            E.PRODUCER_FENCED
        )
        assert await error_of(world.transactions.end("id", 1, 1, True)) == (
            E.INVALID_PRODUCER_ID_MAPPING
        )

    World().run(story)


def test_two_at_once_never_get_the_same_epoch() -> None:
    async def story(world: World) -> None:
        world.log.held = []
        first, second = (asyncio.ensure_future(world.init()) for _ in range(2))
        await asyncio.sleep(0.01)
        world.log.release()
        assert await first == (1000, 0)
        with pytest.raises(KafkaError) as refused:
            await second
        assert refused.value.error is E.CONCURRENT_TRANSACTIONS

    World().run(story)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_must_be_acceptable(timeout_ms: int) -> None:
    async def story(world: World) -> None:
        asked = world.transactions.init_producer_id("id", timeout_ms)
        assert await error_of(asked) == E.INVALID_TRANSACTION_TIMEOUT
        assert world.log.batches == []

    World().run(story)


def test_the_repeat_of_a_lost_answer_gets_the_same_epoch_until_a_failover() -> None:
    async def story(world: World) -> None:
        await world.init()
        assert await world.init(producer_id=1000, epoch=0) == (1000, 1)
        assert await world.init(producer_id=1000, epoch=0) == (1000, 1)
        await world.fail_over(4)
        assert await error_of(world.init(producer_id=1000, epoch=0)) == E.PRODUCER_FENCED

    World().run(story)


def test_the_last_epoch_is_for_the_fence_and_no_client_has_it() -> None:
    async def story(world: World) -> None:
        await world.init()
        world.transaction.epoch = EPOCH_EXHAUSTED - 1
        assert await world.begin() == (1000, EPOCH_EXHAUSTED)
        assert await error_of(world.init()) == E.CONCURRENT_TRANSACTIONS
        await asyncio.sleep(0.01)
        assert world.leaders.received == [(1000, EPOCH_EXHAUSTED + 1, False, 3, [A, B])]
        assert await world.init() == (1001, 0)
        world.transaction.epoch = EPOCH_EXHAUSTED
        assert await world.init(producer_id=1001, epoch=EPOCH_EXHAUSTED) == (1002, 0)

    World().run(story)


def test_the_outcome_is_answered_before_any_marker_is_written() -> None:
    async def story(world: World) -> None:
        world.leaders.held = asyncio.Event()
        producer = await world.begin()
        await world.transactions.end("id", *producer, True)
        await asyncio.sleep(0.01)
        assert (world.transaction.state, world.transaction.pending) == (
            S.PREPARE_COMMIT,
            S.COMPLETE_COMMIT,
        )
        assert await error_of(world.transactions.end("id", *producer, True)) == (
            E.CONCURRENT_TRANSACTIONS
        )
        world.leaders.held.set()
        await asyncio.sleep(0.01)
        assert state_of(world) is S.COMPLETE_COMMIT
        assert world.leaders.received == [(1000, 0, True, 3, [A, B])]
        await world.transactions.end("id", *producer, True)
        assert await error_of(world.transactions.end("id", *producer, False)) == (
            E.INVALID_TXN_STATE
        )

    World().run(story)


def test_the_next_transaction_waits_for_the_markers_of_the_one_before() -> None:
    async def story(world: World) -> None:
        world.leaders.held = asyncio.Event()
        producer = await world.begin()
        await world.transactions.end("id", *producer, True)
        added = asyncio.ensure_future(world.transactions.add_partitions("id", *producer, [A]))
        await asyncio.sleep(0.01)
        assert not added.done()
        world.leaders.held.set()
        # A client that aborts without waiting for the answer is refused until there is something
        # to abort, and never told that it ends what has ended.
        errors: list[ErrorCode] = []
        while not errors or errors[-1]:
            errors.append(await error_of(world.transactions.end("id", *producer, False)))
            await asyncio.sleep(0)
        assert set(errors) == {E.CONCURRENT_TRANSACTIONS, E.NONE}
        await added
        await asyncio.sleep(0.01)
        assert state_of(world) is S.COMPLETE_ABORT
        assert [received[2:] for received in world.leaders.received] == [
            (True, 3, [A, B]),
            (False, 3, [A]),
        ]

    World().run(story)


def test_markers_are_waited_for_no_longer_than_a_second() -> None:
    async def story(world: World) -> None:
        world.leaders.held = asyncio.Event()
        producer = await world.begin()
        await world.transactions.end("id", *producer, True)
        started = asyncio.get_running_loop().time()
        assert await error_of(world.transactions.add_partitions("id", *producer, [A])) == (
            E.CONCURRENT_TRANSACTIONS
        )
        assert asyncio.get_running_loop().time() - started == pytest.approx(1)
        await world.fail_over(4)
        world.leaders.held.set()
        await asyncio.sleep(1)
        assert state_of(world) is S.COMPLETE_COMMIT

    World().run(story)


def test_what_waits_for_markers_is_fenced_by_a_failover() -> None:
    async def story(world: World) -> None:
        world.leaders.held = asyncio.Event()
        producer = await world.begin()
        await world.transactions.end("id", *producer, True)
        asyncio.get_running_loop().call_later(0.01, world.transactions.on_resigned, 0, 4)
        assert await error_of(world.transactions.add_partitions("id", *producer, [A])) == (
            E.NOT_COORDINATOR
        )

    World().run(story)


def test_a_new_producer_aborts_the_open_transaction_first() -> None:
    async def story(world: World) -> None:
        await world.begin()
        assert await error_of(world.init()) == E.CONCURRENT_TRANSACTIONS
        await asyncio.sleep(0.01)
        assert world.leaders.received == [(1000, 1, False, 3, [A, B])]
        assert await world.init() == (1000, 2)

    World().run(story)


def test_a_zombie_does_not_abort_its_successors_transaction() -> None:
    async def story(world: World) -> None:
        await world.init()
        await world.begin()
        assert await error_of(world.init(producer_id=1000, epoch=0)) == E.PRODUCER_FENCED
        assert state_of(world) is S.ONGOING

    World().run(story)


def test_partitions_that_are_known_are_not_written_again() -> None:
    async def story(world: World) -> None:
        producer = await world.begin(A)
        written = len(world.log.batches)
        await world.transactions.add_partitions("id", *producer, [A])
        assert len(world.log.batches) == written
        assert world.transactions.verify("id", *producer, [A, B]) == {
            A: E.NONE,
            B: E.TRANSACTION_ABORTABLE,
        }

    World().run(story)


def test_a_transaction_that_times_out_as_it_is_committed_has_one_outcome() -> None:
    async def story(world: World) -> None:
        producer = await world.begin()
        await asyncio.sleep(TIMEOUT / 1000 + 1)
        world.transactions.abort_timed_out()
        # Served before any task of the coordinator has run.
        ended = await error_of(world.transactions.end("id", *producer, True))
        assert ended == E.PRODUCER_FENCED
        await asyncio.sleep(1)
        assert state_of(world) is S.COMPLETE_ABORT
        assert world.leaders.received == [(1000, 1, False, 3, [A, B])]

    World(timeout_check_interval_ms=10**9).run(story)


def test_time_outs() -> None:
    async def story(world: World) -> None:
        producer = await world.begin()
        await asyncio.sleep(TIMEOUT / 1000 - 1)
        assert state_of(world) is S.ONGOING
        await asyncio.sleep(12)
        assert state_of(world) is S.COMPLETE_ABORT
        assert world.leaders.received == [(1000, 1, False, 3, [A, B])]
        assert await error_of(world.transactions.end("id", *producer, True)) == E.PRODUCER_FENCED
        assert world.transactions.statistics()["timed_out"] == 1

    World().run(story)


def test_an_idle_id_expires_and_its_producer_id_with_it() -> None:
    async def story(world: World) -> None:
        producer = await world.init()
        await asyncio.sleep(7 * 86_400 + 3_601)
        adding = world.transactions.add_partitions("id", *producer, [A])
        assert await error_of(adding) == E.INVALID_PRODUCER_ID_MAPPING
        await world.fail_over(4)
        assert await world.init() == (1001, 0), "the tombstone is in the log"

    World().run(story)


class TestFailures:
    @pytest.mark.parametrize(
        ("of_log", "answered"),
        [
            (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
            (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
            (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
            (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        ],
    )
    def test_a_write_that_fails_changes_nothing(
        self, of_log: ErrorCode, answered: ErrorCode
    ) -> None:
        async def story(world: World) -> None:
            producer = await world.begin(A)
            world.log.next_error = of_log
            assert await error_of(world.transactions.end("id", *producer, True)) == answered
            assert (world.transaction.state, world.transaction.pending) == (S.ONGOING, None)
            await world.transactions.end("id", *producer, True)

        World().run(story)

    def test_a_fence_that_fails_raises_the_epoch_once(self) -> None:
        async def story(world: World) -> None:
            await world.begin(A)
            for _ in range(3):
                world.log.next_error = E.NOT_ENOUGH_REPLICAS
                assert await error_of(world.init()) == E.COORDINATOR_NOT_AVAILABLE
                assert world.transaction.epoch == 1
            assert await error_of(world.init()) == E.CONCURRENT_TRANSACTIONS
            await asyncio.sleep(0.01)
            assert await world.init() == (1000, 2)

        World().run(story)

    def test_leadership_that_is_lost_during_a_write(self) -> None:
        async def story(world: World) -> None:
            producer = await world.begin(A)
            world.log.held = []
            ending = asyncio.ensure_future(error_of(world.transactions.end("id", *producer, True)))
            await asyncio.sleep(0.01)
            world.transactions.on_resigned(0)
            world.log.release()
            assert await ending == E.NOT_COORDINATOR
            assert await error_of(world.init()) == E.NOT_COORDINATOR
            assert world.leaders.received == [], "its successor sends the markers"

        World().run(story)

    def test_a_client_that_goes_away_leaves_nothing_pending(self) -> None:
        async def story(world: World) -> None:
            producer = await world.begin(A)
            world.log.held = []
            ending = asyncio.ensure_future(world.transactions.end("id", *producer, True))
            await asyncio.sleep(0.01)
            ending.cancel()
            world.log.release()
            await asyncio.sleep(0.01)
            assert state_of(world) is S.COMPLETE_COMMIT

        World().run(story)


class TestFailover:
    def test_a_decided_transaction_is_finished_by_the_next_coordinator(self) -> None:
        async def story(world: World) -> None:
            world.leaders.held = asyncio.Event()
            producer = await world.begin()
            await world.transactions.end("id", *producer, True)
            await world.fail_over(7)
            assert await error_of(world.init()) == E.CONCURRENT_TRANSACTIONS
            world.leaders.held.set()
            await asyncio.sleep(2)
            assert state_of(world) is S.COMPLETE_COMMIT
            assert (1000, 0, True, 7, [A, B]) in world.leaders.received
            await world.fail_over(8)
            assert state_of(world) is S.COMPLETE_COMMIT

        World().run(story)

    def test_an_open_transaction_survives(self) -> None:
        async def story(world: World) -> None:
            producer = await world.begin(A)
            await world.fail_over(4)
            await world.transactions.add_partitions("id", *producer, [B])
            await world.transactions.end("id", *producer, False)
            await asyncio.sleep(0.01)
            assert world.leaders.received == [(1000, 0, False, 4, [A, B])]

        World().run(story)

    def test_no_marker_is_sent_of_a_decision_that_not_every_replica_has(self) -> None:
        """What a new leader finds at its log's end may be gone with it: the next coordinator would
        abort what has a commit marker in some of its partitions."""

        async def story(world: World) -> None:
            producer = await world.begin()
            world.log.held = []
            ending = asyncio.ensure_future(error_of(world.transactions.end("id", *producer, True)))
            await asyncio.sleep(0.01)
            await world.fail_over(4)
            ending.cancel()
            await asyncio.sleep(60)
            assert (state_of(world), world.leaders.received) == (S.PREPARE_COMMIT, [])
            assert await error_of(world.init()) == E.CONCURRENT_TRANSACTIONS
            world.log.release(E.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            await asyncio.sleep(1)
            assert world.leaders.received == [(1000, 0, True, 4, [A, B])]
            assert state_of(world) is S.COMPLETE_COMMIT

        World().run(story)

    def test_a_partition_counts_as_added_once_every_replica_knows_it(self) -> None:
        async def story(world: World) -> None:
            producer = await world.begin(A)
            world.log.held = []
            adding = asyncio.ensure_future(world.transactions.add_partitions("id", *producer, [B]))
            await asyncio.sleep(0.01)
            await world.fail_over(4)
            adding.cancel()
            assert world.transaction.partitions == {A, B}, "found at the log's end"
            adding = asyncio.ensure_future(world.transactions.add_partitions("id", *producer, [B]))
            await asyncio.sleep(0.01)
            assert not adding.done()
            world.log.release()
            await adding
            written = len(world.log.batches)
            await world.transactions.add_partitions("id", *producer, [A, B])
            assert len(world.log.batches) == written

        World().run(story)

    def test_an_unreadable_record_keeps_the_partition_loading(self) -> None:
        async def story(world: World) -> None:
            await world.init()
            world.log.append(0, encode_batch([Record(-1, 0, b"\0\0\0\2ab", b"\0\7")]), 1)
            await world.fail_over(4)
            await asyncio.sleep(60)
            assert await error_of(world.init()) == E.COORDINATOR_LOAD_IN_PROGRESS
            assert world.transactions.storage.is_loading

        World().run(story)

    def test_a_newer_epoch_ends_an_older_load(self) -> None:
        async def story(world: World) -> None:
            await world.init()
            world.transactions.on_elected(0, 5)
            world.transactions.on_elected(0, 6)
            world.transactions.on_elected(0, 4)
            await asyncio.sleep(0.01)
            assert world.transactions.storage.owned[0].epoch == 6
            assert await world.init() == (1000, 1)

        World().run(story)


class TestMarkers:
    def test_what_fails_is_sent_again_with_a_growing_pause(self) -> None:
        async def story(world: World) -> None:
            leaders = world.leaders
            leaders.answers = [
                {A: E.NOT_LEADER_OR_FOLLOWER},
                None,
                {A: None},  # not in the answer
                {A: E.UNKNOWN_SERVER_ERROR},
                {A: E.NOT_ENOUGH_REPLICAS},
            ]
            producer = await world.begin()
            await world.transactions.end("id", *producer, True)
            await asyncio.sleep(0.04)
            assert world.transaction.unmarked == {A}
            await asyncio.sleep(10)
            assert state_of(world) is S.COMPLETE_COMMIT
            pauses = [
                round(later - earlier, 3)
                for earlier, later in zip(leaders.times, leaders.times[1:], strict=False)
            ]
            assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8]

        World().run(story)

    def test_a_fenced_coordinator_leaves_the_transaction_decided(self) -> None:
        async def story(world: World) -> None:
            world.leaders.answers = [{A: E.TRANSACTION_COORDINATOR_FENCED}]
            producer = await world.begin()
            await world.transactions.end("id", *producer, True)
            await asyncio.sleep(10)
            assert state_of(world) is S.PREPARE_COMMIT
            await world.fail_over(9)
            await asyncio.sleep(1)
            assert state_of(world) is S.COMPLETE_COMMIT

        World().run(story)

    def test_a_partition_is_dropped_only_when_it_is_gone(self) -> None:
        async def story(world: World) -> None:
            producer = await world.begin()
            del world.leaders.known[B]
            await world.transactions.end("id", *producer, True)
            await asyncio.sleep(60)
            assert world.transaction.unmarked == {B}, "it has no leader, and may get one"
            world.leaders.existing.remove(B)
            await asyncio.sleep(2)
            assert state_of(world) is S.COMPLETE_COMMIT
            assert world.leaders.received == [(1000, 0, True, 3, [A])]

        World().run(story)

    def test_a_partition_without_a_leader_is_waited_for(self) -> None:
        async def story(world: World) -> None:
            producer = await world.begin()
            del world.leaders.known[B]
            await world.transactions.end("id", *producer, True)
            await asyncio.sleep(60)
            assert (state_of(world), world.transaction.unmarked) == (S.PREPARE_COMMIT, {B})
            world.leaders.known[B] = 2
            await asyncio.sleep(2)
            assert state_of(world) is S.COMPLETE_COMMIT
            assert world.leaders.received == [(1000, 0, True, 3, [A]), (1000, 0, True, 3, [B])]

        World().run(story)

    def test_a_final_write_that_fails_is_repeated(self) -> None:
        async def story(world: World) -> None:
            world.leaders.held = asyncio.Event()
            producer = await world.begin()
            await world.transactions.end("id", *producer, True)
            await asyncio.sleep(0.01)
            world.log.next_error = E.NOT_ENOUGH_REPLICAS
            world.leaders.held.set()
            await asyncio.sleep(0.01)
            assert state_of(world) is S.PREPARE_COMMIT
            await asyncio.sleep(1)
            assert state_of(world) is S.COMPLETE_COMMIT
            assert len(world.leaders.received) == 1, "the markers need not be sent again"

        World().run(story)
