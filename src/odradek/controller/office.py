"""The office: everything that exists only while this broker is the controller.

Made anew for each term and thrown away with it, so that nothing of an earlier term can leak into a
later one. The parts of the controller (brokers, topics, balance, failover) work on it.
"""

from collections.abc import Callable

from odradek.controller.channels import Channels, Connect, OnReach, OnResponse
from odradek.controller.config import ControllerConfig
from odradek.controller.context import ControllerContext
from odradek.controller.deletion import TopicDeletion
from odradek.controller.journal import EntryKind, Journal
from odradek.controller.machines import StateMachines
from odradek.controller.reassigner import Reassigner
from odradek.controller.requests import RequestBatch
from odradek.store.api import Watch, WatchEvent
from odradek.store.cluster import ClusterStore, ControllerTerm
from odradek.wire.topics import TopicPartition

OnWatch = Callable[[str, WatchEvent], None]


class Watches:
    """The watches of one term, by name. Each is one callback, however often it is left."""

    def __init__(self, store: ClusterStore, on_event: OnWatch) -> None:
        self._store = store
        self._on_event = on_event
        self._left: dict[str, Watch] = {}

    def __getitem__(self, name: str) -> Watch:
        watch = self._left.get(name)
        if watch is None:

            def watch(event: WatchEvent) -> None:
                self._on_event(name, event)

            self._left[name] = watch
        return watch

    def close(self) -> None:
        for watch in self._left.values():
            self._store.store.unwatch(watch)
        self._left.clear()


class Office:
    """One term of one controller."""

    def __init__(
        self,
        broker_id: int,
        term: ControllerTerm,
        store: ClusterStore,
        config: ControllerConfig,
        journal: Journal,
        *,
        connect: Connect,
        on_response: OnResponse,
        on_reach: OnReach,
        on_watch: OnWatch,
    ) -> None:
        self.broker_id = broker_id
        self.store = store
        self.config = config
        self.journal = journal
        self.context = ControllerContext()
        self.context.epoch = term.epoch
        self.context.epoch_version = term.fence
        self.watches = Watches(store, on_watch)
        # Partitions on the move whose state was written and not yet looked at.
        self.changed_states: set[TopicPartition] = set()
        listener = config.inter_broker_listener_name
        self.channels = Channels(listener, connect, on_response, on_reach)
        self.batch = RequestBatch(
            broker_id, self.context, listener=listener, send=self.channels.send, journal=journal
        )
        self.machines = StateMachines(self.context, store, self.batch, journal, config)
        self.deletion = TopicDeletion(
            self.context,
            store,
            self.machines,
            self.batch,
            journal,
            enabled=config.delete_topic_enable,
        )
        self.reassigner = Reassigner(
            self.context,
            store,
            self.machines,
            self.batch,
            self.deletion,
            journal,
            config,
            isr_watch=self.watches["reassigning"],
        )

    @property
    def fence(self) -> int:
        """The version every write of this term is checked against."""
        return self.context.epoch_version

    def close(self) -> None:
        self.watches.close()
        self.channels.close()

    def announce(self, broker_ids: list[int], *, everything: bool = False) -> None:
        """UpdateMetadata: who is alive; with `everything`, all partitions that have a leader."""
        self.batch.open()
        partitions = (
            partition
            for partition in (self.context.partitions() if everything else ())
            if not self.context.is_queued_for_deletion(partition.key.topic)
        )
        self.batch.add_update_metadata(broker_ids, partitions)
        self.batch.send()

    def note(self, text: str) -> None:
        """What the event in hand found: an entry, and the reason of all that follows."""
        self.journal.cause = text
        self.journal.record(EntryKind.CONTROLLER, after=text, why="")

    def statistics(self) -> dict[str, object]:
        return {
            **self.context.statistics(),
            "waiting_reassignments": len(self.reassigner.waiting),
            "channels": self.channels.statistics(),
        }
