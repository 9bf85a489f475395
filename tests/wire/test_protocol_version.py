"""The inter-broker protocol: which texts name which version, and what each version asks for."""

import pytest

from odradek.wire.protocol_version import ProtocolVersion

V = ProtocolVersion

# Every value, with what a follower sends (Fetch, ListOffsets, OffsetForLeaderEpoch), what a
# controller sends (LeaderAndIsr, UpdateMetadata, StopReplica), and WriteTxnMarkers.
VERSIONS = """
    2.6-IV0  11 5 3  4 6 3  0
    2.7-IV0  11 5 3  4 6 3  0
    2.7-IV1  12 5 3  4 6 3  0
    2.7-IV2  12 5 3  4 6 3  0
    2.8-IV0  12 6 4  4 6 3  1
    2.8-IV1  12 6 4  5 7 3  1
    3.0-IV0  12 6 4  5 7 3  1
    3.0-IV1  12 7 4  5 7 3  1
    3.1-IV0  13 7 4  5 7 3  1
    3.2-IV0  13 7 4  6 7 3  1
    3.3-IV0  13 7 4  6 7 3  1
    3.3-IV1  13 7 4  6 7 3  1
    3.3-IV2  13 7 4  6 7 3  1
    3.3-IV3  13 7 4  6 7 3  1
    3.4-IV0  13 7 4  7 8 4  1
    3.5-IV0  14 8 4  7 8 4  1
    3.5-IV1  15 8 4  7 8 4  1
    3.5-IV2  15 8 4  7 8 4  1
    3.6-IV0  15 8 4  7 8 4  1
    3.6-IV1  15 8 4  7 8 4  1
    3.6-IV2  15 8 4  7 8 4  1
    3.7-IV0  15 8 4  7 8 4  1
    3.7-IV1  15 8 4  7 8 4  1
    3.7-IV2  15 8 4  7 8 4  1
    3.7-IV3  15 8 4  7 8 4  1
    3.7-IV4  16 8 4  7 8 4  1
    3.8-IV0  16 8 4  7 8 4  1
    3.9-IV0  17 9 4  7 8 4  1
"""


def test_each_version_sends_what_the_ladder_says() -> None:
    rows = [line.split() for line in VERSIONS.strip().splitlines()]
    assert [row[0] for row in rows] == [str(version) for version in sorted(V)]
    for name, *numbers in rows:
        version = V.parse(name)
        assert [
            version.fetch_version,
            version.list_offsets_version,
            version.offset_for_leader_epoch_version,
            version.leader_and_isr_version,
            version.update_metadata_version,
            version.stop_replica_version,
            version.write_txn_markers_version,
        ] == [int(number) for number in numbers], name
        assert version.fetch_version_by_name == min(version.fetch_version, 12)


def test_behaviour_changes_where_the_ladder_says() -> None:
    def first(holds: "property") -> ProtocolVersion:
        versions = sorted(V)
        answers = [holds.__get__(version) for version in versions]
        assert answers == sorted(answers), "what a version brought, no later one takes away"
        return versions[answers.index(True)]

    for name, since in (
        ("enables_features", V.V2_7_IV0),
        ("truncates_on_fetch", V.V2_7_IV1),
        ("isr_through_controller", V.V2_7_IV2),
        ("uses_topic_ids", V.V2_8_IV0),
        ("allocates_producer_ids_through_controller", V.V3_0_IV0),
        ("writes_leader_recovery_state", V.V3_2_IV0),
    ):
        assert first(vars(V)[name]) is since, name
    assert [V.parse(text).feature_node_version for text in ("2.6", "3.2", "3.3")] == [1, 1, 2]
    known, unknown = (
        [V.parse(text).alter_partition_version_max(ids_known=each) for text in ("2.7", "2.8")]
        for each in (True, False)
    )
    assert (known, unknown) == ([1, 3], [1, 1])


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("3.5", V.V3_5_IV2),
        ("3.5.1", V.V3_5_IV2),
        ("3.5.1-IV0", V.V3_5_IV2),
        ("3.5-IV1", V.V3_5_IV1),
        ("2.6", V.V2_6_IV0),
        ("2.7", V.V2_7_IV2),
        ("2.8", V.V2_8_IV1),
        ("3.0", V.V3_0_IV1),
        ("3.3", V.V3_3_IV3),
        ("3.7", V.V3_7_IV4),
        ("3.9", V.V3_9_IV0),
    ],
)
def test_a_release_is_its_latest_version(text: str, version: ProtocolVersion) -> None:
    assert V.parse(text) is version


def test_other_texts_are_refused_with_the_range() -> None:
    for text in ("", "3", "4.0", "4.0-IV0", "3.10", "3.9-IV1", "3.5-iv1", "2.5", "0.10.2", "3.5."):
        with pytest.raises(ValueError, match=r"2\.6-IV0 to 3\.9-IV0"):
            V.parse(text)
