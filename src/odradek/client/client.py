"""A client of a cluster: finds the broker to ask, asks, and retries while the cluster changes.

Everything runs on the running event loop and takes its time from it; chance comes from an injected
`random.Random`. The verbs that users want are in `admin`, `groups`, `reading`, `producer` and
`consumer`; they stand on the four ways of asking here: any broker, one broker, the controller or a
group's coordinator, and the leaders of partitions.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from random import Random
from typing import Self, TypeVar

from odradek.client.connections import Address, BrokerConnection, ConnectionPool, parse_addresses
from odradek.client.metadata import Metadata
from odradek.client.retries import STALE_METADATA, RetryBudget, is_retriable
from odradek.client.security import connection_security
from odradek.wire.connection import HandshakeFailed
from odradek.wire.errors import ErrorCode, KafkaError, error_code
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.schema import Message, Request
from odradek.wire.topics import TopicPartition

TIMEOUT_S = 30.0
# How long to wait for a topic that is missing from the metadata of some broker: brokers learn of a
# new topic a moment apart.
MISSING_TOPIC_S = 3.0

# What one of several brokers that could answer may take of the time before the next is asked.
ATTEMPT_SHARE = 0.25


class CoordinatorType(IntEnum):
    """What a coordinator is for, as FindCoordinator numbers it."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def label(self) -> str:
        return "group" if self is CoordinatorType.GROUP else "transactional id"


W = TypeVar("W")
R = TypeVar("R", bound=Message)
F = TypeVar("F")


