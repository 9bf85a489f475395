"""What a task makes of what the log has: gaps, ends that are no records, offsets that are gone."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from odradek.client.reader import EARLIEST, Batches, OffsetAt, TopicRecreated
from odradek.spark.errors import DataLoss, MalformedRecord
from odradek.spark.options import source_options
from odradek.spark.range_reader import DOUBTS_MAX, RangeBounds, RangeReader
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, encode_batch
from odradek.wire.topics import TopicPartition

PARTITION = TopicPartition("t", 3)
OUT_OF_RANGE = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "t-3")

NOTHING_YET = KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "t-3")


def batch(first: int, count: int) -> bytes:
    records = [Record(first + i, 1000, None, b"%d" % (first + i), ()) for i in range(count)]
    return bytes(encode_batch(records, base_offset=first))


def fetched(start: int, next_offset: int, *batches: bytes) -> Batches:
    return Batches(PARTITION, start, next_offset, memoryview(b"".join(batches)), 99, 99, 0)


class Log:
    """Answers in the place of a cluster: fetches as they are listed, and the log's two ends."""

    client = None

    def __init__(self, *answers: Batches | KafkaError, earliest: int = 0, latest: int = 99) -> None:
        self._answers = list(answers)
        self._ends = {EARLIEST: earliest}
        self._latest = latest

    def run(self, question: Any) -> dict[TopicPartition, OffsetAt]:
        offset = next(iter(question.cr_frame.f_locals["timestamps"].values()))
        question.close()
        return {PARTITION: OffsetAt(self._ends.get(offset, self._latest), -1, -1)}

    def iterate(self, _: Iterable[Batches]) -> Iterator[Batches]:
        while self._answers:
            answer = self._answers.pop(0)
            if isinstance(answer, KafkaError):
                raise answer
            yield answer


def offsets(log: Log, start: int, end: int, **options: str) -> list[int]:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", **options}
    reader: Any = RangeReader
    task = reader(source_options(given, False), log, RangeBounds(*PARTITION, start, end))
    return [offset for rows in task.rows() for offset in rows["offset"].to_pylist()]


def test_holes_of_compaction_and_control_records_are_passed_over() -> None:
    log = Log(
        fetched(5, 10, batch(0, 10)),
        fetched(10, 40, batch(30, 10)),  # 10 to 29 are compacted away
        fetched(40, 60),  # markers of transactions, and nothing else
    )
    assert offsets(log, 5, 60) == [*range(5, 10), *range(30, 40)]


def test_what_is_gone_from_the_front_is_loss_or_left_out() -> None:
    with pytest.raises(DataLoss, match="offsets 5 to 60 of t-3 cannot be read: the log has 30 to"):
        offsets(Log(OUT_OF_RANGE, earliest=30), 5, 60)
    log = Log(OUT_OF_RANGE, fetched(30, 60, batch(30, 30)), earliest=30)
    assert offsets(log, 5, 60, failOnDataLoss="false") == list(range(30, 60))
    beyond = Log(OUT_OF_RANGE, earliest=70)
    assert offsets(beyond, 5, 60, failOnDataLoss="false") == []


def test_what_is_gone_from_the_end_is_loss_or_left_out() -> None:
    def log() -> Log:
        return Log(fetched(5, 10, batch(5, 5)), NOTHING_YET, latest=10)

    with pytest.raises(DataLoss, match="offsets 10 to 60 of t-3 cannot be read: the log has 0 to"):
        offsets(log(), 5, 60)
    assert offsets(log(), 5, 60, failOnDataLoss="false") == list(range(5, 10))
    # It has them and does not hand them out: nothing is lost.
    with pytest.raises(KafkaError, match="OFFSET_NOT_AVAILABLE"):
        offsets(Log(NOTHING_YET), 5, 60, failOnDataLoss="false")


def test_another_topic_of_the_name_is_loss_or_left_out() -> None:
    def log() -> Log:
        return Log(fetched(5, 10, batch(5, 5)), TopicRecreated(PARTITION))

    with pytest.raises(DataLoss, match=r"offsets 10 to 60 of t-3 .* was deleted and created again"):
        offsets(log(), 5, 60)
    assert offsets(log(), 5, 60, failOnDataLoss="false") == list(range(5, 10))


def test_a_leader_that_does_not_know_its_end_yet_is_asked_again() -> None:
    log = Log(OUT_OF_RANGE, fetched(5, 10, batch(5, 5)))
    assert offsets(log, 5, 10) == list(range(5, 10))
    for_ever = Log(*[OUT_OF_RANGE] * (DOUBTS_MAX + 1))
    with pytest.raises(DataLoss, match="COULD_NOT_READ_OFFSET_RANGE"):
        offsets(for_ever, 5, 10)


def test_another_failure_is_reported_unchanged() -> None:
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        offsets(Log(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)), 0, 9)


def test_a_record_that_cannot_be_read_is_named() -> None:
    broken = bytearray(batch(7, 2))
    broken[61] = 0x7F
    with pytest.raises(MalformedRecord, match="t-3: the batch at offset 7"):
        offsets(Log(fetched(7, 9, bytes(broken))), 7, 9)
