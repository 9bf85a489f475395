"""What plans say about themselves: reasons, proofs, settings, tables of a real answer."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

import pyarrow as pa
from tests.balance.clusters import Node, Part, tables

from odradek.balance.bound import least_bytes
from odradek.balance.current import as_stored, in_places
from odradek.balance.explain import Facts
from odradek.balance.healing import Waits
from odradek.balance.load import LoadModel
from odradek.balance.model import InvalidModel
from odradek.balance.page import page_of
from odradek.balance.plan import IMPROVED, MET, UNATTAINABLE, Plan, RuleResult
from odradek.balance.proposal import model_of, propose, replaced, unevenness
from odradek.balance.search import Budget
from odradek.balance.settings import (
    Heal,
    InvalidSettings,
    Settings,
    SparkSettings,
    parse_settings,
)
from odradek.cli.rebalance import print_plan, rebalance
from odradek.wire.topics import TopicPartition

pytestmark = pytest.mark.usefixtures("planner_kernels")

GB = 10**9
MB = 10**6


def planned(parts: list[Part], nodes: list[Node], settings: str = "") -> Plan:
    load = LoadModel(*tables(parts, nodes), as_of_ms=1, coverage=1.0)
    facts = Facts("20261117-1", 1, 1, load.coverage)
    plan = propose(load, parse_settings(settings), Budget(), facts)
    assert Plan.from_json(plan.to_json()) == plan
    return plan


def rule(plan: Plan, name: str) -> RuleResult:
    (found,) = [result for result in plan.rules if result.rule == name]
    return found


def test_each_move_says_what_it_gains_and_costs() -> None:
    parts = [Part("t", n, (0,), 10 * GB) for n in range(12)]
    plan = planned(parts, [Node(0), Node(1), Node(2)])
    assert rule(plan, "disk").state == MET
    assert rule(plan, "disk").outside_before == 3
    assert plan.cost.copies == len(plan.moves) == 8
    assert plan.cost.bytes == 80 * GB >= plan.bound > 60 * GB
    assert plan.cost.busiest == 0 and plan.cost.busiest_bytes == 80 * GB
    assert plan.cost.seconds == 1600.0
    first = plan.moves[0]
    assert first.kind == "copy" and first.before == (0,) and first.bytes == 10 * GB
    assert first.rule in {"disk", "replicas", "leaders"}
    assert "broker 0: " in first.gain and "3.00 → 2.75 of its share" in first.gain
    spans = {each.broker: each.resources["disk"] for each in plan.brokers}
    assert (spans[0].before, spans[0].after, spans[0].share) == (120 * GB, 40 * GB, 40 * GB)


def test_leaderships_suffice_where_replicas_are_level() -> None:
    parts = [Part("t", n, (0, 1, 2), MB, MB, 30 * MB) for n in range(12)]
    plan = planned(parts, [Node(0), Node(1), Node(2)])
    kinds = [move.kind for move in plan.moves]
    assert kinds == ["leadership"] * 8
    assert (plan.cost.leaderships, plan.cost.copies, plan.cost.bytes) == (8, 0, 0)
    assert all(set(m.before) == set(m.after) and m.bytes == 0 for m in plan.moves)


def test_what_must_leave_says_so_and_comes_first() -> None:
    parts = [Part("t", n, (n % 3, (n + 1) % 3), 9 * GB) for n in range(9)]
    nodes = [Node(0), Node(1), Node(2, state="dead"), Node(3)]
    plan = planned(parts, nodes)
    leaving = [move for move in plan.moves if 2 in move.before]
    assert len(leaving) == 6
    assert list(plan.moves[:6]) == leaving
    assert {(move.rule, move.gain) for move in leaving} == {("allowed brokers", "leaves broker 2")}
    assert rule(plan, "allowed brokers") == RuleResult("allowed brokers", MET, 6, 0)
    assert plan.bound >= 54 * GB


def test_a_replica_that_is_too_large_is_named() -> None:
    parts = [Part("events", n, (n % 3,), MB, 40 * MB if n == 3 else MB, MB) for n in range(30)]
    plan = planned(parts, [Node(0), Node(1), Node(2)])
    result = rule(plan, "in")
    assert result.state == UNATTAINABLE
    assert result.proof == (
        "events-3 alone is 174% of a broker's share of in: more partitions would help"
    )
    assert plan.is_attainable, "a band is not a hard rule"


def test_a_rack_with_one_broker_is_named() -> None:
    nodes = [Node(0, "a"), Node(1, "a"), Node(2, "b"), Node(3, "b"), Node(4, "c")]
    parts = [Part("t", n, (n % 2, 2 + n % 2, 4), 9 * GB) for n in range(20)]
    result = rule(planned(parts, nodes), "disk")
    assert result.state == UNATTAINABLE
    assert result.proof == (
        "rack c has one broker, and each of 20 partitions must have a replica in it"
    )


def test_missing_capacity_and_missing_brokers_are_counted() -> None:
    nodes = [Node(id, disk=300 * GB) for id in range(3)]
    parts = [Part("t", n, (n % 3,), 10 * GB) for n in range(87)]
    plan = planned(parts, nodes)
    assert not plan.is_attainable
    assert rule(plan, "disk capacity").proof == (
        "disk: the walls of 3 brokers add up to 720,000,000,000 for 870,000,000,000: 1 more like "
        "broker 0 needed"
    )
    stranded = planned([Part("t", 0, (0, 1), GB)], [Node(0), Node(1, state="dead")])
    assert not stranded.is_attainable
    assert rule(stranded, "allowed brokers").proof == (
        "t-0 has 2 replicas, and 1 brokers may hold them: 1 more needed"
    )


def test_what_was_not_found_is_not_called_impossible() -> None:
    """Three equal replicas on two brokers: no proof, and no way."""
    plan = planned([Part("t", n, (0,), 9 * GB) for n in range(3)], [Node(0), Node(1)])
    result = rule(plan, "disk")
    assert (result.state, result.proof) == (IMPROVED, "not found within the budget")


def test_the_bound_is_the_cheapest_fraction() -> None:
    """Broker 0 must shed bytes in: the small and busy replica carries most for its bytes."""
    parts = [Part("busy", 0, (0,), 1 * GB, 60 * MB), Part("large", 0, (0,), 100 * GB, 60 * MB)]
    parts += [Part("far", 0, (1,), 101 * GB, 60 * MB)]
    load = LoadModel(*tables(parts, [Node(0), Node(1)]), as_of_ms=1, coverage=1.0)
    cluster = model_of(load, Settings(), frozenset(), frozenset())
    excess = 120 * MB - int(cluster.bounds.high[0, 1])
    assert least_bytes(cluster) == pytest.approx(excess / (60 * MB) * GB, rel=1e-6)


def test_capacities_thresholds_and_topics_come_from_the_settings() -> None:
    parts = [Part("t", n, (n % 2,), 10 * GB) for n in range(40)]
    text = """
        [rules]
        off = ["replicas", "leaders"]
        disk.balance.threshold = 1.05
        [capacity.default]
        disk = "1TB"
        [capacity.1]
        disk = "3TB"
    """
    plan = planned(parts, [Node(0), Node(1)], text)
    spans = {each.broker: each.resources["disk"] for each in plan.brokers}
    assert (spans[0].share, spans[1].share) == (100 * GB, 300 * GB)
    assert spans[1].low == 286_500_000_000
    assert rule(plan, "disk").state == MET
    kept = planned(parts, [Node(0), Node(1), Node(2)], '[topics]\nexcluded = ["t"]')
    assert kept.moves == ()
    with pytest.raises(
        InvalidModel, match=r"t-0 has 2 replicas, and there are 1 racks: with racks"
    ):
        planned([Part("t", 0, (0, 1))], [Node(0, "a"), Node(1, "a")], '[rules]\nracks = "strict"')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rule]", "there is no section rule; did you mean rules?"),
        ("[rules]\ndisk.balance.treshold = 1.2", "did you mean disk.balance.threshold?"),
        ('[rules]\noff = ["leader"]', "there is no rule leader; did you mean leaders?"),
        ("[rules]\ndisk.capacity.threshold = 80", "is 80, and must be from 0 to 1"),
        ('[rules]\nracks = "some"', 'racks is "even" or "strict"'),
        ("[capacity.4]\ndisc = 3", "did you mean disk?"),
        ("[capacity.four]\ndisk = 3", "a broker's id, or default"),
        ('[capacity.4]\ndisk = "much"', "is a number, not 'much'"),
        ("[topics]\nexclude = []", "did you mean excluded?"),
        ('[topics]\nexcluded = ["("]', "is no pattern of topics"),
        ('[topics.sets]\na = "1"', "is a list of brokers"),
        ("rules = 1", "is a section, not a value"),
        ("[pace]\nthrotle = 1", "there is no setting of [pace] throtle; did you mean throttle?"),
        ('[pace]\nthrottle = "fast"', "[pace] throttle is a number, not 'fast'"),
        ("[pace]\nthrottle = 0", "[pace] throttle is 0.0, and must be from 1"),
        ("[pace]\nper-broker = 0.5", "must be from 1"),
        ("[pace]\nper-broker = 1.5", "[pace] per-broker is a whole number"),
        ("[heal]\nbroker-afer = 3", "did you mean broker-after?"),
        ('[heal]\nbroker-after = "soon"', "[heal] broker-after: a time looks like 30s, 5min or 2h"),
        ("[heal]\nbroker-after = -1", "must be from 0"),
        ("[heal]\nreplication-factor = 0", "must be from 1"),
        ("[heal]\nrate = true", "is a number, not True"),
        ('[heal]\ninterval = "0s"', "must be from 0.1"),
        ("[spark]\ncell = 3", "did you mean cells?"),
        ("[spark]\nmaster = 3", "is a text such as local[4], not 3"),
        ("[spark]\ncells = 0", "must be from 1"),
        ("[", "at end of document"),
    ],
)
def test_a_wrong_setting_is_refused_with_the_nearest(text: str, message: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        parse_settings(text)
    assert message in str(error.value)


def test_pace_healing_and_spark_come_from_the_settings() -> None:
    given = parse_settings(
        """
        [pace]
        throttle = "120MB"
        per-broker = 2
        bytes-per-broker = "1GiB"
        [heal]
        broker-after = "1h"
        disk-after = 90
        replication-factor = 3
        rate = 10
        balance = true
        balance-interval = "5min"
        slow-remove = true
        [spark]
        master = "local[4]"
        cells = 16
        """
    )
    limits = {"odradek.moves.per.broker": "2", "odradek.moves.bytes.per.broker": str(2**30)}
    assert (given.pace.throttle, given.pace.limits) == (120_000_000, limits)
    waits = Waits(broker_s=3600.0, disk_s=90.0)
    assert given.heal == Heal(
        waits,
        repairs_per_hour=10,
        replication_factor=3,
        balances=True,
        removes_slow=True,
        look_s=300.0,
    )
    assert not parse_settings("").heal.acts_on(), "off unless given"
    assert given.spark == SparkSettings("local[4]", 16)
    assert parse_settings("") == parse_settings("[pace]\n[heal]\n[spark]")


def test_lost_replicas_go_where_the_load_is_least() -> None:
    """Broker 3 is gone. By count 0 and 1 are alike; by load 0 is busy. What else is uneven stays,
    and a rack is not entered twice."""
    parts = [Part("busy", 0, (0, 2), GB, 100 * MB), Part("idle", 0, (1, 2), GB, 1 * MB)]
    parts += [Part("lost", n, (3, 2), MB, 10 * MB) for n in range(4)]
    nodes = [Node(0, "a"), Node(1, "a"), Node(2, "b"), Node(3, "a", state="dead")]
    load = LoadModel(*tables(parts, nodes), as_of_ms=1, coverage=1.0)
    found = replaced(load, parse_settings('[rules]\noff = ["replicas", "leaders"]'), 3)
    assert found == {TopicPartition("lost", n): (1, 2) for n in range(4)}
    assert replaced(load, Settings(), 0) == {}, "it is there"
    with pytest.raises(InvalidModel, match="says nothing of broker 9"):
        replaced(load, Settings(), 9)


def test_far_outside_its_band_is_half_as_far_again() -> None:
    """A broker that a plan would relieve is not yet one that a watcher speaks of."""
    settings = parse_settings('[rules]\noff = ["leaders", "leader in", "replicas"]')
    parts = [Part("t", n, (n % 4,), 10 * GB, 10 * MB) for n in range(40)]
    nodes = [Node(id) for id in range(4)]

    def uneven(rate: int) -> list[str]:
        more = [Part("u", 0, (0,), MB, rate)]
        load = LoadModel(*tables([*parts, *more], nodes), as_of_ms=1, coverage=1.0)
        return unevenness(load, settings, 1.5)

    assert uneven(0) == uneven(15 * MB) == []
    assert uneven(25 * MB) == ["broker 0: in 1.18 of its share"]


def test_rows_get_their_places_and_what_is_gone_is_left_out() -> None:
    rows = tables([Part("t", 0, (1, 2)), Part("t", 1, (2, 1)), Part("gone", 0, (1,))], [])[0]
    placed = in_places(rows.drop_columns(["place"]), {("t", 0): [2, 1], ("t", 1): [2]})
    found = [(row["partition"], row["broker"], row["place"]) for row in placed.to_pylist()]
    assert found == [(0, 1, 1), (0, 2, 0), (1, 2, 0)]


def test_a_plan_is_shown_as_text_and_as_one_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [Part("<b>t&", n, (0,), 10 * GB) for n in range(12)]
    plan = planned(parts, [Node(0), Node(1), Node(2)])
    print_plan(plan, is_kept=True)
    said = capsys.readouterr().out
    assert "3.00→1.00" in said
    assert "rules: " in said and "(were " in said
    assert "8 copies: 80.0 GB" in said
    file, page = tmp_path / "plan.json", tmp_path / "plan.html"
    file.write_text(plan.to_file())
    shown = CliRunner().invoke(rebalance, ["show", str(file), "--html", str(page), "--json"])
    assert json.loads(shown.output)["id"] == plan.id
    text = page.read_text()
    assert text == page_of(plan)
    assert "&lt;b&gt;t&amp;-0" in text and "<b>t" not in text
    assert "http" not in text and "<script" not in text, "it needs nothing else"
    assert text.count("<svg") == 9, "three brokers, three resources that are borne"


def test_a_copy_has_the_bytes_of_now_and_a_disk_what_it_will_hold() -> None:
    """A replica of 2 GB that is to be 10 GB in some hours is copied as 2 GB."""
    parts = [Part("t", n, (n % 2,), 10 * GB) for n in range(40)]
    parts += [Part("idle", 0, (2, 3), 1)]
    replicas, brokers = tables(parts, [Node(id) for id in range(4)])
    sizes = [*[2 * GB] * 39, -1, 7, -1]
    placement = replicas.set_column(
        replicas.column_names.index("size"), "size", pa.array(sizes, pa.int64())
    )
    stored = as_stored(replicas, placement)
    assert stored["stored"].to_pylist() == [*[2 * GB] * 39, 10 * GB, 7, 7]
    load = LoadModel(stored, brokers, as_of_ms=1, coverage=1.0)
    plan = propose(load, Settings(), Budget(), Facts("20261118-1", 1, 1, 1.0))
    assert {move.bytes for move in plan.moves} <= {2 * GB, 10 * GB}, "10 GB where none is known"
    disk = [broker.resources["disk"] for broker in plan.brokers]
    assert [span.before for span in disk] == [200 * GB, 200 * GB, 1, 1]
    copied = sum(move.bytes for move in plan.moves)
    assert plan.cost.bytes == copied < 60 * GB
    assert plan.cost.seconds < 60 * GB / plan.cost.rate
    # What lies above the bands of two brokers is 91 GB each, of which a fifth is there now.
    assert plan.bound == pytest.approx(36.4 * GB, rel=0.001)
    assert plan.bound <= copied
