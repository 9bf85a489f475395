"""What appending to and reading from a log costs: CPU per megabyte, per small append, per read.

Run: python benchmarks/log.py [--directory DIR]. Figures are CPU time of this process, best of
several rounds, so they depend little on what else the machine does.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial

from odradek.log.config import LogConfig
from odradek.log.disk import RealDisk
from odradek.log.host import LogHost
from odradek.log.log import Log
from odradek.wire.batch import scan
from odradek.wire.crc32c import crc32c
from odradek.wire.records import Record, encode_batch
from odradek.wire.topics import TopicPartition

NOW_MS = 1_700_000_000_000
ROUNDS = 5


def cpu(
    action: Callable[[], object], times: int, before: Callable[[], object] = lambda: None
) -> float:
    """Seconds of CPU for one call, the best of several rounds, with something before each."""
    best = float("inf")
    for _ in range(ROUNDS):
        before()
        begin = time.process_time()
        for _ in range(times):
            action()
        best = min(best, (time.process_time() - begin) / times)
    return best


def batch(records: int, value_bytes: int, **options: int) -> bytearray:
    record = Record(-1, NOW_MS, None, b"v" * value_bytes)
    return encode_batch([record] * records, **options)  # type: ignore[arg-type]  # ints only


def open_log(directory: str, name: str) -> Log:
    config = LogConfig(max_message_bytes=1 << 30, segment_bytes=256 << 20)
    host = LogHost(RealDisk(), lambda: NOW_MS)
    return Log(host, f"{directory}/{name}", TopicPartition(name, 0), config)


def appender(log: Log, data: bytearray) -> Callable[[], object]:
    def append() -> None:
        # A client sends base offset 0; the append before this one has patched it.
        data[0:8] = bytes(8)
        log.append_as_leader(data, 0)

    return append


def report(what: str, seconds: float, unit: str) -> None:
    print(f"{what:<52} {seconds:>10.1f} {unit}")


def main(where: str | None = None) -> None:
    with tempfile.TemporaryDirectory(dir=where) as directory:
        measure(directory)


def fresh(log: Log) -> Callable[[], None]:
    """Empty the log before a round, so that the page cache is recycled, not grown: on a virtual
    machine the first touch of a page costs ten times what writing to it does. The new leader epoch,
    which is synced once, belongs to no append either."""

    def empty() -> None:
        log.truncate_fully_and_start_at(0)
        log.assign_epoch(0, 0)

    return empty


def measure(directory: str) -> None:
    megabyte = batch(1000, 1024)
    size_mb = len(megabyte) / 1e6
    view = memoryview(megabyte)
    report("CRC-32C of 1 MB", cpu(lambda: crc32c(view), 100) * 1e6 / size_mb, "µs/MB")
    floor = RealDisk().open(f"{directory}/floor", create=True)
    bare = cpu(lambda: floor.append(megabyte), 32, lambda: floor.truncate(0))
    report("write 1 MB to a file, nothing else", bare * 1e6 / size_mb, "µs/MB")

    large = open_log(directory, "large-0")
    seconds = cpu(appender(large, megabyte), 32, fresh(large))
    report("append 1 MB batches", seconds * 1e6 / size_mb, "µs/MB")
    small = open_log(directory, "small-0")
    report("append 100-byte batches", cpu(appender(small, batch(1, 30)), 20_000) * 1e6, "µs")
    measure_idempotent(open_log(directory, "idempotent-0"))
    measure_follower(open_log(directory, "follower-0"))

    report("read 1 MB from the middle", cpu(lambda: large.read(5_000, 1 << 20), 100) * 1e6, "µs")
    end = small.end_offset
    report("read the last record", cpu(lambda: small.read(end - 1, 1 << 20), 5000) * 1e6, "µs")
    for length in (1_000, 10_000, 100_000):
        read = partial(small.read, end - length, 1024, end_offset=end - 500)
        seconds = cpu(read, 2000)
        report(f"read 1 KB, {length} records from the end, bounded", seconds * 1e6, "µs")


def measure_idempotent(log: Log) -> None:
    sequence = iter(range(1 << 30))

    def append() -> None:
        data = batch(1, 30, producer_id=1, producer_epoch=0, base_sequence=next(sequence))
        log.append_as_leader(data, 0)

    encode = cpu(lambda: batch(1, 30, producer_id=1, producer_epoch=0, base_sequence=1), 5000)
    report("append 100-byte batches, idempotent", (cpu(append, 5000) - encode) * 1e6, "µs")


def measure_follower(log: Log) -> None:
    chunk = bytearray()
    for index in range(64):
        part = batch(16, 1000)
        part[0:8] = (index * 16).to_bytes(8, "big")
        chunk += part

    def append() -> None:
        headers = list(scan(chunk))
        shift = log.end_offset - headers[0].base_offset
        for header in headers:
            moved = (header.base_offset + shift).to_bytes(8, "big")
            chunk[header.position : header.position + 8] = moved
        log.append_as_follower(chunk)

    seconds = cpu(append, 32, fresh(log))
    report("append 16 KB batches, 64 at a time, as follower", seconds * 1e6 / 1.04, "µs/MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", default=None)
    main(parser.parse_args().directory)
