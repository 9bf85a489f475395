"""Plans as records, and the decisions of carrying them out: stale, how far, and the way back."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.balance.test_plan import plans

from odradek.balance import plan_store
from odradek.balance.execution import (
    Batch,
    StalePlan,
    Where,
    compare,
    next_batch,
    replica_bytes,
    settled,
    standing_of,
    way_back,
)
from odradek.balance.plan import COPY, LEADERSHIP, Move, Plan, PlanCost
from odradek.balance.plan_store import Pause, Run, RunState, StoredPlans, decode, encode_plan
from odradek.placement import Ongoing
from odradek.wire.errors import KafkaError
from odradek.wire.topics import TopicPartition

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def move(tp: TopicPartition, before: tuple[int, ...], after: tuple[int, ...], size: int) -> Move:
    kind = COPY if set(after) - set(before) else LEADERSHIP
    return Move(*tp, before, after, kind, "in", "", size, size / 10)


PLAN = Plan(
    id="20261117-1",
    created_ms=1,
    load_as_of_ms=1,
    moves=(
        move(T0, (1, 2), (2, 1), 0),
        move(T1, (1, 2), (3, 4), 200),
        move(T2, (2, 3), (2, 4), 100),
    ),
    rules=(),
    brokers=(),
    cost=PlanCost(300, 2, 1, 30.0, 10, None, 0),
    bound=0,
    coverage=1.0,
    evaluations=0,
)
BEFORE: Where = {T0: ((1, 2), 1), T1: ((1, 2), 1), T2: ((2, 3), 2)}
AFTER: Where = {T0: ((2, 1), 2), T1: ((3, 4), 3), T2: ((2, 4), 2)}
RUN = Run(RunState.RUNNING, started_ms=1_000)


def stored(plan: Plan, **more: bytes) -> StoredPlans:
    records = {key: value for key, value in encode_plan(plan).items() if value is not None}
    return decode({**records, **more})


@settings(max_examples=20)
@given(plans)
def test_a_plan_is_the_same_from_its_records(plan: Plan) -> None:
    plan = replace(plan, id="20261117-1")
    assert stored(plan).plans == {plan.id: plan}


def test_a_large_plan_is_many_records_and_each_can_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_store, "CHUNK_BYTES", 1000)
    moves = tuple(move(TopicPartition("t", n), (1, 2), (3, 4), n) for n in range(50))
    records = encode_plan(replace(PLAN, moves=moves))
    assert len(records) > 5
    assert list(records)[-1] == "plan/20261117-1", "a writer that dies before leaves no plan"
    assert all(value is not None and len(value) <= 1000 for value in records.values())
    assert stored(replace(PLAN, moves=moves)).plans["20261117-1"].moves == moves


@pytest.mark.parametrize(
    "bad",
    [
        {"plan/x": b"{"},
        {"plan/x": b'{"chunks": 3}'},
        {"pause": b"[]"},
        {"plan/20261117-1/run": b'{"state": "strange"}'},
        {"a/b/c": b"", "": b"", "plan/x/moves/0": b"?"},
        {"plan/x": b'{"chunks": 1000000000000}'},
        {"plan/x": b'{"chunks": 1}', "plan/x/moves/0": b"[" * 100_000},
        {"plan/20261117-1/run": b'{"state": "running", "started_ms": "1", "dropped": []}'},
        {"plan/20261117-1/run": b'{"state": "running", "dropped": [], "secret": 1}'},
        {"plan/20261117-1/throttle/0": b'[{"type": 4, "owner": 1, "name": 2}]'},
        {"pause": b'{"because": "x", "by": "me", "at_ms": 0, "until_ms": "never"}'},
        {"pause": b"[" * 100_000},
    ],
)
def test_a_bad_record_hides_no_other(bad: Mapping[str, bytes]) -> None:
    found = stored(PLAN, **bad)
    assert found.plans == {PLAN.id: PLAN}
    assert found.pause is None
    assert found.run(PLAN.id) == Run()
    assert not any(found.throttles.values())


def test_what_is_stored_is_asked_for_by_id() -> None:
    found = StoredPlans({"a": PLAN, "b": PLAN}, {"a": RUN, "b": Run(RunState.DONE, 5)})
    assert found.running() == ["a"]
    assert found.latest() == "a"
    assert found.run("c").state is RunState.PLANNED
    with pytest.raises(KafkaError, match="no plan c; the latest: a, b"):
        found.plan("c")
    assert Pause("x", "me", 0).holds(10**15)
    assert [Pause("x", "me", 0, 10).holds(now) for now in (9, 10)] == [True, False]


def test_a_plan_that_no_longer_fits() -> None:
    assert compare(PLAN, BEFORE, was_started=False).left == PLAN.moves
    assert compare(PLAN, AFTER, was_started=False).done == PLAN.moves
    led = compare(PLAN, {**AFTER, T1: ((3, 4), 4)}, was_started=False)
    assert led.left == (PLAN.moves[1],), "the leadership is still to be moved"
    gone = compare(PLAN, {T0: BEFORE[T0], T1: ((1, 5), 1)}, was_started=False)
    assert (gone.left, gone.dropped) == ((PLAN.moves[0],), ("t-1", "t-2"))
    on_the_way: Where = {**BEFORE, T1: ((1, 4), 1)}
    assert compare(PLAN, on_the_way, was_started=False).dropped == ("t-1",)
    assert compare(PLAN, on_the_way, was_started=True).left == PLAN.moves
    assert "2 of 3 partitions" in str(StalePlan(PLAN, gone.dropped))


def test_progress_in_bytes_and_time() -> None:
    at_start = standing_of(PLAN, RUN, BEFORE, {}, {}, now_ms=1_000)
    assert (at_start.done, at_start.is_active, at_start.percent) == (0, False, 0)
    assert at_start.unmoved == at_start.failed == ("t-0", "t-1", "t-2")
    assert not at_start.has_ended(1_000), "the controller may not have it yet"
    assert at_start.has_ended(100_000)
    where: Where = {T0: AFTER[T0], T1: ((1, 2, 3), 1), T2: BEFORE[T2]}
    ongoing = {T1: Ongoing([1, 2, 3], [3], [2]), T2: Ongoing([2, 4, 3], [4], [3])}
    middle = standing_of(PLAN, RUN, where, ongoing, {T1: {1: 100, 3: 60}}, now_ms=7_000)
    assert (middle.done, middle.moving, middle.waiting) == (1, 1, 1)
    assert (middle.done_bytes, middle.total_bytes, middle.percent) == (60, 300, 20)
    assert middle.seconds_left == 240 / 10
    assert not middle.has_ended(100_000)
    end = standing_of(PLAN, replace(RUN, dropped=("t-2",)), {**AFTER, T2: ((9, 8), 9)}, {}, {}, 9)
    assert (end.done, end.unmoved, end.failed, end.has_ended(0)) == (2, ("t-2",), (), True)


def test_the_way_back_leaves_alone_what_others_moved() -> None:
    where: Where = {T0: AFTER[T0], T1: ((1, 4), 1), T2: ((2, 9), 2)}
    back, foreign = way_back(PLAN, where, {}, "20261117-2", 9)
    assert foreign == ("t-2",)
    assert [(m.tp, m.before, m.after, m.kind, m.bytes) for m in back.moves] == [
        (T1, (1, 4), (1, 2), COPY, 100),
        (T0, (2, 1), (1, 2), LEADERSHIP, 0),
    ]
    assert (back.id, back.cost.bytes, back.cost.copies, back.cost.leaderships) == (
        "20261117-2",
        100,
        1,
        1,
    )
    assert way_back(PLAN, BEFORE, {}, "x", 9)[0].moves == ()


def test_moves_of_others_are_no_progress_of_a_plan_that_was_never_started() -> None:
    ongoing = {T1: Ongoing((1, 2, 3), (3,), (1,))}
    where = BEFORE | {T1: ((1, 2, 3), 1)}
    sizes = {T1: {3: 100}}
    started = standing_of(PLAN, RUN, where, ongoing, sizes, 11_000)
    assert (started.moving, started.done_bytes) == (1, 100)
    planned = standing_of(PLAN, Run(), where, ongoing, sizes, 11_000)
    assert (planned.moving, planned.done_bytes, planned.seconds_left) == (0, 0, None)
    assert not planned.is_active


@given(st.lists(st.sampled_from(["before", "step", "after"]), min_size=3, max_size=3))
def test_stop_and_roll_back_is_where_it_was(states: list[str]) -> None:
    where = dict(BEFORE)
    for tp, state in zip(where, states, strict=True):
        if state == "after":
            where[tp] = AFTER[tp]
        elif state == "step" and tp == T1:
            where[tp] = ((1, 4), 1)
    back, foreign = way_back(PLAN, where, {}, "x", 9)
    assert not foreign
    assert compare(back, where, was_started=False).dropped == ()
    reached = {tp: replicas for tp, (replicas, _) in where.items()}
    reached |= {m.tp: m.after for m in back.moves}
    assert reached == {tp: replicas for tp, (replicas, _) in BEFORE.items()}


def test_bytes_are_those_of_one_replica() -> None:
    assert replica_bytes(PLAN.moves) == {T0: 0, T1: 100, T2: 100}


LIVE = frozenset({1, 2, 3, 4})


def test_a_controller_that_does_not_pace_is_asked_for_a_few_moves_at_a_time() -> None:
    """In the order of the plan; what is under way counts; brokers that are away wait."""
    tps = [TopicPartition("t", n) for n in range(10)]
    plan = replace(PLAN, moves=tuple(move(tp, (1, 2), (3, 2), 10) for tp in tps))
    where: Where = dict.fromkeys(tps, ((1, 2), 1))
    run = Run(RunState.RUNNING, dropped=("t-1",), is_fed=True)
    batch = next_batch(plan, run, where, {}, LIVE)
    assert [of.partition for of in batch.moves] == [0, 2, 3, 4, 5], "t-1 was left out"
    where |= {of.tp: ((3, 2, 1), 1) for of in batch.moves}
    ongoing = {of.tp: Ongoing((3, 2, 1), (3,), (1,)) for of in batch.moves}
    assert next_batch(plan, run, where, ongoing, LIVE) == Batch((), ())
    # One has arrived and is led by another than planned.
    del ongoing[tps[0]]
    where[tps[0]] = ((3, 2), 2)
    batch = next_batch(plan, run, where, ongoing, LIVE)
    assert [of.partition for of in batch.moves] == [6]
    assert [of.partition for of in batch.elections] == [0]
    unmoved: Where = dict.fromkeys(tps, ((1, 2), 1))
    assert not next_batch(plan, run, unmoved, {}, LIVE - {3}).moves, "the target is away"
    assert not next_batch(plan, run, {}, {}, LIVE).moves, "deleted"
    standing = standing_of(plan, run, where, {}, {}, 10**9)
    assert standing.waiting == 9
    assert not standing.has_ended(10**9), "nothing is under way, but there is more to ask for"


def test_a_leader_that_died_after_its_move_was_done_does_not_stop_the_plan() -> None:
    plan = replace(PLAN, moves=(move(T0, (1, 2), (3, 2), 10), move(T1, (1, 2), (2, 1), 0)))
    where: Where = {T0: ((3, 2), 2), T1: ((2, 1), 1)}
    standing = standing_of(plan, RUN, where, {}, {}, 10**9)
    assert standing.failed == ("t-0", "t-1"), "not led as planned"
    waits = settled(standing, where, 1)
    assert (waits.waiting, waits.failed) == (2, ()), "the controller still has to elect"
    assert not waits.has_ended(10**9)
    done = settled(standing, where, 0)
    assert (done.done, done.failed) == (2, ())
    assert done.has_ended(10**9)
    elsewhere = settled(standing, {**where, T0: ((1, 2), 1)}, 0)
    assert (elsewhere.done, elsewhere.failed) == (1, ("t-0",))
