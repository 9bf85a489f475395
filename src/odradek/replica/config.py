"""What the broker's configuration says about replication."""

from dataclasses import dataclass

from odradek.wire.connection import ConnectionSecurity
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.settings import configured

__all__ = ["ReplicaConfig"]


def _is_rack_aware(selector_class: str | None) -> bool:
    return (selector_class or "").rpartition(".")[2] == "RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """One broker's settings for its replicas."""

    inter_broker_listener_name: str = "PLAINTEXT"
    # How that listener of other brokers is connected to; None: in plain text.
    security: ConnectionSecurity | None = None
    # The same for the listener that the controller takes requests of brokers on.
    controller_listener_name: str = "PLAINTEXT"
    controller_security: ConnectionSecurity | None = None
    controller_socket_timeout_ms: int = configured("controller.socket.timeout.ms")
    protocol: ProtocolVersion = configured("inter.broker.protocol.version", ProtocolVersion.parse)
    num_replica_fetchers: int = configured("num.replica.fetchers")
    replica_fetch_backoff_ms: int = configured("replica.fetch.backoff.ms")
    replica_fetch_max_bytes: int = configured("replica.fetch.max.bytes")
    replica_fetch_min_bytes: int = configured("replica.fetch.min.bytes")
    replica_fetch_response_max_bytes: int = configured("replica.fetch.response.max.bytes")
    replica_fetch_wait_max_ms: int = configured("replica.fetch.wait.max.ms")
    replica_high_watermark_checkpoint_interval_ms: int = configured(
        "replica.high.watermark.checkpoint.interval.ms"
    )
    replica_lag_time_max_ms: int = configured("replica.lag.time.max.ms")
    replica_socket_timeout_ms: int = configured("replica.socket.timeout.ms")
    # `replica.selector.class` names RackAwareReplicaSelector: consumers may be sent to followers.
    rack_aware_replica_selector: bool = configured("replica.selector.class", _is_rack_aware)
