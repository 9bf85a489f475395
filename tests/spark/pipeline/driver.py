"""A driver that runs a pipeline from Python, and kills itself after a given step of landing.

    python driver.py FILE.toml [stage|decide|publish|clean_up]

Without a step it runs to the end of what is there, and says so.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from odradek.spark.pipeline.lake import FrameRows, Lake
from odradek.spark.pipeline.runner import Run
from odradek.spark.pipeline.spec import load
from odradek.spark.session import open_session


def die_after(step: str) -> None:
    """The first batch that is new to the lake gets no further than this."""
    owner = FrameRows if step == "stage" else Lake
    name = "write_to" if step == "stage" else step
    done = getattr(owner, name)
    is_new = threading.Event()
    written = FrameRows.write_to

    def write_to(self: FrameRows, directory: Path) -> int:
        is_new.set()
        return written(self, directory)

    FrameRows.write_to = write_to  # type: ignore[method-assign]  # this process only tests
    if step == "stage":
        done = write_to

    def then_die(self: object, *arguments: object) -> object:
        result = done(self, *arguments)
        if is_new.is_set():
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, then_die)


def main() -> None:
    pipeline = load(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        die_after(sys.argv[2])
    run = Run(pipeline, open_session(pipeline.name, pipeline.master, pipeline.spark))
    run.start()
    for query in run.queries.values():
        query.awaitTermination()
    run.check()
    print("landed", sum(run.rows_out(name).total for name in run.queries))


if __name__ == "__main__":
    main()
