"""LeaderAndIsr, StopReplica, UpdateMetadata: fencing, every error.

docs/spec/controller-and-replication.md 4.9, 5.1, 5.6.
"""

from dataclasses import replace
from typing import Any

import pytest
from tests.replica.conftest import Node, Simulation, World

from odradek.log.config import LogConfig
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaTopicV1
from odradek.wire.messages.update_metadata import UpdateMetadataRequest
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)


async def send(world: World, node: Node, *, of: TopicPartition = T0, **changes: Any) -> ErrorCode:
    """LeaderAndIsr with the stored state, some of it changed."""
    is_new = changes.pop("is_new", False)
    request = world.request(of, is_new=is_new)
    (state,) = request.topic_states[0].partition_states
    for name, value in changes.items():
        setattr(request if hasattr(request, name) else state, name, value)
    response = await node.replicas.control_requests.leader_and_isr(request)
    if response.error_code != ErrorCode.NONE:
        assert {e.error_code for e in response.partition_errors} == {response.error_code}
        return ErrorCode(response.error_code)
    (error,) = response.partition_errors
    assert (error.topic_name, error.partition_index) == of
    return ErrorCode(error.error_code)


class TestLeaderAndIsr:
    @pytest.mark.parametrize(
        ("epoch", "error"),
        [
            (0, ErrorCode.STALE_CONTROLLER_EPOCH),
            (1, ErrorCode.STALE_CONTROLLER_EPOCH),
            (2, ErrorCode.NONE),
        ],
    )
    def test_only_a_higher_leader_epoch_is_taken(
        self, simulate: Simulation, epoch: int, error: ErrorCode
    ) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1)
            await world.elect(1, [1], [1])
            await world.elect(1, [1])
            assert await send(world, node, leader_epoch=epoch) == error
            assert node.partition().leader_epoch == max(1, epoch)

        simulate(story)

    def test_a_broker_that_is_no_replica_refuses(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1)
            await world.elect(2, [2], [2, 3])
            assert await send(world, node) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert node.replicas.partitions.get(T0) is None

        simulate(story)

    def test_an_older_controller_is_refused_an_equal_one_is_not(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1)
            world.controller_epoch = 5
            await world.elect(1, [1], [1])
            stale = await send(world, node, controller_epoch=4, leader_epoch=1)
            assert stale == ErrorCode.STALE_CONTROLLER_EPOCH
            assert node.partition().leader_epoch == 0
            assert await send(world, node, controller_epoch=5, leader_epoch=1) == ErrorCode.NONE
            assert await send(world, node, controller_epoch=6, leader_epoch=2) == ErrorCode.NONE

        simulate(story)

    def test_what_was_meant_for_an_earlier_incarnation_is_refused(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1)
            await world.elect(1, [1], [1])
            own = node.epoch
            assert own > 0
            for broker_epoch, error in (
                (own - 1, ErrorCode.STALE_BROKER_EPOCH),
                (own, ErrorCode.NONE),
                (own + 1, ErrorCode.NONE),
                (-1, ErrorCode.NONE),
            ):
                epoch = node.partition().leader_epoch + 1
                found = await send(world, node, broker_epoch=broker_epoch, leader_epoch=epoch)
                assert found == error

        simulate(story)

    def test_a_leader_that_stays_leader_keeps_its_followers(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader, _ = await world.start(1, 2)
            await world.elect(1, [1, 2], [1, 2])
            await leader.produce(b"a")
            assert leader.role().followers[2].log_end == 1
            await world.elect(1, [1, 2], [1, 2, 3])
            partition = leader.partition()
            assert partition.role.followers[2].log_end == 1
            assert partition.role.followers.keys() == {2, 3}
            assert partition.role.epoch_start == 1
            await world.elect(1, [1], [1, 3])
            assert partition.role.followers.keys() == {3}

        simulate(story)

    def test_a_state_older_than_what_we_wrote_ourselves_is_ignored(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            (leader,) = await world.start(1)
            await world.elect(1, [1, 2], [1, 2])
            leader.role().partition_epoch = 7
            assert await send(world, leader, leader_epoch=1, partition_epoch=6) == ErrorCode.NONE
            assert leader.partition().leader_epoch == 0

        simulate(story)

    def test_listeners_hear_of_every_change_of_role(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            node, _ = await world.start(1, 2)
            heard: list[tuple[list[str], list[str]]] = []
            node.replicas.roles.listeners.append(
                lambda led, followed: heard.append(
                    (
                        [str(partition.tp) for partition in led],
                        [str(partition.tp) for partition in followed],
                    )
                )
            )
            await world.elect(1, [1, 2], [1, 2])
            await world.elect(1, [1, 2])  # leads on: nothing to tell
            await world.elect(2, [1, 2])
            assert heard == [(["t-0"], []), ([], ["t-0"])]

        simulate(story)

    def test_no_replica_leads(self, simulate: Simulation) -> None:
        """Leader -1: the log is made, nothing else; the partition serves no one."""

        async def story(world: World) -> None:
            (node,) = await world.start(1)
            await world.elect(-1, [2], [1, 2])
            assert node.log().end_offset == 0
            assert node.append(b"x")[T0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert T0 not in node.replicas.fetchers

        simulate(story)

    def test_settings_of_the_topic_reach_its_log(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            world.topic_configs["t"] = LogConfig(segment_bytes=12345)
            (node,) = await world.start(1)
            await world.elect(1, [1], [1])
            assert node.log().config.segment_bytes == 12345

        simulate(story)


class TestStopReplica:
    @pytest.mark.parametrize(
        ("epoch", "error"),
        [
            (-1, ErrorCode.NONE),
            (-2, ErrorCode.NONE),
            (0, ErrorCode.FENCED_LEADER_EPOCH),
            (1, ErrorCode.NONE),
            (2, ErrorCode.NONE),
        ],
    )
    def test_epochs(self, simulate: Simulation, epoch: int, error: ErrorCode) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1)
            await world.elect(1, [1], [1])
            await world.elect(1, [1])
            assert world.stop(node, epoch=epoch) == error
            assert node.partition().is_leader is (error != ErrorCode.NONE)
            assert node.replicas.partitions.get(T0) is not None

        simulate(story)

    def test_stopping_ends_the_following(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader, follower = await world.start(1, 2)
            await world.elect(1, [1, 2], [1, 2])
            await leader.produce(b"a")
            assert world.stop(follower, epoch=0) == ErrorCode.NONE
            leader.append(b"b")
            await world.until(lambda: leader.role().isr.committed == (1,))
            assert follower.log().end_offset == 1

        simulate(story)

    def test_deleting_takes_the_log_away_and_a_new_topic_starts_from_nothing(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1)
            await world.elect(1, [1], [1])
            node.append(b"a")
            node.replicas._checkpoints.write()
            assert world.stop(node, epoch=-2, delete=True) == ErrorCode.NONE
            assert node.replicas.partitions.get(T0) is None
            assert node.append(b"x")[T0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
            names = [path.name for path in node.dirs[0].iterdir() if path.is_dir()]
            assert [name.endswith("-delete") for name in names] == [True]
            state = await world.stored()
            world.states[T0] = replace(state, leader_epoch=0, partition_epoch=0)
            assert await send(world, node, is_new=True) == ErrorCode.NONE
            assert (node.log().end_offset, node.log().high_watermark) == (0, 0)
            assert not node.partition().lost_tail

        simulate(story)

    def test_one_that_cannot_be_deleted_does_not_spoil_the_others(
        self, simulate: Simulation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1)
            broken, fine = (TopicPartition("t", index) for index in range(2))
            for of in (broken, fine):
                await world.elect(1, [1], [1], of=of)
            delete = node.replicas.replica_logs.delete

            def fail_once(of: TopicPartition) -> None:
                if of == broken:
                    raise RuntimeError("a defect")
                delete(of)

            monkeypatch.setattr(node.replicas.replica_logs, "delete", fail_once)
            response = node.replicas.control_requests.stop_replica(
                StopReplicaRequest(
                    controller_id=9,
                    controller_epoch=world.controller_epoch,
                    topics=[StopReplicaTopicV1(name="t", partition_indexes=[0, 1])],
                    delete_partitions=True,
                )
            )
            assert response.error_code == ErrorCode.NONE
            assert [each.error_code for each in response.partition_errors] == [
                ErrorCode.UNKNOWN_SERVER_ERROR,
                ErrorCode.NONE,
            ]
            assert node.logs.get(fine) is None
            monkeypatch.undo()
            assert world.stop(node, broken, delete=True) == ErrorCode.NONE
            assert node.logs.get(broken) is None

        simulate(story)

    def test_what_is_not_hosted_is_deleted_from_disk_all_the_same(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1)
            await world.elect(1, [1], [1])
            await node.stop()
            await world.restart(1)
            assert node.replicas.partitions.get(T0) is None
            assert node.logs.get(T0) is not None
            assert world.stop(node) == ErrorCode.NONE
            assert node.logs.get(T0) is not None
            assert world.stop(node, delete=True) == ErrorCode.NONE
            assert node.logs.get(T0) is None

        simulate(story)

    def test_an_older_controller_is_refused(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1)
            world.controller_epoch = 5
            await world.elect(1, [1], [1])
            stale = world.stop(node, controller_epoch=4, delete=True)
            assert stale == ErrorCode.STALE_CONTROLLER_EPOCH
            assert node.partition().is_leader

        simulate(story)


class TestUpdateMetadata:
    def test_an_older_controller_is_refused(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (node,) = await world.start(1)
            world.controller_epoch = 5
            await world.elect(1, [1], [1])
            response = node.replicas.control_requests.update_metadata(
                UpdateMetadataRequest(controller_epoch=4)
            )
            assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
            assert node.cache.is_alive(1)

        simulate(story)

    def test_a_postponed_state_gives_way_to_a_newer_one(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            first, second = await world.start(1, 2)
            await world.elect(1, [1, 2], [1, 2], without=[2])
            await second.replicas.control_requests.leader_and_isr(world.request(T0, is_new=True))
            assert T0 not in second.replicas.fetchers
            await world.elect(2, [1, 2])
            assert second.partition().is_leader
            world.update_metadata()
            assert second.partition().is_leader
            assert T0 in first.replicas.fetchers

        simulate(story)

    def test_a_partition_that_was_moved_away_meanwhile_is_given_up(
        self, simulate: Simulation
    ) -> None:
        async def story(world: World) -> None:
            away, first, second, third = await world.start(1, 2, 3, 4)
            await world.elect(1, [1, 2], [1, 2, 3])
            assert away.partition().is_leader
            await world.elect(2, [2, 3], [2, 3, 4], without=[1])
            assert away.partition().is_leader
            world.update_metadata()
            assert away.partition().leader_id is None
            assert away.partition().log is not None
            assert first.partition().is_leader
            # A follower that is moved away asks no more; one that stays goes on.
            await world.elect(2, [2, 4], [2, 4], without=[3])
            assert T0 in second.replicas.fetchers
            world.update_metadata()
            assert T0 not in second.replicas.fetchers
            assert T0 in third.replicas.fetchers

        simulate(story)


class TestHighWatermarkCheckpoint:
    def test_it_is_written_and_survives_a_restart(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            leader, follower = await world.start(1, 2)
            await world.elect(1, [1, 2], [1, 2])
            for _ in range(5):
                await leader.produce(b"x")
            await world.until(lambda: follower.log().high_watermark == 5)
            file = leader.dirs[0] / "replication-offset-checkpoint"
            await world.until(file.exists, 10)
            assert file.read_text() == "0\n1\nt 0 5\n"
            await leader.stop(clean=False)
            await world.restart(1)
            await world.elect(1, [1, 2])
            assert leader.log().high_watermark == 5

        simulate(story)

    def test_it_is_not_rewritten_when_nothing_moved(self, simulate: Simulation) -> None:
        async def story(world: World) -> None:
            (leader,) = await world.start(1)
            await world.elect(1, [1], [1])
            leader.append(b"x")
            leader.replicas._checkpoints.write()
            file = leader.dirs[0] / "replication-offset-checkpoint"
            file.unlink()
            leader.replicas._checkpoints.write()
            assert not file.exists()
            leader.append(b"x")
            leader.replicas._checkpoints.write()
            assert file.read_text() == "0\n1\nt 0 2\n"

        simulate(story)
