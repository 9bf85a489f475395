"""The child that opens records: `python -m odradek.console.worker`.

docs/spec/console.md section 3: what clients have written is hostile, so it is fetched, opened,
decoded and searched here, in a process with limits that the console ends when it takes too long.
It is given one line of JSON for each job and answers in lines of JSON. The first line says where
the cluster is and how to log in, so that no secret is in the arguments or the environment.
"""

import asyncio
import contextlib
import json
import os
import sys
from typing import Any

from odradek.client.client import Client
from odradek.console.decoders import Undecodable
from odradek.console.filters import InvalidFilter
from odradek.console.record_jobs import RecordJobs
from odradek.wire.errors import DecodeError, KafkaError

MEMORY_MAX = 512 * 1024 * 1024
NICENESS = 5


def limit_memory() -> None:
    """Where the system has such limits. One that cannot be set is no reason to fail."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MAX, MEMORY_MAX))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass
    with contextlib.suppress(OSError):
        os.nice(NICENESS)


async def serve() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=16 * 1024 * 1024)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    first = json.loads(await reader.readline())
    client = Client(
        first["bootstrap"],
        client_id=first["client_id"],
        timeout_s=first["timeout_s"],
        security=first["security"],
    )
    jobs = RecordJobs(client, say)
    say({"ready": True})
    running: asyncio.Task[None] | None = None
    try:
        while line := await reader.readline():
            job = json.loads(line)
            if "control" in job:
                jobs.control(job)
            else:
                running = asyncio.ensure_future(carry_out(jobs, job))
    finally:
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await client.close()


async def carry_out(jobs: RecordJobs, job: dict[str, Any]) -> None:
    try:
        result = await jobs.run(job)
    except KafkaError as error:
        text = error.message or error.error.name
        say({"id": job["id"], "failed": text, "error": error.error.name})
    except (OSError, TimeoutError) as error:
        say({"id": job["id"], "failed": str(error) or "no answer", "error": "REQUEST_TIMED_OUT"})
    except MemoryError:
        say({"id": job["id"], "failed": "opening it takes too much memory", "error": "TOO_LARGE"})
    except (DecodeError, Undecodable, InvalidFilter, ValueError) as error:
        say({"id": job["id"], "failed": str(error), "error": "INVALID_REQUEST"})
    else:
        say({"id": job["id"], "result": result})


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    limit_memory()
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(serve())
