"""Kafka's tools print the same against ours as against Apache Kafka, line by line.

One script of commands runs against three brokers of either program, with the tools of 3.9 and of
the current Kafka; what must differ (ports, ids, times, sizes) is blotted out, and nothing else.
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.interop.conftest import MakeCluster
from tests.interop.harness.kafka import KAFKA_3_9, KAFKA_4
from tests.interop.harness.members import TIMEOUT_S, wait_until
from tests.interop.harness.mixed import APACHE, OURS, MixedCluster
from tests.interop.harness.toolbox import Printed, Toolbox

IDS = (1, 2, 3)
RECORDS = "".join(f"k{number}:v{number}\n" for number in range(30))


class Command(NamedTuple):
    """A tool's name and words; `$D` is a directory with the files below."""

    words: str
    stdin: str = ""


FILES = {
    "records.json": '{"partitions":[{"topic":"a","partition":0,"offset":2}],"version":1}',
    "topics.json": '{"topics":[{"topic":"a"}],"version":1}',
    "plan.json": '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[3,2]},'
    '{"topic":"a","partition":1,"replicas":[2,1]}]}',
    "election.json": '{"partitions":[{"topic":"a","partition":0},{"topic":"a","partition":1}]}',
    "too-far.json": '{"partitions":[{"topic":"a","partition":0,"offset":2000}],"version":1}',
    "slow.json": '{"version":1,"partitions":[{"topic":"if","partition":0,"replicas":[3]}]}',
    "bad-plan.json": '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[9]}]}',
}

