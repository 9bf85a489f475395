"""What `odradek pipeline` says while it starts."""

import threading
from queue import SimpleQueue

import click
import pytest

from odradek.cli.pipeline import going_on


def test_a_start_that_takes_its_time_says_so_until_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(click, "echo", lambda text, err: said.put(text))
    with going_on("clicks: still starting Spark", quiet_s=0.001):
        for _ in range(2):
            assert said.get(timeout=60).startswith("clicks: still starting Spark, ")
    assert "progress" not in [thread.name for thread in threading.enumerate()]
