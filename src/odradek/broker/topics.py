"""Topics made, extended and deleted: what the admin APIs, automatic creation and internal topics
share.

Any broker may write a new topic to the store; the controller sees it and does the rest. The
request waits until this broker's own metadata shows the result.
docs/spec/controller-and-replication.md section 1.3.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from uuid import UUID

from odradek.broker.config import BrokerConfig, validate_topic
from odradek.broker.delayed_by_key import DelayedByKey
from odradek.broker.metadata_cache import MetadataCache
from odradek.coordinator.storage import OFFSETS_TOPIC
from odradek.coordinator.transaction_storage import TRANSACTIONS_TOPIC
from odradek.placement import (
    Broker,
    RackAwareMode,
    assign_replicas,
    brokers_to_use,
    new_partitions,
    validate_manual_assignment,
)
from odradek.store.api import BadVersion, NodeExists, NoNode
from odradek.store.cluster import ClusterStore
from odradek.store.configs import NoController
from odradek.store.payloads import NO_LEADER, TopicNode
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topic_ids import NO_TOPIC_ID, new_topic_id
from odradek.wire.topics import TopicPartition, metric_name, validate_topic_name

__all__ = ["NewTopic", "Permit", "Topics", "offsets_topic", "transactions_topic"]

# Called with how many partitions are about to be created or deleted; raises KafkaError to refuse.
Permit = Callable[[int], None]

DEFAULT = -1
# More new partitions in one request are a slip or an attack (Kafka's KRaft controller agrees).
PARTITIONS_MAX = 10_000
# How often partitions are added to a topic that others change meanwhile.
ATTEMPTS_MAX = 10


def _unlimited(partitions: int) -> None:
    """Every client may."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created. Counts of -1 take the broker's defaults."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Mapping[int, Sequence[int]] | None = None
    config: Mapping[str, str | None] | None = None


