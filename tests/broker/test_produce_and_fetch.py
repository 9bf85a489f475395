"""Produce and Fetch through the whole broker: what Kafka answers, to good input and to bad."""

import os
from pathlib import Path

import pytest
from tests.broker.clusters import (
    batch_of,
    cluster,
    fetch_request,
    produce,
    produce_request,
    records_of,
    until,
)

from odradek.wire.batch import scan
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.wire.records import Record, decode_records, encode_batch
from odradek.wire.topics import TopicPartition


def values_in(records: object) -> list[bytes | None]:
    assert isinstance(records, bytes | bytearray | memoryview)
    return [record.value for header in scan(records) for record in decode_records(records, header)]


@pytest.mark.parametrize("version", range(3, 12))
async def test_every_version_of_produce_and_of_fetch(tmp_path: Path, version: int) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        answer = await produce(connection, "t", b"a", b"b", version=version)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        for fetch_version in range(13):
            response = await connection.request(fetch_request("t"), fetch_version)
            data = response.responses[0].partitions[0]
            assert data.high_watermark == 2
            assert values_in(data.records) == [b"a", b"b"]


async def test_bad_records_have_kafkas_errors_and_change_nothing(tmp_path: Path) -> None:
    corrupt = batch_of(b"value")
    corrupt[-1] ^= 1
    old_format = batch_of(b"value")
    old_format[16] = 1
    cut_off = batch_of(b"value")[:-3]
    two = batch_of(b"one") + batch_of(b"two")
    async with cluster(tmp_path) as made:
        await made.create_topic("t", max_message_bytes="1000")
        connection = await made.connect(1)
        for records, error in (
            (corrupt, ErrorCode.CORRUPT_MESSAGE),
            (batch_of(b"x" * 2000), ErrorCode.MESSAGE_TOO_LARGE),
            (b"garbage", ErrorCode.INVALID_RECORD),
            (b"\xff" * 100, ErrorCode.CORRUPT_MESSAGE),
            (b"", ErrorCode.INVALID_RECORD),
            (cut_off, ErrorCode.INVALID_RECORD),
            (two, ErrorCode.INVALID_RECORD),
            (old_format, ErrorCode.INVALID_RECORD),
        ):
            response = await connection.request(produce_request("t", records), 9)
            answer = response.responses[0].partition_responses[0]
            assert ErrorCode(answer.error_code) is error, bytes(records)
            assert answer.base_offset == -1
        assert (await produce(connection, "t", b"good")).base_offset == 0


@pytest.mark.parametrize("magic", [0, 1])
async def test_old_record_formats_have_one_error_whatever_their_key(
    tmp_path: Path, magic: int
) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        for version in range(12):
            for key_byte in (0x00, 0x04, 0x10, 0xFF):  # where magic 2 has its attributes
                message = batch_of(b"value")
                message[16], message[22] = magic, key_byte
                response = await connection.request(produce_request("t", message), version)
                answer = response.responses[0].partition_responses[0]
                assert ErrorCode(answer.error_code) is ErrorCode.INVALID_RECORD


async def test_only_the_bad_records_of_a_batch_are_blamed(tmp_path: Path) -> None:
    records = [Record(-1, 1, None if index in (2, 5) else b"k", b"v") for index in range(10)]
    async with cluster(tmp_path) as made:
        await made.create_topic("t", cleanup_policy="compact")
        connection = await made.connect(1)
        for version in range(3, 12):
            request = produce_request("t", encode_batch(records))
            response = await connection.request(request, version)
            answer = response.responses[0].partition_responses[0]
            assert ErrorCode(answer.error_code) is ErrorCode.INVALID_RECORD
            named = [error.batch_index for error in answer.record_errors]
            assert named == ([2, 5] if version >= 8 else [])


