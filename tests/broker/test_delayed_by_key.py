"""Requests that wait for something named."""

import asyncio

import pytest

from odradek.broker.delayed_by_key import DelayedByKey
from odradek.replica.delayed import TimeoutWheel
from odradek.sim.loop import SimLoop


@pytest.fixture
def loop() -> SimLoop:
    return SimLoop()


def test_completed_by_any_of_its_keys_and_gone_from_all(loop: SimLoop) -> None:
    waiting: DelayedByKey[str] = DelayedByKey(TimeoutWheel(loop))
    ready = False
    ended: list[bool] = []
    waiting.wait(["a", "b"], 10.0, lambda: ready, ended.append)
    assert waiting.check("a") == 0
    ready = True
    assert waiting.check("c") == 0
    assert waiting.check("b") == 1
    assert ended == [True]
    assert waiting.keys() == []
    loop.run_until_complete(asyncio.sleep(20))
    assert ended == [True]


def test_what_holds_already_does_not_wait(loop: SimLoop) -> None:
    waiting: DelayedByKey[str] = DelayedByKey(TimeoutWheel(loop))
    ended: list[bool] = []
    waiting.wait(["a"], 10.0, lambda: True, ended.append)
    assert ended == [True]
    assert len(waiting) == 0


def test_expires(loop: SimLoop) -> None:
    waiting: DelayedByKey[str] = DelayedByKey(TimeoutWheel(loop))
    ended: list[bool] = []
    waiting.wait(["a", "b"], 10.0, lambda: False, ended.append)
    waiting.wait(["a"], 0, lambda: False, ended.append)
    assert (ended, len(waiting)) == ([False], 1)
    loop.run_until_complete(asyncio.sleep(11))
    assert ended == [False, False]
    assert waiting.keys() == []
