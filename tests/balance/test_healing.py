"""When something is repaired: triggers, waits, interlocks, and the plan that repairs."""

from dataclasses import replace

import pytest

from odradek.balance.healing import (
    CLUSTER,
    REPAIRS_PER_HOUR,
    Healer,
    Looks,
    Seen,
    Space,
    Trigger,
    Trouble,
    Waits,
    nearly_empty,
    plan_more_replicas,
    plan_relief,
    plan_repair,
    would_fill,
)
from odradek.balance.plan import COPY, Move
from odradek.balance.settings import Heal
from odradek.placement import Broker
from odradek.wire.topics import TopicPartition

ALL = frozenset({1, 2, 3, 4, 5})
WELL = Seen(0.0, ALL, ALL, controller=1)
GONE = replace(WELL, live=ALL - {5})
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def healer() -> Healer:
    """One that has seen the cluster well for a while."""
    made = Healer(Waits())
    assert made.observe(replace(WELL, at_s=-10_000.0)).troubles == ()
    return made


def test_a_broker_that_stays_away_is_replaced_after_its_wait(healer: Healer) -> None:
    first = healer.observe(GONE)
    assert first.news == ("broker 5: broker gone",)
    assert first.troubles == (Trouble(Trigger.BROKER_GONE, 5, 900.0),)
    assert first.repair is None
    assert healer.observe(replace(GONE, at_s=899.0)).repair is None
    due = healer.observe(replace(GONE, at_s=900.0))
    assert due.repair == Trouble(Trigger.BROKER_GONE, 5, 0.0)
    assert due.news == ()


def test_a_broker_that_comes_back_moves_nothing_and_its_clock_starts_again(healer: Healer) -> None:
    healer.observe(GONE)
    assert healer.observe(replace(WELL, at_s=890.0)).news == ("broker 5: broker gone: over",)
    again = healer.observe(replace(GONE, at_s=900.0))
    assert (again.repair, again.troubles[0].left_s) == (None, 900.0)


def test_a_rolling_restart_moves_nothing(healer: Healer) -> None:
    for turn in range(10):
        for broker in ALL:
            seen = replace(WELL, at_s=turn * 3000.0 + broker * 600.0, live=ALL - {broker})
            assert healer.observe(seen).repair is None


def test_a_failed_directory_and_a_full_disk(healer: Healer) -> None:
    seen = replace(WELL, failed=frozenset({2}), full=frozenset({3}))
    healer.observe(seen)
    due = healer.observe(replace(seen, at_s=10_000.0))
    assert due.repair == Trouble(Trigger.DIRECTORY_FAILED, 2, 0.0)
    full = healer.observe(replace(WELL, at_s=20_000.0, full=frozenset({3})))
    assert full.troubles == (Trouble(Trigger.DISK_FULL, 3, 0.0),)
    assert full.repair == Trouble(Trigger.DISK_FULL, 3, 0.0)


def test_what_is_slow_or_empty_is_said_once_with_the_command_for_it(healer: Healer) -> None:
    seen = replace(WELL, slow=frozenset({2}), empty=frozenset({4}))
    first = healer.observe(seen)
    assert first.news == (
        "broker 2: slow",
        "broker 4: nearly empty",
        "broker 2: slow: see `odradek load`; `odradek brokers drain 2` plans to empty it",
    )
    assert healer.observe(replace(seen, at_s=590.0)).news == ()
    due = healer.observe(replace(seen, at_s=600.0))
    assert due.news == ("broker 4: nearly empty: `odradek brokers add 4` plans to fill it",)
    assert (due.repair, due.held_by) == (None, ""), "a person's choice"
    assert healer.observe(replace(seen, at_s=601.0)).news == ()


def test_an_unbalanced_cluster_is_said_once_with_the_command_for_it(healer: Healer) -> None:
    seen = replace(WELL, is_unbalanced=True)
    found = healer.observe(seen)
    assert found.news == (
        "cluster: unbalanced",
        "cluster: unbalanced: `odradek rebalance plan` plans to level it",
    )
    assert found.repair is None
    assert healer.observe(replace(seen, at_s=1.0)).news == ()
    assert healer.observe(replace(WELL, at_s=2.0)).news == ("cluster: unbalanced: over",)


