"""A driver that runs a pipeline from Python, and kills itself at a given moment.

    python driver.py FILE.toml MOMENT

It opens its session, says "ready" and waits for a line. Moments: "writing" (the first file of a
batch is there), "stage", "place" (after that step of landing a batch), "put" (the version is there,
and not synced), "landed" (the same, and dead letters were committed), "checkpoint" (Spark has noted
a batch as done), and "never": then it runs to the end and says how many rows landed.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from odradek.spark.pipeline import table_sink, topic_sink
from odradek.spark.pipeline.runner import Run
from odradek.spark.pipeline.spec import load
from odradek.spark.session import open_session
from odradek.spark.tables.append import STAGING, Staging
from odradek.spark.tables.table import Table

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


def die_before(owner: Any, name: str) -> None:
    setattr(owner, name, lambda *_: die())


def prepare_death(moment: str, home: Path) -> None:
    commits = home / "checkpoint" / SINK / "commits"
    if moment == "writing":
        staging = home / "lake" / SINK / STAGING
        known = set(staging.rglob("*.parquet"))
        die_when(lambda: bool(set(staging.rglob("*.parquet")) - known))
    elif moment == "stage":
        die_after(Staging, "_stage")
    elif moment == "place":
        die_after(Staging, "_place")
    elif moment == "put":
        die_before(Table, "_make_durable")
    elif moment == "landed":
        letters_sent = stop_after(topic_sink, "_write")
        die_after(table_sink, "append", letters_sent.wait)
    elif moment == "checkpoint":
        done = set(os.listdir(commits))
        die_when(lambda: any(name.isdigit() for name in set(os.listdir(commits)) - done))


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
