"""How much work something is, counted in bytecodes: the same on every machine, however busy."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Count:
    """Bytecodes that were executed."""

    value = 0


@contextmanager
def counted() -> Iterator[Count]:
    """Counts what is executed within, in functions that are called there."""
    count = Count()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            count.value += 1
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)