def test_three_looks_in_a_row_make_a_cluster_unbalanced() -> None:
    looks = Looks()
    assert looks.is_due(0.0)
    verdicts = []
    for turn, is_uneven in enumerate([True, True, False, True, True, True, True]):
        looks.add(turn * 600.0, is_uneven)
        verdicts.append(looks.is_unbalanced())
    assert verdicts == [False, False, False, False, False, True, True]
    assert (looks.is_due(4199.0), looks.is_due(4200.0)) == (False, True)
    looks.clear()
    assert not looks.is_unbalanced(), "a plan has changed what was seen"


@pytest.fixture
def eager() -> Healer:
    """One that is asked to level and to empty slow brokers."""
    made = Healer(Waits(), acts_on=Heal(balances=True, removes_slow=True).acts_on())
    made.observe(replace(WELL, at_s=-10_000.0))
    return made


def test_what_is_uneven_or_slow_is_acted_on_where_the_settings_ask_for_it(eager: Healer) -> None:
    seen = replace(WELL, is_unbalanced=True, empty=frozenset({4}))
    assert eager.observe(seen).repair == Trouble(Trigger.UNBALANCED, CLUSTER, 0.0)
    slow = replace(seen, slow=frozenset({2}), at_s=700.0)
    found = eager.observe(slow)
    assert found.repair == Trouble(Trigger.BROKER_SLOW, 2, 0.0), "before what is uneven"
    assert "plans to" not in " ".join(found.news), "it is done, so nobody is asked to"
    assert eager.observe(replace(slow, holding=ALL - {2})).repair != found.repair, "it is empty"


def test_levelling_waits_for_every_repair_and_gives_way_to_it(eager: Healer) -> None:
    seen = replace(GONE, is_unbalanced=True)
    assert eager.observe(seen).repair is None, "its clock runs"
    running = replace(seen, running=["20261118-1"], yielding=frozenset({"20261118-1"}))
    assert eager.observe(replace(running, at_s=899.0)).stop is None
    due = eager.observe(replace(running, at_s=900.0))
    assert (due.repair, due.stop) == (None, "20261118-1")
    paused = eager.observe(replace(running, at_s=901.0, paused="work"))
    assert (paused.stop, paused.held_by) == (None, "paused: work"), "then nothing is stopped"
    other = replace(running, at_s=902.0, yielding=frozenset[str]())
    assert eager.observe(other).held_by == "plan 20261118-1 is being carried out"
    assert eager.observe(replace(seen, at_s=903.0)).repair == Trouble(Trigger.BROKER_GONE, 5, 0.0)


def test_many_slow_brokers_are_not_emptied(eager: Healer) -> None:
    found = eager.observe(replace(WELL, slow=frozenset({2, 3})))
    assert (found.repair, found.held_by) == (None, "2 of 5 brokers are slow: is it the load?")


def test_a_plan_that_moves_nothing_is_not_made_again_at_once(eager: Healer) -> None:
    seen = replace(WELL, is_unbalanced=True)
    trouble = eager.observe(seen).repair
    assert trouble is not None
    eager.found_nothing(trouble, 0.0)
    assert eager.observe(replace(seen, at_s=1799.0)).repair is None
    assert eager.observe(replace(seen, at_s=1800.0)).repair == trouble


def test_a_broker_with_a_fifth_of_its_share_is_nearly_empty() -> None:
    """And in a cluster of few partitions none is."""
    current = {TopicPartition("t", n): [1 + n % 3, 1 + (n + 1) % 3] for n in range(30)}
    assert nearly_empty(current, [1, 2, 3]) == frozenset()
    assert nearly_empty(current, [1, 2, 3, 4]) == {4}
    current |= {TopicPartition("u", n): [4] for n in range(4)}
    assert nearly_empty(current, [1, 2, 3, 4]) == frozenset(), "4 of 64 replicas, a quarter of 16"
    assert nearly_empty({T0: [1, 2]}, [1, 2, 3]) == frozenset()


