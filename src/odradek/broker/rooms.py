"""The table's values, as each room wants them."""

from odradek.broker.config import BrokerConfig
from odradek.broker.topics import NewTopic
from odradek.controller.config import ControllerConfig
from odradek.coordinator.config import GroupConfig
from odradek.coordinator.storage import OFFSETS_TOPIC
from odradek.log.cleaner import CleanerConfig
from odradek.log.upkeep import UpkeepConfig
from odradek.replica.config import ReplicaConfig

__all__ = [
    "cleaner_config",
    "controller_config",
    "group_config",
    "offsets_topic",
    "replica_config",
    "upkeep_config",
]


def cleaner_config(config: BrokerConfig) -> CleanerConfig:
    return CleanerConfig(
        enable=config.flag("log.cleaner.enable"),
        backoff_ms=config.integer("log.cleaner.backoff.ms"),
        dedupe_buffer_size=config.integer("log.cleaner.dedupe.buffer.size"),
        io_max_bytes_per_second=config.number("log.cleaner.io.max.bytes.per.second"),
    )


def upkeep_config(config: BrokerConfig) -> UpkeepConfig:
    return UpkeepConfig(
        initial_task_delay_ms=config.integer("log.initial.task.delay.ms"),
        retention_check_interval_ms=config.integer("log.retention.check.interval.ms"),
        flush_scheduler_interval_ms=config.integer("log.flush.scheduler.interval.ms"),
        flush_offset_checkpoint_interval_ms=config.integer(
            "log.flush.offset.checkpoint.interval.ms"
        ),
        flush_start_offset_checkpoint_interval_ms=config.integer(
            "log.flush.start.offset.checkpoint.interval.ms"
        ),
        producer_id_expiration_check_interval_ms=config.integer(
            "producer.id.expiration.check.interval.ms"
        ),
    )


def replica_config(config: BrokerConfig) -> ReplicaConfig:
    selector = config.text("replica.selector.class") or ""
    return ReplicaConfig(
        inter_broker_listener_name=config.inter_broker_listener(),
        num_replica_fetchers=config.integer("num.replica.fetchers"),
        replica_fetch_backoff_ms=config.integer("replica.fetch.backoff.ms"),
        replica_fetch_max_bytes=config.integer("replica.fetch.max.bytes"),
        replica_fetch_min_bytes=config.integer("replica.fetch.min.bytes"),
        replica_fetch_response_max_bytes=config.integer("replica.fetch.response.max.bytes"),
        replica_fetch_wait_max_ms=config.integer("replica.fetch.wait.max.ms"),
        replica_high_watermark_checkpoint_interval_ms=config.integer(
            "replica.high.watermark.checkpoint.interval.ms"
        ),
        replica_lag_time_max_ms=config.integer("replica.lag.time.max.ms"),
        replica_socket_timeout_ms=config.integer("replica.socket.timeout.ms"),
        rack_aware_replica_selector=selector.rpartition(".")[2] == "RackAwareReplicaSelector",
    )


def controller_config(config: BrokerConfig) -> ControllerConfig:
    return ControllerConfig(
        inter_broker_listener_name=config.inter_broker_listener(),
        unclean_leader_election_enable=config.flag("unclean.leader.election.enable"),
        delete_topic_enable=config.flag("delete.topic.enable"),
        auto_leader_rebalance_enable=config.flag("auto.leader.rebalance.enable"),
        leader_imbalance_per_broker_percentage=config.integer(
            "leader.imbalance.per.broker.percentage"
        ),
        leader_imbalance_check_interval_seconds=config.integer(
            "leader.imbalance.check.interval.seconds"
        ),
        request_timeout_ms=config.integer("controller.socket.timeout.ms"),
    )


def group_config(config: BrokerConfig) -> GroupConfig:
    return GroupConfig(
        group_min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
        group_initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
        group_max_size=config.integer("group.max.size"),
        offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=config.integer("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=config.integer("offsets.retention.check.interval.ms"),
    )


def offsets_topic(config: BrokerConfig) -> NewTopic:
    """The topic that remembers groups, as Kafka creates it (INTERCHANGE.md section E)."""
    return NewTopic(
        OFFSETS_TOPIC,
        config.integer("offsets.topic.num.partitions"),
        config.integer("offsets.topic.replication.factor"),
        config={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.integer("offsets.topic.segment.bytes")),
        },
    )
