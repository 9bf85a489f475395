"""The cluster's metadata, typed: every node Kafka keeps, as values. No path is written outside of
this package.

docs/spec/controller-and-replication.md sections 4.1 and 4.2,
docs/spec/interchange-with-apache-kafka.md sections B and C.

Reads that take ``watch`` leave it as the store does: one-shot, to be left again by reading again.
Where a node may be absent, the watch also waits for its creation.

Writes that only the controller may do take ``fence``, the version of ``/controller_epoch`` it was
elected with: each is a multi that checks it, and raises ``ControllerMoved`` if another was elected.
Bulk writes answer for each partition: the state as it now stands, or why it was refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from odradek.store import paths, payloads
from odradek.store.acls import Acls
from odradek.store.admin_requests import AdminRequests
from odradek.store.api import (
    ANY_VERSION,
    BadVersion,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Set,
    Stat,
    Store,
    StoreError,
    Watch,
    parent_of,
    wall_clock_ms,
)
from odradek.store.configs import Configs
from odradek.store.controller_nodes import ControllerNodes
from odradek.store.nodes import ATTEMPTS_MAX, NO_NODE, NO_SESSION, Nodes, Refused
from odradek.store.notifications import NotificationNodes
from odradek.store.payloads import (
    BrokerRegistration,
    InvalidPayload,
    LeaderAndIsr,
    TopicNode,
)
from odradek.store.plan_moves import PlanMoves
from odradek.store.plan_throttles import PlanThrottles
from odradek.store.tokens import TokenNodes
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

# What a partition's state should become, given what it is; the same value if it should stay.
DecideState = Callable[[TopicPartition, LeaderAndIsr], LeaderAndIsr | Refused]
NO_STATE = Refused("there is no state node")
NOTHING_KNOWN: Mapping[TopicPartition, LeaderAndIsr] = MappingProxyType({})

# A ZooKeeper request is at most 1 MB, and the longest topic name has 249 characters.
STATES_PER_TRANSACTION = 1000
# Each failed attempt means that a controller or leader has written: they are done in the end.
REGISTER_ATTEMPTS_MAX = 1000


class ClusterStore:
    """Typed access through one session of a store.

    Brokers, topics and partition states are here; what else the cluster keeps is in stores of its
    own: `controller`, `requests`, `plan_moves`, `plan_throttles`, `notifications`, `configs`,
    `acls` and `tokens`.
    """

    def __init__(self, session: Store, clock: Callable[[], int] = wall_clock_ms) -> None:
        self.session = session
        self._nodes = nodes = Nodes(session, clock)
        self.controller = ControllerNodes(nodes)
        self.requests = AdminRequests(nodes)
        self.plan_moves = PlanMoves(nodes)
        self.plan_throttles = PlanThrottles(nodes)
        self.notifications = NotificationNodes(nodes)
        self.configs = Configs(nodes)
        self.acls = Acls(nodes)
        self.tokens = TokenNodes(nodes)

    async def prepare(self) -> None:
        """Create the nodes every broker creates at start."""
        for path in paths.PERSISTENT:
            await self._nodes.ensure(path)

    # The cluster

    async def cluster_id(self) -> str | None:
        node = await self._nodes.read(paths.CLUSTER_ID)
        return None if node is None else payloads.decode_cluster_id(node[0])

    async def cluster_id_or(self, proposed: str) -> str:
        """The cluster's id; ``proposed`` becomes it if there is none yet."""
        await self._nodes.ensure(parent_of(paths.CLUSTER_ID))
        try:
            await self.session.create(paths.CLUSTER_ID, payloads.encode_cluster_id(proposed))
        except NodeExists:
            known = await self.cluster_id()
            assert known is not None, "the cluster id is never deleted"
            return known
        return proposed

    async def next_broker_id(self, reserved_max: int) -> int:
        """A broker id no other was given, above the ids people choose."""
        await self._nodes.ensure(paths.BROKER_SEQUENCE)
        stat = await self.session.set(paths.BROKER_SEQUENCE, b"")
        return reserved_max + stat.version

    async def allocate_producer_ids(self, broker_id: int) -> range:
        """The next block of producer ids, for this broker alone."""
        block = range(0)

        def take_next(_: str, data: bytes | None, version: int) -> bytes:
            nonlocal block
            start = 0 if data is None else payloads.decode_producer_ids(data).stop
            if start > 2**63 - 1 - payloads.PRODUCER_ID_BLOCK_SIZE:
                raise InvalidPayload(paths.PRODUCER_IDS, "no producer ids are left")
            block = range(start, start + payloads.PRODUCER_ID_BLOCK_SIZE)
            return payloads.encode_producer_ids(broker_id, block)

        path = paths.PRODUCER_IDS
        outcome = (await self._nodes.update({path: path}, take_next, None))[path]
        if isinstance(outcome, Refused):
            raise StoreError(path, outcome.reason)
        return block

    # Brokers

    def require_registration(self) -> None:
        """From now on, write on behalf of a broker only in the session it registered in.

        A session is alive exactly as long as its ephemeral nodes, and nothing asked for in one
        session is done in another. So a process that was paused, and whose id another has taken
        since, changes no ISR and wins no election: it learns that its session is over first.
        """
        self._nodes.registered_in = NO_SESSION

    async def register_broker(
        self,
        broker: BrokerRegistration,
        *,
        wait_ms: int = 0,
        state_changes: Callable[[], Awaitable[Mapping[TopicPartition, LeaderAndIsr]]] | None = None,
    ) -> int:
        """Create the broker's ephemeral node and return its epoch.

        A node of another session is waited for up to ``wait_ms`` (a restart after a crash finds
        its predecessor's), then raises NodeExists. A broker that was registered before does not
        wait for one that has taken its id since: that one is in the ISRs now, with other logs.
        ``state_changes`` are asked for once the id is
        free, and asked for again whenever a state has changed meanwhile: each is written in a
        transaction that takes the id, so nothing is written on behalf of an id that is not ours.
        """
        path = paths.broker(broker.id)
        data = payloads.encode_broker(broker, self._nodes.clock())
        deadline = asyncio.get_running_loop().time() + wait_ms / 1000
        for _ in range(REGISTER_ATTEMPTS_MAX):
            stat = await self._wait_until_free(broker.id, deadline)
            if stat is None:
                changes = {} if state_changes is None else await state_changes()
                stat = await self._take_id(path, data, changes)
            if stat is not None:
                self._nodes.registered_in = stat.owner
                logger.info("registered broker %d with epoch %d", broker.id, stat.created)
                return stat.created
        raise StoreError(path, f"{path} could not be created: partition states keep changing")

    async def _take_id(
        self, path: str, data: bytes, changes: Mapping[TopicPartition, LeaderAndIsr]
    ) -> Stat | None:
        """Register, with these changes; None if a state, or the owner of the id, has changed.

        What does not fit into one transaction goes before it, in transactions that take the id and
        give it back: no reader ever sees such a node.
        """
        take = Create(path, None, ephemeral=True)
        writes = [_write(tp, state) for tp, state in changes.items()]
        try:
            while len(writes) > STATES_PER_TRANSACTION:
                await self.session.multi([take, *writes[:STATES_PER_TRANSACTION], Delete(path)])
                del writes[:STATES_PER_TRANSACTION]
            *_, stat = await self.session.multi([take, *writes, Set(path, data, 0)])
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
            node = await self._nodes.read(path, _setting(gone))
            if node is None or node[1].owner == self.session.session_id:
                return None if node is None else node[1]
            holder = f"session {node[1].owner:#x}{_address(broker_id, node)}"
            was_taken = self._nodes.registered_in not in (None, NO_SESSION, node[1].owner)
            wait_s = 0.0 if was_taken else deadline - loop.time()
            if not has_said_so and wait_s > 0:
                has_said_so = True
                logger.warning(
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

    async def broker_ids(self, watch: Watch | None = None) -> list[int]:
        return sorted(int(name) for name in await self._nodes.names(paths.BROKER_IDS, watch))

    async def broker(self, broker_id: int, watch: Watch | None = None) -> BrokerRegistration | None:
        node = await self._nodes.read(paths.broker(broker_id), watch)
        if node is None:
            return None
        return payloads.decode_broker(broker_id, node[0], node[1].created)

    async def brokers(self) -> dict[int, BrokerRegistration]:
        ids = await self.broker_ids()
        nodes = await self.session.get_many([paths.broker(broker_id) for broker_id in ids])
        return {
            broker_id: payloads.decode_broker(broker_id, node[0], node[1].created)
            for broker_id, node in zip(ids, nodes, strict=True)
            if node is not None
        }

    # Topics

    async def topics(self, watch: Watch | None = None) -> list[str]:
        return await self._nodes.names(paths.TOPICS, watch)

    async def topic(self, name: str, watch: Watch | None = None) -> TopicNode | None:
        node = await self._nodes.read(paths.topic(name), watch)
        return None if node is None else payloads.decode_topic(name, node[0])

    async def topics_and_versions(self, names: Collection[str]) -> dict[str, tuple[TopicNode, int]]:
        """The topics that exist of these, each with the version to rewrite it under."""
        nodes = await self.session.get_many([paths.topic(name) for name in names])
        return {
            name: (payloads.decode_topic(name, node[0]), node[1].version)
            for name, node in zip(names, nodes, strict=True)
            if node is not None
        }

    async def topic_nodes(
        self, names: Collection[str], watch: Watch | None = None
    ) -> dict[str, TopicNode]:
        """Many topics; those that do not exist are left out, and get no watch."""
        nodes = await self.session.get_many([paths.topic(name) for name in names], watch)
        return {
            name: payloads.decode_topic(name, node[0])
            for name, node in zip(names, nodes, strict=True)
            if node is not None
        }

    async def create_topic(
        self, name: str, topic: TopicNode, config: Mapping[str, str] | None = None
    ) -> None:
        """The configuration first, then the topic; its partitions are the controller's work."""
        if await self.session.exists(paths.topic(name)) is not None:
            raise NodeExists(paths.topic(name))
        await self.configs.set(paths.ConfigKind.TOPICS, name, config or {})
        await self.session.create(paths.topic(name), payloads.encode_topic(topic))

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
        await self._nodes.write_all([[write]], fence)

    async def update_topics(
        self,
        names: Iterable[str],
        decide: Callable[[str, TopicNode], TopicNode | Refused],
        fence: int,
    ) -> dict[str, Refused]:
        """Rewrite these topics, each from what it holds; answers those that were not written."""

        def rewrite(name: str, data: bytes | None, version: int) -> bytes | Refused:
            decided = decide(name, payloads.decode_topic(name, data))
            return decided if isinstance(decided, Refused) else payloads.encode_topic(decided)

        where = {name: paths.topic(name) for name in names}
        outcomes = await self._nodes.update(where, rewrite, fence)
        return {name: each for name, each in outcomes.items() if isinstance(each, Refused)}

    async def partition_ids(self, topic: str) -> list[int]:
        """The partitions that have a node, whatever the assignment says."""
        return sorted(int(name) for name in await self._nodes.names(paths.partitions(topic)))

    async def delete_topic(self, name: str, fence: int) -> None:
        """The topic with all its partitions, then its configuration, then the request to delete it.

        The request goes last, and alone: a controller that dies halfway leaves it to the next one,
        and of several deletions on their way one may be lost with the connection, and be repeated
        after those behind it.
        """
        await self._delete_tree(paths.topic(name), fence)
        for path in (paths.config(paths.ConfigKind.TOPICS, name), paths.delete_topic(name)):
            await self._nodes.write_all([[Delete(path)]], fence, ignore=NoNode)

    async def _delete_tree(self, root: str, fence: int) -> None:
        """A node that is not empty has a child that was created meanwhile, or is repeated."""
        for _ in range(ATTEMPTS_MAX):
            doomed = [[Delete(path)] for path in await self._subtree(root)]
            try:
                return await self._nodes.write_all(doomed, fence, ignore=NoNode)
            except NotEmpty:
                logger.info("%s: a node in it is not empty, deleting again", root)
        raise NotEmpty(root)

    async def _subtree(self, root: str) -> list[str]:
        """Every node from here down, children before their parents."""
        found, level = [], [root]
        while level:
            found.extend(level)
            names = await asyncio.gather(*(self._nodes.names(path) for path in level))
            level = [
                f"{path}/{child}"
                for path, children in zip(level, names, strict=True)
                for child in children
            ]
        return found[::-1]

    # Partition states

    async def partition_state(
        self, tp: TopicPartition, watch: Watch | None = None
    ) -> LeaderAndIsr | None:
        node = await self._nodes.read(paths.partition_state(tp), watch)
        return None if node is None else payloads.decode_state(tp, node[0], node[1].version)

    async def partition_states(
        self, tps: Collection[TopicPartition], watch: Watch | None = None
    ) -> dict[TopicPartition, LeaderAndIsr]:
        """Many states; partitions without one are left out, and get no watch."""
        found = await self.partition_states_and_writes(tps, watch)
        return {tp: state for tp, (state, _) in found.items()}

    async def partition_states_and_writes(
        self, tps: Collection[TopicPartition], watch: Watch | None = None
    ) -> dict[TopicPartition, tuple[LeaderAndIsr, int]]:
        """Many states, each with the transaction that last wrote it."""
        nodes = await self.session.get_many([paths.partition_state(tp) for tp in tps], watch)
        return {
            tp: (state, node[1].modified)
            for tp, node in zip(tps, nodes, strict=True)
            if node is not None
            and (state := payloads.decode_state(tp, node[0], node[1].version)) is not None
        }

    async def create_partition_states(
        self, states: Mapping[TopicPartition, LeaderAndIsr], fence: int
    ) -> dict[TopicPartition, LeaderAndIsr | Refused]:
        """The nodes of new partitions, parents included; refused where there is another state.

        A node that holds what we wanted is our own creation, sent twice over a lost connection.
        """
        topics = dict.fromkeys(tp.topic for tp in states)
        parents = [*map(paths.partitions, topics), *map(paths.partition, states)]
        multis = [
            *([Create(path, None)] for path in parents),
            *(
                [Create(paths.partition_state(tp), payloads.encode_state(state))]
                for tp, state in states.items()
            ),
        ]
        results = (await self._nodes.write_many(multis, fence))[len(parents) :]
        wanted = {tp: replace(state, partition_epoch=0) for tp, state in states.items()}
        errors = {
            tp: result
            for tp, result in zip(states, results, strict=True)
            if isinstance(result, StoreError)
        }
        existing = [tp for tp, error in errors.items() if isinstance(error, NodeExists)]
        found = await self.partition_states(existing) if existing else {}
        return {
            tp: Refused(
                f"the state node was not created: {type(errors[tp]).__name__} {errors[tp].path}"
            )
            if tp in errors and found.get(tp) != state
            else state
            for tp, state in wanted.items()
        }

    async def update_partition_states(
        self,
        tps: Iterable[TopicPartition],
        decide: DecideState,
        fence: int | None,
        known: Mapping[TopicPartition, LeaderAndIsr] = NOTHING_KNOWN,
    ) -> dict[TopicPartition, LeaderAndIsr | Refused]:
        """The one way to change states that others write too: read, decide, write under the version
        that was read, and again where a leader or the controller was faster.

        Answers the state as it now stands, with its partition epoch, or why it was not written. A
        state that is decided to stay as it is, is not written. Without a fence for a broker that
        changes its own place in the ISR.

        What is `known` is not read first: it is written under the version it had. Only a decision
        not to write is made from what the node holds now.
        """
        states = await self._update_known(known, decide, fence)
        where = {tp: paths.partition_state(tp) for tp in tps if tp not in states}
        decided: dict[TopicPartition, LeaderAndIsr] = {}

        def rewrite(tp: TopicPartition, data: bytes | None, version: int) -> bytes | Refused:
            state = payloads.decode_state(tp, data, version)
            if state is None:
                return NO_STATE
            new = decide(tp, state)
            if isinstance(new, Refused):
                return new
            decided[tp] = new
            return data if new is state and data is not None else payloads.encode_state(new)

        outcomes = await self._nodes.update(where, rewrite, fence) if where else {}
        for tp, outcome in outcomes.items():
            if isinstance(outcome, Refused):
                states[tp] = NO_STATE if outcome is NO_NODE else outcome
            else:
                states[tp] = replace(decided[tp], partition_epoch=outcome)
        return states

    async def _update_known(
        self, known: Mapping[TopicPartition, LeaderAndIsr], decide: DecideState, fence: int | None
    ) -> dict[TopicPartition, LeaderAndIsr | Refused]:
        """Those that were written: they still were as they are known."""
        decided: dict[TopicPartition, LeaderAndIsr] = {}
        for tp, state in known.items():
            new = decide(tp, state)
            if isinstance(new, LeaderAndIsr) and new is not state:
                decided[tp] = new
        if not decided:
            return {}
        results = await self._nodes.write_many(
            (
                [
                    Set(
                        paths.partition_state(tp),
                        payloads.encode_state(new),
                        known[tp].partition_epoch,
                    )
                ]
                for tp, new in decided.items()
            ),
            fence,
        )
        written: dict[TopicPartition, LeaderAndIsr | Refused] = {}
        for (tp, new), result in zip(decided.items(), results, strict=True):
            if not isinstance(result, StoreError):
                (stat,) = result
                assert isinstance(stat, Stat)
                written[tp] = replace(new, partition_epoch=stat.version)
        return written

    async def update_isr(self, tp: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
        """A leader's own write, under ``partition_epoch``; None if the controller was faster.

        A node that already holds the wanted state is a success: our write, sent twice.
        """
        data = payloads.encode_state(state)
        self._nodes.check_registered()
        try:
            stat = await self.session.set(paths.partition_state(tp), data, state.partition_epoch)
        except NoNode:
            return None
        except BadVersion:
            found = await self.partition_state(tp)
            if found is None or replace(found, partition_epoch=state.partition_epoch) != state:
                return None
            return found
        return replace(state, partition_epoch=stat.version)


def _setting(event: asyncio.Event) -> Watch:
    return lambda _: event.set()


def _address(broker_id: int, node: Node) -> str:
    """Where the holder of an id listens, if its registration can be read."""
    try:
        endpoints = payloads.decode_broker(broker_id, node[0], node[1].created).endpoints
    except InvalidPayload:
        return ""
    return f" ({', '.join(map(str, endpoints))})"


def _write(tp: TopicPartition, state: LeaderAndIsr) -> Set:
    return Set(paths.partition_state(tp), payloads.encode_state(state), state.partition_epoch)
