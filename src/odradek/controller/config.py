"""What can be set about the controller. The broker fills this from its configuration.

The value is shared and not frozen: what Kafka lets change while a broker runs is changed here.
"""

from dataclasses import dataclass

from odradek.wire.connection import ConnectionSecurity
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.settings import configured


@dataclass(slots=True)
class ControllerConfig:
    """Kafka's names in snake case; the last three are ours, where Kafka has no limit."""

    inter_broker_listener_name: str = "PLAINTEXT"
    # How that listener of other brokers is connected to; None: in plain text.
    security: ConnectionSecurity | None = None
    protocol: ProtocolVersion = configured("inter.broker.protocol.version", ProtocolVersion.parse)
    unclean_leader_election_enable: bool = configured("unclean.leader.election.enable")
    delete_topic_enable: bool = configured("delete.topic.enable")
    auto_leader_rebalance_enable: bool = configured("auto.leader.rebalance.enable")
    leader_imbalance_per_broker_percentage: int = configured(
        "leader.imbalance.per.broker.percentage"
    )
    leader_imbalance_check_interval_seconds: int = configured(
        "leader.imbalance.check.interval.seconds"
    )
    request_timeout_ms: int = configured("controller.socket.timeout.ms")
    # The first check after an election comes sooner: leadership is often scattered then.
    leader_imbalance_first_check_seconds: int = 5
    # How many partitions may be on the move at a time; the others wait their turn.
    reassignment_partitions_in_flight_max: int = 1_000
    # How many waiting partitions are kept in one node of the store.
    reassignment_partitions_per_node_max: int = 1_000
