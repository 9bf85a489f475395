"""kcat, where it is installed: a command line that produces and consumes."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from tests.compatibility.drivers import Got, Sent, Unsupported, nothing

WAIT_S = 60


class Kcat:
    name = "kcat"

    def __init__(self, bootstrap: str, client_id: str) -> None:
        program = shutil.which("kcat") or shutil.which("kafkacat")
        if program is None:
            raise Unsupported("not run: kcat is not installed")
        self._command = [program, "-b", bootstrap, "-X", f"client.id={client_id}"]

    def _run(self, *arguments: str, input: bytes = b"") -> str:
        ended = subprocess.run(
            [*self._command, *arguments],
            input=input,
            check=True,
            timeout=WAIT_S,
            capture_output=True,
        )
        return ended.stdout.decode()

    def version(self) -> str:
        found = re.search(r"Version (\S+)", self._run("-V"))
        return found[1] if found else "unknown"

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        idempotent: bool = False,
        between: Callable[[], None] = nothing,
    ) -> None:
        if between is not nothing:
            raise Unsupported("ends with its input: nothing can happen between two records")
        if any(record.timestamp_ms is not None for record in records):
            raise Unsupported("cannot set timestamps")
        if len({record.headers for record in records}) > 1:
            raise Unsupported("has the same headers for all records of a run")
        settings = ["-X", f"enable.idempotence={str(idempotent).lower()}", "-X", "acks=all"]
        settings += ["-z", codec, "-K", ":", "-Z"]
        for name, value in records[0].headers:
            settings += ["-H", f"{name}={(value or b'').decode()}"]
        for partition in {record.partition for record in records}:
            where = [] if partition is None else ["-p", str(partition)]
            lines = [
                (record.key or b"") + b":" + (record.value or b"")
                for record in records
                if record.partition == partition
            ]
            self._run("-P", "-t", topic, *settings, *where, input=b"\n".join(lines) + b"\n")

    def consume(self, topic: str, starts: Mapping[int, int], count: int) -> list[Got]:
        found = []
        for partition, offset in starts.items():
            place = ["-p", str(partition), "-o", str(offset)]
            for line in self._run("-C", "-t", topic, *place, "-e", "-q", "-J").splitlines():
                record = json.loads(line)
                pairs = record.get("headers", [])
                found.append(
                    Got(
                        record["partition"],
                        record["offset"],
                        record["ts"],
                        None if record["key"] is None else record["key"].encode(),
                        None if record["payload"] is None else record["payload"].encode(),
                        tuple(
                            zip(pairs[::2], (text.encode() for text in pairs[1::2]), strict=True)
                        ),
                    )
                )
        return found

    def __getattr__(self, operation: str) -> Callable[..., NoReturn]:
        def refuse(*_: object) -> NoReturn:
            raise Unsupported("has no such operation")

        return refuse
