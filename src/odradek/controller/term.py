"""One term of the active controller: what every part of it shares.

Made for each election and thrown away with it, so that nothing of an earlier term can leak into a
later one. Every write of a term is fenced by the version of `/controller_epoch` it was elected
with.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from random import Random
from typing import Protocol

from odradek.controller import events
from odradek.controller.channels import ChannelPeer, Channels, ControlResponse, versions_for
from odradek.controller.config import ControllerConfig
from odradek.controller.context import ControllerContext, Partition
from odradek.controller.control_request_batch import ControlRequest, RequestBatch, name_partitions
from odradek.controller.events import TermEvent
from odradek.controller.journal import EntryKind, Journal, format_state
from odradek.store.api import EventKind, StoreUnavailable, Watch, WatchEvent
from odradek.store.cluster import ClusterStore
from odradek.store.controller_nodes import ControllerTerm
from odradek.store.nodes import ControllerMoved
from odradek.store.paths import partition_of_state
from odradek.store.payloads import LeaderAndIsr
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataResponse
from odradek.wire.topics import TopicPartition

SHRINKS_KEPT = 10_000


class WatchKind(Enum):
    """What a term watches in the store."""

    BROKERS = "brokers come and go"
    BROKER = "a registration is rewritten"
    TOPICS = "topics come and go"
    TOPIC = "a topic's assignment is written"
    DELETIONS = "topics are to be deleted"
    ISR_CHANGES = "leaders changed ISRs"
    LOG_DIRS = "log directories failed"
    PREFERRED_ELECTION = "the legacy request for preferred leaders"
    REASSIGNMENT = "the legacy request to reassign"
    REASSIGNING = "the state of a partition that is being reassigned"


OnWatch = Callable[[WatchKind, WatchEvent], None]


class Watches:
    """The watches of one term. Each kind is one callback, however often it is left."""

    def __init__(self, store: ClusterStore, on_event: OnWatch) -> None:
        self._store = store
        self._callbacks = {kind: self._callback(kind, on_event) for kind in WatchKind}

    @staticmethod
    def _callback(kind: WatchKind, on_event: OnWatch) -> Watch:
        return lambda event: on_event(kind, event)

    def __getitem__(self, kind: WatchKind) -> Watch:
        return self._callbacks[kind]

    def close(self) -> None:
        for watch in self._callbacks.values():
            self._store.session.unwatch(watch)


class RequestsNotSent(Exception):
    """An operation failed after it had decided something that brokers have not been informed of.

    The store then knows more than the brokers do. The only cure is to resign: the next controller
    reads everything and tells it.
    """


class Host(Protocol):
    """What a term needs of the controller it belongs to."""

    rng: Random

    async def connect(self, host: str, port: int) -> ChannelPeer:
        """Open a connection to a broker."""
        ...

    def put_for_term(self, event: TermEvent, epoch: int) -> None:
        """Queue an event of the term with this controller epoch."""
        ...

    def on_reach(self, broker_id: int) -> None:
        """A broker's socket opened, or refuses connections."""
        ...


