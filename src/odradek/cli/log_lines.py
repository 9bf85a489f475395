"""A record of the log is one line, whatever a client calls itself; and clients cannot fill a disk.

Names of topics, groups and users, client ids and mechanisms are the clients' to choose, and brokers
log them. A line feed in one would forge a line, an escape sequence would act on the terminal that
shows the log, and 500 KB of it on every login would fill a disk. So would a line for each of the
thousand connections a second that a client can make, and the log may be on the disk of the records.
"""

import logging
from collections import Counter

__all__ = ["LENGTH_MAX", "LINES_PER_SECOND", "ClientLines", "LineFormatter", "one_line"]

logger = logging.getLogger(__name__)

LENGTH_MAX = 8192
LINES_PER_SECOND = 20
# Modules whose lines need no permission: any client that reaches a port causes them.
OF_CLIENTS = frozenset(
    f"odradek.broker.{module}"
    for module in ("arrivals", "authentication", "connection", "connections", "control", "http")
)
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


class ClientLines(logging.Filter):
    """Of lines of one kind that clients cause, so many a second; the others are counted, in a line
    before the next of these modules'."""

    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._counts: Counter[tuple[str, int, str]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name not in OF_CLIENTS:
            return True
        second = int(record.created)
        if second != self._second:
            self._second = second
            counts, self._counts = self._counts, Counter()
            self._summarize(counts)
        kind = record.name, record.levelno, str(record.msg)
        self._counts[kind] += 1
        return self._counts[kind] <= LINES_PER_SECOND

    def _summarize(self, counts: Counter[tuple[str, int, str]]) -> None:
        for (name, level, message), count in counts.items():
            if count > LINES_PER_SECOND:
                more = count - LINES_PER_SECOND
                logger.log(level, "%s: %d times more in a second: %s", name, more, message)
