"""Kill, pause, stop and restart brokers, move partitions, and account for every record.

The seed decides what is done to whom and when; how the processes fare meanwhile is the machine's
affair, so a run is repeatable in its torments, not in its interleavings (the simulator is).
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from odradek import Cluster
from odradek.client.blocking_client import Blocking
from odradek.client.reader import LATEST, offsets_at
from odradek.client.values import NewTopic
from odradek.testing.cluster import ClusterError
from odradek.wire.errors import KafkaError
from odradek.wire.topics import TopicPartition

from .account import Account
from .clients import Listener, Writer

TOPIC = "torment"
PARTITIONS = 6
CONFIG = {
    "min.insync.replicas": 2,
    "unclean.leader.election.enable": False,
    "zookeeper.session.timeout.ms": 3000,
    "replica.lag.time.max.ms": 5000,
    "log.segment.delete.delay.ms": 1000,
    "num.partitions": PARTITIONS,
}


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    seed: int
    account: Account
    unanswered: int
    torments: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        done = ", ".join(f"{name} {count}" for name, count in sorted(self.torments.items()))
        return (
            f"seed {self.seed}: {len(self.account.acknowledged)} acknowledged, "
            f"{len(self.account.read)} read, {self.account.given_up} given up; {done}"
        )


class Tormentor:
    """Does one bad thing after the other to a cluster."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.done: dict[str, int] = {}
        self._topics = 0

    def step(self) -> None:
        """One torment, and the relief of what it did."""
        act = self.rng.choice(
            [
                self.kill,
                self.kill,
                self.kill_controller,
                self.pause,
                self.stop,
                self.move,
                self.churn,
            ]
        )
        act()
        self.done[act.__name__] = self.done.get(act.__name__, 0) + 1

    def kill(self) -> None:
        self._kill(self.rng.choice(self.cluster.ids))

    def kill_controller(self) -> None:
        controller = self.cluster.controller_id()
        if controller is not None:
            self._kill(controller)

    def _kill(self, broker: int) -> None:
        self.cluster.kill(broker)
        time.sleep(self.rng.uniform(0, 2))
        self.cluster.start(broker)

    def pause(self) -> None:
        broker = self.rng.choice(self.cluster.ids)
        self.cluster.pause(broker)
        # Sometimes shorter than a session, sometimes longer: then it wakes up deposed.
        time.sleep(self.rng.uniform(0.2, 5))
        self.cluster.resume(broker)

    def stop(self) -> None:
        broker = self.rng.choice(self.cluster.ids)
        self.cluster.stop(broker)
        time.sleep(self.rng.uniform(0, 1))
        self.cluster.start(broker)

    def move(self) -> None:
        number = self.rng.randrange(PARTITIONS)
        replicas = self.rng.sample(self.cluster.ids, len(self.cluster.ids))
        with self._admin() as admin:
            admin.run(admin.admin.alter_reassignments({TopicPartition(TOPIC, number): replicas}))

    def churn(self) -> None:
        self._topics += 1
        name = f"passing-{self._topics}"
        self.create(name, 3)
        with self._admin() as admin:
            admin.run(admin.admin.delete_topics([name]))

    def create(self, name: str, partitions: int) -> None:
        with self._admin() as admin:
            admin.run(admin.admin.create_topics([NewTopic(name, partitions, 3)]))

    @contextmanager
    def _admin(self) -> Iterator[Blocking]:
        try:
            with Blocking(self.cluster.bootstrap_servers, timeout_s=10) as admin:
                yield admin
        except (KafkaError, OSError, TimeoutError) as error:
            # The cluster may be busy dying; what matters is what becomes of the records.
            name = f"refused {type(error).__name__}"
            self.done[name] = self.done.get(name, 0) + 1


def run(
    seed: int, seconds: float, data_dir: Path, progress: Callable[[str], None] = lambda line: None
) -> Outcome:
    """Torment a cluster for so long, let it heal, and count."""
    account = Account()
    with Cluster(brokers=3, config=CONFIG, data_dir=data_dir) as cluster:
        tormentor = Tormentor(cluster, seed)
        tormentor.create(TOPIC, PARTITIONS)
        cluster.wait_until(lambda: is_in_sync(cluster), "the topic")
        writer = Writer(cluster.bootstrap_servers, TOPIC, account, seed)
        listener = Listener(cluster.bootstrap_servers, TOPIC, PARTITIONS, account)
        writer.start()
        listener.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            tormentor.step()
            progress(
                f"{deadline - time.monotonic():6.0f} s left, {writer.sent} sent, "
                f"{len(account.acknowledged)} acknowledged, {len(account.read)} read, "
                f"{sum(tormentor.done.values())} torments"
            )
        unanswered = writer.finish()
        outcome = Outcome(seed, account, unanswered, tormentor.done)
        outcome.problems += heal(cluster, listener)
        directories = [cluster.directory_of(broker) for broker in cluster.ids]
    outcome.problems += [*shortcomings(account, unanswered), *differences(directories)]
    return outcome


def heal(cluster: Cluster, listener: Listener) -> list[str]:
    """Wait until all replicas are in sync and everything is read; what went wrong."""
    problems = []
    try:
        cluster.wait_until(lambda: is_in_sync(cluster), "all replicas in sync", 60)
        ends = _ends(cluster)
        cluster.wait_until(
            lambda: all(listener.positions[n.partition] >= end for n, end in ends.items()),
            "the listener to read everything",
            60,
        )
    except ClusterError as error:
        problems.append(str(error))
    listener.finish()
    return problems + listener.errors


def shortcomings(account: Account, unanswered: int) -> list[str]:
    """What the account has to complain of."""
    problems = [verdict] if (verdict := account.verdict()) else []
    if unanswered:
        problems.append(f"{unanswered} records were never answered for")
    return problems


def _ends(cluster: Cluster) -> dict[TopicPartition, int]:
    """Where each partition ends now: the listener must read that far."""
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    with Blocking(cluster.bootstrap_servers) as admin:
        found = admin.run(offsets_at(admin.client, dict.fromkeys(partitions, LATEST)))
    return {partition: at.offset for partition, at in found.items()}


def is_in_sync(cluster: Cluster) -> bool:
    described = cluster.topic(TOPIC)
    return (
        described is not None
        and len(described.partitions) == PARTITIONS
        and all(len(p.isr_nodes) == 3 and p.leader_id >= 0 for p in described.partitions)
    )


def differences(directories: list[Path]) -> list[str]:
    """Partitions whose replicas, after everybody has stopped, are not the same to the byte."""
    problems = []
    for number in range(PARTITIONS):
        contents = {
            directory: b"".join(
                segment.read_bytes()
                for segment in sorted((directory / f"{TOPIC}-{number}").glob("*.log"))
            )
            for directory in directories
        }
        if len(set(contents.values())) != 1:
            sizes = {directory.name: len(content) for directory, content in contents.items()}
            problems.append(f"replicas of {TOPIC}-{number} differ: {sizes}")
    return problems
