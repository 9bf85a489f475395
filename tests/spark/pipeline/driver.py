"""A driver that runs a pipeline from Python, and kills itself at a given moment.

    python driver.py FILE.toml MOMENT

It opens its session, says "ready" and waits for a line. Moments: "writing" (the first file of a
batch is there), "stage", "decide" (after that step of landing a batch), "clean_up" (the same, and
dead letters were sent), "checkpoint" (Spark has noted a batch as done), and "never": then it runs
to the end of what is there and says how many rows landed in the lake.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from odradek.spark.pipeline import runner
from odradek.spark.pipeline.lake import FrameRows, Lake
from odradek.spark.pipeline.runner import Run
from odradek.spark.pipeline.spec import load
from odradek.spark.session import open_session

SINK = "events"


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


def stop_after(owner: Any, name: str) -> threading.Event:
    """Tells when it has been called, and lets nobody go on after that."""
    done = getattr(owner, name)
    happened = threading.Event()

    def then_stop(*arguments: object) -> NoReturn:
        done(*arguments)
        happened.set()
        threading.Event().wait()
        raise AssertionError

    setattr(owner, name, then_stop)
    return happened


def prepare_death(moment: str, home: Path) -> None:
    commits = home / "checkpoint" / SINK / "commits"
    if moment == "writing":
        staging = home / "lake" / f"_{SINK}" / "staging"
        known = set(staging.rglob("*.parquet"))
        die_when(lambda: bool(set(staging.rglob("*.parquet")) - known))
    elif moment == "stage":
        die_after(FrameRows, "write_to")
    elif moment == "checkpoint":
        done = set(os.listdir(commits))
        die_when(lambda: any(name.isdigit() for name in set(os.listdir(commits)) - done))
    elif moment != "never":
        # A batch that was decided before is finished first; the next that is new is the last.
        is_new = threading.Event()
        write = FrameRows.write_to

        def write_to(self: FrameRows, directory: Path) -> int:
            is_new.set()
            return write(self, directory)

        FrameRows.write_to = write_to  # type: ignore[method-assign]  # this process only tests
        if moment == "clean_up":
            letters_sent = stop_after(runner, "_write")
            die_after(Lake, moment, lambda: is_new.is_set() and letters_sent.wait())
        else:
            die_after(Lake, moment, is_new.is_set)


def main() -> None:
    file, moment = Path(sys.argv[1]), sys.argv[2]
    pipeline = load(file)
    spark = open_session(pipeline.name, pipeline.master, pipeline.spark)
    print("ready", flush=True)
    sys.stdin.readline()
    prepare_death(moment, file.parent)
    run = Run(pipeline, spark)
    run.start()
    run.wait()
    print(run.rows_out(SINK).total, flush=True)


if __name__ == "__main__":
    main()
