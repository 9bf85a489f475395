"""Who did what: a JSON line for each change and each refused request, in a file and in memory.

A crash loses no line that was written: each is appended in one write before the answer goes out.
Nothing secret is in it: passwords, tokens and values of sensitive settings are left out by the
plans that report here.
"""

import json
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

LINES_MAX = 2_000
TEXT_MAX = 2_000
FILE_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AuditLine:
    time_ms: int
    user: str
    address: str
    action: str
    subject: str
    before: str
    after: str
    outcome: str


class Audit:
    """The newest lines in memory, all of them in a file of mode 0600, if there is one."""

    def __init__(self, path: Path | None = None, clock_ms: Callable[[], int] | None = None) -> None:
        self._path = path
        self._clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self.lines: deque[AuditLine] = deque(maxlen=LINES_MAX)
        if path is not None and path.exists():
            self._read(path)

    def record(
        self,
        user: str,
        address: str,
        action: str,
        subject: str,
        *,
        before: str = "",
        after: str = "",
        outcome: str = "done",
    ) -> AuditLine:
        line = AuditLine(
            self._clock_ms(),
            *(_short(text) for text in (user, address, action, subject, before, after, outcome)),
        )
        self.lines.append(line)
        if self._path is not None:
            self._append(json.dumps(asdict(line)) + "\n")
        return line

    def about(self, topic: str) -> list[AuditLine]:
        """The changes of a topic or one of its partitions."""
        return [
            line
            for line in self.lines
            if line.subject == topic or line.subject.rpartition("-")[0] == topic
        ]

    def _append(self, text: str) -> None:
        assert self._path is not None
        if self._path.exists() and self._path.stat().st_size > FILE_BYTES_MAX:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, text.encode("ascii"))
        finally:
            os.close(descriptor)

    def _read(self, path: Path) -> None:
        with path.open("rb") as file:
            for text in deque(file, maxlen=LINES_MAX):
                try:
                    self.lines.append(AuditLine(**json.loads(text)))
                except (ValueError, TypeError):
                    continue  # a line that a crash tore


def _short(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"
