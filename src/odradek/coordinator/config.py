"""What the broker's configuration says about groups: Kafka's names, Kafka's defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One broker's settings for the groups it coordinates."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
