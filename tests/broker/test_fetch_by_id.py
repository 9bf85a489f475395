"""Fetch by topic id, v13 to v17, through the whole broker. docs/spec/protocol-ladder.md 2.6."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from odradek.wire.topics import TopicPartition

from .clusters import Cluster, cluster, produce, until

UNKNOWN = UUID(int=99)


def topic(of: str | UUID, offset: int = 0, partition: int = 0) -> FetchTopic:
    named = {"topic": of} if isinstance(of, str) else {"topic_id": of}
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1_000_000)
    return FetchTopic(partitions=[asked], **named)


async def fetch(
    connection: Connection,
    *topics: FetchTopic,
    version: int = 13,
    session: tuple[int, int] = (0, -1),
    **fields: Any,
) -> FetchResponse:
    request = FetchRequest(
        max_wait_ms=fields.pop("max_wait_ms", 0),
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=list(topics),
        **fields,
    )
    return await connection.request(request, version)


def found(response: FetchResponse) -> dict[tuple[str | UUID, int], PartitionData]:
    return {
        (each.topic or each.topic_id, data.partition_index): data
        for each in response.responses
        for data in each.partitions
    }


async def open_topic(made: Cluster, name: str = "t") -> UUID:
    await made.create_topic(name, replicas=len(made.brokers))
    return made.brokers[1].cache.topic_id(name)


@pytest.mark.parametrize("version", [13, 14, 15, 16, 17])
async def test_records_and_errors_by_id(tmp_path: Path, version: int) -> None:
    async with cluster(tmp_path, inter_broker_protocol_version="3.9") as made:
        t = await open_topic(made)
        connection = await made.connect(1)
        await produce(connection, "t", b"value")
        response = await fetch(
            connection, topic(t), topic(UNKNOWN), topic(t, partition=7), version=version
        )
        answers = found(response)
        assert answers[(t, 0)].records and answers[(t, 0)].error_code == 0
        unknown = answers[(UNKNOWN, 0)]
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert (unknown.high_watermark, unknown.last_stable_offset) == (-1, -1)
        assert unknown.log_start_offset == -1 and not unknown.records
        assert answers[(t, 7)].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_session_is_by_id_or_by_name_for_life(tmp_path: Path) -> None:
    """Acceptance 13, the serving side: 106, and the session itself is left alone."""
    async with cluster(tmp_path, inter_broker_protocol_version="3.9") as made:
        t = await open_topic(made)
        connection = await made.connect(1)
        for first, other, of in ((12, 13, "t"), (13, 12, t)):
            opened = await fetch(connection, topic(of), version=first, session=(0, 0))
            session = opened.session_id
            assert session != 0
            # The order of the checks: unknown session, wrong epoch, wrong kind.
            for given, error in (
                ((session + 1, 1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
                ((session, 5), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
                ((session, 1), ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
            ):
                refused = await fetch(connection, version=other, session=given)
                assert refused.error_code == error, (first, given)
                assert (refused.session_id, refused.responses) == (0, [])
            again = await fetch(connection, version=first, session=(session, 1))
            assert (again.error_code, again.session_id) == (0, session)
            # A full request closes it, and may be of either kind.
            changed = await fetch(
                connection, topic(t if of == "t" else "t"), version=other, session=(session, 0)
            )
            assert changed.error_code == 0 and changed.session_id not in (0, session)


async def test_an_unknown_id_is_delivered_once_its_topic_is_known(tmp_path: Path) -> None:
    """Acceptance 14. It does not end the wait of the others; alone it is answered at once."""
    async with cluster(tmp_path, inter_broker_protocol_version="3.9") as made:
        t = await open_topic(made)
        connection = await made.connect(1)
        cache = made.brokers[1].cache
        u = await open_topic(made, "u")
        await produce(connection, "u", b"value")
        # As if this broker had not had the controller's UpdateMetadata yet.
        cache._forget_id("u")
        opened = await fetch(connection, topic(u), session=(0, 0), max_wait_ms=30_000)
        assert found(opened)[(u, 0)].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        session = opened.session_id
        await fetch(connection, topic(t), session=(session, 1))
        waiting = asyncio.ensure_future(fetch(connection, session=(session, 2), max_wait_ms=30_000))
        other = await made.connect(1)
        await until(lambda: made.brokers[1].fetch_sessions._sessions[session].next_epoch == 3)
        assert not waiting.done()
        await produce(other, "t", b"value")
        answers = found(await waiting)
        assert answers[(t, 0)].records
        assert answers[(u, 0)].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        cache._remember_id("u", u)
        answers = found(await fetch(connection, session=(session, 3)))
        assert answers[(u, 0)].records and answers[(u, 0)].error_code == 0


async def test_a_topic_made_again_is_another(tmp_path: Path) -> None:
    """Acceptance 10: 100, then 103 or the new topic's data, never one's data under the other's id.
    The old id is forgotten and the new one added in one request."""
    async with cluster(tmp_path, inter_broker_protocol_version="3.9") as made:
        old = await open_topic(made)
        connection = await made.connect(1)
        await produce(connection, "t", b"old")
        opened = await fetch(connection, topic(old), session=(0, 0))
        assert found(opened)[(old, 0)].records
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
        assert (await connection.request(deletion, 6)).responses[0].error_code == 0
        await until(lambda: not made.brokers[1].controller.is_queued_for_deletion("t"))
        fresh = await fetch(connection, topic(old))
        assert found(fresh)[(old, 0)].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        gone = await fetch(connection, session=(opened.session_id, 1))
        assert found(gone)[(old, 0)].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        new = await open_topic(made)
        await produce(connection, "t", b"new")
        assert new != old
        stale = await fetch(connection, session=(opened.session_id, 2))
        assert found(stale)[(old, 0)].error_code == ErrorCode.INCONSISTENT_TOPIC_ID
        changed = await fetch(
            connection,
            topic(new),
            session=(opened.session_id, 3),
            forgotten_topics_data=[ForgottenTopic(topic_id=old, partitions=[0])],
        )
        assert list(found(changed)) == [(new, 0)]
        records = found(changed)[(new, 0)].records
        assert isinstance(records, memoryview | bytes) and b"new" in bytes(records)


async def test_a_follower_of_another_id_is_not_taken_for_one(tmp_path: Path) -> None:
    """What it asks for says nothing of the log that this broker leads."""
    async with cluster(tmp_path, brokers=2, inter_broker_protocol_version="3.9") as made:
        t = await open_topic(made)
        leader = next(
            each
            for each in made.brokers.values()
            if each.replicas.partitions[TopicPartition("t", 0)].is_leader
        )
        follower = next(id for id in made.brokers if id != leader.id)
        connection = await made.connect(leader.id)
        leader.cache._remember_id("t", UNKNOWN)
        state = ReplicaState(replica_id=follower, replica_epoch=-1)
        response = await fetch(connection, topic(UNKNOWN), version=17, replica_state=state)
        assert found(response)[(UNKNOWN, 0)].error_code == ErrorCode.INCONSISTENT_TOPIC_ID
        assert t != UNKNOWN


async def test_from_v16_on_a_fetch_learns_where_the_leader_is(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2, inter_broker_protocol_version="3.9") as made:
        await made.create_topic("t")
        t = made.brokers[1].cache.topic_id("t")
        leader = made.brokers[1].cache.partitions("t")[0].leader
        connection = await made.connect(3 - leader)
        for version in (12, 13, 15, 16, 17):
            response = await fetch(connection, topic("t" if version < 13 else t), version=version)
            (data,) = found(response).values()
            assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (data.current_leader is not None) is (version >= 16), version
            nodes = [(each.node_id, each.port) for each in response.node_endpoints]
            port = made.brokers[leader].endpoints[0].port
            assert nodes == ([(leader, port)] if version >= 16 else []), version
