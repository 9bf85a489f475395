"""What a broker knows of the cluster, and what it tells clients of it.

docs/spec/controller-and-replication.md 5.6.
"""

from uuid import UUID

import pytest
from tests.bytecodes import counted

from odradek.broker.metadata_cache import MetadataCache
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import MetadataResponseTopic
from odradek.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from odradek.wire.topics import TopicPartition


def broker(
    broker_id: int, *listeners: str, rack: str | None = None, port: int = 9092
) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker_id,
        rack=rack,
        endpoints=[
            UpdateMetadataEndpoint(
                port=port, host=f"host{broker_id}", listener=name, security_protocol=0
            )
            for name in listeners or ("PLAINTEXT",)
        ],
    )


def state(
    partition: int, leader: int, replicas: list[int], isr: list[int] | None = None, epoch: int = 3
) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=partition,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=replicas if isr is None else isr,
        zk_version=5,
        replicas=replicas,
        offline_replicas=[],
    )


def update(
    cache: MetadataCache,
    brokers: list[UpdateMetadataBroker],
    *,
    controller: int = 1,
    **topics: list[UpdateMetadataPartitionState],
) -> list[TopicPartition]:
    return cache.update(
        UpdateMetadataRequest(
            controller_id=controller,
            controller_epoch=1,
            live_brokers=brokers,
            topic_states=[
                UpdateMetadataTopicState(topic_name=name, partition_states=states)
                for name, states in topics.items()
            ],
        )
    )


@pytest.fixture
def cache() -> MetadataCache:
    cache = MetadataCache()
    update(
        cache,
        [broker(1, rack="a"), broker(2), broker(3)],
        t=[state(1, 2, [2, 3]), state(0, 1, [1, 2])],
        u=[state(0, 3, [3])],
    )
    return cache


def answer(
    cache: MetadataCache, topic: str = "t", listener: str = "PLAINTEXT", **rules: bool
) -> MetadataResponseTopic:
    (found,) = cache.topic_answers([topic], listener, **rules)
    return found


class TestUpdating:
    def test_brokers_are_replaced_partitions_are_merged(self, cache: MetadataCache) -> None:
        deleted = update(cache, [broker(2), broker(3)], t=[state(0, 2, [1, 2], [2], epoch=4)])
        assert deleted == []
        assert [known.id for known in cache.brokers()] == [2, 3]
        assert not cache.is_alive(1)
        changed, kept = cache.partition("t", 0), cache.partition("t", 1)
        assert changed is not None and kept is not None
        assert (changed.leader, changed.isr, changed.leader_epoch) == (2, (2,), 4)
        assert (kept.leader, kept.isr, kept.partition_epoch) == (2, (2, 3), 5)
        assert sorted(cache.topics()) == ["t", "u"]

    def test_no_partitions_keeps_them_all(self, cache: MetadataCache) -> None:
        update(cache, [broker(1)], controller=-1)
        assert cache.controller_id is None
        assert cache.partition_count("t") == 2
        assert TopicPartition("u", 0) in cache

    def test_leader_minus_two_removes(self, cache: MetadataCache) -> None:
        everybody = [broker(1), broker(2), broker(3)]
        deleted = update(cache, everybody, t=[state(1, -2, [2, 3])])
        assert deleted == [TopicPartition("t", 1)]
        assert cache.partition_count("t") == 1
        update(cache, everybody, t=[state(0, -2, [1, 2])], unknown=[state(0, -2, [1])])
        assert not cache.has_topic("t")
        assert not cache.has_topic("unknown")
        assert cache.partition("t", 0) is None
        assert cache.topic_answers(["t"], "PLAINTEXT") == []

    def test_old_requests_name_the_topic_in_each_state(self) -> None:
        cache = MetadataCache()
        old = state(0, 1, [1])
        old.topic_name = "old"
        cache.update(UpdateMetadataRequest(ungrouped_partition_states=[old]))
        assert cache.partition_count("old") == 1

    def test_each_update_sets_the_id_and_a_zero_id_takes_it_back(self) -> None:
        cache, first, second = MetadataCache(), UUID(int=7), UUID(int=8)

        def learn(topic_id: UUID) -> tuple[UUID, str | None, str | None]:
            topic = UpdateMetadataTopicState(
                topic_name="t", topic_id=topic_id, partition_states=[state(0, 1, [1])]
            )
            cache.update(UpdateMetadataRequest(topic_states=[topic], live_brokers=[broker(1)]))
            cache.update(UpdateMetadataRequest(live_brokers=[broker(1)]))  # no topics, no change
            assert answer(cache).topic_id == cache.topic_id("t")
            return cache.topic_id("t"), cache.topic_name(first), cache.topic_name(second)

        assert learn(first) == (first, "t", None)
        assert learn(second) == (second, None, "t")
        assert learn(UUID(int=0)) == (UUID(int=0), None, None)

    def test_topic_ids_where_there_are_any(self) -> None:
        cache = MetadataCache()
        topic_id = UUID(int=7)
        request = UpdateMetadataRequest(
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name="t", topic_id=topic_id, partition_states=[state(0, 1, [1])]
                )
            ]
        )
        cache.update(request)
        assert cache.topic_id("t") == topic_id
        assert cache.topic_name(topic_id) == "t"
        update(cache, [], t=[state(0, -2, [1])])
        assert cache.topic_name(topic_id) is None