class Client:
    """A connection to a cluster as a whole. Use it as an async context manager, or close it."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        *,
        client_id: str = "odradek",
        timeout_s: float = TIMEOUT_S,
        missing_topic_s: float = MISSING_TOPIC_S,
        rack: str = "",
        rng: Random | None = None,
        security: Mapping[str, str] | None = None,
    ) -> None:
        """`security` has settings by Java's or librdkafka's names: `security.protocol`,
        `sasl.*`, `ssl.*`; others among them are left alone. Raises InvalidSecurity."""
        self.bootstrap = parse_addresses(bootstrap)
        self.timeout_s = timeout_s
        self.missing_topic_s = missing_topic_s
        self.rack = rack
        self.rng = rng or Random()
        self.metadata = Metadata()
        self._connections = ConnectionPool(
            client_id, timeout_s, connection_security(security or {})
        )
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}
        self._refreshing: dict[tuple[str, ...] | None, asyncio.Task[None]] = {}
        self._refreshes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Pending calls get a ConnectionError."""
        for task in self._refreshing.values():
            task.cancel()
        await asyncio.gather(*self._refreshing.values(), return_exceptions=True)
        await self._connections.close()

    def retry_budget(self, seconds: float | None = None) -> RetryBudget:
        return RetryBudget(self.timeout_s if seconds is None else seconds, self.rng)

    # Asking one broker

    async def connection(self, node: int) -> BrokerConnection:
        """The connection to a broker by its id, which the metadata must know."""
        if node not in self.metadata.nodes:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node} is not alive")
        return await self._connections.get(self.metadata.nodes[node].address)

    async def ask(
        self,
        node: int,
        message: Request[R],
        *,
        timeout: float | None = None,
        version_max: int | None = None,
    ) -> R:
        """One broker's answer. A broken connection is an error like any other: it may pass."""
        connection = await self.connection(node)
        return await connection.request(message, timeout=timeout, version_max=version_max)

    async def ask_every_broker(
        self,
        message: Request[R],
        error_of: Callable[[R], int],
        subject: str,
        brokers: Iterable[int] | None = None,
    ) -> dict[int, R]:
        """The answer of each broker of the cluster, or of these, repeated while it is a retriable
        error. Raises if one cannot answer; `subject` is what the error is about."""

        async def of(node: int) -> R:
            budget = self.retry_budget()
            while True:
                response = await self.ask(node, message)
                error = error_code(error_of(response))
                if error is ErrorCode.NONE:
                    return response
                await budget.back_off(KafkaError(error, f"{subject} of broker {node}"))

        nodes = list((await self.refresh()).nodes if brokers is None else brokers)
        answers = await asyncio.gather(*(of(node) for node in nodes))
        return dict(zip(nodes, answers, strict=True))

    async def ask_any(self, message: Request[R]) -> R:
        """The answer of any broker: of one we are connected to, else in random order."""
        budget = self.retry_budget()
        while True:
            known = [node.address for node in self.metadata.nodes.values()]
            self.rng.shuffle(known)
            known.sort(key=self._connections.is_open, reverse=True)
            failures: dict[Address, Exception] = {}
            for address in dict.fromkeys([*known, *self.bootstrap]):
                try:
                    connection = await self._connections.get(address)
                    return await connection.request(message, timeout=self.timeout_s * ATTEMPT_SHARE)
                except HandshakeFailed:
                    raise
                except (OSError, TimeoutError) as error:
                    failures[address] = error
            reasons = "; ".join(
                str(error) if str(address) in str(error) else f"{address}: {error}"
                for address, error in failures.items()
            )
            await budget.back_off(ConnectionError(f"no broker answers ({reasons})"))

    # The metadata

    async def refresh(self, topics: Iterable[str] | None = ()) -> Metadata:
        """Ask for the state of the cluster and of these topics; None is all of them.

        Concurrent calls for the same topics share one request.
        """
        wanted = None if topics is None else tuple(sorted(set(topics)))
        task = self._refreshing.get(wanted)
        if task is None:
            task = self._refreshing[wanted] = asyncio.create_task(self._refresh(wanted))
            task.add_done_callback(lambda done: self._refreshed(wanted, done))
        await asyncio.shield(task)
        return self.metadata

    async def _refresh(self, wanted: tuple[str, ...] | None) -> None:
        topics = None if wanted is None else [MetadataRequestTopic(name=name) for name in wanted]
        response = await self.ask_any(
            MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        )
        self._refreshes += 1
        self.metadata.update(response, whole=wanted is None)

    def _refreshed(self, wanted: tuple[str, ...] | None, task: asyncio.Task[None]) -> None:
        del self._refreshing[wanted]
        if not task.cancelled():
            task.exception()  # callers have it, if there are any left: it is not lost

    def forget(self, topic: str) -> None:
        """Let the next look-up of this topic's leaders ask the cluster again."""
        self.metadata.topics.pop(topic, None)

    async def require_topics(self, topics: Iterable[str]) -> Metadata:
        """Metadata that has all these topics; KafkaError says what is wrong with one.

        A topic that the controller does not know does not exist. Any other broker may not have
        heard of a new topic yet, so its answer alone is not enough.
        """
        names = sorted(set(topics))
        budget = self.retry_budget(self.missing_topic_s)
        while True:
            await self.refresh(names)
            missing = [name for name in names if name not in self.metadata.topics]
            if missing and await self._ask_controller_for(missing):
                missing = [name for name in missing if name not in self.metadata.topics]
                for name in missing:
                    error = self.metadata.problem_with(name)
                    if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise error
            if not missing:
                return self.metadata
            await budget.back_off(self.metadata.problem_with(missing[0]))

    async def _ask_controller_for(self, names: list[str]) -> bool:
        """Refresh these topics from the controller; False if it does not answer."""
        topics = [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        try:
            response = await self.ask(self.metadata.controller_id, request)
        except (OSError, TimeoutError, KafkaError):
            return False
        self.metadata.update(response, whole=False)
        return True

    # Asking the controller and coordinators

    async def ask_controller(self, message: Request[R], error_of: Callable[[R], int]) -> R:
        """The answer of the active controller. `error_of` finds NOT_CONTROLLER in it.

        Apache Kafka without ZooKeeper names any broker as controller and forwards.
        """
        budget = self.retry_budget()
        while True:
            try:
                if self.metadata.controller_id not in self.metadata.nodes:
                    await self.refresh()
                if self.metadata.controller_id in self.metadata.nodes:
                    response = await self.ask(self.metadata.controller_id, message)
                    if error_of(response) != ErrorCode.NOT_CONTROLLER:
                        return response
                failure: Exception = KafkaError(
                    ErrorCode.NOT_CONTROLLER, "the cluster has no controller at present"
                )
            except (OSError, TimeoutError, KafkaError) as caught:
                failure = caught
            await budget.back_off(failure)
            await self.refresh()

    async def ask_coordinator(
        self,
        name: str,
        message: Request[R],
        error_of: Callable[[R], int],
        kind: CoordinatorType = CoordinatorType.GROUP,
    ) -> R:
        """The answer of the coordinator of a group or transactional id. An error that is not
        retriable is the caller's."""
        budget = self.retry_budget()
        while True:
            try:
                node = await self._coordinator(name, kind)
                response = await self.ask(node, message)
                error = error_code(error_of(response))
                failure: Exception = KafkaError(error, f"{kind.label} {name!r}")
                if not is_retriable(failure):
                    return response
            except (OSError, TimeoutError, KafkaError) as caught:
                failure = caught
            self._coordinators.pop((kind, name), None)
            await budget.back_off(failure)

    async def _coordinator(self, name: str, kind: CoordinatorType = CoordinatorType.GROUP) -> int:
        node = self._coordinators.get((kind, name))
        if node is None or node not in self.metadata.nodes:
            response = await self.ask_any(FindCoordinatorRequest(key=name, key_type=kind))
            if response.error_code:
                reason = f": {response.error_message}" if response.error_message else ""
                raise KafkaError(
                    error_code(response.error_code),
                    f"{kind.label} {name!r} has no coordinator{reason}",
                )
            node = self._coordinators[kind, name] = response.node_id
            if node not in self.metadata.nodes:
                await self.refresh()  # meanwhile another request may have forgotten it again
        return node

    async def coordinator(self, group: str) -> int:
        """The broker that coordinates a group."""
        budget = self.retry_budget()
        while True:
            try:
                return await self._coordinator(group)
            except KafkaError as error:
                await budget.back_off(error)

    # Asking leaders

    async def leader(self, partition: TopicPartition) -> int:
        """The broker that leads a partition; waits for one to be elected."""
        return (await self.leaders([partition]))[partition]

    async def leaders(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The leader of each partition; waits until each has one."""
        partitions = list(partitions)
        with contextlib.suppress(KafkaError):
            return self._known_leaders(partitions)
        budget = self.retry_budget(timeout_s)
        missing = self.retry_budget(min(self.missing_topic_s, budget.remaining_s))
        while True:
            await self.refresh({partition.topic for partition in partitions})
            try:
                return self._known_leaders(partitions)
            except KafkaError as error:
                unknown = error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                await (missing if unknown else budget).back_off(error)

    def _known_leaders(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.metadata.leader(partition) for partition in partitions}

    async def ask_leaders(
        self,
        wanted: Mapping[TopicPartition, W],
        build: Callable[[dict[TopicPartition, W]], Request[R]],
        read: Callable[[R], Iterator[tuple[TopicPartition, int, F]]],
    ) -> dict[TopicPartition, F]:
        """Ask the leader of each partition, one request to each leader, until all have answered.

        `build` makes the request for some of the partitions, `read` finds in a response each
        partition's error and result. An error that does not pass is raised for its partition.
        """
        results: dict[TopicPartition, F] = {}
        budget = self.retry_budget()
        while left := {part: want for part, want in wanted.items() if part not in results}:
            by_node: dict[int, dict[TopicPartition, W]] = {}
            for partition, node in (await self.leaders(left)).items():
                by_node.setdefault(node, {})[partition] = left[partition]
            answers = await asyncio.gather(
                *(self.ask(node, build(some)) for node, some in by_node.items()),
                return_exceptions=True,
            )
            failures: list[Exception] = []
            for answer in answers:
                if isinstance(answer, BaseException):
                    if not isinstance(answer, Exception):
                        raise answer
                    failures.append(answer)
                    continue
                for partition, number, result in read(answer):
                    error = error_code(number)
                    if error is ErrorCode.NONE:
                        results[partition] = result
                    else:
                        failures.append(KafkaError(error, f"partition {partition}"))
            if failures:
                fatal = next((error for error in failures if not is_retriable(error)), None)
                await budget.back_off(fatal or failures[0])
                if any(_is_stale(error) for error in failures):
                    await self.refresh({partition.topic for partition in left})
        return results

    def statistics(self) -> dict[str, int]:
        return {
            **self._connections.statistics(),
            "refreshes": self._refreshes,
            "nodes": len(self.metadata.nodes),
            "topics": len(self.metadata.topics),
        }


def _is_stale(error: Exception) -> bool:
    return not isinstance(error, KafkaError) or error.error in STALE_METADATA
