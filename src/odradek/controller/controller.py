"""The controller: runs inside every broker, is in office in one of them.

Whatever happens (a watch fires, a broker answers, somebody calls) becomes an event; events are
worked off one at a time, on the office if we hold it. Losing the office is learnt from a write
that fails its fence, from the `/controller` node, or from the store session that ends, and never
harms: every write is fenced, and brokers refuse an old controller's epoch.
docs/spec/controller-and-replication.md sections 4.2 and 4.3.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from odradek.controller import balance, brokers, failover, topics
from odradek.controller.api_error import ApiError
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.balance import ElectionType
from odradek.controller.channels import Connect, ControlResponse
from odradek.controller.config import ControllerConfig
from odradek.controller.events import Event, EventKind, EventQueue
from odradek.controller.journal import EntryKind, Journal
from odradek.controller.office import Office
from odradek.controller.reassignment import Target
from odradek.controller.requests import BatchNotEmpty, ControlRequest
from odradek.controller.responses import on_response
from odradek.store.api import EventKind as Change
from odradek.store.api import (
    SessionEvent,
    SessionExpired,
    StoreError,
    StoreUnavailable,
    WatchEvent,
)
from odradek.store.cluster import ClusterStore, ControllerMoved
from odradek.store.paths import partition_of_state
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

log = logging.getLogger(__name__)

# Who could not do the office's work lets others try first.
ELECTION_PAUSE_S = 0.5

T = TypeVar("T")
Work = Callable[[Office], Awaitable[None]]

# Watches that only say "look again", and what looking again is.
_LOOK_AGAIN: Mapping[str, tuple[EventKind, Work]] = {
    "brokers": (EventKind.BROKER_CHANGE, brokers.brokers_changed),
    "topics": (EventKind.TOPIC_CHANGE, topics.topics_changed),
    "deletions": (EventKind.TOPIC_DELETION, topics.deletion_requested),
    "isr changes": (EventKind.ISR_CHANGE_NOTIFICATION, topics.isr_changed),
    "log dirs": (EventKind.LOG_DIR_EVENT_NOTIFICATION, brokers.directories_failed),
    "preferred election": (
        EventKind.REPLICA_LEADER_ELECTION,
        balance.legacy_preferred_election,
    ),
    "reassignment": (EventKind.ZK_REASSIGNMENT, topics.reassignment_requested),
    "reassigning": (EventKind.REASSIGNMENT_ISR_CHANGE, topics.reassigning_changed),
}


class Controller:
    """One broker's controller. Make it on the loop it runs on, before the broker registers, so that
    no end of its session goes unnoticed; `start` it once registered.

    `register` registers this broker anew after its session was lost; `connect` opens a connection
    to a broker.
    """

    def __init__(
        self,
        broker_id: int,
        store: ClusterStore,
        config: ControllerConfig | None = None,
        *,
        journal: Journal,
        connect: Connect | None = None,
        register: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.config = config or ControllerConfig()
        self.journal = journal
        self._store = store
        self._connect = connect or self._open_connection
        self._register = register
        self._queue = EventQueue(self._process)
        self._office: Office | None = None
        self._rebalance_timer: asyncio.TimerHandle | None = None
        # Sessions that were lost, and after how many of them we have registered again.
        self._sessions_lost = self._registered_after = 0
        self._pause: asyncio.TimerHandle | None = None
        self.elections_won = 0
        self.resignations = 0
        store.store.on_session(self._on_session)

    async def start(self) -> None:
        """Join the election; returns once it is decided who is in office, us or another.

        Where the session ends meanwhile, the next one brings the election; where the store cannot
        work, it is tried again until it can.
        """
        self._queue.start()
        try:
            await self._ask_queue(
                EventKind.STARTUP,
                self._elect,
                KafkaError(ErrorCode.NOT_CONTROLLER, "the session ended before"),
            )
        except KafkaError as error:
            log.warning("broker %d has not joined the election yet: %s", self.broker_id, error)

    async def stop(self) -> None:
        """Leave, whatever is waiting. The `/controller` node goes with the store's session."""
        await self._queue.close()
        if self._pause is not None:
            self._pause.cancel()
        self._leave_office("stopped")
        self.journal.close()

    @property
    def is_active(self) -> bool:
        return self._office is not None

    @property
    def epoch(self) -> int:
        """The controller epoch of our term; 0 when not in office."""
        return 0 if self._office is None else self._office.context.epoch

    def is_queued_for_deletion(self, topic: str) -> bool:
        return self._office is not None and self._office.context.is_queued_for_deletion(topic)

    def statistics(self) -> dict[str, object]:
        office = self._office
        return {
            "active": office is not None,
            "epoch": self.epoch,
            "elections_won": self.elections_won,
            "resignations": self.resignations,
            **self._queue.statistics(),
            "journal": self.journal.statistics(),
            **({} if office is None else office.statistics()),
        }

    # What others ask of the controller

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> set[TopicPartition]:
        """Prepare a broker to stop; answers the partitions it still leads."""
        return await self._ask(
            EventKind.CONTROLLED_SHUTDOWN,
            lambda office: brokers.controlled_shutdown(office, broker_id, broker_epoch),
            refusal=ErrorCode.STALE_CONTROLLER_EPOCH,
        )

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ApiError]:
        """Elect preferred, or where nobody in sync is left unclean, leaders. None is everywhere."""
        return await self._ask(
            EventKind.REPLICA_LEADER_ELECTION,
            lambda office: balance.elect_leaders(office, ElectionType(election_type), partitions),
        )

    async def alter_reassignments(
        self, moves: Mapping[TopicPartition, Target]
    ) -> dict[TopicPartition, ApiError]:
        """Move partitions to other replicas; None cancels a move."""

        async def alter(office: Office) -> dict[TopicPartition, ApiError]:
            office.note(f"ApiPartitionReassignment {_moves(moves)}")
            return await office.reassigner.request(moves)

        return await self._ask(EventKind.API_REASSIGNMENT, alter)

    async def list_reassignments(
        self, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """The moves in progress, of these partitions or of all."""

        async def listed(office: Office) -> dict[TopicPartition, ReplicaAssignment]:
            return office.reassigner.listed(partitions)

        return await self._ask(EventKind.LIST_REASSIGNMENTS, listed)

    def enable_unclean_leader_election(self, topic: str | None = None) -> None:
        """A configuration now accepts loss, of one topic or by default: try offline partitions."""

        async def retry(office: Office) -> None:
            office.note(f"unclean leader election enabled for {topic or 'all topics'}")
            await brokers.retry_offline(office, topic)

        if topic is None:
            self.config.unclean_leader_election_enable = True
            self._put(EventKind.UNCLEAN_ENABLE, retry)
        else:
            self._put(EventKind.TOPIC_UNCLEAN_ENABLE, retry, topic)

    async def _ask(
        self,
        kind: EventKind,
        work: Callable[[Office], Awaitable[T]],
        refusal: ErrorCode = ErrorCode.NOT_CONTROLLER,
    ) -> T:
        """Queue work for the office and await its result; refused if we do not hold it."""
        refused = KafkaError(refusal, f"broker {self.broker_id} is not the controller")

        async def process() -> T:
            if self._office is None:
                raise refused
            try:
                return await work(self._office)
            except ControllerMoved:
                await self._look_who_is_in_office()
                raise refused from None
            except StoreUnavailable:
                raise
            except StoreError as error:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

        return await self._ask_queue(kind, process, refused)

    async def _ask_queue(
        self,
        kind: EventKind,
        work: Callable[[], Awaitable[T]],
        preempted: Exception | None = None,
    ) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def process() -> None:
            try:
                result = await work()
            except KafkaError as error:
                if not answer.done():
                    answer.set_exception(error)
            except Exception as error:
                if not answer.done():
                    answer.set_exception(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)))
                raise
            else:
                if not answer.done():
                    answer.set_result(result)

        def preempt() -> None:
            if not answer.done():
                answer.set_exception(preempted or asyncio.CancelledError())

        self._queue.put(Event(kind, process, preempt))
        return await answer

    # Events

    async def _process(self, event: Event) -> None:
        """One event. Whatever comes of it, the next one follows."""
        self.journal.cause = event.kind.value
        try:
            await self._process_in_office(event)
        except SessionExpired as error:
            # The office goes with the session; that event is on its way.
            log.info("broker %d at %s: %s", self.broker_id, event.kind.value, error)
        except Exception as error:
            log.exception("the controller failed at %s", event.kind.value)
            self.journal.record(EntryKind.FAILURE, why=f"{event.kind.value}: {error!r}")
        finally:
            self.journal.flush()

    async def _process_in_office(self, event: Event) -> None:
        """One event, and what its errors mean for the office."""
        try:
            await event.process()
        except ControllerMoved as moved:
            log.info("broker %d lost the office: %s", self.broker_id, moved)
            await self._look_who_is_in_office()
        except BatchNotEmpty as error:
            await self._give_office_up(str(error))
        except StoreUnavailable as error:
            # The work is half done, and the watch that asked for it spent: a new term reads all
            # that stands, and sets every watch.
            log.warning("broker %d at %s: %s", self.broker_id, event.kind.value, error)
            self._elect_later()
            await self._give_office_up(str(error))

    def _put(self, kind: EventKind, work: Work, subject: object = None) -> None:
        """Queue work for the office we hold now; it is void if we no longer hold that one."""
        office = self._office
        if office is None:
            return

        async def process() -> None:
            if self._office is office:
                await work(office)

        # Under the name of our term: what waits from an earlier one is void, and looks at nothing.
        self._queue.put_once(Event(kind, process, subject=(office.context.epoch, subject)))

    def _on_watch(self, name: str, event: WatchEvent) -> None:
        last = event.path.rpartition("/")[2]
        if name == "broker":
            if event.kind is Change.CHANGED:
                self._put(
                    EventKind.BROKER_MODIFICATIONS,
                    lambda office: brokers.broker_modified(office, int(last)),
                    last,
                )
        elif name == "topic":
            if event.kind is Change.CHANGED:
                self._put(
                    EventKind.PARTITION_MODIFICATIONS,
                    lambda office: topics.topic_modified(office, last),
                    last,
                )
        else:
            if name == "reassigning" and self._office is not None:
                self._office.changed_states.add(partition_of_state(event.path))
            kind, work = _LOOK_AGAIN[name]
            self._put(kind, work)

    def _on_response(
        self, broker_id: int, request: ControlRequest, response: ControlResponse
    ) -> None:
        office = self._office
        assert office is not None, "channels are closed with the office"
        kind, work = on_response(broker_id, request, response)

        async def process() -> None:
            if self._office is office:
                await work(office)

        self._queue.put(Event(kind, process))

    def _on_reach(self, broker_id: int) -> None:
        if broker_id != self.broker_id:
            self._put(EventKind.BROKER_CHANGE, brokers.brokers_changed)

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._sessions_lost += 1
            self._queue.clear_and_put(Event(EventKind.EXPIRE, self._expire))
        elif event is SessionEvent.CONNECTED and self._registered_after < self._sessions_lost:
            self._queue.put(Event(EventKind.REGISTER_BROKER_AND_REELECT, self._register_and_elect))

    def _on_controller_node(self, event: WatchEvent) -> None:
        if event.kind is Change.DELETED:
            self._queue.put_once(Event(EventKind.REELECT, self._elect))
        else:
            self._queue.put_once(Event(EventKind.CONTROLLER_CHANGE, self._look_who_is_in_office))

    # The office

    async def _register_and_elect(self) -> None:
        lost = self._sessions_lost
        if self._register is not None and self._registered_after < lost:
            await self._register()
        self._registered_after = lost
        await self._elect()

    async def _expire(self) -> None:
        self._leave_office("the store session expired")

    async def _holder(self) -> int | None:
        """Who is in office; we leave it if it is not us. Keeps watching the node."""
        elected = await self._store.controller_id(self._on_controller_node)
        if elected != self.broker_id:
            holder = "nobody" if elected is None else f"broker {elected}"
            self._leave_office(f"{holder} is in office")
        return elected

    async def _look_who_is_in_office(self) -> None:
        """Leave if it is not us; if it is nobody, an election follows."""
        elected = await self._holder()
        if elected is None or (elected == self.broker_id and self._office is None):
            self._queue.put_once(Event(EventKind.REELECT, self._elect))

    async def _elect(self) -> None:
        """Take the office if it is vacant."""
        elected = await self._holder()
        if elected == self.broker_id and self._office is None:
            # We gave it up and the store could not be told, or an earlier life of ours held it.
            term = await self._store.controller_epoch()
            assert term is not None, "somebody was elected"
            await self._store.resign_controller(term.fence)
        elif elected is not None:
            return
        if self._pause is not None:
            return  # others first; what ends the pause is an election
        try:
            term = await self._store.elect_controller(self.broker_id)
        except ControllerMoved:
            await self._look_who_is_in_office()
            return
        self.elections_won += 1
        self.journal.controller_epoch = term.epoch
        self._office = office = Office(
            self.broker_id,
            term,
            self._store,
            self.config,
            self.journal,
            connect=self._connect,
            on_response=self._on_response,
            on_reach=self._on_reach,
            on_watch=self._on_watch,
        )
        office.note(f"broker {self.broker_id} elected controller")
        try:
            await failover.take_office(office)
        except ControllerMoved:
            await self._look_who_is_in_office()
        except Exception as error:
            foreseen = isinstance(error, StoreError | BatchNotEmpty)
            log.error(
                "broker %d could not take office: %r", self.broker_id, error, exc_info=not foreseen
            )
            await self._give_office_up(repr(error))
        else:
            if self.config.auto_leader_rebalance_enable:
                self._schedule_rebalance(self.config.leader_imbalance_first_check_seconds)

    async def _give_office_up(self, reason: str) -> None:
        """Something went wrong that only a new term, ours or another's, puts right."""
        office = self._office
        if office is None:
            return
        self._leave_office(reason)
        self._elect_later()
        try:
            await self._store.resign_controller(office.fence)
        except ControllerMoved:
            await self._look_who_is_in_office()
        except StoreError as error:
            log.info("broker %d could not resign: %s", self.broker_id, error)

    def _elect_later(self) -> None:
        """After a pause, in which others may try: the store may have nobody in office, or us, and
        there need not be a watch that tells."""
        if self._pause is None:
            loop = asyncio.get_running_loop()
            self._pause = loop.call_later(ELECTION_PAUSE_S, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self._queue.put_once(Event(EventKind.REGISTER_BROKER_AND_REELECT, self._register_and_elect))

    def _leave_office(self, reason: str) -> None:
        if self._office is None:
            return
        self.resignations += 1
        self.journal.record(
            EntryKind.CONTROLLER, after=f"broker {self.broker_id} left office", why=reason
        )
        if self._rebalance_timer is not None:
            self._rebalance_timer.cancel()
            self._rebalance_timer = None
        self._office.close()
        self._office = None
        self.journal.controller_epoch = 0

    def _schedule_rebalance(self, delay_s: float) -> None:
        self._rebalance_timer = asyncio.get_running_loop().call_later(
            delay_s, lambda: self._put(EventKind.AUTO_PREFERRED_ELECTION, self._rebalance)
        )

    async def _rebalance(self, office: Office) -> None:
        try:
            await balance.rebalance(office)
        finally:
            if self._office is office:
                self._schedule_rebalance(self.config.leader_imbalance_check_interval_seconds)

    async def _open_connection(self, host: str, port: int) -> Connection:
        return await Connection.open(
            host,
            port,
            client_id=str(self.broker_id),
            timeout=self.config.request_timeout_ms / 1000,
            security=self.config.security,
        )


def _moves(moves: Mapping[TopicPartition, Target]) -> str:
    return " ".join(
        f"{key}:{'cancel' if to is None else list(to)}" for key, to in list(moves.items())[:20]
    ) + (f" and {len(moves) - 20} more" if len(moves) > 20 else "")
