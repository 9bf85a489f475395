"""Random histories: whatever happens, and in whatever order, the picture is whole at rest.

Brokers die, bounce and return, leaders change their ISR, operators move, elect and delete,
controllers fall over. Each history is made from a seed, on the store in memory; a failure prints
its seed.
"""

import random

import pytest
from tests.controller.test_controller import Cluster

from odradek.controller.elections import ElectionType
from odradek.store.api import NodeExists
from odradek.store.payloads import TopicNode
from odradek.wire.errors import KafkaError
from odradek.wire.topics import TopicPartition

BROKERS = (1, 2, 3, 4)
STEPS = 40


class History:
    """One random history of a cluster, and what must hold in it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = Cluster(moves_cluster=2)
        self.steps: list[str] = []
        self.epochs: dict[TopicPartition, int] = {}
        self.topics_made = 0

    async def run(self) -> None:
        await self.cluster.open(BROKERS, BROKERS)
        for _ in range(STEPS):
            action = self.random.choice(
                [
                    self.kill,
                    self.start,
                    self.start,
                    self.bounce,
                    self.make_topic,
                    self.delete_topic,
                    self.change_isr,
                    self.catch_up,
                    self.catch_up,
                    self.reassign,
                    self.cancel,
                    self.elect,
                    self.shut_down,
                    self.depose,
                ]
            )
            self.steps.append(action.__name__)
            await action()
            await self.cluster.settle()
            await self.check()
        await self.end_well()
        await self.cluster.close()

    # Steps

    async def kill(self) -> None:
        if len(self.cluster.members) > 1:
            await self.cluster.kill(self.random.choice(sorted(self.cluster.members)))

    async def start(self) -> None:
        dead = sorted(set(BROKERS) - self.cluster.members.keys())
        if dead:
            await self.cluster.start(self.random.choice(dead))

    async def bounce(self) -> None:
        """A broker restarts before anybody notices."""
        chosen = self.random.choice(sorted(self.cluster.members))
        others = [m for id, m in self.cluster.members.items() if id != chosen]
        for member in others:
            member.held.hold()
        await self.cluster.kill(chosen)
        await self.cluster.start(chosen)
        for member in others:
            member.held.release()

    async def make_topic(self) -> None:
        self.topics_made += 1
        if not self.cluster.active:
            return
        lists = {
            number: tuple(self.random.sample(BROKERS, self.random.randint(1, 3)))
            for number in range(self.random.randint(1, 2))
        }
        await self.cluster.admin.create_topic(f"t{self.topics_made}", TopicNode(lists))

    async def delete_topic(self) -> None:
        topics = await self.cluster.admin.topics()
        if topics and self.random.random() < 0.5:
            try:
                await self.cluster.admin.requests.request_deletion(self.random.choice(topics))
            except NodeExists:
                pass  # asked for already

    async def change_isr(self) -> None:
        for tp in await self.partitions():
            if (leader := self.leader(tp)) is not None:
                held = leader.replicas[tp]
                isr = [id for id in held.isr if id == leader.id or self.random.random() < 0.7]
                await leader.change_isr(tp, isr, notify=self.random.random() < 0.8)

    async def catch_up(self) -> None:
        """Every live replica gets into the ISR of its partition."""
        for tp in await self.partitions():
            if (leader := self.leader(tp)) is not None:
                held = leader.replicas[tp]
                behind = [
                    id
                    for id, member in self.cluster.members.items()
                    if tp in member.puppet.replicas
                    and member.puppet.replicas[tp].leader == leader.id
                    and id not in held.isr
                ]
                if behind:
                    await leader.change_isr(tp, [*held.isr, *behind])

    async def reassign(self) -> None:
        moves = {
            tp: self.random.sample(BROKERS, self.random.randint(1, 3))
            for tp in await self.partitions()
            if self.random.random() < 0.5
        }
        if self.cluster.active:
            await self.cluster.call(self.cluster.controller().alter_reassignments(moves))

    async def cancel(self) -> None:
        moves = {tp: None for tp in await self.partitions() if self.random.random() < 0.5}
        if self.cluster.active:
            await self.cluster.call(self.cluster.controller().alter_reassignments(moves))

    async def elect(self) -> None:
        kind = self.random.choice([ElectionType.PREFERRED, ElectionType.UNCLEAN])
        if self.cluster.active:
            await self.cluster.call(self.cluster.controller().elect_leaders(kind, None))

    async def shut_down(self) -> None:
        if len(self.cluster.members) > 1 and self.cluster.active:
            chosen = self.random.choice(sorted(self.cluster.members))
            try:
                await self.cluster.call(self.cluster.controller().controlled_shutdown(chosen, -1))
            except KafkaError:
                pass  # the controller has just moved
            await self.cluster.settle()
            await self.cluster.kill(chosen)

    async def depose(self) -> None:
        if await self.cluster.admin.controller.id() is not None:
            await self.cluster.admin.session.delete("/controller")

    # What must hold

    async def partitions(self) -> list[TopicPartition]:
        nodes = await self.cluster.admin.topic_nodes(await self.cluster.admin.topics())
        return [TopicPartition(t, n) for t, node in nodes.items() for n in node.partitions]

    def leader(self, tp: TopicPartition):  # type: ignore[no-untyped-def]  # a puppet or None
        for member in self.cluster.members.values():
            held = member.puppet.replicas.get(tp)
            if held is not None and held.leader == member.puppet.id:
                return member.puppet
        return None

    async def check(self) -> None:
        cluster = self.cluster
        assert len(cluster.active) == 1, "one controller is active"
        for _, entry in cluster.entries:
            assert "not a legal transition" not in entry.why, entry
        cluster.entries.clear()
        doomed = set(await cluster.admin.requests.deletions())
        nodes = await cluster.admin.topic_nodes(await cluster.admin.topics())
        states = await cluster.admin.partition_states(await self.partitions())
        for tp, state in states.items():
            node = nodes[tp.topic]
            replicas = node.partitions[tp.partition]
            assert state.leader_epoch >= self.epochs.get(tp, -1), "epochs only rise"
            self.epochs[tp] = state.leader_epoch
            if tp.topic in doomed:
                continue
            assert state.isr, "the last in-sync replica is never removed"
            assert set(state.isr) <= set(replicas), "who is in sync is assigned"
            live = {id for id in replicas if id in cluster.members}
            if state.leader >= 0:
                assert state.leader in state.isr
                assert state.leader in live, "who leads is alive"
                assert set(state.isr) <= live, "who is in sync is alive"
            else:
                assert not set(state.isr) & live, "who could lead does"
            for id in live:
                held = cluster.members[id].puppet.replicas.get(tp)
                assert held is not None, f"{id} never got {tp}"
                assert held.leader_epoch == state.leader_epoch, f"{id} is behind on {tp}"
                assert held.leader == state.leader
                if id == state.leader:
                    assert held.partition_epoch == state.partition_epoch
        for id, member in cluster.members.items():
            assert member.puppet.live_brokers == sorted(cluster.members), f"{id} knows who lives"

    async def end_well(self) -> None:
        """With everybody back and everything caught up, nothing is left undone."""
        cluster = self.cluster
        for id in BROKERS:
            if id not in cluster.members:
                await cluster.start(id)
        await cluster.settle()
        # A topic that is to be deleted is not led any more, so a move of it must be cancelled.
        doomed = set(await cluster.admin.requests.deletions())
        moves = dict.fromkeys(tp for tp in await self.partitions() if tp.topic in doomed)
        await cluster.call(cluster.controller().alter_reassignments(moves))
        await cluster.settle()
        for _ in range(12):  # two moves at a time, and each needs the ISR to grow
            await self.catch_up()
            await cluster.settle()
            await self.check()
        assert await cluster.admin.requests.deletions() == []
        assert await cluster.call(cluster.controller().list_reassignments(None)) == {}
        for tp, state in (await cluster.admin.partition_states(await self.partitions())).items():
            assert state.leader >= 0, f"{tp} has no leader"
        statistics = cluster.controller().statistics()
        assert (statistics["offline_partitions"], statistics["reassigning_partitions"]) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
async def test_history(seed: int) -> None:
    history = History(seed)
    try:
        await history.run()
    except BaseException:
        print(f"seed {seed}: {' '.join(history.steps)}")
        raise
