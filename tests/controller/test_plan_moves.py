"""Moves of plans on the controller: paced, in steps, continued by the next one, and stopped."""

from collections.abc import AsyncIterator, Mapping

import pytest
from tests.controller.test_controller import Cluster

from odradek.controller import events, plan_scheduler, plan_throttle
from odradek.controller.journal import EntryKind
from odradek.store.paths import ConfigKind
from odradek.store.plan_moves import PLAN_MOVES, PlannedMove
from odradek.store.plan_throttles import PLAN_THROTTLES
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Six brokers, two of which can be the controller, and one move at a time per broker."""
    made = Cluster(moves_per_broker=1, moves_per_broker_max=1)
    await made.open([1, 2, 3, 4, 5, 6], [1, 2])
    yield made
    await made.close()


async def ask(
    cluster: Cluster,
    moves: Mapping[TopicPartition, tuple[int, ...] | None],
    plan: str = "p-1",
    throttle: int = 0,
) -> dict[str, str]:
    planned = {tp: None if to is None else PlannedMove(to, 10) for tp, to in moves.items()}
    answers = await cluster.controller().move_for_plan(plan, planned, throttle=throttle)
    await cluster.settle()
    return {str(tp): answer.error.name for tp, answer in answers.items()}


async def moving(cluster: Cluster) -> dict[int, tuple[int, ...]]:
    node = await cluster.admin.topic("t")
    assert node is not None
    return dict(node.adding)


async def replicas(cluster: Cluster, tp: TopicPartition = T0) -> tuple[int, ...]:
    node = await cluster.admin.topic(tp.topic)
    assert node is not None
    return node.partitions[tp.partition]


async def catch_up(cluster: Cluster, tp: TopicPartition = T0) -> None:
    """The replicas being added are in sync."""
    assert await cluster.leader_of(tp).change_isr(tp, list(await replicas(cluster, tp)))
    await cluster.settle()


async def look_again(cluster: Cluster) -> None:
    """Ten seconds have passed."""
    controller = cluster.controller()
    active = controller._active
    assert active is not None
    active.reassigner.plans._observe_at = 0.0
    controller.put_for_term(events.PaceMoves(), controller.epoch)
    await cluster.settle()


async def nodes(cluster: Cluster) -> list[str]:
    return await cluster.admin.session.children(PLAN_MOVES)


async def test_a_partition_moves_one_replica_at_a_time_and_is_led_as_planned(
    cluster: Cluster,
) -> None:
    await cluster.make("t", (1, 2, 3))
    assert await ask(cluster, {T0: (4, 5, 6)}) == {"t-0": "NONE"}
    seen = [await replicas(cluster)]
    for _ in range(3):
        assert len((await moving(cluster))[0]) == 1
        await catch_up(cluster)
        seen.append(await replicas(cluster))
    assert seen[-1] == (4, 5, 6)
    assert [len(step) for step in seen] == [4, 4, 4, 3], "the old one and the new one, each time"
    assert cluster.leader_of(T0).id == 4
    assert await nodes(cluster) == []
    assert "done for plan p-1" in cluster.happened(EntryKind.REASSIGNMENT)


async def test_moves_wait_for_room_on_their_brokers_and_plain_ones_do_not(cluster: Cluster) -> None:
    await cluster.make("t", (1, 2), (3, 4), (1, 3), (5, 6))
    await ask(cluster, {T0: (1, 5), T1: (3, 6), T2: (1, 4)})
    assert await moving(cluster) == {0: (5,), 1: (6,)}, "1 sends already"
    assert cluster.controller().moves_of_plans == 3
    listed = await cluster.controller().list_reassignments(None)
    assert {tp: (of.adding, of.removing) for tp, of in listed.items()} == {
        T0: ((5,), (2,)),
        T1: ((6,), (4,)),
        T2: ((4,), (3,)),
    }
    await cluster.controller().alter_reassignments({T3: [5, 1]})
    await cluster.settle()
    assert await moving(cluster) == {0: (5,), 1: (6,), 3: (1,)}, "as Kafka does it: at once"
    await catch_up(cluster, T0)
    assert await moving(cluster) == {1: (6,), 3: (1,)}, "a plain move counts on its brokers"
    await catch_up(cluster, T3)
    assert await moving(cluster) == {1: (6,), 2: (4,)}


async def test_the_next_controller_continues(cluster: Cluster) -> None:
    await cluster.make("t", (3, 4), (4, 3), (3, 5))
    await ask(cluster, {T0: (5, 6), T1: (6, 5), T2: (3, 6)})
    assert await moving(cluster) == {0: (5,), 1: (6,)}, "3 sends already"
    await cluster.kill(1)
    await cluster.settle()
    assert cluster.active == [2]
    assert await moving(cluster) == {0: (5,), 1: (6,)}, "the limit is the same for all"
    for _ in range(12):
        for number in await moving(cluster):
            await catch_up(cluster, TopicPartition("t", number))
    assert [await replicas(cluster, tp) for tp in (T0, T1, T2)] == [(5, 6), (6, 5), (3, 6)]
    assert [cluster.leader_of(tp).id for tp in (T0, T1, T2)] == [5, 6, 3]
    assert await nodes(cluster) == []


async def test_a_plan_is_stopped_after_the_step_under_way(cluster: Cluster) -> None:
    await cluster.make("t", (1, 2, 3), (1, 2, 3))
    await ask(cluster, {T0: (4, 5, 6), T1: (4, 5, 6)})
    begun = await replicas(cluster)
    assert await ask(cluster, {T0: None, T1: None}, "another") == {
        "t-0": "NO_REASSIGNMENT_IN_PROGRESS",
        "t-1": "NO_REASSIGNMENT_IN_PROGRESS",
    }
    assert await ask(cluster, {T0: None, T1: None}) == {"t-0": "NONE", "t-1": "NONE"}
    assert await nodes(cluster) == []
    assert await replicas(cluster) == begun
    await catch_up(cluster)
    assert len(await replicas(cluster)) == 3
    assert await moving(cluster) == {}
    assert await replicas(cluster, T1) == (1, 2, 3)


async def test_a_plain_request_replaces_a_plan_and_a_cancel_ends_it(cluster: Cluster) -> None:
    await cluster.make("t", (1, 2, 3), (1, 2, 3))
    await ask(cluster, {T0: (4, 5, 6), T1: (4, 5, 6)})
    answers = await cluster.controller().alter_reassignments({T0: None, T1: None})
    await cluster.settle()
    assert {answer.error for answer in answers.values()} == {ErrorCode.NONE}
    assert await replicas(cluster) == await replicas(cluster, T1) == (1, 2, 3)
    assert await nodes(cluster) == []


async def test_a_new_order_is_written_and_the_leadership_follows(cluster: Cluster) -> None:
    await cluster.make("t", (1, 2, 3))
    await ask(cluster, {T0: (2, 1, 3)})
    assert await replicas(cluster) == (2, 1, 3)
    assert cluster.leader_of(T0).id == 2
    assert await nodes(cluster) == []


async def test_leaderships_are_limited_by_the_second() -> None:
    cluster = Cluster(moves_leaderships=1)
    await cluster.open([1, 2], [1])
    await cluster.make("t", (1, 2), (1, 2))
    await cluster.controller().move_for_plan("p", {tp: PlannedMove((2, 1)) for tp in (T0, T1)})
    led = {cluster.leader_of(tp).id for tp in (T0, T1)}
    assert led == {1, 2}
    while await nodes(cluster):
        await cluster._look()
    assert {cluster.leader_of(tp).id for tp in (T0, T1)} == {2}
    await cluster.close()


async def test_moves_of_a_deleted_topic_are_dropped(cluster: Cluster) -> None:
    await cluster.make("t", (1, 2), (1, 2))
    await ask(cluster, {T0: (3, 4), T1: (3, 4)})
    await cluster.admin.requests.request_deletion("t")
    await cluster.settle()
    assert await nodes(cluster) == []
    await cluster.controller().alter_reassignments({T0: None})
    await cluster.settle()
    assert await cluster.admin.topics() == []
    assert await ask(cluster, {T0: (3, 4)}) == {"t-0": "UNKNOWN_TOPIC_OR_PARTITION"}


async def test_a_step_to_a_broker_that_is_gone_is_taken_back_and_waits_for_it(
    cluster: Cluster,
) -> None:
    await cluster.make("t", (1, 2), (1, 3))
    await ask(cluster, {T0: (1, 6), T1: (1, 5)})
    assert await moving(cluster) == {0: (6,)}
    await cluster.kill(6)
    await cluster.settle()
    for _ in range(plan_scheduler.GONE_OBSERVATIONS - 1):
        await look_again(cluster)
    assert await moving(cluster) == {0: (6,)}
    await look_again(cluster)
    assert await moving(cluster) == {1: (5,)}, "the place is free for another"
    assert await replicas(cluster) == (1, 2)
    await cluster.start(6)
    await catch_up(cluster, T1)
    assert await moving(cluster) == {0: (6,)}


async def test_a_broker_that_comes_while_a_plan_runs_gets_what_a_new_plan_gives_it(
    cluster: Cluster,
) -> None:
    await cluster.make("t", (1, 2), (1, 3))
    await ask(cluster, {T0: (1, 5), T1: (1, 6)})
    await cluster.start(7)
    await cluster.settle()
    assert await moving(cluster) == {0: (5,)}, "the plan goes on as it was made"
    assert await ask(cluster, {T1: (1, 7)}, "p-2") == {"t-1": "NONE"}
    await catch_up(cluster, T0)
    assert await moving(cluster) == {1: (7,)}, "the newer plan has replaced what waited"
    await catch_up(cluster, T1)
    assert [await replicas(cluster, tp) for tp in (T0, T1)] == [(1, 5), (1, 7)]


async def test_a_partition_under_its_min_isr_stops_what_is_new(
    cluster: Cluster,
) -> None:
    await cluster.make("t", (1, 2), (1, 3))
    await cluster.make("u", (4, 5))
    await cluster.admin.configs.set(ConfigKind.TOPICS, "u", {"min.insync.replicas": "2"})
    u = TopicPartition("u", 0)
    await ask(cluster, {T0: (1, 6), T1: (1, 5)})
    assert await cluster.leader_of(u).change_isr(u, [4])
    await look_again(cluster)
    await catch_up(cluster, T0)
    assert await moving(cluster) == {}, "the queue waits"
    assert await nodes(cluster) != []
    assert await cluster.leader_of(u).change_isr(u, [4, 5])
    await look_again(cluster)
    assert await moving(cluster) == {1: (5,)}
    said = [text for text in cluster.happened(EntryKind.REASSIGNMENT) if "moves of plans" in text]
    assert said == [
        "moves of plans: stopped: u-0 is under its min ISR and all its brokers are alive",
        "moves of plans: resumed",
    ]


async def test_a_partition_without_a_leader_stops_nothing(cluster: Cluster) -> None:
    await cluster.make("t", (1, 2))
    await cluster.make("u", (4, 5))
    await cluster.admin.configs.set(ConfigKind.TOPICS, "u", {"min.insync.replicas": "2"})
    u = TopicPartition("u", 0)
    last = cluster.leader_of(u)
    assert await last.change_isr(u, [last.id])
    await last.fail_directory(u)
    await cluster.settle()
    last.mend_directory(u)
    # The next request finds the replica there again, and nothing elects a leader yet.
    await cluster.controller().alter_reassignments({u: [4, 6]})
    await cluster.settle()
    state = await cluster.admin.partition_state(u)
    assert state is not None and (state.leader, state.isr) == (-1, (4,))
    await look_again(cluster)
    await ask(cluster, {T0: (1, 3)})
    assert await moving(cluster) == {0: (3,)}


async def test_strain_slows_the_brokers_of_a_move_down() -> None:
    cluster = Cluster(moves_per_broker=4)
    await cluster.open([1, 2, 3, 4], [1])
    await cluster.make("t", (2, 3, 1), (2, 3))
    await cluster.admin.configs.set(ConfigKind.TOPICS, "t", {"min.insync.replicas": "2"})
    await cluster.controller().move_for_plan("p", {T0: PlannedMove((2, 3, 4))})
    await cluster.settle()
    assert await cluster.leader_of(T0).change_isr(T0, [2, 3])
    await cluster.settle()
    await look_again(cluster)
    said = [text for text in cluster.happened(EntryKind.REASSIGNMENT) if "moves of plans" in text]
    assert said == [
        f"moves of plans: broker {id} takes 2 moves at a time, was 4" for id in (1, 2, 3, 4)
    ]
    await cluster.close()


async def test_brokers_reported_as_strained_take_fewer_moves() -> None:
    """By their latency or their disks, which the controller does not see itself."""
    cluster = Cluster(moves_per_broker=4)
    await cluster.open([1, 2, 3, 4], [1])
    await cluster.make("t", (2, 3))
    await cluster.controller().move_for_plan("p", {T0: PlannedMove((2, 4))})
    await cluster.controller().move_for_plan("p", {}, strained=frozenset({1, 4, 99}))
    await cluster.settle()
    for _ in range(2):
        await look_again(cluster)
    said = [text for text in cluster.happened(EntryKind.REASSIGNMENT) if "moves of plans" in text]
    assert said == ["moves of plans: broker 4 takes 2 moves at a time, was 4"], "once, and no other"
    await cluster.close()


async def test_a_node_that_cannot_be_read_does_not_prevent_an_election(cluster: Cluster) -> None:
    await cluster.make("t", (1, 2), (1, 2))
    await ask(cluster, {T0: (1, 5), T1: (1, 6)})
    await cluster.admin.session.create(f"{PLAN_MOVES}/moves_0000000099", b"{")
    await cluster.kill(1)
    await cluster.settle()
    assert cluster.active == [2]
    await catch_up(cluster, T0)
    assert await moving(cluster) == {1: (6,)}


async def throttle_of(cluster: Cluster) -> dict[str, dict[str, str]]:
    """What is set on the topic and the brokers."""
    configs = cluster.admin.configs
    owners = [(ConfigKind.TOPICS, "t"), *((ConfigKind.BROKERS, str(id)) for id in range(1, 7))]
    found = {entity: await configs.get(kind, entity) for kind, entity in owners}
    return {entity: settings for entity, settings in found.items() if settings}


async def in_force(cluster: Cluster) -> None:
    """Brokers have heard of the settings."""
    controller = cluster.controller()
    active = controller._active
    assert active is not None
    active.reassigner.plans.throttle._in_force_at = 0.0
    controller.put_for_term(events.PaceMoves(), controller.epoch)
    await cluster.settle()


def rates(value: str) -> dict[str, str]:
    return dict.fromkeys(plan_throttle.RATES, value)


async def test_a_throttle_is_set_before_the_first_copy_and_put_back_after_the_last(
    cluster: Cluster,
) -> None:
    await cluster.make("t", (1, 2), (1, 3))
    own = {"retention.ms": "1000", plan_throttle.LEADER_REPLICAS: "7:9"}
    await cluster.admin.configs.set(ConfigKind.TOPICS, "t", own)
    await cluster.admin.configs.set(ConfigKind.BROKERS, "1", rates("77"))
    await ask(cluster, {T0: (1, 5), T1: (1, 6)}, throttle=1000)
    assert await moving(cluster) == {}, "brokers have to hear of it first"
    set_now = await throttle_of(cluster)
    assert set_now["t"] == own | {
        plan_throttle.LEADER_REPLICAS: "0:1,0:2,1:1,1:3,7:9",
        plan_throttle.FOLLOWER_REPLICAS: "0:5,1:6",
    }
    assert [set_now[str(id)] for id in (1, 2, 3, 5, 6)] == [rates("1000")] * 5
    await in_force(cluster)
    assert await moving(cluster) == {0: (5,)}
    await catch_up(cluster, T0)
    assert await throttle_of(cluster) == set_now, "one is left"
    await catch_up(cluster, T1)
    assert await throttle_of(cluster) == {"t": own, "1": rates("77")}
    assert await cluster.admin.session.children(PLAN_THROTTLES) == []


async def test_the_next_controller_puts_a_throttle_back_and_sets_what_is_missing(
    cluster: Cluster,
) -> None:
    await cluster.make("t", (3, 4))
    await ask(cluster, {T0: (3, 5)}, throttle=1000)
    # It died before it had set the rate of one broker.
    await cluster.admin.configs.set(ConfigKind.BROKERS, "5", {})
    await cluster.admin.session.delete(f"{PLAN_THROTTLES}/brokers:5")
    await cluster.kill(1)
    await cluster.settle()
    assert cluster.active == [2]
    assert (await throttle_of(cluster))["5"] == rates("1000")
    await in_force(cluster)
    await catch_up(cluster, T0)
    assert await throttle_of(cluster) == {}
    assert await nodes(cluster) == []


async def test_the_next_controller_sets_a_throttle_that_was_only_written_down(
    cluster: Cluster,
) -> None:
    await cluster.make("t", (3, 4))
    await ask(cluster, {T0: (3, 5)}, throttle=1000)
    wanted = await throttle_of(cluster)
    # It died after it had written down what the settings were, and before it changed them.
    await cluster.admin.configs.set(ConfigKind.TOPICS, "t", {})
    for id in ("3", "4", "5"):
        await cluster.admin.configs.set(ConfigKind.BROKERS, id, {})
    await cluster.kill(1)
    await cluster.settle()
    assert cluster.active == [2]
    assert await throttle_of(cluster) == wanted
    assert await moving(cluster) == {}, "brokers have to hear of it first"
    await in_force(cluster)
    await catch_up(cluster, T0)
    assert await throttle_of(cluster) == {}


async def test_a_throttle_stays_until_the_last_step_of_a_stopped_plan_has_ended(
    cluster: Cluster,
) -> None:
    await cluster.make("t", (1, 2), (1, 3))
    await ask(cluster, {T0: (1, 5), T1: (1, 6)}, throttle=1000)
    await in_force(cluster)
    await ask(cluster, {T0: None, T1: None})
    assert "t" in await throttle_of(cluster), "t-0 is still copied"
    await catch_up(cluster, T0)
    assert await throttle_of(cluster) == {}


async def test_plans_share_a_throttle_and_the_first_value_comes_back(cluster: Cluster) -> None:
    await cluster.make("t", (1, 2), (1, 3))
    await ask(cluster, {T0: (1, 5)}, "p-1", throttle=1000)
    await ask(cluster, {T1: (1, 6)}, "p-2", throttle=2000)
    assert (await throttle_of(cluster))["1"] == rates("2000")
    await in_force(cluster)
    await catch_up(cluster, T0)
    await catch_up(cluster, T1)
    assert await throttle_of(cluster) == {}


async def test_a_setting_that_another_changed_meanwhile_is_left_and_said(cluster: Cluster) -> None:
    await cluster.make("t", (1, 2))
    await ask(cluster, {T0: (1, 5)}, throttle=1000)
    await cluster.admin.configs.set(ConfigKind.BROKERS, "5", rates("5"))
    await cluster.admin.configs.set(ConfigKind.BROKERS, "2", {})
    await in_force(cluster)
    await catch_up(cluster, T0)
    assert await throttle_of(cluster) == {"5": rates("5")}
    said = [text for text in cluster.happened(EntryKind.REASSIGNMENT) if "left as it is" in text]
    assert len(said) == 2
    assert f"{plan_throttle.LEADER_RATE} of brokers/5" in said[0]


async def test_a_topic_deleted_meanwhile_gets_no_settings_back(cluster: Cluster) -> None:
    await cluster.make("t", (1, 2))
    await ask(cluster, {T0: (3, 4)}, throttle=1000)
    await cluster.admin.requests.request_deletion("t")
    await cluster.settle()
    await look_again(cluster)
    assert await throttle_of(cluster) == {}
    assert await cluster.admin.topics() == []


async def test_leaderships_alone_are_not_throttled(cluster: Cluster) -> None:
    await cluster.make("t", (1, 2))
    await ask(cluster, {T0: (2, 1)}, throttle=1000)
    assert cluster.leader_of(T0).id == 2
    assert await throttle_of(cluster) == {}


async def test_a_held_setting_that_cannot_be_read_does_not_prevent_an_election(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.make("t", (1, 2))
    await ask(cluster, {T0: (1, 5)}, throttle=1000)
    for name, data in {
        "topics:u": b"{",
        "topics:v": b'{"version":1,"held":[{"name":1}]}',
        "brokers:9": b'{"version":1,"held":7}',
        "nothing": b"",
    }.items():
        await cluster.admin.session.create(f"{PLAN_THROTTLES}/{name}", data)
    await cluster.kill(1)
    await cluster.settle()
    assert cluster.active == [2]
    assert caplog.text.count("ignoring settings held for plans") == 3
    await in_force(cluster)
    assert await moving(cluster) == {0: (5,)}
