"""Exceptions that the product caught and only logged.

Brokers survive unexpected exceptions: the exception is logged with its traceback, the request gets
UNKNOWN_SERVER_ERROR, the event is dropped, the work is tried again. No invariant need be hurt by
it, and still it is a bug. What a fault of the world brings about is foreseen, and logged without a
traceback.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["watched"]

PRODUCT = logging.getLogger("odradek")


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and asyncio._get_running_loop() is not None:  # what is left is torn down
            error = record.exc_info[1]
            self.heard.append(f"unexpected: {record.name}: {record.getMessage()}: {error!r}")


@contextmanager
def watched() -> Iterator[list[str]]:
    """What is logged with a traceback meanwhile. Silenced logging stays silent."""
    listener = _Listener()
    silenced, level, propagates = PRODUCT.manager.disable, PRODUCT.level, PRODUCT.propagate
    if silenced >= logging.ERROR:
        logging.disable(logging.NOTSET)
        PRODUCT.setLevel(logging.ERROR)
        PRODUCT.propagate = False
    PRODUCT.addHandler(listener)
    try:
        yield listener.heard
    finally:
        PRODUCT.removeHandler(listener)
        PRODUCT.setLevel(level)
        PRODUCT.propagate = propagates
        logging.disable(silenced)