TOPICS = [
    "kafka-topics --create --topic a --replica-assignment 1:2:3,2:3:1,3:1:2"
    " --config retention.ms=600000",
    "kafka-topics --create --topic a --partitions 1 --replication-factor 1",
    "kafka-topics --create --topic b! --partitions 1 --replication-factor 1",
    "kafka-topics --create --topic b --partitions 1 --replication-factor 9",
    "kafka-topics --create --topic b --partitions 1 --replication-factor 1 --config nonsense=1",
    "kafka-topics --create --topic b --partitions 1 --replication-factor 1"
    " --config retention.ms=long",
    "kafka-topics --create --topic gone --replica-assignment 2",
    "kafka-topics --create --topic if --if-not-exists --replica-assignment 2",
    "kafka-topics --create --topic if --if-not-exists --replica-assignment 2",
    "kafka-topics --list",
    "kafka-topics --describe --topic a",
    "kafka-topics --describe --topic missing",
    "kafka-topics --alter --topic a --partitions 4 --replica-assignment 1:2:3,2:3:1,3:1:2,1:3:2",
    "kafka-topics --alter --topic a --partitions 2",
    "kafka-topics --describe --topic a",
    "kafka-topics --describe --under-replicated-partitions",
    "kafka-topics --describe --topics-with-overrides",
    "kafka-topics --describe --topic a --unavailable-partitions",
    "kafka-topics --describe --at-min-isr-partitions",
    "kafka-topics --describe --under-min-isr-partitions",
    "kafka-topics --describe --topic a|if --exclude-internal",
    "kafka-topics --delete --topic gone",
    "kafka-topics --delete --topic missing",
    "kafka-topics --delete --topic missing --if-exists",
]
CONFIGS = [
    # Brokers hear of their settings a little later, so these come first and are looked at last.
    "kafka-configs --alter --entity-type brokers --entity-name 1"
    " --add-config leader.replication.throttled.rate=1000000",
    "kafka-configs --alter --entity-type brokers --entity-default --add-config max.connections=999",
    "kafka-configs --describe --entity-type topics --entity-name a",
    "kafka-configs --describe --entity-type topics --entity-name a --all",
    "kafka-configs --alter --entity-type topics --entity-name a"
    " --add-config retention.ms=700000,cleanup.policy=[compact,delete]",
    "kafka-configs --describe --entity-type topics --entity-name a",
    "kafka-configs --alter --entity-type topics --entity-name a"
    " --delete-config retention.ms,cleanup.policy",
    "kafka-configs --alter --entity-type topics --entity-name a --add-config segment.bytes=x",
    "kafka-configs --alter --entity-type topics --entity-name a --add-config nonsense=1",
    "kafka-configs --describe --entity-type topics --entity-name missing",
    "kafka-configs --describe --entity-type brokers --entity-name 1",
    "kafka-configs --alter --entity-type brokers --entity-name 1"
    " --delete-config leader.replication.throttled.rate",
    "kafka-configs --describe --entity-type brokers --entity-default",
    "kafka-configs --alter --entity-type brokers --entity-default --delete-config max.connections",
    "kafka-configs --alter --entity-type brokers --entity-name 1 --add-config log.dirs=/nowhere",
    "kafka-configs --alter --entity-type clients --entity-name c"
    " --add-config producer_byte_rate=1000000,consumer_byte_rate=2000000",
    "kafka-configs --describe --entity-type clients --entity-name c",
    "kafka-configs --alter --entity-type clients --entity-name c"
    " --delete-config producer_byte_rate,consumer_byte_rate",
    "kafka-configs --describe --entity-type clients --entity-name c",
    "kafka-configs --alter --entity-type clients --entity-name c --add-config nonsense=1",
]
RECORDS_AND_GROUPS: list[Command | str] = [
    Command(
        "kafka-console-producer --topic a --property parse.key=true --property key.separator=:",
        RECORDS,
    ),
    "kafka-get-offsets --topic a",
    "kafka-get-offsets --topic a --time earliest",
    "kafka-get-offsets --topic missing",
    *(
        f"kafka-console-consumer --topic a --partition {number} --offset earliest --max-messages 3"
        " --property print.key=true --property print.offset=true --property print.partition=true"
        for number in range(3)
    ),
    "kafka-console-consumer --topic a --partition 1 --offset 2 --max-messages 2"
    " --isolation-level read_committed --property print.headers=true",
    "kafka-delete-records --offset-json-file $D/records.json",
    "kafka-delete-records --offset-json-file $D/too-far.json",
    "kafka-get-offsets --topic a --time earliest",
    "kafka-get-offsets --topic-partitions a:1-3,if --time latest",
    "kafka-get-offsets --topic a --partitions 0,1 --time 0",
    "kafka-get-offsets --exclude-internal-topics",
    "kafka-console-consumer --topic a --group g --from-beginning --max-messages 28"
    " --formatter org.apache.kafka.tools.consumer.NoOpMessageFormatter",
    "kafka-consumer-groups --list",
    "kafka-consumer-groups --list --state",
    "kafka-consumer-groups --describe --group g",
    "kafka-consumer-groups --describe --group g --state",
    "kafka-consumer-groups --describe --group g --members",
    "kafka-consumer-groups --describe --group missing",
    "kafka-consumer-groups --reset-offsets --group g --topic a --to-earliest --dry-run",
    "kafka-consumer-groups --reset-offsets --group g --topic a:1 --shift-by -1 --execute",
    "kafka-consumer-groups --reset-offsets --group g --topic a --to-latest --dry-run",
    "kafka-consumer-groups --reset-offsets --group g --topic a:0 --to-offset 3 --execute",
    "kafka-consumer-groups --reset-offsets --group g --topic a --by-duration P1D --dry-run",
    "kafka-consumer-groups --reset-offsets --group g --all-topics --to-current --export --dry-run",
    "JOIN active",
    "kafka-consumer-groups --list --state stable",
    "kafka-consumer-groups --describe --group active",
    "kafka-consumer-groups --describe --group active --state",
    "kafka-consumer-groups --describe --group active --members",
    "kafka-consumer-groups --describe --group active --members --verbose",
    "kafka-consumer-groups --reset-offsets --group active --topic a --to-earliest --execute",
    "kafka-consumer-groups --delete --group active",
    "LEAVE active",
    "kafka-consumer-groups --describe --all-groups",
    "kafka-consumer-groups --delete-offsets --group g --topic a",
    "kafka-consumer-groups --delete --group g",
    "kafka-consumer-groups --delete --group missing",
]
REPLICAS = [
    "kafka-log-dirs --describe --topic-list a --broker-list 1,2",
    "kafka-log-dirs --describe --broker-list 9",
    "kafka-reassign-partitions --generate --topics-to-move-json-file $D/topics.json"
    " --broker-list 9",
    "kafka-reassign-partitions --execute --reassignment-json-file $D/bad-plan.json",
    "kafka-reassign-partitions --execute --reassignment-json-file $D/plan.json",
    "WAIT a",
    "kafka-reassign-partitions --verify --reassignment-json-file $D/plan.json",
    "kafka-reassign-partitions --list",
    "kafka-topics --describe --topic a",
    # So much that a throttled move cannot end soon.
    "kafka-producer-perf-test --topic if --num-records 300 --record-size 10000 --throughput -1",
    "kafka-reassign-partitions --execute --reassignment-json-file $D/slow.json --throttle 1000",
    "kafka-configs --describe --entity-type topics --entity-name if",
    "kafka-reassign-partitions --list",
    "kafka-reassign-partitions --verify --reassignment-json-file $D/slow.json",
    "kafka-reassign-partitions --execute --reassignment-json-file $D/slow.json",
    "kafka-reassign-partitions --cancel --reassignment-json-file $D/slow.json",
    "kafka-reassign-partitions --cancel --reassignment-json-file $D/slow.json",
    "kafka-reassign-partitions --list",
    "kafka-configs --describe --entity-type topics --entity-name if",
    "kafka-leader-election --election-type preferred --path-to-json-file $D/election.json",
    "kafka-leader-election --election-type preferred --topic a --partition 2",
    "kafka-leader-election --election-type unclean --topic a --partition 2",
    "kafka-leader-election --election-type preferred --topic missing --partition 0",
    "kafka-verifiable-producer --topic if --max-messages 5 --value-prefix 7",
    "kafka-verifiable-consumer --topic if --group-id v --max-messages 5",
    "kafka-producer-perf-test --topic if --num-records 500 --record-size 100 --throughput -1",
]
TRANSACTIONS = [
    "kafka-transactions list",
    "BEGIN if",
    "kafka-transactions list",
    "kafka-transactions describe --transactional-id the-id",
    "kafka-transactions describe --transactional-id missing",
    "kafka-transactions describe-producers --topic if --partition 0",
    "kafka-transactions find-hanging --topic if",
    "kafka-transactions find-hanging --topic if --max-transaction-timeout 0",
    "kafka-transactions abort --topic if --partition 0 --start-offset 1",
    "kafka-transactions abort --topic if --partition 0 --start-offset 805",
    "kafka-transactions describe-producers --topic if --partition 0",
    "END if",
    "kafka-get-offsets --topic if",
]
SCRIPT: list[Command | str] = [
    *TOPICS,
    *CONFIGS,
    *RECORDS_AND_GROUPS,
    *REPLICAS,
    *TRANSACTIONS,
]

