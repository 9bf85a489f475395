"""What the broker's configuration says about groups and transactions."""

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


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """One broker's settings for the transactions it coordinates."""

    transaction_max_timeout_ms: int = configured("transaction.max.timeout.ms")
    transactional_id_expiration_ms: int = configured("transactional.id.expiration.ms")
    timeout_check_interval_ms: int = configured(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    )
    expiration_check_interval_ms: int = configured(
        "transaction.remove.expired.transaction.cleanup.interval.ms"
    )
    request_timeout_ms: int = configured("request.timeout.ms")
