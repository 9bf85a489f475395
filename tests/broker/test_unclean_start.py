"""Which starts are suspect (another boot, another disk; not after a clean stop), and what follows:
the broker leaves its ISRs as it registers, except where it is the last member."""

import asyncio
import random
from pathlib import Path

import pytest

from odradek.broker.unclean_start import (
    leave_isrs_after_data_loss,
    machine_boot_id,
    mark_boot,
    may_have_lost_records,
)
from odradek.log.checkpoints import CLEAN_SHUTDOWN
from odradek.log.directories import BOOT_FILE
from odradek.log.disk import RealDisk
from odradek.log.host import LogEnvironment
from odradek.log.manager import LogManager
from odradek.log.offload import on_the_spot
from odradek.log.shutdown_record import SHUTDOWN_RECORD
from odradek.store.api import NodeExists
from odradek.store.cluster import ClusterStore
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.store.payloads import BrokerRegistration, Endpoint, LeaderAndIsr, TopicNode
from odradek.wire.topics import TopicPartition

DISK = RealDisk()


async def started(*directories: Path) -> LogManager:
    logs = LogManager(
        [str(path) for path in directories],
        LogEnvironment(DISK, lambda: 0, on_the_spot, random.Random(1)),
    )
    await logs.load()
    return logs


async def killed(logs: LogManager) -> None:
    """What a killed process leaves: no marker; its locks are gone."""
    live = list(logs.dirs.live)
    await logs.close()
    for path in live:
        DISK.remove(f"{path}/{CLEAN_SHUTDOWN}")


async def test_a_killed_process_has_lost_nothing_and_a_lost_boot_may_have(
    tmp_path: Path,
) -> None:
    logs = await started(tmp_path)
    assert may_have_lost_records(logs, "first")
    mark_boot(logs, "first")
    await killed(logs)

    logs = await started(tmp_path)
    assert not may_have_lost_records(logs, "first")
    assert may_have_lost_records(logs, "second")
    assert may_have_lost_records(logs, "")
    await logs.close()

    logs = await started(tmp_path)
    assert not may_have_lost_records(logs, "second"), "it was shut down cleanly"
    await logs.close()


async def test_a_new_disk_is_suspect_until_it_has_a_mark(tmp_path: Path) -> None:
    for _ in range(2):
        logs = await started(tmp_path)
        assert may_have_lost_records(logs, "boot")
        await logs.close()
    logs = await started(tmp_path)
    mark_boot(logs, "boot")
    await logs.close()
    logs = await started(tmp_path)
    assert not may_have_lost_records(logs, "boot")
    await logs.close()


async def test_a_directory_that_kafka_shut_down_has_lost_nothing(tmp_path: Path) -> None:
    logs = await started(tmp_path)
    await logs.close()
    (tmp_path / SHUTDOWN_RECORD).unlink()
    (tmp_path / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":7}')
    logs = await started(tmp_path)
    assert not may_have_lost_records(logs, "boot")
    await killed(logs)
    logs = await started(tmp_path)
    assert may_have_lost_records(logs, "boot"), "killed: which boot it was used in is unknown"
    await logs.close()


async def test_one_new_disk_among_several_is_enough(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    logs = await started(one, other)
    mark_boot(logs, "boot")
    await killed(logs)
    (other / BOOT_FILE).unlink()
    logs = await started(one, other)
    assert may_have_lost_records(logs, "boot")
    await logs.close()


def test_this_machine_has_one_boot_at_a_time() -> None:
    assert machine_boot_id() == machine_boot_id()


LED, FOLLOWED, LAST, ELSEWHERE = (TopicPartition("t", number) for number in range(4))
STATES = {
    LED: LeaderAndIsr(1, 5, (1, 2, 3), 1),
    FOLLOWED: LeaderAndIsr(2, 7, (2, 1), 1),
    LAST: LeaderAndIsr(1, 9, (1,), 1),
    ELSEWHERE: LeaderAndIsr(2, 3, (2, 3), 1),
}


async def session(server: MemoryServer) -> ClusterStore:
    memory = MemoryStore(server, session_timeout_ms=6000)
    await memory.start()
    return ClusterStore(memory)


async def stored(server: MemoryServer) -> ClusterStore:
    store = await session(server)
    await store.prepare()
    assigned: dict[int, tuple[int, ...]] = {tp.partition: (1, 2, 3) for tp in STATES}
    assigned[ELSEWHERE.partition] = (2, 3)
    term = await store.controller.elect(2)
    await store.create_topic("t", TopicNode(assigned, {}, {}, None))
    await store.create_partition_states(STATES, term.fence)
    return store


def registration(broker_id: int) -> BrokerRegistration:
    return BrokerRegistration(broker_id, -1, (Endpoint("h", 9092),))


async def leave(store: ClusterStore, broker_id: int) -> set[TopicPartition]:
    return (await leave_isrs_after_data_loss(store, registration(broker_id)))[1]


async def test_it_leaves_every_isr_that_has_another_member(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = MemoryServer()
    store = await stored(server)
    assert await leave(store, 1) == {LAST}
    states = await store.partition_states(STATES)
    assert (states[LED].leader, states[LED].leader_epoch, states[LED].isr) == (-1, 6, (2, 3))
    assert (states[FOLLOWED].leader, states[FOLLOWED].leader_epoch) == (2, 8)
    assert states[FOLLOWED].isr == (2,)
    for untouched in (LAST, ELSEWHERE):
        assert states[untouched] == STATES[untouched]
    assert "unflushed records may be lost; removed from the ISR of 2 partitions" in caplog.text
    await store.session.close()
    again = await session(server)
    assert await leave(again, 1) == {LAST}
    assert await again.partition_states(STATES) == states
    await again.session.close()


async def test_brokers_that_leave_at_the_same_time_leave_one_member() -> None:
    server = MemoryServer()
    stores = [await stored(server), await session(server), await session(server)]
    await asyncio.gather(*(leave(store, id) for id, store in enumerate(stores, start=1)))
    states = await stores[0].partition_states(STATES)
    for tp, state in states.items():
        assert len(state.isr) == 1, tp
        assert state.leader in (-1, *state.isr)
    for store in stores:
        await store.session.close()


async def test_an_id_that_is_taken_leaves_nothing() -> None:
    server = MemoryServer()
    store, twin = await stored(server), await session(server)
    await store.register_broker(registration(1))
    with pytest.raises(NodeExists):
        await leave(twin, 1)
    assert await store.partition_states(STATES) == STATES
    for each in (store, twin):
        await each.session.close()
