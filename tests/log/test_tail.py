"""What is kept in memory of a log's end: always what the file says, and never too much."""

from random import Random

import pytest
from tests.log.logs import batch, headers, open_log

from odradek.log import tail
from odradek.log.config import LogConfig
from odradek.log.log import AppendInfo, Log
from odradek.log.tail import Tails
from odradek.wire.schema import Records

LARGE = b"x" * 5_000


def keep(log: Log, info: AppendInfo, batch: memoryview) -> None:
    log.tail.put(info.first_offset, info.last_offset + 1, batch)


def append(log: Log, value: bytes = LARGE, epoch: int = 0) -> AppendInfo:
    buffer = batch(value=value)
    info = log.append_as_leader(buffer, epoch)
    keep(log, info, memoryview(buffer))
    return info


def joined(records: Records | None) -> bytes | None:
    if records is None:
        return None
    return b"".join(records) if isinstance(records, list) else bytes(records)


def kept(log: Log, offset: int = 0, max_bytes: int = 1 << 20, end: int | None = None) -> Records:
    end = log.end_offset if end is None else end
    found = log.tail.read(offset, end, max_bytes, min_one_batch=True)
    return b"" if found is None else found


def test_batches_come_as_they_are_on_disk_without_a_copy() -> None:
    log = open_log(config=LogConfig())
    buffer = batch(value=LARGE)
    keep(log, log.append_as_leader(buffer, 3), memoryview(buffer))
    append(log, epoch=3)
    records = kept(log)
    assert isinstance(records, list)
    assert isinstance(records[0], memoryview)
    assert records[0].obj is buffer
    assert joined(records) == log.read(0, 1 << 20).records


def test_limits_are_those_of_a_read_from_disk() -> None:
    log = open_log(config=LogConfig())
    for _ in range(4):
        append(log)
    size = headers(log)[0].size_bytes
    for max_bytes in (1, size - 1, size, size + 1, 2 * size, 3 * size + 7, 9 * size):
        for end in range(1, 5):
            for whole in (True, False):
                in_memory = log.tail.read(0, end, max_bytes, min_one_batch=whole)
                on_disk = log.read(0, max_bytes, end_offset=end, min_one_batch=whole).records
                # The disk is asked where nothing is found.
                assert joined(in_memory) in (None, on_disk)
                assert in_memory is not None or max_bytes < size


def test_many_small_batches_are_left_to_the_file() -> None:
    log = open_log(config=LogConfig())
    append(log, b"small")
    append(log, b"small")
    assert not kept(log, 0)
    assert joined(kept(log, 1)) == log.read(1, 1 << 20).records


def test_no_more_is_kept_than_the_bound_and_the_oldest_goes_first() -> None:
    tails = Tails(bytes_max=20_000)
    logs = [open_log(config=LogConfig(), tails=tails) for _ in range(3)]
    for _ in range(4):
        for log in logs:
            append(log)
            assert tails.charged_bytes <= 20_000
    assert [bool(kept(log, 2)) for log in logs] == [False, False, False]
    assert [bool(kept(log, 3)) for log in logs] == [True, True, True]


def test_a_small_part_of_a_large_request_does_not_keep_the_request() -> None:
    tails = Tails()
    log = open_log(config=LogConfig(), tails=tails)
    data = batch(value=LARGE)
    request = bytearray(1_000_000)
    request[100 : 100 + len(data)] = data
    view = memoryview(request)[100 : 100 + len(data)]
    keep(log, log.append_as_leader(view, 0), view)
    assert tails.charged_bytes < 10_000
    assert joined(kept(log)) == log.read(0, 1 << 20).records
    del view
    request.clear()  # possible only if nothing looks at it any more


@pytest.mark.parametrize("change", ["truncate", "truncate fully", "close", "fail"])
def test_nothing_is_kept_of_what_was_removed(change: str) -> None:
    log = open_log(config=LogConfig())
    for _ in range(3):
        append(log)
    if change == "truncate":
        log.truncate_to(1)
    elif change == "truncate fully":
        log.truncate_fully_and_start_at(0)
    elif change == "close":
        log.close_files()
    else:
        log.fail(OSError())
    assert not kept(log, 0, end=3)
    assert not kept(log, 1, end=3)


def test_whatever_happens_memory_and_disk_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "WALKED_BYTES_MIN", 0)
    rng = Random(7)
    served = 0
    for _ in range(20):
        config = LogConfig(segment_bytes=2_000)
        log = open_log(config=config, tails=Tails(bytes_max=6_000))
        for step in range(100):
            if rng.random() < 0.1:
                log.truncate_to(rng.randint(max(0, log.end_offset - 5), log.end_offset))
            else:
                append(log, b"%d" % step * rng.randint(1, 200), epoch=step)
            offset = rng.randint(max(0, log.end_offset - 5), log.end_offset)
            limit = rng.choice([100, 1_000, 1 << 20])
            found = joined(kept(log, offset, limit))
            if found:
                served += 1
                # No more than the disk gives either: a read ends with its segment.
                assert log.read(offset, limit, min_one_batch=True).records.startswith(found)
    assert served > 200
