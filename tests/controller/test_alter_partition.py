"""AlterPartition and AllocateProducerIds at the controller: every row of the specification.

docs/spec/protocol-ladder.md sections 3.2 and 4; acceptance behaviours 20, 21, 22, 24, 26, 27.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.controller.test_controller import Cluster, refusal

from odradek.controller.events import IsrProposal
from odradek.controller.journal import EntryKind
from odradek.store import paths, payloads
from odradek.store.payloads import LeaderAndIsr, TopicNode
from odradek.wire.errors import ErrorCode
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
ID = UUID(int=77)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    await made.open([1, 2, 3, 4], [1, 2])
    yield made
    await made.close()


async def stored(cluster: Cluster, tp: TopicPartition = T0) -> LeaderAndIsr:
    state = await cluster.admin.partition_state(tp)
    assert state is not None
    return state


def proposal(
    state: LeaderAndIsr, *isr: int, topic: str | UUID = "t", **changes: Any
) -> IsrProposal:
    epochs = changes.pop("epochs", {})
    return IsrProposal(topic, 0, replace(state, isr=isr, **changes), epochs)


async def ask(cluster: Cluster, *proposals: IsrProposal, sender: int = 3) -> list[Any]:
    """What the active controller answers to each."""
    epoch = cluster.members[sender].puppet.epoch
    outcomes = await cluster.controller().alter_partitions(sender, epoch, proposals)
    await cluster.settle()
    return [outcomes[each] for each in proposals]


async def test_a_change_is_written_announced_and_answered(cluster: Cluster) -> None:
    await cluster.make("t", (3, 2, 4))
    before = await stored(cluster)
    sent = len(cluster.members[4].puppet.requests)
    (answer,) = await ask(cluster, proposal(before, 3, 2))
    after = await stored(cluster)
    assert answer == after
    assert (after.isr, after.leader_epoch) == ((3, 2), before.leader_epoch)
    assert after.partition_epoch == before.partition_epoch + 1
    kinds = [type(each).__name__ for _, each in cluster.members[4].puppet.requests[sent:]]
    assert kinds == ["UpdateMetadataRequest"], "no LeaderAndIsr: the leader knows"
    assert await cluster.admin.notifications.isr_notifications() == []
    assert any("isr=[3,2]" in text for text in cluster.happened(EntryKind.LEADERSHIP))


async def test_every_refusal_in_its_order(cluster: Cluster) -> None:
    await cluster.make("t", (3, 2, 4))
    state = await stored(cluster)
    later = {"partition_epoch": state.partition_epoch + 1}
    leader = {"leader_epoch": state.leader_epoch + 1}
    epochs = {id: cluster.members[id].puppet.epoch for id in (2, 3, 4)}
    cases: list[tuple[str, ErrorCode, dict[str, Any]]] = [
        ("no such topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {"topic": "other"}),
        ("no such id", ErrorCode.UNKNOWN_TOPIC_ID, {"topic": ID}),
        ("a later partition epoch", ErrorCode.NOT_CONTROLLER, later),
        ("a later leader epoch", ErrorCode.NOT_CONTROLLER, leader),
        ("an earlier leader epoch", ErrorCode.FENCED_LEADER_EPOCH, {"leader_epoch": -1}),
        ("another leads", ErrorCode.INVALID_REQUEST, {"leader": 2}),
        ("an earlier partition epoch", ErrorCode.INVALID_UPDATE_VERSION, {"partition_epoch": -1}),
        ("recovering with followers", ErrorCode.INVALID_REQUEST, {"recovering": True}),
        ("an earlier incarnation", ErrorCode.INELIGIBLE_REPLICA, {"epochs": {**epochs, 2: 1}}),
    ]
    for case, expected, change in cases:
        assert await ask(cluster, proposal(state, 3, 2, **change)) == [expected], case
    for case, isr in [
        ("not a replica", (3, 1)),
        ("without the leader", (2, 4)),
        ("twice the same", (3, 2, 2)),
        ("empty", ()),
    ]:
        assert await ask(cluster, proposal(state, *isr)) == [ErrorCode.INVALID_REQUEST], case
    (only,) = await ask(cluster, proposal(state, 3, recovering=True))
    assert only is ErrorCode.INVALID_REQUEST, "what has recovered does not begin to recover"
    assert await stored(cluster) == state, "nothing was written"
    twice = [proposal(state, 3, 2, epochs=epochs), proposal(state, 3, 4)]
    accepted, again = await ask(cluster, *twice)
    assert accepted.isr == (3, 2)
    assert again is ErrorCode.INVALID_REQUEST, "one partition named twice"


async def test_the_sender_must_be_registered_as_it_says(cluster: Cluster) -> None:
    await cluster.make("t", (3, 2))
    controller, state = cluster.controller(), await stored(cluster)
    epoch = cluster.members[3].puppet.epoch
    for sender, claimed in ((9, epoch), (3, epoch - 1), (3, epoch + 1), (3, -1)):
        question = controller.alter_partitions(sender, claimed, [proposal(state, 3)])
        assert await refusal(question) is ErrorCode.STALE_BROKER_EPOCH, (sender, claimed)
    assert await refusal(
        cluster.controller(2).alter_partitions(3, epoch, [proposal(state, 3)])
    ) is (ErrorCode.NOT_CONTROLLER)


async def test_the_same_change_twice_moves_the_epoch_once(cluster: Cluster) -> None:
    await cluster.make("t", (3, 2))
    before = await stored(cluster)
    first = await ask(cluster, proposal(before, 3))
    again = await ask(cluster, proposal(before, 3))
    assert first == again == [await stored(cluster)]
    assert first[0].partition_epoch == before.partition_epoch + 1
    (other,) = await ask(cluster, proposal(before, 3, 2))
    assert other is ErrorCode.INVALID_UPDATE_VERSION, "another change from the old state"


async def test_by_topic_id(cluster: Cluster) -> None:
    await cluster.admin.create_topic("t", TopicNode({0: (3, 2)}, topic_id=ID))
    await cluster.settle()
    state = await stored(cluster)
    (answer,) = await ask(cluster, proposal(state, 3, topic=ID))
    assert answer.isr == (3,)


async def test_a_member_that_shuts_down_or_is_gone_is_not_let_in(cluster: Cluster) -> None:
    await cluster.make("t", (3, 2, 4))
    await ask(cluster, proposal(await stored(cluster), 3))
    await cluster.controller().controlled_shutdown(2, -1)
    await cluster.kill(4)
    await cluster.settle()
    for member in (2, 4):
        state = await stored(cluster)
        assert await ask(cluster, proposal(state, 3, member)) == [ErrorCode.INELIGIBLE_REPLICA]
    await cluster.start(4)
    await cluster.settle()
    (answer,) = await ask(cluster, proposal(await stored(cluster), 3, 4))
    assert answer.isr == (3, 4)


async def test_a_state_written_behind_the_controllers_back_is_read_again(cluster: Cluster) -> None:
    """A leader of an earlier protocol writes the state itself, in the same cluster."""
    await cluster.make("t", (3, 2, 4))
    before = await stored(cluster)
    assert await cluster.leader_of(T0).change_isr(T0, [3, 2], notify=False)
    (answer,) = await ask(cluster, proposal(before, 3, 4))
    assert answer is ErrorCode.INVALID_UPDATE_VERSION
    (answer,) = await ask(cluster, proposal(await stored(cluster), 3))
    assert answer.isr == (3,), "the controller knows the state now"


async def test_a_write_whose_answer_was_lost_is_our_own(cluster: Cluster) -> None:
    await cluster.make("t", (3, 2))
    state = await stored(cluster)
    held, written = cluster.members[1].held, []

    async def wrote_before() -> None:
        data = payloads.encode_state(replace(state, isr=(3,)))
        written.append(await cluster.admin.session.set(paths.partition_state(T0), data))

    held.race(paths.partition_state(T0), wrote_before)
    (answer,) = await ask(cluster, proposal(state, 3))
    assert written
    assert (answer.isr, answer.partition_epoch) == ((3,), state.partition_epoch + 1)


async def test_the_controller_moves_and_the_change_lands_once(cluster: Cluster) -> None:
    await cluster.make("t", (3, 2, 4))
    before = await stored(cluster)
    first = proposal(before, 3, 2)
    await ask(cluster, first)
    await cluster.kill(1)
    await cluster.settle()
    assert cluster.active == [2]
    (answer,) = await ask(cluster, proposal(before, 3, 2))
    state = await stored(cluster)
    assert answer == state
    assert state.partition_epoch == before.partition_epoch + 1


async def test_a_deposed_controller_writes_nothing(cluster: Cluster) -> None:
    await cluster.make("t", (3, 2))
    deposed, state = cluster.controller(1), await stored(cluster)
    cluster.members[1].held.hold()  # it hears nothing of the election
    await cluster.admin.session.delete(paths.CONTROLLER)
    await cluster.settle()
    assert cluster.active == [1, 2]
    epoch = cluster.members[3].puppet.epoch
    question = deposed.alter_partitions(3, epoch, [proposal(state, 3)])
    assert await refusal(question) is ErrorCode.NOT_CONTROLLER
    cluster.members[1].held.release()
    await cluster.settle()
    assert (await stored(cluster)).isr == state.isr


async def test_a_move_is_finished_without_any_notification(cluster: Cluster) -> None:
    await cluster.make("t", (3, 2))
    await cluster.controller().alter_reassignments({T0: [3, 4]})
    await cluster.settle()
    state = await stored(cluster)
    (answer,) = await ask(cluster, proposal(state, *state.isr, 4))
    assert set(answer.isr) == {3, 2, 4}
    assert await cluster.controller().list_reassignments(None) == {}
    node = await cluster.admin.topic("t")
    assert node is not None and node.partitions[0] == (3, 4) and not node.adding
    assert set((await stored(cluster)).isr) == {3, 4}
    assert await cluster.admin.notifications.isr_notifications() == []


async def test_a_block_of_producer_ids_for_a_registered_broker(cluster: Cluster) -> None:
    epoch = cluster.members[3].puppet.epoch
    controller = cluster.controller()
    blocks = [await controller.allocate_producer_ids(3, epoch)]
    blocks.append(await cluster.admin.allocate_producer_ids(4))  # one that writes by itself
    await cluster.kill(1)
    await cluster.settle()
    blocks.append(await cluster.controller().allocate_producer_ids(3, epoch))
    assert [(block.start, len(block)) for block in blocks] == [
        (0, 1000),
        (1000, 1000),
        (2000, 1000),
    ]
    data, _ = await cluster.admin.session.get(paths.PRODUCER_IDS)
    assert data == b'{"version":1,"broker":3,"block_start":"2000","block_end":"2999"}'
    for question, expected in [
        (cluster.controller().allocate_producer_ids(9, 1), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (cluster.controller().allocate_producer_ids(3, epoch + 1), ErrorCode.STALE_BROKER_EPOCH),
    ]:
        assert await refusal(question) is expected
    last = 2**63 - 1 - 500
    used_up = payloads.encode_producer_ids(3, range(last - 1000, last))
    await cluster.admin.session.set(paths.PRODUCER_IDS, used_up)
    question = cluster.controller().allocate_producer_ids(3, epoch)
    assert await refusal(question) is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_an_unclean_leader_recovers_with_its_next_change() -> None:
    """Acceptance behaviour 25: the mark of an unclean election goes with the next ISR change."""
    cluster = Cluster(protocol=ProtocolVersion.V3_2_IV0)
    await cluster.open([1, 2, 3, 4], [1])
    await cluster.make("t", (3, 2))
    assert await cluster.leader_of(T0).change_isr(T0, [3])
    await cluster.settle()
    await cluster.kill(3)
    await cluster.settle()
    cluster.controller().enable_unclean_leader_election()
    await cluster.settle()
    state = await stored(cluster)
    assert (state.leader, state.isr, state.recovering) == (2, (2,), True)
    data, _ = await cluster.admin.session.get(paths.partition_state(T0))
    assert data is not None and data.endswith(b',"leader_recovery_state":1}')
    await cluster.start(3)
    await cluster.settle()
    (grown,) = await ask(cluster, proposal(state, 2, 3, recovering=True), sender=2)
    assert grown is ErrorCode.INVALID_REQUEST, "no follower joins while the leader recovers"
    (answer,) = await ask(cluster, proposal(state, 2, 3, recovering=False), sender=2)
    assert (answer.isr, answer.recovering) == ((2, 3), False)
    data, _ = await cluster.admin.session.get(paths.partition_state(T0))
    assert data is not None and b"recovery" not in data
    await cluster.close()
