"""The rules of the in-sync replicas, row by row.

docs/spec/controller-and-replication.md section 5.3.
"""

import pytest

from odradek.replica.leader.isr import (
    NEVER,
    UNKNOWN_OFFSET,
    Committed,
    Follower,
    IsrState,
    high_watermark,
    may_join,
    out_of_sync,
)

LAG_S = 30.0


def follower(broker_id: int, log_end: int, caught_up_at: float = NEVER) -> Follower:
    return Follower(broker_id, log_start=0, log_end=log_end, caught_up_at=caught_up_at)


def mark(leader_end: int, followers: list[Follower], isr: IsrState, *, now: float = 100.0) -> int:
    return high_watermark(
        leader_end, followers, isr, now=now, lag_max_s=LAG_S, is_alive=lambda broker_id: True
    )


class TestCaughtUp:
    def test_a_fetch_at_the_leaders_end_is_caught_up_now(self) -> None:
        state = Follower(2)
        state.record_fetch(10, 0, 10, 50.0)
        assert state.caught_up_at == 50.0

    def test_a_fetch_at_what_was_the_end_at_the_previous_fetch_was_caught_up_then(self) -> None:
        state = Follower(2)
        state.record_fetch(5, 0, 10, 50.0)
        assert state.caught_up_at == NEVER
        state.record_fetch(10, 0, 20, 51.0)
        assert state.caught_up_at == 50.0

    def test_a_fetch_below_both_changes_nothing(self) -> None:
        state = Follower(2)
        state.record_fetch(10, 0, 10, 50.0)
        state.record_fetch(11, 0, 30, 51.0)
        state.record_fetch(12, 0, 40, 52.0)
        assert state.caught_up_at == 50.0
        assert state.log_end == 12

    def test_time_never_goes_back(self) -> None:
        state = follower(2, 0, caught_up_at=60.0)
        state.record_fetch(10, 0, 10, 50.0)
        assert state.caught_up_at == 60.0

    @pytest.mark.parametrize(
        ("log_end", "caught_up_at", "expected"),
        [
            (10, NEVER, True),  # at the leader's end, however long ago it fetched
            (9, 70.0, True),  # exactly the lag time ago
            (9, 69.999, False),
            (UNKNOWN_OFFSET, 100.0, True),  # a new leader's trust in its ISR
            (UNKNOWN_OFFSET, NEVER, False),
        ],
    )
    def test_by_end_or_by_time(self, log_end: int, caught_up_at: float, expected: bool) -> None:
        state = follower(2, log_end, caught_up_at)
        assert state.is_caught_up(10, 100.0, LAG_S) is expected

    def test_a_silent_session_counts_for_partitions_it_does_not_name(self) -> None:
        class Session:
            last_fetch_at = 80.0

        state = follower(2, 10, caught_up_at=20.0)
        state.source = Session()
        state.leader_moves_on()
        assert state.is_caught_up(11, 100.0, LAG_S)
        assert not state.is_caught_up(11, 110.1, LAG_S)

    @pytest.mark.parametrize("in_sync", [True, False])
    def test_a_new_leader_forgets_offsets_and_trusts_the_isr(self, in_sync: bool) -> None:
        state = follower(2, 10, caught_up_at=20.0)
        state.new_epoch(10, 100.0, in_sync=in_sync, new_leader=True)
        assert state.log_end == UNKNOWN_OFFSET
        assert state.is_caught_up(10, 100.0, LAG_S) is in_sync

    def test_a_leader_that_stays_keeps_offsets(self) -> None:
        state = follower(2, 10, caught_up_at=20.0)
        state.new_epoch(10, 100.0, in_sync=False, new_leader=False)
        assert state.log_end == 10


class TestHighWatermark:
    def test_alone_it_is_the_leaders_end(self) -> None:
        assert mark(10, [], Committed((1,))) == 10

    def test_the_slowest_member_holds_it(self) -> None:
        assert mark(10, [follower(2, 7), follower(3, 9)], Committed((1, 2, 3))) == 7

    def test_who_is_outside_and_behind_does_not(self) -> None:
        assert mark(10, [follower(2, 7), follower(3, 9)], Committed((1, 3))) == 9

    def test_who_is_outside_but_caught_up_is_waited_for(self) -> None:
        assert mark(10, [follower(2, 7, caught_up_at=99.0)], Committed((1,))) == 7

    def test_unless_it_is_dead(self) -> None:
        late = [follower(2, 7, caught_up_at=99.0)]
        found = high_watermark(
            10, late, Committed((1,)), now=100.0, lag_max_s=LAG_S, is_alive=lambda broker_id: False
        )
        assert found == 10

    def test_who_is_about_to_join_counts(self) -> None:
        assert mark(10, [follower(2, 7)], Committed((1,)).expand(2)) == 7

    def test_who_is_about_to_leave_still_counts(self) -> None:
        assert mark(10, [follower(2, 7)], Committed((1, 2)).shrink([2])) == 7

    def test_an_unknown_member_allows_nothing(self) -> None:
        assert mark(10, [Follower(2)], Committed((1, 2))) == UNKNOWN_OFFSET


class TestShrinking:
    def test_only_members_that_lag(self) -> None:
        followers = [follower(2, 9, 69.0), follower(3, 9, 71.0), follower(4, 9, 0.0)]
        isr = Committed((1, 2, 3))
        assert out_of_sync(10, followers, isr, now=100.0, lag_max_s=LAG_S) == [2]

    def test_no_replica_joins_while_a_change_is_in_flight(self) -> None:
        isr = Committed((1, 2)).expand(3)
        assert out_of_sync(10, [follower(2, 0)], isr, now=100.0, lag_max_s=LAG_S) == []


class TestJoining:
    @pytest.mark.parametrize(
        ("log_end", "high_watermark", "epoch_start", "expected"),
        [
            (10, 10, 5, True),
            (9, 10, 5, False),  # below the high watermark
            (10, 3, 11, False),  # has not reached the leader's epoch
            (11, 3, 11, True),
        ],
    )
    def test_what_a_member_must_have(
        self, log_end: int, high_watermark: int, epoch_start: int, expected: bool
    ) -> None:
        found = may_join(follower(2, log_end), Committed((1,)), high_watermark, epoch_start)
        assert found is expected

    def test_not_twice_and_not_during_another_change(self) -> None:
        assert not may_join(follower(2, 10), Committed((1, 2)), 10, 0)
        assert not may_join(follower(2, 10), Committed((1, 3)).shrink([3]), 10, 0)


class TestIsr:
    def test_maximal(self) -> None:
        assert Committed((1, 2)).maximal == (1, 2)
        assert Committed((1, 2)).expand(3).maximal == (1, 2, 3)
        assert Committed((1, 2)).expand(3).committed == (1, 2)
        assert Committed((1, 2)).shrink([2]).maximal == (1, 2)

    def test_the_last_member_stays(self) -> None:
        with pytest.raises(AssertionError):
            Committed((1,)).shrink([1])
