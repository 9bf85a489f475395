"""What a topic's configuration says about its logs.

Names and defaults are those of `wire.settings`; the broker fills these values and the log only
reads them. A change of configuration is a new value.
"""

from dataclasses import dataclass

from odradek.wire.settings import topic_configured

FOREVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One topic's settings. -1 means no limit for `retention_ms` and `retention_bytes`."""

    cleanup_policy: frozenset[str] = topic_configured("cleanup.policy")
    compression_type: str = topic_configured("compression.type")
    compression_gzip_level: int = topic_configured("compression.gzip.level")
    compression_lz4_level: int = topic_configured("compression.lz4.level")
    compression_zstd_level: int = topic_configured("compression.zstd.level")
    delete_retention_ms: int = topic_configured("delete.retention.ms")
    file_delete_delay_ms: int = topic_configured("file.delete.delay.ms")
    flush_messages: int = topic_configured("flush.messages")
    flush_ms: int = topic_configured("flush.ms")
    index_interval_bytes: int = topic_configured("index.interval.bytes")
    max_compaction_lag_ms: int = topic_configured("max.compaction.lag.ms")
    max_message_bytes: int = topic_configured("max.message.bytes")
    message_timestamp_after_max_ms: int = topic_configured("message.timestamp.after.max.ms")
    message_timestamp_before_max_ms: int = topic_configured("message.timestamp.before.max.ms")
    message_timestamp_difference_max_ms: int = topic_configured(
        "message.timestamp.difference.max.ms"
    )
    message_timestamp_type: str = topic_configured("message.timestamp.type")
    min_cleanable_dirty_ratio: float = topic_configured("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = topic_configured("min.compaction.lag.ms")
    min_insync_replicas: int = topic_configured("min.insync.replicas")
    preallocate: bool = topic_configured("preallocate")
    retention_bytes: int = topic_configured("retention.bytes")
    retention_ms: int = topic_configured("retention.ms")
    segment_bytes: int = topic_configured("segment.bytes")
    segment_index_bytes: int = topic_configured("segment.index.bytes")
    segment_jitter_ms: int = topic_configured("segment.jitter.ms")
    segment_ms: int = topic_configured("segment.ms")
    unclean_leader_election_enable: bool = topic_configured("unclean.leader.election.enable")
    leader_replication_throttled_replicas: frozenset[str] = topic_configured(
        "leader.replication.throttled.replicas"
    )
    follower_replication_throttled_replicas: frozenset[str] = topic_configured(
        "follower.replication.throttled.replicas"
    )

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def timestamp_before_max_ms(self) -> int:
        """How far in the past a record may lie; the older setting holds where this has no limit."""
        if self.message_timestamp_before_max_ms != FOREVER:
            return self.message_timestamp_before_max_ms
        return self.message_timestamp_difference_max_ms

    @property
    def timestamp_after_max_ms(self) -> int:
        if self.message_timestamp_after_max_ms != FOREVER:
            return self.message_timestamp_after_max_ms
        return self.message_timestamp_difference_max_ms

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"
