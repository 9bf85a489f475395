"""From an event to the function that handles it."""

from odradek.controller import (
    alter_partition,
    brokers,
    control_responses,
    elect_leaders,
    events,
    topics,
)
from odradek.controller.active_controller import ActiveController
from odradek.controller.events import AnyApiRequest, TermEvent
from odradek.controller.journal import abbreviated


async def process(active: ActiveController, event: TermEvent) -> None:
    """Handle an event of this term."""
    match event:
        case events.BrokerChange():
            await brokers.brokers_changed(active)
        case events.BrokerModifications(broker_id):
            await brokers.broker_modified(active.term, broker_id)
        case events.TopicChange():
            await topics.topics_changed(active)
        case events.PartitionModifications(topic):
            await topics.topic_modified(active, topic)
        case events.TopicDeletion():
            await topics.deletion_requested(active)
        case events.IsrChangeNotification():
            await topics.isr_changed(active)
        case events.LogDirEventNotification():
            await brokers.directories_failed(active)
        case events.ReplicaLeaderElection():
            await elect_leaders.legacy_preferred_election(active)
        case events.AutoPreferredReplicaLeaderElection():
            await elect_leaders.rebalance(active)
        case events.ZkPartitionReassignment():
            await topics.reassignment_requested(active)
        case events.PartitionReassignmentIsrChange():
            await topics.reassigning_changed(active)
        case events.PaceMoves():
            await active.reassigner.pace_moves()
        case events.UncleanLeaderElectionEnable():
            active.term.note("unclean leader election enabled for all topics")
            await brokers.retry_offline(active)
        case events.TopicUncleanLeaderElectionEnable(topic):
            active.term.note(f"unclean leader election enabled for {topic}")
            await brokers.retry_offline(active, topic)
        case events.LeaderAndIsrResponseReceived():
            await control_responses.leader_and_isr_answered(active, event)
        case events.TopicDeletionStopReplicaResponseReceived():
            await control_responses.stop_replica_answered(active, event)
        case events.UpdateMetadataResponseReceived():
            control_responses.update_metadata_answered(active.term, event)


async def serve(active: ActiveController, request: AnyApiRequest) -> None:
    """Carry out a client's request and reply to it. An error is the caller's to reply with."""
    match request:
        case events.ControlledShutdown():
            request.succeed(
                await brokers.controlled_shutdown(active, request.broker_id, request.broker_epoch)
            )
        case events.ElectLeaders():
            await elect_leaders.serve(active, request)
        case events.ApiPartitionReassignment(moves=moves):
            targets = (f"{tp}:{'cancel' if to is None else list(to)}" for tp, to in moves.items())
            active.term.note(f"ApiPartitionReassignment {abbreviated(targets, ' ')}")
            request.succeed(await active.reassigner.request(moves))
        case events.PlanMovesReceived(plan=plan, moves=planned, throttle=rate):
            active.term.note(f"PlanMoves plan={plan} {abbreviated(map(str, planned), ' ')}")
            active.reassigner.plans.report_strain(request.strained)
            request.succeed(await active.reassigner.request_for_plan(plan, planned, rate))
        case events.ListPartitionReassignments():
            request.succeed(active.reassigner.listed(request.partitions))
        case events.AlterPartitionReceived():
            await alter_partition.serve(active, request)
        case events.AllocateProducerIds():
            block = brokers.allocate_producer_ids(
                active.term, request.broker_id, request.broker_epoch
            )
            request.succeed(await block)
