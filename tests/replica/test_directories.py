"""Log directories: one fails, replicas move between them.

docs/spec/controller-and-replication.md section 5.6, KIP-113.
"""

import asyncio
import errno
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.replica.conftest import CONFIG, Node, Simulation, World

from odradek.log.config import LogConfig
from odradek.log.disk import RealDisk
from odradek.wire.errors import ErrorCode
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.records import Record, encode_batch
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def is_in(node: Node, tp: TopicPartition, directory: str) -> bool:
    return directory_of(node, tp) == directory


def directory_of(node: Node, of: TopicPartition = T0) -> str:
    path: str = node.log(of).directory
    return path.rsplit("/", 1)[0]


def other_directory(node: Node, of: TopicPartition = T0) -> str:
    (other,) = {str(path) for path in node.dirs} - {directory_of(node, of)}
    return other


def begin_move(node: Node) -> Any:
    """To the other directory, and no further: the copy stays empty."""
    node.replicas.log_dir_moves.quota.bytes_per_second = 1
    node.replicas.log_dir_moves.quota.record(10**9)
    node.replicas.log_dir_moves.alter({T0: other_directory(node)})
    return node.partition().replica.future_log


class TestFailure:
    def test_its_partitions_go_offline_the_others_serve_and_the_controller_is_notified(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])
            await world.elect(1, [1], [1], of=T1)
            assert directory_of(node, T0) != directory_of(node, T1)
            node.logs.dirs.fail(directory_of(node), OSError(5, "gone"))
            await asyncio.sleep(0)
            assert node.append(b"x")[T0].error == ErrorCode.KAFKA_STORAGE_ERROR
            assert node.append(b"x", of=T1)[T1].error == ErrorCode.NONE
            assert world.stop(node) == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await world.elect(1, [1]))[1] == ErrorCode.KAFKA_STORAGE_ERROR
            assert node.replicas.statistics()["offline"] == 1
            await asyncio.sleep(1)
            (name,) = await node.store.notifications.log_dir_notifications()
            assert await node.store.notifications.log_dir_failures([name]) == {1}

        simulate(story)

    def test_a_deletion_that_the_disk_refuses_is_reported(
        self, simulate: Simulation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])
            await world.elect(1, [1], [1], of=T1)
            where = node.log().directory

            def refuse(disk: RealDisk, source: str, target: str) -> None:
                raise OSError(errno.EROFS, "read-only", source)

            with monkeypatch.context() as patch:
                patch.setattr(RealDisk, "rename", refuse)
                assert world.stop(node, delete=True) == ErrorCode.KAFKA_STORAGE_ERROR
            await asyncio.sleep(0)
            assert RealDisk().is_dir(where) and node.replicas.partitions.offline == {T0}
            assert world.stop(node, T1, delete=True) == ErrorCode.NONE
            assert node.logs.get(T1) is None

        simulate(story)

    def test_a_leader_epoch_that_the_disk_refuses_is_reported(
        self, simulate: Simulation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])
            await world.elect(1, [1], [1], of=T1)
            node.log().epochs.flush()  # so that the next epoch must replace it on disk
            gone: list[Any] = []
            node.replicas.roles.listeners.append(lambda led, followed: gone.extend(followed))

            def refuse(disk: RealDisk, path: str, data: bytes) -> None:
                raise OSError(errno.ENOSPC, "full", path)

            with monkeypatch.context() as patch:
                patch.setattr(RealDisk, "write_atomically", refuse)
                assert (await world.elect(1, [1]))[1] == ErrorCode.KAFKA_STORAGE_ERROR
            await asyncio.sleep(0)
            assert node.replicas.partitions.offline == {T0} == {each.tp for each in gone}
            assert node.append(b"x", of=T1)[T1].error == ErrorCode.NONE

        simulate(story)

    def test_listeners_learn_that_a_partition_is_gone(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])
            await world.elect(1, [1], [1], of=T1)
            heard: list[tuple[list[Any], list[Any]]] = []
            node.replicas.roles.listeners.append(lambda *roles: heard.append(roles))
            partition = node.partition()
            node.logs.dirs.fail(directory_of(node), OSError(5, "gone"))
            await asyncio.sleep(0)
            assert heard == [([], [partition])]
            await world.elect(1, [1])  # which is refused: it stays away
            assert len(heard) == 1

        simulate(story)

    def test_an_append_that_meets_the_error_is_answered_with_it(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])
            node.append(b"a")

            segment = node.log().segments.active
            segment.files.log.close()  # every write to it fails from now on
            waiting = node.fetch_later()
            assert node.append(b"b")[T0].error == ErrorCode.KAFKA_STORAGE_ERROR
            await asyncio.sleep(0.01)
            ((_, data),) = await waiting
            assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert T0 in node.replicas.partitions.offline

        simulate(story)

    def test_a_waiting_produce_gets_an_error(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1, 2], [1, 2])
            waiting = node.append(b"x", acks=-1)
            node.logs.dirs.fail(directory_of(node), OSError(5, "gone"))
            await asyncio.sleep(0)
            assert waiting.result()[T0].error == ErrorCode.KAFKA_STORAGE_ERROR

        simulate(story)

    def test_a_follower_drops_the_partition(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader, follower = await world.start(1, 2, dirs=2)
            await world.elect(1, [1, 2], [1, 2])
            await leader.produce(b"a")
            follower.logs.dirs.fail(directory_of(follower), OSError(5, "gone"))
            leader.append(b"b")
            await world.until(lambda: T0 not in follower.replicas.fetchers)
            await world.until(lambda: leader.role().isr.committed == (1,))

        simulate(story)

    def test_with_a_failed_directory_only_new_partitions_get_a_log(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])
            node.logs.dirs.fail(other_directory(node), OSError(5, "gone"))
            await asyncio.sleep(0)
            world.states[T1] = replace(world.states[T0])
            world.replicas_of[T1] = [1]
            response = await node.replicas.control_requests.leader_and_isr(
                world.request(T1, is_new=False)
            )
            (error,) = response.partition_errors
            assert error.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert T1 in node.replicas.partitions.offline
            new = TopicPartition("new", 0)
            assert (await world.elect(1, [1], [1], of=new))[1] == ErrorCode.NONE

        simulate(story)


