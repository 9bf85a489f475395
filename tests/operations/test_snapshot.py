"""A snapshot of a cluster in trouble: what does not answer hides nothing else."""

import asyncio
from pathlib import Path

from tests.broker import clusters

from odradek.client import Client, NewTopic, check
from odradek.client.admin import Admin
from odradek.client.groups import Groups
from odradek.operations import take_snapshot
from odradek.wire.topics import TopicPartition

READ, LOST = TopicPartition("read", 0), TopicPartition("lost", 0)


async def test_a_partition_without_a_leader_hides_no_lag(tmp_path: Path) -> None:
    """Nor does its group wait for one, as long as the cluster may take to answer."""
    settings = {"offsets.topic.replication.factor": "2", "offsets.topic.num.partitions": "1"}
    async with clusters.cluster(tmp_path, 2, **settings) as cluster:
        endpoint = cluster.brokers[1].endpoints[0]
        async with Client(f"{endpoint.host}:{endpoint.port}") as client:
            admin, groups = Admin(client), Groups(client)
            topics = [NewTopic("read", assignment={0: [1]}), NewTopic("lost", assignment={0: [2]})]
            check(await admin.create_topics(topics))
            check(await groups.alter_offsets("both", {READ: 0, LOST: 0}))
            before = await take_snapshot(admin, groups)
            assert before.group_lags["both"].keys() == {READ, LOST} and not before.unanswered
            await cluster.stop(2)
            async with asyncio.timeout(client.timeout_s / 2):
                while 2 in (await client.refresh()).nodes:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                after = await take_snapshot(admin, groups)
            assert after.group_lags["both"].keys() == {READ}
            assert not after.unanswered


async def test_a_broker_that_does_not_answer_hides_only_its_own_groups(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": "8"}
    async with clusters.cluster(tmp_path, 2, **settings) as cluster:
        endpoint = cluster.brokers[1].endpoints[0]
        async with Client(f"{endpoint.host}:{endpoint.port}", timeout_s=5) as client:
            admin, groups = Admin(client), Groups(client)
            check(await admin.create_topics([NewTopic("read", assignment={0: [1]})]))
            for number in range(8):
                check(await groups.alter_offsets(f"g{number}", {READ: 0}))
            by_broker = {group.id: group.coordinator for group in await groups.list_groups()}
            assert set(by_broker.values()) == {1, 2}
            await cluster.brokers[2].connections.close()  # as one that dies: it is still listed
            after = await take_snapshot(admin, groups)
            assert after.group_lags.keys() == {id for id, on in by_broker.items() if on == 1}
            assert any("consumer groups of broker 2" in what for what in after.unanswered)
