"""Each health rule on snapshots made for it, and what makes a cluster healthy."""

from collections.abc import Mapping
from dataclasses import replace
from types import FunctionType
from uuid import UUID

import pytest

from odradek.client.groups import Lag
from odradek.client.metadata import Node, Partition, Topic
from odradek.client.values import LogDir, ReplicaOnDisk
from odradek.operations.health import ADVICE, RULES, Onset, Problem, Severity, assess
from odradek.operations.snapshot import ClusterSnapshot
from odradek.placement import Ongoing
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

TP = TopicPartition("t", 0)
GB = 10**9


def topic(
    leader: int = 1,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    offline: tuple[int, ...] = (),
) -> Mapping[str, Topic]:
    partition = Partition(0, leader, 5, list(replicas), list(isr), list(offline))
    return {"t": Topic("t", UUID(int=1), False, {0: partition})}


def disk(
    broker: int, used: float = 0.5, copied: int = 100, error: KafkaError | None = None
) -> list[LogDir]:
    replica = ReplicaOnDisk(TP, copied, 0, False)
    return [LogDir(broker, "/data", error, 100 * GB, int(100 * GB * (1 - used)), [replica])]


HEALTHY = ClusterSnapshot(
    at_ms=100_000,
    controller_id=1,
    brokers={id: Node(id, "h", 9092, None) for id in (1, 2, 3)},
    topics=topic(),
    min_insync={"t": 2},
    log_dirs={id: disk(id) for id in (1, 2, 3)},
)


def without(*ids: int) -> Mapping[int, Node]:
    return {id: node for id, node in HEALTHY.brokers.items() if id not in ids}


def only(now: ClusterSnapshot, kind: str, before: ClusterSnapshot | None = None) -> Problem:
    (problem,) = [found for found in assess(now, before) if found.kind == kind]
    return problem


def test_a_healthy_cluster_has_no_problem() -> None:
    assert assess(HEALTHY) == []
    assert assess(replace(HEALTHY, at_ms=105_000), HEALTHY) == []


def test_offline_partition() -> None:
    now = replace(
        HEALTHY, brokers=without(2, 3), topics=topic(leader=-1, replicas=(2, 3), isr=(3,))
    )
    problem = only(now, "offline-partition")
    assert problem.severity is Severity.CRITICAL
    assert problem.subject == "t-0"
    assert problem.reason == "brokers 2, 3 are down"
    failed = replace(HEALTHY, topics=topic(leader=-1, replicas=(2,), isr=(2,), offline=(2,)))
    assert "log directory of broker 2" in only(failed, "offline-partition").reason
    lost = replace(HEALTHY, topics=topic(leader=-1))
    assert "unclean election" in only(lost, "offline-partition").reason


def test_a_leader_that_is_not_alive_is_none() -> None:
    now = replace(HEALTHY, brokers=without(1), controller_id=2)
    assert only(now, "offline-partition").reason == "broker 1 is down"


def test_under_min_isr() -> None:
    problem = only(replace(HEALTHY, topics=topic(isr=(1,))), "under-min-isr")
    assert problem.severity is Severity.CRITICAL
    assert "1 of 2 required replicas in sync" in problem.text
    two = replace(HEALTHY, topics=topic(isr=(1, 2)))
    assert "under-min-isr" not in {found.kind for found in assess(two)}


def test_under_replicated_says_which_brokers_and_why() -> None:
    now = replace(HEALTHY, brokers=without(3), topics=topic(isr=(1,)))
    assert only(now, "under-replicated").reason == "broker 3 is down, broker 2 is behind"
    failed = replace(HEALTHY, topics=topic(isr=(1, 2), offline=(3,)))
    assert only(failed, "under-replicated").reason == "a log directory of broker 3 is offline"


def test_a_replica_being_added_is_expected_to_be_behind() -> None:
    moving = {TP: Ongoing([1, 2, 3], adding=[3])}
    now = replace(HEALTHY, topics=topic(isr=(1, 2)), reassignments=moving)
    assert assess(now) == []


def test_broker_down() -> None:
    now = replace(HEALTHY, brokers=without(2), topics=topic(isr=(1, 3)))
    assert only(now, "broker-down").text == "broker 2 is down; replicas on it: 1"
    empty = replace(HEALTHY, brokers=without(3), topics=topic(replicas=(1, 2), isr=(1, 2)))
    assert assess(empty) == [], "a broker without replicas was perhaps removed"
    assert only(empty, "broker-down", before=HEALTHY).since_ms == HEALTHY.at_ms


def test_log_directory_failed() -> None:
    error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "/data on broker 2")
    now = replace(HEALTHY, log_dirs={**HEALTHY.log_dirs, 2: disk(2, error=error)})
    problem = only(now, "log-directory-failed")
    assert problem.subject == "/data on broker 2"
    assert "KAFKA_STORAGE_ERROR" in problem.reason


