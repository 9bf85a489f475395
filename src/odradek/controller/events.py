"""What can happen to the controller, as values with Kafka's names.

Three kinds. *Election events* concern who is controller. *Term events* are work for the active
controller, put by its own watches, channels and timers; they are void once that term has ended.
*API requests* come from clients through a broker, carry a reply, and are refused by a standby.

Events that only say "look again" are equal if they look at the same thing, and are then queued
once: the handler reads the present state anyway. Responses and requests equal nothing but
themselves. docs/spec, section 4.3 of the controller's behaviour.

PaceMoves and PlanMovesReceived are ours.

Of the kinds of that section there is no UpdateFeatures, because a ZooKeeper-mode broker supports no
feature, and no ShutdownEventThread: the queue is a task, and `close` ends it.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar
from uuid import UUID

from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.elections import ElectionType
from odradek.controller.partition_outcome import PartitionOutcome
from odradek.controller.reassignment_rules import Target
from odradek.store.payloads import LeaderAndIsr
from odradek.store.plan_moves import PlannedMove
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataResponse
from odradek.wire.topics import TopicPartition

T = TypeVar("T")

# Elections of the controller


@dataclass(frozen=True, slots=True)
class Startup:
    """The broker has registered: join the election."""


@dataclass(frozen=True, slots=True)
class Reelect:
    """No broker is controller, or the node is ours without a term of ours."""


@dataclass(frozen=True, slots=True)
class RegisterBrokerAndReelect:
    """There is a new session, or a pause is over."""


@dataclass(frozen=True, slots=True)
class Expire:
    """The session is lost, and the controller node with it."""


@dataclass(frozen=True, slots=True)
class ControllerChange:
    """The controller node was created or written."""


@dataclass(frozen=True, slots=True)
class ControllerDeserted:
    """The controller's broker was reached, and no longer listens."""


ElectionEvent = (
    Startup | Reelect | RegisterBrokerAndReelect | Expire | ControllerChange | ControllerDeserted
)

# Work for the active controller


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """A broker registered, its registration went, or its socket opened or closed."""


@dataclass(frozen=True, slots=True)
class BrokerModifications:
    """A registration was rewritten."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A topic came or went."""


@dataclass(frozen=True, slots=True)
class PartitionModifications:
    """A topic's assignment was written."""

    topic: str


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """Topics are to be deleted."""


@dataclass(frozen=True, slots=True)
class IsrChangeNotification:
    """Leaders changed ISRs."""


@dataclass(frozen=True, slots=True)
class LogDirEventNotification:
    """Log directories of brokers failed."""


@dataclass(frozen=True, slots=True)
class ReplicaLeaderElection:
    """The legacy node asks for preferred leaders."""


@dataclass(frozen=True, slots=True)
class AutoPreferredReplicaLeaderElection:
    """It is time to look whether leadership is balanced."""


@dataclass(frozen=True, slots=True)
class ZkPartitionReassignment:
    """The legacy node asks for reassignments."""


@dataclass(frozen=True, slots=True)
class PartitionReassignmentIsrChange:
    """The states of partitions being reassigned were written; which ones, the term keeps."""


@dataclass(frozen=True, slots=True)
class PaceMoves:
    """It is time to look how the moves of plans go."""


@dataclass(frozen=True, slots=True)
class UncleanLeaderElectionEnable:
    """The default configuration now accepts loss."""


@dataclass(frozen=True, slots=True)
class TopicUncleanLeaderElectionEnable:
    """A topic's configuration now accepts loss."""

    topic: str


@dataclass(frozen=True, slots=True, eq=False)
class LeaderAndIsrResponseReceived:
    broker_id: int
    request: LeaderAndIsrRequest
    response: LeaderAndIsrResponse


@dataclass(frozen=True, slots=True, eq=False)
class TopicDeletionStopReplicaResponseReceived:
    broker_id: int
    request: StopReplicaRequest
    response: StopReplicaResponse


@dataclass(frozen=True, slots=True, eq=False)
class UpdateMetadataResponseReceived:
    broker_id: int
    response: UpdateMetadataResponse