BLOTS = [
    (r"127\.0\.0\.1:(\d+)", "HOST:PORT"),
    (r"(?<=TopicId: )\S+", "ID"),
    (r"/\S*/broker-(\d)\S*", r"/broker-\1"),
    (r"(?<=\"size\":)\d+", "N"),
    (r"(?<=\"timestamp\":)\d+", "N"),
    (r"(?<=\"avg_throughput\":)[\d.]+", "N"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,]?\d*", "TIME"),
    (r"\b\d{13}\b", "TIME"),
    (r"(?<=console-consumer-)\S+", "ID"),
    (r"adminclient-\d+", "CLIENT"),
    (r"(?<=the-client-)\S{36}", "ID"),
    (r"(?<=cluster )\S{22}", "ID"),
]
# Stack traces, what clients log, how the toolbox catches an exit; and the settings of what ours
# does not have: tiered storage and the message formats before 0.11.
LEFT_OUT = re.compile(
    r"^\s+at |^\s*\.\.\. \d+ more|^\[[^]]*\] (WARN|INFO) |^null$|^Toolbox|"
    r"^  (local\.retention|remote\.|message\.(downconversion|format|timestamp\.difference))"
)
# Which broker coordinates, which producer ids there are, and how long a transaction has been open.
OF_TRANSACTIONS = [
    (r"(?m)^(the-id +\t)\d+ +\t\d+ +", r"\1BROKER\tID"),
    (r"(?m)^\d+ +\t(the-id +\t)\d+ +", r"BROKER\t\1ID"),
    (r"(TIME +\t)\d+ +(?=\tif)", r"\1DURATION"),
    (r"(?m)^\d+ +(?=\t0 )", "ID"),
]
FIGURES = (r"-?\d+(\.\d+)?", "N")