class Term:
    """The context, the store behind its fence, the channels to brokers, and the journal."""

    def __init__(
        self,
        broker_id: int,
        elected: ControllerTerm,
        store: ClusterStore,
        config: ControllerConfig,
        journal: Journal,
        host: Host,
    ) -> None:
        self.broker_id = broker_id
        self.context = ControllerContext()
        self.context.epoch = elected.epoch
        self.fence = elected.fence  # the version every write of this term is checked against
        self.store = store
        self.config = config
        self.journal = journal
        self._host = host
        self.rng = host.rng
        self.watches = Watches(store, self._on_watch)
        self.channels = Channels(
            config.inter_broker_listener_name,
            versions_for(config.protocol),
            host.connect,
            self._on_response,
            host.on_reach,
        )
        # Of the operation that is under way.
        self._requests: RequestBatch | None = None
        # Partitions being reassigned whose state was written and not yet looked at.
        self.changed_states: set[TopicPartition] = set()
        # ISRs that shrank, the leader and who was lost: what the moves of plans are paced by.
        self.shrinks: deque[tuple[TopicPartition, int, set[int]]] = deque(maxlen=SHRINKS_KEPT)

    def close(self) -> None:
        self.watches.close()
        self.channels.close()

    # Events

    def put(self, event: TermEvent) -> None:
        self._host.put_for_term(event, self.context.epoch)

    def _on_watch(self, kind: WatchKind, event: WatchEvent) -> None:
        if kind is WatchKind.REASSIGNING:
            self.changed_states.add(partition_of_state(event.path))
        found = event_of_watch(kind, event)
        if found is not None:
            self.put(found)

    def _on_response(
        self, broker_id: int, request: ControlRequest, response: ControlResponse
    ) -> None:
        match request, response:
            case LeaderAndIsrRequest(), LeaderAndIsrResponse():
                name_partitions(request, response)
                self.put(events.LeaderAndIsrResponseReceived(broker_id, request, response))
            case StopReplicaRequest(), StopReplicaResponse():
                self.put(
                    events.TopicDeletionStopReplicaResponseReceived(broker_id, request, response)
                )
            case _, UpdateMetadataResponse():
                self.put(events.UpdateMetadataResponseReceived(broker_id, response))
            case _:
                raise AssertionError(f"{response!r} does not answer {request!r}")

    # Control requests

    @asynccontextmanager
    async def control_requests(self) -> AsyncIterator[RequestBatch]:
        """The control requests of one operation: sent when it succeeds, as one batch. What is done
        within another operation goes out with that.

        If it fails before it has decided anything, its error goes to the caller; if after, the
        controller must resign.
        """
        outer = self._requests
        requests = outer or RequestBatch(
            self.broker_id,
            self.context,
            self.config.inter_broker_listener_name,
            self.config.protocol,
        )
        self._requests = requests
        try:
            yield requests
        except (ControllerMoved, StoreUnavailable):
            raise  # the term ends with either
        except Exception as error:
            if requests.is_empty:
                raise
            raise RequestsNotSent(f"control requests were decided and not sent: {error}") from error
        finally:
            self._requests = outer
        if outer is None:
            self._send(requests)

    def _send(self, requests: RequestBatch) -> None:
        for message in requests.build():
            self.journal.record(
                EntryKind.REQUEST,
                after=message.description,
                broker=message.broker_id,
                partitions=message.partitions,
            )
            for broker_id, request in message.requests:
                self.channels.send(broker_id, request)

    async def announce(
        self, broker_ids: Iterable[int], partitions: Iterable[Partition] = ()
    ) -> None:
        """UpdateMetadata to these brokers: who is alive, and the state of these partitions."""
        async with self.control_requests() as requests:
            requests.add_update_metadata(broker_ids, partitions)

    # Recording

    def note(self, text: str) -> None:
        """What the event in hand found: an entry, and the cause of all that follows."""
        requester = self.journal.requester
        self.journal.cause = f"{text} ({requester})" if requester else text
        self.journal.record(EntryKind.CONTROLLER, after=self.journal.cause, why="")

    def learn(self, partition: Partition, state: LeaderAndIsr, why: str | None = None) -> None:
        """Take over what the store holds: our own write, or a leader's change of its ISR."""
        if state == partition.leader_and_isr:
            return
        before = partition.leader_and_isr
        lost = set() if before is None else set(before.isr) - set(state.isr)
        if lost:
            self.shrinks.append((partition.tp, state.leader, lost))
        self.journal.record(
            EntryKind.LEADERSHIP,
            before="" if before is None else format_state(before),
            after=format_state(state),
            partition=partition.tp,
            why=why,
        )
        self.context.set_leader_and_isr(partition, state)

    def record_failure(
        self,
        before: str,
        after: str,
        tp: TopicPartition,
        reason: str = "not a legal transition",
        broker_id: int | None = None,
    ) -> None:
        self.journal.record(
            EntryKind.FAILURE,
            before=before,
            after=after,
            partition=tp,
            broker=broker_id,
            why=f"{self.journal.cause}: {reason}",
        )


_LOOK_AGAIN: Mapping[WatchKind, TermEvent] = {
    WatchKind.BROKERS: events.BrokerChange(),
    WatchKind.TOPICS: events.TopicChange(),
    WatchKind.DELETIONS: events.TopicDeletion(),
    WatchKind.ISR_CHANGES: events.IsrChangeNotification(),
    WatchKind.LOG_DIRS: events.LogDirEventNotification(),
    WatchKind.PREFERRED_ELECTION: events.ReplicaLeaderElection(),
    WatchKind.REASSIGNMENT: events.ZkPartitionReassignment(),
    WatchKind.REASSIGNING: events.PartitionReassignmentIsrChange(),
}


def event_of_watch(kind: WatchKind, event: WatchEvent) -> TermEvent | None:
    """What a watch that fired means; None where another watch reports the same."""
    found = _LOOK_AGAIN.get(kind)
    if found is not None:
        return found
    if event.kind is not EventKind.CHANGED:
        return None  # created and deleted nodes are seen from their parents
    name = event.path.rpartition("/")[2]
    if kind is WatchKind.BROKER:
        return events.BrokerModifications(int(name))
    assert kind is WatchKind.TOPIC, kind
    return events.PartitionModifications(name)
