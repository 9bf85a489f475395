"""Raw batches: cut at an end, opened, and without what was aborted."""

from odradek.client import Batches
from odradek.wire.batch import header_at, set_offset_and_epoch
from odradek.wire.records import (
    ControlType,
    Record,
    TransactionEnd,
    encode_batch,
    encode_transaction_end,
)
from odradek.wire.topics import TopicPartition

PARTITION = TopicPartition("t", 0)


def batch(base: int, values: list[bytes], producer: int = -1) -> bytearray:
    records = [Record(-1, 1000, None, value) for value in values]
    return encode_batch(
        records, base_offset=base, producer_id=producer, transactional=producer >= 0
    )


def marker(base: int, kind: ControlType, producer: int) -> bytearray:
    encoded = encode_transaction_end(TransactionEnd(kind, 0, 1000), producer, 0)
    set_offset_and_epoch(encoded, 0, base, 0)
    return encoded


def batches(
    *parts: bytearray, start: int = 0, aborted: tuple[tuple[int, int], ...] = ()
) -> Batches:
    records = memoryview(b"".join(parts))
    last = header_at(parts[-1]).next_offset
    return Batches(PARTITION, start, last, records, last, last, 0, aborted)


def test_records_before_the_start_are_left_out() -> None:
    opened = batches(batch(0, [b"a", b"b", b"c"]), start=1).open()
    assert [(record.offset, record.value) for record in opened] == [(1, b"b"), (2, b"c")]


def test_truncated_at_an_end() -> None:
    three = batches(batch(0, [b"a", b"b"]), batch(2, [b"c"]), batch(5, [b"d"]))
    assert three.until(6) is three
    assert three.until(9) is three
    # Offset 4 is in no batch: the batch that ends before it is the last, and 4 is reached.
    for end, next_offset, count in ((5, 5, 2), (4, 4, 2), (3, 3, 2), (2, 2, 1), (1, 2, 1)):
        cut = three.until(end)
        assert cut.next_offset == next_offset, end
        assert len(list(cut.headers())) == count, end


def test_aborted_transactions_are_left_out_and_markers_always() -> None:
    whole = batches(
        batch(0, [b"plain"]),
        batch(1, [b"aborted"], producer=7),
        batch(2, [b"committed"], producer=8),
        marker(3, ControlType.ABORT, 7),
        marker(4, ControlType.COMMIT, 8),
        batch(5, [b"next of 7"], producer=7),
        marker(6, ControlType.COMMIT, 7),
        aborted=((7, 1),),
    )
    values = [record.value for record in whole.open(committed=True)]
    assert values == [b"plain", b"committed", b"next of 7"]
    assert b"aborted" in [record.value for record in whole.open()]
