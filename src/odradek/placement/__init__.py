"""Where replicas go. Pure functions."""

from odradek.placement.assignment import (
    Broker,
    RackAwareMode,
    assign_replicas,
    brokers_to_use,
    rack_alternated,
)
from odradek.placement.files import (
    Reassignment,
    TopicPartitionReplica,
    format_reassignment,
    format_topics_to_move,
    parse_broker_list,
    parse_reassignment,
    parse_topics_to_move,
)
from odradek.placement.minimal import MinimalPlan, Reason, ReplicaMove, plan_minimal
from odradek.placement.plans import Move, Ongoing, Throttles, generate, move_map, throttles
from odradek.placement.validation import new_partitions, validate_manual_assignment

__all__ = [
    "Broker",
    "MinimalPlan",
    "Move",
    "Ongoing",
    "RackAwareMode",
    "Reason",
    "Reassignment",
    "ReplicaMove",
    "Throttles",
    "TopicPartitionReplica",
    "assign_replicas",
    "brokers_to_use",
    "format_reassignment",
    "format_topics_to_move",
    "generate",
    "move_map",
    "new_partitions",
    "parse_broker_list",
    "parse_reassignment",
    "parse_topics_to_move",
    "plan_minimal",
    "rack_alternated",
    "throttles",
    "validate_manual_assignment",
]
