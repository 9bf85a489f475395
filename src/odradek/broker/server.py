"""One broker: what it is made of, and how it starts and stops.

Nothing here is global and nothing reads a real clock, so several brokers live in one process and
loop, in tests and in the simulator.

Starting: listen (to know the port), open the store, claim the log directories, read the settings,
load the logs, register (and leave the ISRs in the same transaction if records may be lost), let the
controller's requests in, stand for election as controller, and serve clients once the controller
has sent the cluster's metadata. Nothing is written to the store on behalf of the broker's id before
it is registered, nor after its session has ended. Stopping goes the other way, after asking the
controller to move our leaderships. A broker that is killed at any point starts again from what is
on disk.
docs/spec/interchange-with-apache-kafka.md section C.
"""

import asyncio
import base64
import logging
import socket
from collections.abc import Callable, Collection
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from odradek.broker.config import BrokerConfig
from odradek.broker.config_updates import decode_passwords
from odradek.broker.connections import Connections
from odradek.broker.control import ControlRequestGuard
from odradek.broker.controlled_shutdown import hand_over_leaderships
from odradek.broker.delayed_by_key import DelayedByKey
from odradek.broker.dynamic_config import DynamicConfig, SettingsReceivers
from odradek.broker.fetch_sessions import FetchSessions
from odradek.broker.followers import Followers
from odradek.broker.groups import make_groups
from odradek.broker.listeners import Listener
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.producer_ids import ProducerIds, make_producer_ids
from odradek.broker.quotas import ClientQuotas
from odradek.broker.readiness import Readiness
from odradek.broker.registration import StartFailed, find_id, register
from odradek.broker.routes import Routes
from odradek.broker.security import BrokerSecurity, ListenerSecurity
from odradek.broker.settings_effects import SettingsEffects
from odradek.broker.state_topics import StateTopics
from odradek.broker.topics import Topics
from odradek.broker.transactions import make_transactions, make_verification
from odradek.broker.unclean_start import (
    ALL_PARTITIONS,
    lost_logs,
    mark_boot,
    may_have_lost_records,
)
from odradek.controller.config import ControllerConfig
from odradek.controller.controller import Controller
from odradek.controller.journal import Journal, RotatingFile
from odradek.coordinator.coordinator import GroupCoordinator
from odradek.coordinator.transaction_coordinator import TransactionCoordinator
from odradek.coordinator.verification import Verification
from odradek.log.checkpoints import InconsistentMetaProperties
from odradek.log.cleaner import CleanerConfig
from odradek.log.directories import DirectoryInUse, UnexpectedDirectory
from odradek.log.disk import Disk
from odradek.log.host import LogEnvironment
from odradek.log.log_dirs import NoDirectoryLeft
from odradek.log.manager import DuplicateLog, LogManager, LogManagerConfig
from odradek.log.offload import Offload
from odradek.log.upkeep import UpkeepConfig
from odradek.replica.config import ReplicaConfig
from odradek.replica.manager import ReplicaManager
from odradek.store.api import ConnectionLost, SessionExpired, Store
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import BrokerRegistration, Endpoint
from odradek.wire.errors import KafkaError
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.http_service import HttpService
    from odradek.broker.telemetry import Telemetry

__all__ = ["Broker", "StartFailed"]

JOURNAL = "state-change.log"

logger = logging.getLogger(__name__)