class Topics:
    """Changes to topics through the store, and waiting for them to be seen here."""

    def __init__(
        self,
        config: BrokerConfig,
        store: ClusterStore,
        cache: MetadataCache,
        waits: DelayedByKey[str],
        rng: Random,
    ) -> None:
        self._config = config
        self._store = store
        self._cache = cache
        self._waits = waits
        self._rng = rng
        # How the coordinator wants its internal topics, by name.
        self.internal: dict[str, Callable[[], NewTopic]] = {}

    def changed(self, topics: Collection[str]) -> None:
        """The metadata of these topics was updated: wake the requests that wait for them."""
        for topic in topics:
            self._waits.check(topic)

    # Creating

    def check_new(self, topics: Iterable[NewTopic]) -> None:
        """Raise KafkaError if these, in one request, would have too many partitions together."""
        _check_count(sum(max(0, self._count(topic)) for topic in topics))

    async def create(
        self,
        topic: NewTopic,
        *,
        validate_only: bool = False,
        racks: RackAwareMode = RackAwareMode.ENFORCED,
        permit: Permit = _unlimited,
    ) -> dict[int, list[int]]:
        """The assignment of the new topic. Raises KafkaError with Kafka's code."""
        if self._cache.has_topic(topic.name):
            raise _exists(topic.name)
        config = topic.config or {}
        if any(value is None for value in config.values()):
            raise KafkaError(ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs")
        assignment = self._assignment(topic, racks)
        await self._validate(topic.name, assignment, config)
        if not validate_only:
            permit(len(assignment))
            node = TopicNode(
                {partition: tuple(replicas) for partition, replicas in assignment.items()},
                topic_id=new_topic_id(self._rng) if self._config.protocol.uses_topic_ids else None,
            )
            written = {name: value for name, value in config.items() if value is not None}
            try:
                await self._store.create_topic(topic.name, node, written)
            except NodeExists:
                raise _exists(topic.name) from None
            except NoController as error:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from None
        return assignment

    def _assignment(self, topic: NewTopic, racks: RackAwareMode) -> dict[int, list[int]]:
        if topic.assignments:
            if topic.partitions != DEFAULT or topic.replication_factor != DEFAULT:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "Both numPartitions or replicationFactor and replicasAssignments were set. "
                    "Both cannot be used at the same time.",
                )
            return {partition: list(ids) for partition, ids in topic.assignments.items()}
        count, factor = self._count(topic), topic.replication_factor
        if factor == DEFAULT:
            factor = self._config.integer("default.replication.factor")
        _check_count(count)
        brokers = [Broker(broker.id, broker.rack) for broker in self._cache.brokers()]
        if racks is RackAwareMode.SAFE:
            brokers = brokers_to_use(brokers, racks)
        return assign_replicas(brokers, count, factor, rng=self._rng)

    def _count(self, topic: NewTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        if topic.partitions == DEFAULT:
            return self._config.integer("num.partitions")
        return topic.partitions

    async def _validate(
        self, name: str, assignment: Mapping[int, Sequence[int]], config: Mapping[str, str | None]
    ) -> None:
        validate_topic_name(name)
        if name in await self._store.requests.deletions():
            raise KafkaError(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion."
            )
        if "." in name or "_" in name:
            wanted = metric_name(name)
            for other in await self._store.topics():
                if other != name and metric_name(other) == wanted:
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION,
                        f"Topic '{name}' collides with existing topic '{other}'.",
                    )
        validate_manual_assignment(assignment)
        validate_topic(self._config, config)

    async def create_automatically(self, name: str, wait_ms: int) -> ErrorCode:
        """Creates a topic that a client asked about; NONE once its leaders are known here.

        Who only asked about it must have looked at `auto.create.topics.enable` first.
        """
        internal = self.internal.get(name)
        error = _name_error(name)
        if error is not None:
            return error
        wanted = NewTopic(name) if internal is None else internal()
        try:
            assignment = await self.create(wanted, racks=RackAwareMode.SAFE)
        except KafkaError as failure:
            if failure.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                return _before_leaders(failure.error)
            assignment = {0: []}
        return (
            ErrorCode.NONE
            if await self.wait_for_leaders(name, assignment, wait_ms)
            else ErrorCode.LEADER_NOT_AVAILABLE
        )

    # Extending

    def check_added(self, counts: Mapping[str, int]) -> None:
        """Raise KafkaError if too many partitions together would make the topics this large. Those
        that are not known here do not count: each is looked at again by itself."""
        known = ((self._cache.partition_count(name), count) for name, count in counts.items())
        _check_count(sum(max(0, count - now) for now, count in known if now is not None))

    async def add_partitions(
        self,
        name: str,
        count: int,
        manual: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool = False,
        permit: Permit = _unlimited,
    ) -> list[int]:
        """All partitions the topic then has. Raises KafkaError with Kafka's code."""
        wanted: TopicNode | None = None
        for _ in range(ATTEMPTS_MAX):
            node, version = await self._existing(name)
            if node == wanted:
                return sorted(node.partitions)  # our own write, sent twice over a lost connection
            grown = await self._grown(name, node, count, manual)
            if validate_only:
                return sorted(grown.partitions)
            if wanted is None:
                permit(len(grown.partitions) - len(node.partitions))
            wanted = grown
            try:
                await self._store.set_topic(name, wanted, version=version)
            except (BadVersion, NoNode):
                continue  # another request, or the controller, was faster: what does it leave us?
            return sorted(wanted.partitions)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The topic '{name}' changes all the time.")

    async def _grown(
        self, name: str, node: TopicNode, count: int, manual: Sequence[Sequence[int]] | None
    ) -> TopicNode:
        if any(node.adding.values()) or any(node.removing.values()):
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"A partition reassignment is in progress for the topic '{name}'.",
            )
        _check_count(count - len(node.partitions))
        registered = await self._store.brokers()
        brokers = brokers_to_use(Broker(each.id, each.rack) for each in registered.values())
        added = new_partitions(name, node.partitions, brokers, count, manual)
        partitions = {
            **node.partitions,
            **{partition: tuple(replicas) for partition, replicas in added.items()},
        }
        return TopicNode(partitions, node.adding, node.removing, node.topic_id)

    async def _existing(self, name: str) -> tuple[TopicNode, int]:
        """A topic in the store and its version, where a name that cannot be a topic's is not even
        looked for."""
        found = {} if _name_error(name) else await self._store.topics_and_versions([name])
        if name not in found:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        return found[name]

    async def topic_id(self, name: str) -> UUID:
        """As it is in the store; zero if the topic has none."""
        node = await self._store.topic(name)
        return NO_TOPIC_ID if node is None else node.topic_id or NO_TOPIC_ID

    # Deleting

    async def delete(self, name: str) -> None:
        """Asks for the deletion. Raises KafkaError if there is no such topic."""
        await self._existing(name)
        try:
            await self._store.requests.request_deletion(name)
        except NodeExists:
            pass  # requested before: wait for the same deletion

    # Waiting

    async def wait_for_leaders(
        self, name: str, partitions: Collection[int], timeout_ms: int
    ) -> bool:
        """True once every one of these partitions has a leader in this broker's metadata."""

        def complete() -> bool:
            known = self._cache.partitions(name)
            return all(
                partition in known and known[partition].leader != NO_LEADER
                for partition in partitions
            )

        return await self._wait(name, complete, timeout_ms)

    async def wait_for_leader(self, of: TopicPartition, leader: int, timeout_ms: int) -> bool:
        """True once this broker's metadata shows this leader."""

        def complete() -> bool:
            known = self._cache.partition(of.topic, of.partition)
            return known is not None and known.leader == leader

        return await self._wait(of.topic, complete, timeout_ms)

    async def wait_until_gone(self, name: str, timeout_ms: int) -> bool:
        return await self._wait(name, lambda: not self._cache.has_topic(name), timeout_ms)

    async def _wait(self, name: str, complete: Callable[[], bool], timeout_ms: int) -> bool:
        found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def end(completed: bool) -> None:
            if not found.done():
                found.set_result(completed)

        self._waits.wait([name], timeout_ms / 1000, complete, end)
        return await found


def offsets_topic(config: BrokerConfig) -> NewTopic:
    """The topic that remembers groups, as Kafka creates it.

    docs/spec/interchange-with-apache-kafka.md section E.
    """
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


def transactions_topic(config: BrokerConfig) -> NewTopic:
    """The topic that remembers transactional ids, as Kafka creates it.

    docs/spec/transactions.md section 1.
    """
    return NewTopic(
        TRANSACTIONS_TOPIC,
        config.integer("transaction.state.log.num.partitions"),
        config.integer("transaction.state.log.replication.factor"),
        config={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.integer("transaction.state.log.min.isr")),
            "segment.bytes": str(config.integer("transaction.state.log.segment.bytes")),
            "unclean.leader.election.enable": "false",
        },
    )


def _check_count(count: int) -> None:
    if count > PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{count} partitions in one request are more than {PARTITIONS_MAX}.",
        )


def _exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _name_error(name: str) -> ErrorCode | None:
    try:
        validate_topic_name(name)
    except KafkaError as error:
        return error.error
    return None


def _before_leaders(error: ErrorCode) -> ErrorCode:
    """A client that only asked about a topic gets a retriable error, unless retrying is useless."""
    transient = {ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT}
    return ErrorCode.LEADER_NOT_AVAILABLE if error in transient else error
