"""A broker is hurt on purpose, and the timeline says what that did."""

import json
import urllib.request
from collections import Counter
from http.cookiejar import CookieJar
from typing import Any

import pytest

from odradek.console.drills import steps_of
from odradek.console.probe import Pulse, Verdict, judge
from odradek.controller.journal import Entry, EntryKind
from odradek.testing.cluster import Cluster
from odradek.testing.console import HeldConsole
from odradek.wire.topics import TopicPartition

DEADLINE_S = 90.0


def test_what_was_acknowledged_and_is_not_there_is_lost() -> None:
    acknowledged = {(0, 1), (0, 2), (1, 1)}
    found = Counter({(0, 1): 1, (1, 1): 3, (1, 2): 1})
    assert judge(acknowledged, found) == Verdict(acknowledged=3, lost=1, repeated=2)


def test_a_gap_is_the_time_between_two_acknowledgements() -> None:
    pulse = Pulse(1_000.0)
    for at_ms in (1_005.0, 1_010.0, 1_200.0, 1_205.0):
        pulse.beat(at_ms)
    assert pulse.gaps == [(1_010.0, 190.0)]
    assert pulse.since(1_100.0) == [(1_100.0, 100.0)]
    assert pulse.since(1_200.0) == []


def test_the_journal_tells_of_death_election_and_return() -> None:
    def leadership(time_ms: int, before: str, after: str) -> Entry:
        place = TopicPartition("orders", 0)
        return Entry(time_ms, 1, EntryKind.LEADERSHIP, "why", before, after, place)

    entries = [
        Entry(1_004, 1, EntryKind.CONTROLLER, "", "", "BrokerChange dead=[3]"),
        leadership(1_009, "leader=3 epoch=4 isr=[3,1]", "leader=1 epoch=5 isr=[1]"),
        leadership(1_011, "leader=1 epoch=4 isr=[3,1]", "leader=1 epoch=5 isr=[1]"),
        Entry(3_000, 1, EntryKind.CONTROLLER, "", "", "BrokerChange new=[3]"),
        leadership(4_000, "leader=1 epoch=5 isr=[1]", "leader=1 epoch=5 isr=[1,3]"),
    ]
    steps = sorted(steps_of(entries, 3, 1_000.0))
    assert [(step.at_ms, step.what) for step in steps] == [
        (4.0, "controller: BrokerChange dead=[3]"),
        (9.0, "1 of its partitions have other leaders"),
        (2000.0, "controller: BrokerChange new=[3]"),
        (3000.0, "it is in sync again on 1 partitions"),
    ]


class Api:
    """The console of another process, asked as a page would."""

    def __init__(self, link: str) -> None:
        self._base, _, token = link.partition("/#token=")
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        self.session = self.post("/login", {"token": token})

    def _ask(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(
            f"{self._base}/api/v1{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Origin": self._base},
        )
        with self._opener.open(request, timeout=30) as answer:
            return json.load(answer)

    def get(self, path: str) -> Any:
        return self._ask(path, None)

    def post(self, path: str, body: Any) -> Any:
        return self._ask(path, body)


@pytest.mark.process
def test_a_drill_loses_nothing_and_its_timeline_is_that_of_signal_journal_and_probe() -> None:
    """CONSOLE acceptance 40."""
    with Cluster(3) as cluster, HeldConsole(cluster, port=0) as console:
        check_drill(cluster, Api(console.link))


def check_drill(cluster: Cluster, api: Api) -> None:
    assert api.session["features"]["drills"]
    cluster.wait_until(lambda: api.get("/overview")["brokers"]["total"] == 3, "the brokers")
    # Not the controller: its successor reports its death, with another message.
    controller = cluster.controller_id()
    victim, other = (id for id in cluster.ids if id != controller)
    wanted = {"kind": "drill", "action": "kill", "broker": victim, "seconds": 1}
    plan = api.post("/plans", wanted)
    assert plan["state"] == "ready"
    id = api.post(f"/plans/{plan['id']}/start", {})["details"]["drill"]
    second = api.post("/plans", {**wanted, "broker": other})
    assert second["blockers"] == [f"drill {id} is running"]
    cluster.wait_until(
        lambda: api.get(f"/drills/{id}")["state"] != "running", "the drill's end", DEADLINE_S
    )
    drill = api.get(f"/drills/{id}")
    assert drill["error"] is None, drill
    assert drill["writes"]["acknowledged"] > 0
    assert (drill["writes"]["lost"], drill["writes"]["repeated"]) == (0, 0)
    steps = {step["what"]: step for step in drill["timeline"]}
    assert steps[f"SIGKILL to broker {victim}"]["at_ms"] == 0
    death = steps[f"controller: BrokerChange dead=[{victim}]"]
    journal = api.get("/journal?kind=controller&q=BrokerChange")["items"]
    noted = next(entry for entry in journal if f"dead=[{victim}]" in entry["after"])
    # The answer rounds the moment of the signal to a millisecond.
    assert abs(drill["started_ms"] + death["at_ms"] - noted["time_ms"]) <= 5
    restart = steps[f"broker {victim}: the process is started"]["at_ms"]
    assert death["at_ms"] >= 0 and restart >= 1_000
    assert steps[f"controller: BrokerChange new=[{victim}]"]["at_ms"] > restart
    again = steps.get("every partition can be written again")
    longest = max((gap["from_ms"] + gap["ms"] for gap in drill["writes"]["gaps"]), default=0.0)
    assert again is None or again["at_ms"] <= longest + 5
