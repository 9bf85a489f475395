"""Topics, settings, elections, journal, help, completion and errors, on a cluster of one."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.cli.conftest import CommandLine

from odradek import Cluster
from odradek.cli.main import VERBS, main
from odradek.cli.output import duration, parse_size, size
from odradek.operations.positions import parse_moment

pytestmark = pytest.mark.process

UNREACHABLE = "127.0.0.1:1"


def test_a_topics_life(odradek: CommandLine) -> None:
    assert odradek("topics", "create", "life", "-p", "2", "-c", "retention.ms=5000")
    listed = {item["name"]: item for item in odradek.json("topics", "list")}
    assert listed["life"]["partitions"] == 2
    odradek("topics", "alter", "life", "--partitions", "3", "-d", "retention.ms")
    odradek("topics", "alter", "life", "-c", "max.message.bytes=1000")
    (described,) = odradek.json("topics", "describe", "life")
    assert described["configs"] == {"max.message.bytes": "1000"}
    assert [part["id"] for part in described["partitions"]] == [0, 1, 2]
    assert [part["leader"] for part in described["partitions"]] == [1, 1, 1]
    table = odradek("topics", "describe", "life")
    assert f"life  3 partitions  max.message.bytes=1000  id {described['id']}" in table
    assert len(described["id"]) == 22
    odradek("topics", "delete", "life", "--yes")
    assert "life" not in {item["name"] for item in odradek.json("topics", "list")}


def test_a_topic_that_is_there(odradek: CommandLine, topic: str) -> None:
    assert "--if-not-exists" in odradek.refused("topics", "create", topic)
    assert odradek("topics", "create", topic, "--if-not-exists") == f"{topic} exists\n"


def test_chosen_replicas(odradek: CommandLine) -> None:
    odradek("topics", "create", "chosen", "--replicas", "1,1")
    (described,) = odradek.json("topics", "describe", "chosen")
    assert [part["replicas"] for part in described["partitions"]] == [[1], [1]]
    assert "1:2,2:3" in odradek.refused("topics", "create", "x", "--replicas", "1;2", code=2)


def test_no_partition_is_unhealthy(odradek: CommandLine, topic: str) -> None:
    assert "every partition has a leader" in odradek("topics", "describe", "--unhealthy")
    assert odradek.json("topics", "describe", "--unhealthy") == []


def test_settings(odradek: CommandLine, topic: str) -> None:
    odradek("configs", "set", "--topic", topic, "retention.ms=1", "cleanup.policy=compact")
    odradek("configs", "set", "--topic", topic, "-d", "retention.ms")
    found = {item["name"]: item for item in odradek.json("configs", "get", "--topic", topic)}
    assert found["cleanup.policy"]["value"] == "compact"
    assert found["cleanup.policy"]["source"] == "topic"
    assert "retention.ms" not in found
    (one,) = odradek.json("configs", "get", "--topic", topic, "retention.ms")
    assert one["value"] == "604800000"
    assert one["documentation"]
    everything = odradek.json("configs", "get", "--broker", "1", "--all")
    assert len(everything) > 50
    odradek("configs", "set", "--all-brokers", "log.retention.ms=1000")
    (own,) = odradek.json("configs", "get", "--all-brokers", "log.retention.ms")
    assert own["value"] == "1000"
    odradek("configs", "set", "--all-brokers", "-d", "log.retention.ms")
    assert "INVALID_CONFIG" in odradek.refused("configs", "set", "--topic", topic, "retention.ms=x")
    assert "see --all" in odradek.refused("configs", "get", "--topic", topic, "nonsense")
    assert "did you mean retention.ms?" in odradek.refused(
        "configs", "get", "--topic", topic, "retention.mss"
    )
    assert "did you mean retention.ms?" in odradek.refused(
        "configs", "set", "--topic", topic, "retention.mss=1"
    )
    assert "--topic NAME, --broker ID or" in odradek.refused("configs", "get", code=2)


def test_quotas(odradek: CommandLine) -> None:
    odradek("quotas", "set", "--client-id", "etl", "producer_byte_rate=5MB")
    odradek("quotas", "set", "--user", "u", "--default-client-id", "request_percentage=12.5")
    odradek("quotas", "set", "--client-id", "etl", "consumer_byte_rate=1", "--dry-run")
    assert odradek.json("quotas", "list", "--client-id", "etl") == [
        {"user": None, "client_id": "etl", "ip": None, "quotas": {"producer_byte_rate": 5e6}}
    ]
    assert len(odradek.json("quotas", "list")) == 2
    table = odradek("quotas", "list").splitlines()
    assert table[1].split()[:3] == ["etl", "producer_byte_rate", "5000000"]
    assert "<default>" in table[2]
    odradek("quotas", "set", "--ip", "10.0.0.1", "connection_creation_rate=3")
    assert odradek.json("quotas", "list", "--ip", "10.0.0.1") == [
        {
            "user": None,
            "client_id": None,
            "ip": "10.0.0.1",
            "quotas": {"connection_creation_rate": 3.0},
        }
    ]
    assert len(odradek.json("quotas", "list")) == 3
    odradek("quotas", "set", "--ip", "10.0.0.1", "-d", "connection_creation_rate")
    odradek("quotas", "set", "--client-id", "etl", "-d", "producer_byte_rate")
    odradek("quotas", "set", "--user", "u", "--default-client-id", "-d", "request_percentage")
    assert odradek.json("quotas", "list") == []
    for wrong, said in (
        (["producer_byte_rate=1"], "quota's owner"),
        (["--user", "u"], "nothing to set"),
        (["--user", "u", "--default-user", "producer_byte_rate=1"], "not both"),
        (["--user", "u", "produce_byte_rate=1"], "did you mean producer_byte_rate?"),
        (["--user", "u", "producer_byte_rate=fast"], "5MB"),
    ):
        assert said in odradek.refused("quotas", "set", *wrong, code=2)


def test_elections(odradek: CommandLine, topic: str) -> None:
    assert odradek("elect", "--preferred") == "no partition needs an election\n"
    assert odradek.json("elect", "--preferred", "--topic", topic) == {"elected": [], "failed": {}}
    assert "--preferred or --unclean" in odradek.refused("elect", code=2)
    assert "see `odradek topics list`" in odradek.refused(
        "elect", "--unclean", "--yes", "--topic", topic, "--partition", "9"
    )


def test_the_journal_tells_of_a_partition(
    odradek: CommandLine, cluster: Cluster, topic: str
) -> None:
    output = odradek("journal", "--data", str(cluster.data_dir), "--partition", f"{topic}-0")
    assert f"partition {topic}-0: NEW -> ONLINE" in output
    (last,) = odradek(
        "journal", "--data", str(cluster.data_dir), "--kind", "partition", "-n", "1", "--json"
    ).splitlines()
    assert '"kind":"partition"' in last
    assert "orders-0" in odradek.refused("journal", "-p", "orders", code=2)


def test_without_a_cluster_it_says_what_to_do(odradek: CommandLine) -> None:
    output = odradek.refused("topics", "list", "-b", UNREACHABLE, "--timeout", "0.5")
    assert "odradek up" in output
    assert "--bootstrap-server" in output
    assert odradek.run("topics", "list", "-b", "host:port").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["topics", "describe", "nope"], "odradek topics list"),
        (["topics", "delete", "nope", "--yes"], "odradek topics list"),
        (["topics", "create", "wide", "-r", "3"], "start more brokers"),
        (["topics", "create", "bad name"], "INVALID_TOPIC"),
        (["consume", "nope"], "odradek topics list"),
        (["groups", "describe", "nope"], "odradek groups list"),
        (["groups", "delete", "nope", "--yes"], "odradek groups list"),
    ],
    ids=" ".join,
)
def test_errors_say_what_to_do(odradek: CommandLine, arguments: list[str], advice: str) -> None:
    assert advice in odradek.refused(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "create", "u", "-p", "3000000000"],
        ["topics", "create", "u", "-r", "40000"],
        ["topics", "alter", "u", "-p", "3000000000"],
        ["consume", "u", "-p", "3000000000"],
        ["consume", "u", "--from", "@100000000000000000000"],
        ["produce", "u", "-p", "3000000000"],
        ["elect", "--preferred", "-t", "u", "-p", "3000000000"],
    ],
    ids=" ".join,
)
def test_numbers_beyond_the_protocol_are_refused(
    odradek: CommandLine, arguments: list[str]
) -> None:
    assert arguments[-1] in odradek.refused(*arguments, code=2)


def test_what_cannot_be_sent_is_reported_in_one_line(odradek: CommandLine) -> None:
    output = odradek.refused("topics", "create", "u", "--replicas", "3000000000")
    assert "the request cannot be encoded: CreateTopicsRequest" in output


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("path", list(commands(main)), ids=" ".join)
def test_help_teaches(odradek: CommandLine, path: tuple[str, ...]) -> None:
    output = odradek(*path, "--help")
    assert "Example" in output
    assert "odradek " in output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(odradek: CommandLine, shell: str) -> None:
    assert "_ODRADEK_COMPLETE" in odradek("completion", shell)


def test_topics_and_groups_are_completed(odradek: CommandLine, topic: str) -> None:
    from click.shell_completion import BashComplete

    environment = odradek.environment["ODRADEK_BOOTSTRAP"]
    complete = BashComplete(main, {}, "odradek", "_ODRADEK_COMPLETE")
    found = complete.get_completions(["topics", "describe", "-b", environment], topic[:6])
    assert topic in {item.value for item in found}
    assert complete.get_completions(["topics", "describe", "-b", UNREACHABLE], "") == []
    assert {"up", "topics"} <= {item.value for item in complete.get_completions([], "")}


def test_the_table_of_verbs_names_what_there_is() -> None:
    for name in VERBS:
        assert main.get_command(click.Context(main), name) is not None


def test_amounts() -> None:
    assert [size(512), size(1536), size(5 << 30)] == ["512 B", "1.5 kB", "5.4 GB"]
    assert [parse_size(text) for text in ("10MB", "1KiB/s", "7")] == [10_000_000, 1024, 7]
    assert [duration(1.25), duration(75), duration(7300)] == ["1.2 s", "1 min 15 s", "2 h 1 min"]
    assert parse_moment("1970-01-01T00:00:01+00:00") == parse_moment("@1000") == 1000
    for nonsense in ("", "MB", "1 apple"):
        with pytest.raises(ValueError):
            parse_size(nonsense)


def test_two_elections_or_two_owners_at_once_are_refused(odradek: CommandLine) -> None:
    assert "choose one" in odradek.refused("elect", "--preferred", "--unclean", code=2)
    said = odradek.refused("configs", "get", "--topic", "t", "--broker", "1", code=2)
    assert "give only one of --topic NAME, --broker ID or --all-brokers" in said


def test_an_offset_beyond_the_end_is_said(odradek: CommandLine, topic: str) -> None:
    odradek("produce", topic, "-p", "1", input="a\nb\n")
    said = odradek.refused("consume", topic, "--from", "99999")
    assert f"offset 99999 is beyond the end of {topic}: {topic}-1 ends at 2" in said
    assert odradek("consume", topic, "--from", "2") == ""


def test_a_journal_without_the_entry_says_so(odradek: CommandLine, cluster: Cluster) -> None:
    data = str(cluster.data_dir)
    assert "no entry about nope-0" in odradek.refused("journal", "--data", data, "-p", "nope-0")
    assert "'leader'" in odradek.refused("journal", "--data", data, "-k", "leader", code=2)


def test_the_journals_of_two_clusters_are_not_mixed(odradek: CommandLine, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "broker-1").mkdir(parents=True)
        (tmp_path / name / "broker-1" / "state-change.log").write_text("")
    said = odradek.refused("journal", "--data", str(tmp_path))
    assert f"above the directories of clusters; name one: --data {tmp_path / 'a'}" in said


def test_the_hint_about_settings_is_a_command_that_works(odradek: CommandLine, topic: str) -> None:
    said = odradek.refused("configs", "set", "--topic", topic, "qqqq=1")
    command = said.split("`")[1].split()
    assert command[0] == "odradek"
    assert odradek(*command[1:])
    assert "configs get" not in odradek.refused(
        "configs", "set", "--topic", topic, "retention.ms=x"
    )


def test_only_what_was_set_counts_as_changed(odradek: CommandLine, topic: str) -> None:
    assert odradek("configs", "set", "--topic", topic, "retention.ms=1") == "1 setting changed\n"
    done = odradek("configs", "set", "--topic", topic, "-d", "retention.ms", "-d", "segment.ms")
    assert done == "segment.ms was not set\n1 setting changed\n"


def test_errors_about_groups_are_sentences(odradek: CommandLine) -> None:
    assert "group 'x' does not exist" in odradek.refused("groups", "delete", "x", "--yes")
    said = odradek.refused("groups", "describe", "")
    assert "has no coordinator (INVALID_GROUP_ID); a group has a name" in said


@pytest.mark.parametrize(("slip", "meant"), [("topic", "topics"), ("prodce", "produce")])
def test_a_command_that_is_nearly_right_is_suggested(
    odradek: CommandLine, slip: str, meant: str
) -> None:
    assert f"Did you mean '{meant}'?" in odradek.refused(slip, code=2)


@pytest.mark.parametrize("command", [["demo", "--seconds", "1"], ["pipeline", "check", "x.toml"]])
def test_without_the_spark_extra_one_line_says_how_to_get_it(command: list[str]) -> None:
    code = (
        "import sys\n"
        "for name in ('pyarrow', 'pyspark', 'pandas', 'numba'): sys.modules[name] = None\n"
        f"from odradek.cli.main import main; main({command!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].endswith('pip install "odradek[spark]"')


def test_produce_counts_the_bytes_of_records(odradek: CommandLine, topic: str) -> None:
    result = odradek.run("produce", topic, input="12345\n67890\n")
    assert "2 records, 10 B" in result.stderr
