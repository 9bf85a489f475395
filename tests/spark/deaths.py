"""Tasks that write exactly once and die before each of their steps, in processes of their own.

    python deaths.py SERVERS TOPIC WRITER

The first attempt of batch N is killed before step N of a task; the second goes to its end and says
whether the rows were there already. As Spark does it, but without its seconds.
"""

import asyncio
import os
import signal
import sys

import pyarrow as pa

from odradek.spark.encode import checksum
from odradek.spark.exactly_once import Outcome, Part, Reached, Step, tell, write_once
from odradek.spark.sink_options import sink_options

STEPS = [step for step in Step if step not in (Step.FINISH, Step.FINISHED)]
ROWS = 20


def rows(batch: int) -> pa.RecordBatch:
    values = [b"%d" % number for number in range(batch * ROWS, (batch + 1) * ROWS)]
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})


def attempt(servers: str, topic: str, part: Part, reached: Reached) -> Outcome:
    given = {"kafka.bootstrap.servers": servers, "topic": topic, "exactlyOnce": "true"}
    batches = iter([rows(part.batch)])
    return asyncio.run(write_once(sink_options(given), ["value"], part, batches, reached))


def main() -> None:
    servers, topic, writer = sys.argv[1:]
    checksum(rows(0))  # loads the loops before the children, which then need not
    for batch, last in enumerate(STEPS):
        part = Part(writer, batch, 0)

        def die(step: Step, _: Part, last: Step = last) -> None:
            if step is last:
                os.kill(os.getpid(), signal.SIGKILL)

        child = os.fork()
        if child == 0:
            attempt(servers, topic, part, die)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"the attempt did not die: {last}"
        print(last.name, attempt(servers, topic, part, tell).was_there, flush=True)


if __name__ == "__main__":
    main()
