"""ISR changes through the controller, as a leader asks for them: AlterPartition over real frames.

docs/spec/protocol-ladder.md sections 3.3 and 3.4; acceptance behaviours 19, 22, 23, 24.
The controller is a socket in the hand of the test.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from tests.replica.conftest import CONFIG, Port, Simulation, World
from tests.replica.test_isr_changes import Puppet

from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from odradek.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.wire.messages.update_metadata import UpdateMetadataBroker, UpdateMetadataEndpoint
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
THROUGH_CONTROLLER = replace(CONFIG, protocol=ProtocolVersion.V2_7_IV2)

Answer = Callable[[AlterPartitionRequest, int], Any]


class ControllerSocket:
    """Takes a broker's requests, keeps them, and answers as the test says."""

    def __init__(self, world: World, broker_id: int = 9) -> None:
        self.world = world
        self.id = broker_id
        self.asked: list[AlterPartitionRequest] = []
        self.ports: set[Port] = set()
        self.requests: list[Any] = []
        self.versions: list[tuple[int, int]] = []
        # Of AlterPartition, as ApiVersions has them; None: not served.
        self.offered: tuple[int, int] | None = (0, 3)
        self.answer: Answer = self.accept
        self.connections = 0

    async def start(self) -> "ControllerSocket":
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Port(self), "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        self.announce()
        return self

    def announce(self) -> None:
        """UpdateMetadata of this controller to the brokers of the world."""
        live = self.world.live

        def with_itself(*without: int) -> list[UpdateMetadataBroker]:
            return [*live(*without), self._registration()]

        self.world.live = with_itself  # type: ignore[method-assign]
        self.world.controller_id = self.id
        self.world.update_metadata()
        self.world.live = live  # type: ignore[method-assign]

    def _registration(self) -> UpdateMetadataBroker:
        endpoint = UpdateMetadataEndpoint(
            host="127.0.0.1", port=self.port, listener="PLAINTEXT", security_protocol=0
        )
        return UpdateMetadataBroker(id=self.id, endpoints=[endpoint])

    def serve(self, request: Any, version: int) -> Any:
        if isinstance(request, ApiVersionsRequest):
            self.connections += 1
            keys = []
            if self.offered is not None:
                low, high = self.offered
                key = ApiKey.ALTER_PARTITION
                keys = [ApiVersion(api_key=key, min_version=low, max_version=high)]
            return ApiVersionsResponse(api_keys=keys)
        self.asked.append(request)
        return asyncio.ensure_future(self._answered(request, len(self.asked)))

    async def _answered(self, request: AlterPartitionRequest, number: int) -> Any:
        answer = self.answer(request, number)
        return await answer if asyncio.iscoroutine(answer) else answer

    # Answers

    def respond(
        self,
        request: AlterPartitionRequest,
        of: Callable[
            [str, AlterPartitionRequestPartitionData], AlterPartitionResponsePartitionData
        ],
    ) -> AlterPartitionResponse:
        return AlterPartitionResponse(
            topics=[
                AlterPartitionResponseTopicData(
                    topic_name=topic.topic_name,
                    topic_id=topic.topic_id,
                    partitions=[of(topic.topic_name, each) for each in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def error(self, code: ErrorCode) -> Answer:
        def answer(request: AlterPartitionRequest, number: int) -> AlterPartitionResponse:
            return self.respond(
                request,
                lambda _, each: AlterPartitionResponsePartitionData(
                    partition_index=each.partition_index, error_code=code
                ),
            )

        return answer

    async def accept(
        self, request: AlterPartitionRequest, number: int = 0
    ) -> AlterPartitionResponse:
        """Writes as a controller does: under the version that the leader names."""
        written = {}
        for topic in request.topics:
            for each in topic.partitions:
                tp = TopicPartition(topic.topic_name, each.partition_index)
                state = await self.world.stored(tp)
                wanted = replace(
                    state, isr=tuple(each.new_isr), partition_epoch=each.partition_epoch
                )
                store = next(iter(self.world.nodes.values())).store
                written[tp] = await store.update_isr(tp, wanted)

        def of(
            topic: str, each: AlterPartitionRequestPartitionData
        ) -> AlterPartitionResponsePartitionData:
            state = written[TopicPartition(topic, each.partition_index)]
            if state is None:
                code = ErrorCode.INVALID_UPDATE_VERSION
                return AlterPartitionResponsePartitionData(
                    partition_index=each.partition_index, error_code=code
                )
            return AlterPartitionResponsePartitionData(
                partition_index=each.partition_index,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                isr=list(state.isr),
                partition_epoch=state.partition_epoch,
            )

        return self.respond(request, of)

    def isrs(self) -> list[list[int]]:
        return [each.new_isr for asked in self.asked for topic in asked.topics
                for each in topic.partitions]  # fmt: skip


async def led(world: World) -> tuple[Any, Puppet, ControllerSocket]:
    """Broker 1 leads alone with one record; broker 2 fetches as the test says."""
    leader, _ = await world.start(1, 2)
    await world.elect(1, [1], [1, 2], without=[2])
    leader.append(b"a")
    return leader, Puppet(leader, 2), await ControllerSocket(world).start()


async def catch_up(puppet: Puppet, offset: int = 1, times: int = 3) -> None:
    for _ in range(times):
        puppet.fetch(offset)
        await asyncio.sleep(0.05)


def test_who_has_caught_up_joins_by_one_request_and_no_notification(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, puppet, controller = await led(world)
        await catch_up(puppet)
        await world.until(lambda: leader.role().isr.committed == (1, 2))
        (asked,) = controller.asked
        assert (asked.broker_id, asked.broker_epoch) == (1, leader.epoch)
        (topic,) = asked.topics
        assert topic.topic_name == "t", "by name: the id is not known"
        assert topic.partitions[0].new_isr == [1, 2]
        assert leader.partition().partition_epoch == (await world.stored()).partition_epoch == 1
        await asyncio.sleep(3)
        assert await leader.store.notifications.isr_notifications() == []
        await asyncio.sleep(20)  # and a silent follower leaves
        leader.append(b"b")
        await world.until(lambda: leader.role().isr.committed == (1,))
        assert controller.isrs() == [[1, 2], [1]]

    simulate(story, config=THROUGH_CONTROLLER)


def test_one_request_in_flight_and_the_rest_together(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        await world.start(1, 2)
        controller = await ControllerSocket(world).start()
        gate = asyncio.Event()

        async def slow(request: AlterPartitionRequest, number: int) -> AlterPartitionResponse:
            await gate.wait()
            return await controller.accept(request)

        controller.answer = slow
        parts = [TopicPartition("t", index) for index in range(5)]
        for tp in parts:
            await world.elect(1, [1], [1, 2], of=tp)
            controller.announce()
            await world.until(lambda: len(controller.asked) == 1)
        await asyncio.sleep(5)
        assert len(controller.asked) == 1, "the others wait for its answer"
        gate.set()
        for tp in parts:
            await world.until_stored({1, 2}, tp)
        assert len(controller.asked) == 2
        assert len(controller.isrs()) == 5

    simulate(story, config=THROUGH_CONTROLLER)


def test_while_the_answer_is_out_the_maximal_isr_holds_the_mark(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, puppet, controller = await led(world)
        controller.answer = lambda request, number: asyncio.sleep(1000)
        await catch_up(puppet)
        assert leader.role().isr.maximal == (1, 2)
        assert leader.role().isr.committed == (1,)
        leader.append(b"b")
        assert leader.log().high_watermark == 1
        puppet.fetch(2)
        assert leader.log().high_watermark == 2
        # The controller is another broker now: the request is sent again there, at once.
        successor = await ControllerSocket(world, 8).start()
        await world.until(lambda: leader.role().isr.committed == (1, 2))
        assert successor.isrs() == controller.isrs() == [[1, 2]]
        assert (await world.stored()).partition_epoch == 1, "it landed once"

    simulate(story, config=THROUGH_CONTROLLER)


def test_written_and_the_controller_died_before_it_answered(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, puppet, controller = await led(world)

        async def write_and_die(request: AlterPartitionRequest, number: int) -> None:
            await controller.accept(request)
            for port in list(controller.ports):
                port.close()

        controller.answer = write_and_die
        await catch_up(puppet)
        await world.until_stored({1, 2})
        assert leader.role().isr.committed == (1,), "the leader has heard nothing"
        controller.answer = controller.accept
        await world.until(lambda: leader.role().isr.committed == (1, 2))
        assert leader.partition().partition_epoch == (await world.stored()).partition_epoch == 1

    simulate(story, config=THROUGH_CONTROLLER)


def test_refused_for_an_ineligible_replica_it_is_tried_again_later(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, puppet, controller = await led(world)
        for code in (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA):
            controller.answer = controller.error(code)
            asked = len(controller.asked)
            await catch_up(puppet, times=100)
            assert not leader.role().isr.in_flight
            assert leader.role().isr.committed == (1,)
            assert 2 <= len(controller.asked) - asked <= 11, "in 5 s, not with every fetch"
        controller.answer = controller.accept
        await catch_up(puppet, times=20)
        assert leader.role().isr.committed == (1, 2)

    simulate(story, config=THROUGH_CONTROLLER)


def test_an_ineligible_replica_does_not_keep_another_from_joining(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, *_ = await world.start(1, 2, 3)
        await world.elect(1, [1], [1, 2, 3], without=[2, 3])
        leader.append(b"a")
        controller = await ControllerSocket(world).start()
        refused = controller.error(ErrorCode.INELIGIBLE_REPLICA)

        def answer(request: AlterPartitionRequest, number: int) -> Any:
            is_ineligible = 2 in request.topics[0].partitions[0].new_isr
            return (refused if is_ineligible else controller.accept)(request, number)

        controller.answer = answer
        leaving, other = Puppet(leader, 2), Puppet(leader, 3)
        for _ in range(4):  # in less time than one that was refused is not proposed again
            await catch_up(leaving, times=1)
            await catch_up(other, times=1)
        assert leader.role().isr.committed == (1, 3)

    simulate(story, config=THROUGH_CONTROLLER)


def test_refused_by_a_controller_that_knows_better_it_waits_to_hear_it(
    simulate: Simulation,
) -> None:
    async def story(world: World) -> None:
        leader, puppet, controller = await led(world)
        for code in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.INVALID_UPDATE_VERSION,
            ErrorCode.UNKNOWN_TOPIC_ID,
        ):
            controller.answer = controller.error(code)
            asked = len(controller.asked)
            await catch_up(puppet, times=40)
            assert len(controller.asked) == asked + 1, code
            assert leader.role().isr.in_flight, code
            await world.elect(1, [1], without=[2])
            controller.announce()
            puppet.epoch += 1
        controller.answer = controller.accept
        await catch_up(puppet)
        await world.until(lambda: leader.role().isr.committed == (1, 2))

    simulate(story, config=THROUGH_CONTROLLER)


def test_what_cannot_be_decided_now_is_asked_again_after_a_pause(simulate: Simulation) -> None:
    """Any other error, an answer without the partition, no service, no controller at all."""

    async def story(world: World) -> None:
        leader, puppet, controller = await led(world)
        wrong = controller.respond
        for answer in (
            controller.error(ErrorCode.UNKNOWN_SERVER_ERROR),
            controller.error(ErrorCode.NOT_CONTROLLER),
            lambda request, number: AlterPartitionResponse(),
            lambda request, number: AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
            lambda request, number: AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER),
            lambda request, number: wrong(
                request,
                lambda _, each: AlterPartitionResponsePartitionData(
                    partition_index=each.partition_index, error_code=4711
                ),
            ),
        ):
            controller.answer = answer
            asked = len(controller.asked)
            await catch_up(puppet, times=20)
            assert 5 <= len(controller.asked) - asked <= 21, "in 1 s, every 50 ms"
            assert leader.role().isr.in_flight
        controller.offered = None  # as a broker that does not know the request
        controller.answer = controller.error(ErrorCode.NOT_CONTROLLER)
        await asyncio.sleep(1)
        asked = len(controller.asked)
        await asyncio.sleep(1)
        assert len(controller.asked) == asked
        controller.offered, controller.answer = (0, 0), controller.accept
        await world.until(lambda: leader.role().isr.committed == (1, 2))
        assert (await world.stored()).partition_epoch == 1

    simulate(story, config=THROUGH_CONTROLLER)


def test_one_partition_that_is_never_decided_does_not_hold_up_the_others(
    simulate: Simulation,
) -> None:
    async def story(world: World) -> None:
        leader, _ = await world.start(1, 2)
        controller = await ControllerSocket(world).start()
        stuck, other = TopicPartition("stuck", 0), TopicPartition("t", 0)

        async def answer(request: AlterPartitionRequest, number: int) -> AlterPartitionResponse:
            accepted = await controller.accept(request)
            for topic in accepted.topics:
                if topic.topic_name == stuck.topic:
                    code = ErrorCode.NOT_CONTROLLER
                    topic.partitions = [AlterPartitionResponsePartitionData(error_code=code)]
            return accepted

        controller.answer = answer
        for tp in (stuck, other):
            await world.elect(1, [1], [1, 2], of=tp)
            controller.announce()
        await world.until(lambda: leader.partition(other).role.isr.committed == (1, 2))
        assert leader.partition(stuck).role.isr.in_flight

    simulate(story, config=THROUGH_CONTROLLER)


def test_a_success_that_is_not_about_the_question_is_not_taken(simulate: Simulation) -> None:
    async def story(world: World) -> None:
        leader, puppet, controller = await led(world)
        for odd in (
            {"isr": [1, 2, 3]},
            {"isr": [2]},
            {"leader_epoch": 7},
            {"leader_id": 2},
            {"partition_epoch": -1},
        ):
            fields = {"isr": [1, 2], "leader_id": 1, "leader_epoch": puppet.epoch} | odd

            def answer(request: Any, number: int, fields: Any = fields) -> Any:
                known = {"partition_epoch": 99} | fields
                return controller.respond(
                    request, lambda _, each: AlterPartitionResponsePartitionData(**known)
                )

            controller.answer = answer
            await catch_up(puppet, times=10)
            assert leader.role().isr.committed == (1,), odd
            assert leader.role().isr.in_flight, odd
            await world.elect(1, [1], without=[2])
            controller.announce()
            puppet.epoch += 1

    simulate(story, config=THROUGH_CONTROLLER)


def test_the_leader_epoch_ends_while_the_connection_is_opened(simulate: Simulation) -> None:
    """Nothing is asked for a partition that this broker does not lead any more."""

    async def story(world: World) -> None:
        leader, puppet, controller = await led(world)
        controller.server.close()
        await catch_up(puppet)
        assert leader.role().isr.in_flight
        await world.elect(2, [2, 1])
        reborn = await ControllerSocket(world, 8).start()
        await asyncio.sleep(5)
        assert reborn.asked == [] == controller.asked
        assert leader.replicas.statistics()["isr_queued"] == 0

    simulate(story, config=THROUGH_CONTROLLER)


def test_it_restarts_after_a_change_whose_answer_never_came(simulate: Simulation) -> None:
    """The change is settled first, since nothing else moves the partition epoch; then reverted."""

    async def story(world: World) -> None:
        leader, puppet, controller = await led(world)
        controller.answer = lambda request, number: asyncio.sleep(1000)
        await catch_up(puppet)
        assert leader.role().isr.in_flight
        await world.nodes[2].stop()
        await world.restart(2)
        successor = await ControllerSocket(world, 8).start()
        await world.until(lambda: not leader.role().isr.in_flight)
        assert controller.isrs() == [[1, 2]]
        assert successor.isrs() == [[1, 2], [1]]
        assert leader.role().isr.committed == (1,)
        assert leader.partition().partition_epoch == (await world.stored()).partition_epoch == 2
        assert leader.role().followers[2].log_end == -1, "what its predecessor had does not count"

    simulate(story, config=THROUGH_CONTROLLER)


def test_topics_by_id_and_the_newcomer_by_its_incarnation(simulate: Simulation) -> None:
    """From 2.8 on, in the versions that both sides know; by name if an id is missing."""
    topic_id = UUID(int=77)

    async def story(world: World) -> None:
        leader, puppet, controller = await led(world)
        controller.answer = controller.error(ErrorCode.INELIGIBLE_REPLICA)
        await catch_up(puppet)
        (by_name,) = controller.asked
        assert by_name.topics[0].topic_name == "t"
        leader.logs.flusher.assign_topic_id(leader.log(), topic_id)
        for highest in (3, 2, 1):
            controller.offered = (0, highest)
            for port in list(controller.ports):
                port.close()
            asked = len(controller.asked)
            await catch_up(puppet, times=20)
            topic = controller.asked[asked].topics[0]
            (partition,) = topic.partitions
            assert topic.topic_id == (topic_id if highest >= 2 else UUID(int=0)), highest
            if highest == 3:
                members = {one.broker_id: one.broker_epoch for one in partition.new_isr_with_epochs}
                assert members == {1: -1, 2: world.nodes[2].epoch}
            else:
                assert partition.new_isr == [1, 2]

    simulate(story, config=replace(CONFIG, protocol=ProtocolVersion.V3_0_IV0))