class TestAnswers:
    def test_brokers_that_can_be_reached(self, cache: MetadataCache) -> None:
        update(cache, [broker(2, "PLAINTEXT", "INTERNAL"), broker(1, rack="a", port=7)])
        found = cache.broker_answers("PLAINTEXT")
        assert [(b.node_id, b.host, b.port, b.rack) for b in found] == [
            (1, "host1", 7, "a"),
            (2, "host2", 9092, None),
        ]
        assert [b.node_id for b in cache.broker_answers("INTERNAL")] == [2]

    def test_a_topic(self, cache: MetadataCache) -> None:
        found = answer(cache)
        assert (found.error_code, found.name, found.is_internal) == (0, "t", False)
        assert [
            (p.error_code, p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes)
            for p in found.partitions
        ] == [(0, 0, 1, 3, [1, 2]), (0, 1, 2, 3, [2, 3])]

    def test_all_topics_or_those_that_are_known(self, cache: MetadataCache) -> None:
        assert [t.name for t in cache.topic_answers(None, "PLAINTEXT")] == ["t", "u"]
        assert [t.name for t in cache.topic_answers(["u", "nobody"], "PLAINTEXT")] == ["u"]

    def test_a_leader_that_is_not_alive(self, cache: MetadataCache) -> None:
        update(cache, [broker(2), broker(3)])
        first, second = answer(cache).partitions
        assert (first.error_code, first.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert first.replica_nodes == [1, 2]
        assert (second.error_code, second.leader_id) == (ErrorCode.NONE, 2)

    @pytest.mark.parametrize(
        ("report", "error"),
        [(True, ErrorCode.LISTENER_NOT_FOUND), (False, ErrorCode.LEADER_NOT_AVAILABLE)],
    )
    def test_a_leader_without_the_listener(
        self, cache: MetadataCache, report: bool, error: ErrorCode
    ) -> None:
        update(cache, [broker(1, "INTERNAL"), broker(2), broker(3)])
        found = answer(cache, report_missing_listeners=report).partitions[0]
        assert (found.error_code, found.leader_id) == (error, -1)

    def test_version_0_reports_missing_replicas(self, cache: MetadataCache) -> None:
        update(cache, [broker(1), broker(3)])
        assert answer(cache).partitions[0].error_code == ErrorCode.NONE
        found = answer(cache, report_missing_replicas=True).partitions[0]
        assert found.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
        assert (found.replica_nodes, found.isr_nodes) == ([1], [1])

    def test_internal_topics_are_marked(self, cache: MetadataCache) -> None:
        update(cache, [broker(1)], __consumer_offsets=[state(0, 1, [1])])
        assert answer(cache, "__consumer_offsets").is_internal

    def test_an_answer_is_built_once_and_never_stale(self, cache: MetadataCache) -> None:
        everybody = [broker(1, rack="a"), broker(2), broker(3)]
        first = answer(cache)
        assert answer(cache) is first
        update(cache, everybody, u=[state(0, 3, [3, 1])])
        assert answer(cache) is first
        update(cache, everybody, t=[state(0, 2, [1, 2], epoch=4)])
        assert answer(cache).partitions[0].leader_id == 2
        update(cache, [broker(1)])
        assert answer(cache).partitions[0].leader_id == -1


def test_one_topic_costs_the_same_among_many() -> None:
    def cost(topics: int) -> int:
        cache = MetadataCache()
        states = {f"t{index}": [state(0, 1, [1])] for index in range(topics)}
        update(cache, [broker(1)], controller=1, **states)
        with counted() as count:
            for number in range(3):
                update(cache, [broker(1)], t0=[state(0, 1, [1], epoch=number)])
                cache.topic_answers(["t0"], "PLAINTEXT")
        return count.value

    assert cost(5_000) < cost(5) + 1000
