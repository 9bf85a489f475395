"""What can be set about the controller. The broker fills this from its configuration.

The value is shared and not frozen: what Kafka lets change while a broker runs is changed here.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class ControllerConfig:
    """Kafka's names in snake case; the last three are ours, where Kafka has no limit."""

    inter_broker_listener_name: str = "PLAINTEXT"
    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    leader_imbalance_check_interval_seconds: int = 300
    request_timeout_ms: int = 30_000
    # The first check after an election comes sooner: leadership is often scattered then.
    leader_imbalance_first_check_seconds: int = 5
    # How many partitions may be on the move at a time; the others wait their turn.
    reassignment_partitions_in_flight_max: int = 1_000
    # How many waiting partitions are kept in one node of the store.
    reassignment_partitions_per_node_max: int = 1_000
