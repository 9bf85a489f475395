"""The small pure decisions: truncation, throttles, the nearest replica, follower's sessions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.epochs import LeaderEpochs
from odradek.replica.follower.fetch_session import FollowerSession, Position
from odradek.replica.follower.fetcher_manager import fetcher_index
from odradek.replica.follower.truncation import LostCommittedRecords, check_kept, truncation_for
from odradek.replica.leader.replica_selector import Candidate, rack_aware
from odradek.replica.throttle import Rate, ReplicationQuota, is_throttled_replica
from odradek.wire.topics import TopicPartition


class TestTruncation:
    """docs/spec/controller-and-replication.md section 5.2; the follower has epochs 1 (from 0),
    3 (from 10), ends at 20."""

    def decide(self, leader_epoch: int, leader_end: int) -> tuple[int, bool]:
        epochs = LeaderEpochs()
        epochs.assign(1, 0)
        epochs.assign(3, 10)
        decided = truncation_for(
            leader_epoch, leader_end, epochs=epochs, log_end=20, high_watermark=8
        )
        return decided.offset, decided.complete

    @pytest.mark.parametrize(
        ("leader_epoch", "leader_end", "expected"),
        [
            (-1, -1, (8, True)),  # the leader knows nothing of it: to our high watermark
            (-1, 15, (15, True)),  # a leader without epochs
            (-1, 30, (20, True)),
            (3, 25, (20, True)),  # the same epoch, the leader has more
            (3, 12, (12, True)),  # the same epoch, the leader has less
            (2, 12, (10, False)),  # an epoch we do not have: to the end of the one before, ask on
            (1, 12, (10, True)),  # an older epoch that ended earlier here
            (1, 5, (5, True)),
            (0, 7, (0, True)),  # older than all of ours: nothing of ours is the leader's
        ],
    )
    def test_rows(self, leader_epoch: int, leader_end: int, expected: tuple[int, bool]) -> None:
        assert self.decide(leader_epoch, leader_end) == expected

    def test_a_follower_without_that_epoch_takes_the_leaders_word(self) -> None:
        found = truncation_for(4, 12, epochs=LeaderEpochs(), log_end=20, high_watermark=8)
        assert found == (12, True)

    def test_committed_records_are_truncated_only_where_that_was_permitted(self) -> None:
        check_kept(8, 8, elected_from_isr=True, unclean_allowed=False)
        check_kept(7, 8, elected_from_isr=False, unclean_allowed=False)
        check_kept(7, 8, elected_from_isr=True, unclean_allowed=True)
        with pytest.raises(LostCommittedRecords):
            check_kept(7, 8, elected_from_isr=True, unclean_allowed=False)


class TestThrottle:
    def test_which_replicas(self) -> None:
        assert is_throttled_replica(frozenset({"0:1", "1:2"}), 1, 2)
        assert not is_throttled_replica(frozenset({"0:1", "1:2"}), 1, 1)
        assert is_throttled_replica(frozenset({"*"}), 7, 7)
        assert not is_throttled_replica(frozenset(), 0, 0)
        assert not is_throttled_replica(frozenset({"none"}), 0, 0)

    def test_exceeded_and_paid_back_by_silence(self) -> None:
        now = 100.0
        quota = ReplicationQuota(lambda: now, 1_000)
        exceeded = [quota.is_exceeded]
        for size in (1_000, 4_000):
            quota.record(size)
            exceeded.append(quota.is_exceeded)
        assert exceeded == [False, False, True]
        now = 104.9
        is_before, now = quota.is_exceeded, 105.0
        assert is_before and not quota.is_exceeded
        now = 111.0
        assert quota.rate() == 0

    def test_no_limit_by_default(self) -> None:
        quota = ReplicationQuota(lambda: 5.0)
        quota.record(2**40)
        assert not quota.is_exceeded

    @given(limit=st.integers(1_000, 10**8), chunk=st.integers(1, 10**7))
    def test_who_takes_whenever_it_may_takes_what_it_may(self, limit: int, chunk: int) -> None:
        now, taken, seconds = 50.0, 0, 30
        quota = ReplicationQuota(lambda: now, limit)
        for _ in range(seconds * 10):
            now += 0.1
            if not quota.is_exceeded:
                quota.record(chunk)
                taken += chunk
        assert taken <= limit * (seconds + 1) + chunk * (1 + seconds / 11)
        assert taken >= min(limit, chunk * 10) * seconds * 0.8

    @given(limit=st.integers(10**5, 10**8), parts=st.integers(1, 50), late_s=st.floats(0.01, 0.02))
    def test_who_waits_as_long_as_it_is_exceeded_uses_it_whole(
        self, limit: int, parts: int, late_s: float
    ) -> None:
        """Nine tenths of a throttle at the least, and not more than it and one fetch a window."""
        now, taken, began, seconds = 50.0, 0, 50.0, 40.0
        chunk = limit // parts
        quota = ReplicationQuota(lambda: now, limit)
        while now < began + seconds:
            exceeded_s = quota.seconds_exceeded()
            assert exceeded_s >= 0
            if quota.is_exceeded:
                now += exceeded_s + late_s
                continue
            quota.record(chunk)
            taken += chunk
            now += chunk / (20 * limit)  # it takes a moment to copy
        assert 0.9 * limit * seconds <= taken
        assert taken <= limit * (seconds + 1) + chunk * (1 + seconds / 11)

    def test_a_rate_of_nothing_is_exceeded_until_what_was_taken_is_forgotten(self) -> None:
        now = 100.0
        quota = ReplicationQuota(lambda: now, 0)
        assert quota.seconds_exceeded() == 0.0
        quota.record(1)
        assert quota.seconds_exceeded() == 11.0


class TestClientRate:
    """Unlike a replica, a client may use at once what it has not used in the last ten seconds."""

    def test_a_burst(self) -> None:
        now = 100.0
        rate = Rate(lambda: now)
        rate.record(10_000)
        assert rate.seconds_until(1_000) == 0
        rate.record(2_000)
        assert rate.seconds_until(1_000) == 2
        now = 100.5
        assert rate.seconds_until(1_000) == 1.5
        now = 111.0
        assert rate.seconds_until(1_000) < 0
        assert rate.rate() == 0


class TestNearestReplica:
    LEADER = Candidate(1, "a", 10, 0.0)

    def test_the_leader_serves_its_own_rack_and_strangers(self) -> None:
        followers = [Candidate(2, "b", 10, 1.0)]
        assert rack_aware("a", self.LEADER, followers) is None
        assert rack_aware("", self.LEADER, followers) is None
        assert rack_aware("c", self.LEADER, followers) is None

    def test_the_most_caught_up_follower_in_the_rack(self) -> None:
        followers = [
            Candidate(2, "b", 9, 9.0),
            Candidate(3, "b", 10, 1.0),
            Candidate(4, "c", 10, 9.0),
        ]
        assert rack_aware("b", self.LEADER, followers) == 3

    def test_of_equal_followers_the_one_with_the_greatest_id(self) -> None:
        followers = [
            Candidate(2, "b", 10, 1.0004),
            Candidate(4, "b", 10, 1.0),
            Candidate(3, "b", 10, 1.0),
        ]
        for _ in followers:
            followers.append(followers.pop(0))
            assert rack_aware("b", self.LEADER, followers) == 4


class TestFollowerSession:
    A, B, C = (TopicPartition("t", index) for index in range(3))

    def at(self, offset: int) -> Position:
        return Position(offset, 0, 1, 1000)

    def named(self, request: object) -> list[tuple[int, int]]:
        return [
            (partition.partition, partition.fetch_offset)
            for topic in request.topics  # type: ignore[attr-defined]  # of one request
            for partition in topic.partitions
        ]

    def wanting(self, **offsets: int) -> FollowerSession:
        session = FollowerSession()
        for name, offset in offsets.items():
            session.want(getattr(self, name), self.at(offset))
        return session

    def test_first_everything_then_what_changed(self) -> None:
        session = self.wanting(A=0, B=5)
        request = session.request()
        assert (request.session_id, request.epoch) == (0, 0)
        assert self.named(request) == [(0, 0), (1, 5)]
        session.opened(77)
        session.want(self.A, self.at(3))
        request = session.request()
        assert (request.session_id, request.epoch) == (77, 1)
        assert self.named(request) == [(0, 3)]
        request = session.request()
        assert (request.epoch, request.topics, request.forgotten) == (2, [], [])

    def test_an_empty_request_leaves_what_changed_for_the_next(self) -> None:
        session = self.wanting(A=0)
        session.request()
        session.opened(77)
        session.want(self.B, self.at(5))
        request = session.empty_request()
        assert (request.epoch, request.topics, request.forgotten) == (1, [], [])
        assert self.named(session.request()) == [(1, 5)]

    def test_a_partition_no_longer_wanted_is_forgotten_once(self) -> None:
        session = self.wanting(A=0, B=5)
        session.request()
        session.opened(77)
        session.withdraw(self.B)
        session.withdraw(self.C)  # was never wanted
        session.want(self.C, self.at(0))
        session.withdraw(self.C)  # the leader has not heard of it
        request = session.request()
        assert self.named(request) == []
        assert [(f.topic, f.partitions) for f in request.forgotten] == [("t", [1])]
        assert session.request().forgotten == []

    def test_withdrawn_and_wanted_again_it_is_not_forgotten(self) -> None:
        session = self.wanting(A=0, B=5)
        session.request()
        session.opened(77)
        session.withdraw(self.B)
        session.want(self.B, self.at(7))
        request = session.request()
        assert (self.named(request), request.forgotten) == ([(1, 7)], [])

    def test_a_request_is_due_while_a_partition_is_to_be_added_or_forgotten(self) -> None:
        session = FollowerSession()
        due = [session.has_request]
        session.want(self.A, self.at(0))
        due.append(session.has_request)
        session.withdraw(self.A)
        due.append(session.has_request)  # there is no session in which to forget it
        assert due == [False, True, False]
        session.want(self.A, self.at(0))
        session.request()
        session.opened(77)
        session.withdraw(self.A)
        assert session.has_request
        session.request()
        assert not session.has_request

    def test_a_leader_without_sessions_gets_everything_every_time(self) -> None:
        session = self.wanting(A=0)
        session.request()
        session.opened(0)
        request = session.request()
        assert (request.session_id, request.epoch) == (0, 0)
        assert self.named(request) == [(0, 0)]

    @pytest.mark.parametrize(("keep_id", "expected"), [(True, 77), (False, 0)])
    def test_after_a_doubt_everything_again(self, keep_id: bool, expected: int) -> None:
        session = self.wanting(A=0)
        session.request()
        session.opened(77)
        session.restart(keep_id=keep_id)
        request = session.request()
        assert (request.session_id, request.epoch) == (expected, 0)
        assert self.named(request) == [(0, 0)]

    def test_the_epoch_wraps_to_one(self) -> None:
        session = FollowerSession()
        session.request()
        session.opened(77)
        session._epoch = 2**31 - 1
        assert session.request().epoch == 2**31 - 1
        assert session.request().epoch == 1


class TestFetcherIndex:
    def test_within_range_and_spread(self) -> None:
        found = {fetcher_index(TopicPartition("topic", index), 4) for index in range(16)}
        assert found == {0, 1, 2, 3}
