"""Ways for a process to kill itself at a given moment of what it does."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def die_when(holds: Callable[[], bool]) -> None:
    def watch() -> None:
        while not holds():
            time.sleep(0.001)
        die()

    threading.Thread(target=watch, daemon=True).start()


def die_after(owner: Any, name: str, counts: Callable[[], bool] = lambda: True) -> None:
    done = getattr(owner, name)

    def then_die(*arguments: object) -> object:
        result = done(*arguments)
        if counts():
            die()
        return result

    setattr(owner, name, then_die)


def die_before(owner: Any, name: str) -> None:
    setattr(owner, name, lambda *_, **__: die())


def stop_after(owner: Any, name: str) -> threading.Event:
    """Set when it has been called; the caller does not go on after that."""
    done = getattr(owner, name)
    happened = threading.Event()

    def then_stop(*arguments: object) -> NoReturn:
        done(*arguments)
        happened.set()
        threading.Event().wait()
        raise AssertionError

    setattr(owner, name, then_stop)
    return happened
