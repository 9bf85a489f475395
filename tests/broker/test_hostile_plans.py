"""The fields of plans in AlterPartitionReassignments: forged, truncated, absurd."""

from pathlib import Path

import pytest
from tests.broker.clusters import Cluster, cluster
from tests.broker.test_connection import Raw

from odradek.broker.handlers.alter_partition_reassignments import ELEMENTS_MAX
from odradek.store.plan_moves import PLAN_MOVES
from odradek.wire.errors import ErrorCode
from odradek.wire.header import encode_request
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

INT32 = 2**31
INT64 = 2**63


def request(
    *partitions: ReassignablePartition, plan: str | None = "p-1", throttle: int = 0
) -> AlterPartitionReassignmentsRequest:
    topic = ReassignableTopic(name="t", partitions=list(partitions))
    return AlterPartitionReassignmentsRequest(
        topics=[topic], plan_id=plan, plan_throttle=throttle, timeout_ms=1000
    )


def move(
    number: int = 0, to: tuple[int, ...] | None = (1,), position: int = 0, size: int = 0
) -> ReassignablePartition:
    return ReassignablePartition(
        partition_index=number,
        replicas=[-1],
        planned_replicas=None if to is None else list(to),
        plan_position=position,
        replica_bytes=size,
    )


async def ask(made: Cluster, message: AlterPartitionReassignmentsRequest) -> list[str]:
    """The error of the whole, or of each partition."""
    connection = await made.connect(1)
    answer = await connection.request(message, 0)
    if answer.error_code:
        return [ErrorCode(answer.error_code).name]
    (topic,) = answer.responses
    return [ErrorCode(part.error_code).name for part in topic.partitions]


async def test_absurd_fields_of_a_plan_get_an_error_or_a_bound(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        for id in ("", "x" * 101, "a/b", "../etc", "a\nb", "\0"):
            assert await ask(made, request(move(), plan=id)) == ["INVALID_REQUEST"]
        assert await ask(
            made,
            request(
                move(0, (1,) * 1000),
                move(1, (1,)),
                move(INT32 - 1, (1,)),
                move(-1, (1,)),
                move(2, ()),
                move(3, (-5,)),
                move(4, (INT32 - 1,)),
            ),
        ) == [
            "INVALID_REPLICA_ASSIGNMENT",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "UNKNOWN_TOPIC_OR_PARTITION",
        ]
        for position, size, rate in (
            (-INT32, -INT64, -INT64),
            (INT32 - 1, INT64 - 1, INT64 - 1),
        ):
            absurd = request(move(position=position, size=size), throttle=rate)
            assert await ask(made, absurd) == ["NONE"]
        many = AlterPartitionReassignmentsRequest(
            plan_id="p", strained_brokers=[-1, 1, *range(10**9, 10**9 + 50_000)], timeout_ms=1000
        )
        connection = await made.connect(1)
        assert (await connection.request(many, 0)).error_code == ErrorCode.NONE
        active = made.brokers[1].controller._active
        assert active is not None
        assert active.reassigner.plans._strained == {1}, "of those that are there"
        store = made.brokers[1].store
        assert await store.session.children(PLAN_MOVES) == [], "it is where it should be"
        assert await store.plan_throttles.read() == {}
        assert await ask(made, request(move(to=None))) == ["NO_REASSIGNMENT_IN_PROGRESS"]
        # To a controller that does not know the fields it is no move, and no cancellation.
        assert await ask(made, request(move(), plan=None)) == ["INVALID_REPLICA_ASSIGNMENT"]


async def test_millions_of_moves_end_their_connection_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        raw = await Raw.open(made)
        part = b"\x00\x00\x00\x00\x01\x00"  # partition 0, no replicas, no tags
        count = ELEMENTS_MAX + 1
        whole = b"".join(encode_request(request(plan=None), 0, 1, None))
        names = whole.index(b"\x02t\x01")
        many = whole[:names] + b"\x02t" + varint(count + 1) + part * count + whole[names + 3 :]
        raw.writer.write((len(many) - 4).to_bytes(4, "big") + many[4:])
        assert await raw.is_closed()
        assert "more elements than one request may have" in caplog.text
        caplog.clear()
        assert await ask(made, request(move())) == ["NONE"]
        raw.close()


async def test_a_truncated_or_forged_tag_ends_its_connection_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        good = b"".join(encode_request(request(move(), throttle=7), 0, 1, None))
        tag = good.index(varint(20_293))
        forged = [
            good[:tag] + varint(20_293) + varint(1_000_000) + good[tag + 4 :],
            good[:tag] + varint(20_293) + b"\x00" + good[tag + 4 :],
            good[: tag - 1] + b"\xff\xff\xff\xff\x0f" + good[tag:],
            *(good[:end] for end in range(tag, len(good))),
        ]
        for frame in forged:
            raw = await Raw.open(made)
            raw.writer.write((len(frame) - 4).to_bytes(4, "big") + frame[4:])
            assert await raw.is_closed(), frame
            raw.close()
        assert caplog.text.count("AlterPartitionReassignments") >= len(forged)
        caplog.clear()
        assert await ask(made, request(move())) == ["NONE"]


def varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])