class Broker:
    """One broker. Made on the running loop, started once, stopped once."""

    id: int
    cluster_id: str
    logs: LogManager
    replicas: ReplicaManager
    controller: Controller
    topics: Topics
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    verification: Verification
    producer_ids: ProducerIds
    settings: DynamicConfig
    _settings_effects: SettingsEffects
    # Of the package, where the runner says it.
    version = ""

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        *,
        disk: Disk,
        clock: Callable[[], int],
        rng: Random,
        offload: Offload,
        boot_id: str = "",
    ) -> None:
        self.config = config
        self.store = ClusterStore(store, clock)
        self.store.require_registration()
        self.clock = clock
        self.rng = rng
        self.epoch = -1
        self.cache = MetadataCache()
        self.fetch_max = config.integer("fetch.max.bytes")
        self.endpoints: tuple[Endpoint, ...] = ()
        # Done when the broker cannot continue; the result says why.
        loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[str] = loop.create_future()
        self._environment = LogEnvironment(disk, clock, offload, rng, boot_id)
        self.security = BrokerSecurity(
            config, clock=clock, rng=rng, read_file=disk.read_bytes, offload=offload
        )
        self.authorizer = self.security.authorizer
        self.followers = Followers(config, self.store, self.security, clock=clock, rng=rng)
        self.quotas = ClientQuotas(loop.time)
        self.fetch_sessions = FetchSessions(
            config.integer("max.incremental.fetch.session.cache.slots"), loop.time, rng
        )
        self.control = ControlRequestGuard(self.store)
        self.routes = self.make_routes()
        self.connections: Connections = Connections(config, self.routes)
        self._http: HttpService | None = None
        self._telemetry: Telemetry | None = None
        self.readiness = Readiness(self.cache)
        self.state_topics = StateTopics(config)

    def make_routes(self) -> Routes:
        """How requests find their handlers. A broker under test puts its own here."""
        return Routes(self)

    # Starting

    async def start(self) -> None:
        """Returns when clients are served. Raises StartFailed."""
        try:
            await self._start()
        except (SessionExpired, ConnectionLost) as error:
            raise StartFailed(f"the metadata store was lost while starting: {error}") from None

    async def _start(self) -> None:
        config = self.config
        listeners = [
            await self._listen(self.security.of(listener.name)) for listener in config.listeners()
        ]
        self.endpoints = _advertised(config, listeners)
        try:
            await self.security.start()
        except KafkaError as error:
            raise StartFailed(error.message) from None
        await self._listen_for_http()
        await self.store.session.start()
        if await self.store.controller.is_kraft():
            # It would take control requests of a controller whose records it cannot read.
            raise StartFailed(
                "this cluster is being migrated to KRaft, or has been: its controller is a KRaft "
                "controller, which an Odradek broker cannot follow"
            )
        await self.store.prepare()
        self.cluster_id = await self.store.cluster_id_or(_new_cluster_id(self.rng))
        await self.state_topics.load(self.store)
        self.readiness.expects_topics = bool(await self.store.topics())
        await self._open_logs()
        self._make_parts()
        if self._http is not None:
            self._http.follow_parts()
        await self.settings.load()
        await self.followers.start(lambda: self.controller.is_active)
        await self._load_logs()
        self._settings_effects.follow(self.settings)
        self.settings.start()
        self.replicas.start()
        await self._register_first()
        # Not before: what was meant for our predecessor shows only by the epoch we have now.
        await self.connections.accept()
        await self.controller.start()
        self.logs.start()
        self.groups.offsets.start()
        self.transactions.start()
        await self.readiness.wait(self.id)
        self.connections.serve()
        self._start_telemetry()
        logger.info("broker %d serves %s", self.id, ", ".join(map(str, self.endpoints)))

    async def _listen(self, security: ListenerSecurity) -> Listener:
        listener = security.listener
        try:
            return await self.connections.listen(security)
        except OSError as error:
            raise StartFailed(
                f"cannot listen on {listener.host or '*'}:{listener.port}: {error.strerror}"
            ) from None

    async def _listen_for_http(self) -> None:
        address = self.config.http_listener()
        if address is None:
            return
        from odradek.broker.http_service import HttpService

        self._http = HttpService(self)
        try:
            port = await self._http.listen(*address)
        except OSError as error:
            raise StartFailed(
                f"cannot listen on {address[0] or '*'}:{address[1]} (odradek.http.listener):"
                f" {error.strerror}"
            ) from None
        self.config.http_listener_bound(port)

    def _start_telemetry(self) -> None:
        if self.config.integer("odradek.telemetry.interval.ms") == 0:
            return
        from odradek.broker.telemetry import Telemetry

        self._telemetry = Telemetry(self, self._environment.disk, self._environment.offload)
        self._telemetry.start()

    async def _open_logs(self) -> None:
        config = self.config
        self.logs = LogManager(
            config.log_dirs(),
            self._environment,
            LogManagerConfig(
                cleaner=config.make(CleanerConfig),
                upkeep=config.make(UpkeepConfig),
                producer_expiration_ms=config.integer("producer.id.expiration.ms"),
                recovery_threads_per_directory=config.integer("num.recovery.threads.per.data.dir"),
                keeps_topic_ids=config.protocol.uses_topic_ids,
            ),
            self._directory_failed,
        )
        try:
            self.logs.dirs.open()
            self.id = await find_id(
                self.config, self.logs.dirs.meta_properties().values(), self.store
            )
            self.logs.dirs.claim(self.id, self.cluster_id, self.clock())
        except (InconsistentMetaProperties, DirectoryInUse, NoDirectoryLeft) as error:
            raise StartFailed(str(error)) from None

    async def _load_logs(self) -> None:
        self.logs.default_config = self.config.log_config()
        try:
            await self.logs.load(self.settings.known_topics())
        except (UnexpectedDirectory, DuplicateLog, NoDirectoryLeft) as error:
            raise StartFailed(str(error)) from None

    def _make_parts(self) -> None:
        config = self.config
        self.settings = DynamicConfig(
            self.id,
            config,
            self.store,
            self.quotas,
            SettingsReceivers(
                lambda topic, found: self._settings_effects.topic_changed(topic, found),
                self.security.credentials.update,
                self.connections.admission.set_address_rate,
                partial(decode_passwords, self.security.passwords),
            ),
        )
        replica_config = self._replica_config()
        self.replicas = ReplicaManager(
            self.id,
            self.logs,
            self.store,
            self.cache,
            replica_config,
            topic_configs=self.settings.read_topics,
            counted_topics_max=config.integer("odradek.metrics.topics.max"),
        )
        self.producer_ids = make_producer_ids(self, replica_config)
        self.topics = Topics(
            config, self.store, self.cache, DelayedByKey(self.replicas.wheel), self.rng
        )
        self.controller = self._make_controller()
        self._settings_effects = SettingsEffects(config, self.logs, self.replicas, self.controller)
        self.groups = make_groups(self)
        self.transactions = make_transactions(self)
        self.verification = make_verification(self)

    def _replica_config(self) -> ReplicaConfig:
        config = self.config
        return config.make(
            ReplicaConfig,
            inter_broker_listener_name=config.inter_broker_listener(),
            security=self.security.inter_broker,
            controller_listener_name=self._control_plane_listener(),
            controller_security=self.security.control_plane,
        )

    def _make_controller(self) -> Controller:
        journal_path = f"{next(iter(self.logs.dirs.live))}/{JOURNAL}"
        return Controller(
            self.id,
            self.store,
            self.config.make(
                ControllerConfig,
                inter_broker_listener_name=self._control_plane_listener(),
                security=self.security.control_plane,
            ),
            journal=Journal(self.clock, sink=RotatingFile(self._environment.disk, journal_path)),
            rng=self.rng,
            register=self._register_again,
        )

    def _control_plane_listener(self) -> str:
        return self.config.control_plane_listener() or self.config.inter_broker_listener()

    async def _register_first(self) -> None:
        """Where records may be lost, leave the ISRs with it: before the controller can elect us."""
        damaged = self.logs.damaged.found
        if may_have_lost_records(self.logs, self._environment.boot_id):
            last = await self._register(leaving=ALL_PARTITIONS)
            self.replicas.replica_logs.lost = lost_logs(self.logs, last)
        else:
            last = await self._register(leaving=damaged)
        for tp, damage in damaged.items():
            if damage.unusable is None:
                continue
            if damage.can_be_copied and tp not in last:
                self.logs.damaged.set_aside(tp)
            else:
                self.replicas.partitions.offline.add(tp)
        if not self.replicas.replica_logs.lost:
            # Else the next start must look again: no checkpoint knows these logs before they are
            # created.
            mark_boot(self.logs, self._environment.boot_id)

    async def _register(
        self, leaving: Collection[TopicPartition] | None = ()
    ) -> set[TopicPartition]:
        config = self.config
        registration = BrokerRegistration(
            self.id,
            -1,
            endpoints=self.endpoints,
            rack=config.text("broker.rack"),
            has_features=config.protocol.enables_features,
        )
        self.epoch, last = await register(
            registration,
            self.store,
            wait_ms=config.integer("zookeeper.session.timeout.ms"),
            leaving=leaving,
        )
        self.replicas.control_requests.broker_epoch = self.epoch
        return last

    async def _register_again(self) -> None:
        """After a session was lost. A broker that cannot register stops: another has its id."""
        try:
            await self._register()
        except StartFailed as error:
            self.fail(str(error))
            # For the controller's event queue: whatever else it has to do, it is not ours to do.
            raise SessionExpired("", str(error)) from None

    # What happens while it runs

    def metadata_updated(self, topics: Collection[str]) -> None:
        """The controller has sent new metadata."""
        self.topics.changed(topics)
        if not self.readiness.is_informed:
            self.readiness.metadata_updated(self.id)

    def _directory_failed(self, path: str, partitions: list[TopicPartition]) -> None:
        self.replicas.directory_failed(path, partitions)
        if not self.logs.dirs.live:
            self.fail("all log directories have failed")

    def fail(self, reason: str) -> None:
        """The broker cannot continue; its runner stops it."""
        logger.error("broker %d cannot continue: %s", self.id, reason)
        if not self.failed.done():
            self.failed.set_result(reason)

    # Stopping

    async def abandon(self) -> None:
        """Releases everything after a start that failed."""
        if self._http is not None:
            await self._http.close()
        await self.security.stop()
        await self.connections.close()
        await self.store.session.close()

    async def stop(self) -> None:
        """Hands leaderships over, then ends everything and leaves clean directories."""
        if self._telemetry is not None:
            await self._telemetry.stop()
        if self.config.flag("controlled.shutdown.enable") and not self.failed.done():
            await hand_over_leaderships(self)
        self.connections.stop_accepting()
        await self.settings.stop()
        await self.security.stop()
        await self.followers.stop()
        await self.controller.stop()
        await self.connections.close()
        if self._http is not None:
            await self._http.close()
        self.groups.close()
        self.transactions.close()
        self.verification.close()
        await self.producer_ids.close()
        await self.replicas.close()
        await self.logs.close()
        await self.store.session.close()
        logger.info("broker %d has stopped", self.id)

    def statistics(self) -> dict[str, object]:
        """Everything there is to know, by part."""
        return {
            "connections": self.connections.statistics(),
            "replicas": self.replicas.statistics(),
            "logs": self.logs.statistics(),
            "traffic": self.replicas.traffic.statistics(),
            "groups": self.groups.statistics(),
            "controller": self.controller.statistics(),
            "metadata": self.cache.statistics(),
            "fetch_sessions": self.fetch_sessions.statistics(),
            "quotas": self.quotas.statistics(),
            "control_requests": self.control.statistics(),
            "transactions": self.transactions.statistics(),
            "producer_ids": self.producer_ids.statistics(),
            "store": self.store.session.statistics(),
            "telemetry": {} if self._telemetry is None else self._telemetry.statistics(),
        }


def _new_cluster_id(rng: Random) -> str:
    """22 characters of base64, as Kafka's."""
    return base64.urlsafe_b64encode(rng.randbytes(16)).rstrip(b"=").decode()


def _advertised(config: BrokerConfig, listeners: list[Listener]) -> tuple[Endpoint, ...]:
    """The advertised address of each listener; listeners without one are not advertised, as in
    Kafka."""
    advertised = {each.name: each for each in config.advertised_listeners() or listeners}
    return tuple(
        Endpoint(
            advertised[bound.name].host or socket.gethostname(),
            advertised[bound.name].port or bound.port,
            bound.name,
            bound.protocol.name,
        )
        for bound in listeners
        if bound.name in advertised
    )