TermEvent = (
    BrokerChange
    | BrokerModifications
    | TopicChange
    | PartitionModifications
    | TopicDeletion
    | IsrChangeNotification
    | LogDirEventNotification
    | ReplicaLeaderElection
    | AutoPreferredReplicaLeaderElection
    | ZkPartitionReassignment
    | PartitionReassignmentIsrChange
    | PaceMoves
    | UncleanLeaderElectionEnable
    | TopicUncleanLeaderElectionEnable
    | LeaderAndIsrResponseReceived
    | TopicDeletionStopReplicaResponseReceived
    | UpdateMetadataResponseReceived
)

# Requests of clients


class ApiRequest(Generic[T]):
    """A request with its reply, and who sent it. Made on the running loop."""

    refusal: ClassVar[ErrorCode] = ErrorCode.NOT_CONTROLLER

    def __init__(self, requester: str = "") -> None:
        self.requester = requester
        self.reply: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def succeed(self, result: T) -> None:
        if not self.reply.done():
            self.reply.set_result(result)

    def fail(self, error: Exception) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)

    def refuse(self, broker_id: int) -> None:
        self.fail(KafkaError(self.refusal, f"broker {broker_id} is not the controller"))


class ControlledShutdown(ApiRequest[set[TopicPartition]]):
    """A broker is about to stop; the reply is what it still leads."""

    refusal = ErrorCode.STALE_CONTROLLER_EPOCH

    def __init__(self, broker_id: int, broker_epoch: int) -> None:
        super().__init__()
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch


class ElectLeaders(ApiRequest[dict[TopicPartition, PartitionOutcome]]):
    """Elect leaders of these partitions, or of all."""

    def __init__(
        self,
        election_type: ElectionType,
        partitions: Collection[TopicPartition] | None,
        requester: str = "",
    ) -> None:
        super().__init__(requester)
        self.election_type = election_type
        self.partitions = partitions


class ApiPartitionReassignment(ApiRequest[dict[TopicPartition, PartitionOutcome]]):
    """Move partitions to other replicas; None cancels a move."""

    def __init__(self, moves: Mapping[TopicPartition, Target], requester: str = "") -> None:
        super().__init__(requester)
        self.moves = moves


class PlanMovesReceived(ApiRequest[dict[TopicPartition, PartitionOutcome]]):
    """Move partitions for a plan, in this order, paced and throttled; None takes one out of the
    plan."""

    def __init__(
        self,
        plan: str,
        moves: Mapping[TopicPartition, PlannedMove | None],
        throttle: int = 0,
        strained: frozenset[int] = frozenset(),
        requester: str = "",
    ) -> None:
        super().__init__(requester)
        self.plan = plan
        self.moves = moves
        self.throttle = throttle
        self.strained = strained


class ListPartitionReassignments(ApiRequest[dict[TopicPartition, ReplicaAssignment]]):
    """The moves in progress, of these partitions or of all."""

    def __init__(self, partitions: Collection[TopicPartition] | None) -> None:
        super().__init__()
        self.partitions = partitions


@dataclass(frozen=True, slots=True, eq=False)
class IsrProposal:
    """What a leader asks of one partition, which it calls by its topic's name or id."""

    topic: str | UUID
    partition: int
    # The sender as leader, the ISR it wants, and the epochs it knows of.
    state: LeaderAndIsr
    # Of members of that ISR whose incarnation the leader knows.
    broker_epochs: Mapping[int, int]


class AlterPartitionReceived(ApiRequest[dict[IsrProposal, "LeaderAndIsr | ErrorCode"]]):
    """A leader proposes ISRs; the reply is the state of each partition, or why it was refused."""

    def __init__(
        self, broker_id: int, broker_epoch: int, proposals: Collection[IsrProposal]
    ) -> None:
        super().__init__()
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.proposals = proposals


class AllocateProducerIds(ApiRequest[range]):
    """A broker needs producer ids; the reply is a block that no other has."""

    def __init__(self, broker_id: int, broker_epoch: int) -> None:
        super().__init__()
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch


AnyApiRequest = (
    ControlledShutdown
    | ElectLeaders
    | ApiPartitionReassignment
    | PlanMovesReceived
    | ListPartitionReassignments
    | AlterPartitionReceived
    | AllocateProducerIds
)
Event = ElectionEvent | TermEvent | AnyApiRequest


def name_of(event: Event) -> str:
    """Kafka's name, as the journal and the statistics show it."""
    return "ReplicaLeaderElection" if isinstance(event, ElectLeaders) else type(event).__name__
