"""Brokers that are one cluster, and what they say of it themselves."""

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Generic, Self, TypeVar

from tests.interop.harness.processes import Member

from odradek.testing.cluster import ask
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)

HOST = "127.0.0.1"
TIMEOUT_S = 180.0  # a limit: a machine may be busy with something else
POLL_S = 0.02
METADATA_VERSION = 9

EVERY_TOPIC = ("*",)

MemberT = TypeVar("MemberT", bound=Member)


class NotInTime(AssertionError):
    """Something that should have come did not."""


def wait_until(holds: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Look again and again until it holds."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise NotInTime(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(POLL_S)


class Members(Generic[MemberT]):
    """Members by broker id. Nothing runs until `start`; leaving the block ends them all."""

    def __init__(self, brokers: Mapping[int, MemberT]) -> None:
        self.brokers = dict(brokers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    @property
    def ids(self) -> list[int]:
        return list(self.brokers)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def address(self, broker: int) -> str:
        return self.brokers[broker].address

    def running(self) -> list[int]:
        return [broker for broker, member in self.brokers.items() if member.is_running]

    def start(self, *ids: int) -> None:
        """Start these members or all, and wait until every running one knows every other."""
        for broker in ids or self.ids:
            self.brokers[broker].start()
        self.wait_until_known()

    def stop(self, broker: int) -> None:
        """A clean stop: the member hands its leaderships over first."""
        self.brokers[broker].stop()

    def kill(self, broker: int) -> None:
        """kill -9."""
        self.brokers[broker].kill()

    def wait_until_known(self) -> None:
        wait_until(self._is_complete, f"brokers {self.running()} to know each other")

    def _is_complete(self) -> bool:
        for broker, member in self.brokers.items():
            if member.ended_by_itself:
                raise AssertionError(f"broker {broker} ended by itself: see {member.log}")
        running = self.running()
        views = [self.metadata(broker) for broker in running]
        return all(
            view is not None
            and view.controller_id in running
            and sorted(node.node_id for node in view.brokers) == sorted(running)
            for view in views
        )

    def wait_until_agreed(self) -> None:
        """Until every running member names the same topics, replicas and leaders."""

        def agreed() -> bool:
            views = [self.metadata(broker, *EVERY_TOPIC) for broker in self.running()]
            if any(view is None for view in views):
                return False
            known = [
                {
                    (topic.name, part.partition_index): (part.leader_id, part.replica_nodes)
                    for topic in view.topics
                    for part in topic.partitions
                }
                for view in views
                if view is not None
            ]
            return all(each == known[0] for each in known)

        wait_until(agreed, "all brokers to say the same of the topics")

    def metadata(self, broker: int, *topics: str) -> MetadataResponse | None:
        """One member's view; None if it does not answer."""
        named = [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(
            topics=None if topics == EVERY_TOPIC else named,
            allow_auto_topic_creation=False,
        )
        try:
            return ask(HOST, self.brokers[broker].port, request, METADATA_VERSION, MetadataResponse)
        except OSError:
            return None

    def partitions(self, topic: str, broker: int | None = None) -> list[MetadataResponsePartition]:
        """A topic's partitions as one member sees them; none if it does not know the topic."""
        view = self.metadata(broker or self.running()[0], topic)
        return list(view.topics[0].partitions) if view is not None else []

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The broker that leads a partition, or None while nobody that runs does."""
        for part in self.partitions(topic):
            if part.partition_index == partition and part.leader_id in self.running():
                return int(part.leader_id)
        return None
