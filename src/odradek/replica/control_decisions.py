"""What a LeaderAndIsr request means for a broker, decided over values.

`decide` takes the states that the controller sends and what this broker has of each partition, and
returns what is to be done; control_requests.py carries it out. See
docs/spec/controller-and-replication.md sections 4.9 and 5.1.

Stale logs. The controller never stops a partition that was moved away while this broker was paused
or disconnected, for it has forgotten that a replica was here; so its log stays. Once the topic is
deleted and created again, that is a log of another partition: the same name, the same epochs, other
records. `STALE_LOGS` says when a log is set aside, so that the replica starts empty:
- A replica that is new, and not in the ISR, lacks nothing: all that is committed is elsewhere. If
  the log was good, copying it again costs only time.
- A replica that is new at leader epoch 0 belongs to a new partition, whose ISR is every replica
  that was alive. The controller says so only to the incarnation that was there when the partition
  was created, before it has a record: a later one, or one with a new controller, first of all
  learns its state without isNew.
- A log with records of a later leader epoch than the partition's is of another partition.
Where both topic ids are known they decide instead. A log with the partition's own id is never set
aside. One with another id is, under the conditions that make it safe: no role in this life of the
broker, and not needed, for the replica is outside of the ISR of a partition that has a leader, or
new at leader epoch 0. Otherwise the state is refused with INCONSISTENT_TOPIC_ID, as Kafka does: an
id that was lost and made again looks the same on all replicas at once, and must cost no log.
docs/spec/protocol-ladder.md sections 2.2 and 2.5.

It is kept while the partition has no leader, for it may be the best that is left, and where the
request does not name the broker's incarnation. It is renamed (`-stray`), not deleted: a controller
whose store was lost, and whose topics were created again over their logs, sends the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from uuid import UUID

from odradek.store.payloads import NO_EPOCH, NO_LEADER
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.leader_and_isr import LeaderAndIsrPartitionState
from odradek.wire.topic_ids import NO_TOPIC_ID
from odradek.wire.topics import TopicPartition

__all__ = [
    "STALE_LOGS",
    "AwaitLeader",
    "Decision",
    "Follow",
    "ForgetId",
    "Lead",
    "LearnId",
    "LocalFacts",
    "LogHere",
    "Refuse",
    "SetAside",
    "decide",
    "is_stale_log",
    "must_not_lead",
]


class LogHere(Enum):
    """Whether a log of the partition's name is on this broker's disks, and in use."""

    NONE = "none"
    LOADED = "loaded"  # found on disk, and no LeaderAndIsr has named its partition yet
    RELEASED = "released"  # of a partition that was moved away, and not named since
    IN_USE = "in use"


class Epochs(Enum):
    """The partition's leader epoch, by itself and beside the last one in the log."""

    ANY = "any"
    ZERO = "zero"
    BELOW_LOG = "below the log's last"


@dataclass(frozen=True, slots=True)
class LocalFacts:
    """What this broker has of one partition."""

    log: LogHere = LogHere.NONE
    last_log_epoch: int | None = None
    leader_epoch: int = NO_EPOCH
    is_offline: bool = False
    # Of the log; zero if it has none.
    topic_id: UUID = NO_TOPIC_ID
    is_follower: bool = False


class Ids(Enum):
    """The topic id of a request, beside that of the log here."""

    UNKNOWN = "one or both are unknown"
    EQUAL = "equal"
    DIFFER = "different"


def compare_ids(topic_id: UUID, facts: LocalFacts) -> Ids:
    if NO_TOPIC_ID in (topic_id, facts.topic_id):
        return Ids.UNKNOWN
    return Ids.EQUAL if topic_id == facts.topic_id else Ids.DIFFER


@dataclass(frozen=True, slots=True)
class StaleLogRule:
    """A row of the table."""

    log: frozenset[LogHere]
    is_new: bool
    in_isr: bool
    leader_epoch: Epochs


_UNUSED = frozenset({LogHere.LOADED, LogHere.RELEASED})
_LOADED = frozenset({LogHere.LOADED})

# A log that matches a row is set aside; any other is kept.
STALE_LOGS = (
    #            log here  isNew  in ISR  leader epoch
    StaleLogRule(_UNUSED, True, True, Epochs.ZERO),
    StaleLogRule(_UNUSED, True, False, Epochs.ANY),
    StaleLogRule(_LOADED, False, False, Epochs.BELOW_LOG),
)


