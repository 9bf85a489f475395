"""What clients call themselves cannot forge, hide or blow up a line of the log."""

import io
import logging

import pytest

from odradek.cli.log_lines import LENGTH_MAX, LINES_PER_SECOND, ClientLines, LineFormatter
from odradek.cli.output import Listing


@pytest.fixture
def log() -> tuple[logging.Logger, io.StringIO]:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(LineFormatter("%(levelname)s %(message)s"))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    return logger, written


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nINFO forged", "a\\x0aINFO forged"),
        ("\x1b[2J\x9b31m", "\\x1b[2J\\x9b31m"),
        ("a\u2028b\x7f", "a\\u2028b\\x7f"),
        ("Grüße, 世界", "Grüße, 世界"),
    ],
)
def test_a_record_is_one_line(
    log: tuple[logging.Logger, io.StringIO], name: str, shown: str
) -> None:
    logger, written = log
    logger.info("login of %s failed", name)
    assert written.getvalue() == f"INFO login of {shown} failed\n"


def test_a_long_name_is_cut(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    logger.info("mechanism %s", "x" * 500_000)
    assert len(written.getvalue()) < LENGTH_MAX + 100
    assert written.getvalue().endswith("(500010 characters)\n")


def test_a_flood_of_connections_is_counted() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.addFilter(ClientLines())
    names = "odradek.broker.connections", "odradek.replica.manager"
    loggers = [logging.getLogger(name) for name in (*names, "odradek.cli.log_lines")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        for second in (100.0, 101.5):
            for port in range(5000):
                record = loggers[0].makeRecord(
                    loggers[0].name, logging.WARNING, "", 0, "%d: closing", (port,), None
                )
                record.created = second
                loggers[0].handle(record)
        for _ in range(30):
            loggers[1].warning("an ISR shrinks")
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    lines = written.getvalue().splitlines()
    assert lines.count("an ISR shrinks") == 30
    assert lines[LINES_PER_SECOND - 1 : LINES_PER_SECOND + 2] == [
        f"{LINES_PER_SECOND - 1}: closing",
        f"{names[0]}: {5000 - LINES_PER_SECOND} times more in a second: %d: closing",
        "0: closing",
    ]
    assert sum(line.endswith(": closing") for line in lines) == 2 * LINES_PER_SECOND + 1


def test_a_traceback_keeps_its_lines(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    try:
        raise ValueError("x")
    except ValueError:
        logger.exception("a request\nfailed")
    first, second, *_ = written.getvalue().splitlines()
    assert first == "ERROR a request\\x0afailed"
    assert second.startswith("Traceback")


def test_a_cell_of_a_table_does_not_act_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A group may be called anything, and an administrator lists them."""
    Listing([{"group": "evil\x1b]0;owned\x07"}], {"group": "group"}).show(False)
    assert "evil\\x1b]0;owned\\x07" in capsys.readouterr().out
