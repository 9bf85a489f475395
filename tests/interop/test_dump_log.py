"""`kafka-dump-log` reads what ours wrote, segments, indexes and snapshots, without complaint."""

import re
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.interop.harness.toolbox import Printed, Toolbox

from odradek import Cluster

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 2000
SETTINGS = {
    "log.segment.bytes": 20_000,
    "log.index.interval.bytes": 400,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


def write(cluster: Cluster) -> None:
    """Records of every codec from idempotent producers, and a group's offsets."""
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "compression.type": codec,
                "enable.idempotence": True,
                "batch.size": 2000,
            }
        )
        for number in range(RECORDS):
            key = b"k%d" % (number % 50)
            producer.produce("t", key=key, value=b"%d" % number * 10, headers={"h": b"1"})
            if number % 20 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "the-group"})
    consumer.commit(offsets=[TopicPartition("t", 0, 77, "a note")], asynchronous=False)
    consumer.close()


def files(home: Path, kind: str) -> str:
    found = sorted(home.glob(f"*.{kind}"))
    assert found, f"no {kind} files in {home}"
    return ",".join(map(str, found))


def quiet(printed: Printed) -> str:
    assert printed.status == 0, printed
    assert printed.err == "", printed.err
    for complaint in (
        "Mismatches",
        "Non-consecutive",
        "Found timestamp",
        "orrupt",
        "isvalid: false",
    ):
        assert complaint not in printed.out, printed.out[-2000:]
    return printed.out


def test_everything_ours_wrote(tools: Toolbox, tmp_path: Path) -> None:
    with Cluster(brokers=1, data_dir=tmp_path, config=SETTINGS) as cluster:
        write(cluster)
        home, groups = cluster.directory_of(1) / "t-0", cluster.directory_of(1)
        running = quiet(tools.try_run("kafka-dump-log", "--files", files(home, "log")))
        assert running.count("baseOffset: ") > 10
    assert len(list(home.glob("*.log"))) > 3, "several segments"
    deep = quiet(tools.try_run("kafka-dump-log", "--deep-iteration", "--files", files(home, "log")))
    assert deep.count("| offset: ") == RECORDS * len(CODECS)
    for codec in CODECS:
        assert f"compresscodec: {codec}" in deep
    for check in ("--index-sanity-check", "--verify-index-only"):
        for kind in ("index", "timeindex"):
            quiet(tools.try_run("kafka-dump-log", check, "--files", files(home, kind)))
    indexed = quiet(tools.try_run("kafka-dump-log", "--files", files(home, "index")))
    assert indexed.count("offset: ") > 10
    snapshots = quiet(tools.try_run("kafka-dump-log", "--files", files(home, "snapshot")))
    assert snapshots.count("producerId: ") >= len(CODECS)
    offsets = quiet(
        tools.try_run(
            "kafka-dump-log",
            *("--offsets-decoder", "--files", files(groups / "__consumer_offsets-0", "log")),
        )
    )
    assert '"group":"the-group"' in offsets, offsets[-1000:]
    assert '"offset":77' in offsets, offsets[-1000:]


def test_the_transactions_ours_wrote(tools: Toolbox, tmp_path: Path) -> None:
    with Cluster(brokers=1, data_dir=tmp_path, config=SETTINGS) as cluster:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "the-id"}
        producer = Producer(settings)
        producer.init_transactions(60)
        for number in range(6):
            producer.begin_transaction()
            producer.produce("t", b"%d" % number * 100, partition=0)
            assert producer.flush(60) == 0
            if number % 3:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)
        Producer(settings).init_transactions(60)  # which waits for the last markers
        directory = cluster.directory_of(1)
    log = files(directory / "t-0", "log")
    deep = quiet(tools.try_run("kafka-dump-log", "--deep-iteration", "--files", log))
    ends = re.findall(r"offset: (\d+) .*endTxnMarker: (\w+) coordinatorEpoch: (\d+)", deep)
    outcomes = ("ABORT", "COMMIT", "COMMIT") * 2
    assert ends == [(str(n * 2 + 1), outcome, "0") for n, outcome in enumerate(outcomes)]
    index = quiet(tools.try_run("kafka-dump-log", "--files", files(directory / "t-0", "txnindex")))
    aborted = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+)", index)
    assert [(int(first), int(last)) for _, first, last in aborted] == [(0, 1), (6, 7)]
    states = quiet(
        tools.try_run(
            "kafka-dump-log",
            *("--transaction-log-decoder", "--files"),
            files(directory / "__transaction_state-0", "log"),
        )
    )
    found = re.findall(r"Id=the-id .*Epoch:(\d),state=(\w+),partitions=\[(.*?)\]", states)
    expected = [("0", "Empty", "")]
    for outcome in outcomes:
        word = outcome.capitalize()
        expected += [
            ("0", "Ongoing", "t-0"),
            ("0", f"Prepare{word}", "t-0"),
            ("0", f"Complete{word}", ""),
        ]
    assert found == [*expected, ("1", "Empty", "")]