def is_stale_log(
    broker_id: int,
    state: LeaderAndIsrPartitionState,
    facts: LocalFacts,
    topic_id: UUID = NO_TOPIC_ID,
) -> bool:
    """Whether the log here is not of the partition that the controller means, and not needed."""
    if facts.is_offline or broker_id not in state.replicas or state.leader == NO_LEADER:
        return False
    ids = compare_ids(topic_id, facts)
    if ids is Ids.EQUAL:
        return False
    if ids is Ids.DIFFER:
        is_born_here = state.is_new and state.leader_epoch == 0
        return facts.log in _UNUSED and (broker_id not in state.isr or is_born_here)
    last, epoch = facts.last_log_epoch, state.leader_epoch
    matching = {
        Epochs.ANY: True,
        Epochs.ZERO: epoch == 0,
        Epochs.BELOW_LOG: last is not None and epoch < last,
    }
    return any(
        facts.log in rule.log
        and state.is_new == rule.is_new
        and (broker_id in state.isr) == rule.in_isr
        and matching[rule.leader_epoch]
        for rule in STALE_LOGS
    )


@dataclass(frozen=True, slots=True)
class Refuse:
    """Change nothing, and answer with this error."""

    tp: TopicPartition
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class SetAside:
    """Take the stale log out of use; another decision about the partition follows."""

    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class Lead:
    tp: TopicPartition
    state: LeaderAndIsrPartitionState


@dataclass(frozen=True, slots=True)
class Follow:
    tp: TopicPartition
    state: LeaderAndIsrPartitionState


@dataclass(frozen=True, slots=True)
class AwaitLeader:
    """Only open the log: there is no leader, or it is not among the live brokers yet."""

    tp: TopicPartition
    state: LeaderAndIsrPartitionState


@dataclass(frozen=True, slots=True)
class LearnId:
    """Nothing is new but the topic's id: the controller was upgraded."""

    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class ForgetId:
    """The controller speaks of no ids any more: fetch by name, and keep the log's id."""

    tp: TopicPartition


Decision = Refuse | SetAside | Lead | Follow | AwaitLeader | LearnId | ForgetId


def decide(
    broker_id: int,
    states: Mapping[TopicPartition, LeaderAndIsrPartitionState],
    facts_of: Callable[[TopicPartition], LocalFacts],
    *,
    is_alive: Callable[[int], bool],
    names_incarnation: bool,
    topic_ids: Mapping[str, UUID] = MappingProxyType({}),
) -> list[Decision]:
    """What to do, partition by partition. The request itself is known not to be stale.

    `names_incarnation` is False if the request has no broker epoch; `topic_ids` are those it has.
    """
    decisions: list[Decision] = []
    for tp, state in states.items():
        facts = facts_of(tp)
        leader_epoch = facts.leader_epoch
        topic_id = topic_ids.get(tp.topic, NO_TOPIC_ID)
        is_aside = names_incarnation and is_stale_log(broker_id, state, facts, topic_id)
        if is_aside:
            decisions.append(SetAside(tp))
            leader_epoch = NO_EPOCH
        if facts.is_offline:
            decisions.append(Refuse(tp, ErrorCode.KAFKA_STORAGE_ERROR))
        elif not is_aside and compare_ids(topic_id, facts) is Ids.DIFFER:
            decisions.append(Refuse(tp, ErrorCode.INCONSISTENT_TOPIC_ID))
        elif state.leader_epoch <= leader_epoch:
            is_equal = state.leader_epoch == leader_epoch
            decisions.append(_at_known_epoch(tp, facts, topic_id, is_equal=is_equal))
        elif broker_id not in state.replicas:
            decisions.append(Refuse(tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif state.leader == broker_id:
            decisions.append(Lead(tp, state))
        elif is_alive(state.leader):
            decisions.append(Follow(tp, state))
        else:
            decisions.append(AwaitLeader(tp, state))
    return decisions


def _at_known_epoch(
    tp: TopicPartition, facts: LocalFacts, topic_id: UUID, *, is_equal: bool
) -> Decision:
    """At the epoch that is known already only the id can be new."""
    if is_equal and facts.log is LogHere.IN_USE:
        if facts.topic_id == NO_TOPIC_ID != topic_id:
            return LearnId(tp)
        if facts.topic_id != NO_TOPIC_ID == topic_id and facts.is_follower:
            return ForgetId(tp)
    return Refuse(tp, ErrorCode.STALE_CONTROLLER_EPOCH)


def must_not_lead(*, lost_tail: bool, replica_count: int, unclean_allowed: bool) -> bool:
    """Whether a replica that lost committed records refuses to lead (KIP-966). Without any other
    replica there is none that could have them."""
    return lost_tail and replica_count > 1 and not unclean_allowed
