"""What the broker's configuration says about replication: Kafka's names, Kafka's defaults."""

from dataclasses import dataclass

__all__ = ["ReplicaConfig"]


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """One broker's settings for its replicas. The broker's table of settings makes this value."""

    inter_broker_listener_name: str = "PLAINTEXT"
    num_replica_fetchers: int = 1
    replica_fetch_backoff_ms: int = 1_000
    replica_fetch_max_bytes: int = 1024 * 1024
    replica_fetch_min_bytes: int = 1
    replica_fetch_response_max_bytes: int = 10 * 1024 * 1024
    replica_fetch_wait_max_ms: int = 500
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    replica_lag_time_max_ms: int = 30_000
    replica_socket_timeout_ms: int = 30_000
    # `replica.selector.class` names RackAwareReplicaSelector: consumers may be sent to followers.
    rack_aware_replica_selector: bool = False
