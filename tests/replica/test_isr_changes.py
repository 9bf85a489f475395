"""Who is in sync: shrinking, expanding, the store's word, notifications, incarnations."""

import asyncio
import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.replica.conftest import CONFIG, Simulation, World

from odradek.replica.leader.fetch_state import FetchParams, FetchSet
from odradek.replica.leader.isr import Committed
from odradek.store import open_store
from odradek.store.api import StoreUnavailable
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Puppet:
    """A follower in the hand of the test: it fetches from wherever the test says."""

    def __init__(self, leader: Any, broker_id: int, epoch: int = 0) -> None:
        self.leader = leader
        self.id = broker_id
        self.epoch = epoch
        self.fetch_set = FetchSet(broker_id, is_session=True)

    def fetch(self, offset: int | None = None, *, wait_ms: int = 0, life: int = -1) -> Any:
        if self.fetch_set.parked is not None:
            self.fetch_set.parked.try_complete(force=True)
        if offset is not None:
            self.fetch_set.put(T0, offset, 1 << 20, leader_epoch=self.epoch, log_start_offset=0)
        params = FetchParams(replica_id=self.id, replica_epoch=life, max_wait_ms=wait_ms)
        return self.leader.serve_fetch(params, self.fetch_set)


async def led(world: World, isr: list[int], *others: int) -> Any:
    """Broker 1 leads with one record; the others are registered, and fetch nothing of their own."""
    leader, *_ = await world.start(1, *others)
    await world.elect(1, isr, [1, 2, 3], without=others)
    world.update_metadata(to=1)
    leader.append(b"a")
    return leader


