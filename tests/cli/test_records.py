"""Produce and consume: formats, places to begin, groups, pipes; and what groups tell of it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.cli.conftest import CommandLine

pytestmark = pytest.mark.process

ODRADEK = [sys.executable, "-m", "odradek"]


def by_offset(text: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in text.splitlines()]
    return sorted(found, key=lambda record: (record["partition"], record["offset"]))


def piped(*arguments: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*ODRADEK, *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_lines(odradek: CommandLine, topic: str) -> None:
    odradek("produce", topic, "--partition", "0", input="one\ntwo\r\n\nlast without an end")
    assert odradek("consume", topic) == "one\ntwo\n\nlast without an end\n"


def test_keys_and_values(odradek: CommandLine, topic: str) -> None:
    odradek(
        "produce", topic, "-f", "keyed", "-s", "=", "--null", "NIL", input="k=v\nk=a=b\nk=NIL\n"
    )
    assert odradek("consume", topic, "-f", "keyed", "--null", "(null)") == "k:v\nk:a=b\nk:(null)\n"
    result = odradek.run("produce", topic, "-f", "keyed", input="k:last\nnothing\n")
    assert result.exit_code == 1
    said = "line 2: no ':' between key and value; the lines before it are written"
    assert said in result.stderr
    assert odradek("consume", topic, "-f", "keyed").endswith("k:last\n")


def test_json_goes_round(odradek: CommandLine, topic: str) -> None:
    lines = [
        {"key": "k", "value": "v", "headers": [["h", "1"], ["h", None]], "timestamp": 1234},
        {"key": "k", "value": None},
        {"key_base64": "/w==", "value_base64": "/v8=", "partition": 2},
        {"value": {"a": [1, 2]}, "headers": {"x": "y"}, "partition": 1},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    odradek("produce", topic, "--format", "json", input=text)
    found = by_offset(odradek("consume", topic, "--format", "json"))
    keyed = [record for record in found if record.get("key") == "k"]
    assert keyed[0]["headers"] == [["h", "1"], ["h", None]]
    assert keyed[0]["timestamp"] == 1234
    assert keyed[1]["value"] is None
    binary = next(record for record in found if "key_base64" in record)
    assert binary["value_base64"] == "/v8="
    assert any(record["value"] == '{"a": [1, 2]}' for record in found if "value" in record)
    odradek("topics", "create", f"{topic}-copy", "-p", "3")
    odradek("produce", f"{topic}-copy", "-f", "json", input=odradek("consume", topic, "-f", "json"))
    copied = by_offset(odradek("consume", f"{topic}-copy", "--format", "json"))
    assert [{**record, "topic": topic} for record in copied] == found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_file_in_every_codec(
    odradek: CommandLine, topic: str, codec: str, tmp_path: Path
) -> None:
    source, copy = tmp_path / "in", tmp_path / "out"
    source.write_text("".join(f"record {number}\n" for number in range(20_000)))
    odradek("produce", topic, str(source), "-p", "1", "--codec", codec)
    odradek("consume", topic, "--output", str(copy))
    assert copy.read_text() == source.read_text()


def test_where_to_begin_and_to_stop(odradek: CommandLine, topic: str) -> None:
    lines = [{"value": str(n), "timestamp": 1000 * n, "partition": 0} for n in range(10)]
    odradek("produce", topic, "-f", "json", input="\n".join(map(json.dumps, lines)))

    def values(*arguments: str) -> list[str]:
        return odradek("consume", topic, *arguments).split()

    assert values("--from", "7") == ["7", "8", "9"]
    assert values("--from", "-2") == ["8", "9"]
    assert values("--from", "latest") == []
    assert values("--from", "@7500") == ["8", "9"]
    assert values("--from", "1970-01-01T00:00:07+00:00") == ["7", "8", "9"]
    assert values("--from", "2100-01-01") == []
    assert values("--max", "3") == ["0", "1", "2"]
    assert values("--partition", "1") == []
    assert values("--follow", "--max", "2", "--from", "5") == ["5", "6"]
    assert "earliest, latest" in odradek.refused("consume", topic, "--from", "now", code=2)


def test_a_group_resumes_at_its_committed_offsets(odradek: CommandLine, topic: str) -> None:
    odradek("produce", topic, "-p", "1", input="a\nb\nc\n")
    group = f"{topic}-group"
    assert odradek("consume", topic, "--group", group, "--max", "2") == "a\nb\n"
    assert odradek("consume", topic, "--group", group) == "c\n"
    assert odradek("consume", topic, "--group", group) == ""
    assert group in {item["id"] for item in odradek.json("groups", "list")}
    described = odradek.json("groups", "describe", group)
    assert described["state"] == "Empty"
    assert described["lag"][f"{topic}-1"] == {"committed": 3, "end": 3, "lag": 0}

    shown = odradek.json("groups", "reset", group, "--to", "earliest")
    assert not shown["executed"]
    assert odradek("consume", topic, "--group", group) == ""
    odradek("groups", "reset", group, "--topic", f"{topic}:1", "--shift", "-2", "--execute")
    assert "lag 2" in odradek("groups", "describe", group)
    assert odradek("consume", topic, "--group", group) == "b\nc\n"
    odradek("groups", "reset", group, "--topic", topic, "--to", "1", "--execute")
    assert odradek.json("groups", "describe", group)["lag"][f"{topic}-1"]["lag"] == 2
    odradek("groups", "delete", group, "--yes")
    assert group not in {item["id"] for item in odradek.json("groups", "list")}
    assert "odradek groups list" in odradek.refused("groups", "reset", group, "--to", "latest")


def test_a_pipe_is_sent_as_it_comes_and_followed_until_ctrl_c(
    odradek: CommandLine, topic: str
) -> None:
    environment = {**os.environ, **odradek.environment, "PYTHONUNBUFFERED": "1"}
    group = f"{topic}-group"
    with (
        piped("produce", topic, environment=environment) as producer,
        piped("consume", topic, "--follow", "--group", group, environment=environment) as consumer,
    ):
        try:
            assert producer.stdin is not None
            assert consumer.stdout is not None
            producer.stdin.write(b"first\n")
            producer.stdin.flush()
            assert consumer.stdout.readline() == b"first\n", "before the pipe ends"
            owned = odradek.json("groups", "describe", group)["members"][0]["partitions"]
            assert owned == [f"{topic}-{number}" for number in range(3)]
            assert "stop its consumers" in odradek.refused("groups", "delete", group, "--yes")
            producer.stdin.write(b"second\n")
            producer.stdin.close()
            assert producer.wait(60) == 0
            assert consumer.stdout.readline() == b"second\n"
            consumer.send_signal(signal.SIGINT)
            assert consumer.wait(60) == 0
        finally:
            producer.kill()
            consumer.kill()
    described = odradek.json("groups", "describe", group)
    assert described["members"] == [], "it has left"
    assert sum(lag["lag"] for lag in described["lag"].values()) == 0, "and committed"


def test_ctrl_c_before_the_end_is_reported_by_the_exit_code_alone(
    odradek: CommandLine, topic: str
) -> None:
    environment = {**os.environ, **odradek.environment}
    with piped("produce", topic, environment=environment) as producer:
        try:
            assert producer.stdin is not None
            assert producer.stderr is not None
            producer.stdin.write(b"first\n")
            producer.stdin.flush()
            while not odradek("consume", topic):
                pass
            producer.send_signal(signal.SIGINT)
            assert producer.stderr.read() == b""
            assert producer.wait(60) == 130
        finally:
            producer.kill()


def test_two_members_share_a_topic(odradek: CommandLine, topic: str) -> None:
    environment = {**os.environ, **odradek.environment, "PYTHONUNBUFFERED": "1"}
    command = [*ODRADEK, "consume", topic, "--follow", "--group", f"{topic}-group"]
    members = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        while True:
            result = odradek.run("groups", "describe", f"{topic}-group", "--json")
            described = json.loads(result.stdout) if result.exit_code == 0 else {}
            shares = [member["partitions"] for member in described.get("members", ())]
            if len(shares) == 2 and all(shares):
                break
        assert sorted(part for share in shares for part in share) == [
            f"{topic}-{number}" for number in range(3)
        ]
        assert sorted(map(len, shares)) == [1, 2]
    finally:
        for member in members:
            member.send_signal(signal.SIGINT)
        codes = [member.wait(60) for member in members]
        for member in members:
            assert member.stdout is not None
            member.stdout.close()
    assert codes == [0, 0]