async def test_a_refused_produce_has_the_log_start_offset_where_kafka_gives_it(
    tmp_path: Path,
) -> None:
    corrupt = batch_of(b"value")
    corrupt[-1] ^= 1
    async with cluster(tmp_path) as made:
        await made.create_topic("t", cleanup_policy="compact")
        connection = await made.connect(1)
        keyless = encode_batch([Record(-1, 1, None, b"v")])
        for topic, records, start in (("t", keyless, 0), ("t", corrupt, -1), ("no", keyless, -1)):
            response = await connection.request(produce_request(topic, records), 9)
            answer = response.responses[0].partition_responses[0]
            assert answer.error_code and answer.log_start_offset == start


async def test_where_a_produce_cannot_go(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        for topic, partition, acks, error in (
            ("nowhere", 0, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("t", 7, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("t", 0, 2, ErrorCode.INVALID_REQUIRED_ACKS),
            ("__consumer_offsets", 0, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ):
            answer = await produce(connection, topic, b"v", partition=partition, acks=acks)
            assert ErrorCode(answer.error_code) is error
        zstd = produce_request("t", batch_of(b"v", codec=Codec.ZSTD))
        response = await connection.request(zstd, 6)
        code = response.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


async def test_a_transaction_that_no_coordinator_knows_is_refused(tmp_path: Path) -> None:
    options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    async with cluster(tmp_path) as made:
        await made.create_topic("t", partitions=2)
        connection = await made.connect(1)
        request = produce_request("t", batch_of(b"open", **options))
        request.topic_data += produce_request("t", batch_of(b"plain"), partition=1).topic_data

        async def codes(version: int = 9) -> dict[int, ErrorCode]:
            response = await connection.request(request, version)
            return {
                answer.index: ErrorCode(answer.error_code)
                for topic in response.responses
                for answer in topic.partition_responses
            }

        nobody = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        for version in (2, 9):
            assert await codes(version) == {0: nobody, 1: nobody}, "the whole request"
        request.transactional_id = "somebody"
        # There is no coordinator to ask: the client may try again.
        assert await codes() == {0: ErrorCode.NOT_ENOUGH_REPLICAS, 1: ErrorCode.NONE}
        assert (await produce(connection, "t", b"after")).base_offset == 0
        response = await connection.request(fetch_request("t", isolation_level=1), 11)
        assert values_in(response.responses[0].partitions[0].records) == [b"after"]
        request = produce_request("t", batch_of(b"open", **options), acks=0)
        connection.send_no_response(request, 9)
        await until(lambda: connection.closed)


async def test_one_bad_partition_does_not_spoil_the_others(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t", partitions=2)
        connection = await made.connect(1)
        request = produce_request("t", batch_of(b"good"), partition=1)
        request.topic_data += produce_request("t", b"bad", partition=0).topic_data
        response = await connection.request(request, 9)
        codes = [
            (answer.index, answer.error_code)
            for topic in response.responses
            for answer in topic.partition_responses
        ]
        assert codes == [(1, ErrorCode.NONE), (0, ErrorCode.INVALID_RECORD)]


async def test_not_enough_replicas(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t", min_insync_replicas="2")
        connection = await made.connect(1)
        # The effective minimum is never above the number of replicas, as in Kafka since 3.7.
        assert (await produce(connection, "t", b"v")).error_code == ErrorCode.NONE


async def test_fetch_limits(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        for _ in range(5):
            await produce(connection, "t", b"x" * 1000)

        async def count(**options: int) -> int:
            response = await connection.request(fetch_request("t", **options), 11)
            return len(values_in(response.responses[0].partitions[0].records))

        assert await count() == 5
        assert await count(max_bytes=1) == 1, "the first batch comes whole"
        assert await count(partition_max_bytes=2500) == 2
        assert await count(offset=4) == 1
        response = await connection.request(fetch_request("t", 6), 11)
        code = response.responses[0].partitions[0].error_code
        assert code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_min_bytes_holds_a_fetch_back(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection, other = await made.connect(1), await made.connect(1)
        pending = connection.start(fetch_request("t", max_wait_ms=20_000, min_bytes=3000), 11)
        await produce(other, "t", b"x" * 1000)
        await produce(other, "t", b"x" * 1000)
        assert not pending.done()
        await produce(other, "t", b"x" * 1000)
        response = await pending
        assert len(values_in(response.responses[0].partitions[0].records)) == 3


@pytest.mark.parametrize("is_follower", [False, True])
async def test_more_than_may_be_sent_is_not_waited_for(tmp_path: Path, is_follower: bool) -> None:
    async with cluster(tmp_path, brokers=2, fetch_max_bytes="2048") as made:
        await made.create_topic("t", replicas=2)
        leader = made.controller.cache.partitions("t")[0].leader
        replica_id = 3 - leader if is_follower else -1
        connection = await made.connect(leader)
        for _ in range(3):
            await produce(connection, "t", b"x" * 1000)
        for options in ({"min_bytes": 5000}, {"min_bytes": 1000, "max_bytes": 100}):
            request = fetch_request("t", replica_id=replica_id, max_wait_ms=2**31 - 1, **options)
            response = await connection.request(request, 11)
            assert len(values_in(response.responses[0].partitions[0].records)) == 1


def session_request(
    session_id: int, epoch: int, offsets: dict[str, int], forgotten: tuple[str, ...] = ()
) -> FetchRequest:
    request = fetch_request("t", session_id=session_id, session_epoch=epoch)
    request.topics = [
        FetchTopic(
            topic=topic,
            partitions=[
                FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            ],
        )
        for topic, offset in offsets.items()
    ]
    request.forgotten_topics_data = [
        ForgottenTopic(topic=topic, partitions=[0]) for topic in forgotten
    ]
    return request


async def test_a_fetch_session_names_only_what_changed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("a")
        await made.create_topic("b")
        connection = await made.connect(1)
        await produce(connection, "a", b"1")
        first = await connection.request(session_request(0, 0, {"a": 0, "b": 0}), 11)
        assert [topic.topic for topic in first.responses] == ["a", "b"]
        session = first.session_id
        assert session != 0
        second = await connection.request(session_request(session, 1, {"a": 1}), 11)
        assert second.responses == []
        await produce(connection, "b", b"2")
        third = await connection.request(session_request(session, 2, {}), 11)
        assert [topic.topic for topic in third.responses] == ["b"]
        assert values_in(third.responses[0].partitions[0].records) == [b"2"]
        stale = await connection.request(session_request(session, 2, {}), 11)
        assert stale.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        await produce(connection, "b", b"3")
        fourth = await connection.request(session_request(session, 3, {}, forgotten=("b",)), 11)
        assert fourth.responses == []
        unknown = await connection.request(session_request(12345, 1, {}), 11)
        assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        again = await connection.request(session_request(session, 0, {"a": 0}), 11)
        assert again.session_id not in (0, session), "a full fetch closes the old session"
        assert made.brokers[1].fetch_sessions.statistics()["sessions"] == 1
        last = await connection.request(session_request(again.session_id, -1, {"a": 0}), 11)
        assert last.session_id == 0
        assert made.brokers[1].fetch_sessions.statistics()["sessions"] == 0


async def test_there_is_room_for_so_many_sessions(tmp_path: Path) -> None:
    async with cluster(tmp_path, max_incremental_fetch_session_cache_slots="3") as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        sessions = [
            (await connection.request(session_request(0, 0, {"t": 0}), 11)).session_id
            for _ in range(5)
        ]
        assert all(sessions[:3])
        assert sessions[3:] == [0, 0], "the others are served without"
        response = await connection.request(session_request(sessions[0], 1, {}), 11)
        assert response.error_code == ErrorCode.NONE


async def test_list_offsets(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        await produce(connection, "t", b"a", b"b")

        async def ask(timestamp: int, version: int = 7) -> tuple[int, int]:
            request = ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        name="t",
                        partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)],
                    )
                ],
            )
            answer = (await connection.request(request, version)).topics[0].partitions[0]
            if version == 0:
                return answer.error_code, answer.old_style_offsets[0]
            return answer.error_code, answer.offset

        assert await ask(-1, 0) == (ErrorCode.NONE, 2)
        assert await ask(-2, 0) == (ErrorCode.NONE, 0)
        for version in range(1, 10):
            assert await ask(-1, version) == (ErrorCode.NONE, 2)
            assert await ask(-2, version) == (ErrorCode.NONE, 0)
        assert await ask(1000) == (ErrorCode.NONE, 0)
        assert await ask(2**62) == (ErrorCode.NONE, -1)
        assert await ask(-3, 6) == (ErrorCode.UNSUPPORTED_VERSION, -1)
        assert (await ask(-3))[0] == ErrorCode.NONE
        assert await ask(-4, 8) == (ErrorCode.NONE, 0)
        assert await ask(-5, 9) == (ErrorCode.NONE, -1)
        assert await ask(-77, 9) == (ErrorCode.UNSUPPORTED_VERSION, -1)


async def test_a_fetch_from_a_follower_of_another_broker(tmp_path: Path) -> None:
    """Replication through whole brokers: every replica has what was acknowledged."""
    async with cluster(tmp_path, brokers=3) as made:
        await made.create_topic("t", replicas=3)
        leader = made.controller.cache.partitions("t")[0].leader
        connection = await made.connect(leader)
        for number in range(20):
            answer = await produce(connection, "t", str(number).encode())
            assert answer.error_code == ErrorCode.NONE
        for broker in made.brokers.values():
            log = broker.logs.logs[next(iter(broker.logs.logs))]
            assert log.end_offset == 20
        logs = [next(iter(each.logs.logs.values())) for each in made.brokers.values()]
        await until(lambda: all(log.high_watermark == 20 for log in logs))
        other = await made.connect(next(each for each in made.brokers if each != leader))
        fetched = await other.request(fetch_request("t"), 10)
        code = fetched.responses[0].partitions[0].error_code
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        produced = await other.request(produce_request("t", batch_of(b"x")), 10)
        answer = produced.responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.current_leader is not None
        assert answer.current_leader.leader_id == leader
        assert [each.node_id for each in produced.node_endpoints] == [leader]


async def test_list_offsets_v0_lists_where_segments_begin(tmp_path: Path) -> None:
    """By the time of their files, the greatest first, and the end of the log if that is by now."""
    async with cluster(tmp_path) as made:
        await made.create_topic("t", segment_bytes="200")
        connection = await made.connect(1)
        for _ in range(3):
            await produce(connection, "t", b"x" * 80)
        log = made.brokers[1].replicas.partitions[TopicPartition("t", 0)].local_log
        assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
        for number, segment in enumerate(log.segments):
            os.utime(segment.files.log_path, (1000 * (number + 1),) * 2)

        async def ask(timestamp: int, count: int) -> list[int]:
            asked = ListOffsetsPartition(
                partition_index=0, timestamp=timestamp, max_num_offsets=count
            )
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])]
            )
            answer = (await connection.request(request, 0)).topics[0].partitions[0]
            assert answer.error_code == ErrorCode.NONE
            offsets: list[int] = answer.old_style_offsets
            return offsets

        assert await ask(-1, 10) == [3, 2, 1, 0]
        assert await ask(-1, 1) == [3]
        assert await ask(-2, 10) == [0]
        assert await ask(2_000_000, 10) == [1, 0]
        assert await ask(2_999_999, 1) == [1]
        assert await ask(999_999, 10) == []
        assert await ask(2**62, 2) == [3, 2]
        assert await ask(2**62, -1) == []


async def test_an_old_fetch_with_a_small_limit_gets_a_part_of_the_first_batch(
    tmp_path: Path,
) -> None:
    """From which its client sees that the limit is too small; from v3 on the batch comes whole."""
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        await produce(connection, "t", b"x" * 1000)
        for version in range(13):
            request = fetch_request("t", partition_max_bytes=100)
            data = (await connection.request(request, version)).responses[0].partitions[0]
            if version < 3:
                records = records_of(data)
                assert len(records) == 100 and list(scan(records)) == []
            else:
                assert values_in(data.records) == [b"x" * 1000]