def normal(command: str, text: str) -> list[str]:
    """Lines without what differs from run to run."""
    blots = [*BLOTS, FIGURES] if "perf-test" in command else BLOTS
    for pattern, blot in blots:
        text = re.sub(pattern, blot, text)
    if "--state" in command:
        text = re.sub(r"HOST:PORT *\(\d\)", "COORDINATOR", text)
    if "kafka-transactions" in command:
        for pattern, blot in OF_TRANSACTIONS:
            text = re.sub(pattern, blot, text)
    lines = [line.rstrip() for line in text.splitlines()]
    if "describe-producers" in command:
        lines.sort()
    return [line for line in lines if not LEFT_OUT.match(line)]


def run_script(cluster: MixedCluster, tools: Toolbox, home: Path) -> Iterator[list[str]]:
    for name, text in FILES.items():
        (home / name).write_text(text)
    for item in SCRIPT:
        command = item if isinstance(item, Command) else Command(item)
        name, *words = command.words.split()
        if name == "WAIT":
            cluster.wait_for_move(words[0], {0: [3, 2], 1: [2, 1]})
            continue
        if name == "JOIN":
            member = joined(cluster, words[0])
            continue
        if name == "LEAVE":
            member.close()
            continue
        if name == "BEGIN":
            producer = begun(cluster, words[0])
            continue
        if name == "END":
            with suppress(KafkaException):  # a tool has ended the transaction in its place
                producer.commit_transaction(TIMEOUT_S)
            continue
        cluster.wait_until_agreed()  # a tool asks whom it likes
        words = [word.replace("$D", str(home)) for word in words]
        printed = tools.try_run(name, *servers(name, cluster), *words, stdin=command.stdin)
        yield [f"$ {command.words}", *shown(command.words, printed)]


def joined(cluster: MixedCluster, group: str) -> Consumer:
    """A member of a group that has been given all of a topic, and has read it."""
    member = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "client.id": "the-client",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    member.subscribe(["a"])
    wait_until(lambda: member.poll(1) is not None, "a record")
    member.commit(offsets=[TopicPartition("a", 1, 4)], asynchronous=False)
    return member


def begun(cluster: MixedCluster, topic: str) -> Producer:
    """A producer with an open transaction of one record."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "the-id"}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


def servers(name: str, cluster: MixedCluster) -> Iterable[str]:
    if name == "kafka-producer-perf-test":
        return ("--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}")
    return ("--bootstrap-server", cluster.bootstrap_servers)


def shown(command: str, printed: Printed) -> list[str]:
    return [
        *normal(command, printed.out),
        *(f"! {line}" for line in normal(command, printed.err)),
        f"= {printed.status}",
    ]


@pytest.mark.parametrize("version", [KAFKA_3_9, KAFKA_4], ids=["tools of 3.9", "tools of 4.x"])
def test_tools_print_the_same(version: Path, make_cluster: MakeCluster, tmp_path: Path) -> None:
    printed: dict[str, list[list[str]]] = {}
    with Toolbox(version) as tools:
        for kind in (APACHE, OURS):
            cluster = make_cluster(dict.fromkeys(IDS, kind))
            cluster.start()
            cluster.make_controller(1)
            printed[kind.value] = list(run_script(cluster, tools, tmp_path))
            cluster.close()
    differing = [
        "\n".join(difflib.unified_diff(theirs, ours, "Apache", "ours", lineterm="", n=100))
        for theirs, ours in zip(printed["apache"], printed["ours"], strict=True)
        if theirs != ours
    ]
    assert not differing, f"{len(differing)} of {len(SCRIPT)} differ:\n\n" + "\n\n".join(differing)
