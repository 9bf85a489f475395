"""Asking a coordinator whether a partition is in a transaction: who can be asked, the answers."""

from typing import Any

import pytest

from odradek.coordinator.verification import Verification
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from odradek.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.schema import Message
from odradek.wire.topics import TopicPartition

E = ErrorCode
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Coordinator:
    """A broker that serves AddPartitionsToTxn up to a version, and what it was sent."""

    peer = "broker"

    def __init__(self, version_max: int) -> None:
        self.version_max = version_max
        self.sent: list[tuple[type, int]] = []
        self.answers = {A: E.NONE, B: E.TRANSACTION_ABORTABLE}
        self.error = E.NONE

    async def request(self, request: Message, version: int) -> Message:
        self.sent.append((type(request), version))
        if isinstance(request, ApiVersionsRequest):
            key = ApiKey.ADD_PARTITIONS_TO_TXN
            served = ApiVersion(api_key=key, min_version=0, max_version=self.version_max)
            return ApiVersionsResponse(api_keys=[served])
        assert isinstance(request, AddPartitionsToTxnRequest)
        if version > self.version_max:
            raise ConnectionError("closed, as for every version that a broker does not know")
        (asked,) = request.transactions
        assert asked.verify_only
        results = [
            AddPartitionsToTxnPartitionResult(
                partition_index=tp.partition, partition_error_code=error
            )
            for tp, error in self.answers.items()
        ]
        return AddPartitionsToTxnResponse(
            error_code=self.error,
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=asked.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)
                    ],
                )
            ],
        )


def verification(coordinator: Coordinator, broker_id: int | None = 1) -> Verification:
    async def connect(_: int) -> Any:
        return coordinator

    return Verification(lambda: True, lambda _: broker_id, connect, lambda: None)


@pytest.mark.parametrize("version_max", [4, 5])
async def test_each_partition_has_its_answer(version_max: int) -> None:
    coordinator = Coordinator(version_max)
    asking = verification(coordinator)
    for _ in range(2):
        assert await asking.verify("id", 7, 0, [A, B]) == coordinator.answers
    assert coordinator.sent == [
        (ApiVersionsRequest, 3),
        (AddPartitionsToTxnRequest, 4),
        (AddPartitionsToTxnRequest, 4),
    ]
    assert asking.failures == 2


async def test_a_coordinator_that_cannot_be_asked_is_believed() -> None:
    """Apache Kafka before 3.6, which ends the connection at a version that it does not know."""
    coordinator = Coordinator(3)
    asking = verification(coordinator)
    for _ in range(2):
        assert await asking.verify("id", 7, 0, [A, B]) == {A: E.NONE, B: E.NONE}
    assert coordinator.sent == [(ApiVersionsRequest, 3)]


async def test_what_is_not_answered_is_not_verified() -> None:
    coordinator = Coordinator(5)
    del coordinator.answers[B]
    found = await verification(coordinator).verify("id", 7, 0, [A, B])
    assert found == {A: E.NONE, B: E.NETWORK_EXCEPTION}
    coordinator.error = E.CLUSTER_AUTHORIZATION_FAILED
    found = await verification(coordinator).verify("id", 7, 0, [A, B])
    assert set(found.values()) == {E.CLUSTER_AUTHORIZATION_FAILED}
    found = await verification(coordinator, None).verify("id", 7, 0, [A])
    assert found == {A: E.COORDINATOR_NOT_AVAILABLE}
