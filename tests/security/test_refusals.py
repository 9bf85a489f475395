"""What is refused is in the log, and cannot fill it."""

import asyncio

import pytest

from odradek.security.principal import Principal
from odradek.security.refusals import LINES_PER_SECOND, RefusalLog


async def test_one_client_has_so_many_lines_a_second_and_the_rest_is_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    now = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    log, alice, bob = RefusalLog(), Principal("alice"), Principal("bob")
    for number in range(5000):
        log.add(alice, f"DESCRIBE on TOPIC:secret-{number}", "127.0.0.1")
    log.add(bob, "DESCRIBE on TOPIC:t", "127.0.0.1")
    assert caplog.text.count("User:alice denied") == LINES_PER_SECOND
    assert "User:bob denied DESCRIBE on TOPIC:t from host 127.0.0.1" in caplog.text
    now += 1
    log.add(alice, "DESCRIBE on TOPIC:later", "127.0.0.1")
    assert f"User:alice denied {5000 - LINES_PER_SECOND} times more" in caplog.text
    assert "User:alice denied DESCRIBE on TOPIC:later" in caplog.text
    monkeypatch.undo()
