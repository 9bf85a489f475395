"""The inter-broker protocol: which versions there are, and what each of them changes.

A cluster's brokers are upgraded one by one, so what a broker sends, stores and expects of others is
chosen by `inter.broker.protocol.version`, not by what it could do. Nothing else compares versions:
code that has a choice to make is handed a `ProtocolVersion` and asks it the question by name.
Receiving never depends on it. docs/spec/protocol-ladder.md, section 1.
"""

from enum import IntEnum

__all__ = ["ProtocolVersion"]


class ProtocolVersion(IntEnum):
    """Every version that ZooKeeper-mode brokers of Kafka 2.6 to 3.9 speak, oldest first."""

    V2_6_IV0 = 0
    V2_7_IV0 = 1
    V2_7_IV1 = 2
    V2_7_IV2 = 3
    V2_8_IV0 = 4
    V2_8_IV1 = 5
    V3_0_IV0 = 6
    V3_0_IV1 = 7
    V3_1_IV0 = 8
    V3_2_IV0 = 9
    V3_3_IV0 = 10
    V3_3_IV1 = 11
    V3_3_IV2 = 12
    V3_3_IV3 = 13
    V3_4_IV0 = 14
    V3_5_IV0 = 15
    V3_5_IV1 = 16
    V3_5_IV2 = 17
    V3_6_IV0 = 18
    V3_6_IV1 = 19
    V3_6_IV2 = 20
    V3_7_IV0 = 21
    V3_7_IV1 = 22
    V3_7_IV2 = 23
    V3_7_IV3 = 24
    V3_7_IV4 = 25
    V3_8_IV0 = 26
    V3_9_IV0 = 27

    @classmethod
    def parse(cls, text: str) -> "ProtocolVersion":
        """The version that Kafka would understand; a bare release is the latest version of it.

        Raises ValueError for anything else, also for versions that exist outside this range.
        """
        segments = text.rstrip(".").split(".")
        found = _BY_TEXT.get(".".join(segments[:2]) if len(segments) > 2 else text)
        if found is None:
            raise ValueError(f"version {text} is not one from {cls.oldest()} to {cls.latest()}")
        return found

    @classmethod
    def oldest(cls) -> "ProtocolVersion":
        return min(cls)

    @classmethod
    def latest(cls) -> "ProtocolVersion":
        return max(cls)

    def __str__(self) -> str:
        major, minor, step = self.name.removeprefix("V").split("_")
        return f"{major}.{minor}-{step}"

    @property
    def release(self) -> str:
        """Without the step: what an operator writes."""
        return str(self).partition("-")[0]

    # What a follower sends to its leader

    @property
    def fetch_version(self) -> int:
        """Where every partition of the fetch has a topic id; without, `fetch_version_by_name`."""
        return _since(
            self,
            11,
            (V.V2_7_IV1, 12),
            (V.V3_1_IV0, 13),
            (V.V3_5_IV0, 14),
            (V.V3_5_IV1, 15),
            (V.V3_7_IV4, 16),
            (V.V3_9_IV0, 17),
        )

    @property
    def fetch_version_by_name(self) -> int:
        return min(self.fetch_version, 12)

    @property
    def fetches_by_id(self) -> bool:
        """Whether topics are named by id in a fetch, if all of them have one (KIP-516)."""
        return self >= V.V3_1_IV0

    @property
    def list_offsets_version(self) -> int:
        return _since(self, 5, (V.V2_8_IV0, 6), (V.V3_0_IV1, 7), (V.V3_5_IV0, 8), (V.V3_9_IV0, 9))

    @property
    def offset_for_leader_epoch_version(self) -> int:
        return _since(self, 3, (V.V2_8_IV0, 4))

    @property
    def truncates_on_fetch(self) -> bool:
        """Whether the answer to a fetch says where logs diverge (KIP-595); if not, the follower
        asks with OffsetForLeaderEpoch before it fetches."""
        return self >= V.V2_7_IV1

    # What a controller sends to brokers

    @property
    def leader_and_isr_version(self) -> int:
        return _since(self, 4, (V.V2_8_IV1, 5), (V.V3_2_IV0, 6), (V.V3_4_IV0, 7))

    @property
    def update_metadata_version(self) -> int:
        return _since(self, 6, (V.V2_8_IV1, 7), (V.V3_4_IV0, 8))

    @property
    def stop_replica_version(self) -> int:
        return _since(self, 3, (V.V3_4_IV0, 4))

    # What a broker sends to the controller

    @property
    def isr_through_controller(self) -> bool:
        """Whether a leader asks the controller to change the ISR (AlterPartition, KIP-497) instead
        of writing the partition's state itself."""
        return self >= V.V2_7_IV2

    def alter_partition_version_max(self, *, ids_known: bool) -> int:
        """The highest that may be negotiated; from 2 on partitions are named by topic id."""
        return 3 if ids_known and self.uses_topic_ids else 1

    @property
    def allocates_producer_ids_through_controller(self) -> bool:
        """Whether a broker asks the controller for producer ids (KIP-730)."""
        return self >= V.V3_0_IV0

    # What a transaction coordinator sends to leaders

    @property
    def write_txn_markers_version(self) -> int:
        return _since(self, 0, (V.V2_8_IV0, 1))

    # What is kept, in the store and on disk

    @property
    def uses_topic_ids(self) -> bool:
        """Whether topics are given ids and directories keep them (KIP-516)."""
        return self >= V.V2_8_IV0

    @property
    def writes_leader_recovery_state(self) -> bool:
        """Whether an unclean election leaves a mark in the partition's state (KIP-704)."""
        return self >= V.V3_2_IV0

    @property
    def enables_features(self) -> bool:
        """Whether brokers register with features and `/feature` is enabled (KIP-584)."""
        return self >= V.V2_7_IV0

    @property
    def feature_node_version(self) -> int:
        return _since(self, 1, (V.V3_3_IV0, 2))


V = ProtocolVersion
_BY_TEXT = {
    **{str(version): version for version in ProtocolVersion},
    **{version.release: version for version in sorted(ProtocolVersion)},
}


def _since(version: ProtocolVersion, first: int, *steps: tuple[ProtocolVersion, int]) -> int:
    """`first`, or the number of the last step that this version has reached."""
    for least, number in steps:
        if version >= least:
            first = number
    return first
