"""Estimates: what two samples of a cluster say about brokers that say nothing."""

from odradek.balance.cluster import disk_columns
from odradek.balance.frames import decode_frames
from odradek.balance.load import load_table
from odradek.balance.poll import Estimator, Sample
from odradek.client.metadata import Partition
from odradek.client.values import LogDir, ReplicaOnDisk
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.telemetry import encode_frame
from odradek.wire.topics import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FAILED = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "failed")


def sample(
    at_ms: int, ends: dict[TopicPartition, int], sizes: dict[TopicPartition, int], read: int
) -> Sample:
    def disk(broker: int) -> list[LogDir]:
        replicas = [ReplicaOnDisk(tp, size * broker, 0, False) for tp, size in sizes.items()]
        return [
            LogDir(broker, "/d", None, 1_000_000, 400_000, replicas),
            LogDir(broker, "/x", FAILED, -1, -1, []),
        ]

    return Sample(
        at_ms,
        {T0: Partition(0, 1, 5, [1, 2], [1, 2], []), T1: Partition(1, 2, 5, [2, 1], [2], [])},
        {1: disk(1), 2: disk(2)},
        dict.fromkeys(ends, 0),
        ends,
        {"fast": {T0: read}, "new": {T0: 7}} if at_ms else {"fast": {T0: read}},
    )


def test_a_file_system_that_directories_share_counts_once() -> None:
    """In what a cluster tells of its disks, and in frames."""
    disks = [
        LogDir(1, "/a", None, 1_000, 400, []),
        LogDir(1, "/a/too", None, 1_000, 400, []),
        LogDir(1, "/alike", None, 1_000, 300, []),
        LogDir(1, "/failed", FAILED, -1, -1, []),
    ]
    assert disk_columns(disks) == {
        "disk_capacity": 2_000,
        "disk_used": 1_300,
        "failed_directories": ["/failed"],
    }
    # Not reported at all: what is held is what is used.
    silent = [
        LogDir(1, path, None, -1, -1, [ReplicaOnDisk(tp, 70, 0, False)])
        for path, tp in (("/a", T0), ("/b", T1))
    ]
    assert disk_columns(silent)["disk_capacity"] == 0
    assert disk_columns(silent)["disk_used"] == 140
    reported = {1: disks}
    estimator = Estimator(0)
    estimator.frames(Sample(0, {}, reported, {}, {}, {}), {1})
    frames = estimator.frames(Sample(60_000, {}, reported, {}, {}, {}), {1})
    (broker,) = load_table(decode_frames(map(encode_frame, frames))).brokers.to_pylist()
    assert (broker["disk_capacity"], broker["disk_used"]) == (2_000, 1_300)


def test_growth_between_samples_is_the_load() -> None:
    estimator = Estimator(0)
    first = sample(0, {T0: 100, T1: 50}, {T0: 10_000, T1: 1_000}, read=0)
    assert estimator.frames(first, {1, 2}) == []
    now = sample(60_000, {T0: 700, T1: 40}, {T0: 70_000, T1: 1_000}, read=300)
    frames = estimator.frames(now, {1, 2})
    assert [each.broker for each in frames] == [1, 2]
    assert all(each.is_estimated and each.is_whole for each in frames)
    assert (frames[0].from_ms, frames[0].to_ms) == (0, 60_000)
    model = load_table(decode_frames(map(encode_frame, frames)), growth_h=0)
    found = {(row["partition"], row["broker"]): row for row in model.replicas.to_pylist()}
    # 600 records of 100 bytes in a minute, 300 of them read, and one follower in sync.
    leader = found[0, 1]
    assert (leader["in"], leader["messages"], leader["out_leader"]) == (1_000, 10, 1_500)
    assert (leader["size"], leader["source"]) == (70_000, "estimated")
    assert found[0, 2]["size"] == 140_000
    # A log whose end went back, as after an unclean election, has no traffic less than none.
    assert found[1, 2]["in"] == found[1, 2]["out_leader"] == 0
    broker = model.brokers.to_pylist()[0]
    assert (broker["cores"], broker["disk_capacity"], broker["disk_used"]) == (
        0,
        1_000_000,
        600_000,
    )
    assert broker["failed_directories"] == ["/x"]


def test_the_size_of_a_record_is_smoothed_and_a_clock_set_back_makes_no_frame() -> None:
    estimator = Estimator(0)
    estimator.frames(sample(60_000, {T0: 100}, {T0: 10_000}, read=0), ())
    (frame,) = estimator.frames(sample(120_000, {T0: 200}, {T0: 40_000}, read=0), {1})
    # 100 bytes before, 200 now.
    assert list(frame.columns["bytes_in"]) == [round(100 * (100 + 0.3 * 100))]
    assert estimator.frames(sample(119_000, {T0: 300}, {T0: 40_000}, read=0), {1}) == []
