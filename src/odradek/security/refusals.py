"""Refusals in the log: for each principal so many lines a second, and how many there were besides.

A client without any permission may ask about 20,000 topics in one request, and could fill a disk
with what it was refused.
"""

import asyncio
import logging
from collections import Counter

from odradek.security.principal import Principal

__all__ = ["LINES_PER_SECOND", "RefusalLog"]

LINES_PER_SECOND = 20

logger = logging.getLogger(__name__)


class RefusalLog:
    """Of one broker."""

    def __init__(self) -> None:
        self._second = 0
        self._counts: Counter[Principal] = Counter()

    def add(self, principal: Principal, what: str, host: str) -> None:
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._summarize()
            self._second = second
        self._counts[principal] += 1
        if self._counts[principal] <= LINES_PER_SECOND:
            logger.info("%s denied %s from host %s", principal, what, host)

    def _summarize(self) -> None:
        for principal, count in self._counts.items():
            if count > LINES_PER_SECOND:
                logger.info("%s denied %d times more", principal, count - LINES_PER_SECOND)
        self._counts.clear()
