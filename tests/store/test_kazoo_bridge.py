"""Answers and events of kazoo's thread reach the loop in the order of the wire."""

import asyncio
from typing import Any

import pytest

from odradek.store.kazoo_bridge import LoopHandler


@pytest.fixture
async def handler() -> LoopHandler:
    made = LoopHandler(asyncio.get_running_loop())
    made.start()
    return made


async def test_an_answer_keeps_its_place_before_the_event_behind_it(handler: LoopHandler) -> None:
    """Both come between the asking and the linking, which kazoo does not do in one step."""
    heard: list[Any] = []
    result = handler.async_result()
    result.set("answer")
    handler.callback_queue.put(lambda: heard.append("event"))
    result.rawlink(lambda each: heard.append(each.value))
    await asyncio.sleep(0)
    assert heard == ["answer", "event"]


async def test_a_later_listener_is_notified_too_and_each_once(handler: LoopHandler) -> None:
    heard: list[str] = []
    result = handler.async_result()
    result.rawlink(lambda _: heard.append("first"))
    result.set_exception(ValueError())
    await asyncio.sleep(0)
    result.rawlink(lambda _: heard.append("second"))
    await asyncio.sleep(0)
    assert heard == ["first", "second"]


async def test_a_stopped_handler_tells_at_once(handler: LoopHandler) -> None:
    heard: list[Any] = []
    result = handler.async_result()
    handler.stop()
    result.set(1)
    result.rawlink(lambda each: heard.append(each.value))
    assert heard == [1]
