"""The typed store: what Kafka's nodes look like after each step, on every store."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from tests.store.conftest import Backend, Recorder

from odradek.store import paths, payloads
from odradek.store.api import (
    BadVersion,
    EventKind,
    Node,
    NodeExists,
    SessionEvent,
    SessionExpired,
    Watch,
    WatchEvent,
)
from odradek.store.change_nodes import ChangeNotification
from odradek.store.cluster import ClusterStore
from odradek.store.configs import NoController
from odradek.store.controller_nodes import ControllerTerm
from odradek.store.nodes import ControllerMoved, Refused
from odradek.store.payloads import (
    BrokerRegistration,
    Endpoint,
    InvalidPayload,
    LeaderAndIsr,
    TopicNode,
)
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.topics import TopicPartition

OLD, NEW = ProtocolVersion.V2_6_IV0, ProtocolVersion.V3_9_IV0
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def broker(broker_id: int, port: int = 9092) -> BrokerRegistration:
    return BrokerRegistration(broker_id, -1, (Endpoint("h", port),))


async def partitions_of_two(cluster: ClusterStore, count: int, fence: int) -> list[TopicPartition]:
    """Partitions of topic t, led by broker 1, with broker 2 in sync."""
    partitions = [TopicPartition("t", number) for number in range(count)]
    await cluster.create_topic("t", TopicNode({tp.partition: (1, 2) for tp in partitions}))
    state = LeaderAndIsr(1, 0, (1, 2), 1)
    await cluster.create_partition_states(dict.fromkeys(partitions, state), fence)
    return partitions


def left(state: LeaderAndIsr) -> LeaderAndIsr:
    return replace(state, leader=-1, leader_epoch=state.leader_epoch + 1, isr=(2,))


@pytest.fixture
async def cluster(backend: Backend) -> ClusterStore:
    cluster = ClusterStore(await backend.open(), clock=lambda: 1600000000000)
    await cluster.prepare()
    return cluster


@pytest.fixture
async def other(backend: Backend, cluster: ClusterStore) -> ClusterStore:
    return ClusterStore(await backend.open(), clock=lambda: 1600000000000)


async def test_every_broker_prepares_the_same_nodes_with_null_data(
    cluster: ClusterStore, other: ClusterStore
) -> None:
    await other.prepare()
    for path in paths.PERSISTENT:
        assert (await cluster.session.get(path))[0] is None
    assert await cluster.session.children("/config") == [
        "brokers",
        "changes",
        "clients",
        "ips",
        "topics",
        "users",
    ]


class TestTheCluster:
    async def test_the_first_id_stays(self, cluster: ClusterStore, other: ClusterStore) -> None:
        assert await cluster.cluster_id() is None
        assert await cluster.cluster_id_or("4L6g3nShT-eMCtK--X86sw") == "4L6g3nShT-eMCtK--X86sw"
        assert await other.cluster_id_or("another") == "4L6g3nShT-eMCtK--X86sw"
        assert await other.cluster_id() == "4L6g3nShT-eMCtK--X86sw"

    async def test_generated_broker_ids(self, cluster: ClusterStore, other: ClusterStore) -> None:
        assert await cluster.next_broker_id(1000) == 1001
        assert await other.next_broker_id(1000) == 1002
        assert (await cluster.session.get("/brokers/seqid"))[0] == b""

    async def test_producer_ids_are_given_once(
        self, cluster: ClusterStore, other: ClusterStore
    ) -> None:
        blocks = await asyncio.gather(
            *(each.allocate_producer_ids(1) for each in (cluster, other) for _ in range(5))
        )
        assert sorted(block.start for block in blocks) == list(range(0, 10_000, 1000))
        assert all(len(block) == 1000 for block in blocks)

    async def test_an_empty_block_is_an_error_that_names_the_node(
        self, cluster: ClusterStore
    ) -> None:
        await cluster.session.set(paths.PRODUCER_IDS, b"")
        with pytest.raises(InvalidPayload, match="/latest_producer_id_block"):
            await cluster.allocate_producer_ids(1)


class TestBrokers:
    async def test_the_epoch_is_the_creation(
        self, cluster: ClusterStore, other: ClusterStore, recorder: type[Recorder]
    ) -> None:
        came = recorder()
        assert await other.broker_ids(came) == []
        epoch = await cluster.register_broker(broker(1))
        assert await came.next() == WatchEvent(EventKind.CHILDREN, "/brokers/ids")
        _, stat = await other.session.get("/brokers/ids/1")
        assert stat.created == epoch and stat.version == 1
        assert stat.owner == cluster.session.session_id
        assert await other.brokers() == {1: BrokerRegistration(1, epoch, (Endpoint("h", 9092),))}
        assert await cluster.register_broker(broker(1)) == epoch

    async def test_a_registration_changes_in_place(
        self, cluster: ClusterStore, other: ClusterStore, recorder: type[Recorder]
    ) -> None:
        epoch = await cluster.register_broker(broker(1))
        changed = recorder()
        await other.broker(1, changed)
        data = payloads.encode_broker(broker(1, 9999), 0)
        await cluster.session.set("/brokers/ids/1", data)
        assert await changed.next() == WatchEvent(EventKind.CHANGED, "/brokers/ids/1")
        read = await other.broker(1)
        assert read is not None and read.epoch == epoch and read.endpoints[0].port == 9999

    async def test_an_id_in_use_is_refused(
        self, cluster: ClusterStore, other: ClusterStore
    ) -> None:
        await cluster.register_broker(broker(1))
        with pytest.raises(NodeExists) as refused:
            await other.register_broker(broker(1))
        message = str(refused.value)
        assert "broker id 1 is in use" in message and "another id" in message
        assert f"session {cluster.session.session_id:#x} (PLAINTEXT://h:9092)" in message

    async def test_a_predecessor_is_waited_for(
        self,
        backend: Backend,
        cluster: ClusterStore,
        other: ClusterStore,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        predecessor = await cluster.register_broker(broker(1))
        waiting = asyncio.create_task(other.register_broker(broker(1), wait_ms=20_000))
        while "broker 1 waits up to 20 s for session" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await backend.expire(cluster.session)
        assert await waiting > predecessor
        assert caplog.text.count("waits up to") == 1

    async def test_after_an_expired_session_the_broker_registers_again(
        self, backend: Backend, cluster: ClusterStore, other: ClusterStore, recorder: type[Recorder]
    ) -> None:
        first = await cluster.register_broker(broker(1))
        events = recorder()
        cluster.session.on_session(events)
        await backend.expire(cluster.session)
        await events.until(SessionEvent.EXPIRED)
        await events.until(SessionEvent.CONNECTED)
        assert await cluster.register_broker(broker(1)) > first

    async def test_a_broker_whose_id_was_taken_does_not_wait_for_it(
        self, backend: Backend, cluster: ClusterStore, other: ClusterStore, recorder: type[Recorder]
    ) -> None:
        """With the id it would get the trust that the other one's logs have earned."""
        await cluster.register_broker(broker(1))
        events = recorder()
        cluster.session.on_session(events)
        await backend.expire(cluster.session)
        await other.register_broker(broker(1), wait_ms=20_000)
        await events.until(SessionEvent.CONNECTED)
        waiting = asyncio.create_task(cluster.register_broker(broker(1), wait_ms=20_000))
        done, _ = await asyncio.wait([waiting], timeout=10)
        assert done, "it waits for the other to end"
        with pytest.raises(NodeExists, match="broker id 1 is in use"):
            await waiting

    async def test_states_change_only_with_a_registration(
        self, cluster: ClusterStore, other: ClusterStore, fence: int
    ) -> None:
        await partitions_of_two(cluster, 1, fence)
        before = await cluster.partition_states([T0])
        asked = 0

        async def leave() -> dict[TopicPartition, LeaderAndIsr]:
            nonlocal asked
            asked += 1
            return {tp: left(state) for tp, state in (await other.partition_states([T0])).items()}

        await cluster.register_broker(broker(1))
        with pytest.raises(NodeExists):
            await other.register_broker(broker(1), state_changes=leave)
        assert not asked and await cluster.partition_states([T0]) == before
        await cluster.session.delete("/brokers/ids/1")
        epoch = await other.register_broker(broker(1), state_changes=leave)
        written = await cluster.partition_states_and_writes([T0])
        assert written == {T0: (LeaderAndIsr(-1, 1, (2,), 1, 1), epoch)}

    async def test_a_state_that_changes_meanwhile_is_asked_for_again(
        self, cluster: ClusterStore, other: ClusterStore, fence: int
    ) -> None:
        await partitions_of_two(cluster, 2, fence)
        asked = 0

        async def leave() -> dict[TopicPartition, LeaderAndIsr]:
            nonlocal asked
            asked += 1
            states = await other.partition_states([T0, T1])
            if asked == 1:
                await cluster.update_isr(T1, replace(states[T1], isr=(1,)))
            elif asked == 2:
                await cluster.delete_topic("t", fence)
            return {tp: left(state) for tp, state in states.items()}

        await other.register_broker(broker(1), state_changes=leave)
        assert asked == 3 and await cluster.broker(1) is not None

    async def test_more_states_than_fit_into_a_transaction(
        self,
        cluster: ClusterStore,
        other: ClusterStore,
        fence: int,
        monkeypatch: pytest.MonkeyPatch,
        recorder: type[Recorder],
    ) -> None:
        monkeypatch.setattr("odradek.store.cluster.STATES_PER_TRANSACTION", 2)
        partitions = await partitions_of_two(cluster, 5, fence)

        async def leave() -> dict[TopicPartition, LeaderAndIsr]:
            states = await other.partition_states(partitions)
            return {tp: left(state) for tp, state in states.items()}

        epoch = await other.register_broker(broker(1), state_changes=leave)
        states = await cluster.partition_states(partitions)
        assert {state.isr for state in states.values()} == {(2,)}
        registered = await cluster.broker(1)
        assert registered is not None and registered.epoch == epoch

    async def test_a_process_whose_id_another_has_taken_writes_nothing_for_it(
        self,
        backend: Backend,
        cluster: ClusterStore,
        other: ClusterStore,
        fence: int,
        recorder: type[Recorder],
    ) -> None:
        await partitions_of_two(cluster, 1, fence)
        state = LeaderAndIsr(1, 0, (1,), 1, 0)
        paused = ClusterStore(await backend.open())
        paused.require_registration()
        with pytest.raises(SessionExpired):
            await paused.update_isr(T0, state)
        await paused.register_broker(broker(1))
        events = recorder()
        paused.session.on_session(events)
        await backend.expire(paused.session)
        await other.register_broker(broker(1), wait_ms=20_000)
        await events.until(SessionEvent.CONNECTED)
        await cluster.controller.resign(fence)
        for write in (
            paused.update_isr(T0, state),
            paused.controller.elect(1),
            paused.controller.resign(fence),
            paused.delete_topic("t", fence),  # as a controller that has no successor yet
            paused.notifications.notify_log_dir_failure(1),
        ):
            with pytest.raises(SessionExpired):
                await write
        with pytest.raises(NodeExists):
            await paused.register_broker(broker(1))
        assert (await cluster.partition_states([T0]))[T0].isr == (1, 2)
        assert await other.update_isr(T0, state) is not None

    async def test_one_bad_registration_spoils_the_list_by_name(
        self, cluster: ClusterStore
    ) -> None:
        await cluster.register_broker(broker(1))
        await cluster.session.create("/brokers/ids/2", b"{}")
        with pytest.raises(InvalidPayload, match="/brokers/ids/2"):
            await cluster.brokers()


