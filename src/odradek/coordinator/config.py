"""What the broker's configuration says about groups."""

from dataclasses import dataclass

from odradek.wire.settings import configured


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One broker's settings for the groups it coordinates."""

    group_min_session_timeout_ms: int = configured("group.min.session.timeout.ms")
    group_max_session_timeout_ms: int = configured("group.max.session.timeout.ms")
    group_initial_rebalance_delay_ms: int = configured("group.initial.rebalance.delay.ms")
    group_max_size: int = configured("group.max.size")
    offset_metadata_max_bytes: int = configured("offset.metadata.max.bytes")
    offsets_retention_ms: int = configured(
        "offsets.retention.minutes", lambda minutes: minutes * 60_000
    )
    offsets_retention_check_interval_ms: int = configured("offsets.retention.check.interval.ms")