def relief(
    sizes: dict[TopicPartition, int], need: int, spaces: dict[Broker, Space]
) -> dict[str, tuple[int, ...]]:
    """Broker 1 is full; every partition is on it and on broker 2."""
    repair = plan_relief(
        Trouble(Trigger.DISK_FULL, 1, 0.0),
        {tp: [1, 2] for tp in sizes},
        sizes,
        need,
        spaces,
        id="20261117-1",
        now_ms=1,
        rate=10,
    )
    assert repair.plan.cost.bytes == sum(sizes[move.tp] for move in repair.plan.moves)
    return {str(move.tp): move.after for move in repair.plan.moves}


def test_a_full_disk_is_relieved_by_as_little_as_is_enough() -> None:
    roomy = {Broker(2): Space(1000, 100), Broker(3): Space(1000, 500), Broker(4): Space(1000, 100)}
    sizes = {T0: 300, T1: 100, T2: 90}
    assert relief(sizes, 90, roomy) == {"t-2": (4, 2)}, "the least full, and what is enough"
    assert relief(sizes, 150, roomy) == {"t-1": (4, 2), "t-2": (4, 2)}
    assert relief(sizes, 10, roomy) == {"t-2": (4, 2)}, "the smallest that is enough"
    assert relief(sizes, 10_000, roomy).keys() == {"t-0", "t-1", "t-2"}, "all that there is"
    crowded = {Broker(2): Space(1000, 0), Broker(3): Space(1000, 750), Broker(4): Space(0, 0)}
    assert relief(sizes, 200, crowded) == {}, "none stays below its wall"


def test_a_full_disk_is_relieved_within_the_racks() -> None:
    racks = {Broker(1, "a"): 0, Broker(2, "b"): 0, Broker(3, "b"): 0, Broker(4, "a"): 700}
    spaces = {broker: Space(1000, used) for broker, used in racks.items() if broker.id != 1}
    assert relief({T0: 100}, 100, spaces) == {"t-0": (4, 2)}, "3 has more room, in the other's rack"


def test_a_repair_that_would_fill_a_disk_is_not_done() -> None:
    move = Move("t", 0, (1, 5), (1, 3), COPY, "", "", 100, 1.0)
    assert would_fill([move], {3: Space(1000, 800)}) == "", "up to 95 %"
    assert would_fill([move], {}) == "", "where nothing is known"
    reason = would_fill([move, move], {3: Space(1000, 800)})
    assert reason == "the repair would fill broker 3 to 100%"


def test_a_drained_broker_is_leaving_and_not_dead(healer: Healer) -> None:
    drained = replace(WELL, live=ALL - {5}, holding=ALL - {5}, at_s=10_000.0)
    assert healer.observe(drained).troubles == ()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"paused": "new switches"}, "paused: new switches"),
        ({"running": ["20261117-1"]}, "plan 20261117-1 is being carried out"),
        ({"live": ALL - {4, 5}}, "2 of 5 brokers are gone: is it the network?"),
        ({"controller": 2}, "the controller has changed just now"),
    ],
)
def test_interlocks(healer: Healer, change: dict[str, object], reason: str) -> None:
    healer.observe(GONE)
    seen = replace(GONE, at_s=10_000.0)
    held = healer.observe(replace(seen, **change))  # type: ignore[arg-type]
    assert (held.repair, held.held_by) == (None, reason)
    if "controller" not in change:
        assert healer.observe(seen).repair is not None


