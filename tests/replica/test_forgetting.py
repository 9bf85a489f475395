"""After a power loss a broker gives up its places in ISRs, except where it is the last."""

import asyncio

from odradek.replica.forgetting import leave_isrs
from odradek.store.cluster import ClusterStore
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.store.payloads import PartitionState, TopicNode
from odradek.wire.topics import TopicPartition

LED, FOLLOWED, LAST, ELSEWHERE = (TopicPartition("t", number) for number in range(4))
STATES = {
    LED: PartitionState(1, 5, (1, 2, 3), 1),
    FOLLOWED: PartitionState(2, 7, (2, 1), 1),
    LAST: PartitionState(1, 9, (1,), 1),
    ELSEWHERE: PartitionState(2, 3, (2, 3), 1),
}


async def stored() -> tuple[ClusterStore, MemoryStore]:
    memory = MemoryStore(MemoryServer(), session_timeout_ms=6000)
    await memory.start()
    store = ClusterStore(memory)
    await store.prepare()
    assigned = {of.partition: (1, 2, 3) for of in STATES}
    assigned[ELSEWHERE.partition] = (2, 3)
    term = await store.elect_controller(2)
    await store.create_topic("t", TopicNode(assigned, {}, {}, None))
    await store.create_partition_states(STATES, term.fence)
    return store, memory


async def test_it_leaves_every_isr_that_has_another_member() -> None:
    store, memory = await stored()
    assert await leave_isrs(1, store) == {LAST}
    states = await store.partition_states(STATES)
    assert (states[LED].leader, states[LED].leader_epoch, states[LED].isr) == (-1, 6, (2, 3))
    assert (states[FOLLOWED].leader, states[FOLLOWED].leader_epoch) == (2, 8)
    assert states[FOLLOWED].isr == (2,)
    for untouched in (LAST, ELSEWHERE):
        assert states[untouched] == STATES[untouched]
    assert await leave_isrs(1, store) == {LAST}
    assert await store.partition_states(STATES) == states
    await memory.close()


async def test_a_state_that_changes_meanwhile_is_read_again() -> None:
    store, memory = await stored()
    await asyncio.gather(leave_isrs(1, store), leave_isrs(2, store), leave_isrs(3, store))
    states = await store.partition_states(STATES)
    for of, state in states.items():
        assert len(state.isr) == 1, of
        assert state.leader in (-1, *state.isr)
    await memory.close()
