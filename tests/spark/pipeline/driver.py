"""A driver that runs a pipeline from Python, and kills itself at a given moment.

    python driver.py FILE.toml MOMENT

It opens its session, says "ready" and waits for a line. Moments: "landed" (a version has the batch,
and dead letters were committed, but Spark has noted neither), "checkpoint" (Spark has noted a batch
as done), and "never": then it runs to the end and says how many rows landed.
"""

import os
import sys
from pathlib import Path

from tests.spark.dying import die_after, die_when, stop_after

from odradek.spark.pipeline import table_sink, topic_sink
from odradek.spark.pipeline.runner import Run
from odradek.spark.pipeline.spec import load
from odradek.spark.session import open_session

SINK = "events"


def prepare_death(moment: str, home: Path) -> None:
    commits = home / "checkpoint" / SINK / "commits"
    if moment == "landed":
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
