"""The event queue: one at a time, in order, with times for each kind.

docs/spec/controller-and-replication.md section 4.3.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from odradek.controller.events import Event, EventKind, EventQueue


async def run(event: Event) -> None:
    await event.process()


class Recorder:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def event(
        self,
        kind: EventKind,
        name: str,
        wait_for: asyncio.Event | None = None,
        subject: object = None,
    ) -> Event:
        async def process() -> None:
            self.seen.append(f"begin {name}")
            if wait_for is not None:
                await wait_for.wait()
            self.seen.append(f"end {name}")

        return Event(kind, process, lambda: self.seen.append(f"preempt {name}"), subject)


async def drained(queue: EventQueue) -> None:
    done = asyncio.Event()
    queue.put(Event(EventKind.LIST_REASSIGNMENTS, _setting(done)))
    await done.wait()
    await asyncio.sleep(0)


def _setting(done: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def process() -> None:
        done.set()

    return process


async def test_one_at_a_time_in_order() -> None:
    recorder, queue, gate = Recorder(), EventQueue(run), asyncio.Event()
    queue.start()
    queue.put(recorder.event(EventKind.BROKER_CHANGE, "a", gate))
    queue.put(recorder.event(EventKind.TOPIC_CHANGE, "b"))
    await asyncio.sleep(0)
    assert recorder.seen == ["begin a"]
    gate.set()
    await drained(queue)
    assert recorder.seen == ["begin a", "end a", "begin b", "end b"]
    await queue.close()


async def test_looking_again_is_queued_once_until_it_begins() -> None:
    recorder, queue, gate = Recorder(), EventQueue(run), asyncio.Event()
    queue.start()
    queue.put_once(recorder.event(EventKind.TOPIC_CHANGE, "a", gate))
    await asyncio.sleep(0)
    for name in ("b", "c"):
        queue.put_once(recorder.event(EventKind.TOPIC_CHANGE, name))
    queue.put_once(recorder.event(EventKind.PARTITION_MODIFICATIONS, "t1", subject="t1"))
    queue.put_once(recorder.event(EventKind.PARTITION_MODIFICATIONS, "t2", subject="t2"))
    queue.put_once(recorder.event(EventKind.PARTITION_MODIFICATIONS, "t1 again", subject="t1"))
    gate.set()
    await drained(queue)
    assert [line for line in recorder.seen if line.startswith("end")] == [
        "end a",
        "end b",
        "end t1",
        "end t2",
    ]
    await queue.close()


async def test_clearing_preempts_what_waits_and_not_what_runs() -> None:
    recorder, queue, gate = Recorder(), EventQueue(run), asyncio.Event()
    queue.start()
    queue.put(recorder.event(EventKind.BROKER_CHANGE, "running", gate))
    queue.put(recorder.event(EventKind.CONTROLLED_SHUTDOWN, "waiting"))
    await asyncio.sleep(0)
    queue.clear_and_put(recorder.event(EventKind.EXPIRE, "expire"))
    gate.set()
    await drained(queue)
    assert recorder.seen == [
        "begin running",
        "preempt waiting",
        "end running",
        "begin expire",
        "end expire",
    ]
    assert queue.statistics()["preempted"] == 1
    await queue.close()


async def test_after_closing_everything_is_preempted() -> None:
    recorder, queue = Recorder(), EventQueue(run)
    queue.start()
    await queue.close()
    queue.put(recorder.event(EventKind.TOPIC_CHANGE, "late"))
    assert recorder.seen == ["preempt late"]


async def test_an_event_that_never_ends_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.controller.events.CLOSING_S_MAX", 0.01)
    recorder, queue = Recorder(), EventQueue(run)
    queue.start()
    queue.put(recorder.event(EventKind.BROKER_CHANGE, "stuck", asyncio.Event()))
    await asyncio.sleep(0)
    await queue.close()
    assert recorder.seen == ["begin stuck"]


async def test_times_are_kept_for_each_kind() -> None:
    loop = asyncio.get_running_loop()
    recorder, queue = Recorder(), EventQueue(run)
    queue.start()
    gate = asyncio.Event()
    queue.put(recorder.event(EventKind.BROKER_CHANGE, "slow", gate))
    queue.put(recorder.event(EventKind.TOPIC_CHANGE, "behind it"))
    queue.put(recorder.event(EventKind.TOPIC_CHANGE, "and that"))
    loop.call_later(0.02, gate.set)
    await drained(queue)
    events = queue.statistics()["events"]
    assert isinstance(events, dict)
    assert events["BrokerChange"]["count"] == 1
    assert events["BrokerChange"]["processing_ms_max"] >= 15
    assert events["TopicChange"]["count"] == 2
    assert events["TopicChange"]["queue_ms_max"] >= 15
    assert events["TopicChange"]["processing_ms_max"] < events["BrokerChange"]["processing_ms_max"]
    await queue.close()


def test_kafkas_names_of_the_kinds_this_dialect_has() -> None:
    assert {kind.value for kind in EventKind} == {
        "Startup",
        "Reelect",
        "RegisterBrokerAndReelect",
        "Expire",
        "ControllerChange",
        "BrokerChange",
        "BrokerModifications",
        "TopicChange",
        "PartitionModifications",
        "TopicDeletion",
        "TopicDeletionStopReplicaResponseReceived",
        "LeaderAndIsrResponseReceived",
        "UpdateMetadataResponseReceived",
        "ControlledShutdown",
        "AutoPreferredReplicaLeaderElection",
        "ReplicaLeaderElection",
        "UncleanLeaderElectionEnable",
        "TopicUncleanLeaderElectionEnable",
        "ZkPartitionReassignment",
        "ApiPartitionReassignment",
        "PartitionReassignmentIsrChange",
        "ListPartitionReassignments",
        "IsrChangeNotification",
        "LogDirEventNotification",
    }
