"""What a change of settings does to the parts of a running broker.

Most settings are read where they are used. These are the ones that a part was given a value of, or
that make it do something.
"""

from odradek.broker.config import BrokerConfig
from odradek.broker.dynamic_config import DynamicConfig
from odradek.controller.controller import Controller
from odradek.log.cleaner import CleanerConfig
from odradek.log.config import LogConfig
from odradek.log.manager import LogManager
from odradek.replica.manager import ReplicaManager

__all__ = ["SettingsEffects"]

UNCLEAN = "unclean.leader.election.enable"


class SettingsEffects:
    """Brings settings of the broker and of its topics to its logs, replicas and controller."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        replicas: ReplicaManager,
        controller: Controller,
    ) -> None:
        self._config = config
        self._logs = logs
        self._replicas = replicas
        self._controller = controller

    def follow(self, settings: DynamicConfig) -> None:
        """Apply the settings as they are, and each change from now on."""

        def changed(names: frozenset[str]) -> None:
            self._changed(names)
            self._topics_changed(settings)

        self._config.on_change(changed)
        self._changed(frozenset())

    def topic_changed(self, topic: str, config: LogConfig) -> None:
        self._logs.update_topic_config(topic, config)
        self._replicas.min_isr_changed()
        if config.unclean_leader_election_enable:
            self._controller.enable_unclean_leader_election(topic)

    def _changed(self, names: frozenset[str]) -> None:
        config, replicas = self._config, self._replicas
        replicas.leader_quota.bytes_per_second = config.integer("leader.replication.throttled.rate")
        replicas.follower_quota.bytes_per_second = config.integer(
            "follower.replication.throttled.rate"
        )
        replicas.log_dir_moves.quota.bytes_per_second = config.integer(
            "replica.alter.log.dirs.io.max.bytes.per.second"
        )
        self._logs.cleaner.config = config.make(CleanerConfig)
        self._controller.config.unclean_leader_election_enable = config.flag(UNCLEAN)
        if UNCLEAN in names and config.flag(UNCLEAN):
            self._controller.enable_unclean_leader_election()
        if names:
            self._controller.config.pace(config.integer)

    def _topics_changed(self, settings: DynamicConfig) -> None:
        """The defaults of topics may have changed."""
        self._logs.default_config = self._config.log_config()
        for topic in {tp.topic for tp in self._logs.logs}:
            self._logs.update_topic_config(topic, settings.topic_config(topic))
        self._replicas.min_isr_changed()
