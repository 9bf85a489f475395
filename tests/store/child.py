"""A process with one session: does what its standard input says, one line at a time.

Its output is one line per command, and `session EVENT` whenever the session changes.
"""

import asyncio
import sys

from odradek.store import open_store
from odradek.store.api import BadVersion, Create, Set, Store, StoreError, Watch, WatchEvent


def say(line: str) -> None:
    print(line, flush=True)


async def count(store: Store, path: str, times: int) -> None:
    """Raise the number in a node, each time only if no other process did."""
    done = 0
    while done < times:
        data, stat = await store.get(path)
        assert data is not None
        try:
            await store.set(path, b"%d" % (int(data) + 1), stat.version)
            done += 1
        except BadVersion:
            pass


async def watch(store: Store, path: str) -> None:
    """Say every version of a node that is seen, by watching only."""
    changed = asyncio.Event()

    def on_change(_: WatchEvent) -> None:
        changed.set()

    leave: Watch = on_change
    while True:
        changed.clear()
        data, _ = await store.get(path, leave)
        assert data is not None
        say(data.decode())
        if data == b"stop":
            return
        await changed.wait()


async def pairs(store: Store, path: str) -> None:
    """For ever: two nodes that must always be equal, in one multi."""
    number = 0
    while True:
        number += 1
        data = b"%d" % number
        await store.multi([Set(f"{path}/left", data), Set(f"{path}/right", data)])
        await store.multi([Create(f"{path}/log-", data, sequential=True)])


async def obey(store: Store, line: str) -> None:
    verb, *rest = line.split()
    if verb == "create":
        say(await store.create(rest[0], None, ephemeral="ephemeral" in rest))
    elif verb == "sequential":
        for _ in range(int(rest[1])):
            await store.create(rest[0], None, sequential=True)
        say("done")
    elif verb == "count":
        await count(store, rest[0], int(rest[1]))
        say("done")
    elif verb == "get":
        data, _ = await store.get(rest[0])
        say((data or b"").decode())
    elif verb == "watch":
        await watch(store, rest[0])
    elif verb == "pairs":
        await pairs(store, rest[0])
    else:
        raise ValueError(line)


async def main(url: str, timeout_ms: int) -> None:
    store = open_store(url, session_timeout_ms=timeout_ms)
    await store.start()
    store.on_session(lambda event: say(f"session {event.value}"))
    loop = asyncio.get_running_loop()
    say("ready")
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            await obey(store, line)
        except StoreError as error:
            say(f"error {type(error).__name__}")
    await store.close()


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