def test_a_rack_that_is_gone_whole_is_for_a_person() -> None:
    brokers = frozenset(range(30))
    racks = {id: "abc"[min(2, id // 14)] for id in brokers}  # c has two: 28 and 29
    healer = Healer(Waits())
    seen = Seen(-10_000.0, brokers, brokers, 1, racks)
    healer.observe(seen)
    lost = replace(seen, at_s=0.0, live=brokers - {28, 29}, racks={})
    healer.observe(lost)
    held = healer.observe(replace(lost, at_s=1000.0))
    assert held.held_by == "all brokers of rack c are gone: is it the network?"
    one = replace(lost, at_s=2000.0, live=brokers - {28})
    healer.observe(one)
    assert healer.observe(replace(one, at_s=3000.0)).repair is not None


def test_only_so_many_repairs_an_hour(healer: Healer) -> None:
    healer.observe(GONE)
    for number in range(REPAIRS_PER_HOUR):
        assert healer.observe(replace(GONE, at_s=1000.0 + number)).repair is not None
        healer.repaired(1000.0 + number)
    assert healer.observe(replace(GONE, at_s=1010.0)).held_by == "3 repairs within an hour"
    assert healer.observe(replace(GONE, at_s=1000.0 + 3600.0)).repair is not None


def test_the_plan_puts_lost_replicas_elsewhere_and_names_what_it_cannot_help() -> None:
    current = {T0: [1, 5], T1: [5, 2], T2: [5], TopicPartition("u", 0): [1, 2, 3, 4, 5]}
    lost = {T0: 1, T1: 2, T2: -1, TopicPartition("u", 0): 1}
    repair = plan_repair(
        Trouble(Trigger.BROKER_GONE, 5, 0.0),
        current,
        lost,
        [Broker(id) for id in (1, 2, 3, 4)],
        {T0: {1: 100}, T1: {2: 50}},
        id="20261117-1",
        now_ms=1,
        rate=10,
    )
    assert repair.hopeless == ("t-2", "u-0"), "no leader; too few brokers"
    by_tp = {move.tp: move for move in repair.plan.moves}
    assert by_tp.keys() == {T0, T1}
    for tp, move in by_tp.items():
        assert move.before == tuple(current[tp])
        assert 5 not in move.after
        assert len(set(move.after)) == 2
        assert len(set(move.after) - set(move.before)) >= 1
    assert repair.plan.cost.bytes == sum(move.bytes for move in repair.plan.moves) >= 150
    assert {move.rule for move in repair.plan.moves} == {"broker gone"}


def test_where_the_load_is_known_it_says_where_lost_replicas_go() -> None:
    """And what the load does not know of stays for the next repair."""
    repair = plan_repair(
        Trouble(Trigger.BROKER_GONE, 5, 0.0),
        {T0: [1, 5], T1: [5, 2]},
        {T0: 1, T1: 2},
        [Broker(id) for id in (1, 2, 3, 4)],
        {T0: {1: 100}},
        id="20261117-1",
        now_ms=1,
        rate=10,
        by_load={T0: (1, 4)},
    )
    assert [(move.tp, move.after, move.bytes) for move in repair.plan.moves] == [(T0, (1, 4), 100)]
    assert repair.hopeless == ()


def test_too_few_replicas_are_repaired_topic_by_topic(healer: Healer) -> None:
    seen = replace(WELL, low=frozenset({"orders"}))
    assert healer.observe(seen).news == ("topic orders: too few replicas",)
    later = replace(seen, at_s=500.0, low=frozenset({"orders", "new"}))
    healer.observe(later)
    due = healer.observe(replace(later, at_s=600.0))
    assert due.repair == Trouble(Trigger.REPLICATION_LOW, "orders", 0.0)
    assert [trouble.left_s for trouble in due.troubles] == [500.0, 0.0], "new has its own clock"
    over = healer.observe(replace(WELL, at_s=700.0, low=frozenset({"new"})))
    assert over.news == ("topic orders: too few replicas: over",)


def test_more_replicas_come_to_other_racks_and_nothing_leaves() -> None:
    brokers = [Broker(1, "a"), Broker(2, "a"), Broker(3, "b"), Broker(4, "b"), Broker(5, "c")]
    current = {T0: [1], T1: [2, 1], T2: [3, 1, 5], TopicPartition("u", 0): [4]}
    repair = plan_more_replicas(
        Trouble(Trigger.REPLICATION_LOW, "t", 0.0),
        current,
        {"t": 3},
        brokers,
        {T0: {1: 100}},
        id="20261117-1",
        now_ms=1,
        rate=10,
    )
    after = {move.tp: move.after for move in repair.plan.moves}
    assert after == {T0: (1, 3, 5), T1: (2, 1, 4)}, "u is another topic; t-2 has enough"
    assert [move.bytes for move in repair.plan.moves] == [200, 0]
    assert repair.plan.moves[0].gain == "from 1 to 3 replicas"
    most = plan_more_replicas(
        Trouble(Trigger.REPLICATION_LOW, "u", 0.0),
        current,
        {"u": 9},
        brokers,
        {},
        id="20261117-2",
        now_ms=1,
        rate=10,
    )
    (move,) = most.plan.moves
    assert sorted(move.after) == [1, 2, 3, 4, 5], "as many as there are brokers"
