"""The cleaner on whole logs: what it picks, what it leaves, a crash at every change it makes."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.log.conftest import World
from tests.log.logs import make_log

from odradek.log import cleaner as cleaner_module
from odradek.log.cleaner import Cleaner, CleanerConfig, group_segments, measure
from odradek.log.compaction import ENTRY_BYTES
from odradek.log.config import LogConfig
from odradek.log.disk import Disk
from odradek.log.log import Log
from odradek.log.offload import on_the_spot
from odradek.log.producers import Origin
from odradek.sim.loop import SimLoop
from odradek.wire.batch import scan
from odradek.wire.records import (
    ControlType,
    Record,
    TransactionEnd,
    decode_records,
    encode_batch,
    encode_transaction_end,
)
from odradek.wire.topics import TopicPartition

TP = TopicPartition("t", 0)
ROOT = "/data"
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=400,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    min_cleanable_dirty_ratio=0.01,
)


def open_log(
    world: World, disk: Disk | None = None, config: LogConfig = CONFIG, **options: Any
) -> Log:
    disk = disk or world.disk()
    return make_log(disk, f"{ROOT}/{TP}", TP, config, world.clock, **options)


def put(log: Log, key: str, value: str | None, **fields: Any) -> None:
    record = Record(-1, 1_700_000_000_000, key.encode(), None if value is None else value.encode())
    log.append_as_leader(encode_batch([record], **fields), 1)
    log.set_high_watermark(log.end_offset)


def fill(log: Log, count: int = 40, keys: int = 5) -> None:
    for number in range(count):
        put(log, f"k{number % keys}", f"v{number}")


def records(log: Log) -> list[Record]:
    found = []
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, 1 << 20, end_offset=log.end_offset).records
        if not data:
            break
        for header in scan(data):
            offset = header.next_offset
            if not header.is_control:
                found += decode_records(data, header)
    return found


def table(log: Log) -> dict[bytes, bytes]:
    found = {record.key: record.value for record in records(log)}
    return {key: value for key, value in found.items() if key is not None and value is not None}


def make_cleaner(world: World, log: Log, **config: Any) -> Cleaner:
    return Cleaner(log.disk, {TP: log}, world.clock, on_the_spot, CleanerConfig(**config))


async def clean(world: World, log: Log, **config: Any) -> Cleaner:
    cleaner = make_cleaner(world, log, **config)
    dirty = cleaner.dirtiest()
    assert dirty is not None
    assert await cleaner.clean(dirty)
    return cleaner


async def test_only_the_newest_of_each_key_is_left_below_the_active_segment(world: World) -> None:
    log = open_log(world)
    fill(log)
    before, end = table(log), log.end_offset
    active_base = log.segments.active.base_offset
    size = log.size_bytes
    cleaner = await clean(world, log)
    left = records(log)
    assert table(log) == before and log.end_offset == end
    cleaned = [record for record in left if record.offset < active_base]
    assert len({record.key for record in cleaned}) == len(cleaned) == 5
    assert log.size_bytes < size
    assert cleaner.statistics()["records_dropped"] == 40 - len(left)
    assert (
        world.disk()
        .read_bytes(f"{ROOT}/cleaner-offset-checkpoint")
        .endswith(f"t 0 {active_base}\n".encode())
    )
    # Segments still abut, and a reader may begin at an offset that is gone.
    for offset in range(end):
        data = log.read(offset, 1, end_offset=end).records
        assert next(scan(data)).last_offset >= offset


async def test_a_cleaned_log_is_clean_and_reopens(world: World) -> None:
    log = open_log(world)
    fill(log)
    cleaner = await clean(world, log)
    assert cleaner.dirtiest() is None
    assert await cleaner.run() == 0
    before = records(log)
    log.close()
    again = open_log(world, clean=True)
    assert records(again) == before
    # The checkpoint says where to go on.
    fresh = make_cleaner(world, again)
    fresh.load(ROOT)
    assert fresh.dirtiest() is None
    fill(again, 20)
    assert fresh.dirtiest() is not None


@pytest.mark.parametrize("kafka", [False, True])
async def test_a_cleaned_log_is_whole_after_a_kill_whatever_its_policy_is_then(
    world: World, kafka: bool
) -> None:
    """Where Kafka cleaned it there is no mark of ours, but its checkpoint."""
    config = replace(CONFIG, cleanup_policy=frozenset({"delete"}))
    log = open_log(world)
    fill(log)
    cleaner = await clean(world, log)
    before = records(log)
    mark = f"{ROOT}/{TP}/.odradek_holes"
    assert world.disk().exists(mark)
    if kafka:
        world.disk().remove(mark)
    log.close_files()
    again = open_log(world, config=config, cleaned=cleaner.has_cleaned(ROOT, TP))
    assert cleaner.has_cleaned(ROOT, TP) and not cleaner.has_cleaned("/elsewhere", TP)
    assert records(again) == before and again.end_offset == log.end_offset
    if not kafka:
        assert open_log(world, config=config).end_offset == log.end_offset


def test_what_may_be_cleaned(world: World) -> None:
    log = open_log(world)
    fill(log, 20)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 3
    dirty = measure(log, None, world.now_ms)
    assert (dirty.first_dirty_offset, dirty.first_uncleanable_offset) == (0, bases[-1])
    assert dirty.ratio == 1.0 and dirty.is_due
    half = measure(log, bases[2], world.now_ms)
    assert half.first_dirty_offset == bases[2] and 0 < half.ratio < 1
    # A checkpoint beyond the log, or before it, counts for nothing.
    assert measure(log, 10_000, world.now_ms).first_dirty_offset == 0
    log.advance_start_offset(3)
    assert measure(log, 1, world.now_ms).first_dirty_offset == 3
    # Nothing that is not committed.
    log.high_watermark = bases[1] + 1
    assert measure(log, None, world.now_ms).first_uncleanable_offset == bases[1]


def test_a_minimum_lag_protects_young_segments(world: World) -> None:
    log = open_log(world, config=replace(CONFIG, min_compaction_lag_ms=1000))
    fill(log, 20)
    assert not measure(log, None, world.now_ms + 999).is_due
    assert measure(log, None, world.now_ms + 1001).is_due


def test_a_maximum_lag_makes_a_hardly_dirty_log_due(world: World) -> None:
    config = replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    log = open_log(world, config=config)
    fill(log, 20)
    assert not measure(log, 0, world.now_ms + 1000).is_due
    assert measure(log, 0, world.now_ms + 1001).is_due


def test_groups_fit_a_segment(world: World) -> None:
    log = open_log(world)
    fill(log, 40)
    segments = list(log.segments)[:-1]
    end = log.segments.active.base_offset
    assert group_segments(segments, end, 10**9, 10**9) == [segments]
    for group in group_segments(segments, end, 900, 10**9):
        assert sum(segment.size for segment in group) <= 900 or len(group) == 1
    assert len(group_segments(segments, end, 10**9, 0)) == len(segments)
    assert len(group_segments(segments, (1 << 31) + 1, 10**9, 10**9)) == 2


async def test_small_segments_are_merged(world: World) -> None:
    log = open_log(world)
    fill(log, 60)
    count = len(log.segments)
    await clean(world, log)
    fill(log, 20)
    await clean(world, log)
    assert len(log.segments) <= count / 2


async def test_little_memory_cleans_in_steps(world: World) -> None:
    log = open_log(world)
    fill(log, 60, keys=12)
    before = table(log)
    cleaner = make_cleaner(world, log, dedupe_buffer_size=5 * ENTRY_BYTES)
    runs = 0
    while (dirty := cleaner.dirtiest()) is not None:
        assert await cleaner.clean(dirty)
        runs += 1
        assert table(log) == before and runs < 100
    assert runs > 1


async def test_a_batch_too_large_for_memory_is_given_up(world: World) -> None:
    log = open_log(world, config=replace(CONFIG, segment_bytes=4000))
    batch = [Record(-1, 0, b"key %d" % number, b"v") for number in range(50)]
    log.append_as_leader(encode_batch(batch), 1)
    log.set_high_watermark(50)
    log.roll()
    cleaner = make_cleaner(world, log, dedupe_buffer_size=10 * ENTRY_BYTES)
    dirty = cleaner.dirtiest()
    assert dirty is not None and not await cleaner.clean(dirty)
    assert cleaner.dirtiest() is None and cleaner.statistics()["uncleanable"] == 1


async def test_tombstones_go_after_their_retention(world: World) -> None:
    log = open_log(world, config=replace(CONFIG, delete_retention_ms=1000))
    put(log, "a", "1")
    put(log, "a", None)
    log.roll()
    put(log, "b", "1")
    await clean(world, log)
    assert [record.offset for record in records(log)] == [1, 2]
    world.now_ms += 1000
    log.roll()
    put(log, "c", "1")
    await clean(world, log)
    assert [record.offset for record in records(log)] == [2, 3]


def transact(log: Log, pid: int, key: str, kind: ControlType, sequence: int) -> None:
    put(
        log,
        key,
        "x",
        producer_id=pid,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    end = TransactionEnd(kind, 0, 1_700_000_000_000)
    log.append_as_leader(encode_transaction_end(end, pid, 0), 1, origin=Origin.COORDINATOR)
    log.set_high_watermark(log.end_offset)


async def test_aborted_transactions_vanish_and_committed_ones_stay(world: World) -> None:
    log = open_log(world)
    put(log, "a", "old")
    transact(log, 7, "a", ControlType.ABORT, 0)
    transact(log, 7, "b", ControlType.COMMIT, 1)
    log.roll()
    put(log, "z", "1")
    await clean(world, log)
    assert table(log) == {b"a": b"old", b"b": b"x", b"z": b"1"}
    # The marker is still there and so is its line in the index: a reader may be inside.
    assert [aborted.first_offset for aborted in log.aborted_transactions(0, 99)] == [1]
    log.close()
    again = open_log(world, clean=True)
    assert [aborted.last_offset for aborted in again.aborted_transactions(0, 99)] == [2]


async def test_an_open_transaction_is_not_cleaned(world: World) -> None:
    log = open_log(world)
    put(log, "a", "1", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    fill(log, 20)
    assert make_cleaner(world, log).dirtiest() is None


async def test_producer_state_survives_cleaning_and_a_crash(world: World) -> None:
    log = open_log(world)
    for sequence in range(3):
        put(log, "a", "x", producer_id=7, producer_epoch=0, base_sequence=sequence)
    fill(log, 20)
    put(log, "a", "last")
    log.roll()
    put(log, "z", "1")
    await clean(world, log)
    for path in world.files(ROOT):
        if path.endswith(".snapshot"):
            world.disk().remove(path)
    again = open_log(world)
    state = again.producers.get(7)
    assert state is not None and state.last_sequence == 2


# What happens to the log meanwhile


async def interrupted(world: World, log: Log, change: Callable[[], object]) -> Cleaner:
    """Begin to clean, let one slice pass, change something, and let the cleaner see it."""
    cleaner = make_cleaner(world, log)
    dirty = cleaner.dirtiest()
    assert dirty is not None
    task = asyncio.ensure_future(cleaner.clean(dirty))
    await asyncio.sleep(0)
    assert not task.done()
    change()
    assert await task is False
    assert not any(path.endswith((".cleaned", ".swap")) for path in world.files(ROOT))
    return cleaner


@pytest.fixture
def one_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner_module, "SLICE_BYTES", 1)


@pytest.mark.usefixtures("one_batch_at_a_time")
@pytest.mark.parametrize("change", ["cut", "cut within", "retention", "policy", "close"])
async def test_cleaning_is_abandoned_when_the_log_changes(world: World, change: str) -> None:
    log = open_log(world)
    fill(log)

    def act() -> None:
        if change == "cut":
            log.truncate_to(3)
        elif change == "cut within":
            log.truncate_to(log.segments.active.base_offset - 1)
            log.roll()
            fill(log, 5)
        elif change == "retention":
            log.advance_start_offset(20)
            assert log.delete_old_segments() > 0
        elif change == "policy":
            log.config = replace(CONFIG, cleanup_policy=frozenset({"delete"}))
        else:
            log.close_files()

    await interrupted(world, log, act)
    if change != "close":
        seen = records(log)
        assert [record.offset for record in seen] == list(range(log.start_offset, log.end_offset))


@pytest.mark.usefixtures("one_batch_at_a_time")
async def test_appends_go_on_while_a_log_is_cleaned(world: World) -> None:
    log = open_log(world)
    fill(log)
    cleaner = make_cleaner(world, log)
    dirty = cleaner.dirtiest()
    assert dirty is not None
    task = asyncio.ensure_future(cleaner.clean(dirty))
    number = 0
    while not task.done():
        put(log, f"k{number % 5}", f"new {number}")
        number += 1
        await asyncio.sleep(0)
    assert await task and number > 10
    assert table(log) == {
        b"k%d" % key: b"new %d" % max(n for n in range(number) if n % 5 == key) for key in range(5)
    }
    before = records(log)
    log.close()
    assert records(open_log(world, clean=True)) == before


def test_a_throttle_is_obeyed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner_module, "SLICE_BYTES", 1)
    log = open_log(world)
    fill(log, 20)
    dirty_bytes = log.size_bytes - log.segments.active.size
    loop = SimLoop()
    loop.run_until_complete(clean(world, log, io_max_bytes_per_second=1000))
    loop.close()
    # Everything is read twice: for the newest offset of each key, then to be copied.
    assert loop.time() == pytest.approx(2 * dirty_bytes / 1000)


async def test_a_damaged_log_is_left_alone(world: World) -> None:
    log = open_log(world)
    fill(log)
    path = f"{ROOT}/{TP}/{0:020d}.log"
    file = world.disk().open(path)
    file.write_at(16, b"\x07")
    before = world.files(ROOT)
    cleaner = make_cleaner(world, log)
    dirty = cleaner.dirtiest()
    assert dirty is not None and not await cleaner.clean(dirty)
    assert world.files(ROOT) == before and cleaner.dirtiest() is None


# Crashes


async def crash_while_cleaning(world: World, changes: int) -> bool:
    """Clean with a disk that stops at the n-th change; says whether it got that far."""
    log = open_log(world)
    fill(log, 30)
    put(log, "k1", None)
    log.roll()
    put(log, "z", "1")
    log.flush()
    disk = world.disk()
    crashing = open_log(world, disk, recovery_point=log.recovery_point)
    disk.changes_left = changes
    crashing.set_high_watermark(crashing.end_offset)
    try:
        await clean(world, crashing)
    except world.Died:
        return True
    return False


@pytest.mark.parametrize("power_loss", [False, True])
async def test_a_crash_at_any_change_loses_nothing(
    make_world: Callable[[], Any], power_loss: bool
) -> None:
    expected = {
        **{b"k%d" % key: b"v%d" % (25 + key) for key in range(5) if key != 1},
        b"z": b"1",
    }
    changes = 0
    crashed = True
    while crashed:
        world = make_world()
        crashed = await crash_while_cleaning(world, changes)
        if power_loss:
            world.lose_power(changes)
        log = open_log(world, recovery_point=32)
        assert table(log) == expected, changes
        assert log.end_offset == 32
        leftovers = [p for p in world.files(ROOT) if p.endswith((".cleaned", ".swap", ".deleted"))]
        assert not leftovers, (changes, leftovers)
        # And the next cleaning finishes the job.
        log.set_high_watermark(log.end_offset)
        if make_cleaner(world, log).dirtiest() is not None:
            await clean(world, log)
        assert table(log) == expected
        changes += 1
    assert changes > 20


async def test_a_full_disk_takes_the_log_offline_but_spoils_nothing(
    make_world: Callable[[], Any],
) -> None:
    failures = 0
    for changes in range(0, 40, 3):
        world = make_world()
        log = open_log(world)
        fill(log, 30)
        log.flush()
        expected = table(log)
        disk = world.disk(full=True)
        full = open_log(world, disk, recovery_point=30)
        full.set_high_watermark(30)
        disk.changes_left = changes
        cleaner = make_cleaner(world, full)
        dirty = cleaner.dirtiest()
        assert dirty is not None
        await cleaner.clean(dirty)
        failures += full.offline
        assert table(open_log(world, recovery_point=30)) == expected
    assert failures > 3
