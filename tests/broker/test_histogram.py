"""Times in buckets, and the errors that a response carries."""

import pytest

from odradek.broker.histogram import BOUNDS_US, Histogram
from odradek.broker.response_errors import error_finder
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.heartbeat import HeartbeatResponse
from odradek.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


class TestHistogram:
    def test_a_time_is_in_the_first_bucket_that_is_long_enough(self) -> None:
        histogram = Histogram()
        for seconds in (0.0, 0.00025, 0.0003, 9.0, 11.0, 1e9):
            histogram.add(seconds)
        assert histogram.counts == [2, 1, *[0] * (len(BOUNDS_US) - 3), 1, 2]
        assert histogram.cumulative()[-1] == histogram.count == 6

    @pytest.mark.parametrize(("quantile", "least", "most"), [(0.5, 0, 0.25e-3), (0.99, 0.1, 0.25)])
    def test_a_quantile_is_exact_to_the_bucket(
        self, quantile: float, least: float, most: float
    ) -> None:
        histogram = Histogram()
        for _ in range(90):
            histogram.add(0.0001)
        for _ in range(10):
            histogram.add(0.2)
        assert least <= histogram.quantile_s(quantile) <= most

    def test_nothing_counted(self) -> None:
        assert Histogram().quantile_s(0.99) == 0.0

    def test_merged(self) -> None:
        one, other = Histogram(), Histogram()
        one.add(1)
        other.add(2)
        merged = Histogram.merged([one, other])
        assert (merged.count, merged.sum_us) == (2, 3_000_000)


class TestErrors:
    def test_at_the_top(self) -> None:
        find = error_finder(ApiKey.HEARTBEAT)
        assert list(find(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))) == [27]
        assert list(find(HeartbeatResponse())) == []

    def test_by_topic_and_partition(self) -> None:
        topic = OffsetCommitResponseTopic(
            name="t",
            partitions=[
                OffsetCommitResponsePartition(partition_index=0, error_code=3),
                OffsetCommitResponsePartition(partition_index=1, error_code=0),
            ],
        )
        response = OffsetCommitResponse(topics=[topic])
        assert list(error_finder(ApiKey.OFFSET_COMMIT)(response)) == [3]

    def test_metadata_by_topic_only(self) -> None:
        response = MetadataResponse(topics=[MetadataResponseTopic(name="t", error_code=3)])
        assert list(error_finder(ApiKey.METADATA)(response)) == [3]

    def test_every_api_has_one(self) -> None:
        for key in ApiKey:
            assert callable(error_finder(key))
