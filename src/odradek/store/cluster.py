"""The cluster's memory, typed: every node Kafka keeps, as values. Nobody above writes a path.

docs/spec/controller-and-replication.md sections 4.1 and 4.2,
docs/spec/interchange-with-apache-kafka.md sections B and C.

Reads that take ``watch`` leave it as the store does: one-shot, to be left again by reading again.
Where a node may be absent, the watch also waits for its creation.

Writes that only the controller may do take ``fence``, the version of ``/controller_epoch`` it was
elected with: each is a multi that checks it, and raises ``ControllerMoved`` if another was elected.
Bulk writes answer for each partition: the state as it now stands, or the error of that one alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from odradek.store import paths, payloads
from odradek.store.acls import Acls
from odradek.store.api import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Result,
    SessionExpired,
    Set,
    Stat,
    Store,
    StoreError,
    Watch,
    parent_of,
    wall_clock_ms,
)
from odradek.store.configs import Configs
from odradek.store.payloads import (
    BrokerRegistration,
    InvalidPayload,
    PartitionState,
    TopicNode,
)
from odradek.wire.topics import TopicPartition

log = logging.getLogger(__name__)

StateResult = PartitionState | StoreError

NO_SESSION = -1
# A ZooKeeper request is at most 1 MB, and the longest topic name has 249 characters.
STATES_PER_TRANSACTION = 1000
# Each failed attempt means that a controller or leader has written: they are done in the end.
REGISTER_ATTEMPTS_MAX = 1000


class ControllerMoved(Exception):
    """Another controller was elected: whoever meets this is no longer the controller."""


class ControllerTerm(NamedTuple):
    """An election won: the new controller epoch, and the fence for every write made in it."""

    epoch: int
    fence: int


class ClusterStore(Configs, Acls):
    """Typed access through one session of a store."""

    def __init__(self, store: Store, clock: Callable[[], int] = wall_clock_ms) -> None:
        super().__init__(store, clock)
        # The session to write in on behalf of a broker; None where no broker is written for.
        self._registered_in: int | None = None

    async def prepare(self) -> None:
        """Create the nodes every broker creates at start."""
        for path in paths.PERSISTENT:
            await self.ensure(path)

    # The cluster

    async def cluster_id(self) -> str | None:
        node = await self.read(paths.CLUSTER_ID)
        return None if node is None else payloads.decode_cluster_id(node[0])

    async def cluster_id_or(self, proposed: str) -> str:
        """The cluster's id; ``proposed`` becomes it if there is none yet."""
        await self.ensure(parent_of(paths.CLUSTER_ID))
        try:
            await self.store.create(paths.CLUSTER_ID, payloads.encode_cluster_id(proposed))
        except NodeExists:
            known = await self.cluster_id()
            assert known is not None, "nobody deletes the cluster id"
            return known
        return proposed

    async def next_broker_id(self, reserved_max: int) -> int:
        """A broker id nobody else was given, above the ids people choose."""
        await self.ensure(paths.BROKER_SEQUENCE)
        stat = await self.store.set(paths.BROKER_SEQUENCE, b"")
        return reserved_max + stat.version

    async def allocate_producer_ids(self, broker_id: int) -> range:
        """The next block of producer ids, for this broker alone."""
        while True:
            data, stat = await self.store.get(paths.PRODUCER_IDS)
            start = 0 if data is None else payloads.decode_producer_ids(data).stop
            if start > 2**63 - 1 - payloads.PRODUCER_ID_BLOCK_SIZE:
                raise InvalidPayload(paths.PRODUCER_IDS, "no producer ids are left")
            block = range(start, start + payloads.PRODUCER_ID_BLOCK_SIZE)
            try:
                await self.store.set(
                    paths.PRODUCER_IDS,
                    payloads.encode_producer_ids(broker_id, block),
                    stat.version,
                )
            except BadVersion:
                continue  # somebody took that block: read again and take the next
            return block

    # Brokers

    def require_registration(self) -> None:
        """From now on, write on behalf of a broker only in the session it registered in.

        A session is alive exactly as long as its ephemeral nodes, and nothing asked for in one
        session is done in another. So a process that was paused, and whose id another has taken
        since, changes no ISR and wins no election: it learns that its session is over first.
        """
        self._registered_in = NO_SESSION

    def _check_registered(self) -> None:
        """Call right before the write, without anything awaited between."""
        if self._registered_in not in (None, self.store.session_id):
            raise SessionExpired("", "the broker is not registered in this session")

    async def register_broker(
        self,
        broker: BrokerRegistration,
        *,
        wait_ms: int = 0,
        state_changes: Callable[[], Awaitable[Mapping[TopicPartition, PartitionState]]]
        | None = None,
    ) -> int:
        """Create the broker's ephemeral node and return its epoch.

        A node of another session is waited for up to ``wait_ms`` (a restart after a crash finds
        its predecessor's), then raises NodeExists. ``state_changes`` are asked for once the id is
        free, and asked for again whenever a state has changed meanwhile: each is written in a
        transaction that takes the id, so nothing is written on behalf of an id that is not ours.
        """
        path = paths.broker(broker.id)
        data = payloads.encode_broker(broker, self.clock())
        deadline = asyncio.get_running_loop().time() + wait_ms / 1000
        for _ in range(REGISTER_ATTEMPTS_MAX):
            stat = await self._wait_until_free(broker.id, deadline)
            if stat is None:
                changes = {} if state_changes is None else await state_changes()
                stat = await self._take_id(path, data, changes)
            if stat is not None:
                self._registered_in = stat.owner
                log.info("registered broker %d with epoch %d", broker.id, stat.created)
                return stat.created
        raise StoreError(path, f"{path} could not be created: partition states keep changing")

    async def _take_id(
        self, path: str, data: bytes, changes: Mapping[TopicPartition, PartitionState]
    ) -> Stat | None:
        """Register, with these changes; None if a state, or the owner of the id, has changed.

        What does not fit into one transaction goes before it, in transactions that take the id and
        give it back: no reader ever sees such a node.
        """
        take = Create(path, None, ephemeral=True)
        writes = [_write(tp, state) for tp, state in changes.items()]
        try:
            while len(writes) > STATES_PER_TRANSACTION:
                await self.store.multi([take, *writes[:STATES_PER_TRANSACTION], Delete(path)])
                del writes[:STATES_PER_TRANSACTION]
            *_, stat = await self.store.multi([take, *writes, Set(path, data, 0)])
        except (NodeExists, BadVersion):
            return None
        except NoNode as error:
            if error.path == path:
                raise  # the parent is missing, not the state of a topic that was deleted
            return None
        assert isinstance(stat, Stat)
        return stat

    async def _wait_until_free(self, broker_id: int, deadline: float) -> Stat | None:
        """Until no session has this id: None; or, if it is ours already, the node."""
        path = paths.broker(broker_id)
        loop = asyncio.get_running_loop()
        has_said_so = False
        while True:
            gone = asyncio.Event()
            node = await self.read(path, _setting(gone))
            if node is None or node[1].owner == self.store.session_id:
                return None if node is None else node[1]
            holder = f"session {node[1].owner:#x}{_address(broker_id, node)}"
            wait_s = deadline - loop.time()
            if not has_said_so and wait_s > 0:
                has_said_so = True
                log.warning(
                    "broker %d waits up to %.0f s for %s to end: it holds %s (a predecessor that"
                    " was killed, or a second broker with this id)",
                    broker_id,
                    wait_s,
                    holder,
                    path,
                )
            try:
                async with asyncio.timeout(max(wait_s, 0)):
                    await gone.wait()
            except TimeoutError:
                raise NodeExists(
                    path,
                    f"broker id {broker_id} is in use: {path} is held by {holder}, which is alive; "
                    f"stop that broker, or give this one another id (broker.id)",
                ) from None

    async def update_broker(self, broker: BrokerRegistration) -> None:
        """Rewrite the registration in place; the epoch stays."""
        await self.store.set(paths.broker(broker.id), payloads.encode_broker(broker, self.clock()))

    async def broker_ids(self, watch: Watch | None = None) -> list[int]:
        return sorted(int(name) for name in await self.names(paths.BROKER_IDS, watch))

    async def broker(self, broker_id: int, watch: Watch | None = None) -> BrokerRegistration | None:
        node = await self.read(paths.broker(broker_id), watch)
        if node is None:
            return None
        return payloads.decode_broker(broker_id, node[0], node[1].created)

    async def brokers(self) -> dict[int, BrokerRegistration]:
        ids = await self.broker_ids()
        nodes = await self.store.get_many([paths.broker(broker_id) for broker_id in ids])
        return {
            broker_id: payloads.decode_broker(broker_id, node[0], node[1].created)
            for broker_id, node in zip(ids, nodes, strict=True)
            if node is not None
        }

    # The controller

    async def controller_id(self, watch: Watch | None = None) -> int | None:
        node = await self.read(paths.CONTROLLER, watch)
        return None if node is None else payloads.decode_controller(node[0])[0]

    async def controller_epoch(self) -> ControllerTerm | None:
        """The latest epoch and the version it stands at; None before the first election."""
        node = await self.read(paths.CONTROLLER_EPOCH)
        if node is None:
            return None
        return ControllerTerm(payloads.decode_controller_epoch(node[0]), node[1].version)

    async def elect_controller(self, broker_id: int) -> ControllerTerm:
        """Take office: create ``/controller`` and raise the epoch, both or neither."""
        current = await self.controller_epoch()
        if current is None:
            try:
                await self.store.create(paths.CONTROLLER_EPOCH, payloads.encode_controller_epoch(0))
                current = ControllerTerm(0, 0)
            except NodeExists:
                current = await self.controller_epoch()
                assert current is not None, "nobody deletes the controller epoch"
        epoch = current.epoch + 1
        registration = payloads.encode_controller(broker_id, self.clock())
        self._check_registered()
        try:
            _, stat = await self.store.multi(
                [
                    Create(paths.CONTROLLER, registration, ephemeral=True),
                    Set(
                        paths.CONTROLLER_EPOCH,
                        payloads.encode_controller_epoch(epoch),
                        current.fence,
                    ),
                ]
            )
        except (NodeExists, BadVersion):
            return await self._confirm_election(broker_id, epoch)
        assert isinstance(stat, Stat)
        return ControllerTerm(epoch, stat.version)

    async def _confirm_election(self, broker_id: int, epoch: int) -> ControllerTerm:
        """Was it our own multi, sent twice over a lost connection, that took the place?"""
        elected = await self.controller_id()
        current = await self.controller_epoch()
        if elected == broker_id and current is not None and current.epoch == epoch:
            return current
        raise ControllerMoved(f"broker {elected} is the controller")

    async def resign_controller(self, fence: int) -> None:
        """Give the office back, if it is still ours."""
        self._check_registered()
        await self._fenced_all([[Delete(paths.CONTROLLER)]], fence, ignore=NoNode)

    async def disable_features(self, fence: int) -> None:
        """First step in office: the feature node as inter-broker protocol 2.6 has it."""
        node = await self.read(paths.FEATURES)
        if node is None:
            await self._fenced_all([[Create(paths.FEATURES, payloads.FEATURES_DISABLED)]], fence)
            return
        payloads.check_features(node[0])
        if node[0] != payloads.FEATURES_DISABLED:
            await self._fenced_all([[Set(paths.FEATURES, payloads.FEATURES_DISABLED)]], fence)

    async def _fenced_many(
        self, multis: Iterable[Sequence[Operation]], fence: int
    ) -> list[list[Result] | StoreError]:
        """Each multi behind a check of the fence; its own results, or its own error."""
        check = Check(paths.CONTROLLER_EPOCH, fence)
        results = await self.store.multi_many([check, *multi] for multi in multis)
        for result in results:
            if isinstance(result, StoreError) and result.path == paths.CONTROLLER_EPOCH:
                raise ControllerMoved(f"the controller epoch is no longer at version {fence}")
        return [r if isinstance(r, StoreError) else r[1:] for r in results]

    async def _fenced_all(
        self,
        multis: Iterable[Sequence[Operation]],
        fence: int,
        *,
        ignore: type[StoreError] | tuple[type[StoreError], ...] = (),
    ) -> None:
        """Each multi behind a check of the fence; the first error not ignored is raised."""
        for result in await self._fenced_many(multis, fence):
            if isinstance(result, StoreError) and not isinstance(result, ignore):
                raise result

    # Topics

    async def topics(self, watch: Watch | None = None) -> list[str]:
        return await self.names(paths.TOPICS, watch)

    async def topic(self, name: str, watch: Watch | None = None) -> TopicNode | None:
        node = await self.read(paths.topic(name), watch)
        return None if node is None else payloads.decode_topic(name, node[0])

    async def topics_and_versions(self, names: Collection[str]) -> dict[str, tuple[TopicNode, int]]:
        """The topics that exist of these, each with the version to rewrite it under."""
        nodes = await self.store.get_many([paths.topic(name) for name in names])
        return {
            name: (payloads.decode_topic(name, node[0]), node[1].version)
            for name, node in zip(names, nodes, strict=True)
            if node is not None
        }

    async def topic_nodes(
        self, names: Collection[str], watch: Watch | None = None
    ) -> dict[str, TopicNode]:
        """Many topics; those that do not exist are left out, and get no watch."""
        nodes = await self.store.get_many([paths.topic(name) for name in names], watch)
        return {
            name: payloads.decode_topic(name, node[0])
            for name, node in zip(names, nodes, strict=True)
            if node is not None
        }

    async def create_topic(
        self, name: str, topic: TopicNode, config: Mapping[str, str] | None = None
    ) -> None:
        """The configuration first, then the topic; its partitions are the controller's work."""
        if await self.store.exists(paths.topic(name)) is not None:
            raise NodeExists(paths.topic(name))
        await self.set_config(paths.ConfigKind.TOPICS, name, config or {})
        await self.store.create(paths.topic(name), payloads.encode_topic(topic))

    async def set_topic(
        self,
        name: str,
        topic: TopicNode,
        fence: int | None = None,
        *,
        version: int = ANY_VERSION,
    ) -> None:
        """Rewrite the assignment; without a fence where any broker may (CreatePartitions)."""
        write = Set(paths.topic(name), payloads.encode_topic(topic), version)
        if fence is None:
            await self.store.multi([write])
        else:
            await self._fenced_all([[write]], fence)

    async def partition_ids(self, topic: str) -> list[int]:
        """The partitions that have a node, whatever the assignment says."""
        return sorted(int(name) for name in await self.names(paths.partitions(topic)))

    async def delete_topic(self, name: str, fence: int) -> None:
        """The topic with all its partitions, then its configuration, then the request to delete it.

        The request goes last: a controller that dies halfway leaves it to the next one.
        """
        doomed = await self._subtree(paths.topic(name))
        doomed += [paths.config(paths.ConfigKind.TOPICS, name), paths.delete_topic(name)]
        await self._fenced_all([[Delete(path)] for path in doomed], fence, ignore=NoNode)

    async def _subtree(self, root: str) -> list[str]:
        """Every node from here down, children before their parents."""
        found, level = [], [root]
        while level:
            found.extend(level)
            names = await asyncio.gather(*(self.names(path) for path in level))
            level = [
                f"{path}/{child}"
                for path, children in zip(level, names, strict=True)
                for child in children
            ]
        return found[::-1]

    # Partition states

    async def partition_state(
        self, of: TopicPartition, watch: Watch | None = None
    ) -> PartitionState | None:
        node = await self.read(paths.partition_state(of), watch)
        return None if node is None else payloads.decode_state(of, node[0], node[1].version)

    async def partition_states(
        self, partitions: Collection[TopicPartition], watch: Watch | None = None
    ) -> dict[TopicPartition, PartitionState]:
        """Many states; partitions without one are left out, and get no watch."""
        return {
            of: state
            for of, (state, _) in (
                await self.partition_states_and_writes(partitions, watch)
            ).items()
        }

    async def partition_states_and_writes(
        self, partitions: Collection[TopicPartition], watch: Watch | None = None
    ) -> dict[TopicPartition, tuple[PartitionState, int]]:
        """Many states, each with the transaction that last wrote it."""
        nodes = await self.store.get_many([paths.partition_state(of) for of in partitions], watch)
        return {
            of: (state, node[1].modified)
            for of, node in zip(partitions, nodes, strict=True)
            if node is not None
            and (state := payloads.decode_state(of, node[0], node[1].version)) is not None
        }

    async def create_partition_states(
        self, states: Mapping[TopicPartition, PartitionState], fence: int
    ) -> dict[TopicPartition, StateResult]:
        """The nodes of new partitions, parents included. NodeExists where there is a state."""
        topics = dict.fromkeys(of.topic for of in states)
        parents = [*map(paths.partitions, topics), *map(paths.partition, states)]
        multis = [
            *([Create(path, None)] for path in parents),
            *(
                [Create(paths.partition_state(of), payloads.encode_state(state))]
                for of, state in states.items()
            ),
        ]
        results = await self._fenced_many(multis, fence)
        created = results[len(parents) :]
        return {
            of: result if isinstance(result, StoreError) else replace(state, partition_epoch=0)
            for (of, state), result in zip(states.items(), created, strict=True)
        }

    async def update_partition_states(
        self, states: Mapping[TopicPartition, PartitionState], fence: int
    ) -> dict[TopicPartition, StateResult]:
        """Each written if its node is still at its ``partition_epoch``; else BadVersion, NoNode."""
        results = await self._fenced_many(
            ([_write(of, state)] for of, state in states.items()),
            fence,
        )
        return {
            of: result if isinstance(result, StoreError) else _at(state, result)
            for (of, state), result in zip(states.items(), results, strict=True)
        }

    async def update_isr(self, of: TopicPartition, state: PartitionState) -> PartitionState | None:
        """A leader's own write, under ``partition_epoch``; None if the controller was faster.

        A node that already holds the wanted state is a success: our write, sent twice.
        """
        data = payloads.encode_state(state)
        self._check_registered()
        try:
            stat = await self.store.set(paths.partition_state(of), data, state.partition_epoch)
        except NoNode:
            return None
        except BadVersion:
            found = await self.partition_state(of)
            if found is None or replace(found, partition_epoch=state.partition_epoch) != state:
                return None
            return found
        return replace(state, partition_epoch=stat.version)

    # Requests to the controller

    async def deletions(self, watch: Watch | None = None) -> list[str]:
        """Topics somebody asked to delete."""
        return await self.names(paths.DELETE_TOPICS, watch)

    async def request_deletion(self, topic: str) -> None:
        """Raises NodeExists if it was asked for already."""
        await self.store.create(paths.delete_topic(topic), None)

    async def drop_deletions(self, topics: Iterable[str], fence: int) -> None:
        await self._fenced_all(
            [[Delete(paths.delete_topic(topic))] for topic in topics], fence, ignore=NoNode
        )

    async def reassignment(
        self, watch: Watch | None = None
    ) -> dict[TopicPartition, tuple[int, ...]]:
        """The legacy request to reassign; one that cannot be read is ignored, as in Kafka."""
        node = await self.read(paths.REASSIGN_PARTITIONS, watch)
        if node is None:
            return {}
        try:
            return payloads.decode_reassignment(node[0])
        except InvalidPayload as error:
            log.warning("ignoring the reassignment: %s", error)
            return {}

    async def request_reassignment(self, moves: Mapping[TopicPartition, Collection[int]]) -> None:
        """Raises NodeExists while another is in progress."""
        await self.ensure(parent_of(paths.REASSIGN_PARTITIONS))
        await self.store.create(paths.REASSIGN_PARTITIONS, payloads.encode_reassignment(moves))

    async def set_reassignment(
        self, moves: Mapping[TopicPartition, Collection[int]], fence: int
    ) -> None:
        """What is left of the request; with nothing left it goes."""
        if not moves:
            await self._fenced_all([[Delete(paths.REASSIGN_PARTITIONS)]], fence, ignore=NoNode)
            return
        data = payloads.encode_reassignment(moves)
        try:
            await self._fenced_all([[Set(paths.REASSIGN_PARTITIONS, data)]], fence)
        except NoNode:
            await self._fenced_all([[Create(paths.REASSIGN_PARTITIONS, data)]], fence)

    async def preferred_election(self, watch: Watch | None = None) -> set[TopicPartition] | None:
        """The legacy request for preferred leaders, if any; empty if nobody can read it."""
        node = await self.read(paths.PREFERRED_ELECTION, watch)
        if node is None:
            return None
        try:
            return payloads.decode_partitions(node[0], paths.PREFERRED_ELECTION)
        except InvalidPayload as error:
            log.warning("%s; taken for empty", error)
            return set()

    async def request_preferred_election(self, partitions: Iterable[TopicPartition]) -> None:
        """Raises NodeExists while another is in progress."""
        await self.ensure(parent_of(paths.PREFERRED_ELECTION))
        await self.store.create(paths.PREFERRED_ELECTION, payloads.encode_partitions(partitions))

    async def drop_preferred_election(self, fence: int) -> None:
        await self._fenced_all([[Delete(paths.PREFERRED_ELECTION)]], fence, ignore=NoNode)

    # Notifications to the controller

    async def notify_isr_changes(self, partitions: Iterable[TopicPartition]) -> None:
        await self.store.create(
            f"{paths.ISR_CHANGES}/{paths.ISR_CHANGE_PREFIX}",
            payloads.encode_partitions(partitions),
            sequential=True,
        )

    async def isr_notifications(self, watch: Watch | None = None) -> list[str]:
        """Names of the notifications that wait."""
        return await self.names(paths.ISR_CHANGES, watch)

    async def isr_changes(self, notifications: Collection[str]) -> set[TopicPartition]:
        """The partitions these notifications name."""
        where = [f"{paths.ISR_CHANGES}/{name}" for name in notifications]
        changed: set[TopicPartition] = set()
        for path, node in zip(where, await self.store.get_many(where), strict=True):
            if node is not None:
                changed |= payloads.decode_partitions(node[0], path)
        return changed

    async def drop_isr_notifications(self, notifications: Iterable[str], fence: int) -> None:
        await self._fenced_all(
            [[Delete(f"{paths.ISR_CHANGES}/{name}")] for name in notifications],
            fence,
            ignore=NoNode,
        )

    async def notify_log_dir_failure(self, broker_id: int) -> None:
        self._check_registered()
        await self.store.create(
            f"{paths.LOG_DIR_EVENTS}/{paths.LOG_DIR_EVENT_PREFIX}",
            payloads.encode_log_dir_event(broker_id),
            sequential=True,
        )

    async def log_dir_notifications(self, watch: Watch | None = None) -> list[str]:
        """Names of the notifications that wait."""
        return await self.names(paths.LOG_DIR_EVENTS, watch)

    async def log_dir_failures(self, notifications: Collection[str]) -> set[int]:
        """The brokers these notifications name."""
        where = [f"{paths.LOG_DIR_EVENTS}/{name}" for name in notifications]
        nodes = await self.store.get_many(where)
        return {
            payloads.decode_log_dir_event(node[0], path)
            for path, node in zip(where, nodes, strict=True)
            if node is not None
        }

    async def drop_log_dir_notifications(self, notifications: Iterable[str], fence: int) -> None:
        await self._fenced_all(
            [[Delete(f"{paths.LOG_DIR_EVENTS}/{name}")] for name in notifications],
            fence,
            ignore=NoNode,
        )


def _setting(event: asyncio.Event) -> Watch:
    return lambda _: event.set()


def _address(broker_id: int, node: Node) -> str:
    """Where the holder of an id listens, if its registration can be read."""
    try:
        endpoints = payloads.decode_broker(broker_id, node[0], node[1].created).endpoints
    except InvalidPayload:
        return ""
    return f" ({', '.join(map(str, endpoints))})"


def _write(tp: TopicPartition, state: PartitionState) -> Set:
    return Set(paths.partition_state(tp), payloads.encode_state(state), state.partition_epoch)


def _at(state: PartitionState, results: list[Result]) -> PartitionState:
    stat = results[0]
    assert isinstance(stat, Stat)
    return replace(state, partition_epoch=stat.version)