class TestTheController:
    async def test_the_first_election(
        self, cluster: ClusterStore, other: ClusterStore, recorder: type[Recorder]
    ) -> None:
        watch = recorder()
        assert await other.controller.id(watch) is None
        assert await cluster.controller.term() is None
        assert await cluster.controller.elect(1) == ControllerTerm(1, 1)
        assert await watch.next() == WatchEvent(EventKind.CREATED, "/controller")
        assert await other.controller.id() == 1
        assert await other.controller.term() == ControllerTerm(1, 1)
        assert (await cluster.session.get("/controller_epoch"))[0] == b"1"
        assert (await cluster.session.get("/controller"))[0] == (
            b'{"version":2,"brokerid":1,"timestamp":"1600000000000","kraftControllerEpoch":-1}'
        )

    async def test_there_is_one_at_a_time(self, cluster: ClusterStore, other: ClusterStore) -> None:
        results = await asyncio.gather(
            cluster.controller.elect(1), other.controller.elect(2), return_exceptions=True
        )
        assert sorted(isinstance(result, ControllerMoved) for result in results) == [False, True]

    async def test_an_election_that_was_sent_twice_is_won_once(self, cluster: ClusterStore) -> None:
        term = await cluster.controller.elect(1)
        assert await cluster.controller._confirm_election(1, term.epoch) == term
        with pytest.raises(ControllerMoved):
            await cluster.controller._confirm_election(1, term.epoch + 1)

    async def test_every_write_of_a_controller_that_was_replaced_is_refused(
        self, backend: Backend, cluster: ClusterStore, other: ClusterStore
    ) -> None:
        old = (await cluster.controller.elect(1)).fence
        await cluster.create_topic("t", TopicNode({0: (1,)}))
        state = LeaderAndIsr(1, 0, (1,), 1)
        await cluster.create_partition_states({T0: state}, old)
        await cluster.requests.request_deletion("t")
        await cluster.session.create("/admin/preferred_replica_election", b"{}")
        await cluster.notifications.notify_isr_changes([T0])
        await cluster.controller.resign(old)
        await other.controller.elect(2)
        before = await snapshot(other)
        for write in (
            cluster.controller.resign(old),
            cluster.controller.write_features(OLD, old),
            cluster.set_topic("t", TopicNode({0: (2,)}), old),
            cluster.delete_topic("t", old),
            cluster.create_partition_states({T1: state}, old),
            cluster.update_partition_states(
                [T0], lambda tp, found: LeaderAndIsr(2, 1, (2,), 1), old
            ),
            cluster.update_partition_states(
                [T0], lambda tp, found: LeaderAndIsr(2, 1, (2,), 1), old, {T0: state}
            ),
            cluster.requests.drop_deletions(["t"], old),
            cluster.requests.set_reassignment({T0: [2]}, old),
            cluster.requests.queue_reassignments({0: {T0: [2]}}, old),
            cluster.requests.rewrite_queued({0: {}}, old),
            cluster.update_topics(["t"], lambda name, node: TopicNode({0: (2,)}), old),
            cluster.requests.drop_preferred_election(old),
            cluster.notifications.drop_isr_notifications(["isr_change_0000000000"], old),
            cluster.notifications.drop_log_dir_notifications(["log_dir_event_0000000000"], old),
        ):
            with pytest.raises(ControllerMoved):
                await write
        assert await snapshot(other) == before

    async def test_the_feature_node_of_each_protocol(self, cluster: ClusterStore) -> None:
        """Acceptance 28: exactly this, and not written again while it says the same."""
        fence = (await cluster.controller.elect(1)).fence
        disabled = b'{"version":1,"status":0,"features":{}}'
        enabled = b'{"version":1,"status":1,"features":{}}'
        second = b'{"version":2,"status":1,"features":{}}'
        assert await cluster.controller.features_epoch() == -1
        writes = 0
        for text, expected in (
            ("2.6", disabled),
            ("2.7-IV0", enabled),
            ("2.8", enabled),
            ("3.2", enabled),
            ("3.3-IV0", second),
            ("3.9", second),
            ("2.8", enabled),
            ("2.6", disabled),
            ("3.9", second),
        ):
            before = await cluster.session.exists("/feature")
            protocol = ProtocolVersion.parse(text)
            await cluster.controller.write_features(protocol, fence)
            data, stat = await cluster.session.get("/feature")
            assert data == expected, text
            shown = stat.version if protocol.enables_features else -1
            assert await cluster.controller.features_epoch() == shown, text
            await cluster.controller.write_features(protocol, fence)
            assert (await cluster.session.get("/feature"))[1] == stat, text
            writes += before is None or stat.version != before.version
        assert (writes, stat.version) == (6, 5)

    async def test_a_feature_node_is_compared_after_decoding(self, cluster: ClusterStore) -> None:
        fence = (await cluster.controller.elect(1)).fence
        same = b'{ "features":{}, "status":1, "version":2 }'
        await cluster.session.create("/feature", same)
        await cluster.controller.write_features(NEW, fence)
        assert (await cluster.session.get("/feature"))[0] == same
        finalized = b'{"version":2,"status":1,"features":{"f":{"max_version_level":1}}}'
        await cluster.session.set("/feature", finalized)
        await cluster.controller.write_features(NEW, fence)
        assert (await cluster.session.get("/feature"))[0] == finalized
        await cluster.controller.write_features(OLD, fence)
        written, _ = await cluster.session.get("/feature")
        assert written is not None and b'"status":0,"features":{}' in written
        await cluster.session.set("/feature", b"")
        assert await cluster.controller.features_epoch() == -1
        with pytest.raises(InvalidPayload, match="/feature"):
            await cluster.controller.write_features(NEW, fence)


