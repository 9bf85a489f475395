"""A client of a cluster: finds who to ask, asks, and asks again while the cluster changes.

Everything runs on the running event loop and takes its time from it; chance comes from an injected
`random.Random`. The verbs that users want are in `admin`, `groups`, `reading`, `producer` and
`consumer`; they stand on the four ways of asking here: any broker, one broker, the controller or a
group's coordinator, and the leaders of partitions.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Any, Self, TypeVar

from odradek.client.links import Address, Link, Links, parse_addresses
from odradek.client.retries import STALE_VIEW, Patience, error_code, is_passing
from odradek.client.view import View
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.schema import Message
from odradek.wire.topics import TopicPartition

TIMEOUT_S = 30.0
# How long a topic nobody knows is waited for: brokers hear of a new one a moment apart.
MISSING_TOPIC_S = 3.0

# What one of several brokers that could answer may take of the time before the next is asked.
ATTEMPT_SHARE = 0.25

W = TypeVar("W")
R = TypeVar("R")


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
    ) -> None:
        self.bootstrap = parse_addresses(bootstrap)
        self.timeout_s = timeout_s
        self.missing_topic_s = missing_topic_s
        self.rack = rack
        self.rng = rng or Random()
        self.view = View()
        self._links = Links(client_id, timeout_s)
        self._coordinators: dict[str, int] = {}
        self._refreshing: dict[tuple[str, ...] | None, asyncio.Task[None]] = {}
        self._refreshes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Whoever still waits for an answer gets a ConnectionError."""
        for task in self._refreshing.values():
            task.cancel()
        await asyncio.gather(*self._refreshing.values(), return_exceptions=True)
        await self._links.close()

    def patience(self, seconds: float | None = None) -> Patience:
        return Patience(self.timeout_s if seconds is None else seconds, self.rng)

    # Asking one broker

    async def link(self, node: int) -> Link:
        """The link to a broker by its id, which the view must know."""
        if node not in self.view.nodes:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node} is not alive")
        return await self._links.get(self.view.nodes[node].address)

    async def ask(self, node: int, message: Message, *, timeout: float | None = None) -> Any:
        """One broker's answer. A broken connection is an error like any other: it may pass."""
        link = await self.link(node)
        return await link.request(message, timeout=timeout)

    async def ask_any(self, message: Message) -> Any:
        """The answer of any broker: of one we are connected to, else in random order."""
        patience = self.patience()
        while True:
            known = [node.address for node in self.view.nodes.values()]
            self.rng.shuffle(known)
            known.sort(key=self._links.is_open, reverse=True)
            failures: dict[Address, Exception] = {}
            for address in dict.fromkeys([*known, *self.bootstrap]):
                try:
                    link = await self._links.get(address)
                    return await link.request(message, timeout=self.timeout_s * ATTEMPT_SHARE)
                except (OSError, TimeoutError) as error:
                    failures[address] = error
            reasons = "; ".join(
                str(error) if str(address) in str(error) else f"{address}: {error}"
                for address, error in failures.items()
            )
            await patience.pause(ConnectionError(f"no broker answers ({reasons})"))

    # The view

    async def refresh(self, topics: Iterable[str] | None = ()) -> View:
        """Ask for the state of the cluster and of these topics; None is all of them.

        Whoever asks for the same while an answer is awaited gets that one.
        """
        wanted = None if topics is None else tuple(sorted(set(topics)))
        task = self._refreshing.get(wanted)
        if task is None:
            task = self._refreshing[wanted] = asyncio.ensure_future(self._refresh(wanted))
            task.add_done_callback(lambda done: self._refreshed(wanted, done))
        await asyncio.shield(task)
        return self.view

    async def _refresh(self, wanted: tuple[str, ...] | None) -> None:
        topics = None if wanted is None else [MetadataRequestTopic(name=name) for name in wanted]
        response = await self.ask_any(
            MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        )
        self._refreshes += 1
        self.view.update(response, whole=wanted is None)

    def _refreshed(self, wanted: tuple[str, ...] | None, task: asyncio.Task[None]) -> None:
        del self._refreshing[wanted]
        if not task.cancelled():
            task.exception()  # those who waited have been told; there may be none left

    def forget(self, topic: str) -> None:
        """Let the next look-up of this topic's leaders ask the cluster again."""
        self.view.topics.pop(topic, None)

    async def known_topics(self, topics: Iterable[str]) -> View:
        """A view in which all these topics are; KafkaError says what is wrong with one."""
        names = sorted(set(topics))
        patience = self.patience(self.missing_topic_s)
        while True:
            await self.refresh(names)
            missing = [name for name in names if name not in self.view.topics]
            if not missing:
                return self.view
            await patience.pause(self.view.problem_with(missing[0]))

    # Asking the controller and coordinators

    async def ask_controller(self, message: Message, error_of: Callable[[Any], int]) -> Any:
        """The controller's answer, whoever that is by now. `error_of` finds NOT_CONTROLLER in it.

        Apache Kafka without ZooKeeper names any broker as controller and forwards.
        """
        patience = self.patience()
        while True:
            try:
                if self.view.controller_id not in self.view.nodes:
                    await self.refresh()
                if self.view.controller_id in self.view.nodes:
                    response = await self.ask(self.view.controller_id, message)
                    if error_of(response) != ErrorCode.NOT_CONTROLLER:
                        return response
                failure: Exception = KafkaError(
                    ErrorCode.NOT_CONTROLLER, "the cluster has no controller at present"
                )
            except (OSError, TimeoutError, KafkaError) as caught:
                failure = caught
            await patience.pause(failure)
            await self.refresh()

    async def ask_coordinator(
        self, group: str, message: Message, error_of: Callable[[Any], int]
    ) -> Any:
        """The answer of the group's coordinator. An error that does not pass is the caller's."""
        patience = self.patience()
        while True:
            try:
                node = await self._coordinator(group)
                response = await self.ask(node, message)
                error = error_code(error_of(response))
                failure: Exception = KafkaError(error, f"group {group!r}")
                if not is_passing(failure):
                    return response
            except (OSError, TimeoutError, KafkaError) as caught:
                failure = caught
            self._coordinators.pop(group, None)
            await patience.pause(failure)

    async def _coordinator(self, group: str) -> int:
        if self._coordinators.get(group) not in self.view.nodes:
            response: FindCoordinatorResponse = await self.ask_any(
                FindCoordinatorRequest(key=group)
            )
            if response.error_code:
                raise KafkaError(
                    error_code(response.error_code),
                    f"group {group!r} has no coordinator: {response.error_message or ''}",
                )
            self._coordinators[group] = response.node_id
            if response.node_id not in self.view.nodes:
                await self.refresh()
        return self._coordinators[group]

    async def coordinator(self, group: str) -> int:
        """The broker that coordinates a group."""
        patience = self.patience()
        while True:
            try:
                return await self._coordinator(group)
            except KafkaError as error:
                await patience.pause(error)

    # Asking leaders

    async def leader(self, partition: TopicPartition) -> int:
        """The broker that leads a partition; waits for one to be elected."""
        return (await self.leaders([partition]))[partition]

    async def leaders(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Who leads each partition; waits until each has a leader."""
        partitions = list(partitions)
        with contextlib.suppress(KafkaError):
            return self._known_leaders(partitions)
        patience = self.patience(timeout_s)
        missing = self.patience(min(self.missing_topic_s, patience.remaining_s))
        while True:
            await self.refresh({partition.topic for partition in partitions})
            try:
                return self._known_leaders(partitions)
            except KafkaError as error:
                unknown = error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                await (missing if unknown else patience).pause(error)

    def _known_leaders(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.view.leader(partition) for partition in partitions}

    async def ask_leaders(
        self,
        wanted: Mapping[TopicPartition, W],
        build: Callable[[dict[TopicPartition, W]], Message],
        read: Callable[[Any], Iterator[tuple[TopicPartition, int, R]]],
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, R]:
        """Ask the leader of each partition, one request to each leader, until all have answered.

        `build` makes the request for some of the partitions, `read` finds in a response each
        partition's error and result. An error that does not pass is raised for its partition.
        """
        results: dict[TopicPartition, R] = {}
        patience = self.patience(timeout_s)
        while left := {part: want for part, want in wanted.items() if part not in results}:
            by_node: dict[int, dict[TopicPartition, W]] = {}
            for partition, node in (await self.leaders(left, timeout_s=timeout_s)).items():
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
                fatal = next((error for error in failures if not is_passing(error)), None)
                await patience.pause(fatal or failures[0])
                if any(_is_stale(error) for error in failures):
                    await self.refresh({partition.topic for partition in left})
        return results

    def statistics(self) -> dict[str, int]:
        return {
            **self._links.statistics(),
            "refreshes": self._refreshes,
            "nodes": len(self.view.nodes),
            "topics": len(self.view.topics),
        }


def _is_stale(error: Exception) -> bool:
    return not isinstance(error, KafkaError) or error.error in STALE_VIEW
