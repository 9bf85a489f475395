"""`odradek rebalance plan` and `brokers drain` on three brokers that measure nothing."""

import json
import signal
from pathlib import Path

import pytest
from click.testing import Result
from tests.cli.conftest import CommandLine

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

from odradek.balance import proposal, search
from odradek.balance.model import Cluster
from odradek.balance.plan_store import PlanStore, Run, RunState
from odradek.balance.search import Budget, Outcome
from odradek.client import Blocking

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("planner_kernels")]

BROKERS = 3


def interrupted_in_search(
    odradek: CommandLine, monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> Result:
    """Ctrl-C, as a signal to this process, when the search begins."""
    find = search.find

    def interrupted(cluster: Cluster, budget: Budget) -> Outcome:
        signal.raise_signal(signal.SIGINT)
        return find(cluster, budget)

    with monkeypatch.context() as patch:
        patch.setattr(proposal, "find", interrupted)
        return odradek.run(*arguments)


def set_run(odradek: CommandLine, id: str, run: Run) -> None:
    with Blocking(odradek.environment["ODRADEK_BOOTSTRAP"]) as cluster:
        cluster.run(PlanStore(cluster.admin).set_run(id, run))


def test_a_crowded_broker_is_levelled(
    odradek: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odradek("topics", "create", "crowded", "--replicas", ",".join(["1"] * 12))
    file = tmp_path / "plan.json"
    asked = ["rebalance", "plan", "-o", str(file)]
    plan = odradek.json(*asked)
    assert {each["broker"] for each in plan["brokers"]} == {1, 2, 3}
    moved = [move for move in plan["moves"] if move["topic"] == "crowded"]
    assert moved and all(move["from"] == [1] and move["kind"] == "copy" for move in moved)
    (replicas,) = [rule for rule in plan["rules"] if rule["rule"] == "replicas"]
    assert replicas["state"] == "met" and replicas["outside_before"] > 0
    assert odradek.run(*asked, "--check").exit_code == 1
    assert "copies" in odradek(*asked)
    interrupted = interrupted_in_search(odradek, monkeypatch, *asked, "--json")
    assert interrupted.exit_code == 130
    so_far = json.loads(interrupted.stdout)
    count = so_far["evaluations"]
    assert 0 < count < plan["evaluations"]
    assert f"interrupted: the plan found so far, after {count:,} evaluations" in interrupted.stderr
    assert odradek("rebalance", "show", so_far["id"]), "it is kept"
    assert json.loads(file.read_text())["moves"] == so_far["moves"], "and written"
    assert "broker 1: " in odradek("rebalance", "show", str(file), "--why")

    set_run(odradek, plan["id"], Run(RunState.RUNNING, is_fed=True))
    meanwhile = odradek.run("rebalance", "plan", "--check").stderr
    assert f"note: plan {plan['id']} is being carried out" in meanwhile
    set_run(odradek, plan["id"], Run())

    odradek("reassign", "execute", str(file))
    assert odradek.json("rebalance", "plan", "--check")["moves"] == [], "it is level now"

    assert "0 B" in odradek("rebalance", "show", plan["id"]), "it is kept by its id"
    # The plan's own topic has a replica on each of three brokers, and two would be left.
    result = odradek.run("brokers", "drain", "2", "--json")
    assert result.exit_code == 1
    drained = json.loads(result.stdout)
    assert {move["topic"] for move in drained["moves"]} >= {"crowded"}
    assert not any(2 in move["to"] for move in drained["moves"])
    (allowed,) = [rule for rule in drained["rules"] if rule["rule"] == "allowed brokers"]
    assert allowed["state"] == "unattainable"
    assert "has 3 replicas, and 2 brokers may hold them: 1 more needed" in allowed["proof"]
    only = odradek.run("rebalance", "plan", "-B", "1,3", "--exclude-topic", "crowded", "--json")
    assert not any(move["topic"] == "crowded" for move in json.loads(only.stdout)["moves"])
    assert odradek.json("brokers", "add", "1", "2")["moves"] == []
    assert "broker 9 is not alive" in odradek.refused("brokers", "add", "9")
    assert "there is no broker 77" in odradek.refused("rebalance", "plan", "--remove", "77")
    settings = tmp_path / "rebalance.toml"
    settings.write_text("[rules]\ndisk.balance.treshold = 1.2\n")
    said = odradek.refused("rebalance", "plan", "--settings", str(settings))
    assert "did you mean disk.balance.threshold?" in said
