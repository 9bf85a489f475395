"""Logs that move between directories: what they are after a kill, and what else a move meets."""

from dataclasses import replace
from typing import Any

import pytest
from tests.log.managers import CONFIG, TP, A, B, put, started

from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.reports import describe_directories
from odradek.wire.errors import ErrorCode, KafkaError


def copied(manager: LogManager) -> Log:
    """A copy in B of the log in A, complete."""
    current = manager.logs[TP]
    manager.prefer_directory(TP, B)
    future = manager.get_or_create(TP, current.config, future=True)
    while future.end_offset < current.end_offset:
        future.append_as_follower(current.read(future.end_offset, 1 << 20).records)
    return future


async def test_a_future_log_takes_the_place_of_the_current(world: Any) -> None:
    manager = await started(world)
    current = manager.get_or_create(TP)
    put(current, 5)
    with pytest.raises(KafkaError) as caught:
        manager.prefer_directory(TP, "/nowhere")
    assert caught.value.error is ErrorCode.LOG_DIR_NOT_FOUND
    manager.prefer_directory(TP, B)
    future = manager.get_or_create(TP, future=True)
    assert future.directory.startswith(f"{B}/t-0.") and future.directory.endswith("-future")
    future.append_as_follower(current.read(0, 1 << 20, end_offset=5).records)
    sizes = {report.path: report.logs for report in describe_directories(manager)}
    assert sizes[A][0].offset_lag == 0 and not sizes[A][0].is_future
    assert sizes[B][0].offset_lag == 0 and sizes[B][0].is_future

    restarted = await started(world)
    assert restarted.get(TP, future=True) is not None
    restarted.logs[TP].set_high_watermark(5)
    moved = restarted.replace_current_with_future(TP)
    assert moved is restarted.logs[TP] and moved.directory == f"{B}/t-0"
    assert moved.high_watermark == 5 and restarted.future_logs == {}
    put(moved)
    await restarted.close()
    again = await started(world)
    assert again.logs[TP].directory == f"{B}/t-0" and again.logs[TP].end_offset == 6
    with pytest.raises(KafkaError):
        again.replace_current_with_future(TP)


async def test_a_cancelled_move(world: Any) -> None:
    manager = await started(world)
    put(manager.get_or_create(TP))
    manager.prefer_directory(TP, B)
    manager.get_or_create(TP, future=True)
    assert manager.async_delete(TP, future=True) is not None
    assert manager.get(TP, future=True) is None and manager.get(TP) is not None


async def test_the_copy_of_a_cleaned_log_is_whole_after_a_kill(world: Any) -> None:
    compact = replace(CONFIG, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
    manager = await started(world)
    put(manager.get_or_create(TP, compact), 30)
    assert await manager.cleaner.run() == 1
    manager.update_topic_config("t", CONFIG)
    copied(manager)
    moved = manager.replace_current_with_future(TP)
    put(moved, 5)
    again = await started(world)
    assert again.logs[TP].directory == f"{B}/t-0" and again.logs[TP].end_offset == 35
    again.async_delete(TP)
    world.now_ms += 1000
    await again.remove_retired()
    assert not any("t-0" in path for path in world.files("/"))
