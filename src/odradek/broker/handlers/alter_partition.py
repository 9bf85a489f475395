"""AlterPartition (56), v0–v3. A leader asks the controller to change the ISR of its partitions.

docs/spec/protocol-ladder.md sections 3.1 and 3.2. Topics go by name up to v1, by id from v2; the
incarnations of the ISR's members are named from v3.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.controller.events import IsrProposal
from odradek.store.payloads import LeaderAndIsr
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_partition import (
    BROKER_EPOCHS_SINCE,
    TOPIC_IDS_SINCE,
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)

CONTROLLER_ONLY = True
# A leader names every partition that a broker has left in one request.
ELEMENTS_MAX = 200_000

RECOVERED, RECOVERING = 0, 1


async def handle(
    broker: Broker, request: AlterPartitionRequest, context: RequestContext
) -> AlterPartitionResponse:
    version = context.version
    proposals = [
        [
            IsrProposal(
                topic.topic_id if version >= TOPIC_IDS_SINCE else topic.topic_name,
                partition.partition_index,
                _state(request.broker_id, partition, version),
                {each.broker_id: each.broker_epoch for each in partition.new_isr_with_epochs},
            )
            for partition in topic.partitions
        ]
        for topic in request.topics
    ]
    outcomes = await broker.controller.alter_partitions(
        request.broker_id,
        request.broker_epoch,
        [proposal for of_topic in proposals for proposal in of_topic],
    )
    return AlterPartitionResponse(
        topics=[
            AlterPartitionResponseTopicData(
                topic_name=topic.topic_name,
                topic_id=topic.topic_id,
                partitions=[
                    _answer(proposal, outcomes[proposal], version) for proposal in of_topic
                ],
            )
            for topic, of_topic in zip(request.topics, proposals, strict=True)
        ]
    )


def _state(
    leader: int, partition: AlterPartitionRequestPartitionData, version: int
) -> LeaderAndIsr:
    if partition.leader_recovery_state not in (RECOVERED, RECOVERING):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"there is no leader recovery state {partition.leader_recovery_state}",
        )
    if version >= BROKER_EPOCHS_SINCE:
        isr = tuple(each.broker_id for each in partition.new_isr_with_epochs)
    else:
        isr = tuple(partition.new_isr)
    return LeaderAndIsr(
        leader,
        partition.leader_epoch,
        isr,
        controller_epoch=0,
        partition_epoch=partition.partition_epoch,
        recovering=partition.leader_recovery_state == RECOVERING,
    )


def _answer(
    proposal: IsrProposal, outcome: LeaderAndIsr | ErrorCode, version: int
) -> AlterPartitionResponsePartitionData:
    if isinstance(outcome, ErrorCode):
        if outcome is ErrorCode.INELIGIBLE_REPLICA and version < TOPIC_IDS_SINCE:
            outcome = ErrorCode.OPERATION_NOT_ATTEMPTED  # what the older versions know
        return AlterPartitionResponsePartitionData(
            partition_index=proposal.partition, error_code=outcome
        )
    return AlterPartitionResponsePartitionData(
        partition_index=proposal.partition,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=list(outcome.isr),
        leader_recovery_state=RECOVERING if outcome.recovering else RECOVERED,
        partition_epoch=outcome.partition_epoch,
    )