class TestMoving:
    def test_a_replica_moves_under_load_and_loses_nothing(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])
            for number in range(200):
                node.append(b"%d" % number * 5000)
            before, target = directory_of(node), other_directory(node)
            assert node.replicas.log_dir_moves.alter({T0: target}) == {T0: ErrorCode.NONE}
            number = 200
            while directory_of(node) == before:
                node.append(b"%d" % number)
                number += 1
                assert number < 1000
                await asyncio.sleep(0)
            assert directory_of(node) == target
            assert node.log().end_offset == node.log().high_watermark == number
            node.append(b"after")
            offsets = [header.base_offset for header in world.scan(node.contents())]
            assert offsets == list(range(number + 1))
            names = {path.name for path in node.dirs[0].parent.glob("*/t-*")}
            assert "t-0" in names
            assert len(names) == 2  # the old one waits to be removed

        simulate(story)

    def test_a_follower_moves_too_and_is_truncated_with_its_copy(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            leader, follower = await world.start(1, 2, dirs=2)
            await world.elect(1, [1, 2], [1, 2])
            for _ in range(100):
                await leader.produce(b"x" * 50_000)
            target = other_directory(follower)
            follower.replicas.log_dir_moves.quota.bytes_per_second = 200_000
            follower.replicas.log_dir_moves.alter({T0: target})
            await asyncio.sleep(0.5)
            assert follower.partition().replica.future_log is not None
            await world.elect(1, [1, 2])
            for number in range(100):
                await leader.produce(b"%d" % number * 3000)
            await world.until(lambda: directory_of(follower) == target)
            await leader.produce(b"after")
            await world.until(lambda: follower.contents() == leader.contents())

        simulate(story)

    def test_a_leader_without_records_moves_and_keeps_its_followers(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            leader, follower = await world.start(1, 2, dirs=2)
            await world.elect(2, [1, 2], [1, 2])
            assert follower.log().epochs.latest_epoch is not None
            await world.elect(1, [1], without=[2])
            target = other_directory(leader)
            leader.replicas.log_dir_moves.alter({T0: target})
            await world.until(lambda: directory_of(leader) == target)
            world.update_metadata()
            await follower.replicas.control_requests.leader_and_isr(world.request(T0))
            await world.until_stored({1, 2})

        simulate(story, config=replace(CONFIG, protocol=ProtocolVersion.V2_7_IV1))

    def test_a_log_that_starts_within_a_batch_moves_with_the_whole_of_it(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])
            node.append(b"gone", b"a", b"b")
            node.append(b"c")
            node.role().delete_records(1)
            contents, target = node.contents(), other_directory(node)
            node.replicas.log_dir_moves.alter({T0: target})
            await world.until(lambda: directory_of(node) == target)
            assert (node.log().start_offset, node.log().end_offset) == (1, 4)
            assert node.log().high_watermark == 4
            assert node.contents() == contents
            await node.stop()
            await world.restart(1)
            await world.elect(1, [1])
            assert node.log().start_offset == 1
            assert node.contents() == contents

        simulate(story)

    def test_errors(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])
            alter = node.replicas.log_dir_moves.alter
            here, there = directory_of(node), other_directory(node)
            assert alter({T0: here}) == {T0: ErrorCode.NONE}
            assert alter({T0: "/nowhere"}) == {T0: ErrorCode.LOG_DIR_NOT_FOUND}
            assert alter({T1: there}) == {T1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            await world.elect(1, [1], [1], of=T1)
            assert directory_of(node, T1) == there  # as was asked for before it was created
            node.logs.dirs.fail(there, OSError(5, "gone"))
            assert alter({T0: there}) == {T0: ErrorCode.KAFKA_STORAGE_ERROR}

        simulate(story)

    def test_no_move_begins_while_a_directory_is_offline(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=3)
            await world.elect(1, [1], [1])
            here = directory_of(node)
            absent, target = (str(path) for path in node.dirs if str(path) != here)
            node.logs.dirs.fail(absent, OSError(5, "gone"))
            await asyncio.sleep(0)
            alter = node.replicas.log_dir_moves.alter
            assert alter({T0: target}) == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
            assert node.logs.future_logs == {}
            assert alter({T0: here}) == {T0: ErrorCode.NONE}

        simulate(story)

    def test_a_name_too_long_for_a_copy_is_refused_and_costs_no_directory(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            longest, too_long = (TopicPartition("x" * length, 0) for length in (213, 214))
            for of in (longest, too_long):
                await world.elect(1, [1], [1], of=of)
                node.append(b"x", of=of)
                target = other_directory(node, of)
                error = node.replicas.log_dir_moves.alter({of: target})[of]
                assert len(node.logs.dirs.live) == 2
                if of is longest:
                    assert error == ErrorCode.NONE
                    await world.until(partial(is_in, node, longest, target))
                else:
                    assert error == ErrorCode.INVALID_TOPIC_EXCEPTION

        simulate(story)

    def test_it_can_be_called_off(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])
            for _ in range(50):
                node.append(b"x" * 50_000)
            here, there = directory_of(node), other_directory(node)
            node.replicas.log_dir_moves.quota.bytes_per_second = 1000
            node.replicas.log_dir_moves.alter({T0: there})
            await asyncio.sleep(1)
            node.replicas.log_dir_moves.alter({T0: here})
            assert node.logs.get(T0, future=True) is None
            await asyncio.sleep(60)
            assert directory_of(node) == here
            assert node.replicas.statistics()["moving"] == 0

        simulate(story)

    def test_it_begins_again_after_a_restart(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])
            for _ in range(50):
                node.append(b"x" * 50_000)
            there = other_directory(node)
            node.replicas.log_dir_moves.quota.bytes_per_second = 1000
            node.replicas.log_dir_moves.alter({T0: there})
            await asyncio.sleep(1)
            contents = node.contents()
            await node.stop()
            await world.restart(1)
            node.replicas.log_dir_moves.quota.bytes_per_second = 1000
            loaded = node.logs.get(T0, future=True)
            assert loaded is not None and loaded.end_offset > 0
            await world.elect(1, [1])
            again = node.partition().replica.future_log
            assert again is not loaded and again is node.logs.get(T0, future=True)
            await world.elect(1, [1])  # which is no reason to begin once more
            assert node.partition().replica.future_log is again
            await world.until(lambda: directory_of(node) == there)
            assert node.contents() == contents

        simulate(story)

    @pytest.mark.parametrize("leader", [1, 2])
    def test_a_copy_that_missed_a_truncation_is_not_trusted(
        self, simulate: Simulation, leader: int
    ) -> None:
        async def story(world: World) -> None:
            one, two = await world.start(1, 2, dirs=2)
            await world.elect(2, [1, 2], [1, 2])
            for _ in range(5):
                await two.produce(b"both")
            await world.until(lambda: one.log().high_watermark == 5)
            one.replicas.fetchers.remove([T0])
            for _ in range(6):
                two.append(b"only there")
            copy, there = begin_move(two), other_directory(two)
            copy.append_as_follower(two.contents_to(7))
            copy.fail(OSError(errno.ENOSPC, "full"))
            await asyncio.sleep(0)
            await world.elect(1, [1])
            for _ in range(4):
                await one.produce(b"committed")
            await world.until_stored({1, 2})
            await two.stop()
            await world.restart(2)  # where there is room now
            await world.elect(leader, [1, 2])
            await world.until(lambda: directory_of(two) == there)
            assert two.contents() == one.contents()
            assert two.contents().count(b"committed") == 4

        simulate(story)

    def test_a_copy_that_was_not_there_when_its_log_was_cleaned_is_not_trusted(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])

            def tell(key: bytes, value: bytes | None) -> None:
                node.serve_append(1, 1000, {T0: encode_batch([Record(0, 0, key, value)])})

            tell(b"user", b"secret")
            copy, there = begin_move(node), other_directory(node)
            copy.append_as_follower(node.contents())
            copy.fail(OSError(errno.ENOSPC, "full"))
            await asyncio.sleep(0)
            tell(b"user", None)
            for number in range(3):  # until nothing is left of the deletion either
                node.log().roll()
                tell(b"%d" % number, b"x")
                await node.logs.cleaner.run()
            assert b"user" not in node.contents()
            await node.stop()
            await world.restart(1)
            await world.elect(1, [1])
            await world.until(lambda: directory_of(node) == there)
            assert b"user" not in node.contents()

        compact = frozenset({"compact"})
        simulate(story, log_config=LogConfig(cleanup_policy=compact, delete_retention_ms=0))

    def test_a_copy_beside_a_recreated_log_is_deleted(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])
            node.append(b"x")
            begin_move(node)
            there = other_directory(node)
            await node.stop()
            node.dirs = [Path(there)]  # the log's own is not configured any more
            await world.restart(1)
            await world.elect(1, [1], is_new=True)
            node.append(b"y")
            await asyncio.sleep(1)
            assert list(node.logs.dirs.live) == [there] and directory_of(node) == there
            assert node.logs.future_logs == {} and node.log().end_offset == 1

        simulate(story)

    def test_when_the_target_fails_as_it_begins_again_the_replica_serves(
        self, simulate: Simulation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])
            node.append(b"x")
            begin_move(node)
            here = directory_of(node)
            await node.stop()
            await world.restart(1)

            def refuse(disk: RealDisk, source: str, target: str) -> None:
                raise OSError(errno.EROFS, "read-only", source)

            with monkeypatch.context() as patch:
                patch.setattr(RealDisk, "rename", refuse)
                assert (await world.elect(1, [1]))[1] == ErrorCode.NONE
            await asyncio.sleep(0)
            assert list(node.logs.dirs.live) == [here] and directory_of(node) == here
            assert node.append(b"y")[T0].error == ErrorCode.NONE

        simulate(story)

    def test_a_restart_on_the_way_keeps_the_mark_of_the_log_and_not_the_copys(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            for of in (T0, T1):  # one in each directory, so that either order is seen
                await world.elect(1, [1, 2], [1, 2], of=of)
                for _ in range(5):
                    node.append(b"x" * 50_000, of=of)
                node.log(of).set_high_watermark(5)
            node.replicas.log_dir_moves.quota.bytes_per_second = 1
            node.replicas.log_dir_moves.quota.record(1_000_000)
            targets = {of: other_directory(node, of) for of in (T0, T1)}
            node.replicas.log_dir_moves.alter(targets)
            await asyncio.sleep(10)
            await node.stop(clean=False)
            await world.restart(1)
            for of in (T0, T1):
                await world.elect(2, [1, 2], of=of)
                assert directory_of(node, of) != targets[of]
                assert node.log(of).high_watermark == 5

        simulate(story)

    def test_the_mark_moves_with_the_log(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])
            node.append(b"x")
            await asyncio.sleep(10)  # it is written, and does not change any more
            target = other_directory(node)
            node.replicas.log_dir_moves.alter({T0: target})
            await world.until(lambda: directory_of(node) == target)
            assert node.logs.checkpoints.read_high_watermarks() == {T0: 1}

        simulate(story)

    def test_when_the_target_fails_the_replica_stays_where_it_is(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1, dirs=2)
            await world.elect(1, [1], [1])
            for _ in range(50):
                node.append(b"x" * 50_000)
            here, there = directory_of(node), other_directory(node)
            node.replicas.log_dir_moves.quota.bytes_per_second = 1000
            node.replicas.log_dir_moves.alter({T0: there})
            await asyncio.sleep(1)
            node.logs.dirs.fail(there, OSError(5, "gone"))
            await asyncio.sleep(1)
            assert node.append(b"y")[T0].error == ErrorCode.NONE
            assert directory_of(node) == here
            assert node.partition().replica.future_log is None

        simulate(story, log_config=LogConfig())

    @pytest.mark.parametrize("is_restarted", [False, True])
    def test_when_the_target_fails_at_a_truncation_the_replica_is_truncated_and_follows(
        self, simulate: Simulation, is_restarted: bool
    ) -> None:
        """Cut to what its leader has, or begun again because its leader starts later."""

        async def story(world: World) -> None:
            leader, follower = await world.start(1, 2, dirs=2)
            await world.elect(1, [1, 2], [1, 2])
            for _ in range(5):
                await leader.produce(b"both")
            await world.until(lambda: follower.log().high_watermark == 5)
            await world.elect(1, [1], without=[2])
            follower.replicas.fetchers.remove([T0])
            for _ in range(3):
                await leader.produce(b"only here")
            if is_restarted:
                leader.role().delete_records(8)
                assert leader.log().roll().base_offset == 8
                leader.log().delete_old_segments()
            else:
                await world.elect(2, [2], without=[1])
                for _ in range(6):
                    follower.append(b"only there")
            here, copy = directory_of(follower), begin_move(follower)
            copy.append_as_follower(follower.contents_to(3))

            def fail(offset: int) -> None:
                raise copy.fail(OSError(errno.EIO, "gone"))

            copy.truncate_to = copy.truncate_fully_and_start_at = fail
            await world.elect(1, [1])
            await leader.produce(b"after")
            await world.until_stored({1, 2})
            assert list(follower.logs.dirs.live) == [here] and directory_of(follower) == here
            assert follower.contents() == leader.contents()

        simulate(story)
