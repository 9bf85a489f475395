"""kafkajs, in Node: kafkajs.js does one operation per process."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.compatibility.drivers import Got, Placement, Sent, Unsupported, nothing

VERSION = "2.2.4"
SCRIPT = Path(__file__).with_name("kafkajs.js")
INSTALL_TIMEOUT_S = 120
WAIT_S = 60
BUILT_IN_CODECS = ("none", "gzip")


@cache
def modules() -> str:
    """A node_modules with kafkajs in it, made once for this machine; why there is none, if not."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Unsupported("not run: Node is not installed")
    home = Path(tempfile.gettempdir()) / f"odradek-kafkajs-{VERSION}"
    if not (home / "node_modules" / "kafkajs" / "package.json").exists():
        command = ["npm", "install", "--prefix", str(home), "--no-audit", "--no-fund"]
        try:
            subprocess.run(
                [*command, f"kafkajs@{VERSION}"],
                check=True,
                timeout=INSTALL_TIMEOUT_S,
                capture_output=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise Unsupported(f"not run: npm could not install kafkajs ({error})") from None
    return str(home / "node_modules")


def coded(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def plain(content: str | None) -> bytes | None:
    return None if content is None else base64.b64decode(content)


class KafkaJs:
    name = "kafkajs"

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self.bootstrap = bootstrap
        self.client_id = client_id
        self._files = tempfile.TemporaryDirectory()
        os.environ["NODE_PATH"] = modules()

    def _command(self, operation: str, **arguments: object) -> list[str]:
        file = Path(self._files.name) / f"{operation}.json"
        file.write_text(json.dumps(arguments))
        return ["node", str(SCRIPT), operation, self.bootstrap, self.client_id, str(file)]

    def _run(self, operation: str, between: Callable[[], None] = nothing, **given: object) -> Any:
        with subprocess.Popen(
            self._command(operation, **given),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdin is not None
                for line in process.stdout:
                    message = json.loads(line)
                    if message == "half":
                        between()
                        process.stdin.write("go on\n")
                        process.stdin.flush()
                    elif "error" in message:
                        raise RuntimeError(message["error"])
                    else:
                        return message["result"]
                raise RuntimeError(f"{operation} ended without a result")
            finally:
                process.kill()

    def version(self) -> str:
        version: str = self._run("version")
        return version

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        idempotent: bool = False,
        between: Callable[[], None] = nothing,
    ) -> None:
        if codec not in BUILT_IN_CODECS:
            raise Unsupported("brings gzip only; other codecs are packages of their own")
        sent = [
            {
                "key": coded(record.key),
                "value": coded(record.value),
                "headers": [[name, coded(value)] for name, value in record.headers],
                "timestamp": record.timestamp_ms,
                "partition": record.partition,
            }
            for record in records
        ]
        given = {"topic": topic, "records": sent, "codec": codec, "idempotent": idempotent}
        self._run("produce", between if len(records) > 1 else nothing, **given)

    def consume(self, topic: str, starts: Mapping[int, int], count: int) -> list[Got]:
        found = self._run("consume", topic=topic, starts=dict(starts), count=count)
        return [
            Got(
                record["partition"],
                record["offset"],
                record["timestamp"],
                plain(record["key"]),
                plain(record["value"]),
                tuple((name, plain(value)) for name, value in record["headers"]),
            )
            for record in found
        ]

    def seek(self, topic: str, first: int, then: int) -> list[int]:
        offsets: list[int] = self._run("seek", topic=topic, first=first, then=then)
        return offsets

    def pause(self, topic: str) -> tuple[set[int], set[int]]:
        before, after = self._run("pause", topic=topic)
        return set(before), set(after)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        offset: int = self._run(
            "offset_at", topic=topic, partition=partition, timestamp=timestamp_ms
        )
        return offset

    def member_command(self, group: str, topic: str, session_ms: int) -> list[str]:
        return self._command("member", group=group, topic=topic, session_ms=session_ms)

    def create_topic(self, topic: str, partitions: int, copies: int) -> None:
        self._run("create_topic", topic=topic, partitions=partitions, copies=copies)

    def topics(self) -> set[str]:
        return set(self._run("topics"))

    def describe(self, topic: str) -> dict[int, Placement]:
        return {part[0]: Placement(*part[1:]) for part in self._run("describe", topic=topic)}

    def add_partitions(self, topic: str, count: int) -> None:
        self._run("add_partitions", topic=topic, count=count)

    def delete_topic(self, topic: str) -> None:
        self._run("delete_topic", topic=topic)

    def set_config(self, topic: str, name: str, value: str) -> None:
        self._run("set_config", topic=topic, name=name, value=value)

    def config(self, topic: str, name: str) -> str:
        return str(self._run("config", topic=topic, name=name))

    def groups(self) -> set[str]:
        return set(self._run("groups"))

    def group_offset(self, group: str, topic: str, partition: int) -> int:
        offset: int = self._run("group_offset", group=group, topic=topic, partition=partition)
        return offset

    def delete_group(self, group: str) -> None:
        self._run("delete_group", group=group)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self._run("delete_records", topic=topic, partition=partition, before=before)
