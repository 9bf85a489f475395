"""Random appends, leader changes, crashes and restarts: replicas agree on what is committed.

The property is Kafka's promise: once a record is below a leader's high watermark, every later
leader elected from the ISR has it, at the same offset, and all replicas agree up to the smallest of
their high watermarks. Elections here are clean; brokers stop with their disks intact.
"""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.replica.conftest import CONFIG, Node, Simulation, World

from odradek.log.config import LogConfig
from odradek.wire.errors import ErrorCode
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
BROKERS = (1, 2, 3)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("commit"), st.integers(1, 3)),
        st.tuples(st.just("elect"), st.sampled_from(BROKERS)),
        st.tuples(st.just("detach"), st.sampled_from(BROKERS)),
        st.tuples(st.just("bounce"), st.sampled_from(BROKERS)),
        st.tuples(st.just("run"), st.sampled_from([0.001, 0.1, 1.0, 20.0])),
    ),
    max_size=30,
)


class Story:
    """One run: what was committed so far, and the steps."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.committed = b""
        self.number = 0

    @property
    def leader(self) -> Any:
        return self.world.nodes[self.world.states[T0].leader]

    def values(self, count: int) -> list[bytes]:
        self.number += count
        return [b"value %d" % (self.number - index) for index in range(count)]

    def note_committed(self, node: Node) -> None:
        """Everything below a leader's mark is for ever, and continues what was."""
        if not node.partition().is_leader:
            return
        known = node.contents_to(node.log().high_watermark)
        shorter = min(len(known), len(self.committed))
        assert known[:shorter] == self.committed[:shorter], "committed records changed"
        if len(known) > len(self.committed):
            self.committed = known

    async def step(self, kind: str, argument: Any) -> None:
        world, leader = self.world, self.leader
        if kind == "append":
            leader.append(*self.values(argument))
        elif kind == "commit":
            result = await leader.produce(*self.values(argument), timeout_ms=2000)
            if result.error == ErrorCode.NONE:
                self.note_committed(leader)
                assert len(self.committed) > 0
        elif kind == "elect":
            isr = list((await world.stored()).isr)
            if argument in isr:
                await world.elect(argument, isr)
        elif kind == "detach" and argument != leader.id:
            world.nodes[argument].replicas.fetchers.remove([T0])
        elif kind == "bounce":
            await self.bounce(argument)
        elif kind == "run":
            await asyncio.sleep(argument)
        self.note_committed(self.leader)

    async def bounce(self, broker_id: int) -> None:
        """A broker dies and comes back; the controller does what it does about that."""
        world = self.world
        await world.nodes[broker_id].stop(clean=False)
        isr = list((await world.stored_by_others(broker_id)).isr)
        left = [member for member in isr if member != broker_id] or isr
        old = world.states[T0].leader
        leader = old if old != broker_id else (left[0] if left[0] != broker_id else -1)
        if leader != -1:
            await world.elect(leader, left, without=[broker_id])
        await world.restart(broker_id)
        await world.elect(leader if leader != -1 else broker_id, left)

    async def settle(self) -> None:
        """At the end everybody follows again, and everybody has the same."""
        world = self.world
        isr = list((await world.stored()).isr)
        await world.elect(isr[0], isr)
        await world.until_stored(set(BROKERS))
        assert (await self.leader.produce(b"last")).error == ErrorCode.NONE
        await world.until(lambda: len({node.contents() for node in world.nodes.values()}) == 1, 60)
        assert self.leader.contents().startswith(self.committed)


@settings(
    max_examples=25,
    suppress_health_check=list(HealthCheck),
)
@given(
    steps=STEPS,
    seed=st.integers(0, 1000),
    protocol=st.sampled_from([ProtocolVersion.V2_6_IV0, ProtocolVersion.V2_7_IV1]),
)
def test_what_is_committed_stays(
    simulate: Simulation,
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, Any]],
    seed: int,
    protocol: ProtocolVersion,
) -> None:
    async def story(world: World) -> None:
        await world.start(*BROKERS)
        await world.elect(1, list(BROKERS), list(BROKERS))
        run = Story(world)
        for kind, argument in steps:
            await run.step(kind, argument)
        await run.settle()

    simulate.at(tmp_path_factory.mktemp("run"))(
        story,
        config=replace(CONFIG, protocol=protocol),
        seed=seed,
        log_config=LogConfig(min_insync_replicas=2, segment_bytes=2000),
    )