async def snapshot(cluster: ClusterStore) -> dict[str, object]:
    """Every node but the two the election itself writes."""
    found = await cluster._subtree("/brokers") + await cluster._subtree("/admin")
    found += await cluster._subtree("/config") + await cluster._subtree("/isr_change_notification")
    return {path: await cluster.session.get(path) for path in found}


@pytest.fixture
async def fence(cluster: ClusterStore) -> int:
    return (await cluster.controller.elect(1)).fence


class TestTopics:
    async def test_creation(
        self, cluster: ClusterStore, other: ClusterStore, fence: int, recorder: type[Recorder]
    ) -> None:
        watch = recorder()
        assert await other.topics(watch) == []
        await cluster.create_topic("t", TopicNode({0: (1, 2)}), {"retention.ms": "5"})
        assert await watch.next() == WatchEvent(EventKind.CHILDREN, "/brokers/topics")
        assert await other.topics() == ["t"]
        assert await other.topic("t") == TopicNode({0: (1, 2)})
        assert await other.configs.get("topics", "t") == {"retention.ms": "5"}
        assert await other.session.children("/brokers/topics/t") == []
        with pytest.raises(NodeExists):
            await other.create_topic("t", TopicNode({0: (1,)}))
        await cluster.create_topic("u", TopicNode({0: (1,)}))
        assert (await other.session.get("/config/topics/u"))[0] == b'{"version":1,"config":{}}'

    async def test_many_are_read_and_watched(
        self, cluster: ClusterStore, other: ClusterStore, fence: int, recorder: type[Recorder]
    ) -> None:
        for name in "tu":
            await cluster.create_topic(name, TopicNode({0: (1,)}))
        watch = recorder()
        nodes = await other.topic_nodes(["t", "missing", "u"], watch)
        assert nodes == {"t": TopicNode({0: (1,)}), "u": TopicNode({0: (1,)})}
        await cluster.set_topic("u", TopicNode({0: (1,), 1: (2,)}))
        assert await watch.next() == WatchEvent(EventKind.CHANGED, "/brokers/topics/u")
        await cluster.set_topic("t", TopicNode({0: (2, 1)}, {0: (2,)}, {0: (1,)}), fence)
        assert await other.topic("t") == TopicNode({0: (2, 1)}, {0: (2,)}, {0: (1,)})

    async def test_one_is_rewritten_under_the_version_that_was_read(
        self, cluster: ClusterStore, other: ClusterStore, fence: int
    ) -> None:
        await cluster.create_topic("t", TopicNode({0: (1,)}))
        found = await cluster.topics_and_versions(["absent", "t"])
        assert list(found) == ["t"]
        node, version = found["t"]
        assert node == TopicNode({0: (1,)})
        grown = TopicNode({0: (1,), 1: (2,)})
        await other.set_topic("t", grown, version=version)
        with pytest.raises(BadVersion):
            await cluster.set_topic("t", TopicNode({0: (1,), 1: (3,)}), version=version)
        assert await cluster.topic("t") == grown

    async def test_deletion_goes_from_the_leaves_and_ends_with_the_request(
        self, cluster: ClusterStore, other: ClusterStore, fence: int, recorder: type[Recorder]
    ) -> None:
        await cluster.create_topic("t", TopicNode({0: (1,), 1: (1,)}))
        state = LeaderAndIsr(1, 0, (1,), 1)
        await cluster.create_partition_states({T0: state, T1: state}, fence)
        watch = recorder()
        assert await other.requests.deletions(watch) == []
        await other.requests.request_deletion("t")
        await watch.next()
        assert await other.requests.deletions() == ["t"]
        assert (await other.session.get("/admin/delete_topics/t"))[0] is None
        with pytest.raises(NodeExists):
            await other.requests.request_deletion("t")
        assert await cluster.partition_ids("t") == [0, 1]
        await cluster.delete_topic("t", fence)
        assert await other.topics() == [] and await other.requests.deletions() == []
        assert await other.configs.entities("topics") == []
        await cluster.delete_topic("t", fence)

    async def test_what_appears_in_a_topic_while_it_is_deleted_goes_too(
        self,
        cluster: ClusterStore,
        other: ClusterStore,
        fence: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """As it also looks if a deletion is lost with the connection and repeated later; until
        all is gone, the request stays."""
        await cluster.create_topic("t", TopicNode({0: (1,), 1: (1,)}))
        state = LeaderAndIsr(1, 0, (1,), 1)
        await cluster.create_partition_states({T0: state}, fence)
        await other.requests.request_deletion("t")
        subtree = cluster._subtree
        requested: list[list[str]] = []

        async def list_and_lose(root: str) -> list[str]:
            found = await subtree(root)
            requested.append(await other.requests.deletions())
            if len(requested) == 1:
                await other.create_partition_states({T1: state}, fence)
            return found

        monkeypatch.setattr(cluster, "_subtree", list_and_lose)
        await cluster.delete_topic("t", fence)
        assert requested == [["t"], ["t"]]
        assert await other.topics() == [] and await other.requests.deletions() == []

    async def test_refused_deletions_are_dropped(self, cluster: ClusterStore, fence: int) -> None:
        await cluster.requests.request_deletion("t")
        await cluster.requests.drop_deletions(["t", "unknown"], fence)
        assert await cluster.requests.deletions() == []


class TestPartitionStates:
    async def test_a_life(
        self, cluster: ClusterStore, other: ClusterStore, fence: int, recorder: type[Recorder]
    ) -> None:
        await cluster.create_topic("t", TopicNode({0: (1, 2), 1: (1, 2)}))
        first = LeaderAndIsr(1, 0, (1, 2), 1)
        created = await cluster.create_partition_states({T0: first, T1: first, U0: first}, fence)
        assert created[T0] == created[T1] == first
        assert created[U0] == Refused(
            "the state node was not created: NoNode /brokers/topics/u/partitions/0/state"
        )
        # Sent twice over a lost connection: its own success.
        assert (await cluster.create_partition_states({T0: first}, fence))[T0] == first
        again = await cluster.create_partition_states({T0: LeaderAndIsr(2, 0, (2,), 1)}, fence)
        assert isinstance(again[T0], Refused)
        assert (await cluster.session.get("/brokers/topics/t/partitions"))[0] is None
        assert (await cluster.session.get("/brokers/topics/t/partitions/0"))[0] is None
        assert await other.partition_states([T0, U0, T1]) == {T0: first, T1: first}

        watch = recorder()
        assert await other.partition_state(T0, watch) == first
        second = LeaderAndIsr(2, 1, (2,), 1)
        updated = await cluster.update_partition_states(
            [T0, T1, U0], lambda tp, found: second if tp == T0 else Refused("not that one"), fence
        )
        assert updated == {
            T0: LeaderAndIsr(2, 1, (2,), 1, partition_epoch=1),
            T1: Refused("not that one"),
            U0: Refused("there is no state node"),
        }
        assert await watch.next_path() == "/brokers/topics/t/partitions/0/state"
        assert await other.partition_state(T0) == updated[T0]

    async def test_a_lost_race_is_read_and_decided_again(
        self,
        cluster: ClusterStore,
        other: ClusterStore,
        fence: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        await cluster.create_topic("t", TopicNode({0: (1, 2), 1: (1, 2)}))
        first = LeaderAndIsr(1, 0, (1, 2), 1)
        await cluster.create_partition_states({T0: first, T1: first}, fence)
        seen: list[tuple[TopicPartition, LeaderAndIsr]] = []
        get_many = cluster.session.get_many

        async def get_many_and_lose(
            paths: Sequence[str], watch: Watch | None = None
        ) -> list[Node | None]:
            nodes = await get_many(paths, watch)
            if not seen:
                await other.update_isr(T0, LeaderAndIsr(1, 0, (1,), 1, partition_epoch=0))
            return nodes

        def decide(tp: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr:
            seen.append((tp, state))
            return LeaderAndIsr(2, state.leader_epoch + 1, state.isr, 1)

        monkeypatch.setattr(cluster.session, "get_many", get_many_and_lose)
        updated = await cluster.update_partition_states([T0, T1], decide, fence)
        shrunk = LeaderAndIsr(1, 0, (1,), 1, partition_epoch=1)
        assert seen == [(T0, first), (T1, first), (T0, shrunk)]
        assert updated == {
            T0: LeaderAndIsr(2, 1, (1,), 1, partition_epoch=2),
            T1: LeaderAndIsr(2, 1, (1, 2), 1, partition_epoch=1),
        }

    async def test_a_known_state_is_written_without_being_read(
        self, cluster: ClusterStore, fence: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await cluster.create_topic("t", TopicNode({0: (1, 2)}))
        first = LeaderAndIsr(1, 0, (1, 2), 1)
        await cluster.create_partition_states({T0: first}, fence)
        monkeypatch.setattr(cluster.session, "get_many", None)
        updated = await cluster.update_partition_states(
            [T0], lambda tp, state: LeaderAndIsr(2, 1, (2,), 1), fence, {T0: first}
        )
        monkeypatch.undo()
        assert updated == {T0: LeaderAndIsr(2, 1, (2,), 1, partition_epoch=1)}
        assert await cluster.partition_states([T0]) == updated

    async def test_what_is_known_no_longer_holds_for_a_state_that_has_changed(
        self, cluster: ClusterStore, other: ClusterStore, fence: int
    ) -> None:
        """One is decided again; and of one that was not to be written it is asked again whether it
        still is not."""
        await cluster.create_topic("t", TopicNode({0: (1, 2), 1: (1, 2)}))
        first = LeaderAndIsr(1, 0, (1, 2), 1)
        known = await cluster.create_partition_states({T0: first, T1: first}, fence)
        for tp in (T0, T1):
            await other.update_isr(tp, LeaderAndIsr(1, 0, (1,), 1, partition_epoch=0))

        def decide(tp: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | Refused:
            if tp == T1 and len(state.isr) > 1:
                return Refused("not yet")
            return LeaderAndIsr(1, state.leader_epoch + 1, state.isr, 1)

        updated = await cluster.update_partition_states(
            [T0, T1], decide, fence, dict.fromkeys(known, first)
        )
        again = LeaderAndIsr(1, 1, (1,), 1, partition_epoch=2)
        assert updated == {T0: again, T1: again}

    async def test_races_that_are_never_won_end(
        self,
        cluster: ClusterStore,
        other: ClusterStore,
        fence: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        await cluster.create_topic("t", TopicNode({0: (1, 2)}))
        await cluster.create_partition_states({T0: LeaderAndIsr(1, 0, (1, 2), 1)}, fence)
        get_many = cluster.session.get_many

        async def get_many_and_lose(
            wanted: Sequence[str], watch: Watch | None = None
        ) -> list[Node | None]:
            nodes = await get_many(wanted, watch)
            assert nodes[0] is not None
            await other.session.set(paths.partition_state(T0), nodes[0][0])
            return nodes

        monkeypatch.setattr(cluster.session, "get_many", get_many_and_lose)
        updated = await cluster.update_partition_states(
            [T0], lambda tp, state: LeaderAndIsr(2, 1, (2,), 1), fence
        )
        refused = updated[T0]
        assert isinstance(refused, Refused) and "changed 100 times" in refused.reason

    async def test_a_state_that_is_to_stay_is_not_written(
        self, cluster: ClusterStore, fence: int
    ) -> None:
        await cluster.create_topic("t", TopicNode({0: (1, 2)}))
        first = LeaderAndIsr(1, 0, (1, 2), 1)
        await cluster.create_partition_states({T0: first}, fence)
        kept = await cluster.update_partition_states([T0], lambda tp, state: state, fence)
        assert kept == {T0: first}
        _, stat = await cluster.session.get(paths.partition_state(T0))
        assert stat.version == 0

    async def test_a_leader_writes_its_isr_under_the_version_it_knows(
        self, cluster: ClusterStore, other: ClusterStore, fence: int
    ) -> None:
        await cluster.create_topic("t", TopicNode({0: (1, 2)}))
        await cluster.create_partition_states({T0: LeaderAndIsr(1, 0, (1, 2), 1)}, fence)
        shrunk = await other.update_isr(T0, LeaderAndIsr(1, 0, (1,), 1, partition_epoch=0))
        assert shrunk == LeaderAndIsr(1, 0, (1,), 1, partition_epoch=1)
        # Sent twice over a lost connection: its own success.
        assert await other.update_isr(T0, LeaderAndIsr(1, 0, (1,), 1, 0)) == shrunk
        # The controller was faster: no.
        assert await other.update_isr(T0, LeaderAndIsr(1, 0, (1, 2), 1, 0)) is None
        assert await other.update_isr(U0, LeaderAndIsr(1, 0, (1,), 1, 0)) is None

    async def test_thousands_at_once(
        self, cluster: ClusterStore, other: ClusterStore, fence: int
    ) -> None:
        partitions = [TopicPartition("t", number) for number in range(2000)]
        await cluster.create_topic("t", TopicNode({p.partition: (1,) for p in partitions}))
        state = LeaderAndIsr(1, 0, (1,), 1)
        created = await cluster.create_partition_states(dict.fromkeys(partitions, state), fence)
        assert not [result for result in created.values() if isinstance(result, Refused)]
        assert await other.partition_states(partitions) == dict.fromkeys(partitions, state)


class TestRequests:
    async def test_a_reassignment_shrinks_and_goes(
        self, cluster: ClusterStore, other: ClusterStore, fence: int, recorder: type[Recorder]
    ) -> None:
        watch = recorder()
        assert await cluster.requests.reassignment(watch) == {}
        asked = payloads.encode_reassignment({T0: [1, 2], T1: [2]})
        await other.session.create("/admin/reassign_partitions", asked)
        assert await watch.next() == WatchEvent(EventKind.CREATED, "/admin/reassign_partitions")
        assert await cluster.requests.reassignment() == {T0: (1, 2), T1: (2,)}
        await cluster.requests.set_reassignment({T1: [2]}, fence)
        assert await other.requests.reassignment() == {T1: (2,)}
        await cluster.requests.set_reassignment({}, fence)
        await cluster.requests.set_reassignment({}, fence)
        assert await cluster.session.exists(paths.REASSIGN_PARTITIONS) is None
        await cluster.requests.set_reassignment({U0: [1]}, fence)
        assert await other.requests.reassignment() == {U0: (1,)}

    async def test_an_unreadable_reassignment_is_logged_and_ignored(
        self, cluster: ClusterStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        await cluster.session.create(paths.REASSIGN_PARTITIONS, b'{"version":1,"partitions":7}')
        assert await cluster.requests.reassignment() == {}
        assert paths.REASSIGN_PARTITIONS in caplog.text

    async def test_a_preferred_election(
        self, cluster: ClusterStore, other: ClusterStore, fence: int, recorder: type[Recorder]
    ) -> None:
        watch = recorder()
        assert await cluster.requests.preferred_election(watch) is None
        asked = payloads.encode_partitions([T0, U0])
        await other.session.create("/admin/preferred_replica_election", asked)
        await watch.next()
        assert await cluster.requests.preferred_election() == {T0, U0}
        await cluster.requests.drop_preferred_election(fence)
        await cluster.requests.drop_preferred_election(fence)
        assert await cluster.requests.preferred_election() is None
        await other.session.create("/admin/preferred_replica_election", b"not JSON")
        assert await cluster.requests.preferred_election() == set()


class TestTheReassignmentQueue:
    async def test_nodes_come_back_in_order_and_shrink(
        self, cluster: ClusterStore, other: ClusterStore, fence: int
    ) -> None:
        await cluster.requests.queue_reassignments({0: {T0: (1, 2)}, 1: {T1: (2,)}}, fence)
        # Sent twice over a lost connection: found, not made again.
        await cluster.requests.queue_reassignments({1: {T1: (2,)}}, fence)
        found = await other.requests.queued_reassignments()
        assert list(found.items()) == [(0, {T0: (1, 2)}), (1, {T1: (2,)})]
        await cluster.requests.rewrite_queued({0: {}, 1: {U0: (3,)}, 7: {}}, fence)
        assert await other.requests.queued_reassignments() == {1: {U0: (3,)}}


class TestNotifications:
    async def test_isr_changes(
        self, cluster: ClusterStore, other: ClusterStore, fence: int, recorder: type[Recorder]
    ) -> None:
        watch = recorder()
        assert await cluster.notifications.isr_notifications(watch) == []
        await other.notifications.notify_isr_changes([T0, T1])
        await watch.next()
        await other.notifications.notify_isr_changes([U0])
        names = await cluster.notifications.isr_notifications()
        assert names == ["isr_change_0000000000", "isr_change_0000000001"]
        assert await cluster.notifications.isr_changes([*names, "isr_change_0000000009"]) == {
            T0,
            T1,
            U0,
        }
        await cluster.notifications.drop_isr_notifications([*names, "isr_change_0000000009"], fence)
        assert await cluster.notifications.isr_notifications() == []

    async def test_log_dir_failures(
        self, cluster: ClusterStore, other: ClusterStore, fence: int, recorder: type[Recorder]
    ) -> None:
        watch = recorder()
        assert await cluster.notifications.log_dir_notifications(watch) == []
        await other.notifications.notify_log_dir_failure(7)
        await watch.next()
        names = await cluster.notifications.log_dir_notifications()
        assert names == ["log_dir_event_0000000000"]
        assert await cluster.notifications.log_dir_failures(names) == {7}
        await cluster.notifications.drop_log_dir_notifications(names, fence)
        assert await cluster.notifications.log_dir_notifications() == []


class TestConfigurations:
    async def test_without_a_controller_nothing_is_written(self, cluster: ClusterStore) -> None:
        with pytest.raises(NoController, match="/config/topics/t"):
            await cluster.configs.set("topics", "t", {})
        await cluster.session.create(
            "/controller", b'{"version":2,"brokerid":3000,"kraftControllerEpoch":1}'
        )
        with pytest.raises(NoController):
            await cluster.configs.set("topics", "t", {})

    async def test_entities(self, cluster: ClusterStore, other: ClusterStore, fence: int) -> None:
        await cluster.configs.set("brokers", paths.DEFAULT_ENTITY, {"log.retention.ms": "1"})
        user = paths.sanitize("CN=a b*")
        assert user == "CN%3Da%20b%2A" and paths.desanitize(user) == "CN=a b*"
        await cluster.configs.set("users", f"{user}/clients/app", {"producer_byte_rate": "1"})
        await cluster.configs.set("users", f"{user}/clients/app", {"producer_byte_rate": "2"})
        assert await other.configs.get("users", f"{user}/clients/app") == {
            "producer_byte_rate": "2"
        }
        assert await other.configs.entities("users") == [user]
        assert await other.configs.get_many("brokers", ["<default>", "1"]) == {
            "<default>": {"log.retention.ms": "1"},
            "1": {},
        }
        assert await other.configs.get("ips", "10.0.0.1") == {}

    async def test_two_writers_of_one_entity_both_count(
        self, cluster: ClusterStore, other: ClusterStore, fence: int
    ) -> None:
        def adding(name: str) -> Callable[[dict[str, str]], dict[str, str]]:
            return lambda config: {**config, name: "1"}

        writers = (cluster, other, cluster, other)
        for round_ in range(3):
            await asyncio.gather(
                *(
                    writer.configs.change("users", "u", adding(f"{round_}-{number}"))
                    for number, writer in enumerate(writers)
                )
            )
        assert len(await other.configs.get("users", "u")) == 12

        def refusing(config: dict[str, str]) -> dict[str, str]:
            raise KeyError("no")

        with pytest.raises(KeyError):
            await cluster.configs.change("users", "u", refusing)
        assert len(await other.configs.get("users", "u")) == 12

    async def test_changes_are_replayed_in_order(
        self, cluster: ClusterStore, other: ClusterStore, fence: int, recorder: type[Recorder]
    ) -> None:
        watch = recorder()
        assert await other.configs.changes.after(watch=watch) == []
        await cluster.configs.changes.notify("topics/t")
        await watch.next()
        await cluster.session.create(
            f"{paths.CONFIG_CHANGES}/config_change_", b"x", sequential=True
        )
        await cluster.configs.changes.notify("brokers/1")
        assert await other.configs.changes.after() == [
            ChangeNotification(0, "topics/t"),
            ChangeNotification(2, "brokers/1"),
        ]
        assert await other.configs.changes.after(0) == [ChangeNotification(2, "brokers/1")]

    async def test_old_changes_are_purged(self, backend: Backend, cluster: ClusterStore) -> None:
        await cluster.configs.changes.notify("topics/t")
        (name,) = await cluster.session.children(paths.CONFIG_CHANGES)
        _, stat = await cluster.session.get(f"{paths.CONFIG_CHANGES}/{name}")
        late = ClusterStore(await backend.open(), clock=lambda: stat.created_ms + 15 * 60 * 1000)
        await late.configs.changes.purge()
        assert await cluster.configs.changes.after() != []
        later = ClusterStore(late.session, clock=lambda: stat.created_ms + 15 * 60 * 1000 + 1)
        await later.configs.changes.purge()
        assert await cluster.configs.changes.after() == []

    async def test_the_controller_writes_settings_with_their_notifications(
        self,
        cluster: ClusterStore,
        other: ClusterStore,
        fence: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """One that dies after the first write leaves no setting that brokers do not hear of."""
        for name in ("t", "u"):
            await cluster.create_topic(name, TopicNode({0: (1,)}))

        async def dead(changed: str) -> None:
            raise AssertionError("it is dead")

        monkeypatch.setattr(cluster.configs.changes, "notify", dead)
        await cluster.configs.update(
            "topics", ["t", "u", "gone"], lambda name, own: own | {"retention.ms": "1"}, fence
        )
        assert await other.configs.get_many("topics", ["t", "u", "gone"]) == {
            "t": {"retention.ms": "1"},
            "u": {"retention.ms": "1"},
            "gone": {},
        }
        changed = await other.configs.changes.after()
        assert [of.changed for of in changed] == ["topics/t", "topics/u"]
        await other.configs.update("topics", ["t"], lambda name, own: own, fence)
        assert await other.configs.changes.after() == changed, "nothing has changed"
