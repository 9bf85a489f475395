"""AlterPartition: a leader proposes an ISR, and the controller writes it. KIP-497.

docs/spec/protocol-ladder.md section 3.2.

Rules
1. `judge` decides by what the controller knows; the store has the last word. The state is written
   under the partition epoch that the leader named, behind the fence of this term, in the leader
   epoch that stands. So a change lands once or not at all, whichever controllers see it.
2. A proposal that is in force already is a success and writes nothing: its answer was lost.
3. Only the leader of the present epoch changes an ISR, and only live replicas join it, in the
   incarnation that the leader named (KIP-903).

A controller that dies before the write leaves nothing; one that dies after it leaves the new state,
which its successor reads. The leader keeps the change pending and sends it again either way.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from odradek.controller.active_controller import ActiveController
from odradek.controller.context import ControllerContext, Partition
from odradek.controller.events import AlterPartitionReceived, IsrProposal
from odradek.controller.journal import abbreviated, format_state
from odradek.controller.term import Term
from odradek.store.cluster import NO_STATE
from odradek.store.nodes import Refused
from odradek.store.payloads import LeaderAndIsr
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_partition import UNKNOWN_EPOCH
from odradek.wire.topics import TopicPartition

_WRITTEN_SINCE = Refused("the state has been written since")
# Refusals of the store; any other is an UNKNOWN_SERVER_ERROR, which the leader tries again.
_CODES: Mapping[Refused, ErrorCode] = {
    _WRITTEN_SINCE: ErrorCode.INVALID_UPDATE_VERSION,
    NO_STATE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}

Outcome = LeaderAndIsr | ErrorCode


class Acceptance(Enum):
    """What becomes of a proposal that is not refused."""

    WRITE = "write"
    IN_FORCE = "in force"


class _Known(NamedTuple):
    """A proposal, and the partition it is about."""

    proposal: IsrProposal
    partition: Partition


def judge(
    context: ControllerContext, partition: Partition, proposal: IsrProposal
) -> Acceptance | ErrorCode:
    """What the controller makes of a proposal, by what it knows. The order is that of the
    specification: a leader reacts differently to each error."""
    current, asked = partition.leader_and_isr, proposal.state
    if current is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if asked.partition_epoch > current.partition_epoch or asked.leader_epoch > current.leader_epoch:
        # The leader knows more than this controller: it should look for another.
        return ErrorCode.NOT_CONTROLLER
    if asked.leader_epoch < current.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if asked.leader != current.leader:
        return ErrorCode.INVALID_REQUEST
    if _is_same(asked, current):
        return Acceptance.IN_FORCE
    if asked.partition_epoch < current.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if not _is_sound(asked, current, partition):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(context, member, proposal) for member in asked.isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return Acceptance.WRITE


def _is_same(one: LeaderAndIsr, other: LeaderAndIsr) -> bool:
    """Whether these say the same of leader and ISR, the order of the ISR included."""
    return (one.leader, one.leader_epoch, one.isr, one.recovering) == (
        other.leader,
        other.leader_epoch,
        other.isr,
        other.recovering,
    )


def _is_sound(asked: LeaderAndIsr, current: LeaderAndIsr, partition: Partition) -> bool:
    """Whether this could be the state of the partition at all."""
    if asked.recovering and (len(asked.isr) > 1 or not current.recovering):
        return False
    members = set(asked.isr)
    return (
        asked.leader in members
        and len(members) == len(asked.isr)
        and members <= set(partition.assignment.replicas)
    )


def _is_eligible(context: ControllerContext, member: int, proposal: IsrProposal) -> bool:
    epoch = proposal.broker_epochs.get(member, UNKNOWN_EPOCH)
    brokers = context.brokers
    return brokers.is_live(member) and epoch in (UNKNOWN_EPOCH, brokers[member].epoch)


async def serve(active: ActiveController, request: AlterPartitionReceived) -> None:
    """Write what is sound, announce the partitions to every broker, and answer."""
    term = active.term
    context = term.context
    sender = context.brokers.get(request.broker_id)
    if sender is None or sender.epoch != request.broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {request.broker_id} is not registered at epoch {request.broker_epoch}",
        )
    outcomes: dict[IsrProposal, Outcome] = {}
    known: dict[TopicPartition, _Known] = {}
    for proposal in request.proposals:
        found = _find(context, proposal)
        if isinstance(found, ErrorCode):
            outcomes[proposal] = found
        elif found.tp in known:
            outcomes[proposal] = ErrorCode.INVALID_REQUEST  # named twice
        else:
            known[found.tp] = _Known(proposal, found)
    names = abbreviated((f"{tp}:{list(of.proposal.state.isr)}" for tp, of in known.items()), " ")
    term.note(f"AlterPartition broker={request.broker_id} {names}")
    outcomes.update(await _apply(term, known))
    if known:
        await term.announce(context.brokers, (of.partition for of in known.values()))
    request.succeed(outcomes)
    await active.reassigner.isr_changed(
        tp for tp, of in known.items() if isinstance(outcomes[of.proposal], LeaderAndIsr)
    )


def _find(context: ControllerContext, proposal: IsrProposal) -> Partition | ErrorCode:
    topic: str | None
    if isinstance(proposal.topic, UUID):
        topic = context.topic_ids.names.get(proposal.topic)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = proposal.topic
    partition = context.partition(TopicPartition(topic, proposal.partition))
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition is None else partition


async def _apply(term: Term, known: Mapping[TopicPartition, _Known]) -> dict[IsrProposal, Outcome]:
    """The state of each partition as it now stands, or why it was refused."""
    outcomes: dict[IsrProposal, Outcome] = {}
    writing: dict[TopicPartition, _Known] = {}
    for tp, of in known.items():
        judged = judge(term.context, of.partition, of.proposal)
        if judged is Acceptance.WRITE:
            writing[tp] = of
        elif judged is Acceptance.IN_FORCE:
            assert of.partition.leader_and_isr is not None
            outcomes[of.proposal] = of.partition.leader_and_isr
        else:
            assert isinstance(judged, ErrorCode)
            outcomes[of.proposal] = judged
    for tp, written in (await _write(term, writing)).items():
        outcomes[known[tp].proposal] = written
    _record_refusals(term, known.values(), outcomes)
    return outcomes


async def _write(
    term: Term, writing: Mapping[TopicPartition, _Known]
) -> dict[TopicPartition, Outcome]:
    if not writing:
        return {}
    stored: dict[TopicPartition, LeaderAndIsr] = {}

    def decide(tp: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | Refused:
        stored[tp] = state
        asked = writing[tp].proposal.state
        if _is_same(asked, state) and state.partition_epoch == asked.partition_epoch + 1:
            return state  # our own write, sent twice over a lost connection
        if state.partition_epoch != asked.partition_epoch:
            return _WRITTEN_SINCE
        return replace(asked, controller_epoch=term.context.epoch)

    written = await term.store.update_partition_states(writing, decide, term.fence)
    outcomes: dict[TopicPartition, Outcome] = {}
    for tp, outcome in written.items():
        if isinstance(outcome, LeaderAndIsr):
            stored[tp] = outcome
            outcomes[tp] = outcome
        else:
            outcomes[tp] = _CODES.get(outcome, ErrorCode.UNKNOWN_SERVER_ERROR)
        if tp in stored:
            term.learn(writing[tp].partition, stored[tp])
    return outcomes


def _record_refusals(
    term: Term, known: Iterable[_Known], outcomes: Mapping[IsrProposal, Outcome]
) -> None:
    for proposal, partition in known:
        outcome = outcomes[proposal]
        current = partition.leader_and_isr
        if isinstance(outcome, ErrorCode):
            term.record_failure(
                "" if current is None else format_state(current),
                format_state(proposal.state),
                partition.tp,
                outcome.name,
            )
