"""The event queue: one at a time, in order, with times for each kind of event."""

import asyncio
from typing import get_args

import pytest

from odradek.controller import events
from odradek.controller.elections import ElectionType
from odradek.controller.event_queue import EventQueue, Queued
from odradek.controller.events import (
    BrokerChange,
    Event,
    Expire,
    ListPartitionReassignments,
    PartitionModifications,
    TopicChange,
    name_of,
)


class Recorder:
    """Records what the queue does; events named in `gates` wait there."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.gates: dict[Event, asyncio.Event] = {}
        self.queue = EventQueue(self.process, self.preempt)

    async def process(self, queued: Queued) -> None:
        event = queued.event
        if isinstance(event, ListPartitionReassignments):
            event.succeed({})
            return
        self.seen.append(f"begin {event}")
        gate = self.gates.get(event)
        if gate is not None:
            await gate.wait()
        self.seen.append(f"end {event}")

    def preempt(self, event: Event) -> None:
        self.seen.append(f"preempt {event}")

    async def drained(self) -> None:
        last = ListPartitionReassignments(None)
        self.queue.put(last)
        await last.reply
        await asyncio.sleep(0)


async def test_one_at_a_time_in_order() -> None:
    recorder, gate = Recorder(), asyncio.Event()
    recorder.gates[BrokerChange()] = gate
    recorder.queue.start()
    recorder.queue.put(BrokerChange())
    recorder.queue.put(TopicChange())
    await asyncio.sleep(0)
    assert recorder.seen == ["begin BrokerChange()"]
    gate.set()
    await recorder.drained()
    assert recorder.seen[1:] == ["end BrokerChange()", "begin TopicChange()", "end TopicChange()"]
    await recorder.queue.close()


async def test_looking_again_is_queued_once_until_it_begins() -> None:
    recorder, gate = Recorder(), asyncio.Event()
    recorder.gates[TopicChange()] = gate
    queue = recorder.queue
    queue.start()
    queue.put(TopicChange(), epoch=1)
    await asyncio.sleep(0)
    for _ in range(2):
        queue.put(TopicChange(), epoch=1)
    queue.put(TopicChange(), epoch=2)  # of the next term: another event
    for topic in ("t1", "t2", "t1"):
        queue.put(PartitionModifications(topic))
    gate.set()
    await recorder.drained()
    assert [line for line in recorder.seen if line.startswith("end")] == [
        "end TopicChange()",
        "end TopicChange()",
        "end TopicChange()",
        "end PartitionModifications(topic='t1')",
        "end PartitionModifications(topic='t2')",
    ]
    await queue.close()


async def test_clearing_preempts_what_waits_and_not_what_runs() -> None:
    recorder, gate = Recorder(), asyncio.Event()
    recorder.gates[BrokerChange()] = gate
    queue = recorder.queue
    queue.start()
    queue.put(BrokerChange())
    queue.put(TopicChange())
    await asyncio.sleep(0)
    queue.clear_and_put(Expire())
    gate.set()
    await recorder.drained()
    assert recorder.seen == [
        "begin BrokerChange()",
        "preempt TopicChange()",
        "end BrokerChange()",
        "begin Expire()",
        "end Expire()",
    ]
    assert queue.statistics()["preempted"] == 1
    await queue.close()


async def test_after_closing_everything_is_preempted() -> None:
    recorder = Recorder()
    recorder.queue.start()
    await recorder.queue.close()
    recorder.queue.put(TopicChange())
    assert recorder.seen == ["preempt TopicChange()"]


async def test_an_event_that_never_ends_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.controller.event_queue.CLOSING_S_MAX", 0.01)
    recorder = Recorder()
    recorder.gates[BrokerChange()] = asyncio.Event()
    recorder.queue.start()
    recorder.queue.put(BrokerChange())
    await asyncio.sleep(0)
    await recorder.queue.close()
    assert recorder.seen == ["begin BrokerChange()"]


async def test_times_are_kept_for_each_kind() -> None:
    recorder, gate = Recorder(), asyncio.Event()
    recorder.gates[BrokerChange()] = gate
    queue = recorder.queue
    queue.start()
    queue.put(BrokerChange())
    for topic in ("behind it", "and that"):
        queue.put(PartitionModifications(topic))
    asyncio.get_running_loop().call_later(0.02, gate.set)
    await recorder.drained()
    times = queue.statistics()["events"]
    assert isinstance(times, dict)
    assert times["BrokerChange"]["count"] == 1
    assert times["BrokerChange"]["processing_ms_max"] >= 15
    behind = times["PartitionModifications"]
    assert behind["count"] == 2
    assert behind["queue_ms_max"] >= 15
    assert behind["processing_ms_max"] < times["BrokerChange"]["processing_ms_max"]
    await queue.close()


async def test_kafkas_names_of_the_events_this_dialect_has() -> None:
    kinds = [
        *get_args(events.ElectionEvent),
        *get_args(events.TermEvent),
        *get_args(events.AnyApiRequest),
    ]
    names = {kind.__name__ for kind in kinds} - {"ElectLeaders"}
    assert name_of(events.ElectLeaders(ElectionType.PREFERRED, None)) in names
    assert names == {
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
        "ControllerDeserted",  # ours
        "PaceMoves",  # ours
        "PlanMovesReceived",  # ours
        "ListPartitionReassignments",
        "IsrChangeNotification",
        "AlterPartitionReceived",
        "AllocateProducerIds",
        "LogDirEventNotification",
    }