def test_disk_nearly_full_above_85_percent() -> None:
    def at(used: float) -> list[Problem]:
        return assess(replace(HEALTHY, log_dirs={1: disk(1, used=used)}))

    assert at(0.84) == []
    (problem,) = at(0.91)
    assert (problem.kind, "91% full" in problem.text) == ("disk-nearly-full", True)
    silent = [LogDir(1, "/data", None, -1, -1, [])]
    assert assess(replace(HEALTHY, log_dirs={1: silent})) == [], "older brokers do not tell"


def test_controller_changed_and_none() -> None:
    now = replace(HEALTHY, at_ms=105_000, controller_id=2)
    problem = only(now, "controller-changed", before=HEALTHY)
    assert problem.severity is Severity.NOTICE
    assert problem.text == "broker 2 became controller, after broker 1"
    assert only(replace(HEALTHY, controller_id=-1), "no-controller").severity is Severity.CRITICAL


def lagging(at_ms: int, committed: int, end: int) -> ClusterSnapshot:
    return replace(HEALTHY, at_ms=at_ms, group_lags={"g": {TP: Lag(committed, end)}})


def test_lag_that_grows() -> None:
    before = lagging(100_000, 10, 50)
    assert before.needs_second
    assert assess(lagging(105_000, 20, 60), before) == [], "as much read as written"
    stuck = only(lagging(105_000, 10, 90), "lag-growing", before)
    assert stuck.text == "group g is 80 records behind, 40 more than 5 s ago"
    assert stuck.reason == "it commits nothing"
    assert "committed 5 records" in only(lagging(105_000, 15, 90), "lag-growing", before).reason
    assert assess(lagging(105_000, 10, 90)) == [], "one sample does not show it"


def moving(at_ms: int, copied: int, isr: tuple[int, ...] = (1, 2)) -> ClusterSnapshot:
    return replace(
        HEALTHY,
        at_ms=at_ms,
        topics=topic(isr=isr),
        log_dirs={**HEALTHY.log_dirs, 3: disk(3, copied=copied)},
        reassignments={TP: Ongoing([1, 2, 3], adding=[3])},
    )


def test_a_move_that_stalls() -> None:
    before = moving(100_000, 10)
    assert before.needs_second
    assert assess(moving(105_000, 20), before) == []
    assert "nothing was copied" in only(moving(105_000, 10), "move-stalled", before).reason
    assert assess(moving(105_000, 10, isr=(1, 2, 3)), before) == [], "it has arrived"
    gone = replace(moving(105_000, 10), brokers=without(3))
    assert only(gone, "move-stalled", before).reason == "broker 3 is down"


def test_what_could_not_be_asked_is_reported() -> None:
    now = replace(HEALTHY, unanswered=("consumer groups: no answer",))
    problem = only(now, "unanswered")
    assert (problem.subject, problem.reason) == ("consumer groups", "no answer")


def test_the_worst_comes_first() -> None:
    now = replace(
        HEALTHY, at_ms=105_000, controller_id=2, brokers=without(1, 3), topics=topic(leader=-1)
    )
    severities = [problem.severity for problem in assess(now, HEALTHY)]
    assert severities == sorted(severities)
    assert severities[0] is Severity.CRITICAL
    assert severities[-1] is Severity.NOTICE


def test_since_when_as_far_as_two_samples_and_a_history_show() -> None:
    now = replace(HEALTHY, at_ms=105_000, brokers=without(3), topics=topic(isr=(1, 2)))
    assert {found.since_ms for found in assess(now, HEALTHY)} == {100_000}, "not there before"
    older = assess(now, replace(now, at_ms=100_000))
    assert {found.since_ms for found in older} == {None}, "older"

    class Journal:
        def onset(self, problem: Problem, now: ClusterSnapshot) -> Onset | None:
            return Onset(42, "why") if problem.kind == "broker-down" else None

        def recent(self, now: ClusterSnapshot) -> list[Problem]:
            return [Problem(Severity.NOTICE, "controller-changed", "broker 1", "new")]

    problems = assess(now, HEALTHY, Journal())
    found = {problem.kind: (problem.since_ms, problem.cause) for problem in problems}
    assert found == {
        "broker-down": (42, "why"),
        "under-replicated": (100_000, ""),
        "controller-changed": (None, ""),
    }


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_rule_is_silent_about_a_healthy_cluster(rule: FunctionType) -> None:
    assert list(rule(HEALTHY, HEALTHY)) == []
    assert rule.__name__.replace("_", "-") in ADVICE, "what to do about it"
