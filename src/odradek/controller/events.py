"""The event queue: everything that happens to the controller happens one at a time, in order.

An event is a kind, what to do, and what to do instead if the office is lost before its turn
(*preempted*). Events that only say "look again" (a watch fired) are not queued twice: the handler
reads the present state anyway. docs/spec/controller-and-replication.md section 4.3.

Of the kinds of that section this dialect has no AlterPartitionReceived, UpdateFeatures or
AllocateProducerIds: at inter-broker protocol 2.6 leaders write the ISR to the store themselves,
features are disabled, and each broker takes its own producer ids. Nor has it ShutdownEventThread:
the queue is a task, and `close` ends it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

CLOSING_S_MAX = 5.0


class EventKind(StrEnum):
    """Kafka's names."""

    STARTUP = "Startup"
    REELECT = "Reelect"
    REGISTER_BROKER_AND_REELECT = "RegisterBrokerAndReelect"
    EXPIRE = "Expire"
    CONTROLLER_CHANGE = "ControllerChange"
    BROKER_CHANGE = "BrokerChange"
    BROKER_MODIFICATIONS = "BrokerModifications"
    TOPIC_CHANGE = "TopicChange"
    PARTITION_MODIFICATIONS = "PartitionModifications"
    TOPIC_DELETION = "TopicDeletion"
    TOPIC_DELETION_STOP_REPLICA_RESPONSE = "TopicDeletionStopReplicaResponseReceived"
    LEADER_AND_ISR_RESPONSE = "LeaderAndIsrResponseReceived"
    UPDATE_METADATA_RESPONSE = "UpdateMetadataResponseReceived"
    CONTROLLED_SHUTDOWN = "ControlledShutdown"
    AUTO_PREFERRED_ELECTION = "AutoPreferredReplicaLeaderElection"
    REPLICA_LEADER_ELECTION = "ReplicaLeaderElection"
    UNCLEAN_ENABLE = "UncleanLeaderElectionEnable"
    TOPIC_UNCLEAN_ENABLE = "TopicUncleanLeaderElectionEnable"
    ZK_REASSIGNMENT = "ZkPartitionReassignment"
    API_REASSIGNMENT = "ApiPartitionReassignment"
    REASSIGNMENT_ISR_CHANGE = "PartitionReassignmentIsrChange"
    LIST_REASSIGNMENTS = "ListPartitionReassignments"
    ISR_CHANGE_NOTIFICATION = "IsrChangeNotification"
    LOG_DIR_EVENT_NOTIFICATION = "LogDirEventNotification"


@dataclass(eq=False, slots=True)
class Event:
    """One thing to do. `subject` tells events of a kind apart (a topic, a broker, a partition)."""

    kind: EventKind
    process: Callable[[], Awaitable[None]]
    preempt: Callable[[], None] | None = None
    subject: object = None
    queued_at: float = 0.0


@dataclass(slots=True)
class KindTimes:
    """How long the events of one kind waited and took."""

    count: int = 0
    queue_s: float = 0.0
    queue_s_max: float = 0.0
    processing_s: float = 0.0
    processing_s_max: float = 0.0

    def add(self, queue_s: float, processing_s: float) -> None:
        self.count += 1
        self.queue_s += queue_s
        self.queue_s_max = max(self.queue_s_max, queue_s)
        self.processing_s += processing_s
        self.processing_s_max = max(self.processing_s_max, processing_s)


class EventQueue:
    """Runs events one at a time, each through `around`, which knows the office and the errors."""

    def __init__(self, around: Callable[[Event], Awaitable[None]]) -> None:
        self._around = around
        self._events: deque[Event] = deque()
        self._waiting: set[tuple[EventKind, object]] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._times: dict[EventKind, KindTimes] = {}
        self.current: Event | None = None
        self.preempted = 0
        self.closed = False

    def start(self) -> None:
        assert self._task is None, "a queue starts once"
        self._task = asyncio.get_running_loop().create_task(self._run(), name="controller-events")

    def put(self, event: Event) -> None:
        """Queue an event. After `close` it is preempted at once."""
        if self.closed:
            self._preempt(event)
            return
        event.queued_at = asyncio.get_running_loop().time()
        self._events.append(event)
        self._wake.set()

    def put_once(self, event: Event) -> None:
        """Queue an event that only says "look again", unless the same already waits."""
        name = (event.kind, event.subject)
        if name not in self._waiting:
            self._waiting.add(name)
            self.put(event)

    def clear_and_put(self, event: Event) -> None:
        """Preempt everything that waits, then queue this."""
        self._preempt_all()
        self.put(event)

    async def close(self) -> None:
        """Finish the event in hand, preempt the rest.

        An event that waits for a store out of reach is broken off after a while.
        """
        self.closed = True
        self._preempt_all()
        self._wake.set()
        if self._task is not None:
            _, unfinished = await asyncio.wait([self._task], timeout=CLOSING_S_MAX)
            if unfinished:
                self._task.cancel()
                await asyncio.wait([self._task])

    def statistics(self) -> dict[str, object]:
        return {
            "queue_length": len(self._events),
            "processing": self.current.kind.value if self.current else None,
            "preempted": self.preempted,
            "events": {
                kind.value: {
                    "count": times.count,
                    "queue_ms_mean": 1000 * times.queue_s / times.count,
                    "queue_ms_max": 1000 * times.queue_s_max,
                    "processing_ms_mean": 1000 * times.processing_s / times.count,
                    "processing_ms_max": 1000 * times.processing_s_max,
                }
                for kind, times in self._times.items()
            },
        }

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.closed:
            if not self._events:
                self._wake.clear()
                await self._wake.wait()
                continue
            self.current = event = self._events.popleft()
            self._waiting.discard((event.kind, event.subject))
            started = loop.time()
            try:
                await self._around(event)
            finally:
                self.current = None
                times = self._times.setdefault(event.kind, KindTimes())
                times.add(started - event.queued_at, loop.time() - started)

    def _preempt_all(self) -> None:
        while self._events:
            self._preempt(self._events.popleft())
        self._waiting.clear()

    def _preempt(self, event: Event) -> None:
        self.preempted += 1
        if event.preempt is not None:
            event.preempt()
