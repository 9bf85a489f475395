"""The controller: runs inside every broker; the one of the elected broker is active.

Whatever happens (a watch fires, a broker answers, a client asks) becomes an event; events are
handled one at a time, by the term if this broker is the active controller. What makes it that, or
ends that, is in `controller_election`. docs/spec, sections 4.2 and 4.3 of the controller's
behaviour.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from random import Random

from odradek.controller import dispatch, events
from odradek.controller.active_controller import ActiveController
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.channels import ChannelPeer, Connect, versions_for
from odradek.controller.config import ControllerConfig
from odradek.controller.controller_election import ELECTED, STANDBY, ControllerElection
from odradek.controller.controller_watch import ControllerWatch
from odradek.controller.elections import ElectionType
from odradek.controller.event_queue import EventQueue, Queued
from odradek.controller.events import (
    AnyApiRequest,
    ApiRequest,
    Event,
    Expire,
    IsrProposal,
    Startup,
    TermEvent,
    name_of,
)
from odradek.controller.failover import failover
from odradek.controller.journal import EntryKind, Journal
from odradek.controller.partition_outcome import PartitionOutcome
from odradek.controller.partition_states import PartitionState
from odradek.controller.reassignment_rules import Target
from odradek.controller.replica_states import ReplicaState
from odradek.controller.term import RequestsNotSent, Term
from odradek.store.api import SessionExpired, StoreError, StoreUnavailable
from odradek.store.cluster import ClusterStore
from odradek.store.controller_nodes import ControllerTerm
from odradek.store.nodes import ControllerMoved
from odradek.store.payloads import LeaderAndIsr
from odradek.store.plan_moves import PlannedMove
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)


class Controller:
    """One broker's controller. Make it on the loop it runs on, before the broker registers, so that
    no end of its session goes unnoticed; `start` it once registered.

    `register` registers this broker again after its session was lost; `connect` opens a connection
    to a broker.
    """

    def __init__(
        self,
        broker_id: int,
        store: ClusterStore,
        config: ControllerConfig | None = None,
        *,
        journal: Journal,
        rng: Random,
        connect: Connect | None = None,
        register: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.config = config or ControllerConfig()
        self.journal = journal
        self.rng = rng
        self._store = store
        self._connect = connect or self._open_connection
        self._register = register
        self._queue = EventQueue(self._process, self._preempt)
        self._active: ActiveController | None = None
        self._rebalance_timer: asyncio.TimerHandle | None = None
        self._started: asyncio.Future[None] | None = None
        self.resignations = 0
        self.election = ControllerElection(self, store)
        self._watch = ControllerWatch(
            self.config.inter_broker_listener_name,
            versions_for(self.config.protocol),
            self.connect,
            lambda: self.put(events.ControllerDeserted()),
        )

    async def start(self) -> None:
        """Join the election; returns once a controller is elected, this broker or another.

        Where the session ends meanwhile, the next one brings the election; where the store cannot
        work, it is tried again until it can.
        """
        self._queue.start()
        self._started = asyncio.get_running_loop().create_future()
        self._queue.put(Startup())
        try:
            await self._started
        except KafkaError as error:
            logger.warning("broker %d has not joined the election yet: %s", self.broker_id, error)

    async def stop(self) -> None:
        """Leave, whatever is waiting. The `/controller` node goes with the store's session."""
        await self._queue.close()
        self._watch.close()
        self.election.stop()
        self.journal.close()

    @property
    def is_active(self) -> bool:
        return self._active is not None

    @property
    def epoch(self) -> int:
        """The controller epoch of our term; 0 on standby."""
        return 0 if self._active is None else self._active.term.context.epoch

    @property
    def elections_won(self) -> int:
        return self.election.won

    def is_queued_for_deletion(self, topic: str) -> bool:
        return self._active is not None and self._active.term.context.is_queued_for_deletion(topic)

    def states(self) -> Iterator[tuple[PartitionState, list[ReplicaState]]]:
        """The state of each partition and of its replicas; none where this is not the controller.
        A caller may pause between two, and sees what has changed meanwhile."""
        active = self._active
        if active is None:
            return
        context = active.term.context
        for partition in list(context.partitions()):
            replicas = partition.assignment.replicas
            states = [context.replicas.state(partition.tp, broker) for broker in replicas]
            yield partition.state, states

    @property
    def moves_of_plans(self) -> int:
        """How many moves of plans are not done; 0 where this is not the active controller."""
        active = self._active
        return 0 if active is None else len(active.reassigner.plans.queue)

    def statistics(self) -> dict[str, object]:
        active = self._active
        return {
            "active": active is not None,
            "epoch": self.epoch,
            "election": self.election.state.name,
            "elections_won": self.elections_won,
            "resignations": self.resignations,
            **self._queue.statistics(),
            "journal": self.journal.statistics(),
            **({} if active is None else active.statistics()),
        }

    # What brokers and clients ask of the controller

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> set[TopicPartition]:
        """Prepare a broker to stop; answers the partitions it still leads."""
        request = events.ControlledShutdown(broker_id, broker_epoch)
        self._queue.put(request)
        return await request.reply

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Collection[TopicPartition] | None,
        requester: str = "",
    ) -> dict[TopicPartition, PartitionOutcome]:
        """Elect preferred or, where no in-sync replica is left, unclean leaders. None is all."""
        kind = ElectionType(election_type)
        request = events.ElectLeaders(kind, partitions, requester)
        self._queue.put(request)
        return await request.reply

    async def alter_reassignments(
        self, moves: Mapping[TopicPartition, Target], requester: str = ""
    ) -> dict[TopicPartition, PartitionOutcome]:
        """Move partitions to other replicas; None cancels a move."""
        request = events.ApiPartitionReassignment(moves, requester)
        self._queue.put(request)
        return await request.reply

    async def move_for_plan(
        self,
        plan: str,
        moves: Mapping[TopicPartition, PlannedMove | None],
        *,
        throttle: int = 0,
        strained: frozenset[int] = frozenset(),
        requester: str = "",
    ) -> dict[TopicPartition, PartitionOutcome]:
        """Move partitions for a plan, in this order, paced, and throttled to so many bytes a second
        unless that is 0; None takes one out of the plan, and what is under way of it ends. Brokers
        that are `strained` take part in fewer moves from now on."""
        request = events.PlanMovesReceived(plan, moves, throttle, strained, requester)
        self._queue.put(request)
        return await request.reply

    async def list_reassignments(
        self, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """The moves in progress, of these partitions or of all."""
        request = events.ListPartitionReassignments(partitions)
        self._queue.put(request)
        return await request.reply

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, proposals: Collection[IsrProposal]
    ) -> dict[IsrProposal, LeaderAndIsr | ErrorCode]:
        """A leader proposes ISRs; answers the state of each partition, or why it was refused."""
        request = events.AlterPartitionReceived(broker_id, broker_epoch, proposals)
        self._queue.put(request)
        return await request.reply

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        """A block of producer ids for one broker."""
        request = events.AllocateProducerIds(broker_id, broker_epoch)
        self._queue.put(request)
        return await request.reply

    def enable_unclean_leader_election(self, topic: str | None = None) -> None:
        """A configuration now accepts loss, of one topic or by default: try offline partitions."""
        if topic is None:
            self.config.unclean_leader_election_enable = True
        if self._active is not None:
            self._active.term.put(
                events.UncleanLeaderElectionEnable()
                if topic is None
                else events.TopicUncleanLeaderElectionEnable(topic)
            )

    # Events

    def put(self, event: events.ElectionEvent) -> None:
        if isinstance(event, Expire):
            self._queue.clear_and_put(event)
        else:
            self._queue.put(event)

    def put_for_term(self, event: TermEvent, epoch: int) -> None:
        """Under the epoch of its term: an event that waits from an earlier one is void, and must
        not keep the same one of this term out."""
        self._queue.put(event, epoch)

    def on_reach(self, broker_id: int) -> None:
        if broker_id != self.broker_id and self._active is not None:
            self._active.term.put(events.BrokerChange())

    async def connect(self, host: str, port: int) -> ChannelPeer:
        return await self._connect(host, port)

    def _preempt(self, event: Event) -> None:
        """An event that is dropped before its turn: clients get a refusal."""
        if isinstance(event, ApiRequest):
            event.refuse(self.broker_id)
        elif isinstance(event, Startup):
            self._report_start(KafkaError(ErrorCode.NOT_CONTROLLER, "the session ended before"))

    async def _process(self, queued: Queued) -> None:
        """One event. Whatever comes of it, the next one follows."""
        event, name = queued.event, name_of(queued.event)
        self.journal.cause = name
        self.journal.requester = event.requester if isinstance(event, ApiRequest) else ""
        try:
            await self._process_or_resign(queued)
        except SessionExpired as error:
            # The term goes with the session; that event is on its way.
            logger.info("controller %d: session expired during %s: %s", self.broker_id, name, error)
        except Exception as error:
            logger.exception("controller %d failed at %s", self.broker_id, name)
            self.journal.record(EntryKind.FAILURE, why=f"{name}: {error!r}")
        finally:
            self.journal.requester = ""
            self.journal.flush()

    async def _process_or_resign(self, queued: Queued) -> None:
        """One event, and what its errors mean for the term."""
        try:
            await self._handle(queued)
        except ControllerMoved as moved:
            logger.info("controller %d was replaced by another broker: %s", self.broker_id, moved)
            await self.election.check_controller_node()
        except RequestsNotSent as error:
            await self.election.resign(str(error))
        except StoreUnavailable as error:
            # The work is half done, and the watch that asked for it spent: a new term reads all
            # that stands, and sets every watch.
            event = name_of(queued.event)
            logger.warning(
                "controller %d resigns: store lost in %s: %s", self.broker_id, event, error
            )
            await self.election.resign(str(error))
            self.election.pause(str(error))

    async def _handle(self, queued: Queued) -> None:
        event, active = queued.event, self._active
        match event:
            case events.Expire():
                self._watch.close()
                self.election.expire()
            case (
                events.Startup()
                | events.Reelect()
                | events.RegisterBrokerAndReelect()
                | events.ControllerChange()
                | events.ControllerDeserted()
            ):
                await self._handle_election(event)
                await self._follow_controller()
            case ApiRequest():
                await self._serve(event)
            case _:
                if active is None or active.term.context.epoch != queued.epoch:
                    return  # of an earlier term
                try:
                    await dispatch.process(active, event)
                finally:
                    if isinstance(event, events.AutoPreferredReplicaLeaderElection):
                        interval_s = self.config.leader_imbalance_check_interval_seconds
                        self._schedule_rebalance(interval_s)

    async def _handle_election(self, event: Event) -> None:
        match event:
            case events.Startup():
                await self._start_election()
            case events.Reelect():
                await self.election.elect()
            case events.RegisterBrokerAndReelect():
                await self.election.register_and_elect()
            case events.ControllerChange():
                await self.election.check_controller_node()
            case events.ControllerDeserted():
                if (gone := self._watch.deserted) is not None:
                    await self.election.depose(gone)

    async def _follow_controller(self) -> None:
        elected, state = self.election.elected, self.election.state
        if state is not STANDBY or elected is None or elected == self.broker_id:
            return
        registered = await self._store.broker(elected)
        if registered is not None:
            self._watch.follow(registered)

    async def _serve(self, request: AnyApiRequest) -> None:
        active = self._active
        if active is None:
            request.refuse(self.broker_id)
            return
        try:
            await dispatch.serve(active, request)
        except ControllerMoved:
            await self.election.check_controller_node()
            request.refuse(self.broker_id)
        except KafkaError as error:
            request.fail(error)
        except Exception as error:
            is_foreseen = isinstance(error, StoreError) and not isinstance(error, StoreUnavailable)
            message = str(error) if is_foreseen else repr(error)
            request.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message))
            if not is_foreseen:
                raise

    # Terms

    async def _start_election(self) -> None:
        try:
            await self.election.elect()
        except Exception as error:
            self._report_start(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)))
            raise
        self._report_start(None)

    def _report_start(self, error: KafkaError | None) -> None:
        if self._started is None or self._started.done():
            return
        if error is None:
            self._started.set_result(None)
        else:
            self._started.set_exception(error)

    async def register(self) -> None:
        if self._register is not None:
            await self._register()

    async def begin_term(self, elected: ControllerTerm) -> None:
        self.journal.controller_epoch = elected.epoch
        term = Term(self.broker_id, elected, self._store, self.config, self.journal, self)
        self._active = active = ActiveController(term)
        known = self._watch.hand_over()
        if known is not None:
            term.channels.adopt(known)
        term.note(f"broker {self.broker_id} elected controller")
        try:
            await failover(active)
        except ControllerMoved:
            await self.election.check_controller_node()
        except Exception as error:
            logger.error(
                "broker %d resigns: failover failed: %r",
                self.broker_id,
                error,
                exc_info=not isinstance(error, StoreError | RequestsNotSent),
            )
            await self.election.resign(repr(error))
        else:
            if self.config.auto_leader_rebalance_enable:
                self._schedule_rebalance(self.config.leader_imbalance_first_check_seconds)

    def end_term(self, reason: str) -> None:
        if self._active is None:
            return
        self.resignations += 1
        self.journal.record(
            EntryKind.CONTROLLER, after=f"broker {self.broker_id} resigned", why=reason
        )
        if self._rebalance_timer is not None:
            self._rebalance_timer.cancel()
            self._rebalance_timer = None
        self._active.close()
        self._active = None
        self.journal.controller_epoch = 0

    def _schedule_rebalance(self, delay_s: float) -> None:
        active = self._active
        if active is not None and self.election.state is ELECTED:
            self._rebalance_timer = asyncio.get_running_loop().call_later(
                delay_s, active.term.put, events.AutoPreferredReplicaLeaderElection()
            )

    async def _open_connection(self, host: str, port: int) -> Connection:
        return await Connection.open(
            host,
            port,
            client_id=str(self.broker_id),
            timeout=self.config.request_timeout_ms / 1000,
            security=self.config.security,
        )
