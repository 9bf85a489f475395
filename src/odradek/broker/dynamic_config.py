"""Settings that change while the broker runs, followed through the store.

A writer of settings leaves a notification; this broker reads the entity it names again and passes
the values on: to logs, quotas, throttles, limits of connections.
docs/spec/interchange-with-apache-kafka.md section B.1.

What stands in the store may have been written by another kind of broker, or by hand: settings that
cannot be taken are logged and left out, and the others are followed.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from odradek.broker.change_follower import ChangeFollower
from odradek.broker.config import BrokerConfig
from odradek.broker.quotas import CONNECTION_RATE, ClientQuotas, entity_of, plain_entity
from odradek.log.config import LogConfig
from odradek.store.api import StoreError
from odradek.store.cluster import ClusterStore
from odradek.store.paths import DEFAULT_ENTITY, ConfigKind, desanitize
from odradek.store.payloads import InvalidPayload

__all__ = ["DynamicConfig", "SettingsReceivers"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SettingsReceivers:
    """Listeners to changed settings of topics, users and addresses. `decode` decrypts the passwords
    among a broker's."""

    topic: Callable[[str, LogConfig], None]
    user: Callable[[str, Mapping[str, str]], None]
    address: Callable[[str, float | None], None]
    decode: Callable[[Mapping[str, str]], Mapping[str, str]]


class DynamicConfig:
    """The settings of topics, brokers and clients in the store, as this broker knows them."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        store: ClusterStore,
        quotas: ClientQuotas,
        receivers: SettingsReceivers,
    ) -> None:
        self._broker_id = broker_id
        self._config = config
        self._store = store
        self._quotas = quotas
        self._receivers = receivers
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._changes = ChangeFollower(store.session, "settings")
        self._applied = 0

    async def load(self) -> None:
        """Reads everything once. What changes from here on is followed by `start`."""
        await self._changes.watch(self._store.configs.changes, self._apply_each)
        await self._apply(f"{ConfigKind.BROKERS}/{self._broker_id}")
        topics = await self._store.configs.entities(ConfigKind.TOPICS)
        for topic, overrides in (await self._read_overrides(topics)).items():
            self._remember(topic, overrides)
        for client in await self._store.configs.entities(ConfigKind.CLIENTS):
            await self._apply(f"clients/{client}")
        for address in await self._store.configs.entities(ConfigKind.IPS):
            await self._apply(f"ips/{address}")
        for user in await self._store.configs.entities(ConfigKind.USERS):
            await self._apply(f"users/{user}")
            for client in await self._store.configs.clients_of_user(user):
                await self._apply(f"users/{user}/clients/{client}")

    def start(self) -> None:
        self._changes.start()

    async def stop(self) -> None:
        await self._changes.stop()

    # Topics

    def known_topics(self) -> dict[str, LogConfig]:
        """Topics that have settings of their own."""
        return {topic: self._config.log_config(own) for topic, own in self._overrides.items()}

    async def read_topics(self, topics: Collection[str]) -> Mapping[str, LogConfig]:
        """The settings of topics whose logs are about to be made.

        A topic is created without a notification, so its settings are read now; if one of them
        changes meanwhile, again.
        """
        while True:
            before = self._applied
            found = await self._read_overrides(topics)
            if self._applied == before:
                break
        for topic, overrides in found.items():
            self._remember(topic, overrides)
        return {topic: self._config.log_config(own) for topic, own in found.items()}

    async def _read_overrides(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        try:
            return await self._store.configs.get_many(ConfigKind.TOPICS, topics)
        except InvalidPayload:
            pass  # one of them; which, and what the others say, shows one by one
        return {topic: await self._read(ConfigKind.TOPICS, topic) for topic in topics}

    def topic_config(self, topic: str) -> LogConfig:
        return self._config.log_config(self._overrides.get(topic))

    def _remember(self, topic: str, overrides: Mapping[str, str]) -> None:
        if overrides:
            self._overrides[topic] = overrides
        else:
            self._overrides.pop(topic, None)

    # Following

    async def _apply_each(self, changed: Iterable[str]) -> None:
        for path in changed:
            await self._apply(path)

    async def _apply(self, path: str) -> None:
        """Takes what the store now says of one entity. Raises StoreError to be tried again."""
        self._applied += 1
        try:
            await self._take(path)
        except StoreError:
            raise
        except Exception:
            logger.exception("the settings of %s cannot be applied", path)

    async def _take(self, path: str) -> None:
        kind, _, entity = path.partition("/")
        if kind == ConfigKind.TOPICS:
            topic = desanitize(entity)
            self._remember(topic, await self._read(kind, entity))
            logger.info("settings of topic %s changed", topic)
            self._receivers.topic(topic, self.topic_config(topic))
        elif kind == ConfigKind.BROKERS:
            if entity in (DEFAULT_ENTITY, str(self._broker_id)):
                await self._load_brokers()
        elif kind == ConfigKind.IPS:
            written = (await self._read(kind, entity)).get(CONNECTION_RATE)
            self._receivers.address(desanitize(entity), None if written is None else float(written))
        else:
            await self._load_quota(path)

    async def _load_brokers(self) -> None:
        own = await self._read(ConfigKind.BROKERS, str(self._broker_id))
        cluster = await self._read(ConfigKind.BROKERS, DEFAULT_ENTITY)
        self._config.set_dynamic(self._receivers.decode(own), self._receivers.decode(cluster))

    async def _load_quota(self, path: str) -> None:
        entity = entity_of(path)
        if entity is None:
            return
        kind, _, name = path.partition("/")
        user, client = plain_entity(entity)
        settings = await self._read(kind, name)
        self._quotas.set((user, client), settings)
        if user is not None and client is None:
            self._receivers.user(user, settings)

    async def _read(self, kind: str, entity: str) -> Mapping[str, str]:
        """An entity's own settings; none if they cannot be read."""
        try:
            return await self._store.configs.get(kind, entity)
        except InvalidPayload as error:
            logger.error("ignored: %s", error)
            return {}
