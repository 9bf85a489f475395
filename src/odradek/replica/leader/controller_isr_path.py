"""ISR changes from inter-broker protocol 2.7-IV2 on: the leader asks the controller (KIP-497).

docs/spec/protocol-ladder.md sections 3.1 and 3.3: AlterPartition v0 to v3, negotiated. Topics go by
name up to v1 and by id from v2, where the ids of all of them are known; the incarnation of a member
that joins is named in v3.

| answer | what the leader does |
|---|---|
| success | takes it, if it is the answer to what was asked |
| INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED | goes back to the committed ISR |
| an error that only the controller's next LeaderAndIsr can settle | stays pending, asks no more |
| NOT_CONTROLLER, any other error, no answer | asks the same again after a pause |
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from odradek.replica.controller_channel import ControllerChannel, ControllerUnavailable
from odradek.replica.leader.isr_change import IsrRefusal, ProposedIsr
from odradek.store.payloads import LeaderAndIsr
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, error_code
from odradek.wire.messages.alter_partition import (
    BROKER_EPOCHS_SINCE,
    TOPIC_IDS_SINCE,
    UNKNOWN_EPOCH,
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.topic_ids import NO_TOPIC_ID

__all__ = ["ControllerIsrPath"]

logger = logging.getLogger(__name__)


REFUSALS: Mapping[ErrorCode, IsrRefusal] = {
    ErrorCode.OPERATION_NOT_ATTEMPTED: IsrRefusal.NOT_APPLIED,
    ErrorCode.INELIGIBLE_REPLICA: IsrRefusal.NOT_APPLIED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: IsrRefusal.REJECTED,
    ErrorCode.UNKNOWN_TOPIC_ID: IsrRefusal.REJECTED,
    ErrorCode.FENCED_LEADER_EPOCH: IsrRefusal.REJECTED,
    ErrorCode.INVALID_UPDATE_VERSION: IsrRefusal.REJECTED,
    ErrorCode.INVALID_REQUEST: IsrRefusal.REJECTED,
    ErrorCode.NEW_LEADER_ELECTED: IsrRefusal.REJECTED,
}

# A topic's name up to v1, its id from v2.
TopicKey = str | UUID
Answers = Mapping[tuple[TopicKey, int], AlterPartitionResponsePartitionData]


class ControllerIsrPath:
    """Proposes ISRs to the controller, many in one request, one request at a time."""

    writes_unchanged_isr = False
    retry_s = 0.05

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        protocol: ProtocolVersion,
        channel: ControllerChannel,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._protocol = protocol
        self._channel = channel

    async def write(self, proposals: Sequence[ProposedIsr]) -> list[LeaderAndIsr | IsrRefusal]:
        sent: dict[ProposedIsr, tuple[TopicKey, int]] = {}

        def build(version: int) -> AlterPartitionRequest:
            # Only now: while the connection was opened, some leader epochs may have ended.
            for proposal in proposals:
                change = proposal.change
                if not change.is_withdrawn:
                    change.is_sent = True
                    by_id = version >= TOPIC_IDS_SINCE
                    topic = change.topic_id if by_id else change.tp.topic
                    sent[proposal] = topic, change.tp.partition
            return self._request(sent, version)

        ids_known = all(proposal.change.topic_id != NO_TOPIC_ID for proposal in proposals)
        version_max = self._protocol.alter_partition_version_max(ids_known=ids_known)
        response = await self._channel.request(ApiKey.ALTER_PARTITION, version_max, build)
        answers = self._answers(response)
        return [
            self._outcome(proposal, answers.get(sent[proposal]))
            if proposal in sent
            else IsrRefusal.REJECTED
            for proposal in proposals
        ]

    def _request(
        self, sent: Mapping[ProposedIsr, tuple[TopicKey, int]], version: int
    ) -> AlterPartitionRequest:
        topics: dict[TopicKey, list[AlterPartitionRequestPartitionData]] = {}
        for proposal, (topic, _) in sent.items():
            topics.setdefault(topic, []).append(_partition(proposal, version))
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=[
                AlterPartitionRequestTopicData(topic_id=topic, partitions=partitions)
                if isinstance(topic, UUID)
                else AlterPartitionRequestTopicData(topic_name=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )

    def _answers(self, response: AlterPartitionResponse) -> Answers:
        if response.error_code != ErrorCode.NONE:
            self._channel.close()
            raise ControllerUnavailable(error_code(response.error_code).name)
        return {
            (topic.topic_name or topic.topic_id, answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }

    def _outcome(
        self, proposal: ProposedIsr, answer: AlterPartitionResponsePartitionData | None
    ) -> LeaderAndIsr | IsrRefusal:
        if answer is None:
            return IsrRefusal.UNDECIDED
        tp, state = proposal.change.tp, proposal.state
        error = error_code(answer.error_code)
        if error == ErrorCode.NONE:
            if _answers_to(state, answer):
                return replace(state, isr=tuple(answer.isr), partition_epoch=answer.partition_epoch)
            logger.error("%s: ISR %s was answered with %s", tp, list(state.isr), answer)
            return IsrRefusal.REJECTED
        if error == ErrorCode.NOT_CONTROLLER:
            # It knows less than this leader: there must be another. Only this partition waits.
            self._channel.close()
        refusal = REFUSALS.get(error, IsrRefusal.UNDECIDED)
        logger.info(
            "%s: ISR %s in leader epoch %d refused by the controller, %s: %s",
            tp,
            list(state.isr),
            state.leader_epoch,
            error.name,
            refusal.value,
        )
        return refusal


def _partition(proposal: ProposedIsr, version: int) -> AlterPartitionRequestPartitionData:
    state = proposal.state
    with_epochs = version >= BROKER_EPOCHS_SINCE
    epochs = proposal.broker_epochs
    return AlterPartitionRequestPartitionData(
        partition_index=proposal.change.tp.partition,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        new_isr=[] if with_epochs else list(state.isr),
        new_isr_with_epochs=[
            BrokerState(broker_id=member, broker_epoch=epochs.get(member, UNKNOWN_EPOCH))
            for member in (state.isr if with_epochs else ())
        ],
    )


def _answers_to(state: LeaderAndIsr, answer: AlterPartitionResponsePartitionData) -> bool:
    """Whether this success is about what was asked: nothing else is taken for the ISR."""
    return (
        answer.leader_id == state.leader
        and answer.leader_epoch == state.leader_epoch
        and answer.partition_epoch >= state.partition_epoch
        and tuple(answer.isr) == state.isr
    )