def test_a_follower_that_goes_silent_leaves_after_the_lag_time(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, _, third = await world.start(1, 2, 3)
        await world.elect(1, [1, 2, 3], [1, 2, 3])
        await leader.produce(b"a")
        third.replicas.fetchers.remove([T0])
        waiting = leader.append(b"b", acks=-1)
        begun = leader.replicas.now()
        state = await world.until_stored({1, 2})
        # Looked for every half lag time, so after one to one and a half.
        assert 9.5 < leader.replicas.now() - begun <= 15.5
        assert (state.leader, state.leader_epoch, state.partition_epoch) == (1, 0, 1)
        await world.until(lambda: leader.role().isr.committed == (1, 2))
        assert (await waiting)[T0].error == ErrorCode.NONE
        assert leader.log().high_watermark == 2

    simulate(story)


def test_a_follower_that_is_level_never_leaves_however_quiet_it_is(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, _ = await world.start(1, 2)
        await world.elect(1, [1, 2], [1, 2])
        await leader.produce(b"a")
        await asyncio.sleep(300)
        leader.append(b"b")
        await asyncio.sleep(300)
        assert leader.role().isr.committed == (1, 2)
        assert leader.replicas.statistics()["isr_shrunk"] == 0

    simulate(story)


def test_who_catches_up_while_it_is_taken_out_is_let_in_again(simulate: Simulation) -> None:
    """Its session does not name a partition again in which nothing moves."""

    async def story(world: World) -> None:
        leader = await led(world, [1, 2], 2)
        puppet = Puppet(leader, 2)
        puppet.fetch(0)
        written, update = asyncio.Event(), leader.store.update_isr

        async def slow(*arguments: Any) -> Any:
            puppet.fetch(1)  # while the ISR without it is on its way to the store
            written.set()
            leader.store.update_isr = update
            return await update(*arguments)

        leader.store.update_isr = slow
        await written.wait()
        await world.until(lambda: leader.role().isr.committed == (1,))
        for _ in range(5):
            puppet.fetch()
            await asyncio.sleep(0.1)
        assert leader.role().isr.committed == (1, 2)

    simulate(story)


def test_a_follower_that_asked_before_its_leader_led_stays_in_sync(simulate: Simulation) -> None:
    """Its fetch waits with its other partitions, and the session does not name this one again."""

    async def story(world: World) -> None:
        (leader,) = await world.start(1)
        await world.elect(1, [1, 2], [1, 2])
        puppet = Puppet(leader, 2)
        puppet.fetch(0)
        puppet.fetch_set.put(T1, 0, 1 << 20, leader_epoch=0, log_start_offset=0)
        waiting = puppet.fetch(wait_ms=500)
        await world.elect(1, [1, 2], [1, 2], of=T1)
        await waiting
        for _ in range(100):
            await puppet.fetch(wait_ms=500)
        assert leader.role(T1).followers[2].log_end == 0
        assert leader.role(T1).isr.committed == (1, 2)
        assert not puppet.fetch_set.dirty, "nothing has to be read again and again"

    simulate(story)


def test_a_follower_that_caught_up_joins_and_the_controller_is_notified(
    simulate: Simulation,
) -> None:
    async def story(world: World) -> None:
        leader, _ = await world.start(1, 2)
        await world.elect(1, [1], [1, 2])
        leader.append(b"a")
        begun = leader.replicas.now()
        state = await world.until_stored({1, 2})
        assert leader.replicas.now() - begun < 0.5  # nothing waits for a long poll
        assert (state.isr, state.partition_epoch) == ((1, 2), 1)
        await world.until(lambda: leader.role().isr.committed == (1, 2))
        assert await leader.store.notifications.isr_notifications() == []
        await asyncio.sleep(0.1)
        (name,) = await leader.store.notifications.isr_notifications()
        assert await leader.store.notifications.isr_changes([name]) == {T0}

    simulate(story)


def test_many_changes_are_notified_together_once_a_second(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, _ = await world.start(1, 2)
        parts = [TopicPartition("t", index) for index in range(10)]
        told_after = []
        for of in parts:
            await world.elect(1, [1], [1, 2], of=of)
            await world.until_stored({1, 2}, of)
            await asyncio.sleep(0.3)
            told_after.append(len(await leader.store.notifications.isr_notifications()))
        await asyncio.sleep(1)
        names = await leader.store.notifications.isr_notifications()
        assert told_after[0] == 1, "the first at once"
        assert len(names) <= 5, "ten changes in some three seconds"
        assert await leader.store.notifications.isr_changes(names) == set(parts)

    simulate(story)


def test_it_needs_the_high_watermark_and_the_epochs_start(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader = await led(world, [1], 2)
        puppet = Puppet(leader, 2)
        for _ in range(5):
            puppet.fetch(0)
            await asyncio.sleep(0.1)
        assert leader.role().isr.committed == (1,)
        for _ in range(3):
            puppet.fetch(1)
            await asyncio.sleep(0.1)
        assert leader.role().isr.committed == (1, 2)

    simulate(story)


def test_a_broker_that_is_not_alive_is_not_let_in(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader = await led(world, [1], 2)
        world.update_metadata(without=[2])
        puppet = Puppet(leader, 2)
        for _ in range(5):
            puppet.fetch(1)
            await asyncio.sleep(0.1)
        assert leader.role().isr.committed == (1,)
        world.update_metadata(to=1)
        for _ in range(3):
            puppet.fetch()
            await asyncio.sleep(0.1)
        assert leader.role().isr.committed == (1, 2)

    simulate(story)


def test_while_a_change_is_under_way_the_mark_waits_for_the_newcomer(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader = await led(world, [1], 2)
        puppet = Puppet(leader, 2)
        for _ in range(3):
            puppet.fetch(1)
            await asyncio.sleep(0.01)
        world.store_server.disconnect(leader.session)
        leader.role().isr = Committed((1,))
        puppet.fetch(1)
        partition = leader.partition()
        assert partition.role.isr.maximal == (1, 2)
        assert partition.role.isr.committed == (1,)
        leader.append(b"b")
        assert leader.log().high_watermark == 1
        puppet.fetch(2)
        assert leader.log().high_watermark == 2
        world.store_server.reconnect(leader.session)

    simulate(story)


def test_the_controller_was_faster(simulate: Simulation) -> None:
    """A change refused for its version stays pending; nothing else is tried until the controller
    sends the new state."""

    async def story(world: World) -> None:
        leader = await led(world, [1], 2)
        partition = leader.partition()
        partition.role.partition_epoch = -5  # as if the controller had written since
        puppet = Puppet(leader, 2)
        for _ in range(20):
            puppet.fetch(1)
            await asyncio.sleep(0.1)
        assert leader.replicas.statistics()["isr_refused"] == 1
        assert partition.role.isr.in_flight
        assert (await world.stored()).isr == (1,)
        await world.elect(1, [1], without=[2])
        world.update_metadata(to=1)
        puppet.epoch = 1
        for _ in range(3):
            puppet.fetch(1)
            await asyncio.sleep(0.1)
        assert (await world.stored()).isr == (1, 2)

    simulate(story)


def test_a_write_that_was_taken_but_not_answered_counts(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader = await led(world, [1], 2)
        puppet = Puppet(leader, 2)
        written = leader.store.update_isr

        async def lose_the_answer(of: Any, state: Any) -> Any:
            leader.store.update_isr = written
            assert await written(of, state) is not None
            return await written(of, state)

        leader.store.update_isr = lose_the_answer
        for _ in range(4):
            puppet.fetch(1)
            await asyncio.sleep(0.1)
        assert leader.role().isr.committed == (1, 2)
        assert leader.partition().partition_epoch == (await world.stored()).partition_epoch == 1

    simulate(story)


def test_a_lost_session_is_waited_out(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader = await led(world, [1], 2)
        puppet = Puppet(leader, 2)
        for _ in range(2):
            puppet.fetch(1)
            await asyncio.sleep(0.01)
        world.store_server.disconnect(leader.session)
        puppet.fetch(1)
        await asyncio.sleep(3)
        assert leader.role().isr.committed == (1,)
        world.store_server.reconnect(leader.session)
        await world.until(lambda: leader.role().isr.committed == (1, 2))

    simulate(story)


def test_many_partitions_join_together(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, _ = await world.start(1, 2)
        partitions = [TopicPartition("t", index) for index in range(40)]
        for of in partitions:
            await world.elect(1, [1], [1, 2], of=of)
        for of in partitions:
            await world.until_stored({1, 2}, of)
        await asyncio.sleep(20)
        names = await leader.store.notifications.isr_notifications()
        assert await leader.store.notifications.isr_changes(names) == set(partitions)
        assert len(names) <= 3

    simulate(story)


class TestIncarnations:
    """KIP-903: what a broker had before it came back with an empty disk does not count."""

    @staticmethod
    async def come_back_empty(world: World) -> None:
        node = world.nodes[2]
        old = node.epoch
        await node.stop()
        for path in node.dirs:
            for entry in path.glob("t-*"):
                for file in entry.iterdir():
                    file.unlink()
                entry.rmdir()
        await world.restart(2)
        assert node.epoch > old

    def test_decided_before_the_restart_written_after_it(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader = await led(world, [1], 2)
            puppet = Puppet(leader, 2)
            for _ in range(2):
                puppet.fetch(1)
                await asyncio.sleep(0.01)
            world.store_server.disconnect(leader.session)
            puppet.fetch(1)
            assert leader.role().isr.in_flight
            await self.come_back_empty(world)
            world.store_server.reconnect(leader.session)
            await asyncio.sleep(5)
            assert (await world.stored()).isr == (1,)
            partition = leader.partition()
            assert partition.role.isr.committed == (1,)
            assert not partition.role.isr.in_flight
            assert partition.role.followers[2].log_end == -1
            assert leader.replicas.statistics()["isr_voided"] == 1

        simulate(story)

    def test_it_restarts_between_the_check_and_the_write(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader = await led(world, [1], 2)
            puppet = Puppet(leader, 2)
            written = leader.store.update_isr
            seen: list[tuple[int, ...]] = []

            async def restart_first(of: Any, state: Any) -> Any:
                if not seen:
                    await self.come_back_empty(world)
                seen.append(state.isr)
                return await written(of, state)

            leader.store.update_isr = restart_first
            for _ in range(3):
                puppet.fetch(1)
                await asyncio.sleep(0.01)
            await world.until(lambda: not leader.role().isr.in_flight)
            assert seen == [(1, 2), (1,)]  # taken back, before it counted
            assert leader.role().isr.committed == (1,)
            state = await world.stored()
            assert (state.isr, state.partition_epoch) == ((1,), 2)
            assert leader.partition().partition_epoch == 2

        simulate(story)

    @pytest.mark.parametrize("landed", [True, False])
    def test_it_restarts_after_a_write_whose_answer_never_came(
        self, simulate: Simulation, landed: bool
    ) -> None:
        """What may stand in the store is taken back there, not only here; what does not, is never
        written again."""

        async def story(world: World) -> None:
            leader = await led(world, [1], 2)
            puppet = Puppet(leader, 2)
            written = leader.store.update_isr
            stood: list[tuple[int, ...]] = []

            async def write(of: Any, state: Any) -> Any:
                if stood:
                    result = await written(of, state)
                else:
                    if landed:
                        await written(of, state)
                    await self.come_back_empty(world)
                    result = StoreUnavailable("", "disk full")
                stood.append((await world.stored()).isr)
                if isinstance(result, StoreUnavailable):
                    raise result
                return result

            leader.store.update_isr = write
            for _ in range(3):
                puppet.fetch(1)
                await asyncio.sleep(0.01)
            await world.until(lambda: bool(stood) and not leader.role().isr.in_flight)
            assert stood == ([(1, 2), (1, 2), (1, 2), (1,)] if landed else [(1,), (1,)])
            state = await world.stored()
            assert state.isr == (1,)
            assert leader.partition().partition_epoch == state.partition_epoch

        simulate(story)

    def test_a_fetch_that_names_its_incarnation_needs_no_other_proof(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            leader = await led(world, [1], 2)
            puppet, now = Puppet(leader, 2), world.nodes[2].epoch
            for _ in range(5):
                puppet.fetch(1, life=now - 1)
                await asyncio.sleep(0.1)
            assert leader.role().isr.committed == (1,), "an earlier life does not join"
            assert leader.replicas.statistics()["isr_voided"] > 0
            puppet.fetch(1, life=now)
            assert leader.role().isr.in_flight, "at once"
            await world.until(lambda: leader.role().isr.committed == (1, 2))

        simulate(story)

    def test_a_fetch_left_over_from_a_dead_incarnation_admits_no_replica(
        self, simulate: Simulation
    ) -> None:
        """The old incarnation's last fetch is served after the new one's registration was read."""

        async def story(world: World) -> None:
            leader = await led(world, [1], 2)
            puppet = Puppet(leader, 2)
            world.store_server.disconnect(leader.session)
            puppet.fetch(1)  # answered; and then it sent one more, and died
            await self.come_back_empty(world)
            world.store_server.reconnect(leader.session)
            link = puppet.fetch_set.link
            assert link is not None
            await world.until(lambda: link.epoch == world.nodes[2].epoch)
            puppet.fetch()
            await asyncio.sleep(5)
            assert (await world.stored()).isr == (1,)

        simulate(story)

    def test_the_new_incarnation_is_let_in_once_it_has_caught_up(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            leader, follower = await world.start(1, 2)
            await world.elect(1, [1, 2], [1, 2])
            await leader.produce(b"a")
            await self.come_back_empty(world)
            await world.elect(1, [1])
            await world.until_stored({1, 2})
            assert follower.contents() == leader.contents()

        simulate(story)

    @pytest.mark.parametrize("named_meanwhile", [False, True])
    def test_one_that_only_registered_again_is_let_in_without_naming_the_partition(
        self, simulate: Simulation, named_meanwhile: bool
    ) -> None:
        """Its process and its fetch session go on; only its session with the store was lost. It may
        have named the partition while it was being let in, and so was no outsider."""

        async def story(world: World) -> None:
            leader = await led(world, [1], 2)
            puppet = Puppet(leader, 2)
            registration = leader.store.broker

            async def earlier(broker_id: int) -> Any:
                leader.store.broker = registration
                found = await registration(broker_id)
                return replace(found, epoch=found.epoch - 1)

            leader.store.broker = earlier
            puppet.fetch(1)
            await asyncio.sleep(0.1)
            while not leader.replicas.statistics()["isr_voided"]:
                puppet.fetch()
                if named_meanwhile and leader.role().isr.in_flight:
                    puppet.fetch(1)
                await asyncio.sleep(0.1)
            assert leader.role().isr.committed == (1,)
            for _ in range(4):
                puppet.fetch()
                await asyncio.sleep(0.1)
            assert leader.role().isr.committed == (1, 2)

        simulate(story)

    def test_an_empty_follower_takes_back_what_its_predecessor_claimed(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            leader = await led(world, [1, 2], 2)
            Puppet(leader, 2).fetch(1)
            assert leader.log().high_watermark == 1
            leader.append(b"b")
            Puppet(leader, 2).fetch(0)
            assert leader.role().followers[2].log_end == 0
            assert leader.log().high_watermark == 1

        simulate(story)


@pytest.mark.parametrize("sessions", [True, False])
def test_a_follower_without_sessions_joins_as_well(simulate: Simulation, sessions: bool) -> None:
    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        if not sessions:
            leader.sessions._slots = 0
        await world.elect(1, [1], [1, 2])
        leader.append(b"a")
        await world.until_stored({1, 2})
        assert follower.contents() == leader.contents()
        assert bool(leader.sessions.statistics()["sessions"]) is sessions

    simulate(story)


def test_a_follower_for_whose_session_there_is_no_room_joins_as_well(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, *_ = await world.start(1, 2, 3)
        leader.sessions._slots = 1
        await world.elect(1, [1], [1, 2, 3])
        leader.append(b"a")
        await world.until_stored({1, 2, 3})
        assert leader.sessions.statistics()["sessions"] == 1

    simulate(story)


def test_one_that_fetches_before_the_metadata_names_it_joins_when_it_does(
    simulate: Simulation,
) -> None:
    async def story(world: World) -> None:
        leader, follower = await world.start(1, 2)
        leader.sessions._slots = 0
        await world.elect(1, [1], [1, 2])
        world.update_metadata(without=[2], to=1)
        leader.append(b"a")
        await world.until(lambda: follower.log().end_offset == 1)
        await asyncio.sleep(5)
        assert (await world.stored()).isr == (1,)
        world.update_metadata()
        await world.until_stored({1, 2})

    simulate(story)


def test_nothing_is_kept_of_what_was_asked_without_a_session_and_of_no_brokers_id_at_all(
    simulate: Simulation,
) -> None:
    def fetch_sets() -> int:
        gc.collect()
        return sum(type(each) is FetchSet for each in gc.get_objects())

    async def story(world: World) -> None:
        leader, _ = await world.start(1, 2)
        await world.elect(1, [1], [1])
        before = fetch_sets()
        for broker_id in (2, *range(1000, 1100)):
            fetch_set = FetchSet(broker_id)
            fetch_set.put(TopicPartition("nope", 0), 0, 1)
            leader.serve_fetch(FetchParams(replica_id=broker_id), fetch_set)
        del fetch_set
        assert fetch_sets() == before
        assert list(leader.replicas._follower_fetches._links) == [2]

    simulate(story)


def test_an_outsider_that_is_waited_for_is_not_waited_for_ever(simulate: Simulation) -> None:
    """It was caught up a moment ago, then went silent: the mark moves on without another append."""

    async def story(world: World) -> None:
        leader = await led(world, [1], 2)
        leader.role().isr = leader.role().isr.expand(3)  # nobody else may join now
        puppet = Puppet(leader, 2)
        puppet.fetch(1)
        leader.role().isr = Committed((1,))
        waiting = leader.append(b"b", acks=-1)
        assert leader.log().high_watermark == 1
        begun = leader.replicas.now()
        assert (await waiting)[T0].error == ErrorCode.NONE
        assert leader.replicas.now() - begun <= 16

    simulate(story)


def test_a_proposal_of_a_deleted_partition_is_not_written(simulate: Simulation) -> None:
    """A topic of the same name may have been created since, with the same version."""

    async def story(world: World) -> None:
        leader = await led(world, [1], 2)
        puppet = Puppet(leader, 2)
        for _ in range(2):
            puppet.fetch(1)
            await asyncio.sleep(0.01)
        puppet.fetch(1)
        assert leader.role().isr.in_flight
        world.stop(leader, delete=True)
        await asyncio.sleep(5)
        state = await world.stored()
        assert (state.isr, state.partition_epoch) == ((1,), 0)

    simulate(story)


async def test_on_the_embedded_store_over_real_sockets(reality: Any, tmp_path: Path) -> None:
    lag = replace(CONFIG, replica_lag_time_max_ms=400)
    async with reality(config=lag) as world:
        world.open_store = lambda: open_store(f"sqlite:{tmp_path}/metadata.db")
        leader, follower = await world.start(1, 2)
        await world.elect(1, [1], [1, 2])
        leader.append(b"a")
        assert (await world.until_stored({1, 2})).partition_epoch == 1
        follower.replicas.fetchers.remove([T0])
        leader.append(b"b")
        state = await world.until_stored({1})
        assert (state.leader, state.leader_epoch, state.partition_epoch) == (1, 0, 2)
        await world.elect(2, [1], [1, 2])
        assert T0 in leader.replicas.fetchers


def test_a_session_that_continues_without_the_partition_proves_nothing(
    simulate: Simulation,
) -> None:
    """The follower gave this partition up, and goes on fetching others in the same session."""

    async def story(world: World) -> None:
        leader = await led(world, [1, 2], 2)
        puppet = Puppet(leader, 2)
        puppet.fetch(1)
        puppet.fetch_set.remove(T0)
        for _ in range(30):
            await asyncio.sleep(1)
            puppet.fetch()
        assert leader.role().isr.committed == (1, 2)  # it has all there is
        leader.append(b"b")
        begun = leader.replicas.now()
        await world.until_stored({1})
        assert leader.replicas.now() - begun < 5.1  # at the very next look

    simulate(story)
