"""A record of the log is one line, whatever a client calls itself.

Names of topics, groups and users, client ids and mechanisms are the clients' to choose, and brokers
log them. A line feed in one would forge a line, an escape sequence would act on the terminal that
shows the log, and 500 KB of it on every login would fill a disk.
"""

import logging

__all__ = ["LENGTH_MAX", "LineFormatter", "one_line"]

LENGTH_MAX = 8192
# C0 and C1 controls, and what else ends a line for some readers.
_ESCAPES = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
}


def one_line(text: str) -> str:
    if len(text) > LENGTH_MAX:
        text = f"{text[:LENGTH_MAX]}… ({len(text)} characters)"
    return text if text.isprintable() else text.translate(_ESCAPES)


class LineFormatter(logging.Formatter):
    """A traceback below the line keeps its own lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        record.message = one_line(record.message)
        return super().formatMessage(record)
