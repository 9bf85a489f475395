"""What can be set about the controller. The broker fills this from its configuration.

The value is shared and not frozen: what Kafka lets change while a broker runs is changed here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from odradek.wire.connection import ConnectionSecurity
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.settings import configured


@dataclass(slots=True)
class ControllerConfig:
    """Kafka's names in snake case; those after `request_timeout_ms` are ours."""

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
    # The default of topics: a plan's moves slow down where a partition is at its minimum.
    min_insync_replicas: int = configured("min.insync.replicas")
    # How many partitions may be on the move at a time; the others wait their turn.
    moves_cluster: int = configured("odradek.moves.cluster")
    # These limit the moves of plans alone.
    moves_per_broker: int = configured("odradek.moves.per.broker")
    moves_per_broker_max: int = configured("odradek.moves.per.broker.max")
    moves_bytes_per_broker: int = configured("odradek.moves.bytes.per.broker")
    moves_leaderships: int = configured("odradek.moves.leaderships")
    # How many waiting partitions are kept in one node of the store.
    reassignment_partitions_per_node_max: int = 1_000

    def pace(self, setting: Callable[[str], int]) -> None:
        """Take over the settings of moves that have changed while this broker runs."""
        self.min_insync_replicas = setting("min.insync.replicas")
        self.moves_cluster = setting("odradek.moves.cluster")
        self.moves_per_broker = setting("odradek.moves.per.broker")
        self.moves_per_broker_max = setting("odradek.moves.per.broker.max")
        self.moves_bytes_per_broker = setting("odradek.moves.bytes.per.broker")
        self.moves_leaderships = setting("odradek.moves.leaderships")
