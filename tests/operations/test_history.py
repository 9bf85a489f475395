"""When problems began and why, as far as journals and brokers remember."""

from dataclasses import replace

from tests.operations.test_health import HEALTHY, topic, without

from odradek.controller.journal import Entry, EntryKind
from odradek.operations.health import Problem, Severity, assess
from odradek.operations.history import JournalHistory
from odradek.operations.journal_book import JournalBook
from odradek.wire.topics import TopicPartition

TP = TopicPartition("t", 0)


def book(*entries: Entry) -> JournalBook:
    made = JournalBook()
    for number, entry in enumerate(entries, 1):
        made.add(1, entry._replace(sequence=number))
    return made


def leadership(time_ms: int, isr: str, leader: int = 1) -> Entry:
    after = f"leader={leader} epoch={time_ms} isr=[{isr}]"
    return Entry(time_ms, 1, EntryKind.LEADERSHIP, f"why {time_ms}", "", after, TP)


def said(time_ms: int, text: str, epoch: int = 1) -> Entry:
    return Entry(time_ms, epoch, EntryKind.CONTROLLER, "", after=text)


def test_a_partition_is_wrong_from_the_entry_on_since_which_it_has_been() -> None:
    journal = book(
        leadership(10, "1,2"),
        leadership(20, "1,2,3"),
        leadership(30, "1,3"),
        leadership(40, "1"),
    )
    now = replace(HEALTHY, topics=topic(isr=(1,)))
    found = {each.kind: each for each in assess(now, None, JournalHistory(journal))}
    assert (found["under-replicated"].since_ms, found["under-replicated"].cause) == (30, "why 30")
    assert (found["under-min-isr"].since_ms, found["under-min-isr"].cause) == (40, "why 40")


def test_a_partition_is_offline_since_it_lost_its_leader_and_not_since_that_one_led() -> None:
    now = replace(HEALTHY, brokers=without(3), topics=topic(leader=-1, replicas=(3,), isr=(3,)))
    led = leadership(10, "3", leader=3)
    for lost in (leadership(50, "3", leader=-1), said(50, "BrokerChange dead=[3]")):
        found = assess(now, None, JournalHistory(book(led, lost)))
        (problem,) = [each for each in found if each.kind == "offline-partition"]
        assert problem.since_ms == 50


def test_a_broker_is_down_since_a_controller_saw_it_or_did_not_find_it() -> None:
    now = replace(HEALTHY, brokers=without(3))
    seen = JournalHistory(book(said(5, "BrokerChange dead=[3]"), said(9, "BrokerChange new=[4]")))
    (problem,) = [each for each in assess(now, None, seen) if each.kind == "broker-down"]
    assert (problem.since_ms, problem.cause) == (5, "BrokerChange dead=[3]")
    was_controller = book(said(100_000, "broker 1 elected controller", epoch=2))
    found = {each.kind: each for each in assess(now, None, JournalHistory(was_controller))}
    assert found["broker-down"].since_ms == 100_000
    changed = found["controller-changed"]
    assert changed.severity is Severity.NOTICE and changed.since_ms == 100_000
    assert changed.reason == "no living broker was it before; down: 3"
    later = replace(now, at_ms=10_000_000)
    kinds = {each.kind for each in assess(later, None, JournalHistory(was_controller))}
    assert "controller-changed" not in kinds, "too long ago"


def test_a_disk_is_full_since_it_was_last_below_the_limit() -> None:
    problem = Problem(Severity.WARNING, "disk-nearly-full", "/data on broker 2", "full")
    seen = [(1, 90), (2, 80), (3, 86), (4, 87)]
    history = JournalHistory(JournalBook(), {2: {"/data": seen}})
    onset = history.onset(problem, HEALTHY)
    assert onset is not None and onset.time_ms == 3
    assert JournalHistory(JournalBook()).onset(problem, HEALTHY) is None, "not known"


def test_nothing_is_made_up_without_a_journal() -> None:
    now = replace(HEALTHY, brokers=without(3), topics=topic(isr=(1, 2)))
    found = assess(now, None, JournalHistory(JournalBook()))
    assert {each.kind for each in found} == {"broker-down", "under-replicated"}
    assert {(each.since_ms, each.cause) for each in found} == {(None, "")}
