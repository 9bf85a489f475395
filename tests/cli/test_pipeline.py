"""What `odradek pipeline` says while it starts, and what it leaves to a file."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import click
import pytest

from odradek.cli.pipeline import keep_off_terminal, progress


def test_a_start_that_takes_its_time_says_so_until_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(click, "echo", lambda text, err: said.put(text))
    with progress("clicks: still starting Spark", quiet_s=0.001):
        for _ in range(2):
            assert said.get(timeout=60).startswith("clicks: still starting Spark, ")
    assert "progress" not in [thread.name for thread in threading.enumerate()]


@pytest.fixture
def loggers() -> Iterator[None]:
    """Both loggers of py4j, as they were."""
    both = [logging.getLogger(), logging.getLogger("py4j")]
    were = [(one.handlers[:], one.filters[:], one.propagate) for one in both]
    yield
    for one, (handlers, filters, propagate) in zip(both, were, strict=True):
        for handler in set(one.handlers) - set(handlers):
            one.removeHandler(handler)
            handler.close()
        one.filters, one.propagate = filters, propagate


@pytest.mark.usefixtures("loggers")
def test_what_py4j_says_of_a_killed_java_is_in_a_file_and_nothing_else_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "spark.log"
    keep_off_terminal(log)
    logging.getLogger("py4j.clientserver").error("There was an exception")
    logging.getLogger().error("Exception while sending command.")
    logging.getLogger("odradek.spark.tables").warning("a long history")
    assert [record.name for record in caplog.records] == ["odradek.spark.tables"]
    assert log.read_text().splitlines() == [
        "There was an exception",
        "Exception while sending command.",
    ]
